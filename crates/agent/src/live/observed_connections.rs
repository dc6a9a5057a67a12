//! Counts the connections of applications with other hosts, reports them, and sets their pacing rates and the classes of their
//! packets.
//!
//! Connections are counted when one opens or closes, and each second. Short, frequent requests must not change queues, so an
//! application and a peer count as connected until [`LINGER`] after their last connection. If the coordinator requests demands
//! ([`Demands`]), connections are counted each period.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_core::units::Rate;
use weir_proto::{
    ApplicationTraffic, Conflict, CounterTotals, Demand, MAX_OBSERVED, ObservedConnections, Queues,
    RestoredObjects,
};

use super::demands::{Demands, LIMIT_LEASE, LimitChanges, OpenConnection};
use super::ordered_traffic::replace_conflicts;
use super::peer_addresses::PeerAddresses;
use super::peer_demand::LINGER;
use super::throttle::UdpThrottling;
use crate::lease::ApplicationPeer;
use crate::traffic::{
    ApplicationId, Connection, ConnectionEvent, EventKind, FoundTargets, MIN_PACING_RATE, OrderChanges,
    PathChanges, RemovalWait, TargetSearch, Traffic, TrafficClass, TrafficError,
};

/// How often the agent looks for cgroups of options that were created again, and for entries of maps that another process removed.
const REFRESH_INTERVAL: Duration = Duration::from_millis(250);

/// The maximum time between two counts.
const MAX_COUNT_INTERVAL: Duration = Duration::from_secs(1);

/// The minimum time between two counts if a connection has opened or closed.
const MIN_COUNT_INTERVAL: Duration = Duration::from_millis(50);

/// Counting takes at most one `COUNT_TIME_DIVISOR`th of the time.
const COUNT_TIME_DIVISOR: u32 = 10;

/// The maximum number of events that wait for an address; further ones stay in the kernel, which drops those that exceed its buffer.
const MAX_WAITING_EVENTS: usize = 1 << 16;

/// How often the bytes sent are reported.
const BYTES_REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Demands that differ by a smaller fraction are equal: NetShare's hysteresis for limits (3.2).
const DEMAND_TOLERANCE: f64 = 0.05;

/// The connections of an application with a peer.
#[derive(Debug)]
struct Tally {
    open_connections: u32,
    /// Bytes that closed connections sent.
    closed_bytes: u64,
    /// Bytes that all connections sent.
    sent_bytes: u64,
    demand: Demand,
    /// When a connection was last seen.
    last_seen: Instant,
    /// The last reported values of the other fields.
    reported: Option<(u32, u64, Demand)>,
    /// When they were reported.
    reported_at: Instant,
}

/// The applications that the agent observes.
pub struct Applications {
    pub traffic: Traffic,
    /// The measurements and limits of UDP.
    pub udp_throttling: UdpThrottling,
    /// The applications of the agent's options, with the classes that apply without an order.
    options: Vec<(Arc<str>, Option<TrafficClass>)>,
    /// The ordered traffic of applications.
    ordered: Arc<[ApplicationTraffic]>,
    /// The classes of the last order that names some.
    ordered_classes: Vec<(Arc<str>, u32)>,
    /// Whether orders end all classes, also those of the options.
    is_without_classes: bool,
    tallies: BTreeMap<ApplicationPeer, Tally>,
    /// The demands of connections, if the coordinator requests them.
    demands: Option<Demands>,
    /// The addresses of the other hosts.
    peers: PeerAddresses,
    /// Events that wait for the address of the other host, in their order.
    waiting: VecDeque<ConnectionEvent>,
    last_refresh: Instant,
    /// The objects restored so far.
    restored: RestoredObjects,
    last_count: Instant,
    /// The time that the last count took.
    count_duration: Duration,
    /// Whether a connection opened or closed since the last count.
    has_events: bool,
    /// The last error, which is logged once.
    last_error: Option<String>,
    /// Queues whose bytes differ from those of their marks.
    byte_conflicts: Vec<Conflict>,
    /// These, and why packets have no mark.
    conflicts: Vec<Conflict>,
}

