//! Defines the options of `weir fabric`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use weir_core::model::TopologyTemplate;
use weir_core::units::Rate;
use weir_experiment::options::parse_port_rate;

use super::{OUTPUT_HEADING, Output};

/// The subcommands of `weir fabric`.
#[derive(Debug, Subcommand)]
pub enum Fabric {
    /// Check that a network can be read, and print its size
    Check(FabricCheck),
    /// Describe a network: tiers, rates, oversubscription, bisection, paths between hosts
    Describe(FabricDescribe),
    /// Generate a network from a plan
    Generate(FabricGenerate),
}

/// Arguments of `weir fabric check`.
#[derive(Debug, Args)]
pub struct FabricCheck {
    /// The network, in TOML; `-` is the standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub fabric: PathBuf,
}

/// Arguments of `weir fabric describe`.
#[derive(Debug, Args)]
pub struct FabricDescribe {
    /// The network, in TOML; `-` is the standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub fabric: PathBuf,

    #[command(flatten)]
    pub output: Output,
}

/// Arguments of `weir fabric generate`.
#[derive(Debug, Args)]
pub struct FabricGenerate {
    /// Write a list of all cables instead of the plan and its parameters
    #[arg(long, help_heading = OUTPUT_HEADING, global = true)]
    pub cables: bool,

    /// Write to this file instead of the standard output; the file appears once it is complete
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = OUTPUT_HEADING, global = true)]
    pub out: Option<PathBuf>,

    /// The plan
    #[command(subcommand)]
    pub plan: FabricPlan,
}

/// The plans of networks.
#[derive(Debug, Clone, Subcommand)]
pub enum FabricPlan {
    /// Hosts at one switch
    BigSwitch {
        /// The number of hosts
        #[arg(long, value_name = "N")]
        hosts: u32,
        /// The rate of each host's link in each direction, with a unit such as 1Gbit or 125MB/s
        #[arg(long, value_name = "RATE", value_parser = parse_port_rate)]
        rate: Rate,
    },
    /// Leaf switches, each connected to every spine switch
    LeafSpine {
        /// The number of spine switches
        #[arg(long, value_name = "N")]
        spines: u32,
        /// The number of leaf switches
        #[arg(long, value_name = "N")]
        leaves: u32,
        /// The number of hosts of each leaf switch
        #[arg(long, value_name = "N")]
        hosts: u32,
        /// The rate of each host's link in each direction, with a unit such as 1Gbit or 125MB/s
        #[arg(long, value_name = "RATE", value_parser = parse_port_rate)]
        rate: Rate,
        /// The capacity of a leaf's links to hosts, divided by the capacity of its links to spines
        #[arg(long, value_name = "RATIO")]
        oversubscription: f64,
    },
    /// Three tiers of switches with the same number of ports
    FatTree {
        /// The number of ports of each switch, an even number
        #[arg(long, value_name = "N")]
        ports: u32,
        /// The rate of each host's link in each direction, with a unit such as 1Gbit or 125MB/s
        #[arg(long, value_name = "RATE", value_parser = parse_port_rate)]
        rate: Rate,
        /// The capacity of an edge switch's links to hosts, divided by the capacity of its uplinks
        #[arg(long, value_name = "RATIO", default_value_t = 1.0)]
        oversubscription: f64,
    },
    /// The 1,944 servers of Saba's simulations (section 8.1)
    SabaTiers {
        /// The rate of a server's link, divided by the rate of a link between switches
        #[arg(long, value_name = "RATIO", default_value_t = 1.0)]
        oversubscription: f64,
    },
    /// NetShare, Fig. 1
    #[command(name = "netshare-fig1")]
    NetShareFig1,
    /// NetShare, Fig. 3
    #[command(name = "netshare-fig3")]
    NetShareFig3,
    /// NetShare, Fig. 6
    #[command(name = "netshare-fig6")]
    NetShareFig6,
    /// NetShare, Fig. 7
    #[command(name = "netshare-fig7")]
    NetShareFig7,
    /// NetShare, Fig. 16
    #[command(name = "netshare-fig16")]
    NetShareFig16 {
        /// The number of services
        #[arg(long, value_name = "N")]
        services: u32,
    },
}

impl From<&FabricPlan> for TopologyTemplate {
    fn from(plan: &FabricPlan) -> TopologyTemplate {
        match *plan {
            FabricPlan::BigSwitch { hosts, rate } => TopologyTemplate::BigSwitch { hosts, rate },
            FabricPlan::LeafSpine { spines, leaves, hosts, rate, oversubscription } => {
                TopologyTemplate::LeafSpine { spines, leaves, hosts, rate, oversubscription }
            }
            FabricPlan::FatTree { ports, rate, oversubscription } => {
                TopologyTemplate::FatTree { ports, rate, oversubscription }
            }
            FabricPlan::SabaTiers { oversubscription } => TopologyTemplate::SabaTiers { oversubscription },
            FabricPlan::NetShareFig1 => TopologyTemplate::NetShareFig1,
            FabricPlan::NetShareFig3 => TopologyTemplate::NetShareFig3,
            FabricPlan::NetShareFig6 => TopologyTemplate::NetShareFig6,
            FabricPlan::NetShareFig7 => TopologyTemplate::NetShareFig7,
            FabricPlan::NetShareFig16 { services } => TopologyTemplate::NetShareFig16 { services },
        }
    }
}
