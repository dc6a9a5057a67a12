//! Replays workloads with reference code that updates every flow at every event, for comparison only.

mod ports;

pub use ports::port_positions;
use weir_core::model::Workload;
use weir_sim::ReplayOptions;

/// An active flow.
struct Flow {
    coflow: usize,
    src: usize,
    dst: usize,
    remaining_bytes: f64,
    rate: f64,
}

/// The policy that sets the rates between two events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReferencePolicy {
    /// Per-flow max-min.
    Fair,
    /// Smallest effective bottleneck first, MADD, backfilling.
    Varys,
}

impl ReferencePolicy {
    /// Name of the policy in Weir.
    pub fn name(self) -> &'static str {
        match self {
            ReferencePolicy::Fair => "fair",
            ReferencePolicy::Varys => "varys",
        }
    }
}

/// The completion time of every coflow of a workload without events, parents and late data.
/// `port_positions` is the order of its ports.
pub fn replay(
    workload: &Workload,
    port_positions: &[usize],
    policy: ReferencePolicy,
    options: &ReplayOptions,
) -> Vec<f64> {
    let (count, rate) = (workload.ports as usize, options.port_rate.get());
    let interval = options.interval.get();
    let slack = interval * 1e-6;
    let next_schedule_time =
        |at: f64| if interval == 0.0 { at } else { ((at - slack) / interval).ceil() * interval };
    let mut order: Vec<usize> = (0..workload.coflows.len()).collect();
    order.sort_by(|&a, &b| workload.coflows[a].arrival.get().total_cmp(&workload.coflows[b].arrival.get()));
    let mut arrivals = order.into_iter().peekable();
    let mut ends = vec![0.0f64; workload.coflows.len()];
    let mut flows: Vec<Flow> = Vec::new();
    let mut now = 0.0f64;
    loop {
        let arrival = arrivals.peek().map_or(f64::INFINITY, |&c| workload.coflows[c].arrival.get());
        let end = flows.iter().filter(|f| f.rate > 0.0).map(|f| now + f.remaining_bytes / f.rate);
        let next_event = next_schedule_time(end.fold(arrival, f64::min));
        if next_event.is_infinite() {
            break;
        }
        let (previous, due_until) = (now, next_event.max(now) + slack.max(next_event * 1e-14));
        now = next_event.max(now);
        flows.retain_mut(|flow| {
            let end =
                if flow.rate > 0.0 { previous + flow.remaining_bytes / flow.rate } else { f64::INFINITY };
            if end <= due_until {
                ends[flow.coflow] = ends[flow.coflow].max(end);
                return false;
            }
            flow.remaining_bytes -= flow.rate * (now - previous);
            true
        });
        while let Some(&c) = arrivals.peek() {
            let coflow = &workload.coflows[c];
            if coflow.arrival.get() > due_until {
                break;
            }
            arrivals.next();
            ends[c] = coflow.arrival.get();
            let mut new: Vec<Flow> = coflow
                .flows
                .iter()
                .filter(|f| f.bytes.get() > 0.0)
                .map(|f| Flow {
                    coflow: c,
                    src: f.src as usize,
                    dst: f.dst as usize,
                    remaining_bytes: f.bytes.get(),
                    rate: 0.0,
                })
                .collect();
            new.sort_by_key(|f| (port_positions[f.src], port_positions[f.dst]));
            flows.extend(new);
        }
        match policy {
            ReferencePolicy::Fair => fair(&mut flows, count, rate),
            ReferencePolicy::Varys => varys(&mut flows, count, rate),
        }
    }
    workload.coflows.iter().zip(ends).map(|(coflow, end)| end - coflow.arrival.get()).collect()
}

/// Sides of ports: sending, then receiving.
fn sides(flow: &Flow, ports: usize) -> [usize; 2] {
    [flow.src, ports + flow.dst]
}

fn fair(flows: &mut [Flow], ports: usize, rate: f64) {
    let mut residual = vec![rate; 2 * ports];
    let mut unfixed_flows = vec![0.0; 2 * ports];
    for side in flows.iter().flat_map(|f| sides(f, ports)) {
        unfixed_flows[side] += 1.0;
    }
    let mut unfixed: Vec<usize> = (0..flows.len()).collect();
    while !unfixed.is_empty() {
        let shares = (0..residual.len()).filter(|&side| unfixed_flows[side] > 0.0);
        let shares = shares.map(|side| (residual[side] / unfixed_flows[side], side));
        let Some((share, bottleneck)) = shares.min_by(|a, b| a.0.total_cmp(&b.0)) else { break };
        unfixed.retain(|&at| {
            let flow_sides = sides(&flows[at], ports);
            if !flow_sides.contains(&bottleneck) {
                return true;
            }
            flows[at].rate = share.max(0.0);
            for side in flow_sides {
                residual[side] -= share;
                unfixed_flows[side] -= 1.0;
            }
            false
        });
    }
}

fn varys(flows: &mut [Flow], ports: usize, rate: f64) {
    // Flows of a coflow are adjacent; coflows are in order of release.
    let mut coflow_order: Vec<(f64, std::ops::Range<usize>)> = Vec::new();
    let mut remaining_by_side = vec![0.0; 2 * ports];
    let mut start = 0;
    while start < flows.len() {
        let coflow = flows[start].coflow;
        let end = start + flows[start..].iter().take_while(|f| f.coflow == coflow).count();
        remaining_by_side.fill(0.0);
        for flow in &flows[start..end] {
            for side in sides(flow, ports) {
                remaining_by_side[side] += flow.remaining_bytes;
            }
        }
        coflow_order.push((remaining_by_side.iter().copied().fold(0.0, f64::max) / rate, start..end));
        start = end;
    }
    coflow_order.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut residual = vec![rate; 2 * ports];
    let tolerance = 1e-9 * rate;
    for (_, range) in &coflow_order {
        let flows = &mut flows[range.clone()];
        remaining_by_side.fill(0.0);
        for flow in flows.iter() {
            for side in sides(flow, ports) {
                remaining_by_side[side] += flow.remaining_bytes;
            }
        }
        let used_sides = || (0..2 * ports).filter(|&side| remaining_by_side[side] > 0.0);
        let admitted = used_sides().all(|side| residual[side] > tolerance);
        let seconds = used_sides().map(|side| remaining_by_side[side] / residual[side]).fold(0.0, f64::max);
        for flow in flows.iter_mut() {
            flow.rate = if admitted { flow.remaining_bytes / seconds } else { 0.0 };
            for side in sides(flow, ports) {
                residual[side] -= flow.rate;
            }
        }
    }
    for (_, range) in &coflow_order {
        for flow in &mut flows[range.clone()] {
            let [a, b] = sides(flow, ports);
            let more = residual[a].min(residual[b]);
            if more > tolerance {
                flow.rate += more;
                residual[a] -= more;
                residual[b] -= more;
            }
        }
    }
}
