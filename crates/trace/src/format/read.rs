//! Parses Weir's own trace format.

use std::collections::HashMap;
use std::io::BufRead;

use weir_core::model::{CoflowSpec, FlowSpec, PortSide, ServiceNames, TimedEvent, Workload, WorkloadChange};
use weir_core::units::{Bytes, Time};
use weir_fields::FileError;

use super::values::{
    KeyValueFields, parse_file_time, parse_in_range, parse_integer, parse_name, parse_port, parse_release,
    parse_side, parse_size, parse_time,
};
use super::{MAGIC, VERSION};
use crate::bounds::{Limits, MAX_BYTES, MAX_PORT_RATE_FACTOR, MAX_WEIGHT, MIN_WEIGHT};
use crate::dag;
use crate::file_time::{FileTime, TimeShift};
use crate::lines::{Line, LineFields, LineReader};
use crate::number;
use crate::options::TraceOptions;
use crate::shuffle;
use crate::{PORT_NAME_RULE, Parsed, is_port_name};

/// The expected value in errors about unknown statements.
const EXPECTED_STATEMENT: &str = "a line of `port`, `coflow`, `flow`, `shuffle` or `event`";

pub(crate) fn parse<R: BufRead>(
    lines: &mut LineReader<'_, R>,
    options: &TraceOptions,
) -> Result<Parsed, FileError> {
    let Some(line) = lines.next()? else {
        return Err(lines.end_of_file_error("header", format!("`{MAGIC} {VERSION}`")));
    };
    parse_header(line)?;
    let mut reader = loop {
        let Some(line) = lines.next()? else {
            return Err(lines.end_of_file_error("ports", "`ports <number>`"));
        };
        if let Some(fields) = content_fields(line) {
            break Reader::new(parse_ports(fields)?, &options.limits, options.shift_step);
        }
    };
    while let Some(line) = lines.next()? {
        if let Some(fields) = content_fields(line) {
            reader.parse_line(fields)?;
        }
    }
    reader.finish(lines)
}

/// The content of a line without its comment, if any.
fn content_fields(line: Line<'_>) -> Option<LineFields<'_>> {
    let text = line.text.split('#').next().unwrap_or_default().trim_ascii();
    (!text.is_empty()).then(|| Line { text, ..line }.fields())
}

fn parse_header(line: Line<'_>) -> Result<(), FileError> {
    let expected = format!("`{MAGIC} {VERSION}`");
    let mut fields = content_fields(line).ok_or_else(|| line.error("header", line.text, &expected))?;
    let magic = fields.required("header", &expected)?;
    if magic != MAGIC {
        return Err(line.error("header", magic, &expected));
    }
    let version = fields.required("version", &expected)?;
    if number::parse_integer(version) != Some(VERSION) {
        return Err(line.error("version", version, format!("{VERSION}, the only supported version")));
    }
    fields.finish()
}

fn parse_ports(mut fields: LineFields<'_>) -> Result<u32, FileError> {
    let line = fields.line;
    let keyword = fields.required("ports", "`ports <number>`")?;
    if keyword != "ports" {
        return Err(line.error("ports", keyword, "`ports <number>` before anything else"));
    }
    let expected = format!("a number of ports from 1 to {}", Workload::MAX_PORTS);
    let text = fields.required("ports", &expected)?;
    let ports = number::parse_integer(text)
        .filter(|ports| (1..=Workload::MAX_PORTS).contains(ports))
        .ok_or_else(|| line.error("ports", text, &expected))?;
    fields.finish()?;
    Ok(ports)
}

/// An event whose coflow may not have been read yet.
struct UnresolvedEvent {
    line: usize,
    time: FileTime,
    change: UnresolvedChange,
}

enum UnresolvedChange {
    PortRate { port: u32, side: PortSide, factor: f64 },
    RestartFlow { id: u64, flow: usize },
    DelayFlow { id: u64, flow: usize, until: FileTime },
}

/// The state of reading.
struct Reader<'a> {
    limits: &'a Limits,
    /// The step of the shift of times.
    step: Option<Time>,
    ports: u32,
    coflows: Vec<CoflowSpec>,
    arrivals: Vec<FileTime>,
    /// By coflow, its line, and the ids of its parents.
    coflow_lines: Vec<usize>,
    parent_ids: Vec<Vec<u64>>,
    /// The index of each coflow, by id.
    coflow_indices: HashMap<u64, usize>,
    events: Vec<UnresolvedEvent>,
    names: ServiceNames,
    /// The names of the first ports.
    port_names: Vec<String>,
    /// Numbers of flows and parents, and bytes of completely read coflows.
    flow_count: usize,
    parent_count: usize,
    total_bytes: f64,
}

