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

use super::{Topology, TopologyBuilder, TopologyError};
use crate::units::Rate;

/// A topology that a few parameters describe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TopologyTemplate {
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

impl TopologyTemplate {
    /// Name of the template in a file.
    pub const fn name(&self) -> &'static str {
        match self {
            TopologyTemplate::BigSwitch { .. } => "big-switch",
            TopologyTemplate::NetShareFig1 => "netshare-fig1",
            TopologyTemplate::NetShareFig3 => "netshare-fig3",
            TopologyTemplate::NetShareFig6 => "netshare-fig6",
            TopologyTemplate::NetShareFig7 => "netshare-fig7",
            TopologyTemplate::NetShareFig16 { .. } => "netshare-fig16",
            TopologyTemplate::LeafSpine { .. } => "leaf-spine",
            TopologyTemplate::FatTree { .. } => "fat-tree",
            TopologyTemplate::SabaTiers { .. } => "saba-tiers",
        }
    }

    /// Builds the topology of this template.
    ///
    /// # Errors
    /// If a parameter is invalid, or if the topology exceeds the maximum number of nodes or cables. Sizes are checked
    /// before construction.
    pub fn build(&self) -> Result<Topology, TopologyError> {
        self.check_size()?;
        match *self {
            TopologyTemplate::BigSwitch { hosts, rate } => big_switch(hosts, rate),
            TopologyTemplate::NetShareFig1 => netshare_fig1(),
            TopologyTemplate::NetShareFig3 => netshare_fig3(),
            TopologyTemplate::NetShareFig6 => netshare_pods(1),
            TopologyTemplate::NetShareFig7 => netshare_pods(2),
            TopologyTemplate::NetShareFig16 { services } => netshare_fig16(services),
            TopologyTemplate::LeafSpine { spines, leaves, hosts, rate, oversubscription } => {
                let hosts_rate = rate.get() * f64::from(hosts);
                leaf_spine(
                    spines,
                    leaves,
                    hosts,
                    rate,
                    self.uplink_rate(hosts_rate, spines, oversubscription)?,
                )
            }
            TopologyTemplate::FatTree { ports, rate, oversubscription } => {
                fat_tree(ports, rate, self.uplink_rate(rate.get(), 1, oversubscription)?)
            }
            TopologyTemplate::SabaTiers { oversubscription } => {
                saba_tiers(self.uplink_rate(SABA_LINK_RATE.get(), 1, oversubscription)?)
            }
        }
    }

    /// Rate of each of `links` links in bytes per second, if together they have `rate` divided by `oversubscription`.
    fn uplink_rate(&self, rate: f64, links: u32, oversubscription: f64) -> Result<Rate, TopologyError> {
        if !(oversubscription.is_finite() && oversubscription > 0.0) {
            return Err(self.parameter_error(
                "oversubscription",
                oversubscription,
                "a finite number above 0",
            ));
        }
        let link_rate = rate / (f64::from(links) * oversubscription);
        let is_valid = |rate: f64| (Topology::MIN_RATE.get()..=Topology::MAX_RATE.get()).contains(&rate);
        if is_valid(rate / f64::from(links)) && !is_valid(link_rate) {
            return Err(self.parameter_error(
                "oversubscription",
                format!("{oversubscription:?}"),
                "a number that gives links between switches 1bit to 8000Tbit",
            ));
        }
        // The builder of cables rejects rates that are out of bounds.
        Ok(Rate::new(link_rate.min(f64::MAX))
            .expect("`min` leaves a finite number, and no operand is negative"))
    }

    fn parameter_error(
        &self,
        parameter: &'static str,
        value: impl ToString,
        expected: &'static str,
    ) -> TopologyError {
        TopologyError::Parameter { template: self.name(), parameter, value: value.to_string(), expected }
    }

    /// Checks the numbers of nodes and cables against their maxima.
    fn check_size(&self) -> Result<(), TopologyError> {
        let (hosts, switches, cables) = match *self {
            TopologyTemplate::BigSwitch { hosts, .. } => (u128::from(hosts), 1, u128::from(hosts)),
            TopologyTemplate::NetShareFig16 { services } => {
                let hosts = 8 * u128::from(services);
                (hosts, 18, hosts + 32)
            }
            TopologyTemplate::LeafSpine { spines, leaves, hosts, .. } => {
                let (s, l, h) = (u128::from(spines), u128::from(leaves), u128::from(hosts));
                for (parameter, value) in [("spines", spines), ("leaves", leaves), ("hosts", hosts)] {
                    if value == 0 {
                        return Err(self.parameter_error(parameter, value, "at least 1"));
                    }
                }
                (l * h, s + l, l * (s + h))
            }
            TopologyTemplate::FatTree { ports, .. } => {
                if ports < 2 || ports % 2 == 1 {
                    return Err(self.parameter_error("ports", ports, "an even number of at least 2"));
                }
                let k = u128::from(ports);
                (k * k * k / 4, k * k * 5 / 4, k * k * k * 3 / 4)
            }
            TopologyTemplate::NetShareFig1
            | TopologyTemplate::NetShareFig3
            | TopologyTemplate::NetShareFig6
            | TopologyTemplate::NetShareFig7
            | TopologyTemplate::SabaTiers { .. } => return Ok(()),
        };
        let limits = [
            ("hosts", hosts, Topology::MAX_HOSTS),
            ("switches", switches, Topology::MAX_SWITCHES),
            ("cables", cables, Topology::MAX_CABLES),
        ];
        for (kind, count, max) in limits {
            if !(1..=max as u128).contains(&count) {
                let count = u64::try_from(count).unwrap_or(u64::MAX);
                return Err(TopologyError::Count { kind, count, min: 1, max: max as u64 });
            }
        }
        Ok(())
    }
}

