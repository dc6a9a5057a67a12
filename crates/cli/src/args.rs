//! What can be asked for on the command line.

#[cfg(all(feature = "live", target_os = "linux"))]
mod agent;
#[cfg(feature = "live")]
mod live;
mod network;
mod predict;
#[cfg(all(feature = "live", target_os = "linux"))]
mod profile;
#[cfg(feature = "papers")]
mod reproduce;
mod saba;
#[cfg(all(feature = "live", target_os = "linux"))]
mod testbed;
mod trace;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use weir_core::units::{Rate, Time};
use weir_trace::TraceUnit;

use crate::sweep::Vary;
use weir_console::failure::Failure;
use weir_console::spec;

#[cfg(all(feature = "live", target_os = "linux"))]
pub use agent::{Agent, AgentQueues, AgentTraffic, Found};
#[cfg(all(feature = "live", target_os = "linux"))]
pub use live::{AgentRun, Port};
#[cfg(feature = "live")]
pub use live::{Credentials, Ctl, Log, PolicyWish, Serve, Wish};
pub use network::{Fabric, FabricCheck, FabricDescribe, FabricGenerate, Share};
pub use predict::{Predict, PredictConnections, PredictTrain};
#[cfg(all(feature = "live", target_os = "linux"))]
pub use profile::{Profile, ProfilePlace, application};
#[cfg(all(feature = "papers", feature = "live", target_os = "linux"))]
pub use reproduce::LiveReproduction;
#[cfg(feature = "papers")]
pub use reproduce::{Page, Replayed, Reproduce};
pub use saba::{Saba, SabaProfile, SabaRun, SabaWeights, Way};
#[cfg(all(feature = "live", target_os = "linux"))]
pub use testbed::{Testbed, TestbedDown, TestbedIncast, TestbedList, TestbedRun, TestbedUp};
pub use trace::{Check, Convert, Describe, Generate, Trace, TraceFormat};

const INPUT: &str = "Input";
const OUTPUT: &str = "Output";
const POLICY: &str = "What to replay";

/// Coflow scheduling and network sharing: replay a trace under Saath and its rivals, share links by NetShare.
///
/// A trace says which coflows (groups of flows that count only when all are done) arrive when on which ports.
/// Weir replays it under scheduling policies and reports the coflow completion times (CCT).
#[derive(Debug, Parser)]
#[command(
    name = "weir",
    version,
    arg_required_else_help = true,
    subcommand_required = true,
    after_help = "Exit codes: 0 done; 1 what was asked for could not be done; 2 wrong usage or bad input; 130 or 143 interrupted.",
    after_long_help = EXAMPLES
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Exit codes: 0 done; 1 what was asked for could not be done (a replay that stalls, an output that is
full); 2 wrong usage or bad input; 130 or 143 interrupted.

Examples:
  weir compare examples/demo.txt --policies saath,aalo,fair --baseline aalo
  weir sim trace.txt --policy saath:start=1MB:growth=32 --per-coflow ccts.csv
  weir sweep trace.txt --policies saath --baseline aalo --vary start=1MB,10MB,100MB
  weir explain trace.txt --policy saath --coflow 7
  weir trace generate --preset facebook --seed 7 --out trace.txt";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Replay a trace under one policy
    Sim(Sim),
    /// Replay a trace under several policies and put them side by side
    Compare(Compare),
    /// Compare policies over the values of a parameter, or of two
    Sweep(Sweep),
    /// Say why one coflow took as long as it did
    Explain(Explain),
    /// Share a network between services over time, under NetShare's mechanisms
    Share(Share),
    /// Run a paper's evaluation again: published figures next to measured ones
    #[cfg(feature = "papers")]
    #[command(subcommand, arg_required_else_help = true)]
    Reproduce(Reproduce),
    /// Saba's profiler, its weights at a port, and simulated jobs under it and its rivals
    #[command(subcommand, arg_required_else_help = true)]
    Saba(Saba),
    /// Django's predictor: learn from measurements of incast how many connections a receiver should have
    #[command(subcommand, arg_required_else_help = true)]
    Predict(Predict),
    /// Find out how sensitive a real command is to bandwidth: run it with less and less, and fit a model (Saba)
    #[cfg(all(feature = "live", target_os = "linux"))]
    Profile(Profile),
    /// List the policies, or say what the parameters of one are
    Policies(Policies),
    /// Check, describe, generate or convert traces
    #[command(subcommand, arg_required_else_help = true)]
    Trace(Trace),
    /// Check, describe or generate networks
    #[command(subcommand, arg_required_else_help = true)]
    Fabric(Fabric),
    /// Make networks of Linux namespaces, and send real traffic through them
    #[cfg(all(feature = "live", target_os = "linux"))]
    #[command(subcommand, arg_required_else_help = true)]
    Testbed(Testbed),
    /// Coordinate hosts: decide who sends how fast, and tell their agents
    #[cfg(feature = "live")]
    Serve(Serve),
    /// Ask a coordinator how things are, and change its policy and weights
    #[cfg(feature = "live")]
    Ctl(Ctl),
    /// Carry out on this host what a coordinator decides, give its interfaces queues by weight, and mark its traffic
    #[cfg(all(feature = "live", target_os = "linux"))]
    #[command(subcommand, arg_required_else_help = true)]
    Agent(Agent),
    /// Print completions for a shell
    Completions(Completions),
    /// Print the man page, or write those of all commands
    Man(Man),
    /// Print the reference of the command line as Markdown
    #[command(hide = true)]
    Reference,
}

