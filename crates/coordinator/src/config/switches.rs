//! Reads switches and the other ends of their cables.

use std::collections::{BTreeMap, BTreeSet};

use weir_core::model::Topology;
use weir_proto::MAX_PORTS;
use weir_trace::TraceError;
use weir_trace::fields::{Fields, Value};

use super::{End, MAX_SWITCHES, MAX_UPLINKS, Switch, check_name};

const PORTS: &str = "a list of the names of hosts and switches, in the order of the switch's ports";
const END: &str = "the name of a host, or of another switch of this table";

/// Reads switches with the host or switch at each port. A host is at one port at most, and a cable between switches is
/// at a port of either. The cables of a switch of the topology have to exist in the topology.
pub(super) fn switches(
    fields: &Fields<'_>,
    value: &Value<'_>,
    hosts: &BTreeMap<&str, u32>,
    network: Option<&Topology>,
) -> Result<Vec<Switch>, TraceError> {
    let table = fields.table(value, "switch ".to_owned())?;
    let named = table.named();
    if named.len() > MAX_SWITCHES {
        let found = named.len().to_string();
        return Err(fields.wrong_at("switch", &found, &format!("at most {MAX_SWITCHES} switches")));
    }
    let numbers: BTreeMap<&str, u32> = named.iter().map(|(name, _)| *name).zip(0..).collect();
    let mut taken = BTreeSet::new();
    // Number of ports of a switch towards another one by its own list, and the last of these ports.
    let mut cables: BTreeMap<(u32, u32), (usize, Value<'_>)> = BTreeMap::new();
    let mut uplinks = 0;
    let mut switches = Vec::new();
    for (number, (name, value)) in (0u32..).zip(named) {
        check_name(&table, name)?;
        if hosts.contains_key(name) {
            return Err(table.wrong_at(name, name, "another name than that of a host"));
        }
        let list = table.list(&value, PORTS)?;
        if list.is_empty() {
            return Err(table.wrong(&value, PORTS));
        }
        if list.len() > MAX_PORTS {
            let found = list.len().to_string();
            return Err(table.wrong_at(name, &found, &format!("at most {MAX_PORTS} ports of a switch")));
        }
        let mut ports = Vec::with_capacity(list.len());
        for value in list {
            let other = table.text(&value, END)?;
            if !has_cable(network, name, other) {
                return Err(table.wrong(&value, "a node that the topology has a cable to from this switch"));
            }
            if let Some(&host) = hosts.get(other) {
                if !taken.insert(host) {
                    return Err(table.wrong(&value, "a host that is at no other port"));
                }
                ports.push(End::Host(host));
                continue;
            }
            let &other = numbers.get(other).ok_or_else(|| table.wrong(&value, END))?;
            if other == number {
                return Err(table.wrong(&value, END));
            }
            uplinks += 1;
            if uplinks > MAX_UPLINKS {
                let expected = format!("at most {MAX_UPLINKS} ports towards other switches, in all");
                return Err(table.wrong(&value, &expected));
            }
            ports.push(End::Switch(other));
            let count = cables.get(&(number, other)).map_or(0, |(count, _)| *count);
            cables.insert((number, other), (count + 1, value));
        }
        switches.push(Switch { name: name.to_owned(), ports });
    }
    for (&(from, to), (count, value)) in &cables {
        let back = cables.get(&(to, from)).map_or(0, |(count, _)| *count);
        if *count > back {
            return Err(table.wrong(value, "a switch that has as many ports to this one"));
        }
    }
    Ok(switches)
}

/// Whether the topology has this cable. Cables of switches outside the topology are not checked.
fn has_cable(network: Option<&Topology>, switch: &str, other: &str) -> bool {
    let Some(network) = network else { return true };
    let Some(switch) = network.node(switch).filter(|&node| !network.is_host(node)) else { return true };
    match network.node(other) {
        Some(other) => network.between(switch, other).is_some(),
        // A node outside the topology is either a switch that only the configuration has, or an invalid end, which the
        // caller refuses.
        None => true,
    }
}
