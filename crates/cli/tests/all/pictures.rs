//! Tests reports and trace events.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufReader;
use std::process::{Command, Output};

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

/// The number of charts of a report.
fn charts(report: &str) -> usize {
    report.matches("<div role=\"img\"").count()
}

#[test]
fn report_is_one_file_with_the_same_bytes_each_time() {
    let dir = test_dir();
    let text = dir.stdout_of(COMPARE);
    assert_eq!(dir.stdout_of(&format!("{COMPARE} --report a.html")), text, "the result does not change");
    let report = dir.read("a.html");
    dir.stdout_of(&format!("{COMPARE} --report a.html"));
    assert_eq!(dir.read("a.html"), report);
    assert_eq!(charts(&report), 3);
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
    assert_eq!(charts(&report), 1);
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
    assert_eq!(charts(&report), 1);
    for part in [
        "<h1>Coflow 2 under saath</h1>",
        "time since the release (s)",
        "<h3>Time by state</h3>",
        "<th scope=\"col\" class=\"text\">held up by</th>",
        "<code>pace</code> is the progress",
        "SHA-256",
    ] {
        assert!(report.contains(part), "{part}: {report}");
    }
    for report in [dir.read("sweep.html"), report] {
        assert!(!report.contains("folder/") && !report.contains("href="), "{report}");
        // What marks code and groups of columns in a terminal.
        assert!(!report.contains('`') && !report.contains(">| "), "{report}");
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
fn sweep_report_draws_confidence_intervals_and_scrolls_its_table() {
    let dir = TestDir::new();
    for seed in ["1", "2"] {
        dir.stdout_of(&format!("trace generate --ports 6 --coflows 8 --seed {seed} --out {seed}.txt"));
    }
    let line = "sweep 1.txt 2.txt --policies fifo,saath --vary arrival=1,2,4 --no-timing";
    dir.stdout_of(&format!("{line} --confidence --report intervals.html"));
    let report = dir.read("intervals.html");
    assert!(report.contains("with its 95 % confidence interval") && report.contains(" ± "), "{report}");
    // For each policy and value, a vertical line with two ends, in the color of the policy.
    for color in ["#0072B2", "#E69F00"] {
        let interval = format!("stroke=\"{color}\" stroke-width=\"1\"");
        assert_eq!(report.matches(&interval).count(), 3 * 3, "{color}: {report}");
    }
    for title in ["speedup P10", "mean speedup"] {
        assert!(report.contains(&format!("class=\"number\">{title}</th>")), "{title}: {report}");
    }
    assert!(report.contains("<div class=\"table wide\"><table>"), "{report}");
    dir.stdout_of(&format!("{line} --report means.html"));
    assert!(!dir.read("means.html").contains("confidence"), "no intervals");
}

#[test]
fn policies_of_one_color_differ_in_dashes_and_marks() {
    let dir = TestDir::new();
    let policies: Vec<String> = (1..=17).map(|queues| format!("saath:queues={queues}")).collect();
    dir.stdout_of(&format!("compare trace.txt --policies {} --report r.html", policies.join(",")));
    let report = dir.read("r.html");
    let legend = report.split("<ul class=\"legend\">").nth(1).unwrap().split("</ul>").next().unwrap();
    let samples: BTreeSet<&str> =
        legend.split("<svg").skip(1).filter_map(|item| item.split("</svg>").next()).collect();
    assert_eq!(samples.len(), 17, "{legend}");
}

#[test]
fn report_has_checksums_of_files_that_a_tree_or_jobs_name() {
    let dir = TestDir::new();
    let examples = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples"));
    for name in ["tree.toml", "tree-sensitivity.toml"] {
        dir.write(name, &std::fs::read_to_string(examples.join(name)).unwrap());
    }
    let assert_checksums = |report: &str, files: &[&str]| {
        let report = dir.read(report);
        assert_eq!(report.matches("SHA-256").count(), files.len(), "{report}");
        for file in files {
            assert!(report.contains(&format!("<li><code>{file}</code>: SHA-256")), "{file}: {report}");
        }
    };
    let generate =
        "trace generate --preset facebook --coflows 5 --services 2 --applications 2 --out shared.weir";
    dir.stdout_of(generate);
    let tree = "shared.weir --policies fair,tree:tree.toml --report";
    dir.stdout_of(&format!("compare {tree} tree.html"));
    assert_checksums("tree.html", &["shared.weir", "tree.toml", "tree-sensitivity.toml"]);
    dir.stdout_of(&format!("sweep {tree} sweep.html --vary arrival=1,2"));
    assert_checksums("sweep.html", &["shared.weir", "tree.toml", "tree-sensitivity.toml"]);
    dir.write("jobs.toml", "weir-jobs = 1\nfabric = \"fabric.toml\"\nsensitivity = \"tree-sensitivity.toml\"\n[[job]]\nworkload = \"LR\"\nservers = \"*\"\n");
    dir.stdout_of("fabric generate big-switch --hosts 4 --rate 1Gbit --out fabric.toml");
    dir.stdout_of("compare jobs.toml --policies fair --report jobs.html");
    assert_checksums("jobs.html", &["jobs.toml", "fabric.toml", "tree-sensitivity.toml"]);
}

#[test]
fn report_of_many_flows_and_policies_is_small() {
    let dir = TestDir::new();
    dir.stdout_of("trace generate --ports 40 --coflows 1500 --reducers uniform:1,4 --mappers uniform:1,4 --seed 4 --out many.txt");
    dir.stdout_of("compare many.txt --policies fifo,scf,srtf,lwtf --report r.html");
    // At most 400 points a line, and 600 rows an image: more coflows or links do not make it longer.
    let size = dir.read("r.html").len();
    assert!(size < 4 * 100_000, "{size} bytes");
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

#[test]
fn report_has_columns_and_tables_of_weights_deadlines_and_jobs() {
    let dir = TestDir::new();
    dir.write(
        "two.weir",
        "weir-trace 1\nports 4\ncoflow 1 weight=3 deadline=2s job=4\nflow 0 1 1MB\ncoflow 2 deadline=2s job=5\nflow 2 3 3MB\n",
    );
    let line =
        "compare two.weir --policies fair,varys:deadlines=on --interval 0 --port-rate 8Mbit --no-timing";
    dir.stdout_of(&format!("{line} --report r.html"));
    let report = dir.read("r.html");
    for title in ["weighted", "met", "missed", "rejected", "mean JCT"] {
        assert!(report.contains(&format!("<th scope=\"col\">{title}</th>")), "{title}: {report}");
    }
    // Under both, the coflow of 3 s is late; with admission control it is rejected.
    assert!(report.contains("<td>1</td><td>1</td><td>0</td>"), "{report}");
    assert!(report.contains("<td>1</td><td>0</td><td>1</td>"), "{report}");
    let head = "<th scope=\"col\">1 (1)</th><th scope=\"col\">3 (1)</th>";
    assert!(report.contains(head) && report.contains("<h2>Completion times by weight</h2>"), "{report}");
    assert!(report.contains("<tr><th scope=\"row\"><code>fair</code></th><td>3.000</td><td>1.000</td></tr>"));
    assert!(report.contains("<tr><th scope=\"row\"><code>5</code></th><td>3.000</td>"), "{report}");
    dir.stdout_of("compare trace.txt --policies fifo --report p.html");
    for title in ["weighted", "rejected", "<h2>Jobs</h2>", "by weight"] {
        assert!(!dir.read("p.html").contains(title), "{title}");
    }
}

#[test]
fn images_have_labels_of_rows_and_times() {
    let dir = test_dir();
    dir.stdout_of(&format!("{COMPARE} --report a.html"));
    let report = dir.read("a.html");
    for label in ["port 0 sends", "port 3 receives", "first coflow"] {
        assert!(report.contains(&format!("<span style=\"flex:1\">{label}</span>")), "{label}: {report}");
    }
    assert!(report.contains("<div class=\"times\"><span style=\"left:0.00%\">0</span>"), "{report}");
    // With more links, labels name the groups.
    dir.stdout_of("trace generate --ports 12 --coflows 6 --seed 4 --out many.txt");
    dir.stdout_of("compare many.txt --policies fifo --report b.html");
    let report = dir.read("b.html");
    for label in ["ports 0 to 11 send", "ports 0 to 11 receive"] {
        assert!(report.contains(&format!("<span style=\"flex:12\">{label}</span>")), "{label}: {report}");
    }
}

#[test]
fn sweep_counts_missed_deadlines_if_there_are_deadlines() {
    let dir = TestDir::new();
    dir.write(
        "late.weir",
        "weir-trace 1\nports 2\ncoflow 1 deadline=1500ms\nflow 0 1 1MB\ncoflow 2 deadline=1500ms\nflow 0 1 1MB\n",
    );
    let line = "sweep late.weir --policies fifo --interval 0 --vary port-rate=8Mbit,80Mbit --no-timing";
    let text = dir.stdout_of(&format!("{line} --report r.html"));
    let rows: Vec<&str> = text.lines().filter(|line| line.contains("fifo ")).collect();
    assert!(text.contains("missed") && rows[0].ends_with(" 1") && rows[1].ends_with(" 0"), "{text}");
    assert!(dir.read("r.html").contains("<th scope=\"col\" class=\"number\">missed</th>"));
    let text = dir.stdout_of("sweep trace.txt --policies fifo --vary arrival=1,2 --no-timing");
    assert!(!text.contains("missed"), "{text}");
}

/// Runs Chromium on a file, or returns `None` without Chromium.
fn chromium(dir: &TestDir, args: &[&str], file: &str) -> Option<Output> {
    let mut browser = Command::new("chromium");
    browser.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--virtual-time-budget=1000",
    ]);
    browser.arg(format!("--user-data-dir={}", dir.path("browser").display()));
    let shown = browser.args(args).arg(dir.path(file)).output().ok();
    if shown.is_none() {
        println!("chromium is not installed; not tested");
    }
    shown
}

#[test]
fn browser_shows_the_report() {
    let dir = test_dir();
    dir.stdout_of(&format!("{COMPARE} --report a.html"));
    let Some(shown) = chromium(&dir, &["--dump-dom"], "a.html") else { return };
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(text.contains("Completion times") && text.contains("part of the coflows"), "{text}");
}

/// The colors of the pixels of a section of a report, without its legend; `None` without Chromium.
fn pixels_of_section(dir: &TestDir, report: &str, section: usize) -> Option<Vec<[u8; 3]>> {
    let style = format!("section:not(:nth-of-type({section})), .legend, .scale {{ display: none; }}</style>");
    dir.write("section.html", &dir.read(report).replace("</style>", &style));
    let image = dir.path("section.png");
    let screenshot = format!("--screenshot={}", image.display());
    let shown = chromium(dir, &["--window-size=1000,1400", &screenshot], "section.html")?;
    let file = File::open(&image).unwrap_or_else(|error| panic!("{error}: {shown:?}"));
    let mut reader = png::Decoder::new(BufReader::new(file)).read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    assert_eq!(info.bit_depth, png::BitDepth::Eight);
    let samples = info.color_type.samples();
    Some(bytes.chunks_exact(samples).map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect())
}

#[test]
fn browser_draws_each_line_and_the_heat_maps() {
    let dir = TestDir::new();
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/demo.txt");
    std::fs::copy(demo, dir.path("demo.txt")).unwrap();
    dir.stdout_of("compare demo.txt --policies fair,aalo,varys --no-timing --quiet --report a.html");
    let Some(chart) = pixels_of_section(&dir, "a.html", 2) else { return };
    let count = |pixels: &[[u8; 3]], color: [u8; 3]| pixels.iter().filter(|pixel| **pixel == color).count();
    // A line is 2 pixels wide, and crosses most of the chart.
    for (policy, color) in [("fair", [0, 114, 178]), ("aalo", [230, 159, 0]), ("varys", [0, 158, 115])] {
        let pixels = count(&chart, color);
        assert!(pixels > 300, "{pixels} pixels of {policy}");
    }
    assert_eq!(count(&chart, [213, 94, 0]), 0, "the color of a fourth policy");
    // Coflows over time, and the utilization of links: links in full use are yellow, and most links are idle at times.
    for (section, name) in [(5, "coflows"), (6, "links")] {
        let map = pixels_of_section(&dir, "a.html", section).unwrap();
        let used = count(&map, [253, 231, 37]);
        assert!(used > 500, "{name}: {used} pixels of full use");
        let colors: BTreeSet<[u8; 3]> = map.into_iter().collect();
        assert!(colors.len() > 20, "{name}: {} colors", colors.len());
    }
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
