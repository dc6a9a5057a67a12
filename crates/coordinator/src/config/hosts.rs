//! Reads the hosts and their addresses.

use std::collections::BTreeMap;
use std::path::Path;

use weir_core::model::{NodeId, ServiceNames, Topology};
use weir_core::units::Rate;
use weir_fields::{FileError, TableFields, Value};
use weir_proto::{Network, NetworkTable};
use weir_trace::topology;

use super::{Host, MAX_HOSTS, check_name};
use crate::control_plane::Link;

/// Expected value of a host's name.
pub(super) const EXPECTED_HOST: &str = "the name of a host";

/// Reads the hosts, from a topology or from a table. Also returns the topology.
pub(super) fn read_hosts(
    fields: &TableFields<'_>,
    topology: Option<Value<'_>>,
    host: Option<Value<'_>>,
    folder: &Path,
) -> Result<(Vec<Host>, Option<Topology>), FileError> {
    const EXPECTED_FILE: &str = "the path of a topology file";
    let (hosts, network) = match (topology, host) {
        (Some(value), None) => {
            let path = folder.join(fields.read_string(&value, EXPECTED_FILE)?);
            let network = fields.referenced(&value, topology::read(&path))?;
            let hosts: Vec<Host> =
                (0..network.hosts() as u32).map(|host| host_from_topology(&network, NodeId(host))).collect();
            if let Some(host) = hosts.iter().find(|host| !ServiceNames::is_name(&host.name)) {
                let expected = format!("hosts with names of {}", ServiceNames::NAME_RULE);
                return Err(fields.key_error("topology", &host.name, &expected));
            }
            (hosts, Some(network))
        }
        (None, Some(value)) => (read_host_table(&fields.read_table(&value, "host ".to_owned())?)?, None),
        (Some(value), Some(_)) => return Err(fields.value_error(&value, "either `topology` or `[host]`")),
        (None, None) => {
            let expected = "a table `[host]` with names and rates, or `topology = \"FILE\"`";
            return Err(fields.key_error("host", "nothing", expected));
        }
    };
    if hosts.is_empty() || hosts.len() > MAX_HOSTS {
        let found = hosts.len().to_string();
        let key = if network.is_some() { "topology" } else { "host" };
        return Err(fields.key_error(key, &found, &format!("1 to {MAX_HOSTS} hosts")));
    }
    Ok((hosts, network))
}

/// A host of a topology; its capacity is the sum over its cables.
fn host_from_topology(network: &Topology, host: NodeId) -> Host {
    let total_rate = |links: &mut dyn Iterator<Item = Rate>| {
        Rate::new(links.map(Rate::get).sum()).expect("a host has at most 2^20 cables of at most 1e15 B/s")
    };
    let links_out = network.outgoing_links(host);
    let send = total_rate(&mut links_out.iter().map(|&link| network.link(link).rate));
    let reverse_link = |link| network.link_between(network.link(link).to, host);
    let recv = total_rate(
        &mut links_out.iter().filter_map(|&link| reverse_link(link)).map(|link| network.link(link).rate),
    );
    Host { name: network.name(host).to_owned(), link: Link { send, recv } }
}

fn read_host_table(fields: &TableFields<'_>) -> Result<Vec<Host>, FileError> {
    let hosts = fields.entries().into_iter().map(|(name, value)| {
        check_name(fields, name, name)?;
        let rate = fields.read_rate(&value)?;
        if rate.get() < 1.0 || rate > Topology::MAX_RATE {
            return Err(fields.value_error(&value, &format!("a rate from 8bit to {}", Topology::MAX_RATE)));
        }
        Ok(Host { name: name.to_owned(), link: Link { send: rate, recv: rate } })
    });
    hosts.collect()
}

/// Reads the addresses of hosts, and the networks of their pods.
pub(super) fn read_addresses(
    fields: &TableFields<'_>,
    value: &Value<'_>,
    host_numbers: &BTreeMap<&str, u32>,
) -> Result<NetworkTable<u32>, FileError> {
    const EXPECTED_ADDRESSES: &str = "a list of the host's IP addresses and of networks without host bits, such as [\"10.0.0.1\", \"10.244.1.0/24\"]";
    let table = fields.read_table(value, "address ".to_owned())?;
    let mut addresses = NetworkTable::default();
    for (name, value) in table.entries() {
        let &host = host_numbers.get(name).ok_or_else(|| table.key_error(name, name, EXPECTED_HOST))?;
        for value in table.read_list(&value, EXPECTED_ADDRESSES)? {
            let text = table.read_string(&value, EXPECTED_ADDRESSES)?;
            let network =
                Network::parse_short(text).map_err(|_| table.value_error(&value, EXPECTED_ADDRESSES))?;
            if !addresses.insert(network, host).is_empty() {
                return Err(table.value_error(&value, "an address that is listed once"));
            }
        }
    }
    Ok(addresses)
}
