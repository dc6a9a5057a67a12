//! Numbers the ports of the network in `[switch]`, and finds the ports that a connection can cross.
//!
//! Port numbers are those of the controller: 2h is the link out of host h, and 2h + 1 the link into host h. The numbers of
//! link groups follow those of hosts. A link group is a set of ports towards other switches that the same connections can cross, and
//! that therefore have the same queues.
//!
//! ECMP may select any shortest path between the switches of two hosts, so a connection can cross all links on these
//! paths. From s to t, these are the links from u to v with d(s, u) + 1 + d(v, t) = d(s, t). The condition depends only
//! on the distances of u and v to switches with hosts. Switches with equal distances to all switches with hosts are of one
//! kind, and the links from one kind to another are one link group. In a fat tree, for example, the links from a pod to the core
//! are one link group, so a path has few ports for any number of links.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weir_core::saba::controller::{Port, PortLimits};

use crate::config::{CableEnd, Switch};

/// Distance of an unreachable switch: more than the maximum number of switches.
const UNREACHABLE: u16 = u16::MAX;

/// Maximum number of link groups on a path; on longer paths, only the links of the hosts count. The limit bounds memory, since the
/// controller stores the paths of up to 100,000 connections. A path has four link groups in a fat tree, and a few hundred in a
/// random network of 4,096 switches with hosts.
pub const MAX_LINK_GROUPS: usize = 1 << 10;

/// Ports, and the paths between hosts. For S switches, R of them with hosts, L ports between switches and K kinds, the
/// construction takes O(R (S + L) + S R log S) time and O(R K + L) memory. A path takes O(p) time for p ports of the kinds on
/// the path.
#[derive(Debug)]
pub struct PortMap {
    host_count: u32,
    /// Switch at each host, by its index, and the port of that switch.
    switch_of_host: BTreeMap<u32, (u32, u32)>,
    /// Kind of each switch.
    kind_of_switch: Vec<u32>,
    /// Row of each switch in `distances`; `None` for switches without hosts.
    distance_row: Vec<Option<u32>>,
    /// Distance of each kind from each switch with hosts, by row and kind.
    distances: Vec<Vec<u16>>,
    /// Link groups out of each kind: the kind at the other end, and the index of the link group.
    groups_of_kind: Vec<Vec<(u32, u32)>>,
    /// Switch and port of each link of a link group.
    group_links: Vec<Vec<(u32, u32)>>,
}

impl PortMap {
    /// Ports of a network with this number of hosts, where these ports between switches, each by its switch's index and its number, are
    /// down.
    pub fn new(host_count: usize, switches: &[Switch], failed_ports: &BTreeSet<(u32, u32)>) -> PortMap {
        let is_up = |index: usize, port: u32| !failed_ports.contains(&(index as u32, port));
        let mut switch_of_host = BTreeMap::new();
        let mut rows = vec![None; switches.len()];
        let mut neighbours = vec![BTreeSet::new(); switches.len()];
        let mut sources = Vec::new();
        for (index, switch) in switches.iter().enumerate() {
            for (port, end) in (0u32..).zip(&switch.ports) {
                match *end {
                    CableEnd::Host(host) => {
                        switch_of_host.insert(host, (index as u32, port));
                        if rows[index].is_none() {
                            rows[index] = Some(sources.len() as u32);
                            sources.push(index);
                        }
                    }
                    CableEnd::Switch(other) if is_up(index, port) => {
                        neighbours[index].insert(other as usize);
                    }
                    CableEnd::Switch(_) => {}
                }
            }
        }
        let neighbours: Vec<Vec<usize>> =
            neighbours.into_iter().map(|others| others.into_iter().collect()).collect();
        let distance_rows: Vec<Vec<u16>> =
            sources.iter().map(|&source| distances_from(&neighbours, source)).collect();
        // Switches with equal distances to all switches with hosts are of one kind.
        let mut kind_by_distances: BTreeMap<Vec<u16>, u32> = BTreeMap::new();
        let mut first_of_kind = Vec::new();
        let assign_kind = |index: usize| {
            let next = kind_by_distances.len() as u32;
            let number = *kind_by_distances
                .entry(distance_rows.iter().map(|row| row[index]).collect())
                .or_insert(next);
            if number == next {
                first_of_kind.push(index);
            }
            number
        };
        let kinds: Vec<u32> = (0..switches.len()).map(assign_kind).collect();
        let distances_of_kinds =
            distance_rows.iter().map(|row| first_of_kind.iter().map(|&index| row[index]).collect()).collect();
        let (mut out, mut groups) = (vec![Vec::new(); first_of_kind.len()], Vec::<Vec<(u32, u32)>>::new());
        let mut group_by_kinds = BTreeMap::new();
        for (index, switch) in switches.iter().enumerate() {
            let ports = (0u32..).zip(&switch.ports).filter(|(port, _)| is_up(index, *port));
            for (port, end) in ports {
                let &CableEnd::Switch(other) = end else { continue };
                let kind_pair = (kinds[index], kinds[other as usize]);
                let group = *group_by_kinds.entry(kind_pair).or_insert_with(|| {
                    out[kind_pair.0 as usize].push((kind_pair.1, groups.len() as u32));
                    groups.push(Vec::new());
                    groups.len() - 1
                });
                groups[group].push((index as u32, port));
            }
        }
        PortMap {
            host_count: host_count as u32,
            switch_of_host,
            kind_of_switch: kinds,
            distance_row: rows,
            distances: distances_of_kinds,
            groups_of_kind: out,
            group_links: groups,
        }
    }

