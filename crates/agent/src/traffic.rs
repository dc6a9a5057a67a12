//! Observes, marks and paces the traffic of a host's applications. An application is a cgroup or a port, and its programs are
//! unmodified: BPF programs (`bpf/` of the repository) do the work in the kernel.
//!
//! - Packets that leave the given interfaces get the class of their application as a mark (DSCP), by which each port selects the
//!   queue.
//! - TCP connections are recorded when they open and close, with the bytes that they carried.
//! - The pacing rate of a connection can be set while the connection exists.
//! - Sockets that programs handed over can be paused. Their pauses and rates end with their lease, also if no process of the agent is left
//!   ([`SocketLeases`]).
//! - UDP that arrives is counted, and UDP that is sent is limited, while this is enabled ([`ThrottleMaps`]).
//!
//! Options of the agent name applications, and so do orders, while the agent runs ([`Traffic::apply_ordered`]).
//!
//! [`Traffic`] does this for the network namespace that it is started in. Programs and maps stay in the kernel until
//! [`Traffic::stop`] or [`cleanup`]. If the agent is killed, classes stay and pacing rates hold for their lease; the next agent
//! takes over.

mod attachment;
mod cgroup;
mod folder;
mod maps;
mod ordered;
mod program;
mod record;
mod socket_leases;
mod sweep;
mod throttle;

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use weir_core::units::Rate;
use weir_proto::{ApplicationTraffic, RestoredObjects, UdpControl};

use crate::batch::{BatchError, run_tool};
use crate::lease;
use crate::queues::Interface;
use attachment::{Attachment, AttachmentCheck, Programs};
use cgroup::{Cgroup, find_own_cgroup};
pub use cgroup::{Rule, TrafficClass, find_cgroup_root};
use folder::{FolderKind, PinFolder};
use maps::Maps;
pub use ordered::MAX_ORDERED_TARGETS;
use ordered::{CgroupTree, OptionTarget, Target};
pub(crate) use program::attach_egress;
pub use record::{ApplicationId, Connection, ConnectionEnds, ConnectionEvent, EventKind};
pub use socket_leases::SocketLeases;
pub use sweep::Sweep;
pub use throttle::{ThrottleMaps, UdpByteCount};
pub use weir_proto::MIN_PACING_RATE;

/// Why traffic cannot be observed, marked or paced.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// The BPF programs were not built.
    #[error(
        "Weir was built without its BPF programs ({0}), which applications, throttling and ECN marks need; help: install clang and the headers \
         of libbpf and Linux, and build Weir again"
    )]
    NotBuilt(&'static str),
    /// No cgroups of version 2 are mounted.
    #[error(
        "cgroups of version 2 are not mounted; expected a line with `cgroup2` in /proc/self/mountinfo; help: `ip netns exec` hides the mount, \
         so use `nsenter --net=/run/netns/NAME`"
    )]
    NoCgroups,
    /// Another agent runs in this network namespace.
    #[error("another agent runs in this network namespace; help: stop it first")]
    Busy,
    /// Two applications have the same name or port, or the cgroup of one contains that of the other.
    #[error(
        "applications {0} and {1} overlap; expected different names, different ports, and cgroups that do not contain each other"
    )]
    Overlap(String, String),
    /// The interface has no Ethernet headers.
    #[error(
        "{interface} has the link type `{kind}`; expected an interface with Ethernet headers (`ether` or `loopback`)"
    )]
    NotEthernet {
        /// The interface.
        interface: String,
        /// Its link type, as `ip` prints it.
        kind: String,
    },
    /// The lease of a pacing rate is out of range.
    #[error("lease {0:?} is out of range; expected more than 0 s, and at most {max:?}", max = lease::MAX_LEASE)]
    InvalidLease(Duration),
    /// `ip` failed.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// A file or folder could not be read or written.
    #[error("{path}: {error}")]
    File {
        /// The path.
        path: String,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The kernel refused a program, a map or an entry of a map.
    #[error("{object}: {message}")]
    Kernel {
        /// The cgroup, interface, program or map.
        object: String,
        /// The kernel's message; of a long one, the first and the last lines.
        message: String,
    },
}

impl TrafficError {
    fn file(path: &Path, error: io::Error) -> TrafficError {
        TrafficError::File { path: path.display().to_string(), error }
    }

