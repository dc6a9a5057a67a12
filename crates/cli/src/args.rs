//! The command line: what each command accepts, as plain data.

#[cfg(all(feature = "live", target_os = "linux"))]
mod agent;
#[cfg(feature = "live")]
mod coordinator;
mod fabric;
mod predict;
#[cfg(all(feature = "live", target_os = "linux"))]
mod profile;
mod replay;
#[cfg(feature = "papers")]
mod reproduce;
mod saba;
mod share;
#[cfg(all(feature = "live", target_os = "linux"))]
mod testbed;
mod trace;
mod value;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use weir_trace::TraceUnit;

use value::integer_in;
#[cfg(feature = "papers")]
use value::parse_interval;
#[cfg(any(feature = "live", feature = "papers"))]
use value::{parse_port_rate, parse_up_to_1000};

#[cfg(all(feature = "live", target_os = "linux"))]
pub use agent::{Agent, AgentQueues, AgentRun, AgentTraffic, ObservedTraffic, SwitchPort};
#[cfg(feature = "live")]
pub use coordinator::{Ctl, CtlCommand, LogFormat, PolicyCommand, Serve};
pub use fabric::{Fabric, FabricCheck, FabricDescribe, FabricGenerate};
pub use predict::{Predict, PredictConnections, PredictTrain};
#[cfg(all(feature = "live", target_os = "linux"))]
pub use profile::{LimitedLinks, Profile, parse_application_name};
pub use replay::{Compare, DetailFiles, Experiment, Explain, NetworkOptions, ReplayOptions, Sim, Sweep};
#[cfg(all(feature = "papers", feature = "live", target_os = "linux"))]
pub use reproduce::LiveReproduction;
#[cfg(feature = "papers")]
pub use reproduce::{PageOptions, ReplayInput, Reproduce};
pub use saba::{Saba, SabaProfile, SabaRun, SabaWeightOptions, SabaWeights, SharingMode};
pub use share::Share;
#[cfg(all(feature = "live", target_os = "linux"))]
pub use testbed::{Testbed, TestbedIncast, TestbedList, TestbedName, TestbedRun, TestbedUp};
pub use trace::{Convert, Describe, Generate, Trace, TraceFormat};
pub use value::{VariedParameter, VariedSetting, first_repeated};

const INPUT_HEADING: &str = "Input";
const OUTPUT_HEADING: &str = "Output";
const RUNNING_HEADING: &str = "Running";

/// The commands that this build lacks, by the feature that adds them.
pub const MISSING_COMMANDS: &[(&str, &[&str])] = &[
    #[cfg(not(feature = "docs"))]
    ("docs", &["completions", "man", "reference"]),
    #[cfg(not(feature = "live"))]
    ("live", &["agent", "ctl", "profile", "reproduce live", "serve", "testbed"]),
    #[cfg(not(feature = "papers"))]
    ("papers", &["reproduce"]),
];

/// Coflow scheduling and network sharing: replay a trace under Saath and its rivals, share links by NetShare.
///
/// A trace lists coflows: groups of flows that are useful only when all have completed. Weir replays the trace under
/// scheduling policies and reports coflow completion times (CCT).
#[derive(Debug, Parser)]
#[command(
    name = "weir",
    version,
    arg_required_else_help = true,
    subcommand_required = true,
    after_help = format!("{EXIT_CODES}{}", missing_commands_help()),
    after_long_help = format!("{EXIT_CODES}{}\n\n{EXAMPLES}", missing_commands_help())
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 success; 1 the command failed (a replay stalls, an output is full); 2 wrong usage or bad input; \
130 or 143 interrupted.";

const EXAMPLES: &str = "\
Examples:
  weir compare examples/demo.txt --policies saath,aalo,fair --baseline aalo
  weir sim trace.txt --policy saath:start=1MB:growth=32 --per-coflow ccts.csv
  weir sweep trace.txt --policies saath --baseline aalo --vary start=1MB,10MB,100MB
  weir explain trace.txt --policy saath --coflow 7
  weir trace generate --preset facebook --seed 7 --out trace.txt";

