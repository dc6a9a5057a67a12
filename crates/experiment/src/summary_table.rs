//! Prints the tables of `weir sim` and `weir compare`.

use weir_console::problem;
use weir_console::record::Record;
use weir_console::table::{
    Alignment, Table, TimeUnit, format_bytes, format_number, format_optional, format_percent, format_seconds,
};

/// A column: its title and its cells.
type ShownColumn = (&'static str, Cell);

/// The cells of a column. The names are those of values in records.
#[derive(Clone, Copy)]
enum Cell {
    /// A time, in the unit of the table.
    Time(&'static str),
    Number(&'static str),
    Integer(&'static str),
    Percent(&'static str),
    Bytes(&'static str),
    /// The numbers of deadlines that were met, and of all.
    Deadlines,
    /// The numbers of coflows that completed, and of all.
    Completed,
}

impl Cell {
    /// The cell of a record.
    fn text(self, record: &Record, unit: TimeUnit) -> String {
        match self {
            Cell::Time(name) => format_optional(record.number(name).map(|seconds| unit.count(seconds))),
            Cell::Number(name) => format_optional(record.number(name)),
            Cell::Integer(name) => integer_cell(record, name),
            Cell::Percent(name) => percent_cell(record, name),
            Cell::Bytes(name) => bytes_cell(record, name),
            Cell::Deadlines => fraction_cell(record, "deadlines_met", "deadlines"),
            Cell::Completed => fraction_cell(record, problem::COMPLETED, "coflows"),
        }
    }
}

fn text_cell(record: &Record, name: &str) -> String {
    record.get(name).and_then(|value| value.as_str()).unwrap_or_default().to_owned()
}

fn integer_cell(record: &Record, name: &str) -> String {
    let value = record.get(name).filter(|value| !value.is_null());
    value.map_or_else(|| format_optional(None), ToString::to_string)
}

fn fraction_cell(record: &Record, part: &str, all: &str) -> String {
    match record.number(part) {
        Some(_) => [part, all].map(|name| integer_cell(record, name)).join("/"),
        None => format_optional(None),
    }
}

fn percent_cell(record: &Record, name: &str) -> String {
    record.number(name).map_or_else(|| format_optional(None), format_percent)
}

fn bytes_cell(record: &Record, name: &str) -> String {
    record.number(name).map_or_else(|| format_optional(None), format_bytes)
}

/// The unit of the times in a table: that of the shortest mean.
fn time_unit(records: &[Record]) -> TimeUnit {
    let means = ["mean_cct_s", "mean_jct_s"]
        .into_iter()
        .flat_map(|name| records.iter().filter_map(move |r| r.number(name)));
    TimeUnit::fitting(means)
}

/// Columns for replays that stall, and for traces with limits, weights, deadlines or jobs: the key of the record that enables the column,
/// the column, and its caption.
const OPTIONAL_COLUMNS: [(&str, ShownColumn, &str); 5] = [
    (problem::COMPLETED, ("completed", Cell::Completed), problem::COMPLETED_CAPTION),
    (
        "dropped_bytes",
        ("dropped", Cell::Bytes("dropped_bytes")),
        "dropped: bytes that were not sent before the limit of their transfer.",
    ),
    (
        "weighted_mean_cct_s",
        ("weighted", Cell::Time("weighted_mean_cct_s")),
        "weighted: mean weighted by the coflows' weights.",
    ),
    ("deadlines", ("in time", Cell::Deadlines), "in time: coflows that met their deadlines."),
    ("mean_jct_s", ("mean JCT", Cell::Time("mean_jct_s")), "mean JCT: mean job completion time in UNIT."),
];

/// Columns of the second wide table that replays without coflows have too, and their caption.
const COST_COLUMNS: [ShownColumn; 8] = [
    ("ports busy", Cell::Percent("utilization_mean")),
    ("max", Cell::Percent("utilization_max")),
    ("schedules", Cell::Integer("schedules")),
    ("mean us", Cell::Number("schedule_mean_us")),
    ("P90", Cell::Number("schedule_p90_us")),
    ("P99", Cell::Number("schedule_p99_us")),
    ("replay s", Cell::Number("wall_s")),
    ("processor s", Cell::Number("processor_s")),
];
const UTILIZATION_CAPTION: &str = "ports busy: utilization until the last flow completes. us: wall time to compute a schedule.\n\
     replay s, processor s: wall time and processor time of the replay.";

/// The optional columns whose keys occur in the records.
fn optional_columns(
    records: &[Record],
) -> impl Iterator<Item = &'static (&'static str, ShownColumn, &'static str)> {
    OPTIONAL_COLUMNS.iter().filter(|(name, ..)| records.iter().any(|record| record.get(name).is_some()))
}

/// A table with one line per policy.
fn policy_table(records: &[Record], columns: &[ShownColumn], unit: TimeUnit) -> String {
    let titles = columns.iter().map(|(title, _)| (*title, Alignment::Right));
    let mut table = Table::new(&[("policy", Alignment::Left)].into_iter().chain(titles).collect::<Vec<_>>());
    for record in records {
        let mut cells: Vec<String> = columns.iter().map(|(_, cell)| cell.text(record, unit)).collect();
        if problem::is_failed(record) {
            cells[0] = problem::FAILED.to_owned();
        }
        table.add_row([text_cell(record, "policy")].into_iter().chain(cells).collect());
    }
    table.to_string()
}

/// The table with the main columns: five, `/bound` if the lower bound is known, and the optional columns. Empty without completion times.
pub fn short_table(records: &[Record], baseline: &str, min_mean_cct: Option<f64>, has_times: bool) -> String {
    if !has_times {
        return String::new();
    }
    let unit = time_unit(records);
    let mut columns: Vec<ShownColumn> = vec![
        ("mean", Cell::Time("mean_cct_s")),
        ("P50", Cell::Time("p50_cct_s")),
        ("P90", Cell::Time("p90_cct_s")),
        ("P99", Cell::Time("p99_cct_s")),
        ("speedup", Cell::Number("speedup_p50")),
    ];
    let mut caption = format!(
        "\nCoflow completion times in {}.\n\
         speedup: median over coflows of the time under `{baseline}` divided by the time under the policy.\n",
        unit.name
    );
    if let Some(bound) = min_mean_cct {
        columns.push(("/bound", Cell::Number("over_bound")));
        caption +=
            &format!("/bound: mean divided by {}, the lower bound of the mean.\n", format_seconds(bound));
    }
    for (_, column, explanation) in optional_columns(records) {
        columns.push(*column);
        caption += &format!("{}\n", explanation.trim_end().replace("UNIT", unit.name));
    }
    format!("{caption}\n{}", policy_table(records, &columns, unit))
}

/// All columns, in two tables; without completion times, the columns of the second one that have values.
pub fn wide_table(records: &[Record], baseline: &str, min_mean_cct: Option<f64>, has_times: bool) -> String {
    let (unit, mut costs) = (time_unit(records), COST_COLUMNS.to_vec());
    costs.extend(optional_columns(records).map(|(_, column, _)| *column));
    if !has_times {
        return format!("\n{UTILIZATION_CAPTION}\n\n{}", policy_table(records, &costs, unit));
    }
    let synchrony: [ShownColumn; 2] =
        [("out of sync P50", Cell::Percent("out_of_sync_p50")), ("P90", Cell::Percent("out_of_sync_p90"))];
    let times: [ShownColumn; 11] = [
        ("mean", Cell::Time("mean_cct_s")),
        ("P50", Cell::Time("p50_cct_s")),
        ("P90", Cell::Time("p90_cct_s")),
        ("P95", Cell::Time("p95_cct_s")),
        ("P99", Cell::Time("p99_cct_s")),
        ("makespan", Cell::Time("makespan_s")),
        ("/bound", Cell::Number("over_bound")),
        ("| P10", Cell::Number("speedup_p10")),
        ("P50", Cell::Number("speedup_p50")),
        ("P90", Cell::Number("speedup_p90")),
        ("mean", Cell::Number("speedup_mean")),
    ];
    let bound = min_mean_cct.map(|bound| {
        format!("/bound: mean divided by {}, the lower bound of the mean.\n", format_seconds(bound))
    });
    format!(
        "\nCoflow completion times in {} | speedups over `{baseline}`, coflow by coflow.\n{}\n{}\n\
         out of sync: standard deviation of a coflow's flow completion times divided by their mean.\n\
         {UTILIZATION_CAPTION}\n\n{}",
        unit.name,
        bound.unwrap_or_default(),
        policy_table(records, &times, unit),
        policy_table(records, &[&synchrony[..], &costs].concat(), unit),
    )
}

/// The metrics of one policy, one per line; `has_times` tells whether there are completion times.
pub fn single_policy_table(r: &Record, has_times: bool) -> String {
    let time = |name| r.number(name).map_or_else(|| "-".to_owned(), format_seconds);
    let us = |name| r.number(name).map_or_else(|| "-".to_owned(), |us| format!("{} us", format_number(us)));
    let mut table = Table::new(&[("", Alignment::Left), ("", Alignment::Left)]);
    let mut line = |name: &str, value: String| table.add_row(vec![name.to_owned(), value]);
    line("policy", text_cell(r, "policy"));
    if r.get(problem::COMPLETED).is_some() {
        let [completed, all] = [problem::COMPLETED, "coflows"].map(|name| integer_cell(r, name));
        line("completed", format!("{completed} of {all} coflows; statistics are of these"));
    }
    if has_times {
        line("mean CCT", time("mean_cct_s"));
    }
    if let Some(bound_ratio) = r.number("over_bound") {
        let bound = time("lower_bound_mean_cct_s");
        line("", format!("{} times the lower bound, {bound}", format_number(bound_ratio)));
    }
    let percentiles =
        [("P50", "p50_cct_s"), ("P90", "p90_cct_s"), ("P95", "p95_cct_s"), ("P99", "p99_cct_s")];
    for (name, key) in percentiles.into_iter().filter(|_| has_times) {
        line(&format!("{name} CCT"), time(key));
    }
    line("makespan", time("makespan_s"));
    if has_times {
        let (p50, p90) = (percent_cell(r, "out_of_sync_p50"), percent_cell(r, "out_of_sync_p90"));
        line("out of sync", format!("P50 {p50}, P90 {p90}"));
    }
    line(
        "ports busy",
        format!("mean {}, max {}", percent_cell(r, "utilization_mean"), percent_cell(r, "utilization_max")),
    );
    if r.get("dropped_bytes").is_some() {
        line("dropped", bytes_cell(r, "dropped_bytes"));
    }
    if r.get("weighted_mean_cct_s").is_some() {
        line("weighted CCT", time("weighted_mean_cct_s"));
    }
    if r.get("deadlines").is_some() {
        line(
            "in time",
            format!(
                "{} of {} with deadlines; {} late, and {} rejected and late",
                integer_cell(r, "deadlines_met"),
                integer_cell(r, "deadlines"),
                integer_cell(r, "deadlines_missed"),
                integer_cell(r, "deadlines_rejected")
            ),
        );
    }
    if r.get("mean_jct_s").is_some() {
        line("mean JCT", time("mean_jct_s"));
    }
    line("schedules", integer_cell(r, "schedules"));
    if r.number("schedule_mean_us").is_some() {
        let (mean, p90, p99) = (us("schedule_mean_us"), us("schedule_p90_us"), us("schedule_p99_us"));
        line("", format!("mean {mean}, P90 {p90}, P99 {p99} of wall time"));
        line("replay took", format!("{}, {} of processor time", time("wall_s"), time("processor_s")));
    }
    table.to_string()
}
