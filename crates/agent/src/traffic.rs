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
//! Options of the agent name applications, and so do orders, while the agent runs ([`Traffic::target_search`]).
//!
//! [`Traffic`] does this for the network namespace that it is started in. Programs and maps stay in the kernel until
//! [`Traffic::stop`] or [`cleanup`]. If the agent is killed, classes stay and pacing rates hold for their lease; the next agent
//! takes over.

mod attachment;
mod byte_check;
mod cgroup;
mod error;
mod folder;
mod maps;
mod ordered;
mod paths;
mod program;
mod program_order;
mod record;
mod removal;
mod repair;
mod search;
mod socket_leases;
mod sweep;
mod throttle;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use rustix::net::sockopt::socket_cookie;
use serde::Deserialize;
use weir_core::units::Rate;
use weir_proto::UdpControl;

use crate::batch::run_tool;
use crate::lease;
use crate::queues::Interface;
use attachment::Programs;
pub use byte_check::{BYTE_CHECK_INTERVAL, ByteCheck, SentBytes, read_sent_bytes};
use cgroup::Cgroup;
pub use cgroup::{Rule, TrafficClass, find_cgroup_root};
pub use error::TrafficError;
use folder::{FolderKind, PinFolder};
use maps::Maps;
pub use ordered::MAX_ORDERED_TARGETS;
use paths::Paths;
pub use paths::{PathChanges, PathSearch};
pub(crate) use program::attach_egress;
use program::{ApplicationLoader, LoadContext};
pub use program_order::{OrderChanges, OrderCheck};
pub use record::{ApplicationId, Connection, ConnectionEnds, ConnectionEvent, EventKind};
use removal::RemovalState;
pub use removal::RemovalWait;
pub use repair::Inspection;
use search::RefusedTarget;
pub use search::{FoundTargets, TargetSearch};
pub use socket_leases::SocketLeases;
pub use sweep::Sweep;
pub use throttle::{ThrottleMaps, UdpByteCount};
pub use weir_proto::MIN_PACING_RATE;

/// Losses since the maps were created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossCounts {
    /// Events that were lost because the agent had not read earlier ones.
    pub lost_events: u64,
    /// Failed attempts to follow a connection, because the map of connections was full. The program `follow` tries again at the next event
    /// of the connection.
    pub tracking_failures: u64,
}

/// Pacing rates of a socket, in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketRates {
    /// The rate that the programs in the kernel have set.
    pub applied: u64,
    /// The rate that the socket's program had set before; `u64::MAX` if it had set none.
    pub own: u64,
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