    pub(crate) fn kernel(object: &str, error: &dyn Error) -> TrafficError {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            let cause = error.to_string();
            if !message.ends_with(&cause) {
                message.push_str(": ");
                message.push_str(&cause);
            }
            source = error.source();
        }
        // For a program that it refuses, the kernel prints each step of the verifier. The reason is at the end.
        let lines: Vec<&str> = message.lines().collect();
        if let [first, _, .., _, _, _, _] = lines[..] {
            message = format!("{first} ... {}", lines[lines.len() - 4..].join("; "));
        }
        TrafficError::Kernel { object: object.to_owned(), message }
    }
}

/// Losses since the maps were created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossCounts {
    /// Events that were lost because the agent had not read earlier ones.
    pub lost_events: u64,
    /// Failed attempts to follow a connection, because the map of connections was full. The program `follow` tries again at the next event
    /// of the connection.
    pub tracking_failures: u64,
}

struct Application {
    rule: Rule,
    /// The number of the cgroup to which the programs are attached.
    id: u64,
    /// The folder of the cgroup, without symbolic links.
    path: PathBuf,
    /// Whether an order names it, and not an option of the agent.
    is_ordered: bool,
}

/// The maximum number of cgroups and ports that one call of [`Traffic::apply_ordered`] adds: loading programs takes some milliseconds each.
const MAX_ADDED_TARGETS: usize = 4;

/// How long the agent waits before it tries again to add a cgroup or port that the kernel has refused.
const REFUSAL_PAUSE: Duration = Duration::from_secs(10);

/// A cgroup or port of an order that the kernel has refused.
struct RefusedTarget {
    retry_at: Instant,
    /// The reason, for a conflict.
    conflict: String,
}

/// The programs, files and interfaces that have to exist, to be inspected without the [`Traffic`].
#[derive(Debug)]
pub struct Inspection {
    programs: Vec<AttachmentCheck>,
    files: Vec<PathBuf>,
    interfaces: Vec<u32>,
}

impl Inspection {
    /// Whether no program or file was removed. Makes a few system calls for each program, which can wait for kernel locks.
    pub fn is_intact(&self) -> bool {
        self.programs.iter().all(AttachmentCheck::is_intact)
            && self.files.iter().all(|file| std::fs::symlink_metadata(file).is_ok())
            && self.interfaces.iter().all(|&index| Interface::from_index(index).is_some())
    }
}

/// The programs and maps for the traffic of a host's applications.
pub struct Traffic {
    folder: PinFolder,
    maps: Maps,
    applications: Vec<Application>,
    /// With their interface numbers.
    interfaces: Vec<(Interface, u32)>,
    /// The programs attached to cgroups and interfaces.
    programs: Programs,
    throttling: Option<ThrottleMaps>,
    /// The cgroups and ports of orders that the kernel has refused, by number.
    refused_targets: BTreeMap<u64, RefusedTarget>,
    /// Whether the kernel may have programs, classes or connections of applications that no longer exist.
    has_stale_state: bool,
}

impl Traffic {
    /// Follows the traffic of these applications, and marks their packets that leave these interfaces.
    ///
    /// It takes over from an earlier agent in this network namespace: its connections, their pacing rates, events that were not read, and
    /// the classes of applications whose rules set no class. No packet loses its mark meanwhile. Sockets that were opened before the
    /// first agent are marked, but not followed.
    ///
    /// # Errors
    /// If the programs were not built, the applications overlap, a cgroup or interface does not exist, another agent runs, or the kernel
    /// refuses a program or map. Some programs may then be attached: the next call takes them over, or [`cleanup`] removes them.
    pub fn start(rules: &[Rule], interfaces: &[Interface]) -> Result<Traffic, TrafficError> {
        let mut traffic = Traffic::open(rules, interfaces)?;
        traffic.remove_stale_state()?;
        Ok(traffic)
    }

    /// As [`Traffic::start`], for an agent whose applications are all ordered. What an earlier agent has left stays until
    /// [`Traffic::apply_ordered`] has added them.
    ///
    /// # Errors
    /// As [`Traffic::start`].
    pub fn start_for_orders(interfaces: &[Interface]) -> Result<Traffic, TrafficError> {
        Traffic::open(&[], interfaces)
    }

