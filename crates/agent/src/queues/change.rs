//! Computes the differences between desired and actual queues, as lines for `tc`.

use std::collections::BTreeSet;
use std::fmt;

use super::actual_queues::{ActualClass, ActualQueues, FilterHandle, RootQdisc};
use super::desired_queues::{DesiredClass, DesiredQueues, Filter};
use super::ids;
use crate::htb::HtbClass;

/// One line for `tc` or `ip`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Limits the number of segments of the packets that this host sends. A line for `ip`.
    SetSegments(u32),
    /// Sets up the agent's root over the kernel's default. The kernel refuses it if another process set up a root meanwhile.
    AddRoot,
    /// Sets up the agent's root in place of one that can be restored.
    ReplaceRoot,
    /// Adds a class.
    AddClass(u16, DesiredClass),
    /// Changes the parameters of a class. Queued packets stay.
    SetClass(u16, DesiredClass),
    /// Removes a class and its queue.
    DeleteClass(u16),
    /// Sets up the queue of a class, with a limit in bytes.
    SetLeafQueue(u16, u32),
    /// Adds a filter with this preference and number.
    AddFilter(u16, u16, Filter),
    /// Removes a filter.
    DeleteFilter(FilterHandle),
}

/// Returns the changes that bring an interface from the actual to the desired state: one for each object that differs, in an order that
/// the kernel accepts. O(objects x log objects).
pub fn changes(desired: &DesiredQueues, actual: &ActualQueues) -> Vec<Change> {
    let empty = ActualQueues {
        root: RootQdisc::Agent,
        has_fq: false,
        classes: Default::default(),
        leaves: Default::default(),
        filters: Default::default(),
    };
    let mut list = Vec::new();
    let actual = if actual.root == RootQdisc::Agent {
        actual
    } else {
        list.push(if actual.root == RootQdisc::KernelDefault {
            Change::AddRoot
        } else {
            Change::ReplaceRoot
        });
        &empty
    };
    // HTB cannot move a class, so a class stays only if its parent does.
    let is_kept = |minor: u16| match (desired.classes().get(&minor), actual.classes.get(&minor)) {
        (Some(desired_class), Some(actual_class)) => desired_class.parent == actual_class.parent,
        _ => false,
    };
    // The kernel deletes a class only when no filter points to it, and adds a filter only if its class exists.
    let mut kept_filters = BTreeSet::new();
    for (&handle, filter) in
        actual.filters.iter().filter(|(handle, _)| ids::is_agent_filter_pref(handle.pref))
    {
        let id = (handle.pref, handle.node);
        let is_same =
            desired.filters().get(&id) == Some(filter) && handle.bucket == 0 && is_kept(filter.class);
        if !(is_same && kept_filters.insert(id)) {
            list.push(Change::DeleteFilter(handle));
        }
    }
    // Inner classes first: the agent's outer class has the lowest number.
    let agent_classes = actual.classes.keys().rev().filter(|&&minor| ids::is_agent_class(minor));
    list.extend(agent_classes.filter(|&&minor| !is_kept(minor)).map(|&minor| Change::DeleteClass(minor)));
    for (&minor, &desired_class) in desired.classes() {
        match actual.classes.get(&minor).filter(|_| is_kept(minor)) {
            None => list.push(Change::AddClass(minor, desired_class)),
            Some(actual_class) if !has_equal_parameters(&desired_class.class, actual_class) => {
                list.push(Change::SetClass(minor, desired_class))
            }
            Some(_) => {}
        }
        let leaf = actual.leaves.get(&minor).filter(|_| is_kept(minor));
        let is_as_desired = |handle, bytes| {
            handle == ids::leaf_handle(minor) && bytes == Some(desired_class.class.queue_limit)
        };
        if minor != ids::LINK_CLASS && !leaf.is_some_and(|leaf| is_as_desired(leaf.handle, leaf.limit_bytes))
        {
            list.push(Change::SetLeafQueue(minor, desired_class.class.queue_limit));
        }
    }
    let missing_filters = desired.filters().iter().filter(|(name, _)| !kept_filters.contains(name));
    list.extend(missing_filters.map(|(&(pref, node), filter)| Change::AddFilter(pref, node, filter.clone())));
    list
}

