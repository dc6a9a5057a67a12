//! Tests replays whose results are missing or incomplete: the others are written, and the exit code is 1.

use serde_json::{Value, json};

use weir_console::checksum;

use crate::common::TestDir;

/// Port 1 fails after a second: coflow 2 has sent 125 of 300 MB, and coflow 3 waits for it.
const FAILING_HOST: &str = "weir-trace 1\nports 5\ncoflow 1\nflow 2 3 4MB\ncoflow 2\nflow 0 1 300MB\ncoflow 3 parents=2\n\
    flow 2 3 7MB\ncoflow 4 arrival=56ms\nflow 4 3 2MB\nevent 1s port=1 side=both rate=0\n";

const MESSAGE: &str = "2 of 4 coflows completed; no flow can send after 1s; help: check that links recover\n  \
    coflow 2: 175MB left; without capacity: port 1 (receiving)\n  coflow 3: 7MB left; waits for coflow 2\n";

fn failing_host() -> TestDir {
    let dir = TestDir::new();
    dir.write("f.weir", FAILING_HOST);
    dir
}

/// The results of a command with JSON that fails with code 1.
fn failed_json(dir: &TestDir, line: &str) -> Value {
    let ran = dir.run(line);
    assert_eq!(ran.code, Some(1), "weir {line}: {}", ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
fn stalled_replay_writes_the_completed_coflows_and_lists_the_others() {
    let dir = failing_host();
    let ran = dir.run("sim f.weir --policy weir --quiet --no-timing --per-coflow c.csv --per-flow f.csv");
    assert_eq!((ran.code, ran.stderr), (Some(1), format!("weir: weir: {MESSAGE}")));
    assert!(
        ran.stdout.contains("\ncompleted    2 of 4 coflows; statistics are of these\n"),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("\nmean CCT     24.00 ms\n"), "{}", ran.stdout);
    let coflows = dir.read("c.csv");
    let ids: Vec<&str> = coflows.lines().skip(1).map(|line| line.split(',').nth(1).unwrap()).collect();
    assert_eq!(ids, ["1", "4"]);
    assert_eq!(dir.read("f.csv").lines().count(), 3);
    let found = failed_json(&dir, "sim f.weir --policy weir --quiet --format json");
    assert_eq!((&found["coflows"], &found["coflows_completed"]), (&json!(4), &json!(2)));
    let stalled = json!([
        { "coflow": 2, "remaining_bytes": 175e6, "links": ["port 1 (receiving)"], "parents": [] },
        { "coflow": 3, "remaining_bytes": 7e6, "links": [], "parents": [2] },
    ]);
    assert_eq!(found["stalled_coflows"], stalled);
    assert_eq!(found["error"], MESSAGE.lines().next().unwrap());
    // Trace events are written too.
    assert_eq!(dir.run("sim f.weir --policy fair --quiet --trace-events e.json").code, Some(1));
    assert!(serde_json::from_str::<Value>(&dir.read("e.json")).is_ok());
}

#[test]
fn comparison_has_the_completed_coflows_of_each_policy() {
    let dir = failing_host();
    let ran = dir.run("compare f.weir --policies fair,weir --quiet --no-timing --report r.html");
    assert_eq!((ran.code, ran.stderr), (Some(1), format!("weir: fair: {MESSAGE}weir: weir: {MESSAGE}")));
    let row = |policy: &str| {
        let line = ran.stdout.lines().find(|line| line.starts_with(policy)).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("fair "), ["fair", "24.00", "24.00", "30.40", "31.84", "1.000", "2/4"]);
    assert!(ran.stdout.contains("speedups of those that completed under both policies"), "{}", ran.stdout);
    assert!(dir.read("r.html").contains("completed"));
    let csv = dir.run("compare f.weir --policies fair,weir --quiet --format csv");
    assert_eq!(csv.code, Some(1));
    assert_eq!(csv.stdout.lines().count(), 3, "{}", csv.stdout);
    // The outcomes of a file are complete, and give the same results.
    let resume = "compare f.weir --policies fair,weir --quiet --no-timing --format json --resume kept";
    assert_eq!(failed_json(&dir, resume), failed_json(&dir, resume));
}

#[test]
fn sweep_has_the_completed_coflows_of_each_point() {
    let dir = failing_host();
    let ran =
        dir.run("sweep f.weir --policies fair --vary interval=0,8ms --quiet --no-timing --report r.html");
    assert_eq!(
        (ran.code, ran.stderr),
        (Some(1), format!("weir: fair, interval=0: {MESSAGE}weir: fair, interval=8ms: {MESSAGE}"))
    );
    assert_eq!(ran.stdout.matches("2/4").count(), 2, "{}", ran.stdout);
    // A repair in time: one of the two traces has no problem.
    dir.write("repaired.weir", &(FAILING_HOST.to_owned() + "event 2s port=1 side=both rate=1\n"));
    let found =
        failed_json(&dir, "sweep f.weir repaired.weir --policies fair --confidence --quiet --format json");
    assert_eq!((&found[0]["samples"], &found[0]["clusters"]), (&json!(1), &json!(1)));
    assert!(found[0]["error"].as_str().unwrap().starts_with("2 of 4 coflows completed"));
    let all_stalled =
        failed_json(&dir, "sweep f.weir --policies fair --vary interval=0,8ms --quiet --format json");
    assert_eq!(all_stalled[1]["coflows_completed"], 2);
}

#[test]
fn explanation_of_a_completed_coflow_is_written() {
    let dir = failing_host();
    let ran = dir.run("explain f.weir --policy weir --coflow 4 --quiet");
    assert_eq!((ran.code, ran.stderr), (Some(1), format!("weir: weir: {MESSAGE}")));
    assert!(ran.stdout.contains("Coflow 4 under weir: "), "{}", ran.stdout);
    let ran = dir.run("explain f.weir --policy weir --coflow 2 --quiet");
    let expected = "weir: weir: coflow 2 cannot complete; without capacity: port 1 (receiving)\n";
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(1), "", expected));
}