impl<'a> Reader<'a> {
    fn new(ports: u32, limits: &'a Limits, step: Option<Time>) -> Reader<'a> {
        Reader {
            limits,
            step,
            ports,
            coflows: Vec::new(),
            arrivals: Vec::new(),
            coflow_lines: Vec::new(),
            parent_ids: Vec::new(),
            coflow_indices: HashMap::new(),
            events: Vec::new(),
            names: ServiceNames::empty(),
            port_names: Vec::new(),
            flow_count: 0,
            parent_count: 0,
            total_bytes: 0.0,
        }
    }

    fn parse_line(&mut self, mut fields: LineFields<'_>) -> Result<(), FileError> {
        match fields.required("line", EXPECTED_STATEMENT)? {
            "coflow" => self.parse_coflow(fields),
            "flow" => self.parse_flow(fields),
            "shuffle" => self.parse_shuffle(fields),
            "event" => self.parse_event(fields),
            "port" => self.parse_port_name(fields),
            "ports" => Err(fields.line.error("ports", "a second `ports` line", EXPECTED_STATEMENT)),
            other => Err(fields.line.error("line", other, EXPECTED_STATEMENT)),
        }
    }

    /// Ports have names in their order, so that a file is read back as it was written.
    fn parse_port_name(&mut self, mut fields: LineFields<'_>) -> Result<(), FileError> {
        let line = fields.line;
        let expected = format!("{}, the next port without a name", self.port_names.len());
        let text = fields.required("port", &expected)?;
        let port =
            number::parse_port(text, self.ports).filter(|&port| port as usize == self.port_names.len());
        port.ok_or_else(|| line.error("port", text, &expected))?;
        let name = fields.required("name", PORT_NAME_RULE)?;
        if !is_port_name(name) {
            return Err(line.error("name", name, PORT_NAME_RULE));
        }
        self.port_names.push(name.to_owned());
        fields.finish()
    }

    fn parse_coflow(&mut self, mut fields: LineFields<'_>) -> Result<(), FileError> {
        let line = fields.line;
        self.finish_coflow(line)?;
        let id = parse_integer(line, "id", fields.required("id", "a whole number")?)?;
        if let Some(&other) = self.coflow_indices.get(&id) {
            let expected =
                format!("an id that no other coflow has (line {} has it)", self.coflow_lines[other]);
            return Err(line.error("id", id, expected));
        }
        let mut coflow = CoflowSpec::new(id, Time::ZERO, Vec::new());
        let mut arrival = FileTime::ZERO;
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
            "overlapped-compute",
            "compute-after",
            "transfer-limit",
        ];
        let (mut service, mut application) = (ServiceNames::DEFAULT, ServiceNames::DEFAULT);
        let mut keys = KeyValueFields::new(fields, KEYS);
        while let Some((key, value)) = keys.next()? {
            match key {
                "service" => service = parse_name(line, key, value)?,
                "application" => application = parse_name(line, key, value)?,
                "arrival" => arrival = self.parse_late_time(line, key, value)?,
                "weight" => coflow.weight = parse_in_range(line, key, value, MIN_WEIGHT, MAX_WEIGHT)?,
                "deadline" => coflow.deadline = Some(parse_time(line, key, value)?),
                "job" => coflow.job = Some(parse_integer(line, key, value)?),
                "stage" => coflow.stage = Some(parse_integer(line, key, value)?),
                "wave" => coflow.wave = Some(parse_integer(line, key, value)?),
                "compute-before" => coflow.compute_before = parse_time(line, key, value)?,
                "overlapped-compute" => coflow.overlapped_compute = parse_time(line, key, value)?,
                "compute-after" => coflow.compute_after = parse_time(line, key, value)?,
                "transfer-limit" => coflow.max_transfer_time = Some(parse_time(line, key, value)?),
                _ => parents = self.parse_parents(line, id, value)?,
            }
        }
        let Some(numbers) = self.names.intern(service, application) else {
            let expected = format!("at most {} applications in total", ServiceNames::MAX_APPLICATIONS);
            return Err(line.error("application", application, expected));
        };
        (coflow.service, coflow.application) = numbers;
        self.coflow_indices.insert(id, self.coflows.len());
        self.coflow_lines.push(line.number);
        self.parent_ids.push(parents);
        self.coflows.push(coflow);
        self.arrivals.push(arrival);
        Ok(())
    }