    fn open(rules: &[Rule], interfaces: &[Interface]) -> Result<Traffic, TrafficError> {
        if !(program::is_built() && throttle::is_built()) {
            return Err(TrafficError::NotBuilt(env!("WEIR_BPF_LACKS")));
        }
        let indexes = interfaces.iter().map(read_index).collect::<Result<Vec<u32>, _>>()?;
        let cgroups = rules.iter().map(Cgroup::open_for).collect::<Result<Vec<_>, _>>()?;
        check_overlap(rules, &cgroups)?;

        let folder = PinFolder::create(FolderKind::Applications)?;
        program::create_maps(&folder)?;
        let mut maps = Maps::open(&folder)?;
        for cgroup in &cgroups {
            maps.enable_application(cgroup.id)?;
        }
        for (rule, cgroup) in rules.iter().zip(&cgroups).filter(|(rule, _)| rule.class.is_some()) {
            for &interface in &indexes {
                maps.set_class(cgroup.id, interface, rule.class)?;
            }
        }
        let mut programs = Programs::new();
        for (interface, &index) in interfaces.iter().zip(&indexes) {
            let attached = program::attach_interface_program(&folder, interface, index, has_ports(rules))?;
            programs.insert(program::interface_pin_name(index), attached);
        }
        // A port applies to packets that no cgroup has a class for, so the programs at cgroups are attached first.
        let (cgroup_applications, port_applications): (Vec<&Cgroup>, Vec<&Cgroup>) =
            cgroups.iter().partition(|cgroup| cgroup.port.is_none());
        for cgroup in cgroup_applications.into_iter().chain(port_applications) {
            programs.extend(program::attach_application_programs(&folder, cgroup)?);
        }
        // An application without a class keeps that of an earlier agent, until an order gives it another one.
        let inherited_class =
            |cgroup: &Cgroup| indexes.first().map_or(Ok(None), |&interface| maps.class(cgroup.id, interface));
        let application = |(rule, cgroup): (&Rule, &Cgroup)| {
            let class = rule.class.map_or_else(|| inherited_class(cgroup), |class| Ok(Some(class)))?;
            let (rule, path) = (Rule { class, ..rule.clone() }, cgroup.path.clone());
            Ok(Application { rule, id: cgroup.id, path, is_ordered: false })
        };
        let applications = rules.iter().zip(&cgroups).map(application);
        let applications = applications.collect::<Result<Vec<_>, TrafficError>>()?;
        let interfaces = interfaces.iter().cloned().zip(indexes).collect();
        let traffic = Traffic {
            folder,
            maps,
            applications,
            interfaces,
            programs,
            throttling: None,
            refused_targets: BTreeMap::new(),
            has_stale_state: true,
        };
        // Folders of other versions of Weir: the layout of their maps differs, so this version does not take them over.
        for other_version in PinFolder::open_existing(FolderKind::Applications, Some(&traffic.folder))? {
            other_version.remove()?;
        }
        Ok(traffic)
    }

    /// Follows applications whose cgroups were deleted and created again, as by a service restart. Returns their number. Call it
    /// periodically: until then, their packets have no class. A missing cgroup is no error: a later call finds it.
    ///
    /// # Errors
    /// As [`Traffic::start`].
    pub fn refresh(&mut self) -> Result<usize, TrafficError> {
        let mut count = 0;
        // An application that is a port is attached to the root cgroup, which is never deleted. `apply_ordered` follows those of orders.
        let is_followed = |known: &&mut Application| known.rule.port.is_none() && !known.is_ordered;
        for application in self.applications.iter_mut().filter(is_followed) {
            let cgroup = match Cgroup::open_for(&application.rule) {
                Err(TrafficError::File { error, .. }) if error.kind() == io::ErrorKind::NotFound => continue,
                cgroup => cgroup?,
            };
            if cgroup.id == application.id {
                continue;
            }
            self.maps.enable_application(cgroup.id)?;
            for &(_, interface) in &self.interfaces {
                self.maps.set_class(cgroup.id, interface, application.rule.class)?;
            }
            self.programs.extend(program::attach_application_programs(&self.folder, &cgroup)?);
            (application.id, application.path) = (cgroup.id, cgroup.path);
            count += 1;
        }
        if count > 0 {
            // The programs at the deleted cgroups did not see the end of their last connections.
            self.remove_stale_state()?;
        }
        Ok(count)
    }

