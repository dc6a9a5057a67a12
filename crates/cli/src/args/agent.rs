//! Defines the options of `weir agent`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueHint};
use weir_agent::live::{Link, Network, is_label_part};
use weir_agent::queues::Interface;
use weir_agent::traffic::Rule;
use weir_core::model::ServiceNames;
use weir_core::units::{Rate, Time};

use super::coordinator::{CREDENTIALS_HEADING, Credentials, parse_address};
use super::{OUTPUT_HEADING, parse_port_rate};

/// The subcommands of `weir agent`.
#[derive(Debug, Subcommand)]
pub enum Agent {
    /// Connect to a coordinator, and apply its orders: pacing rates of flows, queues, and classes of applications
    Run(Box<AgentRun>),
    /// Configure one queue per weight on an interface
    Queues(AgentQueues),
    /// Mark the traffic of applications, and print each connection that opens or closes
    Traffic(AgentTraffic),
    /// Restore all interfaces and cgroups to their state before Weir
    Cleanup(AgentCleanup),
    /// Remove the rates of an agent that was killed. An agent starts this command itself, with a socket as the standard input
    #[command(hide = true)]
    Watchdog {
        /// The path of the agent's local socket
        socket: PathBuf,
        /// The numbers of the agent's interfaces
        interfaces: Vec<u32>,
    },
}

/// Arguments of `weir agent run`.
#[derive(Debug, Args)]
#[command(
    after_help = "Programs pass the sockets of their flows to the agent over the Unix socket; the permissions of its directory decide which \
programs have access. The agent configures the queues that the coordinator orders at the interfaces. It gives an application the class \
that the coordinator orders for the registered application of the same name. On SIGINT the agent removes all limits, \
restores the interfaces and exits; on SIGTERM queues and classes stay for --keep-queues. If the agent is killed, they stay."
)]
pub struct AgentRun {
    /// The name of this host or switch in the coordinator's configuration. Default: the NAME of weir://agent/NAME, the name of
    /// --certificate
    #[arg(long, value_name = "NAME", value_parser = parse_agent_name, required_unless_present = "certificate")]
    pub name: Option<String>,

    /// The rate of this host's link, with a unit such as 1Gbit or 125MB/s; the agent refuses orders above it. Default: the speed of the
    /// cards of --interface; virtual interfaces report none that counts
    #[arg(long, value_name = "RATE", value_parser = parse_port_rate)]
    pub rate: Option<Rate>,

    /// A port of a switch and its rate, such as eth1=10Gbit; repeat the option for all ports in the order of the coordinator's
    /// configuration. The agent is then that of a switch. Excludes --rate, --interface, --application and --socket, which are options for
    /// hosts
    #[arg(long = "port", value_name = "IF=RATE", conflicts_with_all = ["rate", "interfaces", "applications", "socket"])]
    pub ports: Vec<SwitchPort>,

    /// A label of this host, such as rack=leaf-1, if the host joins by a rule of the coordinator's configuration that tells its position by
    /// the label; may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = parse_label, conflicts_with = "ports")]
    pub labels: Vec<(String, String)>,

    /// A network of pods of this host, such as 10.244.1.0/24, if the host joins by a rule of the coordinator's configuration; may be
    /// repeated
    #[arg(long = "network", value_name = "NETWORK", conflicts_with = "ports")]
    pub networks: Vec<Network>,

    /// The address at which the coordinator accepts agents
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7700", value_parser = parse_address)]
    pub coordinator: String,

    /// The path of the Unix socket for programs
    #[arg(long, value_name = "PATH", default_value = "/run/weir/agent.sock", value_hint = ValueHint::FilePath)]
    pub socket: PathBuf,

    #[command(flatten)]
    pub traffic: ObservedTraffic,

    /// How long queues and marks stay after SIGTERM, for the next agent, unless SIGINT or `weir agent cleanup` removes them at once;
    /// `forever` leaves it to another program to remove them
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub keep_queues: KeepQueues,

    /// Serve metrics for Prometheus at this address: at a loopback address, or with --insecure, over plain text; at other addresses
    /// over TLS with --certificate, to clients with a certificate of the authority
    #[arg(long, value_name = "IP:PORT", conflicts_with = "dry_run")]
    pub metrics: Option<SocketAddr>,

    /// Accept a coordinator on another host over plain text, for test networks: any process at that address can send orders
    #[arg(long, conflicts_with = "certificate", help_heading = CREDENTIALS_HEADING)]
    pub insecure: bool,

    #[command(flatten)]
    pub credentials: Credentials,

