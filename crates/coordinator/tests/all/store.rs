//! Tests of the store: answered changes survive any end of the process, epochs rise, and files of other programs stay
//! unchanged.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::campaign::seeds;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use redb::{Database, TableDefinition};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use weir_coordinator::registry::check_record;
use weir_coordinator::registry::{CoflowBody, FlowBody};
use weir_coordinator::store::{Store, StoreError, Table, verify, write_backup};

fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

fn values_by_key(store: &Store, table: Table) -> BTreeMap<String, u64> {
    store.records(table).unwrap().into_iter().collect()
}

#[test]
fn store_in_a_missing_folder_is_refused_by_its_configured_path() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("absent");
    let path = missing.join("weir.redb");
    let error = Store::open(&path).err().unwrap().to_string();
    let (path, missing) = (path.display(), missing.display());
    let expected = format!("{path}: I/O error: the folder {missing} does not exist; help: create it");
    assert_eq!(error, expected);
}

#[test]
fn records_persist_until_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weir.redb");
    let runtime = runtime();
    let store = Store::open(&path).unwrap();
    let epoch = store.epoch();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(values_by_key(&store, Table::Coflows), BTreeMap::new());
    runtime.block_on(async {
        // Concurrent writes; each returns when its record is on the disk.
        let put = |n: u64| {
            let store = store.clone();
            async move { store.put(Table::Coflows, &format!("c{n}"), &n).await }
        };
        let tasks: Vec<_> = (0..200).map(put).collect();
        for done in futures_util::future::join_all(tasks).await {
            done.unwrap();
        }
        store.put(Table::Coflows, "c7", &700u64).await.unwrap();
        store.remove(Table::Coflows, "c8").await.unwrap();
        store.remove(Table::Coflows, "c8").await.unwrap();
        store.put(Table::Weights, "ads", &2u64).await.unwrap();
    });
    let coflows = values_by_key(&store, Table::Coflows);
    assert_eq!((coflows.len(), coflows["c7"], coflows.get("c8")), (199, 700, None));
    assert_eq!(store.get::<u64>(Table::Weights, "ads").unwrap(), Some(2));
    assert_eq!(store.get::<u64>(Table::Weights, "other").unwrap(), None);
    let error = store.records::<String>(Table::Weights).unwrap_err().to_string();
    let expected = format!("{}: damaged at table `weights`, record `ads` (invalid type", path.display());
    assert!(error.starts_with(&expected), "{error}");
    // A second process cannot open the store.
    assert!(matches!(Store::open(&path), Err(StoreError::AlreadyOpen(_))));
    close_store(store, &path);
    let reopened = Store::open(&path).unwrap();
    assert!(reopened.epoch() > epoch);
    assert_eq!(values_by_key(&reopened, Table::Coflows), coflows);
}

