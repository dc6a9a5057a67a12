//! The worlds in which policies are replayed: the trace as it is, and as other simulators would have had it.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use weir_core::model::{Change, FlowSpec, Workload};
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
    /// By which draw there is another order of ports, in which all coflows list their flows; 0 for the trace's.
    pub listing: u64,
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
            listing: 0,
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
        if self.listing > 0 {
            self.list_anew(&mut workload);
        }
        for coflow in &mut workload.coflows {
            if self.epochs {
                let epoch = (coflow.arrival.get() / EPOCH).ceil() - 1.0;
                coflow.arrival = Time::new(epoch.max(0.0) * EPOCH).unwrap_or(Time::ZERO);
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

    /// Puts the flows of all coflows in a drawn order of ports.
    fn list_anew(&self, workload: &mut Workload) {
        let mut random = ChaCha8Rng::seed_from_u64(self.listing);
        let drawn: Vec<u64> = (0..workload.ports).map(|_| random.next_u64()).collect();
        let mut places = Vec::with_capacity(workload.coflows.len());
        for coflow in &mut workload.coflows {
            let mut order: Vec<usize> = (0..coflow.flows.len()).collect();
            order.sort_by_key(|&flow| {
                let FlowSpec { src, dst, .. } = coflow.flows[flow];
                (drawn[src as usize], drawn[dst as usize])
            });
            coflow.flows = order.iter().map(|&flow| coflow.flows[flow]).collect();
            let mut place = vec![0; order.len()];
            order.into_iter().enumerate().for_each(|(to, from)| place[from] = to);
            places.push(place);
        }
        for event in &mut workload.events {
            if let Change::Restart { coflow, flow } | Change::Late { coflow, flow, .. } = &mut event.what {
                *flow = places[*coflow][*flow];
            }
        }
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
    use weir_core::model::{CoflowSpec, Names, TimedEvent};

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
    fn flows_are_listed_anew_and_events_follow() {
        let mut before = trace();
        before.coflows.push(CoflowSpec { id: 2, ..before.coflows[0].clone() });
        before.coflows[1].flows.reverse();
        let restart = |coflow| move |flow| Change::Restart { coflow, flow };
        let whats = (0..4).map(restart(0)).chain((0..4).map(restart(1)));
        before.events = whats.map(|what| TimedEvent { at: Time::ZERO, what }).collect();
        let world = World { listing: 3, ..World::plain(Time::ZERO) };
        let after = world.workload(&before, 1e6);
        assert_ne!(before.coflows[0].flows, after.coflows[0].flows);
        assert_eq!(after.coflows[0].flows, after.coflows[1].flows);
        let named = |w: &Workload| -> Vec<FlowSpec> {
            let flow = |event: &TimedEvent| match event.what {
                Change::Restart { coflow, flow } => w.coflows[coflow].flows[flow],
                _ => unreachable!(),
            };
            w.events.iter().map(flow).collect()
        };
        assert_eq!(named(&before), named(&after));
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