const GBIT: f64 = 125e6;
const MBIT: f64 = 125e3;

/// Rate of Saba's links.
const SABA_LINK_RATE: Rate = Rate::from_valid(56.0 * GBIT);

fn big_switch(hosts: u32, rate: Rate) -> Result<Topology, TopologyError> {
    let mut builder = TopologyBuilder::new();
    builder.add_switch("switch", 1)?;
    add_hosts(&mut builder, "switch", 0..hosts, rate)?;
    builder.build()
}

/// Adds hosts with these numbers under a switch.
fn add_hosts(
    builder: &mut TopologyBuilder,
    switch: &str,
    numbers: std::ops::Range<u32>,
    rate: Rate,
) -> Result<(), TopologyError> {
    for number in numbers {
        let host = format!("h{number}");
        builder.add_host(&host)?;
        builder.add_cable(&host, switch, rate)?;
    }
    Ok(())
}

/// The edge switches of NetShare's small examples, and their cores.
fn netshare_edges(edges: u32, cores: u32, rate: Rate) -> Result<TopologyBuilder, TopologyError> {
    let mut builder = TopologyBuilder::new();
    for core in 1..=cores {
        builder.add_switch(&format!("C{core}"), 2)?;
    }
    for edge in 1..=edges {
        builder.add_switch(&format!("E{edge}"), 1)?;
        for core in 1..=cores {
            builder.add_cable(&format!("E{edge}"), &format!("C{core}"), rate)?;
        }
    }
    Ok(builder)
}

fn netshare_fig1() -> Result<Topology, TopologyError> {
    let rate = Rate::from_valid(10.0 * GBIT);
    let mut builder = netshare_edges(4, 1, rate)?;
    for edge in 1..=4 {
        for service in 1..=3 {
            let host = format!("E{edge}-A{service}");
            builder.add_host(&host)?;
            builder.add_cable(&host, &format!("E{edge}"), rate)?;
        }
    }
    builder.build()
}

fn netshare_fig3() -> Result<Topology, TopologyError> {
    let rate = Rate::from_valid(10.0 * GBIT);
    let mut builder = netshare_edges(4, 1, rate)?;
    let edges = ["E1", "E3", "E1", "E2", "E4", "E2", "E2", "E4"];
    for (number, edge) in (1..).zip(edges) {
        let host = format!("H{number}");
        builder.add_host(&host)?;
        builder.add_cable(&host, edge, rate)?;
    }
    builder.build()
}

fn netshare_pods(cores: u32) -> Result<Topology, TopologyError> {
    let mut builder = netshare_edges(3, cores, Rate::GBIT)?;
    for number in 0..12 {
        let host = format!("H{}", number + 1);
        builder.add_host(&host)?;
        builder.add_cable(&host, &format!("E{}", number / 4 + 1), Rate::GBIT)?;
    }
    builder.build()
}

