//! Defines coflows between regions: their flows by pairs of regions and by flow group, and their progress.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ring::digest::{Context, SHA256};
use weir_proto::relay::{GroupProgress, RegionPair, RelayCoflow};

use super::bandwidth::LinkUse;
use super::decision::{ChosenPaths, CoflowDemand};
use super::flows::{Flow, FlowIndex};
use super::{ABANDONMENT_TIMEOUT, PRESENCE_TIMEOUT};
use crate::config;
use crate::control_plane::CoflowOutline;

/// See [`Registration::digest`].
pub type RegistrationDigest = [u8; 32];

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

impl Registration {
    /// SHA-256 of its names and flows: a coflow keeps that of its first registration in place of the flows.
    pub fn digest(&self) -> RegistrationDigest {
        let mut digest = Context::new(&SHA256);
        let mut add_text = |text: &str| {
            digest.update(&(text.len() as u64).to_le_bytes());
            digest.update(text.as_bytes());
        };
        add_text(&self.service);
        add_text(&self.application);
        for flow in &self.flows {
            add_text(&flow.from);
            add_text(&flow.to);
            let numbers = flow.numbers.map_or(String::new(), |(first, last)| format!("{first} {last}"));
            add_text(&format!("{} {numbers}", flow.bytes));
        }
        let digest = digest.finish();
        digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
    }
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

/// A coflow with what stays the same if the coordinator restarts.
#[derive(Debug, Clone, PartialEq)]
pub struct Restored {
    /// Its number in orders to relays.
    pub number: u32,
    /// Its last registration or update.
    pub registration: Registration,
    /// The digest of the first registration, if an update replaced its flows.
    pub first_digest: Option<RegistrationDigest>,
    /// Time of its registration; negative before the start.
    pub registered_at: f64,
    /// Estimated time from its registration to its completion, in seconds: that of the first decision after the last update before
    /// its first byte.
    pub predicted_seconds: Option<f64>,
}

/// The flows of a coflow between two regions.
#[derive(Debug, Clone, Default)]
pub(super) struct Pair {
    /// Sum of their sizes.
    pub bytes: u64,
    /// Number of registered flows.
    pub flow_count: usize,
    /// Acknowledged bytes, over restarts of relays.
    pub acked: u64,
    /// Bytes that the relays of the senders sent on a detour, over restarts of relays.
    pub detoured: u64,
    /// Number of open flows.
    open_flows: u64,
    /// What relays reported last, by relays of the senders and of the receivers.
    relays: BTreeMap<(u16, u16), LastReport>,
}

/// The last report about the flows between two relays.
#[derive(Debug, Clone, Copy, Default)]
struct LastReport {
    /// Acknowledged bytes since the start of the relay.
    acked: u64,
    /// Bytes on a detour since the start of the relay.
    detoured: u64,
    open_flows: u32,
}

impl Pair {
    /// Applies reported progress. A count that decreases has restarted from 0. Returns whether further bytes are acknowledged.
    pub fn apply(&mut self, progress: &GroupProgress) -> bool {
        let increase = |count: u64, last: u64| count.checked_sub(last).unwrap_or(count);
        let &GroupProgress { source, destination, acked_bytes, detoured_bytes, open_flows, .. } = progress;
        let last = self.relays.entry((source, destination)).or_default();
        let further = increase(acked_bytes, last.acked);
        self.acked = self.acked.saturating_add(further);
        self.detoured = self.detoured.saturating_add(increase(detoured_bytes, last.detoured));
        self.open_flows = self.open_flows - u64::from(last.open_flows) + u64::from(open_flows);
        *last = LastReport { acked: acked_bytes, detoured: detoured_bytes, open_flows };
        further > 0
    }

    /// Number of open flows.
    pub fn open_flows(&self) -> u32 {
        u32::try_from(self.open_flows).unwrap_or(u32::MAX)
    }

    /// Notes that a relay is lost: flows that begin there are not open any more. Returns whether flows over the relay have begun.
    fn lose(&mut self, relay: u16) -> bool {
        let ends = |(from, to): (u16, u16)| relay == from || relay == to;
        let has_begun = self.relays.keys().any(|&relays| ends(relays));
        let begin_there = self.relays.iter_mut().filter(|((from, _), _)| relay == *from);
        begin_there.for_each(|(_, last)| self.open_flows -= u64::from(std::mem::take(&mut last.open_flows)));
        has_begun
    }

    pub fn has_ended(&self) -> bool {
        self.acked >= self.bytes && self.open_flows == 0
    }

    /// Whether the flows have begun, and have not ended.
    fn has_data(&self) -> bool {
        self.open_flows > 0 || (self.acked > 0 && self.acked < self.bytes)
    }

