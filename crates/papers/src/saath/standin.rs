//! Stand-ins for policies as other simulators have them, for experiments only. None is a policy of Weir.

use weir_core::model::Workload;

pub mod coflowsim;
pub mod one_flow;

/// What a stand-in goes by.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Bytes per second of a port.
    pub rate: f64,
    /// Seconds of a step; CoflowSim's is 8 ms.
    pub step: f64,
}

/// Positions of coflows in order of arrival.
fn by_arrival(workload: &Workload) -> Vec<usize> {
    let mut order: Vec<usize> = (0..workload.coflows.len()).collect();
    order.sort_by(|&a, &b| {
        workload.coflows[a].arrival.get().total_cmp(&workload.coflows[b].arrival.get()).then(a.cmp(&b))
    });
    order
}

/// The first step that does not begin before `at`.
fn step_at(at: f64, pace: Pace) -> u64 {
    (at / pace.step - 1e-6).ceil().max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::model::{CoflowSpec, FlowSpec, Names};
    use weir_core::units::{Bytes, Time};

    pub const PACE: Pace = Pace { rate: 10.0, step: 0.5 };

    /// Source, destination and bytes of each flow of each coflow; all arrive at once.
    pub fn workload(coflows: &[&[(u32, u32, f64)]]) -> Workload {
        let flows = |flows: &[(u32, u32, f64)]| -> Vec<FlowSpec> {
            flows
                .iter()
                .map(|&(src, dst, bytes)| FlowSpec::new(src, dst, Bytes::new(bytes).unwrap()))
                .collect()
        };
        let coflows = (0..).zip(coflows).map(|(id, coflow)| CoflowSpec::new(id, Time::ZERO, flows(coflow)));
        Workload { ports: 3, coflows: coflows.collect(), events: Vec::new(), names: Names::default() }
    }

    pub fn near(ccts: &[f64], expected: &[f64]) {
        assert_eq!(ccts.len(), expected.len());
        assert!(ccts.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{ccts:?}");
    }
}
