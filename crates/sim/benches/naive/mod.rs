//! Reference replays that update every flow at every event, for comparison only.

mod ports;

pub use ports::places;
use weir_core::model::Workload;
use weir_sim::Options;

/// An active flow.
struct Flow {
    coflow: usize,
    src: usize,
    dst: usize,
    left: f64,
    rate: f64,
}

/// Rates between two events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Per-flow max-min.
    Fair,
    /// Smallest effective bottleneck first, MADD, backfilling.
    Varys,
}

impl Rule {
    /// Name of the policy in Weir.
    pub fn name(self) -> &'static str {
        match self {
            Rule::Fair => "fair",
            Rule::Varys => "varys",
        }
    }
}

/// The completion time of every coflow of a workload without events, parents and late data. `places` is the
/// order of its ports.
pub fn replay(workload: &Workload, places: &[usize], rule: Rule, options: &Options) -> Vec<f64> {
    let (count, rate) = (workload.ports as usize, options.port_rate.get());
    let interval = options.interval.get();
    let slack = interval * 1e-6;
    let tick = |at: f64| if interval == 0.0 { at } else { ((at - slack) / interval).ceil() * interval };
    let mut order: Vec<usize> = (0..workload.coflows.len()).collect();
    order.sort_by(|&a, &b| workload.coflows[a].arrival.get().total_cmp(&workload.coflows[b].arrival.get()));
    let mut arrivals = order.into_iter().peekable();
    let mut ends = vec![0.0f64; workload.coflows.len()];
    let mut flows: Vec<Flow> = Vec::new();
    let mut now = 0.0f64;
    loop {
        let arrival = arrivals.peek().map_or(f64::INFINITY, |&c| workload.coflows[c].arrival.get());
        let end = flows.iter().filter(|f| f.rate > 0.0).map(|f| now + f.left / f.rate);
        let next = tick(end.fold(arrival, f64::min));
        if next.is_infinite() {
            break;
        }
        let (before, limit) = (now, next.max(now) + slack.max(next * 1e-14));
        now = next.max(now);
        flows.retain_mut(|flow| {
            let end = if flow.rate > 0.0 { before + flow.left / flow.rate } else { f64::INFINITY };
            if end <= limit {
                ends[flow.coflow] = ends[flow.coflow].max(end);
                return false;
            }
            flow.left -= flow.rate * (now - before);
            true
        });
        while let Some(&c) = arrivals.peek() {
            let coflow = &workload.coflows[c];
            if coflow.arrival.get() > limit {
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
                    left: f.bytes.get(),
                    rate: 0.0,
                })
                .collect();
            new.sort_by_key(|f| (places[f.src], places[f.dst]));
            flows.extend(new);
        }
        match rule {
            Rule::Fair => fair(&mut flows, count, rate),
            Rule::Varys => varys(&mut flows, count, rate),
        }
    }
    workload.coflows.iter().zip(ends).map(|(coflow, end)| end - coflow.arrival.get()).collect()
}

/// Sides of ports: sending, then receiving.
fn sides(flow: &Flow, ports: usize) -> [usize; 2] {
    [flow.src, ports + flow.dst]
}

fn fair(flows: &mut [Flow], ports: usize, rate: f64) {
    let mut left = vec![rate; 2 * ports];
    let mut open = vec![0.0; 2 * ports];
    for side in flows.iter().flat_map(|f| sides(f, ports)) {
        open[side] += 1.0;
    }
    let mut unfixed: Vec<usize> = (0..flows.len()).collect();
    while !unfixed.is_empty() {
        let shares = (0..left.len()).filter(|&side| open[side] > 0.0);
        let shares = shares.map(|side| (left[side] / open[side], side));
        let Some((share, tight)) = shares.min_by(|a, b| a.0.total_cmp(&b.0)) else { break };
        unfixed.retain(|&at| {
            let both = sides(&flows[at], ports);
            if !both.contains(&tight) {
                return true;
            }
            flows[at].rate = share.max(0.0);
            for side in both {
                left[side] -= share;
                open[side] -= 1.0;
            }
            false
        });
    }
}

fn varys(flows: &mut [Flow], ports: usize, rate: f64) {
    // Flows of a coflow are adjacent; coflows are in order of release.
    let mut turns: Vec<(f64, std::ops::Range<usize>)> = Vec::new();
    let mut load = vec![0.0; 2 * ports];
    let mut start = 0;
    while start < flows.len() {
        let coflow = flows[start].coflow;
        let end = start + flows[start..].iter().take_while(|f| f.coflow == coflow).count();
        load.fill(0.0);
        for flow in &flows[start..end] {
            for side in sides(flow, ports) {
                load[side] += flow.left;
            }
        }
        turns.push((load.iter().copied().fold(0.0, f64::max) / rate, start..end));
        start = end;
    }
    turns.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut left = vec![rate; 2 * ports];
    let dust = 1e-9 * rate;
    for (_, range) in &turns {
        let flows = &mut flows[range.clone()];
        load.fill(0.0);
        for flow in flows.iter() {
            for side in sides(flow, ports) {
                load[side] += flow.left;
            }
        }
        let needs = || (0..2 * ports).filter(|&side| load[side] > 0.0);
        let admitted = needs().all(|side| left[side] > dust);
        let seconds = needs().map(|side| load[side] / left[side]).fold(0.0, f64::max);
        for flow in flows.iter_mut() {
            flow.rate = if admitted { flow.left / seconds } else { 0.0 };
            for side in sides(flow, ports) {
                left[side] -= flow.rate;
            }
        }
    }
    for (_, range) in &turns {
        for flow in &mut flows[range.clone()] {
            let [a, b] = sides(flow, ports);
            let more = left[a].min(left[b]);
            if more > dust {
                flow.rate += more;
                left[a] -= more;
                left[b] -= more;
            }
        }
    }
}
