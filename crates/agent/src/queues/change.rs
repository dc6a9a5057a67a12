//! Computes the differences between desired and actual queues, as lines for `tc`.

use std::collections::BTreeSet;
use std::fmt;

use super::actual::{Actual, Found, Place, Root};
use super::desired::{Desired, Filter, Want};
use super::ids;
use crate::htb::Class;

/// One line for `tc`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Sets up the agent's root over the kernel's default. The kernel refuses it if another process set up a root meanwhile.
    AddRoot,
    /// Sets up the agent's root in place of one that can be restored.
    ReplaceRoot,
    /// Adds a class.
    AddClass(u16, Want),
    /// Changes the parameters of a class. Queued packets stay.
    SetClass(u16, Want),
    /// Removes a class and its queue.
    DropClass(u16),
    /// Sets up the queue of a class, with a limit in bytes.
    SetLeaf(u16, u32),
    /// Adds a filter with this preference and number.
    AddFilter(u16, u16, Filter),
    /// Removes a filter.
    DropFilter(Place),
}

/// Returns the changes that bring an interface from the actual to the desired state: one for each object that differs, in an order that
/// the kernel accepts. O(objects x log objects).
pub fn changes(desired: &Desired, actual: &Actual) -> Vec<Change> {
    let empty = Actual {
        root: Root::Ours,
        classes: Default::default(),
        leaves: Default::default(),
        filters: Default::default(),
    };
    let mut list = Vec::new();
    let actual = if actual.root == Root::Ours {
        actual
    } else {
        list.push(if actual.root == Root::Default { Change::AddRoot } else { Change::ReplaceRoot });
        &empty
    };
    // HTB cannot move a class, so a class stays only if its parent does.
    let stays = |minor: u16| match (desired.classes().get(&minor), actual.classes.get(&minor)) {
        (Some(want), Some(found)) => want.parent == found.parent,
        _ => false,
    };
    // The kernel deletes a class only when no filter points to it, and adds a filter only if its class exists.
    let mut kept = BTreeSet::new();
    for (&place, filter) in actual.filters.iter().filter(|(place, _)| ids::is_filter(place.pref)) {
        let name = (place.pref, place.node);
        let same = desired.filters().get(&name) == Some(filter) && place.bucket == 0 && stays(filter.to);
        if !(same && kept.insert(name)) {
            list.push(Change::DropFilter(place));
        }
    }
    // Inner classes first: the agent's outer class has the lowest number.
    let ours = actual.classes.keys().rev().filter(|&&minor| ids::is_class(minor));
    list.extend(ours.filter(|&&minor| !stays(minor)).map(|&minor| Change::DropClass(minor)));
    for (&minor, &want) in desired.classes() {
        match actual.classes.get(&minor).filter(|_| stays(minor)) {
            None => list.push(Change::AddClass(minor, want)),
            Some(found) if !alike(&want.class, found) => list.push(Change::SetClass(minor, want)),
            Some(_) => {}
        }
        let leaf = actual.leaves.get(&minor).filter(|_| stays(minor));
        let fits = |handle, bytes| handle == ids::leaf(minor) && bytes == Some(want.class.buffer);
        if minor != ids::WHOLE && !leaf.is_some_and(|leaf| fits(leaf.handle, leaf.bytes)) {
            list.push(Change::SetLeaf(minor, want.class.buffer));
        }
    }
    let missing = desired.filters().iter().filter(|(name, _)| !kept.contains(name));
    list.extend(missing.map(|(&(pref, node), filter)| Change::AddFilter(pref, node, filter.clone())));
    list
}

/// Whether a class has its parameters, as far as `tc` prints them. `tc` computes a burst from its time in clock ticks, and rounds it.
fn alike(want: &Class, found: &Found) -> bool {
    let near = |bytes: u64| bytes.abs_diff(u64::from(want.burst)) <= u64::from(want.burst) / 64;
    (want.rate, want.ceil) == (found.rate, found.ceil)
        && found.quantum.is_none_or(|quantum| quantum == u64::from(want.quantum))
        && near(found.burst)
        && near(found.cburst)
}

impl Change {
    /// The line for `tc`, without its name.
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
        const ROOT: u16 = ids::ROOT;
        let dev = self.interface;
        match self.change {
            Change::AddRoot | Change::ReplaceRoot => {
                let verb = if matches!(self.change, Change::AddRoot) { "add" } else { "replace" };
                write!(f, "qdisc {verb} dev {dev} root handle {ROOT:x}: htb default {:#x}", ids::REST)
            }
            Change::AddClass(minor, want) | Change::SetClass(minor, want) => {
                let verb = if matches!(self.change, Change::AddClass(..)) { "add" } else { "change" };
                write!(f, "class {verb} dev {dev} parent {ROOT:x}:")?;
                if let Some(parent) = want.parent {
                    write!(f, "{parent:x}")?;
                }
                write!(f, " classid {ROOT:x}:{minor:x} htb {}", want.class)
            }
            Change::DropClass(minor) => write!(f, "class del dev {dev} classid {ROOT:x}:{minor:x}"),
            Change::SetLeaf(minor, bytes) => {
                let handle = ids::leaf(*minor);
                write!(
                    f,
                    "qdisc replace dev {dev} parent {ROOT:x}:{minor:x} handle {handle:x}: bfifo limit {bytes}"
                )
            }
            Change::AddFilter(pref, node, filter) => {
                let protocol = protocol(*pref);
                write!(
                    f,
                    "filter add dev {dev} parent {ROOT:x}: protocol {protocol} prio {pref} handle ::{node:x} u32"
                )?;
                for key in &filter.keys {
                    write!(f, " match u32 {:#010x} {:#010x} at {}", key.value, key.mask, key.at)?;
                }
                write!(f, " flowid {ROOT:x}:{:x}", filter.to)
            }
            Change::DropFilter(Place { pref, table, bucket, node }) => {
                let protocol = protocol(*pref);
                write!(f, "filter del dev {dev} parent {ROOT:x}: protocol {protocol} prio {pref} ")?;
                write!(f, "handle {table:x}:{bucket:x}:{node:x} u32")
            }
        }
    }
}

/// The protocol of filters with a preference.
fn protocol(pref: u16) -> &'static str {
    if pref == ids::BY_MARK6 { "ipv6" } else { "ip" }
}
