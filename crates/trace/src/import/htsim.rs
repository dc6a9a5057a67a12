//! Reads connections of the packet simulator htsim.
//!
//! ```text
//! Nodes <hosts>
//! Connections <connections>
//! Triggers <triggers>
//! <source>-><destination> id <id> start <ps> size <bytes> send_done_trigger <trigger>
//! <source>-><destination> id <id> trigger <trigger> size <bytes>
//! trigger id <trigger> oneshot
//! ```
//!
//! Each connection is a coflow of one flow. If every connection has an id, coflows have these, and otherwise numbers from 1. A connection
//! with a `trigger` has the connections as parents that fire it. `send_done_trigger` and `recv_done_trigger` are the end of the flow, and
//! `prio` is ignored.
//!
//! A coflow waits for all its parents. So `oneshot` and `multishot` need one connection that fires them, and a `barrier` those that its
//! `count` states.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::str::FromStr;

use weir_core::model::Workload;
use weir_core::units::Bytes;
use weir_fields::FileError;

use super::single_flow;
use crate::Parsed;
use crate::builder::{TimeUnit, WorkloadBuilder, parse_size};
use crate::coflow_benchmark::parse_port;
use crate::file_time::FileTime;
use crate::lines::{Line, LineFields, LineReader};
use crate::number;
use crate::options::TraceOptions;

/// Whether the first line of a file looks like this format.
pub(crate) fn is_likely(line: Line<'_>) -> bool {
    line.text.split_ascii_whitespace().next() == Some("Nodes")
}

/// The numbers at the start of a file.
#[derive(Default)]
struct Header {
    nodes: Option<u32>,
    connections: Option<usize>,
    triggers: Option<usize>,
}

/// A connection.
struct Connection {
    line: usize,
    id: Option<u64>,
    src: u32,
    dst: u32,
    bytes: Bytes,
    start: FileTime,
    /// The trigger that starts it, and those that its end fires.
    trigger: Option<u64>,
    fires: Vec<u64>,
}

/// What a trigger needs before it starts its connections.
struct Trigger {
    line: usize,
    kind: TriggerKind,
    /// The connections that fire it.
    fired_by: Vec<usize>,
}

#[derive(Clone, Copy)]
enum TriggerKind {
    /// Any connection that fires it.
    First,
    /// This number of connections.
    Barrier(usize),
}

pub(crate) fn parse<R: BufRead>(
    lines: &mut LineReader<'_, R>,
    options: &TraceOptions,
) -> Result<Parsed, FileError> {
    let mut header = Header::default();
    let mut connections: Vec<Connection> = Vec::new();
    let mut triggers: BTreeMap<u64, Trigger> = BTreeMap::new();
    let mut builder = WorkloadBuilder::new(options);
    while let Some(line) = lines.next_content()? {
        let mut fields = line.fields();
        match fields.required("line", "a statement")? {
            "Nodes" => {
                header.nodes =
                    Some(parse_header_number(fields, "Nodes", Workload::MAX_PORTS as usize)? as u32)
            }
            "Connections" => {
                header.connections = Some(parse_header_number(fields, "Connections", usize::MAX)?)
            }
            "Triggers" => header.triggers = Some(parse_header_number(fields, "Triggers", usize::MAX)?),
            "Failures" => drop(parse_header_number(fields, "Failures", 0)?),
            "trigger" => {
                let (id, kind) = parse_trigger(fields)?;
                let trigger = Trigger { line: line.number, kind, fired_by: Vec::new() };
                if let Some(other) = triggers.insert(id, trigger) {
                    let expected = format!("each trigger once (line {} has it)", other.line);
                    return Err(line.error("trigger id", id, expected));
                }
            }
            "Tiers" => return Err(line.error("line", "Tiers", "connections: this is a topology of htsim")),
            text => {
                let Some(nodes) = header.nodes else {
                    return Err(line.error("line", text, "`Nodes <hosts>` first"));
                };
                builder.reserve_flows(line, "connections", Some(1), 1)?;
                let connection = parse_connection(text, fields, nodes, &builder)?;
                builder.add_bytes(line, "size", connection.bytes.get())?;
                connections.push(connection);
            }
        }
    }
    let end = lines.end_of_input();
    let Some(ports) = header.nodes.filter(|&nodes| nodes > 0) else {
        return Err(end.error("Nodes", "end of file", "`Nodes <hosts>`, of at least 1"));
    };
    for (field, stated, found) in [
        ("Connections", header.connections, connections.len()),
        ("Triggers", header.triggers, triggers.len()),
    ] {
        if stated.is_some_and(|stated| stated != found) {
            return Err(end.error(field, stated.unwrap_or(0), format!("{found}, the number in the file")));
        }
    }
    add_connections(connections, triggers, end, &mut builder)?;
    let (workload, shift) = builder.finish(ports, lines)?;
    Ok(Parsed::new(workload, shift))
}

/// The number after a keyword of the header.
fn parse_header_number(mut fields: LineFields<'_>, field: &str, max: usize) -> Result<usize, FileError> {
    let expected = match max {
        0 => "0: failures are events of a trace or a network".to_owned(),
        usize::MAX => "a whole number".to_owned(),
        _ => format!("a whole number of at most {max}"),
    };
    let text = fields.required(field, &expected)?;
    let number = number::parse_integer(text).filter(|&number: &usize| number <= max);
    let number = number.ok_or_else(|| fields.line.error(field, text, &expected))?;
    fields.finish()?;
    Ok(number)
}

/// The whole number after a keyword of a line.
fn parse_value<N: FromStr>(fields: &mut LineFields<'_>, field: &str) -> Result<N, FileError> {
    let expected = "a whole number";
    let text = fields.required(field, expected)?;
    number::parse_integer(text).ok_or_else(|| fields.line.error(field, text, expected))
}

