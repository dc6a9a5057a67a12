//! Tests that commands accept every file in `examples`, that scenarios have the rates of their comments, and that README.md shows what
//! the demo prints.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{CommandOutput, TestDir};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// All files below a folder, by their relative paths.
fn collect_files(folder: &Path, prefix: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        match path.is_dir() {
            // Python creates this folder when examples run.
            true if name == "__pycache__" => {}
            true => collect_files(&path, &format!("{prefix}{name}/"), found),
            false => found.push(format!("{prefix}{name}")),
        }
    }
}

/// The columns of `flows.csv`.
const TABLE_COLUMNS: &str = "start=start_ms:ms,src=from,dst=to,bytes=size_kB:kB,coflow=shuffle";

/// The command that reads a file, from the file's folder; none for files that other tests read.
fn reading_command(file: &str, trace: &str) -> Option<String> {
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    let words = match (folder, name) {
        ("fabrics", _) => format!("fabric check {name}"),
        ("scenarios", _) | ("", "netshare-5.3.toml") => format!("share {name} --quiet"),
        ("", "flows.csv") => format!("trace convert {name} - --to weir --columns {TABLE_COLUMNS}"),
        ("", "demo.txt" | "dag.weir") => format!("trace check {name}"),
        ("", "serve.toml") => format!("serve --check {name}"),
        ("", "tree.toml" | "serve-tree.toml") => format!("sim {trace} --policy tree:{name} --quiet"),
        ("wide-area", "tree.toml") => {
            format!("sim {trace} --fabric private-cloud.toml --policy tree:{name} --quiet")
        }
        ("overlay", "overlay.toml") => format!("relay run --name west --overlay {name} --dry-run"),
        // The test of docs/relay.md runs the programs.
        ("overlay", "receive.py" | "send.py") => return None,
        // The tests of `weir-lab` read the distances.
        ("wide-area", "private-cloud-delays.csv" | "table-1-delays.csv") => return None,
        ("wide-area", _) => format!("sim {trace} --fabric {name} --policy fair --quiet"),
        ("incast", "model.toml") => format!("predict connections {name} --loss 0.46 --threshold 20"),
        ("incast", "steady-model.toml") => {
            format!("predict connections {name} --loss 0.1 --connections 64 --threshold 20")
        }
        // `tree.toml` refers to this file.
        ("", "tree-sensitivity.toml") => return None,
        ("", "jobs.toml" | "services.toml") => format!("sim {name} --policy saath --quiet"),
        // The tests of `weir-trace` and `weir-predict` read the measurements; the tests of `weir profile` run
        // the jobs.
        ("incast" | "jobs", _) => return None,
        // A crate with its own tests.
        (folder, _) if folder.starts_with("own-policy") => return None,
        // The tests of the Python package run the policy; the other programs measure for minutes.
        ("python", "least_attained.py" | "policy_cost.py" | "paper_sweep.py") => return None,
        // The live tests run this script.
        ("bed", "live.sh") => return None,
        _ => panic!("examples/{file}: no command reads the file; help: add it to `reading_command`"),
    };
    Some(words)
}

#[test]
fn commands_accept_all_example_files() {
    let dir = TestDir::new();
    dir.write("small.weir", "weir-trace 1\nports 3\ncoflow 1\nflow 0 1 50MB\nflow 1 2 10MB\n");
    let trace = dir.path("small.weir").display().to_string();
    let mut found = Vec::new();
    collect_files(&examples(), "", &mut found);
    for file in found {
        let Some(line) = reading_command(&file, &trace) else { continue };
        let path = examples().join(&file);
        let ran =
            dir.command(&line).current_dir(path.parent().unwrap()).output().map(CommandOutput::new).unwrap();
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "examples/{file}: weir {line}");
    }
}

/// Mechanism, start of the phase in seconds, service, and rate at the phase's end in Mbit/s.
type ExpectedRate = (&'static str, f64, &'static str, f64);

#[test]
fn example_scenarios_have_the_rates_of_their_comments() {
    let (third, ninth) = (10e3 / 3.0, 10e3 / 9.0);
    let expected: BTreeMap<&str, Vec<ExpectedRate>> = BTreeMap::from([
        (
            "excess",
            vec![
                ("central", 0.0, "A1", third),
                ("central", 0.0, "A2", third),
                ("central", 0.0, "A3", third),
                ("central", 10.0, "A1", 5.0 * ninth),
                ("central", 10.0, "A2", 4.0 * ninth),
            ],
        ),
        (
            "guarantee",
            vec![
                ("central", 0.0, "web", 8e3),
                ("central", 0.0, "batch", 2e3),
                ("central", 10.0, "batch", 10e3),
            ],
        ),
        (
            "events",
            vec![
                ("queues", 0.0, "backup", 1e3),
                ("queues", 10.0, "search", 750.0),
                ("queues", 10.0, "backup", 250.0),
                ("queues", 20.0, "backup", 1e3),
            ],
        ),
        (
            "ports",
            vec![
                ("queues", 0.0, "web", 1_100.0),
                ("queues", 0.0, "search", 200.0),
                ("queues", 0.0, "backup", 600.0),
                ("queues", 0.0, "logs", 100.0),
            ],
        ),
    ]);
    let dir = TestDir::new();
    let mut found = Vec::new();
    collect_files(&examples().join("scenarios"), "", &mut found);
    found.sort();
    let names: Vec<String> = expected.keys().map(|name| format!("{name}.toml")).collect();
    assert_eq!(found, names, "this test lists the expected rates of each scenario");
    for (name, lines) in expected {
        let path = examples().join(format!("scenarios/{name}.toml"));
        let out = dir.json_of(&format!("share {} --mechanism central,queues --format json", path.display()));
        for (mechanism, from, service, mbit) in lines {
            let line = out.as_array().unwrap().iter().find(|line| {
                (&line["mechanism"], &line["from_s"], &line["service"])
                    == (&mechanism.into(), &from.into(), &service.into())
            });
            let line = line.unwrap_or_else(|| panic!("{name}: no {service} from {from} s: {out}"));
            let end = line["end_bit_per_s"].as_f64().unwrap() / 1e6;
            assert!((end - mbit).abs() <= 1e-6 * mbit, "{name}: {line}: expected {mbit} Mbit");
        }
    }
}

#[test]
fn readme_shows_the_table_of_the_demo() {
    let root = examples().join("..");
    let makefile = fs::read_to_string(root.join("Makefile")).unwrap();
    let command =
        makefile.lines().find_map(|line| line.split_once(" $(DEMO) -- ")).expect("the demo's command").1;
    let trace = examples().join("demo.txt").display().to_string();
    let table = TestDir::new().stdout_of(&command.replace("examples/demo.txt", &trace));
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let shown: Vec<&str> = readme.lines().collect();
    let table = table.replace(&trace, "examples/demo.txt");
    let missing: Vec<&str> = table.lines().filter(|line| !shown.contains(line)).collect();
    assert!(missing.is_empty(), "README.md lacks lines that `make demo` prints:\n{}", missing.join("\n"));
    assert!(shown.len() <= 150, "README.md: {} lines; expected at most 150", shown.len());
}
