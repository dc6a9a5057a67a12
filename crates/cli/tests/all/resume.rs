//! Tests `weir compare --resume`: the outcomes of finished replays are kept, and not computed again.

use std::fs::OpenOptions;
use std::process::Stdio;

use crate::common::{TestDir, wait_for};

const COMPARE: &str = "compare trace.txt --format csv --resume kept.jsonl --policies";

/// The row of a policy, with measured times, which differ between two replays.
fn row(csv: &str, policy: &str) -> String {
    csv.lines()
        .find(|line| line.starts_with(policy))
        .unwrap_or_else(|| panic!("no {policy} in {csv}"))
        .to_owned()
}

#[test]
fn resumed_compare_repeats_no_finished_replay() {
    let dir = TestDir::new();
    let first = dir.stdout_of(&format!("{COMPARE} scf,varys"));
    let second = dir.stdout_of(&format!("{COMPARE} scf,saath,varys"));
    for policy in ["scf,", "varys,"] {
        assert_eq!(row(&second, policy), row(&first, policy));
    }
    let fresh = dir.stdout_of("compare trace.txt --format csv --policies scf,saath,varys --no-timing");
    assert_eq!(dir.stdout_of(&format!("{COMPARE} scf,saath,varys --no-timing")), fresh);
    assert_eq!(dir.read("kept.jsonl").lines().count(), 4);
}

#[test]
fn killed_compare_resumes_after_its_last_complete_outcome() {
    let dir = TestDir::new();
    dir.stdout_of("trace generate --preset facebook --coflows 60 --out big.txt");
    // The second policy takes hundreds of times as long as the first.
    let line = "compare big.txt --policies scf,aalo:at=both --resume kept.jsonl --format csv";
    let mut child = dir.command(line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("an outcome", || {
        dir.files().contains(&"kept.jsonl".to_owned()) && dir.read("kept.jsonl").lines().count() == 2
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let kept = dir.read("kept.jsonl");
    // A line that was not written to its end.
    let file = OpenOptions::new().write(true).open(dir.path("kept.jsonl")).unwrap();
    file.set_len(kept.len() as u64 - 10).unwrap();
    let resumed =
        dir.stdout_of("compare big.txt --policies scf --resume kept.jsonl --format csv --no-timing");
    assert_eq!(resumed, dir.stdout_of("compare big.txt --policies scf --format csv --no-timing"));
    assert_eq!(dir.read("kept.jsonl").lines().count(), 2);
}

#[test]
fn outcomes_of_another_input_are_refused() {
    let dir = TestDir::new();
    dir.stdout_of(&format!("{COMPARE} scf"));
    dir.stdout_of("trace generate --preset facebook --coflows 5 --out other.txt");
    let kept = dir.read("kept.jsonl");
    let refuse = |line: &str, message: &str| {
        let ran = dir.run(line);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "weir {line}: {}", ran.stderr);
        assert!(ran.stderr.contains(message), "weir {line}: {}", ran.stderr);
    };
    let remedy = "; help: repeat the former command, or name another file";
    refuse(
        "compare trace.txt --resume kept.jsonl --interval 1ms",
        &format!("kept.jsonl: has outcomes for another network, port rate or interval{remedy}"),
    );
    refuse("compare other.txt --resume kept.jsonl", &format!("has outcomes for other coflows{remedy}"));
    refuse("compare trace.txt --resume trace.txt", "trace.txt");
    refuse("compare trace.txt --resume - --out o.txt", "--resume: `-`: expected a file");
    assert_eq!(dir.read("kept.jsonl"), kept);
    // Files of other programs, with and without an end of line, are not changed.
    for text in ["not written by weir\n", "not written by weir", "{\"a\":1}"] {
        dir.write("text.txt", text);
        refuse("compare trace.txt --resume text.txt", "text.txt: line 1: wrong checksum");
        assert_eq!(dir.read("text.txt"), text);
    }
    dir.write("changed.jsonl", &kept.replacen("\"end\":0", "\"end\":1", 1));
    refuse("compare trace.txt --resume changed.jsonl", "changed.jsonl: line 2: wrong checksum");
}

#[test]
fn defaults_and_other_outputs_continue_a_comparison() {
    let dir = TestDir::new();
    let first = dir.stdout_of(&format!("{COMPARE} scf,varys"));
    let same = dir.stdout_of(&format!("{COMPARE} scf,varys --interval 8ms --port-rate 1Gbit"));
    assert_eq!(row(&same, "varys,"), row(&first, "varys,"));
    // A replay that lacks what an output needs is repeated.
    dir.stdout_of(&format!("{COMPARE} scf,varys --per-flow flows.csv"));
    assert_eq!(dir.read("flows.csv").lines().count(), 1 + 2 * 7);
    let without = dir.stdout_of(&format!("{COMPARE} scf,varys --no-timing"));
    assert_eq!(without, dir.stdout_of("compare trace.txt --format csv --policies scf,varys --no-timing"));
}

#[test]
fn changed_table_of_a_tree_repeats_its_replay() {
    let dir = TestDir::new();
    dir.stdout_of(
        "trace generate --preset facebook --coflows 20 --services 2 --applications 2 --out shared.weir",
    );
    let tree = |weight: u32| {
        format!(
            "weir-tree = 1\n[service.service-1]\nweight = {weight}\npolicy = \"fair\"\n[default]\npolicy = \"fair\"\n"
        )
    };
    let line =
        "compare shared.weir --policies fair,tree:tree.toml --resume kept.jsonl --format csv --no-timing";
    dir.write("tree.toml", &tree(1));
    let first = dir.stdout_of(line);
    dir.write("tree.toml", &tree(8));
    let second = dir.stdout_of(line);
    assert_eq!(row(&second, "fair,"), row(&first, "fair,"));
    assert_ne!(row(&second, "tree:"), row(&first, "tree:"));
}
