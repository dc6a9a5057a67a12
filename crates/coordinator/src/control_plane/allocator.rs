//! NetShare's central allocator (section 3.3): computes the rate limits of observed connections and of UDP from the weights
//! of services.
//!
//! Services share links by weight, and unused bandwidth by excess weight. Agents predict the demands,
//! [`HierarchicalMaxMin`] computes the rates, and agents enforce them. The paper leaves these points open, or this
//! allocator differs from the paper:
//!
//! - *Flow.* A flow is the traffic of one application from one host to another, over any number of connections. More
//!   connections, or idle ones, do not raise its limit. A host cannot reduce the rates of other hosts by reporting more
//!   connections. UDP of one service from one address to another is one more flow.
//! - *Headroom.* "Each flow must be allocated say 10% higher than its optimal centralized allocation to allow it to
//!   grow". A flow that is allocated its demand gets that headroom, and at least its part of the weighted share of its
//!   service (the lower bound). A flow that demands more gets no headroom: with 10% more for all of them, queues would
//!   decide the rates, as `docs/results/netshare.md` shows for Fig. 5.
//! - *Links* are those of hosts and, with a topology, those between switches. The hash by which switches select paths (ECMP) is unknown,
//!   so a flow crosses each group of links that its connections can take, as flows of coflows do
//!   ([`weir_core::model::Trunks::even_split`]). The capacity of a group is the sum of its links if flows can take all of them evenly. If
//!   many connections hash to one link of a group, queues at that link decide. A group that the links of hosts cannot fill limits
//!   nothing, and does not count. Without a topology, the rates of links between switches are unknown. TCP then adapts to congestion
//!   there, and its demand stays.
//! - *Coflows* have their rates from the policy. On each link these come off what services divide, up to the share of one more service of
//!   weight 1, which packets without a class have, too (`docs/link-capacity.md`).
//! - *Traffic that no agent reports* is not known. A service that it holds back does not lose its share to others
//!   ([`weir_core::netshare::BottleneckDetector`]).
//!
//! Each period recomputes all limits: O(n log n) for n links on the paths of flows with a demand, of which there are at most 16,384.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use weir_core::model::{BitSet, LinkBudget, Trunks};
use weir_core::netshare::{MEASUREMENT_PERIOD, limit_for_demand};
use weir_core::solve::hierarchy::{HierarchicalMaxMin, HierarchyError, ServiceShares};
use weir_core::units::Rate;
use weir_proto::{Demand, Limit, ObservedConnections, OrderedRate, UdpFlow, UdpLimit};

use super::udp_demands::UdpDemands;
use super::{ControlPlane, NetworkLinks};

/// Maximum number of flows in total, of connections and of UDP each; flows beyond it have no limit. Schedules and leases wait for the
/// computation, so it may take a few intervals at most.
pub(super) const MAX_FLOWS: usize = 1 << 14;

/// Maximum number of flows of one host; flows beyond it have no limit.
const MAX_FLOWS_PER_HOST: usize = 1 << 10;

/// Maximum number of link groups between switches on the path of a flow. On longer paths, only the links of hosts count. Bounds the time of
/// a computation: a path has two link groups in a leaf-spine network and four in a fat tree, and hundreds in large irregular networks.
const MAX_TRUNKS_PER_FLOW: usize = 64;

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
    /// Demands of UDP.
    pub udp_demands: UdpDemands,
    /// The link groups between switches that the links of hosts can fill.
    contended_trunks: BitSet,
    /// The links that flows crossed at the last computation, sorted, as positions in [`super::NetworkLinks::capacities`].
    used_links: Vec<u32>,
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

    /// The host with an address.
    pub fn host_of(&self, address: IpAddr) -> Option<u32> {
        self.addresses.get(&address.to_canonical()).copied()
    }

    /// The links that flows of services crossed at the last computation, as positions in [`super::NetworkLinks::capacities`].
    pub fn used_links(&self) -> &[u32] {
        &self.used_links
    }

    /// Removes all demands of a host.
    pub fn remove_host(&mut self, host: u32) {
        if self.demands_of_host.remove(&host).is_some_and(|count| count > 0) {
            self.demands.retain(|(known, _), _| *known != host);
        }
        self.udp_demands.remove_host(host);
    }
}

