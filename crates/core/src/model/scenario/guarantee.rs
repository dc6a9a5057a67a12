//! Rates that services are guaranteed on single links.

use std::collections::{BTreeMap, BTreeSet};

use super::{Change, Place, Scenario, ScenarioError, wrong};
use crate::model::topology::{LinkId, Topology};
use crate::units::{Rate, Time};

/// What a service has on a link before anybody has more (NetShare, 3.3: "minimum and excess weights"). On a link with any, they
/// are all that is guaranteed, and the rest is divided by excess weights, or by the weight of a service without one; other
/// links are shared as without. Only a central allocator can heed them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guarantee {
    /// The service, as a position in the list.
    pub service: usize,
    /// The link, one direction of a cable.
    pub link: LinkId,
    /// How much.
    pub rate: Rate,
}

/// Rates that add up to this part more than a link carries fit on it: they were read from decimals. The allocator's own margin
/// is twice that, so that in any order of adding it takes what passed here.
const ROUNDING: f64 = 5e-13;

/// The weight of a service without any share of a link, as a part of the link's rate: below the rounding of rates.
const NO_SHARE: f64 = 1e-15;

/// Whether guarantees that add up to so much are more than a link carries.
fn beyond(guaranteed: f64, carries: Rate) -> bool {
    guaranteed > carries.get() * (1.0 + ROUNDING)
}

/// A time in which the guarantees on a link are reduced, because they add up to more than the link carries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reduction {
    /// The link.
    pub link: LinkId,
    /// The start of the reduction.
    pub from: Time,
    /// Its end.
    pub to: Time,
    /// The part of each guarantee that holds, below 1: the link's rate divided by the sum of the guarantees.
    pub factor: f64,
}

impl Scenario {
    /// The reductions of guarantees by events that lower a link's rate below the sum of its guarantees, in the order of the
    /// events. A change of the factor ends one reduction and starts the next. O((guarantees + events) x log links).
    pub fn reductions(&self) -> Vec<Reduction> {
        let mut sums: BTreeMap<LinkId, f64> = BTreeMap::new();
        for guarantee in &self.guarantees {
            *sums.entry(guarantee.link).or_default() += guarantee.rate.get();
        }
        let mut reductions: Vec<Reduction> = Vec::new();
        // The position of the reduction under way on a link.
        let mut open: BTreeMap<LinkId, usize> = BTreeMap::new();
        for event in &self.events {
            let Change::Rate(rate) = event.change else { continue };
            for link in [event.cable, event.cable.reverse()] {
                let Some(&sum) = sums.get(&link) else { continue };
                let factor = if beyond(sum, rate) { rate.get() / sum } else { 1.0 };
                let before = open.get(&link).map_or(1.0, |&at| reductions[at].factor);
                if factor == before {
                    continue;
                }
                if let Some(at) = open.remove(&link) {
                    reductions[at].to = event.at;
                }
                if factor < 1.0 {
                    open.insert(link, reductions.len());
                    reductions.push(Reduction { link, from: event.at, to: self.end, factor });
                }
            }
        }
        reductions.retain(|reduction| reduction.from < reduction.to);
        reductions
    }

    /// The weights of the queues of services at a port with the guarantees `on_link`, if its link carries `rate`: each
    /// service's guarantee, reduced by the link's factor, and its part by excess weight of the rest. The queue of a service
    /// then has at least its guarantee as its share of the link. O(services + guarantees on the link).
    pub fn guaranteed_weights(&self, on_link: &[Guarantee], rate: Rate) -> Vec<f64> {
        let carries = rate.get();
        let sum: f64 = on_link.iter().map(|guarantee| guarantee.rate.get()).sum();
        let factor = if sum > carries { carries / sum } else { 1.0 };
        let excess: Vec<f64> = self.services.iter().map(|s| s.excess.unwrap_or(s.weight)).collect();
        let all: f64 = excess.iter().sum();
        let rest = if all > 0.0 { (carries - sum).max(0.0) / all } else { 0.0 };
        // A queue has to have a weight, also if its service is entitled to nothing.
        let mut weights: Vec<f64> = excess.iter().map(|x| (x * rest).max(carries * NO_SHARE)).collect();
        for guarantee in on_link {
            weights[guarantee.service] += guarantee.rate.get() * factor;
        }
        weights
    }

    /// Checks the guarantees against the links' rates at the start. O(guarantees x log guarantees).
    pub(super) fn check_guarantees(&self) -> Result<(), ScenarioError> {
        let mut guaranteed: BTreeMap<LinkId, f64> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for (number, &Guarantee { service, link, rate }) in self.guarantees.iter().enumerate() {
            let place = Place::Guarantee(number);
            let Some(of) = self.services.get(service) else {
                let expected = format!("a service below {}", self.services.len());
                return Err(wrong(place, "service", service, expected));
            };
            if link.index() >= self.topology.links().len() {
                return Err(wrong(place, "to", link.0, "a link of the fabric"));
            }
            if !seen.insert((link, service)) {
                return Err(wrong(place, "service", &of.name, "one guarantee of a service on a link"));
            }
            if rate < Topology::MIN_RATE {
                return Err(wrong(place, "rate", rate, format!("at least {}", Topology::MIN_RATE)));
            }
            let carries = self.topology.link(link).rate;
            let sum = guaranteed.entry(link).or_default();
            let above = std::mem::replace(sum, *sum + rate.get());
            if beyond(*sum, carries) {
                let mut most = format!("at most the link's {carries}");
                if let Some(above) = Rate::new(above).filter(|above| *above > Rate::ZERO) {
                    most += &format!(" together with the {above} guaranteed above");
                }
                return Err(wrong(place, "rate", rate, most));
            }
        }
        Ok(())
    }
}
