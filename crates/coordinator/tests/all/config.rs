//! Tests of the configuration of `weir serve`: the example is read as intended, and errors name their place.

use std::fs;
use std::path::Path;

use crate::error_cases::check_error_cases;
use weir_coordinator::config::{self, CableEnd, Config, QueueAssignment, Saba, slots_at};
use weir_core::model::NodeId;
use weir_core::policy::AnyPolicy;
use weir_core::saba::controller::PortLimits;
use weir_core::tree::TreeSpec;
use weir_core::units::Rate;

const SMALL: &str = r#"weir-serve = 1
store = "weir.redb"
policy = "saath:d=4"

[listen]
agents = "127.0.0.1:0"
api = "[::1]:0"

[host]
a = "1Gbit"
b = "10Gbit"
"#;

fn parse(text: &str) -> Result<Config, String> {
    config::parse(text, "serve.toml", Path::new("folder")).map_err(|error| error.to_string())
}

#[test]
fn example_configuration_has_the_documented_values() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/serve.toml");
    let config = config::read(&path).unwrap();
    assert_eq!(config.hosts.len(), 6);
    assert_eq!(config.hosts[4].name, "store-1");
    assert_eq!(Some(config.hosts[4].link.send), Rate::new(25e9 / 8.0));
    assert_eq!((config.settings.interval, config.settings.lease), (0.008, 0.08));
    assert_eq!(config.store_path, path.with_file_name("weir.redb"));
    assert_eq!(config.names.applications(0), ["default", "sort", "join"]);
    assert!(config.tls.is_none() && config.policy.uses_service_weights());
    // The configured weight takes precedence over the weight in the tree.
    let AnyPolicy::Tree(TreeSpec::Services(services, _)) =
        config.policy.build(&config.names, &config.weights).engine
    else {
        panic!("a tree with services")
    };
    assert_eq!(services.iter().map(|s| (s.name.as_str(), s.weight)).collect::<Vec<_>>(), [("ads", 2.0)]);
    let text = config.to_string();
    for line in [
        "host      store-1: 25Gbit",
        "interval  8ms, leases of 80ms",
        "limits    100000 coflows",
        "          64MB of removed coflows, for `weir ctl workload`",
        "          a framework: 50000 coflows, 5000000 flows, 2048 applications with 50000 connections",
        "audit     in the log, without registrations",
    ] {
        assert!(text.contains(line), "`{line}` in\n{text}");
    }
}

#[test]
fn omitted_keys_have_defaults() {
    let config = parse(SMALL).unwrap();
    assert_eq!((config.store_path, config.audit_path), (Path::new("folder/weir.redb").to_owned(), None));
    let audited = parse(&SMALL.replace("policy =", "audit = \"audit.jsonl\"\npolicy =")).unwrap();
    assert_eq!(audited.audit_path.as_deref(), Some(Path::new("folder/audit.jsonl")));
    assert_eq!(config.names.services(), 1);
    assert!(config.names.find("default", "default").is_some() && config.weights.is_empty());
    let slow = parse(&SMALL.replace("policy =", "interval = \"100ms\"\npolicy =")).unwrap();
    assert_eq!(slow.settings.lease, 1.0);
}

#[test]
fn queues_of_services_need_links_that_agents_have_queues_for() {
    let with = |queues: &str, rate: &str| {
        let text = SMALL.replace("[listen]", &format!("{queues}\n[listen]"));
        parse(&text.replace("\"10Gbit\"", &format!("\"{rate}\""))).map(drop)
    };
    assert_eq!(with("queues = \"services\"", "100Gbit"), Ok(()));
    assert_eq!(with("queues = \"services\"", "8kbit"), Ok(()));
    // Coflows need no queues.
    assert_eq!(with("", "400Gbit"), Ok(()));
    let joins =
        "[[join]]\nnames = \"node-*\"\nnetworks = [\"10.0.0.0/8\"]\nmax-rate = \"400Gbit\"\nmax-hosts = 5\n";
    let error = with(&format!("queues = \"services\"\n{joins}"), "1Gbit").unwrap_err();
    assert!(error.ends_with("(host `node-*` has 400Gbit)"), "{error}");
    for rate in ["400Gbit", "4kbit"] {
        let expected = format!(
            "serve.toml:5: field `queues`: `services`: expected links of hosts from 8kbit to 100Gbit, which agents have queues for \
             (host `b` has {rate})"
        );
        assert_eq!(with("queues = \"services\"", rate), Err(expected));
    }
}

