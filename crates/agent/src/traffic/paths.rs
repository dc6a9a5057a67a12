//! Finds the interfaces at which packets would lose their class on the way to the agent's interfaces: those of pods, and tunnels.
//! Programs there keep the class (`from_pod` and `into_tunnel` of `bpf/interface.c`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use aya::Ebpf;
use aya::programs::TcAttachType;
use aya::programs::links::LinkOrder;
use nix::net::if_::if_nameindex;
use serde::Deserialize;
use weir_proto::{ALL_INTERFACES, Conflict, ConflictReason, MAX_CONFLICTS};

use super::attachment::{Attachment, AttachmentCheck};
use super::program::{attach_in_order, load_classifier, load_interface_programs};
use super::{Traffic, TrafficError, has_ports};
use crate::batch::run_tool;
use crate::notifications::InterfaceChanges;
use crate::queues::Interface;

/// The maximum number of interfaces of pods and tunnels with programs.
const MAX_PATHS: usize = 1024;

/// The maximum number of programs that a periodic search attaches: the kernel waits for all processors at each one.
const MAX_ADDED_PATHS: usize = 2;

/// How often a search reads the numbers of interfaces without a notification.
const READING_INTERVAL: Duration = Duration::from_secs(5);

/// The maximum number of programs that a search inspects: the kernel describes each under its lock of interfaces.
const MAX_INSPECTED_PATHS: usize = 64;

/// How long the agent waits before it tries again at an interface that the kernel has refused.
const REFUSAL_PAUSE: Duration = Duration::from_secs(10);

/// Kinds of devices that put packets into packets of this network namespace, as `ip` prints them.
const TUNNEL_KINDS: [&str; 11] = [
    "vxlan",
    "geneve",
    "ipip",
    "sit",
    "gre",
    "gretap",
    "erspan",
    "ip6tnl",
    "ip6gre",
    "ip6gretap",
    "ip6erspan",
];

/// How packets pass an interface on their way to those of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathKind {
    /// Packets of a pod enter here: a veth whose other end is in another network namespace.
    Pod,
    /// A tunnel.
    Tunnel,
}

impl PathKind {
    fn program(self) -> &'static str {
        match self {
            PathKind::Pod => "from_pod",
            PathKind::Tunnel => "into_tunnel",
        }
    }

    fn attach_type(self) -> TcAttachType {
        match self {
            PathKind::Pod => TcAttachType::Ingress,
            PathKind::Tunnel => TcAttachType::Egress,
        }
    }

    /// The file name of the program of an interface with a number.
    fn pin_name(self, index: u32) -> String {
        format!("{index}-{}", self.program())
    }
}

/// The interfaces of pods and tunnels.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// Those with a program, whose attachments are among those of [`Traffic`].
    programs: BTreeMap<u32, PathKind>,
    search: SearchState,
    /// The last interface whose program was inspected.
    last_inspected: u32,
    /// Attachments that a thread drops, since that waits for the kernel's lock of interfaces.
    removed: Vec<Attachment>,
    /// Tells whether interfaces have changed; none if the kernel has refused the subscription.
    changes: Option<InterfaceChanges>,
    /// When a search reads the numbers of interfaces although none has changed: a notification can be lost.
    next_reading: Option<Instant>,
}

/// What a search leaves for the next one.
#[derive(Debug, Clone, Default)]
struct SearchState {
    /// The numbers of all interfaces when the agent last looked for new ones.
    seen: BTreeSet<u32>,
    /// Those that get a program next. A program of an earlier agent stays until then.
    pending: FoundPaths,
    /// When to look again, although no interface has appeared.
    retry_at: Option<Instant>,
    /// Why packets lose their class.
    conflicts: Vec<Conflict>,
}

impl SearchState {
    /// Whether an attempt is due that the kernel refused before.
    fn is_due(&self, now: Instant) -> bool {
        self.retry_at.is_some_and(|retry_at| now >= retry_at)
    }
}

