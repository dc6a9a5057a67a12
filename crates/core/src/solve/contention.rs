//! Contention: which coflows share links (Saath's k_c), updated as flows end. Ports that limit no flow do not count, and neither do
//! trunks that the ports behind them cannot exceed ([`Trunks::contended_trunks`]).
//!
//! [`Trunks::contended_trunks`]: crate::model::Trunks::contended_trunks

use crate::model::{BitSet, Knowledge, Slot, View};
use crate::policy::interface::Event;

/// For each coflow, the others that share a link with it: live flows of both send from the port, receive at it, or cross
/// the trunk.
#[derive(Debug, Default)]
pub struct Contention {
    /// By slot, the slots of the coflows that share a link with it.
    overlaps: Vec<BitSet>,
    /// Coflows whose set of links may have changed.
    changed_coflows: Vec<Slot>,
    /// The trunks that count, at the last update.
    contended_trunks: BitSet,
}

impl Contention {
    /// Records an event. O(1), except O(coflows) for a coflow that completes.
    pub fn on_event<K: Knowledge>(&mut self, event: Event, view: &View<'_, K>) {
        match event {
            Event::CoflowReleased(slot) => {
                self.overlaps.resize(view.slots(), BitSet::default());
                self.changed_coflows.push(slot);
            }
            Event::FlowLive(slot, _) | Event::FlowInterrupted(slot, _) => {
                if self.changed_coflows.last() != Some(&slot) {
                    self.changed_coflows.push(slot);
                }
            }
            Event::FlowCompleted(slot, flow) => {
                let coflow = view.coflow(slot);
                let (src, dst) = coflow.flow_ports(flow);
                let trunks = coflow.live_trunks();
                let left_link = !coflow.sending_ports().contains(src as usize)
                    || !coflow.receiving_ports().contains(dst as usize)
                    || coflow.flow_trunks(flow).iter().any(|&trunk| !trunks.contains(trunk as usize));
                if left_link && self.changed_coflows.last() != Some(&slot) {
                    self.changed_coflows.push(slot);
                }
            }
            Event::CoflowCompleted(slot) => {
                self.changed_coflows.retain(|&s| s != slot);
                for overlap in &mut self.overlaps {
                    overlap.remove(slot as usize);
                }
                self.overlaps[slot as usize].clear();
            }
            Event::CapacityChanged => {}
        }
    }

    /// Updates all overlaps, and returns whether any may have changed. O(changed coflows x coflows x words of a mask of links).
    pub fn update_overlaps<K: Knowledge>(&mut self, view: &View<'_, K>) -> bool {
        if self.contended_trunks != *view.fabric().contended_trunks() {
            // A cable has failed or changed.
            self.contended_trunks.copy_from(view.fabric().contended_trunks());
            self.changed_coflows.clear();
            self.changed_coflows.extend_from_slice(view.active_coflows());
        }
        let changed = !self.changed_coflows.is_empty();
        let ports_limit = view.fabric().has_limiting_ports();
        while let Some(slot) = self.changed_coflows.pop() {
            let coflow = view.coflow(slot);
            let (send, recv, trunks) =
                (coflow.sending_ports(), coflow.receiving_ports(), coflow.live_trunks());
            for &other in view.active_coflows() {
                if other == slot {
                    continue;
                }
                let other_coflow = view.coflow(other);
                let share_port = send.intersects(other_coflow.sending_ports())
                    || recv.intersects(other_coflow.receiving_ports());
                let share_trunk = trunks.intersects_in(other_coflow.live_trunks(), &self.contended_trunks);
                if ports_limit && share_port || share_trunk {
                    self.overlaps[slot as usize].insert(other as usize);
                    self.overlaps[other as usize].insert(slot as usize);
                } else {
                    self.overlaps[slot as usize].remove(other as usize);
                    self.overlaps[other as usize].remove(slot as usize);
                }
            }
        }
        changed
    }

    /// The slots that share a link with a coflow.
    pub fn contenders(&self, slot: Slot) -> &BitSet {
        &self.overlaps[slot as usize]
    }
}
