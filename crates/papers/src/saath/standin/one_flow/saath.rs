//! Saath with one flow at a time at each sender and each receiver.
//!
//! Without deadlines and the estimates of section 4.3, which change little here (see "no deadlines" and "requeue off" among the experiments).

use fixedbitset::FixedBitSet;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use weir_core::model::Workload;

use super::super::{Pace, by_arrival, step_at};
use super::{Order, Part, limit, parts};

/// The parts of Saath that can be left out.
#[derive(Debug, Clone, Copy)]
pub struct Switches {
    /// Least contention first inside queues; without, first come, first served.
    pub lcof: bool,
    /// Queues by the flow that has sent most; without, by total bytes.
    pub per_flow: bool,
    /// Whether ports that all-or-none leaves idle are used.
    pub work_conservation: bool,
}

/// A coflow under way.
struct Coflow {
    /// By arrival.
    rank: usize,
    parts: Vec<Part>,
    /// By port: how many of its flows come in there.
    incoming: Vec<u32>,
    ports: Ports,
    /// How many flows it had.
    width: f64,
    queue: i32,
    /// In all, and by the flow that has sent most.
    sent: f64,
    most: f64,
    /// With how many coflows of its queue it shares ports.
    contention: usize,
}

/// Some senders and some receivers.
struct Ports {
    senders: FixedBitSet,
    receivers: FixedBitSet,
}

/// What is being sent: positions of a coflow, of a part of it and of a flow in that.
struct Sending {
    coflow: usize,
    part: usize,
    flow: usize,
}

/// Coflows are taken by queue, inside by contention. Those all of whose ports are free have one flow at every sender, as long as there is a receiver that is
/// still free; then, with work conservation, so have the others of the queue with the ports that are left. Every flow has the whole of both its ports. All that
/// happens counts from the next step. Completion times of flows, by coflow: 0 for those without bytes, then in the order in which they ended.
///
/// `start` is the threshold of the first of ten queues, in bytes; each next is ten times as high.
/// O((arrivals, ends of flows and changes of queues) x (coflows x ports / 64 + flows of coflows that are served)), and O(coflows^2 x ports / 64) whenever
/// a coflow has come, gone, left a port or its queue.
pub fn saath(
    workload: &Workload,
    start: f64,
    pace: Pace,
    order: Order,
    draw: u64,
    switches: Switches,
) -> Vec<Vec<f64>> {
    let mut random = ChaCha8Rng::seed_from_u64(draw);
    let arrivals = by_arrival(workload);
    let ports = workload.ports as usize;
    let arrives = |rank: usize| step_at(workload.coflows[arrivals[rank]].arrival.get(), pace);
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); workload.coflows.len()];
    let mut coflows: Vec<Coflow> = Vec::new();
    let mut sending: Vec<Sending> = Vec::new();
    let mut free = Ports::none(ports);
    let mut missed: Vec<usize> = Vec::new();
    let (mut next, mut step, mut changed) = (0, 0u64, false);
    while next < arrivals.len() || !coflows.is_empty() {
        if coflows.is_empty() {
            step = step.max(arrives(next));
        }
        while next < arrivals.len() && arrives(next) <= step {
            let coflow = &workload.coflows[arrivals[next]];
            let none = coflow.flows.iter().filter(|flow| flow.bytes.get() == 0.0);
            times[arrivals[next]].resize(none.count(), 0.0);
            coflows.extend(Coflow::new(parts(coflow, next, order, &mut random), next, ports));
            next += 1;
            changed = true;
        }
        if coflows.is_empty() {
            continue;
        }
        if std::mem::take(&mut changed) {
            sort(&mut coflows, switches.lcof);
        }
        free.senders.insert_range(..);
        free.receivers.insert_range(..);
        sending.clear();
        for (at, coflow) in coflows.iter().enumerate() {
            if coflow.ports.all_of(&free) {
                coflow.send(at, &mut free, &mut sending);
            } else if switches.work_conservation {
                missed.push(at);
            }
            // After each queue, as in Fig. 7.
            if coflows.get(at + 1).is_none_or(|next| next.queue > coflow.queue) {
                for at in missed.drain(..) {
                    coflows[at].send(at, &mut free, &mut sending);
                }
            }
        }
        // Until the first flow ends, or the first coflow leaves its queue.
        let mut bytes = f64::INFINITY;
        for of_coflow in sending.chunk_by(|a, b| a.coflow == b.coflow) {
            let coflow = &coflows[of_coflow[0].coflow];
            let until = limit(coflow.queue, start);
            if !switches.per_flow {
                bytes = bytes.min((until - coflow.sent) / of_coflow.len() as f64);
            }
            for Sending { part, flow, .. } in of_coflow {
                let flow = &coflow.parts[*part].flows[*flow];
                bytes = bytes.min(flow.left);
                if switches.per_flow {
                    bytes = bytes.min(until / coflow.width - (flow.bytes - flow.left));
                }
            }
        }
        let mut steps = step_at(bytes / pace.rate, pace).max(1);
        if next < arrivals.len() {
            steps = steps.min(arrives(next) - step);
        }
        let (now, passed) = (step as f64 * pace.step, steps as f64 * pace.step);
        for Sending { coflow, part, flow } in &sending {
            let coflow = &mut coflows[*coflow];
            let flows = &mut coflow.parts[*part].flows;
            let before = flows[*flow].left;
            let left = (before - pace.rate * passed).max(0.0);
            coflow.sent += before - left;
            coflow.most = coflow.most.max(flows[*flow].bytes - left);
            flows[*flow].left = left;
            if left > 1e-3 {
                continue;
            }
            let at = arrivals[coflow.rank];
            times[at].push(now + before / pace.rate - workload.coflows[at].arrival.get());
            let dst = flows.remove(*flow).dst;
            coflow.incoming[dst] -= 1;
            if coflow.incoming[dst] == 0 {
                coflow.ports.receivers.remove(dst);
                changed = true;
            }
        }
        for coflow in &mut coflows {
            let sent = if switches.per_flow { coflow.most * coflow.width } else { coflow.sent };
            while sent >= limit(coflow.queue, start) {
                coflow.queue += 1;
                changed = true;
            }
            let Coflow { parts, ports, .. } = coflow;
            parts.retain(|part| {
                let keep = !part.flows.is_empty();
                if !keep {
                    ports.senders.remove(part.src);
                    changed = true;
                }
                keep
            });
        }
        coflows.retain(|coflow| !coflow.parts.is_empty());
        step += steps;
    }
    times
}