/// How tables are written.
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
#[command(next_help_heading = INPUT)]
pub struct Input {
    /// The trace, in the coflow-benchmark format or in Weir's own; `-` is the standard input
    #[arg(value_hint = ValueHint::FilePath, help_heading = None)]
    pub trace: PathBuf,

    #[command(flatten)]
    pub reading: Reading,
}

/// How to read a trace.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = INPUT)]
pub struct Reading {
    /// What a coflow-benchmark trace means by a megabyte: MB (10^6 bytes) or MiB (2^20 bytes)
    #[arg(long, value_name = "UNIT", default_value = "MB")]
    pub trace_unit: TraceUnit,

    /// The most flows to accept, which bounds memory
    #[arg(long, value_name = "N", default_value_t = weir_trace::Limits::default().max_flows, value_parser = max_flows)]
    pub max_flows: usize,
}

/// How to replay.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Replay")]
pub struct Replay {
    /// What each port sends and what it receives; with a unit, such as 1Gbit, 100Mbit or 125MB/s
    #[arg(long, value_name = "RATE", default_value = "1Gbit", value_parser = port_rate)]
    pub port_rate: Rate,

    /// The scheduling interval: schedules are made at its multiples, and at the trace's events; a port idles from a flow's
    /// end to the next. 0 makes one whenever something happens
    #[arg(long, value_name = "TIME", default_value = "8ms", value_parser = interval)]
    pub interval: Time,

    /// Make one coflow of all coflows of one job, stage and wave (Saath, section 4.3), if they are of one application
    #[arg(long)]
    pub per_stage: bool,
}

/// A wide area to replay over.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Replay")]
pub struct Wide {
    /// Replay over links between regions instead of ports of one switch: a file in the wide-area format. It has
    /// policies of its own, and neither a port rate nor an interval
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["port_rate", "interval", "incast", "fabric"])]
    pub wide_area: Option<PathBuf>,

    /// Different seeds draw different bandwidths of the links; all policies have the same
    #[arg(long, value_name = "N", default_value_t = 1, requires = "wide_area")]
    pub bandwidth_seed: u64,
}

/// What is short besides ports.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Replay")]
pub struct Behind {
    /// Let receiving ports carry less if many flows send to them, as in these measurements: a file that
    /// `weir testbed incast --format csv` writes
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "buffer")]
    pub incast: Option<PathBuf>,

    /// What a switch's port holds for such a measurement, in full packets
    #[arg(long, value_name = "PACKETS", requires = "incast")]
    pub buffer: Option<u32>,

    /// Replay over a network with links between its switches: a file in the fabric format. Port 0 is its first host, and what
    /// hosts' cables carry is the port rate. Policies decide as if nothing but ports were short; what links cannot carry of that
    /// is not offered to others, except by `fair`, which is plain TCP on that network
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["port_rate", "incast"])]
    pub fabric: Option<PathBuf>,

    /// Different seeds send flows over different ones of their shortest paths
    #[arg(long, value_name = "N", default_value_t = 0, requires = "fabric")]
    pub path_seed: u64,
}

/// How to run.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Running")]
pub struct Running {
    /// Replays to run at a time; more than one disturbs the timings, not the results
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = jobs)]
    pub jobs: usize,

    /// No progress on the standard error; there is none anyway where that is no terminal
    #[arg(long, short)]
    pub quiet: bool,
}

/// Where results go.
#[derive(Debug, Args)]
#[command(next_help_heading = OUTPUT)]
pub struct Output {
    /// How to write the result
    #[arg(long, value_enum, default_value_t = Format::Table, global = true)]
    pub format: Format,

    /// Write the result to this file instead of the standard output; only once it is complete
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, global = true)]
    pub out: Option<PathBuf>,
}

/// Files with a line for each coflow and flow.
#[derive(Debug, Args)]
#[command(next_help_heading = OUTPUT)]
pub struct Details {
    /// Also write a line for each policy and coflow: policy,coflow,arrival_s,width,bytes,cct_s. `-` is the standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub per_coflow: Option<PathBuf>,

