//! A slice of coflows over real sockets: plain TCP, and Aalo and Saath by a coordinator and agents, beside the simulator.

mod control;
mod made;
mod run;

pub(super) use made::MOST;

use weir_agent::htb;
use weir_coordinator::plane::Settings;
use weir_core::model::topology::Plan;
use weir_core::model::{Topology, Workload};
use weir_core::units::{Rate, Time};
use weir_sim::Options;
use weir_sim::outcome::{mean, percentile};
use weir_testbed::Name;

use crate::doc::{n, share, table, yes};
use weir_console::failure::Failure;
use weir_console::progress::Progress;
use weir_console::run::Task;
use weir_console::testbed;
use weir_sim::outcome::speedups;

/// What every link carries, with headers, in bytes per second.
const LINK: f64 = 12.5e6;

/// What the queue of a port holds at hosts and at the switch, in seconds of its link. The more it is, the longer TCP takes to share a link
/// evenly; at a host, those who fill it also keep out the host's flows to others. Kernels do better there with a queue for each flow
/// (fq_codel), which not all of them have.
const QUEUES: [f64; 2] = [3e-3, 8e-3];

/// The part of a full frame that is payload of TCP with time stamps.
const PAYLOAD: f64 = htb::PAYLOAD as f64 / htb::FRAME as f64;

/// Plain TCP, and what coordinators decide by.
const POLICIES: [&str; 3] = [PLAIN, "aalo", "saath"];

/// TCP by itself: nobody decides.
const PLAIN: &str = "fair";

/// How often each policy is run: TCP's shares come by chance, and so does what coordinators see of it.
const RUNS: usize = 3;

/// The relative error of a coflow's CCT that half of the coflows have to be below.
const CLOSE: f64 = 0.10;

/// CCTs under a policy in seconds, by coflow; of those that were measured, the median of all runs.
struct Run {
    policy: &'static str,
    simulated: Vec<f64>,
    measured: Vec<f64>,
}

impl Run {
    fn errors(&self) -> Vec<f64> {
        let both = self.measured.iter().zip(&self.simulated);
        both.map(|(measured, simulated)| (measured / simulated - 1.0).abs()).collect()
    }
}

/// Simulated and measured.
///
/// # Errors
/// If it cannot be measured here, or is ended early.
pub(super) fn section(bed: &Name, coflows: usize, progress: &Progress) -> Result<String, Failure> {
    let workload = made::slice(coflows)?;
    let mut simulated = Vec::new();
    for policy in POLICIES {
        let options = options(policy);
        let task = Task { policy: policy.to_owned(), workload: &workload, options };
        simulated.push((policy, task.run(progress)?));
    }
    let runs = testbed::on_a_bed(bed, &topology(), |bed| {
        let [hosts, switches] = QUEUES;
        bed.set_short_queues(hosts, switches).map_err(|error| testbed::failure(&error))?;
        let measure = |(policy, outcome): (&'static str, weir_sim::Outcome)| {
            let mut all = Vec::with_capacity(RUNS);
            for _ in 0..RUNS {
                let control = match policy {
                    PLAIN => None,
                    policy => Some(control::Control::begin(bed.plan(), policy, link())?),
                };
                let most = outcome.makespan;
                all.push(run::measure(bed.plan(), &workload, control.as_ref(), policy, most, progress)?);
            }
            let of_coflow = |at: usize| percentile(&all.iter().map(|run| run[at]).collect::<Vec<_>>(), 50.0);
            let measured = (0..workload.coflows.len()).map(of_coflow).collect();
            Ok(Run { policy, simulated: outcome.ccts(), measured })
        };
        let runs = simulated.into_iter().map(measure).collect::<Result<Vec<_>, Failure>>();
        // The bed may have been there before.
        bed.set_queues(None).map_err(|error| testbed::failure(&error))?;
        runs
    })?;
    Ok(text(&workload, &runs))
}

fn link() -> Rate {
    Rate::new(LINK).expect("a constant")
}

/// The hosts of the slice under one switch, and one more, which has the coordinator.
fn topology() -> Topology {
    Plan::BigSwitch { hosts: made::HOSTS + 1, rate: link() }.build().expect("a constant")
}

/// What is left of links for payload: of a coordinator's ports it keeps a part for flows that wait.
fn options(policy: &str) -> Options {
    let settings = Settings::default();
    let reserve = if policy == PLAIN { 0.0 } else { settings.reserve };
    Options {
        port_rate: Rate::new(LINK * PAYLOAD * (1.0 - reserve)).expect("a constant"),
        interval: Time::new(settings.interval).expect("a constant"),
        keep_flows: false,
        behind: None,
    }
}

