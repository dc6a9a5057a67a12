//! Contention: which coflows share ports (Saath's k_c), updated as flows end.

use crate::model::{Knowledge, Mask, Slot, View};
use crate::policy::contract::Event;

/// For each coflow, the others that share a port with it: live flows of both send from the port, or receive at it.
#[derive(Debug, Default)]
pub struct Contention {
    /// By slot, the slots of the coflows that share a port with it.
    overlaps: Vec<Mask>,
    /// Coflows whose set of ports may have changed.
    moved: Vec<Slot>,
}

impl Contention {
    /// Records an event. O(1), except O(coflows) for a coflow that completes.
    pub fn on<K: Knowledge>(&mut self, event: Event, view: &View<'_, K>) {
        match event {
            Event::Released(slot) => {
                self.overlaps.resize(view.slots(), Mask::default());
                self.moved.push(slot);
            }
            Event::FlowLive(slot, _) | Event::FlowHeld(slot, _) => {
                if self.moved.last() != Some(&slot) {
                    self.moved.push(slot);
                }
            }
            Event::FlowDone(slot, flow) => {
                let coflow = view.coflow(slot);
                let (src, dst) = coflow.ends_of(flow);
                let gone =
                    !coflow.send_mask().contains(src as usize) || !coflow.recv_mask().contains(dst as usize);
                if gone && self.moved.last() != Some(&slot) {
                    self.moved.push(slot);
                }
            }
            Event::Done(slot) => {
                self.moved.retain(|&s| s != slot);
                for overlap in &mut self.overlaps {
                    overlap.remove(slot as usize);
                }
                self.overlaps[slot as usize].clear();
            }
            Event::PortChanged => {}
        }
    }

    /// Updates all overlaps, and returns whether any may have changed. O(changed coflows x coflows x words of a port mask).
    pub fn update<K: Knowledge>(&mut self, view: &View<'_, K>) -> bool {
        let changed = !self.moved.is_empty();
        while let Some(slot) = self.moved.pop() {
            let coflow = view.coflow(slot);
            let (send, recv) = (coflow.send_mask(), coflow.recv_mask());
            for &other in view.active() {
                if other == slot {
                    continue;
                }
                let rival = view.coflow(other);
                if send.meets(rival.send_mask()) || recv.meets(rival.recv_mask()) {
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

    /// The slots that share a port with a coflow.
    pub fn rivals(&self, slot: Slot) -> &Mask {
        &self.overlaps[slot as usize]
    }
}
