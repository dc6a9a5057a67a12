//! Reads a table with a flow in each line, such as CSV.
//!
//! [`Columns`] name the columns, by their names in the first line or by their numbers from 1. Fields are separated by commas, semicolons
//! or tabs, whichever the first line has, and otherwise by white space. Flows with the same text in the column `coflow` are one coflow,
//! which arrives with the first of them; without that column each flow is a coflow.
//!
//! If all hosts are different whole numbers, these are the ports; otherwise ports are numbered in the order of the first mention, and the
//! trace keeps the names. Hosts `1` and `01` are two names. Coflows keep their numbers likewise.

mod columns;

use std::collections::{HashMap, HashSet};
use std::io::BufRead;

use weir_core::model::{CoflowSpec, FlowSpec, ServiceNames, Workload};
use weir_core::units::{Bytes, Time};
use weir_fields::FileError;

use crate::Parsed;
use crate::bounds::{MAX_WEIGHT, MIN_WEIGHT};
use crate::builder::{self, WorkloadBuilder, parse_size};
use crate::file_time::FileTime;
use crate::lines::{END_OF_LINE, Line, LineReader};
use crate::number;
use crate::options::TraceOptions;

use columns::Content;
pub use columns::{Columns, ColumnsError};

/// The fields of a line.
#[derive(Default)]
struct Fields {
    text: String,
    ends: Vec<usize>,
}

impl Fields {
    fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.ends.len()).map(|at| self.get(at).unwrap_or_default())
    }

    fn get(&self, at: usize) -> Option<&str> {
        let end = *self.ends.get(at)?;
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        Some(&self.text[start..end])
    }

    /// Splits a line. In CSV, a field in quotation marks can contain the separator, and a doubled mark is a mark.
    fn split(&mut self, line: &str, separator: Option<char>) {
        self.text.clear();
        self.ends.clear();
        let Some(separator) = separator else {
            for field in line.split_ascii_whitespace() {
                self.text += field;
                self.ends.push(self.text.len());
            }
            return;
        };
        let mut is_quoted = false;
        let mut chars = line.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '"' if is_quoted && chars.next_if_eq(&'"').is_some() => self.text.push('"'),
                '"' => is_quoted = !is_quoted,
                c if c == separator && !is_quoted => self.ends.push(self.text.len()),
                c => self.text.push(c),
            }
        }
        self.ends.push(self.text.len());
    }
}

/// Numbers for texts: the texts themselves if all are different whole numbers, otherwise the order of the first mention.
#[derive(Default)]
struct Numbering {
    index_of: HashMap<String, usize>,
    texts: Vec<String>,
}

impl Numbering {
    fn index(&mut self, text: &str) -> usize {
        if let Some(&index) = self.index_of.get(text) {
            return index;
        }
        self.index_of.insert(text.to_owned(), self.texts.len());
        self.texts.push(text.to_owned());
        self.texts.len() - 1
    }

    /// The numbers below `bound` that all texts are. Texts such as `1` and `01` are no numbers, since they would be the same one.
    fn numbers(&self, bound: u64) -> Option<Vec<u64>> {
        let parse = |text: &String| number::parse_integer(text).filter(|&number: &u64| number < bound);
        let numbers: Vec<u64> = self.texts.iter().map(parse).collect::<Option<_>>()?;
        let mut known = HashSet::new();
        numbers.iter().all(|number| known.insert(*number)).then_some(numbers)
    }
}

/// A coflow whose flows may not have been read completely.
struct OpenCoflow {
    line: usize,
    arrival: FileTime,
    flows: Vec<FlowSpec>,
    starts: Vec<FileTime>,
    properties: Properties,
}

/// What all flows of a coflow have in common.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Properties {
    /// Numbers of names, in [`Table::names`].
    service: (u32, u32),
    weight: f64,
    deadline: Option<Time>,
}