/// Limits of a host in bytes per second: the computed limits, and those of the last orders.
#[derive(Debug, Default)]
pub(super) struct Limits {
    computed: BTreeMap<Peer, u64>,
    ordered: BTreeMap<Peer, u64>,
    /// Whether limits were computed since the last order.
    is_recomputed: bool,
    /// Limits of UDP for the next order, sorted.
    udp: Vec<UdpLimit>,
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

    /// Limits of UDP for the next order, sorted. Drops them if the host gets no order.
    pub fn take_udp_limits(&mut self, receives_orders: bool) -> Vec<UdpLimit> {
        let limits = std::mem::take(&mut self.udp);
        if receives_orders { limits } else { Vec::new() }
    }
}

/// What a limit applies to.
enum LimitedTraffic {
    /// All connections of an application with another host.
    Connections(Peer),
    Udp(UdpFlow),
}

/// Traffic of a service from one host to another.
struct ServiceFlow {
    host: u32,
    traffic: LimitedTraffic,
    service: usize,
    /// Positions in [`super::NetworkLinks::capacities`], each once.
    links: Vec<u32>,
    demand: Demand,
}

impl ControlPlane {
    /// Enables limits for observed connections. Limits are computed after [`ControlPlane::set_services`]. `addresses` maps
    /// addresses to host numbers.
    pub fn with_allocation(mut self, addresses: BTreeMap<IpAddr, u32>) -> ControlPlane {
        let trunks = self.links.trunks.as_mut();
        self.allocator = Some(Allocator {
            addresses,
            services: None,
            demands: BTreeMap::new(),
            demands_of_host: BTreeMap::new(),
            udp_demands: UdpDemands::default(),
            contended_trunks: trunks.map_or_else(|| BitSet::empty(0), Trunks::contended_trunks),
            used_links: Vec::new(),
            next_run_at: 0.0,
        });
        self
    }

