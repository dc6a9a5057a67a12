//! What can be asked for on the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use weir_core::policy;
use weir_core::saba::Fraction;
use weir_core::units::{Rate, Time};
use weir_sim::service::Mechanism;
use weir_trace::TraceUnit;
use weir_trace::generate::{Arrival, Law, Preset, Skew};

use crate::fabric;
use crate::sweep::Vary;

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
    after_help = "Exit codes: 0 done; 1 what was asked for could not be done; 2 wrong usage or bad input; 130 interrupted.",
    after_long_help = EXAMPLES
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Exit codes: 0 done; 1 what was asked for could not be done (a replay that stalls, an output that is
full); 2 wrong usage or bad input; 130 interrupted.

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
    /// Do a paper's evaluation again, published and measured side by side
    #[command(subcommand, arg_required_else_help = true)]
    Reproduce(Reproduce),
    /// Saba's offline parts: profile workloads, and find the weights at a port
    #[command(subcommand, arg_required_else_help = true)]
    Saba(Saba),
    /// List the policies, or say what the parameters of one are
    Policies(Policies),
    /// Check, describe, generate or convert traces
    #[command(subcommand, arg_required_else_help = true)]
    Trace(Trace),
    /// Check, describe or generate networks
    #[command(subcommand, arg_required_else_help = true)]
    Fabric(Fabric),
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
    #[arg(long, value_name = "N", default_value_t = weir_trace::Limits::default().max_flows)]
    pub max_flows: usize,
}

/// How to replay.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Replay")]
pub struct Replay {
    /// What each port sends and what it receives; with a unit, such as 1Gbit, 100Mbit or 125MB/s
    #[arg(long, value_name = "RATE", default_value = "1Gbit", value_parser = port_rate)]
    pub port_rate: Rate,

    /// The scheduling interval: schedules are made at its multiples only, and a port idles from a flow's end to the
    /// next. 0 makes one whenever something happens
    #[arg(long, value_name = "TIME", default_value = "8ms", value_parser = interval)]
    pub interval: Time,

    /// Make one coflow of all coflows of one job, stage and wave (Saath, section 4.3)
    #[arg(long)]
    pub per_stage: bool,
}

/// How to run.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Running")]
pub struct Running {
    /// Replays to run at a time; more than one disturbs the timings, not the results
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = jobs)]
    pub jobs: usize,

    /// No progress on the standard error
    #[arg(long, short)]
    pub quiet: bool,
}

/// Where results go.
#[derive(Debug, Args)]
#[command(next_help_heading = OUTPUT)]
pub struct Output {
    /// How to write the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,

    /// Write the result to this file instead of the standard output; only once it is complete
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
}

/// Files with a line for each coflow and flow.
#[derive(Debug, Args)]
#[command(next_help_heading = OUTPUT)]
pub struct Details {
    /// Also write a line for each policy and coflow: policy,coflow,arrival_s,width,bytes,cct_s
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub per_coflow: Option<PathBuf>,

    /// Also write a line for each policy and flow: policy,coflow,flow,src,dst,bytes,fct_s. A flow's completion
    /// time counts from its coflow's release
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

    /// The policy, with its parameters: NAME[:KEY=VALUE...]. `weir policies` lists them
    #[arg(long, help_heading = POLICY, value_name = "POLICY", value_parser = policy_spec)]
    pub policy: String,

    #[command(flatten)]
    pub replay: Replay,

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
  weir compare trace.txt --policies saath,saath:lcof=off --format json --out ablation.json"
)]
pub struct Compare {
    #[command(flatten)]
    pub input: Input,

    /// The policies, with their parameters: NAME[:KEY=VALUE...],... All of them by default
    #[arg(long, help_heading = POLICY, value_name = "POLICIES", value_delimiter = ',', value_parser = policy_spec)]
    pub policies: Vec<String>,

    /// The policy that speed-ups are against; replayed too if it is not among the policies. By default the first
    #[arg(long, help_heading = POLICY, value_name = "POLICY", value_parser = policy_spec)]
    pub baseline: Option<String>,

