//! Writes the report of `weir explain --report`.

use std::fmt::{self, Display};

use super::page::{Origin, Page, aligned_table, code, figure};
use crate::chart::LineChart;
use crate::failure::Failure;
use crate::table::Table;

/// What the report of an explanation describes.
pub struct ExplanationReport<'a> {
    /// The title.
    pub title: String,
    /// The description of workload and network, as lines of text.
    pub caption: String,
    /// How to make the report again.
    pub origin: Origin<'a>,
    /// The explanation.
    pub blocks: Vec<Block>,
    /// The pace of the coflow from its release on, without gaps.
    pub paces: Vec<PacePeriod>,
}

/// A part of an explanation.
#[derive(Debug, Clone)]
pub enum Block {
    /// Lines of text, with names between backquotes.
    Text(String),
    /// The title of the next table.
    Title(String),
    /// A table.
    Table(Table),
}

impl Display for Block {
    /// The part as lines of text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Block::Text(text) => writeln!(f, "{}", text.trim_end()),
            Block::Title(title) => writeln!(f, "{title}:"),
            Block::Table(table) => write!(f, "{table}"),
        }
    }
}

impl Block {
    fn to_html(&self) -> String {
        match self {
            Block::Text(text) => format!("<p>{}</p>\n", code(text.trim_end()).replace('\n', "<br>\n")),
            Block::Title(title) => format!("<h3>{}</h3>\n", code(title)),
            Block::Table(table) => aligned_table(table),
        }
    }
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
    let caption =
        "Progress at the coflow's bottleneck link, relative to running alone. At 0, nothing moves there.";
    page.add_section("Pace", &figure(&chart, "Pace of the coflow over time", caption));
    page.add_section("Explanation", &report.blocks.iter().map(Block::to_html).collect::<String>());
    page.finish(&report.origin, "Times in figures are in seconds since the release.")
}
