//! Generates the scripts of a bed: lines for `ip` and `tc`, and kernel settings.

use std::fmt::{self, Write as _};
use std::net::Ipv4Addr;

use weir_core::model::LinkBudget;
use weir_core::model::scenario::{NetworkQueues, QueueTable};
use weir_core::saba::Fraction;
use weir_core::units::Rate;

use crate::plan::{Node, Plan, Port, Route};
use crate::queues::{HtbClass, dscp, max_segments};

/// The TCP congestion control of a bed: the default of Linux, independent of this machine's setting. The routes of hosts set it, since
/// the setting of a namespace accepts only controls that the machine allows for all processes.
pub const CONGESTION_CONTROL: &str = "cubic";

/// A program of iproute2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// For links, addresses, routes and namespaces.
    Ip,
    /// For queues.
    Tc,
}

impl Tool {
    /// The name of the program.
    pub const fn name(self) -> &'static str {
        match self {
            Tool::Ip => "ip",
            Tool::Tc => "tc",
        }
    }
}

/// A file below `/proc/sys/net`, and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The path below `/proc/sys/net`.
    pub file: &'static str,
    /// The value to write.
    pub value: String,
    /// Whether kernels without this file are accepted.
    pub is_optional: bool,
}

/// A unit of work in one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Lines for a program.
    Batch {
        /// The program.
        tool: Tool,
        /// The namespace; none for the namespace of this process.
        namespace: Option<String>,
        /// The lines.
        lines: String,
    },
    /// Settings of a namespace.
    Settings {
        /// The namespace.
        namespace: String,
        /// The settings.
        settings: Vec<Setting>,
    },
}

/// Steps that are independent of each other.
pub type Stage = Vec<Step>;

/// Appends a line to a string.
macro_rules! line {
    ($out:expr, $($part:tt)*) => { writeln!($out, $($part)*).expect("writing to a String does not fail") };
}

/// All stages that create a bed, in order. O(nodes x hosts), the maximum number of routes.
pub fn creation_stages(plan: &Plan) -> Vec<Stage> {
    let namespaces = plan.nodes.iter().map(|node| format!("netns add {}\n", node.namespace)).collect();
    // Settings come before interfaces: an interface copies the settings of its creation time.
    let settings = plan.nodes.iter().enumerate().map(|(number, node)| Step::Settings {
        namespace: node.namespace.clone(),
        settings: node_settings(number, node),
    });
    let addressing = plan.nodes.iter().map(|node| Step::Batch {
        tool: Tool::Ip,
        namespace: Some(node.namespace.clone()),
        lines: address_lines(node),
    });
    vec![
        vec![Step::Batch { tool: Tool::Ip, namespace: None, lines: namespaces }],
        settings.collect(),
        vec![Step::Batch { tool: Tool::Ip, namespace: None, lines: cable_lines(plan) }],
        addressing.collect(),
        queue_stage(plan, None),
    ]
}

/// Replaces the queues of all ports: by one queue each, or by those of `queueing`.
pub fn queue_stage(plan: &Plan, queueing: Option<&NetworkQueues>) -> Stage {
    let table_at = |port: &Port| queueing.map(|queueing| queueing.table(port.link));
    plan.nodes.iter().map(|node| tc_step(node, node_queue_lines(plan, node, table_at))).collect()
}

/// Replaces the queues of all ports by one queue each. Its limit is the bytes that the link carries in `host_secs` or
/// `switch_secs` seconds.
pub fn short_queue_stage(plan: &Plan, host_secs: f64, switch_secs: f64) -> Stage {
    let node_step = |node: &Node| {
        let seconds = if node.is_switch { switch_secs } else { host_secs };
        let port_lines = |port: &Port| {
            let link_class = HtbClass::for_link(port.rate, max_segments(plan.min_link_rate));
            let buffer = ((port.rate.get() * seconds) as u32).max(link_class.quantum);
            single_queue_lines(&port.interface, HtbClass { queue_limit: buffer, ..link_class })
        };
        tc_step(node, node.ports.iter().map(port_lines).collect())
    };
    plan.nodes.iter().map(node_step).collect()
}

/// Replaces the queues of all ports, also at hosts, by one queue for each of these weights of services.
pub fn service_queue_stage(plan: &Plan, weights: &[f64]) -> Stage {
    let table = QueueTable::by_service(weights);
    plan.nodes.iter().map(|node| tc_step(node, node_queue_lines(plan, node, |_| Some(&table)))).collect()
}

