//! Scenarios in TOML: contents, and errors with their places.

use std::path::Path;

use crate::error_cases::check_error_cases;
use proptest::prelude::*;
use weir_core::model::LinkId;
use weir_core::model::scenario::{CableChange, CableEvent, Scenario, SendMode};
use weir_core::units::Time;
use weir_trace::scenario::{MAX_FILE_BYTES, read, read_from};

const EXAMPLE: &str = include_str!("../../../../examples/netshare-5.3.toml");
const DOCUMENT: &str = include_str!("../../../../docs/scenario-format.md");

fn parse(text: &str) -> Result<Scenario, String> {
    read_from(text.as_bytes(), "t", Path::new("")).map_err(|error| error.to_string())
}

fn time(text: &str) -> Time {
    text.parse().unwrap()
}

#[test]
fn demands_match_netshare_table_2() {
    let scenario = parse(EXAMPLE).unwrap();
    let active_demands_at = |at: &str| -> Vec<bool> {
        scenario.demands.iter().map(|demand| demand.is_active(time(at))).collect()
    };
    let phases = [("5s", [true, true, false]), ("35s", [false, true, true]), ("65s", [true, false, true])];
    for (at, expected) in
        phases.into_iter().chain([("95s", [true; 3]), ("0s", [false; 3]), ("125s", [false; 3])])
    {
        assert_eq!(active_demands_at(at), expected, "{at}");
    }
    let weights: Vec<f64> = scenario.services.iter().map(|service| service.weight).collect();
    assert_eq!(weights, [1.0, 3.0, 9.0]);
    assert_eq!(scenario.demands[0].send_mode, SendMode::Elastic);
    assert_eq!(scenario.demands[1].send_mode, SendMode::Unresponsive("1Gbit".parse().unwrap()));
    assert_eq!(
        (scenario.min_limit, scenario.end, scenario.seed),
        (Scenario::DEFAULT_MIN_LIMIT, time("125s"), 0)
    );
}

#[test]
fn documented_scenario_example_is_read() {
    let text = DOCUMENT.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let scenario = parse(text).unwrap();
    // All pairs of twelve hosts with two connections each; two hosts to one.
    let counts: Vec<u64> = scenario.demands.iter().map(|demand| demand.connection_count()).collect();
    assert_eq!(counts, [12 * 11 * 2, 2]);
    assert_eq!(scenario.demands[0].active_intervals, [(Time::ZERO, time("60s"))]);
}

/// The example with these tables. Each string is the lines of one table.
fn with_tables(name: &str, tables: &[impl AsRef<str>]) -> String {
    let table = |lines: &str| format!("[[{name}]]\n{lines}\n");
    EXAMPLE.to_owned() + &tables.iter().map(|lines| table(lines.as_ref())).collect::<String>()
}

#[test]
fn documented_events_are_read() {
    let text = DOCUMENT.split("```toml\n").nth(4).unwrap().split("```").next().unwrap();
    let rate = "at = \"40s\"\ncable = [\"C1\", \"H1\"]\nchange = \"rate\"\nrate = \"2Gbit\"";
    let tables: Vec<&str> = text.split("[[event]]\n").skip(1).collect();
    let rate = rate.replace("C1", "E1");
    let scenario = parse(&with_tables("event", &[tables[0], tables[1], &rate])).unwrap();
    let found: Vec<_> = scenario.events.iter().map(|event| (event.time, event.change)).collect();
    let rate = CableChange::Rate("2Gbit".parse().unwrap());
    assert_eq!(
        found,
        [(time("20s"), CableChange::Down), (time("40s"), CableChange::Up), (time("40s"), rate)]
    );
    let cable_ends = |at: usize| {
        let link = scenario.topology.link(scenario.events[at].cable);
        [scenario.topology.name(link.from), scenario.topology.name(link.to)]
    };
    assert!([cable_ends(0), cable_ends(1)].iter().all(|ends| ends.contains(&"E1") && ends.contains(&"C1")));
    assert!(cable_ends(2).contains(&"H1"));
}

