//! Measures coflows between the hosts under Django, Aalo+ and DCTCP, and simulates them.

use std::sync::Arc;

use weir_console::failure::Failure;
use weir_console::progress::Progress;
use weir_console::run::ReplayTask;
use weir_coordinator::control_plane::{Link, NetworkLinks};
use weir_core::model::Workload;
use weir_core::units::{Bytes, Rate};
use weir_sim::outcome::{mean, percentile};
use weir_sim::{NetworkModel, ReplayOptions};
use weir_testbed::Bed;
use weir_testbed::tcp_bed::TcpBed;

use super::ports::{PortUse, Ports};
use super::{COFLOWS, WORKERS};
use crate::django::replays::{AALO, DCTCP, Inputs};
use crate::django::setup::{Setup, WorkloadSource};
use crate::live::coflows::control_plane::ControlUse;
use crate::live::coflows::workload::Scale;
use crate::live::coflows::{LiveRun, PLAIN_TCP, SenderKind, max_duration, medians, payload_fraction};

/// The number of runs of the first scenario under each policy. The CCT of a coflow is the median. The others run once.
pub const FIRST_RUNS: usize = 3;

/// The position of the default setup, that of Table 2, among the scenarios.
pub const FIRST: usize = 0;

/// Table 2 of the paper: mean, P95 and P99 under Django and under DCTCP. The paper gives no unit.
pub const PUBLISHED_TABLE2: [[f64; 3]; 2] = [[15.7, 10.9, 133.6], [18.1, 30.1, 1037.9]];

/// Coflows and a network.
pub struct Scenario {
    pub name: String,
    pub setup: Setup,
    pub runs: usize,
    pub workload: Workload,
    /// The published speedups of Django for the mean over Aalo+ and DCTCP, and for P95 over Aalo+ and DCTCP.
    pub published: [Option<f64>; 4],
}

/// What a policy did in a scenario.
pub struct Measurement {
    /// CCTs in seconds, by coflow.
    pub simulated: Vec<f64>,
    /// CCTs in seconds, by coflow: medians of all runs.
    pub measured: Vec<f64>,
    /// Flows that their agent did not schedule at their end, as a fraction.
    pub unscheduled: f64,
    /// In the last run.
    pub ports: PortUse,
    /// In the last run; none for DCTCP.
    pub control: Option<ControlUse>,
    /// The duration of the last run, in seconds.
    pub seconds: f64,
}

/// A scenario under Django, Aalo+ and DCTCP.
pub struct Comparison {
    pub name: String,
    pub flows: usize,
    pub coflows: usize,
    /// Django's number of connections for each host.
    pub connections: usize,
    pub published: [Option<f64>; 4],
    pub django: Measurement,
    pub aalo: Measurement,
    pub dctcp: Measurement,
}

/// The scenarios of Table 2, and two points each of Fig. 6 to 8. `coflows` is the number of coflows of the trace.
pub fn all(inputs: &Inputs<'_>, coflows: usize) -> Result<Vec<Scenario>, Failure> {
    let base = COFLOWS;
    let reducers = |count| Setup { source: WorkloadSource::Reducers(count), ..base };
    let load = |coflows_per_sec| Setup { coflows_per_sec, ..base };
    let buffer = |buffer_packets| Setup { buffer_packets, ..base };
    let none = [None; 4];
    let speedups = |values: [f64; 4]| values.map(Some);
    let [[django_mean, django_p95, _], [dctcp_mean, dctcp_p95, _]] = PUBLISHED_TABLE2;
    let table2 = [None, Some(dctcp_mean / django_mean), None, Some(dctcp_p95 / django_p95)];
    [
        ("Table 2", base, FIRST_RUNS, table2),
        // 6.4.
        ("Fig. 6: 50 packets", buffer(50), 1, [None, None, Some(2.3), Some(1.9)]),
        ("Fig. 6: 150 packets", buffer(150), 1, [None, None, Some(1.2), Some(1.5)]),
        ("Fig. 7: 4 reducers", reducers(4), 1, none),
        ("Fig. 7: 16 reducers", reducers(16), 1, none),
        ("Fig. 8: load 0.5", load(0.5), 1, none),
        ("Fig. 8: load 3", load(3.0), 1, speedups([1.2, 1.38, 1.3, 2.2])),
    ]
    .into_iter()
    .map(|(name, setup, runs, published)| {
        let workload = live_workload(setup.workload(inputs.trace), coflows);
        if workload.coflows.is_empty() {
            return Err(Failure::input("the trace has no flow between two of the hosts; use a larger trace"));
        }
        Ok(Scenario { name: name.to_owned(), setup, runs, workload, published })
    })
    .collect()
}

