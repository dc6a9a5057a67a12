//! Guaranteed rates of services on single links.

use std::collections::{BTreeMap, BTreeSet};

use super::{CableChange, ErrorLocation, Scenario, ScenarioError, scenario_error};
use crate::model::topology::{LinkId, Topology};
use crate::rounding;
use crate::units::{Rate, Time};

/// A guaranteed rate: the rate on a link that a service gets before any service gets more (NetShare, 3.3: "minimum
/// and excess weights").
///
/// On a link with guarantees, weights guarantee nothing more: the rest is divided by excess weights, or by the weight
/// of a service without an excess weight. Links without guarantees are shared by weight. Only a central allocator
/// applies guarantees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guarantee {
    /// Position of the service in the list.
    pub service: usize,
    /// The link, one direction of a cable.
    pub link: LinkId,
    /// The guaranteed rate.
    pub rate: Rate,
}

/// The weight of a service without any share of a link, as a part of the link's rate: below the rounding of rates.
const MIN_WEIGHT_FRACTION: f64 = 1e-15;

/// Whether the sum of guarantees exceeds the rate of a link.
fn exceeds_link_rate(guaranteed: f64, link_rate: Rate) -> bool {
    guaranteed > link_rate.get() * (1.0 + rounding::GUARANTEES)
}

/// A period in which the guarantees on a link are reduced, because their sum exceeds the rate of the link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reduction {
    /// The link.
    pub link: LinkId,
    /// Start of the reduction.
    pub start: Time,
    /// End of the reduction.
    pub end: Time,
    /// The applied part of each guarantee, below 1: the rate of the link divided by the sum of its guarantees.
    pub factor: f64,
}

impl Scenario {
    /// The reductions of guarantees, in the order of the events that lower the rate of a link below the sum of its
    /// guarantees.
    ///
    /// A change of the factor ends one reduction and starts the next. O((guarantees + events) x log links).
    pub fn reductions(&self) -> Vec<Reduction> {
        let mut sums: BTreeMap<LinkId, f64> = BTreeMap::new();
        for guarantee in &self.guarantees {
            *sums.entry(guarantee.link).or_default() += guarantee.rate.get();
        }
        let mut reductions: Vec<Reduction> = Vec::new();
        // Position of the current reduction, by link.
        let mut current: BTreeMap<LinkId, usize> = BTreeMap::new();
        for event in &self.events {
            let CableChange::Rate(rate) = event.change else { continue };
            for link in [event.cable, event.cable.reverse()] {
                let Some(&sum) = sums.get(&link) else { continue };
                let factor = if exceeds_link_rate(sum, rate) { rate.get() / sum } else { 1.0 };
                let before = current.get(&link).map_or(1.0, |&at| reductions[at].factor);
                if factor == before {
                    continue;
                }
                if let Some(at) = current.remove(&link) {
                    reductions[at].end = event.time;
                }
                if factor < 1.0 {
                    current.insert(link, reductions.len());
                    reductions.push(Reduction { link, start: event.time, end: self.end, factor });
                }
            }
        }
        reductions.retain(|reduction| reduction.start < reduction.end);
        reductions
    }

    /// The weights of the queues of services at a port with these guarantees on its link of rate `rate`.
    ///
    /// A weight is the service's guarantee, reduced by the link's factor, plus the service's part of the residual capacity
    /// by excess weight. The queue of a service therefore gets at least the reduced guarantee. O(services + guarantees
    /// on the link).
    pub fn guaranteed_weights(&self, guarantees: &[Guarantee], rate: Rate) -> Vec<f64> {
        let link_rate = rate.get();
        let sum: f64 = guarantees.iter().map(|guarantee| guarantee.rate.get()).sum();
        let factor = if sum > link_rate { link_rate / sum } else { 1.0 };
        let excess: Vec<f64> = self.services.iter().map(|s| s.excess_weight.unwrap_or(s.weight)).collect();
        let excess_sum: f64 = excess.iter().sum();
        let rate_per_weight = if excess_sum > 0.0 { (link_rate - sum).max(0.0) / excess_sum } else { 0.0 };
        // Every queue needs a weight, even if its service has no share.
        let mut weights: Vec<f64> =
            excess.iter().map(|x| (x * rate_per_weight).max(link_rate * MIN_WEIGHT_FRACTION)).collect();
        for guarantee in guarantees {
            weights[guarantee.service] += guarantee.rate.get() * factor;
        }
        weights
    }

    /// Checks the guarantees against the links' rates at the start. O(guarantees x log guarantees).
    pub(super) fn check_guarantees(&self) -> Result<(), ScenarioError> {
        let mut guaranteed: BTreeMap<LinkId, f64> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for (number, &Guarantee { service, link, rate }) in self.guarantees.iter().enumerate() {
            let place = ErrorLocation::Guarantee(number);
            let Some(guaranteed_service) = self.services.get(service) else {
                let expected = format!("a service below {}", self.services.len());
                return Err(scenario_error(place, "service", service, expected));
            };
            if link.index() >= self.topology.links().len() {
                return Err(scenario_error(place, "to", link.0, "a link of the fabric"));
            }
            if !seen.insert((link, service)) {
                return Err(scenario_error(
                    place,
                    "service",
                    &guaranteed_service.name,
                    "one guarantee of a service on a link",
                ));
            }
            if rate < Topology::MIN_RATE {
                return Err(scenario_error(place, "rate", rate, format!("at least {}", Topology::MIN_RATE)));
            }
            let link_rate = self.topology.link(link).rate;
            let sum = guaranteed.entry(link).or_default();
            let previous_sum = std::mem::replace(sum, *sum + rate.get());
            if exceeds_link_rate(*sum, link_rate) {
                let mut most = format!("at most the link's {link_rate}");
                if let Some(above) = Rate::new(previous_sum).filter(|above| *above > Rate::ZERO) {
                    most += &format!(" together with the {above} guaranteed above");
                }
                return Err(scenario_error(place, "rate", rate, most));
            }
        }
        Ok(())
    }
}
