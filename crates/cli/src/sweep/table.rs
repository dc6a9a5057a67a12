//! Prints the tables of a sweep.

use weir_console::policy_spec;
use weir_console::table::{Alignment, Table, format_number, format_optional};

use super::Row;
use super::combined::{self, DEADLINES_MISSED};
use crate::args;

/// A column with results.
#[derive(Debug, Clone, Copy)]
struct Column {
    /// The title in a terminal. A bar separates groups.
    title: &'static str,
    /// The title in a report, which has no groups.
    report_title: &'static str,
    /// The name in records.
    name: &'static str,
}

const fn column(title: &'static str, report_title: &'static str, name: &'static str) -> Column {
    Column { title, report_title, name }
}

const COLUMNS: [Column; 9] = [
    column("mean", "mean", "mean_cct_s"),
    column("P50", "P50", "p50_cct_s"),
    column("P90", "P90", "p90_cct_s"),
    column("/bound", "/bound", "over_bound"),
    column("| P10", "speedup P10", "speedup_p10"),
    column("P50", "speedup P50", "speedup_p50"),
    column("P90", "speedup P90", "speedup_p90"),
    column("mean", "mean speedup", "speedup_mean"),
    column("| schedule us", "schedule (us)", "schedule_mean_us"),
];

/// Columns for traces with deadlines or jobs, whose results have these names.
const OPTIONAL_COLUMNS: [Column; 2] =
    [column("missed", "missed", DEADLINES_MISSED), column("mean JCT", "mean JCT", "mean_jct_s")];

/// The results of a sweep as cells.
pub struct Cells {
    /// The titles of the columns: what varies, the policy, and results.
    head: Vec<String>,
    /// The same in a report.
    report_head: Vec<String>,
    /// A line for each row.
    rows: Vec<Vec<String>>,
    /// The position of the column with the policy.
    policy: usize,
}

impl Cells {
    /// A line for each point and policy.
    pub fn new(rows: &[Row<'_>]) -> Cells {
        let columns = columns(rows);
        Cells::with_columns(rows, None, &columns, |row| {
            columns.iter().map(|column| row.metrics.format_cell(column.name)).collect()
        })
    }

    /// A line for each policy and combination of the values that are no samples, with intervals.
    pub fn with_intervals(rows: &[Row<'_>]) -> Cells {
        let columns: Vec<Column> =
            columns(rows).into_iter().filter(|column| combined::has_interval(column.name)).collect();
        Cells::with_columns(rows, Some("samples"), &columns, |row| {
            let cell = |Column { name, .. }: &Column| {
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

    /// Cells of these columns, and a column before them that `first` names.
    fn with_columns(
        rows: &[Row<'_>],
        first: Option<&'static str>,
        columns: &[Column],
        cells: impl Fn(&Row<'_>) -> Vec<String>,
    ) -> Cells {
        let varied = rows.first().map_or(&[][..], |row| &row.values);
        let keys = varied.iter().map(|(key, _)| key.as_str()).chain(["policy"]).chain(first);
        let head = |title: fn(&Column) -> &'static str| {
            keys.clone().chain(columns.iter().map(title)).map(str::to_owned).collect()
        };
        let to_line = |row: &Row<'_>| {
            let values = row.values.iter().map(|(_, value)| value.clone()).chain([row.policy.to_owned()]);
            values.chain(cells(row)).collect()
        };
        Cells {
            head: head(|column| column.title),
            report_head: head(|column| column.report_title),
            rows: rows.iter().map(to_line).collect(),
            policy: varied.len(),
        }
    }

    /// The cells as a table for a terminal.
    pub fn to_table(&self) -> Table {
        self.table_with(&self.head, str::to_owned)
    }

    /// The cells as a table for a report, with the files of policies without their folders.
    pub fn to_report_table(&self) -> Table {
        self.table_with(&self.report_head, |policy| format!("`{}`", policy_spec::without_folder(policy)))
    }

    /// A table with these titles. The policy is left-aligned, and shown by `show_policy`.
    fn table_with(&self, head: &[String], show_policy: impl Fn(&str) -> String) -> Table {
        let alignment =
            |column: usize| if column == self.policy { Alignment::Left } else { Alignment::Right };
        let titles = head.iter().enumerate();
        let mut table =
            Table::new(&titles.map(|(at, title)| (title.as_str(), alignment(at))).collect::<Vec<_>>());
        for row in &self.rows {
            let mut row = row.clone();
            row[self.policy] = show_policy(&row[self.policy]);
            table.add_row(row);
        }
        table
    }
}

/// The columns that occur in the results.
fn columns(rows: &[Row<'_>]) -> Vec<Column> {
    let occurs = |column: &Column| rows.iter().any(|row| row.metrics.get(column.name).is_some());
    COLUMNS.into_iter().chain(OPTIONAL_COLUMNS.into_iter().filter(occurs)).collect()
}

/// The text above the table; `separator` is between completion times and speedups.
pub fn caption(args: &args::Sweep, baseline: &str, separator: &str) -> String {
    let values = if args.fixed_baseline { "with unvaried parameters" } else { "at the same values" };
    let intervals = match args.confidence {
        true => {
            "mean ± half of the width of its 95 % confidence interval (Student's t) over traces and seeds.\n"
        }
        false => "",
    };
    format!(
        "\nCoflow completion times in seconds{separator}speedups over `{baseline}` {values}, coflow by coflow.\n\
         /bound: mean divided by the lower bound of the mean.\n{intervals}"
    )
}