/// Puts coflows in the order in which they are served.
fn sort(coflows: &mut [Coflow], lcof: bool) {
    for coflow in coflows.iter_mut() {
        coflow.contention = 0;
    }
    for at in (0..coflows.len()).filter(|_| lcof) {
        let (one, later) = coflows[at..].split_first_mut().expect("it is one of them");
        for other in later.iter_mut().filter(|other| other.queue == one.queue) {
            let shared = usize::from(other.ports.some_of(&one.ports));
            one.contention += shared;
            other.contention += shared;
        }
    }
    coflows.sort_by_key(|coflow| (coflow.queue, coflow.contention, coflow.rank));
}

impl Coflow {
    /// One that arrives, unless it has nothing to send.
    fn new(parts: Vec<Part>, rank: usize, ports: usize) -> Option<Coflow> {
        let (mut at, mut incoming) = (Ports::none(ports), vec![0; ports]);
        for part in &parts {
            at.senders.insert(part.src);
            for flow in &part.flows {
                at.receivers.insert(flow.dst);
                incoming[flow.dst] += 1;
            }
        }
        let width = incoming.iter().sum::<u32>();
        let coflow = Coflow {
            rank,
            parts,
            incoming,
            ports: at,
            width: f64::from(width),
            queue: 0,
            sent: 0.0,
            most: 0.0,
            contention: 0,
        };
        (width > 0).then_some(coflow)
    }

    /// Gives one flow at each sender the ports that it needs, as long as they are free.
    fn send(&self, coflow: usize, free: &mut Ports, sending: &mut Vec<Sending>) {
        for (at, part) in self.parts.iter().enumerate() {
            if self.ports.receivers.is_disjoint(&free.receivers) {
                return;
            }
            if !free.senders.contains(part.src) {
                continue;
            }
            if let Some(flow) = part.flows.iter().rposition(|flow| free.receivers.contains(flow.dst)) {
                free.senders.remove(part.src);
                free.receivers.remove(part.flows[flow].dst);
                sending.push(Sending { coflow, part: at, flow });
            }
        }
    }
}

impl Ports {
    fn none(ports: usize) -> Ports {
        let none = || FixedBitSet::with_capacity(ports);
        Ports { senders: none(), receivers: none() }
    }

    fn all_of(&self, others: &Ports) -> bool {
        self.senders.is_subset(&others.senders) && self.receivers.is_subset(&others.receivers)
    }

