//! Overlay state machine: coflows between regions, reports of relays, and orders to relays. Sans-I/O: callers pass the time.
//!
//! Siphon (Liu, Chen and Li, ATC '18), section 4.3: frameworks register coflows with the sizes of their flows. The controller decides
//! the order of coflows, the order of the flow groups inside a coflow, and detours, and sends the decisions to relays as rules.
//!
//! - *Decisions* take long, so they run elsewhere: [`Overlay::take_request`] returns the input of [`decision::decide`], and
//!   [`Overlay::apply`] applies its result. Orders and leases do not wait for a decision. A coflow that waits for its first decision has
//!   no rules: its flows take the direct path.
//! - *Rules* of the relays in a region follow from the decision and the connected relays (`rules`). They stay until the next decision,
//!   except those of withdrawn coflows. An order contains the difference between the rules and those of the last order. A relay that
//!   has connected, or does not confirm an order in time, receives a full order.
//! - *Progress* is what receivers have acknowledged. A coflow has completed when all bytes between regions are acknowledged, and no flow
//!   is open; a further flow makes it active again. Flows that did not use the relays are unknown here: the framework deregisters their
//!   coflow. If a relay is lost in the middle of a coflow, some flows continue directly, so a coflow without open flows is abandoned after
//!   [`ABANDONMENT_TIMEOUT`].
//! - *Bandwidth* of a link follows from the rates that its relays measure while data waits (`bandwidth`). Paths are chosen again when
//!   the bandwidth of a link changes, or other regions accept detours; the order of coflows stays.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weir_core::model::BandwidthHistory;
use weir_proto::is_id;
use weir_proto::relay::{
    GroupProgress, MAX_RELAY_COFLOWS, RegionPair, RelayCoflow, RelayOrder, RelayPeer, RelayReport,
};

use crate::coflow_status::Phase;
use crate::config::{self, RelayAddress};
use crate::control_plane::{Refusal, Settings};
use crate::quota::{CoflowQuota, UsageByService};

mod bandwidth;
mod coflow;
pub mod decision;
mod flows;
mod handle;
mod names;
mod relay;
mod rules;
mod status;

pub use coflow::{Registration, RegistrationDigest, Restored};
pub use decision::{Decision, DecisionRequest};
pub use flows::{Flow, FlowIndex, find_common_number};
pub use handle::{Handle, NameTaken};
pub use status::{CoflowStatus, LinkBytes, PathState, RelayState, RouteState};

use bandwidth::{LinkSamples, LinkUse};
use coflow::Coflow;
use relay::{ChangeCache, Relay, RelayTable};
use rules::RegionRules;

/// Time between two reports of a relay.
pub const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// Duration of an order's lease.
pub const LEASE: Duration = Duration::from_secs(10);

/// Maximum time between two orders to a relay, in seconds.
const RENEWAL_INTERVAL: f64 = 1.0;

/// Time for a relay to confirm an order before it receives a full order, in seconds.
const CONFIRMATION_TIMEOUT: f64 = 3.0;

/// Time without a report after which detours avoid a relay, in seconds.
const PRESENCE_TIMEOUT: f64 = 3.0;

/// Time after its completion for which relays accept further flows of a coflow, in seconds.
const WITHDRAWAL: f64 = 2.0;

/// Time without an open flow or further bytes after which a coflow is abandoned if it has lost a relay, in seconds. Programs open an
/// interrupted flow again within a minute.
pub const ABANDONMENT_TIMEOUT: f64 = 300.0;

/// Maximum number of failed coflows. A further one replaces the oldest one.
pub const MAX_FAILED_COFLOWS: usize = 1000;

/// An entry of a report that cannot be.
struct Implausible;

