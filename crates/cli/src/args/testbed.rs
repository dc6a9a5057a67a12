//! Defines the options of `weir testbed`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use weir_core::units::{Bytes, Rate, Time};
use weir_sim::service::Mechanism;
use weir_testbed::BedName;
use weir_testbed::incast::MAX_CONNECTIONS;

use super::{
    EXECUTION_HEADING, OUTPUT_HEADING, Output, SHARING_HEADING, integer_in, parse_port_rate, parse_up_to_1000,
};

const TRAFFIC_HEADING: &str = "Traffic";

/// The subcommands of `weir testbed`.
#[derive(Debug, Subcommand)]
pub enum Testbed {
    /// Build a network of namespaces
    Up(TestbedUp),
    /// Send a scenario's traffic through a testbed, and compare it with the simulation of `weir share`
    Run(TestbedRun),
    /// Measure incast: loss, goodput and completion times of many connections to one receiver
    Incast(TestbedIncast),
    /// Remove a testbed, also an incomplete one
    Down(TestbedName),
    /// List the testbeds, or the hosts and switches of one
    List(TestbedList),
    /// List the requirements of testbeds that this machine meets or lacks
    Check,
}

/// The name of a testbed.
#[derive(Debug, Clone, Args)]
pub struct TestbedName {
    /// The name of the testbed, whose namespaces are named `weir-NAME-NODE`
    #[arg(long, value_name = "NAME", default_value = "bed")]
    pub name: BedName,
}

/// Arguments of `weir testbed up`.
#[derive(Debug, Args)]
pub struct TestbedUp {
    /// The network, in TOML; `-` is the standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub fabric: PathBuf,

    #[command(flatten)]
    pub testbed: TestbedName,

    /// Print the equivalent shell script, and change nothing; needs no privileges
    #[arg(long, help_heading = OUTPUT_HEADING)]
    pub dry_run: bool,
}

/// Arguments of `weir testbed run`.
#[derive(Debug, Args)]
#[command(
    after_help = "The run takes as long as the scenario, once for each mechanism. If no testbed of this name is up, the command builds one, and \
removes it afterwards."
)]
pub struct TestbedRun {
    /// The scenario, in TOML; `-` is the standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub scenario: PathBuf,

    #[command(flatten)]
    pub testbed: TestbedName,

    /// The mechanisms, separated by commas: none (one queue at every link), queues (one queue for each service at every
    /// switch), throttling (hosts limit unresponsive connections) or queues+throttling
    #[arg(long, help_heading = SHARING_HEADING, value_name = "MECHANISMS", value_delimiter = ',', default_value = "none,queues", value_parser = parse_mechanism)]
    pub mechanism: Vec<Mechanism>,

    /// Show no progress bar; a bar needs a terminal as standard error
    #[arg(long, short, help_heading = EXECUTION_HEADING)]
    pub quiet: bool,

    #[command(flatten)]
    pub output: Output,
}

/// Arguments of `weir testbed incast`.
#[derive(Debug, Args)]
#[command(
    after_help = "If no testbed of this name is up, the command builds one and removes it afterwards: senders and one receiver at a switch."
)]
pub struct TestbedIncast {
    /// The buffers of the switch's port to the receiver, in packets of full size
    #[arg(long, help_heading = TRAFFIC_HEADING, value_name = "N,...", value_delimiter = ',', default_value = "25,50,100,250", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub buffers: Vec<u32>,

    /// The numbers of concurrent connections
    #[arg(long, help_heading = TRAFFIC_HEADING, value_name = "N,...", value_delimiter = ',', default_value = "5,10,20,50,100,200", value_parser = integer_in(1..=MAX_CONNECTIONS))]
    pub connections: Vec<usize>,

    /// The size that each connection sends, with a unit such as 64kB
    #[arg(long, help_heading = TRAFFIC_HEADING, value_name = "SIZE", default_value = "64kB", value_parser = parse_bytes)]
    pub bytes: Bytes,

    /// The number of sending hosts
    #[arg(long, help_heading = TRAFFIC_HEADING, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub senders: u32,

    /// The rate of every link in each direction, with a unit such as 1Gbit or 125MB/s
    #[arg(long, help_heading = TRAFFIC_HEADING, value_name = "RATE", default_value = "100Mbit", value_parser = parse_port_rate)]
    pub rate: Rate,

    /// The queue length, in packets, from which the switch's port marks packets (ECN); senders react to marks, as with DCTCP
    /// [default: no marks]
    #[arg(long, help_heading = TRAFFIC_HEADING, value_name = "PACKETS", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub marks: Option<u32>,

    /// The congestion control of all hosts, by its name in the kernel: reno, cubic, dctcp, ... Kernels without dctcp use weir_dctcp, a
    /// reduced one [default: the system's]
    #[arg(long, help_heading = TRAFFIC_HEADING, value_name = "NAME")]
    pub congestion: Option<String>,

    /// Measure steady connections: they start one after the other, and a completed connection is replaced by a new one. Loss and
    /// goodput are those of --window
    #[arg(long, help_heading = TRAFFIC_HEADING)]
    pub steady: bool,

    /// With --steady, the time before --window; the first connections start in its first half
    #[arg(long, help_heading = TRAFFIC_HEADING, value_name = "TIME", default_value = "1500ms", requires = "steady", value_parser = parse_steady_time)]
    pub warm_up: Time,

    /// With --steady, the time during which packets and bytes are counted
    #[arg(long, help_heading = TRAFFIC_HEADING, value_name = "TIME", default_value = "3s", requires = "steady", value_parser = parse_steady_time)]
    pub window: Time,

    /// The number of runs of each combination of buffer and connections
    #[arg(long, help_heading = EXECUTION_HEADING, value_name = "N", default_value_t = 5, value_parser = parse_up_to_1000)]
    pub runs: u64,

    #[command(flatten)]
    pub testbed: TestbedName,

    /// Show no progress bar; a bar needs a terminal as standard error
    #[arg(long, short, help_heading = EXECUTION_HEADING)]
    pub quiet: bool,

    #[command(flatten)]
    pub output: Output,
}

fn parse_bytes(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|error| format!("{error}"))?;
    if (1.0..=1e9).contains(&bytes.get()) { Ok(bytes) } else { Err("expected 1B to 1GB".to_owned()) }
}

/// Parses a time of a run with steady connections.
fn parse_steady_time(text: &str) -> Result<Time, String> {
    let time: Time = text.parse().map_err(|error| format!("{error}"))?;
    if (0.01..=60.0).contains(&time.get()) { Ok(time) } else { Err("expected 10ms to 60s".to_owned()) }
}

/// Arguments of `weir testbed list`.
#[derive(Debug, Args)]
pub struct TestbedList {
    /// List the namespaces and addresses of this testbed [default: list all testbeds]
    #[arg(long, value_name = "NAME")]
    pub name: Option<BedName>,
}

/// Parses a mechanism that a testbed can run: all without a central allocator.
fn parse_mechanism(text: &str) -> Result<Mechanism, String> {
    let mechanism = text.parse::<Mechanism>().ok().filter(|mechanism| !mechanism.has_allocator());
    mechanism.ok_or_else(|| {
        format!(
            "`{text}` is not a mechanism of the testbed; expected none, queues, throttling or queues+throttling"
        )
    })
}
