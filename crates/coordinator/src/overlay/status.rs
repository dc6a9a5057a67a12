//! Reads the state of an overlay: relays, routes, paths, coflows and counters.

use std::ops::Bound;
use std::sync::Arc;

use weir_proto::relay::{PathSample, RegionPair, RelayMatch, RelayPath, RelayRule, RuleScope};

use super::coflow::{Coflow, Pair};
use super::{Flow, Overlay, Registration, RegistrationDigest, Relay};
use crate::coflow_status::{CoflowSummary, Phase, WideAreaFields};

/// Bytes that relays sent over a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkBytes {
    /// All bytes.
    pub sent: u64,
    /// Bytes on a detour.
    pub detoured: u64,
}

impl LinkBytes {
    pub(super) fn add(&mut self, other: LinkBytes) {
        self.sent = self.sent.saturating_add(other.sent);
        self.detoured = self.detoured.saturating_add(other.detoured);
    }
}

/// State of a relay.
#[derive(Debug, Clone, PartialEq)]
pub struct RelayStatus {
    /// Whether it receives orders.
    pub present: bool,
    /// Seconds since its last report; `None` before its first connection.
    pub seconds_since_report: Option<f64>,
    /// The sequence number of its last order.
    pub ordered_seq: u64,
    /// The sequence number of the last order that it has applied.
    pub applied_seq: u64,
    /// Number of its coflows.
    pub coflows: usize,
    /// Number of its rules.
    pub rules: usize,
    /// Number of rules beyond the limit of a relay.
    pub omitted_rules: usize,
    /// Orders that it refused since it started.
    pub refused_orders: u64,
    /// Flows that it forwarded without a rule, since the start of the coordinator.
    pub unruled_flows: u64,
}

/// The last measurement of a path.
#[derive(Debug, Clone, PartialEq)]
pub struct PathStatus {
    /// The relay that reported the measurement.
    pub from: u16,
    /// The measurement.
    pub sample: PathSample,
}

/// The flows of an active coflow between two regions.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteStatus {
    /// Id of the coflow.
    pub coflow: Arc<str>,
    /// The service that it belongs to.
    pub service: Arc<str>,
    /// The regions of the senders and of the receivers.
    pub regions: RegionPair,
    /// Sum of the sizes of the flows.
    pub bytes: u64,
    /// Acknowledged bytes.
    pub acked_bytes: u64,
    /// Bytes sent on a detour.
    pub detoured_bytes: u64,
    /// Number of open flows.
    pub open_flows: u32,
    /// The lowest priority number of the rules at the source; `None` without a rule.
    pub priority: Option<u16>,
    /// The paths of the first rule at the source; empty for the direct path.
    pub paths: Vec<RelayPath>,
}

/// State of a coflow.
#[derive(Debug, Clone, PartialEq)]
pub struct CoflowStatus {
    /// Its number in orders to relays.
    pub number: u32,
    /// The last registration or update.
    pub registration: Arc<Registration>,
    /// The digest of the first registration, if other flows replaced its flows.
    pub first_digest: Option<RegistrationDigest>,
    /// Time of the registration.
    pub registered_at: f64,
    /// The same facts as in a list of coflows.
    pub summary: CoflowSummary,
    /// For each flow, the acknowledged fraction of its bytes: that of all flows between the same regions.
    pub flow_progress: Vec<f64>,
}

impl Overlay {
    /// States of all relays.
    pub fn relay_statuses(&self, now: f64) -> Vec<RelayStatus> {
        let status = |relay: &Relay| RelayStatus {
            present: relay.is_present,
            seconds_since_report: relay.last_report_at.map(|at| now - at),
            ordered_seq: relay.orders.ordered_seq,
            applied_seq: relay.orders.applied_seq,
            coflows: relay.table.coflows.len(),
            rules: relay.table.rules.rules.len(),
            omitted_rules: relay.table.rules.omitted,
            refused_orders: relay.refused_orders,
            unruled_flows: relay.unruled_flows,
        };
        self.relays.iter().map(status).collect()
    }

    /// The last measurements of all paths, by sending and receiving relay.
    pub fn path_statuses(&self) -> Vec<PathStatus> {
        let relays = (0..).zip(&self.relays);
        let paths = relays
            .flat_map(|(from, relay)| relay.paths.values().map(move |&sample| PathStatus { from, sample }));
        paths.collect()
    }

    /// Routes of the first `max` active coflows after an id, in the order of ids. Also returns the id of the last of these coflows, if
    /// more may follow.
    pub fn route_statuses(&self, after: Option<&str>, max: usize) -> (Vec<RouteStatus>, Option<Arc<str>>) {
        let coflows = self.coflows_after(after).filter(|coflow| coflow.completed_at.is_none());
        let coflows: Vec<&Coflow> = coflows.take(max).collect();
        let last = coflows.last().filter(|_| coflows.len() == max).map(|coflow| Arc::clone(&coflow.id));
        let pairs = coflows.iter().flat_map(|coflow| coflow.pairs.iter().map(move |pair| (coflow, pair)));
        (pairs.map(|(coflow, (&regions, pair))| self.route_status(coflow, regions, pair)).collect(), last)
    }