/// The state of an overlay.
pub struct Overlay {
    config: Arc<config::Overlay>,
    settings: Settings,
    epoch: u64,
    relays: Vec<Relay>,
    /// The IP address of each relay, if it is known.
    addresses: Vec<Option<SocketAddr>>,
    /// Relays whose addresses have changed since the last [`Overlay::take_changed_addresses`].
    changed_addresses: BTreeSet<u16>,
    /// The coflows and rules of the relays in each region.
    region_tables: Vec<Arc<RelayTable>>,
    /// Coflows by their numbers, active or completed.
    coflows: BTreeMap<u32, Coflow>,
    numbers: BTreeMap<Arc<str>, u32>,
    next_number: u32,
    /// Coflows that their owners deregistered as failed. They stay visible as long as completed coflows. They do not count for limits and
    /// quotas, and they are not in the store: they end with the coordinator.
    failed: BTreeMap<Arc<str>, Coflow>,
    /// The number of coflows that have failed since the start.
    failed_count: u64,
    /// Coflows and flows of each service.
    usage: UsageByService,
    samples: LinkSamples,
    /// The recent bandwidth at the last request.
    requested_bandwidth: Option<Arc<BandwidthHistory>>,
    /// The last applied decision.
    decision: Option<Decision>,
    needs_decision: bool,
    /// Whether coflows have changed since the last request, so that the next decision includes their order.
    needs_order: bool,
    /// Whether it has changed which relays accept detours.
    have_detours_changed: bool,
    /// Whether coflows or rules have changed since the tables were computed.
    are_tables_outdated: bool,
    /// Coflows that have completed, or got their first estimate, since the last [`Overlay::take_changed`].
    changed: BTreeSet<Arc<str>>,
    rejected_entries: u64,
    link_bytes: Vec<LinkBytes>,
}

impl Overlay {
    /// An overlay without coflows. Orders carry `epoch`. The limits of coflows are those of the `settings`.
    pub fn new(config: Arc<config::Overlay>, settings: Settings, epoch: u64) -> Overlay {
        let address = |relay: &config::Relay| match relay.address {
            RelayAddress::Fixed(address) => Some(address),
            RelayAddress::Name { .. } => None,
        };
        let relays = config.relays.len();
        Overlay {
            settings,
            epoch,
            relays: std::iter::repeat_with(Relay::default).take(relays).collect(),
            addresses: config.relays.iter().map(address).collect(),
            changed_addresses: BTreeSet::new(),
            region_tables: vec![Arc::default(); config.area.regions().len()],
            coflows: BTreeMap::new(),
            numbers: BTreeMap::new(),
            next_number: 0,
            failed: BTreeMap::new(),
            failed_count: 0,
            usage: UsageByService::default(),
            samples: LinkSamples::new(&config.area),
            requested_bandwidth: None,
            decision: None,
            needs_decision: false,
            needs_order: false,
            have_detours_changed: false,
            are_tables_outdated: false,
            changed: BTreeSet::new(),
            rejected_entries: 0,
            link_bytes: vec![LinkBytes::default(); config.area.links()],
            config,
        }
    }

    /// Registers a coflow. Returns whether it is new.
    ///
    /// # Errors
    /// [`Refusal`]: the id is invalid or belongs to another coflow, or a limit is reached.
    pub fn register(&mut self, id: &str, registration: Registration, now: f64) -> Result<bool, Refusal> {
        if !is_id(id) {
            return Err(Refusal::InvalidId(id.to_owned()));
        }
        if let Some(number) = self.numbers.get(id) {
            let is_same = self.coflows[number].is_registered_as(&registration);
            return if is_same { Ok(false) } else { Err(Refusal::IdTaken(id.to_owned())) };
        }
        self.check_new(&registration)?;
        let number = self.free_number();
        let (first_digest, predicted_seconds) = (None, None);
        self.insert(
            id,
            Restored { number, registration, first_digest, registered_at: now, predicted_seconds },
        );
        Ok(true)
    }

    /// Registers a coflow of an earlier epoch. Its number stays the same, so relays continue to count its bytes.
    ///
    /// # Errors
    /// [`Refusal`]: a limit is reached, or another coflow has the id or the number.
    pub fn restore(&mut self, id: &str, restored: Restored) -> Result<(), Refusal> {
        if self.numbers.contains_key(id) || self.coflows.contains_key(&restored.number) {
            return Err(Refusal::IdTaken(id.to_owned()));
        }
        self.check_new(&restored.registration)?;
        self.next_number = self.next_number.max(restored.number.wrapping_add(1));
        self.insert(id, restored);
        Ok(())
    }