    /// Also write a line for each policy and flow: policy,coflow,flow,src,dst,bytes,fct_s. A flow's completion
    /// time counts from its coflow's release. `-` is the standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub per_flow: Option<PathBuf>,

    /// Leave out what a clock measured, so that the same input gives the same bytes
    #[arg(long)]
    pub no_timing: bool,
}

/// `weir sim`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weir sim trace.txt --policy saath
  weir sim trace.txt --policy saath:start=1MB:d=4 --interval 0 --format json")]
pub struct Sim {
    #[command(flatten)]
    pub input: Input,

    /// The policy, with its parameters: NAME[:KEY=VALUE...], or a policy tree: tree:FILE. `weir policies` lists them
    #[arg(long, help_heading = POLICY, value_name = "POLICY", value_parser = policy_spec)]
    pub policy: String,

    #[command(flatten)]
    pub replay: Replay,

    #[command(flatten)]
    pub behind: Behind,

    #[command(flatten)]
    pub wide: Wide,

    #[command(flatten)]
    pub running: Running,

    #[command(flatten)]
    pub output: Output,

    #[command(flatten)]
    pub details: Details,
}

/// `weir compare`.
#[derive(Debug, Args)]
#[command(
    after_help = "Speed-ups are per coflow: its CCT under the baseline over its CCT under the policy, so above 1 \
is better. A coflow that takes no time under both counts as 1; one that takes none under one of them is left out.

Examples:
  weir compare trace.txt
  weir compare trace.txt --policies saath,aalo,fair --baseline aalo
  weir compare trace.txt --policies saath,saath:lcof=off --format json --out ablation.json
  weir compare trace.txt --wide-area examples/wide-area/private-cloud.toml --policies mrtf,siphon"
)]
pub struct Compare {
    #[command(flatten)]
    pub input: Input,

    /// The policies, with their parameters: NAME[:KEY=VALUE...] or tree:FILE,... By default all that `weir policies` lists
    /// for the network; those that share between applications only if the trace has several, and `fair` only up to 4096 ports
    #[arg(long, help_heading = POLICY, value_name = "POLICIES", value_delimiter = ',', value_parser = policy_spec)]
    pub policies: Vec<String>,

    /// The policy that speed-ups are against; replayed too if it is not among the policies. By default the first
    #[arg(long, help_heading = POLICY, value_name = "POLICY", value_parser = policy_spec)]
    pub baseline: Option<String>,

    #[command(flatten)]
    pub replay: Replay,

    #[command(flatten)]
    pub behind: Behind,

    #[command(flatten)]
    pub wide: Wide,

    #[command(flatten)]
    pub running: Running,

    #[command(flatten)]
    pub output: Output,

    #[command(flatten)]
    pub details: Details,
}

/// `weir sweep`.
#[derive(Debug, Args)]
#[command(after_help = "What can vary: any parameter of the policies (`weir policies NAME`), and
  interval=TIME,...    the scheduling interval
  arrival=FACTOR,...   arrivals so many times as fast (Saath, Fig. 14d)
  port-rate=RATE,...   what each port sends and receives
and over a wide area, which has neither an interval nor a port rate,
  bandwidth-seed=N,... what its bandwidth is drawn by

A policy that does not have the parameter is replayed as it is, for comparison; one of them must have it. Speed-ups \
are against the baseline at the same values, or with --fixed-baseline against the baseline where nothing is varied.

Examples:
  weir sweep trace.txt --policies saath --baseline aalo --vary start=1MB,10MB,100MB,1GB
  weir sweep trace.txt --policies saath --baseline aalo --fixed-baseline --vary arrival=0.5,1,2,4
  weir sweep trace.txt --policies saath,aalo --vary interval=0,8ms,80ms --vary arrival=0.5,1,2
  weir sweep trace.txt --wide-area examples/wide-area/private-cloud.toml --policies mrtf,siphon --vary depth=1,2,3 --vary bandwidth-seed=1,2,3")]
pub struct Sweep {
    #[command(flatten)]
    pub input: Input,

    /// The policies, with their parameters: NAME[:KEY=VALUE...],...
    #[arg(long, help_heading = POLICY, value_name = "POLICIES", value_delimiter = ',', value_parser = policy_spec, required = true)]
    pub policies: Vec<String>,

    /// The policy that speed-ups are against; by default the first
    #[arg(long, help_heading = POLICY, value_name = "POLICY", value_parser = policy_spec)]
    pub baseline: Option<String>,

    /// Take speed-ups against the baseline where nothing is varied, as Fig. 14 of the Saath paper does
    #[arg(long, help_heading = POLICY)]
    pub fixed_baseline: bool,