    #[command(flatten)]
    pub replay: Replay,

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

A policy that does not have the parameter is replayed as it is, for comparison; one of them must have it. Speed-ups \
are against the baseline at the same values.

Examples:
  weir sweep trace.txt --policies saath --baseline aalo --vary start=1MB,10MB,100MB,1GB
  weir sweep trace.txt --policies saath,aalo --vary interval=0,8ms,80ms --vary arrival=0.5,1,2")]
pub struct Sweep {
    #[command(flatten)]
    pub input: Input,

    /// The policies, with their parameters: NAME[:KEY=VALUE...],...
    #[arg(long, help_heading = POLICY, value_name = "POLICIES", value_delimiter = ',', value_parser = policy_spec, required = true)]
    pub policies: Vec<String>,

    /// The policy that speed-ups are against; by default the first
    #[arg(long, help_heading = POLICY, value_name = "POLICY", value_parser = policy_spec)]
    pub baseline: Option<String>,

    /// What to vary, and the values; twice for a grid
    #[arg(long, help_heading = POLICY, value_name = "KEY=V1,V2,...", required = true)]
    pub vary: Vec<Vary>,

    #[command(flatten)]
    pub replay: Replay,

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
#[command(after_help = "Examples:
  weir explain trace.txt --policy saath --coflow 7
  weir explain trace.txt --policy aalo --coflow 7 --all --format csv")]
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

    /// No progress on the standard error
    #[arg(long, short, help_heading = "Running")]
    pub quiet: bool,

    #[command(flatten)]
    pub output: Output,
}

/// `weir share`.
#[derive(Debug, Args)]
#[command(after_help = "Mechanisms:
  none               one queue at every link
  queues             group allocation: a queue for each service at every switch (NetShare 3.1)
  throttling         Algorithm 1 for unresponsive connections, one queue (3.2)
  queues+throttling  both
  central            a central allocator's limits for all connections, one queue (3.3)
  queues+central     both

Examples:
  weir share examples/netshare-5.3.toml
  weir share examples/netshare-5.3.toml --mechanism queues,queues+throttling --over-time rates.csv --format json")]
pub struct Share {
    /// The scenario, in TOML; `-` is the standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub scenario: PathBuf,

    /// The mechanisms, or `all`
    #[arg(long, help_heading = "How to share", value_name = "MECHANISMS", value_delimiter = ',', default_value = "all", value_parser = mechanism)]
    pub mechanism: Vec<Option<Mechanism>>,

    /// No progress on the standard error
    #[arg(long, short, help_heading = "Running")]
    pub quiet: bool,

    #[command(flatten)]
    pub output: Output,

    /// Also write a line for each time in which rates stood still and each service:
    /// mechanism,from_s,to_s,service,delivered_bit_per_s,sent_bit_per_s
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub over_time: Option<PathBuf>,
}

/// `weir reproduce`.
#[derive(Debug, Subcommand)]
pub enum Reproduce {
    /// The simulations of Saath (CoNEXT '17), and what accounts for the differences
    Saath(Reproduction),
    /// The examples and experiments of NetShare (UCSD 2010), and what accounts for the differences
    Netshare(NetshareReproduction),
    /// The sensitivity models and the testbed of Saba (EuroSys '23), and what accounts for the differences
    Saba(SabaReproduction),
}

/// `weir reproduce netshare`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  weir reproduce netshare --out docs/results/netshare.md")]
pub struct NetshareReproduction {
    /// Ways to hash connections to paths, over which numbers that depend on them are averaged
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = seeds)]
    pub seeds: u64,

    #[command(flatten)]
    pub running: Running,

    /// Write the document to this file instead of the standard output; only once it is complete
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub out: Option<PathBuf>,
}

/// `weir reproduce saba`.
#[derive(Debug, Args)]
#[command(
    after_help = "It needs no trace: the workloads are simulated. The 500 setups of the paper take some minutes.

Example:
  weir reproduce saba --out docs/results/saba.md --jobs 2"
)]
pub struct SabaReproduction {
    /// How many cluster setups to draw (section 8.2)
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub setups: u32,

    /// Different seeds draw different setups
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    #[command(flatten)]
    pub running: Running,

    /// Write the document to this file instead of the standard output; only once it is complete
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub out: Option<PathBuf>,
}

