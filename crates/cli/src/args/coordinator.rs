//! Defines the options of `weir serve` and `weir ctl`, and the credentials for connections to a coordinator.

use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, Subcommand, ValueEnum, ValueHint};
use weir_client::is_loopback;
use weir_console::failure::Failure;

use super::Output;
use super::value::{integer_in, parse_weight};

pub(super) const CREDENTIALS_HEADING: &str = "Credentials";

/// The format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines of text, for people
    Text,
    /// One JSON object a line, for programs
    Json,
}

/// Arguments of `weir serve`.
#[derive(Debug, Args)]
#[command(
    after_help = "docs/serve.md describes the configuration, and docs/api.md the HTTP interface. The coordinator exits on SIGINT or SIGTERM; \
agents apply their last orders until the lease ends."
)]
pub struct Serve {
    /// The configuration file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, required_unless_present_any = ["check", "check_store"])]
    pub config: Option<PathBuf>,

    /// Check a configuration file, print its interpretation, and exit
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "config")]
    pub check: Option<PathBuf>,

    /// Verify a store without changing it, print its contents, and exit
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["config", "check"])]
    pub check_store: Option<PathBuf>,

    /// The format of the log on the standard error
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log: LogFormat,
}

/// Options for certificates, which connections to a coordinator on another host need.
#[derive(Debug, Args)]
#[command(next_help_heading = CREDENTIALS_HEADING)]
pub struct Credentials {
    /// The certificate of this client, in PEM
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires_all = ["key", "authority"], global = true)]
    pub certificate: Option<PathBuf>,

    /// The private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "certificate", global = true)]
    pub key: Option<PathBuf>,

    /// The certificate of the authority that signed the coordinator's certificate, in PEM
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "certificate", global = true)]
    pub authority: Option<PathBuf>,
}

impl Credentials {
    /// The files of the certificate, its key and the authority for a connection over TLS; `None` for plain text.
    ///
    /// # Errors
    /// If the files are missing and the coordinator is on another host, unless `insecure` is set.
    pub fn tls_files(&self, coordinator: &str, insecure: bool) -> Result<Option<[&Path; 3]>, Failure> {
        match (&self.certificate, &self.key, &self.authority) {
            (Some(certificate), Some(key), Some(authority)) => Ok(Some([certificate, key, authority])),
            _ if insecure || is_loopback(coordinator) => Ok(None),
            _ => Err(Failure::input(format_args!(
                "--coordinator: `{coordinator}` is on another host; expected --certificate, --key and --authority, or a coordinator on this host"
            ))),
        }
    }
}

/// Arguments of `weir ctl`.
#[derive(Debug, Args)]
pub struct Ctl {
    /// The address of the coordinator's HTTP interface
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7701", value_parser = parse_address, global = true)]
    pub coordinator: String,

    #[command(flatten)]
    pub credentials: Credentials,

    #[command(flatten)]
    pub output: Output,

    /// The subcommand
    #[command(subcommand)]
    pub command: CtlCommand,
}

