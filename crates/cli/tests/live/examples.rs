//! Tests the example that needs a network.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use weir_testbed::testing;

use crate::test_lock;

/// A requirement of live examples that this machine lacks: those of a testbed, the agent's BPF programs, or one of these programs.
pub fn missing_requirement(programs: &[&str]) -> Option<String> {
    if let Some(problems) = testing::problems() {
        return Some(format!("this machine lacks {problems}"));
    }
    let traffic = ["agent", "traffic", "--interface", "nowhere", "--application", "x=nowhere"];
    let stderr = Command::new(env!("CARGO_BIN_EXE_weir")).args(traffic).output().unwrap().stderr;
    if String::from_utf8_lossy(&stderr).contains("built without") {
        return Some("weir was built without BPF programs".to_owned());
    }
    let is_missing = |program: &&&str| Command::new(program).arg("--version").output().is_err();
    programs.iter().find(is_missing).map(|program| format!("{program} is missing"))
}

/// The files below /run/weir.
fn state_files() -> BTreeSet<PathBuf> {
    let list = |folder: &str| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).filter(|path| !path.is_dir()).collect()
    };
    ["/run/weir", "/run/weir/agent-queues"].into_iter().flat_map(list).collect()
}

#[test]
fn example_script_gives_web_more_bandwidth_than_batch_and_leaves_nothing_behind() {
    if let Some(reason) = missing_requirement(&["openssl", "python3"]) {
        eprintln!("bed/live.sh skips, since {reason}");
        return;
    }
    // Other tests have files in the same folder.
    let _lock = test_lock::lock_exclusive();
    let files = state_files();
    let weir = env!("CARGO_BIN_EXE_weir");
    let mut script = Command::new("timeout");
    let output = script
        .args(["-k", "5", "120"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/bed/live.sh"))
        .arg(weir)
        .output()
        .unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{stdout}{stderr}");
    let left: Vec<PathBuf> = state_files().difference(&files).cloned().collect();
    assert!(left.is_empty(), "the script left {left:?}");
    let line = |first: &str| {
        let found = stdout.lines().find(|line| line.starts_with(first));
        found.unwrap_or_else(|| panic!("{first}: {stdout}{stderr}")).split_whitespace().collect::<Vec<_>>()
    };
    assert_eq!(line("h0    true")[1], "true");
    // Queues alone would give each service half.
    let [web, batch] = [5, 8]
        .map(|word| line("Of 100 Mbit/s, web gets")[word].trim_end_matches('.').parse::<f64>().unwrap());
    assert!(web > 1.15 * batch && web + batch > 85.0, "{stdout}");
    for application in ["batch", "web"] {
        let found = line(&format!("h0    {application} "));
        // The last column is the limit in shadow mode.
        let [.., limit, "-"] = found[..] else { panic!("{stdout}") };
        let limit: u64 = limit.parse().expect("the allocator limits the application");
        assert!((1_000_000..12_500_000).contains(&limit), "{stdout}");
    }
}
