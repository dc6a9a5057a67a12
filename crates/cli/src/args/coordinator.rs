//! `weir serve`, `weir ctl`, and the credentials of connections to a coordinator.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use weir_client::is_loopback;
use weir_console::failure::Failure;

use super::Output;

/// The format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    Text,
    /// For programs, one object a line
    Json,
}

/// `weir serve`.
#[derive(Debug, Args)]
#[command(
    after_help = "docs/serve.md describes the configuration, and docs/api.md the HTTP interface. The coordinator ends on SIGINT or SIGTERM; \
hosts keep their last orders until the lease ends.

Examples:
  weir serve --check examples/serve.toml
  weir serve --check-store weir.redb
  weir serve --config examples/serve.toml --log json"
)]
pub struct Serve {
    /// The configuration
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, required_unless_present_any = ["check", "check_store"])]
    pub config: Option<PathBuf>,

    /// Print how a configuration is interpreted, and exit
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "config")]
    pub check: Option<PathBuf>,

    /// Verify a store without changing it, print its contents, and exit
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["config", "check"])]
    pub check_store: Option<PathBuf>,

    /// The format of the log, which goes to the standard error
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log: LogFormat,
}

/// The certificates for a connection to a coordinator on another host.
#[derive(Debug, Args)]
#[command(next_help_heading = "Credentials")]
pub struct Credentials {
    /// The certificate of this client, in PEM
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires_all = ["key", "authority"], global = true)]
    pub certificate: Option<PathBuf>,

    /// The private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "certificate", global = true)]
    pub key: Option<PathBuf>,

    /// The authority that signed the coordinator's certificate, in PEM
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "certificate", global = true)]
    pub authority: Option<PathBuf>,
}

impl Credentials {
    /// The certificate, its key and the authority for a connection over TLS; `None` for a connection over plain text.
    ///
    /// # Errors
    /// If there are no files and the coordinator is on another host, unless `insecure`.
    pub fn tls_files(&self, coordinator: &str, insecure: bool) -> Result<Option<[&Path; 3]>, Failure> {
        match (&self.certificate, &self.key, &self.authority) {
            (Some(certificate), Some(key), Some(authority)) => Ok(Some([certificate, key, authority])),
            _ if insecure || is_loopback(coordinator) => Ok(None),
            _ => Err(Failure::input(format_args!(
                "--coordinator {coordinator}: expected one on this host, or --certificate, --key and --authority"
            ))),
        }
    }
}

/// `weir ctl`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weir ctl hosts
  weir ctl coflows --format csv
  weir ctl policy set saath:d=4
  weir ctl policy set tree:examples/serve-tree.toml
  weir ctl weight ads 3
  weir ctl backup weir-backup.redb")]
pub struct Ctl {
    /// The coordinator's address for the HTTP interface
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7701", value_parser = parse_address, global = true)]
    pub coordinator: String,

    #[command(flatten)]
    pub credentials: Credentials,

    #[command(flatten)]
    pub output: Output,

    /// What to do
    #[command(subcommand)]
    pub command: CtlCommand,
}

/// The subcommands of `weir ctl`.
#[derive(Debug, Subcommand)]
pub enum CtlCommand {
    /// List the hosts, whether their agents are connected, and interfaces that differ from their orders
    Hosts,
    /// List the switches, whether their agents are connected, and interfaces that differ from their orders
    Switches,
    /// List the queues that links should have
    Queues,
    /// List all known coflows
    Coflows,
    /// List the latest allocation of all flows
    Allocation,
    /// List the services and their weights
    Services,
    /// List the registered applications
    Applications,
    /// List the connections that agents observe, and their limits
    Observed,
    /// Set the weight of a service
    Weight {
        /// The service
        service: String,
        /// Its weight, above 0
        weight: f64,
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
}

/// The subcommands of `weir ctl policy`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Print the policy
    Get,
    /// Set the policy, from the next schedule on
    Set {
        /// `NAME[:KEY=VALUE...]`, or `tree:FILE`
        policy: String,
    },
}

/// A host and a port.
pub(super) fn parse_address(text: &str) -> Result<String, String> {
    const EXPECTED: &str = "expected a host and a port, such as 127.0.0.1:7701";
    let (host, port) = text.rsplit_once(':').ok_or(EXPECTED)?;
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
    if host.is_empty() || !host.chars().all(is_allowed) || port.parse::<u16>().is_err() {
        return Err(EXPECTED.to_owned());
    }
    Ok(text.to_owned())
}