    /// Marks and follows the traffic that orders name, in addition to that of options, and no longer that of earlier orders. Returns the
    /// conflicts: why some of it is not marked. Call it periodically: it also finds cgroups that were created since. It adds at most
    /// four cgroups and ports per call; the next calls add the others. `class_of` gives the class of an application; an
    /// application without one keeps that of an earlier agent.
    ///
    /// # Errors
    /// If the cgroups cannot be found, or the kernel refuses to remove traffic of earlier orders. A refusal to add some is a conflict.
    pub fn apply_ordered(
        &mut self,
        ordered: &[ApplicationTraffic],
        class_of: impl Fn(&str) -> Option<TrafficClass>,
        now: Instant,
    ) -> Result<Vec<String>, TrafficError> {
        let (targets, mut conflicts) = if ordered.is_empty() {
            Default::default()
        } else {
            let root = find_cgroup_root()?;
            let root = root.canonicalize().map_err(|error| TrafficError::file(&root, error))?;
            let tree = CgroupTree { own: find_own_cgroup(&root), root };
            tree.find_targets(ordered, &self.option_targets())
        };
        let is_target = |known: &Application| {
            let names = |target: &Target| target.id == known.id && *target.application == *known.rule.name;
            targets.iter().any(names)
        };
        let count = self.applications.len();
        self.applications.retain(|known| !known.is_ordered || is_target(known));
        self.has_stale_state |= self.applications.len() < count;
        self.refused_targets.retain(|id, _| targets.iter().any(|target| target.id == *id));
        let missing: Vec<&Target> = targets.iter().filter(|target| !self.has_target(target)).collect();
        let is_due = |target: &&&Target| {
            self.refused_targets.get(&target.id).is_none_or(|refused| refused.retry_at <= now)
        };
        let due: Vec<&Target> = missing.iter().filter(is_due).copied().collect();
        for target in due.iter().take(MAX_ADDED_TARGETS) {
            self.add_target(target, class_of(&target.application), now);
        }
        conflicts.extend(self.refused_targets.values().map(|refused| refused.conflict.clone()));
        // Targets of an earlier agent keep their marks until this one has added them.
        if self.has_stale_state && due.len() <= MAX_ADDED_TARGETS {
            self.remove_stale_state()?;
        }
        Ok(conflicts)
    }

    fn has_target(&self, target: &Target) -> bool {
        self.applications.iter().any(|known| known.is_ordered && known.id == target.id)
    }

