//! Finds the interfaces at which packets would lose their class on the way to the agent's interfaces: those of pods, and tunnels.
//! Programs there keep the class (`from_pod` and `into_tunnel` of `bpf/interface.c`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use aya::Ebpf;
use aya::programs::TcAttachType;
use aya::programs::links::LinkOrder;
use nix::net::if_::if_nameindex;
use serde::Deserialize;
use weir_proto::{ALL_INTERFACES, Conflict, ConflictReason, MAX_CONFLICTS};

use super::attachment::Attachment;
use super::program::{attach_in_order, load_classifier, load_interface_programs};
use super::{Traffic, TrafficError, has_ports};
use crate::batch::run_tool;
use crate::queues::Interface;

/// The maximum number of interfaces of pods and tunnels with programs.
const MAX_PATHS: usize = 1024;

/// The maximum number of programs that a periodic search attaches: the kernel waits for all processors at each one.
const MAX_ADDED_PATHS: usize = 2;

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
    /// The numbers of all interfaces when the agent last looked for new ones.
    seen: BTreeSet<u32>,
    /// Those with a program, whose attachments are among those of [`Traffic`].
    programs: BTreeMap<u32, PathKind>,
    /// Those that get a program next. A program of an earlier agent stays until then.
    pending: FoundPaths,
    /// When to look again, although no interface has appeared.
    retry_at: Option<Instant>,
    /// Why packets lose their class.
    conflicts: Vec<Conflict>,
}

impl Paths {
    /// The file names of the programs.
    pub fn pin_names(&self) -> impl Iterator<Item = String> {
        let pending = self.pending.iter().map(|(&index, (kind, _))| kind.pin_name(index));
        self.programs.iter().map(|(&index, kind)| kind.pin_name(index)).chain(pending)
    }
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

impl Traffic {
    /// Why packets of applications lose their class on the way to the agent's interfaces.
    pub fn path_conflicts(&self) -> &[Conflict] {
        &self.paths.conflicts
    }

    /// Attaches programs to some interfaces of pods and tunnels that have appeared, and removes those of deleted ones.
    pub(super) fn refresh_paths(&mut self) {
        self.update_paths(MAX_ADDED_PATHS);
    }

    /// As [`Traffic::refresh_paths`], for all interfaces that have appeared.
    pub(super) fn add_all_paths(&mut self) {
        self.update_paths(MAX_PATHS);
    }

    /// Reads the numbers of all interfaces; starts `ip` if one has appeared. An error is a conflict, and the agent tries again.
    fn update_paths(&mut self, max_added: usize) {
        let result = read_indexes()
            .and_then(|present| self.follow_interfaces(present))
            .and_then(|()| self.attach_pending(max_added));
        if let Err(error) = result {
            self.paths.pending.clear();
            self.paths.conflicts = vec![unmarked(ALL_INTERFACES, &error.to_string())];
            self.paths.retry_at = Some(Instant::now() + REFUSAL_PAUSE);
        }
    }

    /// Removes the programs of deleted interfaces, and finds new interfaces if the numbers have changed or a new attempt is due.
    fn follow_interfaces(&mut self, present: BTreeSet<u32>) -> Result<(), TrafficError> {
        self.remove_paths(|index| !present.contains(&index))?;
        let is_due = self.paths.retry_at.is_some_and(|retry_at| Instant::now() >= retry_at);
        // If the other end of a veth moves to another network namespace, its number disappears here.
        if self.paths.seen == present && !is_due {
            return Ok(());
        }
        self.paths.seen = present;
        self.find_paths()
    }

    /// Finds all interfaces of pods and tunnels without a program.
    fn find_paths(&mut self) -> Result<(), TrafficError> {
        self.paths.retry_at = None;
        let text = run_tool("ip", &["-d", "-j", "link", "show"])?;
        let unexpected = || {
            let text: String = text.chars().take(200).collect();
            TrafficError::kernel("ip -d -j link show", &std::io::Error::other(text))
        };
        let (mut paths, mut conflicts) = parse_paths(&text).ok_or_else(unexpected)?;
        let is_own = |index: u32, name: &str| {
            self.interfaces.iter().any(|(own, own_index)| *own_index == index || own.to_string() == name)
        };
        paths.retain(|&index, (_, name)| !is_own(index, name));
        self.remove_paths(|index| !paths.contains_key(&index))?;
        let free = MAX_PATHS.saturating_sub(self.paths.programs.len());
        paths.retain(|index, _| !self.paths.programs.contains_key(index));
        if paths.len() > free {
            let detail =
                format!("more than {MAX_PATHS} interfaces of pods and tunnels; only the first are used");
            conflicts.push(unmarked(ALL_INTERFACES, &detail));
        }
        conflicts.truncate(MAX_CONFLICTS);
        self.paths.conflicts = conflicts;
        self.paths.pending = paths.into_iter().take(free).collect();
        Ok(())
    }

