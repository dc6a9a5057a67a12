//! Runs each replay of the page once, although several sections use it.
//!
//! The page is written in two passes. In the first, [`Replays::summary`] records the required replays and returns
//! placeholders. Then [`Replays::run`] runs all of them concurrently. In the second pass, the page contains their figures.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use weir_core::model::{Goodput, Workload};
use weir_core::policy::AnyPolicy;
use weir_sim::outcome::{Outcome, mean, percentile};
use weir_sim::{NetworkModel, NoObserver, ReplayOptions};
use weir_trace::incast::IncastMeasurements;

use super::random_pulls::RandomPulls;
use super::setup::{ConnectionCost, DEFAULT, Setup, WorkloadSource};
use weir_console::failure::Failure;
use weir_console::progress::Progress;
use weir_console::run::{self, ReplayTask};

/// Aalo with known sizes. Queues share a port by weights.
pub const AALO: &str = "aalo+";
/// Aalo with known sizes and strict queues: a sender always serves its first queue first.
pub const STRICT_AALO: &str = "aalo+:sharing=strict";
/// Per-flow max-min, in place of DCTCP.
pub const DCTCP: &str = "fair";

/// The number of connections that is best in Fig. 2(a).
pub const PUBLISHED_BEST: usize = 11;

/// The figures of a replay.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Coflow completion times, in seconds.
    ccts: Vec<f64>,
    /// The time that each schedule took to compute, in milliseconds.
    pub schedule_ms: Vec<f64>,
}

impl Summary {
    /// The mean CCT, in seconds.
    pub fn mean(&self) -> f64 {
        mean(&self.ccts)
    }

    /// The CCTs, in seconds.
    pub fn ccts(&self) -> &[f64] {
        &self.ccts
    }

    /// A percentile of the CCTs, in seconds.
    pub fn percentile(&self, p: f64) -> f64 {
        percentile(&self.ccts, p)
    }

    /// The 95th percentile of the CCTs, in seconds.
    pub fn p95(&self) -> f64 {
        self.percentile(95.0)
    }
}

/// The inputs of replays.
pub struct Inputs<'a> {
    pub trace: &'a Workload,
    /// Measurements of [`ConnectionCost::Plain`].
    pub plain: IncastMeasurements,
    /// Measurements of [`ConnectionCost::Marked`].
    pub marked: IncastMeasurements,
    /// Measurements of [`ConnectionCost::SmallTransfers`].
    pub small: IncastMeasurements,
    /// Measurements of [`ConnectionCost::Steady`].
    pub steady: IncastMeasurements,
}

impl Inputs<'_> {
    /// The measurements of the default setup.
    pub fn base(&self) -> &IncastMeasurements {
        self.measurements(DEFAULT.cost).expect("connections of the default setup have a cost")
    }

    /// `None` if connections cost nothing.
    fn measurements(&self, cost: ConnectionCost) -> Option<&IncastMeasurements> {
        match cost {
            ConnectionCost::None => None,
            ConnectionCost::Plain => Some(&self.plain),
            ConnectionCost::Marked => Some(&self.marked),
            ConnectionCost::SmallTransfers => Some(&self.small),
            ConnectionCost::Steady => Some(&self.steady),
        }
    }

    /// The queue length, in packets, from which the switch marks.
    pub fn threshold(&self) -> u32 {
        self.base().marking_threshold_packets.expect("the files for marked connections have a threshold")
    }

    /// Django's number of connections for each host: that of theorem 4.1, or the paper's best if connections cost nothing.
    pub fn connections(&self, setup: &Setup) -> usize {
        match setup.cost {
            ConnectionCost::None => PUBLISHED_BEST,
            _ => weir_predict::max_connections(setup.buffer_packets, self.threshold()).connections as usize,
        }
    }

    /// The most that connections of the default setup reduce the goodput of a port, as a fraction.
    pub fn max_reduction(&self) -> f64 {
        let goodput = self.goodput(&DEFAULT).expect("connections of the default setup have a cost");
        let all = (1..=self.max_connections() as usize).map(|count| 1.0 - goodput.utilization(count));
        all.fold(0.0, f64::max)
    }

    /// The maximum measured number of connections.
    pub fn max_connections(&self) -> u32 {
        *self
            .base()
            .incast
            .connections()
            .last()
            .expect("measurements have at least one number of connections")
    }

    /// The goodput of a receiving port by its number of connections. `None` if connections cost nothing.
    pub fn goodput(&self, setup: &Setup) -> Option<Goodput> {
        let goodput = self.measurements(setup.cost)?.incast.goodput(setup.buffer_packets, setup.rate());
        Some(goodput.expect("every setup uses a buffer that was measured"))
    }
}

/// The policy of a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ReplayPolicy {
    /// A policy of the simulator, with its parameters.
    Named(String),
    /// [`RandomPulls`] with this number of connections for each host.
    RandomPulls(usize),
}

