//! Prints the tables of a sweep.

use weir_console::record::Record;
use weir_console::table::{Alignment, Table, format_number, format_optional};

use super::{Row, combined};
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

/// A line for each point and policy.
pub fn table(args: &args::Sweep, baseline: &str, rows: &[Row<'_>]) -> String {
    let varied = rows.first().map_or(&[][..], |row| &row.values);
    let varied = varied.iter().map(|(key, _)| (key.as_str(), Alignment::Right));
    let has_jobs = rows.iter().any(|row| row.metrics.get("mean_jct_s").is_some());
    let columns: Vec<(&str, &str)> =
        COLUMNS.into_iter().chain(has_jobs.then_some(("mean JCT", "mean_jct_s"))).collect();
    let titles = columns.iter().map(|(title, _)| (*title, Alignment::Right));
    let mut table =
        Table::new(&varied.chain([("policy", Alignment::Left)]).chain(titles).collect::<Vec<_>>());
    for Row { policy, values, metrics } in rows {
        let values = values.iter().map(|(_, value)| value.clone()).chain([(*policy).to_owned()]);
        let cells = columns.iter().map(|(_, name)| format_optional(metrics.number(name)));
        table.add_row(values.chain(cells).collect());
    }
    format!("{}\n{table}", caption(args, baseline))
}

/// A line for each policy and combination of the values that are no samples.
pub fn combined_table(args: &args::Sweep, baseline: &str, records: &[Record]) -> String {
    let keys = args.vary.iter().map(|vary| format!("vary_{}", vary.key));
    let keys: Vec<String> = keys.filter(|key| records.iter().any(|r| r.get(key).is_some())).collect();
    let varied = keys.iter().map(|key| (key.trim_start_matches("vary_"), Alignment::Right));
    let columns: Vec<(&str, &str, &str)> = COLUMNS
        .into_iter()
        .filter_map(|(title, name)| {
            let (_, half_width) = combined::COLUMNS.iter().find(|(other, _)| *other == name)?;
            Some((title, name, *half_width))
        })
        .collect();
    let titles = columns.iter().map(|(title, ..)| (*title, Alignment::Right));
    let head = varied.chain([("policy", Alignment::Left), ("samples", Alignment::Right)]).chain(titles);
    let mut table = Table::new(&head.collect::<Vec<_>>());
    for record in records {
        let text = |key: &str| {
            record.get(key).map_or_else(String::new, |value| {
                value.as_str().map_or_else(|| value.to_string(), str::to_owned)
            })
        };
        let cell = |(_, name, half_width): &(&str, &str, &str)| {
            let mean = format_optional(record.number(name));
            match record.number(half_width) {
                Some(width) => format!("{mean} ± {}", format_number(width)),
                None => mean,
            }
        };
        let cells = keys.iter().map(String::as_str).chain(["policy", "samples"]).map(text);
        table.add_row(cells.chain(columns.iter().map(cell)).collect());
    }
    format!(
        "{}mean ± half of the width of its 95 % confidence interval (Student's t) over traces and seeds.\n\n{table}",
        caption(args, baseline)
    )
}

fn caption(args: &args::Sweep, baseline: &str) -> String {
    let values = if args.fixed_baseline { "with unvaried parameters" } else { "at the same values" };
    format!(
        "\nCoflow completion times in seconds | speedups over `{baseline}` {values}, coflow by coflow.\n\
         /bound: mean divided by the lower bound of the mean.\n"
    )
}