/// The id and the kind of a trigger.
fn parse_trigger(mut fields: LineFields<'_>) -> Result<(u64, TriggerKind), FileError> {
    const EXPECTED: &str = "`id <trigger>`, and `oneshot`, `multishot` or `barrier count <connections>`";
    let line = fields.line;
    let (mut id, mut count, mut kind) = (None, None, None);
    while let Some(keyword) = fields.optional() {
        match keyword {
            "id" => id = Some(parse_value(&mut fields, "trigger id")?),
            "count" => count = Some(parse_value(&mut fields, "count")?),
            "oneshot" | "multishot" | "barrier" if kind.is_none() => kind = Some(keyword),
            other => return Err(line.error("trigger", other, EXPECTED)),
        }
    }
    let kind = match (kind, count) {
        (Some("barrier"), Some(count)) => TriggerKind::Barrier(count),
        (Some("oneshot" | "multishot"), None) => TriggerKind::First,
        _ => return Err(line.error("trigger", line.text, EXPECTED)),
    };
    Ok((id.ok_or_else(|| line.error("trigger", line.text, EXPECTED))?, kind))
}

/// A connection; `text` is its first field.
fn parse_connection(
    text: &str,
    mut fields: LineFields<'_>,
    nodes: u32,
    builder: &WorkloadBuilder<'_>,
) -> Result<Connection, FileError> {
    const KEYWORDS: &str =
        "`id`, `start`, `trigger`, `size`, `send_done_trigger`, `recv_done_trigger` or `prio`";
    let line = fields.line;
    let expected = "`<source>-><destination>`, `trigger`, `Nodes`, `Connections` or `Triggers`";
    let (src, dst) = text.split_once("->").ok_or_else(|| line.error("line", text, expected))?;
    let mut connection = Connection {
        line: line.number,
        id: None,
        src: parse_port(line, "source", src, nodes)?,
        dst: parse_port(line, "destination", dst, nodes)?,
        bytes: Bytes::ZERO,
        start: FileTime::ZERO,
        trigger: None,
        fires: Vec::new(),
    };
    let mut has_start = false;
    while let Some(keyword) = fields.optional() {
        match keyword {
            "id" => connection.id = Some(parse_value(&mut fields, "id")?),
            "start" => {
                let text = fields.required("start", "a time in picoseconds")?;
                connection.start = builder.parse_time(line, "start", text, TimeUnit::PS)?;
                has_start = true;
            }
            "trigger" => connection.trigger = Some(parse_value(&mut fields, "trigger")?),
            "size" => {
                let text = fields.required("size", "a size in bytes")?;
                connection.bytes = parse_size(line, "size", text, 1.0)?;
            }
            "send_done_trigger" | "recv_done_trigger" => {
                connection.fires.push(parse_value(&mut fields, keyword)?)
            }
            "prio" => drop(parse_value::<u64>(&mut fields, "prio")?),
            other => return Err(line.error("connection", other, KEYWORDS)),
        }
    }
    if has_start == connection.trigger.is_some() {
        return Err(line.error("connection", line.text, "either `start` or `trigger`"));
    }
    if connection.bytes == Bytes::ZERO {
        return Err(line.error("size", 0, "`size <bytes>` above 0; a connection without an end is no flow"));
    }
    Ok(connection)
}

/// Adds a coflow for each connection, with those as parents that fire its trigger.
fn add_connections(
    connections: Vec<Connection>,
    mut triggers: BTreeMap<u64, Trigger>,
    end: Line<'_>,
    builder: &mut WorkloadBuilder<'_>,
) -> Result<(), FileError> {
    for (index, connection) in connections.iter().enumerate() {
        for &id in &connection.fires {
            let line = Line { number: connection.line, ..end };
            let trigger = triggers.get_mut(&id).ok_or_else(|| no_trigger(line, id))?;
            if trigger.fired_by.last() != Some(&index) {
                trigger.fired_by.push(index);
            }
        }
    }
    let have_ids = connections.iter().all(|connection| connection.id.is_some());
    for (index, connection) in connections.into_iter().enumerate() {
        let line = Line { number: connection.line, ..end };
        let id = connection.id.filter(|_| have_ids).unwrap_or(index as u64 + 1);
        builder.take_id(line, id)?;
        let mut coflow = single_flow(id, connection.src, connection.dst, connection.bytes);
        if let Some(trigger) = connection.trigger {
            let trigger_state = triggers.get(&trigger).ok_or_else(|| no_trigger(line, trigger))?;
            trigger_state.check(trigger, end)?;
            coflow.parents.clone_from(&trigger_state.fired_by);
        }
        builder.push(coflow, connection.start);
    }
    Ok(())
}

fn no_trigger(line: Line<'_>, id: u64) -> FileError {
    line.error("trigger", id, format!("a line `trigger id {id} oneshot`, or with another kind"))
}

impl Trigger {
    /// Checks that parents can express the trigger.
    fn check(&self, id: u64, end: Line<'_>) -> Result<(), FileError> {
        let (found, line) = (self.fired_by.len(), Line { number: self.line, ..end });
        let is_expressible = match self.kind {
            TriggerKind::First => found == 1,
            TriggerKind::Barrier(count) => found == count && count > 0,
        };
        if is_expressible {
            return Ok(());
        }
        let value = format!("{id}, which {found} connections fire");
        Err(line.error(
            "trigger",
            value,
            "one connection for `oneshot` or `multishot`, and the number of `count` for a barrier, because a coflow waits for all parents",
        ))
    }
}
