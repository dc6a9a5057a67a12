//! Links that have failed: schedules and the allocator leave out flows without a path, as flows without data, so others get their
//! capacity. Flows that still have a path use the links that are up.
//!
//! The link of a host that has failed keeps its rate, since no flow over it is scheduled. Links between switches form other groups after
//! a failure ([`Trunks::even_split_after`]), so the engine is built again with the same policy, as after a change of the policy.
//!
//! Orders give a flow without a path its share of the reserve: the socket of a slower flow would send its next packet long after the
//! repair.

use std::collections::{BTreeMap, BTreeSet};

use weir_core::model::Trunks;

use super::{ControlPlane, LivePolicy, NetworkLinks, Refusal};

/// Whether no path leads from a host to another one. `dst` is none if the other host is unknown.
pub(super) fn is_cut_off(
    links: &NetworkLinks,
    cut_off_hosts: &BTreeSet<u32>,
    src: u32,
    dst: Option<u32>,
) -> bool {
    let Some(dst) = dst else { return cut_off_hosts.contains(&src) };
    // Traffic inside a host uses no link.
    src != dst
        && (cut_off_hosts.contains(&src)
            || cut_off_hosts.contains(&dst)
            || links.trunks.as_ref().is_some_and(|trunks| !trunks.has_path(src, dst)))
}

impl ControlPlane {
    /// Sets the hosts whose link is down.
    pub fn set_cut_off_hosts(&mut self, hosts: BTreeSet<u32>, now: f64) {
        if self.cut_off_hosts == hosts {
            return;
        }
        self.advance_to(now);
        self.cut_off_hosts = hosts;
        self.mark_cut_off_flows();
        let mut changed = Vec::new();
        for coflow in self.coflows.values() {
            let Some(slot) = coflow.slot else { continue };
            for flow in coflow.flows.iter().filter(|flow| !flow.is_completed) {
                let sends = flow.sends(self.now) && self.hosts[flow.transfer.src as usize].present;
                changed.push((slot, flow.engine_index, sends));
            }
        }
        for (slot, index, sends) in changed {
            self.set_flow_sends(slot, index, sends);
        }
        self.restart_allocation();
    }

    /// Replaces the links between switches, and continues with the policy. Active coflows continue with the bytes that they have sent.
    ///
    /// # Errors
    /// Those of [`ControlPlane::set_policy`]. The links are unchanged.
    pub fn set_trunks(
        &mut self,
        trunks: Trunks,
        policy: impl Into<LivePolicy>,
        now: f64,
    ) -> Result<(), Refusal> {
        self.advance_to(now);
        let former = self.links.trunks.replace(trunks);
        let prepared = match self.prepare_policy(policy.into()) {
            Ok(prepared) => prepared,
            Err(refusal) => {
                self.links.trunks = former;
                return Err(refusal);
            }
        };
        self.mark_cut_off_flows();
        self.replace_engine(prepared);
        self.use_changed_trunks();
        self.restart_allocation();
        self.has_changed_flows = true;
        Ok(())
    }

    /// The links that agents report as down, by the number of the host or switch, if reports have changed since the last call.
    pub fn take_link_reports(&mut self) -> Option<BTreeMap<u32, Vec<u32>>> {
        std::mem::take(&mut self.has_new_link_reports).then(|| self.links_down())
    }

    /// The links that agents report as down, by the number of the host or switch.
    pub fn links_down(&self) -> BTreeMap<u32, Vec<u32>> {
        let reported = (0u32..).zip(&self.hosts).filter(|(_, host)| !host.links_down.is_empty());
        reported.map(|(number, host)| (number, host.links_down.clone())).collect()
    }

    /// Sets what an agent has reported about its links to an earlier control plane. Ignores an agent that does not exist.
    pub fn set_links_down(&mut self, agent: u32, links: Vec<u32>) {
        if let Some(host) = self.hosts.get_mut(agent as usize) {
            host.links_down = links;
            self.has_new_link_reports = true;
        }
    }

    /// Whether no path leads from a host to another one.
    pub(super) fn is_cut_off(&self, src: u32, dst: Option<u32>) -> bool {
        is_cut_off(&self.links, &self.cut_off_hosts, src, dst)
    }

    /// Notes which flows have no path.
    fn mark_cut_off_flows(&mut self) {
        for flow in self.coflows.values_mut().flat_map(|coflow| &mut coflow.flows) {
            let (src, dst) = (flow.transfer.src, Some(flow.transfer.dst));
            flow.is_cut_off = is_cut_off(&self.links, &self.cut_off_hosts, src, dst);
        }
    }
}
