//! Parses Weir's own trace format.

use std::collections::HashMap;
use std::io::BufRead;

use weir_core::model::{Change, CoflowSpec, FlowSpec, Names, Side, TimedEvent, Workload};
use weir_core::units::{Bytes, Time};

use super::fields::{Keys, name, port, release, side_of, size, time, whole, within};
use super::{MAGIC, VERSION};
use crate::bounds::{Limits, MAX_BYTES, MAX_FACTOR, MAX_WEIGHT, MIN_WEIGHT};
use crate::dag;
use crate::error::TraceError;
use crate::lines::{Fields, Line, Lines};
use crate::number;
use crate::shuffle;

/// The expected value in errors about unknown statements.
const LINES: &str = "a line of `coflow`, `flow`, `shuffle` or `event`";

pub(crate) fn parse<R: BufRead>(lines: &mut Lines<'_, R>, limits: &Limits) -> Result<Workload, TraceError> {
    let Some(line) = lines.next()? else {
        return Err(lines.ended("header", format!("`{MAGIC} {VERSION}`")));
    };
    header(line)?;
    let mut reader = loop {
        let Some(line) = lines.next()? else {
            return Err(lines.ended("ports", "`ports <number>`"));
        };
        if let Some(fields) = content(line) {
            break Reader::new(ports(fields)?, limits);
        }
    };
    while let Some(line) = lines.next()? {
        if let Some(fields) = content(line) {
            reader.line(fields)?;
        }
    }
    reader.end(lines)
}

/// The content of a line without its comment, if any.
fn content(line: Line<'_>) -> Option<Fields<'_>> {
    let text = line.text.split('#').next().unwrap_or_default().trim_ascii();
    (!text.is_empty()).then(|| Line { text, ..line }.fields())
}

fn header(line: Line<'_>) -> Result<(), TraceError> {
    let expected = format!("`{MAGIC} {VERSION}`");
    let mut fields = content(line).ok_or_else(|| line.error("header", line.text, &expected))?;
    let magic = fields.required("header", &expected)?;
    if magic != MAGIC {
        return Err(line.error("header", magic, &expected));
    }
    let version = fields.required("version", &expected)?;
    if number::whole(version) != Some(VERSION) {
        return Err(line.error("version", version, format!("{VERSION}, the only version there is so far")));
    }
    fields.finish()
}

fn ports(mut fields: Fields<'_>) -> Result<u32, TraceError> {
    let line = fields.line;
    let keyword = fields.required("ports", "`ports <number>`")?;
    if keyword != "ports" {
        return Err(line.error("ports", keyword, "`ports <number>` before anything else"));
    }
    let expected = format!("a number of ports from 1 to {}", Workload::MAX_PORTS);
    let text = fields.required("ports", &expected)?;
    let ports = number::whole(text)
        .filter(|ports| (1..=Workload::MAX_PORTS).contains(ports))
        .ok_or_else(|| line.error("ports", text, &expected))?;
    fields.finish()?;
    Ok(ports)
}

/// An event whose coflow may not have been read yet.
struct Draft {
    line: usize,
    at: Time,
    what: DraftChange,
}

enum DraftChange {
    PortRate { port: u32, side: Side, factor: f64 },
    Restart { id: u64, flow: usize },
    Late { id: u64, flow: usize, until: Time },
}

/// The state of reading.
struct Reader<'a> {
    limits: &'a Limits,
    ports: u32,
    coflows: Vec<CoflowSpec>,
    /// By coflow, its line, and the ids of its parents.
    lines: Vec<usize>,
    parents: Vec<Vec<u64>>,
    /// The index of each coflow, by id.
    positions: HashMap<u64, usize>,
    events: Vec<Draft>,
    names: Names,
    /// Numbers of flows and parents, and bytes of completely read coflows.
    flows: usize,
    parent_count: usize,
    bytes: f64,
}

