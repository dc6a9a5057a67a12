//! Reads the queues of ports in a scenario.

use std::collections::BTreeMap;

use weir_core::model::scenario::{PortQueues, Queue};
use weir_core::model::{LinkId, Topology};
use weir_fields::{FileError, TableFields, Value};

/// A port, and the tables of its queues for the positions of errors.
pub(super) fn read<'a>(
    fields: &mut TableFields<'a>,
    topology: &Topology,
    service_indices: &BTreeMap<String, usize>,
) -> Result<(PortQueues, Vec<TableFields<'a>>), FileError> {
    let links = read_links(fields, topology)?;
    let tables = fields.required("queues", QUEUES)?;
    let tables = fields.read_list(&tables, QUEUES)?;
    let (mut queues, mut queue_tables) = (Vec::new(), Vec::new());
    for (number, table) in (1..).zip(&tables) {
        let mut queue = fields.read_nested_table(table, &format!("queue {number} "))?;
        queues.push(read_queue(&mut queue, service_indices)?);
        queue_tables.push(queue);
    }
    fields.finish()?;
    Ok((PortQueues { links, queues }, queue_tables))
}

const QUEUES: &str = "a list of queues, such as [{ weight = 3, services = [\"search\"] }]";

/// The links of a port, or all links that `*` matches.
fn read_links(fields: &mut TableFields<'_>, topology: &Topology) -> Result<Vec<LinkId>, FileError> {
    const END: &str = "a host or switch of the fabric, or \"*\" for all";
    let mut read_end = |key| {
        let value = fields.required(key, END)?;
        let name = fields.read_string(&value, END)?;
        if name == "*" && topology.find_node("*").is_none() {
            return Ok((value, None));
        }
        let node = topology.find_node(name).ok_or_else(|| fields.value_error(&value, END))?;
        Ok((value, Some(node)))
    };
    let ((_, from), (value, to)) = (read_end("from")?, read_end("to")?);
    let starts_at_switch = |&link: &LinkId| !topology.is_host(topology.link(link).from);
    let links: Vec<LinkId> = match (from, to) {
        (Some(from), Some(to)) => topology.link_between(from, to).into_iter().collect(),
        (Some(from), None) => topology.outgoing_links(from).to_vec(),
        (None, Some(to)) => {
            topology.outgoing_links(to).iter().map(|link| link.reverse()).filter(starts_at_switch).collect()
        }
        (None, None) => (0..topology.links().len() as u32).map(LinkId).filter(starts_at_switch).collect(),
    };
    match (links.is_empty(), from) {
        (false, _) => Ok(links),
        (true, Some(from)) => Err(no_link_error(fields, &value, topology.name(from))),
        (true, None) => Err(fields.value_error(&value, "a host or switch with a cable to a switch")),
    }
}

/// The error for a second end without a cable to the first.
pub(super) fn no_link_error(fields: &TableFields<'_>, value: &Value<'_>, from: &str) -> FileError {
    fields.value_error(value, &format!("a host or switch with a cable to `{from}`"))
}

fn read_queue(
    fields: &mut TableFields<'_>,
    service_indices: &BTreeMap<String, usize>,
) -> Result<Queue, FileError> {
    const SERVICES: &str = "a list of names of services of this file";
    let weight = fields.required_number("weight")?;
    let value = fields.required("services", SERVICES)?;
    let service = |item: &Value<'_>| {
        let found = service_indices.get(fields.read_string(item, SERVICES)?);
        found.copied().ok_or_else(|| fields.value_error(item, SERVICES))
    };
    let services =
        fields.read_list(&value, SERVICES)?.iter().map(service).collect::<Result<_, FileError>>()?;
    fields.finish()?;
    Ok(Queue { weight, services })
}
