//! `weir serve`, `weir agent run` and `weir ctl`.

use std::path::{Path, PathBuf};
#[cfg(target_os = "linux")]
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
#[cfg(target_os = "linux")]
use weir_agent::live::Link;
#[cfg(target_os = "linux")]
use weir_agent::queues::Interface;
use weir_client::is_own;
use weir_core::units::Rate;

#[cfg(target_os = "linux")]
use super::agent::Found;
use super::{OUTPUT, Output, port_rate};
use weir_console::failure::Failure;

const WHO: &str = "Who this is";

/// How a log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Log {
    /// For people
    Text,
    /// For programs, an object a line
    Json,
}

/// `weir serve`.
#[derive(Debug, Args)]
#[command(
    after_help = "docs/serve.md says what a configuration has, and docs/api.md what can be asked of a coordinator. It ends by SIGINT or \
                  SIGTERM; hosts keep to their last orders for their lease.

Examples:
  weir serve --check examples/serve.toml
  weir serve --config examples/serve.toml --log json"
)]
pub struct Serve {
    /// The configuration
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, required_unless_present = "check")]
    pub config: Option<PathBuf>,

    /// Print what a configuration is understood as, and end
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "config")]
    pub check: Option<PathBuf>,

    /// How to write what happens, to the standard error
    #[arg(long, value_enum, default_value_t = Log::Text)]
    pub log: Log,
}

/// What proves who this is, and who the coordinator is. Without it the coordinator has to be on this host.
#[derive(Debug, Args)]
#[command(next_help_heading = WHO)]
pub struct Credentials {
    /// The certificate, in PEM
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires_all = ["key", "authority"], global = true)]
    pub certificate: Option<PathBuf>,

    /// Its private key, in PEM
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "certificate", global = true)]
    pub key: Option<PathBuf>,

    /// The authority of the coordinator's certificate, in PEM
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "certificate", global = true)]
    pub authority: Option<PathBuf>,
}

/// The files of credentials.
pub struct Files<'a> {
    /// The certificate.
    pub certificate: &'a Path,
    /// Its private key.
    pub key: &'a Path,
    /// The authority of the coordinator's certificate.
    pub authority: &'a Path,
}

impl Credentials {
    /// The files for a connection to a coordinator; `None` if it goes without.
    ///
    /// # Errors
    /// If there are none and the coordinator is not on this host, unless that was asked for.
    pub fn files(&self, coordinator: &str, insecure: bool) -> Result<Option<Files<'_>>, Failure> {
        match (&self.certificate, &self.key, &self.authority) {
            (Some(certificate), Some(key), Some(authority)) => {
                Ok(Some(Files { certificate, key, authority }))
            }
            _ if insecure || is_own(coordinator) => Ok(None),
            _ => Err(Failure::input(format_args!(
                "--coordinator {coordinator}: expected one on this host, or --certificate, --key and --authority"
            ))),
        }
    }
}

/// `weir agent run`.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
#[command(
    after_help = "Programs hand the sockets of their flows over at the Unix socket; who may is said by the permissions \
                        of its folder. Interfaces get the queues that the coordinator orders, and applications, called as they are registered \
                        there, its classes. It ends by SIGINT or SIGTERM, and all sockets are free then, and interfaces as they were; if it \
                        is killed, queues and classes stay.

Examples:
  weir agent run --host 3 --rate 1Gbit --coordinator 127.0.0.1:7700
  weir agent run --host 3 --rate 1Gbit --interface eth0 --application web=system.slice/web.service
  weir agent run --host 3 --rate 1Gbit --coordinator weir.example:7700 \\
    --certificate node-4.pem --key node-4.key --authority authority.pem
  weir agent run --host 48 --port eth1=10Gbit --port eth2=10Gbit"
)]
pub struct AgentRun {
    /// Which host or switch this is, by its number at the coordinator
    #[arg(long, value_name = "N")]
    pub host: u32,

    /// What this host's link carries: orders above it are refused; with a unit
    #[arg(long, value_name = "RATE", value_parser = port_rate, required_unless_present = "ports")]
    pub rate: Option<Rate>,