    /// Fraction of the bytes that is acknowledged.
    pub fn fraction(&self) -> f64 {
        if self.acked >= self.bytes { 1.0 } else { self.acked as f64 / self.bytes as f64 }
    }
}

/// One flow for each pair of regions, from region to region; `None` if that are not fewer flows.
fn join_flows(flows: &[Flow], overlay: &config::Overlay) -> Option<Vec<Flow>> {
    let mut bytes: BTreeMap<RegionPair, u64> = BTreeMap::new();
    for flow in flows {
        let sum = bytes.entry(flow.pair).or_default();
        *sum = sum.saturating_add(flow.bytes);
    }
    let name = |region: u16| overlay.area.regions()[usize::from(region)].clone();
    let join = |(pair, bytes): (RegionPair, u64)| Flow {
        from: name(pair.source),
        to: name(pair.destination),
        pair,
        bytes,
        numbers: None,
    };
    (bytes.len() < flows.len()).then(|| bytes.into_iter().map(join).collect())
}

/// A coflow, active or completed.
#[derive(Debug)]
pub(super) struct Coflow {
    pub id: Arc<str>,
    pub service: Arc<str>,
    pub number: u32,
    /// Its last registration or update. After the withdrawal of a coflow with many flows: one flow for each pair of regions.
    pub registration: Arc<Registration>,
    /// The number of flows of its last registration or update.
    pub flow_count: usize,
    /// The digest of the first registration, if other flows replaced its flows. A repeated registration is compared with it.
    pub first_digest: Option<RegistrationDigest>,
    /// Rises with each update.
    pub revision: u32,
    pub registered_at: f64,
    /// When its last bytes were acknowledged, or it was abandoned or failed.
    pub ended_at: Option<f64>,
    /// Whether relays no longer know it.
    pub is_withdrawn: bool,
    /// Whether it has lost a relay while flows were incomplete.
    is_interrupted: bool,
    /// The last time with an open flow or further bytes.
    active_at: f64,
    /// Whether it has ended without all bytes, see [`ABANDONMENT_TIMEOUT`].
    pub is_abandoned: bool,
    /// Why it failed, in the words of its owner.
    pub failure: Option<String>,
    /// See [`Restored::predicted_seconds`].
    pub predicted_seconds: Option<f64>,
    /// By regions of the senders and of the receivers, which differ.
    pub pairs: BTreeMap<RegionPair, Pair>,
    /// Its flow groups.
    index: Arc<FlowIndex>,
    /// The paths that the last decision chose.
    pub paths: Option<Arc<ChosenPaths>>,
    /// The revision of the flows for which the paths were chosen. The first decision after an update chooses paths.
    pub paths_revision: u32,
}

impl Coflow {
    pub fn new(id: &str, restored: Restored, overlay: &config::Overlay) -> Coflow {
        let Restored { number, registration, first_digest, registered_at, predicted_seconds } = restored;
        let mut coflow = Coflow {
            id: id.into(),
            service: registration.service.as_str().into(),
            number,
            first_digest,
            revision: 0,
            registered_at,
            ended_at: None,
            is_withdrawn: false,
            is_interrupted: false,
            active_at: registered_at,
            is_abandoned: false,
            failure: None,
            predicted_seconds,
            pairs: BTreeMap::new(),
            index: Arc::default(),
            paths: None,
            paths_revision: 0,
            flow_count: registration.flows.len(),
            registration: Arc::new(registration),
        };
        coflow.index_flows(overlay);
        coflow
    }

    /// Whether a registration is the first one of this coflow.
    pub fn is_registered_as(&self, other: &Registration) -> bool {
        self.first_digest.map_or_else(|| *self.registration == *other, |digest| digest == other.digest())
    }

    /// Replaces the flows. The progress of pairs of regions stays the same. Frameworks update sizes until data moves, so an estimate of
    /// earlier sizes does not count.
    pub fn replace_flows(&mut self, flows: Vec<Flow>, overlay: &config::Overlay) {
        self.flow_count = flows.len();
        self.keep_first_digest();
        self.set_flows(flows);
        self.revision = self.revision.wrapping_add(1);
        (self.ended_at, self.is_withdrawn, self.is_abandoned) = (None, false, false);
        if self.pairs.values().all(|pair| pair.acked == 0) {
            self.predicted_seconds = None;
        }
        self.index_flows(overlay);
    }

    /// Withdraws the ended coflow from the relays.
    pub fn withdraw(&mut self, overlay: &config::Overlay) {
        self.is_withdrawn = true;
        if let Some(flows) = join_flows(&self.registration.flows, overlay) {
            self.keep_first_digest();
            self.set_joined_flows(flows, overlay);
        }
    }

    /// Ends the coflow as failed. No registration is compared with a failed coflow, so it needs no digest.
    pub fn fail(&mut self, reason: &str, now: f64, overlay: &config::Overlay) {
        if let Some(flows) = join_flows(&self.registration.flows, overlay) {
            self.set_joined_flows(flows, overlay);
        }
        (self.failure, self.ended_at, self.paths) = (Some(reason.to_owned()), Some(now), None);
    }