    /// The host with an address, if the control plane knows addresses.
    pub(super) fn host_number(&self, address: IpAddr) -> Option<u32> {
        self.allocator.as_ref()?.host_of(address)
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

    /// The ordered rates of all flows of coflows on each link, by position in [`super::NetworkLinks::capacities`]. Infinite with a flow
    /// that is not limited. O(flows).
    fn coflow_rates(&self, link_count: usize) -> Vec<f64> {
        let mut rates = vec![0.0; link_count];
        let active = self.coflows.values().filter_map(|coflow| Some((coflow.slot?, coflow)));
        let flows = active.flat_map(|(slot, coflow)| coflow.flows.iter().map(move |flow| (slot, flow)));
        for (slot, flow) in flows.filter(|(_, flow)| !flow.is_completed && flow.has_data(self.now)) {
            let rate = match flow.applied_rate(&self.hosts) {
                Some(OrderedRate::Rate(rate) | OrderedRate::Reserve(rate)) => rate as f64,
                Some(OrderedRate::Unlimited) => f64::INFINITY,
                Some(OrderedRate::Paused | OrderedRate::Removed) | None => continue,
            };
            self.flow_links(slot, flow).for_each(|link| rates[link] += rate);
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
        if allocator.services.is_none() {
            return;
        }
        let flows = self.service_flows();
        let links = sorted_links(&flows);
        for host in &mut self.hosts {
            host.limits.is_recomputed = !host.limits.computed.is_empty();
            host.limits.computed.clear();
            host.limits.udp.clear();
        }
        let link_rates = self.links.capacities();
        let coflow_rates = self.coflow_rates(link_rates.len());
        let Some(allocator) = &mut self.allocator else { return };
        allocator.used_links = links;
        let Some(services) = allocator.services.as_ref().filter(|_| !flows.is_empty()) else { return };
        let links = NetworkUse {
            used_links: &allocator.used_links,
            link_rates: &link_rates,
            coflow_rates: &coflow_rates,
            budget: &self.settings.budget,
        };
        let limits = compute_limits(&links, services, &flows);
        for (flow, limit) in flows.into_iter().zip(limits) {
            let host_limits = &mut self.hosts[flow.host as usize].limits;
            match flow.traffic {
                LimitedTraffic::Connections(peer) => {
                    host_limits.computed.insert(peer, limit);
                    host_limits.is_recomputed = true;
                }
                LimitedTraffic::Udp(flow) => host_limits.udp.push(UdpLimit { flow, rate: limit }),
            }
        }
    }

    /// The flows of services, of present hosts, in the order of demands: first connections, then UDP.
    fn service_flows(&mut self) -> Vec<ServiceFlow> {
        let mut flows = Vec::new();
        let Some(Allocator {
            addresses,
            services: Some(services),
            demands,
            udp_demands,
            contended_trunks,
            ..
        }) = &mut self.allocator
        else {
            return flows;
        };
        udp_demands.remove_outdated(self.now);
        let mut add = |host: u32, traffic, service: usize, dst: Option<u32>, demand| {
            // Traffic inside a host uses no link.
            if self.hosts[host as usize].present && dst != Some(host) {
                let links = path(&mut self.links, host, dst, contended_trunks);
                flows.push(ServiceFlow { host, traffic, service, links, demand });
            }
        };
        for ((host, peer), &demand) in demands.iter() {
            let Some(&service) = services.service_of_application.get(&peer.0) else { continue };
            let traffic = LimitedTraffic::Connections(peer.clone());
            add(*host, traffic, service as usize, addresses.get(&peer.1).copied(), demand);
        }
        for (host, flow, rate) in udp_demands.iter() {
            // Classes count from 1 in the order of services.
            let service = usize::from(flow.mark.get()) - 1;
            let dst = addresses.get(&IpAddr::V4(flow.dst)).copied();
            if service < services.weights.len() {
                add(host, LimitedTraffic::Udp(flow), service, dst, Demand::Rate(rate));
            }
        }
        flows
    }
}

/// The links from one host to another, as positions in [`NetworkLinks::capacities`]. `dst` is none if the address of the other host is
/// unknown.
fn path(links: &mut NetworkLinks, src: u32, dst: Option<u32>, contended_trunks: &BitSet) -> Vec<u32> {
    let host_count = links.hosts.len() as u32;
    let mut path = vec![src];
    let Some(dst) = dst else { return path };
    path.push(host_count + dst);
    let mut crossed = Vec::new();
    if let Some(trunks) = &mut links.trunks {
        // Paths of an even split depend on the hosts only.
        trunks.compute_path(src, dst, 0, 0, &mut crossed);
    }
    crossed.retain(|&trunk| contended_trunks.contains(trunk as usize));
    if crossed.len() <= MAX_TRUNKS_PER_FLOW {
        path.extend(crossed.iter().map(|trunk| 2 * host_count + trunk));
    }
    path
}

/// The links that the flows cross.
fn sorted_links(flows: &[ServiceFlow]) -> Vec<u32> {
    let mut links: Vec<u32> = flows.iter().flat_map(|flow| &flow.links).copied().collect();
    links.sort_unstable();
    links.dedup();
    links
}

/// The links of the network, and what coflows use of them.
struct NetworkUse<'a> {
    /// The links that flows cross, sorted, as positions in [`super::NetworkLinks::capacities`].
    used_links: &'a [u32],
    /// Of all links, in bytes per second.
    link_rates: &'a [f64],
    /// The rates of all coflows, by link.
    coflow_rates: &'a [f64],
    budget: &'a LinkBudget,
}

/// How services divide the links that flows cross. Lists follow the order of these links.
struct ServiceDivision<'a> {
    services: &'a ServiceWeights,
    used_links: &'a [u32],
    /// Number of flows by link and service. A service with at least one flow is active on the link.
    flow_counts: Vec<u32>,
    /// The sum of the weights that divide each link.
    weight_sums: Vec<f64>,
    /// What services divide of each link, in bytes per second.
    capacities: Vec<f64>,
}

