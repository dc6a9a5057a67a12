//! Limits bandwidth for a profile, on the cables of a bed or at an interface.

use std::collections::BTreeMap;
use std::io;
use std::process::{Child, Command};

use weir_agent::queues::{Desired, Device, Interface, QueueError, Replace, Root};
use weir_core::saba::Fraction;
use weir_core::saba::profile::FRACTIONS;
use weir_core::units::Rate;
use weir_testbed::{Bed, namespace};

use crate::failure::Failure;
use crate::table::whole_percent;
use crate::testbed;

/// Where bandwidth is limited, and where commands run.
pub enum Place<'a> {
    /// The cables of hosts of a bed, in both directions.
    Hosts {
        /// The bed.
        bed: &'a Bed,
        /// Positions in the bed's plan; commands run on the first host.
        hosts: Vec<usize>,
    },
    /// The egress of an interface of this machine.
    Interface {
        /// The interface.
        interface: Interface,
        /// The rate of its link.
        rate: Rate,
        /// The maximum number of segments of its packets.
        segments: u32,
    },
}

/// Restores the bandwidth when it is dropped, also after a panic.
struct Back<'p, 'a>(&'p Place<'a>);

impl Drop for Back<'_, '_> {
    fn drop(&mut self) {
        // `with` restores it where an error can be reported.
        let _ = self.0.restore();
    }
}

impl<'a> Place<'a> {
    /// Hosts of a bed by their names; all of its hosts if there are no names.
    ///
    /// # Errors
    /// A host that the bed does not contain, or that is named twice.
    pub fn hosts(bed: &'a Bed, names: &[String]) -> Result<Place<'a>, Failure> {
        let all: Vec<usize> = (0..bed.topology().hosts()).collect();
        let mut hosts: Vec<usize> = Vec::with_capacity(names.len());
        for name in names {
            let at = all.iter().find(|&&at| bed.plan().nodes[at].name == *name);
            let at = *at.filter(|at| !hosts.contains(at)).ok_or_else(|| {
                let bed = &bed.plan().name;
                Failure::input(format_args!("--hosts: `{name}`: expected hosts of bed `{bed}`, each once"))
            })?;
            hosts.push(at);
        }
        Ok(Place::Hosts { bed, hosts: if names.is_empty() { all } else { hosts } })
    }

    /// An interface of this machine, whose link has the rate `rate`.
    ///
    /// # Errors
    /// If the interface does not exist or has queues of an agent, or the lowest fraction of the rate cannot be configured.
    pub fn interface(interface: Interface, rate: Rate) -> Result<Place<'a>, Failure> {
        let segments = Device::read(&interface).map_err(Failure::undone)?.segments;
        for part in [FRACTIONS[0], Fraction::ALL] {
            desired(rate, segments, part).map_err(|error| {
                Failure::input(format_args!("--rate: {} of it: {}", whole_percent(part.get()), error.message))
            })?;
        }
        if interface.read().map_err(Failure::undone)?.root == Root::Ours {
            return Err(Failure::undone(format_args!(
                "{interface} has queues of Weir's already; `weir agent cleanup` takes them away"
            )));
        }
        Ok(Place::Interface { interface, rate, segments })
    }

    /// Runs `work`, and then restores the bandwidth, whether `work` failed or not.
    ///
    /// # Errors
    /// The error of `work`, or else that of restoring the bandwidth.
    pub fn with<T>(&self, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        let back = Back(self);
        let done = work();
        std::mem::forget(back);
        let restored = self.restore();
        let done = done?;
        restored?;
        Ok(done)
    }

    /// Limits the bandwidth to a fraction.
    ///
    /// # Errors
    /// If the kernel refuses the limit.
    pub fn limit(&self, part: Fraction) -> Result<(), Failure> {
        match self {
            Place::Hosts { bed, hosts } => {
                bed.throttle(hosts, part).map_err(|error| testbed::failure(&error))
            }
            Place::Interface { interface, rate, segments } => {
                let desired = desired(*rate, *segments, part)?;
                let changed = interface.reconcile(&desired, Replace::Restorable);
                changed.map(drop).map_err(|error: QueueError| Failure::undone(error))
            }
        }
    }

    fn restore(&self) -> Result<(), Failure> {
        match self {
            Place::Hosts { .. } => self.limit(Fraction::ALL),
            Place::Interface { interface, .. } => interface.restore().map(drop).map_err(Failure::undone),
        }
    }

    /// Starts a program on the first host, or on this machine.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        match self {
            // A process starts in the namespace of the thread that starts it.
            Place::Hosts { bed, hosts } => {
                namespace::inside(&bed.plan().nodes[hosts[0]].namespace, || command.spawn())?
            }
            Place::Interface { .. } => command.spawn(),
        }
    }

    /// The place in words.
    pub fn describe(&self) -> String {
        match self {
            Place::Hosts { bed, hosts } => {
                let names: Vec<&str> = hosts.iter().map(|&at| bed.plan().nodes[at].name.as_str()).collect();
                format!("the cables of {} of bed `{}`", names.join(", "), bed.plan().name)
            }
            Place::Interface { interface, rate, .. } => format!("what leaves {interface}, of {rate}"),
        }
    }
}

/// One queue for all packets, at a fraction of the rate.
fn desired(rate: Rate, segments: u32, part: Fraction) -> Result<Desired, Failure> {
    let rate = Rate::new(rate.get() * part.get()).expect("a rate times a fraction is a rate");
    Desired::new(rate, segments, &[1.0], &BTreeMap::new()).map_err(Failure::input)
}
