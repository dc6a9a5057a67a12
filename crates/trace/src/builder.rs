//! Collects the coflows of a file, and checks them against the bounds of traces.

use std::collections::HashMap;
use std::fmt;
use std::io::BufRead;

use weir_core::model::{CoflowSpec, ServiceNames, Workload};
use weir_core::units::{Bytes, Time};
use weir_fields::FileError;

use crate::bounds::{MAX_BYTES, MAX_SECONDS};
use crate::file_time::{FileTime, TimeShift};
use crate::lines::{Line, LineFields, LineReader};
use crate::number;
use crate::options::TraceOptions;

/// The expected value in errors about ids.
pub(crate) const EXPECTED_ID: &str = "a whole number that no other coflow has";

/// The coflows of a file so far.
pub(crate) struct WorkloadBuilder<'a> {
    pub(crate) options: &'a TraceOptions,
    coflows: Vec<CoflowSpec>,
    arrivals: Vec<FileTime>,
    line_of_id: HashMap<u64, usize>,
    flow_count: usize,
    total_bytes: f64,
    names: ServiceNames,
}

impl<'a> WorkloadBuilder<'a> {
    pub(crate) fn new(options: &'a TraceOptions) -> WorkloadBuilder<'a> {
        WorkloadBuilder {
            options,
            coflows: Vec::new(),
            arrivals: Vec::new(),
            line_of_id: HashMap::new(),
            flow_count: 0,
            total_bytes: 0.0,
            names: ServiceNames::default(),
        }
    }

    /// Parses the id of a coflow, which no earlier one has.
    pub(crate) fn parse_id(&mut self, line: Line<'_>, text: &str) -> Result<u64, FileError> {
        let id = number::parse_integer(text).ok_or_else(|| line.error("id", text, EXPECTED_ID))?;
        self.take_id(line, id)?;
        Ok(id)
    }

    /// Notes the id of a coflow, which no earlier one has.
    pub(crate) fn take_id(&mut self, line: Line<'_>, id: u64) -> Result<(), FileError> {
        match self.line_of_id.insert(id, line.number) {
            None => Ok(()),
            Some(other) => Err(line.error("id", id, format!("{EXPECTED_ID} (line {other} has it)"))),
        }
    }

    /// Parses a point in time: a number in this unit.
    pub(crate) fn parse_time(
        &self,
        line: Line<'_>,
        field: &str,
        text: &str,
        unit: TimeUnit,
    ) -> Result<FileTime, FileError> {
        let time = number::parse_decimal(text).and_then(|value| Time::new(value / unit.per_second));
        time.filter(|time| time.get() <= TimeShift::max_seconds(self.options.shift_step))
            .map(|time| FileTime::new(time, text, unit.symbol))
            .ok_or_else(|| {
                let advice = time.map_or("", |time| TimeShift::advice(self.options.shift_step, time));
                let (max, unit) = (MAX_SECONDS * unit.per_second, unit.name);
                line.error(field, text, format!("a time of 0 to {max:e} {unit}{advice}"))
            })
    }

    /// This builder, for coflows that have the services of `names`.
    pub(crate) fn with_names(self, names: ServiceNames) -> WorkloadBuilder<'a> {
        WorkloadBuilder { names, ..self }
    }

    /// How many more flows the limit permits.
    pub(crate) fn remaining_flows(&self) -> usize {
        self.options.limits.max_flows - self.flow_count
    }

    /// Counts `more` flows. Errors call them `value`.
    pub(crate) fn reserve_flows(
        &mut self,
        line: Line<'_>,
        field: &str,
        more: Option<usize>,
        value: impl fmt::Display,
    ) -> Result<(), FileError> {
        match more.filter(|&more| more <= self.remaining_flows()) {
            Some(more) => self.flow_count += more,
            None => {
                let value = format!("{value} flows after {}", self.flow_count);
                return Err(line.error(field, value, self.options.limits.expected_at_most("flows")));
            }
        }
        Ok(())
    }

