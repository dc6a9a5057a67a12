//! Measures the CCTs of a few generated coflows (the slice) over TCP without a scheduler, and under Aalo, Saath and Weir's own
//! policy with a coordinator and agents.

use weir_console::failure::Failure;
use weir_console::progress::Progress;
use weir_core::model::Workload;
use weir_testbed::BedName;

use super::coflows::{self, PLAIN_TCP, QUEUE_SECS, Setup, workload};
use super::{LINK_BYTES_PER_SEC, big_switch};
use crate::markdown::format_cell;

/// Plain TCP, and the policies of coordinators.
const SETUPS: [Setup; 4] =
    [Setup::new(PLAIN_TCP), Setup::new("aalo"), Setup::new("saath"), Setup::new("weir")];

/// The section of the page: simulated and measured CCTs.
pub(super) fn section(
    bed: &BedName,
    coflows: usize,
    volume: f64,
    progress: &Progress,
) -> Result<String, Failure> {
    let workload = workload::generate_slice(coflows, volume)?;
    let ccts = coflows::compare(bed, &big_switch(workload::HOSTS + 1), &workload, &SETUPS, progress)?;
    Ok(introduction(&workload, volume) + &coflows::method_text() + &coflows::ccts_table(&ccts))
}

fn introduction(workload: &Workload, volume: f64) -> String {
    let flows: usize = workload.coflows.iter().map(|coflow| coflow.flows.len()).sum();
    let bytes: f64 = workload.coflows.iter().map(|coflow| coflow.total_bytes()).sum();
    let last = workload.coflows.iter().map(|coflow| coflow.arrival.get()).fold(0.0, f64::max);
    format!(
        "{} coflows with {flows} flows and {} GB arrive within {} s at {} hosts under one switch. They are {}.{} Links carry \
         {} Mbit/s. Their queues hold {} ms of traffic at hosts and {} ms at the switch. The sizes of flows are registered, \
         but the policies use only reported bytes.\n\n",
        workload.coflows.len(),
        format_cell(bytes / 1e9),
        format_cell(last),
        workload::HOSTS,
        workload::DESCRIPTION,
        workload::volume_text(volume),
        format_cell(LINK_BYTES_PER_SEC * 8e-6),
        format_cell(QUEUE_SECS[0] * 1e3),
        format_cell(QUEUE_SECS[1] * 1e3),
    )
}
