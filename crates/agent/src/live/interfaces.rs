//! Applies orders to the interfaces of a host or switch: their queues, and the classes of applications in these queues.
//!
//! The agent compares an interface with its orders when an order changes, when the kernel reports a change of the interface, and
//! every few seconds in case a notification was lost. It changes only objects that differ. Queues that another process removed
//! are restored; a root queueing discipline that another process set up stays, and is reported as a conflict until it is removed.
//!
//! Queues that an earlier agent has left stay until an order names queues. If none does, one queue at the full rate replaces them: their
//! rates may be those of a limit that has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep_until;
use weir_core::units::Rate;
use weir_proto::{BandwidthLimit, Conflict, ConflictReason, MAX_CONFLICTS, Queues};

use super::{DesiredLinks, Link, SharedState};
use crate::notifications::{ChangedInterfaces, Notifications};
use crate::queues::{Device, Interface, InterfaceLock, LimitedFlow, QueueError};

mod check;

use check::{CheckJob, CheckResult, Configuration};

/// The first wait before the agent tries a failed configuration again. The wait doubles after each failure.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The maximum wait before the agent tries again.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The minimum time between two checks after notifications, and between two changes where UDP flows have rates: each starts processes.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// How long the agent waits after a notification: a process that deletes a root queueing discipline often sets up another one next.
const NOTIFICATION_DELAY: Duration = Duration::from_millis(200);

/// How long an interface sends a tenth less after its queues were set up: without them, the queue of the next switch has filled, and would
/// drain slowly at almost the rate of the link.
const DRAIN_TIME: Duration = Duration::from_millis(500);

/// The minimum time between two repairs of an interface, doubled with each repair within a minute of the last: a process that removes
/// queues in a loop must not keep the host busy.
const MIN_REPAIR_INTERVAL: Duration = Duration::from_millis(500);

/// The number of interfaces that are checked before the agent reads orders and notifications again.
const MAX_CHECKS_PER_BATCH: usize = 8;

/// How often interfaces are checked without a notification.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Checks without a notification take at most one `CHECK_TIME_DIVISOR`th of the time.
const CHECK_TIME_DIVISOR: u32 = 20;

/// The desired state of a link.
#[derive(Debug, Clone, Default, PartialEq)]
struct DesiredLink {
    /// The queues, if an order names some.
    queues: Option<Queues>,
    /// The classes of UDP flows.
    limited_flows: BTreeMap<u16, LimitedFlow>,
    /// The address of the last coordinator.
    coordinator: Option<SocketAddr>,
    /// The rate of the link in its configuration, if it has one.
    configured_rate: Option<Rate>,
    /// The limit of what the host sends.
    bandwidth_limit: Option<BandwidthLimit>,
    /// Whether the last order ends the queues.
    without_queues: bool,
}

impl DesiredLink {
    /// Whether an interface of the link has no queues of the agent.
    fn has_no_queues(&self) -> bool {
        self.queues.is_none() && self.limited_flows.is_empty() && self.bandwidth_limit.is_none()
    }

    /// Whether the former root queueing discipline of an interface of the link is restored.
    fn restores_former_root(&self) -> bool {
        self.without_queues && self.has_no_queues()
    }
}

/// Whose links an agent keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// A host: it sends the packets of its programs.
    Host,
    /// A switch, which forwards those of others.
    Switch,
}

/// The state of all interfaces, as reported to the coordinator.
#[derive(Debug, Clone, Default)]
pub struct InterfaceStatus {
    /// Interfaces that differ from their orders, at most [`MAX_CONFLICTS`].
    pub conflicts: Vec<Conflict>,
    /// How many queueing objects were restored.
    pub restored: u64,
    /// The present names of the interfaces that exist, each with the number of its link.
    pub names: Vec<(u32, Interface)>,
    /// The limit of all interfaces; none if one of them is unlimited, or their limits differ.
    pub bandwidth_limit: Option<BandwidthLimit>,
    /// The numbers of the links that are down, rising.
    pub links_down: Vec<u32>,
}

