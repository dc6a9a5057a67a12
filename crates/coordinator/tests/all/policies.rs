//! Tests that the coordinator accepts the policies that agents can enforce, and no others.

use std::path::Path;

use serde_json::json;
use weir_coordinator::config;
use weir_coordinator::policy::{SIMULATION_ONLY, SimulationOnly};
use weir_core::policy;

use crate::api::{TestServer, get, put};

/// The error of a configuration with this policy and interval; empty if it is accepted.
fn refusal(policy: &str, interval: &str) -> String {
    let text = format!(
        "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"{policy}\"\ninterval = \"{interval}\"\n[listen]\n\
         agents = \"127.0.0.1:1\"\napi = \"127.0.0.1:2\"\n[host]\na = \"1Gbit\"\nb = \"1Gbit\"\n"
    );
    let parsed = config::parse(&text, "serve.toml", Path::new("."));
    parsed.err().map_or_else(String::new, |error| error.to_string())
}

/// The specification that a row refuses.
fn spec(row: &SimulationOnly) -> String {
    let (key, value) = row.parameter;
    format!("{}:{key}={value}", row.policy)
}

#[test]
fn policies_that_agents_cannot_enforce_are_refused_with_an_alternative() {
    for row in &SIMULATION_ONLY {
        let text = refusal(&spec(row), "8ms");
        assert!(text.starts_with("serve.toml:3: field `policy`: "), "{text}");
        assert!(text.contains(row.reason) && text.contains(row.instead), "{text}");
    }
    assert!(refusal("saath:d=4: local = on", "8ms").contains("expected `local=off`"));
}

#[test]
fn all_other_policies_and_their_default_values_are_accepted() {
    for entry in policy::all() {
        assert_eq!(refusal(entry.name, "8ms"), "", "{}", entry.name);
        // Aalo's `turn` has an effect only with `sharing=turns`, and an empty list is the default of no policy.
        let values = entry.params.iter().map(|(default, _)| *default);
        for value in values.filter(|value| !value.starts_with("turn=") && !value.ends_with('=')) {
            let text = refusal(&format!("{}:{value}", entry.name), "8ms");
            assert_eq!(text, "", "{}:{value}", entry.name);
        }
    }
}

#[test]
fn turns_are_at_least_as_long_as_the_interval() {
    for (policy, interval, is_accepted) in [
        ("aalo:sharing=turns", "8ms", true),
        ("aalo:sharing=turns", "10ms", false),
        ("aalo:sharing=turns:turn=7ms", "8ms", false),
        ("aalo:sharing=turns:turn=1s", "1s", true),
        ("aalo:sharing=strict", "1s", true),
    ] {
        let text = refusal(policy, interval);
        assert_eq!(text.is_empty(), is_accepted, "{policy} at {interval}: {text}");
        assert!(is_accepted || text.contains(&format!("at least `turn={interval}`")), "{text}");
    }
}

#[test]
fn the_api_and_trees_refuse_the_same_policies() {
    let server = TestServer::start();
    let before = get(&server, "/v1/policy").1;
    let tree = |policy| format!("weir-tree = 1\n[service.ads]\npolicy = \"{policy}\"\n[default]\n");
    for (body, expected) in [
        (json!({ "policy": "aalo:at=both" }), "`at=senders`"),
        (json!({ "tree": tree("saath:local=on") }), "`local=off`"),
        (json!({ "tree": tree("django:connections=4") }), "another policy in the tree"),
    ] {
        let (status, problem) = put(&server, "/v1/policy", &body);
        let text = problem["detail"].as_str().unwrap_or_default();
        assert!(status == 422 && text.contains(expected), "{status}: {problem}");
    }
    assert_eq!(get(&server, "/v1/policy").1, before);
}

#[test]
fn page_lists_all_refused_policies() {
    let page = include_str!("../../../../docs/policies.md");
    let (_, section) = page.split_once("## Only in simulations").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows: Vec<&str> = section.lines().filter(|line| line.starts_with("| `")).collect();
    let expected: Vec<String> = SIMULATION_ONLY
        .iter()
        .map(|row| format!("| `{}` | {} | {} |", spec(row), row.reason, row.instead))
        .collect();
    assert_eq!(rows[..expected.len()], expected);
    let others = ["| `django` as a leaf of ", "| `aalo:sharing=turns` with "];
    assert!(rows[expected.len()..].iter().zip(others).all(|(row, start)| row.starts_with(start)), "{rows:?}");
    assert_eq!(rows.len(), expected.len() + others.len());
}
