//! Formats tables and numbers for users.

use std::fmt::{self, Display};

/// The alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alignment {
    /// Left, for text.
    Left,
    /// Right, for numbers.
    Right,
}

/// Lines of cells under a header.
#[derive(Debug, Clone)]
pub struct Table {
    header: Vec<String>,
    alignments: Vec<Alignment>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these columns.
    pub fn new(columns: &[(&str, Alignment)]) -> Table {
        Table {
            header: columns.iter().map(|(name, _)| (*name).to_owned()).collect(),
            alignments: columns.iter().map(|(_, align)| *align).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a line with a cell for each column.
    pub fn add_row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.header.len());
        self.rows.push(cells);
    }

    /// The titles of the columns.
    pub fn header(&self) -> &[String] {
        &self.header
    }

    /// Whether a column has a title.
    pub fn has_header(&self) -> bool {
        !self.header.iter().all(String::is_empty)
    }

    /// The alignments of the columns.
    pub fn alignments(&self) -> &[Alignment] {
        &self.alignments
    }

    /// The lines, with a cell for each column.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }
}

/// The table as text. Each column is as wide as its widest cell.
impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths: Vec<usize> = self.header.iter().map(|cell| cell.chars().count()).collect();
        for line in &self.rows {
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let rule: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
        let head = self.has_header().then_some([&self.header, &rule]);
        for line in head.into_iter().flatten().chain(&self.rows) {
            let cells =
                line.iter().zip(&widths).zip(&self.alignments).map(|((cell, &width), align)| match align {
                    Alignment::Left => format!("{cell:<width$}"),
                    Alignment::Right => format!("{cell:>width$}"),
                });
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// A number with four significant digits, and all digits before the decimal point. It has an exponent below 0.0001.
pub fn format_number(value: f64) -> String {
    // Rounding can add a digit: 9.9996 is 10.00.
    let rounded = format!("{value:.3e}");
    let exponent = rounded.split_once('e').and_then(|(_, exponent)| exponent.parse::<i32>().ok());
    match exponent {
        _ if value == 0.0 => "0".to_owned(),
        Some(exponent) if exponent >= -4 => {
            let decimals = usize::try_from(3 - exponent).unwrap_or(0);
            format!("{value:.decimals$}")
        }
        _ => rounded,
    }
}

/// A number, or `-` without one.
pub fn format_optional(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), format_number)
}

/// A count with its noun: `1 coflow`, `2 coflows`, `0 switches`.
pub fn format_count<N: Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    let plural = match noun {
        _ if number == N::from(1) => "",
        one if one.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{number} {noun}{plural}")
}

/// A fraction as a percentage with one decimal.
pub fn format_percent(fraction: f64) -> String {
    let text = format!("{:.1} %", fraction * 100.0);
    if text == "-0.0 %" { "0.0 %".to_owned() } else { text }
}

/// A fraction as a percentage without decimals.
pub fn format_whole_percent(fraction: f64) -> String {
    let text = format!("{:.0} %", fraction * 100.0);
    if text == "-0 %" { "0 %".to_owned() } else { text }
}

/// A unit of the times in a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeUnit {
    seconds: f64,
    /// The name in sentences, such as `milliseconds`.
    pub name: &'static str,
    symbol: &'static str,
}

/// The units of time, in descending order.
const TIME_UNITS: [TimeUnit; 4] = [
    TimeUnit { seconds: 1.0, name: "seconds", symbol: "s" },
    TimeUnit { seconds: 1e-3, name: "milliseconds", symbol: "ms" },
    TimeUnit { seconds: 1e-6, name: "microseconds", symbol: "us" },
    TimeUnit { seconds: 1e-9, name: "nanoseconds", symbol: "ns" },
];

impl TimeUnit {
    /// The largest unit in which the shortest of these durations in seconds is at least 1. Zeros do not count.
    pub fn fitting(durations: impl IntoIterator<Item = f64>) -> TimeUnit {
        let shortest = durations.into_iter().filter(|&seconds| seconds > 0.0).fold(f64::INFINITY, f64::min);
        let unit = TIME_UNITS.iter().find(|unit| shortest >= LEAST_FITTING * unit.seconds);
        *unit.unwrap_or(&TIME_UNITS[TIME_UNITS.len() - 1])
    }

