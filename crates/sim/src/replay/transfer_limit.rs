//! Ends the flows of coflows that have reached their maximum transfer time.

use std::cmp::Reverse;

use weir_core::model::{CompletedFlow, FlowState, Slot};
use weir_core::ordered_f64::OrderedF64;

use super::{Observer, Replay};

impl Replay<'_> {
    /// The next time at which the flows of an active coflow end; infinite without such coflows.
    pub(super) fn next_transfer_limit(&mut self) -> f64 {
        while let Some(&Reverse((OrderedF64(at), index))) = self.transfer_limits.peek() {
            if self.progress[index].slot.is_some() {
                return at;
            }
            self.transfer_limits.pop();
        }
        f64::INFINITY
    }

    /// Ends the flows of coflows whose maximum transfer time ends until `until`.
    pub(super) fn end_transfers_until(&mut self, until: f64, observer: &mut dyn Observer) {
        while self.next_transfer_limit() <= until
            && let Some(Reverse((OrderedF64(at), index))) = self.transfer_limits.pop()
            && let Some(slot) = self.progress[index].slot
        {
            let width = self.engine.network().coflow(slot).width() as u32;
            for flow in 0..width {
                self.drop_rest_of_flow(index, slot, flow, at);
            }
            self.record_completions(observer);
        }
    }

    /// Ends a flow that has not completed. Its remaining bytes are not sent.
    fn drop_rest_of_flow(&mut self, index: usize, slot: Slot, flow: u32, at: f64) {
        let Some(remaining) = self.take_remaining_bytes(index, slot, flow, at) else { return };
        let key = (index, self.engine.network().coflow(slot).spec_index(flow));
        self.skip_link_use(slot, flow, remaining);
        // Policies learn the sent bytes, not the size.
        self.engine.close_flow(slot, flow, self.flow_size(index, key.1) - remaining, at);
        self.completed_flows.push(CompletedFlow { slot, flow, completed_at: at });
        self.progress[index].dropped_bytes += remaining;
        // Neither did the trunks of the last path carry these bytes.
        *self.bytes_on_former_paths.entry(key).or_insert(0.0) += remaining;
    }

    /// Counts a flow that ends at `at`. Returns its remaining bytes, which its ports do not carry; `None` if it has completed.
    pub(super) fn take_remaining_bytes(
        &mut self,
        index: usize,
        slot: Slot,
        flow: u32,
        at: f64,
    ) -> Option<f64> {
        let coflow = self.engine.network().coflow(slot);
        if coflow.flow_state(flow) == FlowState::Completed {
            return None;
        }
        let ((src, dst), size) = (coflow.flow_ports(flow), self.flow_size(index, coflow.spec_index(flow)));
        let remaining = (size - self.engine.sent_bytes(slot, flow, at)).clamp(0.0, size);
        let port = |number| self.port_numbering.port_with_number(number);
        self.extra_bytes.push((port(src), port(dst), -remaining));
        Some(remaining)
    }
}
