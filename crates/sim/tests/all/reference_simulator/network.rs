//! The networks of the comparison.

use std::sync::Arc;

use super::incast::GoodputCurve;
use super::regions::RegionNetwork;
use super::{Epoch, ReferenceSimulator, Variant};
use crate::common::{is_near, options};
use crate::properties::scale_workload;
use proptest::prelude::*;
use weir_core::model::topology::{CableChange, CableEvent};
use weir_core::model::{Trunks, Workload};
use weir_core::policy;
use weir_core::units::Rate;
use weir_sim::{NetworkModel, NoObserver, ReplayOptions, replay};

/// A network with ports of 1 byte/s, or with regions.
#[derive(Debug, Clone, Default)]
pub struct TestNetwork {
    pub trunks: Option<Trunks>,
    pub cable_events: Vec<CableEvent>,
    /// The results of the cable events.
    pub epochs: Vec<Epoch>,
    pub goodput: Option<GoodputCurve>,
    pub regions: Option<RegionNetwork>,
}

impl TestNetwork {
    /// Options of a replay on this network.
    pub fn options(&self, interval: f64) -> ReplayOptions {
        let network = NetworkModel {
            trunks: self.trunks.clone().map(Arc::new),
            cable_events: self.cable_events.clone().into(),
            goodput: self.goodput.as_ref().map(GoodputCurve::to_model),
            regions: self.regions.as_ref().map(|regions| regions.links.clone()),
            ..NetworkModel::default()
        };
        ReplayOptions { network, ..options(1.0, interval) }
    }

    /// As [`TestNetwork::options`], with rates multiplied by `scale`. Not between regions.
    fn scaled_options(&self, interval: f64, scale: f64) -> ReplayOptions {
        let scale_event = |event: &CableEvent| match event.change {
            CableChange::Rate(rate) => {
                let rate = Rate::new(rate.get() * scale).expect("a rate");
                CableEvent { change: CableChange::Rate(rate), ..*event }
            }
            CableChange::Down | CableChange::Up => *event,
        };
        let trunks = self.trunks.clone().map(|trunks| trunks.scaled(scale));
        let cable_events = self.cable_events.iter().map(scale_event).collect();
        let scaled = TestNetwork { trunks, cable_events, ..self.clone() };
        ReplayOptions { port_rate: Rate::new(scale).expect("a rate"), ..scaled.options(interval) }
    }

    /// Compares the completion times of all coflows under each policy, with an interval between schedules and without.
    pub(super) fn compare(&self, w: &Workload, variants: &[Variant]) -> Result<(), TestCaseError> {
        for interval in [0.0, 0.37] {
            for (name, policy) in variants {
                if interval == 0.0 && policy.depends_on_turn_ends() {
                    continue;
                }
                let scale = policy.byte_scale();
                let options = self.scaled_options(interval, scale);
                let scaled = scale_workload(w, scale, 1.0);
                let separate = policy.separates_receivers();
                let merged = self.regions.as_ref().map(|regions| regions.merge_flows(w, separate));
                let flows = merged.as_ref().unwrap_or(w);
                let engine =
                    replay(&scaled, policy::build(name).unwrap(), &options, &mut NoObserver).unwrap().ccts();
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
        }
        Ok(())
    }
}
