//! Measures Fig. 2: a coflow whose reducers pull from random hosts, with a maximum number of connections for each host.

use std::time::Duration;

use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use weir_console::failure::Failure;
use weir_console::progress::Progress;
use weir_core::model::Workload;
use weir_core::policy::AnyPolicy;
use weir_core::units::{Bytes, Rate};
use weir_sim::outcome::mean;
use weir_sim::{NoObserver, ReplayOptions};
use weir_testbed::Bed;
use weir_testbed::tcp_bed::TcpBed;

use super::PULLS;
use super::ports::{PortUse, Ports};
use crate::django::random_pulls::{self, PulledFlow, RandomPulls, Reducer};
use crate::django::replays::Inputs;
use crate::django::setup::{Setup, WorkloadSource};
use crate::live::coflows::flow::Flow;
use crate::live::coflows::payload_fraction;
use crate::live::coflows::transfer::transfer;
use crate::markdown::{format_cell, format_percent, table};

/// Numbers of connections of a host. A host has four reducers.
const CONNECTIONS: [usize; 7] = [4, 8, 11, 13, 16, 32, 64];

/// The number of draws of sizes and orders, each with a run.
const DRAWS: u64 = 3;

/// The maximum duration of a run.
const MAX_DURATION: Duration = Duration::from_secs(60);

/// The published CCT in seconds, maximum queue length and loss with 13 connections (2.3).
const PUBLISHED: (usize, f64, f64, f64) = (13, 2.4, 146.0, 1e-4);

/// The figures of a number of connections: means over all draws, and the maximum of the longest queue.
pub struct Pulls {
    pub connections: usize,
    pub simulated: f64,
    pub measured: f64,
    /// Received bytes per second of each host, in bits per second.
    pub goodput: f64,
    pub ports: PortUse,
}

/// Measures all numbers of connections.
pub fn measure(
    bed: &Bed,
    tcp_bed: &TcpBed<'_>,
    inputs: &Inputs<'_>,
    progress: &Progress,
) -> Result<Vec<Pulls>, Failure> {
    let bar = progress.add_step_bar("Fig. 2, in real time", CONNECTIONS.len() * DRAWS as usize);
    let measure_draw = |connections: usize, seed: u64| {
        Failure::check_interrupt()?;
        let setup = Setup { source: WorkloadSource::Shuffle(seed), ..PULLS };
        let workload = setup.workload(inputs.trace);
        let simulated = simulate(&workload, connections, seed)?;
        let ports = Ports::start(tcp_bed, PULLS.hosts as usize, setup.buffer_packets)?;
        let measured = pull_all(bed, &workload, connections, seed)?;
        bar.inc(1);
        let bytes: f64 = remote_flows(&workload).map(|(_, bytes)| bytes as f64).sum();
        let goodput = 8.0 * bytes / f64::from(PULLS.hosts) / measured;
        Ok((simulated, measured, goodput, ports.finish()?))
    };
    let mut all = Vec::new();
    for connections in CONNECTIONS {
        let draws = (1..=DRAWS).map(|seed| measure_draw(connections, seed));
        let draws = draws.collect::<Result<Vec<(f64, f64, f64, PortUse)>, Failure>>()?;
        let mean_of =
            |value: fn(&(f64, f64, f64, PortUse)) -> f64| mean(&draws.iter().map(value).collect::<Vec<_>>());
        all.push(Pulls {
            connections,
            simulated: mean_of(|draw| draw.0),
            measured: mean_of(|draw| draw.1),
            goodput: mean_of(|draw| draw.2),
            ports: PortUse {
                loss: mean_of(|draw| draw.3.loss),
                mean_queue: mean_of(|draw| draw.3.mean_queue),
                max_queue: draws.iter().map(|draw| draw.3.max_queue).max().unwrap_or(0),
            },
        });
    }
    bar.finish_and_clear();
    Ok(all)
}

/// The flows between two hosts, and their sizes in whole bytes.
fn remote_flows(workload: &Workload) -> impl Iterator<Item = (u32, u64)> {
    let flows = &workload.coflows[0].flows;
    let numbered = (0u32..).zip(flows).filter(|(_, flow)| flow.src != flow.dst);
    numbered.map(|(number, flow)| (number, flow.bytes.get().round() as u64))
}

