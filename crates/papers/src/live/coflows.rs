//! Measures the CCTs of generated coflows between the hosts of a testbed, next to those of the simulator.

pub mod control_plane;
pub mod flow;
mod library;
mod tables;
pub mod transfer;
pub mod workload;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use weir_console::failure::Failure;
use weir_console::policy_spec;
use weir_console::progress::Progress;
use weir_console::run::ReplayTask;
use weir_console::testbed;
use weir_coordinator::control_plane::{Link, LivePolicy, NetworkLinks, Settings};
use weir_core::engine::DecidesOver;
use weir_core::model::{LinkBudget, Topology, Trunks, Workload};
use weir_core::policy::django_settings;
use weir_core::units::{Rate, Time};
use weir_sim::outcome::percentile;
use weir_sim::{NetworkModel, ReplayOptions};
use weir_testbed::{Bed, BedName, Plan};

use crate::markdown::{format_cell, format_percent};
use control_plane::{ControlPlane, ControlUse};
pub use tables::{ccts_table, coflow_ratios_table, ratios_table};
use workload::Scale;

/// The lengths of the queues at hosts and at switches, in seconds at the rate of their links. The longer a queue is, the longer TCP
/// takes to share a link evenly. At a host, a full queue also delays the host's flows to other receivers. A queue per flow
/// (fq_codel) would be better, but not every kernel has one.
pub const QUEUE_SECS: [f64; 2] = [3e-3, 8e-3];

/// TCP without a scheduler.
pub const PLAIN_TCP: &str = "fair";

/// The number of runs under each policy. Runs differ, because the shares of TCP connections are random.
pub const RUNS: usize = 3;

/// How much lower the capacity is in the replays that show how sensitive the simulator is.
const LOWER_CAPACITY: f64 = 0.98;

/// The part of a link that carries payload: all but headers and ACKs.
pub fn payload_fraction() -> f64 {
    LinkBudget::UNDIVIDED.coflow_payload_fraction(0.0)
}

/// A part of the page's text for all experiments with coflows.
pub fn method_text() -> String {
    format!(
        "- Under `{PLAIN_TCP}`, TCP alone divides the links. Under the other policies, each host runs an agent. A further host \
         has the coordinator, as a library in the measuring process, with the default settings. Coflows are registered when \
         they arrive. The coordinator computes a schedule every {} ms. Reports and orders use the same links.\n\
         - *Sockets*: senders hand their sockets over, and the agent paces them, or lets the kernel pause them. *Library*: \
         senders use the library (`FlowSender`), which writes only while the agent lets it.\n\
         - A measured CCT is the time from the arrival of a coflow until its last byte is read. It includes the time to \
         connect and to hand over the sockets. The CCT of a coflow is the median of {RUNS} runs.\n\
         - Simulated links carry {} of their rate, the payload without headers and ACKs.\n\n\
         CCTs in seconds. The error of a coflow is |measured / simulated - 1|. Its speedup is its CCT under plain TCP \
         divided by its CCT under the policy.\n",
        format_cell(Settings::default().interval * 1e3),
        format_percent(payload_fraction()),
    )
}

/// The text before [`ratios_table`].
pub const RATIOS_TEXT: &str = "Ratios: measured to simulated CCTs and speedups, and the measured mean to that of plain TCP. The ratios of \
                               simulated CCTs with 2 % less capacity to those with all of it show how sensitive the workload is. A \
                               flow is unscheduled if its agent has no valid order when it ends.";

/// What senders use under a coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SenderKind {
    /// Sockets, which they hand over.
    Sockets,
    /// The library.
    Library,
}

/// What divides the links.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Its name in the table.
    pub name: &'static str,
    /// The policy of the coordinator, or [`PLAIN_TCP`].
    pub policy: &'static str,
    /// What senders use.
    pub senders: SenderKind,
    /// The links that the policy decides over.
    pub decides_over: DecidesOver,
}

impl Setup {
    /// TCP without a coordinator.
    pub const fn plain_tcp() -> Setup {
        Setup::new(PLAIN_TCP, PLAIN_TCP, SenderKind::Sockets)
    }

    /// A policy that decides over all links.
    pub const fn new(name: &'static str, policy: &'static str, senders: SenderKind) -> Setup {
        Setup { name, policy, senders, decides_over: DecidesOver::Links }
    }

    /// The links in the coordinator's configuration.
    fn coordinator_links(&self, network: &Topology, link_rate: Rate) -> NetworkLinks {
        let hosts = vec![Link { send: link_rate, recv: link_rate }; network.hosts()];
        match self.decides_over {
            DecidesOver::Links => NetworkLinks::with_topology(&hosts, network.clone()),
            DecidesOver::Ports => NetworkLinks::one_switch(&hosts),
        }
    }

    /// The options of a simulated replay whose links carry this fraction of their rates.
    fn replay_options(&self, network: &Topology, link_rate: Rate, usable_fraction: f64) -> ReplayOptions {
        let trunks = Some(Trunks::even_split(network.clone()).scaled(usable_fraction));
        let trunks = trunks.filter(|trunks| trunks.links() > 0).map(Arc::new);
        ReplayOptions {
            port_rate: Rate::new(link_rate.get() * usable_fraction)
                .expect("a rate times a fraction is a rate"),
            interval: Time::new(Settings::default().interval).expect("the default interval is a valid time"),
            network: NetworkModel { trunks, decides_over: self.decides_over, ..NetworkModel::default() },
            ..ReplayOptions::default()
        }
    }
}

