//! Checks one interface: reads its state, and configures its queues as desired if they differ.

use std::collections::{BTreeMap, BTreeSet};

use weir_core::units::Rate;

use super::{DesiredLink, Machine};
use crate::htb::max_segments;
use crate::queues::{
    Change, DesiredQueues, Device, Interface, InterfaceLock, LimitedFlow, QueueError, ReplaceableRoots,
    RootQdisc, Shares,
};

/// The configuration of an interface after a check.
#[derive(Debug, Clone, PartialEq)]
pub struct Configuration {
    /// The desired state.
    pub desired: DesiredLink,
    /// The rate of the interface.
    pub rate: Rate,
    /// `rate` divided by the rate of the link ([`CheckJob::max_rate`]).
    pub fraction: f64,
    /// The maximum number of segments of a packet, after the limit.
    pub segments: u32,
    /// The limit of `segments` that the agent sets, if it sets one.
    pub max_segments: Option<u32>,
    /// Whether the queue of the next switch drains.
    pub is_draining: bool,
}

/// A check of one interface, which runs in a separate thread: it starts processes.
pub struct CheckJob {
    /// The name in the agent's options.
    pub name: Interface,
    /// The lower rate of the link: in the agent's options, or in the coordinator's configuration.
    pub max_rate: Rate,
    /// Whose link it is.
    pub kind: Machine,
    /// The desired state.
    pub desired: DesiredLink,
    /// The state at the last check; none if the interface did not exist.
    pub previous: Option<Device>,
    /// What the last check configured; none before the first order.
    pub configuration: Option<Configuration>,
    /// The first speed that was read.
    pub first_speed: Option<Rate>,
    /// The numbers of the other interfaces that the agent keeps.
    pub other_indexes: BTreeSet<u32>,
    /// The numbers of the interfaces whose queues the agent has locked.
    pub locked_indexes: BTreeSet<u32>,
    /// Whether the queue of the next switch drains.
    pub is_draining: bool,
    /// Whether queues of an earlier agent end if no order names queues.
    pub ends_inherited_queues: bool,
}

/// The result of a check.
pub struct CheckResult {
    /// None if the interface does not exist.
    pub device: Option<Device>,
    /// None if the agent has not configured the interface.
    pub configuration: Option<Configuration>,
    /// How many queueing objects were changed.
    pub changes: Result<usize, QueueError>,
    /// Whether the root queueing discipline was set up.
    pub has_new_root: bool,
    /// Whether it replaced `fq`.
    pub replaced_fq: bool,
    /// The lock of the interface's queues, if this check has acquired it.
    pub lock: Option<InterfaceLock>,
}

impl CheckResult {
    fn unchanged(
        device: Option<Device>,
        configuration: Option<Configuration>,
        changes: Result<usize, QueueError>,
    ) -> CheckResult {
        CheckResult { device, configuration, changes, has_new_root: false, replaced_fq: false, lock: None }
    }
}

impl CheckJob {
    /// The interface, also if it was renamed, and its state; none if it does not exist.
    fn find_device(&self) -> Result<Option<(Interface, Device)>, QueueError> {
        // A renamed interface keeps its number, and its queues.
        let by_number = self.previous.as_ref().and_then(|device| Interface::from_index(device.index));
        // An interface that the agent keeps under another name, and that was renamed to this name, is not taken over.
        let is_free = |index: &u32| !self.other_indexes.contains(index);
        let by_name = || self.name.index().filter(is_free).map(|_| self.name.clone());
        let Some(name) = by_number.or_else(by_name) else { return Ok(None) };
        let mut device = match Device::read(&name) {
            Ok(device) => device,
            // The interface was deleted after its name was looked up.
            Err(_) if name.index().is_none() => return Ok(None),
            Err(error) => return Err(error),
        };
        // A driver reports no speed while the interface is down.
        let previous_if_down =
            self.previous.as_ref().filter(|before| before.index == device.index && !device.is_up);
        device.speed = previous_if_down.map_or(device.speed, |before| before.speed);
        Ok(Some((name, device)))
    }

    /// Reads the interface, and changes its queues if they differ from the desired ones.
    pub fn run(self) -> CheckResult {
        let (name, device) = match self.find_device() {
            Ok(Some(found)) => found,
            Ok(None) => return CheckResult::unchanged(None, None, Ok(0)),
            Err(error) => return CheckResult::unchanged(self.previous, self.configuration, Err(error)),
        };
        let is_same = self.previous.as_ref().is_some_and(|before| before.index == device.index);
        let configuration = self.configuration.filter(|_| is_same);
        if self.desired.restores_former_root() {
            return restore_former_root(&name, device, configuration, &self.locked_indexes);
        }
        let (is_new, has_no_queues) = (configuration.is_none(), self.desired.has_no_queues());
        if is_new && has_no_queues && !self.ends_inherited_queues {
            return CheckResult::unchanged(Some(device), None, Ok(0));
        }
        // Queues with the agent's numbers that this agent has not set up are those of an earlier agent.
        let actual = is_new.then(|| name.read_queues().ok()).flatten();
        let has_fq = actual.as_ref().is_some_and(|actual| actual.has_fq);
        let root = actual.map(|actual| actual.root);
        let is_inherited = root == Some(RootQdisc::Agent);
        if is_new && has_no_queues && !is_inherited {
            return CheckResult::unchanged(Some(device), None, Ok(0));
        }
        let replace = match is_new && !has_no_queues {
            true => ReplaceableRoots::Restorable,
            false => ReplaceableRoots::KernelDefault,
        };
        // Queues that an earlier agent has left kept the queue of the next switch short.
        let sets_up_queues = root.is_some() && !is_inherited;
        let next_configuration = Configuration {
            is_draining: self.is_draining || sets_up_queues,
            ..Configuration::new(self.max_rate, self.kind, self.desired, &device, self.first_speed)
        };
        let is_locked = self.locked_indexes.contains(&device.index);
        let mut lock = None;
        let changes = next_configuration.desired_queues().and_then(|desired| {
            lock = (!is_locked).then(|| InterfaceLock::acquire(&name)).transpose()?;
            name.reconcile(&desired, replace)
        });
        match changes {
            Ok(list) => {
                let has_new_root = list.iter().any(Change::sets_root);
                CheckResult {
                    device: Some(device),
                    configuration: Some(next_configuration),
                    has_new_root,
                    replaced_fq: has_new_root && has_fq,
                    changes: Ok(list.len()),
                    lock,
                }
            }
            Err(error) => {
                CheckResult { lock, ..CheckResult::unchanged(Some(device), configuration, Err(error)) }
            }
        }
    }
}