impl Paths {
    /// Without programs yet, in the network namespace of the calling thread.
    pub fn new() -> Paths {
        let changes = InterfaceChanges::open();
        Paths { changes: changes.ok(), ..Paths::default() }
    }

    /// Whether the next search reads the numbers of interfaces, which takes milliseconds for hundreds of them.
    fn take_is_changed(&mut self, now: Instant) -> bool {
        let has_changes = self.changes.as_ref().is_none_or(InterfaceChanges::has_any);
        let is_due = self.next_reading.is_none_or(|next| now >= next) || self.search.is_due(now);
        let is_changed = has_changes || is_due || self.search.seen.is_empty();
        if is_changed {
            self.next_reading = Some(now + READING_INTERVAL);
        }
        is_changed
    }

    /// The attached programs: file name, program, number of the interface, and direction.
    pub fn attached(&self) -> impl Iterator<Item = (String, &'static str, u32, TcAttachType)> {
        let programs = self.programs.iter();
        programs.map(|(&index, kind)| (kind.pin_name(index), kind.program(), index, kind.attach_type()))
    }

    /// Drops a program in the thread of the next search.
    pub fn drop_later(&mut self, former: Option<Attachment>) {
        self.removed.extend(former);
    }

    /// The file names of the programs.
    pub fn pin_names(&self) -> impl Iterator<Item = String> {
        let pending = self.search.pending.iter().map(|(&index, (kind, _))| kind.pin_name(index));
        self.programs.iter().map(|(&index, kind)| kind.pin_name(index)).chain(pending)
    }

    /// Whether a file name is that of a program of a pod or tunnel.
    pub fn is_pin_name(name: &str) -> bool {
        let kinds = [PathKind::Pod, PathKind::Tunnel];
        kinds.iter().any(|kind| name.rsplit_once('-').is_some_and(|(_, program)| program == kind.program()))
    }

    /// The next interfaces whose programs are inspected, at most [`MAX_INSPECTED_PATHS`].
    fn next_inspected(&mut self) -> Vec<(u32, PathKind)> {
        let (last, count) = (self.last_inspected, MAX_INSPECTED_PATHS.min(self.programs.len()));
        let after = self.programs.range((Bound::Excluded(last), Bound::Unbounded));
        let next: Vec<(u32, PathKind)> =
            after.chain(&self.programs).take(count).map(|(&index, &kind)| (index, kind)).collect();
        self.last_inspected = next.last().map_or(0, |(index, _)| *index);
        next
    }
}

/// A search for interfaces of pods and tunnels that have appeared or disappeared, and for programs that another process has detached. A
/// separate thread runs it: it waits for the kernel's lock of interfaces, which other processes can hold for seconds.
pub struct PathSearch {
    state: SearchState,
    folder: PathBuf,
    /// The interfaces of the agent.
    own: Vec<(Interface, u32)>,
    has_ports: bool,
    /// The interfaces with a program.
    known: BTreeMap<u32, PathKind>,
    /// Those whose programs are inspected.
    inspected: Vec<(u32, AttachmentCheck)>,
    /// Whether interfaces may have changed.
    is_changed: bool,
    max_added: usize,
    removed: Vec<Attachment>,
}

/// The result of a [`PathSearch`].
pub struct PathChanges {
    state: SearchState,
    /// The interfaces that have disappeared.
    removed: BTreeSet<u32>,
    /// The interfaces whose programs were detached.
    detached: BTreeSet<u32>,
    added: Vec<(u32, PathKind, Attachment)>,
}

/// A link of `ip -d -j link show`.
#[derive(Deserialize)]
struct Link {
    ifindex: u32,
    ifname: String,
    link_netnsid: Option<i64>,
    linkinfo: Option<LinkInfo>,
}

#[derive(Deserialize)]
struct LinkInfo {
    info_kind: Option<String>,
}

