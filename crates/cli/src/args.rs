//! Defines the commands of `weir` and their options, as plain data.

#[cfg(all(feature = "live", target_os = "linux"))]
mod agent;
#[cfg(feature = "live")]
mod coordinator;
mod examples;
mod fabric;
mod predict;
#[cfg(all(feature = "live", target_os = "linux"))]
mod profile;
#[cfg(all(feature = "live", target_os = "linux"))]
mod relay;
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
use std::sync::{LazyLock, OnceLock};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, ValueHint};
use weir_core::units::Time;
use weir_experiment::options;
#[cfg(feature = "papers")]
use weir_experiment::options::parse_interval;
#[cfg(any(feature = "live", feature = "papers"))]
use weir_experiment::options::parse_port_rate;
use weir_trace::{Limits, TraceOptions, TraceUnit};

use value::integer_in;
#[cfg(any(feature = "live", feature = "papers"))]
use value::parse_up_to_1000;

#[cfg(all(feature = "live", target_os = "linux"))]
pub use agent::{
    Agent, AgentCleanup, AgentQueues, AgentRun, AgentTraffic, KeepQueues, ObservedTraffic, SwitchPort,
};
#[cfg(feature = "live")]
pub use coordinator::{
    ApplicationCommand, CoflowCommand, ConnectionCommand, Credentials, Ctl, CtlCommand, HostsCommand,
    LinkNames, LinksCommand, LogFormat, Pause, PauseTargets, PolicyCommand, RegisterApplication,
    SensitivityCommand, Serve, ServiceWeight,
};
pub use fabric::{Fabric, FabricCheck, FabricDescribe, FabricGenerate};
pub use predict::{Predict, PredictConnections, PredictTrain};
#[cfg(all(feature = "live", target_os = "linux"))]
pub use profile::{Profile, parse_application_name};
#[cfg(all(feature = "live", target_os = "linux"))]
pub use relay::{Relay, RelayRun};
pub use replay::{Compare, DetailFiles, Experiment, Explain, NetworkOptions, Sim, Sweep};
#[cfg(all(feature = "papers", feature = "live", target_os = "linux"))]
pub use reproduce::{DjangoLiveReproduction, LiveReproduction};
#[cfg(feature = "papers")]
pub use reproduce::{PageOptions, Reproduce, WeirReproduction};
pub use saba::{Saba, SabaProfile, SabaWeightOptions, SabaWeights};
pub use share::Share;
#[cfg(all(feature = "live", target_os = "linux"))]
pub use testbed::{Testbed, TestbedIncast, TestbedList, TestbedName, TestbedRun, TestbedUp};
pub use trace::{Convert, Describe, Generate, LocalFlows, Merge, Trace, TraceFormat};
pub use value::{VariedParameter, VariedSetting, listed_policies};

const INPUT_HEADING: &str = "Input";
const OUTPUT_HEADING: &str = "Output";
const EXECUTION_HEADING: &str = "Execution";
const MODEL_HEADING: &str = "Model";
const SHARING_HEADING: &str = "Sharing";

/// Commands that this build lacks, by the Cargo feature that adds them.
pub const MISSING_COMMANDS: &[(&str, &[&str])] = &[
    #[cfg(not(feature = "docs"))]
    ("docs", &["completions", "man", "reference"]),
    #[cfg(not(feature = "live"))]
    ("live", &["agent", "ctl", "profile", "relay", "reproduce live", "serve", "testbed"]),
    #[cfg(not(feature = "papers"))]
    ("papers", &["reproduce"]),
];

/// The commit of the program; see [`set_commit`].
static COMMIT: OnceLock<&str> = OnceLock::new();

/// Sets the commit that the version shows. Only the first call has an effect.
pub fn set_commit(commit: &'static str) {
    let _ = COMMIT.set(commit);
}

/// The version, with the commit if the program has set it.
pub fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let version = env!("CARGO_PKG_VERSION");
        COMMIT.get().map_or_else(|| version.to_owned(), |commit| format!("{version} ({commit})"))
    });
    &VERSION
}

/// Coflow scheduling and network sharing: replay traces under Saath and other policies, share links by NetShare.
///
/// A trace lists coflows: groups of flows that are useful only when all of them have completed. Weir replays the trace
/// under scheduling policies and reports coflow completion times (CCT).
#[derive(Debug, Parser)]
#[command(
    name = "weir",
    version = version(),
    arg_required_else_help = true,
    subcommand_required = true,
    after_help = format!("{EXIT_CODES}{}", missing_commands_help()),
    after_long_help = format!("{EXIT_CODES}{}\n\n{EXAMPLES}", missing_commands_help())
)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Parses the arguments of the process. Exits after an error, or a request for help or the version.
    pub fn from_arguments() -> Cli {
        let fail = |error| suggest_nested_command(without_escape_tip(error)).exit();
        let matches = command().try_get_matches().unwrap_or_else(fail);
        Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}

