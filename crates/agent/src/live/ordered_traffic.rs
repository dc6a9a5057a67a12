//! Applies the traffic of applications that orders name: starts the programs in the kernel at the first such order, if no option of the
//! agent has started them, and reports traffic that cannot be marked as conflicts. If no order names traffic, it removes the programs that
//! an earlier agent has left.
//!
//! Searches for cgroups and for interfaces of pods, and waits for the kernel, run in other threads, which do not hold the state of the
//! agent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use weir_core::units::Rate;
use weir_proto::{ALL_INTERFACES, Conflict, ConflictReason, UdpControl};

use super::interfaces::agent_action;
use super::observed_connections::Applications;
use super::{AgentState, Settings, SharedState};
use crate::queues::Interface;
use crate::traffic::{FoundTargets, TargetSearch, Traffic, TrafficError, remove_unused_applications};

/// How often the agent looks for cgroups of orders.
const SEARCH_INTERVAL: Duration = Duration::from_millis(250);

/// Searches take at most one `SEARCH_TIME_DIVISOR`th of the time.
const SEARCH_TIME_DIVISOR: u32 = 10;

/// How long the agent waits before it tries again to start the programs, or to remove those of an earlier agent.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// The start of programs for ordered traffic, and its conflicts.
pub struct OrderedTraffic {
    /// Where to attach programs, and the rate of the link; none for a switch, and with `dry_run`.
    place: Option<(Vec<Interface>, Rate)>,
    /// Signals an order that sets the traffic.
    wake: Arc<Notify>,
    /// When to try again after a failure.
    retry_at: Option<Instant>,
    /// Whether no programs of an earlier agent are left.
    has_removed_programs: bool,
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
            wake: Arc::default(),
            retry_at: None,
            has_removed_programs: false,
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

    /// Records an order that sets the traffic, and whether the order names some. The agent applies it at once.
    pub fn record_order(&mut self, is_named: bool) {
        self.is_named |= is_named;
        self.retry_at = None;
        self.wake.notify_one();
    }

    /// The conflicts to report.
    pub fn reported_conflicts(&self) -> &[Conflict] {
        if self.is_named { &self.conflicts } else { &[] }
    }

    /// The number of conflicts.
    pub fn conflict_count(&self) -> usize {
        self.conflicts.len()
    }

    /// Records the removal of programs of an earlier agent.
    fn record_removal(&mut self, removed: Result<bool, TrafficError>) {
        match removed {
            Ok(has_any) => {
                self.has_removed_programs = true;
                if has_any {
                    tracing::info!("removed the BPF programs of an earlier agent: no order names traffic");
                }
            }
            Err(error) => {
                self.retry_at = Some(Instant::now() + RETRY_INTERVAL);
                tracing::warn!("the BPF programs of an earlier agent cannot be removed: {error}");
            }
        }
    }

    /// Replaces the conflicts, and logs those that are new or resolved.
    fn set_conflicts(&mut self, details: &[String]) {
        let to_conflict = |detail: &String| Conflict::new(ALL_INTERFACES, ConflictReason::Traffic, detail);
        replace_conflicts(&mut self.conflicts, details.iter().map(to_conflict).collect());
    }
}

/// Replaces conflicts, and logs those that are new or resolved.
pub fn replace_conflicts(conflicts: &mut Vec<Conflict>, present: Vec<Conflict>) {
    for new in present.iter().filter(|conflict| !conflicts.contains(conflict)) {
        tracing::warn!("conflict: {new}; {}", agent_action(new.reason()));
    }
    for old in conflicts.iter().filter(|conflict| !present.contains(conflict)) {
        tracing::info!("conflict resolved: {old}");
    }
    *conflicts = present;
}

/// What to do next, in another thread.
enum Task {
    /// Start the programs at these interfaces.
    Start(Vec<Interface>),
    /// Remove the programs of an earlier agent.
    RemovePrograms,
    /// Find the cgroups and ports of orders, and attach programs to them.
    Search(TargetSearch),
}

/// Applies the ordered traffic, until it is dropped.
pub async fn manage(shared: &SharedState) {
    let wake = Arc::clone(&shared.lock().ordered_traffic.wake);
    let mut search_time = Duration::ZERO;
    loop {
        tokio::select! {
            () = wake.notified() => {}
            () = sleep(SEARCH_INTERVAL.max(search_time * SEARCH_TIME_DIVISOR)) => {}
        }
        let task = shared.lock().next_task(Instant::now());
        // The jobs do not panic, so an error means that the runtime shuts down.
        let is_complete = match task {
            Some(Task::Start(interfaces)) => {
                let job = spawn_blocking(move || Traffic::start_for_orders(&interfaces));
                let Ok(started) = job.await else { return };
                shared.lock().record_start(started);
                false
            }
            Some(Task::RemovePrograms) => {
                let Ok(removed) = spawn_blocking(remove_unused_applications).await else { return };
                shared.lock().ordered_traffic.record_removal(removed);
                false
            }
            Some(Task::Search(search)) => {
                let Ok(found) = spawn_blocking(move || search.run()).await else { return };
                search_time = found.as_ref().map_or(Duration::ZERO, |found| found.duration);
                shared.lock().apply_found(found)
            }
            None => true,
        };
        let paths = shared.lock().applications.as_mut().map(|known| known.traffic.path_search());
        if let Some(search) = paths {
            let Ok(changes) = spawn_blocking(move || search.run()).await else { return };
            if let Some(applications) = &mut shared.lock().applications {
                applications.apply_paths(changes);
            }
        }
        // Targets of an earlier agent keep their marks until this one has added them.
        if is_complete {
            remove_stale_state(shared).await;
        }
    }
}