/// Changes the rates of all cables of these nodes, in both directions, to a fraction of their links' rates. It requires one queue per
/// port. Queued packets stay.
pub fn throttle_stage(plan: &Plan, nodes: &[usize], fraction: Fraction) -> Stage {
    let segments = max_segments(plan.min_link_rate);
    let mut lines = vec![String::new(); plan.nodes.len()];
    for cable in plan.cables.iter().filter(|cable| cable.ends.iter().any(|(node, _)| nodes.contains(node))) {
        for (node, port) in cable.ends {
            let port = &plan.nodes[node].ports[port];
            let (dev, out) = (&port.interface, &mut lines[node]);
            let rate =
                Rate::new(port.rate.get() * fraction.get()).expect("a rate times a fraction is a rate");
            let class = HtbClass::for_link(rate, segments);
            line!(out, "class change dev {dev} parent 1: classid 1:1 htb {class}");
            line!(out, "qdisc change dev {dev} parent 1:1 bfifo limit {}", class.queue_limit);
        }
    }
    let changed_nodes = plan.nodes.iter().zip(lines).filter(|(_, lines)| !lines.is_empty());
    changed_nodes.map(|(node, lines)| tc_step(node, lines)).collect()
}

fn tc_step(node: &Node, lines: String) -> Step {
    Step::Batch { tool: Tool::Tc, namespace: Some(node.namespace.clone()), lines }
}

/// Deletes namespaces, and with them all objects inside.
pub fn deletion_step(namespaces: &[String]) -> Step {
    let lines = namespaces.iter().map(|namespace| format!("netns del {namespace}\n")).collect();
    Step::Batch { tool: Tool::Ip, namespace: None, lines }
}

fn node_settings(node_index: usize, node: &Node) -> Vec<Setting> {
    let required = |file, value: &str| Setting { file, value: value.to_owned(), is_optional: false };
    let optional = |file, value: &str| Setting { file, value: value.to_owned(), is_optional: true };
    let mut settings = vec![
        // The reverse path of a packet may differ.
        required("ipv4/conf/all/rp_filter", "0"),
        required("ipv4/conf/default/rp_filter", "0"),
        optional("ipv6/conf/all/disable_ipv6", "1"),
        optional("ipv6/conf/default/disable_ipv6", "1"),
        // ECMP hashes addresses and ports. If the kernel supports it, each node uses a different seed.
        optional("ipv4/fib_multipath_hash_policy", "1"),
        optional("ipv4/fib_multipath_hash_seed", &(node_index + 1).to_string()),
    ];
    if node.is_switch {
        settings.push(required("ipv4/ip_forward", "1"));
    } else {
        // A connection must not depend on the metrics of earlier ones.
        settings.push(optional("ipv4/tcp_no_metrics_save", "1"));
        // Packets of a paced connection are small, in proportion to its rate. With short round trips, the kernel would build packets of
        // several segments, and a slow connection would wait several times as long between two packets.
        settings.push(optional("ipv4/tcp_tso_rtt_log", "0"));
        settings.push(optional("ipv4/tcp_min_tso_segs", "1"));
    }
    settings
}

fn cable_lines(plan: &Plan) -> String {
    let mut out = String::new();
    let segments = max_segments(plan.min_link_rate);
    for cable in &plan.cables {
        let mac = cable.mac.map(|byte| format!("{byte:02x}")).join(":");
        let [a, b] = cable.ends.map(|(node, port)| {
            let node = &plan.nodes[node];
            format!(
                "{} netns {} address {mac} arp off gso_max_segs {segments} numtxqueues 1 numrxqueues 1",
                node.ports[port].interface, node.namespace
            )
        });
        line!(out, "link add {a} type veth peer name {b}");
    }
    out
}

fn address_lines(node: &Node) -> String {
    let mut out = String::new();
    line!(out, "link set lo up");
    line!(out, "addr add {}/32 dev lo", node.address);
    for port in &node.ports {
        line!(out, "link set {} up", port.interface);
    }
    for route in &node.routes {
        line!(out, "route add {}", RouteOptions { node, route, congestion_control: CONGESTION_CONTROL });
    }
    out
}

/// Sets the congestion control of a host's new connections.
pub(crate) fn congestion_control_lines(host: &Node, congestion_control: &str) -> String {
    let mut out = String::new();
    for route in &host.routes {
        line!(out, "route replace {}", RouteOptions { node: host, route, congestion_control });
    }
    out
}

/// Formats a route for `ip route`.
struct RouteOptions<'a> {
    node: &'a Node,
    route: &'a Route,
    /// For connections of a host.
    congestion_control: &'a str,
}