    /// What to vary, and the values; twice for a grid
    #[arg(long, help_heading = POLICY, value_name = "KEY=V1,V2,...", required = true)]
    pub vary: Vec<Vary>,

    #[command(flatten)]
    pub replay: Replay,

    #[command(flatten)]
    pub wide: Wide,

    #[command(flatten)]
    pub behind: Behind,

    #[command(flatten)]
    pub running: Running,

    #[command(flatten)]
    pub output: Output,

    /// Leave out what a clock measured, so that the same input gives the same bytes
    #[arg(long, help_heading = OUTPUT)]
    pub no_timing: bool,
}

/// `weir explain`.
#[derive(Debug, Args)]
#[command(
    after_help = "The table's time line counts from the coflow's release. CSV and JSON have that as since_release_s, and \
with from_s and to_s, as arrival_s and end_s, the time since the trace's start, as its events have.

Examples:
  weir explain trace.txt --policy saath --coflow 7
  weir explain trace.txt --policy aalo --coflow 7 --all --format csv"
)]
pub struct Explain {
    #[command(flatten)]
    pub input: Input,

    /// The policy, with its parameters: NAME[:KEY=VALUE...]
    #[arg(long, help_heading = POLICY, value_name = "POLICY", value_parser = policy_spec)]
    pub policy: String,

    /// The coflow, by the number that the trace has for it
    #[arg(long, help_heading = POLICY, value_name = "ID", value_parser = coflow_id)]
    pub coflow: u64,

    /// Show every segment of the time line; by default short ones are merged into their neighbours
    #[arg(long, help_heading = OUTPUT)]
    pub all: bool,

    #[command(flatten)]
    pub replay: Replay,

    /// No progress on the standard error; there is none anyway where that is no terminal
    #[arg(long, short, help_heading = "Running")]
    pub quiet: bool,

    #[command(flatten)]
    pub output: Output,
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
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,
}

/// `weir man`.
#[derive(Debug, Args)]
pub struct Man {
    /// Write weir.1, weir-sim.1, ... to this directory, which is made if it is not there
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub out: Option<PathBuf>,
}

/// A port rate, which has to be above zero.
pub fn port_rate(text: &str) -> Result<Rate, String> {
    let rate: Rate = text.parse().map_err(|error| format!("{error}"))?;
    if (0.125..=1e15).contains(&rate.get()) { Ok(rate) } else { Err("expected 1bit to 8000Tbit".to_owned()) }
}

/// A bound of flows: each takes some 100 bytes.
fn max_flows(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(flows @ 1..=100_000_000) => Ok(flows),
        _ => Err("expected a whole number from 1 to 100000000".to_owned()),
    }
}

/// A scheduling interval. Zero needs no unit.
pub fn interval(text: &str) -> Result<Time, String> {
    if text == "0" {
        return Ok(Time::ZERO);
    }
    let interval: Time =
        text.parse().map_err(|error| format!("{error}, or 0 to schedule whenever something happens"))?;
    if interval.get() <= 1e9 { Ok(interval) } else { Err("expected at most 1e9s".to_owned()) }
}

/// A count from 1 to 1000.
#[cfg(any(feature = "live", feature = "papers"))]
pub fn up_to_1000(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(count @ 1..=1000) => Ok(count),
        _ => Err("expected a whole number from 1 to 1000".to_owned()),
    }
}

fn jobs(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(jobs @ 1..=1024) => Ok(jobs),
        _ => Err("expected a whole number from 1 to 1024".to_owned()),
    }
}

fn coflow_id(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected the number that the trace has for it, such as 7".to_owned())
}

/// A policy that exists, with parameters that it has.
fn policy_spec(text: &str) -> Result<String, String> {
    let spec = text.trim();
    match spec::check(spec) {
        Ok(()) => Ok(spec.to_owned()),
        Err(failure) => Err(failure.message),
    }
}

/// The policies to replay, and the place of the baseline among them. A baseline that is not among them goes first.
///
/// # Errors
/// A policy that is there twice.
pub fn with_baseline(
    policies: &[String],
    baseline: Option<&String>,
) -> Result<(Vec<String>, usize), Failure> {
    if let Some(policy) = repeated(policies) {
        return Err(Failure::input(format_args!("--policies: `{policy}`: expected each policy once")));
    }
    let mut policies = policies.to_vec();
    let Some(baseline) = baseline else { return Ok((policies, 0)) };
    Ok(match policies.iter().position(|policy| policy == baseline) {
        Some(place) => (policies, place),
        None => {
            policies.insert(0, baseline.clone());
            (policies, 0)
        }
    })
}

/// The first text that is there a second time.
pub fn repeated(texts: &[String]) -> Option<&String> {
    (1..).zip(texts).find_map(|(end, text)| texts[..end - 1].contains(text).then_some(text))
}
