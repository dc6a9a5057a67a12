//! NetShare's central allocator (section 3.3): computes the rate limits of observed connections and of UDP from the weights
//! of services.
//!
//! Services share links by weight, and unused bandwidth by excess weight. Agents predict the demands,
//! [`HierarchicalMaxMin`] computes the rates, and agents enforce them. The paper leaves these points open, or this
//! allocator differs from the paper:
//!
//! - *Flow.* A flow is the traffic of one application from one host to another, over any number of connections. More
//!   connections, or idle ones, do not raise its limit. A host cannot reduce the rates of other hosts by reporting more
//!   connections. UDP of one service from one address to another is one more flow. Flows of a service share equally, or by the weights of
//!   their registered connections ("some connections between important servers").
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
//! - *Minima and maxima* ("easy to generalize to minimum and excess weights"). A minimum is a guaranteed rate on each link. A maximum is
//!   one more link that only the flows of the service cross ([`super::service_division`]). Without the allocator, the same computation
//!   holds maxima only: links of the network do not count then, and services without a maximum have no limits.
//! - *Paused* connections and UDP have no part in the division, and neither have those without a path, since links have failed. Those in
//!   shadow mode have one, and their limits are shown, not ordered.
//! - *Traffic that no agent reports* is not known. A service that it holds back does not lose its share to others
//!   ([`weir_core::netshare::BottleneckDetector`]).
//!
//! Each period recomputes all limits: O(n log n) for n links on the paths of flows with a demand, of which there are at most 16,384.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use weir_core::model::{BitSet, Trunks};
use weir_core::netshare::{MEASUREMENT_PERIOD, limit_for_demand};
use weir_core::solve::hierarchy::ClassId;
use weir_core::units::Rate;
use weir_proto::{Demand, Limit, NetworkTable, ObservedConnections, OrderedRate, UdpLimit};

use super::pause::pause_of_udp;
use super::service_division::{MaximumLinks, NetworkUse, ServiceDivision};
use super::service_flow::{LimitedTraffic, MAX_FLOWS, Peer, ServiceFlow};
use super::service_weights::ServiceWeights;
use super::udp_demands::UdpDemands;
use super::{ControlPlane, Flow, NetworkLinks, PauseMode, failed_links};

/// Maximum number of flows of one host; flows beyond it have no limit.
const MAX_FLOWS_PER_HOST: usize = 1 << 10;

/// Maximum number of link groups between switches on the path of a flow. On longer paths, only the links of hosts count. Bounds the time of
/// a computation: a path has two link groups in a leaf-spine network and four in a fat tree, and hundreds in large irregular networks.
const MAX_TRUNKS_PER_FLOW: usize = 64;

/// Relative difference to the last ordered limit up to which no new limit is ordered.
const LIMIT_TOLERANCE: f64 = 0.01;

/// The other end of connections.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum FlowPeer {
    /// A host, by number.
    Host(u32),
    /// An address of no host.
    Address(IpAddr),
}

/// The connections of an application from a host to another end, which have a weight.
pub type WeightedFlow = (u32, Arc<str>, FlowPeer);

/// A weight of 1, in thousandths.
const THOUSANDTHS: u32 = 1000;

/// Maximum weight of a flow, in thousandths.
const MAX_FLOW_WEIGHT: u64 = 1_000_000_000;

/// The links that the allocator divides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// All links, among all services.
    AllLinks,
    /// Only the maxima of services. Links do not limit flows, and services without a maximum have no limits.
    Maxima,
}

/// State of the allocator.
#[derive(Debug)]
pub(super) struct Allocator {
    scope: Scope,
    /// Whether a service has had a maximum since the start.
    has_had_max: bool,
    services: Option<ServiceWeights>,
    /// Demands by host, application and address of the other host.
    demands: BTreeMap<(u32, Peer), Demand>,
    /// Number of entries in `demands` of each host.
    demands_of_host: BTreeMap<u32, usize>,
    /// Weights of flows in thousandths; flows without an entry have the weight 1.
    flow_weights: BTreeMap<WeightedFlow, u32>,
    /// Demands of UDP.
    pub udp_demands: UdpDemands,
    /// The link groups between switches that the links of hosts can fill.
    contended_trunks: BitSet,
    /// The links that flows crossed at the last computation, sorted, as positions in [`super::NetworkLinks::capacities`], then the maxima
    /// of services by [`MaximumLinks`].
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

    /// The links that flows of services crossed at the last computation, sorted, as positions in [`super::NetworkLinks::capacities`], which
    /// have this length.
    pub fn used_links(&self, link_count: usize) -> &[u32] {
        let links = self.used_links.partition_point(|&link| (link as usize) < link_count);
        &self.used_links[..links]
    }

