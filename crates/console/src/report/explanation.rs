//! Writes the report of `weir explain --report`.

use super::page::{Origin, Page, escape, figure};
use crate::chart::LineChart;
use crate::failure::Failure;

/// What the report of an explanation describes.
pub struct ExplanationReport<'a> {
    /// The title.
    pub title: String,
    /// The description of workload and network, as lines of text.
    pub caption: String,
    /// How to make the report again.
    pub origin: Origin<'a>,
    /// The explanation as text, with its tables.
    pub text: String,
    /// The pace of the coflow from its release on, without gaps.
    pub paces: Vec<PacePeriod>,
}

/// A period with a constant pace.
#[derive(Debug, Clone, Copy)]
pub struct PacePeriod {
    /// The start, in seconds since the release.
    pub start: f64,
    /// The end.
    pub end: f64,
    /// The progress relative to running alone.
    pub pace: f64,
}

/// The report as HTML.
///
/// # Errors
/// If an input cannot be read again.
pub fn html(report: &ExplanationReport<'_>) -> Result<String, Failure> {
    let mut page = Page::new(&report.title, &report.caption, &report.origin);
    let steps =
        report.paces.iter().flat_map(|period| [(period.start, period.pace), (period.end, period.pace)]);
    let y_max = report.paces.iter().map(|period| period.pace).fold(1.0, f64::max);
    let chart = LineChart {
        x_title: "time since the release (s)",
        y_title: "pace",
        y_max: 1.05 * y_max,
        lines: vec![steps.collect()],
        ..LineChart::default()
    };
    let caption = "Progress at the coflow's bottleneck link, relative to running alone. At 0 it waits.";
    page.add_section("Pace", &figure(&chart, "Pace of the coflow over time", caption));
    page.add_section("Explanation", &format!("<pre>{}</pre>\n", escape(&report.text)));
    page.finish(&report.origin, "Times are in seconds since the release.")
}
