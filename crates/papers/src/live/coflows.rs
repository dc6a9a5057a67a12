//! Measures the CCTs of generated coflows between the hosts of a testbed, next to those of the simulator.

pub mod control_plane;
mod transfer;
pub mod workload;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use weir_console::failure::Failure;
use weir_console::policy_spec;
use weir_console::progress::Progress;
use weir_console::run::ReplayTask;
use weir_console::testbed;
use weir_coordinator::control_plane::{Link, NetworkLinks, Settings};
use weir_core::engine::DecidesOver;
use weir_core::model::{LinkBudget, Topology, Trunks, Workload};
use weir_core::units::{Rate, Time};
use weir_sim::outcome::{mean, percentile, speedups};
use weir_sim::{NetworkModel, Outcome, ReplayOptions};
use weir_testbed::{Bed, BedName};

use super::{LINK_BYTES_PER_SEC, link_rate};
use crate::markdown::{format_cell, format_percent, table};
use control_plane::ControlPlane;

/// The lengths of the queues at hosts and at switches, in seconds at the rate of their links. The longer a queue is, the longer TCP
/// takes to share a link evenly. At a host, a full queue also delays the host's flows to other receivers. A queue per flow
/// (fq_codel) would be better, but not every kernel has one.
pub const QUEUE_SECS: [f64; 2] = [3e-3, 8e-3];

/// TCP without a scheduler.
pub const PLAIN_TCP: &str = "fair";

/// The number of runs under each policy. Runs differ, because the shares of TCP connections are random.
pub const RUNS: usize = 3;

/// The coordinator's settings. With the default reserve, tens of waiting flows on links of 100 Mbit/s would each send a packet every
/// third of a second, and follow a higher rate only after that time.
pub fn settings() -> Settings {
    Settings { reserve: 0.05, ..Settings::default() }
}

/// A part of the page's text for all experiments with coflows.
pub fn method_text() -> String {
    let settings = settings();
    format!(
        "- Under `{PLAIN_TCP}`, TCP alone divides the links. Under the other policies, each host runs an agent, which paces \
         the sockets that senders hand over. A further host has the coordinator, as a library in the measuring process. \
         Coflows are registered when they arrive. The coordinator computes a schedule every {} ms. Reports and orders use \
         the same links.\n\
         - A measured CCT is the time from the arrival of a coflow until its last byte is read. It includes the time to \
         connect and to hand over the sockets. The CCT of a coflow is the median of {RUNS} runs.\n\
         - Simulated links carry {} of their rate, the payload without headers and ACKs. Under a coordinator they carry {}: without the \
         margin of links, and its reserve of {} for flows without a rate.\n\n\
         CCTs in seconds. The error of a coflow is |measured / simulated - 1|. Its speedup is its CCT under plain TCP \
         divided by its CCT under the policy.\n",
        format_cell(settings.interval * 1e3),
        format_percent(LinkBudget::UNDIVIDED.coflow_payload_fraction(0.0)),
        format_percent(settings.budget.coflow_payload_fraction(settings.reserve)),
        format_percent(settings.reserve),
    )
}

/// What divides the links.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Its name in the table.
    pub name: &'static str,
    /// The policy of the coordinator, or [`PLAIN_TCP`].
    pub policy: &'static str,
    /// The links that the policy decides over.
    pub decides_over: DecidesOver,
}

impl Setup {
    /// A policy that decides over all links.
    pub const fn new(policy: &'static str) -> Setup {
        Setup { name: policy, policy, decides_over: DecidesOver::Links }
    }

    /// The links in the coordinator's configuration.
    fn coordinator_links(&self, network: &Topology) -> NetworkLinks {
        let hosts = vec![Link { send: link_rate(), recv: link_rate() }; network.hosts()];
        match self.decides_over {
            DecidesOver::Links => NetworkLinks::with_topology(&hosts, network.clone()),
            DecidesOver::Ports => NetworkLinks::one_switch(&hosts),
        }
    }

