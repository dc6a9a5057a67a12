//! Two policies of CoflowSim (github.com/coflow/coflowsim): they do what that simulator does where it departs from what its
//! policies are named after.
//!
//! [`fair`] shares ports in a way that leaves capacity unused, and [`aalo`] keeps rates when flows
//! end. CoflowSim's further ways (rates that stay in force for flows that lost their turn, so that ports carry more
//! than they can) are not copied.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_core::model::Workload;
use weir_core::order::Key;

use super::{Pace, by_arrival, step_at};

/// CoflowSim's FAIR: a flow gets the smaller of its even shares of its two ports. What a flow does not take of one port,
/// because the other gives it less, nobody gets. Completion times, by coflow.
///
/// O(steps with flows x pairs of ports with flows).
pub fn fair(workload: &Workload, pace: Pace) -> Vec<f64> {
    let ports = workload.ports as usize;
    let order = by_arrival(workload);
    let mut ends: Vec<f64> = workload.coflows.iter().map(|c| c.arrival.get()).collect();
    let (mut sending, mut receiving) = (vec![0u32; ports], vec![0u32; ports]);
    let mut place = vec![usize::MAX; ports * ports];
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    // By pair: what one flow of it was sent so far, and at which of these sums its flows end.
    let (mut sums, mut firsts, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    let mut flows: Vec<BinaryHeap<Reverse<(Key, usize)>>> = Vec::new();
    let (mut next, mut step, mut under_way) = (0, 0u64, 0usize);
    while next < order.len() || under_way > 0 {
        if under_way == 0 {
            step = step.max(step_at(workload.coflows[order[next]].arrival.get(), pace));
        }
        let mut changed = false;
        while next < order.len() && step_at(workload.coflows[order[next]].arrival.get(), pace) <= step {
            for flow in workload.coflows[order[next]].flows.iter().filter(|f| f.bytes.get() > 0.0) {
                let (src, dst) = (flow.src as usize, flow.dst as usize);
                let at = &mut place[src * ports + dst];
                if *at == usize::MAX {
                    *at = pairs.len();
                    pairs.push((src, dst));
                    sums.push(0.0);
                    firsts.push(f64::INFINITY);
                    rates.push(0.0);
                    flows.push(BinaryHeap::new());
                }
                flows[*at].push(Reverse((Key(sums[*at] + flow.bytes.get()), order[next])));
                sending[src] += 1;
                receiving[dst] += 1;
                under_way += 1;
                changed = true;
            }
            next += 1;
        }
        let now = step as f64 * pace.step;
        if changed {
            share(&pairs, &sending, &receiving, &flows, pace, &mut rates, &mut firsts);
        }
        let mut ended = false;
        for pair in 0..pairs.len() {
            let before: f64 = sums[pair];
            sums[pair] += rates[pair] * pace.step;
            if sums[pair] < firsts[pair] {
                continue;
            }
            while let Some(&Reverse((Key(sum), coflow))) = flows[pair].peek() {
                if sum > sums[pair] * (1.0 + 1e-12) {
                    break;
                }
                flows[pair].pop();
                ends[coflow] = ends[coflow].max(now + (sum - before) / rates[pair]);
                sending[pairs[pair].0] -= 1;
                receiving[pairs[pair].1] -= 1;
                under_way -= 1;
                ended = true;
            }
        }
        if ended {
            share(&pairs, &sending, &receiving, &flows, pace, &mut rates, &mut firsts);
        }
        step += 1;
    }
    since_arrival(workload, ends)
}

fn share(
    pairs: &[(usize, usize)],
    sending: &[u32],
    receiving: &[u32],
    flows: &[BinaryHeap<Reverse<(Key, usize)>>],
    pace: Pace,
    rates: &mut [f64],
    firsts: &mut [f64],
) {
    for (pair, &(src, dst)) in pairs.iter().enumerate() {
        (rates[pair], firsts[pair]) = match flows[pair].peek() {
            Some(&Reverse((Key(sum), _))) => (pace.rate / f64::from(sending[src].max(receiving[dst])), sum),
            None => (0.0, f64::INFINITY),
        };
    }
}

fn since_arrival(workload: &Workload, ends: Vec<f64>) -> Vec<f64> {
    ends.into_iter().zip(&workload.coflows).map(|(end, coflow)| end - coflow.arrival.get()).collect()
}

struct Flow {
    src: usize,
    dst: usize,
    left: f64,
    rate: f64,
}

struct Job {
    index: usize,
    queue: usize,
    /// When it came into its queue, as a rank.
    entered: u64,
    sent: f64,
    flows: Vec<Flow>,
}

/// CoflowSim's Aalo ("dark"): strict priority between queues by total bytes, FIFO inside by when they came into the queue, the
/// same queues at both ends, each flow the smaller of its coflow's even shares of its two ports. Queues and rates
/// change only when a coflow arrives or ends: what a flow's end sets free stays idle until then. Completion times, by coflow.
///
/// `start` is the threshold of the first of ten queues, in bytes; each next is ten times as high.
/// O(arrivals and ends of coflows x flows under way).
pub fn aalo(workload: &Workload, start: f64, pace: Pace) -> Vec<f64> {
    let ports = workload.ports as usize;
    let order = by_arrival(workload);
    let mut ends: Vec<f64> = workload.coflows.iter().map(|c| c.arrival.get()).collect();
    let mut jobs: Vec<Job> = Vec::new();
    let (mut next, mut now, mut rank) = (0, 0.0f64, 0u64);
    while next < order.len() || !jobs.is_empty() {
        let arrival = order.get(next).map_or(f64::INFINITY, |&index| {
            step_at(workload.coflows[index].arrival.get(), pace) as f64 * pace.step
        });
        let end = jobs.iter().map(|job| now + lasts(job)).fold(f64::INFINITY, f64::min);
        // An end is noticed when its step is over.
        let end = if end.is_finite() { step_at(end, pace) as f64 * pace.step } else { end };
        let then = arrival.min(end).max(now);
        for job in &mut jobs {
            proceed(job, now, then, &mut ends[job.index]);
        }
        jobs.retain(|job| !job.flows.is_empty());
        now = then;
        while next < order.len()
            && step_at(workload.coflows[order[next]].arrival.get(), pace) as f64 * pace.step <= now
        {
            let index = order[next];
            let flows = workload.coflows[index].flows.iter().filter(|f| f.bytes.get() > 0.0);
            let flows: Vec<Flow> = flows
                .map(|f| Flow { src: f.src as usize, dst: f.dst as usize, left: f.bytes.get(), rate: 0.0 })
                .collect();
            rank += 1;
            jobs.push(Job { index, queue: 0, entered: rank, sent: 0.0, flows });
            next += 1;
        }
        for job in &mut jobs {
            let (mut queue, mut upper) = (0, start);
            while queue < 9 && job.sent > upper {
                queue += 1;
                upper *= 10.0;
            }
            if queue > job.queue {
                rank += 1;
                (job.queue, job.entered) = (queue, rank);
            }
        }
        jobs.sort_by_key(|job| (job.queue, job.entered));
        serve(&mut jobs, ports, pace.rate);
    }
    since_arrival(workload, ends)
}

/// How long until all flows of a job are done at the rates in force.
fn lasts(job: &Job) -> f64 {
    let left = |flow: &Flow| if flow.rate > 0.0 { flow.left / flow.rate } else { f64::INFINITY };
    job.flows.iter().map(left).fold(0.0, f64::max)
}

fn proceed(job: &mut Job, now: f64, then: f64, end: &mut f64) {
    for flow in &mut job.flows {
        let bytes = (flow.rate * (then - now)).min(flow.left);
        job.sent += bytes;
        if flow.rate > 0.0 && flow.left - flow.rate * (then - now) <= 1e-3 {
            *end = end.max(now + flow.left / flow.rate);
            flow.left = 0.0;
        } else {
            flow.left -= bytes;
        }
    }
    job.flows.retain(|flow| flow.left > 0.0);
}

/// Rates for jobs in order: the smaller of the even shares of what both ports have left.
fn serve(jobs: &mut [Job], ports: usize, rate: f64) {
    let (mut send, mut recv) = (vec![rate; ports], vec![rate; ports]);
    let least = rate * 1e-9;
    let (mut sending, mut receiving) = (vec![0u32; ports], vec![0u32; ports]);
    for job in jobs {
        sending.fill(0);
        receiving.fill(0);
        let open = |flow: &Flow, send: &[f64], recv: &[f64]| send[flow.src] > least && recv[flow.dst] > least;
        for flow in job.flows.iter().filter(|f| open(f, &send, &recv)) {
            sending[flow.src] += 1;
            receiving[flow.dst] += 1;
        }
        for flow in &mut job.flows {
            flow.rate = 0.0;
            if open(flow, &send, &recv) {
                let even = |left: f64, among: u32| left / f64::from(among);
                flow.rate =
                    even(send[flow.src], sending[flow.src]).min(even(recv[flow.dst], receiving[flow.dst]));
            }
        }
        for flow in &job.flows {
            send[flow.src] -= flow.rate;
            recv[flow.dst] -= flow.rate;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{PACE, near, workload};
    use super::*;

    #[test]
    fn fair_wastes_what_the_other_port_does_not_give() {
        // Of port 1 the flow from port 0, one of three there, takes a third; the other one still gets but half.
        let first: &[(u32, u32, f64)] = &[(0, 0, 100.0), (0, 2, 100.0), (0, 1, 100.0)];
        near(&fair(&workload(&[first, &[(1, 1, 50.0)]]), PACE), &[30.0, 10.0]);
    }

    #[test]
    fn aalo_keeps_rates_until_a_coflow_comes_or_goes() {
        // The short flow leaves its half of port 0 idle until the long one ends.
        near(&aalo(&workload(&[&[(0, 0, 10.0), (0, 1, 40.0)]]), 1e9, PACE), &[8.0]);
        near(&aalo(&workload(&[&[(0, 0, 10.0)], &[(0, 1, 10.0)]]), 1e9, PACE), &[1.0, 2.0]);
    }
}