    /// Replaces the flows of a coflow. A completed coflow continues if bytes remain.
    ///
    /// # Errors
    /// [`Refusal`]: the coflow is unknown, or a limit is reached. The coflow is unchanged.
    pub fn update(&mut self, id: &str, flows: Vec<Flow>) -> Result<(), Refusal> {
        self.check_update(id, flows.len())?;
        let Some(coflow) = self.numbers.get(id).and_then(|number| self.coflows.get_mut(number)) else {
            return Err(Refusal::UnknownCoflow(id.to_owned()));
        };
        self.usage.remove(&coflow.service, coflow.registration.flows.len());
        self.usage.add(&coflow.service, flows.len());
        coflow.replace_flows(flows, &self.config);
        self.note_change();
        Ok(())
    }

    /// Whether an update with this number of flows would be applied.
    ///
    /// # Errors
    /// Those of [`Overlay::update`].
    pub fn check_update(&self, id: &str, flow_count: usize) -> Result<(), Refusal> {
        let coflow = self.coflow(id).ok_or_else(|| Refusal::UnknownCoflow(id.to_owned()))?;
        let has_ended = coflow.ended_at.is_some();
        self.check_limits(coflow.registration.flows.len(), flow_count, usize::from(has_ended))
    }

    /// Removes a coflow, active or completed.
    ///
    /// # Errors
    /// [`Refusal::UnknownCoflow`]
    pub fn deregister(&mut self, id: &str) -> Result<(), Refusal> {
        self.remove(id).map(drop)
    }

    /// Deregisters a coflow as failed, unless its bytes have all arrived: its owner may not have received the last answers. Returns whether
    /// it has failed.
    ///
    /// # Errors
    /// [`Refusal::UnknownCoflow`]
    pub fn fail(&mut self, id: &str, reason: &str, now: f64) -> Result<bool, Refusal> {
        if self.coflow(id).is_some_and(|coflow| coflow.phase() == Phase::Completed) {
            return Ok(false);
        }
        let mut coflow = self.remove(id)?;
        coflow.fail(reason, now, &self.config);
        self.failed_count += 1;
        self.failed.insert(Arc::clone(&coflow.id), coflow);
        if self.failed.len() > MAX_FAILED_COFLOWS {
            let failed_at = |coflow: &Coflow| coflow.ended_at.unwrap_or(now);
            let oldest = self.failed.values().min_by(|a, b| failed_at(a).total_cmp(&failed_at(b)));
            let oldest = oldest.map(|coflow| Arc::clone(&coflow.id));
            oldest.and_then(|id| self.failed.remove(&id));
        }
        Ok(true)
    }

    /// Forgets that a coflow with this id failed.
    pub fn forget_failed(&mut self, id: &str) {
        self.failed.remove(id);
    }

    fn remove(&mut self, id: &str) -> Result<Coflow, Refusal> {
        let number = self.numbers.remove(id).ok_or_else(|| Refusal::UnknownCoflow(id.to_owned()))?;
        let coflow = self.coflows.remove(&number).expect("each known id has the number of a coflow");
        self.usage.remove(&coflow.service, coflow.registration.flows.len());
        self.note_change();
        Ok(coflow)
    }

    /// Starts a stream of a relay: its next order is a full order.
    pub fn connect(&mut self, relay: u16, now: f64) {
        let Some(state) = self.relays.get_mut(usize::from(relay)) else { return };
        let is_first = state.last_report_at.is_none();
        state.connect(now);
        if !is_first {
            self.interrupt_coflows(relay, now);
        }
    }

    /// Ends the stream of a relay.
    pub fn disconnect(&mut self, relay: u16, now: f64) {
        let Some(state) = self.relays.get_mut(usize::from(relay)) else { return };
        state.disconnect();
        self.interrupt_coflows(relay, now);
    }

    /// A relay is lost, or has started again.
    fn interrupt_coflows(&mut self, relay: u16, now: f64) {
        let active = self.coflows.values_mut().filter(|coflow| coflow.ended_at.is_none());
        active.for_each(|coflow| coflow.interrupt(relay, now));
    }

