//! Reads a table with a flow in each line, such as CSV.
//!
//! [`Columns`] name the columns, by their names in the first line or by their numbers from 1. Fields are separated by commas, semicolons
//! or tabs, whichever the first line has, and otherwise by white space. Flows with the same text in the column `coflow` are one coflow,
//! which arrives with the first of them; without that column each flow is a coflow.
//!
//! If all hosts are whole numbers, these are the ports; otherwise ports are numbered in the order of the first mention, and the trace
//! keeps the names. Coflows keep their numbers likewise.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::BufRead;
use std::str::FromStr;

use weir_core::model::{CoflowSpec, FlowSpec, Workload};
use weir_core::units::{Bytes, Time};
use weir_fields::FileError;

use crate::Parsed;
use crate::builder::{TimeUnit, WorkloadBuilder, parse_size};
use crate::file_time::FileTime;
use crate::lines::{END_OF_LINE, Line, LineReader};
use crate::number;
use crate::options::TraceOptions;

/// The columns of a table of flows, as in `start=start_ms:ms,src=from,dst=to,bytes=size_kB:kB,coflow=shuffle`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    start: Option<Column>,
    src: Column,
    dst: Column,
    bytes: Column,
    coflow: Option<Column>,
}

/// A column, and the unit of its values.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Column {
    /// A name in the first line, or a number from 1.
    name: String,
    unit: Option<String>,
}

/// A text that is no [`Columns`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{value}`: expected {expected}")]
pub struct ColumnsError {
    value: String,
    expected: String,
}

/// The units of sizes, in bytes.
const SIZE_UNITS: [(&str, f64); 9] = [
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
];

impl FromStr for Columns {
    type Err = ColumnsError;

    fn from_str(text: &str) -> Result<Columns, ColumnsError> {
        let error = |value: &str, expected: &str| ColumnsError {
            value: weir_fields::format_value(value),
            expected: expected.to_owned(),
        };
        const FORM: &str =
            "`<field>=<column>` or `<field>=<column>:<unit>` for `src`, `dst`, `bytes`, `start` and `coflow`";
        let mut columns: BTreeMap<&str, Column> = BTreeMap::new();
        for part in text.split(',') {
            let (field, column) = part.split_once('=').ok_or_else(|| error(part, FORM))?;
            let field = ["start", "src", "dst", "bytes", "coflow"].into_iter().find(|known| *known == field);
            let field = field.ok_or_else(|| error(part, FORM))?;
            let (name, unit) = match column.rsplit_once(':') {
                Some((name, unit)) if matches!(field, "start" | "bytes") => (name, Some(unit.to_owned())),
                _ => (column, None),
            };
            let is_known = |unit: &String| match field {
                "start" => TimeUnit::ALL.iter().any(|known| known.symbol == unit),
                _ => SIZE_UNITS.iter().any(|(known, _)| known == unit),
            };
            if !unit.as_ref().is_none_or(is_known) {
                return Err(error(
                    part,
                    "one of s, ms, us, ns and ps for `start`, and a unit such as B, kB or MiB for `bytes`",
                ));
            }
            if name.is_empty() || columns.insert(field, Column { name: name.to_owned(), unit }).is_some() {
                return Err(error(part, "a column for each field, once"));
            }
        }
        let mut required = |field: &str| {
            columns.remove(field).ok_or_else(|| error(text, &format!("a column for `{field}`")))
        };
        let (src, dst, bytes) = (required("src")?, required("dst")?, required("bytes")?);
        let columns =
            Columns { start: columns.remove("start"), coflow: columns.remove("coflow"), src, dst, bytes };
        let numbers = columns.all().filter(|column| column.number().is_some()).count();
        match numbers == 0 || numbers == columns.all().count() {
            true => Ok(columns),
            false => Err(error(text, "names for all columns, or numbers for all")),
        }
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = ["start", "src", "dst", "bytes", "coflow"];
        let columns =
            [self.start.as_ref(), Some(&self.src), Some(&self.dst), Some(&self.bytes), self.coflow.as_ref()];
        let mut separator = "";
        for (field, column) in fields.into_iter().zip(columns).filter_map(|(f, c)| Some((f, c?))) {
            let unit = column.unit.as_ref().map(|unit| format!(":{unit}")).unwrap_or_default();
            write!(f, "{separator}{field}={}{unit}", column.name)?;
            separator = ",";
        }
        Ok(())
    }
}

impl Columns {
    fn all(&self) -> impl Iterator<Item = &Column> {
        [Some(&self.src), Some(&self.dst), Some(&self.bytes), self.start.as_ref(), self.coflow.as_ref()]
            .into_iter()
            .flatten()
    }
}

impl Column {
    /// The position from 0, if the column is a number.
    fn number(&self) -> Option<usize> {
        number::parse_integer(&self.name).and_then(|number: usize| number.checked_sub(1))
    }

    /// The position from 0 in lines; `names` are the fields of the first line, unless columns are numbers.
    fn position(&self, line: Line<'_>, names: &Fields) -> Result<usize, FileError> {
        let found = self.number().or_else(|| names.iter().position(|name| name.trim() == self.name));
        found.ok_or_else(|| {
            let expected = format!("a column named `{}` (--columns)", self.name);
            line.error("columns", line.text, expected)
        })
    }
}

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