    /// Replaces the flows by one for each pair of regions: a shuffle has thousands of flows.
    fn set_joined_flows(&mut self, flows: Vec<Flow>, overlay: &config::Overlay) {
        self.set_flows(flows);
        let flow_counts: Vec<usize> = self.pairs.values().map(|pair| pair.flow_count).collect();
        self.index_flows(overlay);
        self.pairs.values_mut().zip(flow_counts).for_each(|(pair, count)| pair.flow_count = count);
    }

    /// A repeated registration is compared with the first one, whose flows are about to be replaced.
    fn keep_first_digest(&mut self) {
        self.first_digest.get_or_insert_with(|| self.registration.digest());
    }

    fn set_flows(&mut self, flows: Vec<Flow>) {
        let Registration { service, application, .. } = &*self.registration;
        let (service, application) = (service.clone(), application.clone());
        self.registration = Arc::new(Registration { service, application, flows });
    }

    fn index_flows(&mut self, overlay: &config::Overlay) {
        let mut former_pairs = std::mem::take(&mut self.pairs);
        for flow in self.registration.flows.iter().filter(|flow| overlay.link_of(flow.pair).is_some()) {
            let pair = self.pairs.entry(flow.pair).or_default();
            pair.bytes = pair.bytes.saturating_add(flow.bytes);
            pair.flow_count += 1;
        }
        for (regions, pair) in &mut self.pairs {
            if let Some(former) = former_pairs.remove(regions) {
                *pair = Pair { bytes: pair.bytes, flow_count: pair.flow_count, ..former };
            }
        }
        self.index = Arc::new(FlowIndex::new(&self.registration.flows, overlay));
    }

    /// Whether all bytes between regions are acknowledged, and no flow is open; or whether the coflow is abandoned.
    pub fn has_ended(&self) -> bool {
        self.is_abandoned || self.pairs.values().all(Pair::has_ended)
    }

    /// Notes that a relay is lost. Its flows are not open any more, and may continue directly.
    pub fn interrupt(&mut self, relay: u16, now: f64) {
        for pair in self.pairs.values_mut() {
            let has_ended = pair.has_ended();
            if pair.lose(relay) && !has_ended {
                (self.is_interrupted, self.active_at) = (true, now);
            }
        }
    }

    /// Notes that a flow is open, or that further bytes are acknowledged.
    pub fn note_activity(&mut self, now: f64) {
        (self.active_at, self.is_abandoned) = (now, false);
    }

    /// Abandons an interrupted coflow if it is idle for too long. Returns whether an active coflow has ended. A relay that connects again
    /// reports its open flows within [`PRESENCE_TIMEOUT`].
    pub fn check_interruption(&mut self, now: f64) -> bool {
        if !self.is_interrupted || self.ended_at.is_some() {
            return false;
        }
        let idle = now - self.active_at;
        self.is_abandoned = idle > ABANDONMENT_TIMEOUT;
        idle > PRESENCE_TIMEOUT && self.has_ended()
    }

    /// The links between regions that have data of the coflow, and how this data uses them.
    pub fn link_uses(&self, overlay: &config::Overlay) -> impl Iterator<Item = (u32, LinkUse)> {
        let shares = self.paths.iter().flat_map(|chosen| &chosen.paths.path_shares);
        let detoured: BTreeSet<u32> =
            shares.filter(|share| share.relay.is_some()).map(|share| share.direct_link).collect();
        let pairs = self.pairs.iter().filter(|(_, pair)| pair.has_data());
        pairs.filter_map(move |(&regions, _)| {
            let link = overlay.link_of(regions)?;
            Some((link, if detoured.contains(&link) { LinkUse::Avoided } else { LinkUse::Direct }))
        })
    }

    /// The coflow as relays know it.
    pub fn to_relay_coflow(&self) -> RelayCoflow {
        RelayCoflow { number: self.number, name: self.id.clone(), service: self.service.clone() }
    }

    /// The coflow as a decision needs it.
    pub fn demand(&self, overlay: &config::Overlay) -> CoflowDemand {
        let (mut bytes, mut remaining) = (Vec::new(), Vec::new());
        for (&regions, pair) in &self.pairs {
            let Some(link) = overlay.link_of(regions) else { continue };
            // Rules apply until the coflow has completed, so each pair has at least one remaining byte.
            remaining.push((link, (pair.bytes.saturating_sub(pair.acked) as f64).max(1.0)));
            bytes.push((link, (pair.bytes as f64).max(1.0)));
        }
        CoflowDemand {
            number: self.number,
            revision: self.revision,
            bytes,
            remaining,
            index: Arc::clone(&self.index),
            paths: if self.paths_revision == self.revision { self.paths.clone() } else { None },
        }
    }
}
