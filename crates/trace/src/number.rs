//! Parses and formats numbers.

use std::str::FromStr;

use weir_core::units::{Bytes, Rate, Time};

/// Parses an integer in decimal digits, without sign or exponent.
pub(crate) fn parse_integer<N: FromStr>(text: &str) -> Option<N> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Parses a finite number of 0 or more, with an optional fraction and exponent, but no sign.
pub(crate) fn parse_decimal(text: &str) -> Option<f64> {
    let first = *text.as_bytes().first()?;
    if !(first.is_ascii_digit() || first == b'.') {
        return None;
    }
    // A number other than 0 that rounds to 0 is refused.
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let is_zero = mantissa.bytes().all(|digit| matches!(digit, b'0' | b'.'));
    text.parse().ok().filter(|value: &f64| value.is_finite() && (*value > 0.0) != is_zero)
}

/// The exact product of a number as [`parse_decimal`] accepts it and `scale`, rounded down. `None` if an i128 cannot
/// represent it.
pub(crate) fn parse_scaled(text: &str, scale: i128) -> Option<i128> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: i128 = format!("0{whole}{fraction}").parse().ok()?;
    let exponent = exponent.parse::<i32>().ok()?.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let product = digits.checked_mul(scale)?;
    let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
    if exponent >= 0 { product.checked_mul(power) } else { Some(product / power) }
}

/// Parses a port number below `ports`.
pub(crate) fn parse_port(text: &str, ports: u32) -> Option<u32> {
    parse_integer(text).filter(|&port| port < ports)
}

/// The expected value in errors about port numbers.
pub(crate) fn expected_port(ports: u32) -> String {
    format!("a port from 0 to {}", ports.saturating_sub(1))
}

/// The shortest text that parses to exactly `value`, with an exponent if it would be long.
pub(crate) fn format_exact(value: f64) -> String {
    if value == 0.0 || (1e-6..1e16).contains(&value) { format!("{value}") } else { format!("{value:e}") }
}

/// A size with its unit: in the usual notation if that parses to exactly the same size, else in bytes.
pub(crate) fn format_size(bytes: Bytes) -> String {
    format_readable(bytes, || format!("{}B", format_exact(bytes.get())))
}

/// A time with its unit: in the usual notation if that parses to exactly the same time, else in seconds.
pub(crate) fn format_time(time: Time) -> String {
    format_readable(time, || format!("{}s", format_exact(time.get())))
}

/// A rate with its unit: in the usual notation if that parses to exactly the same rate, else in bytes per second.
pub fn format_rate(rate: Rate) -> String {
    format_readable(rate, || format!("{}B/s", format_exact(rate.get())))
}

fn format_readable<Q>(quantity: Q, fallback: impl Fn() -> String) -> String
where
    Q: ToString + FromStr + PartialEq,
{
    let text = quantity.to_string();
    if text.parse().is_ok_and(|parsed: Q| parsed == quantity) { text } else { fallback() }
}

/// The inverse of splitting: a `total` for which `total * unit / parts == part` holds exactly, with the fewest digits; none
/// if no such number exists.
pub(crate) fn total_from_part(part: f64, parts: f64, unit: f64) -> Option<f64> {
    const DIGITS: usize = 17;
    let approximation = part * parts / unit;
    let is_exact = |total: &f64| total * unit / parts == part;
    let rounded = |digits| format!("{approximation:.digits$e}").parse().ok();
    // The total differs from `approximation` by three roundings at most, so it is among the nearest neighbours.
    let (mut below, mut above) = (approximation, approximation);
    let neighbours = std::iter::from_fn(|| {
        (below, above) = (below.next_down(), above.next_up());
        Some([below, above])
    });
    (0..DIGITS)
        .filter_map(rounded)
        .chain(neighbours.take(4).flatten())
        .find(|total| *total >= 0.0 && is_exact(total))
}
