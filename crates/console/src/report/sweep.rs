//! Writes the report of `weir sweep --report`.

use super::page::{Origin, Page, aligned_table, figure, legend};
use crate::chart::LineChart;
use crate::failure::Failure;
use crate::table::Table;

/// What the report of a sweep describes.
pub struct SweepReport<'a> {
    /// The description of workload and network, as lines of text.
    pub caption: String,
    /// How to make the report again.
    pub origin: Origin<'a>,
    /// The results.
    pub table: Table,
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
    /// The points, by their position among the values.
    pub points: Vec<SweepPoint>,
}

/// A mean completion time.
#[derive(Debug, Clone, Copy)]
pub struct SweepPoint {
    /// The position of the value along the x axis.
    pub position: usize,
    /// The mean in seconds.
    pub mean: f64,
    /// Half of the width of its 95 % confidence interval, if it is known.
    pub half_width: Option<f64>,
}

/// The report as HTML.
///
/// # Errors
/// If an input cannot be read again.
pub fn html(report: &SweepReport<'_>) -> Result<String, Failure> {
    let mut page = Page::new("Sweep", &report.caption, &report.origin);
    // A single value gives no line, and services have no completion times.
    if report.x_values.len() > 1 && !report.lines.is_empty() {
        page.add_section("Mean completion times", &mean_times(report));
    }
    page.add_section("Results", &aligned_table(&report.table));
    page.finish(&report.origin, "Times in figures are in seconds.")
}

/// The mean completion times over the values, as a figure with its legend.
fn mean_times(report: &SweepReport<'_>) -> String {
    // An interval of 0 has no place in the figure.
    let half_width = |point: &SweepPoint| point.half_width.filter(|width| *width > 0.0);
    let has_intervals =
        report.lines.iter().flat_map(|line| &line.points).any(|point| half_width(point).is_some());
    let mean = |point: &SweepPoint| (point.position as f64, point.mean);
    let interval = |point: &SweepPoint| {
        half_width(point).map(|width| (point.position as f64, point.mean - width, point.mean + width))
    };
    let lines = report.lines.iter();
    let means = lines.clone().map(|line| line.points.iter().map(mean).collect());
    let intervals: Vec<Vec<(f64, f64, f64)>> =
        lines.map(|line| line.points.iter().filter_map(interval).collect()).collect();
    let points = report.lines.iter().flat_map(|line| &line.points);
    let y_max = points.map(|point| point.mean + point.half_width.unwrap_or(0.0)).fold(0.0, f64::max);
    let chart = LineChart {
        x_title: &report.x_title,
        y_title: "mean completion time (s)",
        x_labels: &report.x_values,
        y_max: if y_max > 0.0 { 1.05 * y_max } else { 1.0 },
        lines: means.collect(),
        intervals,
        ..LineChart::default()
    };
    let names: Vec<String> = report.lines.iter().map(|line| line.name.clone()).collect();
    let caption = match has_intervals {
        true => {
            "Mean completion time by policy at each value, with its 95 % confidence interval. Intervals are a few pixels next to their \
             points, so that they do not hide each other."
        }
        false => "Mean completion time by policy at each value.",
    };
    figure(&chart, "Mean completion times", caption) + &legend(&names)
}