impl Applications {
    /// For a host with a link of this rate.
    pub fn new(traffic: Traffic, link_rate: Rate) -> Applications {
        let options =
            traffic.applications().map(|(rule, _)| (rule.name.as_str().into(), rule.class)).collect();
        let now = Instant::now();
        let tallies = BTreeMap::new();
        Applications {
            traffic,
            udp_throttling: UdpThrottling::new(link_rate),
            options,
            ordered: Arc::default(),
            ordered_classes: Vec::new(),
            is_without_classes: false,
            tallies,
            demands: None,
            peers: PeerAddresses::default(),
            waiting: VecDeque::new(),
            last_refresh: now,
            restored: RestoredObjects::default(),
            last_count: now,
            count_duration: Duration::ZERO,
            // Connections that an earlier agent recorded are counted at once.
            has_events: true,
            last_error: None,
            byte_conflicts: Vec::new(),
            conflicts: Vec::new(),
        }
    }

    /// Sets the queues whose bytes differ from those of their marks, which the next update reports.
    pub fn set_byte_conflicts(&mut self, conflicts: Vec<Conflict>) {
        self.byte_conflicts = conflicts;
    }

    /// Why packets of applications have no mark, or do not leave in the queue of their mark.
    pub fn conflicts(&self) -> &[Conflict] {
        &self.conflicts
    }

    /// Starts or stops the measurement of demands, as the coordinator requests. Without it, connections are not paced.
    pub fn begin_stream(&mut self, wants_demands: bool) {
        if wants_demands {
            self.demands.get_or_insert_default();
            return;
        }
        self.tallies.values_mut().for_each(|tally| tally.demand = Demand::Unknown);
        let removed = self.demands.take().map(|mut known| known.forget()).unwrap_or_default();
        let result = set_limits(&mut self.traffic, removed, LIMIT_LEASE);
        self.log_new_error(result);
    }

    /// Records that the limits of applications have changed.
    pub fn mark_limits_changed(&mut self) {
        if let Some(demands) = &mut self.demands {
            demands.mark_limits_changed();
        }
    }

    /// Reads events, follows cgroups that were created again, counts connections, and divides limits between them.
    pub fn update(&mut self, limits: Option<&BTreeMap<ApplicationPeer, u64>>, now: Instant) {
        let previous_count = self.last_count;
        let result = self.update_connections(now).and(self.apply_limits(limits, now));
        if self.last_count != previous_count {
            self.count_duration = now.elapsed();
        }
        self.log_new_error(result);
        self.udp_throttling.update(&mut self.traffic, now);
    }

    /// Logs an error unless it equals the last one.
    fn log_new_error(&mut self, result: Result<(), TrafficError>) {
        let error_text = result.err().map(|error| error.to_string());
        if let Some(error_text) = error_text.as_ref().filter(|_| self.last_error != error_text) {
            tracing::warn!("{error_text}");
        }
        self.last_error = error_text;
    }

    fn apply_limits(
        &mut self,
        limits: Option<&BTreeMap<ApplicationPeer, u64>>,
        now: Instant,
    ) -> Result<(), TrafficError> {
        let Some(demands) = &mut self.demands else { return Ok(()) };
        let (changes, lease) = (demands.divide_limits(limits, now), demands.limit_lease());
        set_limits(&mut self.traffic, changes, lease)
    }

