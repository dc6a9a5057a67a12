//! Tests of the store and the coordinator on a disk that is full: a small file system in memory, which other processes do not see.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use weir_coordinator::control_plane::{FlowKey, FlowProgress, Order, OrderedRate, Report, SenderState};
use weir_coordinator::registry::check_record;
use weir_coordinator::store::{Store, StoreError, Table, verify};

use crate::api::{CONFIG, TIMEOUT, TestServer, get, get_text, put, send_json_request};

/// The size of the file system. A new store takes about 1 MB.
const DISK_BYTES: usize = 8 << 20;

/// A small file system that is mounted for this thread and the threads that it starts.
struct Disk {
    path: PathBuf,
}

impl Disk {
    /// Mounts a file system in a folder. `None` without the privilege to mount one, with a message.
    fn mount(folder: &Path, test: &str) -> Option<Disk> {
        let path = folder.join("disk");
        fs::create_dir(&path).unwrap();
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNS) {
            eprintln!("{test} skips, since this machine cannot create mount namespaces: {error}");
            return None;
        }
        // Mounts of this namespace do not appear in others.
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        let size = format!("size={DISK_BYTES}");
        mount(none, &path, Some("tmpfs"), MsFlags::empty(), Some(&*size)).unwrap();
        Some(Disk { path })
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }

    /// Writes a file until no byte is free.
    fn fill(&self) {
        let mut file = fs::File::options().append(true).create(true).open(self.filler()).unwrap();
        for chunk in [1 << 16, 1 << 12, 1] {
            while file.write_all(&vec![1; chunk]).is_ok() {}
        }
    }

    fn free(&self) {
        fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = umount2(&self.path, MntFlags::MNT_DETACH);
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

fn wait_until(what: &str, mut is_reached: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_reached() {
        assert!(start.elapsed() < TIMEOUT, "{what}: not within {TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A valid record of about this many bytes.
fn record(bytes: usize) -> Value {
    json!([{ "from": "x".repeat(bytes), "to": "b", "bytes": null }])
}

/// Writes records of 64 KiB until the store refuses one. Returns the number of stored records, and the error.
fn put_until_refused(runtime: &Runtime, store: &Store, first: usize) -> (usize, StoreError) {
    let value = record(64 << 10);
    for n in first.. {
        if let Err(error) = runtime.block_on(store.put(Table::FirstFlows, &format!("s{n:04}"), &value)) {
            return (n, error);
        }
    }
    unreachable!("the disk is full before the numbers end")
}

/// Opens a store. A former handle of this process may not have closed it yet.
fn open(path: &Path) -> Store {
    let mut store = None;
    wait_until("an open store", || match Store::open(path) {
        Ok(opened) => {
            store = Some(opened);
            true
        }
        Err(StoreError::AlreadyOpen(_)) => false,
        Err(error) => panic!("{error}"),
    });
    store.unwrap()
}

fn keys(store: &Store) -> Vec<String> {
    store.records::<Value>(Table::FirstFlows).unwrap().into_iter().map(|(key, _)| key).collect()
}

#[test]
fn store_on_a_full_disk_is_read_and_written_again_when_space_returns() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) =
        Disk::mount(folder.path(), "store_on_a_full_disk_is_read_and_written_again_when_space_returns")
    else {
        return;
    };
    let (path, runtime) = (disk.path.join("weir.redb"), runtime());
    let store = open(&path);
    let mut epochs = vec![store.epoch()];
    for n in 0..3 {
        runtime.block_on(store.put(Table::FirstFlows, &format!("s{n:04}"), &record(1))).unwrap();
    }
    disk.fill();
    let (stored, error) = put_until_refused(&runtime, &store, 3);
    assert!(error.to_string().contains("No space left on device"), "{error}");
    assert!(matches!(error, StoreError::Unwritable { .. }), "{error}");
    // Confirmed records can be read, and changes are refused at once.
    wait_until("a store that can be read", || store.records::<Value>(Table::FirstFlows).is_ok());
    assert_eq!(keys(&store).len(), stored);
    assert!(runtime.block_on(store.remove(Table::FirstFlows, "s0000")).is_err());
    let mut lines = 0;
    store
        .snapshot()
        .unwrap()
        .send_lines(|_| {
            lines += 1;
            true
        })
        .unwrap();
    assert_eq!(lines, stored + 2);
    assert!(store.check_writable().is_err() && store.status().failed_writes >= 1);
    disk.free();
    wait_until("a store that can be written", || store.check_writable().is_ok());
    assert_eq!(store.status().recoveries, 1);
    runtime.block_on(store.put(Table::FirstFlows, "s9999", &record(1))).unwrap();
    assert_eq!(keys(&store).len(), stored + 1);
    drop(store);

    // Starts on a full disk have different epochs, which rise, and change no record.
    disk.fill();
    for _ in 0..3 {
        let store = open(&path);
        assert_eq!(
            store.status().failure.as_deref(),
            Some("I/O error: No space left on device (os error 28)")
        );
        assert_eq!(store.epoch(), epochs.last().unwrap() + 1);
        epochs.push(store.epoch());
        assert_eq!(keys(&store).len(), stored + 1);
        assert!(runtime.block_on(store.put(Table::FirstFlows, "refused", &record(1))).is_err());
    }
    // Without the epoch file, the time of day makes the epochs different. A start after them has a higher one.
    wait_until("a closed store", || verify(&path, check_record).is_ok());
    fs::remove_file(disk.path.join("weir.redb.epoch")).unwrap();
    disk.fill();
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let by_clock = open(&path);
    assert!(by_clock.epoch() >= millis && by_clock.epoch() > *epochs.last().unwrap());
    disk.free();
    wait_until("a store that can be written", || by_clock.check_writable().is_ok());
    runtime.block_on(by_clock.put(Table::FirstFlows, "accepted", &record(1))).unwrap();
    let last = by_clock.epoch();
    drop(by_clock);
    let store = open(&path);
    assert_eq!((store.epoch(), store.status().failure), (last + 1, None));
    assert_eq!(keys(&store).len(), stored + 2);
}

/// While a coordinator cannot write its store, another one may open it. The first one must not write it then.
#[test]
fn store_that_another_coordinator_has_opened_is_not_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) =
        Disk::mount(folder.path(), "store_that_another_coordinator_has_opened_is_not_written_again")
    else {
        return;
    };
    let runtime = runtime();
    let [path, copy] = ["weir.redb", "copy"].map(|name| folder.path().join(name));
    drop(open(&disk.path.join("weir.redb")));
    wait_until("a closed store", || verify(&disk.path.join("weir.redb"), check_record).is_ok());
    symlink(disk.path.join("weir.redb"), &path).unwrap();
    let first = open(&path);
    disk.fill();
    put_until_refused(&runtime, &first, 0);
    wait_until("a store that can be read", || first.records::<Value>(Table::FirstFlows).is_ok());
    // The other coordinator has changed the file at this path.
    fs::write(&copy, fs::read(&path).unwrap()).unwrap();
    drop(open(&copy));
    wait_until("a closed copy", || verify(&copy, check_record).is_ok());
    fs::remove_file(&path).unwrap();
    symlink(&copy, &path).unwrap();
    let before = verify(&copy, check_record).unwrap();
    let is_refused =
        || first.status().failure.is_some_and(|reason| reason.contains("another coordinator has opened"));
    wait_until("the refusal", is_refused);
    assert!(runtime.block_on(first.put(Table::FirstFlows, "refused", &record(1))).is_err());
    let after = verify(&copy, check_record).unwrap();
    assert_eq!((after.epoch, after.records), (before.epoch, before.records));
}

