//! Defines the options of `weir sim`, `weir compare`, `weir sweep` and `weir explain`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use weir_core::engine::DecidesOver;
use weir_core::units::{Rate, Time};
use weir_experiment::options::{self, FabricSource, parse_interval, parse_port_rate};

use super::value::{
    PolicyList, Seeds, VariedParameter, integer_in, parse_coflow_id, parse_policy_spec, parse_seeds,
};
use super::{EXECUTION_HEADING, INPUT_HEADING, OUTPUT_HEADING, Output, ReplaySources, RunOptions};

const POLICY_HEADING: &str = "Policies";
const REPLAY_HEADING: &str = "Replay";

/// Options for the ports and the schedules of a replay.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = REPLAY_HEADING)]
pub struct ReplayOptions {
    /// The rate of each port in each direction, with a unit such as 1Gbit or 125MB/s
    /// [default: 1Gbit]
    #[arg(long, value_name = "RATE", value_parser = parse_port_rate)]
    pub port_rate: Option<Rate>,

    /// The scheduling interval, with a unit such as 8ms: policies decide at its multiples and at events of the trace. A port
    /// idles from the end of a flow to the next decision. With 0, every arrival and completion triggers a decision
    /// [default: 8ms; 0 between regions]
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub interval: Option<Time>,

    /// Merge the coflows of each job, stage and wave into one coflow if they belong to one application (Saath, section 4.3)
    #[arg(long)]
    pub per_stage: bool,
}

/// Options for a network that is more than the ports of one switch.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = REPLAY_HEADING)]
pub struct NetworkOptions {
    /// Reduce the rate of a receiving port with many senders as measured in this file, the output of
    /// `weir testbed incast --format csv`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub incast: Option<PathBuf>,

    /// The buffer of each switch port for --incast, in packets of full size
    #[arg(long, value_name = "PACKETS", value_parser = integer_in(1..=1_000_000_u32), requires = "incast")]
    pub buffer: Option<u32>,

    /// Replay over a network with links between switches or regions: a file in the fabric format, or in the wide-area format for
    /// regions. Port 0 is the first host, or the host with its name, and a port has the rate of its host's cable; ports in
    /// regions have no limit. The policies `pfp` and `django` decide over host ports only. A file of jobs or of services
    /// contains its network
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "port_rate")]
    pub fabric: Option<PathBuf>,

    /// The links of a fabric that policies decide over. With `ports`, policies see the ports of one switch, and rates are
    /// reduced where a link between switches is oversubscribed; the capacity that becomes free at ports is not reassigned.
    /// `fair` models plain TCP, which shares all links
    #[arg(long, value_enum, default_value_t = DecideOver::Links)]
    pub decide_over: DecideOver,

    /// The seed of the hash that selects one of the shortest paths for each flow [default: that of a file of services, or else 0]
    #[arg(long, value_name = "N")]
    pub path_seed: Option<u64>,

    /// Replaced by --fabric
    #[arg(long, value_name = "FILE", hide = true, value_parser = refuse_wide_area)]
    wide_area: Option<PathBuf>,

    /// The seed of the random bandwidths between regions; all policies are replayed with the same bandwidths [default: 1]
    #[arg(long, value_name = "N", requires = "fabric")]
    pub bandwidth_seed: Option<u64>,
}

impl NetworkOptions {
    /// The requested network, with the ports and the interval of `replay`.
    pub fn requested(&self, replay: &ReplayOptions) -> options::NetworkOptions {
        options::NetworkOptions {
            port_rate: replay.port_rate,
            interval: replay.interval,
            incast: self.incast.clone(),
            buffer: self.buffer,
            varied_buffer: None,
            fabric: self.fabric.clone().map(FabricSource::File),
            decide_over: self.decide_over.into(),
            path_seed: self.path_seed,
            bandwidth_seed: self.bandwidth_seed,
        }
    }
}

/// Refuses the former option for regions.
fn refuse_wide_area(_: &str) -> Result<PathBuf, String> {
    Err("expected `--fabric FILE`, which accepts regions too".to_owned())
}

/// The links that policies decide over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DecideOver {
    Links,
    Ports,
}

impl From<DecideOver> for DecidesOver {
    fn from(over: DecideOver) -> DecidesOver {
        match over {
            DecideOver::Links => DecidesOver::Links,
            DecideOver::Ports => DecidesOver::Ports,
        }
    }
}

/// Options of every command that replays a trace under several policies or parameters.
#[derive(Debug, Args)]
pub struct Experiment {
    #[command(flatten)]
    pub input: ReplaySources,

    #[command(flatten)]
    pub replay: ReplayOptions,

    #[command(flatten)]
    pub network: NetworkOptions,

    #[command(flatten)]
    pub run_options: RunOptions,

    #[command(flatten)]
    pub output: Output,

    /// Omit measured times; the same input then gives the same bytes
    #[arg(long, help_heading = OUTPUT_HEADING)]
    pub no_timing: bool,
}