/// Closes the store: the writer thread ends shortly after the last handle is dropped.
fn close_store(store: Store, path: &Path) {
    drop(store);
    let start = Instant::now();
    while Database::open(path).is_err() {
        assert!(start.elapsed() < Duration::from_secs(20), "{} is still open after 20 s", path.display());
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn files_of_other_programs_are_refused_and_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let noise: Vec<u8> = (0..20_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for bytes in [&b"weir-serve = 1\n"[..], &noise] {
        fs::write(&path, bytes).unwrap();
        assert!(matches!(Store::open(&path), Err(StoreError::NotAStore { .. })));
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
    fs::remove_file(&path).unwrap();
    let other = Database::create(&path).unwrap();
    let transaction = other.begin_write().unwrap();
    transaction.open_table(TableDefinition::<u64, u64>::new("of another program")).unwrap();
    transaction.commit().unwrap();
    drop(other);
    assert!(matches!(Store::open(&path), Err(StoreError::NotAStore { .. })));
    fs::remove_file(&path).unwrap();
    close_store(Store::open(&path).unwrap(), &path);
    let later = Database::open(&path).unwrap();
    let transaction = later.begin_write().unwrap();
    transaction.open_table(TableDefinition::<&str, u64>::new("weir")).unwrap().insert("version", 2).unwrap();
    transaction.commit().unwrap();
    drop(later);
    let refused = Store::open(&path).err().unwrap().to_string();
    assert!(refused.contains("the store has version 2; expected 1; help: "), "{refused}");
    assert!(Store::open(&folder.path().join("none/weir.redb")).is_err());
}

/// Two files of a store with records in two tables: after the store was closed, and as a killed coordinator leaves it.
struct StoreImages {
    folder: TempDir,
    closed: Vec<u8>,
    killed: Vec<u8>,
    coflows: Vec<(String, CoflowBody)>,
}

fn coflow(n: u32) -> CoflowBody {
    let flow = |at| FlowBody {
        from: format!("host-{n}"),
        to: format!("host-{at}"),
        bytes: Some(1000),
        numbers: None,
    };
    let flows = (0..n % 40).map(flow).collect();
    CoflowBody { service: None, application: None, weight: Some(2.0), deadline: None, flows }
}

fn store_images(coflows: u32) -> StoreImages {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weir.redb");
    let store = Store::open(&path).unwrap();
    let runtime = runtime();
    for n in 0..coflows {
        runtime.block_on(store.put(Table::Coflows, &format!("c{n}"), &coflow(n))).unwrap();
    }
    runtime.block_on(store.remove(Table::Coflows, "c3")).unwrap();
    let weight = serde_json::json!({ "set": 3.0, "configured": null });
    runtime.block_on(store.put(Table::Weights, "ads", &weight)).unwrap();
    let killed = fs::read(&path).unwrap();
    let coflows = store.records(Table::Coflows).unwrap();
    close_store(store, &path);
    StoreImages { closed: fs::read(&path).unwrap(), killed, folder, coflows }
}

/// Asserts that a damaged file is refused with a message that names the file, the damaged bytes and the remedy, and stays
/// unchanged; or that it has the contents of the undamaged file. Returns whether the file is refused.
fn is_image_refused(images: &StoreImages, bytes: &[u8], case: &str) -> bool {
    refusal_of_image(images, bytes, case).is_some()
}

/// Asserts the same as [`is_image_refused`]. Returns the message of a refused file.
fn refusal_of_image(images: &StoreImages, bytes: &[u8], case: &str) -> Option<String> {
    let path = images.folder.path().join("damaged.redb");
    fs::write(&path, bytes).unwrap();
    let checked = verify(&path, check_record);
    assert!(fs::read(&path).unwrap() == bytes, "{case}: the check changed the file");
    let opened = Store::open(&path);
    assert_eq!(checked.is_ok(), opened.is_ok(), "{case}: {checked:?} {:?}", opened.err());
    match opened {
        Ok(store) => {
            assert!(
                store.records::<CoflowBody>(Table::Coflows).unwrap() == images.coflows,
                "{case}: other contents"
            );
            close_store(store, &path);
            None
        }
        Err(error) => {
            assert!(fs::read(&path).unwrap() == bytes, "{case}: the refused file was changed");
            let error = error.to_string();
            let name = format!("{}: ", path.display());
            let reason = error.strip_prefix(&name).unwrap_or_else(|| panic!("{case}: {error}"));
            let is_named =
                reason.starts_with("damaged at byte") || reason.starts_with("not a store (bytes 0 to 8");
            assert!(
                is_named && error.contains("; help: ") && error.contains("weir ctl backup"),
                "{case}: {error}"
            );
            assert_eq!(checked.unwrap_err().to_string(), error, "{case}");
            Some(error)
        }
    }
}

#[test]
fn damaged_bytes_are_refused_with_their_place_or_have_no_effect() {
    let cases: Vec<u64> = seeds(300, 5000).collect();
    // Each thread opens the files one after the other.
    thread::scope(|scope| {
        scope.spawn(|| refuse_damaged_bytes("closed", |images| &images.closed, &cases));
        scope.spawn(|| refuse_damaged_bytes("killed", |images| &images.killed, &cases));
    });
}

/// Opens copies of an image with one damaged byte, sector or page.
fn refuse_damaged_bytes(name: &str, select: fn(&StoreImages) -> &[u8], seeds: &[u64]) {
    let images = store_images(60);
    let image = select(&images);
    let mut refused = 0;
    for &seed in seeds {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut bytes = image.to_vec();
        // At random offsets, and more often in the header.
        let len = [1, 1, 512, 4096][rng.next_u32() as usize % 4];
        let end = if seed % 4 == 0 { 400 } else { bytes.len() };
        let at = rng.next_u32() as usize % end;
        for byte in bytes.iter_mut().skip(at).take(len) {
            *byte ^= 1 << (rng.next_u32() % 8);
        }
        let what = format!("{name}, seed {seed}, {len} bytes from {at}");
        let Some(error) = refusal_of_image(&images, &bytes, &what) else { continue };
        refused += 1;
        // A single damaged byte is in the range that the message names. Damage to the header can first appear in a page
        // that the header refers to.
        if let Some((_, range)) = error.split_once(": damaged at bytes ").filter(|_| len == 1 && at >= 4096) {
            let mut numbers = range.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok());
            let (first, last): (usize, usize) = (numbers.next().unwrap(), numbers.next().unwrap());
            assert!((first..=last).contains(&at), "{what}: {error}");
        }
    }
    assert!(refused > seeds.len() / 10, "{name}: {refused} of {}", seeds.len());
}

#[test]
fn damaged_bits_of_the_header_are_refused_or_have_no_effect() {
    let images = store_images(10);
    for (image, name) in [(&images.closed, "closed"), (&images.killed, "killed")] {
        // The flags and the geometry of the file are followed by two transactions.
        for at in (0..24).chain((24..320).step_by(5)) {
            for bit in if at < 24 { 0..3 } else { 7..8 } {
                let mut bytes = image.clone();
                bytes[at] ^= 1 << bit;
                is_image_refused(&images, &bytes, &format!("{name}, bit {bit} of byte {at}"));
            }
        }
    }
}

#[test]
fn truncated_files_are_refused_with_their_place() {
    let images = store_images(60);
    let mut lengths = vec![0, 1, 8, 9, 10, 63, 64, 319, 320, 321, 4095, 4096, 4097, 8192];
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    for (image, name) in [(&images.closed, "closed"), (&images.killed, "killed")] {
        lengths.extend((0..60).map(|_| rng.next_u32() as usize % image.len()));
        lengths.extend((1..=20).map(|pages| image.len().saturating_sub(4096 * pages)));
        for &len in &lengths {
            is_image_refused(&images, &image[..len], &format!("{name}, the first {len} bytes"));
        }
    }
}

/// Not a test: the child process of the next test, which kills it. Writes numbers, and prints each number when it is on
/// the disk.
#[test]
fn write_until_killed() {
    let Some(path) = env::var_os("WEIR_TEST_STORE") else { return };
    let store = Store::open(Path::new(&path)).unwrap();
    let runtime = runtime();
    for n in 0..100_000u64 {
        runtime.block_on(store.put(Table::Coflows, &format!("c{n}"), &n)).unwrap();
        println!("\nwritten {n}");
    }
}

#[test]
fn confirmed_writes_survive_sigkill() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weir.redb");
    let first = Store::open(&path).unwrap();
    let mut epoch = first.epoch();
    close_store(first, &path);
    for round in 1..=5u64 {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["store::write_until_killed", "--exact", "--nocapture"])
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
                // SIGKILL: the process cannot clean up.
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        let last = last.unwrap();
        let store = Store::open(&path).unwrap();
        assert!(store.epoch() > epoch);
        epoch = store.epoch();
        let records = values_by_key(&store, Table::Coflows);
        assert!(
            (0..=last).all(|n| records.get(&format!("c{n}")) == Some(&n)),
            "not all records up to the last confirmed one, {last}, are in the store"
        );
        close_store(store, &path);
    }
}