/// The subcommands of `weir ctl`.
#[derive(Debug, Subcommand)]
pub enum CtlCommand {
    /// List the hosts, the state of their agents, and interfaces that differ from their orders
    Hosts {
        /// What to do instead
        #[command(subcommand)]
        command: Option<HostsCommand>,
    },
    /// List the switches, the state of their agents, and interfaces that differ from their orders
    Switches,
    /// List the links of hosts and between switches, whether they are up, and why not
    Links {
        /// What to do instead
        #[command(subcommand)]
        command: Option<LinksCommand>,
    },
    /// List the queues that the coordinator orders for each link
    Queues,
    /// List the registered coflows
    Coflows,
    /// Show or deregister a coflow
    #[command(subcommand)]
    Coflow(CoflowCommand),
    /// List the rate of every flow in the latest allocation
    Allocation,
    /// Write the decisions of the last five minutes as trace events, for Perfetto (ui.perfetto.dev) or chrome://tracing; always as JSON
    Trace,
    /// Write the coflows since the coordinator's start as a trace that `weir compare` replays; always in Weir's own format
    Workload,
    /// List the relays of the overlay, and the state of their orders
    Relays,
    /// List the active coflows between regions by pair of regions: priority, paths and progress
    Routes,
    /// List the measured paths between relays: rate, round-trip time, retransmissions and bytes
    Paths,
    /// List the services and their weights
    Services,
    /// List the registered applications
    Applications,
    /// Register or deregister an application
    #[command(subcommand)]
    Application(ApplicationCommand),
    /// List the connections that programs opened through the API
    Connections {
        /// Only connections of this application
        #[arg(long, value_name = "ID")]
        application: Option<String>,
    },
    /// Close connections of the API
    #[command(subcommand)]
    Connection(ConnectionCommand),
    /// Print events as they occur, one per line, until interrupted; with --format json, one JSON object per line
    Events {
        /// Exit after this many events
        #[arg(long, value_name = "N", value_parser = integer_in(1..=u64::MAX))]
        count: Option<u64>,
    },
    /// List the connections that agents observe, and their rate limits
    Observed,
    /// Set the weight of a service, and its minimum and maximum bandwidth
    Weight(ServiceWeight),
    /// Turn hosts, services or all to plain TCP within one lease, or let them run in shadow mode
    #[command(
        after_help = "A paused host or service has no rates and no limits; others get its capacity. In shadow mode, the coordinator computes and shows \
rates, limits and queues, and hosts apply none of them. Pauses last until `weir ctl resume`, also over restarts of the coordinator."
    )]
    Pause(Pause),
    /// End pauses and shadow mode
    Resume(PauseTargets),
    /// List the pauses and shadow modes, with their beginning and the identity of the client
    Paused,
    /// Let the coordinator read its configuration file again, and print the lines of its summary that differ
    #[command(
        after_help = "The file is refused as a whole if it has an error, or if a registered object does not fit it; then nothing changes. `listen`, \
`store`, `audit` and `tls` cannot change: restart the coordinator for these. SIGHUP does the same."
    )]
    Reload {
        /// Only check the file, and print the difference
        #[arg(long)]
        check: bool,
    },
    /// Write a verified backup of the coordinator's store to a new file
    Backup {
        /// The file, which `weir serve` can use as its store
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,

        /// Replace an existing file once the backup is complete
        #[arg(long)]
        replace: bool,
    },
    /// Print or set the policy
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Print or replace the sensitivity table
    #[command(subcommand)]
    Sensitivity(SensitivityCommand),
}

/// The options of `weir ctl weight`.
#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("parameter").required(true).multiple(true)))]
pub struct ServiceWeight {
    /// The name of the service
    pub service: String,
    /// The weight, a number above 0
    #[arg(value_parser = parse_weight, group = "parameter")]
    pub weight: Option<f64>,
    /// The bandwidth that the service is guaranteed in sum over its hosts, or `none`
    #[arg(long, value_name = "RATE", group = "parameter")]
    pub min_bandwidth: Option<String>,
    /// The bandwidth that the service does not exceed in sum over its hosts, or `none`
    #[arg(long, value_name = "RATE", group = "parameter")]
    pub max_bandwidth: Option<String>,
    /// The bandwidth that each host of the service is guaranteed in each direction, or `none`
    #[arg(long, value_name = "RATE", group = "parameter")]
    pub min_bandwidth_per_host: Option<String>,
    /// The bandwidth that no host of the service exceeds in each direction, or `none`
    #[arg(long, value_name = "RATE", group = "parameter")]
    pub max_bandwidth_per_host: Option<String>,
}

/// What `weir ctl pause` and `weir ctl resume` are about.
#[derive(Debug, clap::Args)]
#[command(group(ArgGroup::new("target").required(true).multiple(true)))]
pub struct PauseTargets {
    /// Names of sending hosts, separated by commas
    #[arg(long = "host", value_name = "NAMES", value_delimiter = ',', group = "target")]
    pub hosts: Vec<String>,

    /// Names of services, separated by commas
    #[arg(long = "service", value_name = "NAMES", value_delimiter = ',', group = "target")]
    pub services: Vec<String>,

    /// All hosts and switches; pauses of single hosts and services are separate, and stay
    #[arg(long, group = "target", conflicts_with_all = ["hosts", "services"])]
    pub all: bool,
}

/// Arguments of `weir ctl pause`.
#[derive(Debug, clap::Args)]
pub struct Pause {
    #[command(flatten)]
    pub targets: PauseTargets,

    /// Remove the queues and marks of the hosts, too; without it, they stay
    #[arg(long, conflicts_with_all = ["services", "shadow"])]
    pub queues: bool,

    /// Shadow mode: compute and show orders, which hosts do not apply; their rates, limits, queues and marks end
    #[arg(long)]
    pub shadow: bool,
}

/// The subcommands of `weir ctl hosts`.
#[derive(Debug, Subcommand)]
pub enum HostsCommand {
    /// Remove a host that has joined by a rule of the configuration. Stop its agent first: otherwise, it joins again
    Remove {
        /// The host's name
        name: String,

        /// Remove it although active coflows name it. The name stays known until no coflow or connection names it
        #[arg(long)]
        force: bool,
    },
}

