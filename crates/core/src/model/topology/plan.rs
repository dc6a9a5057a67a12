//! Topologies with few parameters: those of the papers, and common ones.
//!
//! The available texts of the papers lack their figures, so parts of these topologies are reconstructions:
//!
//! - *NetShare, Fig. 1*: four edge switches, one core, 10 Gbit links. The figure shows no hosts. Here every edge has
//!   three hosts, one for each of its services, so that no link of a host is a bottleneck.
//! - *NetShare, Fig. 3 (and 2, and 4)*: the text names H1 and H3 on the link from E1 to C1, H2 and the source of A1
//!   on the link from C1 to E2, and H4 as the destination of H1. Here H2 is under E3, the source of A1 (H5) under E4,
//!   the destinations of A1 and H2 (H6, H7) under E2, and the destination of H3 (H8) under E4.
//! - *NetShare, Fig. 6 and 7*: three pods of four servers, one or two cores, all links at 1 Gbit. Hosts are numbered
//!   pod by pod.
//! - *NetShare, Fig. 16*: two cores, four pods of two aggregation and two edge switches at 10 Mbit, and at every edge
//!   a host of each service. Inside a pod, all aggregation and edge switches are connected. Here every aggregation
//!   switch has a link to both cores. With one link each, two edges would share 20 Mbit out of their pod, the path of
//!   6/7 of all pairs: at most 93 Mbit in total, but Table 3 measured 131.7. Table 3 also requires more than 10 Mbit
//!   on a host's link; at 100 Mbit it is never a bottleneck.
//! - *Saba, 8.1*: 54 spine, 102 leaf and 108 top-of-rack switches with 18 servers each, at 56 Gbit. The paper does
//!   not describe the cabling. 36-port switches, as in the paper's testbed, would make a full three-level tree of 54,
//!   108 and 108; 102 is 6 x 17. So here are six pods of 18 racks and 17 leaves. Each rack has a link to each leaf of
//!   its pod (17 up for 18 down), and each leaf 18 down and 18 up. Leaf `i` of a pod connects to the `i mod 3`-rd
//!   third of the spines; each spine uses at most 36 links.

use super::{Builder, Topology, TopologyError};
use crate::units::Rate;

/// A topology that a few parameters describe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Plan {
    /// One switch that is never a bottleneck.
    BigSwitch {
        /// Number of hosts.
        hosts: u32,
        /// Rate of the hosts' links.
        rate: Rate,
    },
    /// NetShare, Fig. 1.
    NetShareFig1,
    /// NetShare, Fig. 3; also Fig. 2 and 4.
    NetShareFig3,
    /// NetShare, Fig. 6: one core, three pods.
    NetShareFig6,
    /// NetShare, Fig. 7: two cores, three pods.
    NetShareFig7,
    /// NetShare, Fig. 16: three tiers.
    NetShareFig16 {
        /// Number of services; every edge switch has a host of each.
        services: u32,
    },
    /// Leaf-spine: every leaf has a link to every spine.
    LeafSpine {
        /// Number of spine switches.
        spines: u32,
        /// Number of leaf switches.
        leaves: u32,
        /// Number of hosts at each leaf.
        hosts: u32,
        /// Rate of the hosts' links.
        rate: Rate,
        /// Rate of a leaf's hosts divided by the rate of its links to spines; finite and above zero.
        oversubscription: f64,
    },
    /// Fat tree of switches with `ports` ports: `ports` pods of `ports / 2` edge and as many aggregation switches,
    /// and `ports^3 / 4` hosts.
    FatTree {
        /// Ports of a switch: even, and at least 2.
        ports: u32,
        /// Rate of the hosts' links.
        rate: Rate,
        /// Rate of an edge switch's hosts divided by the rate of its uplinks; finite and above zero. All links
        /// between switches have the rate of a host's link divided by it.
        oversubscription: f64,
    },
    /// Saba, 8.1: 1,944 servers under three tiers of switches.
    SabaTiers {
        /// Oversubscription: all links between switches have the rate of a server's link divided by it. Finite and
        /// above zero, 1 in the paper. A rack has 18 servers and 17 uplinks.
        oversubscription: f64,
    },
}

