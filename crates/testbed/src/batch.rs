//! Generates the scripts of a bed: lines for `ip` and `tc`, and kernel settings.

use std::fmt::{self, Write as _};
use std::net::Ipv4Addr;

use weir_core::model::scenario::{Queueing, Table};
use weir_core::saba::Fraction;
use weir_core::units::Rate;

use crate::plan::{Node, Plan, Port, Route};
use crate::queues::{Class, dscp, segments};

/// The TCP congestion control of a bed: the default of Linux, whatever this machine has configured. It is set by the routes of hosts,
/// since the setting of a namespace accepts only controls that the machine allows for all processes.
pub const CONGESTION: &str = "cubic";

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
    pub optional: bool,
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
pub fn up(plan: &Plan) -> Vec<Stage> {
    let namespaces = plan.nodes.iter().map(|node| format!("netns add {}\n", node.namespace)).collect();
    // Settings come before interfaces: an interface copies the settings of its creation time.
    let settings = plan.nodes.iter().enumerate().map(|(number, node)| Step::Settings {
        namespace: node.namespace.clone(),
        settings: settings(number, node),
    });
    let inside = plan.nodes.iter().map(|node| Step::Batch {
        tool: Tool::Ip,
        namespace: Some(node.namespace.clone()),
        lines: addresses(node),
    });
    vec![
        vec![Step::Batch { tool: Tool::Ip, namespace: None, lines: namespaces }],
        settings.collect(),
        vec![Step::Batch { tool: Tool::Ip, namespace: None, lines: cables(plan) }],
        inside.collect(),
        queues(plan, None),
    ]
}

/// Replaces the queues of all ports: by one queue each, or by those of `queueing`.
pub fn queues(plan: &Plan, queueing: Option<&Queueing>) -> Stage {
    let of = |port: &Port| queueing.map(|queueing| queueing.at(port.link));
    plan.nodes.iter().map(|node| tc(node, node_queues(plan, node, of))).collect()
}

/// Replaces the queues of all ports by one queue each. Its limit is the bytes that its link carries in `hosts` or `switches` seconds.
pub fn short_queues(plan: &Plan, hosts: f64, switches: f64) -> Stage {
    let of = |node: &Node| {
        let seconds = if node.is_switch { switches } else { hosts };
        let one = |port: &Port| {
            let whole = Class::whole(port.rate, segments(plan.slowest));
            let buffer = ((port.rate.get() * seconds) as u32).max(whole.quantum);
            one_queue(&port.interface, Class { buffer, ..whole })
        };
        tc(node, node.ports.iter().map(one).collect())
    };
    plan.nodes.iter().map(of).collect()
}

/// Replaces the queues of all ports, also at hosts, by one queue for each of these weights of services.
pub fn queues_everywhere(plan: &Plan, weights: &[f64]) -> Stage {
    let table = Table::by_service(weights);
    plan.nodes.iter().map(|node| tc(node, node_queues(plan, node, |_| Some(&table)))).collect()
}

/// Changes the rates of all cables of these nodes, in both directions, to a fraction of their links' rates. It requires one queue per
/// port. Queued packets stay.
pub fn throttle(plan: &Plan, nodes: &[usize], part: Fraction) -> Stage {
    let segments = segments(plan.slowest);
    let mut lines = vec![String::new(); plan.nodes.len()];
    for cable in plan.cables.iter().filter(|cable| cable.ends.iter().any(|(node, _)| nodes.contains(node))) {
        for (node, port) in cable.ends {
            let port = &plan.nodes[node].ports[port];
            let (dev, out) = (&port.interface, &mut lines[node]);
            let rate =
                Rate::new(port.rate.get() * part.get()).expect("a rate times a part of at most 1 is a rate");
            let class = Class::whole(rate, segments);
            line!(out, "class change dev {dev} parent 1: classid 1:1 htb {class}");
            line!(out, "qdisc change dev {dev} parent 1:1 bfifo limit {}", class.buffer);
        }
    }
    let changed = plan.nodes.iter().zip(lines).filter(|(_, lines)| !lines.is_empty());
    changed.map(|(node, lines)| tc(node, lines)).collect()
}

fn tc(node: &Node, lines: String) -> Step {
    Step::Batch { tool: Tool::Tc, namespace: Some(node.namespace.clone()), lines }
}

/// Deletes namespaces, and with them all objects inside.
pub fn down(namespaces: &[String]) -> Step {
    let lines = namespaces.iter().map(|namespace| format!("netns del {namespace}\n")).collect();
    Step::Batch { tool: Tool::Ip, namespace: None, lines }
}

