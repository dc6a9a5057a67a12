//! Defines the workloads and networks of the evaluation: the trace on fewer hosts, and two synthetic workloads.

use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use weir_core::model::{CoflowSpec, FlowSpec, ServiceNames, Workload};
use weir_core::units::{Bytes, Rate, Time};

/// The number of mappers, and of reducers, of the coflow of Fig. 2.
pub const TASKS_PER_SIDE: u32 = 64;

/// The mean number of bytes from a mapper to a reducer in the synthetic workloads, with links of 1 Gbit/s. An idle network
/// then carries the coflow of Fig. 2 in about 2 s, as in the paper.
pub const MEAN_FLOW_BYTES: f64 = 1e6;

/// The number of coflows of Fig. 7.
const CHAINED_COFLOWS: u32 = 96;

/// The source of a workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WorkloadSource {
    /// The trace.
    Trace,
    /// This number of concurrent coflows, each with a reducer on each host (Fig. 7).
    Reducers(u32),
    /// One coflow, drawn by a seed (Fig. 2).
    Shuffle(u64),
}

/// The measurements in `examples/incast` that define how concurrent connections reduce the capacity of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionCost {
    /// Connections do not reduce the capacity.
    None,
    /// TCP without marks, 512 kB per connection; all connections start together.
    Plain,
    /// TCP with marks, 512 kB per connection; all connections start together.
    Marked,
    /// TCP with marks, 64 kB per connection; all connections start together.
    SmallTransfers,
    /// DCTCP, long connections that start at different times.
    Steady,
}

/// A workload and the network that it is replayed on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setup {
    pub source: WorkloadSource,
    pub hosts: u32,
    /// The mean number of coflows that arrive per second.
    pub coflows_per_sec: f64,
    /// The buffer of a port of the switch, in packets.
    pub buffer_packets: u32,
    pub cost: ConnectionCost,
    /// The rate of links divided by 1 Gbit/s. Sizes are multiplied by the same factor.
    pub rate_scale: f64,
}

/// The setup of every figure, except for the value that the figure varies. Costs were measured at its link rate.
pub const DEFAULT: Setup = Setup {
    source: WorkloadSource::Trace,
    hosts: 16,
    coflows_per_sec: 1.0,
    buffer_packets: 100,
    cost: ConnectionCost::Steady,
    rate_scale: 0.1,
};

impl Setup {
    /// The rate of a link.
    pub fn rate(&self) -> Rate {
        Rate::new(Rate::GBIT.get() * self.rate_scale).expect("the rate is finite and positive")
    }

    /// Builds the workload; `trace` is the source of [`WorkloadSource::Trace`].
    pub fn workload(&self, trace: &Workload) -> Workload {
        match self.source {
            WorkloadSource::Trace => self.scaled_trace(trace),
            WorkloadSource::Reducers(count) => self.chains(count),
            WorkloadSource::Shuffle(seed) => self.shuffle(seed),
        }
    }

    /// The trace, with port p on host p modulo `hosts`. The ports of a host are separate reducers. A reducer fetches the data of all
    /// mappers on one host over one connection. Sizes are scaled so that the load of the ports is that of the trace if one coflow
    /// arrives per second.
    fn scaled_trace(&self, trace: &Workload) -> Workload {
        let span_secs = trace.coflows.iter().map(|coflow| coflow.arrival.get()).fold(0.0, f64::max);
        let gap_count = (trace.coflows.len().max(2) - 1) as f64;
        let (port, host) = (Rate::GBIT.get(), self.rate().get());
        let size_factor =
            (host * f64::from(self.hosts) * gap_count) / (port * f64::from(trace.ports) * span_secs);
        let mut coflows = Vec::new();
        for coflow in &trace.coflows {
            let mut bytes_by_pair: BTreeMap<(u32, u32), f64> = BTreeMap::new();
            for flow in &coflow.flows {
                *bytes_by_pair.entry((flow.src % self.hosts, flow.dst)).or_default() +=
                    flow.bytes.get() * size_factor;
            }
            let numbers = self.reducer_numbers(coflow.flows.iter().map(|flow| flow.dst));
            let flows = bytes_by_pair.into_iter().map(|((src, port), bytes)| FlowSpec {
                reducer: numbers[&port],
                ..flow(src, port % self.hosts, bytes)
            });
            let arrival = Time::new(coflow.arrival.get() * gap_count / span_secs / self.coflows_per_sec);
            coflows.push(CoflowSpec::new(
                coflow.id,
                arrival.expect("the time is finite and not negative"),
                flows.collect(),
            ));
        }
        Workload { ports: self.hosts, coflows, events: Vec::new(), names: trace.names.clone() }
    }

    /// Numbers the receiving ports of a coflow on each host from 0, in the order of ports.
    fn reducer_numbers(&self, ports: impl Iterator<Item = u32>) -> BTreeMap<u32, u32> {
        let mut counts = vec![0; self.hosts as usize];
        let mut numbers: BTreeMap<u32, u32> = ports.map(|port| (port, 0)).collect();
        for (port, number) in &mut numbers {
            let count = &mut counts[(port % self.hosts) as usize];
            *number = *count;
            *count += 1;
        }
        numbers
    }

