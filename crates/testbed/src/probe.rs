//! Checks the requirements of a bed on this machine, by trying each of them.

use std::fs;
use std::process::{Command, Stdio, id};

use crate::batch::{Step, Tool};
use crate::plan::BedName;
use crate::{bed, command};

/// A requirement of a bed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The requirement, as a text for the user.
    pub name: &'static str,
    /// What does not work without it.
    pub needed_for: &'static str,
    /// Why it is not met; none if it is.
    pub problem: Option<String>,
}

/// Help on the commands that work without these requirements.
pub const ALTERNATIVES: &str = "\
help: `weir testbed up --dry-run` prints the commands, and `weir share` predicts the bandwidth of services.
Without root, if the system allows unprivileged user namespaces, a bed can be inside one:
  unshare -Urnm sh -c 'mount -t tmpfs none /run && weir testbed run SCENARIO'";

const ANY_BED: &str = "any bed";
const SERVICE_QUEUES: &str = "queues by service (`none` still works)";
const ECMP: &str = "fabrics with several equal paths (others still work)";

/// CAP_NET_ADMIN and CAP_SYS_ADMIN, as bits.
const CAPABILITIES: [(u32, &str); 2] = [(12, "CAP_NET_ADMIN"), (21, "CAP_SYS_ADMIN")];

/// Checks all requirements, in a namespace that is deleted afterwards. Checks that depend on an unmet requirement are skipped.
pub fn probe() -> Vec<Requirement> {
    let requirement = |name, problem| Requirement { name, needed_for: ANY_BED, problem };
    let mut requirements = vec![
        requirement("iproute2 (ip, tc)", [Tool::Ip, Tool::Tc].into_iter().find_map(check_tool)),
        requirement("root, or CAP_NET_ADMIN and CAP_SYS_ADMIN", missing_capabilities()),
    ];
    if requirements.iter().all(|check| check.problem.is_none()) {
        requirements.extend(probe_kernel());
    }
    requirements
}

/// The unmet requirements of a bed, as one text; none if all are met.
pub fn unmet_requirements() -> Option<String> {
    let problem = |check: Requirement| Some(format!("{}: {}", check.name, check.problem?));
    let problems: Vec<String> = probe().into_iter().filter_map(problem).collect();
    (!problems.is_empty()).then(|| problems.join("; "))
}

fn check_tool(tool: Tool) -> Option<String> {
    let status = Command::new(tool.name()).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.err().map(|error| format!("{} cannot be run: {error}", tool.name()))
}

/// A text with the missing capabilities; none if this process has all of them.
fn missing_capabilities() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    let missing: Vec<&str> =
        CAPABILITIES.iter().filter(|(bit, _)| effective >> bit & 1 == 0).map(|&(_, name)| name).collect();
    (!missing.is_empty()).then(|| format!("this process does not have {}", missing.join(" and ")))
}

/// Tries the kernel's features one after the other, in an unfinished bed. If this process is killed, the next one that uses the bed's
/// name removes the rest.
fn probe_kernel() -> Vec<Requirement> {
    let name: BedName =
        format!("probe{}", id()).parse().expect("`probe` and a number is a valid name of a bed");
    let namespace = format!("{}a", name.namespace_prefix());
    let in_namespace = Some(namespace.clone());
    let features = [
        ("network namespaces", ANY_BED, Tool::Ip, None, format!("netns add {namespace}")),
        (
            "veth pairs",
            ANY_BED,
            Tool::Ip,
            in_namespace.clone(),
            "link add eth0 arp off gso_max_segs 8 type veth peer name eth1\n\
             link set lo up\nlink set eth0 up\nlink set eth1 up"
                .to_owned(),
        ),
        (
            "HTB (sch_htb)",
            ANY_BED,
            Tool::Tc,
            in_namespace.clone(),
            "qdisc replace dev eth0 root handle 1: htb default 1\n\
             class add dev eth0 parent 1: classid 1:1 htb rate 8000bit ceil 8000bit quantum 1514"
                .to_owned(),
        ),
        (
            "FIFO queues (sch_fifo)",
            ANY_BED,
            Tool::Tc,
            in_namespace.clone(),
            "qdisc add dev eth0 parent 1:1 bfifo limit 15140".to_owned(),
        ),
        (
            "filters by DSCP (cls_u32)",
            SERVICE_QUEUES,
            Tool::Tc,
            in_namespace.clone(),
            "filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dsfield 0x04 0xfc flowid 1:1"
                .to_owned(),
        ),
        (
            "routes over several links (CONFIG_IP_ROUTE_MULTIPATH)",
            ECMP,
            Tool::Ip,
            in_namespace,
            "route add 10.0.0.9 nexthop via 169.254.0.1 dev eth0 onlink nexthop via 169.254.0.1 dev eth1 onlink"
                .to_owned(),
        ),
    ];
    let mut requirements: Vec<Requirement> = Vec::new();
    let result = bed::with_unfinished_bed(&name, |lock_file| {
        for (name, needed_for, tool, namespace, lines) in features {
            let failure = command::run_step(&Step::Batch { tool, namespace, lines }, lock_file).err();
            let stop = failure.is_some() && needed_for == ANY_BED;
            requirements.push(Requirement {
                name,
                needed_for,
                problem: failure.map(|error| error.to_string()),
            });
            if stop {
                break;
            }
        }
    });
    if let Err(error) = result {
        requirements.push(Requirement {
            name: "files below /run",
            needed_for: ANY_BED,
            problem: Some(error.to_string()),
        });
    }
    requirements
}