pub(crate) fn parse<R: BufRead>(
    lines: &mut LineReader<'_, R>,
    columns: &Columns,
    options: &TraceOptions,
) -> Result<Parsed, FileError> {
    let mut table = Table::new(columns, options);
    let Some(first) = lines.next_content()? else {
        return Err(lines.end_of_file_error("flows", "a flow in each line"));
    };
    let separator = [',', ';', '\t'].into_iter().find(|separator| first.text.contains(*separator));
    table.fields.split(first.text, separator);
    table.positions = columns.positions(first, &table.fields)?;
    if columns.are_numbers() {
        table.parse_flow(first)?;
    }
    while let Some(line) = lines.next_content()? {
        table.fields.split(line.text, separator);
        table.parse_flow(line)?;
    }
    table.finish(lines)
}

/// The rows so far.
struct Table<'a> {
    columns: &'a Columns,
    /// The position of each column in lines.
    positions: [Option<usize>; Content::COUNT],
    builder: WorkloadBuilder<'a>,
    /// The fields of the current line; reused to save allocations.
    fields: Fields,
    hosts: Numbering,
    coflow_keys: Numbering,
    names: ServiceNames,
    coflows: Vec<OpenCoflow>,
}

impl<'a> Table<'a> {
    fn new(columns: &'a Columns, options: &'a TraceOptions) -> Table<'a> {
        Table {
            columns,
            positions: [None; Content::COUNT],
            builder: WorkloadBuilder::new(options),
            fields: Fields::default(),
            hosts: Numbering::default(),
            coflow_keys: Numbering::default(),
            names: ServiceNames::empty(),
            coflows: Vec::new(),
        }
    }

    fn parse_flow(&mut self, line: Line<'_>) -> Result<(), FileError> {
        let Table { columns, positions, builder, fields, hosts, coflow_keys, names, coflows } = self;
        let row = Row { line, columns, positions, fields };
        let src = hosts.index(row.host(Content::Src)?);
        let dst = hosts.index(row.host(Content::Dst)?);
        if hosts.texts.len() > Workload::MAX_PORTS as usize {
            let expected = format!("at most {} hosts", Workload::MAX_PORTS);
            return Err(line.error("hosts", hosts.texts.len(), expected));
        }
        let bytes = row.required(Content::Bytes)?;
        let bytes: Bytes = parse_size(line, "bytes", bytes, columns.size_unit())?;
        let start = match columns.contain(Content::Start) {
            true => {
                let unit = columns.time_unit(Content::Start);
                builder.parse_time(line, "start", row.required(Content::Start)?, unit)?
            }
            false => FileTime::ZERO,
        };
        builder.reserve_flows(line, "flows", Some(1), 1)?;
        builder.add_bytes(line, "bytes", bytes.get())?;
        let coflow = match columns.contain(Content::Coflow) {
            true => coflow_keys.index(row.required(Content::Coflow)?),
            false => coflows.len(),
        };
        let properties = row.properties(names)?;
        if coflow == coflows.len() {
            let (flows, starts) = (Vec::new(), Vec::new());
            coflows.push(OpenCoflow { line: line.number, arrival: start, flows, starts, properties });
        }
        let open = &mut coflows[coflow];
        if open.properties != properties {
            let expected = format!("the values of the coflow's first flow, in line {}", open.line);
            return Err(line.error("service, application, weight, deadline", "other values", expected));
        }
        if start.cmp(&open.arrival).is_lt() {
            open.arrival = start;
        }
        open.starts.push(start);
        // The port is an index of a host until all are known.
        open.flows.push(FlowSpec::new(src as u32, dst as u32, bytes));
        Ok(())
    }

    fn finish<R: BufRead>(self, lines: &LineReader<'_, R>) -> Result<Parsed, FileError> {
        let Table { mut builder, hosts, coflow_keys, coflows, names, .. } = self;
        let (end, ports) = (lines.end_of_input(), hosts.numbers(u64::from(Workload::MAX_PORTS)));
        let port_count = match &ports {
            Some(ports) => ports.iter().max().map_or(1, |&port| port as u32 + 1),
            None => hosts.texts.len() as u32,
        };
        let port = |host: u32| ports.as_ref().map_or(host, |ports| ports[host as usize] as u32);
        let ids = coflow_keys.numbers(u64::MAX).filter(|_| !coflow_keys.texts.is_empty());
        for (index, open) in coflows.into_iter().enumerate() {
            let id = ids.as_ref().map_or(index as u64 + 1, |ids| ids[index]);
            builder.take_id(Line { number: open.line, ..end }, id)?;
            let flow = |(flow, start): (FlowSpec, FileTime)| FlowSpec {
                src: port(flow.src),
                dst: port(flow.dst),
                data_delay: start.since(&open.arrival),
                ..flow
            };
            let flows = open.flows.into_iter().zip(open.starts).map(flow).collect();
            let Properties { service: (service, application), weight, deadline } = open.properties;
            let coflow = CoflowSpec::new(id, Time::ZERO, flows);
            builder.push(CoflowSpec { service, application, weight, deadline, ..coflow }, open.arrival);
        }
        let (workload, shift) = builder.with_names(names).finish(port_count, lines)?;
        let port_names = if ports.is_some() { Vec::new() } else { hosts.texts };
        Ok(Parsed { port_names, ..Parsed::new(workload, shift) })
    }
}

