//! Aalo with one flow at a time at each sender.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use weir_core::model::Workload;

use super::super::{Pace, by_arrival, step_at};
use super::{Order, Part, limit, parts};

/// What a sender is sending.
struct Sending {
    src: usize,
    /// Which of the sender's parts.
    part: usize,
    coflow: usize,
    dst: usize,
    bytes: f64,
}

/// Every sender sends one flow of the coflow that it serves, and when that has ended some other; receivers share evenly among the flows that
/// come in, and what that leaves of a sender's port nobody has. Strict priority between queues by total bytes, FIFO inside by
/// arrival. All that happens counts from the next step. Completion times of flows, by coflow: 0 for those without bytes, then
/// in the order in which they ended.
///
/// `start` is the threshold of the first of ten queues, in bytes; each next is ten times as high.
/// O((arrivals, ends of flows and changes of queues) x (ports + coflows at ports)).
pub fn aalo(workload: &Workload, start: f64, pace: Pace, order: Order, draw: u64) -> Vec<Vec<f64>> {
    let mut random = ChaCha8Rng::seed_from_u64(draw);
    let ports = workload.ports as usize;
    let arrivals = by_arrival(workload);
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); workload.coflows.len()];
    let arrives = |rank: usize| step_at(workload.coflows[arrivals[rank]].arrival.get(), pace);
    let mut coflows = Coflows { sent: vec![0.0; arrivals.len()], queue: vec![0; arrivals.len()] };
    let mut rates = vec![0.0; arrivals.len()];
    let mut senders: Vec<Vec<Part>> = (0..ports).map(|_| Vec::new()).collect();
    let mut incoming = vec![0u32; ports];
    let mut sending: Vec<Sending> = Vec::new();
    let (mut next, mut step, mut under_way) = (0, 0u64, 0usize);
    while next < arrivals.len() || under_way > 0 {
        if under_way == 0 {
            step = step.max(arrives(next));
        }
        while next < arrivals.len() && arrives(next) <= step {
            let coflow = &workload.coflows[arrivals[next]];
            let none = coflow.flows.iter().filter(|flow| flow.bytes.get() == 0.0);
            times[arrivals[next]].resize(none.count(), 0.0);
            for part in parts(coflow, next, order, &mut random) {
                under_way += part.flows.len();
                senders[part.src].push(part);
            }
            next += 1;
        }
        sending.clear();
        sending.extend((0..ports).filter_map(|src| coflows.first(&senders[src], src)));
        if sending.is_empty() {
            continue;
        }
        incoming.fill(0);
        for flow in &sending {
            incoming[flow.dst] += 1;
            rates[flow.coflow] = 0.0;
        }
        let rate = |flow: &Sending| pace.rate / f64::from(incoming[flow.dst]);
        for flow in &sending {
            rates[flow.coflow] += rate(flow);
        }
        // Until the first flow ends, or the first coflow leaves its queue.
        let seconds = sending.iter().map(|flow| {
            let queue =
                (limit(coflows.queue[flow.coflow], start) - coflows.sent[flow.coflow]) / rates[flow.coflow];
            queue.min(flow.bytes / rate(flow))
        });
        let seconds = seconds.fold(f64::INFINITY, f64::min);
        let mut steps = step_at(seconds, pace).max(1);
        if next < arrivals.len() {
            steps = steps.min(arrives(next) - step);
        }
        let (now, passed) = (step as f64 * pace.step, steps as f64 * pace.step);
        for flow in &sending {
            let left = flow.bytes - rate(flow) * passed;
            let parts = &mut senders[flow.src];
            let flows = &mut parts[flow.part].flows;
            if left > 1e-3 {
                coflows.sent[flow.coflow] += flow.bytes - left;
                flows.last_mut().expect("it is being sent").left = left;
                continue;
            }
            coflows.sent[flow.coflow] += flow.bytes;
            let at = arrivals[flow.coflow];
            times[at].push(now + flow.bytes / rate(flow) - workload.coflows[at].arrival.get());
            under_way -= 1;
            flows.pop();
            if flows.is_empty() {
                parts.remove(flow.part);
            }
        }
        for flow in &sending {
            while coflows.sent[flow.coflow] >= limit(coflows.queue[flow.coflow], start) {
                coflows.queue[flow.coflow] += 1;
            }
        }
        step += steps;
    }
    times
}

