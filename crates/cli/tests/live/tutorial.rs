//! Runs the commands of docs/tutorial-live.md, as a user enters them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use weir_testbed::namespace;

use crate::common::tutorial::Tutorial;
use crate::examples::missing_requirement;
use crate::test_lock;

/// Removes the tutorial's bed after a failure, with the agents' files.
struct BedRemoval(String);

impl Drop for BedRemoval {
    fn drop(&mut self) {
        for host in ["h0", "h1"] {
            let mut weir = namespace::command(&format!("weir-{}-{host}", self.0), env!("CARGO_BIN_EXE_weir"));
            let _ = weir.args(["agent", "cleanup"]).output();
        }
        let _ =
            Command::new(env!("CARGO_BIN_EXE_weir")).args(["testbed", "down", "--name", &self.0]).output();
    }
}

#[test]
fn live_tutorial_prints_what_it_shows() {
    if let Some(reason) = missing_requirement(&["openssl", "python3", "bash"]) {
        eprintln!("live_tutorial_prints_what_it_shows skips, since {reason}");
        return;
    }
    let _lock = test_lock::lock_exclusive();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tutorial-live.md");
    let bed = format!("tutorial{}", std::process::id());
    let page = fs::read_to_string(page).unwrap().replace("mybed", &bed);
    let _removal = BedRemoval(bed);
    Tutorial::start(&[]).run_page(&page, Duration::from_secs(30));
}
