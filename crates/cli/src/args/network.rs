//! `weir share` and `weir fabric`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use weir_core::units::Rate;
use weir_sim::service::Mechanism;

use super::{OUTPUT, Output, port_rate};
use crate::fabric;

/// `weir share`.
#[derive(Debug, Args)]
#[command(after_help = "Mechanisms:
  none               one queue at every link
  queues             group allocation: a queue for each service at every switch (NetShare 3.1),
                     or what the scenario says of a port
  throttling         Algorithm 1 for unresponsive connections, one queue (3.2)
  queues+throttling  both
  central            a central allocator's limits for all connections, one queue (3.3)
  queues+central     both

Examples:
  weir share examples/netshare-5.3.toml
  weir share examples/netshare-5.3.toml --mechanism queues,queues+throttling --over-time rates.csv --format json")]
pub struct Share {
    /// The scenario, in TOML; `-` is the standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub scenario: PathBuf,

    /// The mechanisms, or `all`
    #[arg(long, help_heading = "How to share", value_name = "MECHANISMS", value_delimiter = ',', default_value = "all", value_parser = mechanism)]
    pub mechanism: Vec<Option<Mechanism>>,

    /// No progress on the standard error
    #[arg(long, short, help_heading = "Running")]
    pub quiet: bool,

    #[command(flatten)]
    pub output: Output,

    /// Also write a line for each time in which rates stood still and each service:
    /// mechanism,from_s,to_s,service,delivered_bit_per_s,sent_bit_per_s
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub over_time: Option<PathBuf>,
}

/// `weir fabric`.
#[derive(Debug, Subcommand)]
pub enum Fabric {
    /// Check that a network can be read, and say what was understood
    Check(FabricCheck),
    /// Describe a network: tiers, rates, oversubscription, bisection, paths between hosts
    Describe(FabricDescribe),
    /// Write a network by a plan
    Generate(FabricGenerate),
}

/// `weir fabric check`.
#[derive(Debug, Args)]
pub struct FabricCheck {
    /// The network, in TOML; `-` is the standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub fabric: PathBuf,
}

/// `weir fabric describe`.
#[derive(Debug, Args)]
pub struct FabricDescribe {
    /// The network, in TOML; `-` is the standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub fabric: PathBuf,

    #[command(flatten)]
    pub output: Output,
}

/// `weir fabric generate`.
#[derive(Debug, Args)]
#[command(after_help = "Plans and their parameters:
  big-switch      --hosts --rate
  leaf-spine      --spines --leaves --hosts (of a leaf) --rate --oversubscription
  fat-tree        --ports --rate [--oversubscription]
  saba-tiers      [--oversubscription]
  netshare-fig1, netshare-fig3, netshare-fig6, netshare-fig7
  netshare-fig16  --services

Examples:
  weir fabric generate leaf-spine --spines 4 --leaves 8 --hosts 16 --rate 10Gbit --oversubscription 2
  weir fabric generate fat-tree --ports 8 --rate 10Gbit --cables --out fabric.toml")]
pub struct FabricGenerate {
    /// The plan
    #[arg(value_parser = plan_name)]
    pub plan: String,

    /// Hosts, in all or of each leaf
    #[arg(long, value_name = "N")]
    pub hosts: Option<u32>,

    /// What the hosts' links carry, each way
    #[arg(long, value_name = "RATE", value_parser = port_rate)]
    pub rate: Option<Rate>,

    /// Spine switches
    #[arg(long, value_name = "N")]
    pub spines: Option<u32>,

    /// Leaf switches
    #[arg(long, value_name = "N")]
    pub leaves: Option<u32>,

    /// What the hosts of a leaf or an edge switch can send over what its links up carry; 1 where it may be left out.
    /// In `saba-tiers`, what servers' links carry over what links between switches do
    #[arg(long, value_name = "RATIO")]
    pub oversubscription: Option<f64>,

    /// Ports of a switch
    #[arg(long, value_name = "N")]
    pub ports: Option<u32>,

    /// Services
    #[arg(long, value_name = "N")]
    pub services: Option<u32>,

    /// Write every cable, not the plan's parameters
    #[arg(long, help_heading = OUTPUT)]
    pub cables: bool,

    /// Write to this file instead of the standard output; only once it is complete
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub out: Option<PathBuf>,
}

/// A mechanism, or all.
fn mechanism(text: &str) -> Result<Option<Mechanism>, String> {
    if text == "all" { Ok(None) } else { text.parse().map(Some).map_err(|error| format!("{error}, all")) }
}

fn plan_name(text: &str) -> Result<String, String> {
    if fabric::PLANS.contains(&text) {
        return Ok(text.to_owned());
    }
    Err(format!("no plan is called `{text}`: expected one of {}", fabric::PLANS.join(", ")))
}