    /// A port of a switch and what it carries, in the order in which the coordinator has the hosts there; for switches, several times. Without --rate, --interface, --application and --socket, which are for hosts
    #[arg(long = "port", value_name = "IF=RATE", conflicts_with_all = ["rate", "interfaces", "applications", "socket"])]
    pub ports: Vec<Port>,

    /// Where the coordinator waits for agents
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7700", value_parser = place)]
    pub coordinator: String,

    /// The Unix socket for programs
    #[arg(long, value_name = "PATH", default_value = "/run/weir/agent.sock", value_hint = ValueHint::FilePath)]
    pub socket: PathBuf,

    #[command(flatten)]
    pub found: Found,

    /// Obey a coordinator on another host over plain text, as on a bed of namespaces: whoever answers there decides
    #[arg(long, conflicts_with = "certificate")]
    pub insecure: bool,

    #[command(flatten)]
    pub credentials: Credentials,

    /// Print the `tc` commands that orders would have run at the interfaces, and change nothing: no socket is taken, no application found.
    /// Not beside an agent of the same host or switch, which would lose its place at the coordinator
    #[arg(long, conflicts_with = "applications", help_heading = OUTPUT)]
    pub dry_run: bool,
}

/// A port of a switch.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, PartialEq)]
pub struct Port {
    interface: Interface,
    rate: Rate,
}

#[cfg(target_os = "linux")]
impl Port {
    /// As an agent has it.
    pub fn link(&self) -> Link {
        Link { rate: self.rate, interfaces: vec![self.interface.clone()] }
    }
}

#[cfg(target_os = "linux")]
impl FromStr for Port {
    type Err = String;

    fn from_str(text: &str) -> Result<Port, String> {
        let (interface, rate) =
            text.split_once('=').ok_or_else(|| format!("`{text}`: expected IF=RATE, as in eth1=10Gbit"))?;
        Ok(Port { interface: interface.parse()?, rate: port_rate(rate)? })
    }
}

/// `weir ctl`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weir ctl status
  weir ctl coflows --format csv
  weir ctl policy set saath:d=4
  weir ctl policy set tree:examples/serve-tree.toml
  weir ctl weight ads 3")]
pub struct Ctl {
    /// Where the coordinator waits for people
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7701", value_parser = place, global = true)]
    pub coordinator: String,

    #[command(flatten)]
    pub credentials: Credentials,

    #[command(flatten)]
    pub output: Output,

    /// What to do
    #[command(subcommand)]
    pub what: Wish,
}

/// What can be asked of a coordinator.
#[derive(Debug, Subcommand)]
pub enum Wish {
    /// The hosts, and whether they are heard of
    Status,
    /// The switches, and whether they are heard of
    Switches,
    /// What queues links should have
    Queues,
    /// All coflows that are known
    Coflows,
    /// What all flows were given last
    Allocation,
    /// The services and their weights
    Services,
    /// The applications that are registered
    Applications,
    /// The connections that agents have found, and what they may send
    Found,
    /// Give a service a weight
    Weight {
        /// The service
        service: String,
        /// Its weight, above 0
        weight: f64,
    },
    /// The policy that decides
    #[command(subcommand)]
    Policy(PolicyWish),
}

/// What can be done about the policy.
#[derive(Debug, Subcommand)]
pub enum PolicyWish {
    /// Say which it is
    Get,
    /// Let another one decide from the next schedule on
    Set {
        /// `NAME[:KEY=VALUE...]`, or `tree:FILE`
        policy: String,
    },
}

/// A host and a port.
fn place(text: &str) -> Result<String, String> {
    const EXPECTED: &str = "expected a host and a port, such as 127.0.0.1:7701";
    let (host, port) = text.rsplit_once(':').ok_or(EXPECTED)?;
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
    if host.is_empty() || !host.chars().all(known) || port.parse::<u16>().is_err() {
        return Err(EXPECTED.to_owned());
    }
    Ok(text.to_owned())
}
