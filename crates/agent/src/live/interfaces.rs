//! Keeps the interfaces of a host or switch as ordered: their queues, and the packets of applications in these queues.
//!
//! The agent compares an interface with its orders when an order changes, when the kernel reports a change of the interface, and
//! every few seconds in case a notification was lost. It changes only what differs. Queues that another process removed are
//! restored; a root queueing discipline that another process set up stays, and is reported as a conflict until it is removed.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep_until;
use weir_core::units::Rate;
use weir_proto::{Conflict, MAX_CONFLICTS, Queues, Reason};

use super::{Link, Shared, Wanted, say};
use crate::notifications::{Changed, Notifications};
use crate::queues::{Desired, Device, Interface, Limited, QueueError, Replace};

/// How long the agent waits before it tries again what failed: doubled after each failure.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The minimum time between two checks after notifications, and between two changes where UDP flows have rates: each starts processes.
const PAUSE: Duration = Duration::from_millis(100);

/// How long the agent waits after a notification: a process that deletes a root queueing discipline often sets up another one next.
const SETTLE: Duration = Duration::from_millis(200);

/// The minimum time between two repairs of an interface, doubled with each repair within a minute of the last: a process that removes
/// queues in a loop must not keep the host busy.
const PAUSE_AFTER_REPAIR: Duration = Duration::from_millis(500);

/// The number of interfaces that are checked before the agent reads orders and notifications again.
const BATCH: usize = 8;

/// How often interfaces are checked without a notification, and the share of the time that these checks may take: 1 in `PART`.
const PERIOD: Duration = Duration::from_secs(5);
const PART: u32 = 20;

/// The desired state of a link: its queues, if an order names some, and the classes of UDP flows.
type Target = (Option<Queues>, BTreeMap<u16, Limited>);

/// The state of all interfaces, as reported to the coordinator.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// Interfaces that differ from their orders, at most [`MAX_CONFLICTS`].
    pub conflicts: Vec<Conflict>,
    /// How many queueing objects were restored.
    pub restored: u64,
    /// The present names of the interfaces that exist.
    pub names: Vec<Interface>,
}

/// An interface that the agent keeps as ordered.
#[derive(Debug)]
struct Managed {
    /// The number of the link at the coordinator.
    link: u32,
    /// How many interfaces share the link evenly, and the rate of each.
    among: f64,
    part: Rate,
    /// The name in the agent's options.
    name: Interface,
    target: Target,
    /// The state at the last check; none if the interface did not exist.
    device: Option<Device>,
    /// What the last check configured; none before the first order.
    applied: Option<Applied>,
    conflicts: Vec<Conflict>,
    checked: Option<Instant>,
    due: Instant,
    /// The wait before the next attempt while a conflict prevents the configuration, and the time of that attempt.
    wait: Duration,
    retry: Option<Instant>,
    /// When queues were restored last, and how long to wait from then to the next repair.
    repaired: Option<(Instant, Duration)>,
    /// The first speed that was read.
    first_speed: Option<Rate>,
}

/// The configuration of an interface after a check.
#[derive(Debug, Clone, PartialEq)]
struct Applied {
    target: Target,
    rate: Rate,
    /// That rate over the interface's part of the link's rate.
    fraction: f64,
    segments: u32,
}

/// The result of a check.
struct Checked {
    /// None if the interface does not exist.
    device: Option<Device>,
    applied: Option<Applied>,
    /// How many queueing objects were changed.
    changes: Result<usize, QueueError>,
}

/// Keeps the interfaces of all links as ordered, until the last sender of orders is dropped.
pub async fn keep(shared: &Shared, links: &[Link], mut ordered: watch::Receiver<Wanted>) {
    let mut notifications = match Notifications::open() {
        Ok(notifications) => Some(notifications),
        Err(error) => {
            say(&format!(
                "no notifications about interfaces ({error}); checking every {} s",
                PERIOD.as_secs()
            ));
            None
        }
    };
    let mut all: Vec<Managed> =
        (0u32..).zip(links).flat_map(|(number, link)| Managed::of(number, link)).collect();
    let mut status = Status::default();
    loop {
        check_due(shared, &mut all, &mut status).await;
        let next = all.iter().map(|managed| managed.due).min();
        tokio::select! {
            biased;
            changed = ordered.changed() => match changed {
                Ok(()) => order(&mut all, ordered.borrow_and_update().clone()),
                Err(_) => return,
            },
            changed = next_change(&mut notifications) => notice(&mut all, changed),
            () = async { match next {
                Some(next) => sleep_until(next.into()).await,
                None => pending().await,
            } } => {}
        }
    }
}

