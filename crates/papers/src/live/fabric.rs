//! Measures the CCTs of coflows over four leaves whose uplinks are oversubscribed, under a coordinator that knows the links between
//! switches, and under one that knows the links of hosts only.

use weir_console::failure::Failure;
use weir_console::progress::Progress;
use weir_core::engine::DecidesOver;
use weir_core::model::Topology;
use weir_core::model::topology::TopologyBuilder;
use weir_core::units::Rate;
use weir_testbed::BedName;

use super::coflows::workload::{self, Scale};
use super::coflows::{self, SenderKind, Setup};
use crate::markdown::format_cell;

const SCALE: Scale = Scale::WIDE;

const LEAVES: u32 = 4;

/// The factor by which the hosts under a leaf send more than its uplinks carry.
const OVERSUBSCRIPTION: f64 = 2.0;

const SETUPS: [Setup; 4] = [
    Setup::plain_tcp(),
    Setup {
        decides_over: DecidesOver::Ports,
        ..Setup::new("saath, links of hosts only", "saath", SenderKind::Library)
    },
    Setup::new("saath", "saath", SenderKind::Library),
    Setup::new("weir", "weir", SenderKind::Library),
];

/// The section of the page: simulated and measured CCTs.
pub(super) fn section(
    bed: &BedName,
    coflows: usize,
    volume: f64,
    progress: &Progress,
) -> Result<String, Failure> {
    let workload = workload::generate_slice(SCALE, coflows, volume)?;
    let ccts = coflows::compare(bed, SCALE, &four_leaves(), &workload, &SETUPS, progress)?;
    let flows: usize = workload.coflows.iter().map(|coflow| coflow.flows.len()).sum();
    Ok(format!(
        "{} coflows with {flows} flows between {} hosts under {LEAVES} leaves and a spine, of the same kinds as those of the slice.{} \
         Links of hosts carry {} Mbit/s, and the uplink of a leaf {} Mbit/s. The coordinator's configuration has the `topology`, \
         except for \"links of hosts only\". The simulator has the same network. Senders use the library.\n\n{}{}\n{}\n{}",
        workload.coflows.len(),
        SCALE.hosts,
        workload::volume_text(volume),
        format_cell(SCALE.link_rate().get() * 8e-6),
        format_cell(uplink_rate().get() * 8e-6),
        coflows::method_text(),
        coflows::ccts_table(&ccts),
        coflows::RATIOS_TEXT,
        coflows::ratios_table(&ccts),
    ))
}

/// The rate of the uplink of a leaf.
fn uplink_rate() -> Rate {
    let hosts = f64::from(SCALE.hosts / LEAVES);
    Rate::new(SCALE.link_rate().get() * hosts / OVERSUBSCRIPTION)
        .expect("a rate times a positive factor is a rate")
}

/// The hosts under four leaves, and under the first leaf a host for the coordinator.
fn four_leaves() -> Topology {
    let build = || {
        let mut builder = TopologyBuilder::new();
        (0..=SCALE.hosts).try_for_each(|host| builder.add_host(&format!("h{host}")))?;
        (0..LEAVES).try_for_each(|leaf| builder.add_switch(&format!("leaf{leaf}"), 1))?;
        builder.add_switch("spine", 2)?;
        for host in 0..=SCALE.hosts {
            let leaf = host * LEAVES / SCALE.hosts % LEAVES;
            builder.add_cable(&format!("h{host}"), &format!("leaf{leaf}"), SCALE.link_rate())?;
        }
        for leaf in 0..LEAVES {
            builder.add_cable(&format!("leaf{leaf}"), "spine", uplink_rate())?;
        }
        builder.build()
    };
    build().expect("the nodes and cables are valid")
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::model::Trunks;

    #[test]
    fn uplinks_of_a_leaf_carry_half_of_its_hosts() {
        let network = four_leaves();
        assert_eq!(network.hosts(), SCALE.hosts as usize + 1);
        let trunks = Trunks::even_split(network);
        assert_eq!(trunks.capacities(), [0.5 * 12.5e6 * f64::from(SCALE.hosts / LEAVES); 8]);
    }
}