    /// Time of the last report of a relay, or of the connection before it.
    pub fn last_report_at(&self, relay: u16) -> Option<f64> {
        self.relays.get(usize::from(relay))?.last_report_at
    }

    /// Applies the report of a relay. Implausible entries are counted and not applied.
    pub fn report(&mut self, relay: u16, report: &RelayReport, now: f64) {
        self.end_sample_interval(now);
        let Some(state) = self.relays.get_mut(usize::from(relay)) else { return };
        self.have_detours_changed |= state.apply_header(report, self.epoch, now);
        for path in &report.paths {
            if path.peer == relay || usize::from(path.peer) >= self.config.relays.len() {
                self.rejected_entries += 1;
                continue;
            }
            let link = self.config.link_between(relay, path.peer);
            let increase = state.apply_path(path);
            if let Some(link) = link {
                self.link_bytes[link as usize].add(increase);
                self.samples.add(link, (relay, path.peer), path.rate, now);
            }
        }
        let mut progressed = BTreeSet::new();
        for group in &report.groups {
            match self.apply_progress(relay, group, now) {
                Ok(true) => drop(progressed.insert(group.coflow)),
                Ok(false) => {}
                Err(Implausible) => self.rejected_entries += 1,
            }
        }
        let mut numbers: Vec<u32> = report.groups.iter().map(|group| group.coflow).collect();
        numbers.dedup();
        for number in numbers {
            self.check_completion(number, progressed.contains(&number), now);
        }
    }

    /// Returns whether further bytes between regions are acknowledged. Flows between two relays of a region do not count.
    fn apply_progress(&mut self, relay: u16, group: &GroupProgress, now: f64) -> Result<bool, Implausible> {
        let region = |relay: u16| self.config.relays.get(usize::from(relay)).map(|relay| relay.region);
        let (Some(source), Some(destination)) = (region(group.source), region(group.destination)) else {
            return Err(Implausible);
        };
        let coflow = self.coflows.get_mut(&group.coflow).filter(|_| group.source == relay);
        let coflow = coflow.ok_or(Implausible)?;
        if source == destination {
            return Ok(false);
        }
        let pair = coflow.pairs.get_mut(&RegionPair { source, destination }).ok_or(Implausible)?;
        let has_progressed = pair.apply(group);
        if has_progressed || group.open_flows > 0 {
            coflow.note_activity(now);
        }
        Ok(has_progressed)
    }

    /// Acknowledged bytes include those that libraries add to the data, so a coflow with further flows may seem complete for a moment.
    fn check_completion(&mut self, number: u32, has_progressed: bool, now: f64) {
        let Some(coflow) = self.coflows.get_mut(&number) else { return };
        let had_ended = coflow.ended_at.is_some();
        if !coflow.has_ended() {
            (coflow.ended_at, coflow.is_withdrawn) = (None, false);
        } else if has_progressed || !had_ended {
            coflow.ended_at = Some(now);
        }
        if coflow.ended_at.is_some() != had_ended {
            self.changed.insert(Arc::clone(&coflow.id));
            self.note_change();
        }
    }

    /// The input of the next decision, if one is due. The result of the last request has to be applied before.
    pub fn take_request(&mut self, now: f64) -> Option<DecisionRequest> {
        if !std::mem::take(&mut self.needs_decision) {
            return None;
        }
        let recent = Arc::new(self.samples.recent_history(&self.config.area));
        self.requested_bandwidth = Some(Arc::clone(&recent));
        let needs_order = std::mem::take(&mut self.needs_order);
        let last = self.decision.as_ref().filter(|_| !needs_order);
        let active = self.coflows.values().filter(|coflow| coflow.ended_at.is_none());
        Some(DecisionRequest {
            requested_at: now,
            max_detoured: self.config.max_detoured,
            past: self.history(),
            recent,
            interfaces: self.config.interface_seconds_per_byte(),
            has_detours: self.has_detours(),
            coflows: active.map(|coflow| coflow.demand(&self.config)).collect(),
            order: last.map(|decision| decision.order.clone()),
        })
    }