    /// Coflows of four sizes with a reducer on each host. A coflow waits for the one `count` positions before it, so at most
    /// `count` are concurrent.
    fn chains(&self, count: u32) -> Workload {
        let mut coflows = Vec::new();
        for number in 0..CHAINED_COFLOWS {
            let bytes = MEAN_FLOW_BYTES
                * self.rate_scale
                * [0.25, 0.5, 1.0, 2.0][((number / count + number) % 4) as usize];
            let pairs = (0..self.hosts).flat_map(|dst| (0..self.hosts).map(move |src| (src, dst)));
            let flows = pairs.map(|(src, dst)| flow(src, dst, bytes)).collect();
            let mut coflow = CoflowSpec::new(u64::from(number), Time::ZERO, flows);
            coflow.parents = number.checked_sub(count).map(|parent| parent as usize).into_iter().collect();
            coflows.push(coflow);
        }
        Workload { ports: self.hosts, coflows, events: Vec::new(), names: ServiceNames::default() }
    }

    /// One coflow with its mappers and reducers spread evenly over the hosts. A reducer fetches the data of all mappers on
    /// one host over one connection. The seed draws sizes from half to one and a half times the mean.
    fn shuffle(&self, seed: u64) -> Workload {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut flows = Vec::new();
        for reducer in 0..TASKS_PER_SIDE {
            for src in 0..self.hosts {
                let factor = 0.5 + f64::from(random.next_u32()) / f64::from(u32::MAX);
                let bytes =
                    MEAN_FLOW_BYTES * self.rate_scale * f64::from(TASKS_PER_SIDE / self.hosts) * factor;
                let number = reducer / self.hosts;
                flows.push(FlowSpec { reducer: number, ..flow(src, reducer % self.hosts, bytes) });
            }
        }
        let coflows = vec![CoflowSpec::new(1, Time::ZERO, flows)];
        Workload { ports: self.hosts, coflows, events: Vec::new(), names: ServiceNames::default() }
    }
}

fn flow(src: u32, dst: u32, bytes: f64) -> FlowSpec {
    FlowSpec::new(src, dst, Bytes::new(bytes).expect("the size is finite and not negative"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean load of sending ports: bytes per second divided by the rate.
    fn load(workload: &Workload, span: f64, rate: f64) -> f64 {
        let bytes: f64 = workload.coflows.iter().map(CoflowSpec::total_bytes).sum();
        bytes / (f64::from(workload.ports) * rate * span)
    }

    #[test]
    fn scaled_trace_keeps_the_load_of_ports_and_gets_one_coflow_a_second() {
        let coflow = |id, arrival, flows| CoflowSpec::new(id, Time::new(arrival).unwrap(), flows);
        let flows = |bytes| vec![flow(0, 7, bytes), flow(4, 7, bytes), flow(5, 1, bytes), flow(5, 3, bytes)];
        let coflows =
            vec![coflow(1, 0.0, flows(1e6)), coflow(2, 5.0, flows(2e6)), coflow(3, 40.0, flows(1e6))];
        let trace = Workload { ports: 8, coflows, events: Vec::new(), names: ServiceNames::default() };
        let setup = Setup { hosts: 4, ..DEFAULT };
        let scaled = setup.workload(&trace);
        // Ports 0 and 4 are on host 0, so they share one connection to the reducer. Ports 3 and 7 are two reducers on host 3.
        let flows = scaled.coflows[0].flows.iter().map(|flow| (flow.src, flow.dst, flow.reducer));
        assert_eq!(flows.collect::<Vec<_>>(), [(0, 3, 1), (1, 1, 0), (1, 3, 0)]);
        assert_eq!(scaled.coflows[2].arrival.get(), 2.0);
        let [before, after] = [load(&trace, 40.0, Rate::GBIT.get()), load(&scaled, 2.0, setup.rate().get())];
        assert!((before / after - 1.0).abs() < 1e-12, "{before} {after}");
    }

    #[test]
    fn each_reducer_of_the_shuffle_receives_one_flow_from_each_host() {
        let setup = Setup { source: WorkloadSource::Shuffle(1), ..DEFAULT };
        let trace =
            Workload { ports: 1, coflows: Vec::new(), events: Vec::new(), names: ServiceNames::default() };
        let workload = setup.workload(&trace);
        let mut senders: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
        for flow in &workload.coflows[0].flows {
            senders.entry((flow.dst, flow.reducer)).or_default().push(flow.src);
        }
        let reducers = (0..setup.hosts).flat_map(|host| (0..4).map(move |number| (host, number)));
        assert!(senders.keys().copied().eq(reducers));
        assert!(senders.values().all(|senders| senders.iter().copied().eq(0..setup.hosts)));
    }
}