impl Link {
    /// The kind of this interface; none if it does not change the class of packets. An error tells why packets lose it.
    fn path_kind(&self) -> Result<Option<PathKind>, Conflict> {
        let kind = self.linkinfo.as_ref().and_then(|info| info.info_kind.as_deref());
        match kind {
            Some("veth") => Ok(self.link_netnsid.map(|_| PathKind::Pod)),
            Some("wireguard") => {
                Err(unmarked(&self.ifname, "packets in a WireGuard tunnel may have no class"))
            }
            Some(kind) if TUNNEL_KINDS.contains(&kind) => Ok(Some(PathKind::Tunnel)),
            _ => Ok(None),
        }
    }
}

/// The kinds and names of interfaces, by number.
type FoundPaths = BTreeMap<u32, (PathKind, String)>;

fn unmarked(interface: &str, detail: &str) -> Conflict {
    Conflict::new(interface, ConflictReason::Unmarked, detail)
}

/// The interfaces of pods and tunnels in the output of `ip -d -j link show`, with their names, and why packets lose their class.
fn parse_paths(text: &str) -> Option<(FoundPaths, Vec<Conflict>)> {
    let links: Vec<Link> = serde_json::from_str(text).ok()?;
    let (mut paths, mut conflicts) = (BTreeMap::new(), Vec::new());
    for link in links {
        match link.path_kind() {
            Ok(None) => {}
            Ok(Some(kind)) => drop(paths.insert(link.ifindex, (kind, link.ifname))),
            Err(conflict) => conflicts.push(conflict),
        }
    }
    Some((paths, conflicts))
}

impl PathSearch {
    /// Attaches programs to some interfaces that have appeared, and again to those whose programs were detached. An error is a conflict,
    /// and the agent tries again.
    pub fn run(mut self) -> PathChanges {
        self.removed.clear();
        let mut changes = PathChanges {
            state: SearchState::default(),
            removed: BTreeSet::new(),
            detached: BTreeSet::new(),
            added: Vec::new(),
        };
        if let Err(error) = self.search(&mut changes) {
            self.state.pending.clear();
            self.state.conflicts = vec![unmarked(ALL_INTERFACES, &error.to_string())];
            self.state.retry_at = Some(Instant::now() + REFUSAL_PAUSE);
        }
        changes.state = self.state;
        changes
    }

    /// Reads the numbers of all interfaces if some may have changed; starts `ip` if they have, or a new attempt is due.
    fn search(&mut self, changes: &mut PathChanges) -> Result<(), TrafficError> {
        let present = if self.is_changed { read_indexes()? } else { self.state.seen.clone() };
        let detached = self.inspected.iter().filter(|(_, check)| !check.is_intact());
        changes.detached =
            detached.map(|(index, _)| *index).filter(|index| present.contains(index)).collect();
        self.known.retain(|index, _| {
            let is_present = present.contains(index);
            if !is_present {
                changes.removed.insert(*index);
            }
            is_present && !changes.detached.contains(index)
        });
        let is_due = self.state.is_due(Instant::now());
        // If the other end of a veth moves to another network namespace, its number disappears here.
        if self.state.seen != present || is_due || !changes.detached.is_empty() {
            self.state.seen = present;
            self.find_paths(changes)?;
        }
        self.attach_pending(changes)
    }

    /// Finds all interfaces of pods and tunnels without a program.
    fn find_paths(&mut self, changes: &mut PathChanges) -> Result<(), TrafficError> {
        self.state.retry_at = None;
        let text = run_tool("ip", &["-d", "-j", "link", "show"])?;
        let unexpected = || {
            let text: String = text.chars().take(200).collect();
            TrafficError::kernel("ip -d -j link show", &std::io::Error::other(text))
        };
        let (mut paths, mut conflicts) = parse_paths(&text).ok_or_else(unexpected)?;
        let is_own = |index: u32, name: &str| {
            self.own.iter().any(|(own, own_index)| *own_index == index || own.to_string() == name)
        };
        paths.retain(|&index, (_, name)| !is_own(index, name));
        self.known.retain(|index, _| {
            let is_path = paths.contains_key(index);
            if !is_path {
                changes.removed.insert(*index);
            }
            is_path
        });
        let free = MAX_PATHS.saturating_sub(self.known.len());
        paths.retain(|index, _| !self.known.contains_key(index));
        if paths.len() > free {
            let detail =
                format!("more than {MAX_PATHS} interfaces of pods and tunnels; only the first are used");
            conflicts.push(unmarked(ALL_INTERFACES, &detail));
        }
        conflicts.truncate(MAX_CONFLICTS);
        self.state.conflicts = conflicts;
        self.state.pending = paths.into_iter().take(free).collect();
        Ok(())
    }