/// The CCT in seconds. Flows from a host to itself use no link here, so they have no bytes.
fn simulate(workload: &Workload, connections: usize, seed: u64) -> Result<f64, Failure> {
    let mut workload = workload.clone();
    let local = workload.coflows[0].flows.iter_mut().filter(|flow| flow.src == flow.dst);
    local.for_each(|flow| flow.bytes = Bytes::ZERO);
    let rate = Rate::new(PULLS.rate().get() * payload_fraction()).expect("a rate times a fraction is a rate");
    let options = ReplayOptions { port_rate: rate, ..ReplayOptions::default() };
    let policy = RandomPulls::new(connections, seed);
    let policy = AnyPolicy::from(policy);
    let outcome = weir_sim::replay(&workload, policy, &options, &mut NoObserver)
        .map_err(|error| Failure::from_replay_error("random pulls", &error))?;
    Ok(outcome.makespan)
}

/// Transfers the coflow: each reducer pulls its flows in their order, at most its number of connections at once. Returns the CCT in
/// seconds.
fn pull_all(bed: &Bed, workload: &Workload, connections: usize, seed: u64) -> Result<f64, Failure> {
    let plan = bed.plan();
    let flows = &workload.coflows[0].flows;
    let numbered =
        (0..).zip(flows).map(|(number, flow)| PulledFlow { number, host: flow.dst, reducer: flow.reducer });
    let reducers = random_pulls::draw_reducers(numbered, connections, seed);
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(Failure::runtime)?;
    let pull = |number: u32| {
        let flow = flows[number as usize];
        let ends = [flow.src, flow.dst].map(|host| plan.nodes[host as usize].clone());
        Flow {
            ends,
            agent: None,
            coflow: String::new(),
            flow: number,
            bytes: flow.bytes.get().round() as u64,
        }
    };
    let pull_reducer = |Reducer { max_connections, flows: numbers }: Reducer| {
        let remote =
            numbers.into_iter().filter(|&number| flows[number as usize].src != flows[number as usize].dst);
        let mut waiting: Vec<Flow> = remote.map(pull).collect();
        waiting.reverse();
        async move {
            let mut open = JoinSet::new();
            loop {
                while open.len() < max_connections
                    && let Some(flow) = waiting.pop()
                {
                    open.spawn(transfer(flow));
                }
                match open.join_next().await {
                    None => return Ok::<(), std::io::Error>(()),
                    Some(joined) => {
                        joined.expect("`transfer` does not panic")?;
                    }
                }
            }
        }
    };
    let all = async {
        let began = Instant::now();
        let mut tasks = JoinSet::new();
        reducers.into_iter().map(pull_reducer).for_each(|reducer| drop(tasks.spawn(reducer)));
        while let Some(joined) = tasks.join_next().await {
            joined.expect("reducers do not panic")?;
        }
        Ok::<f64, std::io::Error>(began.elapsed().as_secs_f64())
    };
    let timed = runtime.block_on(async { timeout(MAX_DURATION, all).await });
    runtime.shutdown_background();
    timed
        .map_err(|_| {
            Failure::runtime(format_args!("Fig. 2: not completed within {} s", MAX_DURATION.as_secs()))
        })?
        .map_err(Failure::runtime)
}

/// The section of the page.
pub fn section(all: &[Pulls]) -> String {
    let row = |pulls: &Pulls| {
        let is_published = pulls.connections == PUBLISHED.0;
        let published = |value: f64| if is_published { format_cell(value) } else { "-".to_owned() };
        vec![
            pulls.connections.to_string(),
            published(PUBLISHED.1),
            format_cell(pulls.simulated),
            format_cell(pulls.measured),
            format_cell(pulls.goodput * 1e-6),
            published(PUBLISHED.3),
            format_percent(pulls.ports.loss),
            format_cell(pulls.ports.mean_queue),
            published(PUBLISHED.2),
            pulls.ports.max_queue.to_string(),
        ]
    };
    let head = [
        "connections",
        "CCT s, published",
        "simulated",
        "measured",
        "goodput, Mbit/s",
        "loss, published",
        "measured",
        "mean queue",
        "max queue, published",
        "measured",
    ];
    format!(
        "## Fig. 2: number of connections of a host\n\n\
         One coflow of 64 mappers and 64 reducers on {} hosts with links of {}, without Django. Each host divides its connections \
         between its four reducers, and each reducer pulls from hosts in a random order, over a new connection each. Means over {DRAWS} \
         draws of sizes and orders; the maximum queue is that of all runs. Goodput is that of each host's link. The buffer holds {} \
         packets. Simulated: max-min, and connections cost nothing.\n{}",
        PULLS.hosts,
        PULLS.rate(),
        PULLS.buffer_packets,
        table(&head, 0, &all.iter().map(row).collect::<Vec<_>>()),
    )
}
