//! `weir predict`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use weir_predict::{Loss, MAX_PARAMETER, Settings};

use super::{Format, INPUT, OUTPUT, Output};

/// `weir predict`.
#[derive(Debug, Subcommand)]
pub enum Predict {
    /// Learn from measurements of incast to tell a switch's buffer by what it loses (Django, Algorithm 1)
    Train(PredictTrain),
    /// Say how many connections a receiver should have, by what its switch loses (Theorem 4.1)
    Connections(PredictConnections),
}

/// `weir predict train`.
#[derive(Debug, Args)]
#[command(
    after_help = "The measurements are what `weir testbed incast --format csv` writes: one number of connections, one size, two buffers or more.
Three quarters of them train, the rest test. The same measurements and seed give the same model.

Examples:
  weir predict train examples/incast/classes.csv --out model.toml
  weir predict train incast.csv --seed 7 --c 100 --gamma 10"
)]
pub struct PredictTrain {
    /// The measurements; `-` is the standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub data: PathBuf,

    /// Different seeds hold back different records
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Training")]
    pub seed: u32,

    /// C: what a record on the wrong side costs
    #[arg(long, value_name = "X", default_value = "1", value_parser = parameter, help_heading = "Training")]
    pub c: f64,

    /// How fast the influence of a record falls with the distance
    #[arg(long, value_name = "X", default_value = "1", value_parser = parameter, help_heading = "Training")]
    pub gamma: f64,

    /// Write the model to this file; only once it is complete
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub out: Option<PathBuf>,

    /// How to print how good it is
    #[arg(long, value_enum, default_value_t = Format::Table, help_heading = OUTPUT)]
    pub format: Format,
}

/// `weir predict connections`.
#[derive(Debug, Args)]
#[command(
    after_help = "The loss has to be of an incast like those that the model was trained on. If marks begin at the buffer's end or behind it,
no number of connections is without losses, and one is the answer.

Examples:
  weir predict connections examples/incast/model.toml --loss 0.46 --threshold 20
  weir compare trace.txt --policies django:connections=80,aalo+"
)]
pub struct PredictConnections {
    /// The model, which `weir predict train` wrote; `-` is the standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub model: PathBuf,

    /// The part of the packets that the switch lost, from 0 to 1
    #[arg(long, value_name = "PART", help_heading = INPUT)]
    pub loss: Loss,

    /// From how many packets in its queue on the switch marks them (ECN); for DCTCP 20 at 1 Gbit, 65 at 10 Gbit
    #[arg(long, value_name = "PACKETS", help_heading = INPUT)]
    pub threshold: u32,

    #[command(flatten)]
    pub output: Output,
}

/// C or gamma.
fn parameter(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value| Settings::new(*value, *value).is_ok());
    value.ok_or_else(|| format!("`{text}`: expected a number above 0 and up to {MAX_PARAMETER:e}"))
}