/// Restores the root queueing discipline from before the agent's, also if an earlier agent has replaced it.
fn restore_former_root(
    name: &Interface,
    device: Device,
    configuration: Option<Configuration>,
    locked_indexes: &BTreeSet<u32>,
) -> CheckResult {
    let is_agent_root = name.read_queues().map(|actual| actual.root == RootQdisc::Agent);
    let mut lock = None;
    let restored = is_agent_root.and_then(|is_agent_root| {
        if is_agent_root && !locked_indexes.contains(&device.index) {
            lock = Some(InterfaceLock::acquire(name)?);
        }
        if is_agent_root { name.restore() } else { Ok(false) }
    });
    match restored {
        Ok(is_restored) => {
            CheckResult { lock, ..CheckResult::unchanged(Some(device), None, Ok(usize::from(is_restored))) }
        }
        Err(error) => CheckResult { lock, ..CheckResult::unchanged(Some(device), configuration, Err(error)) },
    }
}

impl Configuration {
    /// Computes the configuration of a device: queues share its speed if that is below its share of the link's rate, or a fraction of it
    /// if an order limits the host. The driver of a virtual device reports a nominal speed, which counts only if it has changed since it
    /// was first read.
    pub fn new(
        max_rate: Rate,
        kind: Machine,
        desired: DesiredLink,
        device: &Device,
        first_speed: Option<Rate>,
    ) -> Configuration {
        let is_speed_reliable =
            device.is_physical || first_speed.is_some_and(|first| device.speed != Some(first));
        let rate = device.speed.filter(|&speed| is_speed_reliable && speed < max_rate).unwrap_or(max_rate);
        let limited_rate = desired.bandwidth_limit.and_then(|limit| Rate::new(rate.get() * limit.fraction()));
        let rate = limited_rate.unwrap_or(rate);
        // Packets that a switch forwards are as large as their sender made them.
        let max_segments = (kind == Machine::Host).then(|| max_segments(rate));
        let segments = max_segments.map_or(device.segments, |max| device.limited_segments(max));
        let fraction = rate.get() / max_rate.get();
        Configuration { desired, rate, fraction, segments, max_segments, is_draining: false }
    }

    /// The queues of the configuration.
    ///
    /// # Errors
    /// If the rate is out of range, or the weights or classes are invalid.
    pub fn desired_queues(&self) -> Result<DesiredQueues, QueueError> {
        let DesiredLink { queues, limited_flows, coordinator, .. } = &self.desired;
        let limited_flows = &scale_flows(limited_flows, self.fraction);
        // Without ordered queues all packets share one.
        let (weights, queue_of_class) =
            queues.as_ref().map_or((&[1.0][..], &[0][..]), |q| (&q.weights, &q.queue_of_class));
        let unclassified = queues.as_ref().map(|queues| queues.unclassified).unwrap_or_default();
        let budget = unclassified.budget();
        let budget = if self.is_draining { budget.draining() } else { budget };
        let rate_bounds = queues.as_ref().map_or(&[][..], |queues| &queues.rate_bounds);
        let shares = Shares { budget, weights, rate_bounds, unclassified_weight: unclassified.weight };
        let desired = DesiredQueues::new(self.rate, self.segments, &shares, limited_flows)?
            .with_classes(queue_of_class)?;
        Ok(desired.with_coordinator(*coordinator).with_max_segments(self.max_segments))
    }
}

/// UDP flows with a fraction of their rates.
fn scale_flows(flows: &BTreeMap<u16, LimitedFlow>, fraction: f64) -> BTreeMap<u16, LimitedFlow> {
    let scale = |rate: Rate| Rate::new(rate.get() * fraction).unwrap_or(rate);
    flows.iter().map(|(&class, flow)| (class, LimitedFlow { rate: scale(flow.rate), ..*flow })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::interfaces::tests::device;

    #[test]
    fn queues_share_the_speed_of_an_interface_that_is_slower_than_its_link() {
        let max_rate = Rate::new(1.25e9).unwrap();
        let rate = |speed, is_physical, first| {
            let device = Device { speed, is_physical, ..device(7, "eth0") };
            Configuration::new(max_rate, Machine::Host, DesiredLink::default(), &device, first).rate
        };
        let [slow, fast] = [1.25e8, 5e9].map(Rate::new);
        assert_eq!(rate(None, true, None), max_rate);
        assert_eq!(rate(slow, true, slow), slow.unwrap());
        assert_eq!(rate(fast, true, fast), max_rate);
        // A virtual device is as fast as its link, until its speed changes.
        assert_eq!(rate(slow, false, slow), max_rate);
        assert_eq!(rate(slow, false, fast), slow.unwrap());
    }
}