    /// A time in seconds as a number of this unit.
    pub fn count(self, seconds: f64) -> f64 {
        seconds / self.seconds
    }
}

/// A time in seconds, with a suitable unit.
pub fn format_seconds(value: f64) -> String {
    let unit = TimeUnit::fitting([value.abs()]);
    format!("{} {}", format_number(unit.count(value)), unit.symbol)
}

/// A number of bytes, with a suitable unit.
pub fn format_bytes(value: f64) -> String {
    match value {
        // The sum of no bytes is a negative zero.
        v if v < 999.95 && v == v.trunc() => format!("{} B", v.abs()),
        v => format_scaled(v, &[(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")]),
    }
}

/// Bits in a byte.
pub const BITS_PER_BYTE: f64 = 8.0;

/// A rate in bytes per second, as bits with a suitable unit.
pub fn format_rate(value: f64) -> String {
    match value * BITS_PER_BYTE {
        0.0 => "0 bit".to_owned(),
        v => format_scaled(v, &[(1e12, "Tbit"), (1e9, "Gbit"), (1e6, "Mbit"), (1e3, "kbit"), (1.0, "bit")]),
    }
}

/// The least number that is 1.000 with four digits.
const LEAST_FITTING: f64 = 0.99995;

/// A number in the largest unit in which its four digits are at least 1, or in the smallest unit.
fn format_scaled(value: f64, units: &[(f64, &str)]) -> String {
    let fitting = units.iter().find(|(factor, _)| value >= LEAST_FITTING * factor);
    let (factor, unit) = fitting.unwrap_or(&units[units.len() - 1]);
    format!("{} {unit}", format_number(value / factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_four_digits() {
        let cases = [
            (0.0, "0"),
            (12345.6, "12346"),
            (123.45, "123.5"),
            (9.9996, "10.00"),
            (-0.99996, "-1.000"),
            (0.01234, "0.01234"),
            (0.00032, "0.0003200"),
            (0.000099999, "0.0001000"),
            (1e-5, "1.000e-5"),
            (f64::NAN, "NaN"),
        ];
        for (value, text) in cases {
            assert_eq!(format_number(value), text);
        }
    }

    #[test]
    fn quantities_get_units() {
        assert_eq!(format_seconds(0.008), "8.000 ms");
        assert_eq!(format_seconds(0.0), "0 s");
        assert_eq!(format_seconds(-3.2e-10), "-0.3200 ns");
        assert_eq!(format_seconds(999.96e-9), "1.000 us");
        assert_eq!(format_bytes(35.5e12), "35.50 TB");
        assert_eq!(format_bytes(0.0), "0 B");
        assert_eq!(format_bytes(999_990.0), "1.000 MB");
        assert_eq!(format_rate(999_999_999.99 / 8.0), "1.000 Gbit");
        assert_eq!(
            (format_rate(725.0 * 125e3), format_rate(0.0)),
            ("725.0 Mbit".to_owned(), "0 bit".to_owned())
        );
    }

    #[test]
    fn times_of_a_table_have_the_unit_of_the_shortest() {
        let names = [vec![3.0, 0.0, 0.02], vec![0.0], vec![2e-10, 1.0]]
            .map(|durations| TimeUnit::fitting(durations).name);
        assert_eq!(names, ["milliseconds", "seconds", "nanoseconds"]);
        assert_eq!(format_number(TimeUnit::fitting([3.2e-6]).count(121.6e-6)), "121.6");
    }

    #[test]
    fn negative_zero_is_zero() {
        let found = [format_percent(-1e-9), format_percent(-0.001), format_whole_percent(-0.001)];
        assert_eq!(found, ["0.0 %", "-0.1 %", "0 %"]);
    }

    #[test]
    fn one_is_singular() {
        let found = (
            format_count(1u32, "switch"),
            format_count(0usize, "switch"),
            format_count(1u64, "flow"),
            format_count(2u64, "flow"),
        );
        assert_eq!(found, ("1 switch".into(), "0 switches".into(), "1 flow".into(), "2 flows".into()));
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("name", Alignment::Left), ("n", Alignment::Right)]);
        table.add_row(vec!["a".into(), "10".into()]);
        assert_eq!(table.to_string(), "name   n\n----  --\na     10\n");
    }
}
