//! Measures the CCTs of coflows over four leaves whose uplinks are oversubscribed, under a coordinator that knows the links between
//! switches, and under one that knows the links of hosts only.

use weir_console::failure::Failure;
use weir_console::progress::Progress;
use weir_core::engine::DecidesOver;
use weir_core::model::Topology;
use weir_core::model::topology::TopologyBuilder;
use weir_core::units::Rate;
use weir_testbed::BedName;

use super::coflows::{self, SenderKind, Setup, workload};
use super::{LINK_BYTES_PER_SEC, link_rate};
use crate::markdown::format_cell;

const LEAVES: u32 = 4;

/// The factor by which the hosts under a leaf send more than its uplinks carry.
const OVERSUBSCRIPTION: f64 = 2.0;

/// The numbers of spines. With one, paths are unique. With more, the kernel selects one for each connection.
const SPINES: [u32; 2] = [1, 2];

/// The maximum number of coflows.
const MAX_COFLOWS: usize = 16;

const SETUPS: [Setup; 4] = [
    Setup::plain_tcp(),
    Setup {
        decides_over: DecidesOver::Ports,
        ..Setup::new("saath, links of hosts only", "saath", SenderKind::Library)
    },
    Setup::new("saath", "saath", SenderKind::Library),
    Setup::new("weir", "weir", SenderKind::Library),
];

/// The section of the page: simulated and measured CCTs for each number of spines.
pub(super) fn section(
    bed: &BedName,
    coflows: usize,
    volume: f64,
    progress: &Progress,
) -> Result<String, Failure> {
    let workload = workload::generate_slice(coflows.min(MAX_COFLOWS), volume)?;
    let mut out = format!(
        "The first {} coflows of the slice, at the same hosts under {LEAVES} leaves.{} Links of hosts carry {} Mbit/s, and the \
         uplinks of a leaf together {} Mbit/s. The coordinator's configuration has the `topology`, except for \"links of hosts \
         only\". The simulator has the same fabric and, like the coordinator, divides flows evenly among the spines. The \
         testbed selects a spine for each connection by a hash.\n\n{}",
        workload.coflows.len(),
        workload::volume_text(volume),
        format_cell(LINK_BYTES_PER_SEC * 8e-6),
        format_cell(uplink_rate(1).get() * 8e-6),
        coflows::method_text(),
    );
    for spines in SPINES {
        let ccts = coflows::compare(bed, &four_leaves(spines), &workload, &SETUPS, progress)?;
        let plural = if spines == 1 { "" } else { "s" };
        out += &format!("\n{spines} spine{plural}:\n\n{}", coflows::ccts_table(&ccts).trim_start());
    }
    Ok(out)
}

/// The rate of each uplink of a leaf.
fn uplink_rate(spines: u32) -> Rate {
    let hosts = f64::from(workload::HOSTS / LEAVES);
    Rate::new(link_rate().get() * hosts / (f64::from(spines) * OVERSUBSCRIPTION))
        .expect("a rate times a positive factor is a rate")
}

/// The hosts of the slice under four leaves, and under the first leaf a host for the coordinator.
fn four_leaves(spines: u32) -> Topology {
    let build = || {
        let mut builder = TopologyBuilder::new();
        (0..=workload::HOSTS).try_for_each(|host| builder.add_host(&format!("h{host}")))?;
        (0..LEAVES).try_for_each(|leaf| builder.add_switch(&format!("leaf{leaf}"), 1))?;
        (0..spines).try_for_each(|spine| builder.add_switch(&format!("spine{spine}"), 2))?;
        for host in 0..=workload::HOSTS {
            let leaf = host * LEAVES / workload::HOSTS % LEAVES;
            builder.add_cable(&format!("h{host}"), &format!("leaf{leaf}"), link_rate())?;
        }
        for (leaf, spine) in (0..LEAVES).flat_map(|leaf| (0..spines).map(move |spine| (leaf, spine))) {
            builder.add_cable(&format!("leaf{leaf}"), &format!("spine{spine}"), uplink_rate(spines))?;
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
    fn uplinks_of_a_leaf_carry_half_of_its_hosts_with_any_number_of_spines() {
        for spines in SPINES {
            let network = four_leaves(spines);
            assert_eq!(network.hosts(), workload::HOSTS as usize + 1);
            let trunks = Trunks::even_split(network);
            assert_eq!(trunks.capacities(), [25e6; 8]);
        }
    }
}
