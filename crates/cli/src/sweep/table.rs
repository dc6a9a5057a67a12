//! Prints the tables of a sweep.

use std::borrow::Cow;

use weir_console::policy_spec;
use weir_console::problem;
use weir_console::table::{
    Alignment, BITS_PER_BYTE, Table, TimeUnit, format_number, format_optional, format_rate,
};
use weir_experiment::services::{self, Services};
use weir_experiment::source::Source;

use super::Row;
use super::combined::{self, ClusteredBy, DEADLINES_MISSED};
use crate::args;

/// A column with results.
#[derive(Debug, Clone)]
struct ShownColumn {
    /// The title in a terminal. A bar separates groups.
    title: Cow<'static, str>,
    /// The title in a report, which has no groups.
    report_title: Cow<'static, str>,
    /// The name in records.
    name: Cow<'static, str>,
    quantity: Quantity,
}

/// The quantity in a column.
#[derive(Debug, Clone, Copy)]
enum Quantity {
    /// A duration in seconds, which is shown in the unit of the table.
    Time,
    /// A rate in bits per second.
    Rate,
    Number,
    /// A part of the number in another column.
    PartOf(&'static str),
}

const fn column(
    title: &'static str,
    report_title: &'static str,
    name: &'static str,
    quantity: Quantity,
) -> ShownColumn {
    let [title, report_title, name] =
        [Cow::Borrowed(title), Cow::Borrowed(report_title), Cow::Borrowed(name)];
    ShownColumn { title, report_title, name, quantity }
}

impl ShownColumn {
    /// A value for people.
    fn format(&self, value: f64, unit: TimeUnit) -> String {
        match self.quantity {
            Quantity::Time => format_number(unit.count(value)),
            Quantity::Rate => format_rate(value / BITS_PER_BYTE),
            Quantity::Number | Quantity::PartOf(_) => format_number(value),
        }
    }

    /// The cell of a row.
    fn cell(&self, row: &Row<'_>, unit: TimeUnit) -> String {
        match (self.quantity, row.metrics.number(&self.name)) {
            (Quantity::Time | Quantity::Rate, Some(value)) => self.format(value, unit),
            (Quantity::PartOf(all), Some(_)) => {
                [&self.name, all].map(|name| row.metrics.format_cell(name)).join("/")
            }
            _ => row.metrics.format_cell(&self.name),
        }
    }

