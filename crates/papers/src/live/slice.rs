//! Measures the CCTs of a few generated coflows (the slice) over TCP without a scheduler, and under Aalo and Saath with a
//! coordinator and agents.

mod control_plane;
mod transfer;
mod workload;

pub(super) use workload::MAX_COFLOWS;

use std::time::Duration;

use tokio::runtime::Builder;
use weir_agent::htb;
use weir_console::failure::Failure;
use weir_console::progress::Progress;
use weir_console::run::ReplayTask;
use weir_console::testbed;
use weir_coordinator::control_plane::Settings;
use weir_core::model::Workload;
use weir_core::units::{Rate, Time};
use weir_sim::outcome::{mean, percentile, speedups};
use weir_sim::{Outcome, ReplayOptions};
use weir_testbed::{Bed, BedName};

use super::{LINK_BYTES_PER_SEC, link_rate};
use crate::markdown::{format_cell, format_percent, table};
use control_plane::ControlPlane;

/// The lengths of the queues at hosts and at the switch, in seconds at the rate of their links. The longer a queue is, the longer TCP
/// takes to share a link evenly. At a host, a full queue also delays the host's flows to other receivers. A queue per flow
/// (fq_codel) would be better, but not every kernel has one.
const QUEUE_SECS: [f64; 2] = [3e-3, 8e-3];

/// The payload of TCP with time stamps, as a fraction of a full frame.
const PAYLOAD_FRACTION: f64 = htb::PAYLOAD_BYTES as f64 / htb::FRAME_BYTES as f64;

/// TCP without a scheduler.
const PLAIN_TCP: &str = "fair";

/// Plain TCP, and the policies of coordinators.
const POLICIES: [&str; 3] = [PLAIN_TCP, "aalo", "saath"];

/// The number of runs under each policy. Runs differ, because the shares of TCP connections are random.
const RUNS: usize = 3;

/// The CCT of each coflow under a policy, in seconds. Measured ones are medians of all runs.
struct PolicyCcts {
    policy: &'static str,
    simulated: Vec<f64>,
    measured: Vec<f64>,
}

/// The section of the page: simulated and measured CCTs.
pub(super) fn section(bed: &BedName, coflows: usize, progress: &Progress) -> Result<String, Failure> {
    let workload = workload::generate_slice(coflows)?;
    let mut simulated = Vec::new();
    for policy in POLICIES {
        let task = ReplayTask {
            policy: policy.to_owned(),
            workload: &workload,
            options: replay_options(policy),
            sensitivities: &[],
        };
        simulated.push((policy, task.run(progress)?));
    }
    let ccts = testbed::with_bed(bed, &super::big_switch(workload::HOSTS + 1), |bed| {
        let [hosts, switches] = QUEUE_SECS;
        bed.set_short_queues(hosts, switches).map_err(|error| testbed::failure(&error))?;
        let measure = |(policy, outcome): (&'static str, Outcome)| {
            let measured = measure(bed, &workload, policy, outcome.makespan, progress)?;
            Ok(PolicyCcts { policy, simulated: outcome.ccts(), measured })
        };
        simulated.into_iter().map(measure).collect::<Result<Vec<_>, Failure>>()
    })?;
    Ok(text(&workload, &ccts))
}

/// The median CCT of each coflow over all runs, in seconds. Fails if a run takes more than 30 s plus three times the simulated
/// makespan.
fn measure(
    bed: &Bed,
    workload: &Workload,
    policy: &str,
    makespan: f64,
    progress: &Progress,
) -> Result<Vec<f64>, Failure> {
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(Failure::runtime)?;
    let limit = Duration::from_secs_f64(3.0 * makespan + 30.0);
    let mut runs = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let control_plane = match policy {
            PLAIN_TCP => None,
            policy => Some(ControlPlane::start(bed.plan(), policy, link_rate())?),
        };
        let flows = workload.coflows.iter().map(|coflow| coflow.flows.len()).sum();
        let bar = progress.add_step_bar(&format!("{policy}, in real time"), flows);
        let run = transfer::run(bed.plan(), workload, control_plane.as_ref(), limit, &bar);
        runs.push(runtime.block_on(run)?);
        bar.finish_and_clear();
    }
    let median = |coflow: usize| percentile(&runs.iter().map(|run| run[coflow]).collect::<Vec<_>>(), 50.0);
    Ok((0..workload.coflows.len()).map(median).collect())
}

