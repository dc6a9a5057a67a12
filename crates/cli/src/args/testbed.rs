//! `weir testbed`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use weir_core::units::{Bytes, Rate};
use weir_sim::service::Mechanism;
use weir_testbed::Name;
use weir_testbed::incast::MOST_CONNECTIONS;

use super::up_to_1000;
use super::{OUTPUT, Output, port_rate};

/// `weir testbed`.
#[derive(Debug, Subcommand)]
pub enum Testbed {
    /// Make a network of namespaces
    Up(TestbedUp),
    /// Send a scenario's traffic through it, and put what arrives beside what `weir share` predicts
    Run(TestbedRun),
    /// Measure what too many connections to one receiver at once cost: loss, goodput, completion times
    Incast(TestbedIncast),
    /// Take a network of namespaces away, whatever is left of it
    Down(TestbedDown),
    /// List the networks that are there, or the hosts and switches of one
    List(TestbedList),
    /// Say what this machine lacks for it, and what works all the same
    Check,
}

/// Which bed.
#[derive(Debug, Clone, Args)]
pub struct Bed {
    /// The bed's name: its namespaces are called `weir-NAME-NODE`
    #[arg(long, value_name = "NAME", default_value = "bed", value_parser = name)]
    pub name: Name,
}

/// `weir testbed up`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weir testbed up examples/fabrics/leaf-spine-16.toml
  weir fabric generate netshare-fig7 | weir testbed up - --name fig7 --dry-run")]
pub struct TestbedUp {
    /// The network, in TOML; `-` is the standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub fabric: PathBuf,

    #[command(flatten)]
    pub bed: Bed,

    /// Print a shell script that would do it, and do nothing. Needs no privileges
    #[arg(long, help_heading = OUTPUT)]
    pub dry_run: bool,
}

/// `weir testbed run`.
#[derive(Debug, Args)]
#[command(
    after_help = "It takes as long as the scenario, once for each mechanism. If no bed of this name is up, there is one \
                        for the time of the run.

Example:
  weir testbed run examples/netshare-5.3.toml --mechanism queues"
)]
pub struct TestbedRun {
    /// The scenario, in TOML; `-` is the standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub scenario: PathBuf,

    #[command(flatten)]
    pub bed: Bed,

    /// The mechanisms: none (one queue at every link), queues (one for each service at every switch), throttling (hosts limit unresponsive connections) or queues+throttling
    #[arg(long, help_heading = "How to share", value_name = "MECHANISMS", value_delimiter = ',', default_value = "none,queues", value_parser = mechanism)]
    pub mechanism: Vec<Mechanism>,

    /// No progress on the standard error
    #[arg(long, short, help_heading = "Running")]
    pub quiet: bool,

    #[command(flatten)]
    pub output: Output,
}

/// `weir testbed incast`.
#[derive(Debug, Args)]
#[command(
    after_help = "If no bed of this name is up, there is one for the time of the run: some hosts that send, and one that receives, at a switch.

Examples:
  weir testbed incast --buffers 25,100,250 --connections 5,50,200 --format csv --out incast.csv
  weir testbed incast --buffers 25,100,250 --connections 5,50,200 --marks 20 --congestion reno"
)]
pub struct TestbedIncast {
    /// How many full packets the switch's port to the receiver holds
    #[arg(long, help_heading = "What to send", value_name = "N,...", value_delimiter = ',', default_value = "25,50,100,250", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub buffers: Vec<u32>,

    /// How many connections send at once
    #[arg(long, help_heading = "What to send", value_name = "N,...", value_delimiter = ',', default_value = "5,10,20,50,100,200", value_parser = connections)]
    pub connections: Vec<usize>,

    /// What each of them sends
    #[arg(long, help_heading = "What to send", value_name = "SIZE", default_value = "64kB", value_parser = bytes)]
    pub bytes: Bytes,

    /// How many hosts send
    #[arg(long, help_heading = "What to send", value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub senders: u32,

    /// What every link carries
    #[arg(long, help_heading = "What to send", value_name = "RATE", default_value = "100Mbit", value_parser = port_rate)]
    pub rate: Rate,

    /// Have the switch's port mark packets (ECN) that find so many in its queue, and senders go by marks: as with DCTCP
    #[arg(long, help_heading = "What to send", value_name = "PACKETS", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub marks: Option<u32>,

    /// The congestion control of senders, as the kernel calls it: reno, cubic, dctcp, ... By default the system's
    #[arg(long, help_heading = "What to send", value_name = "NAME")]
    pub congestion: Option<String>,

    /// How often each
    #[arg(long, help_heading = "Running", value_name = "N", default_value_t = 5, value_parser = up_to_1000)]
    pub runs: u64,

    #[command(flatten)]
    pub bed: Bed,

    /// No progress on the standard error
    #[arg(long, short, help_heading = "Running")]
    pub quiet: bool,

    #[command(flatten)]
    pub output: Output,
}

/// Each has a thread.
fn connections(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=MOST_CONNECTIONS) => Ok(count),
        _ => Err(format!("expected a whole number from 1 to {MOST_CONNECTIONS}")),
    }
}

fn bytes(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|error| format!("{error}"))?;
    if (1.0..=1e9).contains(&bytes.get()) { Ok(bytes) } else { Err("expected 1B to 1GB".to_owned()) }
}

/// `weir testbed down`.
#[derive(Debug, Args)]
pub struct TestbedDown {
    #[command(flatten)]
    pub bed: Bed,
}

/// `weir testbed list`.
#[derive(Debug, Args)]
pub struct TestbedList {
    /// List the namespaces and addresses of this bed
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub name: Option<Name>,
}

fn name(text: &str) -> Result<Name, String> {
    text.parse()
}

/// A mechanism that needs nobody who knows the whole network.
fn mechanism(text: &str) -> Result<Mechanism, String> {
    let mechanism = text.parse::<Mechanism>().ok().filter(|mechanism| !mechanism.allocates());
    mechanism.ok_or_else(|| {
        format!(
            "`{text}` is no mechanism of the testbed: expected none, queues, throttling or queues+throttling"
        )
    })
}
