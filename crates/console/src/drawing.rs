//! Draws values as lines of characters, for terminals.

use std::env;

/// Bars of increasing height.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The number of characters of a distribution.
const DISTRIBUTION_WIDTH: usize = 40;

/// A color of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Color {
    /// For lost time.
    Red,
    /// For slow progress.
    Yellow,
    /// For full speed.
    Green,
}

/// Whether the terminal shows colors, and `NO_COLOR` (no-color.org) is not set.
pub fn has_colors() -> bool {
    env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// A bar for a value from 0 to 1; a space for 0.
pub fn bar(value: f64) -> char {
    let level = (value.clamp(0.0, 1.0) * BARS.len() as f64).ceil() as usize;
    level.checked_sub(1).map_or(' ', |level| BARS[level])
}

/// Text in a color.
pub fn colored(text: &str, color: Color) -> String {
    let code = match color {
        Color::Red => 31,
        Color::Green => 32,
        Color::Yellow => 33,
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// For each list, a line of bars: the part of its values that are at most a limit, for limits from the least positive to the largest
/// value of all lists in equal ratios. Also returns these two values. `None` without positive values.
pub fn distributions(lists: &[Vec<f64>]) -> Option<([f64; 2], Vec<String>)> {
    let positive = || lists.iter().flatten().copied().filter(|&value| value > 0.0);
    let (low, high) = (positive().fold(f64::INFINITY, f64::min), positive().fold(0.0, f64::max));
    if low > high {
        return None;
    }
    let limit = |position: usize| {
        // Rounding must not exclude the largest value.
        let part = (position + 1) as f64 / DISTRIBUTION_WIDTH as f64;
        if position + 1 == DISTRIBUTION_WIDTH { high } else { low * (high / low).powf(part) }
    };
    let line = |values: &Vec<f64>| -> String {
        let part = |limit: f64| values.iter().filter(|&&value| value <= limit).count() as f64;
        (0..DISTRIBUTION_WIDTH).map(|position| bar(part(limit(position)) / values.len() as f64)).collect()
    };
    Some(([low, high], lists.iter().map(line).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_grow_with_values() {
        let bars: String = [0.0, 1e-9, 0.125, 0.126, 0.5, 1.0, 2.0].map(bar).iter().collect();
        assert_eq!(bars, " ▁▁▂▄██");
    }

    #[test]
    fn distribution_rises_from_the_least_to_the_largest_value() {
        let ([low, high], lines) = distributions(&[vec![1.0, 11.0, 100.0, 0.0], vec![11.0; 4]]).unwrap();
        assert_eq!((low, high), (1.0, 100.0));
        assert_eq!(lines[0], format!("{}{}█", "▄".repeat(20), "▆".repeat(19)));
        assert_eq!(lines[1], format!("{}{}", " ".repeat(20), "█".repeat(20)));
        assert_eq!(distributions(&[vec![0.0]]), None);
        assert_eq!(distributions(&[vec![3.0]]).unwrap().1, ["█".repeat(40)]);
    }
}
