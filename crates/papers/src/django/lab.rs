//! Replays that the document asks for, each once.
//!
//! As for Saath, the document is written twice: the first time it only asks, and gets empty answers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use weir_core::model::{CoflowSpec, FlowSpec, Goodput, Workload};
use weir_core::units::{Bytes, Rate, Time};
use weir_sim::outcome::{mean, percentile};
use weir_sim::{Behind, Options};
use weir_trace::incast::Measured;

use weir_console::failure::Failure;
use weir_console::progress::Progress;
use weir_console::run::{self, Task};

/// Aalo with known sizes.
pub const AALO: &str = "aalo+";
/// What stands for DCTCP: per-flow max-min.
pub const DCTCP: &str = "fair";

/// Mappers and reducers of the coflow of Fig. 2, on so many hosts.
pub const TASKS: u32 = 64;
/// See [`TASKS`].
pub const SHUFFLE_HOSTS: u32 = 16;
/// What a reducer gets from a mapper there, on average: then an idle network takes some 2 s, as in Fig. 2.
pub const PIECE: f64 = 1e6;

/// Coflows of Fig. 7.
const CHAINED: u32 = 96;

/// What is replayed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum What {
    /// The trace, on the hosts of the world.
    Trace,
    /// So many coflows at a time with a reducer on each host, one after the other (Fig. 7).
    Reducers(u32),
    /// One coflow (Fig. 2), by its seed.
    Shuffle(u64),
}

/// What too many connections cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cost {
    /// Nothing.
    None,
    /// As measured with TCP that nobody tells of queues.
    Plain,
    /// As measured with marks.
    Marked,
    /// As measured with marks and small connections.
    Small,
}

/// A way to replay it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct World {
    pub what: What,
    pub hosts: u32,
    /// How many coflows arrive in a second, on average.
    pub load: f64,
    /// Packets that a port holds.
    pub buffer: u32,
    pub cost: Cost,
    /// What links carry, and the sizes with them, over 1 Gbit.
    pub pace: f64,
}

/// What is kept of a replay.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Coflow completion times, in seconds.
    pub ccts: Vec<f64>,
    /// What schedules took, in milliseconds.
    pub schedules: Vec<f64>,
}

impl Summary {
    pub fn mean(&self) -> f64 {
        mean(&self.ccts)
    }

    pub fn tail(&self, p: f64) -> f64 {
        percentile(&self.ccts, p)
    }
}

struct Entry {
    world: World,
    policy: String,
    found: Option<Rc<Summary>>,
}

/// What worlds are made of.
pub struct Data<'a> {
    pub trace: &'a Workload,
    /// What connections of 512 kB cost, of plain TCP.
    pub plain: Measured,
    /// And of TCP that goes by marks.
    pub marked: Measured,
    /// And of such TCP with 64 kB a connection.
    pub small: Measured,
}

impl Data<'_> {
    /// From how many packets on the switch marks.
    pub fn threshold(&self) -> u32 {
        self.marked.marks.expect("they were measured with marks")
    }

    /// The most connections that were measured.
    pub fn most(&self) -> u32 {
        *self.marked.incast.connections().last().expect("some were measured")
    }

    /// What ports carry in a world.
    pub fn goodput(&self, world: &World) -> Option<Goodput> {
        let measured = match world.cost {
            Cost::None => return None,
            Cost::Plain => &self.plain,
            Cost::Marked => &self.marked,
            Cost::Small => &self.small,
        };
        Some(measured.incast.goodput(world.buffer, rate(world)).expect("the buffer was measured"))
    }

    /// What is replayed in a world.
    pub fn workload(&self, world: &World) -> Workload {
        match world.what {
            What::Trace => scaled(self.trace, world),
            What::Reducers(count) => chains(count, world),
            What::Shuffle(seed) => shuffle(seed, world),
        }
    }
}

/// The laboratory.
pub struct Lab<'a> {
    pub data: Data<'a>,
    entries: RefCell<Vec<Entry>>,
}

