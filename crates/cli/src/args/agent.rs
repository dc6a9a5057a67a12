//! `weir agent`.

use clap::{Args, Subcommand};
use weir_agent::queues::Interface;
use weir_core::units::Rate;

use super::live::AgentRun;
use super::{OUTPUT, port_rate};

/// `weir agent`.
#[derive(Debug, Subcommand)]
pub enum Agent {
    /// Attend a coordinator: pace the sockets that programs hand over, and report what they send
    Run(AgentRun),
    /// Give an interface a queue for each weight
    Queues(AgentQueues),
    /// Put back what was there before, at all interfaces
    Cleanup,
}

/// `weir agent queues`.
#[derive(Debug, Args)]
#[command(
    after_help = "Packets find their queue by their DSCP: 1 for the first, 2 for the second and so on. Only what differs is changed, \
                  so the same again changes nothing.

Examples:
  weir agent queues --interface eth0 --rate 1Gbit --weights 1:3:9
  weir agent queues --interface eth0 --rate 1Gbit --weights 1:3:9 --dry-run"
)]
pub struct AgentQueues {
    /// The interface
    #[arg(long, value_name = "IF", value_parser = interface)]
    pub interface: Interface,

    /// What its link carries; with a unit, such as 1Gbit, 100Mbit or 125MB/s
    #[arg(long, value_name = "RATE", value_parser = port_rate)]
    pub rate: Rate,

    /// The weight of each queue, at most 63
    #[arg(long, value_name = "W:W...", value_delimiter = ':', required = true)]
    pub weights: Vec<f64>,

    /// Print the `tc` commands that would be run, and change nothing
    #[arg(long, help_heading = OUTPUT)]
    pub dry_run: bool,
}

fn interface(text: &str) -> Result<Interface, String> {
    text.parse()
}
