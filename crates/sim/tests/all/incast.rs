//! Incast: ports whose goodput falls with the number of senders. Examples by hand, and properties of every
//! policy.

use std::sync::Arc;

use crate::common::{
    Kinds, POLICIES, Schedule, all_is_sent, assert_near, cases, coflow, near, options, workload, workloads,
};
use proptest::prelude::*;
use weir_core::model::{FlowState, Goodput, Incast, IncastRun, Workload};
use weir_core::policy;
use weir_core::units::Rate;
use weir_sim::{NetworkModel, NoObserver, Observer, Options, Outcome, Snapshot, replay};

/// Measurements with a buffer of one byte per connection, on a link of 1 byte/s. A second buffer size without
/// loss gives the link rate.
fn measured(parts: &[(u32, f64)], rate: f64) -> Arc<Goodput> {
    let run =
        |buffer, connections, goodput| IncastRun { buffer, connections, bytes: 1.0, loss: 0.0, goodput };
    let both = parts.iter().flat_map(|&(n, part)| [run(1, n, part), run(2, n, 1.0)]);
    let incast = Incast::new(&both.collect::<Vec<IncastRun>>()).unwrap();
    Arc::new(incast.goodput(1, Rate::new(rate).unwrap()).unwrap())
}

fn through(goodput: &Arc<Goodput>, rate: f64, interval: f64) -> Options {
    Options { behind: Some(NetworkModel::Goodput(Arc::clone(goodput))), ..options(rate, interval) }
}

fn run(all: &Workload, policy: &str, options: &Options) -> Outcome {
    let built = policy::build(policy).unwrap();
    replay(all, built, options, &mut NoObserver).unwrap_or_else(|error| panic!("{policy}: {error}"))
}

/// Checks the completion times of the first coflow's flows.
#[track_caller]
fn check(all: &Workload, policy: &str, options: &Options, ends: &[f64]) {
    assert_near(&run(all, policy, options).coflows[0].flow_ends, ends, 1e-9, policy);
}

#[test]
fn two_incast_senders_halve_receiver_goodput() {
    let goodput = measured(&[(1, 1.0), (2, 0.5)], 1.0);
    let one = workload(3, vec![coflow(1, 0.0, &[(0, 2, 4.0), (1, 2, 2.0)])]);
    let through = through(&goodput, 1.0, 0.0);
    // Both at a quarter until the shorter one ends at 8. The remaining flow then gets the whole port.
    for policy in ["fair", "aalo", "aalo+", "aalo:at=both", "saath"] {
        check(&one, policy, &through, &[10.0, 8.0]);
    }
    // Both flows end together, at half of the port rate.
    check(&one, "varys", &through, &[12.0, 12.0]);
    // One concurrent connection costs no goodput.
    let django = run(&one, "django:connections=1", &through).coflows[0].cct();
    assert!(near(django, 6.0, 1e-9), "{django}");
}

#[test]
fn incast_stall_is_equally_long_on_a_faster_link() {
    // 2 bytes take 1 s at 2 bytes/s, and the stall stays 2 s: a third of the port rate.
    let goodput = measured(&[(1, 1.0), (2, 0.5)], 2.0);
    let one = workload(3, vec![coflow(1, 0.0, &[(0, 2, 4.0), (1, 2, 4.0)])]);
    for policy in ["fair", "aalo+", "varys", "saath"] {
        check(&one, policy, &through(&goodput, 2.0, 0.0), &[12.0, 12.0]);
    }
}

#[test]
fn incast_only_slows_the_receiver_with_several_senders() {
    let goodput = measured(&[(1, 1.0), (2, 0.5)], 1.0);
    // Port 2 has two senders. Port 3 has one sender, whose port is shared.
    let one = workload(4, vec![coflow(1, 0.0, &[(0, 2, 3.0), (0, 3, 3.0), (1, 2, 3.0)])]);
    let through = through(&goodput, 1.0, 0.0);
    // Per-flow TCP gives the residual capacity of port 0, three quarters, to the flow to port 3.
    check(&one, "fair", &through, &[12.0, 4.0, 12.0]);
    // Saath gives each flow a half; the flows to port 2 achieve half of that.
    check(&one, "saath", &through, &[12.0, 6.0, 12.0]);
}

/// Records the schedules.
struct Recorder<'a> {
    goodput: &'a Goodput,
    schedules: Vec<Schedule>,
    broken: Option<String>,
}

impl Observer for Recorder<'_> {
    fn scheduled(&mut self, moment: &Snapshot<'_>) -> bool {
        let mut ports = vec![(0, 0.0); moment.fabric().ports()];
        let mut rates = Vec::new();
        for &slot in moment.active() {
            let coflow = moment.coflow(slot);
            let live = (0..coflow.width() as u32).filter(|&flow| coflow.state(flow) == FlowState::Live);
            for flow in live {
                let rate = moment.rate(slot, flow);
                let (count, sum) = &mut ports[coflow.ends_of(flow).1 as usize];
                *count += usize::from(rate > 0.0);
                *sum += rate;
                rates.push((coflow.index, coflow.original(flow) as usize, rate));
            }
        }
        for (&(count, sum), capacity) in ports.iter().zip(moment.fabric().recv()) {
            let most = capacity * self.goodput.part(count);
            if sum > most + 1e-9 {
                self.broken = Some(format!("at {}: {count} flows get {sum} of {most}", moment.now()));
                return false;
            }
        }
        self.schedules.push((moment.now(), rates));
        self.schedules.len() < 20_000
    }
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn incast_goodput_never_exceeds_port_capacity(all in workloads(Kinds { ports: true, late: true, ..Kinds::PLAIN }), interval in prop::sample::select(vec![0.0, 0.5])) {
        let goodput = measured(&[(1, 1.0), (2, 0.8), (3, 0.5), (6, 0.1)], 1.0);
        for policy in POLICIES {
            let mut recorder = Recorder { goodput: &goodput, schedules: Vec::new(), broken: None };
            let built = policy::build(policy).unwrap();
            let outcome = replay(&all, built, &through(&goodput, 1.0, interval), &mut recorder);
            prop_assert_eq!(&recorder.broken, &None, "{}", policy);
            let outcome = outcome.map_err(|error| TestCaseError::fail(format!("{policy}: {error}")))?;
            // Flows whose data became unavailable may have sent some bytes before.
            if all.events.is_empty() {
                all_is_sent(&all, &recorder.schedules, &outcome)?;
            }
        }
    }

    #[test]
    fn incast_without_goodput_loss_changes_no_replay(all in workloads(Kinds::ALL)) {
        let free = measured(&[(1, 1.0), (2, 1.0)], 1.0);
        // More connections than any port has here.
        let far = measured(&[(1, 1.0), (100, 1.0), (200, 0.1)], 1.0);
        for policy in POLICIES {
            let plain = run(&all, policy, &options(1.0, 0.5)).coflows;
            prop_assert_eq!(&run(&all, policy, &through(&free, 1.0, 0.5)).coflows, &plain, "{}", policy);
            let ccts = |of: &[weir_sim::CoflowOutcome]| of.iter().map(|c| c.cct()).collect::<Vec<f64>>();
            let found = ccts(&run(&all, policy, &through(&far, 1.0, 0.5)).coflows);
            for (found, plain) in found.into_iter().zip(ccts(&plain)) {
                prop_assert!(near(found, plain, 1e-6), "{}: {} and {}", policy, found, plain);
            }
        }
    }
}