    /// Attaches programs to some of the interfaces that were found.
    fn attach_pending(&mut self, changes: &mut PathChanges) -> Result<(), TrafficError> {
        if self.state.pending.is_empty() {
            return Ok(());
        }
        let mut bpf = load_interface_programs(&self.folder, self.has_ports)?;
        load_classifier(&mut bpf, PathKind::Pod.program())?;
        load_classifier(&mut bpf, PathKind::Tunnel.program())?;
        for _ in 0..self.max_added {
            let Some((index, (kind, name))) = self.state.pending.pop_first() else { break };
            match self.attach_path(&mut bpf, index, kind, &name) {
                Ok(attached) => changes.added.extend(attached.map(|attached| (index, kind, attached))),
                Err(conflict) if self.state.conflicts.len() < MAX_CONFLICTS => {
                    self.state.conflicts.push(conflict);
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Attaches the program of an interface; none if the interface was deleted. An error is a conflict.
    fn attach_path(
        &mut self,
        bpf: &mut Ebpf,
        index: u32,
        kind: PathKind,
        name: &str,
    ) -> Result<Option<Attachment>, Conflict> {
        let Ok(interface) = name.parse::<Interface>() else {
            return Err(unmarked(name, "the agent cannot use this name"));
        };
        let (program, attach_type) = (kind.program(), kind.attach_type());
        // Before programs of container networks, which may forward the packet.
        let attached = attach_in_order(bpf, program, &interface, attach_type, LinkOrder::first())
            .and_then(|(program, link)| {
                program.take_link(link).map_err(|error| TrafficError::kernel(name, &error))
            })
            .and_then(|link| Attachment::pin(&self.folder, &kind.pin_name(index), link));
        match attached {
            Ok(attached) => Ok(Some(attached)),
            Err(_) if interface.index() != Some(index) => Ok(None),
            Err(error) => {
                self.state.retry_at = Some(Instant::now() + REFUSAL_PAUSE);
                Err(unmarked(name, &error.to_string()))
            }
        }
    }
}

impl Traffic {
    /// Why packets of applications lose their class on the way to the agent's interfaces.
    pub fn path_conflicts(&self) -> &[Conflict] {
        &self.paths.search.conflicts
    }

    /// A search for interfaces of pods and tunnels. Call it periodically, with [`Traffic::apply_paths`]: until then, packets of new pods
    /// may have no class.
    pub fn path_search(&mut self) -> PathSearch {
        self.path_search_up_to(MAX_ADDED_PATHS)
    }

    fn path_search_up_to(&mut self, max_added: usize) -> PathSearch {
        let inspected = self.paths.next_inspected().into_iter().filter_map(|(index, kind)| {
            let name = kind.pin_name(index);
            Some((index, self.programs.get(&name)?.attachment_check(&self.folder, &name)))
        });
        PathSearch {
            inspected: inspected.collect(),
            is_changed: self.paths.take_is_changed(Instant::now()),
            state: self.paths.search.clone(),
            folder: self.folder.path().to_owned(),
            own: self.interfaces.clone(),
            has_ports: has_ports(self.rules()),
            known: self.paths.programs.clone(),
            max_added,
            removed: std::mem::take(&mut self.paths.removed),
        }
    }

    /// Applies the result of a search, and returns the number of programs that another process had detached.
    ///
    /// # Errors
    /// If a file of a program cannot be removed.
    pub fn apply_paths(&mut self, changes: PathChanges) -> Result<u64, TrafficError> {
        let PathChanges { state, removed, detached, added } = changes;
        self.paths.search = state;
        let count = added.iter().filter(|(index, ..)| detached.contains(index)).count() as u64;
        let mut names: Vec<String> = Vec::new();
        for index in removed.iter().chain(&detached) {
            names.extend(self.paths.programs.remove(index).map(|kind| kind.pin_name(*index)));
        }
        let former = names.iter().filter_map(|name| self.programs.remove(name));
        self.paths.removed.extend(former);
        for (index, kind, attached) in added {
            let name = kind.pin_name(index);
            names.retain(|removed| *removed != name);
            self.paths.removed.extend(self.programs.insert(name, attached));
            self.paths.programs.insert(index, kind);
        }
        if !names.is_empty() {
            self.folder.retain(|name| !names.iter().any(|removed| removed == name))?;
        }
        Ok(count)
    }

    /// Runs a search in this thread.
    pub(super) fn refresh_paths(&mut self) -> Result<u64, TrafficError> {
        let changes = self.path_search().run();
        self.apply_paths(changes)
    }

    /// As [`Traffic::refresh_paths`], for all interfaces that have appeared.
    pub(super) fn add_all_paths(&mut self) -> Result<(), TrafficError> {
        let changes = self.path_search_up_to(MAX_PATHS).run();
        self.apply_paths(changes).map(drop)
    }

    /// Lets the next searches replace the programs of tunnels, after the first rule of a port: the class of a packet from a pod depends on
    /// none. The present ones stay attached until then.
    pub(super) fn reload_tunnel_programs(&mut self) {
        self.paths.programs.retain(|_, kind| *kind != PathKind::Tunnel);
        self.paths.search.seen.clear();
    }
}

/// The numbers of all interfaces of the calling thread's network namespace.
fn read_indexes() -> Result<BTreeSet<u32>, TrafficError> {
    let list = if_nameindex().map_err(|error| TrafficError::kernel("the interfaces", &error))?;
    Ok(list.iter().map(|interface| interface.index()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `ip -d -j link show` prints it, without the fields that are not read.
    const LINKS: &str = r#"[
        {"ifindex":1,"ifname":"lo","link_type":"loopback"},
        {"ifindex":2,"ifname":"eth0","linkinfo":{"info_kind":"veth"},"link_netnsid":0},
        {"ifindex":3,"ifname":"cali1","linkinfo":{"info_kind":"veth"},"link_index":3,"link_netnsid":1},
        {"ifindex":4,"link":"local1","ifname":"local0","linkinfo":{"info_kind":"veth"}},
        {"ifindex":5,"ifname":"br0","linkinfo":{"info_kind":"bridge","info_data":{}}},
        {"ifindex":6,"ifname":"flannel.1","linkinfo":{"info_kind":"vxlan","info_data":{"id":1}}},
        {"ifindex":7,"ifname":"geneve0","linkinfo":{"info_kind":"geneve"}},
        {"ifindex":8,"ifname":"tunl0","link_type":"ipip","linkinfo":{"info_kind":"ipip"}},
        {"ifindex":9,"ifname":"wg0","link_type":"none","linkinfo":{"info_kind":"wireguard"}},
        {"ifindex":10,"ifname":"eth0.5","linkinfo":{"info_kind":"vlan"}},
        {"ifindex":11,"ifname":"bond0","linkinfo":{"info_kind":"bond"}}
    ]"#;

    #[test]
    fn pods_and_tunnels_are_found_by_the_kind_of_their_interfaces() {
        let (paths, conflicts) = parse_paths(LINKS).unwrap();
        let found: Vec<(u32, PathKind)> = paths.iter().map(|(&index, (kind, _))| (index, *kind)).collect();
        use PathKind::{Pod, Tunnel};
        assert_eq!(found, [(2, Pod), (3, Pod), (6, Tunnel), (7, Tunnel), (8, Tunnel)]);
        let texts: Vec<String> = conflicts.iter().map(Conflict::to_string).collect();
        assert_eq!(texts, ["wg0: unmarked (packets in a WireGuard tunnel may have no class)"]);
        assert!(parse_paths("Device does not exist.").is_none());
    }
}
