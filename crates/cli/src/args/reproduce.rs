//! Defines the options of `weir reproduce`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use weir_core::units::{Rate, Time};
#[cfg(all(feature = "live", target_os = "linux"))]
use weir_papers::live::{Experiment, MAX_COFLOWS};
use weir_papers::{composition, django, fabrics, netshare, own_policy, saath, saba, siphon};

#[cfg(all(feature = "live", target_os = "linux"))]
use super::EXECUTION_HEADING;
use super::{
    INPUT_HEADING, OUTPUT_HEADING, ReadOptions, RunOptions, parse_interval, parse_port_rate, parse_up_to_1000,
};

const EVALUATION_HEADING: &str = "Evaluation";

/// The subcommands of `weir reproduce`.
#[derive(Debug, Subcommand)]
pub enum Reproduce {
    /// Saath (CoNEXT '17): simulations on the public trace
    Saath(SaathReproduction),
    /// NetShare (UCSD 2010): examples and experiments
    Netshare(NetshareReproduction),
    /// Saba (EuroSys '23): sensitivity models, testbed, simulations and controller
    Saba(SabaReproduction),
    /// Siphon (ATC '18): orders of coflows, detours and flow groups
    Siphon(SiphonReproduction),
    /// Django (JPDC '21): the best number of connections, its prediction, and replays compared with Aalo+ and DCTCP
    Django(DjangoReproduction),
    /// The gain of each level of a policy tree: services, applications, coflows
    Composition(CompositionReproduction),
    /// Decisions over the links between switches compared with decisions over ports
    Fabrics(FabricsReproduction),
    /// Weir's own policy compared with those of the papers
    Weir(WeirReproduction),
    /// Real traffic over the testbed, compared with the papers and the simulator; needs root
    #[cfg(all(feature = "live", target_os = "linux"))]
    Live(LiveReproduction),
    /// Django, Aalo+ and DCTCP on real traffic, compared with the paper and the simulator; needs root
    #[cfg(all(feature = "live", target_os = "linux"))]
    DjangoLive(DjangoLiveReproduction),
}

/// Options for running an evaluation and writing its page.
#[derive(Debug, Args)]
pub struct PageOptions {
    #[command(flatten)]
    pub run_options: RunOptions,

    /// Write the page to this file, and its pictures as SVG to the folder `figures` next to it; a file appears once it is complete.
    /// Without this option, the page has no pictures and goes to the standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT_HEADING)]
    pub out: Option<PathBuf>,
}

/// Options for the trace of an evaluation.
#[derive(Debug, Args)]
pub struct ReplayInput {
    /// The trace, in the coflow-benchmark format or in Weir's own
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = INPUT_HEADING)]
    pub trace: PathBuf,

    #[command(flatten)]
    pub read_options: ReadOptions,
}

/// Arguments of `weir reproduce netshare`.
#[derive(Debug, Args)]
pub struct NetshareReproduction {
    /// The number of seeds of the hash that selects paths; figures that depend on paths are means over them
    #[arg(long, help_heading = EVALUATION_HEADING, value_name = "N", default_value_t = netshare::DEFAULT_SEEDS, value_parser = parse_up_to_1000)]
    pub seeds: u64,

    #[command(flatten)]
    pub page_options: PageOptions,
}

/// Arguments of `weir reproduce saba`.
#[derive(Debug, Args)]
#[command(
    after_help = "Workloads are simulated, so no trace is needed. The controller's processor time (Fig. 12) takes three minutes."
)]
pub struct SabaReproduction {
    /// The number of random cluster setups (section 8.2)
    #[arg(long, help_heading = EVALUATION_HEADING, value_name = "N", default_value_t = saba::DEFAULT_SETUPS, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub setups: u32,

    /// The seed of the random setups
    #[arg(long, help_heading = EVALUATION_HEADING, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    #[command(flatten)]
    pub page_options: PageOptions,

    /// Omit processor times; the same input then gives the same bytes
    #[arg(long, help_heading = OUTPUT_HEADING)]
    pub no_timing: bool,
}

/// Arguments of `weir reproduce siphon`.
#[derive(Debug, Args)]
pub struct SiphonReproduction {
    #[command(flatten)]
    pub input: ReplayInput,

