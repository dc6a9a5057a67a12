//! The orders of a coordinator and their lease. Sans-I/O: callers pass the time.

use std::time::Duration;

use weir_proto::relay::RelayOrder;

use crate::forwarding::ForwardingTable;
use crate::overlay::Overlay;

/// Why an order is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RefusalReason {
    /// The epoch is older.
    #[error("the epoch is stale; another coordinator has taken over")]
    StaleEpoch,
    /// This order, or a later one, was accepted before.
    #[error("this order, or a later one, was accepted before")]
    Duplicate,
    /// An earlier order is missing.
    #[error("earlier orders are missing; waiting for a full order")]
    Gap,
    /// The orders contain no relay with this relay's number.
    #[error("the order does not contain this relay")]
    Absent,
}

/// The overlay as ordered, while the lease of the last order holds.
///
/// An order is accepted or refused as a whole. An epoch begins with a full order, and so does the sequence after a gap. When the
/// lease ends, flows take the direct path; relays and coflows stay known.
#[derive(Debug, Default)]
pub struct Orders {
    overlay: Overlay,
    epoch: u64,
    seq: u64,
    lease_end: Option<Duration>,
    applied_at: Option<Duration>,
    refused: u64,
}

impl Orders {
    /// Applies an order to relay `id`. O(order).
    ///
    /// # Errors
    /// [`RefusalReason`]; nothing changes.
    pub fn apply(&mut self, order: &RelayOrder, id: u16, now: Duration) -> Result<(), RefusalReason> {
        self.check(order, id).inspect_err(|_| self.refused += 1)?;
        self.overlay.apply(order);
        (self.epoch, self.seq) = (order.epoch, order.seq);
        self.lease_end = Some(now.saturating_add(order.lease));
        self.applied_at = Some(now);
        Ok(())
    }

    fn check(&self, order: &RelayOrder, id: u16) -> Result<(), RefusalReason> {
        if order.epoch < self.epoch {
            return Err(RefusalReason::StaleEpoch);
        }
        let is_same_epoch = order.epoch == self.epoch && self.seq > 0;
        if is_same_epoch && order.seq <= self.seq {
            return Err(RefusalReason::Duplicate);
        }
        let follows = is_same_epoch && order.seq == self.seq + 1 && self.lease_end.is_some();
        if !follows && !order.is_full {
            return Err(RefusalReason::Gap);
        }
        let has_relays = order.is_full || !order.peers.is_empty();
        if has_relays && !order.peers.iter().any(|peer| peer.id == id) {
            return Err(RefusalReason::Absent);
        }
        Ok(())
    }

    /// Ends the lease if its time has passed. Returns whether the overlay changed: it has no rules any more.
    pub fn expire(&mut self, now: Duration) -> bool {
        if self.lease_end.is_none_or(|end| now < end) {
            return false;
        }
        // Later orders are changes to rules that no longer exist: the next one has to be full.
        self.lease_end = None;
        self.overlay.rules = ForwardingTable::default();
        true
    }

    /// When the lease ends; none without a lease.
    pub fn lease_end(&self) -> Option<Duration> {
        self.lease_end
    }

    /// What the relay knows.
    pub fn overlay(&self) -> &Overlay {
        &self.overlay
    }

    /// The epoch and the sequence number of the last order; zeros before the first.
    pub fn applied(&self) -> (u64, u64) {
        (self.epoch, self.seq)
    }

    /// When the last order was applied; none before the first.
    pub fn applied_at(&self) -> Option<Duration> {
        self.applied_at
    }

    /// The number of refused orders.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use weir_proto::relay::{RelayCoflow, RelayMatch, RelayPeer, RelayRule, RuleScope};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn order(epoch: u64, seq: u64, is_full: bool) -> RelayOrder {
        let peer = RelayPeer {
            id: 1,
            name: "west".into(),
            address: "127.0.0.1:7710".parse().unwrap(),
            networks: vec![],
            region: 0,
        };
        let rule = RelayRule {
            flows: RelayMatch { coflow: 7, scope: RuleScope::Coflow },
            priority: 0,
            weight: 1.0,
            paths: vec![],
        };
        RelayOrder {
            epoch,
            seq,
            lease: SECOND,
            is_full,
            peers: if is_full { vec![peer] } else { vec![] },
            coflows: vec![RelayCoflow { number: 7, name: "shuffle".into(), service: "default".into() }],
            rules: vec![rule],
            ..RelayOrder::default()
        }
    }

    #[test]
    fn stale_repeated_and_missing_orders_are_refused() {
        let mut orders = Orders::default();
        let mut apply = |epoch, seq, is_full| orders.apply(&order(epoch, seq, is_full), 1, Duration::ZERO);
        assert_eq!(apply(2, 1, false), Err(RefusalReason::Gap));
        assert_eq!(apply(2, 1, true), Ok(()));
        assert_eq!(apply(2, 2, false), Ok(()));
        assert_eq!(apply(2, 2, false), Err(RefusalReason::Duplicate));
        assert_eq!(apply(2, 4, false), Err(RefusalReason::Gap));
        assert_eq!(apply(2, 4, true), Ok(()));
        assert_eq!(apply(1, 9, true), Err(RefusalReason::StaleEpoch));
        assert_eq!(apply(3, 1, false), Err(RefusalReason::Gap));
        assert_eq!(apply(3, 1, true), Ok(()));
        assert_eq!(orders.apply(&order(3, 2, true), 2, Duration::ZERO), Err(RefusalReason::Absent));
        assert_eq!((orders.applied(), orders.refused()), ((3, 1), 6));
    }

    #[test]
    fn rules_end_with_the_lease_and_return_with_a_full_order() {
        let mut orders = Orders::default();
        orders.apply(&order(1, 1, true), 1, Duration::ZERO).unwrap();
        assert!(!orders.expire(SECOND / 2));
        assert_eq!(orders.overlay().rules.len(), 1);
        assert!(orders.expire(SECOND));
        assert!(!orders.expire(SECOND));
        assert_eq!((orders.overlay().rules.len(), orders.overlay().coflows.len()), (0, 1));
        assert_eq!(orders.apply(&order(1, 2, false), 1, SECOND), Err(RefusalReason::Gap));
        orders.apply(&order(1, 3, true), 1, SECOND).unwrap();
        assert_eq!(orders.overlay().rules.len(), 1);
    }
}