impl<'a> Reader<'a> {
    fn new(ports: u32, limits: &'a Limits) -> Reader<'a> {
        Reader {
            limits,
            ports,
            coflows: Vec::new(),
            lines: Vec::new(),
            parents: Vec::new(),
            positions: HashMap::new(),
            events: Vec::new(),
            names: Names::empty(),
            flows: 0,
            parent_count: 0,
            bytes: 0.0,
        }
    }

    fn line(&mut self, mut fields: Fields<'_>) -> Result<(), TraceError> {
        match fields.required("line", LINES)? {
            "coflow" => self.coflow(fields),
            "flow" => self.flow(fields),
            "shuffle" => self.shuffle(fields),
            "event" => self.event(fields),
            "ports" => Err(fields.line.error("ports", "a second time", LINES)),
            other => Err(fields.line.error("line", other, LINES)),
        }
    }

    fn coflow(&mut self, mut fields: Fields<'_>) -> Result<(), TraceError> {
        let line = fields.line;
        self.close(line)?;
        let id = whole(line, "id", fields.required("id", "a whole number")?)?;
        if let Some(&other) = self.positions.get(&id) {
            let expected = format!("an id that no other coflow has (line {} has it)", self.lines[other]);
            return Err(line.error("id", id, expected));
        }
        let mut coflow = CoflowSpec::new(id, Time::ZERO, Vec::new());
        let mut parents = Vec::new();
        const KEYS: &[&str] = &[
            "arrival",
            "weight",
            "deadline",
            "service",
            "application",
            "job",
            "stage",
            "wave",
            "parents",
            "compute-before",
            "compute-after",
        ];
        let (mut service, mut application) = (Names::DEFAULT, Names::DEFAULT);
        let mut keys = Keys::new(fields, KEYS);
        while let Some((key, value)) = keys.next()? {
            match key {
                "service" => service = name(line, key, value)?,
                "application" => application = name(line, key, value)?,
                "arrival" => coflow.arrival = time(line, key, value)?,
                "weight" => coflow.weight = within(line, key, value, MIN_WEIGHT, MAX_WEIGHT)?,
                "deadline" => coflow.deadline = Some(time(line, key, value)?),
                "job" => coflow.job = Some(whole(line, key, value)?),
                "stage" => coflow.stage = Some(whole(line, key, value)?),
                "wave" => coflow.wave = Some(whole(line, key, value)?),
                "compute-before" => coflow.compute_before = time(line, key, value)?,
                "compute-after" => coflow.compute_after = time(line, key, value)?,
                _ => parents = self.parents(line, id, value)?,
            }
        }
        let Some(numbers) = self.names.number(service, application) else {
            let expected = format!("at most {} applications in all", Names::MAX_APPLICATIONS);
            return Err(line.error("application", application, expected));
        };
        (coflow.service, coflow.application) = numbers;
        self.positions.insert(id, self.coflows.len());
        self.lines.push(line.number);
        self.parents.push(parents);
        self.coflows.push(coflow);
        Ok(())
    }

    /// The ids in a list of parents.
    fn parents(&mut self, line: Line<'_>, id: u64, value: &str) -> Result<Vec<u64>, TraceError> {
        let mut ids = Vec::new();
        for (position, text) in value.split(',').enumerate() {
            let parent = whole(line, format_args!("parent {}", position + 1), text)?;
            if parent == id {
                let expected = "another coflow: none waits for itself";
                return Err(line.error(format_args!("parent {}", position + 1), parent, expected));
            }
            self.parent_count += 1;
            if self.parent_count > self.limits.max_flows {
                return Err(line.error("parents", self.parent_count, self.limits.expected("parents")));
            }
            ids.push(parent);
        }
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(line.error("parents", pair[0], "each parent once")),
            None => Ok(ids),
        }
    }

    /// Completes the coflow that is being read, if any. `line` is the first line after it.
    fn close(&mut self, line: Line<'_>) -> Result<(), TraceError> {
        let (Some(coflow), Some(&number)) = (self.coflows.last(), self.lines.last()) else {
            return Ok(());
        };
        let at = Line { number, ..line };
        if coflow.flows.is_empty() {
            let expected = "one or more lines of `flow` or `shuffle` to follow";
            return Err(at.error("coflow", coflow.id, expected));
        }
        self.bytes += coflow.bytes();
        if self.bytes >= MAX_BYTES {
            let value = format!("{:e} bytes up to here", self.bytes);
            return Err(at.error("coflow sizes", value, "a trace of less than 2^53 bytes"));
        }
        Ok(())
    }

    /// Counts `more` flows, and returns the flows of the coflow that is being read.
    fn count(&mut self, line: Line<'_>, more: usize) -> Result<&mut Vec<FlowSpec>, TraceError> {
        let flows = self.flows.saturating_add(more);
        if flows > self.limits.max_flows {
            return Err(line.error("flows", flows, self.limits.expected("flows")));
        }
        let Some(coflow) = self.coflows.last_mut() else {
            return Err(line.error("line", "a flow without a coflow", "a line of `coflow` before it"));
        };
        self.flows = flows;
        Ok(&mut coflow.flows)
    }

    fn flow(&mut self, mut fields: Fields<'_>) -> Result<(), TraceError> {
        let line = fields.line;
        let expected = number::port_expected(self.ports);
        let src = port(line, "source", fields.required("source", &expected)?, self.ports)?;
        let dst = port(line, "destination", fields.required("destination", &expected)?, self.ports)?;
        let bytes = size(line, "size", fields.required("size", "a size such as 48MB")?)?;
        let release = release(fields)?;
        self.count(line, 1)?.push(FlowSpec { src, dst, bytes, release });
        Ok(())
    }