/// A replay that the page requires.
struct Entry {
    setup: Setup,
    policy: ReplayPolicy,
    /// `None` until the replay has run.
    summary: Option<Rc<Summary>>,
}

/// The replays of a page.
pub struct Replays<'a> {
    pub inputs: Inputs<'a>,
    entries: RefCell<Vec<Entry>>,
}

impl<'a> Replays<'a> {
    pub fn new(inputs: Inputs<'a>) -> Replays<'a> {
        Replays { inputs, entries: RefCell::new(Vec::new()) }
    }

    /// The figures of a policy in a setup. Before [`Replays::run`], records the replay and returns placeholders.
    pub fn summary(&self, setup: Setup, policy: &str) -> Rc<Summary> {
        self.summary_of(setup, ReplayPolicy::Named(policy.to_owned()))
    }

    /// As [`Replays::summary`], for [`RandomPulls`] of the coflow of Fig. 2.
    pub fn random_pulls(&self, setup: Setup, connections: usize) -> Rc<Summary> {
        self.summary_of(setup, ReplayPolicy::RandomPulls(connections))
    }

    fn summary_of(&self, setup: Setup, policy: ReplayPolicy) -> Rc<Summary> {
        let mut entries = self.entries.borrow_mut();
        match entries.iter().find(|entry| entry.setup == setup && entry.policy == policy) {
            Some(Entry { summary: Some(summary), .. }) => return Rc::clone(summary),
            Some(_) => {}
            None => entries.push(Entry { setup, policy, summary: None }),
        }
        Rc::new(Summary { ccts: vec![1.0], schedule_ms: vec![1.0] })
    }

    /// Django with its default number of connections. `parameters` is empty or starts with a colon.
    pub fn django(&self, setup: Setup, parameters: &str) -> Rc<Summary> {
        self.django_with(setup, self.inputs.connections(&setup), parameters)
    }

    /// Django with this number of connections.
    pub fn django_with(&self, setup: Setup, connections: usize, parameters: &str) -> Rc<Summary> {
        self.summary(setup, &format!("django:connections={connections}{parameters}"))
    }

    /// Django, Aalo+, Aalo+ with strict queues, and DCTCP in a setup.
    pub fn compare_policies(&self, setup: Setup) -> [Rc<Summary>; 4] {
        let [aalo, strict_aalo, dctcp] = [AALO, STRICT_AALO, DCTCP].map(|policy| self.summary(setup, policy));
        [self.django(setup, ""), aalo, strict_aalo, dctcp]
    }

    /// Runs all recorded replays, at most `jobs` concurrently.
    ///
    /// # Errors
    /// The error of the first replay that fails.
    pub fn run(&self, jobs: usize, progress: &Progress) -> Result<(), Failure> {
        let (mut entries, inputs) = (self.entries.borrow_mut(), &self.inputs);
        let bar = progress.add_step_bar("replays", entries.len());
        let tasks: Vec<(Setup, ReplayPolicy)> =
            entries.iter().map(|entry| (entry.setup, entry.policy.clone())).collect();
        let summaries = run::run_concurrently(tasks.len(), jobs, |index| {
            let (setup, policy) = &tasks[index];
            let options = ReplayOptions {
                port_rate: setup.rate(),
                network: NetworkModel {
                    goodput: inputs.goodput(setup).map(Arc::new),
                    ..NetworkModel::default()
                },
                ..ReplayOptions::default()
            };
            let outcome = replay(setup, policy, inputs.trace, options, progress)?;
            bar.inc(1);
            let schedules = outcome.schedule_ns.iter().map(|&ns| f64::from(ns) / 1e6).collect();
            Ok(Summary { ccts: outcome.ccts(), schedule_ms: schedules })
        })?;
        bar.finish_and_clear();
        for (entry, summary) in entries.iter_mut().zip(summaries) {
            entry.summary = Some(Rc::new(summary));
        }
        Ok(())
    }
}

fn replay(
    setup: &Setup,
    policy: &ReplayPolicy,
    trace: &Workload,
    options: ReplayOptions,
    progress: &Progress,
) -> Result<Outcome, Failure> {
    let workload = setup.workload(trace);
    match policy {
        ReplayPolicy::Named(policy) => {
            ReplayTask { policy: policy.clone(), workload: &workload, options, sensitivities: &[] }
                .run(progress)
        }
        ReplayPolicy::RandomPulls(connections) => {
            let WorkloadSource::Shuffle(seed) = setup.source else {
                unreachable!("random pulls are those of the coflow of Fig. 2");
            };
            let pulls = RandomPulls::new(*connections, seed);
            let policy = AnyPolicy::from(pulls);
            weir_sim::replay(&workload, policy, &options, &mut NoObserver)
                .map_err(|error| Failure::from_replay_error("random pulls", &error))
        }
    }
}