/// What the help of a reduced build says of the commands that it lacks.
fn missing_commands_help() -> String {
    let lines = MISSING_COMMANDS.iter().map(|(feature, commands)| {
        format!(
            "\n\nBuilt without `{feature}`, which adds {}; run `make install` for all commands.",
            commands.join(", ")
        )
    });
    lines.collect()
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Replay a trace under one policy
    Sim(Sim),
    /// Replay a trace under several policies and compare them
    Compare(Compare),
    /// Compare policies over the values of one or two parameters
    Sweep(Sweep),
    /// Explain the completion time of one coflow
    Explain(Explain),
    /// Simulate services that share a network under NetShare's mechanisms
    Share(Share),
    /// Run a paper's evaluation again: published figures next to measured ones
    #[cfg(feature = "papers")]
    #[command(subcommand, arg_required_else_help = true)]
    Reproduce(Reproduce),
    /// Saba's profiler, its weights at a port, and simulated jobs under it and its rivals
    #[command(subcommand, arg_required_else_help = true)]
    Saba(Saba),
    /// Django's predictor: train it on incast measurements, and query the best number of connections to a receiver
    #[command(subcommand, arg_required_else_help = true)]
    Predict(Predict),
    /// Measure how sensitive a real command is to bandwidth, and fit a model (Saba)
    #[cfg(all(feature = "live", target_os = "linux"))]
    Profile(Profile),
    /// List the policies, or the parameters of one policy
    Policies(Policies),
    /// Check, describe, generate or convert traces
    #[command(subcommand, arg_required_else_help = true)]
    Trace(Trace),
    /// Check, describe or generate networks
    #[command(subcommand, arg_required_else_help = true)]
    Fabric(Fabric),
    /// Build networks of Linux namespaces, and send real traffic through them
    #[cfg(all(feature = "live", target_os = "linux"))]
    #[command(subcommand, arg_required_else_help = true)]
    Testbed(Testbed),
    /// Run the coordinator: it computes the rates and queues of all hosts, and orders their agents to enforce them
    #[cfg(feature = "live")]
    Serve(Serve),
    /// Query a coordinator, and change its policy and weights
    #[cfg(feature = "live")]
    Ctl(Ctl),
    /// Run the agent of a host or switch: enforce orders, configure weighted queues, mark traffic
    #[cfg(all(feature = "live", target_os = "linux"))]
    #[command(subcommand, arg_required_else_help = true)]
    Agent(Agent),
    /// Print completions for a shell
    #[cfg(feature = "docs")]
    Completions(Completions),
    /// Print the man page, or write the man pages of all commands
    #[cfg(feature = "docs")]
    Man(Man),
    /// Print the reference of the command line as Markdown
    #[cfg(feature = "docs")]
    #[command(hide = true)]
    Reference,
}

/// How a result is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people; numbers are rounded
    Table,
    /// For programs, in full precision
    Json,
    /// For programs, in full precision
    Csv,
}

/// The trace to read and how to read it.
#[derive(Debug, Args)]
#[command(next_help_heading = INPUT_HEADING)]
pub struct TraceInput {
    /// The trace, in the coflow-benchmark format or in Weir's own; `-` is the standard input
    #[arg(value_hint = ValueHint::FilePath, help_heading = None)]
    pub trace: PathBuf,

    #[command(flatten)]
    pub read_options: ReadOptions,
}

/// How to read a trace.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = INPUT_HEADING)]
pub struct ReadOptions {
    /// A megabyte of a coflow-benchmark trace: MB (10^6 bytes) or MiB (2^20 bytes)
    #[arg(long, value_name = "UNIT", default_value = "MB")]
    pub trace_unit: TraceUnit,

    /// The maximum number of flows, which bounds memory: about 100 bytes a flow
    #[arg(long, value_name = "N", default_value_t = weir_trace::Limits::default().max_flows, value_parser = integer_in(1..=100_000_000_usize))]
    pub max_flows: usize,
}

/// How to run.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = RUNNING_HEADING)]
pub struct RunOptions {
    /// The number of concurrent runs; with more than one, measured times are less accurate and results do not change
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = integer_in(1..=1024_usize))]
    pub jobs: usize,

    /// Show no progress bar; without a terminal, none is shown anyway
    #[arg(long, short)]
    pub quiet: bool,
}

/// Where a result goes.
#[derive(Debug, Args)]
#[command(next_help_heading = OUTPUT_HEADING)]
pub struct Output {
    /// How to write the result
    #[arg(long, value_enum, default_value_t = Format::Table, global = true)]
    pub format: Format,

    /// Write the result to this file instead of the standard output; the file appears once it is complete
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, global = true)]
    pub out: Option<PathBuf>,
}

/// `weir policies`.
#[derive(Debug, Args)]
pub struct Policies {
    /// Only this policy; `tree` for policy trees
    pub name: Option<String>,

    #[command(flatten)]
    pub output: Output,
}

/// `weir completions`.
#[cfg(feature = "docs")]
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// `weir man`.
#[cfg(feature = "docs")]
#[derive(Debug, Args)]
pub struct Man {
    /// Write weir.1, weir-sim.1, ... to this directory, and create it if necessary
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
}
