//! Defines the options of `weir saba`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use weir_core::saba::Fraction;

use super::{Format, INPUT_HEADING, MODEL_HEADING, OUTPUT_HEADING, Output};

/// The subcommands of `weir saba`.
#[derive(Debug, Subcommand)]
pub enum Saba {
    /// Profile simulated workloads, and fit models of their sensitivity (sections 4 and 7.1)
    Profile(SabaProfile),
    /// Compute the weights of the applications at one port (Eq. 2)
    Weights(SabaWeights),
    /// Replaced by `weir compare`
    #[command(hide = true)]
    Run {
        /// Ignored
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

/// Arguments of `weir saba profile`.
#[derive(Debug, Args)]
#[command(
    after_help = "The workloads are the ten of the paper's Table 1, as simulated jobs that are calibrated to the published figures."
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

/// Parses a fraction of the bandwidth, above 0 and up to 1.
fn parse_fraction(text: &str) -> Result<Fraction, String> {
    let expected = || format!("`{text}` is out of range; expected a number above 0 and up to 1");
    let value: f64 = text.parse().map_err(|_| expected())?;
    Fraction::new(value).map_err(|_| expected())
}