/// A line of the table.
struct Row<'r> {
    line: Line<'r>,
    columns: &'r Columns,
    positions: &'r [Option<usize>; Content::COUNT],
    fields: &'r Fields,
}

impl<'r> Row<'r> {
    /// The value of a column; none if it is empty, or the table does not have the column.
    fn optional(&self, content: Content) -> Option<&'r str> {
        let text = self.fields.get(self.positions[content as usize]?)?.trim();
        (!text.is_empty()).then_some(text)
    }

    fn required(&self, content: Content) -> Result<&'r str, FileError> {
        self.optional(content).ok_or_else(|| {
            let position = self.positions[content as usize].unwrap_or_default();
            let value = if self.fields.get(position).is_some() { "" } else { END_OF_LINE };
            self.line.error(content.name(), value, format!("a value in column {}", position + 1))
        })
    }

    /// The name of a host, which the trace keeps.
    fn host(&self, content: Content) -> Result<&'r str, FileError> {
        let name = self.required(content)?;
        match crate::is_port_name(name) {
            true => Ok(name),
            false => Err(self.line.error(content.name(), name, crate::PORT_NAME_RULE)),
        }
    }

    /// The name of a service or an application.
    fn name(&self, content: Content) -> Result<&'r str, FileError> {
        let name = self.optional(content).unwrap_or(ServiceNames::DEFAULT);
        match ServiceNames::is_name(name) {
            true => Ok(name),
            false => Err(self.line.error(content.name(), name, ServiceNames::NAME_RULE)),
        }
    }

    fn properties(&self, names: &mut ServiceNames) -> Result<Properties, FileError> {
        let application = self.name(Content::Application)?;
        let service = names.intern(self.name(Content::Service)?, application).ok_or_else(|| {
            let expected = format!("at most {} applications in total", ServiceNames::MAX_APPLICATIONS);
            self.line.error("application", application, expected)
        })?;
        let weight = self.optional(Content::Weight).map_or(Ok(1.0), |text| {
            let weight = number::parse_decimal(text).filter(|w| (MIN_WEIGHT..=MAX_WEIGHT).contains(w));
            let expected = || format!("a number from {MIN_WEIGHT:e} to {MAX_WEIGHT:e}");
            weight.ok_or_else(|| self.line.error("weight", text, expected()))
        })?;
        let unit = self.columns.time_unit(Content::Deadline);
        let parse_deadline = |text| builder::parse_duration(self.line, "deadline", text, unit);
        let deadline = self.optional(Content::Deadline).map(parse_deadline).transpose()?;
        Ok(Properties { service, weight, deadline })
    }
}