/// Removes the state of applications that no longer exist.
async fn remove_stale_state(shared: &SharedState) {
    let next_step = || shared.lock().applications.as_mut().and_then(Applications::removal_step);
    while let Some(wait) = next_step() {
        if spawn_blocking(move || wait.run()).await.is_err() {
            return;
        }
    }
}

impl AgentState {
    /// Sets the ordered traffic of applications.
    pub(super) fn set_ordered_traffic(&mut self) {
        let queues = self.lease.queues(self.start_time.elapsed());
        if let Some(applications) = &mut self.applications {
            // A host has one link.
            applications.set_ordered(self.lease.traffic(), queues.get(&0));
        }
    }

    fn next_task(&mut self, now: Instant) -> Option<Task> {
        let search = self.applications.as_ref().map(|applications| applications.target_search(now));
        let is_ordered = !self.lease.traffic().is_empty();
        if !is_ordered {
            self.ordered_traffic.set_conflicts(&[]);
        }
        if let Some(search) = search {
            return search.map(Task::Search);
        }
        let (interfaces, _) = self.ordered_traffic.place.as_ref()?;
        // The first order names all traffic.
        self.lease.lease_end()?;
        if self.ordered_traffic.retry_at.is_some_and(|retry_at| now < retry_at) {
            return None;
        }
        if is_ordered {
            return Some(Task::Start(interfaces.clone()));
        }
        (!self.ordered_traffic.has_removed_programs).then_some(Task::RemovePrograms)
    }

    /// Records the start of programs. Those of an earlier agent stay until its applications are added.
    fn record_start(&mut self, started: Result<Traffic, TrafficError>) {
        let now = Instant::now();
        let ordered = &mut self.ordered_traffic;
        match started {
            Ok(traffic) => {
                let link_rate = ordered.place.as_ref().map_or(Rate::ZERO, |(_, rate)| *rate);
                let mut applications = Applications::new(traffic, link_rate);
                applications.begin_stream(ordered.wants_demands);
                let udp_control = ordered.udp_control;
                applications.udp_throttling.begin_stream(&mut applications.traffic, udp_control, now);
                self.is_udp_control_unavailable &= !self.is_link_shaped;
                self.applications = Some(applications);
                self.set_ordered_traffic();
                self.ordered_traffic.wake.notify_one();
            }
            Err(error) => {
                // A failed start can leave programs.
                (ordered.retry_at, ordered.has_removed_programs) = (Some(now + RETRY_INTERVAL), false);
                ordered.set_conflicts(&[error.to_string()]);
                self.log_missing_udp_control(true);
            }
        }
    }

    /// Logs once that the coordinator limits UDP, and this agent cannot. `has_failed` tells whether the kernel refused the programs for
    /// ordered traffic.
    pub(super) fn log_missing_udp_control(&mut self, has_failed: bool) {
        if let Some(reason) = self.missing_udp_control(has_failed) {
            self.is_udp_control_unavailable = false;
            tracing::warn!(
                "the coordinator limits UDP, by throttling or by a maximum bandwidth, but this agent does not measure or limit UDP: {reason}"
            );
        }
    }

