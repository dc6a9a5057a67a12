//! Reads the queues of ports in a scenario.

use std::collections::BTreeMap;

use weir_core::model::scenario::{Port, Queue};
use weir_core::model::{LinkId, Topology};

use super::no_link;
use crate::error::TraceError;
use crate::fields::{Fields, Value};

/// A port, and the tables of its queues for the positions of errors.
pub(super) fn read<'a>(
    fields: &mut Fields<'a>,
    topology: &Topology,
    names: &BTreeMap<String, usize>,
) -> Result<(Port, Vec<Fields<'a>>), TraceError> {
    let links = ports(fields, topology)?;
    let tables = fields.need("queues", QUEUES)?;
    let tables = fields.list(&tables, QUEUES)?;
    let (mut queues, mut places) = (Vec::new(), Vec::new());
    for (number, table) in (1..).zip(&tables) {
        let mut queue = fields.nested(table, &format!("queue {number} "))?;
        queues.push(read_queue(&mut queue, names)?);
        places.push(queue);
    }
    fields.finish()?;
    Ok((Port { links, queues }, places))
}

const QUEUES: &str = "a list of queues, such as [{ weight = 3, services = [\"search\"] }]";

/// The links of a port, or all links that `*` matches.
fn ports(fields: &mut Fields<'_>, topology: &Topology) -> Result<Vec<LinkId>, TraceError> {
    const END: &str = "a host or switch of the fabric, or \"*\" for all";
    let mut end = |key| {
        let value = fields.need(key, END)?;
        let name = fields.text(&value, END)?;
        if name == "*" && topology.node("*").is_none() {
            return Ok((value, None));
        }
        let node = topology.node(name).ok_or_else(|| fields.wrong(&value, END))?;
        Ok((value, Some(node)))
    };
    let ((_, from), (value, to)) = (end("from")?, end("to")?);
    let of_switch = |&link: &LinkId| !topology.is_host(topology.link(link).from);
    let links: Vec<LinkId> = match (from, to) {
        (Some(from), Some(to)) => topology.between(from, to).into_iter().collect(),
        (Some(from), None) => topology.out(from).to_vec(),
        (None, Some(to)) => topology.out(to).iter().map(|link| link.reverse()).filter(of_switch).collect(),
        (None, None) => (0..topology.links().len() as u32).map(LinkId).filter(of_switch).collect(),
    };
    match (links.is_empty(), from) {
        (false, _) => Ok(links),
        (true, Some(from)) => Err(no_link(fields, &value, topology.name(from))),
        (true, None) => Err(fields.wrong(&value, "a host or switch with a cable to a switch")),
    }
}

fn read_queue(fields: &mut Fields<'_>, names: &BTreeMap<String, usize>) -> Result<Queue, TraceError> {
    const SERVICES: &str = "a list of names of services of this file";
    let weight = fields.number("weight")?;
    let value = fields.need("services", SERVICES)?;
    let service = |item: &Value<'_>| {
        let found = names.get(fields.text(item, SERVICES)?);
        found.copied().ok_or_else(|| fields.wrong(item, SERVICES))
    };
    let services = fields.list(&value, SERVICES)?.iter().map(service).collect::<Result<_, TraceError>>()?;
    fields.finish()?;
    Ok(Queue { weight, services })
}
