//! Finds out what this machine lacks for a bed, by trying.

use std::fs;
use std::process::{Command, Stdio, id};

use crate::batch::{Step, Tool};
use crate::plan::Name;
use crate::{bed, command};

/// A requirement of a bed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The requirement, in words.
    pub what: &'static str,
    /// What does not work without it.
    pub needed_for: &'static str,
    /// Why it is not met; none if it is.
    pub missing: Option<String>,
}

/// The commands that work on any machine.
pub const STILL_WORKS: &str = "\
what still works: `weir testbed up --dry-run` prints what would be done, and `weir share` predicts what services get.
Without root, where the system lets anybody make namespaces, a bed may be inside one:
  unshare -Urnm sh -c 'mount -t tmpfs none /run && weir testbed run SCENARIO'";

const ANY: &str = "any bed";
const QUEUES: &str = "queues by service (`none` still works)";
const ECMP: &str = "fabrics with several equal paths (others still work)";

/// CAP_NET_ADMIN and CAP_SYS_ADMIN, as bits.
const CAPABILITIES: [(u32, &str); 2] = [(12, "CAP_NET_ADMIN"), (21, "CAP_SYS_ADMIN")];

/// Checks all requirements, in a namespace that is deleted afterwards. Checks that depend on an unmet requirement are skipped.
pub fn probe() -> Vec<Check> {
    let check = |what, missing| Check { what, needed_for: ANY, missing };
    let mut checks = vec![
        check("iproute2 (ip, tc)", [Tool::Ip, Tool::Tc].into_iter().find_map(program)),
        check("root, or CAP_NET_ADMIN and CAP_SYS_ADMIN", capabilities()),
    ];
    if checks.iter().all(|check| check.missing.is_none()) {
        checks.extend(trial());
    }
    checks
}

fn program(tool: Tool) -> Option<String> {
    let ran = Command::new(tool.name()).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    ran.err().map(|error| format!("{} cannot be run: {error}", tool.name()))
}

/// The missing capabilities, in words; none if there are none.
fn capabilities() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = held.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    let missing: Vec<&str> =
        CAPABILITIES.iter().filter(|(bit, _)| held >> bit & 1 == 0).map(|&(_, name)| name).collect();
    (!missing.is_empty()).then(|| format!("this process does not have {}", missing.join(" and ")))
}

/// Tries the kernel's features one after the other, in an unfinished bed. If this process is killed, the next one that uses the bed's
/// name removes the rest.
fn trial() -> Vec<Check> {
    let name: Name = format!("probe{}", id()).parse().expect("`probe` and a number is a valid name of a bed");
    let space = format!("{}a", name.prefix());
    let inside = Some(space.clone());
    let parts = [
        ("network namespaces", ANY, Tool::Ip, None, format!("netns add {space}")),
        (
            "veth pairs",
            ANY,
            Tool::Ip,
            inside.clone(),
            "link add eth0 arp off gso_max_segs 8 type veth peer name eth1\n\
             link set lo up\nlink set eth0 up\nlink set eth1 up"
                .to_owned(),
        ),
        (
            "HTB (sch_htb)",
            ANY,
            Tool::Tc,
            inside.clone(),
            "qdisc replace dev eth0 root handle 1: htb default 1\n\
             class add dev eth0 parent 1: classid 1:1 htb rate 8000bit ceil 8000bit quantum 1514"
                .to_owned(),
        ),
        (
            "FIFO queues (sch_fifo)",
            ANY,
            Tool::Tc,
            inside.clone(),
            "qdisc add dev eth0 parent 1:1 bfifo limit 15140".to_owned(),
        ),
        (
            "filters by DSCP (cls_u32)",
            QUEUES,
            Tool::Tc,
            inside.clone(),
            "filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dsfield 0x04 0xfc flowid 1:1"
                .to_owned(),
        ),
        (
            "routes over several links (CONFIG_IP_ROUTE_MULTIPATH)",
            ECMP,
            Tool::Ip,
            inside,
            "route add 10.0.0.9 nexthop via 169.254.0.1 dev eth0 onlink nexthop via 169.254.0.1 dev eth1 onlink"
                .to_owned(),
        ),
    ];
    let mut checks: Vec<Check> = Vec::new();
    let done = bed::unfinished(&name, |held| {
        for (what, needed_for, tool, namespace, lines) in parts {
            let missing = command::step(&Step::Batch { tool, namespace, lines }, held).err();
            let stop = missing.is_some() && needed_for == ANY;
            checks.push(Check { what, needed_for, missing: missing.map(|error| error.to_string()) });
            if stop {
                break;
            }
        }
    });
    if let Err(error) = done {
        checks.push(Check { what: "files below /run", needed_for: ANY, missing: Some(error.to_string()) });
    }
    checks
}
