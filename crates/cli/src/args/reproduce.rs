//! `weir reproduce`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use weir_core::units::{Rate, Time};

use super::{INPUT, OUTPUT, Reading, Running, interval, port_rate};

/// `weir reproduce`.
#[derive(Debug, Subcommand)]
pub enum Reproduce {
    /// The simulations of Saath (CoNEXT '17), and what accounts for the differences
    Saath(Reproduction),
    /// The examples and experiments of NetShare (UCSD 2010), and what accounts for the differences
    Netshare(NetshareReproduction),
    /// The sensitivity models, the testbed, the simulations and the controller of Saba (EuroSys '23), and what accounts for the differences
    Saba(SabaReproduction),
    /// Orders of coflows, detours and flow groups of Siphon (ATC '18), and what accounts for the differences
    Siphon(SiphonReproduction),
    /// How many connections are best, how often that is predicted, and Django beside Aalo+ and DCTCP (JPDC '21), and what accounts for the differences
    Django(DjangoReproduction),
    /// What each level of a policy tree adds: services, applications, coflows
    Composition(CompositionReproduction),
    /// Real traffic over the testbed, beside what papers and the simulator say of it; needs root
    #[cfg(target_os = "linux")]
    Live(LiveReproduction),
}

/// How to make a document, and where it goes.
#[derive(Debug, Args)]
pub struct Making {
    #[command(flatten)]
    pub running: Running,

    /// Write the document to this file instead of the standard output; only once it is complete
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub out: Option<PathBuf>,
}

/// `weir reproduce netshare`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  weir reproduce netshare --out docs/results/netshare.md")]
pub struct NetshareReproduction {
    /// Ways to hash connections to paths, over which numbers that depend on them are averaged
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = up_to_1000)]
    pub seeds: u64,

    #[command(flatten)]
    pub making: Making,
}

/// `weir reproduce saba`.
#[derive(Debug, Args)]
#[command(
    after_help = "It needs no trace: the workloads are simulated, on the testbed's 32 servers (Fig. 8 and 9) and on 1,944 servers
under Saba, ideal max-min, Homa-like priorities and Sincronia (Fig. 10 and 11). The time that the controller
takes (Fig. 12) is processor time, which no two runs agree on, and takes ten minutes. The 500 setups of the paper take some more.

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
    pub making: Making,

    /// Leave out what a clock measured, so that the same input gives the same bytes
    #[arg(long, help_heading = OUTPUT)]
    pub no_timing: bool,
}

/// Seeds of `weir reproduce siphon`.
pub const SIPHON_SEEDS: u64 = 5;

/// `weir reproduce siphon`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  weir reproduce siphon --trace FB2010-1Hr-150-0.txt --out docs/results/siphon.md --jobs 2")]
pub struct SiphonReproduction {
    /// The trace, in the coflow-benchmark format or in Weir's own
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = INPUT)]
    pub trace: PathBuf,

    #[command(flatten)]
    pub reading: Reading,

    /// How many seeds to draw bandwidths, searches and tasks by; intervals need two
    #[arg(long, value_name = "N", default_value_t = SIPHON_SEEDS, value_parser = clap::value_parser!(u64).range(2..=1000))]
    pub seeds: u64,

    #[command(flatten)]
    pub making: Making,
}

/// Seeds of `weir reproduce django`.
pub const DJANGO_SEEDS: u64 = 10;

/// `weir reproduce django`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  weir reproduce django --trace FB2010-1Hr-150-0.txt --out docs/results/django.md --jobs 2")]
pub struct DjangoReproduction {
    /// The trace, in the coflow-benchmark format or in Weir's own
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = INPUT)]
    pub trace: PathBuf,

    #[command(flatten)]
    pub reading: Reading,

    /// How many coflows to draw for Fig. 2
    #[arg(long, value_name = "N", default_value_t = DJANGO_SEEDS, value_parser = up_to_1000)]
    pub seeds: u64,

    #[command(flatten)]
    pub making: Making,

    /// Leave out what a clock measured, so that the same input gives the same bytes
    #[arg(long, help_heading = OUTPUT)]
    pub no_timing: bool,
}

/// `weir reproduce composition`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  weir reproduce composition --out docs/results/composition.md")]
pub struct CompositionReproduction {
    /// How many workloads to generate and take means over
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = up_to_1000)]
    pub seeds: u64,

    #[command(flatten)]
    pub making: Making,
}

/// An experiment with real traffic.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Experiment {
    /// NetShare's section 5.3
    Netshare,
    /// A slice of coflows under plain TCP, Aalo and Saath
    Slice,
    /// Jobs that are profiled, under equal shares and under Saba
    Saba,
    /// Unmodified programs in cgroups, their classes and their shares
    Programs,
    /// What a coordinator and agents take, beside Saath's Table 2, and how many agents there may be
    Overheads,
}

/// `weir reproduce live`.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
#[command(after_help = "It needs what `weir testbed check` asks for, and runs in real time: half an hour.

Example:
  weir reproduce live --out docs/results/live.md")]
pub struct LiveReproduction {
    /// Which of the experiments to do
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "netshare,slice,saba,programs,overheads"
    )]
    pub only: Vec<Experiment>,

    /// How long each phase of NetShare's experiment takes; the paper's take 30 s
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = phase)]
    pub phase: Time,

    /// How many coflows of the slice to send, the first ones
    #[arg(long, value_name = "N", default_value_t = 48, value_parser = clap::value_parser!(u64).range(2..=48))]
    pub coflows: u64,

    #[command(flatten)]
    pub bed: super::testbed::Bed,

    /// No progress on the standard error
    #[arg(long, short, help_heading = "Running")]
    pub quiet: bool,

    /// Write the document to this file instead of the standard output; only once it is complete
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub out: Option<PathBuf>,
}

/// `weir reproduce saath`.
#[derive(Debug, Args)]
#[command(
    after_help = "It replays the trace more than a thousand times: about half an hour for the public one, on two cores.

Example:
  weir reproduce saath --trace FB2010-1Hr-150-0.txt --out docs/results/saath.md --jobs 2"
)]
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
    pub making: Making,

    /// Leave out what a clock measured, so that the same input gives the same bytes
    #[arg(long, help_heading = OUTPUT)]
    pub no_timing: bool,
}

pub fn up_to_1000(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(count @ 1..=1000) => Ok(count),
        _ => Err("expected a whole number from 1 to 1000".to_owned()),
    }
}

/// Long enough for TCP to settle, and a document within the hour.
#[cfg(target_os = "linux")]
fn phase(text: &str) -> Result<Time, String> {
    let time: Time = text.parse().map_err(|error| format!("{error}"))?;
    if (1.0..=120.0).contains(&time.get()) { Ok(time) } else { Err(format!("`{text}`: expected 1s to 120s")) }
}