/// The CCT of each coflow with a setup, in seconds. Measured ones are medians of all runs.
pub struct SetupCcts {
    setup: Setup,
    simulated: Vec<f64>,
    /// With [`LOWER_CAPACITY`].
    simulated_lower: Vec<f64>,
    measured: Vec<f64>,
    /// The fraction of flows that were not scheduled at their end: their agent had no valid order.
    unscheduled: f64,
}

/// Simulates and measures a workload with each setup. `network` has the hosts of `scale`, and one more for the coordinator; all
/// links of hosts have the rate of `scale`.
pub fn compare(
    bed: &BedName,
    scale: Scale,
    network: &Topology,
    workload: &Workload,
    setups: &[Setup],
    progress: &Progress,
) -> Result<Vec<SetupCcts>, Failure> {
    let simulate = |setup: &Setup, usable_fraction| {
        let task = ReplayTask {
            policy: setup.policy.to_owned(),
            workload,
            options: setup.replay_options(network, scale.link_rate(), usable_fraction),
            sensitivities: &[],
        };
        task.run(progress)
    };
    let mut simulated = Vec::new();
    for setup in setups {
        let lower = simulate(setup, LOWER_CAPACITY * payload_fraction())?;
        simulated.push((*setup, simulate(setup, payload_fraction())?, lower.ccts()));
    }
    testbed::with_bed(bed, network, |bed| {
        let [hosts, switches] = QUEUE_SECS;
        bed.set_short_queues(hosts, switches).map_err(|error| testbed::failure(&error))?;
        let mut all = Vec::new();
        for (setup, outcome, simulated_lower) in simulated {
            let (measured, unscheduled) =
                measure(bed, scale, network, workload, setup, outcome.makespan, progress)?;
            all.push(SetupCcts { setup, simulated: outcome.ccts(), simulated_lower, measured, unscheduled });
        }
        Ok(all)
    })
}

/// The median CCT of each coflow over all runs, in seconds, and the fraction of flows that were not scheduled. Fails if a run takes
/// more than 30 s plus three times the simulated makespan.
fn measure(
    bed: &Bed,
    scale: Scale,
    network: &Topology,
    workload: &Workload,
    setup: Setup,
    makespan: f64,
    progress: &Progress,
) -> Result<(Vec<f64>, f64), Failure> {
    let live_run = LiveRun {
        plan: bed.plan(),
        scale,
        links: setup.coordinator_links(network, scale.link_rate()),
        workload,
        name: setup.name,
        policy: setup.policy,
        senders: setup.senders,
        limit: max_duration(makespan),
    };
    let runs = (0..RUNS).map(|_| live_run.run(progress)).collect::<Result<Vec<_>, _>>()?;
    Ok(medians(workload, runs.iter().map(|run| &run.transfers)))
}

/// The median CCT of each coflow over at least one run, in seconds, and the fraction of flows that were not scheduled.
pub fn medians<'a>(
    workload: &Workload,
    runs: impl Iterator<Item = &'a transfer::Run> + Clone,
) -> (Vec<f64>, f64) {
    let median =
        |coflow: usize| percentile(&runs.clone().map(|run| run.ccts[coflow]).collect::<Vec<_>>(), 50.0);
    let unscheduled: usize = runs.clone().map(|run| run.unscheduled_flows).sum();
    let flows = runs.clone().count() * workload.flow_count();
    ((0..workload.coflows.len()).map(median).collect(), unscheduled as f64 / flows as f64)
}

/// The maximum duration of a run whose simulation takes `makespan` seconds.
pub fn max_duration(makespan: f64) -> Duration {
    Duration::from_secs_f64(3.0 * makespan + 30.0)
}

/// A run over a testbed.
pub struct LiveRun<'a> {
    pub plan: &'a Plan,
    pub scale: Scale,
    /// The links in the coordinator's configuration.
    pub links: NetworkLinks,
    pub workload: &'a Workload,
    /// The name of what divides the links.
    pub name: &'a str,
    /// The policy of the coordinator, or [`PLAIN_TCP`].
    pub policy: &'a str,
    pub senders: SenderKind,
    /// The run fails if it takes longer.
    pub limit: Duration,
}

/// What a run measured.
pub struct LiveOutcome {
    pub transfers: transfer::Run,
    /// `None` under plain TCP.
    pub control: Option<ControlUse>,
}

impl LiveRun<'_> {
    /// Transfers all coflows once.
    pub fn run(&self, progress: &Progress) -> Result<LiveOutcome, Failure> {
        let flows = self.workload.flow_count();
        let runtime = Builder::new_multi_thread()
            .max_blocking_threads(2 * flows + 8)
            .enable_all()
            .build()
            .map_err(Failure::runtime)?;
        let control_plane = match self.policy {
            PLAIN_TCP => None,
            policy => {
                let policy = match django_settings(policy).map_err(Failure::input)? {
                    Some(settings) => LivePolicy::matching(settings),
                    None => policy_spec::build_policy(policy, None, &[])?.into(),
                };
                Some(ControlPlane::start(self.plan, self.scale, policy, self.links.clone())?)
            }
        };
        let bar = progress.add_step_bar(&format!("{}, in real time", self.name), flows);
        let run =
            transfer::run(self.plan, self.workload, control_plane.as_ref(), self.senders, self.limit, &bar);
        let transfers = runtime.block_on(run);
        bar.finish_and_clear();
        if transfers.is_err() {
            // Blocked senders and receivers do not end by themselves.
            runtime.shutdown_background();
        }
        let transfers = transfers?;
        let control = control_plane.map(|plane| plane.resource_use()).transpose()?;
        Ok(LiveOutcome { transfers, control })
    }
}
