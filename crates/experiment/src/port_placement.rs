//! Gives ports of a trace the numbers of the hosts of a network that have their names.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use weir_console::failure::Failure;
use weir_core::model::{Workload, WorkloadChange};

use crate::source::Source;

/// Moves ports to the hosts with their names, if a port has the name of another host than that of its number. Ports whose names no host
/// has stay where they are.
///
/// # Errors
/// If a port has to move, but another one has no name, that of no host, or that of a port before it; or if the source contains the network,
/// whose ports are in the order of hosts.
pub fn place_ports(source: &mut Arc<Source>, hosts: &[String], fabric: &str) -> Result<(), Failure> {
    let names = &source.port_names;
    if names.iter().zip(hosts).all(|(name, host)| name == host) && names.len() <= hosts.len() {
        return Ok(());
    }
    let number_of: HashMap<&str, u32> = hosts.iter().map(String::as_str).zip(0..).collect();
    let places: Vec<Option<u32>> = names.iter().map(|name| number_of.get(name.as_str()).copied()).collect();
    let misplaced = (0..)
        .zip(&places)
        .find_map(|(port, place)| place.filter(|&place| place != port).map(|place| (port, place)));
    let Some((port, host)) = misplaced else { return Ok(()) };
    let refuse = |reason: String, expected: &str| {
        Err(Failure::input(format_args!(
            "{}: port {port} has the name `{}`, which is host {host} of {fabric}, but {reason}; expected {expected}",
            source.largest_file(),
            names[port as usize],
        )))
    };
    if let Some(network) = &source.network {
        return refuse(format!("{} contains the network", network.name), "ports in the order of the hosts");
    }
    let mut taken = HashSet::new();
    let mut moved = Vec::new();
    for port in 0..source.workload.ports as usize {
        let reason = match (names.get(port), places.get(port).copied().flatten()) {
            (None, _) => format!("port {port} has no name"),
            (Some(name), None) => format!("port {port} has the name `{name}`, which no host has"),
            (Some(name), Some(place)) if !taken.insert(place) => {
                format!("port {port} has the name `{name}` of a port before it")
            }
            (Some(_), Some(place)) => {
                moved.push(place);
                continue;
            }
        };
        return refuse(reason, "a different host's name for each port, or ports in the order of the hosts");
    }
    let source = Arc::make_mut(source);
    move_ports(&mut source.workload, &moved);
    source.port_names = hosts[..source.workload.ports as usize].to_vec();
    Ok(())
}

/// Replaces the numbers of ports by those at their places in `moved`.
fn move_ports(workload: &mut Workload, moved: &[u32]) {
    let place = |port: &mut u32| *port = moved[*port as usize];
    for flow in workload.coflows.iter_mut().flat_map(|coflow| &mut coflow.flows) {
        place(&mut flow.src);
        place(&mut flow.dst);
    }
    for event in &mut workload.events {
        if let WorkloadChange::PortRate { port, .. } = &mut event.change {
            place(port);
        }
    }
    workload.ports = moved.iter().map(|&port| port + 1).max().unwrap_or(workload.ports);
}
