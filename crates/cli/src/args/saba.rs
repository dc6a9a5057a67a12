//! Defines the options of `weir saba`.

use std::num::NonZeroU16;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use weir_core::saba::Fraction;

use super::{Format, INPUT_HEADING, MODEL_HEADING, OUTPUT_HEADING, Output, RunOptions, SHARING_HEADING};

/// The subcommands of `weir saba`.
#[derive(Debug, Subcommand)]
pub enum Saba {
    /// Profile simulated workloads, and fit models of their sensitivity (sections 4 and 7.1)
    Profile(SabaProfile),
    /// Compute the weights of the applications at one port (Eq. 2)
    Weights(SabaWeights),
    /// Simulate jobs on one network, under Saba and its rivals (section 8)
    Run(SabaRun),
}

/// Arguments of `weir saba profile`.
#[derive(Debug, Args)]
#[command(
    after_help = "The workloads are the ten of the paper's Table 1, as simulated jobs that are calibrated to the published figures.

Examples:
  weir saba profile --out table.toml
  weir saba profile --workload LR,SQL --degree 2"
)]
pub struct SabaProfile {
    /// The names of the workloads, separated by commas, or `all`
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "all", help_heading = INPUT_HEADING)]
    pub workload: Vec<String>,

    /// The degree of the models in the sensitivity table, 1 to 3
    #[arg(long, value_name = "K", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=3), help_heading = MODEL_HEADING)]
    pub degree: u8,

    /// Write the sensitivity table to this file; the file appears once it is complete
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT_HEADING)]
    pub out: Option<PathBuf>,

    /// The format of the printed profiles
    #[arg(long, value_enum, default_value_t = Format::Table, help_heading = OUTPUT_HEADING)]
    pub format: Format,
}

/// Options for Saba's weights.
#[derive(Debug, Clone, Copy, Args)]
pub struct SabaWeightOptions {
    /// The fraction of each port that Saba divides (C_saba), above 0 and up to 1; applications without a model share the rest
    #[arg(long, value_name = "FRACTION", default_value = "1", value_parser = parse_fraction)]
    pub c_saba: Fraction,

    /// The minimum weight of an application, as a fraction of an even share, above 0 and up to 1
    #[arg(long, value_name = "FRACTION", default_value = "0.1", value_parser = parse_fraction)]
    pub floor: Fraction,
}

/// Arguments of `weir saba weights`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  weir saba weights table.toml --apps LR,PR
  weir saba weights table.toml --apps LR,SQL,SQL,Sort --c-saba 0.8 --format json")]
pub struct SabaWeights {
    /// The sensitivity table
    #[arg(value_hint = ValueHint::FilePath)]
    pub table: PathBuf,

    /// The names of the applications at the port in the table; a repeated name stands for several applications
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true, help_heading = INPUT_HEADING)]
    pub apps: Vec<String>,

    #[command(flatten, next_help_heading = INPUT_HEADING)]
    pub weight_options: SabaWeightOptions,

    #[command(flatten)]
    pub output: Output,
}

/// How simulated jobs share links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SharingMode {
    /// Max-min between flows: the paper's baseline
    Fair,
    /// Max-min between applications: ideal max-min fairness (study 4)
    Applications,
    /// Strict priorities by the size of flows (study 5)
    Homa,
    /// Strict priorities by Sincronia's order of transfers (study 6)
    Sincronia,
    /// Queues and weights from a central controller
    Saba,
    /// Queues and weights from distributed controllers (section 5.4)
    SabaDistributed,
}

impl SharingMode {
    /// The name of the mode on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().expect("no variant is marked `#[value(skip)]`").get_name().to_owned()
    }

    /// Whether Saba configures queues and weights in this mode.
    pub fn is_saba(self) -> bool {
        matches!(self, SharingMode::Saba | SharingMode::SabaDistributed)
    }
}

/// Arguments of `weir saba run`.
#[derive(Debug, Args)]
#[command(
    after_help = "docs/jobs-format.md describes the file: a network, workloads (the ten of the paper's Table 1, or your own stages), and jobs on
hosts. All flows of a transfer have the rate of the slowest.

Examples:
  weir saba run examples/saba-jobs.toml
  weir saba run examples/saba-jobs.toml --sharing saba --queues 4 --floor 0.5 --format csv"
)]
pub struct SabaRun {
    /// The jobs, in TOML; `-` is the standard input
    #[arg(value_name = "JOBS", value_hint = ValueHint::FilePath)]
    pub jobs_file: PathBuf,

    /// The modes of sharing to compare, separated by commas
    #[arg(long, value_name = "MODES", value_enum, value_delimiter = ',', default_values = ["fair", "applications", "homa", "sincronia", "saba", "saba-distributed"], help_heading = SHARING_HEADING)]
    pub sharing: Vec<SharingMode>,

    /// The mode that speedups refer to
    #[arg(long, value_name = "MODE", value_enum, default_value = "fair", help_heading = SHARING_HEADING)]
    pub baseline: SharingMode,

    /// The number of queues of each port for Saba, and of priorities for Homa, 1 to 256
    #[arg(long, value_name = "N", default_value = "8", value_parser = parse_up_to_256, help_heading = SHARING_HEADING)]
    pub queues: NonZeroU16,

    /// The number of Saba's priority levels, 1 to 256
    #[arg(long, value_name = "N", default_value = "16", value_parser = parse_up_to_256, help_heading = SHARING_HEADING)]
    pub levels: NonZeroU16,

    #[command(flatten, next_help_heading = SHARING_HEADING)]
    pub weight_options: SabaWeightOptions,

    /// The degree of the models, 1 to 3, if the file names no sensitivity table
    #[arg(long, value_name = "K", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=3), help_heading = SHARING_HEADING)]
    pub degree: u8,

    /// Send each flow over one shortest path, selected by a hash with this seed (ECMP) [default: split flows evenly over all]
    #[arg(long, value_name = "SEED", help_heading = SHARING_HEADING)]
    pub hash: Option<u64>,

    #[command(flatten)]
    pub run_options: RunOptions,

    #[command(flatten)]
    pub output: Output,
}

/// Parses a number of queues or levels, 1 to 256.
fn parse_up_to_256(text: &str) -> Result<NonZeroU16, String> {
    let number = text.parse().ok().filter(|number: &NonZeroU16| number.get() <= 256);
    number.ok_or_else(|| format!("`{text}`: expected a whole number from 1 to 256"))
}

/// Parses a fraction of the bandwidth, above 0 and up to 1.
fn parse_fraction(text: &str) -> Result<Fraction, String> {
    let expected = || format!("`{text}` is out of range; expected a number above 0 and up to 1");
    let value: f64 = text.parse().map_err(|_| expected())?;
    Fraction::new(value).map_err(|_| expected())
}
