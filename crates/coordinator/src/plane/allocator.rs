//! NetShare's central allocator (section 3.3) for connections that hosts find: services share all links of hosts by weight, and what some
//! leave by excess weights; hosts hold connections to that. The division is [`Hierarchy`]; what connections ask for, hosts predict.
//! What the paper leaves open, or has otherwise:
//!
//! - *A flow* is what an application sends from a host to another, by however many connections: whoever opens more, or keeps idle ones, has no
//!   more for it, and what a host says of their number is nothing that others would have to believe.
//! - *Headroom.* "Each flow must be allocated say 10% higher than its optimal centralized allocation to allow it to grow". Who asks for
//!   less than it may have has that, and at least what its service's weight assures it. Who asks for all has none to grow into: with
//!   a tenth more for all of them queues would decide, as `docs/results/netshare.md` shows for Fig. 5.
//! - *Links* are those of hosts, as for coflows. What switches in between cannot carry TCP finds out, and then asks for less.
//! - *Coflows* have their rates from the policy, and count as nobody here: where both are on a link, TCP settles it.
//!
//! All is divided anew each period in which something asks, O(n log n) of n flows, of which there is a bound.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use weir_core::netshare::{PERIOD, enforced};
use weir_core::solve::hierarchy::{Hierarchy, HierarchyError, Shares};
use weir_core::units::Rate;
use weir_proto::{Demand, Found, Limit, Pace};

use super::{ControlPlane, Link};

/// The most flows that links are divided among, and the most of one host; others go free. Schedules and leases wait while links are divided,
/// so it is not to take more than a few intervals.
const MAX: usize = 1 << 14;
const MAX_OF_HOST: usize = 1 << 10;

/// Limits that differ by less are not told anew, as a part.
const SAME: f64 = 0.01;

/// An application, and the address of another host.
type Peer = (Arc<str>, IpAddr);

/// Services, and who is which.
#[derive(Debug, Clone)]
pub struct Services {
    shares: Shares,
    weights: Vec<f64>,
    /// Whether weights are of all services, or of those that are there.
    of_all: bool,
    of: BTreeMap<Arc<str>, u32>,
}

impl Services {
    /// By number: their weights, and their parts of what others leave, if these are others. `of` are applications, each with its service.
    ///
    /// # Errors
    /// Weights that are none.
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

/// The allocator.
#[derive(Debug)]
pub(super) struct Allocator {
    /// Whose addresses are whose.
    addresses: BTreeMap<IpAddr, u32>,
    services: Option<Services>,
    /// What is asked for, by host, application and address of another host.
    asking: BTreeMap<(u32, Peer), Demand>,
    /// How many of these each host has.
    of_host: BTreeMap<u32, usize>,
    /// When to divide next.
    due: f64,
}

impl Allocator {
    /// The answer is whether there is room for it.
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

    /// Nothing of a host is asked for any more.
    pub fn forget(&mut self, host: u32) {
        if self.of_host.remove(&host).is_some_and(|count| count > 0) {
            self.asking.retain(|(known, _), _| *known != host);
        }
    }
}

/// What a host may send, and what it was told of that.
#[derive(Debug, Default)]
pub(super) struct Limits {
    wanted: BTreeMap<Peer, u64>,
    told: BTreeMap<Peer, u64>,
    /// Whether links were divided since it was told.
    divided: bool,
}

impl Limits {
    /// What is to be told, in order: all, or what changes.
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

/// What an application asks for from a host to another.
struct Flow {
    host: u32,
    service: usize,
    links: Vec<u32>,
    demand: Demand,
}

impl ControlPlane {
    /// The same for hosts that hold connections which they find to what services may have of links, once these are known
    /// ([`ControlPlane::set_services`]). The addresses are those of hosts.
    pub fn with_allocation(mut self, addresses: BTreeMap<IpAddr, u32>) -> ControlPlane {
        let (asking, of_host) = (BTreeMap::new(), BTreeMap::new());
        self.allocator = Some(Allocator { addresses, services: None, asking, of_host, due: 0.0 });
        self
    }

    /// Whether hosts are to say what connections ask for.
    pub fn allocates(&self) -> bool {
        self.allocator.is_some()
    }

    /// Who shares links from now on, where they are divided.
    pub fn set_services(&mut self, services: Services) {
        if let Some(allocator) = &mut self.allocator {
            allocator.services = Some(services);
        }
    }

    /// What applications may send, by host, application and address of another host, in bytes per second; the others are free.
    pub fn limits(&self) -> BTreeMap<(u32, Arc<str>, IpAddr), u64> {
        let of = |(number, host): (u32, &super::Host)| {
            let limit = move |((application, peer), &limit): (&Peer, &u64)| {
                ((number, Arc::clone(application), *peer), limit)
            };
            host.limits.wanted.iter().map(limit).collect::<Vec<_>>()
        };
        (0..).zip(&self.hosts).flat_map(of).collect()
    }

    /// Takes in what a host says is asked for there; the answer is how much of it there is no room for.
    pub(super) fn hear_demands(&mut self, host: u32, found: &[Found]) -> usize {
        let Some(allocator) = &mut self.allocator else { return 0 };
        found.iter().filter(|found| !allocator.hear(host, found)).count()
    }

    /// Divides links, if it is time to. Hosts that are not heard of any more have no part of them.
    pub(super) fn allocate(&mut self) {
        let Some(allocator) = self.allocator.as_mut().filter(|allocator| self.now >= allocator.due) else {
            return;
        };
        allocator.due = self.now + PERIOD.get();
        let Some(services) = &allocator.services else { return };
        let flow = |((host, peer), &demand): (&(u32, Peer), &Demand)| {
            let service = *services.of.get(&peer.0)? as usize;
            let to = allocator.addresses.get(&peer.1).copied();
            // What stays at the host passes no link.
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

/// What each may send, in bytes per second.
fn divide(links: &[Link], reserve: f64, services: &Services, flows: &[Flow]) -> Vec<u64> {
    let part = 1.0 - reserve;
    let capacities: Vec<f64> =
        links.iter().flat_map(|link| [part * link.send.get(), part * link.recv.get()]).collect();
    let mut hierarchy = Hierarchy::new(&capacities, services.shares.clone())
        .expect("the configuration limits rates to 1e15 B/s a cable, and no rate is guaranteed on a link");
    // How many flows each service has on each link, and the weights of those that have some.
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