/// Options for files with one line per coflow, flow or link: CSV, or JSON if their name ends in `.json`.
#[derive(Debug, Args)]
#[command(next_help_heading = OUTPUT_HEADING)]
pub struct DetailFiles {
    /// Also write a line for each policy and coflow: policy,coflow,job,stage,arrival_s,released_s,width,bytes,dropped_bytes,cct_s,end_s,
    /// alone_s,slowdown,service,application,weight,deadline_s,deadline; `-` is the standard output. This file and the next ones are CSV, or
    /// JSON if their names end in .json
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub per_coflow: Option<PathBuf>,

    /// Also write a line for each policy and flow: policy,coflow,flow,src,dst,bytes,fct_s,start_s,end_s,alone_s,slowdown,service,
    /// application,weight,deadline_s,deadline,path; `-` is the standard output. Flow completion times (fct_s) count from the release of the
    /// coflow, and slowdowns from the time when the flow's data exists
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub per_flow: Option<PathBuf>,

    /// Also write times and slowdowns by size, width and length of coflows, and by size of flows, in bins of a factor of 10:
    /// policy,kind,from,to,count,bytes,mean_s,p50_s,p99_s,mean_slowdown,p50_slowdown,p95_slowdown,p99_slowdown,p999_slowdown; `-` is the
    /// standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub per_bin: Option<PathBuf>,

    /// Also write a line for each policy and group of coflows, by service, application, weight and deadline (met, missed or rejected):
    /// policy,kind,group,coflows,bytes,mean_cct_s,p50_cct_s,p90_cct_s,p95_cct_s,p99_cct_s; `-` is the standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub per_group: Option<PathBuf>,

    /// Also write a line for each policy and job: policy,job,start_s,end_s,time_s,alone_s,slowdown; `-` is the standard output. The time
    /// alone is that under `fair`, for jobs of a file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub per_job: Option<PathBuf>,

    /// Also write a line for each policy and active interval of a demand of services: policy,service,demand,coflow,from_s,to_s,
    /// connections,bytes,mean_bit_per_s; `-` is the standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub per_demand: Option<PathBuf>,

    /// Also write a line for each policy and link: policy,kind,link,utilization,peak_utilization; `-` is the standard output. The kind
    /// is `send` or `receive` for the sides of ports, which have numbers, or `trunk` for links between switches or regions, named by
    /// their ends. The peak is the highest value of --per-link-time
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub per_link: Option<PathBuf>,

    /// Also write a line for each policy, link and part of the time: policy,kind,link,from_s,to_s,utilization; `-` is the standard
    /// output. The replay is divided into at most 128 parts of equal length
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub per_link_time: Option<PathBuf>,
}

/// The option for a file of trace events.
#[derive(Debug, Args)]
#[command(next_help_heading = OUTPUT_HEADING)]
pub struct TraceEventsFile {
    /// Also write the schedule as trace events, for Perfetto (ui.perfetto.dev) or chrome://tracing: a track for each coflow with the
    /// rules that served it, and the rates of coflows and links. Long replays are sampled
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub trace_events: Option<PathBuf>,
}

/// Arguments of `weir sim`.
#[derive(Debug, Args)]
pub struct Sim {
    /// The policy and its parameters: NAME[:KEY=VALUE...], or a policy tree: tree:FILE. `weir policies` lists all policies
    #[arg(long, help_heading = POLICY_HEADING, value_name = "POLICY", value_parser = parse_policy_spec)]
    pub policy: String,

    #[command(flatten)]
    pub experiment: Experiment,

    #[command(flatten)]
    pub details: DetailFiles,

    #[command(flatten)]
    pub events: TraceEventsFile,
}

/// Arguments of `weir compare`.
#[derive(Debug, Args)]
#[command(
    after_help = "A speedup is the completion time of one coflow under the baseline divided by its time under the policy: above 1 is \
better. The speedup of a coflow that takes no time under both is 1; a coflow that takes no time under one of them is excluded.

By default, policies that share between applications are compared only if the trace has several applications."
)]
pub struct Compare {
    /// The policies and their parameters, separated by commas: NAME[:KEY=VALUE...] or tree:FILE [default: the policies that
    /// `weir policies` lists for the network and that fit the trace]
    #[arg(long, help_heading = POLICY_HEADING, value_name = "POLICIES")]
    pub policies: Vec<PolicyList>,

    /// The policy that speedups refer to, which is replayed too if it is not among the policies [default: the first policy]
    #[arg(long, help_heading = POLICY_HEADING, value_name = "POLICY", value_parser = parse_policy_spec)]
    pub baseline: Option<String>,

    #[command(flatten)]
    pub experiment: Experiment,

    /// Keep the outcomes of finished replays in this file, and do not repeat the replays that it has: a comparison that was
    /// interrupted continues. The inputs and options must be the same, the policies and outputs may differ
    #[arg(long, help_heading = EXECUTION_HEADING, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub resume: Option<PathBuf>,

    /// Print all columns, in two tables; JSON and CSV always contain all columns
    #[arg(long, help_heading = OUTPUT_HEADING)]
    pub wide: bool,

    #[command(flatten)]
    pub details: DetailFiles,