impl<'a> Lab<'a> {
    /// An empty one.
    pub fn new(data: Data<'a>) -> Lab<'a> {
        Lab { data, entries: RefCell::new(Vec::new()) }
    }

    /// What a policy made of a world.
    pub fn get(&self, world: World, policy: &str) -> Rc<Summary> {
        let mut entries = self.entries.borrow_mut();
        match entries.iter().find(|entry| entry.world == world && entry.policy == policy) {
            Some(Entry { found: Some(found), .. }) => return Rc::clone(found),
            Some(_) => {}
            None => entries.push(Entry { world, policy: policy.to_owned(), found: None }),
        }
        Rc::new(Summary { ccts: vec![1.0], schedules: vec![1.0] })
    }

    /// How many connections Django has in a world: as theorem 4.1 says for its buffer; its own number where none costs anything.
    pub fn connections(&self, world: &World) -> usize {
        match world.cost {
            Cost::None => 11,
            _ => weir_predict::connections(world.buffer, self.data.threshold()).connections as usize,
        }
    }

    /// Django in a world, with parameters that have a colon before them.
    pub fn django(&self, world: World, parameters: &str) -> Rc<Summary> {
        self.get(world, &format!("django:connections={}{parameters}", self.connections(&world)))
    }

    /// How many replays were asked for.
    pub fn replays(&self) -> usize {
        self.entries.borrow().len()
    }

    /// Runs all that was asked for.
    ///
    /// # Errors
    /// The first replay that fails.
    pub fn run(&self, jobs: usize, progress: &Progress) -> Result<(), Failure> {
        let (mut entries, data) = (self.entries.borrow_mut(), &self.data);
        let bar = progress.steps("replays", entries.len());
        let tasks: Vec<(World, String)> =
            entries.iter().map(|entry| (entry.world, entry.policy.clone())).collect();
        let found = run::pool(tasks.len(), jobs, |at| {
            let (world, policy) = &tasks[at];
            let options = Options {
                port_rate: rate(world),
                behind: data.goodput(world).map(Arc::new).map(Behind::Goodput),
                ..Options::default()
            };
            let workload = data.workload(world);
            let outcome = Task { policy: policy.clone(), workload: &workload, options }.run(progress)?;
            bar.inc(1);
            let schedules = outcome.schedule_ns.iter().map(|&ns| f64::from(ns) / 1e6).collect();
            Ok(Summary { ccts: outcome.ccts(), schedules })
        })?;
        bar.finish_and_clear();
        for (entry, summary) in entries.iter_mut().zip(found) {
            entry.found = Some(Rc::new(summary));
        }
        Ok(())
    }
}

/// What a port of a world sends and receives.
pub fn rate(world: &World) -> Rate {
    Rate::new(Rate::GBIT.get() * world.pace).expect("a part of a rate")
}

fn flow(src: u32, dst: u32, bytes: f64) -> FlowSpec {
    FlowSpec::new(src, dst, Bytes::new(bytes).expect("a size"))
}

/// The trace on fewer hosts: port p is on host p modulo hosts. A reducer of the trace stays one, and gets all that the mappers of one host have
/// for it over one connection. One coflow arrives a second on average at a load of 1, and sizes are such that ports then have the load
/// that the trace's have.
fn scaled(trace: &Workload, world: &World) -> Workload {
    let span = trace.coflows.iter().map(|coflow| coflow.arrival.get()).fold(0.0, f64::max);
    let gaps = (trace.coflows.len().max(2) - 1) as f64;
    let (port, host) = (Rate::GBIT.get(), rate(world).get());
    let size = (host * f64::from(world.hosts) * gaps) / (port * f64::from(trace.ports) * span);
    let mut coflows = Vec::new();
    for coflow in &trace.coflows {
        let mut pieces: BTreeMap<(u32, u32), f64> = BTreeMap::new();
        for flow in &coflow.flows {
            *pieces.entry((flow.src % world.hosts, flow.dst)).or_default() += flow.bytes.get() * size;
        }
        let flows = pieces.into_iter().map(|((src, reducer), bytes)| flow(src, reducer % world.hosts, bytes));
        let arrival = coflow.arrival.get() * gaps / span / world.load;
        let arrival = Time::new(arrival).expect("a time");
        coflows.push(CoflowSpec::new(coflow.id, arrival, flows.collect()));
    }
    Workload { ports: world.hosts, coflows, events: Vec::new(), names: trace.names.clone() }
}

/// Coflows of four sizes with a reducer on each host, `count` of them at a time: each waits for the one that many before it.
fn chains(count: u32, world: &World) -> Workload {
    let mut coflows = Vec::new();
    for number in 0..CHAINED {
        let bytes = PIECE * world.pace * [0.25, 0.5, 1.0, 2.0][((number / count + number) % 4) as usize];
        let pairs = (0..world.hosts).flat_map(|dst| (0..world.hosts).map(move |src| (src, dst)));
        let flows = pairs.map(|(src, dst)| flow(src, dst, bytes)).collect();
        let mut coflow = CoflowSpec::new(u64::from(number), Time::ZERO, flows);
        coflow.parents = number.checked_sub(count).map(|parent| parent as usize).into_iter().collect();
        coflows.push(coflow);
    }
    Workload { ports: world.hosts, coflows, events: Vec::new(), names: weir_core::model::Names::default() }
}

/// As many mappers and reducers on each host. What the mappers of one host have for a reducer comes over one connection, and is half to
/// one and a half times the mean, by the seed.
fn shuffle(seed: u64, world: &World) -> Workload {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut flows = Vec::new();
    for reducer in 0..TASKS {
        for src in 0..world.hosts {
            let share = 0.5 + f64::from(random.next_u32()) / f64::from(u32::MAX);
            let bytes = PIECE * world.pace * f64::from(TASKS / world.hosts) * share;
            flows.push(flow(src, reducer % world.hosts, bytes));
        }
    }
    let coflow = CoflowSpec::new(1, Time::ZERO, flows);
    Workload {
        ports: world.hosts,
        coflows: vec![coflow],
        events: Vec::new(),
        names: weir_core::model::Names::default(),
    }
}
