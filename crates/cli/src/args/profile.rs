//! `weir profile`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use weir_agent::queues::Interface;
use weir_core::units::{Rate, Time};
use weir_testbed::Name;
use weir_trace::sensitivity::MAX_NAME_BYTES;

use super::{Format, OUTPUT, port_rate};

const PLACE: &str = "Where bandwidth is limited";
const RUNNING: &str = "Running";

/// `weir profile`.
#[derive(Debug, Args)]
#[command(
    after_help = "The command is run with 5, 10, 25, 50, 75, 90 and 100 % of the bandwidth, after one run that does not count. On a bed it is run \
in the namespace of the first host, and what it starts on others is its own business. A run ends when the command does; what is left of \
its process group is killed then.

Examples:
  weir profile --bed bed --name shuffle --out table.toml -- \\
    python3 examples/jobs/shuffle.py weir-bed-h0 weir-bed-h1 weir-bed-h2
  weir profile --interface eth0 --rate 10Gbit --runs 5 --samples samples.csv -- ./job.sh"
)]
pub struct Profile {
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,

    #[command(flatten)]
    pub place: ProfilePlace,

    /// What the application is called in the table; by default as the command's program
    #[arg(long, value_name = "NAME", value_parser = application)]
    pub name: Option<String>,

    /// How often to run it with each part of the bandwidth; the median counts
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=100), help_heading = RUNNING)]
    pub runs: u8,

    /// How long a run may take; one that takes longer is killed, and there is no profile
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = timeout, help_heading = RUNNING)]
    pub timeout: Time,

    /// No progress on the standard error
    #[arg(long, short, help_heading = RUNNING)]
    pub quiet: bool,

    /// The degree of the model in the table
    #[arg(long, value_name = "K", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=3))]
    pub degree: u8,

    /// Write the application's row to this sensitivity table, once all has been run; other applications in it stay
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub out: Option<PathBuf>,

    /// Write what to plot to this file: a line for each run, median and point of the models, as
    /// application,what,bandwidth,time_s,slowdown
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub samples: Option<PathBuf>,

    /// Append what the command prints to this file; nobody sees it otherwise
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub log: Option<PathBuf>,

    /// How to print the profile
    #[arg(long, value_enum, default_value_t = Format::Table, help_heading = OUTPUT)]
    pub format: Format,
}

/// Where bandwidth is limited.
#[derive(Debug, Args)]
#[command(next_help_heading = PLACE)]
pub struct ProfilePlace {
    /// At the cables of hosts of this testbed, which has to be up
    #[arg(long, value_name = "NAME", required_unless_present = "interface", conflicts_with_all = ["interface", "rate"])]
    pub bed: Option<Name>,

    /// The hosts of the bed that have less, both ways; the command is run on the first of them. By default all
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "bed", conflicts_with = "interface")]
    pub hosts: Vec<String>,

    /// At this interface of this machine, for what leaves it
    #[arg(long, value_name = "IF", requires = "rate")]
    pub interface: Option<Interface>,

    /// What the interface's link carries; with a unit, such as 1Gbit, 100Mbit or 125MB/s
    #[arg(long, value_name = "RATE", value_parser = port_rate, requires = "interface")]
    pub rate: Option<Rate>,
}

/// A name that can be in a table.
pub fn application(text: &str) -> Result<String, String> {
    let good = (1..=MAX_NAME_BYTES).contains(&text.len()) && !text.contains(char::is_control);
    if good {
        Ok(text.to_owned())
    } else {
        Err(format!("expected 1 to {MAX_NAME_BYTES} bytes without control characters"))
    }
}

fn timeout(text: &str) -> Result<Time, String> {
    let time: Time = text.parse().map_err(|error| format!("{error}"))?;
    if (0.001..=1e7).contains(&time.get()) { Ok(time) } else { Err("expected 1ms to 10000000s".to_owned()) }
}