fn settings(number: usize, node: &Node) -> Vec<Setting> {
    let must = |file, value: &str| Setting { file, value: value.to_owned(), optional: false };
    let may = |file, value: &str| Setting { file, value: value.to_owned(), optional: true };
    let mut settings = vec![
        // The reverse path of a packet may differ.
        must("ipv4/conf/all/rp_filter", "0"),
        must("ipv4/conf/default/rp_filter", "0"),
        may("ipv6/conf/all/disable_ipv6", "1"),
        may("ipv6/conf/default/disable_ipv6", "1"),
        // ECMP hashes addresses and ports. If the kernel supports it, each node uses a different seed.
        may("ipv4/fib_multipath_hash_policy", "1"),
        may("ipv4/fib_multipath_hash_seed", &(number + 1).to_string()),
    ];
    if node.is_switch {
        settings.push(must("ipv4/ip_forward", "1"));
    } else {
        // A connection must not depend on the metrics of earlier ones.
        settings.push(may("ipv4/tcp_no_metrics_save", "1"));
        // Packets of a paced connection are small, in proportion to its rate. With short round trips, the kernel would build packets of
        // several segments, and a slow connection would wait several times as long between two packets.
        settings.push(may("ipv4/tcp_tso_rtt_log", "0"));
        settings.push(may("ipv4/tcp_min_tso_segs", "1"));
    }
    settings
}

fn cables(plan: &Plan) -> String {
    let mut out = String::new();
    let segments = segments(plan.slowest);
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

fn addresses(node: &Node) -> String {
    let mut out = String::new();
    line!(out, "link set lo up");
    line!(out, "addr add {}/32 dev lo", node.address);
    for port in &node.ports {
        line!(out, "link set {} up", port.interface);
    }
    for route in &node.routes {
        line!(out, "{}", Line { node, route });
    }
    out
}

/// Formats a route for `ip`.
struct Line<'a> {
    node: &'a Node,
    route: &'a Route,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const GATEWAY: Ipv4Addr = Plan::GATEWAY;
        f.write_str("route add ")?;
        match self.route.to {
            Some(to) => write!(f, "{to}")?,
            None => f.write_str("default")?,
        }
        write!(f, " src {}", self.node.address)?;
        if !self.node.is_switch {
            write!(f, " congctl {CONGESTION}")?;
        }
        let several = if self.route.ports.len() > 1 { " nexthop" } else { "" };
        for &port in &self.route.ports {
            write!(f, "{several} via {GATEWAY} dev {} onlink", self.node.ports[port].interface)?;
        }
        Ok(())
    }
}

/// The class of the whole link, and the default class of packets that match no filter.
fn root(dev: &str, whole: Class, default: usize) -> String {
    let mut out = String::new();
    // The first line removes any previous HTB: otherwise `tc` would treat the second line as a change of it.
    line!(out, "qdisc replace dev {dev} root bfifo limit {}", whole.buffer);
    line!(out, "qdisc replace dev {dev} root handle 1: htb default {default:x}");
    line!(out, "class add dev {dev} parent 1: classid {LINK} htb {whole}");
    out
}

/// One new queue for all packets.
pub(crate) fn one_queue(dev: &str, whole: Class) -> String {
    let mut out = root(dev, whole, 1);
    line!(out, "qdisc add dev {dev} parent {LINK} bfifo limit {}", whole.buffer);
    out
}

/// The class of a whole link.
pub(crate) const LINK: &str = "1:1";

fn node_queues<'a>(plan: &Plan, node: &Node, of: impl Fn(&Port) -> Option<&'a Table>) -> String {
    let mut out = String::new();
    let segments = segments(plan.slowest);
    for port in &node.ports {
        let dev = &port.interface;
        let whole = Class::whole(port.rate, segments);
        let Some(Table { weights, queue_of }) = of(port).filter(|table| table.weights.len() > 1) else {
            out.push_str(&one_queue(dev, whole));
            continue;
        };
        out.push_str(&root(dev, whole, 0x10 + weights.len()));
        for (number, of) in (0..).zip(Class::weighted(port.rate, segments, weights)) {
            let id = format!("1:{:x}", 0x10 + number);
            line!(out, "class add dev {dev} parent 1:1 classid {id} htb {of}");
            line!(out, "qdisc add dev {dev} parent {id} bfifo limit {}", of.buffer);
            for (service, _) in queue_of.iter().enumerate().filter(|&(_, &queue)| queue == number) {
                let mark = dscp(service) << 2;
                line!(
                    out,
                    "filter add dev {dev} parent 1: protocol ip prio 1 u32 match ip dsfield {mark:#04x} 0xfc flowid {id}"
                );
            }
        }
    }
    out
}

/// A shell script that does the same as these steps.
pub fn shell(stages: &[Stage]) -> String {
    let mut out = String::new();
    for step in stages.iter().flatten() {
        match step {
            Step::Batch { tool, namespace, lines } => {
                let inside = namespace.as_ref().map(|name| format!(" -n {name}")).unwrap_or_default();
                line!(out, "{}{inside} -batch - <<'END'\n{lines}END", tool.name());
            }
            Step::Settings { namespace, settings } => {
                line!(out, "nsenter --net=/run/netns/{namespace} sh <<'END'");
                for Setting { file, value, optional } in settings {
                    let test =
                        if *optional { format!("[ ! -e /proc/sys/net/{file} ] || ") } else { String::new() };
                    line!(out, "{test}echo {value} > /proc/sys/net/{file}");
                }
                line!(out, "END");
            }
        }
    }
    out
}
