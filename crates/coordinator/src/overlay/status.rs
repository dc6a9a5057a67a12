//! Reads the state of an overlay: relays, routes, paths, coflows and counters.

use std::ops::Bound;
use std::sync::Arc;

use serde::Serialize;
use utoipa::ToSchema;
use weir_proto::Network;
use weir_proto::relay::{PathSample, RegionPair, RelayMatch, RelayPath, RelayRule, RuleScope};

use super::coflow::{Coflow, Pair};
use super::{Flow, Overlay, Registration, RegistrationDigest, Relay};
use crate::coflow_status::{CoflowSummary, Phase, WideAreaFields};
use crate::config::{self, RelayAddress};

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
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct RelayState {
    /// Its name.
    pub name: String,
    /// Its region.
    pub region: String,
    /// Where it accepts other relays: an address or a name, and a port.
    pub address: String,
    /// The address that a name has; `null` if it is not resolved yet, and for addresses.
    pub resolved: Option<String>,
    /// The networks that it serves.
    pub networks: Vec<String>,
    /// Whether it is connected and sends reports.
    pub present: bool,
    /// Seconds since its last report; `null` before its first connection.
    pub seconds_since_report: Option<f64>,
    /// The sequence number of the last order sent to it.
    pub ordered: u64,
    /// The sequence number of the last order that it has applied.
    pub applied: u64,
    /// Number of coflows that it forwards.
    pub coflows: usize,
    /// Number of its rules.
    pub rules: usize,
    /// Number of rules beyond the limit of a relay.
    #[serde(skip)]
    pub omitted_rules: usize,
    /// Orders that it refused since it started.
    pub refused_orders: u64,
    /// Flows that it forwarded without a rule, since the start of the coordinator.
    pub unruled_flows: u64,
}

/// The flows of an active coflow between two regions.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct RouteState {
    /// The coflow.
    pub coflow: String,
    /// The service that it belongs to.
    #[serde(skip)]
    pub service: Arc<str>,
    /// The region of the senders.
    pub from: String,
    /// The region of the receivers.
    pub to: String,
    /// The priority of the flows that are served first: 0 before 1; `null` without a rule.
    pub priority: Option<u16>,
    /// The next regions and their fractions of the bytes, such as `asia 0.25`. Empty: the direct path.
    pub via: Vec<String>,
    /// Sum of the sizes of the flows.
    pub bytes: u64,
    /// Bytes that the receivers have acknowledged.
    pub acked_bytes: u64,
    /// Bytes that the relays of the senders sent on a detour.
    pub detoured_bytes: u64,
    /// Number of open flows.
    pub open_flows: u32,
}

/// The last measurement of the path from one relay to another.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct PathState {
    /// The relay that sends, and measures.
    pub from: String,
    /// The relay that receives.
    pub to: String,
    /// The region of the sending relay.
    pub from_region: String,
    /// The region of the receiving relay.
    pub to_region: String,
    /// Whether all connections are established.
    pub connected: bool,
    /// Bytes per second while data waits; `null` if no data waited.
    pub bytes_per_second: Option<u64>,
    /// The lowest round-trip time.
    pub min_rtt_seconds: Option<f64>,
    /// The smoothed round-trip time.
    pub rtt_seconds: Option<f64>,
    /// The fraction of segments that were retransmitted since the connection began; `null` before the first segment.
    pub retransmitted: Option<f64>,
    /// Bytes sent since the relay started.
    pub sent_bytes: u64,
    /// Bytes of these that belong to flows on a detour.
    pub detoured_bytes: u64,
}