/// Numbers for texts: the texts themselves if all are whole numbers, otherwise the order of the first mention.
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

    /// The numbers below `bound` that all texts are.
    fn numbers(&self, bound: u64) -> Option<Vec<u64>> {
        let parse = |text: &String| number::parse_integer(text).filter(|&number: &u64| number < bound);
        self.texts.iter().map(parse).collect()
    }
}

/// A coflow whose flows may not have been read completely.
struct OpenCoflow {
    line: usize,
    arrival: FileTime,
    flows: Vec<FlowSpec>,
    starts: Vec<FileTime>,
}

/// Where the columns are in a line.
struct Positions {
    start: Option<usize>,
    src: usize,
    dst: usize,
    bytes: usize,
    coflow: Option<usize>,
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
    let position = |column: &Column| column.position(first, &table.fields);
    let positions = Positions {
        start: columns.start.as_ref().map(position).transpose()?,
        src: position(&columns.src)?,
        dst: position(&columns.dst)?,
        bytes: position(&columns.bytes)?,
        coflow: columns.coflow.as_ref().map(position).transpose()?,
    };
    if columns.src.number().is_some() {
        table.parse_flow(first, &positions)?;
    }
    while let Some(line) = lines.next_content()? {
        table.fields.split(line.text, separator);
        table.parse_flow(line, &positions)?;
    }
    table.finish(lines)
}

/// The rows so far.
struct Table<'a> {
    columns: &'a Columns,
    builder: WorkloadBuilder<'a>,
    /// The fields of the current line; reused to save allocations.
    fields: Fields,
    hosts: Numbering,
    coflow_keys: Numbering,
    coflows: Vec<OpenCoflow>,
}

impl<'a> Table<'a> {
    fn new(columns: &'a Columns, options: &'a TraceOptions) -> Table<'a> {
        Table {
            columns,
            builder: WorkloadBuilder::new(options),
            fields: Fields::default(),
            hosts: Numbering::default(),
            coflow_keys: Numbering::default(),
            coflows: Vec::new(),
        }
    }

    fn parse_flow(&mut self, line: Line<'_>, positions: &Positions) -> Result<(), FileError> {
        let Table { columns, builder, fields, hosts, coflow_keys, coflows } = self;
        let field = |name: &str, position: usize| {
            let text = fields.get(position).map(str::trim).filter(|text| !text.is_empty());
            text.ok_or_else(|| line.error(name, END_OF_LINE, format!("a value in column {}", position + 1)))
        };
        let src = parse_host(line, "src", field("src", positions.src)?)?;
        let dst = parse_host(line, "dst", field("dst", positions.dst)?)?;
        let (src, dst) = (hosts.index(src), hosts.index(dst));
        if hosts.texts.len() > Workload::MAX_PORTS as usize {
            let expected = format!("at most {} hosts", Workload::MAX_PORTS);
            return Err(line.error("hosts", hosts.texts.len(), expected));
        }
        let unit = columns.bytes.unit.as_deref().unwrap_or("B");
        let unit = SIZE_UNITS.iter().find(|(known, _)| *known == unit).map_or(1.0, |&(_, bytes)| bytes);
        let bytes: Bytes = parse_size(line, "bytes", field("bytes", positions.bytes)?, unit)?;
        let unit = columns.start.as_ref().and_then(|column| column.unit.as_deref()).unwrap_or("s");
        let unit = TimeUnit::ALL.into_iter().find(|known| known.symbol == unit).unwrap_or(TimeUnit::S);
        let start = match positions.start {
            Some(position) => builder.parse_time(line, "start", field("start", position)?, unit)?,
            None => FileTime::ZERO,
        };
        builder.reserve_flows(line, "flows", Some(1), 1)?;
        builder.add_bytes(line, "bytes", bytes.get())?;
        let coflow = match positions.coflow {
            Some(position) => coflow_keys.index(field("coflow", position)?),
            None => coflows.len(),
        };
        if coflow == coflows.len() {
            let (flows, starts) = (Vec::new(), Vec::new());
            coflows.push(OpenCoflow { line: line.number, arrival: start, flows, starts });
        }
        let open = &mut coflows[coflow];
        if start.cmp(&open.arrival).is_lt() {
            open.arrival = start;
        }
        open.starts.push(start);
        // The port is an index of a host until all are known.
        open.flows.push(FlowSpec::new(src as u32, dst as u32, bytes));
        Ok(())
    }

    fn finish<R: BufRead>(self, lines: &LineReader<'_, R>) -> Result<Parsed, FileError> {
        let Table { mut builder, hosts, coflow_keys, coflows, .. } = self;
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
            builder.push(CoflowSpec::new(id, Time::ZERO, flows), open.arrival);
        }
        let (workload, shift) = builder.finish(port_count, lines)?;
        let port_names = if ports.is_some() { Vec::new() } else { hosts.texts };
        Ok(Parsed { port_names, ..Parsed::new(workload, shift) })
    }
}

/// Checks the name of a host, which the trace keeps.
fn parse_host<'t>(line: Line<'_>, field: &str, text: &'t str) -> Result<&'t str, FileError> {
    match crate::is_port_name(text) {
        true => Ok(text),
        false => Err(line.error(field, text, crate::PORT_NAME_RULE)),
    }
}
