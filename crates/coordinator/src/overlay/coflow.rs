//! Defines coflows between regions: their flows by pairs of relays and by receiver, and their progress.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_core::wide_area::detour::CoflowPaths;
use weir_core::wide_area::flow_groups;
use weir_proto::relay::GroupProgress;

use super::decision::CoflowDemand;
use super::{ABANDONMENT_TIMEOUT, PRESENCE_TIMEOUT};
use crate::config;
use crate::control_plane::CoflowOutline;

/// A coflow as its framework registers it.
#[derive(Debug, Clone, PartialEq)]
pub struct Registration {
    /// The service that it belongs to.
    pub service: String,
    /// An application of that service.
    pub application: String,
    /// Its flows; at least one leads to another region.
    pub flows: Vec<Flow>,
}

impl From<&Registration> for CoflowOutline {
    fn from(registration: &Registration) -> CoflowOutline {
        let outline = CoflowOutline {
            service: registration.service.clone(),
            application: registration.application.clone(),
            weight: None,
            deadline: None,
            flows: 0,
            bytes: None,
        };
        outline.with_flows(registration.flows.iter().map(|flow| Some(flow.bytes)))
    }
}

/// One flow of a coflow.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// The sender: an address, or the name of its relay.
    pub from: String,
    /// The receiver. Flows with the same receiver are a flow group.
    pub to: String,
    /// The relay of the sender, by number.
    pub source: u16,
    /// The relay of the receiver.
    pub destination: u16,
    /// Size in bytes.
    pub bytes: u64,
}

/// A coflow with what stays the same if the coordinator restarts.
#[derive(Debug, Clone, PartialEq)]
pub struct Restored {
    /// Its number in orders to relays.
    pub number: u32,
    /// Its last registration or update.
    pub registration: Registration,
    /// The flows of the first registration, if an update replaced them.
    pub first_flows: Option<Vec<Flow>>,
    /// Time of its registration; negative before the start.
    pub registered_at: f64,
    /// Estimated time from its registration to its completion, in seconds: that of the first decision after the last update before
    /// its first byte.
    pub predicted_seconds: Option<f64>,
}

/// The flows of a coflow between two relays in different regions.
#[derive(Debug, Clone, Default)]
pub(super) struct Pair {
    /// Sum of their sizes.
    pub bytes: u64,
    /// The indices of the flows by flow group.
    pub groups: BTreeMap<usize, Vec<u32>>,
    /// Acknowledged bytes, over restarts of the relay.
    pub acked: u64,
    /// Bytes that the relay of the senders sent on a detour, over restarts of the relay.
    pub detoured: u64,
    /// Acknowledged bytes and bytes on a detour since the start of the relay.
    last_reported: (u64, u64),
    /// Number of open flows.
    pub open_flows: u32,
}

impl Pair {
    /// Applies reported progress. A count that decreases has restarted from 0. Returns whether further bytes are acknowledged.
    pub fn apply(&mut self, progress: &GroupProgress) -> bool {
        let increase = |count: u64, last: u64| count.checked_sub(last).unwrap_or(count);
        let (acked, detoured) = (progress.acked_bytes, progress.detoured_bytes);
        let further = increase(acked, self.last_reported.0);
        self.acked = self.acked.saturating_add(further);
        self.detoured = self.detoured.saturating_add(increase(detoured, self.last_reported.1));
        (self.last_reported, self.open_flows) = ((acked, detoured), progress.open_flows);
        further > 0
    }

    pub fn has_ended(&self) -> bool {
        self.acked >= self.bytes && self.open_flows == 0
    }

    /// Fraction of the bytes that is acknowledged.
    pub fn fraction(&self) -> f64 {
        if self.acked >= self.bytes { 1.0 } else { self.acked as f64 / self.bytes as f64 }
    }
}

/// A coflow, active or completed.
#[derive(Debug)]
pub(super) struct Coflow {
    pub id: Arc<str>,
    pub service: Arc<str>,
    pub number: u32,
    pub registration: Registration,
    /// The flows of the first registration, if an update replaced them. A repeated registration is compared with them.
    pub first_flows: Option<Vec<Flow>>,
    /// Rises with each update.
    pub revision: u32,
    pub registered_at: f64,
    /// When its last bytes were acknowledged.
    pub completed_at: Option<f64>,
    /// Whether relays no longer know it.
    pub is_withdrawn: bool,
    /// Whether it has lost a relay while flows were incomplete.
    is_interrupted: bool,
    /// The last time with an open flow or further bytes.
    active_at: f64,
    /// Whether it has ended without all bytes, see [`ABANDONMENT_TIMEOUT`].
    pub is_abandoned: bool,
    /// See [`Restored::predicted_seconds`].
    pub predicted_seconds: Option<f64>,
    /// By relays of the senders and of the receivers, in different regions.
    pub pairs: BTreeMap<(u16, u16), Pair>,
    /// The pairs of relays by direct link and flow group.
    pub pairs_by_group: BTreeMap<(u32, usize), Vec<(u16, u16)>>,
    /// Bytes of each flow group, including those inside a region.
    group_sizes: Vec<f64>,
    /// The paths that the first decision after the last update chose.
    pub paths: Option<CoflowPaths>,
}