impl PathState {
    /// A measurement with the names of its relays.
    pub fn new(from: u16, sample: &PathSample, overlay: &config::Overlay) -> PathState {
        let name = |relay: u16| overlay.relays[usize::from(relay)].name.clone();
        let region = |relay: u16| overlay.region_of(relay).to_owned();
        let retransmitted = sample.retransmitted_segments as f64 / sample.segments as f64;
        PathState {
            from: name(from),
            to: name(sample.peer),
            from_region: region(from),
            to_region: region(sample.peer),
            connected: sample.is_connected,
            bytes_per_second: sample.rate,
            min_rtt_seconds: sample.min_rtt.map(|rtt| rtt.as_secs_f64()),
            rtt_seconds: sample.rtt.map(|rtt| rtt.as_secs_f64()),
            retransmitted: (sample.segments > 0).then_some(retransmitted),
            sent_bytes: sample.sent_bytes,
            detoured_bytes: sample.detoured_bytes,
        }
    }
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
    /// States of all relays, in order of their numbers.
    pub fn relay_states(&self, now: f64) -> Vec<RelayState> {
        let relays = (0..).zip(self.config.relays.iter().zip(&self.relays));
        let state = |(number, (config, relay)): (u16, (&config::Relay, &Relay))| RelayState {
            name: config.name.clone(),
            region: self.config.region_of(number).to_owned(),
            address: config.address.to_string(),
            resolved: match config.address {
                RelayAddress::Fixed(_) => None,
                RelayAddress::Name { .. } => {
                    self.addresses[usize::from(number)].map(|address| address.to_string())
                }
            },
            networks: config.networks.iter().map(Network::to_string).collect(),
            present: relay.is_present,
            seconds_since_report: relay.last_report_at.map(|at| now - at),
            ordered: relay.orders.ordered_seq,
            applied: relay.orders.applied_seq,
            coflows: relay.table.coflows.len(),
            rules: relay.table.rules.rules.len(),
            omitted_rules: relay.table.rules.omitted,
            refused_orders: relay.refused_orders,
            unruled_flows: relay.unruled_flows,
        };
        relays.map(state).collect()
    }

    /// For each relay, whether it is connected and sends reports.
    pub fn presences(&self) -> Vec<bool> {
        self.relays.iter().map(|relay| relay.is_present).collect()
    }

    /// The last measurements of all paths, with the sending relay, by sending and receiving relay.
    pub fn path_samples(&self) -> Vec<(u16, PathSample)> {
        let relays = (0..).zip(&self.relays);
        relays.flat_map(|(from, relay)| relay.paths.values().map(move |&sample| (from, sample))).collect()
    }

    /// Routes of the first `max` active coflows after an id, in the order of ids. Also returns the id of the last of these coflows, if
    /// more may follow.
    pub fn routes(&self, after: Option<&str>, max: usize) -> (Vec<RouteState>, Option<Arc<str>>) {
        let coflows = self.coflows_after(after).filter(|coflow| coflow.ended_at.is_none());
        let coflows: Vec<&Coflow> = coflows.take(max).collect();
        let last = coflows.last().filter(|_| coflows.len() == max).map(|coflow| Arc::clone(&coflow.id));
        let pairs = coflows.iter().flat_map(|coflow| coflow.pairs.iter().map(move |pair| (coflow, pair)));
        (pairs.map(|(coflow, (&regions, pair))| self.route_state(coflow, regions, pair)).collect(), last)
    }

    fn route_state(&self, coflow: &Coflow, regions: RegionPair, pair: &Pair) -> RouteState {
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
        let name = |region: u16| self.config.area.regions()[usize::from(region)].clone();
        let via = |path: &RelayPath| format!("{} {:.3}", name(path.next_region), path.fraction);
        RouteState {
            coflow: coflow.id.to_string(),
            service: Arc::clone(&coflow.service),
            from: name(regions.source),
            to: name(regions.destination),
            priority: first.map(|rule| rule.priority),
            via: first.into_iter().flat_map(|rule| &rule.paths).map(via).collect(),
            bytes: pair.bytes,
            acked_bytes: pair.acked,
            detoured_bytes: pair.detoured,
            open_flows: pair.open_flows(),
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
        let active = self.coflows.values().filter(|coflow| coflow.ended_at.is_none()).count();
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
        match self.ended_at {
            _ if self.failure.is_some() => Phase::Failed,
            None => Phase::Active,
            Some(_) if self.is_abandoned => Phase::Abandoned,
            Some(_) => Phase::Completed,
        }
    }

    fn summary(&self) -> CoflowSummary {
        let Registration { service, application, .. } = &*self.registration;
        let state = self.phase();
        let completed_at = self.ended_at.filter(|_| state == Phase::Completed);
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
            pause: None,
            wide_area: WideAreaFields {
                predicted_seconds: self.predicted_seconds,
                measured_seconds: completed_at.map(|at| at - self.registered_at),
                detoured_bytes: Some(detoured_bytes),
                reason: self.failure.clone(),
            },
        }
    }
}
