//! Ends a replay in which no flow can send any more.

use std::collections::BTreeSet;

use weir_core::model::{FlowState, Slot};

use super::Replay;
use crate::outcome::{Stall, StalledCoflow};

impl Replay<'_> {
    /// Records the coflows that have not completed, and what they have sent.
    pub(super) fn stop_stalled(&mut self, now: f64) {
        let incomplete: Vec<usize> =
            (0..self.outcomes.len()).filter(|&index| self.outcomes[index].is_none()).collect();
        let coflows = incomplete.into_iter().map(|index| self.stop_coflow(index, now)).collect();
        self.stall = Some(Stall { time: now, coflows });
    }

    /// Whether all links of a live flow have capacity, so that further decisions can give the flow a rate. Random bandwidths of trunks
    /// change.
    pub(super) fn can_any_flow_send(&self) -> bool {
        let network = self.engine.network();
        let ports = network.fabric().ports();
        let capacities: Vec<f64> = self.engine.link_capacities().collect();
        let is_usable =
            |link: usize| capacities[link] > 0.0 || (link >= 2 * ports && self.bandwidth.is_some());
        network.active_coflows().iter().any(|&slot| {
            let mut flows = network.coflow(slot).live_flows();
            flows.any(|flow| self.engine.flow_links(slot, flow).all(is_usable))
        })
    }

    fn stop_coflow(&mut self, index: usize, now: f64) -> StalledCoflow {
        let spec = &self.workload.coflows[index];
        let is_incomplete = |&parent: &usize| self.outcomes[parent].is_none();
        let parents = spec.parents.iter().copied().filter(is_incomplete);
        let parents = parents.map(|parent| self.workload.coflows[parent].id).collect();
        let (remaining_bytes, links) = match self.progress[index].slot {
            Some(slot) => (self.stop_flows(index, slot, now), self.failed_links(slot)),
            None => {
                self.extra_bytes
                    .extend(spec.flows.iter().map(|flow| (flow.src, flow.dst, -flow.bytes.get())));
                (spec.total_bytes(), Vec::new())
            }
        };
        StalledCoflow { index, id: spec.id, remaining_bytes, links, parents }
    }

    /// Counts what the incomplete flows of a coflow have sent. Returns their remaining bytes.
    fn stop_flows(&mut self, index: usize, slot: Slot, now: f64) -> f64 {
        let mut remaining_bytes = 0.0;
        for flow in 0..self.engine.network().coflow(slot).width() as u32 {
            let Some(remaining) = self.take_remaining_bytes(index, slot, flow, now) else { continue };
            let spec_index = self.engine.network().coflow(slot).spec_index(flow);
            let sent = self.flow_size(index, spec_index) - remaining;
            let on_former_paths = self.bytes_on_former_paths.remove(&(index, spec_index)).unwrap_or(0.0);
            self.trunk_usage.add_bytes(self.engine.flow_trunks(slot, flow), sent - on_former_paths);
            self.count_link_use(slot, flow, sent);
            remaining_bytes += remaining;
        }
        remaining_bytes
    }

    /// The names of links without capacity that incomplete flows of a coflow need. Flows without a path need one of the failed trunks.
    fn failed_links(&self, slot: Slot) -> Vec<String> {
        let coflow = self.engine.network().coflow(slot);
        let flows =
            (0..coflow.width() as u32).filter(|&flow| coflow.flow_state(flow) != FlowState::Completed);
        let needed = flows.flat_map(|flow| self.engine.flow_links(slot, flow));
        let capacities: Vec<f64> = self.engine.link_capacities().collect();
        let mut failed: BTreeSet<usize> = needed.filter(|&link| capacities[link] == 0.0).collect();
        if let Some(trunks) = &self.options.network.trunks {
            let first = 2 * self.engine.network().fabric().ports();
            let end = first + trunks.links();
            // Behind the trunks is only the dead end that flows without a path cross.
            let dead_end = failed.split_off(&end);
            failed.extend((first..end).filter(|&link| !dead_end.is_empty() && capacities[link] == 0.0));
        }
        failed.into_iter().map(|link| self.link_name(link)).collect()
    }
}