impl Coflow {
    pub fn new(id: &str, restored: Restored, overlay: &config::Overlay) -> Coflow {
        let Restored { number, registration, first_flows, registered_at, predicted_seconds } = restored;
        let mut coflow = Coflow {
            id: id.into(),
            service: registration.service.as_str().into(),
            number,
            first_flows,
            revision: 0,
            registered_at,
            completed_at: None,
            is_withdrawn: false,
            is_interrupted: false,
            active_at: registered_at,
            is_abandoned: false,
            predicted_seconds,
            pairs: BTreeMap::new(),
            pairs_by_group: BTreeMap::new(),
            group_sizes: Vec::new(),
            paths: None,
            registration,
        };
        coflow.index_flows(overlay);
        coflow
    }

    /// Whether a registration is the first one of this coflow.
    pub fn is_registered_as(&self, other: &Registration) -> bool {
        let Registration { service, application, flows } = &self.registration;
        let first_flows = self.first_flows.as_ref().unwrap_or(flows);
        (service, application, first_flows) == (&other.service, &other.application, &other.flows)
    }

    /// Replaces the flows. The progress of pairs of relays stays the same. Frameworks update sizes until data moves, so an estimate of
    /// earlier sizes does not count.
    pub fn replace_flows(&mut self, flows: Vec<Flow>, overlay: &config::Overlay) {
        let former = std::mem::replace(&mut self.registration.flows, flows);
        self.first_flows.get_or_insert(former);
        self.revision = self.revision.wrapping_add(1);
        (self.completed_at, self.is_withdrawn, self.is_abandoned) = (None, false, false);
        self.paths = None;
        if self.pairs.values().all(|pair| pair.acked == 0) {
            self.predicted_seconds = None;
        }
        self.index_flows(overlay);
    }

    fn index_flows(&mut self, overlay: &config::Overlay) {
        let mut former_pairs = std::mem::take(&mut self.pairs);
        self.pairs_by_group.clear();
        self.group_sizes.clear();
        let mut groups: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, flow) in (0..).zip(&self.registration.flows) {
            let next_group = groups.len();
            let group = *groups.entry(&flow.to).or_insert(next_group);
            if group == next_group {
                self.group_sizes.push(0.0);
            }
            self.group_sizes[group] += flow.bytes as f64;
            let relays = (flow.source, flow.destination);
            let Some(link) = overlay.link_between(relays.0, relays.1) else { continue };
            let pair = self.pairs.entry(relays).or_default();
            pair.bytes = pair.bytes.saturating_add(flow.bytes);
            let flows = pair.groups.entry(group).or_default();
            if flows.is_empty() {
                self.pairs_by_group.entry((link, group)).or_default().push(relays);
            }
            flows.push(index);
        }
        for (relays, pair) in &mut self.pairs {
            if let Some(former) = former_pairs.remove(relays) {
                let (bytes, groups) = (pair.bytes, std::mem::take(&mut pair.groups));
                *pair = Pair { bytes, groups, ..former };
            }
        }
    }

    /// Whether all bytes between regions are acknowledged, and no flow is open; or whether the coflow is abandoned.
    pub fn has_ended(&self) -> bool {
        self.is_abandoned || self.pairs.values().all(Pair::has_ended)
    }

    /// Notes that a relay is lost. Its flows are not open any more, and may continue directly.
    pub fn interrupt(&mut self, relay: u16, now: f64) {
        for (_, pair) in self.pairs.iter_mut().filter(|((from, to), _)| relay == *from || relay == *to) {
            let has_begun = pair.acked > 0 || pair.open_flows > 0;
            if has_begun && !pair.has_ended() {
                (self.is_interrupted, self.active_at) = (true, now);
            }
        }
        self.pairs
            .iter_mut()
            .filter(|((from, _), _)| relay == *from)
            .for_each(|(_, pair)| pair.open_flows = 0);
    }

    /// Notes that a flow is open, or that further bytes are acknowledged.
    pub fn note_activity(&mut self, now: f64) {
        (self.active_at, self.is_abandoned) = (now, false);
    }

    /// Abandons an interrupted coflow if it is idle for too long. Returns whether an active coflow has ended. A relay that connects again
    /// reports its open flows within [`PRESENCE_TIMEOUT`].
    pub fn check_interruption(&mut self, now: f64) -> bool {
        if !self.is_interrupted || self.completed_at.is_some() {
            return false;
        }
        let idle = now - self.active_at;
        self.is_abandoned = idle > ABANDONMENT_TIMEOUT;
        idle > PRESENCE_TIMEOUT && self.has_ended()
    }

    /// The coflow as a decision needs it.
    pub fn demand(&self, overlay: &config::Overlay) -> CoflowDemand {
        let links = overlay.area.links();
        let (mut bytes, mut remaining) = (vec![0.0; links], vec![0.0; links]);
        for (&(source, destination), pair) in &self.pairs {
            let Some(link) = overlay.link_between(source, destination) else { continue };
            // Rules apply until the coflow has completed, so each pair has at least one remaining byte.
            remaining[link as usize] += (pair.bytes.saturating_sub(pair.acked) as f64).max(1.0);
            bytes[link as usize] += (pair.bytes as f64).max(1.0);
        }
        let by_link = |bytes: Vec<f64>| (0..).zip(bytes).filter(|(_, bytes)| *bytes > 0.0).collect();
        CoflowDemand {
            number: self.number,
            revision: self.revision,
            bytes: by_link(bytes),
            remaining: by_link(remaining),
            groups: self.pairs_by_group.keys().copied().collect(),
            group_order: flow_groups::order_largest_first(&self.group_sizes),
            paths: self.paths.clone(),
        }
    }
}
