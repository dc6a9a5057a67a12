//! Runs what the document asks for, each thing once.
//!
//! The document is written twice: the first time it only asks, and gets empty answers; then all that it asked for is
//! replayed; the second time it gets what was found. So what is replayed and what is shown cannot differ.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use weir_core::model::Workload;
use weir_core::units::{Rate, Time};
use weir_sim::outcome::{deviation, mean, percentile};
use weir_sim::{Options, Outcome};
use weir_trace::describe;

use super::standin::one_flow::{self, Order, Switches};
use super::standin::{Pace, coflowsim};
use super::world::World;
use weir_console::failure::Failure;
use weir_console::progress::Progress;
use weir_console::run::{self, Task};
use weir_sim::outcome::speedups;

/// Plain TCP as CoflowSim shares: a stand-in, see [`coflowsim::fair`].
pub const COFLOWSIM_FAIR: &str = "CoflowSim's FAIR";
/// Aalo as CoflowSim has it: a stand-in, see [`coflowsim::aalo`].
pub const COFLOWSIM_AALO: &str = "CoflowSim's Aalo";
/// Aalo whose senders send one flow at a time, in these orders: stand-ins, see [`one_flow::aalo`]. After a comma, what a policy of Saath
/// has to say that its senders do so too: see [`one_flow::saath`].
pub const ONE_FLOW: [(&str, Order); 3] = [
    ("one flow at a time, in any order", Order::Any),
    ("one flow at a time, in a ring", Order::Ring),
    ("one flow at a time, all alike", Order::Alike),
];
/// How late ends of flows may be noticed, in milliseconds: a quarter of an interval to eight, two steps to each doubling.
pub const LATE_MS: [u32; 11] = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
/// How many times is drawn what is drawn.
pub const DRAWS: u64 = 20;

/// What is kept of a replay; lists are in the order of the trace's coflows.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Coflow completion times, in seconds.
    pub ccts: Vec<f64>,
    /// Standard deviations of flow completion times over their means; empty for those of CoflowSim.
    pub deviations: Vec<f64>,
    /// How many schedules were computed.
    pub schedules: usize,
    /// Mean, P90 and P99 of the time of a schedule, in microseconds.
    pub schedule_us: [f64; 3],
    /// The deviations for each of [`LATE_MS`] and each time that it was drawn; empty unless asked for.
    late: Vec<Vec<Vec<f64>>>,
}

impl Summary {
    fn new(outcome: &Outcome) -> Summary {
        let us: Vec<f64> = outcome.schedule_ns.iter().map(|&ns| f64::from(ns) / 1e3).collect();
        Summary {
            ccts: outcome.ccts(),
            deviations: outcome.coflows.iter().map(|c| c.deviation).collect(),
            schedules: us.len(),
            schedule_us: [mean(&us), percentile(&us, 90.0), percentile(&us, 99.0)],
            late: Vec::new(),
        }
    }

    /// The mean completion time.
    pub fn mean(&self) -> f64 {
        mean(&self.ccts)
    }

    /// For each coflow, its completion time under `baseline` over that here.
    pub fn over(&self, baseline: &Summary) -> Vec<f64> {
        speedups(&baseline.ccts, &self.ccts)
    }
}

/// What does not change with policies.
#[derive(Debug, Clone, Copy)]
pub struct Fact {
    /// Number of flows.
    pub width: usize,
    /// Whether all flows are equally long.
    pub equal: bool,
    /// Bin of Table 1, from 1.
    pub bin: usize,
}

/// The deviations of an outcome if the end of every flow is noticed late, by 0 to so many milliseconds, all equally likely.
fn late(outcome: &Outcome, ms: u32, draw: u64) -> Vec<f64> {
    let mut random = ChaCha8Rng::seed_from_u64(draw);
    let coflows = outcome.coflows.iter().map(|coflow| {
        let mut late = || f64::from(ms) * 1e-3 * f64::from(random.next_u32()) / f64::from(u32::MAX);
        let noticed: Vec<f64> = coflow.flow_ends.iter().map(|end| end - coflow.arrival + late()).collect();
        deviation(noticed.into_iter())
    });
    coflows.collect()
}

struct Entry {
    world: World,
    policy: String,
    /// Whether it is about [`late`] ends.
    late: bool,
    /// Of a policy that draws, which of its draws.
    draw: u64,
    found: Option<Rc<Summary>>,
}

/// The laboratory.
pub struct Lab<'a> {
    /// The trace.
    pub trace: &'a Workload,
    /// About each of its coflows.
    pub facts: Vec<Fact>,
    /// The world that is not an experiment.
    pub plain: World,
    /// What a port carries there.
    pub port_rate: Rate,
    unit: f64,
    entries: RefCell<Vec<Entry>>,
    /// By world: what [`Lab::alone`] found.
    alone: RefCell<Vec<(World, Rc<Vec<f64>>)>>,
}