/// The coflows that sockets can carry: whole bytes, no flow from a host to itself, and one reducer of a coflow at a host, since
/// registrations do not tell them apart. Of coflows without parents, the first `coflows`.
fn live_workload(mut workload: Workload, coflows: usize) -> Workload {
    for coflow in &mut workload.coflows {
        coflow.flows.retain(|flow| flow.src != flow.dst);
        for flow in &mut coflow.flows {
            flow.bytes = Bytes::new(flow.bytes.get().round().max(1.0)).expect("a rounded size is a size");
            flow.reducer = 0;
        }
    }
    if workload.coflows.iter().all(|coflow| coflow.parents.is_empty()) {
        workload.coflows.retain(|coflow| !coflow.flows.is_empty());
        workload.coflows.truncate(coflows);
    }
    workload
}

/// Simulates and measures a scenario under each policy.
pub fn measure(
    bed: &Bed,
    tcp_bed: &TcpBed<'_>,
    scenario: &Scenario,
    inputs: &Inputs<'_>,
    progress: &Progress,
) -> Result<Comparison, Failure> {
    let connections = inputs.connections(&scenario.setup);
    let measure_policy = |name: &str, simulated: &str, policy: &str| {
        let (ccts, makespan) = simulate(scenario, simulated, inputs, progress)?;
        measure_runs(bed, tcp_bed, scenario, (name, policy), (ccts, makespan), progress)
    };
    let django = format!("django:connections={connections}");
    Ok(Comparison {
        name: scenario.name.clone(),
        flows: scenario.workload.flow_count(),
        coflows: scenario.workload.coflows.len(),
        connections,
        published: scenario.published,
        django: measure_policy("Django", &django, &django)?,
        aalo: measure_policy("Aalo+", AALO, AALO)?,
        dctcp: measure_policy("DCTCP", DCTCP, PLAIN_TCP)?,
    })
}

/// The CCTs and the makespan of a replay, in seconds. Links carry their payload.
fn simulate(
    scenario: &Scenario,
    policy: &str,
    inputs: &Inputs<'_>,
    progress: &Progress,
) -> Result<(Vec<f64>, f64), Failure> {
    let rate = scenario.setup.rate().get() * payload_fraction();
    let options = ReplayOptions {
        port_rate: Rate::new(rate).expect("a rate times a fraction is a rate"),
        network: NetworkModel {
            goodput: inputs.goodput(&scenario.setup).map(Arc::new),
            ..NetworkModel::default()
        },
        ..ReplayOptions::default()
    };
    let task =
        ReplayTask { policy: policy.to_owned(), workload: &scenario.workload, options, sensitivities: &[] };
    let outcome = task.run(progress)?;
    Ok((outcome.ccts(), outcome.makespan))
}