/// Prints the commands that would apply the orders, until the last sender of orders is dropped.
pub async fn print(links: &[Link], mut ordered: watch::Receiver<Wanted>) {
    let mut all: Vec<Managed> =
        (0u32..).zip(links).flat_map(|(number, link)| Managed::of(number, link)).collect();
    while ordered.changed().await.is_ok() {
        order(&mut all, ordered.borrow_and_update().clone());
        for managed in
            all.iter_mut().filter(|managed| managed.applied.is_some() || managed.target != Target::default())
        {
            let Job { name, part, target, applied, .. } = managed.job(BTreeSet::new());
            if applied.is_some_and(|applied| applied.target == target) {
                continue;
            }
            let commands = spawn_blocking(move || {
                let device = Device::read(&name)?;
                let next = Applied::new(part, target, &device, None);
                Ok::<_, QueueError>((name.commands(&next.desired()?)?, next))
            });
            match commands.await {
                Ok(Ok((commands, next))) => {
                    managed.applied = Some(next);
                    // If the reader has closed the pipe, there is nowhere to report the error.
                    let _ = io::stdout().write_all(commands.as_bytes());
                }
                Ok(Err(error)) => say(&format!("{}: {error}", managed.name)),
                Err(_) => return,
            }
        }
    }
}

/// Waits for a notification; for ever if there are none.
async fn next_change(notifications: &mut Option<Notifications>) -> Changed {
    loop {
        let Some(open) = notifications else { return pending().await };
        match open.changed().await {
            Ok(changed) => return changed,
            Err(error) => {
                say(&format!(
                    "notifications about interfaces failed ({error}); checking every {} s",
                    PERIOD.as_secs()
                ));
                *notifications = None;
            }
        }
    }
}

/// Applies an order to the targets of interfaces. An interface whose target has changed is due for a check.
fn order(all: &mut [Managed], mut wanted: Wanted) {
    let now = Instant::now();
    let queues = std::mem::take(&mut wanted.queues);
    for managed in all {
        // Only a host has flows, and it has one link.
        let limited = if managed.link == 0 { wanted.limited.clone() } else { BTreeMap::new() };
        let target = (queues.get(&managed.link).cloned(), limited);
        if target == managed.target {
            continue;
        }
        managed.target = target;
        if !managed.is_blocked() {
            managed.wait = FIRST_WAIT;
        }
        // Rates of UDP flows change with each schedule.
        managed.due = if managed.target.1.is_empty() { now } else { managed.after_pause(now) };
    }
}

/// Processes a notification. The interfaces in it are due for a check, and so are those that do not exist.
fn notice(all: &mut [Managed], changed: Changed) {
    let now = Instant::now();
    for managed in all {
        let is_about = match (&changed, &managed.device) {
            (Changed::Interfaces(indexes), Some(device)) => indexes.contains(&device.index),
            _ => true,
        };
        if is_about {
            managed.due = managed.due.min(managed.after_notification(now));
        }
    }
}

/// Checks some of the interfaces that are due, those first that are due longest, and updates the status that is reported.
async fn check_due(shared: &Shared, all: &mut [Managed], status: &mut Status) {
    let began = Instant::now();
    let mut due: Vec<usize> = (0..all.len()).filter(|&at| all[at].due <= began).collect();
    due.sort_by_key(|&at| all[at].due);
    due.truncate(BATCH);
    if due.is_empty() {
        return;
    }
    for &at in &due {
        let others = all.iter().enumerate().filter(|(other, _)| *other != at);
        let taken = others.filter_map(|(_, other)| Some(other.device.as_ref()?.index)).collect();
        let job = all[at].job(taken);
        // It does not panic, and the runtime's end waits for it.
        let Ok(checked) = spawn_blocking(move || job.run()).await else { return };
        status.restored += all[at].take(checked, shared);
    }
    let now = Instant::now();
    let each = (now - began) / due.len() as u32;
    let period = PERIOD.max(each * all.len() as u32 * PART);
    for at in due {
        let managed = &mut all[at];
        managed.due = now + managed.next_wait(now, period);
        managed.checked = Some(now);
    }
    status.conflicts =
        all.iter().flat_map(|managed| &managed.conflicts).take(MAX_CONFLICTS).cloned().collect();
    status.names = all.iter().filter_map(|managed| Some(managed.device.as_ref()?.name.clone())).collect();
    shared.lock().interfaces.clone_from(status);
}

