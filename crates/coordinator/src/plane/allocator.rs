//! NetShare's central allocator (section 3.3) for observed connections: computes the rate limits of connections from
//! services' weights.
//!
//! Services share the links of hosts by weight, and unused bandwidth by excess weight; agents enforce the result.
//! [`Hierarchy`] computes the division; agents predict the demands. The paper leaves these points open, or this
//! allocator differs from it:
//!
//! - *Flow.* A flow is the traffic of one application from one host to another, over any number of connections. More
//!   connections, or idle ones, do not raise its limit, and the number of connections that a host reports has no effect
//!   on other hosts.
//! - *Headroom.* "Each flow must be allocated say 10% higher than its optimal centralized allocation to allow it to
//!   grow". A flow whose demand is below its rate gets that headroom, and at least its part of the weighted share of
//!   its service (the lower bound). A flow with unlimited demand gets no headroom: with a tenth more for all of them,
//!   queues would decide the rates, as `docs/results/netshare.md` shows for Fig. 5.
//! - *Links.* Only the links of hosts count, as for coflows. TCP adapts to congestion between switches, and the demand
//!   then falls.
//! - *Coflows* have their rates from the policy, and the allocator ignores them. On links with both, TCP divides the
//!   bandwidth.
//!
//! If any flow has a demand, each period recomputes all limits: O(n log n) for n flows, whose number is bounded.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use weir_core::netshare::{PERIOD, enforced};
use weir_core::solve::hierarchy::{Hierarchy, HierarchyError, Shares};
use weir_core::units::Rate;
use weir_proto::{Demand, Found, Limit, Pace};

use super::{ControlPlane, Link};

/// Maximum number of flows, in all and of one host; flows beyond it have no limit. Schedules and leases wait for the
/// computation, so it may take a few intervals at most.
const MAX: usize = 1 << 14;
const MAX_OF_HOST: usize = 1 << 10;

/// Relative difference between two limits below which no new limit is sent.
const SAME: f64 = 0.01;

/// An application, and the address of the other host.
type Peer = (Arc<str>, IpAddr);

/// Weights of services, and the service of each application.
#[derive(Debug, Clone)]
pub struct Services {
    shares: Shares,
    weights: Vec<f64>,
    /// Whether the lower bound uses the weights of all services (`true`), or of the services with flows on the link.
    of_all: bool,
    of: BTreeMap<Arc<str>, u32>,
}

impl Services {
    /// Weights by service number; `excess` are the weights for unused bandwidth, if they differ. `of` maps application
    /// ids to service numbers.
    ///
    /// # Errors
    /// [`HierarchyError`]: a weight is out of range.
    pub fn new(
        weights: Vec<f64>,
        excess: Option<&[f64]>,
        of: BTreeMap<Arc<str>, u32>,
    ) -> Result<Services, HierarchyError> {
        let shares = match excess {
            Some(excess) => Shares::with_excess(&weights, excess)?,
            None => Shares::weighted(&weights)?,
        };
        Ok(Services { shares, weights, of_all: excess.is_some(), of })
    }
}

/// State of the allocator.
#[derive(Debug)]
pub(super) struct Allocator {
    /// Addresses of hosts, with the host's number.
    addresses: BTreeMap<IpAddr, u32>,
    services: Option<Services>,
    /// Demands by host, application and address of the other host.
    asking: BTreeMap<(u32, Peer), Demand>,
    /// Number of entries in `asking` of each host.
    of_host: BTreeMap<u32, usize>,
    /// Time of the next computation, in seconds.
    due: f64,
}

impl Allocator {
    /// Stores a demand. Returns `false` if a maximum number of flows is reached.
    fn hear(&mut self, host: u32, found: &Found) -> bool {
        let key = (host, (Arc::clone(&found.application), found.peer.to_canonical()));
        if found.open == 0 || found.demand == Demand::Unknown {
            if self.asking.remove(&key).is_some() {
                *self.of_host.entry(host).or_default() -= 1;
            }
            return true;
        }
        let count = self.of_host.entry(host).or_default();
        if !self.asking.contains_key(&key) {
            if *count == MAX_OF_HOST || self.asking.len() == MAX {
                return false;
            }
            *count += 1;
        }
        self.asking.insert(key, found.demand);
        true
    }

    /// Removes all demands of a host.
    pub fn forget(&mut self, host: u32) {
        if self.of_host.remove(&host).is_some_and(|count| count > 0) {
            self.asking.retain(|(known, _), _| *known != host);
        }
    }
}

/// Limits of a host in bytes per second: computed ones, and those that orders carried.
#[derive(Debug, Default)]
pub(super) struct Limits {
    wanted: BTreeMap<Peer, u64>,
    told: BTreeMap<Peer, u64>,
    /// Whether limits were computed since the last order.
    divided: bool,
}

impl Limits {
    /// Limits for the next order, sorted: all of them, or the changed ones.
    pub fn changes(&mut self, whole: bool) -> Vec<Limit> {
        if whole {
            self.told.clear();
        } else if !self.divided {
            return Vec::new();
        }
        self.divided = false;
        let over = self.told.extract_if(.., |peer, _| !self.wanted.contains_key(peer));
        let mut changes: Vec<(Peer, Pace)> = over.map(|(peer, _)| (peer, Pace::Free)).collect();
        for (peer, &limit) in &self.wanted {
            let is_same = |told: &u64| told.abs_diff(limit) as f64 <= SAME * *told as f64;
            if !self.told.get(peer).is_some_and(is_same) {
                self.told.insert(peer.clone(), limit);
                changes.push((peer.clone(), Pace::Rate(limit)));
            }
        }
        changes.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let limit = |((application, peer), pace)| Limit { application, peer, pace };
        changes.into_iter().map(limit).collect()
    }
}

