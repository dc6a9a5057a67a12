//! Scenarios in TOML: contents, and errors with their places.

use std::path::Path;

use crate::edits::check_edits;
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

/// The example with these events. Each string is the lines of one table.
fn with_events(events: &[&str]) -> String {
    let tables: Vec<String> = events.iter().map(|event| format!("[[event]]\n{event}\n")).collect();
    format!("{}\n{}", EXAMPLE.trim_end(), tables.concat())
}

#[test]
fn documented_events_are_read() {
    let text = DOCUMENT.split("```toml\n").nth(4).unwrap().split("```").next().unwrap();
    let rate = "at = \"40s\"\ncable = [\"C1\", \"H1\"]\nchange = \"rate\"\nrate = \"2Gbit\"";
    let tables: Vec<&str> = text.split("[[event]]\n").skip(1).collect();
    let rate = rate.replace("C1", "E1");
    let scenario = parse(&with_events(&[tables[0], tables[1], &rate])).unwrap();
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
fn errors_in_events_name_the_place() {
    let line = EXAMPLE.trim_end().lines().count() + 1;
    let event =
        |at: &str, ends: &str, change: &str| format!("at = \"{at}\"\ncable = [{ends}]\nchange = {change}");
    let cable = "\"E1\", \"C1\"";
    let down = event("20s", cable, "\"down\"");
    for (events, place, error) in [
        (vec![event("20", cable, "\"down\"")], 1, "event 1 at`: `\"20\"`: expected "),
        (vec![event("-1s", cable, "\"down\"")], 1, "event 1 at`: `\"-1s\"`: expected "),
        (vec![event("125s", cable, "\"down\"")], 1, "event 1 at`: `125s`: expected a time before 125s"),
        (
            vec![down.clone(), event("19s", cable, "\"up\"")],
            5,
            "event 2 at`: `19s`: expected events in order",
        ),
        (vec![event("20s", "\"E1\", \"C9\"", "\"down\"")], 2, "event 1 cable`: `\"C9\"`: expected the two"),
        (
            vec![event("20s", "\"E1\", \"E2\"", "\"down\"")],
            2,
            "event 1 cable`: `[\"E1\", \"E2\"]`: expected the two ends of a cable",
        ),
        (vec![event("20s", "\"E1\"", "\"down\"")], 2, "event 1 cable`: `[\"E1\"]`: expected the two"),
        (vec![event("20s", cable, "\"fail\"")], 3, "event 1 change`: `\"fail\"`: expected `down`, `up`"),
        (vec![event("20s", cable, "\"up\"")], 3, "event 1 change`: `up`: expected a cable that is down"),
        (
            vec![down.clone(), event("21s", "\"C1\", \"E1\"", "\"down\"")],
            7,
            "event 2 change`: `down`: expected a cable that is up at that time",
        ),
        (vec![event("20s", cable, "\"rate\"")], 0, "event 1 rate`: `nothing`: expected a rate"),
        (
            vec![event("20s", cable, "\"rate\"\nrate = \"0bit\"")],
            4,
            "event 1 rate`: `0bit`: expected 1bit to",
        ),
        (
            vec![event("20s", cable, "\"down\"\nrate = \"1Gbit\"")],
            4,
            "event 1 key`: `rate`: expected one of at, cable, change",
        ),
    ] {
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        let message = parse(&with_events(&events)).unwrap_err();
        let expected = format!("t:{}: field `{error}", line + place);
        assert!(message.starts_with(&expected), "{message} instead of {expected}");
    }
    let many = vec![event("20s", cable, "\"rate\"\nrate = \"1Gbit\""); CableEvent::MAX_EVENTS + 1];
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(parse(&with_events(&many[1..])).is_ok());
    let error = parse(&with_events(&many)).unwrap_err();
    assert!(error.contains("field `event`: `1001`: expected at most 1000 events"), "{error}");
}

/// The example with these guarantees. Each string is the lines of one table.
fn with_guarantees(guarantees: &[&str]) -> String {
    let tables: Vec<String> = guarantees.iter().map(|lines| format!("[[guarantee]]\n{lines}\n")).collect();
    format!("{}\n{}", EXAMPLE.trim_end(), tables.concat())
}

#[test]
fn documented_guarantee_is_read() {
    let text = DOCUMENT.split("```toml\n").nth(2).unwrap().split("```").next().unwrap();
    let tables: Vec<&str> = text.split("[[guarantee]]\n").skip(1).collect();
    // The services of the document differ from those of the example.
    let text = with_guarantees(&tables).replace("\"search\"", "\"A1\"").replace("\"backup\"", "\"A3\"");
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
fn errors_in_guarantees_name_the_place() {
    let line = EXAMPLE.trim_end().lines().count() + 1;
    let guarantee = |service: &str, from: &str, to: &str, rate: &str| {
        format!("service = \"{service}\"\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"{rate}\"")
    };
    let good = guarantee("A1", "E1", "C1", "600Mbit");
    for (guarantees, place, error) in [
        (
            vec![guarantee("A4", "E1", "C1", "1Mbit")],
            1,
            "guarantee 1 service`: `\"A4\"`: expected the name of a service of this file",
        ),
        (
            vec![guarantee("A1", "E4", "C1", "1Mbit")],
            2,
            "guarantee 1 from`: `\"E4\"`: expected a host or switch of the fabric",
        ),
        (
            vec![guarantee("A1", "E1", "E2", "1Mbit")],
            3,
            "guarantee 1 to`: `\"E2\"`: expected a host or switch with a cable to `E1`",
        ),
        (
            vec![guarantee("A1", "E1", "E1", "1Mbit")],
            3,
            "guarantee 1 to`: `\"E1\"`: expected a host or switch with a cable to `E1`",
        ),
        (vec![guarantee("A1", "E1", "C1", "0Mbit")], 4, "guarantee 1 rate`: `0bit`: expected at least 1bit"),
        (vec![guarantee("A1", "E1", "C1", "1Mbps")], 4, "guarantee 1 rate`: `\"1Mbps\"`: expected a number"),
        (
            vec![guarantee("A1", "E1", "C1", "1001Mbit")],
            4,
            "guarantee 1 rate`: `1.001Gbit`: expected at most the link's 1Gbit",
        ),
        (
            vec![
                good.clone(),
                guarantee("A1", "C1", "E1", "600Mbit"),
                guarantee("A2", "E1", "C1", "500Mbit"),
            ],
            14,
            "guarantee 3 rate`: `500Mbit`: expected at most the link's 1Gbit together with the 600Mbit guaranteed",
        ),
        (
            vec![good.clone(), guarantee("A1", "E1", "C1", "1Mbit")],
            6,
            "guarantee 2 service`: `A1`: expected one guarantee of a service on a link",
        ),
        (vec!["service = \"A1\"".to_owned()], 0, "guarantee 1 from`: `nothing`: expected a host or switch"),
        (vec![good.clone() + "\nweight = 1"], 5, "guarantee 1 key`: `weight`: expected one of service, from"),
    ] {
        let guarantees: Vec<&str> = guarantees.iter().map(String::as_str).collect();
        let message = parse(&with_guarantees(&guarantees)).unwrap_err();
        let expected = format!("t:{}: field `{error}", line + place);
        assert!(message.starts_with(&expected), "{message} instead of {expected}");
    }
}

#[test]
fn event_that_lowers_a_link_below_its_guarantees_is_accepted() {
    let guarantee = "service = \"A1\"\nfrom = \"E1\"\nto = \"C1\"\nrate = \"600Mbit\"";
    let event = "[[event]]\nat = \"5s\"\ncable = [\"C1\", \"E1\"]\nchange = \"rate\"\nrate = \"300Mbit\"";
    let scenario = parse(&with_guarantees(&[&format!("{guarantee}\n{event}")])).unwrap();
    let reductions = scenario.reductions();
    assert_eq!(reductions.len(), 1);
    assert_eq!((reductions[0].link, reductions[0].factor), (scenario.guarantees[0].link, 0.5));
}

/// The example with these ports. Each string is the lines of one table.
fn with_ports(ports: &[String]) -> String {
    let tables: Vec<String> = ports.iter().map(|lines| format!("[[port]]\n{lines}\n")).collect();
    format!("{}\n{}", EXAMPLE.trim_end(), tables.concat())
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
    let scenario = parse(&with_ports(&tables.map(names).collect::<Vec<_>>())).unwrap();
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
        parse(&with_ports(&[port(from, to, ONE_QUEUE)])).map(|s| link_ends(&s)[0].len())
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
fn errors_in_ports_name_the_place() {
    let line = EXAMPLE.trim_end().lines().count() + 1;
    let two = "{ weight = 1, services = [\"A1\", \"A2\"] }, { weight = 3, services = [\"A3\"] }";
    let good = port("E1", "C1", two);
    let many = |count: usize| vec!["{ weight = 1, services = [\"A1\"] }"; count].join(", ");
    for (ports, place, error) in [
        (
            vec![port("E4", "C1", ONE_QUEUE)],
            1,
            "port 1 from`: `\"E4\"`: expected a host or switch of the fabric, or",
        ),
        (
            vec![port("E1", "C2", ONE_QUEUE)],
            2,
            "port 1 to`: `\"C2\"`: expected a host or switch of the fabric, or",
        ),
        (
            vec![port("E1", "E2", ONE_QUEUE)],
            2,
            "port 1 to`: `\"E2\"`: expected a host or switch with a cable to `E1`",
        ),
        (vec![port("E1", "C1", "")], 3, "port 1 queues`: `0`: expected 1 to 64 queues"),
        (vec![port("E1", "C1", &many(65))], 3, "port 1 queues`: `65`: expected 1 to 64 queues"),
        (vec![port("E1", "C1", "3")], 3, "port 1 queues`: `3`: expected a table"),
        (
            vec!["from = \"E1\"\nto = \"C1\"".into()],
            0,
            "port 1 queues`: `nothing`: expected a list of queues",
        ),
        (vec!["from = \"E1\"\nqueues = []".into()], 0, "port 1 to`: `nothing`: expected a host or switch"),
        (vec![format!("{good}\nrate = 1")], 4, "port 1 key`: `rate`: expected one of from, to, queues"),
        (
            vec![good.replace("\"A3\"", "\"A4\"")],
            3,
            "port 1 queue 2 services`: `\"A4\"`: expected a list of names",
        ),
        (vec![good.replace("\"A3\"", "3")], 3, "port 1 queue 2 services`: `3`: expected a list of names"),
        (
            vec![good.replace("[\"A3\"]", "\"A3\"")],
            3,
            "port 1 queue 2 services`: `\"A3\"`: expected a list of names",
        ),
        (
            vec![good.replace("\"A3\"", "")],
            3,
            "port 1 queue 2 services`: `nothing`: expected at least one service",
        ),
        (
            vec![good.replace("\"A3\"", "\"A3\", \"A1\"")],
            3,
            "port 1 queue 2 services`: `A1`: expected each service in one queue of a port",
        ),
        (
            vec![good.replace("\"A1\", \"A2\"", "\"A1\"")],
            3,
            "port 1 queues`: `none with A2`: expected every service in one of the port's queues",
        ),
        (
            vec![good.replace("weight = 3", "weight = 0")],
            3,
            "port 1 queue 2 weight`: `0`: expected a number from 1e-9",
        ),
        (
            vec![good.replace("weight = 3", "weight = -1")],
            3,
            "port 1 queue 2 weight`: `-1`: expected a number from",
        ),
        (
            vec![good.replace("weight = 3", "weight = 1e10")],
            3,
            "port 1 queue 2 weight`: `10000000000`: expected a",
        ),
        (
            vec![good.replace("weight = 3", "weight = inf")],
            3,
            "port 1 queue 2 weight`: `inf`: expected a number",
        ),
        (
            vec![good.replace("weight = 3", "weight = \"3\"")],
            3,
            "port 1 queue 2 weight`: `\"3\"`: expected a number",
        ),
        (vec![good.replace("weight = 3, ", "")], 3, "port 1 queue 2 weight`: `nothing`: expected a number"),
        (
            vec![good.replace("weight = 3", "weight = 3, rate = 1")],
            3,
            "port 1 queue 2 key`: `rate`: expected one of",
        ),
        (
            vec![good.clone(), port("E1", "C1", ONE_QUEUE)],
            6,
            "port 2 to`: `E1 to C1`: expected a port whose queues are not",
        ),
        (
            vec![good.clone(), port("*", "C1", ONE_QUEUE)],
            6,
            "port 2 to`: `E1 to C1`: expected a port whose queues are not",
        ),
        (vec![port("C1", "E1", ONE_QUEUE), good.clone(), port("*", "*", ONE_QUEUE)], 10, "port 3 to`: `"),
    ] {
        let message = parse(&with_ports(&ports)).unwrap_err();
        let expected = format!("t:{}: field `{error}", line + place);
        assert!(message.starts_with(&expected), "{message} instead of {expected}");
    }
    // Each direction of a cable is a separate port.
    assert!(parse(&with_ports(&[good, port("C1", "E1", ONE_QUEUE)])).is_ok());
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
    let text = with_events(&events).replacen("to = \"H5\"", "to = \"H5\"\nconnections = 1048574", 1);
    // Together with the connections of the other two demands, this is the maximum number of connections; 64
    // times as many paths are the limit.
    let error = parse(&text).unwrap_err();
    assert!(
        error.contains("field `event 64 change`: `up`: expected at most 67108864 path computations"),
        "{error}"
    );
    let fewer = with_events(&events[..63]).replacen("to = \"H5\"", "to = \"H5\"\nconnections = 1048574", 1);
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

#[test]
fn scenario_errors_name_line_field_value_and_expectation() {
    let edits = [
        ("weir-scenario = 1", "weir-scenario = 2", "t:3: field `weir-scenario`: `2`: expected version 1"),
        ("end = \"125s\"", "end = 125", "t:4: field `end`: `125`: expected a time with a unit"),
        ("end = \"125s\"", "end = \"0s\"", "t:4: field `end`: `0s`: expected a time above 0 and up to 3600s"),
        (
            "end = \"125s\"",
            "end = \"100s\"",
            "t:24: field `demand 1 active`: `65s to 125s`: expected disjoint intervals",
        ),
        ("end =", "ends =", "field `end`: `nothing`: expected a time"),
        ("netshare-fig6", "netshare-fig5", "t:5: field `fabric kind`: `\"netshare-fig5\"`: expected `links`"),
        ("{ kind = \"netshare-fig6\" }", "7", "t:5: field `fabric`: `7`: expected a table with the keys"),
        (
            "weight = 1",
            "weight = 0",
            "t:9: field `service 1 weight`: `0`: expected a number from 1e-9 to 1e9",
        ),
        ("weight = 1", "weight = nan", "t:9: field `service 1 weight`: `NaN`: expected a number"),
        ("weight = 1", "weight = \"1\"", "t:9: field `service 1 weight`: `\"1\"`: expected a number"),
        ("weight = 1", "weight = 1\nexcess = -1.0", "t:10: field `service 1 excess`: `-1`: expected 0 or a"),
        ("weight = 1", "wait = 1", "t:7: field `service 1 weight`: `nothing`: expected a number"),
        ("weight = 1", "weight = 1\nwait = 1", "t:10: field `service 1 key`: `wait`: expected one of name"),
        ("name = \"A2\"", "name = \"A1\"", "t:12: field `service 2 name`: `A1`: expected a distinct name"),
        (
            "name = \"A1\"",
            "name = \"A 1\"",
            "t:20: field `demand 1 service`: `\"A1\"`: expected the name of a",
        ),
        (
            "service = \"A1\"",
            "service = \"A4\"",
            "t:20: field `demand 1 service`: `\"A4\"`: expected the name",
        ),
        (
            "from = \"H1\"",
            "from = \"H13\"",
            "t:21: field `demand 1 from`: `\"H13\"`: expected a host of the fabric, a list of them, or \"*\" for all; the 12 hosts are `H1` to `H12`",
        ),
        ("from = \"H1\"", "from = \"E1\"", "t:21: field `demand 1 from`: `\"E1\"`: expected a host of the"),
        ("from = \"H1\"", "from = []", "t:21: field `demand 1 from`: `[]`: expected at least one host"),
        (
            "from = \"H1\"",
            "from = [\"H1\", \"H1\"]",
            "t:21: field `demand 1 from`: `H1`: expected each host once",
        ),
        ("to = \"H5\"", "to = \"H1\"", "t:22: field `demand 1 to`: `only its own source`: expected a"),
        (
            "to = \"H5\"",
            "to = \"H5\"\nconnections = 0",
            "t:23: field `demand 1 connections`: `0`: expected at",
        ),
        ("to = \"H5\"", "to = \"H5\"\nconnections = 4294967295", "connections in total"),
        ("\"elastic\"", "\"tcp\"", "t:23: field `demand 1 sending`: `\"tcp\"`: expected `elastic`, `capped`"),
        (
            "\"elastic\"",
            "\"elastic\"\nrate = \"1Gbit\"",
            "t:24: field `demand 1 key`: `rate`: expected one of",
        ),
        (
            "rate = \"1Gbit\"",
            "rate = \"1Gbps\"",
            "t:31: field `demand 2 rate`: `\"1Gbps\"`: expected a number",
        ),
        ("rate = \"1Gbit\"", "rate = \"0Gbit\"", "t:31: field `demand 2 rate`: `0bit`: expected 1bit to"),
        ("[\"5s\", \"35s\"], ", "[\"5s\", \"65s\"], ", "`65s to 125s`: expected disjoint intervals in order"),
        (
            "[\"5s\", \"35s\"], ",
            "[\"5s\"], ",
            "t:24: field `demand 1 active`: `[\"5s\"]`: expected a list of",
        ),
        ("[[\"35s\", \"125s\"]]", "[]", "field `demand 3 active`: `nothing`: expected at least one interval"),
    ];
    check_edits(EXAMPLE, &edits, |text| parse(text).unwrap_err());
    assert!(parse("weir-scenario = ").unwrap_err().contains("field `TOML`"));
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
