//! Contention: which coflows share links (Saath's k_c), updated as flows end. Only the links that can fill count
//! ([`Fabric::contended_links`]).
//!
//! [`Fabric::contended_links`]: crate::model::Fabric::contended_links

use crate::model::{BitSet, Knowledge, Slot, View};
use crate::policy::interface::Event;

/// For each coflow, the others that share a link with it: live flows of both cross it.
#[derive(Debug, Default)]
pub struct Contention {
    /// By slot, the slots of the coflows that share a link with it.
    overlaps: Vec<BitSet>,
    /// Coflows whose set of links may have changed.
    changed_coflows: Vec<Slot>,
    /// The links that count, at the last update.
    contended_links: BitSet,
    /// Those of one coflow.
    link_buffer: BitSet,
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
                let left_link = coflow.flow_links(flow).any(|link| !coflow.live_links().contains(link));
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
        if self.contended_links != *view.fabric().contended_links() {
            // A cable has failed or changed.
            self.contended_links.copy_from(view.fabric().contended_links());
            self.changed_coflows.clear();
            self.changed_coflows.extend_from_slice(view.active_coflows());
        }
        let changed = !self.changed_coflows.is_empty();
        while let Some(slot) = self.changed_coflows.pop() {
            self.link_buffer.copy_from(view.coflow(slot).live_links());
            self.link_buffer.intersect_with(&self.contended_links);
            for &other in view.active_coflows() {
                if other == slot {
                    continue;
                }
                if self.link_buffer.intersects(view.coflow(other).live_links()) {
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