    /// Print the `tc` commands of the received orders, and change nothing: the agent accepts no sockets and observes no
    /// applications. Do not run it while an agent of the same host or switch runs, which would lose its connection
    #[arg(long, conflicts_with = "applications", help_heading = OUTPUT_HEADING)]
    pub dry_run: bool,
}

/// A port of a switch: `eth1=10Gbit`.
#[derive(Debug, Clone, PartialEq)]
pub struct SwitchPort {
    interface: Interface,
    rate: Rate,
}

impl SwitchPort {
    /// The port as a link of the agent.
    pub fn to_link(&self) -> Link {
        Link { rate: self.rate, interfaces: vec![self.interface.clone()] }
    }
}

impl FromStr for SwitchPort {
    type Err = String;

    fn from_str(text: &str) -> Result<SwitchPort, String> {
        let (interface, rate) = text
            .split_once('=')
            .ok_or_else(|| format!("`{text}` has no rate; expected IF=RATE, such as eth1=10Gbit"))?;
        Ok(SwitchPort { interface: interface.parse()?, rate: parse_port_rate(rate)? })
    }
}

/// How long queues and marks stay after SIGTERM.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KeepQueues {
    /// For a time.
    For(Time),
    /// Until another program removes them.
    Forever,
}

impl FromStr for KeepQueues {
    type Err = String;

    fn from_str(text: &str) -> Result<KeepQueues, String> {
        match text {
            "forever" => Ok(KeepQueues::Forever),
            _ => text.parse().map(KeepQueues::For).map_err(|error| format!("{error}, or `forever`")),
        }
    }
}

/// Arguments of `weir agent cleanup`.
#[derive(Debug, Args)]
#[command(after_help = "Fails while an agent runs.")]
pub struct AgentCleanup {
    /// Remove only what an agent has left, and change nothing while an agent runs, instead of failing. Queues of `weir agent queues` stay
    #[arg(long)]
    pub if_unused: bool,

    /// Wait for this time, and change nothing if an agent keeps an interface meanwhile
    #[arg(long, value_name = "TIME", default_value = "0s", requires = "if_unused")]
    pub after: Time,
}

/// Arguments of `weir agent queues`.
#[derive(Debug, Args)]
#[command(
    after_help = "The DSCP of a packet selects its queue: 1 for the first, 2 for the second and so on. The command applies \
only differences: a second run changes nothing."
)]
pub struct AgentQueues {
    /// The interface whose queues are configured
    #[arg(long, value_name = "IF")]
    pub interface: Interface,

    /// The rate of the interface's link, with a unit such as 1Gbit or 125MB/s
    #[arg(long, value_name = "RATE", value_parser = parse_port_rate)]
    pub rate: Rate,

    /// The weights of the queues, separated by colons; at most 63
    #[arg(long, value_name = "W:W...", value_delimiter = ':', value_parser = parse_weight, required = true)]
    pub weights: Vec<f64>,

    /// Print the `tc` commands, and change nothing
    #[arg(long, help_heading = OUTPUT_HEADING)]
    pub dry_run: bool,
}

/// Arguments of `weir agent traffic`.
#[derive(Debug, Args)]
#[command(
    after_help = "An application is a cgroup (version 2) of unmodified programs, or the traffic of a port outside such cgroups. Its packets leave the \
interfaces with the DSCP CLASS, through the queue of that class, which `weir agent queues` configures. On SIGINT or SIGTERM the \
command removes its programs from the kernel. If it is killed, classes stay until its next run or `weir agent cleanup`.",
    mut_arg("interfaces", |arg| arg.required(true)),
    mut_arg("applications", |arg| arg.required(true))
)]
pub struct AgentTraffic {
    #[command(flatten)]
    pub traffic: ObservedTraffic,
}

/// Options for the traffic of unmodified programs.
#[derive(Debug, Args)]
pub struct ObservedTraffic {
    /// An interface whose outgoing packets are marked; may be repeated
    #[arg(long = "interface", value_name = "IF")]
    pub interfaces: Vec<Interface>,

    /// An application: its name, its cgroup (relative to the root of the cgroups, or a path) or port (`port/8080`), and
    /// optionally its initial class, 1 to 63; may be repeated
    #[arg(long = "application", value_name = "NAME=CGROUP|port/PORT[:CLASS]")]
    pub applications: Vec<Rule>,
}

fn parse_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if is_label_part(name) && is_label_part(value) => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err(format!("expected NAME=VALUE, both of {}", ServiceNames::NAME_RULE)),
    }
}

fn parse_agent_name(text: &str) -> Result<String, String> {
    if ServiceNames::is_name(text) {
        Ok(text.to_owned())
    } else {
        Err(format!("expected {}", ServiceNames::NAME_RULE))
    }
}

fn parse_weight(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| "expected weights separated by colons, such as 1:3:9".to_owned())
}
