//! Reads the switches, the host or switch at each of their ports, and the limits of their queues.

use std::collections::{BTreeMap, BTreeSet};

use weir_core::model::Topology;
use weir_core::saba::controller::PortLimits;
use weir_core::units::Rate;
use weir_fields::{FileError, TableFields, Value};
use weir_proto::{MAX_SWITCH_PORTS, QUEUED_LINK_RATES};

use super::queues::read_port_limits;
use super::{CableEnd, MAX_SWITCH_LINKS, MAX_SWITCHES, QueueAssignment, Switch, check_name};

const EXPECTED_PORTS: &str = "a list of the names of hosts and switches, in the order of the switch's ports";
const EXPECTED_END: &str = "the name of a host, or of another switch of this table";

/// Reads the switches with the host or switch at each port. Each host is at most at one port. Two switches list each other
/// equally often, once for each cable. A switch of the topology has cables of the topology only.
pub(super) fn read_switches(
    fields: &TableFields<'_>,
    value: &Value<'_>,
    hosts: &BTreeMap<&str, u32>,
    network: Option<&Topology>,
    queues: &QueueAssignment,
) -> Result<Vec<Switch>, FileError> {
    let table = fields.read_table(value, "switch ".to_owned())?;
    let named = table.entries();
    if named.len() > MAX_SWITCHES {
        let found = named.len().to_string();
        return Err(fields.key_error("switch", &found, &format!("at most {MAX_SWITCHES} switches")));
    }
    let numbers: BTreeMap<&str, u32> = named.iter().map(|(name, _)| *name).zip(0..).collect();
    let mut connected_hosts = BTreeSet::new();
    // The number of ports of the first switch towards the second, and the last of these ports.
    let mut port_counts: BTreeMap<(u32, u32), (usize, Value<'_>)> = BTreeMap::new();
    let mut switch_link_count = 0;
    let mut switches = Vec::new();
    for (number, (name, value)) in (0u32..).zip(named) {
        check_name(&table, name, name)?;
        if hosts.contains_key(name) {
            return Err(table.key_error(name, name, "a name that no host has"));
        }
        let (table, list, limits) = read_switch(&table, name, value, queues)?;
        let mut ports = Vec::with_capacity(list.len());
        for value in list {
            let other = table.read_string(&value, EXPECTED_END)?;
            if !is_cable_possible(network, name, other) {
                return Err(table.value_error(&value, "a node with a cable to this switch in the topology"));
            }
            if let Some(&host) = hosts.get(other) {
                if !connected_hosts.insert(host) {
                    return Err(table.value_error(&value, "a host that is not listed at another port"));
                }
                ports.push(CableEnd::Host(host));
                continue;
            }
            let &other = numbers.get(other).ok_or_else(|| table.value_error(&value, EXPECTED_END))?;
            if other == number {
                return Err(table.value_error(&value, EXPECTED_END));
            }
            switch_link_count += 1;
            if switch_link_count > MAX_SWITCH_LINKS {
                let expected = format!("at most {MAX_SWITCH_LINKS} ports towards other switches in total");
                return Err(table.value_error(&value, &expected));
            }
            ports.push(CableEnd::Switch(other));
            let count = port_counts.get(&(number, other)).map_or(0, |(count, _)| *count);
            port_counts.insert((number, other), (count + 1, value));
        }
        switches.push(Switch { name: name.to_owned(), ports, limits });
    }
    for (&(from, to), (count, value)) in &port_counts {
        let reverse_count = port_counts.get(&(to, from)).map_or(0, |(count, _)| *count);
        if *count > reverse_count {
            return Err(table.value_error(value, "a switch with equally many ports towards this switch"));
        }
        let rate = cable_rate(network, [from, to].map(|switch| &*switches[switch as usize].name), *count);
        if let Some(rate) = rate.filter(|rate| !QUEUED_LINK_RATES.contains(&rate.get()))
            && *queues == QueueAssignment::Services
        {
            let expected = format!(
                "cables from 8kbit to 100Gbit, which agents have queues for (the topology has {rate})"
            );
            return Err(table.value_error(value, &expected));
        }
    }
    Ok(switches)
}

/// Reads a switch: a list of its ports, or a table with this list and the limits of its queues. Returns the table that contains
/// the list, the ports, and the limits if the switch has own limits.
fn read_switch<'a>(
    table: &TableFields<'a>,
    name: &'a str,
    value: Value<'a>,
    assignment: &QueueAssignment,
) -> Result<(TableFields<'a>, Vec<Value<'a>>, Option<PortLimits>), FileError> {
    let is_table = TableFields::is_table(&value);
    let (fields, key, ports, limits) = if is_table {
        let mut fields = table.read_nested_table(&value, &format!("{name} "))?;
        let ports = fields.required("ports", EXPECTED_PORTS)?;
        let (queues, min_weight) = (fields.optional("queues"), fields.optional("min-weight"));
        fields.finish()?;
        let limits = match (assignment.saba(), queues.or(min_weight)) {
            (_, None) => None,
            (None, Some(value)) => {
                return Err(fields.value_error(&value, "no such key, since queues are those of services"));
            }
            (Some(saba), Some(_)) => {
                Some(read_port_limits(&fields, queues, min_weight, saba.settings.c_saba, saba.limits)?)
            }
        };
        (fields, "ports", ports, limits)
    } else {
        (table.clone(), name, value, None)
    };
    let list = fields.read_list(&ports, EXPECTED_PORTS)?;
    if list.is_empty() {
        return Err(fields.value_error(&ports, EXPECTED_PORTS));
    }
    if list.len() > MAX_SWITCH_PORTS {
        let found = list.len().to_string();
        return Err(fields.key_error(key, &found, &format!("at most {MAX_SWITCH_PORTS} ports")));
    }
    Ok((fields, list, limits))
}

/// The rate of each of several cables between two switches, if the topology has these switches. There the cables are one.
fn cable_rate(network: Option<&Topology>, [from, to]: [&str; 2], count: usize) -> Option<Rate> {
    let network = network?;
    let link = network.link_between(network.find_node(from)?, network.find_node(to)?)?;
    Rate::new(network.link(link).rate.get() / count as f64)
}

/// Whether the topology has this cable. Cables of switches outside the topology are not checked.
fn is_cable_possible(network: Option<&Topology>, switch: &str, other: &str) -> bool {
    let Some(network) = network else { return true };
    let Some(switch) = network.find_node(switch).filter(|&node| !network.is_host(node)) else { return true };
    match network.find_node(other) {
        Some(other) => network.link_between(switch, other).is_some(),
        // The node is a switch of the configuration only, or the caller refuses it.
        None => true,
    }
}
