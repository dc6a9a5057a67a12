//! Topologies in TOML: round trips, and errors with their places.

use crate::error_cases::check_error_cases;
use crate::property_settings::config_with_cases;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use weir_core::model::topology::TopologyBuilder;
use weir_core::model::{NodeId, Topology, TopologyTemplate};
use weir_core::units::Rate;
use weir_trace::topology::describe::TopologyStatistics;
use weir_trace::topology::{MAX_FILE_BYTES, read, read_from, read_with_events, write, write_plan};

const EXAMPLE: &str = include_str!("../../../../docs/fabric-format.md");

fn parse(text: &str) -> Result<Topology, String> {
    read_from(text.as_bytes(), "t").map_err(|error| error.to_string())
}

fn write_topology(topology: &Topology) -> String {
    let mut out = Vec::new();
    write(topology, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn rate(text: &str) -> Rate {
    text.parse().unwrap()
}

fn all_templates() -> Vec<TopologyTemplate> {
    let rate = rate("10Gbit");
    vec![
        TopologyTemplate::BigSwitch { hosts: 5, rate },
        TopologyTemplate::NetShareFig1,
        TopologyTemplate::NetShareFig3,
        TopologyTemplate::NetShareFig6,
        TopologyTemplate::NetShareFig7,
        TopologyTemplate::NetShareFig16 { services: 3 },
        TopologyTemplate::LeafSpine { spines: 3, leaves: 4, hosts: 7, rate, oversubscription: 1.0 / 3.0 },
        TopologyTemplate::FatTree { ports: 4, rate, oversubscription: 1.0 },
        TopologyTemplate::FatTree { ports: 4, rate, oversubscription: 2.5 },
        TopologyTemplate::SabaTiers { oversubscription: 1.0 },
        TopologyTemplate::SabaTiers { oversubscription: 3.0 },
    ]
}

#[test]
fn plans_and_built_topologies_round_trip() {
    for plan in all_templates() {
        let built = plan.build().unwrap();
        let mut out = Vec::new();
        write_plan(&plan, &mut out).unwrap();
        assert!(read_from(&out[..], "t").unwrap() == built, "{plan:?}");
        assert!(parse(&write_topology(&built)).unwrap() == built, "{plan:?}");
    }
}

#[test]
fn the_documents_examples_are_read() {
    let examples: Vec<&str> =
        EXAMPLE.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(examples.len(), 3);
    let listed = parse(examples[0]).unwrap();
    assert_eq!((listed.hosts(), listed.nodes(), listed.links().len()), (4, 7, 12));
    assert_eq!(listed.name(NodeId(4)), "leaf1");
    let leaf_spine = parse(examples[1]).unwrap();
    let plan = TopologyTemplate::LeafSpine {
        spines: 4,
        leaves: 8,
        hosts: 16,
        rate: rate("10Gbit"),
        oversubscription: 2.0,
    };
    assert!(leaf_spine == plan.build().unwrap());
    let with_events = format!("{}{}", examples[1], examples[2]);
    let (topology, events) = read_with_events(with_events.as_bytes(), "t").unwrap();
    assert!(topology == leaf_spine);
    assert_eq!(events.iter().map(|event| event.time.get()).collect::<Vec<_>>(), [20.0, 40.0]);
    // Commands without a time refuse events.
    assert!(parse(&with_events).unwrap_err().contains("`event`: expected one of"));
}

/// The cables that the page implies for one template of each kind: from a host to its switch, or between switches.
#[test]
fn generated_nodes_have_the_names_of_the_page() {
    let expected: [(&str, &[&str]); 9] = [
        ("big-switch", &["h0 switch", "h4 switch"]),
        ("netshare-fig1", &["E1-A1 E1", "E4-A3 E4", "E4 C1"]),
        ("netshare-fig3", &["H1 E1", "H3 E1", "H4 E2", "H6 E2", "H7 E2", "H2 E3", "H5 E4", "H8 E4", "E1 C1"]),
        ("netshare-fig6", &["H1 E1", "H4 E1", "H5 E2", "H12 E3", "E3 C1"]),
        ("netshare-fig7", &["H1 E1", "H12 E3", "E3 C1", "E3 C2"]),
        ("netshare-fig16", &["E11-A1 E11", "E42-A3 E42", "E11 M12", "M42 C2"]),
        ("leaf-spine", &["h0 leaf0", "h6 leaf0", "h7 leaf1", "leaf3 spine2"]),
        ("fat-tree", &["h0 edge0.0", "h2 edge0.1", "h4 edge1.0", "edge0.1 agg0.0", "agg3.1 core3"]),
        ("saba-tiers", &["h0 tor0", "h1943 tor107", "tor107 leaf101", "leaf101 spine35"]),
    ];
    for template in all_templates() {
        let topology = template.build().unwrap();
        let (_, cables) = expected.iter().find(|(kind, _)| *kind == template.name()).unwrap();
        for cable in *cables {
            let (from, to) = cable.split_once(' ').unwrap();
            let from = topology.find_node(from).unwrap_or_else(|| panic!("{}: {cable}", template.name()));
            let mut ends = topology.outgoing_links(from).iter().map(|&link| topology.link(link).to);
            assert!(ends.any(|end| topology.name(end) == to), "{}: {cable}", template.name());
        }
    }
}

#[test]
fn topology_errors_name_line_field_value_and_expectation() {
    let good = "weir-fabric = 1\nkind = \"links\"\nhosts = [\"a\", \"b\"]\n\n[[switch]]\nname = \"s\"\ntier = 1\n\n\
                [[link]]\nends = [\"a\", \"s\"]\nrate = \"1Gbit\"\n\n[[link]]\nends = [\"b\", \"s\"]\nrate = \"1Gbit\"\n";
    parse(good).unwrap();
    check_error_cases("fabric_links", good, parse);
    let leaf_spine = "weir-fabric = 1\nkind = \"leaf-spine\"\nspines = 1\nleaves = 1\nhosts = 1\nrate = \"1Gbit\"\n\
                      oversubscription = 1\n";
    parse(leaf_spine).unwrap();
    check_error_cases("fabric_leaf_spine", leaf_spine, parse);
}

#[test]
fn oversubscription_is_optional() {
    let tree = "weir-fabric = 1\nkind = \"fat-tree\"\nports = 4\nrate = \"10Gbit\"\n";
    let saba = "weir-fabric = 1\nkind = \"saba-tiers\"\n";
    for (kind, plan) in [("fat_tree", tree), ("saba_tiers", saba)] {
        let with = |value: &str| parse(&format!("{plan}oversubscription = {value}\n"));
        assert!(parse(plan).unwrap() == with("1").unwrap());
        assert!(parse(plan).unwrap() != with("2.5").unwrap());
        check_error_cases(&format!("fabric_{kind}"), plan, parse);
    }
    let big = "weir-fabric = 1\nkind = \"big-switch\"\nhosts = 2\nrate = \"1Gbit\"\noversubscription = 2\n";
    assert!(parse(big).unwrap_err().contains("t:5: field `key`: `oversubscription`: expected one of"));
}

#[test]
fn binary_and_oversized_topology_files_are_refused() {
    let error = read_from(&b"weir-fabric = 1\nkind = \xff"[..], "t").unwrap_err().to_string();
    assert!(error.starts_with("t:2: field `text`"), "{error}");
    let error = read_from(std::io::repeat(b'#'), "t").unwrap_err().to_string();
    assert_eq!(error, format!("t:1: field `file`: `longer file`: expected at most {MAX_FILE_BYTES} bytes"));
    assert!(parse(&format!("a = {}", "[".repeat(1_000_000))).is_err());
    assert!(parse(&"a.".repeat(1_000_000)).is_err());
    assert!(
        read(std::path::Path::new("/nowhere/at/all")).unwrap_err().to_string().contains("cannot be read")
    );
}

/// Names with characters that TOML must escape.
fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![3 => "[a-z0-9.-]{1,8}", 1 => "[\\\\\"'#=é\u{1F980}\\[\\]]{1,8}"]
}

proptest! {
    #![proptest_config(config_with_cases(300))]

    #[test]
    fn random_topologies_round_trip(
        names in prop::collection::btree_set(any_name(), 3..20),
        switches in 1usize..3,
        rates in prop::collection::vec(0.125f64..1e15, 40),
    ) {
        let names: Vec<String> = names.into_iter().collect();
        let (switches, hosts) = names.split_at(switches);
        let mut builder = TopologyBuilder::new();
        for switch in switches {
            builder.add_switch(switch, switch.len() as u8).unwrap();
        }
        let mut rates = rates.into_iter().map(|rate| Rate::new(rate).unwrap());
        for host in hosts {
            builder.add_host(host).unwrap();
            for switch in switches {
                builder.add_cable(switch, host, rates.next().unwrap()).unwrap();
            }
        }
        let topology = builder.build().unwrap();
        prop_assert!(parse(&write_topology(&topology)).unwrap() == topology);
    }

    #[test]
    fn damaged_topology_files_are_rejected_or_round_trip(
        plan in select(all_templates()[..9].to_vec()),
        at in any::<Index>(),
        length in 0usize..12,
        with in select(vec!["", "[", "]]", "\"", "\n", "=", "1e999", "-1", "9".repeat(40).leak(), "\u{0}", "[[link]]\n", "inf"]),
    ) {
        let mut text = write_topology(&plan.build().unwrap());
        let from = at.index(text.len());
        let to = (from + length).min(text.len());
        prop_assume!(text.is_char_boundary(from) && text.is_char_boundary(to));
        text.replace_range(from..to, with);
        match parse(&text) {
            Ok(topology) => prop_assert!(parse(&write_topology(&topology)).unwrap() == topology),
            Err(message) => prop_assert!(message.starts_with("t:") && !message.contains('\n')),
        }
    }
}

#[test]
fn topology_descriptions_match_the_papers() {
    let describe = |plan: TopologyTemplate| TopologyStatistics::new(&plan.build().unwrap());
    let pairs = |d: &TopologyStatistics| -> Vec<(u32, u64, u64)> {
        d.host_pairs.as_ref().unwrap().iter().map(|p| (p.hops, p.paths, p.count)).collect()
    };
    // A fat tree of 4-port switches: 16 hosts, full bisection bandwidth, 1, 2 and 4 paths.
    let fat_tree =
        |oversubscription| TopologyTemplate::FatTree { ports: 4, rate: rate("10Gbit"), oversubscription };
    let tree = describe(fat_tree(1.0));
    assert_eq!((tree.hosts, tree.switches, tree.cables), (16, 20, 48));
    assert_eq!(pairs(&tree), [(2, 1, 16), (4, 2, 32), (6, 4, 192)]);
    assert_eq!(
        (tree.bisection_bytes_per_sec, tree.half_send_bytes_per_sec),
        (Some(80.0 * 125e6), 80.0 * 125e6)
    );
    let over: Vec<_> =
        tree.tiers.iter().map(|tier| (tier.tier, tier.switches, tier.oversubscription)).collect();
    assert_eq!(over, [(1, 8, Some(1.0)), (2, 8, Some(1.0)), (3, 4, None)]);
    // At 4:1, edge switches have four times as much capacity below as above; aggregation switches have equal
    // capacity up and down.
    let thin = describe(fat_tree(4.0));
    assert_eq!(
        (thin.bisection_bytes_per_sec, thin.half_send_bytes_per_sec),
        (Some(20.0 * 125e6), 80.0 * 125e6)
    );
    let over: Vec<_> = thin.tiers.iter().map(|tier| tier.oversubscription).collect();
    assert_eq!(over, [Some(4.0), Some(1.0), None]);
    // NetShare 5.1: one core switch. Of six hosts, four share the uplink of their pod, and the two others
    // that of theirs.
    let one = describe(TopologyTemplate::NetShareFig6);
    assert_eq!((one.bisection_bytes_per_sec, one.tiers[0].oversubscription), (Some(3.0 * 125e6), Some(4.0)));
    assert_eq!(pairs(&one), [(2, 1, 36), (4, 1, 96)]);
    // 5.2: "oversubscription factor of 2:1", two paths.
    let two = describe(TopologyTemplate::NetShareFig7);
    assert_eq!(two.tiers[0].oversubscription, Some(2.0));
    assert_eq!(pairs(&two), [(2, 1, 36), (4, 2, 96)]);
    // Saba, 8.1: 18 uplinks for 18 downlinks, 17 leaf switches above a rack; the first three pods of six.
    let saba = describe(TopologyTemplate::SabaTiers { oversubscription: 1.0 });
    assert_eq!((saba.hosts, saba.switches), (1944, 54 + 102 + 108));
    let most = 17.0 * 54.0 * 56.0 * 125e6;
    assert!(
        (saba.bisection_bytes_per_sec.unwrap() - most).abs() < 1e-9 * most
            && saba.half_send_bytes_per_sec > most
    );
    let thin = describe(TopologyTemplate::SabaTiers { oversubscription: 2.0 });
    assert!(
        (thin.bisection_bytes_per_sec.unwrap() - most / 2.0).abs() < 1e-9 * most
            && thin.half_send_bytes_per_sec == saba.half_send_bytes_per_sec
    );
    assert!((thin.tiers[0].oversubscription.unwrap() - 2.0 * 18.0 / 17.0).abs() < 1e-12);
    // A single host has no destination.
    let alone = describe(TopologyTemplate::BigSwitch { hosts: 1, rate: rate("1Gbit") });
    assert_eq!((alone.bisection_bytes_per_sec, pairs(&alone)), (Some(0.0), vec![]));
}
