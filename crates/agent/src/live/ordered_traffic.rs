//! Applies the traffic of applications that orders name: starts the programs in the kernel at the first such order, if no option of the
//! agent has started them, and reports traffic that cannot be marked as conflicts.

use std::time::{Duration, Instant};

use weir_core::units::Rate;
use weir_proto::{ALL_INTERFACES, Conflict, ConflictReason, UdpControl};

use super::interfaces::agent_action;
use super::observed_connections::Applications;
use super::{AgentState, Settings, log};
use crate::queues::Interface;
use crate::traffic::Traffic;

/// How long the agent waits before it tries again to start the programs.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// The start of programs for ordered traffic, and its conflicts.
pub struct OrderedTraffic {
    /// Where to attach programs, and the rate of the link; none for a switch, and with `dry_run`.
    place: Option<(Vec<Interface>, Rate)>,
    /// Why the programs could not be started, and when to try again.
    failure: Option<(String, Instant)>,
    /// What the coordinator has requested at the start of the stream.
    udp_control: Option<UdpControl>,
    wants_demands: bool,
    /// Whether the coordinator has named traffic on this stream. Another one may be of an earlier version, and close the stream because of
    /// a conflict that it does not know.
    is_named: bool,
    conflicts: Vec<Conflict>,
}

impl OrderedTraffic {
    /// For an agent with these settings, before the first order.
    pub fn new(settings: &Settings) -> OrderedTraffic {
        let link = settings.links.first().filter(|_| settings.local_socket.is_some() && !settings.dry_run);
        OrderedTraffic {
            place: link.map(|link| (link.interfaces.clone(), link.rate)),
            failure: None,
            udp_control: None,
            wants_demands: false,
            is_named: false,
            conflicts: Vec::new(),
        }
    }

    /// Prepares for a new stream to a coordinator.
    pub fn begin_stream(&mut self, udp_control: Option<UdpControl>, wants_demands: bool) {
        (self.udp_control, self.wants_demands, self.is_named) = (udp_control, wants_demands, false);
    }

    /// Records an order that sets the traffic, and whether the order names some.
    pub fn record_order(&mut self, is_named: bool) {
        self.is_named |= is_named;
    }

    /// The conflicts to report.
    pub fn reported_conflicts(&self) -> &[Conflict] {
        if self.is_named { &self.conflicts } else { &[] }
    }

    /// The number of conflicts.
    pub fn conflict_count(&self) -> usize {
        self.conflicts.len()
    }

    /// Replaces the conflicts, and logs those that are new or resolved.
    fn set_conflicts(&mut self, details: &[String]) {
        let to_conflict = |detail: &String| Conflict::new(ALL_INTERFACES, ConflictReason::Traffic, detail);
        let conflicts: Vec<Conflict> = details.iter().map(to_conflict).collect();
        if conflicts == self.conflicts {
            return;
        }
        for new in conflicts.iter().filter(|conflict| !self.conflicts.contains(conflict)) {
            log(&format!("conflict: {new}; {}", agent_action(new.reason())));
        }
        for old in self.conflicts.iter().filter(|conflict| !conflicts.contains(conflict)) {
            log(&format!("conflict resolved: {old}"));
        }
        self.conflicts = conflicts;
    }
}

impl AgentState {
    /// Applies the ordered traffic of applications. Starts the programs if there is some and none of the options has started them.
    pub(super) fn apply_ordered_traffic(&mut self) {
        let now = Instant::now();
        if self.applications.is_none() && !self.lease.traffic().is_empty() {
            self.start_ordered_traffic(now);
        }
        let queues = self.lease.queues(self.now());
        if let Some(applications) = &mut self.applications {
            // A host has one link.
            applications.set_ordered(self.lease.traffic(), queues.get(&0), now);
        }
        drop(queues);
        self.update_ordered_traffic();
    }

    fn start_ordered_traffic(&mut self, now: Instant) {
        let Some((interfaces, link_rate)) = &self.ordered_traffic.place else { return };
        match Traffic::start_for_orders(interfaces) {
            Ok(traffic) => {
                self.ordered_traffic.failure = None;
                let mut applications = Applications::new(traffic, *link_rate);
                let queues = self.lease.queues(self.start_time.elapsed());
                // The programs of an earlier agent stay until its applications are added.
                applications.set_ordered(self.lease.traffic(), queues.get(&0), now);
                applications.begin_stream(self.ordered_traffic.wants_demands);
                let udp_control = self.ordered_traffic.udp_control;
                applications.udp_throttling.begin_stream(&mut applications.traffic, udp_control, now);
                self.is_throttling_unavailable = false;
                self.applications = Some(applications);
            }
            Err(error) => {
                self.ordered_traffic.failure = Some((error.to_string(), now + RETRY_INTERVAL));
            }
        }
    }

    /// Tries a failed start again when it is due, and updates the conflicts.
    pub(super) fn update_ordered_traffic(&mut self) {
        let is_due = |(_, retry_at): &(String, Instant)| Instant::now() >= *retry_at;
        if self.lease.traffic().is_empty() {
            self.ordered_traffic.failure = None;
        } else if self.applications.is_none() && self.ordered_traffic.failure.as_ref().is_some_and(is_due) {
            self.start_ordered_traffic(Instant::now());
        }
        let of_start = self.ordered_traffic.failure.iter().map(|(reason, _)| reason);
        let of_applications = self.applications.iter().flat_map(|known| known.ordered_conflicts());
        let details: Vec<String> = of_start.chain(of_applications).cloned().collect();
        self.ordered_traffic.set_conflicts(&details);
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::live::Link;

    fn settings(local_socket: Option<PathBuf>, dry_run: bool) -> Settings {
        Settings {
            coordinator: tonic::transport::Endpoint::from_static("http://127.0.0.1:1").into(),
            host: 0,
            links: vec![Link { rate: Rate::new(1e6).unwrap(), interfaces: Vec::new() }],
            local_socket,
            watchdog: None,
            has_socket_programs: false,
            dry_run,
        }
    }

    #[test]
    fn only_agents_of_hosts_apply_ordered_traffic() {
        assert!(OrderedTraffic::new(&settings(Some("/x".into()), false)).place.is_some());
        assert!(OrderedTraffic::new(&settings(Some("/x".into()), true)).place.is_none());
        assert!(OrderedTraffic::new(&settings(None, false)).place.is_none());
    }

    #[test]
    fn conflicts_are_reported_only_to_a_coordinator_that_orders_traffic() {
        let mut ordered = OrderedTraffic::new(&settings(Some("/x".into()), false));
        ordered.set_conflicts(&["application web: the agent's options define it".to_owned()]);
        assert_eq!((ordered.conflict_count(), ordered.reported_conflicts()), (1, &[][..]));
        ordered.record_order(true);
        let texts: Vec<String> = ordered.reported_conflicts().iter().map(Conflict::to_string).collect();
        assert_eq!(texts, ["-: traffic (application web: the agent's options define it)"]);
        // A full order of a coordinator that does not know of it, after it has taken over.
        ordered.begin_stream(None, false);
        ordered.record_order(false);
        assert_eq!(ordered.reported_conflicts(), &[][..]);
    }
}
