//! Writes Fig. 2 and 13: the spread of the flow completion times of a coflow.

use weir_console::chart::{LineChart, Marks, distribution};
use weir_core::model::{CoflowSpec, Workload};
use weir_sim::Outcome;
use weir_sim::outcome::{coefficient_of_variation, mean, percentile};
use weir_trace::describe::WorkloadStatistics;

use super::published::Comparison;
use super::replays::{ReplaySetting, Replays};
use crate::markdown::{format_percent, table};
use crate::picture::Pictures;

/// Flows with a normalized deviation (standard deviation over mean) below this value complete at the same time. Without
/// rounding errors, the deviation would be 0.
const MAX_DEVIATION_IN_SYNC: f64 = 1e-6;

/// The share of coflows with equal flows under Saath whose flows all complete at once, as published (6.2).
pub const PUBLISHED_SAATH_IN_SYNC: f64 = 0.4;
/// The share of coflows with equal flows under Aalo whose deviation is below 10 %, as published (6.2).
pub const PUBLISHED_AALO_BELOW_TENTH: f64 = 0.47;

/// The settings of both figures.
pub fn settings() -> Vec<ReplaySetting> {
    vec![ReplaySetting::new("aalo"), ReplaySetting::new("saath")]
}

/// The numbers of section 2.3 and of Fig. 13.
pub fn published(replays: &Replays, description: &WorkloadStatistics) -> Vec<Comparison> {
    let WorkloadStatistics {
        single_flow_share: single,
        equal_flows_share: equal,
        unequal_flows_share: unequal,
        ..
    } = *description;
    let aalo = fct_deviations(replays.outcome_of_policy("aalo"), true);
    let saath = fct_deviations(replays.outcome_of_policy("saath"), true);
    let [equal_p50, equal_p80] = [50.0, 80.0].map(|p| percentile(&aalo, p));
    let aalo_unequal = fct_deviations(replays.outcome_of_policy("aalo"), false);
    let [unequal_p50, unequal_p80] = [50.0, 80.0].map(|p| percentile(&aalo_unequal, p));
    let (saath_once, aalo_once) = (fraction_in_sync(&saath), fraction_in_sync(&aalo));
    let (saath_tenth, aalo_tenth) = (fraction_below(&saath, 0.1), fraction_below(&aalo, 0.1));
    let share = Comparison::fraction;
    vec![
        share("Coflows with one flow", "2.3, Fig. 2a: \"23%\"; Fig. 13: \"23.5%\"", 0.23, single),
        share("Coflows with equal flows", "2.3: \"50% have multiple, equal-length flows\"", 0.5, equal),
        share("Coflows with unequal flows", "2.3: \"the remaining 27%\"", 0.27, unequal),
        share("Aalo, equal flows: deviation, P50", "2.3, Fig. 2c: \"over 12%\"", 0.12, equal_p50),
        share("Aalo, equal flows: deviation, P80", "2.3, Fig. 2c: \"(39%)\"", 0.39, equal_p80),
        share("Aalo, unequal flows: deviation, P50", "2.3, Fig. 2c: \"over 27%\"", 0.27, unequal_p50),
        share("Aalo, unequal flows: deviation, P80", "2.3, Fig. 2c: \"(50%)\"", 0.5, unequal_p80),
        share(
            "Saath, equal flows: all at once",
            "6.2, Fig. 13: \"40%\"",
            PUBLISHED_SAATH_IN_SYNC,
            saath_once,
        ),
        share("Aalo, equal flows: all at once", "6.2, Fig. 13: \"20% in Aalo\"", 0.2, aalo_once),
        share("Saath, equal flows: deviation below 10 %", "6.2, Fig. 13: \"71%\"", 0.71, saath_tenth),
        share(
            "Aalo, equal flows: deviation below 10 %",
            "6.2, Fig. 13: \"47%\"",
            PUBLISHED_AALO_BELOW_TENTH,
            aalo_tenth,
        ),
    ]
}