impl fmt::Display for RouteOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const GATEWAY: Ipv4Addr = Plan::GATEWAY;
        match self.route.destination {
            Some(to) => write!(f, "{to}")?,
            None => f.write_str("default")?,
        }
        write!(f, " src {}", self.node.address)?;
        if !self.node.is_switch {
            write!(f, " congctl {}", self.congestion_control)?;
        }
        let nexthop = if self.route.ports.len() > 1 { " nexthop" } else { "" };
        for &port in &self.route.ports {
            write!(f, "{nexthop} via {GATEWAY} dev {} onlink", self.node.ports[port].interface)?;
        }
        Ok(())
    }
}

/// The class of the whole link, and the default class of packets that match no filter.
fn root_lines(dev: &str, link_class: HtbClass, default_class: usize) -> String {
    let mut out = String::new();
    // The first line removes any previous HTB. Without it, `tc` would treat the second line as a change of that HTB.
    line!(out, "qdisc replace dev {dev} root bfifo limit {}", link_class.queue_limit);
    line!(out, "qdisc replace dev {dev} root handle 1: htb default {default_class:x}");
    line!(out, "class add dev {dev} parent 1: classid {LINK_CLASS_ID} htb {link_class}");
    out
}

/// One new queue for all packets.
pub(crate) fn single_queue_lines(dev: &str, link_class: HtbClass) -> String {
    let mut out = root_lines(dev, link_class, 1);
    line!(out, "qdisc add dev {dev} parent {LINK_CLASS_ID} bfifo limit {}", link_class.queue_limit);
    out
}

/// The class of a whole link.
pub(crate) const LINK_CLASS_ID: &str = "1:1";

fn node_queue_lines<'a>(
    plan: &Plan,
    node: &Node,
    table_at: impl Fn(&Port) -> Option<&'a QueueTable>,
) -> String {
    let mut out = String::new();
    let segments = max_segments(plan.min_link_rate);
    for port in &node.ports {
        let dev = &port.interface;
        let link_class = HtbClass::for_link(port.rate, segments);
        let Some(QueueTable { weights, queue_by_service }) =
            table_at(port).filter(|table| table.weights.len() > 1)
        else {
            out.push_str(&single_queue_lines(dev, link_class));
            continue;
        };
        out.push_str(&root_lines(dev, link_class, 0x10 + weights.len()));
        for (queue_index, class) in (0..).zip(weighted_classes(port.rate, segments, weights)) {
            let class_id = format!("1:{:x}", 0x10 + queue_index);
            line!(out, "class add dev {dev} parent 1:1 classid {class_id} htb {class}");
            line!(out, "qdisc add dev {dev} parent {class_id} bfifo limit {}", class.queue_limit);
            for (service, _) in
                queue_by_service.iter().enumerate().filter(|&(_, &queue)| queue == queue_index)
            {
                let mark = dscp(service) << 2;
                line!(
                    out,
                    "filter add dev {dev} parent 1: protocol ip prio 1 u32 match ip dsfield {mark:#04x} 0xfc flowid {class_id}"
                );
            }
        }
    }
    out
}

/// The classes of queues with these weights, then that of packets without a mark. They belong to no service, so they get little: all
/// packets of a simulated link belong to a service.
fn weighted_classes(link: Rate, segments: u32, weights: &[f64]) -> Vec<HtbClass> {
    const UNMARKED_FRACTION: f64 = 1e-3;
    let budget =
        LinkBudget::UNDIVIDED.with_unclassified(UNMARKED_FRACTION).expect("the fraction is in range");
    let min_weight = weights.iter().copied().fold(f64::INFINITY, f64::min);
    HtbClass::weighted(link, segments, &budget, weights, min_weight)
}

/// A shell script with the commands of these steps.
pub fn to_shell_script(stages: &[Stage]) -> String {
    let mut out = String::new();
    for step in stages.iter().flatten() {
        match step {
            Step::Batch { tool, namespace, lines } => {
                let namespace_args = namespace.as_ref().map(|name| format!(" -n {name}")).unwrap_or_default();
                line!(out, "{}{namespace_args} -batch - <<'END'\n{lines}END", tool.name());
            }
            Step::Settings { namespace, settings } => {
                line!(out, "nsenter --net=/run/netns/{namespace} sh <<'END'");
                for Setting { file, value, is_optional } in settings {
                    let test = if *is_optional {
                        format!("[ ! -e /proc/sys/net/{file} ] || ")
                    } else {
                        String::new()
                    };
                    line!(out, "{test}echo {value} > /proc/sys/net/{file}");
                }
                line!(out, "END");
            }
        }
    }
    out
}