/// A check of one interface, which runs in a separate thread: it starts processes.
struct Job {
    name: Interface,
    part: Rate,
    target: Target,
    before: Option<Device>,
    applied: Option<Applied>,
    first_speed: Option<Rate>,
    /// The numbers of the other interfaces that the agent keeps.
    taken: BTreeSet<u32>,
}

impl Job {
    fn run(self) -> Checked {
        let missing = || Checked { device: None, applied: None, changes: Ok(0) };
        // A renamed interface keeps its number, and its queues.
        let by_number = self.before.as_ref().and_then(|device| Interface::with_index(device.index));
        // An interface that the agent keeps under another name, and that was renamed to this name, is not taken over.
        let is_free = |index: &u32| !self.taken.contains(index);
        let by_name = || self.name.index().filter(is_free).map(|_| self.name.clone());
        let Some(name) = by_number.or_else(by_name) else {
            return missing();
        };
        let mut device = match Device::read(&name) {
            Ok(device) => device,
            // It was deleted after its name was looked up.
            Err(_) if name.index().is_none() => return missing(),
            Err(error) => {
                return Checked { device: self.before, applied: self.applied, changes: Err(error) };
            }
        };
        // A driver reports no speed while the interface is down.
        let last = self.before.as_ref().filter(|before| before.index == device.index && !device.is_up);
        device.speed = last.map_or(device.speed, |before| before.speed);
        let is_same = self.before.as_ref().is_some_and(|before| before.index == device.index);
        let applied = self.applied.filter(|_| is_same);
        if self.target == Target::default() && applied.is_none() {
            return Checked { device: Some(device), applied: None, changes: Ok(0) };
        }
        let replace = if applied.is_some() { Replace::KernelDefault } else { Replace::Restorable };
        let next = Applied::new(self.part, self.target, &device, self.first_speed);
        let changes = next.desired().and_then(|desired| name.reconcile(&desired, replace));
        match changes {
            Ok(list) => Checked { device: Some(device), applied: Some(next), changes: Ok(list.len()) },
            Err(error) => Checked { device: Some(device), applied, changes: Err(error) },
        }
    }
}

impl Applied {
    /// What a target means at a device: queues share its speed if that is below its part of the link's rate. The driver of a virtual
    /// device reports a nominal speed, which counts only if it has changed since it was first read.
    fn new(part: Rate, target: Target, device: &Device, first_speed: Option<Rate>) -> Applied {
        let is_real = device.is_physical || first_speed.is_some_and(|first| device.speed != Some(first));
        let rate = device.speed.filter(|&speed| is_real && speed < part).unwrap_or(part);
        Applied { target, rate, fraction: rate.get() / part.get(), segments: device.segments }
    }

    fn desired(&self) -> Result<Desired, QueueError> {
        let (queues, limited) = &self.target;
        let limited = &scaled(limited, self.fraction);
        // Without ordered queues all packets share one.
        let (weights, queue_of) =
            queues.as_ref().map_or((&[1.0][..], &[0][..]), |q| (&q.weights, &q.queue_of));
        Ok(Desired::new(self.rate, self.segments, weights, limited)
            .and_then(|desired| desired.with_classes(queue_of))?)
    }
}

/// UDP flows with a fraction of their rates.
fn scaled(flows: &BTreeMap<u16, Limited>, fraction: f64) -> BTreeMap<u16, Limited> {
    let scale = |rate: Rate| Rate::new(rate.get() * fraction).unwrap_or(rate);
    flows.iter().map(|(&class, flow)| (class, Limited { rate: scale(flow.rate), ..*flow })).collect()
}

impl Managed {
    fn of(number: u32, link: &Link) -> impl Iterator<Item = Managed> {
        let among = link.interfaces.len() as f64;
        let part = Rate::new(link.rate.get() / among).unwrap_or(Rate::ZERO);
        let now = Instant::now();
        link.interfaces.iter().map(move |name| Managed {
            link: number,
            among,
            part,
            name: name.clone(),
            target: Target::default(),
            device: None,
            applied: None,
            conflicts: Vec::new(),
            checked: None,
            due: now,
            wait: FIRST_WAIT,
            retry: None,
            repaired: None,
            first_speed: None,
        })
    }

    /// The time after the minimum pause since the last check.
    fn after_pause(&self, now: Instant) -> Instant {
        self.checked.map_or(now, |checked| now.max(checked + PAUSE))
    }

    /// When to check after a notification.
    fn after_notification(&self, now: Instant) -> Instant {
        let pause = if self.is_blocked() { FIRST_WAIT } else { PAUSE };
        let after_check = self.checked.map_or(now, |checked| checked + pause);
        let after_repair = self.repaired.map_or(now, |(at, pause)| at + pause);
        (now + SETTLE).max(after_check).max(after_repair)
    }