    /// Past measurements of the links between regions.
    pub fn history(&self) -> BandwidthHistory {
        self.samples.history(&self.config.area)
    }

    /// The measured bandwidths of links with new measurements since the last call: at most [`config::MAX_LINK_SAMPLES`] of each, in bytes
    /// per second and in order of time.
    pub fn take_unstored_samples(&mut self) -> Vec<(u32, Vec<u64>)> {
        self.samples.take_unstored()
    }

    /// Returns the bandwidths of a link from the next [`Overlay::take_unstored_samples`] again: they could not be stored.
    pub fn keep_unstored(&mut self, link: u32) {
        self.samples.keep_unstored(link);
    }

    /// Adds bandwidths of a link that were measured before the start, in bytes per second and in order of time.
    pub fn restore_samples(&mut self, link: u32, samples: &[u64]) {
        self.samples.restore(link, samples);
    }

    /// For each region, whether a relay accepts detours.
    fn has_detours(&self) -> Arc<[bool]> {
        let mut has_detours = vec![false; self.region_tables.len()];
        for (relay, state) in self.config.relays.iter().zip(&self.relays) {
            has_detours[usize::from(relay.region)] |= state.accepts_detours();
        }
        has_detours.into()
    }

    /// Applies a decision. The rules of coflows that changed after the request are for their former flow groups, until the next decision.
    /// Returns the decision before, so that callers can drop it later, which takes milliseconds with thousands of flows.
    pub fn apply(&mut self, decision: Decision) -> Option<Decision> {
        for decided in &decision.coflows {
            let Some(coflow) = self.coflows.get_mut(&decided.number) else { continue };
            (coflow.paths, coflow.paths_revision) = (Some(Arc::clone(&decided.paths)), decided.revision);
            if coflow.predicted_seconds.is_none() && coflow.revision == decided.revision {
                let waited = decision.requested_at - coflow.registered_at;
                coflow.predicted_seconds = Some(waited.max(0.0) + decided.seconds);
                self.changed.insert(Arc::clone(&coflow.id));
            }
        }
        (self.have_detours_changed, self.are_tables_outdated) = (true, true);
        self.decision.replace(decision)
    }

    /// Returns the orders that are due, with the numbers of their relays. Orders to a relay wait while `has_room` is false.
    pub fn tick(&mut self, now: f64, has_room: impl Fn(u16) -> bool) -> Vec<(u16, RelayOrder)> {
        let keep = self.settings.keep_completed;
        let is_expired = |coflow: &Coflow| coflow.ended_at.is_some_and(|end| now - end > keep);
        self.failed.retain(|_, coflow| !is_expired(coflow));
        for (_, coflow) in self.coflows.extract_if(.., |_, coflow| is_expired(coflow)) {
            self.numbers.remove(&coflow.id);
            self.usage.remove(&coflow.service, coflow.registration.flows.len());
        }
        let interrupted: Vec<u32> = self
            .coflows
            .iter_mut()
            .filter_map(|(&number, coflow)| coflow.check_interruption(now).then_some(number))
            .collect();
        interrupted.into_iter().for_each(|number| self.check_completion(number, false, now));
        self.withdraw_completed(now);
        self.end_sample_interval(now);
        self.check_bandwidth();
        for relay in &mut self.relays {
            self.have_detours_changed |= relay.update_presence(now);
        }
        if std::mem::take(&mut self.have_detours_changed) {
            self.update_detours();
        }
        if std::mem::take(&mut self.are_tables_outdated) {
            self.update_tables();
        }
        let (epoch, peers) = (self.epoch, || peers(&self.config, &self.addresses));
        let mut cache = ChangeCache::default();
        let relays = (0..).zip(&mut self.relays).filter(|(id, _)| has_room(*id));
        relays
            .filter_map(|(id, relay)| Some((id, relay.take_order(epoch, &peers, &mut cache, now)?)))
            .collect()
    }

    /// Sets the IP address of a relay. All relays get a full order with the address.
    pub fn set_address(&mut self, relay: u16, address: SocketAddr) {
        let former = self.addresses[usize::from(relay)].replace(address);
        if former != Some(address) {
            self.changed_addresses.insert(relay);
            self.relays.iter_mut().for_each(|relay| relay.orders.needs_full_order = true);
        }
    }