    fn update_connections(&mut self, now: Instant) -> Result<(), TrafficError> {
        while self.waiting.len() < MAX_WAITING_EVENTS
            && let Some(event) = self.traffic.next_event()
        {
            self.has_events = true;
            self.peers.find(event.connection.socket, &event.ends);
            self.waiting.push_back(event);
        }
        self.peers.update(now);
        while let Some(event) = self.waiting.front().copied()
            && let Some(peer) = self.peers.find(event.connection.socket, &event.ends)
        {
            self.waiting.pop_front();
            self.apply_event(&event, peer, now);
        }
        if now.duration_since(self.last_refresh) >= REFRESH_INTERVAL {
            self.last_refresh = now;
            self.traffic.refresh_applications()?;
            let conflicts = [self.traffic.path_conflicts(), &self.byte_conflicts].concat();
            replace_conflicts(&mut self.conflicts, conflicts);
            let maps = self.traffic.restore_entries()?;
            self.count_restored(RestoredObjects { maps, ..RestoredObjects::default() });
        }
        let interval = match &self.demands {
            Some(_) => Demands::period(),
            None if self.has_events => MIN_COUNT_INTERVAL,
            None => MAX_COUNT_INTERVAL,
        };
        if now.duration_since(self.last_count) >= interval.max(self.count_duration * COUNT_TIME_DIVISOR) {
            self.count_connections(now)?;
        }
        Ok(())
    }

    /// Applies the event of a connection to the host at `peer`.
    fn apply_event(&mut self, event: &ConnectionEvent, peer: IpAddr, now: Instant) {
        let ConnectionEvent { kind, ends, connection, .. } = event;
        let application = self.traffic.marking_application(connection.application, ends);
        if self.demands.is_some()
            && let Some(name) = self.find_name(application)
            && let Some(demands) = &mut self.demands
        {
            demands.record_event(event, name, peer, now);
        }
        if *kind == EventKind::Closed
            && let Some(tally) = self.tally_mut(application, peer, now)
        {
            tally.closed_bytes += connection.sent;
            // A connection that closed between two counts also counts.
            tally.open_connections = tally.open_connections.max(1);
        }
    }

    /// Applies a search for interfaces of pods and tunnels.
    pub fn apply_paths(&mut self, changes: PathChanges) {
        let result = self.traffic.apply_paths(changes);
        if let Ok(programs) = result {
            self.count_restored(RestoredObjects { programs, ..RestoredObjects::default() });
        }
        self.log_new_error(result.map(drop));
    }

    /// Restores programs and maps that another process removed.
    pub fn repair(&mut self) {
        let (restored, result) = self.traffic.repair();
        self.count_restored(restored);
        self.log_new_error(result);
    }

    /// Applies an inspection of the order of programs at interfaces.
    pub fn apply_order(&mut self, changes: Result<OrderChanges, TrafficError>) {
        let result = changes.and_then(|changes| self.traffic.apply_order(changes)).map(|count| {
            if count > 0 {
                tracing::warn!("attached {count} BPF programs again before those of other owners");
            }
        });
        self.log_new_error(result);
    }

    fn count_restored(&mut self, restored: RestoredObjects) {
        if restored != RestoredObjects::default() {
            let (programs, maps) = (restored.programs, restored.maps);
            tracing::warn!(
                "restored {programs} BPF programs and {maps} BPF maps or entries that another process had removed"
            );
            self.restored = self.restored.add(restored);
        }
    }

    /// The kernel objects that were restored so far.
    pub fn restored(&self) -> RestoredObjects {
        self.restored
    }

    /// The tally of an application and a peer. None for an application that has been removed, and beyond [`MAX_OBSERVED`] tallies.
    fn tally_mut(&mut self, id: ApplicationId, peer: IpAddr, now: Instant) -> Option<&mut Tally> {
        let key = (self.find_name(id)?, peer);
        if self.tallies.len() == MAX_OBSERVED && !self.tallies.contains_key(&key) {
            return None;
        }
        let demand = Demand::Unknown;
        let new_tally = || Tally {
            open_connections: 0,
            closed_bytes: 0,
            sent_bytes: 0,
            demand,
            last_seen: now,
            reported: None,
            reported_at: now,
        };
        let tally = self.tallies.entry(key).or_insert_with(new_tally);
        tally.last_seen = now;
        Some(tally)
    }