#[test]
fn throttling_needs_addresses_and_a_short_interval() {
    let address = "b = \"10Gbit\"\n[address]\na = [\"10.0.0.1\", \"fd00::1\"]\nb = [\"10.0.0.2\"]\n";
    let parse_with = |key: &str| {
        let text = SMALL.replace("b = \"10Gbit\"\n", address).replace("policy =", &format!("{key}policy ="));
        parse(&text).unwrap()
    };
    for (key, throttling) in [("", false), ("throttling = false\n", false), ("throttling = true\n", true)] {
        let config = parse_with(key);
        assert_eq!(config.has_throttling, throttling);
        assert_eq!(config.to_string().contains("throttle  UDP, to slightly above"), throttling);
    }
    // IPv6 addresses alone suffice.
    let ipv6 = SMALL.replace("policy =", "throttling = true\npolicy =") + "[address]\na = [\"fd00::1\"]\n";
    assert!(parse(&ipv6).unwrap().has_throttling);
    assert!(!parse(&SMALL.replace("policy =", "throttling = false\npolicy =")).unwrap().has_throttling);
}

#[test]
fn addresses_of_agents_and_api_must_differ() {
    let parse_and = |rest: &str, agents: &str, api: &str| {
        let text = SMALL.replace("127.0.0.1:0", agents).replace("[::1]:0", api);
        parse(&format!("{text}\n{rest}")).map(drop).map_err(|error| error.to_string())
    };
    let parse_with = |agents: &str, api: &str| parse_and("", agents, api);
    for (agents, api) in [("127.0.0.1:7700", "127.0.0.1:7701"), ("127.0.0.1:7700", "127.0.0.2:7700")] {
        assert_eq!(parse_with(agents, api), Ok(()));
    }
    let tls = "[tls]\ncertificate = \"host.pem\"\nkey = \"host.key\"\nclients = \"ca.pem\"\n";
    let with_tls = |agents: &str, api: &str| parse_and(tls, agents, api);
    assert_eq!(with_tls("0.0.0.0:7700", "[::1]:7700"), Ok(()));
    for agents in ["0.0.0.0:7700", "[::]:7700"] {
        let error = with_tls(agents, "127.0.0.1:7700").unwrap_err();
        assert!(error.contains("expected another address"), "{error}");
    }
    let error = parse_with("127.0.0.1:7700", "127.0.0.1:7700").unwrap_err();
    let expected = "`127.0.0.1:7700`: expected another address than that of `agents`, 127.0.0.1:7700";
    assert!(error.contains("field `listen api`: ") && error.contains(expected), "{error}");
}

#[test]
fn excess_weights_are_read_with_the_allocator() {
    let parse_with = |keys: &str| parse(&SMALL.replace("policy =", &format!("{keys}policy ="))).unwrap();
    assert!(!parse_with("").allocator && !parse_with("allocator = false\n").allocator);
    let services = "service = { ads = { weight = 3, excess = 0 }, web = {} }\n";
    let config = parse_with(&format!("allocator = true\nqueues = \"services\"\n{services}"));
    assert!(config.allocator);
    assert_eq!(config.excess_weights.into_iter().collect::<Vec<_>>(), [("ads".to_owned(), 0.0)]);
    let shown = parse_with(&format!("allocator = true\nqueues = \"services\"\n{services}")).to_string();
    assert!(shown.contains("allocator rates of observed connections, by service\n"), "{shown}");
    assert!(shown.contains("service   ads: weight 3, excess 0; applications default\n"), "{shown}");
}

