//! Runs every policy on every network, with every change of links, and checks that `docs/combinations.md` states the result.
//! `WEIR_WRITE_DOCS=1 cargo test -p weir-cli --test all combinations` writes the page.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::TestDir;

/// Three coflows with late data, a deadline, a parent and computing; a port that fails, and a flow that restarts.
const TRACE: &str = "\
weir-trace 1
ports 4
coflow 1 arrival=0s deadline=9s service=ads
flow 0 2 1MB
flow 1 2 2MB release=100ms
flow 0 1 1MB
coflow 2 arrival=200ms service=batch
flow 1 3 2MB
flow 3 0 1MB
coflow 3 parents=1 compute-before=50ms service=ads
flow 2 0 500kB
flow 2 3 500kB
event 150ms port=2 side=receive rate=0
event 300ms port=2 side=receive rate=1
event 400ms restart coflow=2 flow=0
";

const LEAF_SPINE: &str = "\
weir-fabric = 1
kind = \"leaf-spine\"
spines = 2
leaves = 2
hosts = 2
rate = \"80Mbit\"
oversubscription = 3.0
";

const FAILING_CABLES: &str = "\
[[event]]
at = \"100ms\"
cable = [\"leaf0\", \"spine0\"]
change = \"down\"

[[event]]
at = \"200ms\"
cable = [\"leaf0\", \"spine1\"]
change = \"rate\"
rate = \"10Mbit\"

[[event]]
at = \"500ms\"
cable = [\"spine0\", \"leaf0\"]
change = \"up\"
";

const UNEQUAL_HOSTS: &str = "\
weir-fabric = 1
kind = \"links\"
hosts = [\"a\", \"b\", \"c\", \"d\"]
switch = [{ name = \"s\", tier = 1 }]
link = [
    { ends = [\"a\", \"s\"], rate = \"80Mbit\" },
    { ends = [\"b\", \"s\"], rate = \"40Mbit\" },
    { ends = [\"c\", \"s\"], rate = \"80Mbit\" },
    { ends = [\"d\", \"s\"], rate = \"20Mbit\" },
]
";

/// The network of [`LEAF_SPINE`] as a table of another file.
const EMBEDDED: &str = "\
fabric = { kind = \"leaf-spine\", spines = 2, leaves = 2, hosts = 2, rate = \"80Mbit\", oversubscription = 3.0 }
";

const JOBS: &str = "\
[workload.small]
rounds = 2
stages = [{ compute = \"50ms\", bytes = \"200kB\" }]
[[job]]
name = \"etl\"
workload = \"small\"
servers = [\"h0\", \"h1\", \"h2\"]
";

const SERVICES: &str = "\
end = \"2s\"
service = [{ name = \"ads\", weight = 2 }, { name = \"web\", weight = 1 }]
[[demand]]
service = \"web\"
from = \"h0\"
to = \"*\"
sending = \"capped\"
rate = \"1Mbit\"
[[demand]]
service = \"ads\"
from = \"h1\"
to = \"h3\"
connections = 2
sending = \"elastic\"
active = [[\"200ms\", \"900ms\"], [\"1s\", \"2s\"]]
";

const REGIONS: &str = "\
weir-wide-area = 1
regions = [\"east\", \"west\", \"north\"]
change-interval = \"100ms\"
correlation = 0.5
link = [
    { from = \"east\", to = \"west\", samples = [\"10Mbit\", \"40Mbit\", \"80Mbit\"] },
    { from = \"west\", to = \"east\", rate = \"80Mbit\" },
    { from = \"east\", to = \"north\", rate = \"80Mbit\" },
    { from = \"north\", to = \"east\", rate = \"80Mbit\" },
    { from = \"west\", to = \"north\", samples = [\"20Mbit\", \"80Mbit\"] },
    { from = \"north\", to = \"west\", rate = \"80Mbit\" },
]
";

const INCAST: &str = "\
buffer_packets,connections,bytes,congestion,marks_packets,run,loss,goodput_bit_per_s,mean_s,last_s
50,1,1000000,reno,20,1,0,80000000,0.1,0.1
50,2,1000000,reno,20,1,0.1,40000000,0.3,0.4
";

/// The files of a column with jobs and services together with the trace.
const ALL_SOURCES: &str = "jobs.toml services.toml";

/// The columns: a title, and the options of the network, or the files that contain it.
const NETWORKS: [(&str, &str); 9] = [
    ("one switch", ""),
    ("one switch, incast", "--incast incast.csv --buffer 50"),
    ("leaf-spine, failing cables", "--fabric failing.toml"),
    ("leaf-spine, incast", "--fabric leaf-spine.toml --incast incast.csv --buffer 50"),
    ("leaf-spine, `--decide-over ports`", "--fabric failing.toml --decide-over ports"),
    ("unequal hosts", "--fabric unequal.toml"),
    ("regions", "--fabric regions.toml"),
    ("jobs and services, failing cables", ALL_SOURCES),
    ("jobs and services, incast", "jobs.toml services.toml --incast incast.csv --buffer 50"),
];

fn test_dir() -> TestDir {
    let dir = TestDir::new();
    let failing = format!("{LEAF_SPINE}{FAILING_CABLES}");
    let jobs = format!("weir-jobs = 1\n{EMBEDDED}{JOBS}");
    let services = format!("weir-scenario = 1\n{EMBEDDED}{SERVICES}{FAILING_CABLES}");
    for (file, text) in [
        ("all.weir", TRACE),
        ("leaf-spine.toml", LEAF_SPINE),
        ("failing.toml", &failing),
        ("unequal.toml", UNEQUAL_HOSTS),
        ("regions.toml", REGIONS),
        ("incast.csv", INCAST),
        ("jobs.toml", &jobs),
        ("services.toml", &services),
    ] {
        dir.write(file, text);
    }
    dir
}

/// The reasons for which cells are refused, in the order of their first cell.
#[derive(Default)]
struct Reasons(Vec<String>);

impl Reasons {
    /// The text of a cell: `yes`, or the number of the reason.
    fn cell(&mut self, refused: Option<String>) -> String {
        let Some(reason) = refused else { return "yes".to_owned() };
        let known = self.0.iter().position(|other| *other == reason);
        let number = known.unwrap_or_else(|| {
            self.0.push(reason);
            self.0.len() - 1
        });
        format!("no ({})", number + 1)
    }
}

/// Replays the trace; the reason if the command refuses it. Checks that all coflows and links have results.
fn refusal(dir: &TestDir, policy: &str, options: &str) -> Option<String> {
    let has_services = options.contains("services.toml");
    let demands = if has_services { "--per-demand demands.csv" } else { "" };
    let line = format!(
        "sim all.weir --policy {policy} {options} --quiet --no-timing --format json --out result.json \
         --per-coflow coflows.csv --per-flow flows.csv --per-link links.csv {demands}"
    );
    let output = dir.command(&line).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    match output.status.code() {
        Some(0) => {}
        Some(2) => {
            let reason = message.trim().trim_start_matches("weir: ");
            return Some(reason.lines().next().unwrap_or_default().to_owned());
        }
        code => panic!("{line}: {code:?}: {message}"),
    }
    let result: Value = serde_json::from_str(&dir.read("result.json")).unwrap();
    assert!(
        result["mean_cct_s"].as_f64().is_some_and(|mean| mean > 0.0 && mean.is_finite()),
        "{line}: {result}"
    );
    let lines_of = |file: &str| dir.read(file).lines().count() - 1;
    // The job has two transfers of six flows, and the services have three active intervals.
    let expected = if has_services { (5, 19) } else { (3, 7) };
    assert_eq!((lines_of("coflows.csv"), lines_of("flows.csv")), expected, "{line}");
    if has_services {
        assert_eq!(lines_of("demands.csv"), 3, "{line}");
        for demand in csv::Reader::from_reader(dir.read("demands.csv").as_bytes()).records() {
            let rate: f64 = demand.unwrap()[8].parse().unwrap();
            assert!(rate.is_finite() && rate >= 0.0, "{line}: {rate}");
        }
    }
    assert!(lines_of("links.csv") >= 6, "{line}: {}", dir.read("links.csv"));
    let explained = dir
        .json_of(&format!("explain all.weir --policy {policy} {options} --coflow 2 --quiet --format json"));
    assert!(explained["cct_s"].as_f64().is_some_and(|cct| cct > 0.0), "{line}: {explained}");
    None
}

/// Replays the trace under a tree of this policy and another one.
fn refusal_in_tree(dir: &TestDir, policy: &str, options: &str) -> Option<String> {
    let tree = format!(
        "weir-tree = 1\n[service.ads]\nweight = 2\npolicy = \"{policy}\"\n[default]\npolicy = \"fair\"\n"
    );
    dir.write("tree.toml", &tree);
    let reason = refusal(dir, "tree:tree.toml", options)?;
    let (expected, problem) =
        ("expected `fair` or a policy that sets rates", "cannot be a leaf of a policy tree");
    assert!(reason.contains(&format!("{expected} (policy `{policy}` {problem})")), "{reason}");
    Some(format!("{problem}; {expected}"))
}

fn page() -> String {
    let dir = test_dir();
    let policies = dir.json_of("policies --format json");
    let mut names: Vec<&str> =
        policies.as_array().unwrap().iter().map(|line| line["policy"].as_str().unwrap()).collect();
    names.retain(|name| !name.starts_with("tree:"));
    names.dedup();
    let mut reasons = Reasons::default();
    let mut rows = String::new();
    for policy in &names {
        let mut cells: Vec<String> =
            NETWORKS.iter().map(|(_, options)| reasons.cell(refusal(&dir, policy, options))).collect();
        assert!(cells.iter().all(|cell| cell == "yes"), "{policy}: {:?}", reasons.0);
        for options in ["--fabric failing.toml", "--fabric regions.toml", ALL_SOURCES] {
            cells.push(reasons.cell(refusal_in_tree(&dir, policy, options)));
        }
        rows += &format!("| `{policy}` | {} |\n", cells.join(" | "));
    }
    let mut titles: Vec<&str> = NETWORKS.iter().map(|(title, _)| *title).collect();
    titles.extend([
        "leaf of a tree, leaf-spine",
        "leaf of a tree, regions",
        "leaf of a tree, jobs and services",
    ]);
    let listed = (1..).zip(&reasons.0).map(|(number, reason)| format!("{number}. {reason}\n"));
    format!(
        "# What works with what\n\n\
         After reading this page you know which policies run on which networks. A test replays a trace with late data, a deadline, a\n\
         parent, computing, a failing port and a restarted flow in each cell, writes results by coflow, flow and link, and explains a\n\
         coflow. *Failing cables*: one fails and is repaired, another becomes slower. *Jobs and services*: a file of each and the trace, on\n\
         the leaf-spine that both contain.\n\n\
         | policy | {} |\n|---|{}\n{rows}\n\
         Refused, because leaves divide links by the rates that their policies set:\n\n{}\n\
         `--incast` between regions is refused, since ports in regions limit no flow. `detours=on` of `fair`, `siphon` and `mrtf` needs\n\
         regions.\n",
        titles.join(" | "),
        "---|".repeat(titles.len()),
        listed.collect::<String>(),
    )
}

#[test]
fn combinations_page_matches_the_commands() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/combinations.md");
    let generated = page();
    if std::env::var_os("WEIR_WRITE_DOCS").is_some() {
        fs::write(&path, &generated).unwrap();
    }
    let current = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        current == generated,
        "docs/combinations.md is stale; help: run `make docs`, and review the change"
    );
}