    /// Counts the bytes of flows. The sum is less than 2^53.
    pub(crate) fn add_bytes(&mut self, line: Line<'_>, field: &str, bytes: f64) -> Result<(), FileError> {
        self.total_bytes += bytes;
        if self.total_bytes < MAX_BYTES {
            return Ok(());
        }
        let value = format!("{:e} bytes up to here", self.total_bytes);
        Err(line.error(field, value, "a trace of less than 2^53 bytes"))
    }

    /// Adds a coflow, whose id, flows and bytes were counted.
    pub(crate) fn push(&mut self, coflow: CoflowSpec, arrival: FileTime) {
        self.coflows.push(coflow);
        self.arrivals.push(arrival);
    }

    /// Whether there is no coflow so far.
    pub(crate) fn is_empty(&self) -> bool {
        self.coflows.is_empty()
    }

    /// The workload, with its times shifted.
    pub(crate) fn finish<R: BufRead>(
        self,
        ports: u32,
        lines: &LineReader<'_, R>,
    ) -> Result<(Workload, TimeShift), FileError> {
        let WorkloadBuilder { options, coflows, arrivals, line_of_id, names, .. } = self;
        let mut workload = Workload { ports, coflows, events: Vec::new(), names };
        let shift = TimeShift::new(options.shift_step, &workload.coflows, &arrivals);
        for (coflow, arrival) in workload.coflows.iter_mut().zip(&arrivals) {
            coflow.arrival = shift.apply(*arrival).ok_or_else(|| {
                lines.error_at(line_of_id[&coflow.id], "arrival", arrival.time, shift.expected())
            })?;
        }
        match workload.check() {
            Ok(()) => Ok((workload, shift)),
            Err(error) => Err(lines.error_at(1, "trace", error, "a consistent trace")),
        }
    }
}

/// The unit of times in a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TimeUnit {
    pub(crate) symbol: &'static str,
    pub(crate) name: &'static str,
    pub(crate) per_second: f64,
}

impl TimeUnit {
    pub(crate) const S: TimeUnit = TimeUnit { symbol: "s", name: "seconds", per_second: 1.0 };
    pub(crate) const MS: TimeUnit = TimeUnit { symbol: "ms", name: "milliseconds", per_second: 1e3 };
    pub(crate) const US: TimeUnit = TimeUnit { symbol: "us", name: "microseconds", per_second: 1e6 };
    pub(crate) const NS: TimeUnit = TimeUnit { symbol: "ns", name: "nanoseconds", per_second: 1e9 };
    pub(crate) const PS: TimeUnit = TimeUnit { symbol: "ps", name: "picoseconds", per_second: 1e12 };

    pub(crate) const ALL: [TimeUnit; 5] =
        [TimeUnit::S, TimeUnit::MS, TimeUnit::US, TimeUnit::NS, TimeUnit::PS];
}

/// Parses the number of what `field` names, at least 1. `form` is expected if it is missing.
pub(crate) fn parse_count(fields: &mut LineFields<'_>, field: &str, form: &str) -> Result<usize, FileError> {
    let text = fields.required(field, form)?;
    let expected = format!("a number of {field} of 1 or more");
    number::parse_integer(text)
        .filter(|&count: &usize| count > 0)
        .ok_or_else(|| fields.line.error(field, text, expected))
}

/// Parses a duration: a number in this unit.
pub(crate) fn parse_duration(
    line: Line<'_>,
    field: &str,
    text: &str,
    unit: TimeUnit,
) -> Result<Time, FileError> {
    let time = number::parse_decimal(text).and_then(|value| Time::new(value / unit.per_second));
    time.filter(|time| time.get() <= MAX_SECONDS).ok_or_else(|| {
        let (max, unit) = (MAX_SECONDS * unit.per_second, unit.name);
        line.error(field, text, format!("a time of 0 to {max:e} {unit}"))
    })
}

/// Parses a size in bytes: a number in a unit of `unit_bytes`.
pub(crate) fn parse_size(
    line: Line<'_>,
    field: &str,
    text: &str,
    unit_bytes: f64,
) -> Result<Bytes, FileError> {
    number::parse_decimal(text)
        .and_then(|value| Bytes::new(value * unit_bytes))
        .filter(|bytes| bytes.get() < MAX_BYTES)
        .ok_or_else(|| line.error(field, text, "a size of 0 or more, and of less than 2^53 bytes"))
}
