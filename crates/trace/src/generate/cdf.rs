//! Cumulative distributions of sizes, as figures of papers show them.

use std::io::BufRead;
use std::sync::Arc;

use weir_fields::FileError;

use crate::bounds::{Limits, MAX_BYTES};
use crate::lines::LineReader;
use crate::number;

/// A cumulative distribution of sizes, linear between its points.
#[derive(Debug, Clone, PartialEq)]
pub struct Cdf {
    /// Sizes in bytes, and the probability of a size up to it; both ascend, and the last probability is 1.
    points: Arc<[(f64, f64)]>,
}

impl Cdf {
    /// A distribution with these points, which ascend and end at probability 1.
    pub(super) fn new(points: impl Iterator<Item = (f64, f64)>) -> Cdf {
        Cdf { points: points.collect() }
    }

    /// The mean size, in bytes. The probability of the first point is a step.
    pub fn mean(&self) -> f64 {
        let first = self.points.first().map_or(0.0, |&(size, until)| size * until);
        let parts = self.points.windows(2).map(|pair| {
            let ((smaller, before), (larger, until)) = (pair[0], pair[1]);
            (until - before) * (smaller + larger) / 2.0
        });
        first + parts.sum::<f64>()
    }

    /// The inverse of the distribution: the size in bytes that a flow exceeds with the probability `1 - p`, for `p` from 0 to 1. A
    /// uniform `p` gives a random size.
    pub fn sample(&self, p: f64) -> f64 {
        let (mut smaller, mut before) = self.points.first().copied().unwrap_or((0.0, 0.0));
        for &(size, until) in &self.points[..] {
            if p <= until && until > before {
                return smaller + (size - smaller) * (p - before).max(0.0) / (until - before);
            }
            if p <= until {
                return size;
            }
            (smaller, before) = (size, until);
        }
        smaller
    }

    /// Reads a table of bytes and cumulative percentages, or probabilities up to 1, from `input`, which errors call `name`.
    ///
    /// # Errors
    /// For the first line without two ascending numbers, if the last one is not 100 or 1, and if `input` fails.
    pub fn read<R: BufRead>(input: R, name: &str) -> Result<Cdf, FileError> {
        let limits = Limits { max_line_bytes: 1 << 10, ..Limits::default() };
        let mut lines = LineReader::new(input, name, &limits);
        let mut points: Vec<(f64, f64)> = Vec::new();
        while let Some(line) = lines.next_content()? {
            let mut fields = line.fields();
            let (before, until) = points.last().copied().unwrap_or((0.0, 0.0));
            let expected = format!("a size in bytes of {before} or more, and less than 2^53");
            let text = fields.required("size", &expected)?;
            let size = number::parse_decimal(text).filter(|size| (before..MAX_BYTES).contains(size));
            let size = size.ok_or_else(|| line.error("size", text, &expected))?;
            let expected =
                format!("a cumulative percentage from {until} to 100, or such a probability up to 1");
            let text = fields.required("percentage", &expected)?;
            let percentage = number::parse_decimal(text).filter(|value| (until..=100.0).contains(value));
            points.push((size, percentage.ok_or_else(|| line.error("percentage", text, &expected))?));
            fields.finish()?;
            if points.len() > MAX_POINTS {
                return Err(line.error("points", points.len(), format!("at most {MAX_POINTS} points")));
            }
        }
        let end = lines.end_of_input();
        let last = points.last().map_or(0.0, |point| point.1);
        if (last != 100.0 && last != 1.0) || points.last().is_none_or(|point| point.0 == 0.0) {
            return Err(end.error("percentage", last, "100 or 1 in the last line, for a size above 0"));
        }
        Ok(Cdf::new(points.into_iter().map(|(size, value)| (size, value / last))))
    }
}

/// The most points of a table.
const MAX_POINTS: usize = 100_000;
