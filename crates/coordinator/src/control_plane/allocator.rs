//! NetShare's central allocator (section 3.3): computes the rate limits of observed connections from the weights of
//! services.
//!
//! Services share the links of hosts by weight, and unused bandwidth by excess weight. Agents predict the demands,
//! [`HierarchicalMaxMin`] computes the rates, and agents enforce them. The paper leaves these points open, or this
//! allocator differs from the paper:
//!
//! - *Flow.* A flow is the traffic of one application from one host to another, over any number of connections. More
//!   connections, or idle ones, do not raise its limit. A host cannot reduce the rates of other hosts by reporting more
//!   connections.
//! - *Headroom.* "Each flow must be allocated say 10% higher than its optimal centralized allocation to allow it to
//!   grow". A flow that is allocated its demand gets that headroom, and at least its part of the weighted share of its
//!   service (the lower bound). A flow that demands more gets no headroom: with 10% more for all of them, queues would
//!   decide the rates, as `docs/results/netshare.md` shows for Fig. 5.
//! - *Links.* Only the links of hosts count. TCP adapts to congestion between switches, and the demand
//!   then falls.
//! - *Coflows* have their rates from the policy. On each link these come off what services divide, up to the share of one more service of
//!   weight 1, which packets without a class have, too (`docs/link-capacity.md`).
//! - *Traffic that no agent reports* is not known. A service that it holds back does not lose its share to others
//!   ([`weir_core::netshare::BottleneckDetector`]).
//!
//! Each period recomputes all limits: O(n log n) for n flows with a demand, at most 16,384.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use weir_core::model::LinkBudget;
use weir_core::netshare::{MEASUREMENT_PERIOD, limit_for_demand};
use weir_core::solve::hierarchy::{HierarchicalMaxMin, HierarchyError, ServiceShares};
use weir_core::units::Rate;
use weir_proto::{Demand, Limit, ObservedConnections, OrderedRate};

use super::{ControlPlane, Link};

/// Maximum number of flows in total; flows beyond it have no limit. Schedules and leases wait for the computation, so it
/// may take a few intervals at most.
const MAX_FLOWS: usize = 1 << 14;

/// Maximum number of flows of one host; flows beyond it have no limit.
const MAX_FLOWS_PER_HOST: usize = 1 << 10;

/// Relative difference to the last ordered limit up to which no new limit is ordered.
const LIMIT_TOLERANCE: f64 = 0.01;

/// An application, and the address of the other host.
type Peer = (Arc<str>, IpAddr);

/// The weight of all coflows together at a link, next to services.
const COFLOW_WEIGHT: f64 = 1.0;

/// Weights of services, and the service of each application.
#[derive(Debug, Clone)]
pub struct ServiceWeights {
    shares: ServiceShares,
    weights: Vec<f64>,
    /// Whether the lower bound uses the weights of all services (`true`), or of the services with flows on the link.
    counts_idle_services: bool,
    service_of_application: BTreeMap<Arc<str>, u32>,
}

impl ServiceWeights {
    /// Weights by service number. `excess` are the weights for unused bandwidth, if they differ. `service_of_application`
    /// maps ids of applications to service numbers.
    ///
    /// # Errors
    /// [`HierarchyError`]: a weight is out of range.
    pub fn new(
        weights: Vec<f64>,
        excess: Option<&[f64]>,
        service_of_application: BTreeMap<Arc<str>, u32>,
    ) -> Result<ServiceWeights, HierarchyError> {
        let shares = match excess {
            Some(excess) => ServiceShares::with_excess(&weights, excess)?,
            None => ServiceShares::weighted(&weights)?,
        };
        Ok(ServiceWeights { shares, weights, counts_idle_services: excess.is_some(), service_of_application })
    }
}

/// State of the allocator.
#[derive(Debug)]
pub(super) struct Allocator {
    /// Addresses of hosts, with the host's number.
    addresses: BTreeMap<IpAddr, u32>,
    services: Option<ServiceWeights>,
    /// Demands by host, application and address of the other host.
    demands: BTreeMap<(u32, Peer), Demand>,
    /// Number of entries in `demands` of each host.
    demands_of_host: BTreeMap<u32, usize>,
    /// Time of the next computation, in seconds.
    next_run_at: f64,
}

impl Allocator {
    /// Stores a demand. Returns `false` if a maximum number of flows is reached.
    fn store_demand(&mut self, host: u32, observed: &ObservedConnections) -> bool {
        let key = (host, (Arc::clone(&observed.application), observed.peer.to_canonical()));
        if observed.open_connections == 0 || observed.demand == Demand::Unknown {
            if self.demands.remove(&key).is_some() {
                *self.demands_of_host.entry(host).or_default() -= 1;
            }
            return true;
        }
        let count = self.demands_of_host.entry(host).or_default();
        if !self.demands.contains_key(&key) {
            if *count == MAX_FLOWS_PER_HOST || self.demands.len() == MAX_FLOWS {
                return false;
            }
            *count += 1;
        }
        self.demands.insert(key, observed.demand);
        true
    }

