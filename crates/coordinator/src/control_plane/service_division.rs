//! How services divide the links that flows cross: capacities, guaranteed rates and maxima.
//!
//! A maximum is a link that only one service crosses: all its flows for its maximum in sum over its hosts, and the flows from or to one
//! host for its maximum of each host. The solver then divides maxima as it divides links.
//!
//! The solver's time and memory grow with the number of links times the number of services, which [`super::DivisionSize`] bounds. Maxima
//! that one flow crosses, and those that the demands of their flows do not exceed, bound each of their flows by itself, and are not part of
//! the solver's network.

use std::collections::BTreeMap;

use weir_core::model::LinkBudget;
use weir_core::netshare::shares_with_minima;
use weir_core::solve::hierarchy::{Guarantee, HierarchicalMaxMin};
use weir_core::units::Rate;

use super::service_flow::ServiceFlow;
use super::service_weights::ServiceWeights;
use crate::service_bandwidth::ServiceBandwidth;

/// The weight of all coflows together at a link, next to services.
const COFLOW_WEIGHT: f64 = 1.0;

/// Numbers of the maxima of services, after those of the links of the network: first the maximum in sum of each service, then for each
/// service those of hosts for sending, and those for receiving.
#[derive(Debug, Clone, Copy)]
pub(super) struct MaximumLinks {
    /// Number of links of the network.
    pub first: u32,
    pub services: u32,
    pub hosts: u32,
}

impl MaximumLinks {
    /// The maxima that a flow crosses. `dst` is none if the receiver is unknown.
    pub fn links_of_flow(
        self,
        service: usize,
        src: u32,
        dst: Option<u32>,
        bandwidth: &ServiceBandwidth,
    ) -> impl Iterator<Item = u32> {
        let MaximumLinks { first, services, hosts } = self;
        let service = service as u32;
        let total = bandwidth.max.map(|_| first + service);
        let host_links = first + services + service * 2 * hosts;
        let sent = bandwidth.max_per_host.map(|_| host_links + src);
        let received = bandwidth.max_per_host.and(dst).map(|dst| host_links + hosts + dst);
        [total, sent, received].into_iter().flatten()
    }

    /// Removes the maxima that the solver need not divide from the links of flows, and bounds the flows by them.
    pub fn apply_simple_maxima(self, flows: &mut [ServiceFlow], bandwidths: &[ServiceBandwidth]) {
        let mut uses: BTreeMap<u32, MaximumUse> = BTreeMap::new();
        for flow in flows.iter() {
            for &link in flow.links.iter().filter(|&&link| link >= self.first) {
                let link_use = uses.entry(link).or_default();
                link_use.flows += 1;
                link_use.weight += u64::from(flow.weight);
                link_use.demand += flow.demand_rate();
            }
        }
        for flow in flows {
            let ServiceFlow { links, weight, max_rate, max_lower_bound, .. } = flow;
            links.retain(|&link| {
                let Some((_, rate)) = self.service_and_rate(link, bandwidths) else { return true };
                let link_use = uses[&link];
                if link_use.flows > 1 && link_use.demand > rate {
                    return true;
                }
                *max_rate = max_rate.min(rate);
                let share = rate * f64::from(*weight) / link_use.weight as f64;
                *max_lower_bound = max_lower_bound.min(share);
                false
            });
        }
    }

    /// The service of a maximum, and its rate in bytes per second; none for a link of the network.
    fn service_and_rate(self, link: u32, bandwidths: &[ServiceBandwidth]) -> Option<(usize, f64)> {
        let at = link.checked_sub(self.first)?;
        let (service, rate) = if at < self.services {
            (at as usize, bandwidths[at as usize].max)
        } else {
            let service = ((at - self.services) / (2 * self.hosts)) as usize;
            (service, bandwidths[service].max_per_host)
        };
        Some((service, rate.map_or(f64::INFINITY, Rate::get)))
    }
}

/// The flows that cross a maximum.
#[derive(Debug, Clone, Copy, Default)]
struct MaximumUse {
    flows: u32,
    weight: u64,
    /// The sum of their demands in bytes per second; infinite with an unlimited one.
    demand: f64,
}

/// The links of the network, and what coflows use of them.
pub(super) struct NetworkUse<'a> {
    /// The links and maxima that flows cross, sorted: positions in [`super::NetworkLinks::capacities`], then those of `maxima`.
    pub used_links: &'a [u32],
    /// Of all links, in bytes per second.
    pub link_rates: &'a [f64],
    /// The rates of all coflows, by link.
    pub coflow_rates: &'a [f64],
    pub budget: &'a LinkBudget,
    pub maxima: MaximumLinks,
}

/// How services divide the links that flows cross. Lists follow the order of these links.
pub(super) struct ServiceDivision<'a> {
    services: &'a ServiceWeights,
    used_links: &'a [u32],
    /// Weight of the flows by link and service. A service with at least one flow is active on the link.
    flow_weights: Vec<u64>,
    /// What each service is guaranteed by link and service, in bytes per second; 0 for a service that does not count there.
    service_rates: Vec<f64>,
    /// What services divide of each link, in bytes per second.
    capacities: Vec<f64>,
    /// Guarantees on links where they do not follow from weights.
    guarantees: Vec<Guarantee>,
}

