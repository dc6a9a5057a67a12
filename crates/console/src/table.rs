//! Formats tables and numbers for people.

use std::fmt::{self, Display};

/// The alignment of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Left, for text.
    Left,
    /// Right, for numbers.
    Right,
}

/// Lines of cells under a header.
#[derive(Debug, Clone)]
pub struct Table {
    head: Vec<String>,
    align: Vec<Align>,
    lines: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these columns.
    pub fn new(columns: &[(&str, Align)]) -> Table {
        Table {
            head: columns.iter().map(|(name, _)| (*name).to_owned()).collect(),
            align: columns.iter().map(|(_, align)| *align).collect(),
            lines: Vec::new(),
        }
    }

    /// Adds a line with a cell for each column.
    pub fn line(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.head.len());
        self.lines.push(cells);
    }
}

/// The table as text. Each column is as wide as its widest cell.
impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut widths: Vec<usize> = self.head.iter().map(|cell| cell.chars().count()).collect();
        for line in &self.lines {
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let rule: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
        let head = (!self.head.iter().all(String::is_empty)).then_some([&self.head, &rule]);
        for line in head.into_iter().flatten().chain(&self.lines) {
            let cells =
                line.iter().zip(&widths).zip(&self.align).map(|((cell, &width), align)| match align {
                    Align::Left => format!("{cell:<width$}"),
                    Align::Right => format!("{cell:>width$}"),
                });
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// A number with four significant digits, at most four decimals, and all digits before the decimal point.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() || (size != 0.0 && size < 1e-4) {
        return format!("{value:.1e}");
    }
    let digits = match size {
        s if s >= 1000.0 => 0,
        s if s >= 100.0 => 1,
        s if s >= 10.0 => 2,
        s if s >= 1.0 => 3,
        _ => 4,
    };
    format!("{value:.digits$}")
}

/// A number, or `-` without one.
pub fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), number)
}

/// A count with its noun: `1 coflow`, `2 coflows`, `0 switches`.
pub fn count<N: Display + PartialEq + From<u8>>(number: N, one: &str) -> String {
    let plural = match one {
        _ if number == N::from(1) => "",
        one if one.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{number} {one}{plural}")
}

/// A fraction as a percentage with one decimal.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A fraction as a percentage without decimals.
pub fn whole_percent(fraction: f64) -> String {
    format!("{:.0} %", fraction * 100.0)
}

/// A time in seconds, with a suitable unit.
pub fn seconds(value: f64) -> String {
    match value {
        0.0 => "0 s".to_owned(),
        v if v < 1e-3 => format!("{} us", number(v * 1e6)),
        v if v < 1.0 => format!("{} ms", number(v * 1e3)),
        v => format!("{} s", number(v)),
    }
}

/// A number of bytes, with a suitable unit.
pub fn bytes(value: f64) -> String {
    let (factor, unit) = match value {
        v if v >= 1e12 => (1e12, "TB"),
        v if v >= 1e9 => (1e9, "GB"),
        v if v >= 1e6 => (1e6, "MB"),
        v if v >= 1e3 => (1e3, "kB"),
        // The sum of no bytes is a negative zero.
        v if v == v.trunc() => return format!("{} B", v.abs()),
        _ => (1.0, "B"),
    };
    format!("{} {unit}", number(value / factor))
}

/// Bits in a byte.
pub const BITS: f64 = 8.0;

/// A rate in bytes per second, as bits with a suitable unit.
pub fn rate(value: f64) -> String {
    let (factor, unit) = match value * BITS {
        v if v >= 1e12 => (1e12, "Tbit"),
        v if v >= 1e9 => (1e9, "Gbit"),
        v if v >= 1e6 => (1e6, "Mbit"),
        v if v >= 1e3 => (1e3, "kbit"),
        0.0 => return "0 bit".to_owned(),
        _ => (1.0, "bit"),
    };
    format!("{} {unit}", number(value * 8.0 / factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_four_digits() {
        let cases =
            [(0.0, "0.0000"), (12345.6, "12346"), (123.45, "123.5"), (0.01234, "0.0123"), (1e-5, "1.0e-5")];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn quantities_get_units() {
        assert_eq!(seconds(0.008), "8.000 ms");
        assert_eq!(bytes(35.5e12), "35.50 TB");
        assert_eq!(bytes(0.0), "0 B");
        assert_eq!((rate(725.0 * 125e3), rate(0.0)), ("725.0 Mbit".to_owned(), "0 bit".to_owned()));
    }

    #[test]
    fn one_is_singular() {
        let found =
            (count(1u32, "switch"), count(0usize, "switch"), count(1u64, "flow"), count(2u64, "flow"));
        assert_eq!(found, ("1 switch".into(), "0 switches".into(), "1 flow".into(), "2 flows".into()));
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("name", Align::Left), ("n", Align::Right)]);
        table.line(vec!["a".into(), "10".into()]);
        assert_eq!(table.to_string(), "name   n\n----  --\na     10\n");
    }
}