    fn option_targets(&self) -> Vec<OptionTarget<'_>> {
        let options = self.applications.iter().filter(|known| !known.is_ordered);
        options
            .map(|known| OptionTarget { name: &known.rule.name, path: &known.path, port: known.rule.port })
            .collect()
    }

    /// Adds a cgroup or port of an order, or records why the kernel refuses.
    fn add_target(&mut self, target: &Target, class: Option<TrafficClass>, now: Instant) {
        match self.attach_target(target, class) {
            Ok(Some(application)) => {
                self.refused_targets.remove(&target.id);
                self.applications.push(application);
            }
            // The cgroup was deleted meanwhile.
            Ok(None) => {}
            Err(error) => {
                // Some of its programs and entries may exist.
                self.has_stale_state = true;
                let conflict = format!("application {}: {error}", target.application);
                self.refused_targets
                    .insert(target.id, RefusedTarget { retry_at: now + REFUSAL_PAUSE, conflict });
            }
        }
    }

    fn attach_target(
        &mut self,
        target: &Target,
        class: Option<TrafficClass>,
    ) -> Result<Option<Application>, TrafficError> {
        let rule = target.rule();
        let cgroup = match Cgroup::open_for(&rule) {
            Err(TrafficError::File { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            cgroup => cgroup?,
        };
        if cgroup.id != target.id {
            return Ok(None);
        }
        let inherited = self.interfaces.first().map(|&(_, interface)| self.maps.class(cgroup.id, interface));
        let class = class.or(inherited.transpose()?.flatten());
        self.maps.enable_application(cgroup.id)?;
        for &(_, interface) in &self.interfaces {
            self.maps.set_class(cgroup.id, interface, class)?;
        }
        if target.port.is_some() && !has_ports(self.rules()) {
            for (interface, index) in self.present_interfaces() {
                let attached = program::attach_interface_program(&self.folder, &interface, index, true)?;
                self.programs.insert(program::interface_pin_name(index), attached);
            }
        }
        self.programs.extend(program::attach_application_programs(&self.folder, &cgroup)?);
        Ok(Some(Application {
            rule: Rule { class, ..rule },
            id: cgroup.id,
            path: cgroup.path,
            is_ordered: true,
        }))
    }

    /// Returns the objects that [`Traffic::repair`] checks, to be inspected without a lock on this value.
    pub fn inspection(&self) -> Inspection {
        let programs =
            self.programs.iter().map(|(name, attached)| attached.attachment_check(&self.folder, name));
        let maps = Maps::names().map(|name| self.folder.path().join(name));
        let interfaces = self.interfaces.iter().map(|&(_, index)| index).collect();
        Inspection { programs: programs.collect(), files: maps.collect(), interfaces }
    }

    /// Restores objects that other processes removed: detached programs, and files in the BPF file system. Programs follow an interface
    /// that was deleted and created again, which is not counted. Loads programs, which takes some milliseconds each.
    ///
    /// # Errors
    /// The first error of all steps. The other steps are done, and the next call tries again.
    pub fn repair(&mut self) -> (RestoredObjects, Result<(), TrafficError>) {
        let mut restored = RestoredObjects::default();
        let folder = self.folder.recreate().map(drop);
        let maps = self.maps.repin(&self.folder).map(|count| restored.maps += count);
        let pins = self.repin_programs().map(|count| restored.programs += count);
        let interface_programs = self.restore_interface_programs().map(|count| restored.programs += count);
        let cgroup_programs = self.restore_cgroup_programs().map(|count| restored.programs += count);
        (restored, folder.and(maps).and(pins).and(interface_programs).and(cgroup_programs))
    }

    /// Restores entries of the maps of applications and classes that other processes removed or changed, and returns how many. A system
    /// call for each.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn restore_entries(&mut self) -> Result<u64, TrafficError> {
        let mut count = 0;
        for application in &self.applications {
            count += u64::from(self.maps.enable_application(application.id)?);
            let class = application.rule.class;
            for &(_, interface) in &self.interfaces {
                count += u64::from(self.maps.restore_class(application.id, interface, class)?);
            }
        }
        Ok(count)
    }

    /// Pins programs again whose files were deleted, and returns how many.
    fn repin_programs(&mut self) -> Result<u64, TrafficError> {
        let mut result = Ok(0);
        for (name, attached) in std::mem::take(&mut self.programs) {
            match attached.repin(&self.folder, &name) {
                Ok((attached, was_deleted)) => {
                    self.programs.insert(name, attached);
                    result = result.map(|count| count + u64::from(was_deleted));
                }
                // The link is lost. The next step loads the program again.
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }

    fn is_attached(&self, name: &str) -> bool {
        self.programs.get(name).is_some_and(Attachment::is_attached)
    }

    /// Attaches the missing programs of interfaces, and returns how many. Programs of an interface that was created again do not count.
    fn restore_interface_programs(&mut self) -> Result<u64, TrafficError> {
        let (mut count, mut has_changed, mut result) = (0, false, Ok(()));
        for position in 0..self.interfaces.len() {
            let (name, index) = self.interfaces[position].clone();
            let present_name = Interface::from_index(index);
            let throttle_names =
                throttle::throttle_program_names(index).into_iter().filter(|_| self.throttling.is_some());
            let mut needed_names = throttle_names.chain([program::interface_pin_name(index)]);
            if present_name.is_some() && needed_names.all(|program| self.is_attached(&program)) {
                continue;
            }
            // Another interface that was renamed to this name keeps its own programs.
            let is_free = |index: &u32| self.interfaces.iter().all(|(_, known_index)| known_index != index);
            let Some(current_name) =
                present_name.or_else(|| name.index().filter(is_free).map(|_| name.clone()))
            else {
                continue;
            };
            let attach_result = self::read_index(&current_name).and_then(|new_index| {
                Ok((
                    new_index,
                    program::attach_interface_program(
                        &self.folder,
                        &current_name,
                        new_index,
                        has_ports(self.rules()),
                    )?,
                ))
            });
            match attach_result {
                Ok((new_index, attached)) => {
                    self.programs.insert(program::interface_pin_name(new_index), attached);
                    self.interfaces[position].1 = new_index;
                    has_changed = true;
                    count += u64::from(new_index == index);
                }
                Err(error) => result = result.and(Err(error)),
            }
        }
        if has_changed && let Some(control) = self.udp_control() {
            result = result.and(self.start_throttling(control));
        }
        if has_changed {
            result = result.and(self.remove_stale_state());
        }
        result.map(|()| count)
    }

    fn rules(&self) -> impl IntoIterator<Item = &Rule> {
        self.applications.iter().map(|application| &application.rule)
    }

    /// Attaches the missing programs of cgroups, and returns how many.
    fn restore_cgroup_programs(&mut self) -> Result<u64, TrafficError> {
        let mut count = 0;
        for position in 0..self.applications.len() {
            let Application { rule, id, .. } = &self.applications[position];
            if program::needed_pin_names(*id, rule.port.is_some()).all(|name| self.is_attached(&name)) {
                continue;
            }
            let cgroup = match Cgroup::open_for(rule) {
                // `refresh` follows the cgroup when it is created again.
                Err(TrafficError::File { error, .. }) if error.kind() == io::ErrorKind::NotFound => continue,
                cgroup => cgroup?,
            };
            if cgroup.id == *id {
                self.programs.extend(program::attach_application_programs(&self.folder, &cgroup)?);
                count += 1;
            }
        }
        Ok(count)
    }

    fn start_throttling(&mut self, control: UdpControl) -> Result<(), TrafficError> {
        let (throttling, programs) = ThrottleMaps::start(&self.folder, &self.present_interfaces(), control)?;
        self.programs.extend(programs);
        self.throttling = Some(throttling);
        Ok(())
    }

    /// The interfaces that exist, by their present names.
    fn present_interfaces(&self) -> Vec<(Interface, u32)> {
        let present_interface = |&(_, index): &(Interface, u32)| Some((Interface::from_index(index)?, index));
        self.interfaces.iter().filter_map(present_interface).collect()
    }

    /// Removes programs, classes and connections of other applications and interfaces.
    fn remove_stale_state(&mut self) -> Result<(), TrafficError> {
        let ids: Vec<u64> = self.applications.iter().map(|known| known.id).collect();
        let interfaces: Vec<u32> = self.interfaces.iter().map(|&(_, index)| index).collect();
        self.maps.retain_applications(&ids)?;
        self.maps.retain_classes_and_rates(&ids, &interfaces, &self.folder)?;
        self.retain_programs()?;
        self.maps.retain_connections(&ids)?;
        self.has_stale_state = false;
        Ok(())
    }

    /// Removes the programs of other applications and interfaces.
    fn retain_programs(&mut self) -> Result<(), TrafficError> {
        let ids = self.applications.iter().map(|known| known.id);
        let mut kept_names: Vec<String> = ids.flat_map(program::application_pin_names).collect();
        kept_names.extend(self.interfaces.iter().map(|&(_, index)| program::interface_pin_name(index)));
        if self.throttling.is_some() {
            kept_names.extend(
                self.interfaces.iter().flat_map(|&(_, index)| throttle::throttle_program_names(index)),
            );
        }
        // An open link keeps its program attached without a file.
        self.programs.retain(|name, _| kept_names.contains(name));
        self.folder
            .retain(|name| Maps::is_map_name(name) || kept_names.iter().any(|kept_name| kept_name == name))
    }

    /// Enables or disables counting and limits of UDP. Both are disabled at first. A change removes all limits.
    ///
    /// # Errors
    /// If the kernel refuses. Both are disabled then.
    pub fn set_udp_control(&mut self, control: Option<UdpControl>) -> Result<(), TrafficError> {
        if control == self.udp_control() {
            return Ok(());
        }
        self.throttling = None;
        let result = control.map_or(Ok(()), |control| self.start_throttling(control));
        // Also removes the programs of a failed start.
        self.retain_programs()?;
        result
    }

    /// Which UDP is counted; none while counting and limits are disabled.
    pub fn udp_control(&self) -> Option<UdpControl> {
        self.throttling.as_ref().map(ThrottleMaps::control)
    }

    /// The counts and limits of UDP; none while they are disabled.
    pub fn throttling(&mut self) -> Option<&mut ThrottleMaps> {
        self.throttling.as_mut()
    }

    /// The name of an application; none if the application is no longer observed.
    pub fn application_name(&self, id: ApplicationId) -> Option<&str> {
        self.applications.iter().find(|known| known.id == id.0).map(|known| known.rule.name.as_str())
    }

    /// The application whose class the packets of a connection have. Packets of an application without a class have that of the
    /// application of the local port, or else of the remote port, as the programs mark them.
    pub fn marking_application(&self, id: ApplicationId, ends: &ConnectionEnds) -> ApplicationId {
        marking_application(&self.applications, id, ends)
    }

    /// The applications of options in the order of the rules, then those of orders. An application whose cgroup is created again gets
    /// another number. One of an order has a number for each of its cgroups and ports.
    pub fn applications(&self) -> impl Iterator<Item = (&Rule, ApplicationId)> {
        self.applications.iter().map(|known| (&known.rule, ApplicationId(known.id)))
    }

    /// Sets or removes the class of an application, from the next packet on. Returns whether the application exists.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_class(&mut self, name: &str, class: Option<TrafficClass>) -> Result<bool, TrafficError> {
        let mut exists = false;
        for application in self.applications.iter_mut().filter(|known| known.rule.name == name) {
            for &(_, interface) in &self.interfaces {
                self.maps.set_class(application.id, interface, class)?;
            }
            application.rule.class = class;
            exists = true;
        }
        Ok(exists)
    }

    /// The open connections, in no order. Connections that open or close meanwhile may be missing.
    ///
    /// # Errors
    /// If the map of connections cannot be read.
    pub fn connections(&self) -> Result<Vec<(ConnectionEnds, Connection)>, TrafficError> {
        self.maps.connections()
    }

    /// Sets the pacing rate of a connection for a lease, or removes it. Returns whether the connection exists.
    ///
    /// The rate applies when the peer acknowledges the next data. A lower rate that the program has set itself stays. A rate of 2^32 bytes
    /// per second or more is no limit.
    ///
    /// # Errors
    /// If the lease is zero or above [`lease::MAX_LEASE`], or 65,536 connections have a pacing rate already.
    pub fn set_pacing_rate(
        &mut self,
        ends: ConnectionEnds,
        pacing_rate: Option<Rate>,
        lease: Duration,
    ) -> Result<bool, TrafficError> {
        let Some(rate) = pacing_rate else {
            self.maps.remove_pacing_rate(ends)?;
            return Ok(self.maps.connection(ends)?.is_some());
        };
        if lease.is_zero() || lease > lease::MAX_LEASE {
            return Err(TrafficError::InvalidLease(lease));
        }
        let rate = (rate.get() as u64).max(u64::from(MIN_PACING_RATE));
        self.maps.set_pacing_rate(ends, rate, monotonic_now() + lease)?;
        let exists = self.maps.connection(ends)?.is_some();
        if !exists {
            // The connection may have closed before, and no event will remove the entry.
            self.maps.remove_pacing_rate(ends)?;
        }
        Ok(exists)
    }

    /// The next event; none if all have been read. [`AsFd`] gives a descriptor that is readable if there are more.
    pub fn next_event(&mut self) -> Option<ConnectionEvent> {
        self.maps.next_event()
    }

    /// The losses so far.
    ///
    /// # Errors
    /// If the map of counts cannot be read.
    pub fn loss_counts(&self) -> Result<LossCounts, TrafficError> {
        self.maps.loss_counts()
    }

    /// Removes all programs and maps from the kernel, after the pacing rates. Where the agent may not look at all sockets, it waits for a
    /// second for acknowledgements, and returns the number of connections without any, which keep their pacing rate.
    ///
    /// # Errors
    /// If a program, map or file cannot be removed.
    pub fn stop(mut self) -> Result<usize, TrafficError> {
        let still_paced = self.maps.retain_classes_and_rates(&[], &[], &self.folder)?;
        self.folder.remove()?;
        Ok(still_paced)
    }
}

/// Readable when there are events.
impl AsFd for Traffic {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.maps.as_fd()
    }
}