/// An interface that the agent keeps as ordered.
#[derive(Debug)]
struct ManagedInterface {
    /// The number of the link at the coordinator.
    link: u32,
    /// The rate of the link in the agent's options. Each interface may send at it, or at its speed.
    link_rate: Rate,
    kind: Machine,
    /// The name in the agent's options.
    name: Interface,
    desired: DesiredLink,
    /// Whether queues of an earlier agent end if no order names queues.
    ends_inherited_queues: bool,
    /// The state at the last check; none if the interface did not exist.
    device: Option<Device>,
    /// Whether the interface has existed.
    was_found: bool,
    /// What the last check configured; none before the first order.
    configuration: Option<Configuration>,
    conflicts: Vec<Conflict>,
    last_check: Option<Instant>,
    next_check: Instant,
    /// The wait before the next attempt while a conflict prevents the configuration.
    retry_wait: Duration,
    /// The time of the next attempt.
    retry_at: Option<Instant>,
    /// Until when the interface sends a tenth less.
    drain_end: Option<Instant>,
    /// When queues were restored last, and how long to wait from then to the next repair.
    last_repair: Option<(Instant, Duration)>,
    /// The first speed that was read.
    first_speed: Option<Rate>,
    /// The other interface of the agent whose packets were found to pass this one, too.
    stacked_with: Option<Interface>,
}

/// Keeps the interfaces of all links as ordered, until the last sender of orders is dropped. `kind` tells whose links they are.
pub async fn manage(
    shared: &SharedState,
    links: &[Link],
    kind: Machine,
    mut desired_updates: watch::Receiver<DesiredLinks>,
) {
    let mut notifications = match Notifications::open() {
        Ok(notifications) => Some(notifications),
        Err(error) => {
            tracing::warn!(
                "notifications about interfaces are unavailable ({error}); checking every {} s",
                CHECK_INTERVAL.as_secs()
            );
            None
        }
    };
    let mut interfaces: Vec<ManagedInterface> = (0u32..)
        .zip(links)
        .flat_map(|(number, link)| ManagedInterface::for_link(number, link, kind))
        .collect();
    let mut status = InterfaceStatus::default();
    loop {
        check_due(shared, &mut interfaces, &mut status).await;
        let next = interfaces.iter().map(|managed| managed.next_check).min();
        tokio::select! {
            biased;
            changed = desired_updates.changed() => match changed {
                Ok(()) => set_desired(&mut interfaces, desired_updates.borrow_and_update().clone()),
                Err(_) => return,
            },
            changed = next_change(&mut notifications) => handle_notification(&mut interfaces, changed),
            () = async { match next {
                Some(next) => sleep_until(next.into()).await,
                None => pending().await,
            } } => {}
        }
    }
}

/// Prints the commands that would apply the orders, until the last sender of orders is dropped.
pub async fn print_commands(
    links: &[Link],
    kind: Machine,
    mut desired_updates: watch::Receiver<DesiredLinks>,
) {
    let mut interfaces: Vec<ManagedInterface> = (0u32..)
        .zip(links)
        .flat_map(|(number, link)| ManagedInterface::for_link(number, link, kind))
        .collect();
    while desired_updates.changed().await.is_ok() {
        set_desired(&mut interfaces, desired_updates.borrow_and_update().clone());
        for managed in interfaces
            .iter_mut()
            .filter(|managed| managed.configuration.is_some() || !managed.desired.has_no_queues())
        {
            if managed.desired.restores_former_root() {
                // Nothing was configured.
                managed.configuration = None;
                continue;
            }
            let CheckJob { name, max_rate, kind, desired, configuration, .. } =
                managed.check_job(BTreeSet::new(), BTreeSet::new());
            if configuration.is_some_and(|configuration| configuration.desired == desired) {
                continue;
            }
            let commands = spawn_blocking(move || {
                let device = Device::read(&name)?;
                let next = Configuration::new(max_rate, kind, desired, &device, None);
                Ok::<_, QueueError>((name.commands(&next.desired_queues()?)?, next))
            });
            match commands.await {
                Ok(Ok((commands, next))) => {
                    managed.configuration = Some(next);
                    // If the reader has closed the pipe, there is nowhere to report the error.
                    let _ = io::stdout().write_all(commands.as_bytes());
                }
                Ok(Err(error)) => tracing::warn!("{}: {error}", managed.name),
                Err(_) => return,
            }
        }
    }
}