/// `weir saba`.
#[derive(Debug, Subcommand)]
pub enum Saba {
    /// Profile simulated workloads and fit their sensitivities (sections 4 and 7.1)
    Profile(SabaProfile),
    /// Find the weights of the applications at one port (Eq. 2)
    Weights(SabaWeights),
}

/// `weir saba profile`.
#[derive(Debug, Args)]
#[command(
    after_help = "The workloads are the ten of the paper's Table 1, as simulated jobs that are calibrated to what the paper publishes.

Examples:
  weir saba profile --out table.toml
  weir saba profile --workload LR,SQL --degree 2"
)]
pub struct SabaProfile {
    /// The workloads, by name, or all
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "all", help_heading = INPUT)]
    pub workload: Vec<String>,

    /// The degree of the models in the table
    #[arg(long, value_name = "K", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=3))]
    pub degree: u8,

    /// Write the sensitivity table to this file; only once it is complete
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub out: Option<PathBuf>,

    /// How to print the profiles
    #[arg(long, value_enum, default_value_t = Format::Table, help_heading = OUTPUT)]
    pub format: Format,
}

/// `weir saba weights`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weir saba weights table.toml --apps LR,PR
  weir saba weights table.toml --apps LR,SQL,SQL,Sort --c-saba 0.8 --format json")]
pub struct SabaWeights {
    /// The sensitivity table
    #[arg(value_hint = ValueHint::FilePath)]
    pub table: PathBuf,

    /// The applications at the port, by their names in the table; one that is there several times is several applications
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true, help_heading = INPUT)]
    pub apps: Vec<String>,

    /// The part of the port that they share (C_saba)
    #[arg(long, value_name = "PART", default_value = "1", value_parser = part, help_heading = INPUT)]
    pub c_saba: Fraction,

    /// The least weight of an application, as a part of an even share
    #[arg(long, value_name = "PART", default_value = "0.1", value_parser = part, help_heading = INPUT)]
    pub floor: Fraction,

    #[command(flatten)]
    pub output: Output,
}

/// `weir reproduce saath`.
#[derive(Debug, Args)]
#[command(after_help = "It replays the trace more than a hundred times: some ten minutes for the public one.

Example:
  weir reproduce saath --trace FB2010-1Hr-150-0.txt --out docs/results/saath.md --jobs 2")]
pub struct Reproduction {
    /// The trace, in the coflow-benchmark format or in Weir's own
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = INPUT)]
    pub trace: PathBuf,

    #[command(flatten)]
    pub reading: Reading,

    /// What each port sends and what it receives; with a unit, such as 1Gbit, 100Mbit or 125MB/s
    #[arg(long, value_name = "RATE", default_value = "1Gbit", value_parser = port_rate, help_heading = "Replay")]
    pub port_rate: Rate,

    /// The scheduling interval where it is not varied
    #[arg(long, value_name = "TIME", default_value = "8ms", value_parser = interval, help_heading = "Replay")]
    pub interval: Time,

    #[command(flatten)]
    pub running: Running,

    /// Write the document to this file instead of the standard output; only once it is complete
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub out: Option<PathBuf>,

    /// Leave out what a clock measured, so that the same input gives the same bytes
    #[arg(long, help_heading = OUTPUT)]
    pub no_timing: bool,
}

/// `weir policies`.
#[derive(Debug, Args)]
pub struct Policies {
    /// Only this policy
    pub name: Option<String>,

    #[command(flatten)]
    pub output: Output,
}

/// `weir trace`.
#[derive(Debug, Subcommand)]
pub enum Trace {
    /// Check that a trace can be read, and say what was understood
    Check(Check),
    /// Describe a trace by the statistics that papers use
    Describe(Describe),
    /// Make up a trace by chance, from a seed
    Generate(Generate),
    /// Write a trace in another format
    Convert(Convert),
}

/// `weir trace check`.
#[derive(Debug, Args)]
pub struct Check {
    #[command(flatten)]
    pub input: Input,
}

/// `weir trace describe`.
#[derive(Debug, Args)]
pub struct Describe {
    #[command(flatten)]
    pub input: Input,