fn coflow(to: &str) -> serde_json::Value {
    json!({ "flows": [{ "from": "a", "to": to, "bytes": 1_000_000_000 }] })
}

/// The next order to host 0, which reports until it arrives.
fn next_order(runtime: &Runtime, server: &TestServer) -> Order {
    let (handle, epoch) = (server.registry().handle().clone(), server.epoch);
    runtime.block_on(async {
        let mut orders = handle.subscribe_to_orders(0).await.unwrap().unwrap();
        handle.report(0, Report { applied: (epoch, 0), ..Report::default() }).await.unwrap();
        tokio::time::timeout(TIMEOUT, orders.recv()).await.unwrap().unwrap()
    })
}

/// Fills the rest of the file system and of the store's file: registers coflows until one is refused.
fn register_until_refused(server: &TestServer) {
    let long = "x".repeat(100);
    let flows: Vec<_> = (0..800).map(|_| json!({ "from": "a", "to": "b" })).collect();
    for n in 0.. {
        let (status, problem) = put(server, &format!("/v1/coflows/{long}{n}"), &json!({ "flows": flows }));
        if status != 200 {
            assert_eq!(status, 503, "{problem}");
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains("No space left on device"), "{detail}");
            return;
        }
    }
}

#[test]
fn coordinator_on_a_full_disk_serves_and_refuses_changes_until_space_returns() {
    let folder: TempDir = tempfile::tempdir().unwrap();
    let test = "coordinator_on_a_full_disk_serves_and_refuses_changes_until_space_returns";
    let Some(disk) = Disk::mount(folder.path(), test) else { return };
    let text = CONFIG.replace("store = \"weir.redb\"", "store = \"disk/weir.redb\"");
    let mut server = TestServer::start_with(folder, text);
    let runtime = runtime();
    assert_eq!(put(&server, "/v1/coflows/c1", &coflow("b")).0, 200);
    assert_eq!(put(&server, "/v1/coflows/c2", &coflow("c")).0, 200);
    disk.fill();
    register_until_refused(&server);
    for start in 0..2 {
        let (status, problem) = get(&server, "/readyz");
        assert_eq!(status, 503);
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("No space left on device"), "{detail}");
        assert_eq!(get_text(&server, "/livez").0, 200);
        let metrics = get_text(&server, "/metrics").1;
        assert!(metrics.contains("weir_store_writable 0\n"), "{metrics}");
        assert!(!metrics.contains("weir_store_failed_writes_total 0\n"), "{metrics}");
        // Repeated registrations change nothing. Changes are refused, and have no effect.
        assert_eq!(put(&server, "/v1/coflows/c1", &coflow("b")).0, 200);
        assert_eq!(put(&server, "/v1/coflows/new", &coflow("b")).0, 503);
        assert_eq!(send_json_request(&server, "DELETE", "/v1/coflows/c1", b"").0, 503);
        assert_eq!(get(&server, "/v1/coflows/new").0, 404);
        assert_eq!(get(&server, "/v1/coflows/c1").1["completed"], false);
        let order = next_order(&runtime, &server);
        assert_eq!((order.epoch, order.is_full), (server.epoch, true));
        let ids: Vec<&str> = order.flows.iter().map(|(key, _)| &*key.coflow).collect();
        assert!(ids.contains(&"c1") && ids.contains(&"c2"), "{ids:?}");
        assert!(order.flows.iter().all(|(_, rate)| *rate != OrderedRate::Removed));
        if start == 0 {
            let epoch = server.epoch;
            server.restart(|text| text);
            assert!(server.epoch > epoch, "{} after {epoch}", server.epoch);
        }
    }
    // This coflow completes, and cannot be removed from the store yet.
    let generation = runtime.block_on(server.registry().coflow("c2")).unwrap().registration.generation;
    let key = FlowKey { coflow: "c2".into(), generation, flow: 0 };
    let progress = FlowProgress::new(key, 1_000_000_000, SenderState::Completed);
    let report = Report { flows: vec![progress], ..Report::default() };
    runtime.block_on(server.registry().handle().report(0, report)).unwrap();
    assert_eq!(get(&server, "/v1/coflows/c2").1["completed"], true);
    disk.free();
    wait_until("a store that can be written", || get_text(&server, "/readyz").0 == 200);
    assert_eq!(put(&server, "/v1/coflows/new", &coflow("b")).0, 200);
    assert_eq!(send_json_request(&server, "DELETE", "/v1/coflows/c1", b"").0, 204);
    let metrics = get_text(&server, "/metrics").1;
    assert!(metrics.contains("weir_store_writable 1\n"), "{metrics}");
    assert!(metrics.contains("weir_store_recoveries_total 1\n"), "{metrics}");
    let is_stored = |id: &str| get_text(&server, "/v1/backup").1.contains(&format!("\"key\":\"{id}\""));
    wait_until("the removal of the completed coflow from the store", || !is_stored("c2"));
    assert!(is_stored("new"));
    server.restart(|text| text);
    let status = |id: &str| get(&server, &format!("/v1/coflows/{id}")).0;
    assert_eq!(["new", "c1", "c2"].map(status), [200, 404, 404]);
    drop(server);
    drop(disk);
}