/// Waits for a notification; forever without a subscription.
async fn next_change(notifications: &mut Option<Notifications>) -> ChangedInterfaces {
    loop {
        let Some(open) = notifications else { return pending().await };
        match open.next_change().await {
            Ok(changed) => return changed,
            Err(error) => {
                tracing::warn!(
                    "notifications about interfaces failed ({error}); checking every {} s",
                    CHECK_INTERVAL.as_secs()
                );
                *notifications = None;
            }
        }
    }
}

/// Sets the desired state of interfaces. An interface whose desired state has changed is due for a check.
fn set_desired(interfaces: &mut [ManagedInterface], mut desired_links: DesiredLinks) {
    let now = Instant::now();
    let queues = std::mem::take(&mut desired_links.queues);
    for managed in interfaces {
        // Only a host has flows, and it has one link.
        let limited_flows =
            if managed.link == 0 { desired_links.limited_flows.clone() } else { BTreeMap::new() };
        let (queues, coordinator) = (queues.get(&managed.link).cloned(), desired_links.coordinator);
        let configured_rate = desired_links.link_rates.get(managed.link as usize).copied();
        let configured_rate =
            configured_rate.filter(|&rate| rate > 0).and_then(|rate| Rate::new(rate as f64));
        let (bandwidth_limit, without_queues) = (desired_links.bandwidth_limit, desired_links.without_queues);
        let desired = DesiredLink {
            queues,
            limited_flows,
            coordinator,
            configured_rate,
            bandwidth_limit,
            without_queues,
        };
        if desired_links.ends_inherited_queues && !managed.ends_inherited_queues {
            (managed.ends_inherited_queues, managed.next_check) = (true, now);
        }
        if desired == managed.desired {
            continue;
        }
        managed.desired = desired;
        if !managed.is_blocked() {
            managed.retry_wait = FIRST_WAIT;
        }
        // Rates of UDP flows change with each schedule.
        managed.next_check =
            if managed.desired.limited_flows.is_empty() { now } else { managed.next_order_check(now) };
    }
}

/// Processes a notification. The interfaces in it are due for a check, and so are those that do not exist.
fn handle_notification(interfaces: &mut [ManagedInterface], changed: ChangedInterfaces) {
    let now = Instant::now();
    for managed in interfaces {
        let is_affected = match (&changed, &managed.device) {
            (ChangedInterfaces::Indexes(indexes), Some(device)) => indexes.contains(&device.index),
            _ => true,
        };
        if is_affected {
            managed.next_check = managed.next_check.min(managed.next_notification_check(now));
        }
    }
}

/// Checks interfaces that are due, at most [`MAX_CHECKS_PER_BATCH`] and the longest overdue first. Updates the status for reports.
async fn check_due(shared: &SharedState, interfaces: &mut [ManagedInterface], status: &mut InterfaceStatus) {
    let began = Instant::now();
    let mut due: Vec<usize> =
        (0..interfaces.len()).filter(|&index| interfaces[index].next_check <= began).collect();
    due.sort_by_key(|&index| interfaces[index].next_check);
    due.truncate(MAX_CHECKS_PER_BATCH);
    if due.is_empty() {
        return;
    }
    for &index in &due {
        let others = interfaces.iter().enumerate().filter(|(other, _)| *other != index);
        let other_indexes = others.filter_map(|(_, other)| Some(other.device.as_ref()?.index)).collect();
        let locked_indexes = shared.lock().queue_locks.iter().map(InterfaceLock::index).collect();
        let job = interfaces[index].check_job(other_indexes, locked_indexes);
        // The job does not panic, so an error means that the runtime shuts down.
        let Ok(mut result) = spawn_blocking(move || job.run()).await else { return };
        shared.lock().queue_locks.extend(result.lock.take());
        status.restored += interfaces[index].record_check(result, shared);
    }
    warn_of_stacked(interfaces);
    let now = Instant::now();
    let check_duration = (now - began) / due.len() as u32;
    let check_interval = CHECK_INTERVAL.max(check_duration * interfaces.len() as u32 * CHECK_TIME_DIVISOR);
    for index in due {
        let managed = &mut interfaces[index];
        managed.next_check = now + managed.next_wait(now, check_interval);
        if let Some(end) = managed.drain_end {
            managed.next_check = managed.next_check.min(if managed.is_draining() { end } else { now });
        }
        managed.last_check = Some(now);
    }
    status.conflicts =
        interfaces.iter().flat_map(|managed| &managed.conflicts).take(MAX_CONFLICTS).cloned().collect();
    status.names = interfaces
        .iter()
        .filter_map(|managed| Some((managed.link, managed.device.as_ref()?.name.clone())))
        .collect();
    status.bandwidth_limit = common_limit(interfaces);
    status.links_down = links_down(interfaces);
    shared.lock().interfaces.clone_from(status);
}