impl Plan {
    /// Name of the plan in a file.
    pub const fn name(&self) -> &'static str {
        match self {
            Plan::BigSwitch { .. } => "big-switch",
            Plan::NetShareFig1 => "netshare-fig1",
            Plan::NetShareFig3 => "netshare-fig3",
            Plan::NetShareFig6 => "netshare-fig6",
            Plan::NetShareFig7 => "netshare-fig7",
            Plan::NetShareFig16 { .. } => "netshare-fig16",
            Plan::LeafSpine { .. } => "leaf-spine",
            Plan::FatTree { .. } => "fat-tree",
            Plan::SabaTiers { .. } => "saba-tiers",
        }
    }

    /// Builds the topology of this plan.
    ///
    /// # Errors
    /// If a parameter is invalid, or if the topology exceeds the maximum number of nodes or cables. Sizes are checked
    /// before construction.
    pub fn build(&self) -> Result<Topology, TopologyError> {
        self.check_size()?;
        match *self {
            Plan::BigSwitch { hosts, rate } => big_switch(hosts, rate),
            Plan::NetShareFig1 => netshare_fig1(),
            Plan::NetShareFig3 => netshare_fig3(),
            Plan::NetShareFig6 => netshare_pods(1),
            Plan::NetShareFig7 => netshare_pods(2),
            Plan::NetShareFig16 { services } => netshare_fig16(services),
            Plan::LeafSpine { spines, leaves, hosts, rate, oversubscription } => {
                let whole = rate.get() * f64::from(hosts);
                leaf_spine(spines, leaves, hosts, rate, self.over(whole, spines, oversubscription)?)
            }
            Plan::FatTree { ports, rate, oversubscription } => {
                fat_tree(ports, rate, self.over(rate.get(), 1, oversubscription)?)
            }
            Plan::SabaTiers { oversubscription } => saba_tiers(self.over(SABA.get(), 1, oversubscription)?),
        }
    }

    /// Rate of each of `links` links in bytes per second, if together they have `rate` divided by `oversubscription`.
    fn over(&self, rate: f64, links: u32, oversubscription: f64) -> Result<Rate, TopologyError> {
        if !(oversubscription.is_finite() && oversubscription > 0.0) {
            return Err(self.parameter("oversubscription", oversubscription, "a finite number above 0"));
        }
        let each = rate / (f64::from(links) * oversubscription);
        // The builder of cables rejects rates that are out of bounds.
        Ok(Rate::new(each.min(f64::MAX)).expect("`min` leaves a finite number, and no operand is negative"))
    }

    fn parameter(
        &self,
        parameter: &'static str,
        value: impl ToString,
        expected: &'static str,
    ) -> TopologyError {
        TopologyError::Parameter { plan: self.name(), parameter, value: value.to_string(), expected }
    }

    /// Checks the numbers of nodes and cables against their maxima.
    fn check_size(&self) -> Result<(), TopologyError> {
        let (hosts, switches, cables) = match *self {
            Plan::BigSwitch { hosts, .. } => (u128::from(hosts), 1, u128::from(hosts)),
            Plan::NetShareFig16 { services } => {
                let hosts = 8 * u128::from(services);
                (hosts, 18, hosts + 32)
            }
            Plan::LeafSpine { spines, leaves, hosts, .. } => {
                let (s, l, h) = (u128::from(spines), u128::from(leaves), u128::from(hosts));
                for (parameter, value) in [("spines", spines), ("leaves", leaves), ("hosts", hosts)] {
                    if value == 0 {
                        return Err(self.parameter(parameter, value, "at least 1"));
                    }
                }
                (l * h, s + l, l * (s + h))
            }
            Plan::FatTree { ports, .. } => {
                if ports < 2 || ports % 2 == 1 {
                    return Err(self.parameter("ports", ports, "an even number of at least 2"));
                }
                let k = u128::from(ports);
                (k * k * k / 4, k * k * 5 / 4, k * k * k * 3 / 4)
            }
            Plan::NetShareFig1
            | Plan::NetShareFig3
            | Plan::NetShareFig6
            | Plan::NetShareFig7
            | Plan::SabaTiers { .. } => return Ok(()),
        };
        let limits = [
            ("hosts", hosts, Topology::MAX_HOSTS),
            ("switches", switches, Topology::MAX_SWITCHES),
            ("cables", cables, Topology::MAX_CABLES),
        ];
        for (what, count, max) in limits {
            if !(1..=max as u128).contains(&count) {
                let count = u64::try_from(count).unwrap_or(u64::MAX);
                return Err(TopologyError::Count { what, count, min: 1, max: max as u64 });
            }
        }
        Ok(())
    }
}

const GBIT: f64 = 125e6;
const MBIT: f64 = 125e3;

/// Rate of Saba's links.
const SABA: Rate = Rate::of(56.0 * GBIT);

fn big_switch(hosts: u32, rate: Rate) -> Result<Topology, TopologyError> {
    let mut builder = Builder::new();
    builder.switch("switch", 1)?;
    add_hosts(&mut builder, "switch", 0..hosts, rate)?;
    builder.build()
}

/// Adds hosts with these numbers under a switch.
fn add_hosts(
    builder: &mut Builder,
    switch: &str,
    numbers: std::ops::Range<u32>,
    rate: Rate,
) -> Result<(), TopologyError> {
    for number in numbers {
        let host = format!("h{number}");
        builder.host(&host)?;
        builder.cable(&host, switch, rate)?;
    }
    Ok(())
}

/// The edge switches of NetShare's small examples, and their cores.
fn netshare_edges(edges: u32, cores: u32, rate: Rate) -> Result<Builder, TopologyError> {
    let mut builder = Builder::new();
    for core in 1..=cores {
        builder.switch(&format!("C{core}"), 2)?;
    }
    for edge in 1..=edges {
        builder.switch(&format!("E{edge}"), 1)?;
        for core in 1..=cores {
            builder.cable(&format!("E{edge}"), &format!("C{core}"), rate)?;
        }
    }
    Ok(builder)
}

