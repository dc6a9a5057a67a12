//! Writes Markdown tables, and formats and compares the numbers in them.

use std::fmt::Write;

use weir_console::confidence_interval::ConfidenceInterval;
use weir_console::table::format_number;

/// The maximum relative difference of a measured number from a published one that counts as the same.
pub const SAME_TOLERANCE: f64 = 0.10;

/// A table in Markdown. The first `text_columns` columns are text; the others are numbers, aligned to the right.
pub fn table(head: &[&str], text_columns: usize, lines: &[Vec<String>]) -> String {
    let mut out = format!("\n| {} |\n|", head.join(" | "));
    for column in 0..head.len() {
        out.push_str(if column < text_columns { "---|" } else { "---:|" });
    }
    out.push('\n');
    for line in lines {
        debug_assert_eq!(line.len(), head.len(), "columns of {head:?}");
        writeln!(out, "| {} |", line.join(" | ")).expect("writing to a String does not fail");
    }
    out.push('\n');
    out
}

/// Formats a number for a table, with about three significant digits.
pub fn format_cell(value: f64) -> String {
    let size = value.abs();
    match size {
        s if s >= 100.0 => format!("{value:.0}"),
        s if s >= 10.0 => format!("{value:.1}"),
        s if !(1e-6..0.095).contains(&s) => format!("{value:.2}"),
        _ => format_number(value),
    }
}

/// Formats a mean with half of the width of its interval, as `1.03 ± 0.0210`.
pub fn format_interval(interval: &ConfidenceInterval) -> String {
    format!("{} ± {}", format_cell(interval.mean), format_cell(interval.half_width))
}

/// Formats a fraction as a percentage.
pub fn format_percent(value: f64) -> String {
    format!("{:.1} %", value * 100.0)
}

/// Formats a measured number divided by the published one; `-` if the published one is 0.
pub fn format_ratio(measured: f64, published: f64) -> String {
    if published == 0.0 { "-".to_owned() } else { format_cell(measured / published) }
}

/// Whether a measured number is within [`SAME_TOLERANCE`] of the published one.
pub fn is_same(measured: f64, published: f64) -> bool {
    (measured / published - 1.0).abs() <= SAME_TOLERANCE
}

/// Replaces two or more successive empty lines by one.
pub fn collapse_blank_lines(mut text: String) -> String {
    while text.contains("\n\n\n") {
        text = text.replace("\n\n\n", "\n\n");
    }
    text
}

/// P10, P50 and P90.
pub fn p10_p50_p90(values: &[f64]) -> [f64; 3] {
    [10.0, 50.0, 90.0].map(|p| weir_sim::outcome::percentile(values, p))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_compares_by_ratio() {
        assert!(is_same(1.6, 1.53) && !is_same(1.2, 1.53));
    }

    #[test]
    fn table_prints_markdown() {
        assert_eq!(
            table(&["a", "b"], 1, &[vec!["x".into(), "1".into()]]),
            "\n| a | b |\n|---|---:|\n| x | 1 |\n\n"
        );
    }
}