impl<'a> ServiceDivision<'a> {
    pub fn new(
        network: &NetworkUse<'a>,
        services: &'a ServiceWeights,
        flows: &[ServiceFlow],
    ) -> ServiceDivision<'a> {
        let used_links = network.used_links;
        let cells = used_links.len() * services.weights.len();
        let mut division = ServiceDivision {
            services,
            used_links,
            flow_weights: vec![0; cells],
            service_rates: vec![0.0; cells],
            capacities: Vec::new(),
            guarantees: Vec::new(),
        };
        for flow in flows {
            for link in division.positions(flow) {
                let cell = division.cell(link, flow.service);
                division.flow_weights[cell] += u64::from(flow.weight);
            }
        }
        for (position, &link) in (0u32..).zip(used_links) {
            match network.maxima.service_and_rate(link, &services.bandwidths) {
                Some((service, rate)) => division.add_maximum(position, service, rate),
                None => division.add_link(position, network),
            }
        }
        division
    }

    /// Adds a maximum, which is all of its service's.
    fn add_maximum(&mut self, position: u32, service: usize, rate: f64) {
        self.capacities.push(rate);
        let cell = self.cell(position, service);
        self.service_rates[cell] = rate;
        // Guarantees by fractions of a link would leave it a part only.
        if self.services.counts_idle_services {
            self.guarantees.push(Guarantee { link: position, service, rate });
        }
    }

    /// Adds a link of the network.
    fn add_link(&mut self, position: u32, network: &NetworkUse<'_>) {
        let link = self.used_links[position as usize] as usize;
        let rate = Rate::new(network.link_rates[link]).unwrap_or(Rate::ZERO);
        let allocatable = network.budget.allocatable(rate).get();
        let first_cell = self.cell(position, 0);
        let weights = &self.services.weights;
        let counts = &self.flow_weights[first_cell..first_cell + weights.len()];
        let is_counted = |service: &usize| self.services.counts_idle_services || counts[*service] > 0;
        let counted: Vec<usize> = (0..weights.len()).filter(is_counted).collect();
        let mut own_weights: Vec<f64> = counted.iter().map(|&service| weights[service]).collect();
        let mut minima: Vec<f64> =
            counted.iter().map(|&service| self.services.bandwidths[service].link_min()).collect();
        let weight_sum: f64 = own_weights.iter().sum();
        let has_minima = minima.iter().any(|minimum| *minimum > 0.0);
        let services_share = if has_minima {
            own_weights.push(COFLOW_WEIGHT);
            minima.push(0.0);
            let shares = shares_with_minima(&own_weights, &minima, allocatable);
            own_weights.pop();
            minima.pop();
            allocatable - shares[counted.len()]
        } else {
            allocatable * weight_sum / (weight_sum + COFLOW_WEIGHT)
        };
        let capacity = (allocatable - network.coflow_rates[link]).max(services_share);
        self.capacities.push(capacity);
        let rates = match has_minima {
            true => shares_with_minima(&own_weights, &minima, capacity),
            false => own_weights.iter().map(|weight| capacity * weight / weight_sum).collect(),
        };
        for (&service, rate) in counted.iter().zip(rates) {
            self.service_rates[first_cell + service] = rate;
            if has_minima {
                self.guarantees.push(Guarantee { link: position, service, rate });
            }
        }
    }

    /// A solver for the links, without flows.
    pub fn solver(&self) -> HierarchicalMaxMin {
        let shares = self.services.shares.clone().with_link_guarantees(self.guarantees.clone());
        let shares = shares.expect("rates are finite and not negative, and each link and service has one");
        HierarchicalMaxMin::new(&self.capacities, shares).expect(
            "the configuration limits rates to 1e15 B/s per cable and the number of cells, and guarantees sum to the capacity",
        )
    }

    /// The positions of a flow's links in the lists.
    pub fn positions(&self, flow: &ServiceFlow) -> Vec<u32> {
        let position =
            |link| self.used_links.binary_search(link).expect("flows cross used links only") as u32;
        flow.links.iter().map(position).collect()
    }

    /// The position of a service at a link in the lists of cells.
    fn cell(&self, link: u32, service: usize) -> usize {
        link as usize * self.services.weights.len() + service
    }

    /// The part of its service's guaranteed rate that a flow has on each of its links.
    pub fn lower_bound(&self, flow: &ServiceFlow) -> f64 {
        let bounds = self.positions(flow).into_iter().map(|link| {
            let cell = self.cell(link, flow.service);
            self.service_rates[cell] * f64::from(flow.weight) / self.flow_weights[cell] as f64
        });
        bounds.fold(flow.max_lower_bound, f64::min)
    }
}