/// Removes the programs and maps of earlier agents in this network namespace. Returns whether there were any.
///
/// # Errors
/// If an agent runs, or a program, map or file cannot be removed.
pub fn cleanup() -> Result<bool, TrafficError> {
    let folders = PinFolder::open_existing(FolderKind::Applications, None)?;
    let had_leases = SocketLeases::cleanup()?;
    let has_any = had_leases || !folders.is_empty();
    for folder in folders {
        // A folder that is incomplete has no pacing rates to remove.
        if folder.is_current(FolderKind::Applications)
            && let Ok(mut maps) = Maps::open(&folder)
        {
            maps.retain_classes_and_rates(&[], &[], &folder)?;
        }
        folder.remove()?;
    }
    Ok(has_any)
}

/// Whether [`cleanup`] can find programs and maps. It cannot if another file system is mounted on `/sys`, as under `ip netns exec`.
pub fn is_bpf_fs_visible() -> bool {
    PinFolder::is_bpf_fs_visible()
}

/// The time of the BPF programs' clock, CLOCK_MONOTONIC.
pub fn monotonic_now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux always has CLOCK_MONOTONIC").into()
}

/// Whether any application is a port.
fn has_ports<'a>(rules: impl IntoIterator<Item = &'a Rule>) -> bool {
    rules.into_iter().any(|rule| rule.port.is_some())
}

