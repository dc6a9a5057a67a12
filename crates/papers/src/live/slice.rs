//! Measures the CCTs of a few generated coflows (the slice) over TCP without a scheduler, and under Aalo, Saath and Weir's own
//! policy with a coordinator and agents.

use weir_console::failure::Failure;
use weir_console::progress::Progress;
use weir_core::model::Workload;
use weir_testbed::BedName;

use super::big_switch;
use super::coflows::workload::{self, Scale};
use super::coflows::{self, QUEUE_SECS, SenderKind, Setup, SetupCcts};
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

/// The setups over fast links.
const FAST_SETUPS: [Setup; 5] = [
    SETUPS[0],
    SETUPS[2],
    Setup::new("saath:requeue=on, library", "saath:requeue=on", SenderKind::Library),
    SETUPS[3],
    SETUPS[5],
];

/// The maximum number of coflows over fast links.
const MAX_FAST_COFLOWS: usize = 24;

/// The median and the mean of the ratios in Saath's testbed (section 6.3, Fig. 15), and the part of them above 1.
const PUBLISHED_RATIOS: [&str; 3] = ["1.43", "1.88", "more than 70 %"];

/// The section of the page: simulated and measured CCTs.
pub(super) fn section(
    bed: &BedName,
    coflows: usize,
    volume: f64,
    progress: &Progress,
) -> Result<String, Failure> {
    let (text, ccts) = measure(bed, Scale::SLICE, coflows, volume, &SETUPS, progress)?;
    Ok([
        text,
        "\nThe CCT of each coflow under `aalo` divided by that under `saath`, next to Fig. 15 of Saath.\n"
            .to_owned(),
        coflows::coflow_ratios_table(&ccts, ["aalo", "saath"], PUBLISHED_RATIOS),
    ]
    .concat())
}

/// The section about faster links.
pub(super) fn section_with_fast_links(
    bed: &BedName,
    coflows: usize,
    volume: f64,
    progress: &Progress,
) -> Result<String, Failure> {
    let coflows = coflows.min(MAX_FAST_COFLOWS);
    measure(bed, Scale::FAST, coflows, volume, &FAST_SETUPS, progress).map(|(text, _)| text)
}

/// Measures a workload under one switch. Returns a description with tables, and the CCTs.
fn measure(
    bed: &BedName,
    scale: Scale,
    coflows: usize,
    volume: f64,
    setups: &[Setup],
    progress: &Progress,
) -> Result<(String, Vec<SetupCcts>), Failure> {
    let workload = workload::generate_slice(scale, coflows, volume)?;
    let network = big_switch(scale.hosts + 1, scale.link_rate());
    let ccts = coflows::compare(bed, scale, &network, &workload, setups, progress)?;
    let text = [
        introduction(scale, &workload, volume),
        coflows::method_text(),
        coflows::ccts_table(&ccts),
        format!("\n{}\n", coflows::RATIOS_TEXT),
        coflows::ratios_table(&ccts),
    ];
    Ok((text.concat(), ccts))
}

fn introduction(scale: Scale, workload: &Workload, volume: f64) -> String {
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
        scale.hosts,
        workload::DESCRIPTION,
        workload::volume_text(volume),
        format_cell(scale.link_rate().get() * 8e-6),
        format_cell(QUEUE_SECS[0] * 1e3),
        format_cell(QUEUE_SECS[1] * 1e3),
    )
}
