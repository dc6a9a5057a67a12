//! Limits bandwidth for a profile: on the cables of a bed, at an interface, or at the hosts of a cluster.

use std::collections::BTreeMap;
use std::io;
use std::process::{Child, Command};

use weir_agent::queues::{
    DesiredQueues, Device, Interface, InterfaceLock, QueueError, ReplaceableRoots, RootQdisc, Shares,
};
use weir_core::model::LinkBudget;
use weir_core::saba::Fraction;
use weir_core::saba::profile::PROFILED_FRACTIONS;
use weir_core::units::Rate;
use weir_testbed::{Bed, namespace};

use super::cluster::ClusterHosts;
use crate::failure::Failure;
use crate::table::format_whole_percent;
use crate::testbed;

/// Where bandwidth is limited, and where commands run.
pub enum ProfileTarget<'a> {
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
        /// Keeps agents from changing its queues meanwhile.
        lock: InterfaceLock,
    },
    /// What the hosts of a cluster send, by their agents. Commands run on this machine.
    Cluster(ClusterHosts),
}

/// Restores the bandwidth when it is dropped, also after a panic.
struct RestoreGuard<'p, 'a>(&'p ProfileTarget<'a>);

impl Drop for RestoreGuard<'_, '_> {
    fn drop(&mut self) {
        // `run_and_restore` restores the bandwidth where an error can be reported.
        let _ = self.0.restore();
    }
}

impl<'a> ProfileTarget<'a> {
    /// Hosts of a bed by their names; all of its hosts if there are no names.
    ///
    /// # Errors
    /// A host that the bed does not contain, or that is named twice.
    pub fn hosts(bed: &'a Bed, names: &[String]) -> Result<ProfileTarget<'a>, Failure> {
        let all: Vec<usize> = (0..bed.topology().hosts()).collect();
        let mut hosts: Vec<usize> = Vec::with_capacity(names.len());
        for name in names {
            let index = all.iter().find(|&&at| bed.plan().nodes[at].name == *name);
            let index = *index.filter(|at| !hosts.contains(at)).ok_or_else(|| {
                let bed = &bed.plan().name;
                Failure::input(format_args!(
                    "--hosts: `{name}` is unknown or repeated; expected hosts of bed `{bed}`, each once"
                ))
            })?;
            hosts.push(index);
        }
        Ok(ProfileTarget::Hosts { bed, hosts: if names.is_empty() { all } else { hosts } })
    }

    /// An interface of this machine, whose link has the rate `rate`.
    ///
    /// # Errors
    /// If the interface does not exist, an agent keeps its queues or has left some, or the lowest fraction of the rate cannot be
    /// configured.
    pub fn interface(interface: Interface, rate: Rate) -> Result<ProfileTarget<'a>, Failure> {
        let segments = Device::read(&interface).map_err(Failure::runtime)?.segments;
        let lock = InterfaceLock::acquire(&interface).map_err(Failure::runtime)?;
        for fraction in [PROFILED_FRACTIONS[0], Fraction::ALL] {
            desired_queues(rate, segments, fraction).map_err(|error| {
                Failure::input(format_args!(
                    "--rate: {} of the rate: {}",
                    format_whole_percent(fraction.get()),
                    error.message
                ))
            })?;
        }
        if interface.read_queues().map_err(Failure::runtime)?.root == RootQdisc::Agent {
            return Err(Failure::runtime(format_args!(
                "{interface} already has queues of an agent; help: `weir agent cleanup` removes them"
            )));
        }
        Ok(ProfileTarget::Interface { interface, rate, segments, lock })
    }

    /// Runs `work`, and then restores the bandwidth, whether `work` failed or not.
    ///
    /// # Errors
    /// The error of `work`, or else that of restoring the bandwidth.
    pub fn run_and_restore<T>(&self, work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        let guard = RestoreGuard(self);
        let result = work();
        std::mem::forget(guard);
        let restored = self.restore();
        let done = result?;
        restored?;
        Ok(done)
    }

    /// Limits the bandwidth to a fraction.
    ///
    /// # Errors
    /// If the kernel refuses the limit.
    pub fn limit_bandwidth(&self, fraction: Fraction) -> Result<(), Failure> {
        match self {
            ProfileTarget::Hosts { bed, hosts } => {
                bed.throttle(hosts, fraction).map_err(|error| testbed::failure(&error))
            }
            ProfileTarget::Interface { interface, rate, segments, .. } => {
                let desired = desired_queues(*rate, *segments, fraction)?;
                let changed = interface.reconcile(&desired, ReplaceableRoots::Restorable);
                changed.map(drop).map_err(|error: QueueError| Failure::runtime(error))
            }
            ProfileTarget::Cluster(hosts) => hosts.limit_bandwidth(fraction),
        }
    }

    /// Checks after a run that the limit has held.
    ///
    /// # Errors
    /// If it has not: the run was not at this bandwidth.
    pub fn check_limit(&self) -> Result<(), Failure> {
        match self {
            ProfileTarget::Cluster(hosts) => hosts.check(),
            ProfileTarget::Hosts { .. } | ProfileTarget::Interface { .. } => Ok(()),
        }
    }

    fn restore(&self) -> Result<(), Failure> {
        match self {
            ProfileTarget::Hosts { .. } => self.limit_bandwidth(Fraction::ALL),
            ProfileTarget::Interface { interface, .. } => {
                interface.restore().map(drop).map_err(Failure::runtime)
            }
            ProfileTarget::Cluster(hosts) => hosts.restore(),
        }
    }

    /// Starts a program on the first host, or on this machine.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        match self {
            // A process starts in the namespace of the thread that starts it.
            ProfileTarget::Hosts { bed, hosts } => {
                namespace::run_inside(&bed.plan().nodes[hosts[0]].namespace, || command.spawn())?
            }
            ProfileTarget::Interface { .. } | ProfileTarget::Cluster(_) => command.spawn(),
        }
    }

    /// A text that describes the target.
    pub fn describe(&self) -> String {
        match self {
            ProfileTarget::Hosts { bed, hosts } => {
                let names: Vec<&str> = hosts.iter().map(|&at| bed.plan().nodes[at].name.as_str()).collect();
                format!("the cables of {} of bed `{}`", names.join(", "), bed.plan().name)
            }
            ProfileTarget::Interface { interface, rate, .. } => format!("the egress of {interface} ({rate})"),
            ProfileTarget::Cluster(hosts) => format!("the links of {}", hosts.names().join(", ")),
        }
    }
}

/// One queue for all packets, at a fraction of the rate.
fn desired_queues(rate: Rate, segments: u32, fraction: Fraction) -> Result<DesiredQueues, Failure> {
    let rate = Rate::new(rate.get() * fraction.get()).expect("a rate times a fraction is a rate");
    let shares = Shares { budget: LinkBudget::UNDIVIDED, ..Shares::by_weight(&[1.0]) };
    DesiredQueues::new(rate, segments, &shares, &BTreeMap::new()).map_err(Failure::input)
}
