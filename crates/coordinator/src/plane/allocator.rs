//! NetShare's central allocator (section 3.3) for connections that hosts find: services share all links of hosts by weight, and what some
//! leave by excess weights; hosts hold connections to that. The division is [`Hierarchy`]; what connections ask for, hosts predict.
//! What the paper leaves open, or has otherwise:
//!
//! - *Links* are those of hosts, as for coflows. What switches in between cannot carry TCP finds out, and then asks for less.
//! - *A flow* of the division is a connection. Those of an application with another host are told their sum, and share it at the host.
//! - *Headroom.* "Each flow must be allocated say 10% higher than its optimal centralized allocation to allow it to grow". Who asks for
//!   less than it may have has that, and at least what its service's weight assures it. Who asks for all has none to grow into: with
//!   a tenth more for all of them queues would decide, as `docs/results/netshare.md` shows for Fig. 5.
//! - *Coflows* have their rates from the policy, and count as nobody here: where both are on a link, TCP settles it.
//!
//! All is divided anew each period, O(n log n) of n applications with other hosts.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use weir_core::netshare::{PERIOD, enforced};
use weir_core::solve::hierarchy::{Hierarchy, HierarchyError, Shares};
use weir_core::units::Rate;
use weir_proto::{Demand, Limit, Pace};

use super::{Link, Plane};

/// The most applications with other hosts that are divided among; others go free.
const MOST: usize = 1 << 16;

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
    /// When to divide next.
    due: f64,
}

/// What a host may send, and what it was told of that.
#[derive(Debug, Default)]
pub(super) struct Limits {
    wanted: BTreeMap<Peer, u64>,
    told: BTreeMap<Peer, u64>,
}

impl Limits {
    /// What is to be told, in order: all, or what changes.
    pub fn changes(&mut self, whole: bool) -> Vec<Limit> {
        if whole {
            self.told.clear();
        }
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
struct Asking<'a> {
    host: usize,
    peer: &'a Peer,
    service: usize,
    links: Vec<u32>,
    open: u32,
    demand: Demand,
}

impl Plane {
    /// The same for hosts that hold connections which they find to what services may have of links, once these are known
    /// ([`Plane::set_services`]). The addresses are those of hosts.
    pub fn with_allocation(mut self, addresses: BTreeMap<IpAddr, u32>) -> Plane {
        self.allocator = Some(Allocator { addresses, services: None, due: 0.0 });
        self
    }

    /// Whether hosts are to say what connections ask for.
    pub fn allocates(&self) -> bool {
        self.allocator.is_some()
    }

    /// Who shares links from now on, where they are divided.
    pub fn set_services(&mut self, services: Services) {
        if let Some(allocator) = &mut self.allocator {
            (allocator.services, allocator.due) = (Some(services), 0.0);
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

    /// Divides links, if it is time to.
    pub(super) fn allocate(&mut self) {
        let Some(allocator) = self.allocator.as_mut().filter(|allocator| self.now >= allocator.due) else {
            return;
        };
        allocator.due = self.now + PERIOD.get();
        let Some(services) = &allocator.services else { return };
        let whose = |address: &IpAddr| allocator.addresses.get(address).copied();
        let hosts = self.hosts.iter().take(self.links.len()).enumerate();
        let found = hosts.flat_map(|(host, known)| known.found.all().map(move |found| (host, found)));
        let asking = found.filter_map(|(host, (peer, open, demand))| {
            let service = *services.of.get(&peer.0)? as usize;
            if demand == Demand::Unknown {
                return None;
            }
            let to = whose(&peer.1).map(|to| to as usize).filter(|&to| to != host);
            let links = [Some(2 * host as u32), to.map(|to| 2 * to as u32 + 1)];
            let links = links.into_iter().flatten().collect();
            Some(Asking { host, peer, service, links, open, demand })
        });
        let asking: Vec<Asking<'_>> = asking.take(MOST).collect();
        let limits = divide(&self.links, self.settings.reserve, services, &asking);
        let told = asking.iter().zip(limits);
        let told: Vec<(usize, Peer, u64)> =
            told.map(|(asking, limit)| (asking.host, asking.peer.clone(), limit)).collect();
        self.hosts.iter_mut().for_each(|host| host.limits.wanted.clear());
        for (host, peer, limit) in told {
            self.hosts[host].limits.wanted.insert(peer, limit);
        }
    }
}

/// What each may send, in bytes per second.
fn divide(links: &[Link], reserve: f64, services: &Services, asking: &[Asking<'_>]) -> Vec<u64> {
    let part = 1.0 - reserve;
    let capacities: Vec<f64> =
        links.iter().flat_map(|link| [part * link.send.get(), part * link.recv.get()]).collect();
    let mut hierarchy =
        Hierarchy::new(&capacities, services.shares.clone()).expect("links carry something, and parts of it");
    // How many connections each service has on each link, and the weights of those that have some.
    let all = services.weights.len();
    let mut connections = vec![0u64; capacities.len() * all];
    let classes: Vec<_> = asking
        .iter()
        .map(|one| {
            let demand = match one.demand {
                Demand::Rate(rate) => rate as f64 / f64::from(one.open),
                Demand::All | Demand::Unknown => f64::INFINITY,
            };
            for &link in &one.links {
                connections[link as usize * all + one.service] += u64::from(one.open);
            }
            let added = hierarchy.add(one.service, &one.links, one.open, demand);
            added.expect("links are there, each once, and demands are not negative")
        })
        .collect();
    hierarchy.solve();
    let of_link = |link: usize| -> f64 {
        let there = |&service: &usize| services.of_all || connections[link * all + service] > 0;
        (0..all).filter(there).map(|service| services.weights[service]).sum()
    };
    let sums: Vec<f64> = (0..capacities.len()).map(of_link).collect();
    let limit = |(one, class): (&Asking<'_>, _)| {
        let open = f64::from(one.open);
        let rate = hierarchy.rate(class) * open;
        let limit = if let Demand::Rate(_) = one.demand {
            let assured = one.links.iter().map(|&link| {
                let at = link as usize;
                let of_service = capacities[at] * services.weights[one.service] / sums[at];
                of_service * open / connections[at * all + one.service] as f64
            });
            let assured = assured.fold(f64::INFINITY, f64::min);
            enforced(Rate::new(rate).unwrap_or(Rate::ZERO)).get().max(assured)
        } else {
            rate
        };
        let line = links[one.host].send.get();
        limit.clamp(1.0, line.max(1.0)) as u64
    };
    asking.iter().zip(classes).map(limit).collect()
}
