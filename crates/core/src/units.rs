//! Rates, sizes and times with units, and their parsers.
//!
//! Input needs a unit. The parser rejects bare numbers, and `bps`, which means bytes per second to `tc` and bits per
//! second elsewhere. `Display` prints a value in a form that the parser accepts.

use std::fmt;
use std::str::FromStr;

/// Why a quantity was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{value}` is not a {kind}: expected {expected}")]
pub struct UnitError {
    /// The rejected input.
    pub value: String,
    /// `rate`, `size` or `time`.
    pub kind: &'static str,
    /// Examples of accepted input.
    pub expected: &'static str,
}

/// A rate in bytes per second; finite and not negative.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Rate(f64);

/// A number of bytes; finite and not negative. Fractional if a size is divided over flows.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Bytes(f64);

/// A point in time, or a duration, in seconds; finite and not negative.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Time(f64);

const RATE_UNITS: &[(&str, f64)] = &[
    ("Tbit", 1e12 / 8.0),
    ("Gbit", 1e9 / 8.0),
    ("Mbit", 1e6 / 8.0),
    ("kbit", 1e3 / 8.0),
    ("bit", 1.0 / 8.0),
    ("Gibit", 1_073_741_824.0 / 8.0),
    ("Mibit", 1_048_576.0 / 8.0),
    ("Kibit", 1_024.0 / 8.0),
    ("GB/s", 1e9),
    ("MB/s", 1e6),
    ("kB/s", 1e3),
    ("B/s", 1.0),
    ("GiB/s", 1_073_741_824.0),
    ("MiB/s", 1_048_576.0),
    ("KiB/s", 1_024.0),
];

const BYTE_UNITS: &[(&str, f64)] = &[
    ("TB", 1e12),
    ("GB", 1e9),
    ("MB", 1e6),
    ("kB", 1e3),
    ("B", 1.0),
    ("TiB", 1_099_511_627_776.0),
    ("GiB", 1_073_741_824.0),
    ("MiB", 1_048_576.0),
    ("KiB", 1_024.0),
];

const TIME_UNITS: &[(&str, f64)] =
    &[("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)];

/// Parses a non-negative number with a unit, and converts it to the base unit. `None` if `text` is malformed, or if the
/// result is not finite.
fn parse_quantity(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    // An exponent's `e` is followed by a digit or a sign, which no unit starts with.
    let bytes = text.as_bytes();
    let mut split = 0;
    while split < bytes.len() {
        let c = bytes[split];
        let exponent = (c == b'e' || c == b'E')
            && bytes.get(split + 1).is_some_and(|d| d.is_ascii_digit() || *d == b'-' || *d == b'+');
        let sign = (c == b'-' || c == b'+') && split > 0 && matches!(bytes[split - 1], b'e' | b'E');
        if !(c.is_ascii_digit() || c == b'.' || exponent || sign) {
            break;
        }
        split += 1;
    }
    let (number, unit) = text.split_at(split);
    let unit = unit.trim_start();
    let factor = units.iter().find(|(name, _)| *name == unit)?.1;
    let number: f64 = number.parse().ok()?;
    let value = number * factor;
    (value.is_finite() && value >= 0.0).then_some(value)
}

/// Prints `value` in the largest unit in which it is at least 1, or in the smallest unit. `units` is sorted from
/// large to small.
fn print_quantity(
    f: &mut fmt::Formatter<'_>,
    value: f64,
    units: &[(&str, f64)],
    zero_text: &str,
) -> fmt::Result {
    if value == 0.0 {
        return f.write_str(zero_text);
    }
    let unit = units
        .iter()
        .find(|(_, factor)| value >= *factor)
        .or(units.last())
        .expect("a table of units is not empty");
    // Fifteen digits hide the binary fraction of a decimal input.
    let scaled = value / unit.1;
    let rounded: f64 = format!("{scaled:.14e}").parse().unwrap_or(scaled);
    write!(f, "{rounded}{}", unit.0)
}

macro_rules! quantity {
    ($name:ident, $kind:literal, $units:ident, $decimal:expr, $zero:literal, $expected:literal) => {
        impl $name {
            /// The zero value.
            pub const ZERO: $name = $name(0.0);

            /// Creates the quantity from a value in the base unit; `None` if the value is negative or not finite.
            pub fn new(value: f64) -> Option<$name> {
                (value.is_finite() && value >= 0.0).then_some($name(value))
            }

            /// Creates the quantity from a value in the base unit. The caller ensures that the value is finite and
            /// not negative.
            pub(crate) const fn from_valid(value: f64) -> $name {
                $name(value)
            }

            /// The value in the base unit (bytes per second, bytes, seconds).
            pub const fn get(self) -> f64 {
                self.0
            }
        }

        impl FromStr for $name {
            type Err = UnitError;

            fn from_str(text: &str) -> Result<Self, UnitError> {
                parse_quantity(text, $units).map($name).ok_or_else(|| UnitError {
                    value: text.to_owned(),
                    kind: $kind,
                    expected: $expected,
                })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                print_quantity(f, self.0, $decimal, $zero)
            }
        }
    };
}

quantity!(
    Rate,
    "rate",
    RATE_UNITS,
    &RATE_UNITS[..5],
    "0bit",
    "a number of 0 or more with a unit such as 1Gbit, 100Mbit or 125MB/s (per second; `bps` is ambiguous and rejected)"
);
quantity!(
    Bytes,
    "size",
    BYTE_UNITS,
    &BYTE_UNITS[..5],
    "0B",
    "a number of 0 or more with a unit such as 10MB, 64MiB or 1500B"
);
quantity!(
    Time,
    "time",
    TIME_UNITS,
    &TIME_UNITS[2..],
    "0s",
    "a number of 0 or more with one of the units ns, us, ms, s, min and h, such as 2.5s"
);

impl Rate {
    /// One gigabit per second, the port rate of the published evaluations.
    pub const GBIT: Rate = Rate(125e6);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parser_accepts_documented_units() {
        assert_eq!("1Gbit".parse::<Rate>().unwrap().get(), 125e6);
        assert_eq!("125 MB/s".parse::<Rate>().unwrap(), Rate::GBIT);
        assert_eq!("64MiB".parse::<Bytes>().unwrap().get(), 67_108_864.0);
        assert_eq!("8ms".parse::<Time>().unwrap().get(), 0.008);
        assert_eq!("1e-3s".parse::<Time>().unwrap().get(), 0.001);
    }

    #[test]
    fn refuses_bare_numbers_and_ambiguous_units() {
        for text in ["1000", "1bps", "1Gbps", "40M", "-1Gbit", "NaNGbit", "1e400Gbit", "", "Gbit", "1 G bit"]
        {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        for text in ["10", "10mb", "10M", "-3B", "infB"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
        for text in ["8", "8 m", "-8ms"] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
    }

    #[test]
    fn display_output_parses_to_the_same_text() {
        for text in ["1Gbit", "100Mbit", "2.5Gbit", "7bit", "0bit"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        for text in ["10MB", "1.5kB", "1B", "0B"] {
            assert_eq!(text.parse::<Bytes>().unwrap().to_string(), text);
        }
        for text in ["8ms", "1us", "2.5s", "100s", "0s"] {
            assert_eq!(text.parse::<Time>().unwrap().to_string(), text);
        }
    }
}
