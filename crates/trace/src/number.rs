//! Numbers to and from text.

use std::str::FromStr;

use weir_core::units::{Bytes, Rate, Time};

/// A whole number in decimal digits: no sign, no exponent.
pub(crate) fn whole<N: FromStr>(text: &str) -> Option<N> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// A finite number of zero or more, with a fraction or an exponent if it likes, but no sign.
pub(crate) fn decimal(text: &str) -> Option<f64> {
    let first = *text.as_bytes().first()?;
    if !(first.is_ascii_digit() || first == b'.') {
        return None;
    }
    // What is too small to be told from nothing is not nothing.
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let nothing = mantissa.bytes().all(|digit| matches!(digit, b'0' | b'.'));
    text.parse().ok().filter(|value: &f64| value.is_finite() && (*value > 0.0) != nothing)
}

/// A port number below `ports`.
pub(crate) fn port(text: &str, ports: u32) -> Option<u32> {
    whole(text).filter(|&port| port < ports)
}

/// What is expected of a port number.
pub(crate) fn port_expected(ports: u32) -> String {
    format!("a port from 0 to {}", ports.saturating_sub(1))
}

/// The shortest text that reads back as exactly `value`, with an exponent where it would be long.
pub(crate) fn exact(value: f64) -> String {
    if value == 0.0 || (1e-6..1e16).contains(&value) { format!("{value}") } else { format!("{value:e}") }
}

/// A size with its unit: as people write it if that reads back as exactly the same, else in bytes.
pub(crate) fn size(bytes: Bytes) -> String {
    readable(bytes, || format!("{}B", exact(bytes.get())))
}

/// A time with its unit: as people write it if that reads back as exactly the same, else in seconds.
pub(crate) fn time(time: Time) -> String {
    readable(time, || format!("{}s", exact(time.get())))
}

/// A rate with its unit: as people write it if that reads back as exactly the same, else in bytes per second.
pub(crate) fn rate(rate: Rate) -> String {
    readable(rate, || format!("{}B/s", exact(rate.get())))
}

/// A name as a TOML string. It has no control characters.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

fn readable<Q>(quantity: Q, plain: impl Fn() -> String) -> String
where
    Q: ToString + FromStr + PartialEq,
{
    let text = quantity.to_string();
    if text.parse().is_ok_and(|back: Q| back == quantity) { text } else { plain() }
}

/// The whole of which one of `parts` equal parts, each `unit` times its number, is exactly `part`: the
/// `whole` with the fewest digits for which `whole * unit / parts == part`, if there is one.
pub(crate) fn unsplit(part: f64, parts: f64, unit: f64) -> Option<f64> {
    const DIGITS: usize = 17;
    let close = part * parts / unit;
    let fits = |whole: &f64| whole * unit / parts == part;
    let rounded = |digits| format!("{close:.digits$e}").parse().ok();
    // Three roundings separate a number that fits from `close`: it is among the nearest neighbours.
    let (mut below, mut above) = (close, close);
    let neighbours = std::iter::from_fn(|| {
        (below, above) = (below.next_down(), above.next_up());
        Some([below, above])
    });
    (0..DIGITS)
        .filter_map(rounded)
        .chain(neighbours.take(4).flatten())
        .find(|whole| *whole >= 0.0 && fits(whole))
}