/// Logs interfaces of the agent whose packets pass another one of them. Each limits them, so both together are slower than one.
fn warn_of_stacked(interfaces: &mut [ManagedInterface]) {
    let names: BTreeSet<Interface> =
        interfaces.iter().filter_map(|managed| Some(managed.device.as_ref()?.name.clone())).collect();
    for managed in interfaces {
        let other = managed.device.as_ref().and_then(|device| device.stacked_with.clone());
        let other = other.filter(|other| names.contains(other));
        if let Some(other) = other.as_ref().filter(|other| managed.stacked_with.as_ref() != Some(other)) {
            tracing::warn!(
                "{}: its packets pass {other}, too, so they are queued and counted twice; help: name one of the two as --interface",
                managed.name
            );
        }
        managed.stacked_with = other;
    }
}

/// The limit that all interfaces have.
fn common_limit(interfaces: &[ManagedInterface]) -> Option<BandwidthLimit> {
    let limit = |managed: &ManagedInterface| managed.configuration.as_ref()?.desired.bandwidth_limit;
    let first = interfaces.first().and_then(limit);
    first.filter(|_| interfaces.iter().all(|managed| limit(managed) == first))
}

/// The links whose interfaces are all down, have no carrier or were deleted. Interfaces are in the order of their links. An interface that
/// has never existed proves nothing: the options may name the wrong one.
fn links_down(interfaces: &[ManagedInterface]) -> Vec<u32> {
    let is_down = |managed: &ManagedInterface| {
        managed.was_found && !managed.device.as_ref().is_some_and(|device| device.is_up)
    };
    let of_links = interfaces.chunk_by(|a, b| a.link == b.link);
    of_links.filter(|of_link| of_link.iter().all(is_down)).map(|of_link| of_link[0].link).collect()
}

impl ManagedInterface {
    fn for_link(number: u32, link: &Link, kind: Machine) -> impl Iterator<Item = ManagedInterface> {
        let now = Instant::now();
        link.interfaces.iter().map(move |name| ManagedInterface {
            link: number,
            link_rate: link.rate,
            kind,
            name: name.clone(),
            desired: DesiredLink::default(),
            ends_inherited_queues: false,
            device: None,
            was_found: false,
            configuration: None,
            conflicts: Vec::new(),
            last_check: None,
            next_check: now,
            retry_wait: FIRST_WAIT,
            retry_at: None,
            drain_end: None,
            last_repair: None,
            first_speed: None,
            stacked_with: None,
        })
    }

    /// The lower rate of the link: in the agent's options, or in the coordinator's configuration.
    fn max_rate(&self) -> Rate {
        let configured = self.desired.configured_rate;
        configured.filter(|configured| *configured < self.link_rate).unwrap_or(self.link_rate)
    }

    /// Whether the queues are configured for the time until `drain_end`.
    fn is_draining(&self) -> bool {
        self.configuration.as_ref().is_some_and(|configuration| configuration.is_draining)
    }

    /// When to check after an order.
    fn next_order_check(&self, now: Instant) -> Instant {
        self.last_check.map_or(now, |checked| now.max(checked + MIN_CHECK_INTERVAL))
    }

    /// When to check after a notification.
    fn next_notification_check(&self, now: Instant) -> Instant {
        let pause = if self.is_blocked() { FIRST_WAIT } else { MIN_CHECK_INTERVAL };
        let after_check = self.last_check.map_or(now, |checked| checked + pause);
        let after_repair = self.last_repair.map_or(now, |(at, pause)| at + pause);
        (now + NOTIFICATION_DELAY).max(after_check).max(after_repair)
    }

    /// Records a repair, and how long to wait until the next.
    fn record_repair(&mut self, now: Instant) {
        let recent_repair = self.last_repair.filter(|(at, _)| now - *at < MAX_WAIT);
        let pause = recent_repair.map_or(MIN_REPAIR_INTERVAL, |(_, pause)| (pause * 2).min(MAX_WAIT));
        self.last_repair = Some((now, pause));
    }

