//! Tests that a policy of another crate is available in all commands.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;

/// A folder with a trace: coflows 1 and 2 need the same ports for 16 ms each, and coflow 3, released after 20 ms, for 4 ms.
static FOLDER: LazyLock<&Path> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let trace = "weir-trace 1\nports 2\ncoflow 1\nflow 0 1 2MB\ncoflow 2\nflow 0 1 2MB\ncoflow 3 arrival=20ms\nflow 0 1 500kB\n";
    fs::write(folder.join("three.weir"), trace).unwrap();
    folder
});

/// Runs the program, and returns its output.
fn run(line: &str) -> String {
    let mut program = Command::new(env!("CARGO_BIN_EXE_own-policy"));
    let output = program.args(line.split(' ')).current_dir(*FOLDER).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Under the policy, 1 MB takes 8 ms. Coflow 1 sends 1 MB until 8 ms, and coflow 2 until 16 ms; then both are in the second queue.
/// There, coflow 1 is first. From 20 to 24 ms, coflow 3 is in the first queue. Coflow 1 ends after 28 ms and coflow 2 after 36 ms.
#[test]
fn completion_times_equal_those_computed_by_hand() {
    for (coflow, expected) in [(1, 0.028), (2, 0.036), (3, 0.004)] {
        let line = format!(
            "explain three.weir --policy two-queues --interval 0 --format json --quiet --coflow {coflow}"
        );
        let explanation: Value = serde_json::from_str(&run(&line)).unwrap();
        let found = explanation["cct_s"].as_f64().unwrap();
        assert!((found - expected).abs() < 1e-9, "coflow {coflow}: {found}");
    }
}

#[test]
fn explanation_names_the_queue_and_the_rule() {
    let line = "explain three.weir --policy two-queues --interval 0 --format csv --quiet --coflow 1";
    let text = run(line);
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<&str>>());
    let header = lines.next().unwrap();
    let columns = ["queue", "rule"].map(|name| header.iter().position(|column| *column == name).unwrap());
    let mut found: Vec<[&str; 2]> = lines.map(|line| columns.map(|column| line[column])).collect();
    found.dedup();
    let expected = [
        ["0", "below-threshold"],
        ["1", "backfill"],
        ["1", "above-threshold"],
        ["1", "backfill"],
        ["1", "above-threshold"],
    ];
    assert_eq!(found, expected);
}

#[test]
fn own_policy_is_among_all_policies() {
    assert!(run("policies").contains("two-queues"));
    assert!(run("policies two-queues").contains("threshold=1MB"));
    assert!(run("compare three.weir --quiet").contains("\ntwo-queues "));
    assert!(
        run("compare three.weir --policies fifo,two-queues:threshold=2MB --quiet").contains("threshold=2MB")
    );
    assert!(run("explain three.weir --policy two-queues --coflow 2").contains("Coflow 2 under two-queues"));
    assert!(run("sweep three.weir --policies two-queues --vary threshold=1MB,10MB").contains("10MB"));
}

#[test]
fn page_shows_the_code_of_this_program() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let code = fs::read_to_string(root.join("src/main.rs")).unwrap();
    let Ok(page) = fs::read_to_string(root.join("../../docs/adding-a-policy.md")) else {
        println!("a copy outside of Weir's repository; not tested");
        return;
    };
    let blocks: Vec<&str> =
        page.split("```rust,ignore\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 2);
    for block in blocks {
        assert!(code.contains(block), "{block}");
    }
}
