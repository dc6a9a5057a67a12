//! Ports of the network that `[switch]` describes, and the ports that a connection can cross.
//!
//! Port numbers are those of the controller: 2h is the link out of host h, and 2h + 1 the link into it. Trunks follow
//! after the ports of all hosts. A trunk is a set of ports towards other switches that the same connections can cross,
//! and that therefore have the same queues.
//!
//! ECMP may select any shortest path between the switches of two hosts, so a connection can cross all links on these
//! paths. From s to t, these are the links from u to v with d(s, u) + 1 + d(v, t) = d(s, t). The condition depends only
//! on the distances of u and v to switches with hosts. Switches with equal distances to all of these are of one kind,
//! and the links from one kind to another are one trunk. In a fat tree, for example, the links from a pod to the core
//! are one trunk, so a path has few ports for any number of links.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weir_core::saba::controller::Port;

use crate::config::{End, Switch};

/// Distance of an unreachable switch. The number of switches is below it.
const NEVER: u16 = u16::MAX;

/// Maximum number of trunks on a connection's path: the controller stores the path for each of 100,000 connections. A
/// path has four trunks in a fat tree, and some hundred in a random network of 4,096 switches with hosts. On longer
/// paths, only the links of the hosts count.
pub const MAX_TRUNKS: usize = 1 << 10;

/// Ports and the paths between hosts. For S switches, R of them with hosts, L ports between switches and K kinds, the
/// construction takes R (S + L) + S R log S steps and R K + L memory. A path takes as many steps as the kinds on it
/// have ports.
#[derive(Debug)]
pub struct Ways {
    hosts: u32,
    /// Switch at each host, by its index, and the port of that switch.
    at: BTreeMap<u32, (u32, u32)>,
    /// Kind of each switch.
    kinds: Vec<u32>,
    /// Row of each switch in `far`; `None` for switches without hosts.
    rows: Vec<Option<u32>>,
    /// Distance of each kind from each switch with hosts.
    far: Vec<Vec<u16>>,
    /// Trunks out of each kind: the kind at the other end, and the index of the trunk.
    out: Vec<Vec<(u32, u32)>>,
    /// Switch and port of each link of a trunk.
    trunks: Vec<Vec<(u32, u32)>>,
}

impl Ways {
    /// Ports of a network with this number of hosts.
    pub fn new(hosts: usize, switches: &[Switch]) -> Ways {
        let mut at = BTreeMap::new();
        let mut rows = vec![None; switches.len()];
        let mut neighbours = vec![BTreeSet::new(); switches.len()];
        let mut sources = Vec::new();
        for (place, switch) in switches.iter().enumerate() {
            for (port, end) in (0u32..).zip(&switch.ports) {
                match *end {
                    End::Host(host) => {
                        at.insert(host, (place as u32, port));
                        if rows[place].is_none() {
                            rows[place] = Some(sources.len() as u32);
                            sources.push(place);
                        }
                    }
                    End::Switch(other) => {
                        neighbours[place].insert(other as usize);
                    }
                }
            }
        }
        let neighbours: Vec<Vec<usize>> =
            neighbours.into_iter().map(|others| others.into_iter().collect()).collect();
        let far: Vec<Vec<u16>> = sources.iter().map(|&source| distances(&neighbours, source)).collect();
        // Switches with equal distances to all switches with hosts are of one kind.
        let mut numbers: BTreeMap<Vec<u16>, u32> = BTreeMap::new();
        let mut first = Vec::new();
        let kind = |place: usize| {
            let next = numbers.len() as u32;
            let number = *numbers.entry(far.iter().map(|row| row[place]).collect()).or_insert(next);
            if number == next {
                first.push(place);
            }
            number
        };
        let kinds: Vec<u32> = (0..switches.len()).map(kind).collect();
        let far = far.iter().map(|row| first.iter().map(|&place| row[place]).collect()).collect();
        let (mut out, mut trunks) = (vec![Vec::new(); first.len()], Vec::<Vec<(u32, u32)>>::new());
        let mut between = BTreeMap::new();
        for (place, switch) in switches.iter().enumerate() {
            for (port, end) in (0u32..).zip(&switch.ports) {
                let &End::Switch(other) = end else { continue };
                let ends = (kinds[place], kinds[other as usize]);
                let trunk = *between.entry(ends).or_insert_with(|| {
                    out[ends.0 as usize].push((ends.1, trunks.len() as u32));
                    trunks.push(Vec::new());
                    trunks.len() - 1
                });
                trunks[trunk].push((place as u32, port));
            }
        }
        Ways { hosts: hosts as u32, at, kinds, rows, far, out, trunks }
    }