    /// Make one coflow of all coflows of one job, stage and wave first (Saath, section 4.3)
    #[arg(long, help_heading = INPUT)]
    pub per_stage: bool,

    #[command(flatten)]
    pub output: Output,
}

/// The formats of traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TraceFormat {
    /// The public format
    CoflowBenchmark,
    /// Weir's own, which says more
    Weir,
}

/// `weir trace generate`.
#[derive(Debug, Args)]
#[command(after_help = "Laws: constant:V, uniform:MIN,MAX, exponential:MEAN, pareto:SHAPE,MIN,MAX, \
lognormal:MEDIAN,SIGMA,MIN,MAX

Examples:
  weir trace generate --preset facebook --seed 7 --out trace.txt
  weir trace generate --ports 20 --coflows 50 --mappers uniform:1,10 --size pareto:1.2,1,1000 --arrival burst")]
pub struct Generate {
    /// A ready-made specification: `facebook` resembles the public trace, `small` is of the same shape on 50 ports.
    /// The default unless mappers, reducers, size or skew are given: small
    #[arg(long, conflicts_with_all = ["mappers", "reducers", "size", "skew"])]
    pub preset: Option<Preset>,

    /// Different seeds give different traces of the same likeness
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Ports of the fabric [default: the preset's, or 50]
    #[arg(long, value_name = "N")]
    pub ports: Option<u32>,

    /// How many coflows [default: the preset's, or 100]
    #[arg(long, value_name = "N")]
    pub coflows: Option<usize>,

    /// Mappers of a coflow [default: uniform:1,10]
    #[arg(long, value_name = "LAW")]
    pub mappers: Option<Law>,

    /// Reducers of a coflow [default: uniform:1,10]
    #[arg(long, value_name = "LAW")]
    pub reducers: Option<Law>,

    /// Megabytes of a coflow's average reducer [default: lognormal:10,1.5,1,1000]
    #[arg(long, value_name = "LAW")]
    pub size: Option<Law>,

    /// How the reducers of a coflow differ: none, spread:PART (up to that part up and down) or zipf:EXPONENT
    /// [default: none]
    #[arg(long, value_name = "SKEW")]
    pub skew: Option<Skew>,

    /// How coflows follow each other: poisson:MEAN, every:GAP, lognormal:MEDIAN,SIGMA (with units, such as
    /// poisson:2s) or burst [default: the preset's, or poisson:1s]
    #[arg(long, value_name = "ARRIVAL")]
    pub arrival: Option<Arrival>,

    #[command(flatten)]
    pub reading: Reading,

    /// The format to write [default: weir for a file called *.weir, else coflow-benchmark]
    #[arg(long, value_enum, value_name = "FORMAT", help_heading = OUTPUT)]
    pub to: Option<TraceFormat>,

    /// Write to this file instead of the standard output; only once it is complete
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub out: Option<PathBuf>,
}

/// `weir trace convert`.
#[derive(Debug, Args)]
#[command(
    after_help = "What the format cannot say is refused, not left out. The trace unit holds for both sides.

Example:
  weir trace convert trace.txt trace.weir"
)]
pub struct Convert {
    #[command(flatten)]
    pub input: Input,

    /// The file to write, only once it is complete; `-` is the standard output
    #[arg(value_hint = ValueHint::FilePath, help_heading = None)]
    pub to_file: PathBuf,

    /// The format to write [default: weir for a file called *.weir, else coflow-benchmark]
    #[arg(long, value_enum, value_name = "FORMAT", help_heading = OUTPUT)]
    pub to: Option<TraceFormat>,

    /// Make one coflow of all coflows of one job, stage and wave (Saath, section 4.3)
    #[arg(long, help_heading = OUTPUT)]
    pub per_stage: bool,
}

/// `weir fabric`.
#[derive(Debug, Subcommand)]
pub enum Fabric {
    /// Check that a network can be read, and say what was understood
    Check(FabricCheck),
    /// Describe a network: tiers, rates, oversubscription, bisection, paths between hosts
    Describe(FabricDescribe),
    /// Write a network by a plan
    Generate(FabricGenerate),
}

/// `weir fabric check`.
#[derive(Debug, Args)]
pub struct FabricCheck {
    /// The network, in TOML; `-` is the standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub fabric: PathBuf,
}