    fn some_of(&self, others: &Ports) -> bool {
        !self.senders.is_disjoint(&others.senders) || !self.receivers.is_disjoint(&others.receivers)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{PACE, near, workload};
    use super::*;

    const ALL: Switches = Switches { lcof: true, per_flow: true, work_conservation: true };

    /// Completion times of coflows.
    fn ccts(coflows: &[&[(u32, u32, f64)]], start: f64, switches: Switches) -> Vec<f64> {
        let times = saath(&workload(coflows), start, PACE, Order::Alike, 0, switches);
        times.iter().map(|times| times.iter().copied().fold(0.0, f64::max)).collect()
    }

    #[test]
    fn flows_have_whole_ports_one_after_the_other() {
        let flows: &[(u32, u32, f64)] =
            &[(0, 0, 10.0), (0, 1, 10.0), (1, 1, 10.0), (1, 0, 10.0), (2, 2, 0.0)];
        for order in [Order::Any, Order::Ring, Order::Alike] {
            near(&saath(&workload(&[flows]), 1e9, PACE, order, 0, ALL)[0], &[0.0, 1.0, 1.0, 2.0, 2.0]);
        }
        // A receiver has but one at a time.
        near(&ccts(&[&[(0, 2, 10.0), (1, 2, 10.0)]], 1e9, ALL), &[2.0]);
    }

    #[test]
    fn least_contention_goes_first_and_all_or_none_leaves_the_rest_to_work_conservation() {
        // The first one is in the way of both others, and they of it only. Its flow from port 2 can be sent beside them.
        let coflows: &[&[(u32, u32, f64)]] =
            &[&[(0, 0, 10.0), (1, 1, 10.0), (2, 2, 10.0)], &[(0, 0, 20.0)], &[(1, 1, 20.0)]];
        near(&ccts(coflows, 1e9, ALL), &[3.0, 2.0, 2.0]);
        near(&ccts(coflows, 1e9, Switches { lcof: false, ..ALL }), &[1.0, 3.0, 3.0]);
        let times = |work_conservation| {
            saath(&workload(coflows), 1e9, PACE, Order::Alike, 0, Switches { work_conservation, ..ALL })
        };
        near(&times(true)[0], &[1.0, 3.0, 3.0]);
        near(&times(false)[0], &[3.0, 3.0, 3.0]);
    }

    #[test]
    fn work_conservation_comes_before_the_next_queue() {
        // The first coflow leaves the first queue at 1 s, when two more arrive. The third is missed, since the second has port 0, but its flow from port 1 goes
        // before the first coflow.
        let coflows: &[&[(u32, u32, f64)]] =
            &[&[(1, 1, 20.0)], &[(0, 0, 30.0)], &[(0, 0, 30.0), (1, 2, 10.0)]];
        let times = |work_conservation| {
            let switches = Switches { lcof: false, work_conservation, per_flow: false };
            let mut w = workload(coflows);
            for later in &mut w.coflows[1..] {
                later.arrival = weir_core::units::Time::new(1.0).unwrap();
            }
            saath(&w, 10.0, PACE, Order::Alike, 0, switches)
        };
        near(&times(true)[0], &[3.0]);
        near(&times(false)[0], &[2.0]);
    }

    #[test]
    fn queues_are_by_a_flows_part_of_the_threshold_or_by_all_bytes() {
        // A flow of three has its part of 40 bytes after 1.33 s, which counts from 1.5 s on; all together have sent 40 after 2 s.
        let long: &[(u32, u32, f64)] = &[(0, 0, 40.0), (1, 1, 20.0), (1, 2, 20.0)];
        let coflows: &[&[(u32, u32, f64)]] = &[long, &[(0, 2, 10.0)]];
        let fifo = Switches { lcof: false, ..ALL };
        near(&ccts(coflows, 40.0, fifo), &[5.0, 2.5]);
        near(&ccts(coflows, 40.0, Switches { per_flow: false, ..fifo }), &[5.0, 3.0]);
        near(&ccts(coflows, 1e9, fifo), &[4.0, 5.0]);
    }

    #[test]
    fn what_arrives_counts_from_its_arrival() {
        let mut two = workload(&[&[(0, 0, 20.0)], &[(0, 1, 10.0)]]);
        two.coflows[1].arrival = weir_core::units::Time::new(5.2).unwrap();
        let times = saath(&two, 1e9, PACE, Order::Ring, 0, ALL);
        near(&times[0], &[2.0]);
        // It begins with the next step, at 5.5 s.
        near(&times[1], &[1.3]);
    }
}