impl<'a> Lab<'a> {
    /// An empty one; `unit` is what a megabyte of the trace was taken for, in bytes.
    pub fn new(trace: &'a Workload, unit: f64, port_rate: Rate, interval: Time) -> Lab<'a> {
        let threshold = weir_core::units::Bytes::new(100.0 * unit).unwrap_or(weir_core::units::Bytes::ZERO);
        let facts = trace.coflows.iter().map(|coflow| {
            let lengths = || coflow.flows.iter().map(|f| f.bytes.get());
            let (least, most) = (lengths().fold(f64::INFINITY, f64::min), lengths().fold(0.0, f64::max));
            Fact {
                width: coflow.flows.len(),
                equal: most - least <= 1e-9 * most,
                bin: usize::from(describe::bin(coflow.flows.len(), coflow.bytes(), threshold)),
            }
        });
        Lab {
            trace,
            facts: facts.collect(),
            plain: World::plain(interval),
            port_rate,
            unit,
            entries: RefCell::new(Vec::new()),
            alone: RefCell::new(Vec::new()),
        }
    }

    /// What a policy made of a world; of one that draws, at its first draw.
    pub fn get(&self, world: World, policy: &str) -> Rc<Summary> {
        self.draw(world, policy, 0)
    }

    /// What a policy made of a world at one of its [`draws_of`].
    pub fn draw(&self, world: World, policy: &str, draw: u64) -> Rc<Summary> {
        self.ask(world, policy, false, draw).unwrap_or_else(|| Rc::new(self.nothing()))
    }

    /// The deviations that it made if ends of flows are noticed late by up to `ms`, one of [`LATE_MS`], drawn several times.
    pub fn late(&self, world: World, policy: &str, ms: u32) -> Vec<Vec<f64>> {
        let at = LATE_MS.iter().position(|&known| known == ms);
        match (self.ask(world, policy, true, 0), at) {
            (Some(found), Some(at)) => found.late[at].clone(),
            _ => vec![self.nothing().deviations],
        }
    }

    /// How long each coflow of a world takes alone in the network: the longest time that one of its ports takes for its bytes there.
    /// No schedule is faster.
    pub fn alone(&self, world: World) -> Rc<Vec<f64>> {
        let mut known = self.alone.borrow_mut();
        if let Some((_, alone)) = known.iter().find(|(known, _)| known.same_workload(&world)) {
            return Rc::clone(alone);
        }
        let rate = world.rate(self.port_rate).get();
        let workload = world.workload(self.trace, self.unit);
        let coflows = workload.coflows.iter().map(|coflow| {
            let (mut send, mut recv) = (HashMap::new(), HashMap::new());
            for flow in &coflow.flows {
                *send.entry(flow.src).or_insert(0.0) += flow.bytes.get();
                *recv.entry(flow.dst).or_insert(0.0) += flow.bytes.get();
            }
            send.into_values().chain(recv.into_values()).fold(0.0, f64::max) / rate
        });
        let alone = Rc::new(coflows.collect());
        known.push((world, Rc::clone(&alone)));
        alone
    }

    fn ask(&self, world: World, policy: &str, late: bool, draw: u64) -> Option<Rc<Summary>> {
        let mut entries = self.entries.borrow_mut();
        let asked = |e: &&Entry| e.world == world && e.policy == policy && e.late == late && e.draw == draw;
        match entries.iter().find(asked) {
            Some(entry) => entry.found.clone(),
            None => {
                debug_assert!(entries.iter().all(|e| e.found.is_none()), "{policy} is asked for too late");
                entries.push(Entry { world, policy: policy.to_owned(), late, draw, found: None });
                None
            }
        }
    }

    /// The same in the world that is not an experiment.
    pub fn plain(&self, policy: &str) -> Rc<Summary> {
        self.get(self.plain, policy)
    }

    /// How many replays were asked for.
    pub fn replays(&self) -> usize {
        self.entries.borrow().len()
    }

    /// The share of flows that are a whole number of megabytes.
    pub fn whole(&self) -> f64 {
        let lengths = || self.trace.coflows.iter().flat_map(|c| &c.flows).map(|f| f.bytes.get() / self.unit);
        let whole = lengths().filter(|l| (l - l.round()).abs() < 1e-6 * l).count();
        whole as f64 / lengths().count().max(1) as f64
    }

    fn nothing(&self) -> Summary {
        let ones = vec![1.0; self.facts.len()];
        Summary { ccts: ones.clone(), deviations: ones, ..Summary::default() }
    }

    /// Runs all that was asked for.
    ///
    /// # Errors
    /// The first replay that fails.
    pub fn run(&self, jobs: usize, progress: &Progress) -> Result<(), Failure> {
        let mut entries = self.entries.borrow_mut();
        let mut worlds: Vec<(World, Workload)> = Vec::new();
        for Entry { world, .. } in entries.iter().filter(|e| e.found.is_none()) {
            if !worlds.iter().any(|(known, _)| known.same_workload(world)) {
                worlds.push((*world, world.workload(self.trace, self.unit)));
            }
        }
        let bar = progress.steps("replays", entries.len());
        let tasks: Vec<(World, u64, Task<'_>)> = entries
            .iter()
            .map(|entry| {
                let known = worlds.iter().find(|(known, _)| known.same_workload(&entry.world));
                (
                    entry.world,
                    entry.draw,
                    self.task(entry, known.map_or(self.trace, |(_, workload)| workload)),
                )
            })
            .collect();
        let found = run::pool(tasks.len(), jobs, |at| {
            let (world, draw, task) = &tasks[at];
            let summary = match stand_in(world, *draw, task) {
                Some(summary) => summary,
                None => {
                    let outcome = task.run(progress)?;
                    let mut summary = Summary::new(&outcome);
                    if task.options.keep_flows {
                        let draws = |&ms: &u32| (0..DRAWS).map(|draw| late(&outcome, ms, draw)).collect();
                        summary.late = LATE_MS.iter().map(draws).collect();
                    }
                    summary
                }
            };
            bar.inc(1);
            Ok(summary)
        })?;
        bar.finish_and_clear();
        for (entry, summary) in entries.iter_mut().zip(found) {
            entry.found = Some(Rc::new(summary));
        }
        Ok(())
    }

    fn task<'w>(&self, entry: &Entry, workload: &'w Workload) -> Task<'w> {
        let interval = Time::new(entry.world.interval).unwrap_or(Time::ZERO);
        let queues = ["aalo", "saath"].iter().any(|name| entry.policy.starts_with(name));
        let mut policy = entry.policy.clone();
        if entry.world.binary && queues && order_of(&policy).is_none() && !policy.contains(":start=") {
            policy.push_str(":start=10MiB");
        }
        let options = Options {
            port_rate: entry.world.rate(self.port_rate),
            interval,
            keep_flows: entry.late,
            behind: None,
        };
        Task { policy, workload, options }
    }
}

