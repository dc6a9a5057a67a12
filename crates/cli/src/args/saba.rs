//! `weir saba`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use weir_core::saba::Fraction;

use super::{Format, INPUT, OUTPUT, Output};

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

/// A part of the bandwidth.
fn part(text: &str) -> Result<Fraction, String> {
    let expected = || format!("`{text}`: expected a number above 0 and up to 1");
    let value: f64 = text.parse().map_err(|_| expected())?;
    Fraction::new(value).map_err(|_| expected())
}