/// Removes the tip to pass an unknown option as a value, such as `-- --fabric`. No command takes such values.
fn without_escape_tip(mut error: clap::Error) -> clap::Error {
    if error.kind() == ErrorKind::UnknownArgument {
        error.remove(ContextKind::Suggested);
    }
    error
}

/// Suggests `trace generate` for an unknown command `generate`.
fn suggest_nested_command(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    let has_command = |command: &&clap::Command| command.find_subcommand(unknown).is_some();
    let command = command();
    let found = command.get_subcommands().filter(has_command);
    let suggested: Vec<String> = found.map(|command| format!("{} {unknown}", command.get_name())).collect();
    if !suggested.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(suggested));
    }
    error
}

/// The command line, with examples.
pub fn command() -> clap::Command {
    let command = accept_negative_values(examples::add_examples(Cli::command(), "weir"));
    let commands = grouped_commands(&command);
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{commands}\nOptions:\n{{options}}{{after-help}}"
    ))
}

/// Lets options of times and rates take a negative value, so that an error is about the value and not about an unknown option.
fn accept_negative_values(command: clap::Command) -> clap::Command {
    let is_quantity = |arg: &clap::Arg| {
        let names = arg.get_value_names().unwrap_or_default();
        names.iter().any(|name| matches!(name.as_str(), "TIME" | "RATE"))
    };
    command
        .mut_subcommands(accept_negative_values)
        .mut_args(|arg| if is_quantity(&arg) { arg.allow_hyphen_values(true) } else { arg })
}

/// The commands by purpose.
const COMMAND_GROUPS: [(&str, &[&str]); 5] = [
    ("Simulate", &["sim", "compare", "sweep", "explain", "share", "policies"]),
    ("Prepare", &["trace", "fabric", "saba", "predict"]),
    ("Live", &["serve", "ctl", "agent", "relay", "profile", "testbed"]),
    ("Reproduce", &["reproduce"]),
    ("Shell", &["completions", "man"]),
];

/// The lines of help about the commands of this build, by purpose.
fn grouped_commands(command: &clap::Command) -> String {
    let line = |name: &&str| {
        let about = command.find_subcommand(name)?.get_about()?;
        Some(format!("  {name:11}  {about}\n"))
    };
    let group = |(title, names): &(&str, &[&str])| {
        let lines: String = names.iter().filter_map(line).collect();
        if lines.is_empty() { String::new() } else { format!("\n{title}:\n{lines}") }
    };
    COMMAND_GROUPS.iter().map(group).collect()
}

const EXIT_CODES: &str = "\
Exit codes: 0 success; 1 the command failed (a replay stalls, an output is full; results of other replays are written); 2 wrong usage or \
bad input; \
130 or 143 interrupted by SIGINT or SIGTERM.";

const EXAMPLES: &str = "\
Examples:
  weir compare examples/demo.txt --policies saath,aalo,fair --baseline aalo
  weir sim trace.txt --policy saath:start=1MB:growth=32 --per-coflow ccts.csv
  weir sweep trace.txt --policies saath --baseline aalo --vary start=1MB,10MB,100MB
  weir explain trace.txt --policy saath --slowest 3
  weir trace generate --preset facebook --seed 7 --out trace.txt";

/// Help text of a reduced build: the missing commands and how to get them. Empty for a full build.
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
    /// Explain the completion times of one coflow or of the slowest ones
    Explain(Explain),
    /// Simulate services that share a network under NetShare's mechanisms
    Share(Share),
    /// Repeat a paper's evaluation: a page with published and measured figures
    #[cfg(feature = "papers")]
    #[command(subcommand, arg_required_else_help = true)]
    Reproduce(Reproduce),
    /// Profile workloads for Saba, and compute weights at a port
    #[command(subcommand, arg_required_else_help = true)]
    Saba(Saba),
    /// Train Django's predictor on incast measurements, and compute the best number of connections to a receiver
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
    /// Run the coordinator, which computes the rates and queues of all hosts and sends them to the agents
    #[cfg(feature = "live")]
    Serve(Serve),
    /// Query a coordinator, and change its policy and weights
    #[cfg(feature = "live")]
    Ctl(Ctl),
    /// Run the agent of a host or switch: apply orders, configure weighted queues, mark traffic
    #[cfg(all(feature = "live", target_os = "linux"))]
    #[command(subcommand, arg_required_else_help = true)]
    Agent(Agent),
    /// Run a relay of the overlay between datacenters: forward flows in the coordinator's order
    #[cfg(all(feature = "live", target_os = "linux"))]
    #[command(subcommand, arg_required_else_help = true)]
    Relay(Relay),
    /// Print completions for a shell
    #[cfg(feature = "docs")]
    Completions(Completions),
    /// Print the man page of `weir`, or write the man pages of all commands
    #[cfg(feature = "docs")]
    Man(Man),
    /// Print the reference of the command line as Markdown
    #[cfg(feature = "docs")]
    #[command(hide = true)]
    Reference,
}

