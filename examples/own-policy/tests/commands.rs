//! Tests that a policy of another crate is available in all commands.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;

/// A folder with a trace: coflow 1 needs its ports for 1 s; coflow 2 arrives at 0.5 s and needs the same ports for 0.1 s.
static FOLDER: LazyLock<&Path> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let trace = "weir-trace 1\nports 2\ncoflow 1\nflow 0 1 125MB\ncoflow 2 arrival=500ms\nflow 0 1 12.5MB\n";
    fs::write(folder.join("two.weir"), trace).unwrap();
    folder
});

/// Runs the program, and returns its output.
fn run(line: &str) -> String {
    let mut program = Command::new(env!("CARGO_BIN_EXE_own-policy"));
    let output = program.args(line.split(' ')).current_dir(*FOLDER).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn compare_replays_the_own_policy() {
    let line = "compare two.weir --policies fifo,las:every=1ms --interval 0 --format json --quiet";
    let results: Value = serde_json::from_str(&run(line)).unwrap();
    // Coflow 1 is done after 1.1 s and coflow 2 after 0.1 s; under FIFO after 1 s and 0.6 s.
    for (position, expected) in [(0, 0.8), (1, 0.6)] {
        let found = results[position]["mean_cct_s"].as_f64().unwrap();
        assert!((found - expected).abs() < 1e-9, "{results}");
    }
    assert_eq!(results[1]["policy"], "las:every=1ms");
}

#[test]
fn own_policy_is_among_all_policies() {
    assert!(run("policies").contains("las"));
    assert!(run("policies las").contains("every=10ms"));
    assert!(run("compare two.weir --quiet").contains("\nlas "));
    assert!(run("explain two.weir --policy las --coflow 2").contains("Coflow 2 under las"));
    assert!(run("sweep two.weir --policies las --vary every=1ms,10ms").contains("10ms"));
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