    /// A point in time, which a shift may make earlier.
    fn parse_late_time(&self, line: Line<'_>, field: &str, text: &str) -> Result<FileTime, FileError> {
        let (max_seconds, advice) =
            (TimeShift::max_seconds(self.step), |time| TimeShift::advice(self.step, time));
        parse_file_time(line, field, text, max_seconds, advice)
    }

    /// The ids in a list of parents.
    fn parse_parents(&mut self, line: Line<'_>, id: u64, value: &str) -> Result<Vec<u64>, FileError> {
        let mut ids = Vec::new();
        for (position, text) in value.split(',').enumerate() {
            let parent = parse_integer(line, format_args!("parent {}", position + 1), text)?;
            if parent == id {
                let expected = "another coflow; a coflow cannot be its own parent";
                return Err(line.error(format_args!("parent {}", position + 1), parent, expected));
            }
            self.parent_count += 1;
            if self.parent_count > self.limits.max_flows {
                return Err(line.error(
                    "parents",
                    self.parent_count,
                    self.limits.expected_at_most("parents"),
                ));
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
    fn finish_coflow(&mut self, line: Line<'_>) -> Result<(), FileError> {
        let (Some(coflow), Some(&number)) = (self.coflows.last(), self.coflow_lines.last()) else {
            return Ok(());
        };
        let coflow_line = Line { number, ..line };
        if coflow.flows.is_empty() {
            let expected = "one or more lines of `flow` or `shuffle` to follow";
            return Err(coflow_line.error("coflow", coflow.id, expected));
        }
        self.total_bytes += coflow.total_bytes();
        if self.total_bytes >= MAX_BYTES {
            let value = format!("{:e} bytes up to here", self.total_bytes);
            return Err(coflow_line.error("coflow sizes", value, "a trace of less than 2^53 bytes"));
        }
        Ok(())
    }

    /// Counts `more` flows, and returns the flows of the coflow that is being read.
    fn reserve_flows(&mut self, line: Line<'_>, additional: usize) -> Result<&mut Vec<FlowSpec>, FileError> {
        let flows = self.flow_count.saturating_add(additional);
        if flows > self.limits.max_flows {
            return Err(line.error("flows", flows, self.limits.expected_at_most("flows")));
        }
        let Some(coflow) = self.coflows.last_mut() else {
            return Err(line.error("line", "a flow without a coflow", "a line of `coflow` before it"));
        };
        self.flow_count = flows;
        Ok(&mut coflow.flows)
    }

    fn parse_flow(&mut self, mut fields: LineFields<'_>) -> Result<(), FileError> {
        let line = fields.line;
        let expected = number::expected_port(self.ports);
        let src = parse_port(line, "source", fields.required("source", &expected)?, self.ports)?;
        let dst = parse_port(line, "destination", fields.required("destination", &expected)?, self.ports)?;
        let bytes = parse_size(line, "size", fields.required("size", "a size such as 48MB")?)?;
        let release = parse_release(fields)?;
        self.reserve_flows(line, 1)?.push(FlowSpec { data_delay: release, ..FlowSpec::new(src, dst, bytes) });
        Ok(())
    }

    fn parse_shuffle(&mut self, mut fields: LineFields<'_>) -> Result<(), FileError> {
        let line = fields.line;
        let remaining_flows = self.limits.max_flows - self.flow_count;
        let text = fields.required("mappers", "ports, separated by commas")?;
        let mut mappers = Vec::new();
        for (position, text) in text.split(',').enumerate() {
            mappers.push(parse_port(line, format_args!("mapper {}", position + 1), text, self.ports)?);
            if mappers.len() > remaining_flows {
                self.reserve_flows(line, mappers.len())?;
            }
        }
        let expected = "`<port>:<size>`, separated by commas";
        let text = fields.required("reducers", expected)?;
        let mut reducers = Vec::new();
        for (position, text) in text.split(',').enumerate() {
            let position = position + 1;
            let Some((port_text, bytes)) = text.split_once(':') else {
                return Err(line.error(format_args!("reducer {position}"), text, "`<port>:<size>`"));
            };
            let port = parse_port(line, format_args!("reducer {position} port"), port_text, self.ports)?;
            let bytes = parse_size(line, format_args!("reducer {position} size"), bytes)?;
            let bytes_per_mapper = Bytes::new(bytes.get() / mappers.len() as f64).unwrap_or(Bytes::ZERO);
            reducers.push((port, bytes_per_mapper));
            if reducers.len().saturating_mul(mappers.len()) > remaining_flows {
                self.reserve_flows(line, reducers.len().saturating_mul(mappers.len()))?;
            }
        }
        let release = parse_release(fields)?;
        let flows = self.reserve_flows(line, mappers.len() * reducers.len())?;
        shuffle::push_flows(flows, &mappers, &reducers, release);
        Ok(())
    }

    fn parse_event(&mut self, mut fields: LineFields<'_>) -> Result<(), FileError> {
        const FORMS: &str = "`restart`, `late`, or `port=<port>`";
        let line = fields.line;
        let at = self.parse_late_time(line, "time", fields.required("time", "a time such as 5s")?)?;
        if self.events.len() >= self.limits.max_flows {
            return Err(line.error("event", self.events.len() + 1, self.limits.expected_at_most("events")));
        }
        let mut lookahead = fields.clone();
        let change = match lookahead.required("event", FORMS)? {
            "restart" => {
                let [id, flow] = KeyValueFields::new(lookahead, &["coflow", "flow"]).required_values()?;
                UnresolvedChange::RestartFlow {
                    id: parse_integer(line, "coflow", id)?,
                    flow: parse_integer(line, "flow", flow)?,
                }
            }
            "late" => {
                let [id, flow, until] =
                    KeyValueFields::new(lookahead, &["coflow", "flow", "until"]).required_values()?;
                let (id, flow) = (parse_integer(line, "coflow", id)?, parse_integer(line, "flow", flow)?);
                let end = self.parse_late_time(line, "until", until)?;
                if end.cmp(&at).is_lt() {
                    let expected = format!("{} or later, when the event is", at.time);
                    return Err(line.error("until", until, expected));
                }
                UnresolvedChange::DelayFlow { id, flow, until: end }
            }
            other if !other.contains('=') => return Err(line.error("event", other, FORMS)),
            _ => {
                let [port_text, side, factor] =
                    KeyValueFields::new(fields, &["port", "side", "rate"]).required_values()?;
                let factor = parse_in_range(line, "rate", factor, 0.0, MAX_PORT_RATE_FACTOR)?;
                let port = parse_port(line, "port", port_text, self.ports)?;
                UnresolvedChange::PortRate { port, side: parse_side(line, side)?, factor }
            }
        };
        self.events.push(UnresolvedEvent { line: line.number, time: at, change });
        Ok(())
    }

    /// The workload, with ids resolved and events sorted by time.
    fn finish<R: BufRead>(mut self, lines: &LineReader<'_, R>) -> Result<Parsed, FileError> {
        self.finish_coflow(lines.end_of_input())?;
        let coflow_indices = &self.coflow_indices;
        for (child, ids) in self.parent_ids.iter().enumerate() {
            for (position, id) in ids.iter().enumerate() {
                let Some(&parent) = coflow_indices.get(id) else {
                    let field = format!("parent {}", position + 1);
                    return Err(lines.error_at(
                        self.coflow_lines[child],
                        field,
                        id,
                        "the id of a coflow in the trace",
                    ));
                };
                self.coflows[child].parents.push(parent);
            }
        }
        if let Err(cycle) = dag::topological_order(&self.coflows) {
            let ids: Vec<u64> = cycle.iter().chain(cycle.first()).map(|&c| self.coflows[c].id).collect();
            let start = cycle.first().map_or(1, |&c| self.coflow_lines[c]);
            let path = ids.iter().map(u64::to_string).collect::<Vec<_>>().join(" depends on ");
            return Err(lines.error_at(start, "parents", path, "no cycle of parents"));
        }
        self.events.sort_by(|a, b| a.time.cmp(&b.time));
        let shift = TimeShift::new(self.step, &self.coflows, &self.arrivals);
        for ((coflow, arrival), line) in self.coflows.iter_mut().zip(&self.arrivals).zip(&self.coflow_lines) {
            let error = || lines.error_at(*line, "arrival", arrival.time, shift.expected());
            coflow.arrival = shift.apply(*arrival).ok_or_else(error)?;
        }
        let shifted = |line: usize, field: &str, time: FileTime| {
            shift.apply(time).ok_or_else(|| lines.error_at(line, field, time.time, shift.expected()))
        };
        let mut events = Vec::with_capacity(self.events.len());
        let resolve_coflow = |line: usize, id: u64, flow: usize| {
            let Some(&coflow) = coflow_indices.get(&id) else {
                return Err(lines.error_at(line, "coflow", id, "the id of a coflow in the trace"));
            };
            let flows = self.coflows[coflow].flows.len();
            if flow < flows {
                return Ok(coflow);
            }
            let expected =
                format!("the position of a flow, from 0; the number of flows of the coflow is {flows}");
            Err(lines.error_at(line, "flow", flow, expected))
        };
        for UnresolvedEvent { line, time: at, change: what } in self.events {
            let change = match what {
                UnresolvedChange::PortRate { port, side, factor } => {
                    WorkloadChange::PortRate { port, side, factor }
                }
                UnresolvedChange::RestartFlow { id, flow } => {
                    WorkloadChange::RestartFlow { coflow: resolve_coflow(line, id, flow)?, flow }
                }
                UnresolvedChange::DelayFlow { id, flow, until } => {
                    let until = shifted(line, "until", until)?;
                    WorkloadChange::DelayFlow { coflow: resolve_coflow(line, id, flow)?, flow, until }
                }
            };
            events.push(TimedEvent { time: shifted(line, "time", at)?, change });
        }
        let names = if self.coflows.is_empty() { ServiceNames::default() } else { self.names };
        let workload = Workload { ports: self.ports, coflows: self.coflows, events, names };
        match workload.check() {
            Ok(()) => Ok(Parsed { port_names: self.port_names, ..Parsed::new(workload, shift) }),
            Err(error) => Err(lines.error_at(1, "trace", error, "a consistent trace")),
        }
    }
}
