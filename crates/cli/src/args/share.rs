//! Defines the options of `weir share`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use weir_sim::service::Mechanism;

use super::{EXECUTION_HEADING, OUTPUT_HEADING, Output, SHARING_HEADING};

/// Arguments of `weir share`.
#[derive(Debug, Args)]
#[command(after_help = "Mechanisms:
  none               one queue at every link
  queues             group allocation: a queue for each service at every switch (NetShare 3.1),
                     or the queues that the scenario configures for a port
  throttling         Algorithm 1 for unresponsive connections, one queue (3.2)
  queues+throttling  queues and throttling
  central            a central allocator's limits for all connections, one queue (3.3)
  queues+central     queues and central")]
pub struct Share {
    /// The scenario, in TOML; `-` is the standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub scenario: PathBuf,

    /// The mechanisms to simulate, separated by commas, or `all`
    #[arg(long, help_heading = SHARING_HEADING, value_name = "MECHANISMS", value_delimiter = ',', default_value = "all", value_parser = parse_mechanism)]
    pub mechanism: Vec<Option<Mechanism>>,

    /// Show no progress bar; a bar needs a terminal as standard error
    #[arg(long, short, help_heading = EXECUTION_HEADING)]
    pub quiet: bool,

    #[command(flatten)]
    pub output: Output,

    /// Also write a line for each service and each interval of constant rates:
    /// mechanism,from_s,to_s,service,delivered_bit_per_s,sent_bit_per_s; `-` is the standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT_HEADING)]
    pub over_time: Option<PathBuf>,
}

/// Parses a mechanism; `None` stands for all.
fn parse_mechanism(text: &str) -> Result<Option<Mechanism>, String> {
    if text == "all" { Ok(None) } else { text.parse().map(Some).map_err(|error| format!("{error}, all")) }
}
