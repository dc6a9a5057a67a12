//! Defines the options of `weir predict`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use weir_predict::{Loss, MAX_PARAMETER, TrainingSettings};

use super::{Format, INPUT_HEADING, OUTPUT_HEADING, Output};

/// The subcommands of `weir predict`.
#[derive(Debug, Subcommand)]
pub enum Predict {
    /// Train a model that infers a switch's buffer from packet loss on incast measurements (Django, Algorithm 1)
    Train(PredictTrain),
    /// Compute the best number of connections to a receiver from the loss at its switch (Theorem 4.1)
    Connections(PredictConnections),
}

/// Arguments of `weir predict train`.
#[derive(Debug, Args)]
#[command(
    after_help = "The measurements are the output of `weir testbed incast --format csv`, with one size, and two buffers or more. With several numbers
of connections, the number is a second feature, and runs without loss are left out. Three quarters of the records train the model,
the rest test it. The same measurements and seed give the same model."
)]
pub struct PredictTrain {
    /// The measurements, in CSV; `-` is the standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub data: PathBuf,

    /// The seed of the random selection of test records
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Training")]
    pub seed: u32,

    /// The penalty for a record on the wrong side of the boundary (C)
    #[arg(long, value_name = "X", default_value = "1", value_parser = parse_parameter, help_heading = "Training")]
    pub c: f64,

    /// The rate at which the influence of a record decreases with the distance (gamma)
    #[arg(long, value_name = "X", default_value = "1", value_parser = parse_parameter, help_heading = "Training")]
    pub gamma: f64,

    /// Write the model to this file; the file appears once it is complete
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT_HEADING)]
    pub out: Option<PathBuf>,

    /// The format of the printed accuracy
    #[arg(long, value_enum, default_value_t = Format::Table, help_heading = OUTPUT_HEADING)]
    pub format: Format,
}

/// Arguments of `weir predict connections`.
#[derive(Debug, Args)]
#[command(
    after_help = "The loss must be of an incast like those that the model was trained on. If marking starts at the end of the buffer or beyond, any number
of connections loses packets; the result is then 1."
)]
pub struct PredictConnections {
    /// The model, as `weir predict train` writes it; `-` is the standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub model: PathBuf,

    /// The fraction of packets that the switch lost, from 0 to 1
    #[arg(long, value_name = "FRACTION", help_heading = INPUT_HEADING)]
    pub loss: Loss,

    /// The number of connections that had this loss; for models that were trained on several numbers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = INPUT_HEADING)]
    pub connections: Option<u32>,

    /// The queue length, in packets, from which the switch marks packets (ECN); for DCTCP 20 at 1 Gbit, 65 at 10 Gbit
    #[arg(long, value_name = "PACKETS", help_heading = INPUT_HEADING)]
    pub threshold: u32,

    #[command(flatten)]
    pub output: Output,
}

/// Parses C or gamma.
fn parse_parameter(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value| TrainingSettings::new(*value, *value).is_ok());
    value.ok_or_else(|| {
        format!("`{text}` is out of range; expected a number above 0 and up to {MAX_PARAMETER:e}")
    })
}
