//! `weir serve` and `weir agent run`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use weir_core::units::{Rate, Time};

use super::{interval, policy_spec, port_rate};

/// What coordinators listen at, if nothing else is said.
const ADDRESS: &str = "127.0.0.1:7470";

/// Whether plain text may leave the machine.
#[derive(Debug, Clone, Args)]
pub struct PlainText {
    /// Let plain text leave this machine: whoever reaches the coordinator can speak for any host
    #[arg(long)]
    pub insecure: bool,
}

/// `weir serve`.
#[derive(Debug, Args)]
#[command(after_help = "Agents attend by `weir agent run`. It ends by SIGINT or SIGTERM.

Example:
  weir serve --hosts 16 --rate 1Gbit --policy saath --epoch-file /var/lib/weir/epoch")]
pub struct Serve {
    /// How many hosts there are; they are numbered from 0
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub hosts: u32,

    /// What each host's link carries, each way; with a unit
    #[arg(long, value_name = "RATE", value_parser = port_rate)]
    pub rate: Rate,

    /// The policy that decides
    #[arg(long, value_name = "POLICY", default_value = "saath", value_parser = policy_spec)]
    pub policy: String,

    /// The time between two schedules; orders hold for ten of these
    #[arg(long, value_name = "TIME", default_value = "8ms", value_parser = interval)]
    pub interval: Time,

    /// Where to listen for agents
    #[arg(long, value_name = "ADDRESS", default_value = ADDRESS)]
    pub listen: SocketAddr,

    /// Where the last epoch is kept, so that the next is higher whatever the clock says
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub epoch_file: Option<PathBuf>,

    #[command(flatten)]
    pub plain_text: PlainText,
}

/// `weir agent run`.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
#[command(
    after_help = "Programs hand the sockets of their flows over at the Unix socket; who may is said by the permissions \
                        of its folder. It ends by SIGINT or SIGTERM, and all sockets are free then.

Example:
  weir agent run --host 3 --rate 1Gbit --coordinator 127.0.0.1:7470"
)]
pub struct AgentRun {
    /// Which host this is, by its number at the coordinator
    #[arg(long, value_name = "N")]
    pub host: u32,

    /// What this host's link carries: orders above it are refused; with a unit
    #[arg(long, value_name = "RATE", value_parser = port_rate)]
    pub rate: Rate,

    /// Where the coordinator is
    #[arg(long, value_name = "ADDRESS", default_value = ADDRESS)]
    pub coordinator: SocketAddr,

    /// The Unix socket for programs
    #[arg(long, value_name = "PATH", default_value = "/run/weir/agent.sock", value_hint = ValueHint::FilePath)]
    pub socket: PathBuf,

    #[command(flatten)]
    pub plain_text: PlainText,
}
