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

/// Under the policy, 1 MB takes 8 ms. Coflow 1 sends 1 MB until 8 ms, and coflow 2 until 16 ms; then both are in the second step.
/// There, coflow 1 is first. From 20 to 24 ms, coflow 3 is in the first step. Coflow 1 ends after 28 ms and coflow 2 after 36 ms.
#[test]
fn completion_times_equal_those_computed_by_hand() {
    for (coflow, expected) in [(1, 0.028), (2, 0.036), (3, 0.004)] {
        let line = format!(
            "explain three.weir --policy least-attained-service --interval 0 --format json --quiet --coflow {coflow}"
        );
        let explanation: Value = serde_json::from_str(&run(&line)).unwrap();
        let found = explanation["cct_s"].as_f64().unwrap();
        assert!((found - expected).abs() < 1e-9, "coflow {coflow}: {found}");
    }
}

#[test]
fn explanation_names_the_step_and_the_rule() {
    let line =
        "explain three.weir --policy least-attained-service --interval 0 --format csv --quiet --coflow 1";
    let text = run(line);
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<&str>>());
    let header = lines.next().unwrap();
    let columns = ["queue", "rule"].map(|name| header.iter().position(|column| *column == name).unwrap());
    let mut found: Vec<[&str; 2]> = lines.map(|line| columns.map(|column| line[column])).collect();
    found.dedup();
    let expected = [
        ["0", "all-or-none"],
        ["1", "work-conservation"],
        ["1", "all-or-none"],
        ["1", "work-conservation"],
        ["1", "all-or-none"],
    ];
    assert_eq!(found, expected);
}

#[test]
fn own_policy_is_among_all_policies() {
    assert!(run("policies").contains("least-attained-service"));
    assert!(run("policies least-attained-service").contains("start=1MB"));
    assert!(run("compare three.weir --quiet").contains("\nleast-attained-service "));
    assert!(
        run("compare three.weir --policies fifo,least-attained-service:start=2MB --quiet")
            .contains("start=2MB")
    );
    assert!(
        run("explain three.weir --policy least-attained-service --coflow 2")
            .contains("Coflow 2 under least-attained-service")
    );
    assert!(run("sweep three.weir --policies least-attained-service --vary start=1MB,10MB").contains("10MB"));
}

/// Options of `weir sim` whose results the tests of the Python package compare with those of the same policy in Python.
const COMPARED: [&str; 6] = [
    "examples/demo.txt --interval 0",
    "examples/demo.txt --interval 8ms",
    "python/tests/simulator/data/shuffles.weir --interval 0",
    "python/tests/simulator/data/shuffles.weir --interval 8ms",
    "python/tests/simulator/data/shuffles.weir --interval 0 --fabric python/tests/simulator/data/leaf-spine.toml",
    "python/tests/simulator/data/shuffles.weir --interval 8ms --fabric python/tests/simulator/data/leaf-spine.toml",
];

/// The lines `OPTIONS,COFLOW,SECONDS` of a replay.
fn completion_times(options: &str, root: &Path) -> Vec<String> {
    let file = FOLDER.join("coflows.csv");
    let line =
        format!("sim {options} --policy least-attained-service --quiet --per-coflow {}", file.display());
    let output =
        Command::new(env!("CARGO_BIN_EXE_own-policy")).args(line.split(' ')).current_dir(root).output();
    assert!(output.unwrap().status.success(), "{line}");
    let text = fs::read_to_string(file).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    let column = |name: &str| rows[0].iter().position(|column| *column == name).unwrap();
    let (coflow, seconds) = (column("coflow"), column("cct_s"));
    rows[1..].iter().map(|row| format!("{options},{},{}", row[coflow], row[seconds])).collect()
}

/// `WEIR_WRITE_DOCS=1` writes the file again.
#[test]
fn completion_times_are_those_that_the_policy_in_python_is_compared_with() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file = root.join("python/tests/simulator/data/least-attained.csv");
    if !root.join("python/tests/simulator/data").exists() {
        println!("a copy outside of Weir's repository; not tested");
        return;
    }
    let header = "options,coflow,cct_s".to_owned();
    let times = COMPARED.iter().flat_map(|options| completion_times(options, &root));
    let found: Vec<String> = std::iter::once(header).chain(times).collect();
    if std::env::var_os("WEIR_WRITE_DOCS").is_some() {
        fs::write(&file, found.join("\n") + "\n").unwrap();
    }
    let expected = fs::read_to_string(file).unwrap();
    for (found, expected) in found.iter().zip(expected.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.lines().count());
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
