//! Measures the CCTs of a few generated coflows (the slice) over TCP without a scheduler, and under Aalo, Saath and Weir's own
//! policy with a coordinator and agents.

use weir_console::failure::Failure;
use weir_console::progress::Progress;
use weir_core::model::Workload;
use weir_testbed::BedName;

use super::coflows::{self, QUEUE_SECS, SenderKind, Setup, workload};
use super::{LINK_BYTES_PER_SEC, big_switch};
use crate::markdown::format_cell;

/// Plain TCP, and the policies of coordinators.
const SETUPS: [Setup; 7] = [
    Setup::plain_tcp(),
    Setup::new("aalo, library", "aalo", SenderKind::Library),
    Setup::new("saath, library", "saath", SenderKind::Library),
    Setup::new("weir, library", "weir", SenderKind::Library),
    Setup::new("aalo, sockets", "aalo", SenderKind::Sockets),
    Setup::new("saath, sockets", "saath", SenderKind::Sockets),
    Setup::new("weir, sockets", "weir", SenderKind::Sockets),
];

/// The median and the mean of the ratios in Saath's testbed (section 6.3, Fig. 15), and the part of them above 1.
const PUBLISHED_RATIOS: [&str; 3] = ["1.43", "1.88", "more than 70 %"];

/// The section of the page: simulated and measured CCTs.
pub(super) fn section(
    bed: &BedName,
    coflows: usize,
    volume: f64,
    progress: &Progress,
) -> Result<String, Failure> {
    let workload = workload::generate_slice(coflows, volume)?;
    let ccts = coflows::compare(bed, &big_switch(workload::HOSTS + 1), &workload, &SETUPS, progress)?;
    Ok([
        introduction(&workload, volume),
        coflows::method_text(),
        coflows::ccts_table(&ccts),
        "\nRatios: measured to simulated CCTs and speedups, the measured mean to that of plain TCP, and simulated CCTs with 2 % less \
         capacity to those with all of it, which shows how sensitive the workload is.\n"
            .to_owned(),
        coflows::ratios_table(&ccts),
        "\nThe CCT of each coflow under `aalo` divided by that under `saath`, next to Fig. 15 of Saath.\n".to_owned(),
        coflows::coflow_ratios_table(&ccts, ["aalo", "saath"], PUBLISHED_RATIOS),
    ]
    .concat())
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