fn netshare_fig1() -> Result<Topology, TopologyError> {
    let rate = Rate::of(10.0 * GBIT);
    let mut builder = netshare_edges(4, 1, rate)?;
    for edge in 1..=4 {
        for service in 1..=3 {
            let host = format!("E{edge}-A{service}");
            builder.host(&host)?;
            builder.cable(&host, &format!("E{edge}"), rate)?;
        }
    }
    builder.build()
}

fn netshare_fig3() -> Result<Topology, TopologyError> {
    let rate = Rate::of(10.0 * GBIT);
    let mut builder = netshare_edges(4, 1, rate)?;
    let edges = ["E1", "E3", "E1", "E2", "E4", "E2", "E2", "E4"];
    for (number, edge) in (1..).zip(edges) {
        let host = format!("H{number}");
        builder.host(&host)?;
        builder.cable(&host, edge, rate)?;
    }
    builder.build()
}

fn netshare_pods(cores: u32) -> Result<Topology, TopologyError> {
    let mut builder = netshare_edges(3, cores, Rate::GBIT)?;
    for number in 0..12 {
        let host = format!("H{}", number + 1);
        builder.host(&host)?;
        builder.cable(&host, &format!("E{}", number / 4 + 1), Rate::GBIT)?;
    }
    builder.build()
}

fn netshare_fig16(services: u32) -> Result<Topology, TopologyError> {
    let (between, at_hosts) = (Rate::of(10.0 * MBIT), Rate::of(100.0 * MBIT));
    let mut builder = Builder::new();
    for core in ["C1", "C2"] {
        builder.switch(core, 3)?;
    }
    for pod in 1..=4 {
        for side in 1..=2 {
            let middle = format!("M{pod}{side}");
            builder.switch(&middle, 2)?;
            for core in ["C1", "C2"] {
                builder.cable(&middle, core, between)?;
            }
        }
        for side in 1..=2 {
            let edge = format!("E{pod}{side}");
            builder.switch(&edge, 1)?;
            for middle in 1..=2 {
                builder.cable(&edge, &format!("M{pod}{middle}"), between)?;
            }
            for service in 1..=services {
                let host = format!("{edge}-A{service}");
                builder.host(&host)?;
                builder.cable(&host, &edge, at_hosts)?;
            }
        }
    }
    builder.build()
}

fn leaf_spine(spines: u32, leaves: u32, hosts: u32, rate: Rate, up: Rate) -> Result<Topology, TopologyError> {
    let mut builder = Builder::new();
    for spine in 0..spines {
        builder.switch(&format!("spine{spine}"), 2)?;
    }
    for leaf in 0..leaves {
        let name = format!("leaf{leaf}");
        builder.switch(&name, 1)?;
        for spine in 0..spines {
            builder.cable(&name, &format!("spine{spine}"), up)?;
        }
        add_hosts(&mut builder, &name, leaf * hosts..(leaf + 1) * hosts, rate)?;
    }
    builder.build()
}

fn fat_tree(ports: u32, rate: Rate, up: Rate) -> Result<Topology, TopologyError> {
    let half = ports / 2;
    let mut builder = Builder::new();
    for core in 0..half * half {
        builder.switch(&format!("core{core}"), 3)?;
    }
    for pod in 0..ports {
        for side in 0..half {
            let middle = format!("agg{pod}.{side}");
            builder.switch(&middle, 2)?;
            for core in side * half..(side + 1) * half {
                builder.cable(&middle, &format!("core{core}"), up)?;
            }
        }
        for side in 0..half {
            let edge = format!("edge{pod}.{side}");
            builder.switch(&edge, 1)?;
            for middle in 0..half {
                builder.cable(&edge, &format!("agg{pod}.{middle}"), up)?;
            }
            let first = (pod * half + side) * half;
            add_hosts(&mut builder, &edge, first..first + half, rate)?;
        }
    }
    builder.build()
}

fn saba_tiers(up: Rate) -> Result<Topology, TopologyError> {
    const PODS: u32 = 6;
    const RACKS: u32 = 18;
    const LEAVES: u32 = 17;
    const SERVERS: u32 = 18;
    const THIRD: u32 = 18;
    let mut builder = Builder::new();
    for spine in 0..3 * THIRD {
        builder.switch(&format!("spine{spine}"), 3)?;
    }
    for pod in 0..PODS {
        for leaf in 0..LEAVES {
            let name = format!("leaf{}", pod * LEAVES + leaf);
            builder.switch(&name, 2)?;
            let first = leaf % 3 * THIRD;
            for spine in first..first + THIRD {
                builder.cable(&name, &format!("spine{spine}"), up)?;
            }
        }
        for rack in pod * RACKS..(pod + 1) * RACKS {
            let name = format!("tor{rack}");
            builder.switch(&name, 1)?;
            for leaf in pod * LEAVES..(pod + 1) * LEAVES {
                builder.cable(&name, &format!("leaf{leaf}"), up)?;
            }
            add_hosts(&mut builder, &name, rack * SERVERS..(rack + 1) * SERVERS, SABA)?;
        }
    }
    builder.build()
}