    /// Sets the IP address that the name of a relay had before the start, if the name has not been resolved since then. Otherwise relays
    /// would close their connections with this relay until then.
    pub fn restore_address(&mut self, relay: u16, address: SocketAddr) {
        self.addresses[usize::from(relay)].get_or_insert(address);
    }

    /// The relays whose addresses have changed since the last call.
    pub fn take_changed_addresses(&mut self) -> Vec<(u16, SocketAddr)> {
        let changed = std::mem::take(&mut self.changed_addresses);
        let address = |relay: u16| Some((relay, self.addresses[usize::from(relay)]?));
        changed.into_iter().filter_map(address).collect()
    }

    /// Returns the address of a relay from the next [`Overlay::take_changed_addresses`] again: it could not be stored.
    pub fn keep_changed_address(&mut self, relay: u16) {
        self.changed_addresses.insert(relay);
    }

    /// The IP address of each relay, if it is known.
    pub fn addresses(&self) -> &[Option<SocketAddr>] {
        &self.addresses
    }

    /// Ends the interval of samples when its time has passed.
    fn end_sample_interval(&mut self, now: f64) {
        if !self.samples.is_due(now) {
            return;
        }
        let mut uses = vec![LinkUse::Idle; self.config.area.links()];
        let active = self.coflows.values().filter(|coflow| coflow.ended_at.is_none());
        for (link, link_use) in active.flat_map(|coflow| coflow.link_uses(&self.config)) {
            uses[link as usize] = uses[link as usize].max(link_use);
        }
        self.samples.end_interval(now, &uses);
    }

    /// Requests a decision if the bandwidth of a link has changed since the last request.
    fn check_bandwidth(&mut self) {
        if !self.samples.take_new() || self.needs_decision {
            return;
        }
        let Some(former) = &self.requested_bandwidth else { return };
        if bandwidth::has_changed(former, &self.samples.recent_history(&self.config.area)) {
            self.needs_decision = self.coflows.values().any(|coflow| coflow.ended_at.is_none());
        }
    }

    /// Withdraws coflows from the relays some time after their completion.
    fn withdraw_completed(&mut self, now: f64) {
        // Flows of an abandoned coflow may begin again.
        let is_due = |coflow: &&mut Coflow| {
            let is_late = coflow.ended_at.is_some_and(|end| now - end > WITHDRAWAL);
            is_late && !coflow.is_withdrawn && !coflow.is_abandoned
        };
        for coflow in self.coflows.values_mut().filter(is_due) {
            let former = coflow.registration.flows.len();
            coflow.withdraw(&self.config);
            let flows = coflow.registration.flows.len();
            self.usage.remove(&coflow.service, former);
            self.usage.add(&coflow.service, flows);
            self.are_tables_outdated = true;
        }
    }

    /// Computes the rules of the last decision again if other regions accept detours than at its request. Their bytes take the direct path
    /// until the next decision, which this requests.
    fn update_detours(&mut self) {
        let has_detours = self.has_detours();
        if let Some(decision) = self.decision.as_mut().filter(|decision| decision.has_detours != has_detours)
        {
            decision.update_rules(has_detours);
            self.are_tables_outdated = true;
            self.needs_decision |= self.coflows.values().any(|coflow| coflow.ended_at.is_none());
        }
    }

    fn update_tables(&mut self) {
        let mut coflows: Vec<BTreeMap<u32, RelayCoflow>> = vec![BTreeMap::new(); self.region_tables.len()];
        for coflow in self.coflows.values().filter(|coflow| !coflow.is_withdrawn) {
            for pair in coflow.pairs.keys() {
                for region in [pair.source, pair.destination] {
                    let of_region = &mut coflows[usize::from(region)];
                    of_region.entry(coflow.number).or_insert_with(|| coflow.to_relay_coflow());
                }
            }
        }
        for (region, mut coflows) in coflows.into_iter().enumerate() {
            let rules = self.rules_of(region);
            for rule in &rules.rules {
                let number = rule.flows.coflow;
                coflows.entry(number).or_insert_with(|| self.coflows[&number].to_relay_coflow());
            }
            let new = RelayTable { coflows, rules };
            // Relays compare tables by their address.
            let table = &mut self.region_tables[region];
            if **table != new {
                *table = Arc::new(new);
            }
        }
        for (relay, state) in self.config.relays.iter().zip(&mut self.relays) {
            state.set_table(&self.region_tables[usize::from(relay.region)]);
        }
    }