    /// Notes a repair, and how long to wait until the next.
    fn repair(&mut self, now: Instant) {
        let again = self.repaired.filter(|(at, _)| now - *at < MAX_WAIT);
        let pause = again.map_or(PAUSE_AFTER_REPAIR, |(_, pause)| (pause * 2).min(MAX_WAIT));
        self.repaired = Some((now, pause));
    }

    fn job(&self, taken: BTreeSet<u32>) -> Job {
        let (queues, limited) = self.target.clone();
        // A flow leaves by one of the link's interfaces, but the agent cannot tell which.
        let limited = scaled(&limited, 1.0 / self.among);
        Job {
            name: self.name.clone(),
            part: self.part,
            target: (queues, limited),
            before: self.device.clone(),
            applied: self.applied.clone(),
            first_speed: self.first_speed,
            taken,
        }
    }

    /// Records the result of a check, logs changes, and returns the number of restored queueing objects.
    fn take(&mut self, checked: Checked, shared: &Shared) -> u64 {
        let is_first = self.checked.is_none();
        for line in events(self.device.as_ref(), checked.device.as_ref(), is_first) {
            say(&format!("{}: {line}", self.name));
        }
        let mut conflicts = Vec::new();
        let mut restored = 0;
        let was_applied = self.applied.take();
        self.applied = checked.applied;
        match checked.changes {
            Ok(count) if count > 0 && was_applied.is_some() && was_applied == self.applied => {
                restored = count as u64;
                say(&format!(
                    "{}: restored {count} queueing objects that another process had removed or changed",
                    self.name
                ));
            }
            Ok(_)
                if was_applied.map(|applied| applied.target.0)
                    != self.applied.as_ref().map(|applied| applied.target.0.clone()) =>
            {
                if let Err(why) = self.classify(shared) {
                    self.applied = None;
                    conflicts.push((Reason::Refused, why));
                }
            }
            Ok(_) => {}
            Err(QueueError::Root { kind, .. }) => conflicts.push((Reason::ForeignQdisc, kind)),
            Err(error) => conflicts.push((Reason::Refused, error.to_string())),
        }
        match &checked.device {
            None => conflicts.push((Reason::Missing, String::new())),
            Some(device) if !device.is_up => conflicts.push((Reason::Down, String::new())),
            Some(_) => {}
        }
        let speed = checked.device.as_ref().and_then(|device| device.speed);
        self.first_speed = self.first_speed.or(speed);
        let slow = speed.filter(|&speed| speed < self.part);
        conflicts.extend(slow.map(|speed| (Reason::Slow, speed.to_string())));
        self.device = checked.device;
        self.enter(conflicts);
        if restored > 0 {
            self.repair(Instant::now());
        }
        restored
    }

    /// Whether another process or the kernel prevents the agent from configuring the interface.
    fn is_blocked(&self) -> bool {
        let is_blocked =
            |conflict: &Conflict| matches!(conflict.reason(), Reason::ForeignQdisc | Reason::Refused);
        self.conflicts.iter().any(is_blocked)
    }

    /// Puts the packets of applications into ordered queues. After the queues: packets of a missing class share the queue of packets
    /// without a class.
    fn classify(&self, shared: &Shared) -> Result<(), String> {
        let Some(queues) = self.target.0.as_ref() else { return Ok(()) };
        shared.lock().applications.as_mut().map_or(Ok(()), |known| known.classify(queues))
    }

    /// Replaces the conflicts, and logs those that are new or resolved.
    fn enter(&mut self, conflicts: Vec<(Reason, String)>) {
        let name = self.name.to_string();
        let conflicts: Vec<Conflict> =
            conflicts.iter().map(|(reason, detail)| Conflict::new(&name, *reason, detail)).collect();
        // The kernel's messages may contain rates that change with each order.
        let is_known = |conflict: &Conflict| match conflict.reason() {
            Reason::Refused => self.conflicts.iter().any(|known| known.reason() == Reason::Refused),
            _ => self.conflicts.contains(conflict),
        };
        for new in conflicts.iter().filter(|conflict| !is_known(conflict)) {
            say(&format!("conflict: {new}; {}", advice(new.reason())));
        }
        let reasons = |reason| conflicts.iter().any(|conflict| conflict.reason() == reason);
        for old in self.conflicts.iter().filter(|conflict| !reasons(conflict.reason())) {
            say(&format!("conflict resolved: {old}"));
        }
        self.conflicts = conflicts;
    }

