//! Tracks one relay: its last report, and the difference between its rules and those of its last order.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_proto::relay::{PathSample, RelayCoflow, RelayMatch, RelayOrder, RelayPeer, RelayReport, RelayRule};

use super::rules::RegionRules;
use super::status::LinkBytes;
use super::{CONFIRMATION_TIMEOUT, LEASE, PRESENCE_TIMEOUT, RENEWAL_INTERVAL};
use crate::order_state::OrderState;

/// The coflows and rules of the relays in a region.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct RelayTable {
    pub coflows: BTreeMap<u32, RelayCoflow>,
    pub rules: Arc<RegionRules>,
}

/// The difference between two tables.
#[derive(Debug, Clone, Default)]
struct TableChanges {
    coflows: Vec<RelayCoflow>,
    removed_coflows: Vec<u32>,
    rules: Vec<RelayRule>,
    removed_rules: Vec<RelayMatch>,
}

impl RelayTable {
    /// The difference between a former table and this one. O(coflows x log coflows + rules).
    fn changes_since(&self, former: &RelayTable) -> TableChanges {
        let added = self.coflows.iter().filter(|(number, _)| !former.coflows.contains_key(number));
        let removed = former.coflows.keys().filter(|number| !self.coflows.contains_key(number));
        let mut changes = TableChanges {
            coflows: added.map(|(_, coflow)| coflow.clone()).collect(),
            removed_coflows: removed.copied().collect(),
            ..TableChanges::default()
        };
        if Arc::ptr_eq(&self.rules, &former.rules) {
            return changes;
        }
        let mut former_rules = former.rules.rules.iter().peekable();
        // The rules of a removed coflow are removed with it.
        let mut remove = |flows: RelayMatch| {
            if self.coflows.contains_key(&flows.coflow) {
                changes.removed_rules.push(flows);
            }
        };
        for rule in &self.rules.rules {
            while let Some(removed) = former_rules.next_if(|former| former.flows < rule.flows) {
                remove(removed.flows);
            }
            if former_rules.next_if(|former| former.flows == rule.flows) != Some(rule) {
                changes.rules.push(rule.clone());
            }
        }
        former_rules.for_each(|removed| remove(removed.flows));
        changes
    }
}

/// The differences between tables that were computed for other relays. Relays of one region mostly have the same tables.
#[derive(Default)]
pub(super) struct ChangeCache(Vec<(Arc<RelayTable>, Arc<RelayTable>, TableChanges)>);

impl ChangeCache {
    fn changes(&mut self, former: &Arc<RelayTable>, table: &Arc<RelayTable>) -> TableChanges {
        let is_known = |(from, to, _): &&(Arc<RelayTable>, Arc<RelayTable>, TableChanges)| {
            Arc::ptr_eq(from, former) && Arc::ptr_eq(to, table)
        };
        if let Some((_, _, changes)) = self.0.iter().find(is_known) {
            return changes.clone();
        }
        let changes = table.changes_since(former);
        self.0.push((Arc::clone(former), Arc::clone(table), changes.clone()));
        changes
    }
}

/// The state of a relay.
#[derive(Debug, Default)]
pub(super) struct Relay {
    /// Time of the last report, or of the connection before it.
    pub last_report_at: Option<f64>,
    is_connected: bool,
    /// Whether it receives orders.
    pub is_present: bool,
    /// Whether it refuses new flows, since it is about to stop.
    is_draining: bool,
    pub orders: OrderState,
    pub refused_orders: u64,
    pub unruled_flows: u64,
    /// The last measurements, by peer.
    pub paths: BTreeMap<u16, PathSample>,
    /// Relays of one region share a table.
    pub table: Arc<RelayTable>,
    ordered_table: Arc<RelayTable>,
    is_table_changed: bool,
}

impl Relay {
    pub fn connect(&mut self, now: f64) {
        (self.is_connected, self.orders.needs_full_order, self.is_draining) = (true, true, false);
        self.last_report_at = Some(now);
    }

    pub fn disconnect(&mut self) {
        self.is_connected = false;
    }

    /// Whether it can carry detours.
    pub fn accepts_detours(&self) -> bool {
        self.is_present && !self.is_draining
    }

    /// Applies the counters of a report, and its confirmation of an order. Returns whether the relay has begun or ceased to refuse flows.
    pub fn apply_header(&mut self, report: &RelayReport, epoch: u64, now: f64) -> bool {
        self.last_report_at = Some(now);
        self.refused_orders = report.refused_orders;
        self.unruled_flows = self.unruled_flows.saturating_add(report.unruled_flows.len() as u64);
        self.orders.confirm(report.applied, epoch, CONFIRMATION_TIMEOUT, now);
        std::mem::replace(&mut self.is_draining, report.is_draining) != report.is_draining
    }

    /// Stores a measurement. Returns the bytes that were sent since the last one.
    pub fn apply_path(&mut self, path: &PathSample) -> LinkBytes {
        let former = self.paths.insert(path.peer, *path).unwrap_or_default();
        let is_restart = path.sent_bytes < former.sent_bytes || path.detoured_bytes < former.detoured_bytes;
        let former = if is_restart { PathSample::default() } else { former };
        LinkBytes {
            sent: path.sent_bytes - former.sent_bytes,
            detoured: path.detoured_bytes - former.detoured_bytes,
        }
    }

    /// Returns whether the presence has changed.
    pub fn update_presence(&mut self, now: f64) -> bool {
        let is_recent = self.last_report_at.is_some_and(|at| now - at <= PRESENCE_TIMEOUT);
        let is_present = self.is_connected && is_recent;
        std::mem::replace(&mut self.is_present, is_present) != is_present
    }

    pub fn set_table(&mut self, table: &Arc<RelayTable>) {
        self.is_table_changed |= !Arc::ptr_eq(table, &self.table);
        self.table = Arc::clone(table);
    }

    /// The next order, if one is due. A full order contains the `peers`.
    pub fn take_order(
        &mut self,
        epoch: u64,
        peers: &impl Fn() -> Vec<RelayPeer>,
        cache: &mut ChangeCache,
        now: f64,
    ) -> Option<RelayOrder> {
        if !self.is_present {
            self.orders.needs_full_order = true;
            return None;
        }
        let is_full = std::mem::take(&mut self.orders.needs_full_order);
        let has_changes = is_full || std::mem::take(&mut self.is_table_changed);
        if !has_changes && now - self.orders.last_order_at < RENEWAL_INTERVAL {
            return None;
        }
        if is_full {
            self.ordered_table = Arc::default();
        }
        let peers = if is_full { peers() } else { Vec::new() };
        let mut order = RelayOrder {
            epoch,
            seq: self.orders.note_order(is_full, now),
            lease: LEASE,
            is_full,
            peers,
            ..RelayOrder::default()
        };
        if has_changes {
            let changes = cache.changes(&self.ordered_table, &self.table);
            let TableChanges { coflows, removed_coflows, rules, removed_rules } = changes;
            order = RelayOrder { coflows, removed_coflows, rules, removed_rules, ..order };
            self.ordered_table = Arc::clone(&self.table);
            self.is_table_changed = false;
        }
        Some(order)
    }
}
