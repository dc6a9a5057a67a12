//! Writes the report of `weir sweep --report`.

use super::page::{Origin, Page, figure, legend, table};
use crate::chart::LineChart;
use crate::failure::Failure;

/// What the report of a sweep describes.
pub struct SweepReport<'a> {
    /// The description of workload and network, as lines of text.
    pub caption: String,
    /// How to make the report again.
    pub origin: Origin<'a>,
    /// The titles of the columns of results.
    pub head: Vec<String>,
    /// The results as text, in the order of the columns.
    pub rows: Vec<Vec<String>>,
    /// What varies along the x axis.
    pub x_title: String,
    /// The values along the x axis.
    pub x_values: Vec<String>,
    /// The mean completion times.
    pub lines: Vec<SweepLine>,
}

/// The mean completion time of a policy over the values of a parameter.
pub struct SweepLine {
    /// The policy, and the values of the other parameters.
    pub name: String,
    /// The positions of values, and the mean completion time in seconds.
    pub points: Vec<(usize, f64)>,
}

/// The report as HTML.
///
/// # Errors
/// If an input cannot be read again.
pub fn html(report: &SweepReport<'_>) -> Result<String, Failure> {
    let mut page = Page::new("Sweep", &report.caption, &report.origin);
    // A single value gives no line.
    if report.x_values.len() > 1 {
        page.add_section("Mean completion times", &mean_times(report));
    }
    let head: Vec<&str> = report.head.iter().map(String::as_str).collect();
    page.add_section("Results", &table(&head, &report.rows));
    page.finish(&report.origin, "Times are in seconds.")
}

/// The mean completion times over the values, as a figure with its legend.
fn mean_times(report: &SweepReport<'_>) -> String {
    let lines: Vec<Vec<(f64, f64)>> = report
        .lines
        .iter()
        .map(|line| line.points.iter().map(|&(position, mean)| (position as f64, mean)).collect())
        .collect();
    let y_max = lines.iter().flatten().map(|point| point.1).fold(0.0, f64::max);
    let chart = LineChart {
        x_title: &report.x_title,
        y_title: "mean completion time (s)",
        x_labels: &report.x_values,
        y_max: if y_max > 0.0 { 1.05 * y_max } else { 1.0 },
        lines,
        ..LineChart::default()
    };
    let names: Vec<String> = report.lines.iter().map(|line| line.name.clone()).collect();
    figure(&chart, "Mean completion times", "Mean completion time by policy at each value.") + &legend(&names)
}
