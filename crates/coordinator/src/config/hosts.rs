//! Reads hosts and their addresses.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use weir_core::model::{Names, NodeId, Topology};
use weir_core::units::Rate;
use weir_trace::fields::{Fields, Value};
use weir_trace::{TraceError, topology};

use super::{Host, MAX_HOSTS, check_name};
use crate::plane::Link;

/// Expected value of a host's name.
pub(super) const HOST: &str = "the name of a host";

/// Reads the hosts: those of a topology, which is returned as well, or the listed ones.
pub(super) fn hosts(
    fields: &Fields<'_>,
    topology: Option<Value<'_>>,
    host: Option<Value<'_>>,
    folder: &Path,
) -> Result<(Vec<Host>, Option<Topology>), TraceError> {
    const FILE: &str = "the file of a topology";
    let (hosts, network) = match (topology, host) {
        (Some(value), None) => {
            let network = topology::read(&folder.join(fields.text(&value, FILE)?))?;
            let hosts: Vec<Host> =
                (0..network.hosts() as u32).map(|host| host_of(&network, NodeId(host))).collect();
            if let Some(host) = hosts.iter().find(|host| !Names::is_name(&host.name)) {
                let expected = format!("hosts whose names are {}", Names::RULE);
                return Err(fields.wrong_at("topology", &host.name, &expected));
            }
            (hosts, Some(network))
        }
        (None, Some(value)) => (listed(&fields.table(&value, "host ".to_owned())?)?, None),
        (Some(value), Some(_)) => return Err(fields.wrong(&value, "either `topology` or `[host]`")),
        (None, None) => {
            let expected = "a table `[host]` of names and rates, or `topology = \"FILE\"`";
            return Err(fields.wrong_at("host", "nothing", expected));
        }
    };
    if hosts.is_empty() || hosts.len() > MAX_HOSTS {
        let found = hosts.len().to_string();
        let key = if network.is_some() { "topology" } else { "host" };
        return Err(fields.wrong_at(key, &found, &format!("1 to {MAX_HOSTS} hosts")));
    }
    Ok((hosts, network))
}

/// A host of a topology; its capacity is the sum over its cables.
fn host_of(network: &Topology, host: NodeId) -> Host {
    let sum = |links: &mut dyn Iterator<Item = Rate>| {
        Rate::new(links.map(Rate::get).sum()).expect("a host has at most 2^20 cables of at most 1e15 B/s")
    };
    let out = network.out(host);
    let send = sum(&mut out.iter().map(|&link| network.link(link).rate));
    let into = |link| network.between(network.link(link).to, host);
    let recv = sum(&mut out.iter().filter_map(|&link| into(link)).map(|link| network.link(link).rate));
    Host { name: network.name(host).to_owned(), link: Link { send, recv } }
}

fn listed(fields: &Fields<'_>) -> Result<Vec<Host>, TraceError> {
    let each = fields.named().into_iter().map(|(name, value)| {
        check_name(fields, name)?;
        let rate = fields.read_rate(&value)?;
        if rate.get() < 1.0 || rate > Topology::MAX_RATE {
            return Err(fields.wrong(&value, &format!("a rate from 8bit to {}", Topology::MAX_RATE)));
        }
        Ok(Host { name: name.to_owned(), link: Link { send: rate, recv: rate } })
    });
    each.collect()
}

/// Reads addresses of hosts.
pub(super) fn addresses(
    fields: &Fields<'_>,
    value: &Value<'_>,
    numbers: &BTreeMap<&str, u32>,
) -> Result<BTreeMap<IpAddr, u32>, TraceError> {
    const ADDRESSES: &str = "a list of the host's IP addresses, such as [\"10.0.0.1\"]";
    let table = fields.table(value, "address ".to_owned())?;
    let mut of = BTreeMap::new();
    for (name, value) in table.named() {
        let &host = numbers.get(name).ok_or_else(|| table.wrong_at(name, name, HOST))?;
        for value in table.list(&value, ADDRESSES)? {
            let address: Option<IpAddr> = table.text(&value, ADDRESSES)?.parse().ok();
            let address = address.ok_or_else(|| table.wrong(&value, ADDRESSES))?.to_canonical();
            if of.insert(address, host).is_some() {
                return Err(table.wrong(&value, "an address that is there once"));
            }
        }
    }
    Ok(of)
}