#[test]
fn cables_that_stay_down_stall_coflows() {
    let dir = TestDir::new();
    dir.write("two.weir", "weir-trace 1\nports 4\ncoflow 1\nflow 0 1 1MB\ncoflow 2\nflow 0 2 1GB\n");
    let fabric = "kind = \"leaf-spine\"\nspines = 1\nleaves = 2\nhosts = 2\nrate = \"1Gbit\"\noversubscription = 1\n\
        event = [{ at = \"1s\", cable = [\"leaf1\", \"spine0\"], change = \"down\" }]\n";
    dir.write("fabric.toml", &format!("weir-fabric = 1\n{fabric}"));
    let ran = dir.run("compare two.weir --policies fair,saath --fabric fabric.toml --quiet --no-timing");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stdout.contains("1/2"), "{}\n{}", ran.stdout, ran.stderr);
    let expected = "  coflow 2: 876MB left; without capacity: leaf1 -> spine0, spine0 -> leaf1\n";
    assert!(ran.stderr.contains(expected), "{}", ran.stderr);
}

/// Halves the completion times in the outcomes of a policy in a file of `--resume`, as a faulty policy would.
fn halve_kept_times(dir: &TestDir, file: &str, policy: &str) {
    let mut lines: Vec<String> = dir.read(file).lines().map(str::to_owned).collect();
    for line in &mut lines {
        let (_, json) = line.split_once(' ').unwrap();
        let mut entry: Value = serde_json::from_str(json).unwrap();
        if entry["policy"] != policy {
            continue;
        }
        for coflow in entry["outcome"]["coflows"].as_array_mut().unwrap() {
            let [released_at, end] = ["released_at", "end"].map(|name| coflow[name].as_f64().unwrap());
            coflow["end"] = json!((released_at + end) / 2.0);
        }
        let json = entry.to_string();
        *line = format!("{} {json}", checksum::hash_bytes(json.as_bytes()));
    }
    dir.write(file, &(lines.join("\n") + "\n"));
}

#[test]
fn policy_that_violates_a_bound_is_a_failed_row() {
    let dir = TestDir::new();
    dir.write("two.weir", "weir-trace 1\nports 3\ncoflow 1 weight=2\nflow 0 1 1MB\ncoflow 2\nflow 2 1 3MB\n");
    let line = |options: &str| {
        format!("compare two.weir --policies fair,saath,scf --quiet --no-timing --resume kept {options}")
    };
    // The outcomes have the details that a report needs.
    let sound = dir.json_of(&line("--format json --report r.html"));
    halve_kept_times(&dir, "kept", "saath");
    let expected = "weir: saath: internal error: coflow 1 took ";
    let ran = dir.run(&line("--per-coflow c.csv --report r.html"));
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.starts_with(expected) && ran.stderr.lines().count() == 1, "{}", ran.stderr);
    let row = ran.stdout.lines().find(|line| line.starts_with("saath ")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert!(cells[1] == "failed" && cells[2..].iter().all(|cell| *cell == "-"), "{row}");
    let coflows = dir.read("c.csv");
    assert!(coflows.contains("\nscf,2,") && !coflows.contains("\nsaath,"), "{coflows}");
    let report = dir.read("r.html");
    assert!(report.contains("3 policies compared") && report.contains(">failed<"));
    let found = failed_json(&dir, &line("--format json"));
    for (position, name) in
        [(0, "mean_cct_s"), (2, "mean_cct_s"), (2, "speedup_p50"), (2, "weighted_mean_cct_s")]
    {
        assert_eq!(found[position][name], sound[position][name], "{name}");
    }
    assert_eq!((&found[0]["error"], &found[0]["coflows_completed"]), (&Value::Null, &json!(2)));
    assert_eq!((&found[1]["mean_cct_s"], &found[1]["coflows_completed"]), (&Value::Null, &Value::Null));
    assert!(found[1]["error"].as_str().unwrap().starts_with("internal error: coflow 1 took "));
    // Lines of CSV have equal columns. Without the baseline, there are no speedups.
    let csv = dir.run(&line("--format csv --baseline saath"));
    let columns: Vec<usize> = csv.stdout.lines().map(|line| line.split(',').count()).collect();
    assert!(columns.len() == 4 && columns.iter().all(|count| *count == columns[0]), "{}", csv.stdout);
    let found = failed_json(&dir, &line("--format json --baseline saath"));
    assert_eq!((&found[0]["speedup_p50"], &found[0]["baseline"]), (&Value::Null, &json!("saath")));
    assert!(found[0]["mean_cct_s"].is_f64());
}