/// Traffic of an application from one host to another.
struct Flow {
    host: u32,
    service: usize,
    links: Vec<u32>,
    demand: Demand,
}

impl ControlPlane {
    /// Enables limits for observed connections, once services are set ([`ControlPlane::set_services`]). `addresses`
    /// maps addresses to host numbers.
    pub fn with_allocation(mut self, addresses: BTreeMap<IpAddr, u32>) -> ControlPlane {
        let (asking, of_host) = (BTreeMap::new(), BTreeMap::new());
        self.allocator = Some(Allocator { addresses, services: None, asking, of_host, due: 0.0 });
        self
    }

    /// Whether agents have to report the demands of connections.
    pub fn allocates(&self) -> bool {
        self.allocator.is_some()
    }

    /// Sets the services that share links. Without central allocation, this has no effect.
    pub fn set_services(&mut self, services: Services) {
        if let Some(allocator) = &mut self.allocator {
            allocator.services = Some(services);
        }
    }

    /// Limits by host, application and address of the other host, in bytes per second. Connections without an entry
    /// have no limit.
    pub fn limits(&self) -> BTreeMap<(u32, Arc<str>, IpAddr), u64> {
        let of = |(number, host): (u32, &super::Host)| {
            let limit = move |((application, peer), &limit): (&Peer, &u64)| {
                ((number, Arc::clone(application), *peer), limit)
            };
            host.limits.wanted.iter().map(limit).collect::<Vec<_>>()
        };
        (0..).zip(&self.hosts).flat_map(of).collect()
    }

    /// Stores the demands of a report; returns the number of demands beyond the maximum.
    pub(super) fn hear_demands(&mut self, host: u32, found: &[Found]) -> usize {
        let Some(allocator) = &mut self.allocator else { return 0 };
        found.iter().filter(|found| !allocator.hear(host, found)).count()
    }

    /// Computes all limits if the period has passed. Demands of absent hosts are left out.
    pub(super) fn allocate(&mut self) {
        let Some(allocator) = self.allocator.as_mut().filter(|allocator| self.now >= allocator.due) else {
            return;
        };
        allocator.due = self.now + PERIOD.get();
        let Some(services) = &allocator.services else { return };
        let flow = |((host, peer), &demand): (&(u32, Peer), &Demand)| {
            let service = *services.of.get(&peer.0)? as usize;
            let to = allocator.addresses.get(&peer.1).copied();
            // Traffic inside a host crosses no link.
            if !self.hosts[*host as usize].present || to == Some(*host) {
                return None;
            }
            let links = [Some(2 * host), to.map(|to| 2 * to + 1)].into_iter().flatten().collect();
            Some((peer.clone(), Flow { host: *host, service, links, demand }))
        };
        let (peers, flows): (Vec<Peer>, Vec<Flow>) = allocator.asking.iter().filter_map(flow).unzip();
        for host in &mut self.hosts {
            host.limits.divided = !host.limits.wanted.is_empty();
            host.limits.wanted.clear();
        }
        if flows.is_empty() {
            return;
        }
        let limits = divide(&self.links, self.settings.reserve, services, &flows);
        for ((peer, flow), limit) in peers.into_iter().zip(&flows).zip(limits) {
            let known = &mut self.hosts[flow.host as usize].limits;
            known.wanted.insert(peer, limit);
            known.divided = true;
        }
    }
}

/// Limits of the flows, in bytes per second.
fn divide(links: &[Link], reserve: f64, services: &Services, flows: &[Flow]) -> Vec<u64> {
    let part = 1.0 - reserve;
    let capacities: Vec<f64> =
        links.iter().flat_map(|link| [part * link.send.get(), part * link.recv.get()]).collect();
    let mut hierarchy = Hierarchy::new(&capacities, services.shares.clone())
        .expect("the configuration limits rates to 1e15 B/s a cable, and no rate is guaranteed on a link");
    // Number of flows of each service on each link; a service with at least one flow is active on the link.
    let all = services.weights.len();
    let mut there = vec![0u32; capacities.len() * all];
    let mut add = |flow: &Flow| {
        let demand = match flow.demand {
            Demand::Rate(rate) => rate as f64,
            Demand::All | Demand::Unknown => f64::INFINITY,
        };
        for &link in &flow.links {
            there[link as usize * all + flow.service] += 1;
        }
        let added = hierarchy.add(flow.service, &flow.links, 1, demand);
        added.expect("hosts and services are numbered from 0, and a demand is not negative")
    };
    let classes: Vec<_> = flows.iter().map(&mut add).collect();
    hierarchy.solve();
    let of_link = |link: usize| -> f64 {
        let counts = |&service: &usize| services.of_all || there[link * all + service] > 0;
        (0..all).filter(counts).map(|service| services.weights[service]).sum()
    };
    let sums: Vec<f64> = (0..capacities.len()).map(of_link).collect();
    let limit = |(flow, class): (&Flow, _)| {
        let rate = hierarchy.rate(class);
        let limit = if let Demand::Rate(_) = flow.demand {
            let assured = flow.links.iter().map(|&link| {
                let at = link as usize;
                let of_service = capacities[at] * services.weights[flow.service] / sums[at];
                of_service / f64::from(there[at * all + flow.service])
            });
            let assured = assured.fold(f64::INFINITY, f64::min);
            enforced(Rate::new(rate).unwrap_or(Rate::ZERO)).get().max(assured)
        } else {
            rate
        };
        let line = links[flow.host as usize].send.get();
        limit.clamp(1.0, line.max(1.0)) as u64
    };
    flows.iter().zip(classes).map(limit).collect()
}