    /// The number of seeds of bandwidths, searches and tasks; a confidence interval needs at least two
    #[arg(long, help_heading = EVALUATION_HEADING, value_name = "N", default_value_t = siphon::DEFAULT_SEEDS, value_parser = clap::value_parser!(u64).range(2..=1000))]
    pub seeds: u64,

    #[command(flatten)]
    pub page_options: PageOptions,
}

/// Arguments of `weir reproduce django`.
#[derive(Debug, Args)]
pub struct DjangoReproduction {
    #[command(flatten)]
    pub input: ReplayInput,

    /// The number of random coflows for Fig. 2
    #[arg(long, help_heading = EVALUATION_HEADING, value_name = "N", default_value_t = django::DEFAULT_SEEDS, value_parser = parse_up_to_1000)]
    pub seeds: u64,

    #[command(flatten)]
    pub page_options: PageOptions,

    /// Omit processor times; the same input then gives the same bytes
    #[arg(long, help_heading = OUTPUT_HEADING)]
    pub no_timing: bool,
}

/// Arguments of `weir reproduce composition`.
#[derive(Debug, Args)]
pub struct CompositionReproduction {
    /// The number of generated workloads; figures are means over them
    #[arg(long, help_heading = EVALUATION_HEADING, value_name = "N", default_value_t = composition::DEFAULT_SEEDS, value_parser = parse_up_to_1000)]
    pub seeds: u64,

    #[command(flatten)]
    pub page_options: PageOptions,
}

/// Arguments of `weir reproduce fabrics`.
#[derive(Debug, Args)]
pub struct FabricsReproduction {
    /// The number of generated workloads; a confidence interval needs at least two
    #[arg(long, help_heading = EVALUATION_HEADING, value_name = "N", default_value_t = fabrics::DEFAULT_SEEDS, value_parser = clap::value_parser!(u64).range(2..=1000))]
    pub seeds: u64,

    #[command(flatten)]
    pub page_options: PageOptions,
}

/// Arguments of `weir reproduce weir`.
#[derive(Debug, Args)]
pub struct WeirReproduction {
    /// The trace, in the coflow-benchmark format or in Weir's own; not needed with --priors, or with --only for generated families
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = INPUT_HEADING, required_unless_present_any = ["priors", "only"])]
    pub trace: Option<PathBuf>,

    #[command(flatten)]
    pub read_options: ReadOptions,

    /// The number of generated workloads of each kind; a confidence interval needs at least two
    #[arg(long, help_heading = EVALUATION_HEADING, value_name = "N", default_value_t = own_policy::DEFAULT_SEEDS, value_parser = clap::value_parser!(u64).range(2..=1000))]
    pub seeds: u64,

    /// The seed of the first generated workload; the others have the next seeds
    #[arg(long, help_heading = EVALUATION_HEADING, value_name = "N", default_value_t = own_policy::DEFAULT_FIRST_SEED, value_parser = clap::value_parser!(u64).range(..1_000_000_000))]
    pub first_seed: u64,

    /// Write only the families of workloads whose names contain this text, in any case, and no sections about variants, priors and
    /// constants; can be repeated
    #[arg(long, help_heading = EVALUATION_HEADING, value_name = "FAMILY")]
    pub only: Vec<String>,

    /// Write only the section about priors, which needs no trace and takes half a minute of processor time
    #[arg(long, help_heading = EVALUATION_HEADING, conflicts_with_all = ["trace", "only"])]
    pub priors: bool,

    #[command(flatten)]
    pub page_options: PageOptions,
}

/// Arguments of `weir reproduce live`.
#[cfg(all(feature = "live", target_os = "linux"))]
#[derive(Debug, Args)]
#[command(
    after_help = "The command needs the requirements that `weir testbed check` lists. It runs in real time, which takes an hour."
)]
pub struct LiveReproduction {
    /// The experiments to run: netshare (NetShare, section 5.3), slice (coflows on one switch), fabric (coflows over leaves), saba
    /// (profiled jobs), programs (unmodified programs in cgroups), overheads (Saath's Table 2) [default: all]
    #[arg(long, help_heading = EVALUATION_HEADING, value_name = "NAME", value_delimiter = ',')]
    pub only: Vec<Experiment>,