/// The order of [`ONE_FLOW`] in which a stand-in's senders send.
pub fn order_of(policy: &str) -> Option<Order> {
    ONE_FLOW.iter().find(|(name, _)| policy.ends_with(name)).map(|&(_, order)| order)
}

/// The draws of a policy: one, unless something is drawn.
pub fn draws_of(policy: &str) -> Range<u64> {
    match order_of(policy) {
        Some(Order::Any | Order::Ring) => 0..DRAWS,
        Some(Order::Alike) | None => 0..1,
    }
}

/// What a stand-in made of a world, if the policy is one.
fn stand_in(world: &World, draw: u64, task: &Task<'_>) -> Option<Summary> {
    let interval = if world.interval > 0.0 { world.interval } else { 0.008 };
    let step = if world.binary { interval / 1.024 } else { interval };
    let pace = Pace { rate: task.options.port_rate.get(), step };
    let start = if world.binary { 10.0 * f64::from(1 << 20) } else { 10e6 };
    let of_ccts = |ccts| Summary { ccts, ..Summary::default() };
    match task.policy.as_str() {
        COFLOWSIM_FAIR => Some(of_ccts(coflowsim::fair(task.workload, pace))),
        COFLOWSIM_AALO => Some(of_ccts(coflowsim::aalo(task.workload, start, pace))),
        policy => {
            let order = order_of(policy)?;
            let on = |switch: &str| !policy.contains(&format!(":{switch}=off"));
            let times = if policy.starts_with("saath") {
                let switches = Switches {
                    lcof: on("lcof"),
                    per_flow: on("per-flow"),
                    work_conservation: on("work-conservation"),
                };
                one_flow::saath(task.workload, start, pace, order, draw, switches)
            } else {
                one_flow::aalo(task.workload, start, pace, order, draw)
            };
            let ccts = times.iter().map(|flows| flows.iter().copied().fold(0.0, f64::max)).collect();
            let deviations = times.iter().map(|flows| deviation(flows.iter().copied())).collect();
            Some(Summary { deviations, ..of_ccts(ccts) })
        }
    }
}