    /// Removes all demands of a host.
    pub fn remove_host(&mut self, host: u32) {
        if self.demands_of_host.remove(&host).is_some_and(|count| count > 0) {
            self.demands.retain(|(known, _), _| *known != host);
        }
    }
}

/// Limits of a host in bytes per second: the computed limits, and those of the last orders.
#[derive(Debug, Default)]
pub(super) struct Limits {
    computed: BTreeMap<Peer, u64>,
    ordered: BTreeMap<Peer, u64>,
    /// Whether limits were computed since the last order.
    is_recomputed: bool,
}

impl Limits {
    /// Limits for the next order, sorted: all of them, or the changed ones.
    pub fn take_changes(&mut self, is_full: bool) -> Vec<Limit> {
        if is_full {
            self.ordered.clear();
        } else if !self.is_recomputed {
            return Vec::new();
        }
        self.is_recomputed = false;
        let removed = self.ordered.extract_if(.., |peer, _| !self.computed.contains_key(peer));
        let mut changes: Vec<(Peer, OrderedRate)> =
            removed.map(|(peer, _)| (peer, OrderedRate::Unlimited)).collect();
        for (peer, &limit) in &self.computed {
            let is_same = |last: &u64| last.abs_diff(limit) as f64 <= LIMIT_TOLERANCE * *last as f64;
            if !self.ordered.get(peer).is_some_and(is_same) {
                self.ordered.insert(peer.clone(), limit);
                changes.push((peer.clone(), OrderedRate::Rate(limit)));
            }
        }
        changes.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let limit = |((application, peer), rate)| Limit { application, peer, rate };
        changes.into_iter().map(limit).collect()
    }
}

/// Traffic of an application from one host to another.
struct ApplicationFlow {
    host: u32,
    service: usize,
    /// Port sides of hosts: 2 x host for sending, 2 x host + 1 for receiving.
    links: Vec<u32>,
    demand: Demand,
}

impl ControlPlane {
    /// Enables limits for observed connections. Limits are computed after [`ControlPlane::set_services`]. `addresses` maps
    /// addresses to host numbers.
    pub fn with_allocation(mut self, addresses: BTreeMap<IpAddr, u32>) -> ControlPlane {
        self.allocator = Some(Allocator {
            addresses,
            services: None,
            demands: BTreeMap::new(),
            demands_of_host: BTreeMap::new(),
            next_run_at: 0.0,
        });
        self
    }

    /// The host with an address, if the control plane knows addresses.
    pub(super) fn host_number(&self, address: IpAddr) -> Option<u32> {
        self.allocator.as_ref()?.addresses.get(&address.to_canonical()).copied()
    }

    /// Whether agents have to report the demands of connections.
    pub fn has_allocator(&self) -> bool {
        self.allocator.is_some()
    }

    /// Sets the services that share links. No effect without central allocation.
    pub fn set_services(&mut self, services: ServiceWeights) {
        if let Some(allocator) = &mut self.allocator {
            allocator.services = Some(services);
        }
    }

    /// Limits by host, application and address of the other host, in bytes per second. Connections without an entry
    /// have no limit.
    pub fn limits(&self) -> BTreeMap<(u32, Arc<str>, IpAddr), u64> {
        let limits_of_host = |(number, host): (u32, &super::Host)| {
            let limit = move |((application, peer), &limit): (&Peer, &u64)| {
                ((number, Arc::clone(application), *peer), limit)
            };
            host.limits.computed.iter().map(limit).collect::<Vec<_>>()
        };
        (0..).zip(&self.hosts).flat_map(limits_of_host).collect()
    }

    /// Stores the demands of a report; returns the number of demands beyond the maximum.
    pub(super) fn store_demands(&mut self, host: u32, observed: &[ObservedConnections]) -> usize {
        let Some(allocator) = &mut self.allocator else { return 0 };
        observed.iter().filter(|entry| !allocator.store_demand(host, entry)).count()
    }

    /// The ordered rates of all flows of coflows on each link of hosts: 2 x host for sending, 2 x host + 1 for receiving. Infinite with
    /// a flow that is not limited. O(flows).
    fn coflow_rates(&self) -> Vec<f64> {
        let mut rates = vec![0.0; 2 * self.links.hosts.len()];
        let active = self.coflows.values().filter(|coflow| coflow.slot.is_some());
        let flows = active.flat_map(|coflow| &coflow.flows);
        for flow in flows.filter(|flow| !flow.is_completed && flow.has_data(self.now)) {
            let rate = match flow.applied_rate(&self.hosts) {
                Some(OrderedRate::Rate(rate) | OrderedRate::Reserve(rate)) => rate as f64,
                Some(OrderedRate::Unlimited) => f64::INFINITY,
                Some(OrderedRate::Paused | OrderedRate::Removed) | None => continue,
            };
            rates[2 * flow.transfer.src as usize] += rate;
            rates[2 * flow.transfer.dst as usize + 1] += rate;
        }
        rates
    }

