//! The ports of the network that `[switch]` describes, and which of them a connection may pass.
//!
//! Ports are numbered as the controller has them: 2h is the link out of host h, 2h + 1 the one into it, and after those of all hosts come
//! trunks: ports of switches towards other switches that the same connections may pass, and that have the same queues for that.
//!
//! A connection may pass all links on shortest paths between its hosts' switches, since any of them may be chosen (ECMP): from s to t those
//! from u to v with d(s, u) + 1 + d(v, t) = d(s, t). So it depends on nothing but how far u and v are from switches with hosts. Switches that
//! are equally far from all of those are of one kind, and links from one kind to another are one trunk: in a fat tree those from a pod to the
//! core, for example, so paths are short whatever the number of links.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weir_core::saba::controller::Port;

use crate::config::{End, Switch};

/// How far what cannot be reached is. There are fewer switches than that.
const NEVER: u16 = u16::MAX;

/// The most trunks that a connection counts at: the controller notes them for each of 100,000 connections. A fat tree has four on a path and a random
/// network of 4,096 switches with hosts some hundred; of a network that has more, connections count at the links of hosts only.
pub const MAX_TRUNKS: usize = 1 << 10;

/// Which port is whose, and what connections pass. With S switches, R of them with hosts, L ports between switches and K kinds, it is found
/// in R (S + L) + S R log S and takes R K + L; a path is found in the ports of the kinds on it.
#[derive(Debug)]
pub struct Ways {
    hosts: u32,
    /// The switch at each host, by its place, and which of its ports.
    at: BTreeMap<u32, (u32, u32)>,
    /// The kind of each switch.
    kinds: Vec<u32>,
    /// The row of each switch in `far`, if it has hosts.
    rows: Vec<Option<u32>>,
    /// How far each kind is from a switch with hosts.
    far: Vec<Vec<u16>>,
    /// Where trunks lead out of each kind: to which kind, and the trunk's place.
    out: Vec<Vec<(u32, u32)>>,
    /// The switch and the port of each link of a trunk.
    trunks: Vec<Vec<(u32, u32)>>,
}

impl Ways {
    /// Those between so many hosts.
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
        // Who is how far from everywhere is of which kind.
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

    /// How many ports the controller has.
    pub fn ports(&self) -> usize {
        2 * self.hosts as usize + self.trunks.len()
    }

    /// Whether packets begin at a port: it is a host's own.
    pub fn begins(&self, port: Port) -> bool {
        self.is_of_host(port) && port.is_multiple_of(2)
    }

    /// Whether a port is of a host's link, either way.
    pub fn is_of_host(&self, port: Port) -> bool {
        port < 2 * self.hosts
    }

    /// The links of a trunk, each by its switch's place and its port there.
    pub fn links(&self, port: Port) -> &[(u32, u32)] {
        let trunk = port.checked_sub(2 * self.hosts);
        trunk.and_then(|trunk| self.trunks.get(trunk as usize)).map_or(&[], Vec::as_slice)
    }

    /// Who is told the queues of a port, each by its number, in which switches follow hosts, and the number of its link. A host's link out is its
    /// own; the one into it is a switch's, if one is known.
    pub fn told(&self, port: Port) -> impl Iterator<Item = (u32, u32)> + '_ {
        let host = port / 2;
        let own = self.begins(port).then_some((host, 0));
        let into = self.is_of_host(port) && !self.begins(port);
        let at = self.at.get(&host).filter(|_| into);
        let of_switches = at.into_iter().chain(self.links(port));
        own.into_iter().chain(of_switches.map(|&(place, link)| (self.hosts + place, link)))
    }

    /// The ports that a connection from a host may pass, each once: to another host, or to where nobody knows.
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
        // All kinds that are so many links away from the target, on the way there.
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

/// How many links away all switches are.
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
