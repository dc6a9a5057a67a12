//! Defines the options of `weir profile`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use weir_agent::queues::Interface;
use weir_core::units::{Rate, Time};
use weir_testbed::BedName;
use weir_trace::sensitivity::MAX_NAME_BYTES;

use super::coordinator::{Credentials, parse_address};
use super::{EXECUTION_HEADING, Format, MODEL_HEADING, OUTPUT_HEADING, parse_port_rate};

/// Arguments of `weir profile`.
#[derive(Debug, Args)]
#[command(
    after_help = "The command runs with 5, 10, 25, 50, 75, 90 and 100 % of the bandwidth, after one run for warm-up. On a testbed it runs in the \
namespace of the first host, and has to start its parts on other hosts itself. A run ends when the command exits; the rest of its process group \
is then killed."
)]
pub struct Profile {
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,

    #[command(flatten)]
    pub limited_links: LimitedLinks,

    #[command(flatten)]
    pub credentials: Credentials,

    /// The application's name in the sensitivity table [default: the name of the program]
    #[arg(long, value_name = "NAME", value_parser = parse_application_name, help_heading = MODEL_HEADING)]
    pub name: Option<String>,

    /// The number of runs at each bandwidth; the median of their times is used
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=100), help_heading = EXECUTION_HEADING)]
    pub runs: u8,

    /// The maximum time of a run, with a unit such as 30s; a longer run is killed, and the profile fails
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_timeout, help_heading = EXECUTION_HEADING)]
    pub timeout: Time,

    /// Show no progress bar; a bar needs a terminal as standard error
    #[arg(long, short, help_heading = EXECUTION_HEADING)]
    pub quiet: bool,

    /// The degree of the model in the sensitivity table, 1 to 3
    #[arg(long, value_name = "K", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=3), help_heading = MODEL_HEADING)]
    pub degree: u8,

    /// Write the application's row to this sensitivity table after all runs; rows of other applications stay
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT_HEADING)]
    pub out: Option<PathBuf>,

    /// Write data for plots to this file: a line for each run, median and point of the models, as
    /// application,kind,bandwidth,time_s,slowdown
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT_HEADING)]
    pub samples: Option<PathBuf>,

    /// Append the command's output to this file [default: discard the output]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT_HEADING)]
    pub log: Option<PathBuf>,

    /// The format of the printed profile
    #[arg(long, value_enum, default_value_t = Format::Table, help_heading = OUTPUT_HEADING)]
    pub format: Format,
}

/// Options for the links whose bandwidth is limited.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limited links")]
pub struct LimitedLinks {
    /// Limit the cables of hosts of this testbed, which must be up
    #[arg(long, value_name = "NAME", required_unless_present_any = ["interface", "coordinator"], conflicts_with_all = ["interface", "rate", "coordinator"])]
    pub bed: Option<BedName>,

    /// The hosts of the testbed whose cables are limited in both directions; the command runs on the first [default: all]. With
    /// --coordinator, the hosts of the cluster
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "interface")]
    pub hosts: Vec<String>,

    /// Limit the outgoing traffic of this interface of this machine
    #[arg(long, value_name = "IF", requires = "rate")]
    pub interface: Option<Interface>,

    /// The rate of the interface's link, with a unit such as 1Gbit or 125MB/s
    #[arg(long, value_name = "RATE", value_parser = parse_port_rate, requires = "interface")]
    pub rate: Option<Rate>,

    /// Limit what hosts of a cluster send, by their agents: the address of the coordinator's HTTP interface. The command runs on this
    /// machine, and needs --hosts: all hosts of the job
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address, requires = "hosts", conflicts_with_all = ["interface", "rate"])]
    pub coordinator: Option<String>,
}

/// Parses a name that a sensitivity table can contain.
pub fn parse_application_name(text: &str) -> Result<String, String> {
    let valid = (1..=MAX_NAME_BYTES).contains(&text.len()) && !text.contains(char::is_control);
    if valid {
        Ok(text.to_owned())
    } else {
        Err(format!("expected 1 to {MAX_NAME_BYTES} bytes without control characters"))
    }
}

fn parse_timeout(text: &str) -> Result<Time, String> {
    let time: Time = text.parse().map_err(|error| format!("{error}"))?;
    if (0.001..=1e7).contains(&time.get()) { Ok(time) } else { Err("expected 1ms to 10000000s".to_owned()) }
}
