//! `weir saba`.

use std::num::NonZeroU16;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use weir_core::saba::Fraction;
use weir_core::solve::polynomial::Degree;

use super::{Format, INPUT, OUTPUT, Output, jobs};

/// `weir saba`.
#[derive(Debug, Subcommand)]
pub enum Saba {
    /// Profile simulated workloads and fit their sensitivities (sections 4 and 7.1)
    Profile(SabaProfile),
    /// Find the weights of the applications at one port (Eq. 2)
    Weights(SabaWeights),
    /// Run simulated jobs side by side on a network, under Saba and its rivals (section 8)
    Run(SabaRun),
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

/// How links are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// Max-min between flows: the paper's baseline
    Fair,
    /// Max-min between jobs: ideal max-min (8.4, study 4)
    Applications,
    /// Priorities by the size of a flow, as Homa's (study 5)
    Homa,
    /// Priorities by Sincronia's order of the transfers under way (study 6)
    Sincronia,
    /// Saba with a central controller
    Saba,
    /// Saba with distributed controllers, whose priority levels are mapped ahead (study 7)
    SabaDistributed,
}

impl Way {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Way::Fair => "fair",
            Way::Applications => "applications",
            Way::Homa => "homa",
            Way::Sincronia => "sincronia",
            Way::Saba => "saba",
            Way::SabaDistributed => "saba-distributed",
        }
    }

    /// Whether queues and weights are Saba's.
    pub fn is_saba(self) -> bool {
        matches!(self, Way::Saba | Way::SabaDistributed)
    }
}

/// What helps call how links are shared.
const SHARING: &str = "How links are shared";

/// `weir saba run`.
#[derive(Debug, Args)]
#[command(
    after_help = "docs/jobs-format.md says what a file has: a network, workloads (the ten of the paper's Table 1, or stages of your own), and jobs on
hosts. All flows of a transfer are as fast as the slowest.

Examples:
  weir saba run examples/saba-jobs.toml
  weir saba run examples/saba-jobs.toml --sharing saba --queues 4 --floor 0.5 --format csv"
)]
pub struct SabaRun {
    /// The jobs, in TOML; `-` is the standard input
    #[arg(value_name = "JOBS", value_hint = ValueHint::FilePath)]
    pub jobs_file: PathBuf,

    /// The ways
    #[arg(long, value_name = "WAYS", value_enum, value_delimiter = ',', default_values = ["fair", "applications", "homa", "sincronia", "saba", "saba-distributed"], help_heading = SHARING)]
    pub sharing: Vec<Way>,

    /// What speed-ups are over
    #[arg(long, value_name = "WAY", value_enum, default_value = "fair", help_heading = SHARING)]
    pub baseline: Way,

    /// Queues of a port for Saba, priorities for Homa
    #[arg(long, value_name = "N", default_value = "8", value_parser = some, help_heading = SHARING)]
    pub queues: NonZeroU16,

    /// Saba's priority levels
    #[arg(long, value_name = "N", default_value = "16", value_parser = some, help_heading = SHARING)]
    pub levels: NonZeroU16,

    /// The part of each port that is Saba's (C_saba); jobs that do not comply have the last queue and the rest
    #[arg(long, value_name = "PART", default_value = "1", value_parser = part, help_heading = SHARING)]
    pub c_saba: Fraction,

    /// The least weight of a job, as a part of an even share
    #[arg(long, value_name = "PART", default_value = "0.1", value_parser = part, help_heading = SHARING)]
    pub floor: Fraction,

    /// The degree of the models, where the file names no sensitivity table
    #[arg(long, value_name = "K", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=3), help_heading = SHARING)]
    pub degree: u8,

    /// Each flow takes one of the shortest paths, by a hash with this seed (ECMP); without, flows are split evenly over all
    #[arg(long, value_name = "SEED", help_heading = INPUT)]
    pub hash: Option<u64>,

    /// How many simulations to run at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = jobs, help_heading = "Running")]
    pub jobs: usize,

    /// No progress on the standard error
    #[arg(long, short, help_heading = "Running")]
    pub quiet: bool,

    #[command(flatten)]
    pub output: Output,
}

impl SabaRun {
    /// The degree of the models.
    pub fn degree(&self) -> Degree {
        Degree::ALL[usize::from(self.degree) - 1]
    }
}

/// A number of queues or levels.
fn some(text: &str) -> Result<NonZeroU16, String> {
    let number = text.parse().ok().filter(|number: &NonZeroU16| number.get() <= 256);
    number.ok_or_else(|| format!("`{text}`: expected a whole number from 1 to 256"))
}

/// A part of the bandwidth.
fn part(text: &str) -> Result<Fraction, String> {
    let expected = || format!("`{text}`: expected a number above 0 and up to 1");
    let value: f64 = text.parse().map_err(|_| expected())?;
    Fraction::new(value).map_err(|_| expected())
}