/// The section of Fig. 2 and 13.
pub fn section(replays: &Replays, workload: &Workload, pictures: &mut Pictures) -> String {
    let flow_lengths =
        |coflow: &CoflowSpec| coefficient_of_variation(coflow.flows.iter().map(|flow| flow.bytes.get()));
    let lengths: Vec<f64> = workload.coflows.iter().map(flow_lengths).collect();
    let mut lines = vec![deviation_row("2b", "flow lengths, all coflows", &lengths)];
    for (figure, name, policy) in [("2c, 13", "FCTs under Aalo", "aalo"), ("13", "FCTs under Saath", "saath")]
    {
        for (flows, equal) in [("equal flows", true), ("unequal flows", false)] {
            lines.push(deviation_row(
                figure,
                &format!("{name}, {flows}"),
                &fct_deviations(replays.outcome_of_policy(policy), equal),
            ));
        }
    }
    let head = ["Figure", "Deviation of", "At 0", "Below 10 %", "P50", "P80", "P90", "Max"];
    format!(
        "\n\
         ## Fig. 2 and 13: coflows out of sync\n\n\
         The normalized deviation of a coflow is the standard deviation of its flow lengths, or of its FCTs, divided by \
         their mean. The rows about FCTs exclude coflows with one flow.\n\
         {}{}",
        table(&head, 2, &lines),
        pictures.add(
            "deviations",
            "Distributions of the deviation of flow completion times under Aalo and Saath, with published points",
            "Part of the coflows with several flows whose deviation of FCTs is at most this value, up to 150 %. Hollow: published points of \
             Fig. 2c and 13.",
            deviations_chart(replays),
        )
    )
}

/// The maximum deviation in the picture, in percent. Few coflows have larger ones.
const MAX_SHOWN_DEVIATION: f64 = 150.0;

/// Distributions of the deviations of FCTs, in percent.
fn deviations_chart(replays: &Replays) -> Option<String> {
    const LINES: [(&str, &str, bool); 4] = [
        ("Aalo, equal flows", "aalo", true),
        ("Aalo, unequal flows", "aalo", false),
        ("Saath, equal flows", "saath", true),
        ("Saath, unequal flows", "saath", false),
    ];
    let line = |&(_, policy, equal): &(&str, &str, bool)| -> Vec<(f64, f64)> {
        let deviations = fct_deviations(replays.outcome_of_policy(policy), equal);
        let steps = distribution(&deviations).into_iter().map(|(value, part)| (100.0 * value, part));
        steps.filter(|(value, _)| *value <= MAX_SHOWN_DEVIATION).collect()
    };
    let published = |line: usize, points: &[(f64, f64)]| {
        Marks::published(format!("{}, published", LINES[line].0), Some(line), points)
    };
    let names = LINES.map(|(name, ..)| name.to_owned());
    LineChart {
        x_title: "deviation (%)",
        y_title: "part of the coflows",
        y_max: 1.0,
        lines: LINES.iter().map(line).collect(),
        names: &names,
        marks: vec![
            published(0, &[(0.0, 0.2), (10.0, PUBLISHED_AALO_BELOW_TENTH), (12.0, 0.5), (39.0, 0.8)]),
            published(1, &[(27.0, 0.5), (50.0, 0.8)]),
            published(2, &[(0.0, PUBLISHED_SAATH_IN_SYNC), (10.0, 0.71)]),
        ],
        ..LineChart::default()
    }
    .to_svg()
}

fn deviation_row(figure: &str, name: &str, deviations: &[f64]) -> Vec<String> {
    let mut line = vec![figure.to_owned(), name.to_owned()];
    line.extend([fraction_in_sync(deviations), fraction_below(deviations, 0.1)].map(format_percent));
    line.extend([50.0, 80.0, 90.0, 100.0].map(|p| format_percent(percentile(deviations, p))));
    line
}

/// The normalized FCT deviations of the coflows with several flows, either equal or unequal in length.
pub fn fct_deviations(outcome: &Outcome, equal: bool) -> Vec<f64> {
    let multi_flow_coflows =
        outcome.coflows.iter().filter(|coflow| coflow.width > 1 && coflow.has_equal_flow_sizes == equal);
    multi_flow_coflows.map(|coflow| coflow.flow_time_deviation).collect()
}

/// The share of coflows whose flows complete at the same time.
pub fn fraction_in_sync(deviations: &[f64]) -> f64 {
    fraction_below(deviations, MAX_DEVIATION_IN_SYNC)
}

/// The share of values below a bound; 0 without values.
pub fn fraction_below(values: &[f64], bound: f64) -> f64 {
    mean(&values.iter().map(|&value| f64::from(value < bound)).collect::<Vec<f64>>())
}