fn measure_runs(
    bed: &Bed,
    tcp_bed: &TcpBed<'_>,
    scenario: &Scenario,
    (name, policy): (&str, &str),
    (simulated, makespan): (Vec<f64>, f64),
    progress: &Progress,
) -> Result<Measurement, Failure> {
    let rate = scenario.setup.rate();
    let live_run = LiveRun {
        plan: bed.plan(),
        scale: Scale { hosts: WORKERS, rate_factor: 1.0, mean_arrival_secs: 1.0 },
        links: NetworkLinks::one_switch(&vec![Link { send: rate, recv: rate }; WORKERS as usize]),
        workload: &scenario.workload,
        name: &format!("{}, {name}", scenario.name),
        policy,
        senders: SenderKind::Library,
        limit: max_duration(makespan),
    };
    let mut runs = Vec::new();
    for _ in 0..scenario.runs {
        let ports = Ports::start(tcp_bed, WORKERS as usize, scenario.setup.buffer_packets)?;
        let outcome = live_run.run(progress)?;
        runs.push((outcome, ports.finish()?));
    }
    let (measured, unscheduled) = medians(&scenario.workload, runs.iter().map(|(run, _)| &run.transfers));
    let (last, ports) = runs.pop().expect("a scenario has at least one run");
    Ok(Measurement {
        simulated,
        measured,
        unscheduled,
        ports,
        seconds: last.transfers.seconds,
        control: last.control,
    })
}

impl Comparison {
    /// Django's speedups: for the mean over Aalo+ and DCTCP, and for P95 over both. `ccts` selects the source.
    pub fn speedups(&self, ccts: fn(&Measurement) -> &[f64]) -> [f64; 4] {
        let values = |policy: &Measurement| [mean(ccts(policy)), percentile(ccts(policy), 95.0)];
        let [[mean, p95], [aalo_mean, aalo_p95], [dctcp_mean, dctcp_p95]] =
            [&self.django, &self.aalo, &self.dctcp].map(values);
        [aalo_mean / mean, dctcp_mean / mean, aalo_p95 / p95, dctcp_p95 / p95]
    }
}

#[cfg(test)]
mod tests {
    use weir_core::model::{CoflowSpec, FlowSpec, ServiceNames};
    use weir_core::units::Time;

    use super::*;

    fn workload(flows: &[&[(u32, u32, f64)]]) -> Workload {
        let coflow = |(id, flows): (u64, &&[(u32, u32, f64)])| {
            let flow = |&(src, dst, bytes)| FlowSpec::new(src, dst, Bytes::new(bytes).unwrap());
            CoflowSpec::new(id, Time::ZERO, flows.iter().map(flow).collect())
        };
        let coflows = (0..).zip(flows).map(coflow).collect();
        Workload { ports: 4, coflows, events: Vec::new(), names: ServiceNames::default() }
    }

    #[test]
    fn live_coflows_have_flows_of_whole_bytes_between_two_hosts() {
        let all = workload(&[&[(0, 1, 2.6), (1, 1, 9.0)], &[(2, 2, 5.0)], &[(3, 0, 0.2)], &[(0, 3, 1.0)]]);
        let live = live_workload(all, 2);
        let expected = workload(&[&[(0, 1, 3.0)], &[], &[(3, 0, 1.0)]]).coflows;
        assert_eq!(live.coflows, [expected[0].clone(), expected[2].clone()]);
    }

    #[test]
    fn coflows_with_parents_are_all_sent() {
        let mut chain = workload(&[&[(0, 1, 2.0)], &[(1, 0, 2.0)]]);
        chain.coflows[1].parents = vec![0];
        assert_eq!(live_workload(chain, 1).coflows.len(), 2);
    }

    #[test]
    fn speedups_are_ratios_to_django() {
        let measurement = |ccts: &[f64]| Measurement {
            simulated: vec![1.0],
            measured: ccts.to_vec(),
            unscheduled: 0.0,
            ports: PortUse { loss: 0.0, mean_queue: 0.0, max_queue: 0 },
            control: None,
            seconds: 1.0,
        };
        let comparison = Comparison {
            name: String::new(),
            flows: 1,
            coflows: 2,
            connections: 80,
            published: [None; 4],
            django: measurement(&[1.0, 3.0]),
            aalo: measurement(&[3.0, 3.0]),
            dctcp: measurement(&[2.0, 6.0]),
        };
        let speedups = comparison.speedups(|measurement| &measurement.measured);
        let expected_p95 = percentile(&[2.0, 6.0], 95.0) / percentile(&[1.0, 3.0], 95.0);
        assert_eq!(speedups[..2], [1.5, 2.0]);
        assert_eq!(speedups[3], expected_p95);
    }
}