/// The options of a simulated replay. Ports carry the payload rate of the links. Under a coordinator, its reserve for flows without a
/// rate is subtracted.
fn replay_options(policy: &str) -> ReplayOptions {
    let settings = Settings::default();
    let reserve = if policy == PLAIN_TCP { 0.0 } else { settings.reserve };
    ReplayOptions {
        port_rate: Rate::new(LINK_BYTES_PER_SEC * PAYLOAD_FRACTION * (1.0 - reserve))
            .expect("a rate times a fraction is a rate"),
        interval: Time::new(settings.interval).expect("the default interval is a valid time"),
        keep_flow_ends: false,
        network: weir_sim::NetworkModel::default(),
    }
}

fn text(workload: &Workload, all: &[PolicyCcts]) -> String {
    let flows: usize = workload.coflows.iter().map(|coflow| coflow.flows.len()).sum();
    let bytes: f64 = workload.coflows.iter().map(|coflow| coflow.total_bytes()).sum();
    let last = workload.coflows.iter().map(|coflow| coflow.arrival.get()).fold(0.0, f64::max);
    let settings = Settings::default();
    let out = format!(
        "{} coflows with {flows} flows and {} GB arrive within {} s at {} hosts under one switch. They are {}. Links carry \
         {} Mbit/s. Their queues hold {} ms of traffic at hosts and {} ms at the switch.\n\n\
         - Under `{PLAIN_TCP}`, TCP alone divides the links. Under the other policies, each host runs an agent, which paces \
         the sockets that senders hand over. A further host has the coordinator, as a library in the measuring process. \
         Coflows are registered when they arrive. The coordinator computes a schedule every {} ms. Reports and orders use \
         the same links.\n\
         - A measured CCT is the time from the arrival of a coflow until its last byte is read. It includes the time to \
         connect and to hand over the sockets. The CCT of a coflow is the median of {RUNS} runs.\n\
         - Simulated links carry {} Mbit/s, the rate of payload without headers. Under a coordinator, its reserve of {} for \
         flows without a rate is subtracted.\n\n\
         CCTs in seconds. The error of a coflow is |measured / simulated - 1|. Its speedup is its CCT under plain TCP \
         divided by its CCT under the policy.\n",
        workload.coflows.len(),
        format_cell(bytes / 1e9),
        format_cell(last),
        workload::HOSTS,
        workload::DESCRIPTION,
        format_cell(LINK_BYTES_PER_SEC * 8e-6),
        format_cell(QUEUE_SECS[0] * 1e3),
        format_cell(QUEUE_SECS[1] * 1e3),
        format_cell(settings.interval * 1e3),
        format_cell(LINK_BYTES_PER_SEC * PAYLOAD_FRACTION * 8e-6),
        format_percent(settings.reserve),
    );
    out + &ccts_table(all)
}

fn ccts_table(all: &[PolicyCcts]) -> String {
    let plain = all.first().expect("plain TCP is the first policy");
    let mut lines = Vec::new();
    for PolicyCcts { policy, simulated, measured } in all {
        let error = |(measured, simulated): (&f64, &f64)| (measured / simulated - 1.0).abs();
        let errors: Vec<f64> = measured.iter().zip(simulated).map(error).collect();
        let errors = [50.0, 90.0].map(|p| format_percent(percentile(&errors, p)));
        let no_errors = ["-", "-"].map(str::to_owned);
        let rows = [
            ("measured", measured, &plain.measured, errors),
            ("simulated", simulated, &plain.simulated, no_errors),
        ];
        for (source, ccts, plain, errors) in rows {
            let speedups = speedups(plain, ccts);
            let numbers = [mean(ccts), percentile(ccts, 50.0), percentile(ccts, 90.0)].map(format_cell);
            let speedup_percentiles = [10.0, 50.0, 90.0].map(|p| format_cell(percentile(&speedups, p)));
            let names = [(*policy).to_owned(), source.to_owned()];
            lines.push(names.into_iter().chain(numbers).chain(errors).chain(speedup_percentiles).collect());
        }
    }
    let head = ["policy", "", "mean", "median", "P90", "median error", "P90 of the error"];
    table(&[&head[..], &["P10 of the speedup", "median", "P90"]].concat(), 2, &lines)
}