    fn count_connections(&mut self, now: Instant) -> Result<(), TrafficError> {
        (self.last_count, self.has_events) = (now, false);
        let mut open_by_peer: BTreeMap<(ApplicationId, IpAddr), (u32, u64)> = BTreeMap::new();
        let mut connections = Vec::new();
        for (ends, state) in self.traffic.connections()? {
            // The next count has the others.
            let Some(peer) = self.peers.find(state.socket, &ends) else {
                self.has_events = true;
                continue;
            };
            let marking = self.traffic.marking_application(state.application, &ends);
            let (application, state) = (state.application, Connection { application: marking, ..state });
            connections.push(OpenConnection { application, ends, peer, state });
        }
        self.peers.forget_unused(self.waiting.iter().map(|event| event.connection.socket));
        for OpenConnection { peer, state, .. } in &connections {
            let (open, sent) = open_by_peer.entry((state.application, *peer)).or_default();
            (*open, *sent) = (*open + 1, *sent + state.sent);
        }
        for tally in self.tallies.values_mut() {
            tally.sent_bytes = tally.sent_bytes.max(tally.closed_bytes);
        }
        for ((id, peer), (open, sent)) in open_by_peer {
            if let Some(tally) = self.tally_mut(id, peer, now) {
                tally.open_connections = open;
                // The bytes may include connections whose event has not been read.
                tally.sent_bytes = tally.sent_bytes.max(tally.closed_bytes + sent);
            }
        }
        if let Some(demands) = &mut self.demands {
            let (traffic, options, ordered) = (&self.traffic, &self.options, &self.ordered);
            demands.measure(&connections, |id| find_name(traffic, options, ordered, id), now);
            let demand_by_peer = demands.by_peer();
            for (peer, tally) in &mut self.tallies {
                tally.demand = demand_by_peer.get(peer).copied().unwrap_or_default();
            }
        }
        self.tallies.retain(|_, tally| {
            if now.duration_since(tally.last_seen) >= LINGER {
                tally.open_connections = 0;
            }
            tally.open_connections > 0 || tally.reported.is_some_and(|(open, ..)| open > 0)
        });
        Ok(())
    }

    /// The tallies that changed since the last report, sorted by application and peer.
    pub fn take_changes(&mut self, now: Instant) -> Vec<ObservedConnections> {
        let mut observed = Vec::new();
        for ((application, peer), tally) in &mut self.tallies {
            let (open, sent, demand) = (tally.open_connections, tally.sent_bytes, tally.demand);
            let reported = tally.reported.unwrap_or_default();
            let is_changed = reported.0 != open || is_demand_changed(reported.2, demand);
            if is_changed
                || reported.1 != sent && now.duration_since(tally.reported_at) >= BYTES_REPORT_INTERVAL
            {
                (tally.reported, tally.reported_at) = (Some((open, sent, demand)), now);
                let application = Arc::clone(application);
                observed.push(ObservedConnections {
                    application,
                    peer: *peer,
                    open_connections: open,
                    sent_bytes: sent,
                    demand,
                });
            }
        }
        observed
    }

    /// Reports all tallies again.
    pub fn report_all(&mut self) {
        self.tallies.values_mut().for_each(|tally| tally.reported = None);
    }

