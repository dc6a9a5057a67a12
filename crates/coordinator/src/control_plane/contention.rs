//! Finds flows that compete with no other coflow. A limit would only delay such a flow: no flow waits for the unused bandwidth.
//!
//! Links that a flow with data crosses belong together, since a flow that exceeds its rate at one link leaves less to the flows of
//! another. If all flows of such a group of links belong to one coflow, TCP divides the links between them. Connections of services
//! compete with all coflows at the links of their hosts, and at the links between switches that the allocator divides.

use weir_core::model::Slot;

use super::ControlPlane;

/// The coflows with data at a group of links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    None,
    Coflow(Slot),
    Several,
}

/// Links in groups (a union-find structure).
#[derive(Debug)]
pub(super) struct Contention {
    parents: Vec<u32>,
    /// The owner of each group, at its root.
    owners: Vec<Owner>,
}

impl Contention {
    /// Links without flows.
    fn new(links: usize) -> Contention {
        Contention { parents: (0..links as u32).collect(), owners: vec![Owner::None; links] }
    }

    /// Adds a flow with data of a coflow.
    pub(super) fn add_flow(&mut self, slot: Slot, links: impl Iterator<Item = usize>) {
        let mut group = None;
        for link in links {
            let root = self.root(link);
            let group = *group.get_or_insert(root);
            self.owners[group] = merge(merge(self.owners[root], self.owners[group]), Owner::Coflow(slot));
            self.parents[root] = group as u32;
        }
    }

    /// Adds traffic of services at a link.
    fn add_services(&mut self, link: usize) {
        let root = self.root(link);
        self.owners[root] = Owner::Several;
    }

    /// Whether nothing but this coflow has data at the groups of these links.
    pub(super) fn is_alone(&mut self, slot: Slot, mut links: impl Iterator<Item = usize>) -> bool {
        links.all(|link| {
            let root = self.root(link);
            self.owners[root] == Owner::None || self.owners[root] == Owner::Coflow(slot)
        })
    }

    /// The root of a link's group. Shortens the path to it.
    fn root(&mut self, mut link: usize) -> usize {
        while self.parents[link] as usize != link {
            let parent = self.parents[link] as usize;
            self.parents[link] = self.parents[parent];
            link = parent;
        }
        link
    }
}

fn merge(a: Owner, b: Owner) -> Owner {
    match (a, b) {
        (Owner::None, other) | (other, Owner::None) => other,
        (a, b) if a == b => a,
        _ => Owner::Several,
    }
}

impl ControlPlane {
    /// The services at each of this number of links. O(observed connections).
    pub(super) fn contention_of_services(&self, links: usize) -> Contention {
        let mut contention = Contention::new(links);
        let hosts = self.links.hosts.len();
        let used_links = self.allocator.iter().flat_map(|allocator| allocator.used_links(links));
        used_links.for_each(|&link| contention.add_services(link as usize));
        for (number, host) in self.hosts[..hosts].iter().enumerate() {
            let mut peers = host.observed.peers().peekable();
            if peers.peek().is_some() {
                contention.add_services(number);
                contention.add_services(hosts + number);
            }
            for peer in peers.filter_map(|peer| self.host_number(peer)) {
                contention.add_services(hosts + peer as usize);
            }
        }
        contention
    }
}

#[cfg(test)]
mod tests {
    use super::Contention;

    fn contention() -> Contention {
        let mut contention = Contention::new(8);
        contention.add_flow(1, [0, 4].into_iter());
        contention.add_flow(1, [0, 5].into_iter());
        contention.add_flow(2, [1, 6].into_iter());
        contention
    }

    #[test]
    fn flows_compete_through_the_flows_of_links_between_them() {
        let mut contention = contention();
        assert!(contention.is_alone(1, [0, 5].into_iter()));
        assert!(contention.is_alone(2, [1, 6].into_iter()));
        assert!(contention.is_alone(3, [2, 7].into_iter()));
        assert!(!contention.is_alone(3, [2, 6].into_iter()));
        // The flows at link 0 compete with this one at link 5.
        contention.add_flow(3, [2, 5].into_iter());
        assert!(!contention.is_alone(1, [0, 4].into_iter()));
        assert!(!contention.is_alone(3, [2, 5].into_iter()));
        assert!(contention.is_alone(2, [1, 6].into_iter()));
    }

    #[test]
    fn services_compete_with_the_coflow_of_a_group_of_links() {
        let mut contention = contention();
        contention.add_services(5);
        assert!(!contention.is_alone(1, [0, 4].into_iter()));
        assert!(contention.is_alone(2, [1, 6].into_iter()));
    }
}