#[cfg(feature = "live")]
impl Command {
    /// The format of the log of a command that runs until it is stopped.
    pub fn log_format(&self) -> Option<LogFormat> {
        match self {
            Command::Serve(serve) if serve.config.is_some() => Some(serve.log),
            #[cfg(target_os = "linux")]
            Command::Relay(Relay::Run(relay)) if !relay.dry_run => Some(relay.log),
            _ => None,
        }
    }
}

/// The format of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables with rounded numbers, for people
    Table,
    /// JSON with full precision, for programs
    Json,
    /// CSV with full precision, for programs
    Csv,
}

/// The trace that a command reads.
#[derive(Debug, Args)]
#[command(next_help_heading = INPUT_HEADING)]
pub struct TraceInput {
    /// The trace, in the coflow-benchmark format or in Weir's own (`-` is the standard input), or a file of jobs
    #[arg(value_hint = ValueHint::FilePath, help_heading = None)]
    pub trace: PathBuf,

    #[command(flatten)]
    pub read_options: ReadOptions,

    #[command(flatten)]
    pub arrivals: ArrivalOptions,
}

/// The coflows that a command replays.
#[derive(Debug, Args)]
#[command(next_help_heading = INPUT_HEADING)]
pub struct ReplaySources {
    /// A trace in the coflow-benchmark format or in Weir's own (`-` is the standard input), a file of jobs, one of services, or one of
    /// each, which then share one network; `weir sweep` replays several traces one by one
    #[arg(value_name = "SOURCE", value_hint = ValueHint::FilePath, help_heading = None, required = true, num_args = 1..)]
    pub sources: Vec<PathBuf>,

    #[command(flatten)]
    pub read_options: ReadOptions,

    #[command(flatten)]
    pub arrivals: ArrivalOptions,
}

/// The option for the times of a trace.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = INPUT_HEADING)]
pub struct ArrivalOptions {
    /// Keep the times of a trace whose coflows all arrive after 10^6 s, such as Unix times. Without this option, a multiple of the
    /// scheduling interval is subtracted from all times, so that they are precise
    #[arg(long)]
    pub keep_arrivals: bool,
}

impl ArrivalOptions {
    /// See [`options::shift_step`]; none if times are kept.
    pub fn shift_step(&self, intervals: impl IntoIterator<Item = Time>) -> Option<Time> {
        if self.keep_arrivals { None } else { options::shift_step(intervals) }
    }
}

/// Options for reading a trace.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = INPUT_HEADING)]
pub struct ReadOptions {
    /// The unit of sizes in a coflow-benchmark trace: MB (10^6 bytes) or MiB (2^20 bytes) [default: MB]
    #[arg(long, value_name = "UNIT")]
    pub trace_unit: Option<TraceUnit>,

    /// The maximum number of flows; larger traces are refused. A flow needs about 100 bytes of memory, and each coflow about 700 more
    #[arg(long, value_name = "N", default_value_t = weir_trace::Limits::default().max_flows, value_parser = integer_in(1..=100_000_000_usize))]
    pub max_flows: usize,
}

impl ReadOptions {
    /// How to read a trace, whose times are earlier by a multiple of `shift_step`.
    pub fn trace_options(&self, shift_step: Option<Time>) -> TraceOptions {
        TraceOptions {
            shift_step,
            unit: self.trace_unit.unwrap_or_default(),
            limits: Limits { max_flows: self.max_flows, ..Limits::default() },
            ..TraceOptions::default()
        }
    }
}

/// Options for concurrency and progress.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = EXECUTION_HEADING)]
pub struct RunOptions {
    /// The number of concurrent runs; more than one makes measured times less accurate, and changes no other result
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = integer_in(1..=1024_usize))]
    pub jobs: usize,

    /// Show no progress bar; a bar needs a terminal as standard error
    #[arg(long, short)]
    pub quiet: bool,
}

/// The format and the file of a result.
#[derive(Debug, Args)]
#[command(next_help_heading = OUTPUT_HEADING)]
pub struct Output {
    /// The format of the result
    #[arg(long, value_enum, default_value_t = Format::Table, global = true)]
    pub format: Format,

    /// Write the result to this file instead of the standard output; the file appears once it is complete
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, global = true)]
    pub out: Option<PathBuf>,
}

/// Arguments of `weir policies`.
#[derive(Debug, Args)]
pub struct Policies {
    /// The policy to describe, or `tree` for policy trees [default: all policies]
    pub name: Option<String>,

    #[command(flatten)]
    pub output: Output,
}

/// Arguments of `weir completions`.
#[cfg(feature = "docs")]
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// Arguments of `weir man`.
#[cfg(feature = "docs")]
#[derive(Debug, Args)]
pub struct Man {
    /// Write weir.1, weir-sim.1, ... to this directory, which is created if necessary [default: print weir.1]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
}