/// The lines of a backup.
fn backup_lines(store: &Store) -> Vec<u8> {
    let mut all = Vec::new();
    let sent = store.snapshot().unwrap().send_lines(|line| {
        all.extend(line);
        true
    });
    sent.unwrap();
    all
}

#[test]
fn backup_is_complete_or_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weir.redb");
    let store = Store::open(&path).unwrap();
    let runtime = runtime();
    for n in 0..20 {
        runtime.block_on(store.put(Table::Coflows, &format!("c{n}"), &coflow(n))).unwrap();
    }
    let backup = backup_lines(&store);
    let restored_path = folder.path().join("backup.redb");
    let contents = write_backup(&backup[..], &restored_path, false, check_record).unwrap();
    assert_eq!((contents.epoch, contents.records["coflows"]), (store.epoch(), 20));
    assert_eq!(contents, verify(&restored_path, check_record).unwrap());
    let written = fs::read(&restored_path).unwrap();
    // Lines truncated or changed at any byte: no file is written, and an existing file stays unchanged.
    let other = folder.path().join("other.redb");
    for at in (0..backup.len()).step_by(backup.len() / 50) {
        assert!(write_backup(&backup[..at], &other, false, check_record).is_err(), "the first {at} bytes");
        let mut changed = backup.clone();
        changed[at] ^= 1;
        assert!(write_backup(&changed[..], &restored_path, true, check_record).is_err(), "byte {at} changed");
    }
    assert!(write_backup(&backup[..], &restored_path, false, check_record).is_err());
    assert!(!other.exists() && fs::read(&restored_path).unwrap() == written);
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        3,
        "temporary files remain next to both stores and the epoch file"
    );
    let restored = Store::open(&restored_path).unwrap();
    assert!(
        restored.records::<CoflowBody>(Table::Coflows).unwrap() == store.records(Table::Coflows).unwrap()
    );
    assert!(restored.epoch() > store.epoch());
}