    /// The service of packets of a class, from 1, if it is known.
    pub fn service_of_class(&self, class: u8) -> Option<u32> {
        self.services.as_ref()?.service_of_class(class)
    }

    /// Sets the weight of a flow in thousandths; none for the weight 1.
    fn set_flow_weight(&mut self, flow: WeightedFlow, thousandths: Option<u64>) {
        match thousandths {
            Some(weight) => self.flow_weights.insert(flow, weight.clamp(1, MAX_FLOW_WEIGHT) as u32),
            None => self.flow_weights.remove(&flow),
        };
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
    /// Computed limits of connections in shadow mode, which orders leave out.
    shadow: BTreeMap<Peer, u64>,
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

impl ControlPlane {
    /// Enables limits for observed connections over all links. Limits are computed after [`ControlPlane::set_services`]. `addresses` has
    /// the numbers of hosts.
    pub fn with_allocation(self, addresses: NetworkTable<u32>) -> ControlPlane {
        self.with_scope(Scope::AllLinks, addresses)
    }

    /// Enables limits for the observed connections of services with a maximum bandwidth only, which hold the maximum. `addresses` has the
    /// numbers of hosts.
    pub fn with_maxima(self, addresses: NetworkTable<u32>) -> ControlPlane {
        self.with_scope(Scope::Maxima, addresses)
    }

    fn with_scope(mut self, scope: Scope, addresses: NetworkTable<u32>) -> ControlPlane {
        self.addresses = Arc::new(addresses);
        let trunks = self.links.trunks.as_mut().filter(|_| scope == Scope::AllLinks);
        self.allocator = Some(Allocator {
            scope,
            has_had_max: false,
            services: None,
            demands: BTreeMap::new(),
            demands_of_host: BTreeMap::new(),
            flow_weights: BTreeMap::new(),
            udp_demands: UdpDemands::default(),
            contended_trunks: trunks.map_or_else(|| BitSet::empty(0), Trunks::contended_trunks),
            used_links: Vec::new(),
            next_run_at: 0.0,
        });
        self
    }

    /// The host with an address, if the control plane knows addresses.
    pub(super) fn host_number(&self, address: IpAddr) -> Option<u32> {
        self.allocator.as_ref().filter(|allocator| allocator.scope == Scope::AllLinks)?;
        self.addresses.owner_of(address)
    }

    /// Whether the control plane computes limits of services: for all, or for those with a maximum bandwidth.
    pub fn has_allocator(&self) -> bool {
        self.allocator.is_some()
    }

    /// Whether the allocator divides the links of the network among all services.
    pub(super) fn divides_links(&self) -> bool {
        self.allocator.as_ref().is_some_and(|allocator| allocator.scope == Scope::AllLinks)
    }

    /// Whether agents have to report the demands of connections. Stays true once it is.
    pub fn wants_demands(&self) -> bool {
        let wants = |allocator: &Allocator| allocator.scope == Scope::AllLinks || allocator.has_had_max;
        self.allocator.as_ref().is_some_and(wants)
    }

    /// Whether agents have to report what services with a maximum send by UDP, so that it can be limited, too.
    pub(super) fn limits_udp_of_maxima(&self) -> bool {
        let limits = |allocator: &Allocator| allocator.has_had_max && !self.addresses.is_empty();
        self.allocator.as_ref().is_some_and(limits)
    }

    /// Sets the services that share links. No effect without central allocation.
    pub fn set_services(&mut self, services: ServiceWeights) {
        if let Some(allocator) = &mut self.allocator {
            allocator.has_had_max |= services.has_max();
            allocator.services = Some(services);
        }
    }

    /// Sets the weight of a flow next to other flows of its service, in thousandths; none for the weight 1. No effect without central
    /// allocation.
    pub fn set_flow_weight(&mut self, flow: WeightedFlow, thousandths: Option<u64>) {
        if let Some(allocator) = &mut self.allocator {
            allocator.set_flow_weight(flow, thousandths);
        }
    }

    /// Limits by host, application and address of the other host, in bytes per second. Connections without an entry
    /// have no limit.
    pub fn limits(&self) -> BTreeMap<(u32, Arc<str>, IpAddr), u64> {
        self.limits_of(|limits| &limits.computed)
    }

    /// The same for connections in shadow mode: the limits that they would have.
    pub fn shadow_limits(&self) -> BTreeMap<(u32, Arc<str>, IpAddr), u64> {
        self.limits_of(|limits| &limits.shadow)
    }

    fn limits_of(
        &self,
        select: impl Fn(&Limits) -> &BTreeMap<Peer, u64>,
    ) -> BTreeMap<(u32, Arc<str>, IpAddr), u64> {
        let limits_of_host = |(number, host): (u32, &super::Host)| {
            let limit = move |((application, peer), &limit): (&Peer, &u64)| {
                ((number, Arc::clone(application), *peer), limit)
            };
            select(&host.limits).iter().map(limit).collect::<Vec<_>>()
        };
        (0..).zip(&self.hosts).flat_map(limits_of_host).collect()
    }

    /// Divides other links between switches from now on.
    pub(super) fn use_changed_trunks(&mut self) {
        let trunks = self.links.trunks.as_mut();
        if let Some(allocator) = self.allocator.as_mut().filter(|known| known.scope == Scope::AllLinks) {
            allocator.contended_trunks = trunks.map_or_else(|| BitSet::empty(0), Trunks::contended_trunks);
        }
        if let Some(allocator) = &mut self.allocator {
            allocator.used_links.clear();
        }
    }

    /// Computes all limits at the next schedule, instead of at the end of the period.
    pub(super) fn restart_allocation(&mut self) {
        if let Some(allocator) = &mut self.allocator {
            allocator.next_run_at = self.now;
        }
    }

    /// Stores the demands of a report; returns the number of demands beyond the maximum.
    pub(super) fn store_demands(&mut self, host: u32, observed: &[ObservedConnections]) -> usize {
        let Some(allocator) = &mut self.allocator else { return 0 };
        observed.iter().filter(|entry| !allocator.store_demand(host, entry)).count()
    }

    /// The scheduled rates of all flows of coflows on each link, by position in [`super::NetworkLinks::capacities`]. Infinite with a flow
    /// that is not limited. Schedules leave paused flows out, and so do the rates. O(flows).
    fn coflow_rates(&self, link_count: usize) -> Vec<f64> {
        let mut rates = vec![0.0; link_count];
        let active = self.coflows.values().filter_map(|coflow| Some((coflow.slot?, coflow)));
        let flows = active.flat_map(|(slot, coflow)| coflow.flows.iter().map(move |flow| (slot, flow)));
        let counts = |flow: &Flow| !flow.is_completed && !flow.is_left_out() && flow.has_data(self.now);
        for (slot, flow) in flows.filter(|(_, flow)| counts(flow)) {
            let ordered = flow.applied_rate(&self.hosts);
            let rate = match ordered.and(flow.shadow_rate).or(ordered) {
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
            host.limits.shadow.clear();
            host.limits.udp.clear();
        }
        self.end_udp_limits_of_pauses();
        let link_rates = self.links.capacities();
        let coflow_rates = match self.divides_links() {
            true => self.coflow_rates(link_rates.len()),
            false => Vec::new(),
        };
        let Some(allocator) = &mut self.allocator else { return };
        allocator.used_links = links;
        let Some(services) = allocator.services.as_ref().filter(|_| !flows.is_empty()) else { return };
        let links = NetworkUse {
            used_links: &allocator.used_links,
            link_rates: &link_rates,
            coflow_rates: &coflow_rates,
            budget: &self.settings.budget,
            maxima: maximum_links(&self.links, services),
        };
        let limits = compute_limits(&links, services, &flows);
        for (flow, limit) in flows.into_iter().zip(limits) {
            let is_shadowed = self.pauses.traffic_mode(flow.host, Some(flow.service as u32)).is_some();
            let host_limits = &mut self.hosts[flow.host as usize].limits;
            match flow.traffic {
                LimitedTraffic::Connections(peer) if is_shadowed => {
                    host_limits.shadow.insert(peer, limit);
                }
                LimitedTraffic::Connections(peer) => {
                    host_limits.computed.insert(peer, limit);
                    host_limits.is_recomputed = true;
                }
                LimitedTraffic::Udp(_) if is_shadowed => {}
                LimitedTraffic::Udp(flow) => host_limits.udp.push(UdpLimit { flow, rate: limit }),
            }
        }
        self.hosts.iter_mut().for_each(|host| host.limits.udp.sort_unstable_by_key(|limit| limit.flow));
    }

    /// Ends the limits of UDP that is paused or in shadow mode.
    fn end_udp_limits_of_pauses(&mut self) {
        let Some(allocator) = &self.allocator else { return };
        for (host, flow, _) in allocator.udp_demands.iter() {
            if pause_of_udp(&self.pauses, Some(allocator), host, flow).is_some() {
                self.hosts[host as usize].limits.udp.push(UdpLimit { flow, rate: UdpLimit::ENDED });
            }
        }
    }

    /// The flows of services, of present hosts, in the order of demands: first connections, then UDP.
    fn service_flows(&mut self) -> Vec<ServiceFlow> {
        let mut flows = Vec::new();
        let (limits_all_udp, pauses) = (self.udp_measurements.is_some(), &self.pauses);
        let addresses = &self.addresses;
        let Some(Allocator {
            scope,
            services: Some(services),
            demands,
            flow_weights,
            udp_demands,
            contended_trunks,
            ..
        }) = &mut self.allocator
        else {
            return flows;
        };
        udp_demands.remove_outdated(self.now);
        let maxima = maximum_links(&self.links, services);
        let mut add = |host: u32, traffic, service: usize, dst: Option<u32>, weight: u32, demand| {
            // Traffic inside a host uses no link.
            if !self.hosts[host as usize].present || dst == Some(host) {
                return;
            }
            if failed_links::is_cut_off(&self.links, &self.cut_off_hosts, host, dst) {
                return;
            }
            // Others get what paused traffic would get.
            if pauses.traffic_mode(host, Some(service as u32)) == Some(PauseMode::Paused) {
                return;
            }
            let mut links = match scope {
                Scope::AllLinks => path(&mut self.links, host, dst, contended_trunks),
                Scope::Maxima => Vec::new(),
            };
            links.extend(maxima.links_of_flow(service, host, dst, &services.bandwidths[service]));
            if !links.is_empty() {
                let (max_rate, max_lower_bound) = (f64::INFINITY, f64::INFINITY);
                let flow =
                    ServiceFlow { host, traffic, service, links, weight, demand, max_rate, max_lower_bound };
                flows.push(flow);
            }
        };
        for ((host, peer), &demand) in demands.iter() {
            let Some(&service) = services.service_of_application.get(&peer.0) else { continue };
            let traffic = LimitedTraffic::Connections(peer.clone());
            let dst = addresses.owner_of(peer.1);
            let weight = match flow_weights.is_empty() {
                true => THOUSANDTHS,
                false => {
                    let other = dst.map_or(FlowPeer::Address(peer.1), FlowPeer::Host);
                    flow_weights.get(&(*host, Arc::clone(&peer.0), other)).copied().unwrap_or(THOUSANDTHS)
                }
            };
            add(*host, traffic, service as usize, dst, weight, demand);
        }
        for (host, flow, rate) in udp_demands.iter() {
            let dst = addresses.owner_of(flow.dst);
            let Some(service) = services.service_of_class(flow.mark.get()) else { continue };
            if limits_all_udp || services.bandwidths[service as usize].has_max() {
                add(host, LimitedTraffic::Udp(flow), service as usize, dst, THOUSANDTHS, Demand::Rate(rate));
            }
        }
        // A flow of weight n counts as n flows, so whole weights give the same rates as flows without weights.
        if flows.iter().all(|flow| flow.weight.is_multiple_of(THOUSANDTHS)) {
            flows.iter_mut().for_each(|flow| flow.weight /= THOUSANDTHS);
        }
        maxima.apply_simple_maxima(&mut flows, &services.bandwidths);
        flows
    }
}

/// Numbers of the maxima of services.
fn maximum_links(links: &NetworkLinks, services: &ServiceWeights) -> MaximumLinks {
    let trunks = links.trunks.as_ref().map_or(0, |trunks| trunks.capacities().len());
    let first = (2 * links.hosts.len() + trunks) as u32;
    MaximumLinks { first, services: services.weights.len() as u32, hosts: links.hosts.len() as u32 }
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

/// Limits of the flows, in bytes per second.
fn compute_limits(network: &NetworkUse<'_>, services: &ServiceWeights, flows: &[ServiceFlow]) -> Vec<u64> {
    let division = ServiceDivision::new(network, services, flows);
    let mut hierarchy = division.solver();
    let mut add_class = |flow: &ServiceFlow| {
        let links = division.positions(flow);
        if links.is_empty() {
            return None;
        }
        // A flow of weight n gets the rate of n flows.
        let demand = flow.demand_rate().min(flow.max_rate) / f64::from(flow.weight);
        let added = hierarchy.add_class(flow.service, &links, flow.weight, demand);
        let expected =
            "a path has each link once, services are numbered from 0, and a demand is not negative";
        Some(added.expect(expected))
    };
    let classes: Vec<_> = flows.iter().map(&mut add_class).collect();
    hierarchy.solve();
    let to_limit = |(flow, class): (&ServiceFlow, Option<ClassId>)| {
        let unshared_rate = flow.demand_rate().min(flow.max_rate);
        let rate = class.map_or(unshared_rate, |class| hierarchy.rate(class) * f64::from(flow.weight));
        let limit = if let Demand::Rate(demand) = flow.demand {
            let [rate, demand] = [rate, demand as f64].map(|rate| Rate::new(rate).unwrap_or(Rate::ZERO));
            limit_for_demand(rate, demand).get().max(division.lower_bound(flow))
        } else {
            rate
        };
        let link_rate = network.link_rates[flow.host as usize];
        limit.min(flow.max_rate).clamp(1.0, link_rate.max(1.0)) as u64
    };
    flows.iter().zip(classes).map(to_limit).collect()
}