fn netshare_fig16(services: u32) -> Result<Topology, TopologyError> {
    let (switch_rate, host_rate) = (Rate::from_valid(10.0 * MBIT), Rate::from_valid(100.0 * MBIT));
    let mut builder = TopologyBuilder::new();
    for core in ["C1", "C2"] {
        builder.add_switch(core, 3)?;
    }
    for pod in 1..=4 {
        for side in 1..=2 {
            let middle = format!("M{pod}{side}");
            builder.add_switch(&middle, 2)?;
            for core in ["C1", "C2"] {
                builder.add_cable(&middle, core, switch_rate)?;
            }
        }
        for side in 1..=2 {
            let edge = format!("E{pod}{side}");
            builder.add_switch(&edge, 1)?;
            for middle in 1..=2 {
                builder.add_cable(&edge, &format!("M{pod}{middle}"), switch_rate)?;
            }
            for service in 1..=services {
                let host = format!("{edge}-A{service}");
                builder.add_host(&host)?;
                builder.add_cable(&host, &edge, host_rate)?;
            }
        }
    }
    builder.build()
}

fn leaf_spine(
    spines: u32,
    leaves: u32,
    hosts: u32,
    rate: Rate,
    uplink_rate: Rate,
) -> Result<Topology, TopologyError> {
    let mut builder = TopologyBuilder::new();
    for spine in 0..spines {
        builder.add_switch(&format!("spine{spine}"), 2)?;
    }
    for leaf in 0..leaves {
        let name = format!("leaf{leaf}");
        builder.add_switch(&name, 1)?;
        for spine in 0..spines {
            builder.add_cable(&name, &format!("spine{spine}"), uplink_rate)?;
        }
        add_hosts(&mut builder, &name, leaf * hosts..(leaf + 1) * hosts, rate)?;
    }
    builder.build()
}

fn fat_tree(ports: u32, rate: Rate, uplink_rate: Rate) -> Result<Topology, TopologyError> {
    let half = ports / 2;
    let mut builder = TopologyBuilder::new();
    for core in 0..half * half {
        builder.add_switch(&format!("core{core}"), 3)?;
    }
    for pod in 0..ports {
        for side in 0..half {
            let middle = format!("agg{pod}.{side}");
            builder.add_switch(&middle, 2)?;
            for core in side * half..(side + 1) * half {
                builder.add_cable(&middle, &format!("core{core}"), uplink_rate)?;
            }
        }
        for side in 0..half {
            let edge = format!("edge{pod}.{side}");
            builder.add_switch(&edge, 1)?;
            for middle in 0..half {
                builder.add_cable(&edge, &format!("agg{pod}.{middle}"), uplink_rate)?;
            }
            let first = (pod * half + side) * half;
            add_hosts(&mut builder, &edge, first..first + half, rate)?;
        }
    }
    builder.build()
}

fn saba_tiers(uplink_rate: Rate) -> Result<Topology, TopologyError> {
    const PODS: u32 = 6;
    const RACKS: u32 = 18;
    const LEAVES: u32 = 17;
    const SERVERS: u32 = 18;
    const SPINES_PER_GROUP: u32 = 18;
    let mut builder = TopologyBuilder::new();
    for spine in 0..3 * SPINES_PER_GROUP {
        builder.add_switch(&format!("spine{spine}"), 3)?;
    }
    for pod in 0..PODS {
        for leaf in 0..LEAVES {
            let name = format!("leaf{}", pod * LEAVES + leaf);
            builder.add_switch(&name, 2)?;
            let first = leaf % 3 * SPINES_PER_GROUP;
            for spine in first..first + SPINES_PER_GROUP {
                builder.add_cable(&name, &format!("spine{spine}"), uplink_rate)?;
            }
        }
        for rack in pod * RACKS..(pod + 1) * RACKS {
            let name = format!("tor{rack}");
            builder.add_switch(&name, 1)?;
            for leaf in pod * LEAVES..(pod + 1) * LEAVES {
                builder.add_cable(&name, &format!("leaf{leaf}"), uplink_rate)?;
            }
            add_hosts(&mut builder, &name, rack * SERVERS..(rack + 1) * SERVERS, SABA_LINK_RATE)?;
        }
    }
    builder.build()
}