    fn check_job(&self, other_indexes: BTreeSet<u32>, locked_indexes: BTreeSet<u32>) -> CheckJob {
        CheckJob {
            name: self.name.clone(),
            max_rate: self.max_rate(),
            kind: self.kind,
            desired: self.desired.clone(),
            previous: self.device.clone(),
            configuration: self.configuration.clone(),
            first_speed: self.first_speed,
            other_indexes,
            locked_indexes,
            is_draining: self.drain_end.is_some_and(|end| Instant::now() < end),
            ends_inherited_queues: self.ends_inherited_queues,
        }
    }

    /// Records the result of a check, logs changes, and returns the number of restored queueing objects.
    fn record_check(&mut self, result: CheckResult, shared: &SharedState) -> u64 {
        let is_first = self.last_check.is_none();
        for line in describe_changes(self.device.as_ref(), result.device.as_ref(), is_first) {
            tracing::info!("{}: {line}", self.name);
        }
        let mut conflicts = Vec::new();
        let mut restored = 0;
        let previous = self.configuration.take();
        self.configuration = result.configuration;
        match result.changes {
            Ok(count) if count > 0 && previous.is_some() && previous == self.configuration => {
                restored = count as u64;
                tracing::warn!(
                    "{}: restored {count} queueing objects that another process had removed or changed",
                    self.name
                );
            }
            Ok(_)
                if previous.map(|applied| applied.desired.queues)
                    != self.configuration.as_ref().map(|applied| applied.desired.queues.clone()) =>
            {
                if let Err(reason) = self.set_classes(shared) {
                    self.configuration = None;
                    conflicts.push((ConflictReason::Refused, reason));
                }
            }
            Ok(_) => {}
            Err(QueueError::ForeignRoot { kind, .. }) => conflicts.push((ConflictReason::ForeignQdisc, kind)),
            Err(error) => conflicts.push((ConflictReason::Refused, error.to_string())),
        }
        match &result.device {
            None => conflicts.push((ConflictReason::Missing, String::new())),
            Some(device) if !device.is_up => conflicts.push((ConflictReason::Down, String::new())),
            Some(_) => {}
        }
        let speed = result.device.as_ref().and_then(|device| device.speed);
        self.first_speed = self.first_speed.or(speed);
        conflicts.extend(self.rate_conflict());
        let slow_speed = speed.filter(|&speed| speed < self.max_rate());
        conflicts.extend(slow_speed.map(|speed| (ConflictReason::Slow, speed.to_string())));
        if result.replaced_fq {
            tracing::warn!(
                "{}: replaced fq; the kernel paces connections that have used fq in no other way, so they have no rates until they close",
                self.name
            );
        }
        if result.has_new_root {
            self.drain_end = Some(Instant::now() + DRAIN_TIME);
        } else if !self.is_draining() {
            self.drain_end = None;
        }
        self.was_found |= result.device.is_some();
        self.device = result.device;
        self.set_conflicts(conflicts);
        if restored > 0 {
            self.record_repair(Instant::now());
        }
        restored
    }

    /// The conflict if the coordinator's configuration has another rate of the link.
    fn rate_conflict(&self) -> Option<(ConflictReason, String)> {
        let configured = self.desired.configured_rate.filter(|rate| differ(*rate, self.link_rate))?;
        let detail = format!("{configured} at the coordinator, {} in this agent's options", self.link_rate);
        Some((ConflictReason::Rate, detail))
    }

    /// Whether another process or the kernel prevents the agent from configuring the interface.
    fn is_blocked(&self) -> bool {
        let is_blocked = |conflict: &Conflict| {
            matches!(conflict.reason(), ConflictReason::ForeignQdisc | ConflictReason::Refused)
        };
        self.conflicts.iter().any(is_blocked)
    }

    /// Sets the ordered classes of applications. Call it after the queues are configured: until then, packets of a missing class share the
    /// queue of packets without a class.
    fn set_classes(&self, shared: &SharedState) -> Result<(), String> {
        let Some(queues) = self.desired.queues.as_ref() else { return Ok(()) };
        shared.lock().applications.as_mut().map_or(Ok(()), |known| known.set_classes(queues))
    }

