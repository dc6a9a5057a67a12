//! The worlds in which policies are replayed: the trace as it is, and as other simulators would have had it.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use weir_core::model::{Change, Workload};
use weir_core::units::{Bytes, Rate, Time};
use weir_trace::TraceUnit;

/// Which ports the flows of a coflow are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Where the trace has them.
    Trace,
    /// The i-th mapper of every coflow on port i; reducers where the trace has them.
    Mappers,
    /// The i-th mapper and the i-th reducer of every coflow on port i.
    Tasks,
}

/// A way to replay the trace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct World {
    /// Which ports.
    pub placement: Placement,
    /// By which draw all ports are numbered anew; 0 for the trace's numbers.
    pub numbering: u64,
    /// How many times as fast coflows arrive (Fig. 14d).
    pub speed: f64,
    /// Coflows arrive at the start of the 10.24 s in which they would, as CoflowSim admits them.
    pub epochs: bool,
    /// CoflowSim's units: 1 MB = 2^20 bytes, ports of 2^30 bit/s, 1,024 of the trace's milliseconds in a second.
    pub binary: bool,
    /// The scheduling interval in seconds.
    pub interval: f64,
}

/// CoflowSim's epoch: ten of its seconds, in seconds of the trace.
const EPOCH: f64 = 10.24;

impl World {
    /// The trace as it is.
    pub fn plain(interval: Time) -> World {
        World {
            placement: Placement::Trace,
            numbering: 0,
            speed: 1.0,
            epochs: false,
            binary: false,
            interval: interval.get(),
        }
    }

    /// Whether both replay the same workload.
    pub fn same_workload(&self, other: &World) -> bool {
        World { interval: 0.0, ..*self } == World { interval: 0.0, ..*other }
    }

    /// What is replayed; `unit` is what a megabyte of the trace was taken for.
    pub fn workload(&self, trace: &Workload, unit: f64) -> Workload {
        let mut workload = trace.clone();
        let mut numbers: Vec<u32> = (0..trace.ports).collect();
        if self.numbering > 0 {
            let mut random = ChaCha8Rng::seed_from_u64(self.numbering);
            numbers.sort_by_cached_key(|_| random.next_u64());
        }
        for event in &mut workload.events {
            if let Change::PortRate { port, .. } = &mut event.what {
                *port = numbers[*port as usize];
            }
        }
        for coflow in &mut workload.coflows {
            if self.epochs {
                let epoch = (coflow.arrival.get() / EPOCH).ceil() - 1.0;
                coflow.arrival = Time::new(epoch.max(0.0) * EPOCH).unwrap_or(Time::ZERO);
            }
            for flow in &mut coflow.flows {
                (flow.src, flow.dst) = (numbers[flow.src as usize], numbers[flow.dst as usize]);
            }
            if self.placement != Placement::Trace {
                renumber(coflow.flows.iter_mut().map(|f| &mut f.src));
            }
            if self.placement == Placement::Tasks {
                renumber(coflow.flows.iter_mut().map(|f| &mut f.dst));
            }
            if self.binary {
                let scale = TraceUnit::MiB.bytes() / unit;
                for flow in &mut coflow.flows {
                    flow.bytes = Bytes::new(flow.bytes.get() * scale).unwrap_or(flow.bytes);
                }
            }
        }
        let speed = if self.binary { self.speed * 1.024 } else { self.speed };
        if speed == 1.0 { workload } else { workload.sped_up(speed) }
    }

    /// What a port carries.
    pub fn rate(&self, nominal: Rate) -> Rate {
        let scale = if self.binary { f64::from(1 << 30) / 1e9 } else { 1.0 };
        Rate::new(nominal.get() * scale).unwrap_or(nominal)
    }
}

/// Numbers the ports of one side of one coflow from 0, in the order in which its flows name them, which for the
/// coflow-benchmark format is that of its tasks.
fn renumber<'a>(ports: impl Iterator<Item = &'a mut u32>) {
    let mut seen: Vec<u32> = Vec::new();
    for port in ports {
        let number = seen.iter().position(|known| known == port).unwrap_or_else(|| {
            seen.push(*port);
            seen.len() - 1
        });
        *port = number as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::model::{CoflowSpec, FlowSpec, Names};

    fn trace() -> Workload {
        let flow = |src, dst| FlowSpec::new(src, dst, Bytes::new(1e6).unwrap());
        let flows = vec![flow(7, 4), flow(3, 4), flow(7, 9), flow(3, 9)];
        Workload {
            ports: 10,
            coflows: vec![CoflowSpec::new(1, Time::new(25.0).unwrap(), flows)],
            events: Vec::new(),
            names: Names::default(),
        }
    }

    #[test]
    fn tasks_are_numbered_in_their_order() {
        let world = World { placement: Placement::Mappers, ..World::plain(Time::ZERO) };
        let ends = |w: &Workload| w.coflows[0].flows.iter().map(|f| (f.src, f.dst)).collect::<Vec<_>>();
        assert_eq!(ends(&world.workload(&trace(), 1e6)), [(0, 4), (1, 4), (0, 9), (1, 9)]);
        let world = World { placement: Placement::Tasks, ..world };
        assert_eq!(ends(&world.workload(&trace(), 1e6)), [(0, 0), (1, 0), (0, 1), (1, 1)]);
    }

    #[test]
    fn ports_are_numbered_anew_one_to_one() {
        let world = World { numbering: 3, ..World::plain(Time::ZERO) };
        let (before, after) = (trace(), world.workload(&trace(), 1e6));
        let ports = |w: &Workload| w.coflows[0].flows.iter().flat_map(|f| [f.src, f.dst]).collect::<Vec<_>>();
        let (before, after) = (ports(&before), ports(&after));
        assert_ne!(before, after);
        for (i, j) in (0..before.len()).flat_map(|i| (0..i).map(move |j| (i, j))) {
            assert_eq!(before[i] == before[j], after[i] == after[j]);
        }
    }

    #[test]
    fn epochs_come_before_arrivals() {
        let world = World { epochs: true, ..World::plain(Time::ZERO) };
        assert_eq!(world.workload(&trace(), 1e6).coflows[0].arrival.get(), 20.48);
        let binary = World { binary: true, ..World::plain(Time::ZERO) };
        let coflow = &binary.workload(&trace(), 1e6).coflows[0];
        assert_eq!((coflow.arrival.get(), coflow.flows[0].bytes.get()), (25.0 / 1.024, 1_048_576.0));
    }
}
