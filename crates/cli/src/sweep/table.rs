//! Prints the tables of a sweep.

use weir_console::table::{Alignment, Table, format_number, format_optional};

use super::Row;
use super::combined::{self, DEADLINES_MISSED};
use crate::args;

/// Titles and names of the columns with results. A bar separates groups.
const COLUMNS: [(&str, &str); 9] = [
    ("mean", "mean_cct_s"),
    ("P50", "p50_cct_s"),
    ("P90", "p90_cct_s"),
    ("/bound", "over_bound"),
    ("| P10", "speedup_p10"),
    ("P50", "speedup_p50"),
    ("P90", "speedup_p90"),
    ("mean", "speedup_mean"),
    ("| schedule us", "schedule_mean_us"),
];

/// Columns for traces with deadlines or jobs, whose results have these names.
const OPTIONAL_COLUMNS: [(&str, &str); 2] = [("missed", DEADLINES_MISSED), ("mean JCT", "mean_jct_s")];

/// The results of a sweep as cells.
pub struct Cells {
    /// The titles of the columns: what varies, the policy, and results.
    pub head: Vec<String>,
    /// A line for each row.
    pub rows: Vec<Vec<String>>,
    /// The position of the column with the policy.
    pub policy: usize,
}

impl Cells {
    /// A line for each point and policy.
    pub fn new(rows: &[Row<'_>]) -> Cells {
        let columns = columns(rows);
        let titles = columns.iter().map(|(title, _)| *title);
        Cells::with_columns(rows, titles, |row| {
            columns.iter().map(|(_, name)| row.metrics.format_cell(name)).collect()
        })
    }

    /// A line for each policy and combination of the values that are no samples, with intervals.
    pub fn with_intervals(rows: &[Row<'_>]) -> Cells {
        let columns: Vec<(&str, &str)> =
            columns(rows).into_iter().filter(|(_, name)| combined::has_interval(name)).collect();
        let titles = ["samples"].into_iter().chain(columns.iter().map(|(title, _)| *title));
        Cells::with_columns(rows, titles, |row| {
            let cell = |(_, name): &(&str, &str)| {
                let mean = format_optional(row.metrics.number(name));
                match row.metrics.number(&combined::half_width_column(name)) {
                    Some(width) => format!("{mean} ± {}", format_number(width)),
                    None => mean,
                }
            };
            let samples = row.metrics.get("samples").map_or_else(String::new, ToString::to_string);
            [samples].into_iter().chain(columns.iter().map(cell)).collect()
        })
    }

    fn with_columns<'a>(
        rows: &'a [Row<'_>],
        titles: impl Iterator<Item = &'a str>,
        cells: impl Fn(&Row<'_>) -> Vec<String>,
    ) -> Cells {
        let varied = rows.first().map_or(&[][..], |row| &row.values);
        let keys = varied.iter().map(|(key, _)| key.as_str()).chain(["policy"]);
        let to_line = |row: &Row<'_>| {
            let values = row.values.iter().map(|(_, value)| value.clone()).chain([row.policy.to_owned()]);
            values.chain(cells(row)).collect()
        };
        Cells {
            head: keys.chain(titles).map(str::to_owned).collect(),
            rows: rows.iter().map(to_line).collect(),
            policy: varied.len(),
        }
    }

    /// The cells as a table. The policy is left-aligned.
    pub fn to_table(&self) -> Table {
        let alignment =
            |column: usize| if column == self.policy { Alignment::Left } else { Alignment::Right };
        let titles = self.head.iter().enumerate();
        let mut table =
            Table::new(&titles.map(|(at, title)| (title.as_str(), alignment(at))).collect::<Vec<_>>());
        self.rows.iter().for_each(|row| table.add_row(row.clone()));
        table
    }
}

/// The columns that occur in the results.
fn columns(rows: &[Row<'_>]) -> Vec<(&'static str, &'static str)> {
    let occurs = |(_, name): &(&str, &str)| rows.iter().any(|row| row.metrics.get(name).is_some());
    COLUMNS.into_iter().chain(OPTIONAL_COLUMNS.into_iter().filter(occurs)).collect()
}

/// The text above the table.
pub fn caption(args: &args::Sweep, baseline: &str) -> String {
    let values = if args.fixed_baseline { "with unvaried parameters" } else { "at the same values" };
    let intervals = match args.confidence {
        true => {
            "mean ± half of the width of its 95 % confidence interval (Student's t) over traces and seeds.\n"
        }
        false => "",
    };
    format!(
        "\nCoflow completion times in seconds | speedups over `{baseline}` {values}, coflow by coflow.\n\
         /bound: mean divided by the lower bound of the mean.\n{intervals}"
    )
}