impl<'a> ServiceDivision<'a> {
    fn new(
        network: &NetworkUse<'a>,
        services: &'a ServiceWeights,
        flows: &[ServiceFlow],
    ) -> ServiceDivision<'a> {
        let used_links = network.used_links;
        let flow_counts = vec![0; used_links.len() * services.weights.len()];
        let (weight_sums, capacities) = (Vec::new(), Vec::new());
        let mut division = ServiceDivision { services, used_links, flow_counts, weight_sums, capacities };
        for flow in flows {
            for link in division.positions(flow) {
                let cell = division.cell(link, flow.service);
                division.flow_counts[cell] += 1;
            }
        }
        for (position, &link) in (0u32..).zip(used_links) {
            let weight_sum = division.weight_sum(position);
            let rate = Rate::new(network.link_rates[link as usize]).unwrap_or(Rate::ZERO);
            let capacity = network.budget.allocatable(rate).get();
            let services_share = capacity * weight_sum / (weight_sum + COFLOW_WEIGHT);
            let capacity = (capacity - network.coflow_rates[link as usize]).max(services_share);
            division.weight_sums.push(weight_sum);
            division.capacities.push(capacity);
        }
        division
    }

    /// The positions of a flow's links in the lists.
    fn positions(&self, flow: &ServiceFlow) -> Vec<u32> {
        let position =
            |link| self.used_links.binary_search(link).expect("flows cross used links only") as u32;
        flow.links.iter().map(position).collect()
    }

    /// The position of a service at a link in `flow_counts`.
    fn cell(&self, link: u32, service: usize) -> usize {
        link as usize * self.services.weights.len() + service
    }

    /// The sum of the weights of the services that count at a link.
    fn weight_sum(&self, link: u32) -> f64 {
        let counts = &self.flow_counts[self.cell(link, 0)..];
        let is_counted = |count: u32| self.services.counts_idle_services || count > 0;
        let weights = self.services.weights.iter().zip(counts);
        weights.filter(|(_, count)| is_counted(**count)).map(|(weight, _)| weight).sum()
    }

    /// The part of its service's weighted share that a flow has on each of its links.
    fn lower_bound(&self, flow: &ServiceFlow) -> f64 {
        let bounds = self.positions(flow).into_iter().map(|link| {
            let (at, count) = (link as usize, self.flow_counts[self.cell(link, flow.service)]);
            let service_rate =
                self.capacities[at] * self.services.weights[flow.service] / self.weight_sums[at];
            service_rate / f64::from(count)
        });
        bounds.fold(f64::INFINITY, f64::min)
    }
}

/// Limits of the flows, in bytes per second.
fn compute_limits(network: &NetworkUse<'_>, services: &ServiceWeights, flows: &[ServiceFlow]) -> Vec<u64> {
    let division = ServiceDivision::new(network, services, flows);
    let mut hierarchy = HierarchicalMaxMin::new(&division.capacities, services.shares.clone())
        .expect("the configuration limits rates to 1e15 B/s per cable, and no rate is guaranteed on a link");
    let mut add_class = |flow: &ServiceFlow| {
        let demand = match flow.demand {
            Demand::Rate(rate) => rate as f64,
            Demand::Unlimited | Demand::Unknown => f64::INFINITY,
        };
        let added = hierarchy.add_class(flow.service, &division.positions(flow), 1, demand);
        added.expect("a path has each link once, services are numbered from 0, and a demand is not negative")
    };
    let classes: Vec<_> = flows.iter().map(&mut add_class).collect();
    hierarchy.solve();
    let to_limit = |(flow, class): (&ServiceFlow, _)| {
        let rate = hierarchy.rate(class);
        let limit = if let Demand::Rate(demand) = flow.demand {
            let [rate, demand] = [rate, demand as f64].map(|rate| Rate::new(rate).unwrap_or(Rate::ZERO));
            limit_for_demand(rate, demand).get().max(division.lower_bound(flow))
        } else {
            rate
        };
        let link_rate = network.link_rates[flow.host as usize];
        limit.clamp(1.0, link_rate.max(1.0)) as u64
    };
    flows.iter().zip(classes).map(to_limit).collect()
}