#[test]
fn hosts_are_read_from_a_topology() {
    let folder = tempfile::tempdir().unwrap();
    let network = "weir-fabric = 1\nkind = \"big-switch\"\nhosts = 3\nrate = \"1Gbit\"\n";
    fs::write(folder.path().join("net.toml"), network).unwrap();
    let (keys, _) = SMALL.split_once("[host]").unwrap();
    let text = keys.replace("policy =", "topology = \"net.toml\"\npolicy =");
    let config = config::parse(&text, "serve.toml", folder.path()).unwrap();
    assert_eq!(config.hosts.len(), 3);
    assert!(config.hosts.iter().all(|h| h.link.send.get() == 125e6 && h.link.recv.get() == 125e6));
    let both = SMALL.replace("policy =", "topology = \"net.toml\"\npolicy =");
    let error = config::parse(&both, "serve.toml", folder.path()).unwrap_err().to_string();
    assert!(error.contains("either `topology` or `[host]`"), "{error}");
    let error = config::parse(&format!("{text}{JOIN}"), "serve.toml", folder.path()).unwrap_err().to_string();
    assert!(
        error.contains("with `topology`, the name of the label whose value is the host's switch"),
        "{error}"
    );
}

const JOIN: &str =
    "[[join]]\nnames = \"node-*\"\nnetworks = [\"10.0.0.0/8\"]\nmax-rate = \"1Gbit\"\nmax-hosts = 5\n";

/// A host `a` under the leaf `l1`, and a leaf `l2` without hosts.
const LEAVES: &str = "weir-fabric = 1\nkind = \"links\"\nhosts = [\"a\"]\n\
    [[switch]]\nname = \"l1\"\ntier = 1\n[[switch]]\nname = \"l2\"\ntier = 1\n[[switch]]\nname = \"s\"\ntier = 2\n\
    [[link]]\nends = [\"a\", \"l1\"]\nrate = \"1Gbit\"\n[[link]]\nends = [\"l1\", \"s\"]\nrate = \"1Gbit\"\n\
    [[link]]\nends = [\"l2\", \"s\"]\nrate = \"1Gbit\"\n";

#[test]
fn slots_of_hosts_that_join_a_topology_are_at_each_leaf() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("net.toml"), LEAVES).unwrap();
    let (keys, _) = SMALL.split_once("[host]").unwrap();
    let text = keys.replace("policy =", "topology = \"net.toml\"\npolicy =");
    let parse_rules = |rules: &str| {
        let parsed = config::parse(&format!("{text}{rules}"), "serve.toml", folder.path());
        parsed.map_err(|error| error.to_string())
    };
    let rule = format!("{JOIN}position = \"rack\"\n");
    let config =
        parse_rules(&format!("{}{rule}", rule.replace("node-*", "gpu-*").replace("= 5", "= 2"))).unwrap();
    assert_eq!((config.hosts.len(), config.slots()), (1, 2 * 2 + 2 * 5));
    let slots = |rule: usize, leaf| slots_at(&config.joins, &config.joins[rule], leaf);
    assert_eq!([slots(0, Some("l1")), slots(0, Some("l2"))], [Some(0..2), Some(2..4)]);
    assert_eq!([slots(1, Some("l1")), slots(1, Some("l2"))], [Some(4..9), Some(9..14)]);
    assert_eq!([slots(0, Some("s")), slots(0, None)], [None, None]);
    // The hosts of the topology after `a` are the slots.
    let topology = config.topology.as_ref().unwrap();
    let switch_of = |slot: u32| {
        let [cable] = topology.outgoing_links(NodeId(1 + slot))[..] else { panic!("one cable") };
        (topology.name(topology.link(cable).to), topology.link(cable).rate.get())
    };
    assert_eq!([0, 1, 2, 3, 8, 9].map(|slot| switch_of(slot).0), ["l1", "l1", "l2", "l2", "l1", "l2"]);
    assert_eq!(switch_of(0).1, 125e6);
    assert!(
        config.to_string().contains("at each of these switches, by the label rack: l1, l2\n"),
        "{config}"
    );
    let error = parse_rules(&format!("{JOIN}position = \"the rack\"\n")).unwrap_err();
    assert!(error.contains("field `join position`") || error.contains("field `position`"), "{error}");
    let error = parse(&format!("{SMALL}{rule}")).unwrap_err();
    assert!(error.contains("expected no such key without `topology`"), "{error}");
}

