//! The networks of the comparison.

use std::sync::Arc;

use super::incast::GoodputCurve;
use super::regions::RegionNetwork;
use super::{Epoch, Policy, ReferenceSimulator};
use crate::common::{is_near, options};
use proptest::prelude::*;
use weir_core::model::topology::CableEvent;
use weir_core::model::{Trunks, Workload};
use weir_core::policy;
use weir_sim::{NetworkModel, NoObserver, ReplayOptions, replay};

/// A network with ports of 1 byte/s, or with regions.
#[derive(Default, Clone, Copy)]
pub struct TestNetwork<'a> {
    pub trunks: Option<&'a Trunks>,
    pub cable_events: &'a [CableEvent],
    /// The results of the cable events.
    pub epochs: &'a [Epoch],
    pub goodput: Option<&'a GoodputCurve>,
    pub regions: Option<&'a RegionNetwork>,
}

impl TestNetwork<'_> {
    /// Compares the completion times of all coflows, with an interval between schedules and without.
    pub(super) fn compare(&self, w: &Workload, name: &str, policy: &Policy) -> Result<(), TestCaseError> {
        let network = NetworkModel {
            trunks: self.trunks.map(|trunks| Arc::new(trunks.clone())),
            cable_events: self.cable_events.into(),
            goodput: self.goodput.map(GoodputCurve::to_model),
            regions: self.regions.map(|regions| regions.links.clone()),
            ..NetworkModel::default()
        };
        let merged = self.regions.map(|regions| regions.merge_flows(w, policy.separates_receivers()));
        let flows = merged.as_ref().unwrap_or(w);
        for interval in [0.0, 0.37] {
            let options = ReplayOptions { network: network.clone(), ..options(1.0, interval) };
            let engine = replay(w, policy::build(name).unwrap(), &options, &mut NoObserver).unwrap().ccts();
            let (naive, tied) = ReferenceSimulator::new(flows, self, policy.clone(), interval).run();
            let equal = engine.iter().zip(&naive).all(|(&a, &b)| is_near(a, b, 1e-6));
            prop_assume!(equal || !tied, "rounding decides the order");
            prop_assert!(
                equal,
                "{}, interval {}: {:?}, but {:?} by the reference simulator",
                name,
                interval,
                engine,
                naive
            );
        }
        Ok(())
    }
}

pub(super) fn compare_with_replay(w: &Workload, name: &str, policy: &Policy) -> Result<(), TestCaseError> {
    TestNetwork::default().compare(w, name, policy)
}

pub(super) fn compare_over_trunks(
    w: &Workload,
    trunks: &Trunks,
    name: &str,
    policy: &Policy,
) -> Result<(), TestCaseError> {
    TestNetwork { trunks: Some(trunks), ..TestNetwork::default() }.compare(w, name, policy)
}