    /// Number of ports.
    pub fn ports(&self) -> usize {
        2 * self.hosts as usize + self.trunks.len()
    }

    /// Whether the port is a host's link out, where packets enter the network.
    pub fn begins(&self, port: Port) -> bool {
        self.is_of_host(port) && port.is_multiple_of(2)
    }

    /// Whether the port is a host's link, in either direction.
    pub fn is_of_host(&self, port: Port) -> bool {
        port < 2 * self.hosts
    }

    /// Links of a trunk, each by the switch's index and its port.
    pub fn links(&self, port: Port) -> &[(u32, u32)] {
        let trunk = port.checked_sub(2 * self.hosts);
        trunk.and_then(|trunk| self.trunks.get(trunk as usize)).map_or(&[], Vec::as_slice)
    }

    /// Receivers of orders about a port: number of the host or switch (switches follow hosts), and number of its link.
    /// The link out of a host belongs to the host. The link into a host belongs to the switch, if the configuration
    /// lists it.
    pub fn told(&self, port: Port) -> impl Iterator<Item = (u32, u32)> + '_ {
        let host = port / 2;
        let own = self.begins(port).then_some((host, 0));
        let into = self.is_of_host(port) && !self.begins(port);
        let at = self.at.get(&host).filter(|_| into);
        let of_switches = at.into_iter().chain(self.links(port));
        own.into_iter().chain(of_switches.map(|&(place, link)| (self.hosts + place, link)))
    }

    /// Ports that a connection from a host can cross, without duplicates. `to` is `None` if the address of the other
    /// end is unknown.
    pub fn path(&self, from: u32, to: Option<u32>) -> Vec<Port> {
        let mut path = vec![2 * from];
        let Some(to) = to else { return path };
        path.push(2 * to + 1);
        let (Some(&(source, _)), Some(&(target, _))) = (self.at.get(&from), self.at.get(&to)) else {
            return path;
        };
        let Some(row) = self.rows[target as usize] else { return path };
        let far = &self.far[row as usize];
        let start = self.kinds[source as usize];
        if far[start as usize] == NEVER {
            return path;
        }
        // All kinds at this distance from the target on a shortest path.
        let mut here = BTreeSet::from([start]);
        for left in (0..far[start as usize]).rev() {
            let mut next = BTreeSet::new();
            for &kind in &here {
                for &(other, trunk) in &self.out[kind as usize] {
                    if far[other as usize] == left {
                        if path.len() == 2 + MAX_TRUNKS {
                            path.truncate(2);
                            return path;
                        }
                        next.insert(other);
                        path.push(2 * self.hosts + trunk);
                    }
                }
            }
            here = next;
        }
        path
    }
}

/// Distance of each switch from `source`, in links.
fn distances(neighbours: &[Vec<usize>], source: usize) -> Vec<u16> {
    let mut far = vec![NEVER; neighbours.len()];
    let mut wait = VecDeque::from([source]);
    far[source] = 0;
    while let Some(place) = wait.pop_front() {
        for &other in &neighbours[place] {
            if far[other] == NEVER {
                far[other] = far[place] + 1;
                wait.push_back(other);
            }
        }
    }
    far
}