/// Whether a class has the desired parameters, as far as `tc` prints them. `tc` computes a burst from its time in clock ticks, and
/// rounds it.
fn has_equal_parameters(desired: &HtbClass, actual: &ActualClass) -> bool {
    let is_near = |bytes: u64, desired: u32| bytes.abs_diff(u64::from(desired)) <= u64::from(desired) / 64;
    let [burst, cburst] = desired.bursts();
    (desired.rate, desired.ceil) == (actual.rate, actual.ceil)
        && actual.quantum.is_none_or(|quantum| quantum == u64::from(desired.quantum))
        && is_near(actual.burst, burst)
        && is_near(actual.cburst, cburst)
}

impl Change {
    /// Whether the change sets up the agent's root.
    pub fn sets_root(&self) -> bool {
        matches!(self, Change::AddRoot | Change::ReplaceRoot)
    }

    /// The tool of the line.
    pub fn tool(&self) -> &'static str {
        if matches!(self, Change::SetSegments(_)) { "ip" } else { "tc" }
    }

    /// The line for [`Change::tool`], without its name.
    pub fn line<'a>(&'a self, interface: &'a str) -> impl fmt::Display + 'a {
        Line { change: self, interface }
    }
}

struct Line<'a> {
    change: &'a Change,
    interface: &'a str,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ROOT: u16 = ids::ROOT_HANDLE;
        let dev = self.interface;
        match self.change {
            Change::SetSegments(count) => write!(f, "link set dev {dev} gso_max_segs {count}"),
            Change::AddRoot | Change::ReplaceRoot => {
                let verb = if matches!(self.change, Change::AddRoot) { "add" } else { "replace" };
                write!(
                    f,
                    "qdisc {verb} dev {dev} root handle {ROOT:x}: htb default {:#x}",
                    ids::DEFAULT_CLASS
                )
            }
            Change::AddClass(minor, desired) | Change::SetClass(minor, desired) => {
                let verb = if matches!(self.change, Change::AddClass(..)) { "add" } else { "change" };
                write!(f, "class {verb} dev {dev} parent {ROOT:x}:")?;
                if let Some(parent) = desired.parent {
                    write!(f, "{parent:x}")?;
                }
                write!(f, " classid {ROOT:x}:{minor:x} htb {}", desired.class)
            }
            Change::DeleteClass(minor) => write!(f, "class del dev {dev} classid {ROOT:x}:{minor:x}"),
            Change::SetLeafQueue(minor, bytes) => {
                let handle = ids::leaf_handle(*minor);
                write!(
                    f,
                    "qdisc replace dev {dev} parent {ROOT:x}:{minor:x} handle {handle:x}: bfifo limit {bytes}"
                )
            }
            Change::AddFilter(pref, node, filter) => {
                let protocol = filter_protocol(*pref);
                write!(
                    f,
                    "filter add dev {dev} parent {ROOT:x}: protocol {protocol} prio {pref} handle ::{node:x} u32"
                )?;
                for key in &filter.matches {
                    write!(f, " match u32 {:#010x} {:#010x} at {}", key.value, key.mask, key.offset)?;
                }
                write!(f, " flowid {ROOT:x}:{:x}", filter.class)
            }
            Change::DeleteFilter(FilterHandle { pref, table, bucket, node }) => {
                let protocol = filter_protocol(*pref);
                write!(f, "filter del dev {dev} parent {ROOT:x}: protocol {protocol} prio {pref} ")?;
                write!(f, "handle {table:x}:{bucket:x}:{node:x} u32")
            }
        }
    }
}

/// The protocol of filters with a preference.
pub(super) fn filter_protocol(pref: u16) -> &'static str {
    match pref {
        ids::IPV6_MARK_FILTER_PREF | ids::IPV6_CONTROL_FILTER_PREF | ids::IPV6_FLOW_FILTER_PREF => "ipv6",
        _ => "ip",
    }
}