#[test]
fn number_of_events_is_limited() {
    let event = "at = \"20s\"\ncable = [\"E1\", \"C1\"]\nchange = \"rate\"\nrate = \"1Gbit\"";
    let many = vec![event; CableEvent::MAX_EVENTS + 1];
    assert!(parse(&with_tables("event", &many[1..])).is_ok());
    let error = parse(&with_tables("event", &many)).unwrap_err();
    assert!(error.contains("field `event`: `1001`: expected at most 1000 events"), "{error}");
}

#[test]
fn documented_guarantee_is_read() {
    let text = DOCUMENT.split("```toml\n").nth(2).unwrap().split("```").next().unwrap();
    let tables: Vec<&str> = text.split("[[guarantee]]\n").skip(1).collect();
    // The services of the document differ from those of the example.
    let text =
        with_tables("guarantee", &tables).replace("\"search\"", "\"A1\"").replace("\"backup\"", "\"A3\"");
    let scenario = parse(&text).unwrap();
    let found = scenario.guarantees.iter().map(|guarantee| {
        let ends = scenario.topology.link(guarantee.link);
        (
            guarantee.service,
            scenario.topology.name(ends.from),
            scenario.topology.name(ends.to),
            guarantee.rate,
        )
    });
    let rate = |text: &str| text.parse().unwrap();
    let expected = [(0, "E1", "C1", rate("400Mbit")), (2, "E1", "C1", rate("100Mbit"))];
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

#[test]
fn event_that_lowers_a_link_below_its_guarantees_is_accepted() {
    let guarantee = "service = \"A1\"\nfrom = \"E1\"\nto = \"C1\"\nrate = \"600Mbit\"";
    let event = "[[event]]\nat = \"5s\"\ncable = [\"C1\", \"E1\"]\nchange = \"rate\"\nrate = \"300Mbit\"";
    let scenario = parse(&with_tables("guarantee", &[&format!("{guarantee}\n{event}")])).unwrap();
    let reductions = scenario.reductions();
    assert_eq!(reductions.len(), 1);
    assert_eq!((reductions[0].link, reductions[0].factor), (scenario.guarantees[0].link, 0.5));
}

fn port(from: &str, to: &str, queues: &str) -> String {
    format!("from = \"{from}\"\nto = \"{to}\"\nqueues = [{queues}]")
}

/// A single queue for all services of the example.
const ONE_QUEUE: &str = "{ weight = 2, services = [\"A1\", \"A2\", \"A3\"] }";

/// End nodes of the links of the scenario's ports.
fn link_ends(scenario: &Scenario) -> Vec<Vec<(&str, &str)>> {
    let topology = &scenario.topology;
    let ends_of = |link: &LinkId| {
        let link = topology.link(*link);
        (topology.name(link.from), topology.name(link.to))
    };
    scenario.ports.iter().map(|port| port.links.iter().map(ends_of).collect()).collect()
}

#[test]
fn documented_ports_are_read() {
    let text = DOCUMENT.split("```toml\n").nth(3).unwrap().split("```").next().unwrap();
    let tables = text.split("[[port]]\n").skip(1);
    // The services of the document differ from those of the example.
    let names = |text: &str| text.replace("\"search\"", "\"A1\", \"A2\"").replace("\"backup\"", "\"A3\"");
    let scenario = parse(&with_tables("port", &tables.map(names).collect::<Vec<_>>())).unwrap();
    assert_eq!(link_ends(&scenario), [[("E1", "C1")], [("H1", "E1")]]);
    let queues = |at: usize| -> Vec<(f64, Vec<usize>)> {
        scenario.ports[at].queues.iter().map(|queue| (queue.weight, queue.services.clone())).collect()
    };
    assert_eq!(queues(0), [(3.0, vec![0, 1]), (1.0, vec![2])]);
    assert_eq!(queues(1), [(1.0, vec![0, 1, 2])]);
    let queueing = scenario.network_queues();
    let at = |from: &str, to: &str| {
        let [from, to] = [from, to].map(|name| scenario.topology.find_node(name).unwrap());
        let table = queueing.table(scenario.topology.link_between(from, to).unwrap());
        (table.weights.clone(), table.queue_by_service.clone())
    };
    assert_eq!(at("E1", "C1"), (vec![3.0, 1.0], vec![0, 0, 1]));
    assert_eq!(at("C1", "E1"), (vec![1.0, 3.0, 9.0], vec![0, 1, 2]), "default queues of a switch");
    assert_eq!(at("H2", "E1"), (vec![1.0], vec![0, 0, 0]), "default queue of a host");
}

#[test]
fn star_selects_all_ports_of_a_node_or_of_all_switches() {
    let links = |from: &str, to: &str| {
        parse(&with_tables("port", &[port(from, to, ONE_QUEUE)])).map(|s| link_ends(&s)[0].len())
    };
    // Twelve hosts under three edges and a core.
    assert_eq!(links("E1", "*"), Ok(5));
    assert_eq!(links("*", "E1"), Ok(1), "`*` excludes hosts");
    assert_eq!(links("*", "H3"), Ok(1));
    assert_eq!(links("*", "*"), Ok(12 + 2 * 3));
    // A node may be named `*`; the name then refers to that node.
    let fabric = "{ kind = \"links\", hosts = [\"*\", \"H2\"], switch = [{ name = \"E1\", tier = 1 }], link = [ \
                  { ends = [\"*\", \"E1\"], rate = \"1Gbit\" }, { ends = [\"H2\", \"E1\"], rate = \"1Gbit\" }] }";
    let services = "[[service]]\nname = \"A1\"\nweight = 1\n";
    let demand = "[[demand]]\nservice = \"A1\"\nfrom = \"H2\"\nto = \"*\"\nsending = \"elastic\"\n";
    let ports = format!("[[port]]\n{}\n", port("E1", "*", "{ weight = 1, services = [\"A1\"] }"));
    let text = format!("weir-scenario = 1\nend = \"1s\"\nfabric = {fabric}\n{services}{demand}{ports}");
    assert_eq!(link_ends(&parse(&text).unwrap()), [[("E1", "*")]]);
}

#[test]
fn number_of_queues_is_limited() {
    let many = |count: usize| vec!["{ weight = 1, services = [\"A1\"] }"; count].join(", ");
    let error = parse(&with_tables("port", &[port("E1", "C1", &many(65))])).unwrap_err();
    assert!(error.ends_with("field `port 1 queues`: `65`: expected 1 to 64 queues"), "{error}");
    // Each direction of a cable is a separate port.
    assert!(parse(&with_tables("port", &[port("E1", "C1", ONE_QUEUE), port("C1", "E1", ONE_QUEUE)])).is_ok());
}

#[test]
fn many_ports_in_few_lines_are_refused_early() {
    let text =
        EXAMPLE.replace("kind = \"netshare-fig6\"", "kind = \"big-switch\", hosts = 65536, rate = \"1Gbit\"");
    let text = text.replace("\"H", "\"h");
    let ports = format!("\n[[port]]\n{}", port("*", "*", ONE_QUEUE)).repeat(10_000);
    let error = parse(&(text + &ports)).unwrap_err();
    assert!(error.contains("field `port 2 to`: `switch to h0`: expected a port whose queues"), "{error}");
}

#[test]
fn too_many_paths_after_events_are_rejected() {
    let change =
        |change: &str, at: usize| format!("at = \"{at}s\"\ncable = [\"E1\", \"C1\"]\nchange = \"{change}\"");
    let events: Vec<String> = (0..64).map(|n| change(["down", "up"][n % 2], n + 1)).collect();
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let text = with_tables("event", &events).replacen("to = \"H5\"", "to = \"H5\"\nconnections = 1048574", 1);
    // Together with the connections of the other two demands, this is the maximum number of connections; 64
    // times as many paths are the limit.
    let error = parse(&text).unwrap_err();
    assert!(
        error.contains("field `event 64 change`: `up`: expected at most 67108864 path computations"),
        "{error}"
    );
    let fewer =
        with_tables("event", &events[..63]).replacen("to = \"H5\"", "to = \"H5\"\nconnections = 1048574", 1);
    assert_eq!(parse(&fewer).unwrap().events.len(), 63);
}

#[test]
fn scenario_reads_a_fabric_from_a_separate_file() {
    let folder = tempfile::tempdir().unwrap();
    let text = EXAMPLE.replace("{ kind = \"netshare-fig6\" }", "\"fabric.toml\"");
    let path = folder.path().join("scenario.toml");
    std::fs::write(&path, text).unwrap();
    let error = read(&path).unwrap_err().to_string();
    assert!(
        error.contains("field `fabric`: `\"") && error.contains("expected a file that can be read ("),
        "{error}"
    );
    assert!(error.contains("fabric.toml: cannot be read"), "{error}");
    std::fs::write(folder.path().join("fabric.toml"), "weir-fabric = 1\nkind = \"netshare-fig6\"\n").unwrap();
    assert_eq!(read(&path).unwrap(), parse(EXAMPLE).unwrap());
}

/// An event, a guarantee and a port, for errors in them.
const TABLES: &str = r#"
[[event]]
at = "20s"
cable = ["E1", "C1"]
change = "down"
[[guarantee]]
service = "A2"
from = "E1"
to = "C1"
rate = "600Mbit"
[[port]]
from = "E2"
to = "C1"
queues = [{ weight = 1, services = ["A1", "A2"] }, { weight = 7, services = ["A3"] }]
"#;

#[test]
fn scenario_errors_name_line_field_value_and_expectation() {
    parse(&format!("{EXAMPLE}{TABLES}")).unwrap();
    check_error_cases("scenario", &format!("{EXAMPLE}{TABLES}"), parse);
    let service = EXAMPLE.split("[[service]]").next().unwrap();
    assert!(parse(service).unwrap_err().contains("field `service`: `nothing`: expected a list of tables"));
    let long = " ".repeat(MAX_FILE_BYTES + 1);
    assert!(parse(&long).unwrap_err().contains("field `file`"));
}

#[test]
fn many_events_and_guarantees_at_one_large_switch_are_refused() {
    // The switch has the maximum number of cables, and the table names the last one: a linear search per
    // table would take minutes.
    let text =
        EXAMPLE.replace("kind = \"netshare-fig6\"", "kind = \"big-switch\", hosts = 65536, rate = \"1Gbit\"");
    let text = text.replace("\"H", "\"h");
    let event = "[[event]]\nat = \"1s\"\ncable = [\"switch\", \"h65535\"]\nchange = \"down\"\n";
    let error = parse(&(text.clone() + &event.repeat(100_000))).unwrap_err();
    assert!(error.contains("field `event`: `100000`: expected at most 1000 events"), "{error}");
    let guarantee = "[[guarantee]]\nservice = \"A1\"\nfrom = \"switch\"\nto = \"h65535\"\nrate = \"1bit\"\n";
    let error = parse(&(text + &guarantee.repeat(100_000))).unwrap_err();
    assert!(error.contains("field `guarantee 2 service`: `A1`"), "{error}");
}

#[test]
fn many_hosts_in_few_lines_are_refused_early() {
    let mut text = EXAMPLE.split("[[demand]]").next().unwrap().to_owned();
    text = text.replace("kind = \"netshare-fig6\"", "kind = \"big-switch\", hosts = 65536, rate = \"1Gbit\"");
    let demand =
        |to: &str| format!("[[demand]]\nservice = \"A1\"\nfrom = \"*\"\nto = {to}\nsending = \"elastic\"\n");
    let error = parse(&(text.clone() + &demand("\"*\""))).unwrap_err();
    assert!(error.contains("field `demand 1 connections`: `1`: expected at most 1048576"), "{error}");
    let error = parse(&(text.clone() + &demand("\"h7\"").repeat(9_000))).unwrap_err();
    assert!(error.contains("field `demand 17 connections`: `1`: expected at most 1048576"), "{error}");
    let error = parse(&(text + &demand("[]").repeat(9_000))).unwrap_err();
    assert!(error.contains("field `demand 1 to`: `[]`: expected at least one host"), "{error}");
}

proptest! {
    #[test]
    fn randomly_edited_scenario_is_read_or_rejected(at in 0usize..900, length in 0usize..20, new in "[-\"\\[\\]{}=a-z0-9. \n]{0,12}") {
        let mut text = EXAMPLE.to_owned();
        let (from, to) = (at.min(text.len()), (at + length).min(text.len()));
        text.replace_range(from..to, &new);
        if let Ok(scenario) = parse(&text) {
            prop_assert!(scenario.check().is_ok());
        }
    }
}