/// The first rule that matches counts, so a later one can let others join.
#[test]
fn rules_of_hosts_that_join_are_read_in_order() {
    let text = format!("{SMALL}{JOIN}{}", JOIN.replace("node-*", "*").replace("= 5", "= 2"));
    let config = parse(&text).unwrap();
    assert_eq!(config.slots(), 7);
    let rule_of = |name: &str| config.joins.iter().position(|rule| rule.matches(name));
    assert_eq!(["node-", "node-7", "other"].map(rule_of), [Some(0), Some(0), Some(1)]);
    assert!(
        config.to_string().contains("join      node-*: up to 1Gbit each, 5 hosts, addresses in 10.0.0.0/8\n")
    );
    // Switches are numbered after all slots.
    let names: Vec<&str> = config.agent_names().collect();
    assert_eq!(names, ["a", "b", "", "", "", "", "", "", ""]);
    // A coordinator can begin without hosts.
    let (before, after) = text.split_once("[host]").unwrap();
    let rules = after.split_once("[[join]]").unwrap().1;
    assert_eq!(parse(&format!("{before}[[join]]{rules}")).unwrap().hosts, []);
}

#[test]
fn switches_and_addresses_refer_to_hosts() {
    let text = format!(
        "{}[switch]\nedge = [\"b\", \"a\"]\n[address]\na = [\"10.0.0.1\", \"fe80::1\", \"10.244.1.0/24\"]\nb = [\"::ffff:10.0.0.2\", \"10.244.1.9\"]\n",
        SMALL.replace("policy =", "queues = \"services\"\npolicy =")
    );
    let config = parse(&text).unwrap();
    let [edge] = &config.switches[..] else { panic!("{:?}", config.switches) };
    assert_eq!((&*edge.name, &edge.ports[..]), ("edge", &[CableEnd::Host(1), CableEnd::Host(0)][..]));
    let host_of = |address: &str| config.addresses.owner_of(address.parse().unwrap());
    assert_eq!(
        ["10.0.0.1", "fe80::1", "10.0.0.2", "10.0.0.3"].map(host_of),
        [Some(0), Some(0), Some(1), None]
    );
    // A host inside of the network of another host's pods.
    assert_eq!(["10.244.1.7", "10.244.1.9", "10.244.2.7"].map(host_of), [Some(0), Some(1), None]);
    assert_eq!(config.queues, QueueAssignment::Services);
    for line in [
        "switch    edge: b, a",
        "queues    one for each service, at every port",
        "address   10.244.1.0/24: a\naddress   10.244.1.9: b\n",
    ] {
        assert!(config.to_string().contains(line), "`{line}` in\n{config}");
    }
    assert_eq!(parse(SMALL).unwrap().queues, QueueAssignment::Applications(Saba::default()));
}

#[test]
fn switch_ports_connect_to_switches() {
    // Two parallel cables.
    let text = format!("{SMALL}[switch]\nx = [\"y\", \"a\", \"y\"]\ny = [\"x\", \"x\", \"b\"]\n");
    let config = parse(&text).unwrap();
    let ports: Vec<&[CableEnd]> = config.switches.iter().map(|switch| &switch.ports[..]).collect();
    let (x, y) = (CableEnd::Switch(0), CableEnd::Switch(1));
    assert_eq!(ports, [[y, CableEnd::Host(0), y], [x, x, CableEnd::Host(1)]]);
    for line in ["switch    x: y, a, y", "switch    y: x, x, b"] {
        assert!(config.to_string().contains(line), "`{line}` in\n{config}");
    }
}