    /// Sets the classes of applications, as an order names them. No effect while orders end all classes: the queues of an earlier order can
    /// become ready after the order that ends them.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_classes(&mut self, queues: &Queues) -> Result<(), String> {
        if self.is_without_classes {
            return Ok(());
        }
        self.ordered_classes.clone_from(&queues.class_of_application);
        for (name, class) in &self.options {
            let class = find_class(&self.ordered_classes, name).unwrap_or(*class);
            self.traffic.set_class(name, class).map_err(|error| error.to_string())?;
        }
        for ApplicationTraffic { application, .. } in self.ordered.iter() {
            let is_option = self.options.iter().any(|(name, _)| name == application);
            if !is_option {
                let class = find_class(&self.ordered_classes, application).flatten();
                self.traffic.set_class(application, class).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// Removes the classes of all applications, also those of the agent's options, or sets those of the options again.
    pub fn set_without_classes(&mut self, without_classes: bool) {
        self.is_without_classes = without_classes;
        self.ordered_classes.clear();
        let mut result = Ok(());
        for (name, class) in &self.options {
            let class = class.filter(|_| !without_classes);
            result = result.and(self.traffic.set_class(name, class).map(drop));
        }
        for ApplicationTraffic { application, .. } in self.ordered.iter().filter(|_| without_classes) {
            result = result.and(self.traffic.set_class(application, None).map(drop));
        }
        self.log_new_error(result);
    }

    /// Replaces the traffic that orders name, which the next search finds. `queues` has the classes of applications, if an order has named
    /// some.
    pub fn set_ordered(&mut self, ordered: &[ApplicationTraffic], queues: Option<&Queues>) {
        self.ordered = ordered.into();
        if let Some(queues) = queues {
            self.ordered_classes.clone_from(&queues.class_of_application);
        }
    }

    /// A search for the ordered traffic; none without ordered traffic, now and before.
    pub fn target_search(&self, now: Instant) -> Option<TargetSearch> {
        self.traffic.target_search(&self.ordered, now)
    }

    /// Applies the result of a search. Returns the conflicts: why some of the ordered traffic is not marked.
    pub fn apply_targets(&mut self, found: FoundTargets, now: Instant) -> Vec<String> {
        let classes = &self.ordered_classes;
        self.traffic.apply_targets(found, |name| find_class(classes, name), now)
    }

    /// The next step of the removal of the state of applications that no longer exist; none if nothing is left. An error is logged, and
    /// the next call tries again.
    pub fn removal_step(&mut self) -> Option<RemovalWait> {
        let result = self.traffic.removal_step();
        result.unwrap_or_else(|error| {
            self.log_new_error(Err(error));
            None
        })
    }

    fn find_name(&self, id: ApplicationId) -> Option<Arc<str>> {
        find_name(&self.traffic, &self.options, &self.ordered, id)
    }
}

/// Sets changed limits for a lease. Sets all of them, and returns the first error.
fn set_limits(traffic: &mut Traffic, changes: LimitChanges, lease: Duration) -> Result<(), TrafficError> {
    let mut result = Ok(());
    for (ends, rate) in changes.connections {
        result = result.and(traffic.set_pacing_rate(ends, rate, lease).map(drop));
    }
    for ((application, remote), start) in changes.starts {
        result = result.and(traffic.set_start_rate(application, remote, start, lease));
    }
    result
}

/// The name of an application by its number; none for an application that has been removed.
fn find_name(
    traffic: &Traffic,
    options: &[(Arc<str>, Option<TrafficClass>)],
    ordered: &[ApplicationTraffic],
    id: ApplicationId,
) -> Option<Arc<str>> {
    let name = traffic.application_name(id)?;
    let of_options = options.iter().map(|(known, _)| known);
    let mut names = of_options.chain(ordered.iter().map(|entry| &entry.application));
    names.find(|known| ***known == *name).cloned()
}

/// The ordered class of an application, which is none if its packets have no mark; none if the order does not name it. `LeaseState` refuses
/// orders with classes out of range.
fn find_class(classes: &[(Arc<str>, u32)], name: &str) -> Option<Option<TrafficClass>> {
    let (_, class) = classes.iter().find(|(known, _)| **known == *name)?;
    Some(u8::try_from(*class).ok().and_then(TrafficClass::new))
}

/// Whether a demand has to be reported.
fn is_demand_changed(reported: Demand, current: Demand) -> bool {
    match (reported, current) {
        (Demand::Rate(reported_rate), Demand::Rate(current_rate)) => {
            reported_rate.abs_diff(current_rate) as f64
                > (DEMAND_TOLERANCE * reported_rate as f64).max(f64::from(MIN_PACING_RATE))
        }
        _ => reported != current,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_can_leave_an_application_without_marks() {
        let classes = [("ads".into(), Queues::UNMARKED), ("web".into(), 7)];
        let found = |name: &str| find_class(&classes, name);
        assert_eq!(
            (found("ads"), found("web"), found("other")),
            (Some(None), Some(TrafficClass::new(7)), None)
        );
    }
}
