//! Services as a source of replays: rates together with coflows and jobs, and refused combinations.

use crate::common::TestDir;

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/demo.txt");
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/services.toml");

/// Two hosts at one switch of 8 Mbit/s. The service `web` sends from the first to the second in two of three seconds.
const ONE_LINK: &str = "\
weir-scenario = 1
end = \"3s\"
fabric = { kind = \"big-switch\", hosts = 2, rate = \"8Mbit\" }
service = [{ name = \"web\", weight = 3 }]
[[demand]]
service = \"web\"
from = \"h0\"
to = \"h1\"
sending = \"elastic\"
active = [[\"0s\", \"1s\"], [\"2s\", \"3s\"]]
";

/// A coflow of the service `batch` over the same link.
const TRACE: &str = "weir-trace 1\nports 2\ncoflow 5 service=batch\nflow 0 1 1MB\n";

#[track_caller]
fn assert_refused(dir: &TestDir, line: &str, expected: &str) {
    let message = dir.stderr_of(line, 2);
    assert!(message.contains(expected), "{line}: {message}");
}

fn test_dir() -> TestDir {
    let dir = TestDir::new();
    dir.write("services.toml", ONE_LINK);
    dir.write("trace.weir", TRACE);
    dir
}

#[test]
fn compare_reports_rates_of_services_next_to_coflows() {
    let dir = TestDir::new();
    let demo = std::fs::read_to_string(DEMO).unwrap();
    let first: Vec<&str> = demo.lines().skip(1).take(30).collect();
    dir.write("demo.txt", &format!("50 30\n{}\n", first.join("\n")));
    let table = dir.stdout_of(&format!(
        "compare demo.txt {EXAMPLE} --policies fair,netshare --no-timing --quiet --per-demand demands.csv --report r.html"
    ));
    assert!(table.contains("2 services with 57 connections until 60s"), "{table}");
    assert!(table.contains("30 coflows"), "{table}");
    assert!(table.contains("web (weight 4, active 60.00 s), backup (weight 1, active 30.00 s)."), "{table}");
    assert!(dir.read("r.html").contains("backup (weight 1, active 30.00 s)"));
    let demands = dir.read("demands.csv");
    assert_eq!(demands.lines().count(), 1 + 2 * 2, "{demands}");
    let rate_of = |policy: &str, service: &str| -> f64 {
        let found = demands.lines().find(|line| line.starts_with(&format!("{policy},{service},")));
        found.and_then(|line| line.rsplit(',').next()).unwrap().parse().unwrap()
    };
    // At its weight, the server gets all it asks for.
    let asked = 49.0 * 10e6;
    assert!((rate_of("netshare", "web") / asked - 1.0).abs() < 0.02, "{demands}");
    assert!(rate_of("fair", "web") < rate_of("netshare", "web"), "{demands}");
}

#[test]
fn services_share_with_coflows_by_weight() {
    let dir = test_dir();
    let line = "trace.weir services.toml --interval 0 --quiet --no-timing --format json";
    // Of 1 MB, netshare sends a quarter in the first second, and the rest in the free second from 1 s on.
    let shared = dir.json_of(&format!("sim {line} --policy netshare"));
    assert!((shared["mean_cct_s"].as_f64().unwrap() - 1.75).abs() < 1e-9, "{shared}");
    assert!((shared["service_bytes"].as_f64().unwrap() - 1.75e6).abs() < 1e-3, "{shared}");
    assert_eq!((&shared["coflows"], &shared["services_file"]), (&1.into(), &"services.toml".into()));
    assert!((shared["lower_bound_mean_cct_s"].as_f64().unwrap() - 1.0).abs() < 1e-9, "{shared}");
    // A policy that knows sizes serves the coflow first.
    let varys = dir.json_of(&format!("sim {line} --policy varys"));
    assert!((varys["mean_cct_s"].as_f64().unwrap() - 1.0).abs() < 1e-9, "{varys}");
}

#[test]
fn services_work_alone_and_in_all_commands() {
    let dir = test_dir();
    let alone = dir.json_of("sim services.toml --policy saath --interval 0 --quiet --format json");
    assert_eq!((&alone["coflows"], &alone["mean_cct_s"]), (&0.into(), &serde_json::Value::Null));
    assert!((alone["service_bytes"].as_f64().unwrap() - 2e6).abs() < 1e-3, "{alone}");
    let explained = dir.json_of(
        "explain trace.weir services.toml --policy fair --coflow 7 --interval 0 --quiet --format json",
    );
    assert!((explained["cct_s"].as_f64().unwrap() - 1.0).abs() < 1e-9, "{explained}");
    assert_eq!(
        (&explained["slowdown"], &explained["dropped_bytes"]),
        (&serde_json::Value::Null, &serde_json::Value::Null)
    );
    let text = dir.stdout_of("explain services.toml --policy fair --coflow 0 --interval 0 --quiet");
    assert!(
        text.contains("demand 1 of service web, 1 connection, from 0 s to 1.000 s.\nIt sent 1.000 MB"),
        "{text}"
    );
    let swept = dir.json_of(
        "sweep trace.weir services.toml --policies fair,saath --vary interval=0s,8ms --quiet --no-timing --format json",
    );
    assert_eq!(swept.as_array().unwrap().len(), 4);
    let line = "compare trace.weir services.toml --policies fair,saath --quiet --no-timing --resume kept --format json";
    let first = dir.stdout_of(line);
    assert_eq!(dir.stdout_of(line), first);
}

#[test]
fn services_and_jobs_need_one_network() {
    let dir = test_dir();
    let jobs = |hosts: u32| {
        format!(
            "weir-jobs = 1\nfabric = {{ kind = \"big-switch\", hosts = {hosts}, rate = \"8Mbit\" }}\n\
             [workload.own]\nstages = [{{ bytes = \"1MB\" }}]\n[[job]]\nworkload = \"own\"\nservers = [\"h0\", \"h1\"]\n"
        )
    };
    dir.write("jobs.toml", &jobs(2));
    dir.write("other.toml", &jobs(3));
    let line = "trace.weir services.toml --policy fair --quiet --format json";
    assert_eq!(dir.json_of(&format!("sim jobs.toml {line}"))["coflows"], 2);
    dir.write("second.weir", TRACE);
    let several = "sweep trace.weir second.weir services.toml --policies saath --vary start=1MB";
    assert_refused(&dir, several, "a sweep cannot combine several traces with jobs or services");
    assert_refused(&dir, "sim trace.weir missing.toml --policy fair", "missing.toml: cannot be read");
    assert_refused(&dir, "trace describe services.toml", "connections of services have no sizes");
    let expected = "other.toml and services.toml: the network of jobs has 3 hosts, 1 switch and 3 cables, that of services 2 hosts, \
                    1 switch and 2 cables; expected the same network; help: name one fabric file in both";
    assert_refused(&dir, &format!("sim other.toml {line}"), expected);
    dir.write("slower.toml", &jobs(2).replace("8Mbit", "4Mbit"));
    let expected = "both networks have 2 hosts, 1 switch and 2 cables, but other names, rates or cables";
    assert_refused(&dir, &format!("sim slower.toml {line}"), expected);
}

#[test]
fn demands_that_policies_cannot_serve_are_refused() {
    let dir = test_dir();
    let lossy = ONE_LINK.replace("\"elastic\"", "\"unresponsive\"\nrate = \"1Mbit\"");
    dir.write("lossy.toml", &lossy);
    assert_refused(
        &dir,
        "sim lossy.toml --policy fair",
        "demand 1: `unresponsive` connections lose bytes on their way",
    );
    let queue = "[[port]]\nfrom = \"h0\"\nto = \"*\"\nqueues = [{ weight = 1, services = [\"web\"] }]\n";
    dir.write("ports.toml", &format!("{ONE_LINK}{queue}"));
    assert_refused(
        &dir,
        "sim ports.toml --policy fair",
        "[[port]] configures mechanisms of NetShare, which `weir share` simulates",
    );
    assert_refused(
        &dir,
        "sim services.toml services.toml --policy fair",
        "services.toml and services.toml are both services",
    );
    dir.write("network.toml", "weir-fabric = 1\nkind = \"big-switch\"\nhosts = 2\nrate = \"8Mbit\"\n");
    assert_refused(
        &dir,
        "sim services.toml --fabric network.toml --policy fair",
        "services.toml contains a network",
    );
    assert_refused(&dir, "sim services.toml --policy fair --max-flows 1", "have more than 1 connections");
}

#[test]
fn merged_stages_keep_the_rates_of_services() {
    let dir = test_dir();
    dir.write(
        "job.weir",
        "weir-trace 1\nports 2\ncoflow 1 job=4\nflow 0 1 1MB\ncoflow 2 job=4\nflow 1 0 1MB\n",
    );
    let line = "job.weir services.toml --interval 0 --quiet --per-stage";
    let merged = dir.json_of(&format!("sim {line} --policy netshare --format json --per-demand demands.csv"));
    assert_eq!(merged["coflows"], 1);
    let demands = dir.read("demands.csv");
    let intervals: Vec<&str> =
        demands.lines().skip(1).map(|line| line.split(",web,").nth(1).unwrap()).collect();
    assert!(
        intervals[0].starts_with("1,3,0.0,1.0,1,") && intervals[1].starts_with("1,4,2.0,3.0,1,"),
        "{demands}"
    );
    let explained = dir.stdout_of(&format!("explain {line} --policy fair --coflow 4"));
    assert!(
        explained.contains("demand 1 of service web, 1 connection, from 2.000 s to 3.000 s"),
        "{explained}"
    );
}

#[test]
fn services_alone_print_no_columns_without_values() {
    let dir = test_dir();
    let rates = "web (weight 3, active 2.000 s).";
    for line in [
        "sim services.toml --policy fair --quiet --no-timing",
        "compare services.toml --policies fair,saath --quiet --report r.html",
        "compare services.toml --policies fair,saath --quiet --wide --no-timing --per-demand demands.csv",
        "sweep services.toml --policies fair,saath --vary interval=0s,8ms --quiet --report sweep.html",
    ] {
        let text = dir.stdout_of(line);
        assert!(text.contains("services.toml: 2 ports (1 service with 1 connection until 3s)"), "{text}");
        assert!(text.contains(rates) && text.contains("8.000 Mbit"), "{text}");
        for absent in ["CCT", "completion times", "speedup", "0 coflows"] {
            assert!(!text.contains(absent), "{line}: {text}");
        }
    }
    let text = dir.stdout_of("compare services.toml --policies fair,saath --quiet");
    assert_eq!(text.matches("saath").count(), 1, "{text}");
    let report = dir.read("r.html");
    assert!(report.contains("<h2>Services</h2>") && report.contains("<h2>Utilization of links</h2>"));
    for section in ["Results", "Completion times", "Active coflows", "Coflows over time", "Speedups by size"]
    {
        assert!(!report.contains(&format!("<h2>{section}</h2>")), "{section}");
    }
    let report = dir.read("sweep.html");
    assert!(report.contains("<h2>Results</h2>") && !report.contains("<h2>Mean completion times</h2>"));
}

#[test]
fn sweep_has_the_mean_rate_of_each_service() {
    let dir = test_dir();
    let line = "sweep trace.weir services.toml --policies fair,varys --vary arrival=1,2 --interval 0 --quiet --no-timing";
    let table = dir.stdout_of(line);
    assert!(
        table.contains("Mean rates of services while their connections are active: web (weight 3"),
        "{table}"
    );
    let head = table.lines().find(|line| line.starts_with("arrival")).unwrap();
    assert!(head.ends_with("| web"), "{table}");
    let row = table.lines().rev().find(|line| line.contains("fair")).unwrap();
    // The coflow and the connection share the link in the first second.
    assert!(row.ends_with("6.000 Mbit"), "{table}");
    let rows = dir.json_of(&format!("{line} --format json"));
    assert_eq!(rows.as_array().unwrap().len(), 4);
    for row in rows.as_array().unwrap() {
        // Under varys, the coflow has the whole link in the first second.
        let expected = if row["policy"] == "fair" { 6e6 } else { 4e6 };
        assert!((row["service_web_bit_per_s"].as_f64().unwrap() / expected - 1.0).abs() < 1e-9, "{row}");
    }
    assert!(
        dir.stdout_of(&format!("{line} --format csv"))
            .lines()
            .next()
            .unwrap()
            .contains(",service_web_bit_per_s,")
    );
    let without =
        dir.stdout_of("sweep trace.weir --policies fair,varys --vary arrival=1,2 --quiet --format csv");
    assert!(!without.contains("service_"), "{without}");
}

#[test]
fn equal_samples_have_an_interval_of_zero() {
    let dir = test_dir();
    let line =
        "sweep trace.weir services.toml --policies fair,varys --vary path-seed=1,2,3 --confidence --quiet";
    let table = dir.stdout_of(&format!("{line} --report r.html"));
    assert!(table.contains("6.000 Mbit ± 0"), "{table}");
    assert!(!table.contains("e-"), "{table}");
    assert!(dir.read("r.html").contains("6.000 Mbit ± 0"));
    let rows = dir.json_of(&format!("{line} --format json"));
    assert_eq!(
        (&rows[0]["service_web_bit_per_s_ci95"], &rows[0]["mean_cct_s_ci95"]),
        (&0.0.into(), &0.0.into())
    );
}

#[test]
fn demand_file_without_services_is_refused() {
    let dir = test_dir();
    for line in ["sim trace.weir --policy fair", "compare trace.weir --policies fair,saath"] {
        let message = dir.stderr_of(&format!("{line} --per-demand demands.csv"), 2);
        let expected = "weir: --per-demand: trace.weir has no services; expected a scenario with services among the sources; help:";
        assert!(message.starts_with(expected), "{message}");
        assert!(!dir.path("demands.csv").exists());
    }
}

#[test]
fn policies_that_ignore_limits_of_connections_are_named() {
    let dir = test_dir();
    dir.write("capped.toml", &ONE_LINK.replace("\"elastic\"", "\"capped\"\nrate = \"1Mbit\""));
    let messages = |line: &str| {
        let ran = dir.run(line);
        assert_eq!(ran.code, Some(0), "{line}: {}", ran.stderr);
        ran.stderr
    };
    let message = messages("compare trace.weir capped.toml --policies fair,pfp,django,saath --no-timing");
    assert!(
        message.starts_with("weir: trace.weir, capped.toml: these policies decide over ports"),
        "{message}"
    );
    assert!(message.ends_with(": pfp, django\n"), "{message}");
    let message = messages("sim trace.weir capped.toml --policy saath --decide-over ports");
    assert!(message.ends_with(": saath\n"), "{message}");
    for line in [
        "sim trace.weir capped.toml --policy saath",
        "sim trace.weir capped.toml --policy pfp --quiet",
        "sim trace.weir services.toml --policy pfp",
        "sim trace.weir capped.toml --policy fair --decide-over ports",
    ] {
        assert_eq!(messages(line), "", "{line}");
    }
}

#[test]
fn trace_with_more_ports_than_hosts_is_refused_by_its_name() {
    let dir = test_dir();
    dir.write("wide.weir", &TRACE.replace("ports 2", "ports 7"));
    for command in [
        "sim wide.weir --policy saath",
        "compare wide.weir --policies saath,fair",
        "explain wide.weir --policy saath --coflow 5",
    ] {
        let message = dir.stderr_of(&command.replace("wide.weir", "wide.weir services.toml"), 2);
        let expected = "weir: wide.weir: 7 ports; expected at most 2, one for each host of services.toml; help: choose a network";
        assert!(message.starts_with(expected), "{message}");
    }
}
