//! Scenarios in TOML: what they say, and where they are refused.

use std::path::Path;

use proptest::prelude::*;
use weir_core::model::scenario::{Scenario, Sending};
use weir_core::units::Time;
use weir_trace::scenario::{MAX_FILE_BYTES, read, read_from};

const EXAMPLE: &str = include_str!("../../../examples/netshare-5.3.toml");
const DOCUMENT: &str = include_str!("../../../docs/scenario-format.md");

fn parse(text: &str) -> Result<Scenario, String> {
    read_from(text.as_bytes(), "t", Path::new("")).map_err(|error| error.to_string())
}

fn time(text: &str) -> Time {
    text.parse().unwrap()
}

#[test]
fn netshare_table_2() {
    let scenario = parse(EXAMPLE).unwrap();
    let on = |at: &str| -> Vec<bool> {
        scenario.demands.iter().map(|demand| demand.is_active(time(at))).collect()
    };
    let phases = [("5s", [true, true, false]), ("35s", [false, true, true]), ("65s", [true, false, true])];
    for (at, expected) in
        phases.into_iter().chain([("95s", [true; 3]), ("0s", [false; 3]), ("125s", [false; 3])])
    {
        assert_eq!(on(at), expected, "{at}");
    }
    let weights: Vec<f64> = scenario.services.iter().map(|service| service.weight).collect();
    assert_eq!(weights, [1.0, 3.0, 9.0]);
    assert_eq!(scenario.demands[0].sending, Sending::Elastic);
    assert_eq!(scenario.demands[1].sending, Sending::Unresponsive("1Gbit".parse().unwrap()));
    assert_eq!((scenario.floor, scenario.end, scenario.seed), (Scenario::FLOOR, time("125s"), 0));
}

#[test]
fn the_document_s_example() {
    let text = DOCUMENT.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let scenario = parse(text).unwrap();
    // Twelve hosts, to each other, two connections each; two hosts to one.
    let counts: Vec<u64> = scenario.demands.iter().map(|demand| demand.count()).collect();
    assert_eq!(counts, [12 * 11 * 2, 2]);
    assert_eq!(scenario.demands[0].active, [(Time::ZERO, time("60s"))]);
}

#[test]
fn a_fabric_in_a_file_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let text = EXAMPLE.replace("{ kind = \"netshare-fig6\" }", "\"fabric.toml\"");
    let path = folder.path().join("scenario.toml");
    std::fs::write(&path, text).unwrap();
    let error = read(&path).unwrap_err().to_string();
    assert!(error.contains("fabric.toml: cannot be read"), "{error}");
    std::fs::write(folder.path().join("fabric.toml"), "weir-fabric = 1\nkind = \"netshare-fig6\"\n").unwrap();
    assert_eq!(read(&path).unwrap(), parse(EXAMPLE).unwrap());
}

/// The error after replacing some text of the example.
fn broken(from: &str, to: &str) -> String {
    assert!(EXAMPLE.contains(from), "{from}");
    parse(&EXAMPLE.replacen(from, to, 1)).unwrap_err()
}

#[test]
fn errors_name_line_field_value_and_what_was_expected() {
    for (from, to, error) in [
        ("weir-scenario = 1", "weir-scenario = 2", "t:3: field `weir-scenario`: `2`: expected version 1"),
        ("end = \"125s\"", "end = 125", "t:4: field `end`: `125`: expected a time with a unit"),
        ("end = \"125s\"", "end = \"0s\"", "t:4: field `end`: `0s`: expected a time above 0 and up to 3600s"),
        (
            "end = \"125s\"",
            "end = \"100s\"",
            "t:24: field `demand 1 active`: `65s to 125s`: expected intervals",
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
        ("name = \"A2\"", "name = \"A1\"", "t:12: field `service 2 name`: `A1`: expected a name of its own"),
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
        ("from = \"H1\"", "from = \"H13\"", "t:21: field `demand 1 from`: `\"H13\"`: expected a host of the"),
        ("from = \"H1\"", "from = \"E1\"", "t:21: field `demand 1 from`: `\"E1\"`: expected a host of the"),
        ("from = \"H1\"", "from = []", "t:22: field `demand 1 to`: `nobody else`: expected a host that"),
        (
            "from = \"H1\"",
            "from = [\"H1\", \"H1\"]",
            "t:21: field `demand 1 from`: `H1`: expected each host once",
        ),
        ("to = \"H5\"", "to = \"H1\"", "t:22: field `demand 1 to`: `nobody else`: expected a host that"),
        (
            "to = \"H5\"",
            "to = \"H5\"\nconnections = 0",
            "t:23: field `demand 1 connections`: `0`: expected at",
        ),
        ("to = \"H5\"", "to = \"H5\"\nconnections = 4294967295", "connections in all"),
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
        (
            "[\"5s\", \"35s\"], ",
            "[\"5s\", \"65s\"], ",
            "`65s to 125s`: expected intervals in order and apart",
        ),
        (
            "[\"5s\", \"35s\"], ",
            "[\"5s\"], ",
            "t:24: field `demand 1 active`: `[\"5s\"]`: expected a list of",
        ),
        ("[[\"35s\", \"125s\"]]", "[]", "field `demand 3 active`: `nothing`: expected an interval"),
    ] {
        let message = broken(from, to);
        assert!(message.contains(error), "{to}: {message}");
    }
    assert!(parse("weir-scenario = ").unwrap_err().contains("field `TOML`"));
    let service = EXAMPLE.split("[[service]]").next().unwrap();
    assert!(parse(service).unwrap_err().contains("field `service`: `nothing`: expected a list of tables"));
    let long = " ".repeat(MAX_FILE_BYTES + 1);
    assert!(parse(&long).unwrap_err().contains("field `file`"));
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
    assert!(error.contains("field `demand 1 to`: `nobody else`"), "{error}");
}

proptest! {
    #[test]
    fn any_change_is_read_or_refused(at in 0usize..900, length in 0usize..20, new in "[-\"\\[\\]{}=a-z0-9. \n]{0,12}") {
        let mut text = EXAMPLE.to_owned();
        let (from, to) = (at.min(text.len()), (at + length).min(text.len()));
        text.replace_range(from..to, &new);
        if let Ok(scenario) = parse(&text) {
            prop_assert!(scenario.check().is_ok());
        }
    }
}