    /// Replaces the conflicts, and logs those that are new or resolved.
    fn set_conflicts(&mut self, conflicts: Vec<(ConflictReason, String)>) {
        let name = self.name.to_string();
        let conflicts: Vec<Conflict> =
            conflicts.iter().map(|(reason, detail)| Conflict::new(&name, *reason, detail)).collect();
        // The kernel's messages may contain rates that change with each order.
        let is_known = |conflict: &Conflict| match conflict.reason() {
            ConflictReason::Refused => {
                self.conflicts.iter().any(|known| known.reason() == ConflictReason::Refused)
            }
            _ => self.conflicts.contains(conflict),
        };
        for new in conflicts.iter().filter(|conflict| !is_known(conflict)) {
            tracing::warn!("conflict: {new}; {}", agent_action(new.reason()));
        }
        let has_reason = |reason| conflicts.iter().any(|conflict| conflict.reason() == reason);
        for old in self.conflicts.iter().filter(|conflict| !has_reason(conflict.reason())) {
            tracing::info!("conflict resolved: {old}");
        }
        self.conflicts = conflicts;
    }

    /// The time until the next check. It doubles with each attempt while a conflict prevents the configuration. An earlier check, after
    /// a notification or an order, does not change it.
    fn next_wait(&mut self, now: Instant, check_interval: Duration) -> Duration {
        if !self.is_blocked() {
            (self.retry_wait, self.retry_at) = (FIRST_WAIT, None);
            return check_interval;
        }
        if let Some(remaining) =
            self.retry_at.and_then(|retry| retry.checked_duration_since(now)).filter(|left| !left.is_zero())
        {
            return remaining;
        }
        let wait = self.retry_wait;
        self.retry_wait = (wait * 2).min(MAX_WAIT);
        self.retry_at = Some(now + wait);
        wait
    }
}

/// Whether two rates differ by more than their rounding.
fn differ(a: Rate, b: Rate) -> bool {
    (a.get() - b.get()).abs() > 1e-6 * a.get().max(b.get()) + 1.0
}

/// The agent's reaction to a conflict, for the log.
pub fn agent_action(reason: ConflictReason) -> &'static str {
    match reason {
        ConflictReason::ForeignQdisc => {
            "the queueing discipline stays; the agent checks again after 1 s to 60 s, and configures its queues after the removal"
        }
        ConflictReason::Missing => "the agent configures the interface when it appears",
        ConflictReason::Down => "its queues stay",
        ConflictReason::Slow => "its queues share this speed",
        ConflictReason::Refused => "the agent tries again after 1 s to 60 s",
        ConflictReason::Rate => "the lower one counts",
        ConflictReason::Traffic => "the agent applies the rest of the order",
        ConflictReason::Unmarked => "these packets share the link as other traffic",
    }
}

