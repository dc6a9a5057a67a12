//! Moves flows to other paths when cables fail or are repaired.

use weir_core::model::topology::CableChange;
use weir_core::model::{FlowState, LinkId, Slot};

use super::Replay;

impl Replay<'_> {
    /// Applies the events of cables until `until`, and moves flows to other paths where necessary.
    pub(super) fn change_cables(&mut self, until: f64, now: f64) {
        let due = self.cable_events.partition_point(|event| event.time.get() <= until);
        let (due_events, later) = self.cable_events.split_at(due);
        self.cable_events = later;
        let changes: Vec<(LinkId, CableChange)> =
            due_events.iter().map(|event| (event.cable, event.change)).collect();
        self.trunk_usage.add_capacities(self.engine.trunk_capacities(), now);
        if self.engine.network().fabric().trunk_links().is_empty() {
            self.count_bytes_on_former_paths(now);
        }
        let rerouted = self.engine.change_cables(&changes, now);
        self.record_capacities(now);
        for slot in rerouted {
            self.reroute_coflow(slot, now);
        }
    }

    /// Counts the bytes that flows have sent over their paths so far. For policies that decide over ports only, whose flows are
    /// not laid out again.
    fn count_bytes_on_former_paths(&mut self, now: f64) {
        for i in 0..self.engine.network().active_coflows().len() {
            let slot = self.engine.network().active_coflows()[i];
            for flow in 0..self.engine.network().coflow(slot).width() as u32 {
                let network = self.engine.network();
                if network.coflow(slot).flow_state(flow) != FlowState::Completed {
                    self.leave_path(slot, flow, now);
                }
            }
        }
    }

    /// Counts the bytes that a flow has sent over a path that it may leave.
    fn leave_path(&mut self, slot: Slot, flow: u32, now: f64) {
        let sent_bytes = self.engine.sent_bytes(slot, flow, now);
        let key = (self.coflow_by_slot[slot as usize], self.engine.network().coflow(slot).spec_index(flow));
        let before = self.bytes_on_former_paths.insert(key, sent_bytes).unwrap_or(0.0);
        self.trunk_usage.add_bytes(self.engine.flow_trunks(slot, flow), sent_bytes - before);
        self.count_link_use(slot, flow, sent_bytes);
    }

    /// Moves the flows of a coflow to their present paths. They keep their progress.
    fn reroute_coflow(&mut self, slot: Slot, now: f64) {
        let index = self.coflow_by_slot[slot as usize];
        for flow in 0..self.engine.network().coflow(slot).width() as u32 {
            if self.engine.network().coflow(slot).flow_state(flow) != FlowState::Completed {
                self.leave_path(slot, flow, now);
            }
        }
        self.engine.replace_flows(slot, &self.numbered_spec(index), now);
        self.index_waiting_flows(index, slot);
    }
}