#[test]
fn switches_set_their_own_queues_and_minimum_weight() {
    let text = format!(
        "{SMALL}[saba]\nqueues = 4\nmin-weight = 0.1\n[switch]\nx = {{ ports = [\"a\", \"y\"], queues = 2 }}\n\
         y = {{ ports = [\"x\", \"z\"], min-weight = 0.25 }}\n[switch.z]\nports = [\"y\", \"b\"]\n"
    );
    let config = parse(&text).unwrap();
    let limits = |queues, min_weight| PortLimits { queues, min_weight };
    assert_eq!(config.queues.saba().unwrap().limits, limits(4, 0.1));
    let found: Vec<_> = config.switches.iter().map(|switch| switch.limits).collect();
    assert_eq!(found, [Some(limits(2, 0.1)), Some(limits(4, 0.25)), None]);
    assert_eq!(config.switches[2].ports, [CableEnd::Switch(1), CableEnd::Host(1)]);
    for line in [
        "saba      8 priority levels in 4 queues of at least 0.1 each, 1 of every link\n",
        "switch    x: a, y; 2 queues of at least 0.1 each\n",
        "switch    y: x, z; 4 queues of at least 0.25 each\n",
        "switch    z: y, b\n",
    ] {
        assert!(config.to_string().contains(line), "`{line}` in\n{config}");
    }
    // The last queue has 0.4 for packets without a class, and the others divide 0.6.
    let with_share = |min_weight: f64| {
        let saba = format!("saba = {{ queues = 3, share = 0.6, min-weight = {min_weight} }}\npolicy =");
        parse(&SMALL.replace("policy =", &saba)).map(|config| config.queues.saba().unwrap().limits)
    };
    assert_eq!(with_share(0.3), Ok(limits(3, 0.3)));
    // 1 - 0.8 is slightly below 0.2.
    let rounded = SMALL.replace("policy =", "saba = { queues = 2, share = 0.8, min-weight = 0.2 }\npolicy =");
    assert_eq!(parse(&rounded).unwrap().queues.saba().unwrap().limits, limits(2, 0.2));
    assert!(with_share(0.301).is_err());
}

#[test]
fn cables_of_known_switches_must_be_in_the_topology() {
    let folder = tempfile::tempdir().unwrap();
    let fabric = "weir-fabric = 1\nkind = \"links\"\nhosts = [\"a\", \"b\"]\n";
    let names = ["x", "y", "z"].map(|name| format!("[[switch]]\nname = \"{name}\"\ntier = 1\n"));
    let cables = [("a", "x"), ("b", "y"), ("x", "y"), ("y", "z")]
        .map(|(one, other)| format!("[[link]]\nends = [\"{one}\", \"{other}\"]\nrate = \"1Gbit\"\n"));
    fs::write(folder.path().join("net.toml"), [fabric, &names.concat(), &cables.concat()].concat()).unwrap();
    let (keys, _) = SMALL.split_once("[host]").unwrap();
    let text = keys.replace("policy =", "topology = \"net.toml\"\npolicy =");
    let parse_switches = |switches: &str| {
        let text = format!("{text}[switch]\n{switches}");
        config::parse(&text, "serve.toml", folder.path()).map_err(|error| error.to_string())
    };
    // Several cables that are one in the topology, and a switch outside the topology.
    parse_switches("x = [\"a\", \"y\", \"y\", \"new\"]\ny = [\"x\", \"b\", \"x\"]\nnew = [\"x\"]\n").unwrap();
    for (switches, value) in [
        ("x = [\"a\", \"z\"]\nz = [\"x\"]\n", "field `switch x`: `\"z\"`: expected a node"),
        ("x = [\"b\"]\n", "field `switch x`: `\"b\"`: expected a node"),
    ] {
        let error = parse_switches(switches).unwrap_err();
        assert!(error.contains(value), "{error}");
    }
}