/// The subcommands of `weir ctl links`.
#[derive(Debug, Subcommand)]
pub enum LinksCommand {
    /// Take links down: flows use other links, or wait, and others get their bandwidth. Lasts over restarts of the coordinator
    Down(LinkNames),
    /// End `weir ctl links down`; links that agents report as down stay down
    Up(LinkNames),
}

/// The links of a command.
#[derive(Debug, clap::Args)]
pub struct LinkNames {
    /// Their names: those of hosts, or `A:B` between two switches
    #[arg(required = true, value_name = "LINK")]
    pub links: Vec<String>,
}

/// The subcommands of `weir ctl coflow`.
#[derive(Debug, Subcommand)]
pub enum CoflowCommand {
    /// List the flows of a coflow
    Show {
        /// The coflow's id
        id: String,
    },
    /// Deregister a coflow; its flows continue as plain TCP
    Deregister {
        /// The coflow's id
        id: String,
    },
}

/// The subcommands of `weir ctl application`.
#[derive(Debug, Subcommand)]
pub enum ApplicationCommand {
    /// Register an application; agents give the class of its service to the application of this name
    #[command(
        after_help = "With --cgroup, --slice, --pod and --port, agents mark and observe this traffic as if their option --application named it, without a \
restart. If the application is registered, its traffic is replaced; repeat --service and --model as before. Without them, its traffic stays."
    )]
    Register(RegisterApplication),
    /// Deregister an application
    Deregister {
        /// The application's id
        id: String,
    },
}

/// Arguments of `weir ctl application register`.
#[derive(Debug, Args)]
pub struct RegisterApplication {
    /// The application's id
    pub id: String,

    /// Its service
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,

    /// Its model in the sensitivity table, for queues by application
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,

    /// A cgroup of its programs from the root of the cgroups; in a component, `*` stands for any characters; may be repeated
    #[arg(long = "cgroup", value_name = "PATH")]
    pub cgroups: Vec<String>,

    /// A systemd slice of its programs, such as batch.slice; may be repeated
    #[arg(long = "slice", value_name = "NAME")]
    pub slices: Vec<String>,

    /// A pod of Kubernetes of its programs, by its UID; may be repeated
    #[arg(long = "pod", value_name = "UID")]
    pub pods: Vec<String>,

    /// A TCP or UDP port, at either end, of packets that no cgroup has a class for; may be repeated
    #[arg(long = "port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub ports: Vec<u16>,

    /// The hosts at which this traffic belongs to the application, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub hosts: Vec<String>,

    /// Remove the traffic of a registered application
    #[arg(long, conflicts_with_all = ["cgroups", "slices", "pods", "ports", "hosts"])]
    pub no_traffic: bool,
}

/// The subcommands of `weir ctl sensitivity`.
#[derive(Debug, Subcommand)]
pub enum SensitivityCommand {
    /// Print the sensitivity table, in TOML; with --format json or csv, its rows
    Show,
    /// Replace the sensitivity table; the queues of all registered applications follow at once
    Load {
        /// A sensitivity table, as `weir profile` and `weir saba profile` write it
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
}

/// The subcommands of `weir ctl connection`.
#[derive(Debug, Subcommand)]
pub enum ConnectionCommand {
    /// Close connections: they no longer count for queues; their sockets stay open. A running program registers them again after a restart
    /// of the coordinator
    #[command(group(ArgGroup::new("connections").required(true).args(["ids", "application"])))]
    Close {
        /// The connections' ids
        #[arg(value_name = "ID")]
        ids: Vec<String>,

        /// Close all connections of this application
        #[arg(long, value_name = "APPLICATION")]
        application: Option<String>,
    },
}

/// The subcommands of `weir ctl policy`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Print the policy
    Get,
    /// Set the policy, which applies from the next schedule on
    Set {
        /// The policy and its parameters: NAME[:KEY=VALUE...], or a policy tree: tree:FILE
        policy: String,
    },
}

/// Parses the address of a coordinator: a host and a port.
pub(super) fn parse_address(text: &str) -> Result<String, String> {
    const EXPECTED: &str = "expected a host and a port, such as 127.0.0.1:7701";
    let (host, port) = text.rsplit_once(':').ok_or(EXPECTED)?;
    if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
        let expected = "expected an IPv6 address in brackets and a port";
        // Without brackets, `::1` could be the address `::1` without a port.
        let address = if host.parse::<Ipv6Addr>().is_ok() { host } else { "::1" };
        return Err(format!("{expected}; help: write [{address}]:{port}"));
    }
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
    if host.is_empty() || !host.chars().all(is_allowed) || port.parse::<u16>().is_err() {
        return Err(EXPECTED.to_owned());
    }
    Ok(text.to_owned())
}
