//! The highest load that hosts can put on each link.

use super::super::{LinkId, NodeId};
use super::Routes;
use crate::model::BitSet;

impl Routes {
    /// By link: the highest total rate of flows over shortest paths. It is the smaller of two sums: the sending rates of the hosts
    /// with a shortest path over the link, and the receiving rates of the hosts that these paths lead to. 0 for links of hosts.
    ///
    /// `rates` has the sending and the receiving rate of each host. O(sites x links x sites / 64), where a site is the hosts under
    /// the same switches.
    pub(crate) fn max_loads(&mut self, rates: &[(f64, f64)]) -> Vec<f64> {
        let (site_by_host, hosts) = self.topology.sites();
        let mut site_rates = vec![(0.0, 0.0); hosts.len()];
        for (&site, &(send, recv)) in site_by_host.iter().zip(rates) {
            let (total_send, total_recv) = &mut site_rates[site as usize];
            (*total_send, *total_recv) = (*total_send + send, *total_recv + recv);
        }
        let mut sources = vec![BitSet::default(); self.topology.links().len()];
        let mut received = vec![0.0; sources.len()];
        for (to, &(_, rate)) in site_rates.iter().enumerate() {
            self.visit_used_links(&hosts, to, |link, sites| {
                sources[link.index()].union_with(sites);
                received[link.index()] += rate;
            });
        }
        let sent = |sites: &BitSet| -> f64 { sites.iter().map(|site| site_rates[site].0).sum() };
        sources.iter().zip(received).map(|(sites, received)| sent(sites).min(received)).collect()
    }

    /// Calls `visit` with each link between switches on a shortest path from another site to site `to`, and the sites with such paths.
    /// `hosts` has one host of each site. O(links x sites / 64).
    fn visit_used_links(&mut self, hosts: &[NodeId], to: usize, mut visit: impl FnMut(LinkId, &BitSet)) {
        self.set_destination(hosts[to]);
        let first_switch = self.topology.hosts();
        let mut sites_by_switch = vec![BitSet::default(); self.topology.nodes() - first_switch];
        for (site, &host) in hosts.iter().enumerate().filter(|(site, _)| *site != to) {
            self.visit_next_hops(host, hosts[to], |link| {
                sites_by_switch[self.topology.link(link).to.index() - first_switch].insert(site);
            });
        }
        let mut switches: Vec<usize> = (0..sites_by_switch.len()).collect();
        // The most distant first: all sites of a switch are known when its links are visited.
        switches.sort_by_key(|&switch| std::cmp::Reverse(self.distance(switch)));
        for switch in switches {
            let sites = std::mem::take(&mut sites_by_switch[switch]);
            if sites.is_empty() {
                continue;
            }
            self.visit_next_hops(NodeId((first_switch + switch) as u32), hosts[to], |link| {
                if let Some(next) = self.topology.link(link).to.index().checked_sub(first_switch) {
                    sites_by_switch[next].union_with(&sites);
                    visit(link, &sites);
                }
            });
        }
    }
}