#[test]
fn check_names_the_undecodable_record() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let ads = serde_json::json!({ "service": "ads", "model": null });
    let unknown = serde_json::json!({ "application": "s2", "from": "a", "to": "b" });
    let cases = [
        (Table::Coflows, "c1", serde_json::json!({ "flows": 3 }), "invalid type: integer `3`"),
        (Table::Applications, "not an id", ads, "the key is not a valid id"),
        (Table::Connections, "x1", unknown, "application `s2` is not in the store"),
        (Table::Settings, "sensitivity", serde_json::json!("weir-sens"), "table:1: "),
        (Table::Weights, "ads", serde_json::json!({ "set": 0.0, "configured": null }), "weight 0; expected"),
        (Table::Settings, "colour", serde_json::json!(1), "unknown setting"),
    ];
    for (n, (table, key, value, reason)) in cases.into_iter().enumerate() {
        let path = folder.path().join(format!("{n}.redb"));
        let store = Store::open(&path).unwrap();
        runtime.block_on(store.put(table, key, &value)).unwrap();
        // A check takes no lock, so it can read an open store.
        let error = verify(&path, check_record).unwrap_err().to_string();
        let is_in_use = error.contains("another process has the store open");
        assert!(is_in_use || error.contains(reason), "{error}");
        close_store(store, &path);
        let error = verify(&path, check_record).unwrap_err().to_string();
        let location = format!("{}: damaged at table `", path.display());
        assert!(
            error.starts_with(&location) && error.contains(&format!("record `{key}` ({reason}")),
            "{error}"
        );
    }
}