    /// The duration of each phase of NetShare's experiment, 1s to 120s; the paper has 30 s
    #[arg(long, help_heading = EVALUATION_HEADING, value_name = "TIME", default_value = "30s", value_parser = parse_phase)]
    pub phase: Time,

    /// The number of coflows of the slice to send; of the fabric at most 16
    #[arg(long, help_heading = EVALUATION_HEADING, value_name = "N", default_value_t = MAX_COFLOWS as u64, value_parser = clap::value_parser!(u64).range(2..=MAX_COFLOWS as u64))]
    pub coflows: u64,

    /// The fraction of the bytes of slice and fabric, and of the times between their coflows, 0.1 to 1
    #[arg(long, help_heading = EVALUATION_HEADING, value_name = "FRACTION", default_value = "1", value_parser = parse_volume)]
    pub volume: f64,

    #[command(flatten)]
    pub testbed: super::testbed::TestbedName,

    /// Show no progress bar; a bar needs a terminal as standard error
    #[arg(long, short, help_heading = EXECUTION_HEADING)]
    pub quiet: bool,

    /// Write the page to this file instead of the standard output; the file appears once it is complete
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT_HEADING)]
    pub out: Option<PathBuf>,
}

/// Arguments of `weir reproduce django-live`.
#[cfg(all(feature = "live", target_os = "linux"))]
#[derive(Debug, Args)]
#[command(
    after_help = "The command needs the requirements that `weir testbed check` lists, and clang at the build on kernels without DCTCP. It runs \
in real time, which takes up to an hour."
)]
pub struct DjangoLiveReproduction {
    #[command(flatten)]
    pub input: ReplayInput,

    /// The number of coflows of the trace to send, from its start; in each setup
    #[arg(long, help_heading = EVALUATION_HEADING, value_name = "N", default_value_t = django::live::DEFAULT_COFLOWS as u64, value_parser = clap::value_parser!(u64).range(2..=1000))]
    pub coflows: u64,

    #[command(flatten)]
    pub testbed: super::testbed::TestbedName,

    /// Show no progress bar; a bar needs a terminal as standard error
    #[arg(long, short, help_heading = EXECUTION_HEADING)]
    pub quiet: bool,

    /// Write the page to this file instead of the standard output; the file appears once it is complete
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT_HEADING)]
    pub out: Option<PathBuf>,
}

/// Arguments of `weir reproduce saath`.
#[derive(Debug, Args)]
pub struct SaathReproduction {
    #[command(flatten)]
    pub input: ReplayInput,

    /// The rate of each port in each direction, with a unit such as 1Gbit or 125MB/s
    #[arg(long, value_name = "RATE", default_value = "1Gbit", value_parser = parse_port_rate, help_heading = "Replay")]
    pub port_rate: Rate,

    /// The scheduling interval, with a unit such as 8ms, except in the sweep over intervals
    #[arg(long, value_name = "TIME", default_value = "8ms", value_parser = parse_interval, help_heading = "Replay")]
    pub interval: Time,

    /// The number of generated workloads for the estimated flow lengths of section 4.3
    #[arg(long, value_name = "N", default_value_t = saath::DEFAULT_SEEDS, value_parser = parse_up_to_1000, help_heading = "Replay")]
    pub seeds: u64,

    #[command(flatten)]
    pub page_options: PageOptions,

    /// Omit processor times; the same input then gives the same bytes
    #[arg(long, help_heading = OUTPUT_HEADING)]
    pub no_timing: bool,
}

/// Parses the duration of a phase. TCP needs a second to settle, and with 120 s the page takes an hour.
#[cfg(all(feature = "live", target_os = "linux"))]
fn parse_phase(text: &str) -> Result<Time, String> {
    let time: Time = text.parse().map_err(|error| format!("{error}"))?;
    if (1.0..=120.0).contains(&time.get()) { Ok(time) } else { Err(format!("`{text}`: expected 1s to 120s")) }
}

#[cfg(all(feature = "live", target_os = "linux"))]
fn parse_volume(text: &str) -> Result<f64, String> {
    let volume = text.parse().ok().filter(|volume| (0.1..=1.0).contains(volume));
    volume.ok_or_else(|| format!("`{text}`: expected 0.1 to 1"))
}