    fn shuffle(&mut self, mut fields: Fields<'_>) -> Result<(), TraceError> {
        let line = fields.line;
        let left = self.limits.max_flows - self.flows;
        let text = fields.required("mappers", "ports, separated by commas")?;
        let mut mappers = Vec::new();
        for (position, text) in text.split(',').enumerate() {
            mappers.push(port(line, format_args!("mapper {}", position + 1), text, self.ports)?);
            if mappers.len() > left {
                self.count(line, mappers.len())?;
            }
        }
        let expected = "`<port>:<size>`, separated by commas";
        let text = fields.required("reducers", expected)?;
        let mut reducers = Vec::new();
        for (position, text) in text.split(',').enumerate() {
            let position = position + 1;
            let Some((at, bytes)) = text.split_once(':') else {
                return Err(line.error(format_args!("reducer {position}"), text, "`<port>:<size>`"));
            };
            let at = port(line, format_args!("reducer {position} port"), at, self.ports)?;
            let bytes = size(line, format_args!("reducer {position} size"), bytes)?;
            let part = Bytes::new(bytes.get() / mappers.len() as f64).unwrap_or(Bytes::ZERO);
            reducers.push((at, part));
            if reducers.len().saturating_mul(mappers.len()) > left {
                self.count(line, reducers.len().saturating_mul(mappers.len()))?;
            }
        }
        let release = release(fields)?;
        let flows = self.count(line, mappers.len() * reducers.len())?;
        shuffle::push(flows, &mappers, &reducers, release);
        Ok(())
    }

    fn event(&mut self, mut fields: Fields<'_>) -> Result<(), TraceError> {
        const FORMS: &str = "`restart`, `late`, or `port=<port>`";
        let line = fields.line;
        let at = time(line, "time", fields.required("time", "a time such as 5s")?)?;
        if self.events.len() >= self.limits.max_flows {
            return Err(line.error("event", self.events.len() + 1, self.limits.expected("events")));
        }
        let mut ahead = fields.clone();
        let what = match ahead.required("event", FORMS)? {
            "restart" => {
                let [id, flow] = Keys::new(ahead, &["coflow", "flow"]).all()?;
                DraftChange::Restart { id: whole(line, "coflow", id)?, flow: whole(line, "flow", flow)? }
            }
            "late" => {
                let [id, flow, until] = Keys::new(ahead, &["coflow", "flow", "until"]).all()?;
                let (id, flow) = (whole(line, "coflow", id)?, whole(line, "flow", flow)?);
                let end = time(line, "until", until)?;
                if end < at {
                    return Err(line.error("until", until, format!("{at} or later, when the event is")));
                }
                DraftChange::Late { id, flow, until: end }
            }
            other if !other.contains('=') => return Err(line.error("event", other, FORMS)),
            _ => {
                let [at, side, factor] = Keys::new(fields, &["port", "side", "rate"]).all()?;
                let factor = within(line, "rate", factor, 0.0, MAX_FACTOR)?;
                let port = port(line, "port", at, self.ports)?;
                DraftChange::PortRate { port, side: side_of(line, side)?, factor }
            }
        };
        self.events.push(Draft { line: line.number, at, what });
        Ok(())
    }

    /// The workload, with ids resolved and events sorted by time.
    fn end<R: BufRead>(mut self, lines: &Lines<'_, R>) -> Result<Workload, TraceError> {
        self.close(lines.end())?;
        let positions = &self.positions;
        for (child, ids) in self.parents.iter().enumerate() {
            for (position, id) in ids.iter().enumerate() {
                let Some(&parent) = positions.get(id) else {
                    let field = format!("parent {}", position + 1);
                    return Err(lines.error_at(
                        self.lines[child],
                        field,
                        id,
                        "the id of a coflow in the trace",
                    ));
                };
                self.coflows[child].parents.push(parent);
            }
        }
        if let Err(circle) = dag::order(&self.coflows) {
            let ids: Vec<u64> = circle.iter().chain(circle.first()).map(|&c| self.coflows[c].id).collect();
            let start = circle.first().map_or(1, |&c| self.lines[c]);
            let path = ids.iter().map(u64::to_string).collect::<Vec<_>>().join(" waits for ");
            return Err(lines.error_at(start, "parents", path, "coflows that do not wait for themselves"));
        }
        self.events.sort_by(|a, b| a.at.get().total_cmp(&b.at.get()));
        let mut events = Vec::with_capacity(self.events.len());
        let flow_of = |line: usize, id: u64, flow: usize| {
            let Some(&coflow) = positions.get(&id) else {
                return Err(lines.error_at(line, "coflow", id, "the id of a coflow in the trace"));
            };
            let flows = self.coflows[coflow].flows.len();
            if flow < flows {
                return Ok(coflow);
            }
            let expected = format!("the position of one of the coflow's {flows} flows, from 0");
            Err(lines.error_at(line, "flow", flow, expected))
        };
        for Draft { line, at, what } in self.events {
            let what = match what {
                DraftChange::PortRate { port, side, factor } => Change::PortRate { port, side, factor },
                DraftChange::Restart { id, flow } => {
                    Change::Restart { coflow: flow_of(line, id, flow)?, flow }
                }
                DraftChange::Late { id, flow, until } => {
                    Change::Late { coflow: flow_of(line, id, flow)?, flow, until }
                }
            };
            events.push(TimedEvent { at, what });
        }
        let names = if self.coflows.is_empty() { Names::default() } else { self.names };
        let workload = Workload { ports: self.ports, coflows: self.coflows, events, names };
        match workload.check() {
            Ok(()) => Ok(workload),
            Err(error) => Err(lines.error_at(1, "trace", error, "a trace that holds together")),
        }
    }
}