    /// Computes all limits if the period has passed. Ignores demands of absent hosts.
    pub(super) fn allocate(&mut self) {
        let Some(allocator) = self.allocator.as_mut().filter(|allocator| self.now >= allocator.next_run_at)
        else {
            return;
        };
        allocator.next_run_at = self.now + MEASUREMENT_PERIOD.get();
        let coflow_rates = self.coflow_rates();
        let Some(allocator) = &self.allocator else { return };
        let Some(services) = &allocator.services else { return };
        let to_flow = |((host, peer), &demand): (&(u32, Peer), &Demand)| {
            let service = *services.service_of_application.get(&peer.0)? as usize;
            let dst = allocator.addresses.get(&peer.1).copied();
            // Traffic inside a host uses no link.
            if !self.hosts[*host as usize].present || dst == Some(*host) {
                return None;
            }
            let links = [Some(2 * host), dst.map(|to| 2 * to + 1)].into_iter().flatten().collect();
            Some((peer.clone(), ApplicationFlow { host: *host, service, links, demand }))
        };
        let (peers, flows): (Vec<Peer>, Vec<ApplicationFlow>) =
            allocator.demands.iter().filter_map(to_flow).unzip();
        for host in &mut self.hosts {
            host.limits.is_recomputed = !host.limits.computed.is_empty();
            host.limits.computed.clear();
        }
        if flows.is_empty() {
            return;
        }
        let limits =
            compute_limits(&self.links.hosts, &self.settings.budget, services, &flows, &coflow_rates);
        for ((peer, flow), limit) in peers.into_iter().zip(&flows).zip(limits) {
            let host_limits = &mut self.hosts[flow.host as usize].limits;
            host_limits.computed.insert(peer, limit);
            host_limits.is_recomputed = true;
        }
    }
}

/// Limits of the flows, in bytes per second. `coflow_rates` are those of all coflows on each link.
fn compute_limits(
    links: &[Link],
    budget: &LinkBudget,
    services: &ServiceWeights,
    flows: &[ApplicationFlow],
    coflow_rates: &[f64],
) -> Vec<u64> {
    // The number of flows of each service on each link. A service with at least one flow is active on the link.
    let service_count = services.weights.len();
    let mut flow_counts = vec![0u32; 2 * links.len() * service_count];
    for flow in flows {
        for &link in &flow.links {
            flow_counts[link as usize * service_count + flow.service] += 1;
        }
    }
    let active_weight_sum = |link: usize| -> f64 {
        let is_counted = |&service: &usize| {
            services.counts_idle_services || flow_counts[link * service_count + service] > 0
        };
        (0..service_count).filter(is_counted).map(|service| services.weights[service]).sum()
    };
    let weight_sums: Vec<f64> = (0..2 * links.len()).map(active_weight_sum).collect();
    let to_capacity = |(link, rate): (usize, Rate)| {
        let capacity = budget.allocatable(rate).get();
        let share_of_services = weight_sums[link] / (weight_sums[link] + COFLOW_WEIGHT);
        (capacity - coflow_rates[link]).max(capacity * share_of_services)
    };
    let rates = links.iter().flat_map(|link| [link.send, link.recv]);
    let capacities: Vec<f64> = rates.enumerate().map(to_capacity).collect();
    let mut hierarchy = HierarchicalMaxMin::new(&capacities, services.shares.clone())
        .expect("the configuration limits rates to 1e15 B/s per cable, and no rate is guaranteed on a link");
    let mut add_class = |flow: &ApplicationFlow| {
        let demand = match flow.demand {
            Demand::Rate(rate) => rate as f64,
            Demand::Unlimited | Demand::Unknown => f64::INFINITY,
        };
        let added = hierarchy.add_class(flow.service, &flow.links, 1, demand);
        added.expect("hosts and services are numbered from 0, and a demand is not negative")
    };
    let classes: Vec<_> = flows.iter().map(&mut add_class).collect();
    hierarchy.solve();
    let to_limit = |(flow, class): (&ApplicationFlow, _)| {
        let rate = hierarchy.rate(class);
        let limit = if let Demand::Rate(demand) = flow.demand {
            let lower_bounds = flow.links.iter().map(|&link| {
                let link = link as usize;
                let service_rate = capacities[link] * services.weights[flow.service] / weight_sums[link];
                service_rate / f64::from(flow_counts[link * service_count + flow.service])
            });
            let lower_bound = lower_bounds.fold(f64::INFINITY, f64::min);
            let [rate, demand] = [rate, demand as f64].map(|rate| Rate::new(rate).unwrap_or(Rate::ZERO));
            limit_for_demand(rate, demand).get().max(lower_bound)
        } else {
            rate
        };
        let link_rate = links[flow.host as usize].send.get();
        limit.clamp(1.0, link_rate.max(1.0)) as u64
    };
    flows.iter().zip(classes).map(to_limit).collect()
}