    /// Number of ports.
    pub fn port_count(&self) -> usize {
        2 * self.host_count as usize + self.group_links.len()
    }

    /// Whether the port is a host's link out, where packets enter the network.
    pub fn is_host_egress(&self, port: Port) -> bool {
        self.is_host_link(port) && port.is_multiple_of(2)
    }

    /// Whether the port is a host's link, in either direction.
    pub fn is_host_link(&self, port: Port) -> bool {
        port < 2 * self.host_count
    }

    /// Links of a link group, each by the switch's index and its port.
    pub fn group_links(&self, port: Port) -> &[(u32, u32)] {
        let group = port.checked_sub(2 * self.host_count);
        group.and_then(|group| self.group_links.get(group as usize)).map_or(&[], Vec::as_slice)
    }

    /// The limits of the queues of each port, for the switches of [`PortMap::new`].
    ///
    /// The link out of a host, and the links of switches without own limits, have the limits `default`. All ports of a
    /// link group have the same queues: the smallest number and the largest minimum weight of its switches.
    pub fn port_limits(&self, switches: &[Switch], default: PortLimits) -> Vec<PortLimits> {
        let limits_of = |switch: u32| switches[switch as usize].limits.unwrap_or(default);
        let host_links = (0..self.host_count).flat_map(|host| {
            let switch = self.switch_of_host.get(&host);
            [default, switch.map_or(default, |&(switch, _)| limits_of(switch))]
        });
        let groups = self.group_links.iter().map(|links| {
            let limits = links.iter().map(|&(switch, _)| limits_of(switch));
            let stricter = |a: PortLimits, b: PortLimits| PortLimits {
                queues: a.queues.min(b.queues),
                min_weight: a.min_weight.max(b.min_weight),
            };
            limits.reduce(stricter).unwrap_or(default)
        });
        host_links.chain(groups).collect()
    }

    /// Receivers of orders about a port: the number of the host or switch, and the number of its link. Switch numbers follow
    /// those of hosts. The link out of a host is a link of the host. The link into a host is a link of its switch, if the
    /// configuration lists the switch.
    pub fn order_targets(&self, port: Port) -> impl Iterator<Item = (u32, u32)> + '_ {
        let host = port / 2;
        let host_target = self.is_host_egress(port).then_some((host, 0));
        let is_host_ingress = self.is_host_link(port) && !self.is_host_egress(port);
        let host_switch = self.switch_of_host.get(&host).filter(|_| is_host_ingress);
        let switch_targets = host_switch.into_iter().chain(self.group_links(port));
        host_target.into_iter().chain(switch_targets.map(|&(switch, link)| (self.host_count + switch, link)))
    }

    /// Ports that packets of both directions of a connection between two hosts can cross, without duplicates; none inside a host. `other`
    /// is `None` if the host of the other end is unknown.
    pub fn both_directions(&self, host: u32, other: Option<u32>) -> Vec<Port> {
        let Some(other) = other else { return vec![2 * host, 2 * host + 1] };
        let mut ports = self.path(host, Some(other));
        ports.extend(self.path(other, Some(host)));
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// Ports that packets from host `src` to host `dst` can cross, without duplicates; none inside a host. `dst` is `None` if the address
    /// of the other end is unknown.
    pub fn path(&self, src: u32, dst: Option<u32>) -> Vec<Port> {
        if dst == Some(src) {
            return Vec::new();
        }
        let mut path = vec![2 * src];
        let Some(to) = dst else { return path };
        path.push(2 * to + 1);
        let (Some(&(source, _)), Some(&(target, _))) =
            (self.switch_of_host.get(&src), self.switch_of_host.get(&to))
        else {
            return path;
        };
        let Some(row) = self.distance_row[target as usize] else { return path };
        let distance_to_target = &self.distances[row as usize];
        let start = self.kind_of_switch[source as usize];
        if distance_to_target[start as usize] == UNREACHABLE {
            return path;
        }
        // All kinds at this distance from the target on a shortest path.
        let mut frontier = BTreeSet::from([start]);
        for remaining in (0..distance_to_target[start as usize]).rev() {
            let mut next_frontier = BTreeSet::new();
            for &kind in &frontier {
                for &(other, group) in &self.groups_of_kind[kind as usize] {
                    if distance_to_target[other as usize] == remaining {
                        if path.len() == 2 + MAX_LINK_GROUPS {
                            path.truncate(2);
                            return path;
                        }
                        next_frontier.insert(other);
                        path.push(2 * self.host_count + group);
                    }
                }
            }
            frontier = next_frontier;
        }
        path
    }
}

/// Distance of each switch from `source`, in links.
fn distances_from(neighbours: &[Vec<usize>], source: usize) -> Vec<u16> {
    let mut distances = vec![UNREACHABLE; neighbours.len()];
    let mut queue = VecDeque::from([source]);
    distances[source] = 0;
    while let Some(index) = queue.pop_front() {
        for &other in &neighbours[index] {
            if distances[other] == UNREACHABLE {
                distances[other] = distances[index] + 1;
                queue.push_back(other);
            }
        }
    }
    distances
}