fn text(workload: &Workload, runs: &[Run]) -> String {
    let flows: usize = workload.coflows.iter().map(|coflow| coflow.flows.len()).sum();
    let bytes: f64 = workload.coflows.iter().map(|coflow| coflow.bytes()).sum();
    let last = workload.coflows.iter().map(|coflow| coflow.arrival.get()).fold(0.0, f64::max);
    let settings = Settings::default();
    let mut out = format!(
        "## A slice of coflows\n\n\
         {} coflows with {flows} flows between {} hosts under one switch, {} GB in {} s, links of {} Mbit/s over queues of {} ms at hosts and {} ms at the switch: {}. \
         Flows are TCP. Under `{PLAIN}` nobody decides. Under the others each host has an agent, a process that paces the \
         sockets handed over to it, and another host has the coordinator (as a library, in the process that measures), where coflows are registered when they arrive; a schedule every \
         {} ms, and reports and orders over the same links. A CCT is the time from a coflow's arrival until its last byte is read, so it has \
         the connecting and the handing over in it; measured is the median of {RUNS} runs, coflow by coflow. Simulated are links that carry {} Mbit/s, as headers leave it for payload, less the {} that \
         the coordinator keeps for flows that wait.\n\n\
         CCTs in seconds; errors are measured against simulated, coflow by coflow.\n",
        workload.coflows.len(),
        made::HOSTS,
        n(bytes / 1e9),
        n(last),
        n(LINK * 8e-6),
        n(QUEUES[0] * 1e3),
        n(QUEUES[1] * 1e3),
        made::ABOUT,
        n(settings.interval * 1e3),
        n(LINK * PAYLOAD * 8e-6),
        share(settings.reserve),
    );
    let lines: Vec<Vec<String>> = runs.iter().flat_map(of_policy).collect();
    out.push_str(&table(&["policy", "", "mean", "median", "P90"], 2, &lines));
    let line = |run: &Run| {
        let errors = run.errors();
        let half = percentile(&errors, 50.0);
        let below = yes(half < CLOSE);
        vec![run.policy.to_owned(), share(half), share(percentile(&errors, 90.0)), below]
    };
    let head = ["policy", "median error", "P90 of the error", &format!("median below {}", share(CLOSE))];
    out.push_str(&table(&head, 1, &runs.iter().map(line).collect::<Vec<_>>()));
    let close = runs.iter().filter(|run| percentile(&run.errors(), 50.0) < CLOSE).count();
    out.push_str(&format!(
        "The median error is below {} under {close} of {} policies.\n\n",
        share(CLOSE),
        runs.len()
    ));
    for run in runs.iter().filter(|run| run.policy != PLAIN) {
        let late = percentile(&run.measured, 90.0) / percentile(&run.simulated, 90.0);
        if late > 1.0 + CLOSE {
            out.push_str(&format!(
                "Under `{}` the P90 is {} times the simulated one. Long coflows wait, and a flow that waits is late when its turn comes \
                 (docs/live.md, \"Where it differs from the simulator\").\n\n",
                run.policy,
                n(late)
            ));
        }
    }
    out.push_str("What coordinators gain: a coflow's CCT under plain TCP over its CCT under the policy.\n");
    out.push_str(&gains(runs));
    out
}

fn of_policy(run: &Run) -> [Vec<String>; 2] {
    [("measured", &run.measured), ("simulated", &run.simulated)].map(|(what, ccts)| {
        let numbers = [mean(ccts), percentile(ccts, 50.0), percentile(ccts, 90.0)].map(n);
        [run.policy.to_owned(), what.to_owned()].into_iter().chain(numbers).collect()
    })
}

fn gains(runs: &[Run]) -> String {
    let (plain, others) = runs.split_first().expect("plain TCP is the first");
    let mut lines = Vec::new();
    for run in others {
        for (what, before, after) in
            [("measured", &plain.measured, &run.measured), ("simulated", &plain.simulated, &run.simulated)]
        {
            let gains = speedups(before, after);
            let numbers = [
                percentile(&gains, 10.0),
                percentile(&gains, 50.0),
                percentile(&gains, 90.0),
                mean(before) / mean(after),
            ];
            lines.push([run.policy.to_owned(), what.to_owned()].into_iter().chain(numbers.map(n)).collect());
        }
    }
    table(&["policy", "", "P10", "median", "P90", "of the mean CCT"], 2, &lines)
}