/// Checks that no two applications overlap: their traffic would count twice.
fn check_overlap(rules: &[Rule], cgroups: &[Cgroup]) -> Result<(), TrafficError> {
    for (index, (rule, cgroup)) in rules.iter().zip(cgroups).enumerate() {
        for (other, other_cgroup) in rules.iter().zip(cgroups).take(index) {
            // A port applies to packets that no cgroup has a class for, so it cannot overlap with a cgroup.
            let overlaps = match (rule.port, other.port) {
                (None, None) => {
                    cgroup.path.starts_with(&other_cgroup.path) || other_cgroup.path.starts_with(&cgroup.path)
                }
                (port, other_port) => port == other_port,
            };
            if overlaps || rule.name == other.name {
                return Err(TrafficError::Overlap(other.to_string(), rule.to_string()));
            }
        }
    }
    Ok(())
}

/// Returns the number of an interface of the calling thread's network namespace.
fn read_index(interface: &Interface) -> Result<u32, TrafficError> {
    #[derive(Deserialize)]
    struct Link {
        ifindex: u32,
        link_type: String,
    }
    let name = interface.to_string();
    let text = run_tool("ip", &["-j", "link", "show", "dev", &name])?;
    let links: Vec<Link> = serde_json::from_str(&text).unwrap_or_default();
    let unknown = || Link { ifindex: 0, link_type: text.chars().take(200).collect() };
    let link = links.into_iter().next().unwrap_or_else(unknown);
    match link.link_type.as_str() {
        "ether" | "loopback" => Ok(link.ifindex),
        _ => Err(TrafficError::NotEthernet { interface: name, kind: link.link_type }),
    }
}

