//! Incast: receiving ports whose capacity depends on the number of flows that send to them (docs/incast-format.md).

use std::sync::Arc;

use super::aalo::{AaloParameters, ControlledPorts};
use super::ordered::ORDERED_POLICIES;
use super::{Flow, Policy, ReferenceSimulator, TestNetwork};
use crate::cables::any_failures;
use crate::common::{WorkloadFeatures, any_workload, cases};
use crate::incast::goodput_of;
use crate::reference_simulator::comparison::any_saath_policy;
use crate::trunks::any_workload_with_trunks;
use proptest::prelude::*;
use weir_core::model::{Goodput, Workload};

/// The share of its rate that a receiving port carries, by the number of sending flows.
#[derive(Debug, Clone)]
pub struct GoodputCurve {
    /// Measured numbers, rising from 1, and their shares, falling from 1.
    points: Vec<(u32, f64)>,
}

impl GoodputCurve {
    /// The model that the engine reads from measurements with these shares.
    pub(super) fn to_model(&self) -> Arc<Goodput> {
        goodput_of(&self.points, 1.0)
    }

    /// Linear between the measured numbers of flows, and constant beyond the last one.
    pub(super) fn share(&self, flows: usize) -> f64 {
        let flows = flows as f64;
        for pair in self.points.windows(2) {
            let [(from, high), (to, low)] =
                [(f64::from(pair[0].0), pair[0].1), (f64::from(pair[1].0), pair[1].1)];
            if flows <= to {
                return if flows <= from { high } else { high + (low - high) * (flows - from) / (to - from) };
            }
        }
        self.points.last().map_or(1.0, |point| point.1)
    }

    /// By link: the number of these flows that it receives.
    pub(super) fn connections<'a>(&self, flows: impl Iterator<Item = &'a Flow>, links: usize) -> Vec<usize> {
        let mut connections = vec![0; links];
        flows.for_each(|flow| connections[flow.dst] += 1);
        connections
    }
}

impl ReferenceSimulator<'_> {
    /// All flows to a receiving port keep the same fraction of their rates if they exceed its capacity together.
    pub(super) fn limit_to_goodput(&mut self) {
        let Some(goodput) = self.goodput else { return };
        let links = self.links.clone();
        for (link, capacity) in links.iter().enumerate() {
            let flows = self.coflows.iter_mut().flat_map(|c| &mut c.flows);
            let mut senders: Vec<&mut Flow> = flows.filter(|f| f.dst == link && f.rate > 0.0).collect();
            let rate: f64 = senders.iter().map(|f| f.rate).sum();
            let share = goodput.share(senders.len());
            if share < 1.0 && rate > capacity * share {
                senders.iter_mut().for_each(|f| f.rate *= capacity * share / rate);
            }
        }
    }
}

pub(super) fn any_curve() -> impl Strategy<Value = GoodputCurve> {
    let falls = prop::collection::vec(0.05..0.9f64, 3);
    (falls, prop::sample::select(vec![[2, 3, 4], [2, 4, 8], [3, 4, 6], [2, 5, 6]])).prop_map(
        |(falls, numbers)| {
            let mut points = vec![(1, 1.0)];
            for (number, fall) in numbers.into_iter().zip(falls) {
                points.push((number, points[points.len() - 1].1 * (1.0 - fall)));
            }
            GoodputCurve { points }
        },
    )
}

/// The policies that serve coflows in an order, `fair`, `varys`, and `aalo` with queues at all links.
fn compare_policies(network: &TestNetwork<'_>, w: &Workload, start: f64) -> Result<(), TestCaseError> {
    network.compare(w, "fair", &Policy::Fair)?;
    network.compare(w, "varys", &Policy::Varys { deadlines: false })?;
    network.compare(w, "varys:deadlines=on", &Policy::Varys { deadlines: true })?;
    for (name, key) in ORDERED_POLICIES {
        network.compare(w, name, &Policy::Ordered(key))?;
    }
    for (sharing, strict) in [(":sharing=strict", true), ("", false)] {
        let name = format!("aalo:start={start}B:growth=2:queues=4:at=both{sharing}");
        let at = ControlledPorts::All { strict };
        network.compare(
            w,
            &name,
            &Policy::Aalo(AaloParameters { start, growth: 2.0, queues: 4, at, known_sizes: false }),
        )?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn policies_match_the_reference_simulator_with_incast(
        w in any_workload(WorkloadFeatures::ALL.with_distinct_values()),
        curve in any_curve(),
        start in 0.9f64..4.0,
    ) {
        compare_policies(&TestNetwork { goodput: Some(&curve), ..TestNetwork::default() }, &w, start)?;
    }

    #[test]
    fn policies_over_trunks_match_the_reference_simulator_with_incast(
        (w, trunks) in any_workload_with_trunks(WorkloadFeatures::ALL.with_distinct_values()),
        curve in any_curve(),
        start in 0.9f64..4.0,
    ) {
        let network = TestNetwork { trunks: Some(&trunks), goodput: Some(&curve), ..TestNetwork::default() };
        compare_policies(&network, &w, start)?;
    }

    #[test]
    fn policies_match_the_reference_simulator_with_incast_while_cables_fail(
        case in any_failures(WorkloadFeatures { restarts: false, ..WorkloadFeatures::ALL }.with_distinct_values()),
        curve in any_curve(),
        start in 0.9f64..4.0,
    ) {
        let network = TestNetwork { goodput: Some(&curve), ..case.network() };
        network.compare(&case.workload, "fair", &Policy::Fair)?;
        network.compare(&case.workload, "varys", &Policy::Varys { deadlines: false })?;
        for strict in [false, true] {
            let sharing = if strict { ":sharing=strict" } else { "" };
            let name = format!("aalo:start={start}B:growth=2:queues=4{sharing}");
            let at = ControlledPorts::Senders { strict };
            let policy = Policy::Aalo(AaloParameters { start, growth: 2.0, queues: 4, at, known_sizes: false });
            network.compare(&case.workload, &name, &policy)?;
        }
    }

    #[test]
    fn saath_matches_the_reference_simulator_with_incast(
        w in any_workload(WorkloadFeatures::ALL.with_distinct_values()),
        (name, policy) in any_saath_policy(),
        curve in any_curve(),
    ) {
        TestNetwork { goodput: Some(&curve), ..TestNetwork::default() }.compare(&w, &name, &policy)?;
    }

    #[test]
    fn aalo_matches_the_reference_simulator_with_incast(
        w in any_workload(WorkloadFeatures::ALL.with_distinct_values()),
        curve in any_curve(),
        start in 0.9f64..4.0,
        strict in prop::bool::ANY,
    ) {
        let sharing = if strict { ":sharing=strict" } else { "" };
        let name = format!("aalo:start={start}B:growth=2:queues=4{sharing}");
        let at = ControlledPorts::Senders { strict };
        let policy = Policy::Aalo(AaloParameters { start, growth: 2.0, queues: 4, at, known_sizes: false });
        TestNetwork { goodput: Some(&curve), ..TestNetwork::default() }.compare(&w, &name, &policy)?;
    }
}
