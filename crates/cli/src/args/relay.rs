//! Defines the options of `weir relay`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use weir_core::units::{Bytes, Time};

use super::OUTPUT_HEADING;
use super::coordinator::{CREDENTIALS_HEADING, Credentials, LogFormat, parse_address};

/// The subcommands of `weir relay`.
#[derive(Debug, Subcommand)]
pub enum Relay {
    /// Forward the flows of local programs to other relays, and deliver the flows of other relays to local programs
    Run(RelayRun),
}

/// Arguments of `weir relay run`.
#[derive(Debug, Args)]
#[command(
    after_help = "Programs reach the relay through the client library or the Spark plugin, which send directly if there is no relay. On SIGINT or \
SIGTERM the relay refuses new flows, waits for open flows, and exits; programs continue the remaining flows directly. The relay keeps \
no files and changes no settings of the host."
)]
pub struct RelayRun {
    /// The name of this relay in the coordinator's configuration, or in the overlay file
    #[arg(long, value_name = "NAME")]
    pub name: String,

    /// The address at which the coordinator accepts relays
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7700", value_parser = parse_address)]
    pub coordinator: String,

    /// A file with relays, coflows and rules, in place of a coordinator
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "coordinator")]
    pub overlay: Option<PathBuf>,

    /// The address for programs. With a certificate, programs of other hosts use TLS
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7711")]
    pub programs: SocketAddr,

    /// The address for other relays; `[::]:7710` is for IPv6, too. Default: port 7710 at all IPv4 addresses, or the relay's address in the
    /// overlay file
    #[arg(long, value_name = "IP:PORT")]
    pub relays: Option<SocketAddr>,

    /// The memory for data, with a unit, at least 1MiB. It bounds the number of flows that end at this relay: 512 KiB each, of one half
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub memory: Bytes,

    /// The congestion control of connections with other relays. Default: `cubic`, and `bbr` on paths with loss or more than 2 ms.
    /// If the kernel lacks `bbr`, the system's is used
    #[arg(long, value_name = "NAME")]
    pub congestion_control: Option<String>,

    /// The number of connections for the data to each relay, 1 to 32; fewer on slow paths. By default, 1 with `bbr`, and as many as raise
    /// the rate on paths with loss, if the kernel does not permit `bbr` or --congestion-control selects another one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=32))]
    pub connections: Option<u8>,

    /// How long to wait for open flows before the exit, with a unit
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub drain: Time,

    /// Serve metrics for Prometheus at this address: at a loopback address, or with --insecure, over plain text; at other addresses
    /// over TLS with --certificate, to clients with a certificate of the authority
    #[arg(long, value_name = "IP:PORT")]
    pub metrics: Option<SocketAddr>,

    /// Use plain text with other hosts, for test networks and private links: anyone who can reach the relay can send flows. With
    /// --certificate, only programs on other hosts use plain text
    #[arg(long, help_heading = CREDENTIALS_HEADING)]
    pub insecure: bool,

    /// Use TLS with programs of this host, too, if not all of its users are trusted
    #[arg(long, requires = "certificate", conflicts_with = "insecure", help_heading = CREDENTIALS_HEADING)]
    pub tls_local: bool,

    #[command(flatten)]
    pub credentials: Credentials,

    /// The format of the log on the standard error
    #[arg(long, value_enum, default_value_t = LogFormat::Text, help_heading = OUTPUT_HEADING)]
    pub log: LogFormat,

    /// Check the options and the overlay file, print what the relay would do, and exit
    #[arg(long, help_heading = OUTPUT_HEADING)]
    pub dry_run: bool,
}