    /// The cell of a row, with its interval.
    fn cell_with_interval(&self, row: &Row<'_>, unit: TimeUnit) -> String {
        let format = |value: f64| self.format(value, unit);
        let mean = row.metrics.number(&self.name).map_or_else(|| format_optional(None), format);
        match row.metrics.number(&combined::half_width_column(&self.name)) {
            Some(0.0) => format!("{mean} ± 0"),
            Some(width) => format!("{mean} ± {}", format(width)),
            None => mean,
        }
    }
}

/// Columns for traces with coflows that end.
const TIME_COLUMNS: [ShownColumn; 8] = [
    column("mean", "mean", "mean_cct_s", Quantity::Time),
    column("P50", "P50", "p50_cct_s", Quantity::Time),
    column("P90", "P90", "p90_cct_s", Quantity::Time),
    column("/bound", "/bound", "over_bound", Quantity::Number),
    column("| P10", "speedup P10", "speedup_p10", Quantity::Number),
    column("P50", "speedup P50", "speedup_p50", Quantity::Number),
    column("P90", "speedup P90", "speedup_p90", Quantity::Number),
    column("mean", "mean speedup", "speedup_mean", Quantity::Number),
];

const SCHEDULE_COLUMN: ShownColumn =
    column("| schedule us", "schedule (us)", "schedule_mean_us", Quantity::Number);

/// Columns for replays that stall, and for traces with deadlines or jobs, whose results have these names.
const OPTIONAL_COLUMNS: [ShownColumn; 3] = [
    column("completed", "completed", problem::COMPLETED, Quantity::PartOf("coflows")),
    column("missed", "missed", DEADLINES_MISSED, Quantity::Number),
    column("mean JCT", "mean JCT", "mean_jct_s", Quantity::Time),
];

/// The unit of the times in the table of these rows: that of the shortest mean.
pub fn time_unit(rows: &[Row<'_>]) -> TimeUnit {
    TimeUnit::fitting(
        ["mean_cct_s", "mean_jct_s"]
            .into_iter()
            .flat_map(|name| rows.iter().filter_map(move |row| row.metrics.number(name))),
    )
}

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
    pub fn new(rows: &[Row<'_>], source: &Source) -> Cells {
        let (columns, unit) = (columns(rows, source), time_unit(rows));
        Cells::with_columns(rows, &[], &columns, |row| {
            result_cells(row, columns.iter().map(|column| column.cell(row, unit)))
        })
    }

    /// A line for each policy and combination of the values that are no samples, with intervals.
    pub fn with_intervals(rows: &[Row<'_>], source: &Source, clustered_by: ClusteredBy) -> Cells {
        let (mut columns, unit) = (columns(rows, source), time_unit(rows));
        columns.retain(|column| combined::has_interval(&column.name));
        Cells::with_columns(rows, &["samples", clustered_by.title()], &columns, |row| {
            let counts = ["samples", "clusters"].map(|name| row.metrics.format_cell(name));
            let cells = result_cells(row, columns.iter().map(|column| column.cell_with_interval(row, unit)));
            counts.into_iter().chain(cells).collect()
        })
    }

    /// Cells of these columns, and the columns before them that `first` names.
    fn with_columns(
        rows: &[Row<'_>],
        first: &[&'static str],
        columns: &[ShownColumn],
        cells: impl Fn(&Row<'_>) -> Vec<String>,
    ) -> Cells {
        let varied = rows.first().map_or(&[][..], |row| &row.values);
        let keys = varied.iter().map(|(key, _)| key.as_str()).chain(["policy"]).chain(first.iter().copied());
        let head = |title: fn(&ShownColumn) -> &str| {
            keys.clone().chain(columns.iter().map(title)).map(str::to_owned).collect()
        };
        let to_line = |row: &Row<'_>| {
            let values = row.values.iter().map(|(_, value)| value.clone()).chain([row.policy.to_owned()]);
            values.chain(cells(row)).collect()
        };
        Cells {
            head: head(|column| &column.title),
            report_head: head(|column| &column.report_title),
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

/// The cells of a row, of which the first one names a replay without results.
fn result_cells(row: &Row<'_>, cells: impl Iterator<Item = String>) -> Vec<String> {
    let mut cells: Vec<String> = cells.collect();
    if problem::is_failed(&row.metrics) {
        cells[0] = problem::FAILED.to_owned();
    }
    cells
}

/// The columns that occur in the results of `source`, and those of its first services.
fn columns(rows: &[Row<'_>], source: &Source) -> Vec<ShownColumn> {
    let occurs = |column: &ShownColumn| rows.iter().any(|row| row.metrics.get(&column.name).is_some());
    let times = TIME_COLUMNS.into_iter().filter(|_| !source.is_services_alone());
    let of_coflows = times.chain([SCHEDULE_COLUMN]);
    let of_service = |(position, name): (usize, &str)| ShownColumn {
        title: if position == 0 { format!("| {name}").into() } else { name.to_owned().into() },
        report_title: name.to_owned().into(),
        name: services::rate_column(name).into(),
        quantity: Quantity::Rate,
    };
    let services = source.services.iter();
    let of_services = services.flat_map(Services::shown_names).enumerate().map(of_service);
    of_coflows.chain(OPTIONAL_COLUMNS.into_iter().filter(occurs)).chain(of_services).collect()
}

/// The text above the table of results of `source`, with times in `unit`; `separator` is between completion times and speedups.
pub fn caption(
    args: &args::Sweep,
    source: &Source,
    unit: TimeUnit,
    baseline: &str,
    separator: &str,
) -> String {
    let values = if args.fixed_baseline { "with unvaried parameters" } else { "at the same values" };
    let times = match source.is_services_alone() {
        true => String::new(),
        false => format!(
            "Coflow completion times in {}{separator}speedups over `{baseline}` {values}, coflow by coflow.\n\
             /bound: mean divided by the lower bound of the mean.\n",
            unit.name
        ),
    };
    let services = source.services.as_ref();
    let rates = services.map_or_else(String::new, |services| services.description("--format csv") + "\n");
    format!("\n{times}{rates}")
}

/// The text about intervals.
pub fn intervals_caption(clustered_by: ClusteredBy) -> &'static str {
    match clustered_by {
        ClusteredBy::Trace => {
            "mean ± half of the width of its 95 % confidence interval (Student's t) over traces, each averaged over its seeds.\n"
        }
        ClusteredBy::Seed => {
            "mean ± half of the width of its 95 % confidence interval (Student's t) over seeds of one trace; other traces can differ \
             by more.\n"
        }
    }
}