    /// The time until the next check. It doubles with each attempt while a conflict prevents the configuration. An earlier check, after
    /// a notification or an order, does not change it.
    fn next_wait(&mut self, now: Instant, period: Duration) -> Duration {
        if !self.is_blocked() {
            (self.wait, self.retry) = (FIRST_WAIT, None);
            return period;
        }
        if let Some(left) =
            self.retry.and_then(|retry| retry.checked_duration_since(now)).filter(|left| !left.is_zero())
        {
            return left;
        }
        let wait = self.wait;
        self.wait = (wait * 2).min(MAX_WAIT);
        self.retry = Some(now + wait);
        wait
    }
}

/// What the agent does about a conflict.
fn advice(reason: Reason) -> &'static str {
    match reason {
        Reason::ForeignQdisc => {
            "it stays; the agent checks again after 1 s to 60 s, and restores its queues when it is removed"
        }
        Reason::Missing => "the agent configures the interface when it appears",
        Reason::Down => "its queues stay",
        Reason::Slow => "its queues share this speed",
        Reason::Refused => "the agent tries again after 1 s to 60 s",
    }
}

/// What happened to an interface between two checks, a line each.
fn events(before: Option<&Device>, after: Option<&Device>, is_first: bool) -> Vec<String> {
    let (before, after) = match (before, after) {
        (None, Some(device)) if !is_first => return vec![format!("appeared as interface {}", device.index)],
        (Some(before), Some(after)) => (before, after),
        // A conflict says that the interface is missing.
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

    fn device(index: u32, name: &str) -> Device {
        Device {
            index,
            name: name.parse().unwrap(),
            is_up: true,
            mtu: 1500,
            segments: 46,
            speed: Rate::new(1.25e9),
            is_physical: true,
        }
    }

    #[test]
    fn each_change_of_an_interface_is_one_line() {
        let before = device(7, "eth0");
        let lines = |after: Option<Device>| events(Some(&before), after.as_ref(), false);
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
        assert_eq!(events(None, Some(&before), true), Vec::<String>::new());
        assert_eq!(events(None, Some(&before), false), ["appeared as interface 7"]);
    }

    #[test]
    fn repairs_wait_longer_each_time_within_a_minute() {
        let link = Link { rate: Rate::new(1.25e8).unwrap(), interfaces: vec!["eth0".parse().unwrap()] };
        let mut managed = Managed::of(0, &link).next().unwrap();
        let mut now = Instant::now();
        let mut pauses = Vec::new();
        for _ in 0..4 {
            managed.repair(now);
            let next = managed.after_notification(now);
            pauses.push((next - now).as_millis());
            now = next;
        }
        assert_eq!(pauses, [500, 1000, 2000, 4000]);
        managed.repair(now + MAX_WAIT);
        assert_eq!(managed.repaired.unwrap().1, PAUSE_AFTER_REPAIR);
    }

    #[test]
    fn waits_double_while_another_process_is_in_the_way() {
        let link = Link { rate: Rate::new(1.25e8).unwrap(), interfaces: vec!["eth0".parse().unwrap()] };
        let mut managed = Managed::of(0, &link).next().unwrap();
        managed.enter(vec![(Reason::ForeignQdisc, "fq".to_owned())]);
        let mut now = Instant::now();
        let waits: Vec<u64> = (0..8)
            .map(|_| {
                let wait = managed.next_wait(now, PERIOD);
                // An earlier check waits for the same time.
                assert_eq!(managed.next_wait(now + wait / 2, PERIOD), wait - wait / 2);
                now += wait;
                wait.as_secs()
            })
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        managed.enter(vec![(Reason::Down, String::new())]);
        assert_eq!(managed.next_wait(now, PERIOD), PERIOD);
        managed.enter(vec![(Reason::Refused, String::new())]);
        assert_eq!(managed.next_wait(now, PERIOD), FIRST_WAIT);
    }

    #[test]
    fn queues_share_the_speed_of_an_interface_that_is_slower_than_its_link() {
        let part = Rate::new(1.25e9).unwrap();
        let rate = |speed, is_physical, first| {
            let device = Device { speed, is_physical, ..device(7, "eth0") };
            Applied::new(part, Target::default(), &device, first).rate
        };
        let [slow, fast] = [1.25e8, 5e9].map(Rate::new);
        assert_eq!(rate(None, true, None), part);
        assert_eq!(rate(slow, true, slow), slow.unwrap());
        assert_eq!(rate(fast, true, fast), part);
        // A virtual device is as fast as its link, until its speed changes.
        assert_eq!(rate(slow, false, slow), part);
        assert_eq!(rate(slow, false, fast), slow.unwrap());
    }
}