    /// The rules of a region, without those of coflows that are withdrawn.
    fn rules_of(&self, region: usize) -> Arc<RegionRules> {
        let Some(decided) = self.decision.as_ref().map(|decision| &decision.rules[region]) else {
            return Arc::default();
        };
        let is_forwarded = |number: u32| self.coflows.get(&number).is_some_and(|coflow| !coflow.is_withdrawn);
        let numbers = decided.rules.chunk_by(|a, b| a.flows.coflow == b.flows.coflow);
        let withdrawn: BTreeSet<u32> =
            numbers.map(|rules| rules[0].flows.coflow).filter(|&number| !is_forwarded(number)).collect();
        if withdrawn.is_empty() {
            return Arc::clone(decided);
        }
        let rules = decided.rules.iter().filter(|rule| !withdrawn.contains(&rule.flows.coflow));
        Arc::new(RegionRules { rules: rules.cloned().collect(), omitted: decided.omitted })
    }

    /// Coflows that have completed, or got their first estimate, since the last call.
    pub fn take_changed(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.changed)
    }

    fn insert(&mut self, id: &str, restored: Restored) {
        let coflow = Coflow::new(id, restored, &self.config);
        self.usage.add(&coflow.service, coflow.registration.flows.len());
        self.numbers.insert(Arc::clone(&coflow.id), coflow.number);
        self.coflows.insert(coflow.number, coflow);
        self.note_change();
    }

    fn note_change(&mut self) {
        (self.needs_decision, self.needs_order) = (true, true);
        self.are_tables_outdated = true;
    }

    /// A number that no coflow has; numbers rise until they wrap around.
    fn free_number(&mut self) -> u32 {
        while self.coflows.contains_key(&self.next_number) {
            self.next_number = self.next_number.wrapping_add(1);
        }
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        number
    }

    /// Checks the limits for a new coflow.
    fn check_new(&self, registration: &Registration) -> Result<(), Refusal> {
        self.settings.check_coflows(self.usage.total())?;
        self.check_limits(0, registration.flows.len(), 1)
    }

    /// Checks the limits for flows that replace `former` flows, and for more active coflows.
    fn check_limits(&self, former: usize, flows: usize, new_active: usize) -> Result<(), Refusal> {
        let active = self.coflows.values().filter(|coflow| coflow.ended_at.is_none()).count();
        if active + new_active > MAX_RELAY_COFLOWS {
            return Err(Refusal::LimitReached {
                objects: "active coflows between regions",
                max: MAX_RELAY_COFLOWS,
            });
        }
        self.settings.check_flows(self.usage.total(), former, flows)
    }

    fn coflow(&self, id: &str) -> Option<&Coflow> {
        self.numbers.get(id).and_then(|number| self.coflows.get(number))
    }
}

impl CoflowQuota for Overlay {
    fn usage_by_service(&self) -> &UsageByService {
        &self.usage
    }

    fn service_and_flow_count(&self, id: &str) -> Option<(&str, usize)> {
        self.coflow(id).map(|coflow| (&*coflow.service, coflow.registration.flows.len()))
    }
}

/// The relays with known addresses.
fn peers(config: &config::Overlay, addresses: &[Option<SocketAddr>]) -> Vec<RelayPeer> {
    let peer = |(id, relay): (u16, &config::Relay), address| RelayPeer {
        id,
        name: relay.name.as_str().into(),
        address,
        networks: relay.networks.clone(),
        region: relay.region,
    };
    let relays = (0..).zip(&config.relays).zip(addresses);
    relays.filter_map(|(relay, address)| Some(peer(relay, (*address)?))).collect()
}
