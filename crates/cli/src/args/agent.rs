//! `weir agent`.

use clap::{Args, Subcommand};
use weir_agent::queues::Interface;
use weir_agent::traffic::Rule;
use weir_core::units::Rate;

use super::live::AgentRun;
use super::{OUTPUT, port_rate};

/// `weir agent`.
#[derive(Debug, Subcommand)]
pub enum Agent {
    /// Attend a coordinator: pace the sockets that programs hand over, report what they send, and put applications into queues
    Run(AgentRun),
    /// Give an interface a queue for each weight
    Queues(AgentQueues),
    /// Mark the traffic of applications, and say which connections they open and close
    Traffic(AgentTraffic),
    /// Put back what was there before, at all interfaces and cgroups
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

/// `weir agent traffic`.
#[derive(Debug, Args)]
#[command(
    after_help = "An application is all programs in a cgroup (version 2), as they are, or what goes from or to a port and is of no such cgroup. Its packets leave the interfaces with the DSCP CLASS, \
                  and wait in the queue for it that `weir agent queues` made. Goes on until it is stopped, and takes all out of the \
                  kernel then; if it is killed, classes stay until the next one or `weir agent cleanup`.

Examples:
  weir agent traffic --interface eth0 --application web=system.slice/web.service:1 --application batch=batch:2",
    mut_arg("interfaces", |arg| arg.required(true)),
    mut_arg("applications", |arg| arg.required(true))
)]
pub struct AgentTraffic {
    #[command(flatten)]
    pub found: Found,
}

/// Which traffic is found without the help of programs.
#[derive(Debug, Args)]
pub struct Found {
    /// An interface whose packets are marked; may be there several times
    #[arg(long = "interface", value_name = "IF", value_parser = interface)]
    pub interfaces: Vec<Interface>,

    /// What to call it, its cgroup (from the root of the cgroups, or as a path) or port (`port/8080`), and its class, 1 to 63, if it has one
    /// from the beginning; may be there several times
    #[arg(long = "application", value_name = "NAME=CGROUP|port/PORT[:CLASS]", value_parser = rule)]
    pub applications: Vec<Rule>,
}

fn rule(text: &str) -> Result<Rule, String> {
    text.parse()
}

fn interface(text: &str) -> Result<Interface, String> {
    text.parse()
}