#[test]
fn queues_of_services_need_cables_between_switches_that_agents_have_queues_for() {
    let folder = tempfile::tempdir().unwrap();
    let (keys, _) = SMALL.split_once("[host]").unwrap();
    let parse_with = |rate: &str, queues: &str, switches: &str| {
        let fabric = "weir-fabric = 1\nkind = \"links\"\nhosts = [\"a\", \"b\"]\n";
        let names = ["x", "y"].map(|name| format!("[[switch]]\nname = \"{name}\"\ntier = 1\n"));
        let cables =
            [("a", "x", "1Gbit"), ("b", "y", "1Gbit"), ("x", "y", rate)].map(|(one, other, rate)| {
                format!("[[link]]\nends = [\"{one}\", \"{other}\"]\nrate = \"{rate}\"\n")
            });
        fs::write(folder.path().join("net.toml"), [fabric, &names.concat(), &cables.concat()].concat())
            .unwrap();
        let text = keys.replace("policy =", &format!("topology = \"net.toml\"\n{queues}\npolicy ="));
        let text = format!("{text}[switch]\n{switches}");
        config::parse(&text, "serve.toml", folder.path()).map(drop).map_err(|error| error.to_string())
    };
    let (one, four) = (
        "x = [\"a\", \"y\"]\ny = [\"x\"]\n",
        "x = [\"y\", \"y\", \"y\", \"y\"]\ny = [\"x\", \"x\", \"x\", \"x\"]\n",
    );
    let services = "queues = \"services\"";
    assert_eq!(parse_with("100Gbit", services, one), Ok(()));
    assert_eq!(parse_with("400Gbit", services, four), Ok(()));
    assert_eq!(parse_with("400Gbit", "", one), Ok(()));
    let error = parse_with("400Gbit", services, one).unwrap_err();
    let expected = "field `switch x`: `\"y\"`: expected cables from 8kbit to 100Gbit, which agents have queues for (the topology has 400Gbit)";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn ports_between_switches_are_limited() {
    // Each switch has a cable to each other switch.
    let all: Vec<String> = (0..257).map(|n| format!("s{n}")).collect();
    let switch_line = |n: usize| {
        let others = all.iter().enumerate().filter(|(at, _)| *at != n).map(|(_, name)| format!("\"{name}\""));
        format!("s{n} = [{}]\n", others.collect::<Vec<_>>().join(", "))
    };
    let error =
        parse(&format!("{SMALL}[switch]\n{}", (0..257).map(switch_line).collect::<String>())).unwrap_err();
    assert!(error.contains("expected at most 65536 ports towards other switches in total"), "{error}");
    let many: String = (0..4097).map(|n| format!("s{n} = [\"a\"]\n")).collect();
    let error = parse(&format!("{SMALL}[switch]\n{many}")).unwrap_err();
    assert!(error.contains("field `switch`: `4097`: expected at most 4096 switches"), "{error}");
}

#[test]
fn ports_per_switch_are_limited() {
    let (mut text, mut ports) = (SMALL.to_owned(), Vec::new());
    for port in 0..1025 {
        text += &format!("h{port} = \"1Gbit\"\n");
        ports.push(format!("\"h{port}\""));
    }
    let config_with_ports = |count: usize| format!("{text}[switch]\ns = [{}]\n", ports[..count].join(", "));
    assert_eq!(parse(&config_with_ports(1024)).unwrap().switches[0].ports.len(), 1024);
    let error = parse(&config_with_ports(1025)).unwrap_err();
    assert!(error.contains("field `switch s`: `1025`: expected at most 1024 ports"), "{error}");
}

#[test]
fn configuration_errors_name_line_field_value_and_expectation() {
    check_error_cases("serve", &SMALL.replace("policy =", "@\npolicy ="), parse);
}

#[test]
fn model_of_django_is_read_from_the_folder_of_the_configuration() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/incast");
    let parse = |policy: &str, table: &str| {
        let text = format!("{}\n[django]\n{table}\n", SMALL.replace("saath:d=4", policy));
        config::parse(&text, "serve.toml", folder.as_ref()).map_err(|error| error.to_string())
    };
    let config = parse("django:connections=4", "model = \"steady-model.toml\"").unwrap();
    let settings = config.connection_model.as_ref().unwrap().predictor.settings;
    assert_eq!((settings.marking_threshold, settings.max_connections), (20, 200));
    let line = format!("connections of hosts by the loss and {folder}/steady-model.toml, at most 200\n");
    assert!(config.to_string().contains(&line), "{config}");
    let good = "model = \"steady-model.toml\"";
    for (policy, table, expected) in [
        (
            "saath:d=4",
            good,
            "serve.toml:3: field `policy`: `saath:d=4`: expected `django` with its parameters",
        ),
        (
            "django",
            "",
            "field `django model`: `nothing`: expected the file of a model of `weir predict train`",
        ),
        (
            "django",
            "model = \"none.toml\"",
            "field `django model`: `\"none.toml\"`: expected a file that can be read",
        ),
        ("django", "model = \"steady-dctcp.csv\"", "steady-dctcp.csv: this is a file of incast measurements"),
        (
            "django",
            "model = \"model.toml\"",
            "field `django model`: `\"model.toml\"`: expected a model that was trained on several numbers of connections; help:",
        ),
        (
            "django",
            "model = \"steady-model.toml\"\nmarks = 20",
            "field `django key`: `marks`: expected one of model",
        ),
    ] {
        let error = parse(policy, table).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

/// Two regions with two relays in the first one, and no hosts.
const OVERLAY: &str = r#"weir-serve = 1
store = "weir.redb"

[listen]
agents = "127.0.0.1:0"
api = "[::1]:0"

[overlay]
policy = "siphon:detours=on"
max-detoured = 0.25

[overlay.relay.eu-1]
region = "eu"
address = "10.1.0.2:7710"
networks = ["10.1.0.0/16", "fd00:1::/32"]

[overlay.relay.us-1]
region = "us"
address = "10.2.0.2:7710"
networks = ["10.2.0.0/16"]

[overlay.relay.eu-2]
region = "eu"
address = "10.1.9.2:7710"
networks = ["10.1.9.0/24"]

[overlay.link.eu]
us = "1Gbit"

[overlay.link.us]
eu = ["600Mbit", "400Mbit"]
"#;

#[test]
fn overlay_has_relays_regions_and_links() {
    let config = parse(OVERLAY).unwrap();
    assert!(config.hosts.is_empty());
    let overlay = config.overlay.as_ref().unwrap();
    assert_eq!((&*overlay.policy, overlay.max_detoured), ("siphon:detours=on", 0.25));
    assert_eq!(overlay.area.regions(), ["eu", "us"]);
    assert_eq!([0, 1, 2].map(|relay| overlay.region_of(relay)), ["eu", "us", "eu"]);
    let links = [(0, 1), (2, 1), (1, 0), (0, 2)].map(|(from, to)| overlay.link_between(from, to));
    assert_eq!(links, [Some(0), Some(0), Some(1), None]);
    assert_eq!([0, 1].map(|link| overlay.area.mean_bandwidth(link)), [125e6, 62.5e6]);
    let ends = ["10.1.0.9", "10.1.9.9", "fd00:1::5", "10.2.0.1", "us", "10.3.0.1", "us-1"];
    let regions = [Some(0), Some(0), Some(0), Some(1), Some(1), None, None];
    assert_eq!(ends.map(|end| overlay.region_of_end(end)), regions);
    // Relays of one region can serve the same network.
    let shared = parse(&OVERLAY.replace("10.1.9.0/24", "10.1.0.0/16")).unwrap().overlay.unwrap();
    assert_eq!(shared.networks.owners_of("10.1.0.9".parse().unwrap()), [0, 2]);
    let text = config.to_string();
    for line in [
        "overlay   siphon:detours=on, at most 0.25 of a coflow's bytes on detours",
        "relay     eu-2 in eu: 10.1.9.2:7710, serves 10.1.9.0/24",
        "link      eu to us: 1Gbit",
        "link      us to eu: 2 rates",
    ] {
        assert!(text.contains(line), "`{line}` in\n{text}");
    }
    let with_hosts = OVERLAY.replace("[overlay]", "[host]\na = \"1Gbit\"\n\n[overlay]");
    assert_eq!(parse(&with_hosts.replace("[listen]", "policy = \"fair\"\n[listen]")).unwrap().hosts.len(), 1);
}

#[test]
fn invalid_overlays_name_the_key() {
    check_error_cases("overlay", OVERLAY, parse);
}