/// `weir fabric describe`.
#[derive(Debug, Args)]
pub struct FabricDescribe {
    /// The network, in TOML; `-` is the standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub fabric: PathBuf,

    #[command(flatten)]
    pub output: Output,
}

/// `weir fabric generate`.
#[derive(Debug, Args)]
#[command(after_help = "Plans and their parameters:
  big-switch      --hosts --rate
  leaf-spine      --spines --leaves --hosts (of a leaf) --rate --oversubscription
  fat-tree        --ports --rate
  netshare-fig1, netshare-fig3, netshare-fig6, netshare-fig7, saba-tiers
  netshare-fig16  --services

Examples:
  weir fabric generate leaf-spine --spines 4 --leaves 8 --hosts 16 --rate 10Gbit --oversubscription 2
  weir fabric generate fat-tree --ports 8 --rate 10Gbit --cables --out fabric.toml")]
pub struct FabricGenerate {
    /// The plan
    #[arg(value_parser = plan_name)]
    pub plan: String,

    /// Hosts, in all or of each leaf
    #[arg(long, value_name = "N")]
    pub hosts: Option<u32>,

    /// What the hosts' links carry, each way
    #[arg(long, value_name = "RATE", value_parser = port_rate)]
    pub rate: Option<Rate>,

    /// Spine switches
    #[arg(long, value_name = "N")]
    pub spines: Option<u32>,

    /// Leaf switches
    #[arg(long, value_name = "N")]
    pub leaves: Option<u32>,

    /// What the hosts of a leaf can send over what its links to the spines carry
    #[arg(long, value_name = "RATIO")]
    pub oversubscription: Option<f64>,

    /// Ports of a switch
    #[arg(long, value_name = "N")]
    pub ports: Option<u32>,

    /// Services
    #[arg(long, value_name = "N")]
    pub services: Option<u32>,

    /// Write every cable, not the plan's parameters
    #[arg(long, help_heading = OUTPUT)]
    pub cables: bool,

    /// Write to this file instead of the standard output; only once it is complete
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub out: Option<PathBuf>,
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
    if rate.get() > 0.0 { Ok(rate) } else { Err("a port has to carry something".to_owned()) }
}

/// A scheduling interval. Zero needs no unit.
pub fn interval(text: &str) -> Result<Time, String> {
    if text == "0" {
        return Ok(Time::ZERO);
    }
    text.parse().map_err(|error| format!("{error}, or 0 to schedule whenever something happens"))
}

/// A mechanism, or all.
fn mechanism(text: &str) -> Result<Option<Mechanism>, String> {
    if text == "all" { Ok(None) } else { text.parse().map(Some).map_err(|error| format!("{error}, all")) }
}

fn plan_name(text: &str) -> Result<String, String> {
    if fabric::PLANS.contains(&text) {
        return Ok(text.to_owned());
    }
    Err(format!("no plan is called `{text}`: expected one of {}", fabric::PLANS.join(", ")))
}

fn seeds(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(seeds @ 1..=1000) => Ok(seeds),
        _ => Err("expected a whole number from 1 to 1000".to_owned()),
    }
}

/// A part of the bandwidth.
fn part(text: &str) -> Result<Fraction, String> {
    let expected = || format!("`{text}`: expected a number above 0 and up to 1");
    let value: f64 = text.parse().map_err(|_| expected())?;
    Fraction::new(value).map_err(|_| expected())
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
    match policy::build(spec) {
        Ok(_) => Ok(spec.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The policies to replay, and the place of the baseline among them. A baseline that is not among them goes first.
pub fn with_baseline(policies: &[String], baseline: Option<&String>) -> (Vec<String>, usize) {
    let mut policies = policies.to_vec();
    if policies.is_empty() {
        policies.extend(policy::TABLE.iter().map(|entry| entry.name.to_owned()));
    }
    let Some(baseline) = baseline else { return (policies, 0) };
    match policies.iter().position(|policy| policy == baseline) {
        Some(place) => (policies, place),
        None => {
            policies.insert(0, baseline.clone());
            (policies, 0)
        }
    }
}