/// The changes of an interface between two checks, one line each.
fn describe_changes(before: Option<&Device>, after: Option<&Device>, is_first: bool) -> Vec<String> {
    let (before, after) = match (before, after) {
        (None, Some(device)) if !is_first => return vec![format!("appeared as interface {}", device.index)],
        (Some(before), Some(after)) => (before, after),
        // A missing interface is logged as a conflict.
        _ => return Vec::new(),
    };
    if before.index != after.index {
        return vec![format!("recreated: was interface {}, is interface {}", before.index, after.index)];
    }
    let mut lines = Vec::new();
    if before.name != after.name {
        lines.push(format!("renamed from {} to {}; its queues and programs stay", before.name, after.name));
    }
    if before.is_up != after.is_up {
        lines.push(if after.is_up { "up" } else { "down" }.to_owned());
    }
    if before.mtu != after.mtu {
        lines.push(format!("MTU changed from {} to {}", before.mtu, after.mtu));
    }
    if before.speed != after.speed {
        let text = |speed: Option<Rate>| speed.map_or("unknown".to_owned(), |speed| speed.to_string());
        lines.push(format!("speed changed from {} to {}", text(before.speed), text(after.speed)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn device(index: u32, name: &str) -> Device {
        Device {
            index,
            name: name.parse().unwrap(),
            is_up: true,
            mtu: 1500,
            segments: 46,
            gso_max_segs: 65535,
            stacked_with: None,
            speed: Rate::new(1.25e9),
            is_physical: true,
        }
    }

    #[test]
    fn each_change_of_an_interface_is_one_line() {
        let before = device(7, "eth0");
        let lines = |after: Option<Device>| describe_changes(Some(&before), after.as_ref(), false);
        assert_eq!(lines(Some(device(7, "eth0"))), Vec::<String>::new());
        assert_eq!(lines(None), Vec::<String>::new());
        assert_eq!(lines(Some(device(9, "eth0"))), ["recreated: was interface 7, is interface 9"]);
        let other = Device { is_up: false, mtu: 9000, speed: Rate::new(1.25e8), ..device(7, "lan0") };
        assert_eq!(
            lines(Some(other)),
            [
                "renamed from eth0 to lan0; its queues and programs stay",
                "down",
                "MTU changed from 1500 to 9000",
                "speed changed from 10Gbit to 1Gbit"
            ]
        );
        assert_eq!(describe_changes(None, Some(&before), true), Vec::<String>::new());
        assert_eq!(describe_changes(None, Some(&before), false), ["appeared as interface 7"]);
    }

    #[test]
    fn repairs_wait_longer_each_time_within_a_minute() {
        let link = Link { rate: Rate::new(1.25e8).unwrap(), interfaces: vec!["eth0".parse().unwrap()] };
        let mut managed = ManagedInterface::for_link(0, &link, Machine::Host).next().unwrap();
        let mut now = Instant::now();
        let mut pauses = Vec::new();
        for _ in 0..4 {
            managed.record_repair(now);
            let next = managed.next_notification_check(now);
            pauses.push((next - now).as_millis());
            now = next;
        }
        assert_eq!(pauses, [500, 1000, 2000, 4000]);
        managed.record_repair(now + MAX_WAIT);
        assert_eq!(managed.last_repair.unwrap().1, MIN_REPAIR_INTERVAL);
    }

    #[test]
    fn waits_double_while_another_process_is_in_the_way() {
        let link = Link { rate: Rate::new(1.25e8).unwrap(), interfaces: vec!["eth0".parse().unwrap()] };
        let mut managed = ManagedInterface::for_link(0, &link, Machine::Host).next().unwrap();
        managed.set_conflicts(vec![(ConflictReason::ForeignQdisc, "fq".to_owned())]);
        let mut now = Instant::now();
        let waits: Vec<u64> = (0..8)
            .map(|_| {
                let wait = managed.next_wait(now, CHECK_INTERVAL);
                // An earlier check waits for the same time.
                assert_eq!(managed.next_wait(now + wait / 2, CHECK_INTERVAL), wait - wait / 2);
                now += wait;
                wait.as_secs()
            })
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        managed.set_conflicts(vec![(ConflictReason::Down, String::new())]);
        assert_eq!(managed.next_wait(now, CHECK_INTERVAL), CHECK_INTERVAL);
        managed.set_conflicts(vec![(ConflictReason::Refused, String::new())]);
        assert_eq!(managed.next_wait(now, CHECK_INTERVAL), FIRST_WAIT);
    }

    #[test]
    fn interfaces_that_share_their_packets_are_found() {
        let link =
            |name: &str| Link { rate: Rate::new(1.25e8).unwrap(), interfaces: vec![name.parse().unwrap()] };
        let managed = |number, name: &str, stacked_with: Option<&str>| {
            let mut managed = ManagedInterface::for_link(number, &link(name), Machine::Host).next().unwrap();
            let stacked_with = stacked_with.map(|other| other.parse().unwrap());
            managed.device = Some(Device { stacked_with, ..device(number, name) });
            managed
        };
        let mut interfaces =
            [managed(1, "eth0", None), managed(2, "eth0.5", Some("eth0")), managed(3, "eth2", Some("bond0"))];
        warn_of_stacked(&mut interfaces);
        let found =
            interfaces.each_ref().map(|managed| managed.stacked_with.as_ref().map(ToString::to_string));
        assert_eq!(found, [None, Some("eth0".to_owned()), None]);
        // The card is gone.
        interfaces[0].device = None;
        warn_of_stacked(&mut interfaces);
        assert_eq!(interfaces[1].stacked_with, None);
    }

    #[test]
    fn link_is_down_if_none_of_its_interfaces_is_up() {
        let link = |names: &[&str]| Link {
            rate: Rate::new(1.25e8).unwrap(),
            interfaces: names.iter().map(|name| name.parse().unwrap()).collect(),
        };
        let links = [link(&["eth0"]), link(&["eth1", "eth2"]), link(&["eth3"])];
        let mut interfaces: Vec<ManagedInterface> = (0u32..)
            .zip(&links)
            .flat_map(|(number, link)| ManagedInterface::for_link(number, link, Machine::Switch))
            .collect();
        // None of them has existed yet.
        assert_eq!(links_down(&interfaces), [0u32; 0]);
        for (index, managed) in (1u32..).zip(&mut interfaces) {
            managed.was_found = true;
            managed.device = Some(device(index, &managed.name.to_string()));
        }
        assert_eq!(links_down(&interfaces), [0u32; 0]);
        let lose_carrier = |managed: &mut ManagedInterface| managed.device.as_mut().unwrap().is_up = false;
        interfaces[1..].iter_mut().for_each(lose_carrier);
        assert_eq!(links_down(&interfaces), [1, 2]);
        interfaces[2].device.as_mut().unwrap().is_up = true;
        // The first one is deleted.
        interfaces[0].device = None;
        assert_eq!(links_down(&interfaces), [0, 2]);
    }

    #[test]
    fn queues_of_an_earlier_agent_are_due_for_a_check_when_no_order_has_named_queues() {
        let link = Link { rate: Rate::new(1.25e8).unwrap(), interfaces: vec!["eth0".parse().unwrap()] };
        let mut interfaces: Vec<ManagedInterface> =
            ManagedInterface::for_link(0, &link, Machine::Host).collect();
        let later = Instant::now() + MAX_WAIT;
        let mut set = |ends_inherited_queues| {
            interfaces[0].next_check = later;
            set_desired(&mut interfaces, DesiredLinks { ends_inherited_queues, ..DesiredLinks::default() });
            let job = interfaces[0].check_job(BTreeSet::new(), BTreeSet::new());
            (job.ends_inherited_queues, interfaces[0].next_check < later)
        };
        // It is due once.
        assert_eq!([set(false), set(true), set(true)], [(false, false), (true, true), (true, false)]);
    }

    #[test]
    fn former_root_is_restored_only_if_an_order_ends_the_queues_and_no_flow_needs_one() {
        let link = Link { rate: Rate::new(1.25e8).unwrap(), interfaces: vec!["eth0".parse().unwrap()] };
        let mut interfaces: Vec<ManagedInterface> =
            ManagedInterface::for_link(0, &link, Machine::Host).collect();
        let mut restores = |links: DesiredLinks| {
            set_desired(&mut interfaces, links);
            interfaces[0].desired.restores_former_root()
        };
        let without_queues = DesiredLinks { without_queues: true, ..DesiredLinks::default() };
        let end = "127.0.0.1:1".parse().unwrap();
        let flow = LimitedFlow { source: end, destination: end, rate: Rate::new(1e6).unwrap() };
        let limited_flows = BTreeMap::from([(0, flow)]);
        assert!(!restores(DesiredLinks::default()));
        assert!(restores(without_queues.clone()));
        assert!(!restores(DesiredLinks { limited_flows, ..without_queues }));
    }

    #[test]
    fn limited_host_shares_a_fraction_of_its_link_without_ordered_queues() {
        let link = Link { rate: Rate::new(1.25e8).unwrap(), interfaces: vec!["eth0".parse().unwrap()] };
        let mut interfaces: Vec<ManagedInterface> =
            ManagedInterface::for_link(0, &link, Machine::Host).collect();
        let limit = BandwidthLimit::new(0.25);
        assert!(interfaces[0].desired.has_no_queues());
        set_desired(&mut interfaces, DesiredLinks { bandwidth_limit: limit, ..DesiredLinks::default() });
        assert!(!interfaces[0].desired.has_no_queues());
        assert_eq!(common_limit(&interfaces), None);
        let device = Device { speed: None, ..device(7, "eth0") };
        let desired = interfaces[0].desired.clone();
        let configuration = Configuration::new(link.rate, Machine::Host, desired, &device, None);
        assert_eq!((configuration.rate.get(), configuration.fraction), (1.25e8 / 4.0, 0.25));
        interfaces[0].configuration = Some(configuration);
        assert_eq!(common_limit(&interfaces), limit);
        // An interface that does not have it yet.
        interfaces.extend(ManagedInterface::for_link(0, &link, Machine::Host));
        assert_eq!(common_limit(&interfaces), None);
    }
}