    /// Also write a report with figures: one HTML file, which needs no network
    #[arg(long, help_heading = OUTPUT_HEADING, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub report: Option<PathBuf>,
}

/// Arguments of `weir sweep`.
#[derive(Debug, Args)]
#[command(after_help = "Parameters to vary: any parameter of the policies (`weir policies NAME`), and
  interval=TIME,...    the scheduling interval
  arrival=FACTOR,...   the factor by which coflows arrive faster (Saath, Fig. 14d)
  port-rate=RATE,...   the rate of each port, without --fabric
  buffer=PACKETS,...   the buffer of each port, with --incast; replaces --buffer
  path-seed=N,...      the seed of the hash that selects paths
  bandwidth-seed=N,... the seed of the random bandwidths between regions

A key such as saath:start is varied for this policy only. A policy without the parameter is replayed once, for comparison; \
at least one policy must have it. Several traces are replayed one by one. Speedups refer to the \
baseline at the same values, or with --fixed-baseline to the baseline with unvaried parameters.")]
pub struct Sweep {
    /// The policies and their parameters, separated by commas: NAME[:KEY=VALUE...] or tree:FILE
    #[arg(long, help_heading = POLICY_HEADING, value_name = "POLICIES", required = true)]
    pub policies: Vec<PolicyList>,

    /// The policy that speedups refer to [default: the first policy]
    #[arg(long, help_heading = POLICY_HEADING, value_name = "POLICY", value_parser = parse_policy_spec)]
    pub baseline: Option<String>,

    /// Compute speedups over the baseline with unvaried parameters, as in Fig. 14 of the Saath paper
    #[arg(long, help_heading = POLICY_HEADING)]
    pub fixed_baseline: bool,

    /// A parameter to vary and its values; a second --vary replays all combinations. A value such as 1..4 stands for the whole numbers
    /// from 1 to 4
    #[arg(long, help_heading = POLICY_HEADING, value_name = "KEY=V1,V2,...")]
    pub vary: Vec<VariedParameter>,

    /// Replay under each of these seeds of paths over a fabric, or of bandwidths between regions, in addition to --vary: a range such as
    /// 1..20, which contains both ends, or a list
    #[arg(long, help_heading = POLICY_HEADING, value_name = "SEEDS", value_parser = parse_seeds)]
    pub seeds: Option<Seeds>,

    /// Combine the results of all traces and seeds: means with 95 % confidence intervals over traces, each averaged over its seeds
    /// first; with one trace over its seeds
    #[arg(long, help_heading = OUTPUT_HEADING)]
    pub confidence: bool,

    /// Also write a line for each replay and coflow, with the varied values and the columns of `weir sim --per-coflow`; `-` is the
    /// standard output. The file is CSV, or JSON if its name ends in .json
    #[arg(long, help_heading = OUTPUT_HEADING, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub per_coflow: Option<PathBuf>,

    /// Also write a report with figures: one HTML file, which needs no network
    #[arg(long, help_heading = OUTPUT_HEADING, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub report: Option<PathBuf>,

    #[command(flatten)]
    pub experiment: Experiment,
}

/// Arguments of `weir explain`.
#[derive(Debug, Args)]
#[command(
    after_help = "The table's time line counts from the release of the coflow. CSV and JSON have that time as since_release_s. Their \
from_s, to_s, arrival_s and end_s count from the start of the trace."
)]
pub struct Explain {
    #[command(flatten)]
    pub input: ReplaySources,

    /// The policy and its parameters: NAME[:KEY=VALUE...], or a policy tree: tree:FILE
    #[arg(long, help_heading = POLICY_HEADING, value_name = "POLICY", value_parser = parse_policy_spec)]
    pub policy: String,

    /// The number of the coflow in the trace. Those of jobs and of services follow; `--per-coflow` and `--per-demand` list them
    #[arg(long, help_heading = INPUT_HEADING, value_name = "ID", value_parser = parse_coflow_id, required_unless_present = "slowest")]
    pub coflow: Option<u64>,

    /// Explain the N coflows with the longest completion times, the longest first; JSON is a list, and CSV has the coflow in each line
    #[arg(long, help_heading = INPUT_HEADING, value_name = "N", value_parser = integer_in(1..=1000_usize), conflicts_with_all = ["coflow", "report", "trace_events"])]
    pub slowest: Option<usize>,

    /// Show every segment of the time line [default: merge short segments into their neighbours]
    #[arg(long, help_heading = OUTPUT_HEADING)]
    pub all: bool,

    #[command(flatten)]
    pub replay: ReplayOptions,

    #[command(flatten)]
    pub network: NetworkOptions,

    /// Show no progress bar; a bar needs a terminal as standard error
    #[arg(long, short, help_heading = EXECUTION_HEADING)]
    pub quiet: bool,

    #[command(flatten)]
    pub output: Output,

    /// Also write a report with a figure: one HTML file, which needs no network
    #[arg(long, help_heading = OUTPUT_HEADING, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub report: Option<PathBuf>,

    #[command(flatten)]
    pub events: TraceEventsFile,
}
