//! Numbers the orders to a host, switch or relay, and finds lost ones by its confirmations.

/// The orders to one peer.
#[derive(Debug, Default)]
pub(crate) struct OrderState {
    /// Whether the next order has to be a full order.
    pub needs_full_order: bool,
    /// Sequence number of the last order sent to the peer.
    pub ordered_seq: u64,
    /// Sequence number of the last order that the peer reported as applied; 0 if that order was of another coordinator.
    pub applied_seq: u64,
    /// Time of the last order.
    pub last_order_at: f64,
    /// Start of the wait for a confirmation: the later of the last increase of `applied_seq` and the first order after that increase.
    confirmation_wait_start: f64,
}

impl OrderState {
    /// Applies the epoch and the sequence number of the order that the peer has applied. An order without confirmation for a longer time
    /// than `timeout` counts as lost.
    pub fn confirm(&mut self, (applied_epoch, seq): (u64, u64), epoch: u64, timeout: f64, now: f64) {
        let applied_seq = if applied_epoch == epoch { seq } else { 0 };
        if applied_seq > self.applied_seq {
            self.confirmation_wait_start = now;
        }
        self.applied_seq = applied_seq;
        let is_lost = applied_seq < self.ordered_seq && now - self.confirmation_wait_start > timeout;
        self.needs_full_order |= applied_seq > self.ordered_seq || is_lost;
    }

    /// Notes that the next order is sent. Returns its sequence number.
    pub fn note_order(&mut self, is_full: bool, now: f64) -> u64 {
        if is_full || self.applied_seq == self.ordered_seq {
            self.confirmation_wait_start = now;
        }
        self.last_order_at = now;
        self.ordered_seq += 1;
        self.ordered_seq
    }
}