/// The programs and maps for the traffic of a host's applications.
pub struct Traffic {
    folder: PinFolder,
    maps: Maps,
    applications: Vec<Application>,
    /// With their interface numbers.
    interfaces: Vec<(Interface, u32)>,
    /// The programs attached to cgroups and interfaces.
    programs: Programs,
    /// The interfaces of pods and tunnels.
    paths: Paths,
    throttling: Option<ThrottleMaps>,
    /// Restores events of connections; none if the kernel refuses it.
    resume: Option<Sweep>,
    /// The cgroups and ports of orders that the kernel has refused, by number.
    refused_targets: BTreeMap<u64, RefusedTarget>,
    /// How far the removal of the state of applications is that no longer exist.
    removal: RemovalState,
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
    /// [`Traffic::removal_step`], for which the caller adds them first.
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
        let context = LoadContext::read()?;
        let mut loader = ApplicationLoader::new(folder.path(), &context);
        loader.create_maps()?;
        let mut maps = Maps::open(&folder)?;
        for (rule, cgroup) in rules.iter().zip(&cgroups) {
            maps.enable_application(cgroup.id, cgroup_depth(rule.port, &cgroup.path))?;
            if rule.class.is_some() {
                maps.set_class(cgroup.id, rule.class)?;
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
        // All ports share one program.
        for cgroup in cgroup_applications.into_iter().chain(port_applications.into_iter().take(1)) {
            programs.extend(loader.attach(cgroup)?);
        }
        // An application without a class keeps that of an earlier agent, until an order gives it another one.
        let application = |(rule, cgroup): (&Rule, &Cgroup)| {
            let class = rule.class.map_or_else(|| maps.class(cgroup.id), |class| Ok(Some(class)))?;
            let (rule, path) = (Rule { class, ..rule.clone() }, cgroup.path.clone());
            Ok(Application { rule, id: cgroup.id, path, is_ordered: false })
        };
        let applications = rules.iter().zip(&cgroups).map(application);
        let applications = applications.collect::<Result<Vec<_>, TrafficError>>()?;
        let interfaces = interfaces.iter().cloned().zip(indexes).collect();
        let resume = sweep::load_resume(folder.path(), &context);
        let mut traffic = Traffic {
            folder,
            maps,
            applications,
            interfaces,
            programs,
            paths: Paths::new(),
            throttling: None,
            resume,
            refused_targets: BTreeMap::new(),
            removal: RemovalState::Found,
        };
        traffic.restore_used_marks()?;
        traffic.add_all_paths()?;
        // Folders of other versions of Weir: the layout of their maps differs, so this version does not take them over.
        for other_version in PinFolder::open_existing(FolderKind::Applications, Some(&traffic.folder))? {
            other_version.remove()?;
        }
        Ok(traffic)
    }

    /// As [`Traffic::refresh_applications`], and follows interfaces of pods and tunnels in this thread ([`Traffic::path_search`]).
    ///
    /// # Errors
    /// As [`Traffic::start`].
    pub fn refresh(&mut self) -> Result<usize, TrafficError> {
        self.refresh_paths()?;
        self.refresh_applications()
    }

    /// Follows applications whose cgroups were deleted and created again, as by a service restart. Returns their number. Call it
    /// periodically, with [`Traffic::removal_step`]: until then, their packets have no class. A missing cgroup is no error: a later call
    /// finds it.
    ///
    /// # Errors
    /// As [`Traffic::start`].
    pub fn refresh_applications(&mut self) -> Result<usize, TrafficError> {
        let mut count = 0;
        // An application that is a port is attached to the root cgroup, which is never deleted. Searches follow those of orders.
        let is_followed = |known: &&mut Application| known.rule.port.is_none() && !known.is_ordered;
        for application in self.applications.iter_mut().filter(is_followed) {
            let cgroup = match Cgroup::open_for(&application.rule) {
                Err(TrafficError::File { error, .. }) if error.kind() == io::ErrorKind::NotFound => continue,
                cgroup => cgroup?,
            };
            if cgroup.id == application.id {
                continue;
            }
            self.maps.enable_application(cgroup.id, cgroup_depth(None, &cgroup.path))?;
            self.maps.set_class(cgroup.id, application.rule.class)?;
            let context = LoadContext::read()?;
            self.programs.extend(ApplicationLoader::new(self.folder.path(), &context).attach(&cgroup)?);
            (application.id, application.path) = (cgroup.id, cgroup.path);
            // The programs at the deleted cgroup did not see the end of its last connections.
            self.removal = RemovalState::Found;
            count += 1;
        }
        Ok(count)
    }

    /// Sets the marks of classes that applications have, and returns how many entries this changes.
    fn restore_used_marks(&mut self) -> Result<u64, TrafficError> {
        let marks =
            self.rules().into_iter().filter_map(|rule| rule.class).map(|class| u32::from(class.mark()));
        let marks: BTreeSet<u32> = marks.collect();
        self.maps.set_used_marks(&marks)
    }

    fn rules(&self) -> impl IntoIterator<Item = &Rule> {
        self.applications.iter().map(|application| &application.rule)
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
        // Also removes the programs of a failed start. A search may be attaching others meanwhile.
        if self.throttling.is_none() {
            let indexes = self.interfaces.iter().map(|&(_, index)| index);
            let names: Vec<String> = indexes.flat_map(throttle::throttle_program_names).collect();
            self.programs.retain(|name, _| !names.contains(name));
            self.folder.retain(|name| !names.iter().any(|removed| removed == name))?;
        }
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

    /// The application whose class the packets of a connection have. Packets of an application without a class have that of the innermost
    /// cgroup around its own that has one, or of the application of the local port, or else of the remote port, as the programs mark
    /// them.
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
            self.maps.set_class(application.id, class)?;
            application.rule.class = class;
            exists = true;
        }
        self.restore_used_marks()?;
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

    /// Sets the rate of each connection of an application to an address, in bytes of payload per second, for a lease, or removes it. A rate
    /// that [`Traffic::set_pacing_rate`] has set replaces it. It applies when the peer acknowledges the next data, also of new
    /// connections: the kernel sends the first ten packets of a connection without pacing.
    ///
    /// # Errors
    /// If the lease is zero or above [`lease::MAX_LEASE`], or the kernel refuses.
    pub fn set_start_rate(
        &mut self,
        application: ApplicationId,
        remote: IpAddr,
        rate: Option<Rate>,
        lease: Duration,
    ) -> Result<(), TrafficError> {
        let Some(rate) = rate else { return self.maps.remove_start_rate(application, remote) };
        if lease.is_zero() || lease > lease::MAX_LEASE {
            return Err(TrafficError::InvalidLease(lease));
        }
        self.maps.set_start_rate(application, remote, rate, monotonic_now() + lease)
    }

    /// The pacing rates of a TCP socket; none if the connection is not paced.
    pub fn socket_rates(&self, socket: &OwnedFd) -> Option<SocketRates> {
        let stream = TcpStream::from(socket.try_clone().ok()?);
        let ends = ConnectionEnds { local: stream.local_addr().ok()?, remote: stream.peer_addr().ok()? };
        self.maps.socket_rates(ends, socket_cookie(socket).ok()?)
    }

    /// The next event; none if all have been read. [`AsFd`] gives a descriptor that is readable if there are more.
    pub fn next_event(&mut self) -> Option<ConnectionEvent> {
        self.maps.next_event()
    }

    /// Restores the events of connections that another program at a cgroup has replaced: without them, the end, the bytes and the rate of a
    /// connection are lost. Prints a byte for each. None before Linux 6.12 and without the kernel's types.
    pub fn resume_sweep(&self) -> Option<Sweep> {
        self.resume.clone()
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
        let still_paced = self.maps.remove_classes_and_rates(self.folder.path())?;
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
    Ok(remove_applications(folders)? || had_leases)
}

/// Removes the programs and maps for applications of earlier agents in this network namespace, unless another process uses them or this
/// process may not remove them. Those for handed-over sockets stay. Returns whether any were removed.
///
/// # Errors
/// If a program, map or file cannot be removed.
pub fn remove_unused_applications() -> Result<bool, TrafficError> {
    match PinFolder::open_existing(FolderKind::Applications, None).and_then(remove_applications) {
        Err(TrafficError::Busy) => Ok(false),
        Err(TrafficError::File { error, .. }) if error.kind() == io::ErrorKind::PermissionDenied => Ok(false),
        removed => removed,
    }
}

/// Removes the folders of applications with their programs and maps, and returns whether there were any.
fn remove_applications(folders: Vec<PinFolder>) -> Result<bool, TrafficError> {
    let has_any = !folders.is_empty();
    for folder in folders {
        if folder.is_current(FolderKind::Applications) {
            create_missing_maps(&folder);
            // A folder that is incomplete has no pacing rates to remove.
            if let Ok(mut maps) = Maps::open(&folder) {
                maps.remove_classes_and_rates(folder.path())?;
            }
        }
        folder.remove()?;
    }
    Ok(has_any)
}

/// Creates the maps that the folder of an earlier version lacks.
fn create_missing_maps(folder: &PinFolder) {
    // Without the programs or privileges, only a complete folder can be read.
    if let Ok(context) = LoadContext::read() {
        let _ = ApplicationLoader::new(folder.path(), &context).create_maps();
    }
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

/// The depth of an application's cgroup in `bpf/application.c`: more than that of the cgroups around it.
fn cgroup_depth(port: Option<u16>, cgroup: &Path) -> u8 {
    let components = cgroup.components().count();
    if port.is_some() { 0 } else { u8::try_from(components).unwrap_or(u8::MAX) }
}

/// Checks that no two applications are the same traffic. Of cgroups that contain each other, the innermost counts, and a port counts for
/// packets that no cgroup has a class for.
fn check_overlap(rules: &[Rule], cgroups: &[Cgroup]) -> Result<(), TrafficError> {
    for (index, (rule, cgroup)) in rules.iter().zip(cgroups).enumerate() {
        for (other, other_cgroup) in rules.iter().zip(cgroups).take(index) {
            if cgroup.id == other_cgroup.id || rule.name == other.name {
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
    let Some(application) = applications.iter().find(|known| known.id == id.0) else { return id };
    let marks_cgroup = |known: &&Application| {
        known.rule.port.is_none() && known.rule.class.is_some() && application.path.starts_with(&known.path)
    };
    // The path of a port is that of the root cgroup, which can be an application, too.
    if let Some(marking) =
        applications.iter().filter(marks_cgroup).max_by_key(|known| known.path.as_os_str().len())
    {
        return ApplicationId(marking.id);
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
        let rules = [
            "web=a:1",
            "free=b",
            "one=port/8080:2",
            "two=port/8081:3",
            "none=port/9000",
            "inner=a/c:4",
            "innermost=a/c/d",
        ];
        let application = |(id, rule): (u64, &str)| Application {
            rule: rule.parse().unwrap(),
            id,
            path: rule.parse::<Rule>().unwrap().cgroup,
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
        // Cgroups in each other: the innermost one with a class applies, before ports.
        assert_eq!([marking_id(0, 5, 6), marking_id(5, 8080, 5), marking_id(6, 8080, 5)], [0, 5, 5]);
        // An application that is no longer observed.
        assert_eq!([marking_id(9, 8080, 5), marking_id(9, 5, 6)], [9, 9]);
    }
}