    /// The options of a simulated replay. Links carry the payload rate; under a coordinator, the part that is scheduled.
    fn replay_options(&self, network: &Topology) -> ReplayOptions {
        let settings = settings();
        let usable_fraction = match self.policy {
            PLAIN_TCP => LinkBudget::UNDIVIDED.coflow_payload_fraction(0.0),
            _ => settings.budget.coflow_payload_fraction(settings.reserve),
        };
        let trunks = Some(Trunks::even_split(network.clone()).scaled(usable_fraction));
        let trunks = trunks.filter(|trunks| trunks.links() > 0).map(Arc::new);
        ReplayOptions {
            port_rate: Rate::new(LINK_BYTES_PER_SEC * usable_fraction)
                .expect("a rate times a fraction is a rate"),
            interval: Time::new(settings.interval).expect("the default interval is a valid time"),
            network: NetworkModel { trunks, decides_over: self.decides_over, ..NetworkModel::default() },
            ..ReplayOptions::default()
        }
    }
}

/// The CCT of each coflow with a setup, in seconds. Measured ones are medians of all runs.
pub struct SetupCcts {
    name: &'static str,
    simulated: Vec<f64>,
    measured: Vec<f64>,
}

/// Simulates and measures a workload with each setup. `network` has the hosts of the workload, and one more for the coordinator;
/// all links of hosts have [`link_rate`].
pub fn compare(
    bed: &BedName,
    network: &Topology,
    workload: &Workload,
    setups: &[Setup],
    progress: &Progress,
) -> Result<Vec<SetupCcts>, Failure> {
    let mut simulated = Vec::new();
    for &setup in setups {
        let task = ReplayTask {
            policy: setup.policy.to_owned(),
            workload,
            options: setup.replay_options(network),
            sensitivities: &[],
        };
        simulated.push((setup, task.run(progress)?));
    }
    testbed::with_bed(bed, network, |bed| {
        let [hosts, switches] = QUEUE_SECS;
        bed.set_short_queues(hosts, switches).map_err(|error| testbed::failure(&error))?;
        let measure = |(setup, outcome): (Setup, Outcome)| {
            let measured = measure(bed, network, workload, setup, outcome.makespan, progress)?;
            Ok(SetupCcts { name: setup.name, simulated: outcome.ccts(), measured })
        };
        simulated.into_iter().map(measure).collect::<Result<Vec<_>, Failure>>()
    })
}

/// The median CCT of each coflow over all runs, in seconds. Fails if a run takes more than 30 s plus three times the simulated
/// makespan.
fn measure(
    bed: &Bed,
    network: &Topology,
    workload: &Workload,
    setup: Setup,
    makespan: f64,
    progress: &Progress,
) -> Result<Vec<f64>, Failure> {
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(Failure::runtime)?;
    let limit = Duration::from_secs_f64(3.0 * makespan + 30.0);
    let mut runs = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let control_plane = match setup.policy {
            PLAIN_TCP => None,
            policy => {
                let policy = policy_spec::build_policy(policy, None, &[])?;
                Some(ControlPlane::start(bed.plan(), policy, setup.coordinator_links(network))?)
            }
        };
        let flows = workload.coflows.iter().map(|coflow| coflow.flows.len()).sum();
        let bar = progress.add_step_bar(&format!("{}, in real time", setup.name), flows);
        let run = transfer::run(bed.plan(), workload, control_plane.as_ref(), limit, &bar);
        runs.push(runtime.block_on(run)?);
        bar.finish_and_clear();
    }
    let median = |coflow: usize| percentile(&runs.iter().map(|run| run[coflow]).collect::<Vec<_>>(), 50.0);
    Ok((0..workload.coflows.len()).map(median).collect())
}

/// The table of all setups; the first one is plain TCP.
pub fn ccts_table(all: &[SetupCcts]) -> String {
    let plain = all.first().expect("plain TCP is the first setup");
    let mut lines = Vec::new();
    for SetupCcts { name, simulated, measured } in all {
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
            let names = [(*name).to_owned(), source.to_owned()];
            lines.push(names.into_iter().chain(numbers).chain(errors).chain(speedup_percentiles).collect());
        }
    }
    let head = ["policy", "", "mean", "median", "P90", "median error", "P90 of the error"];
    table(&[&head[..], &["P10 of the speedup", "median", "P90"]].concat(), 2, &lines)
}