    fn route_status(&self, coflow: &Coflow, regions: RegionPair, pair: &Pair) -> RouteStatus {
        let rules = &self.region_tables[usize::from(regions.source)].rules.rules;
        // Rules are sorted by match: that for all flows between two regions, and those for numbers between them.
        let start =
            |scope| rules.partition_point(|rule| rule.flows < RelayMatch { coflow: coflow.number, scope });
        let pair_rule = rules.get(start(RuleScope::Pair(regions)));
        let pair_rule = pair_rule.filter(|rule| {
            rule.flows == RelayMatch { coflow: coflow.number, scope: RuleScope::Pair(regions) }
        });
        let is_range = |rule: &&RelayRule| {
            rule.flows.coflow == coflow.number
                && matches!(rule.flows.scope, RuleScope::Flows { pair, .. } if pair == Some(regions))
        };
        let ranges = start(RuleScope::Flows { pair: Some(regions), first: 0, last: 0 });
        let ranges = rules[ranges..].iter().take_while(is_range);
        let first = ranges.min_by_key(|rule| rule.priority).or(pair_rule);
        RouteStatus {
            coflow: Arc::clone(&coflow.id),
            service: Arc::clone(&coflow.service),
            regions,
            bytes: pair.bytes,
            acked_bytes: pair.acked,
            detoured_bytes: pair.detoured,
            open_flows: pair.open_flows(),
            priority: first.map(|rule| rule.priority),
            paths: first.map(|rule| rule.paths.clone()).unwrap_or_default(),
        }
    }

    /// The first `max` coflows after an id, in the order of ids, and as many that have failed.
    pub fn coflow_summaries(&self, after: Option<&str>, max: usize) -> Vec<CoflowSummary> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let failed = self.failed.range::<str, _>((start, Bound::Unbounded)).map(|(_, coflow)| coflow);
        self.coflows_after(after).take(max).chain(failed.take(max)).map(Coflow::summary).collect()
    }

    /// State of a coflow, registered or failed; `None` if no coflow has the id.
    pub fn coflow_status(&self, id: &str) -> Option<CoflowStatus> {
        let coflow = self.coflow(id).or_else(|| self.failed.get(id))?;
        let progress = |flow: &Flow| match coflow.pairs.get(&flow.pair) {
            _ if coflow.phase() == Phase::Completed => 1.0,
            Some(pair) => pair.fraction(),
            None => 0.0,
        };
        Some(CoflowStatus {
            number: coflow.number,
            registration: Arc::clone(&coflow.registration),
            first_digest: coflow.first_digest,
            registered_at: coflow.registered_at,
            summary: coflow.summary(),
            flow_progress: coflow.registration.flows.iter().map(progress).collect(),
        })
    }

    /// The service and the phase of a coflow, registered or failed; `None` if no coflow has the id.
    pub fn service_and_phase(&self, id: &str) -> Option<(String, Phase)> {
        let coflow = self.coflow(id).or_else(|| self.failed.get(id))?;
        Some((coflow.service.to_string(), coflow.phase()))
    }

    /// Number of coflows that have failed since the start.
    pub fn failed_count(&self) -> u64 {
        self.failed_count
    }

    /// Number of all coflows, of active coflows, and of flows.
    pub fn counts(&self) -> [usize; 3] {
        let active = self.coflows.values().filter(|coflow| coflow.completed_at.is_none()).count();
        [self.coflows.len(), active, self.usage.total().flows]
    }

    /// Rejected entries of reports since the start.
    pub fn rejected_entries(&self) -> u64 {
        self.rejected_entries
    }

    /// Bytes by link since the start.
    pub fn link_bytes(&self) -> &[LinkBytes] {
        &self.link_bytes
    }

    fn coflows_after(&self, after: Option<&str>) -> impl Iterator<Item = &Coflow> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.numbers.range::<str, _>((start, Bound::Unbounded)).map(|(_, number)| &self.coflows[number])
    }
}

impl Coflow {
    pub(super) fn phase(&self) -> Phase {
        match self.completed_at {
            _ if self.failure.is_some() => Phase::Failed,
            None => Phase::Active,
            Some(_) if self.is_abandoned => Phase::Abandoned,
            Some(_) => Phase::Completed,
        }
    }

    fn summary(&self) -> CoflowSummary {
        let Registration { service, application, .. } = &*self.registration;
        let state = self.phase();
        let completed_at = self.completed_at.filter(|_| state == Phase::Completed);
        let ended = self.pairs.values().filter(|pair| pair.has_ended());
        let ended_flows = ended.map(|pair| pair.flow_count).sum();
        let detoured_bytes = self.pairs.values().fold(0, |sum: u64, pair| sum.saturating_add(pair.detoured));
        CoflowSummary {
            id: self.id.to_string(),
            service: service.clone(),
            application: application.clone(),
            state,
            flow_count: self.flow_count,
            completed_flow_count: if completed_at.is_some() { self.flow_count } else { ended_flows },
            sent_bytes: self.pairs.values().map(|pair| pair.acked as f64).sum(),
            class: None,
            wide_area: WideAreaFields {
                predicted_seconds: self.predicted_seconds,
                measured_seconds: completed_at.map(|at| at - self.registered_at),
                detoured_bytes: Some(detoured_bytes),
                reason: self.failure.clone(),
            },
        }
    }
}
