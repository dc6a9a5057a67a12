//! The store: what was answered is there after any end, epochs rise, and what is no store is left alone.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use redb::{Database, TableDefinition};
use tokio::runtime::{Builder, Runtime};
use weir_coordinator::store::{Room, Store, StoreError};

fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

fn all(store: &Store, room: Room) -> BTreeMap<String, u64> {
    store.all(room).unwrap().into_iter().collect()
}

#[test]
fn what_was_put_is_there_until_it_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weir.redb");
    let runtime = runtime();
    let store = Store::open(&path).unwrap();
    let epoch = store.epoch();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(all(&store, Room::Coflows), BTreeMap::new());
    runtime.block_on(async {
        // Many at a time, each told when it is there.
        let put = |n: u64| {
            let store = store.clone();
            async move { store.put(Room::Coflows, &format!("c{n}"), &n).await }
        };
        let tasks: Vec<_> = (0..200).map(put).collect();
        for done in futures_util::future::join_all(tasks).await {
            done.unwrap();
        }
        store.put(Room::Coflows, "c7", &700u64).await.unwrap();
        store.remove(Room::Coflows, "c8").await.unwrap();
        store.remove(Room::Coflows, "c8").await.unwrap();
        store.put(Room::Weights, "ads", &2u64).await.unwrap();
    });
    let coflows = all(&store, Room::Coflows);
    assert_eq!((coflows.len(), coflows["c7"], coflows.get("c8")), (199, 700, None));
    assert_eq!(store.get::<u64>(Room::Weights, "ads").unwrap(), Some(2));
    assert_eq!(store.get::<u64>(Room::Weights, "other").unwrap(), None);
    let wrong = store.all::<String>(Room::Weights).unwrap_err().to_string();
    assert!(wrong.contains("the store's weights `ads`"), "{wrong}");
    // One process at a time.
    assert!(matches!(Store::open(&path), Err(StoreError::Open(_))));
    close(store, &path);
    let again = Store::open(&path).unwrap();
    assert_eq!((again.epoch(), all(&again, Room::Coflows)), (epoch + 1, coflows));
}

/// The thread that writes ends by itself, a moment after the last handle.
fn close(store: Store, path: &Path) {
    drop(store);
    for _ in 0..500 {
        match Database::open(path) {
            Ok(_) => return,
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(10)),
        }
    }
    panic!("{} is still open after 5 s", path.display());
}

#[test]
fn what_is_no_store_is_refused_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let noise: Vec<u8> = (0..20_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for bytes in [&b"weir-serve = 1\n"[..], &noise] {
        fs::write(&path, bytes).unwrap();
        assert!(matches!(Store::open(&path), Err(StoreError::Foreign(_))));
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
    fs::remove_file(&path).unwrap();
    let other = Database::create(&path).unwrap();
    let transaction = other.begin_write().unwrap();
    transaction.open_table(TableDefinition::<u64, u64>::new("of somebody else")).unwrap();
    transaction.commit().unwrap();
    drop(other);
    assert!(matches!(Store::open(&path), Err(StoreError::Foreign(_))));
    fs::remove_file(&path).unwrap();
    close(Store::open(&path).unwrap(), &path);
    let later = Database::open(&path).unwrap();
    let transaction = later.begin_write().unwrap();
    transaction.open_table(TableDefinition::<&str, u64>::new("weir")).unwrap().insert("version", 2).unwrap();
    transaction.commit().unwrap();
    drop(later);
    let refused = Store::open(&path).err().unwrap().to_string();
    assert!(refused.ends_with("the store has version 2: expected 1"), "{refused}");
    assert!(Store::open(&folder.path().join("none/weir.redb")).is_err());
}

/// A store whose pages were changed by something else ends in an error, wherever that is.
#[test]
fn a_damaged_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weir.redb");
    let store = Store::open(&path).unwrap();
    let runtime = runtime();
    for n in 0..50u64 {
        runtime.block_on(store.put(Room::Coflows, &format!("c{n}"), &vec![n; 100])).unwrap();
    }
    let whole = all_of(&store);
    close(store, &path);
    let good = fs::read(&path).unwrap();
    let mut refused = 0;
    for at in (0..good.len()).step_by(good.len() / 40) {
        let mut bad = good.clone();
        for byte in bad.iter_mut().skip(at).take(64) {
            *byte ^= 0x5a;
        }
        fs::write(&path, &bad).unwrap();
        match Store::open(&path) {
            Err(_) => refused += 1,
            // Where nothing is stored, nothing is lost.
            Ok(store) => {
                assert_eq!(all_of(&store), whole);
                close(store, &path);
            }
        }
    }
    assert!(refused > 0);
}

fn all_of(store: &Store) -> Vec<(String, Vec<u64>)> {
    store.all(Room::Coflows).unwrap()
}

/// Not a test: what the next one starts and kills. Writes numbers, and says of each that it is there.
#[test]
fn writer() {
    let Some(path) = env::var_os("WEIR_TEST_STORE") else { return };
    let store = Store::open(Path::new(&path)).unwrap();
    let runtime = runtime();
    for n in 0..100_000u64 {
        runtime.block_on(store.put(Room::Coflows, &format!("c{n}"), &n)).unwrap();
        println!("\nwritten {n}");
    }
}

#[test]
fn what_was_answered_survives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weir.redb");
    let first = Store::open(&path).unwrap();
    let epoch = first.epoch();
    close(first, &path);
    for round in 1..=5u64 {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["store::writer", "--exact", "--nocapture"])
            .env("WEIR_TEST_STORE", &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut last = None;
        for line in lines.map_while(Result::ok) {
            if let Some(n) = line.strip_prefix("written ") {
                last = Some(n.parse::<u64>().unwrap());
            }
            if last == Some(20 * round) {
                // SIGKILL: it gets no chance to tidy up.
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        let last = last.unwrap();
        let store = Store::open(&path).unwrap();
        assert_eq!(store.epoch(), epoch + 2 * round);
        let kept = all(&store, Room::Coflows);
        assert!((0..=last).all(|n| kept.get(&format!("c{n}")) == Some(&n)), "{last} answered");
        close(store, &path);
    }
}
