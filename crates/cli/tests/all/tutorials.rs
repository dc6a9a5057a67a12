//! Runs the commands of docs/tutorial-simulation.md, as a user enters them.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::common::tutorial::Tutorial;

#[test]
fn simulation_tutorial_prints_what_it_shows() {
    let root = fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).unwrap();
    let page = fs::read_to_string(root.join("docs/tutorial-simulation.md")).unwrap();
    // The crate of the last step is compiled once for all runs of this test.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tutorial");
    let environment = [
        ("WEIR", root.to_str().unwrap()),
        ("CARGO_TARGET_DIR", target.to_str().unwrap()),
        ("CARGO_INCREMENTAL", "0"),
        ("CARGO_PROFILE_DEV_DEBUG", "0"),
        ("CARGO_NET_OFFLINE", "true"),
    ];
    Tutorial::start(&environment).run_page(&page, Duration::ZERO);
}