fn marking_application(
    applications: &[Application],
    id: ApplicationId,
    ends: &ConnectionEnds,
) -> ApplicationId {
    let application = applications.iter().find(|known| known.id == id.0);
    if application.is_none_or(|known| known.rule.port.is_none() && known.rule.class.is_some()) {
        return id;
    }
    let application_of_port = |port: u16| {
        let has_port_and_class =
            |known: &&Application| known.rule.port == Some(port) && known.rule.class.is_some();
        applications.iter().find(has_port_and_class).map(|known| ApplicationId(known.id))
    };
    application_of_port(ends.local.port()).or_else(|| application_of_port(ends.remote.port())).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_implements_send() {
        fn assert_send<T: Send>() {}
        assert_send::<Traffic>();
    }

    #[test]
    fn connection_belongs_to_the_application_of_its_class() {
        let rules = ["web=a:1", "free=b", "one=port/8080:2", "two=port/8081:3", "none=port/9000"];
        let application = |(id, rule): (u64, &str)| Application {
            rule: rule.parse().unwrap(),
            id,
            path: PathBuf::new(),
            is_ordered: false,
        };
        let applications: Vec<Application> = (0..).zip(rules).map(application).collect();
        let marking_id = |id: u64, local: u16, remote: u16| {
            let ends = ConnectionEnds {
                local: ([10, 0, 0, 1], local).into(),
                remote: ([10, 0, 0, 2], remote).into(),
            };
            marking_application(&applications, ApplicationId(id), &ends).0
        };
        // A class of the cgroup applies first. Without one, the port's class applies.
        assert_eq!(
            [marking_id(0, 8080, 5), marking_id(1, 8080, 5), marking_id(1, 5, 8081), marking_id(1, 5, 6)],
            [0, 2, 3, 1]
        );
        // The local port applies first, whichever application saw the connection first. A port without a class is ignored.
        assert_eq!(
            [
                marking_id(3, 8080, 8081),
                marking_id(2, 8081, 8080),
                marking_id(1, 9000, 8081),
                marking_id(4, 9000, 5)
            ],
            [2, 3, 3, 4]
        );
        // An application that is no longer observed.
        assert_eq!([marking_id(9, 8080, 5), marking_id(9, 5, 6)], [9, 9]);
    }

    #[test]
    fn verifier_messages_keep_the_first_and_last_lines() {
        let text = "refused: 0\n1\n2\n3\n4\n5";
        let TrafficError::Kernel { message, .. } = TrafficError::kernel("x", &io::Error::other(text)) else {
            panic!("an error of the kernel is `TrafficError::Kernel`")
        };
        assert_eq!(message, "refused: 0 ... 2; 3; 4; 5");
    }
}