    /// Why this agent cannot limit UDP as the coordinator requests; none if it can, or may after it has started programs.
    fn missing_udp_control(&self, has_failed: bool) -> Option<&'static str> {
        if !self.is_udp_control_unavailable || self.ordered_traffic.udp_control.is_none() {
            return None;
        }
        if !self.is_link_shaped {
            return Some("it has no interface; help: start it with --interface");
        }
        if self.lease.traffic().is_empty() {
            return Some(
                "neither its options nor orders name traffic; help: start it with --application, or order traffic \
                 (`weir ctl application register`)",
            );
        }
        has_failed.then_some("its BPF programs did not start, which the conflict above explains")
    }

    /// Applies the result of a search, and returns whether all targets have programs.
    fn apply_found(&mut self, found: Result<FoundTargets, TrafficError>) -> bool {
        let Some(applications) = &mut self.applications else { return false };
        let is_complete = found.as_ref().is_ok_and(|found| found.is_complete);
        let conflicts = found.map_or_else(
            |error| vec![error.to_string()],
            |found| applications.apply_targets(found, Instant::now()),
        );
        self.ordered_traffic.set_conflicts(&conflicts);
        is_complete
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use tokio::sync::watch;
    use weir_proto::{ApplicationTraffic, Order};

    use super::*;
    use crate::live::{DesiredLinks, Link};

    fn settings(local_socket: Option<PathBuf>, dry_run: bool) -> Settings {
        settings_with_interfaces(local_socket, dry_run, &[])
    }

    fn settings_with_interfaces(
        local_socket: Option<PathBuf>,
        dry_run: bool,
        interfaces: &[&str],
    ) -> Settings {
        let interfaces = interfaces.iter().map(|name| name.parse().unwrap()).collect();
        Settings {
            coordinator: tonic::transport::Endpoint::from_static("http://127.0.0.1:1").into(),
            name: "a".to_owned(),
            links: vec![Link { rate: Rate::new(1e6).unwrap(), interfaces }],
            networks: Vec::new(),
            labels: std::collections::BTreeMap::new(),
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

    /// The next task, in one word.
    fn next_task(agent: &mut AgentState, now: Instant) -> &'static str {
        match agent.next_task(now) {
            None => "none",
            Some(Task::Start(_)) => "start",
            Some(Task::RemovePrograms) => "remove",
            Some(Task::Search(_)) => "search",
        }
    }

    fn web_traffic() -> Vec<ApplicationTraffic> {
        vec![ApplicationTraffic {
            application: "web".into(),
            cgroups: vec!["batch".to_owned()],
            ports: Vec::new(),
        }]
    }

    /// Applies the next order.
    fn apply_order(agent: &mut AgentState, traffic: Option<Vec<ApplicationTraffic>>) {
        let seq = agent.lease.applied().1 + 1;
        let lease = Duration::from_secs(1);
        agent.apply_order(Order { epoch: 1, seq, lease, is_full: seq == 1, traffic, ..Order::default() });
    }

    #[test]
    fn missing_limits_of_udp_are_logged_only_when_no_programs_can_start() {
        let agent = |interfaces: &[&str], udp_control: Option<UdpControl>| {
            let settings = settings_with_interfaces(Some("/x".into()), false, interfaces);
            let mut agent =
                AgentState::new(&settings, Vec::new(), None, watch::channel(DesiredLinks::default()).0);
            agent.begin_stream("127.0.0.1:1".parse().unwrap(), 0, Vec::new(), udp_control, false);
            agent
        };
        let maximum = Some(UdpControl::Allocation);

        // Ordered traffic starts programs, unless the kernel refuses them.
        let mut ordered = agent(&["eth0"], maximum);
        apply_order(&mut ordered, Some(web_traffic()));
        assert_eq!((ordered.missing_udp_control(false), ordered.is_udp_control_unavailable), (None, true));
        assert!(ordered.missing_udp_control(true).unwrap().starts_with("its BPF programs did not start"));
        ordered.record_start(Err(TrafficError::Busy));
        assert!(!ordered.is_udp_control_unavailable);

        let mut unordered = agent(&["eth0"], maximum);
        assert!(unordered.is_udp_control_unavailable);
        assert!(unordered.missing_udp_control(false).unwrap().contains("start it with --application"));
        apply_order(&mut unordered, None);
        assert!(!unordered.is_udp_control_unavailable);

        let mut without_interface = agent(&[], maximum);
        assert!(without_interface.missing_udp_control(false).unwrap().contains("start it with --interface"));
        apply_order(&mut without_interface, Some(web_traffic()));
        assert!(!without_interface.is_udp_control_unavailable);

        let mut unlimited = agent(&["eth0"], None);
        apply_order(&mut unlimited, None);
        assert!(unlimited.is_udp_control_unavailable);
    }

    #[test]
    fn programs_of_an_earlier_agent_stay_until_orders_name_no_traffic() {
        let settings = settings(Some("/x".into()), false);
        let mut agent =
            AgentState::new(&settings, Vec::new(), None, watch::channel(DesiredLinks::default()).0);
        let now = Instant::now();
        assert_eq!(next_task(&mut agent, now), "none");

        apply_order(&mut agent, Some(web_traffic()));
        assert_eq!(next_task(&mut agent, now), "start");
        agent.record_start(Err(TrafficError::Busy));
        assert_eq!((next_task(&mut agent, now), agent.ordered_traffic.conflict_count()), ("none", 1));
        assert_eq!(next_task(&mut agent, Instant::now() + RETRY_INTERVAL), "start");
        // An order that does not change the traffic has no effect, and another one is applied at once.
        apply_order(&mut agent, None);
        assert_eq!(next_task(&mut agent, now), "none");
        apply_order(&mut agent, Some(Vec::new()));
        assert_eq!((next_task(&mut agent, now), agent.ordered_traffic.conflict_count()), ("remove", 0));
        agent.ordered_traffic.record_removal(Err(TrafficError::NoCgroups));
        assert_eq!(next_task(&mut agent, now), "none");
        assert_eq!(next_task(&mut agent, Instant::now() + RETRY_INTERVAL), "remove");
        agent.ordered_traffic.record_removal(Ok(true));
        assert_eq!(next_task(&mut agent, Instant::now() + RETRY_INTERVAL), "none");
        // A failed start can leave programs again.
        apply_order(&mut agent, Some(web_traffic()));
        agent.record_start(Err(TrafficError::NoCgroups));
        apply_order(&mut agent, Some(Vec::new()));
        assert_eq!(next_task(&mut agent, now), "remove");
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
