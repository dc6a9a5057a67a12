//! Files of policy trees.

use std::num::NonZeroU16;
use std::path::Path;

use crate::error_cases::check_error_cases;
use weir_core::model::ServiceNames;
use weir_core::saba::{Fraction, SabaLimits};
use weir_core::tree::{ApplicationSharing, TreeSpec};
use weir_trace::tree::{read, read_from};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");

fn parse(text: &str) -> Result<TreeSpec, String> {
    read_from(text.as_bytes(), "t", Path::new(EXAMPLES), None).map_err(|error| error.to_string())
}

#[test]
fn tree_example_is_read() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/tree.toml");
    let TreeSpec::Services(services, other) = read(Path::new(path), None).unwrap() else {
        panic!("services")
    };
    let shown: Vec<(&str, f64)> = services.iter().map(|s| (s.name.as_str(), s.weight)).collect();
    assert_eq!(shown, [("service-1", 2.0), ("service-2", 1.0)]);
    assert!(
        matches!(&services[0].application_sharing, ApplicationSharing::Saba(table, _) if table.len() == 2)
    );
    assert_eq!(services[0].applications[0].policy, "sincronia");
    assert_eq!(services[0].applications[1].model.as_deref(), Some("LR"));
    assert_eq!(services[1].application_sharing, ApplicationSharing::Weighted);
    assert_eq!(services[1].applications[0].weight, 3.0);
    assert_eq!(other.unwrap().application_sharing, ApplicationSharing::SingleLeaf("fair".to_owned()));
}

#[test]
fn omitted_tree_keys_have_defaults() {
    let TreeSpec::Services(services, other) = parse("weir-tree = 1\n[service.a]\n").unwrap() else {
        panic!()
    };
    assert_eq!(
        (services[0].weight, &services[0].application_sharing),
        (1.0, &ApplicationSharing::SingleLeaf("fair".to_owned()))
    );
    assert!(other.is_none());
    let text = "weir-tree = 1\n[default]\npolicy = \"saath:d=4\"\napplications = \"weights\"\n";
    let TreeSpec::Services(services, other) = parse(text).unwrap() else { panic!() };
    assert!(services.is_empty());
    assert_eq!(other.unwrap().default_application.policy, "saath:d=4");
}

#[test]
fn services_limit_levels_and_queues() {
    let limits_of = |keys: &str| {
        let saba = "applications = \"saba\"\nsensitivity = \"tree-sensitivity.toml\"\n";
        let text = format!("weir-tree = 1\n[default]\n{saba}{keys}");
        let TreeSpec::Services(_, Some(service)) = parse(&text).unwrap() else { panic!("{text}") };
        let ApplicationSharing::Saba(_, limits) = service.application_sharing else { panic!("{text}") };
        limits
    };
    assert_eq!(limits_of(""), SabaLimits::default());
    assert_eq!(
        limits_of("share = 0.75\nlevels = 16\nqueues = 4\nmin-weight = 0.25\n"),
        SabaLimits {
            c_saba: Fraction::new(0.75).unwrap(),
            max_levels: NonZeroU16::new(16),
            queues: NonZeroU16::new(4),
            min_weight: 0.25,
        }
    );
}

#[test]
fn policy_tree_errors_name_line_field_value_and_expectation() {
    let read = |text: &str| parse(text).map_err(|error| error.replace(EXAMPLES, "examples"));
    check_error_cases("tree", "weir-tree = 1\n[service.a]\n", read);
}

#[test]
fn tree_errors_name_the_line_of_unassigned_services() {
    let mut names = ServiceNames::empty();
    for (service, application) in [("ads", "sort"), ("ads", "query"), ("web", "x")] {
        names.intern(service, application).unwrap();
    }
    let examples = Path::new(EXAMPLES);
    let read_with_names =
        |text: &str| read_from(text.as_bytes(), "t", examples, Some(&names)).map_err(|e| e.to_string());
    let saba = "applications = \"saba\"\nsensitivity = \"tree-sensitivity.toml\"\n";
    let model =
        |place: &str, application: &str| format!("[{place}.application.{application}]\nmodel = \"LR\"\n");
    let both = format!("{}{}", model("service.ads", "sort"), model("service.ads", "query"));
    for (text, expected) in [
        (
            "weir-tree = 1\n[service.ads]\n".to_owned(),
            "t:2: field `service`: `web`: expected all services of the trace: `[service.web]`, or `[default]` for those \
             without a table",
        ),
        (
            format!("weir-tree = 1\n[default]\n[service.ads]\n{saba}{}", model("service.ads", "sort")),
            "t:5: field `service ads sensitivity`: `query`: expected a table that has all applications of the trace's \
             service `ads`, or `[service.ads.application.query]` with the `model` of another",
        ),
        (
            format!("weir-tree = 1\n[service.ads]\n[default]\n{saba}"),
            "t:5: field `default sensitivity`: `x`: expected a table that has all applications of the trace's service `web`, \
             or `[default.application.x]` with the `model` of another",
        ),
    ] {
        assert_eq!(read_with_names(&text).unwrap_err(), expected);
        assert!(read_from(text.as_bytes(), "t", examples, None).is_ok());
    }
    read_with_names(&format!("weir-tree = 1\n[service.web]\n[service.ads]\n{saba}{both}")).unwrap();
}
