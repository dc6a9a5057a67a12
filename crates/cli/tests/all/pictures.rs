//! Tests reports and trace events.

use std::process::Command;

use crate::common::TestDir;
use serde_json::Value;

const COMPARE: &str = "compare folder/trace.txt --policies fifo,saath,varys --no-timing";

/// A folder with the trace in a folder inside it.
fn test_dir() -> TestDir {
    let dir = TestDir::new();
    std::fs::create_dir(dir.path("folder")).unwrap();
    dir.write("folder/trace.txt", &dir.read("trace.txt"));
    dir
}

#[test]
fn report_is_one_file_with_the_same_bytes_each_time() {
    let dir = test_dir();
    let text = dir.stdout_of(COMPARE);
    assert_eq!(dir.stdout_of(&format!("{COMPARE} --report a.html")), text, "the result does not change");
    let report = dir.read("a.html");
    dir.stdout_of(&format!("{COMPARE} --report a.html"));
    assert_eq!(dir.read("a.html"), report);
    assert_eq!(report.matches("<svg").count(), 3);
    // For each policy, the coflows and the links over time.
    assert_eq!(report.matches("src=\"data:image/png;base64,").count(), 2 * 3);
    for cell in ["<code>varys</code>", "<th scope=\"col\">P99</th>", "trace.txt: 3 coflows", "SHA-256"] {
        assert!(report.contains(cell), "{cell}: {report}");
    }
    // Neither other files nor folders of the machine.
    for absent in
        ["<script", "<link", "href=", "src=\"h", "url(", "folder/", &*dir.path("").display().to_string()]
    {
        assert!(!report.contains(absent), "{absent}");
    }
}

#[test]
fn sweeps_and_explanations_have_reports() {
    let dir = test_dir();
    let sweep = "sweep folder/trace.txt --policies fifo,saath --vary arrival=1,2,4 --no-timing";
    let text = dir.stdout_of(sweep);
    assert_eq!(dir.stdout_of(&format!("{sweep} --report sweep.html")), text, "the result does not change");
    let report = dir.read("sweep.html");
    assert_eq!(report.matches("<svg").count(), 1);
    for part in ["mean completion time (s)", "arrival", "<code>saath</code>", "<h2>Results</h2>", "SHA-256"] {
        assert!(report.contains(part), "{part}: {report}");
    }
    assert_eq!(report.matches("<tr>").count(), 1 + 2 * 3);
    dir.stdout_of(&format!("{sweep} --report sweep.html"));
    assert_eq!(dir.read("sweep.html"), report);

    let explain = "explain folder/trace.txt --policy saath --coflow 2";
    let text = dir.stdout_of(explain);
    assert_eq!(dir.stdout_of(&format!("{explain} --report explain.html")), text);
    let report = dir.read("explain.html");
    assert_eq!(report.matches("<svg").count(), 1);
    for part in ["<h1>Coflow 2 under saath</h1>", "time since the release (s)", "Time by state", "SHA-256"] {
        assert!(report.contains(part), "{part}: {report}");
    }
    for report in [dir.read("sweep.html"), report] {
        assert!(!report.contains("folder/") && !report.contains("href="), "{report}");
    }
}

#[test]
fn reports_name_trees_and_other_files_without_folders() {
    let dir = test_dir();
    dir.write("folder/one.toml", "weir-tree = 1\n[service.default]\npolicy = \"saath\"\n");
    dir.stdout_of(
        "compare folder/trace.txt --policies aalo,tree:folder/one.toml,netshare:weights=1 --report r.html",
    );
    let report = dir.read("r.html");
    assert!(!report.contains("folder/"), "{report}");
    assert!(report.contains("<code>tree:one.toml</code>"), "{report}");
    let command = "weir compare trace.txt --policies aalo,tree:one.toml,netshare:weights=1 --report r.html";
    assert!(report.contains(command), "{report}");
}

#[test]
fn report_escapes_names() {
    let dir = TestDir::new();
    dir.write("a<b>&.txt", &dir.read("trace.txt"));
    dir.stdout_of("compare a<b>&.txt --policies fifo --report r.html");
    let report = dir.read("r.html");
    assert!(report.contains("a&lt;b&gt;&amp;.txt") && !report.contains("a<b>"), "{report}");
}

#[test]
fn report_and_result_do_not_share_the_standard_output() {
    let dir = TestDir::new();
    let error = dir.stderr_of("compare trace.txt --policies fifo --report -", 2);
    assert!(error.contains("--report: the result is already written to the standard output"), "{error}");
    let error = dir.stderr_of("sweep trace.txt --policies fifo --vary arrival=1 --report trace.txt", 2);
    assert!(error.contains("expected another file than that of the input"), "{error}");
    let error = dir.stderr_of("explain trace.txt --policy fifo --coflow 1 --trace-events trace.txt", 2);
    assert!(error.contains("--trace-events"), "{error}");
}

/// Without Chromium, the test says so.
#[test]
fn browser_shows_the_report() {
    let dir = test_dir();
    dir.stdout_of(&format!("{COMPARE} --report a.html"));
    let mut browser = Command::new("chromium");
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=1000"]);
    browser.arg(format!("--user-data-dir={}", dir.path("browser").display()));
    let Ok(shown) = browser.arg("--dump-dom").arg(dir.path("a.html")).output() else {
        println!("chromium is not installed; not tested");
        return;
    };
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(text.contains("Completion times") && text.contains("part of the coflows"), "{text}");
}

fn trace_events(dir: &TestDir, file: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(&dir.read(file)).unwrap();
    all["traceEvents"].as_array().unwrap().clone()
}

/// The coflows with a slice from release to completion.
fn lifetimes(events: &[Value]) -> Vec<&str> {
    let slices = events.iter().filter(|event| event["ph"] == "X");
    let mut names: Vec<&str> = slices.filter_map(|slice| slice["name"].as_str()).collect();
    names.retain(|name| name.starts_with("coflow"));
    names.sort_unstable();
    names
}

#[test]
fn trace_events_have_the_coflows_and_their_links() {
    let dir = TestDir::new();
    let expected = dir.stdout_of("sim trace.txt --policy saath --no-timing");
    assert_eq!(dir.stdout_of("sim trace.txt --policy saath --no-timing --trace-events all.json"), expected);
    let all = trace_events(&dir, "all.json");
    assert_eq!(lifetimes(&all), ["coflow 1", "coflow 2", "coflow 7"]);
    assert!(all.iter().any(|event| event["name"] == "port 0 (sending)"), "{all:?}");

    dir.stdout_of("explain trace.txt --policy saath --coflow 2 --trace-events one.json");
    assert_eq!(lifetimes(&trace_events(&dir, "one.json")), ["coflow 2"]);
}