    /// Attaches programs to some of the interfaces that were found.
    fn attach_pending(&mut self, max_count: usize) -> Result<(), TrafficError> {
        if self.paths.pending.is_empty() {
            return Ok(());
        }
        let mut bpf = load_interface_programs(self.folder.path(), has_ports(self.rules()))?;
        load_classifier(&mut bpf, PathKind::Pod.program())?;
        load_classifier(&mut bpf, PathKind::Tunnel.program())?;
        for _ in 0..max_count {
            let Some((index, (kind, name))) = self.paths.pending.pop_first() else { break };
            let conflict = self.attach_path(&mut bpf, index, kind, &name).err();
            self.paths.conflicts.extend(conflict.filter(|_| self.paths.conflicts.len() < MAX_CONFLICTS));
        }
        Ok(())
    }

    /// Attaches the program of an interface. An error is a conflict; an interface that was deleted is none.
    fn attach_path(
        &mut self,
        bpf: &mut Ebpf,
        index: u32,
        kind: PathKind,
        name: &str,
    ) -> Result<(), Conflict> {
        let Ok(interface) = name.parse::<Interface>() else {
            return Err(unmarked(name, "the agent cannot use this name"));
        };
        let (program, attach_type) = (kind.program(), kind.attach_type());
        // Before programs of container networks, which may forward the packet.
        let attached = attach_in_order(bpf, program, &interface, attach_type, LinkOrder::first())
            .and_then(|(program, link)| {
                program.take_link(link).map_err(|error| TrafficError::kernel(name, &error))
            })
            .and_then(|link| Attachment::pin(self.folder.path(), &kind.pin_name(index), link));
        match attached {
            Ok(attached) => {
                self.programs.insert(kind.pin_name(index), attached);
                self.paths.programs.insert(index, kind);
                Ok(())
            }
            Err(_) if interface.index() != Some(index) => Ok(()),
            Err(error) => {
                self.paths.retry_at = Some(Instant::now() + REFUSAL_PAUSE);
                Err(unmarked(name, &error.to_string()))
            }
        }
    }

    /// Removes the programs of interfaces with these numbers.
    fn remove_paths(&mut self, is_removed: impl Fn(u32) -> bool) -> Result<(), TrafficError> {
        let removed: Vec<(u32, PathKind)> = self
            .paths
            .programs
            .iter()
            .filter(|(index, _)| is_removed(**index))
            .map(|(&i, &k)| (i, k))
            .collect();
        if removed.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = removed.iter().map(|(index, kind)| kind.pin_name(*index)).collect();
        for ((index, _), name) in removed.iter().zip(&names) {
            self.paths.programs.remove(index);
            self.programs.remove(name);
        }
        self.folder.retain(|name| !names.iter().any(|removed| removed == name))
    }

    /// Replaces the programs of tunnels in steps, after the first rule of a port: the class of a packet from a pod depends on none.
    pub(super) fn reload_tunnel_programs(&mut self) {
        // The present ones stay attached until the new ones replace them.
        self.paths.programs.retain(|_, kind| *kind != PathKind::Tunnel);
        self.paths.seen.clear();
        self.refresh_paths();
    }

    /// Attaches programs again that another process has detached, and returns how many.
    pub(super) fn restore_path_programs(&mut self) -> Result<u64, TrafficError> {
        let detached: BTreeSet<u32> = self
            .paths
            .programs
            .iter()
            .filter(|(index, kind)| {
                !self.programs.get(&kind.pin_name(**index)).is_some_and(Attachment::is_attached)
            })
            .map(|(&index, _)| index)
            .collect();
        self.remove_paths(|index| detached.contains(&index))?;
        if !detached.is_empty() {
            self.paths.seen.clear();
        }
        self.refresh_paths();
        // Those of deleted interfaces do not count.
        Ok(detached.iter().filter(|index| self.paths.programs.contains_key(index)).count() as u64)
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