/// By rank of arrival.
struct Coflows {
    /// Bytes.
    sent: Vec<f64>,
    queue: Vec<i32>,
}

impl Coflows {
    /// What a sender sends that has these parts.
    fn first(&self, parts: &[Part], src: usize) -> Option<Sending> {
        let first = parts.iter().enumerate().min_by_key(|(_, part)| (self.queue[part.coflow], part.coflow));
        let (part, &Part { coflow, ref flows, .. }) = first?;
        let flow = flows.last()?;
        Some(Sending { src, part, coflow, dst: flow.dst, bytes: flow.left })
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{PACE, near, workload};
    use super::*;
    use weir_core::units::Time;

    /// Completion times of coflows.
    fn ccts(coflows: &[&[(u32, u32, f64)]], start: f64, order: Order) -> Vec<f64> {
        let last = |times: &Vec<f64>| times.iter().copied().fold(0.0, f64::max);
        aalo(&workload(coflows), start, PACE, order, 0).iter().map(last).collect()
    }

    #[test]
    fn flows_of_a_sender_follow_one_another() {
        let flows: &[(u32, u32, f64)] = &[(0, 2, 10.0), (0, 0, 10.0), (0, 1, 0.0)];
        for order in [Order::Any, Order::Ring, Order::Alike] {
            near(&aalo(&workload(&[flows]), 1e9, PACE, order, 0)[0], &[0.0, 1.0, 2.0]);
        }
    }

    #[test]
    fn what_a_receiver_does_not_take_nobody_has() {
        // Port 0 has half of its port for a second coflow, and does not send it; after 2 s it does.
        near(&ccts(&[&[(0, 2, 10.0), (1, 2, 10.0)], &[(0, 1, 10.0)]], 1e9, Order::Any), &[2.0, 3.0]);
    }

    #[test]
    fn queues_are_strict_by_total_bytes_and_counted_from_the_next_step() {
        // The first coflow has sent 20, more than 15, at 1 s, and goes on after the second one at port 0.
        let long: &[(u32, u32, f64)] = &[(0, 0, 40.0), (1, 1, 40.0)];
        near(&ccts(&[long, &[(0, 2, 10.0)]], 15.0, Order::Any), &[5.0, 2.0]);
    }

    #[test]
    fn senders_that_are_alike_are_in_each_others_way() {
        let all: Vec<(u32, u32, f64)> =
            (0..3).flat_map(|src| (0..3).map(move |dst| (src, dst, 10.0))).collect();
        near(&ccts(&[&all], 1e9, Order::Alike), &[9.0]);
        // Of the 27 rings some are without collisions.
        let drawn: Vec<f64> =
            (0..100).map(|draw| aalo(&workload(&[&all]), 1e9, PACE, Order::Ring, draw)[0][8]).collect();
        assert_eq!(drawn.iter().copied().fold(9.0, f64::min), 3.0);
    }

    #[test]
    fn what_arrives_later_waits_its_turn() {
        let mut two = workload(&[&[(0, 1, 10.0)], &[(0, 0, 20.0), (0, 1, 0.0)], &[(2, 2, 0.0)]]);
        let arrive = |two: &mut Workload, at: [f64; 3]| {
            for (coflow, at) in two.coflows.iter_mut().zip(at) {
                coflow.arrival = Time::new(at).unwrap();
            }
        };
        let ends = |two: &Workload| aalo(two, 1e9, PACE, Order::Any, 0);
        // The second is there first, and the first counts from its arrival, not from the step after it. The last has nothing to send.
        arrive(&mut two, [0.7, 0.0, 9.0]);
        assert_eq!(ends(&two), [vec![2.3], vec![0.0, 2.0], vec![0.0]]);
        // After an idle time, from the next step on.
        arrive(&mut two, [7.2, 0.0, 7.3]);
        let ends = ends(&two);
        near(&ends[0], &[1.3]);
        near(&ends[1], &[0.0, 2.0]);
    }

    #[test]
    fn draws_repeat() {
        let flows: &[(u32, u32, f64)] = &[(0, 0, 10.0), (0, 1, 20.0), (0, 2, 40.0)];
        for order in [Order::Any, Order::Ring] {
            let drawn = |draw| aalo(&workload(&[flows]), 1e9, PACE, order, draw);
            assert_eq!(drawn(1), drawn(1));
            assert!((2..20).any(|draw| drawn(draw) != drawn(1)));
        }
    }
}
