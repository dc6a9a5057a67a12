//! Figures 2 and 13: the spread of the flow completion times of a coflow.

use weir_core::model::{CoflowSpec, Workload};
use weir_sim::Outcome;
use weir_sim::outcome::{deviation, mean, percentile};
use weir_trace::describe::Description;

use super::published::Comparison;
use super::replays::{Replays, Setting};
use crate::doc::{share, table};

/// Flows whose normalised deviation is below this complete at the same time: 0, except for rounding.
const AT_ONCE: f64 = 1e-6;

/// The share of Saath's coflows with equal flows that complete at once, as published (6.2).
pub const SAATH_AT_ONCE: f64 = 0.4;
/// The share of Aalo's coflows with equal flows whose deviation is below 10 %, as published (6.2).
pub const AALO_BELOW_TENTH: f64 = 0.47;

pub fn settings() -> Vec<Setting> {
    vec![Setting::new("aalo"), Setting::new("saath")]
}

/// The numbers of section 2.3 and of Fig. 13.
pub fn published(replays: &Replays, description: &Description) -> Vec<Comparison> {
    let Description { single, equal, unequal, .. } = *description;
    let aalo = deviations(replays.of("aalo"), true);
    let saath = deviations(replays.of("saath"), true);
    let [equal_p50, equal_p80] = [50.0, 80.0].map(|p| percentile(&aalo, p));
    let aalo_unequal = deviations(replays.of("aalo"), false);
    let [unequal_p50, unequal_p80] = [50.0, 80.0].map(|p| percentile(&aalo_unequal, p));
    let (saath_once, aalo_once) = (at_once(&saath), at_once(&aalo));
    let (saath_tenth, aalo_tenth) = (below(&saath, 0.1), below(&aalo, 0.1));
    let share = Comparison::share;
    vec![
        share("Coflows with one flow", "2.3, Fig. 2a: \"23%\"; Fig. 13: \"23.5%\"", 0.23, single),
        share("Coflows with equal flows", "2.3: \"50% have multiple, equal-length flows\"", 0.5, equal),
        share("Coflows with unequal flows", "2.3: \"the remaining 27%\"", 0.27, unequal),
        share("Aalo, equal flows: deviation, P50", "2.3, Fig. 2c: \"over 12%\"", 0.12, equal_p50),
        share("Aalo, equal flows: deviation, P80", "2.3, Fig. 2c: \"(39%)\"", 0.39, equal_p80),
        share("Aalo, unequal flows: deviation, P50", "2.3, Fig. 2c: \"over 27%\"", 0.27, unequal_p50),
        share("Aalo, unequal flows: deviation, P80", "2.3, Fig. 2c: \"(50%)\"", 0.5, unequal_p80),
        share("Saath, equal flows: all at once", "6.2, Fig. 13: \"40%\"", SAATH_AT_ONCE, saath_once),
        share("Aalo, equal flows: all at once", "6.2, Fig. 13: \"20% in Aalo\"", 0.2, aalo_once),
        share("Saath, equal flows: deviation below 10 %", "6.2, Fig. 13: \"71%\"", 0.71, saath_tenth),
        share(
            "Aalo, equal flows: deviation below 10 %",
            "6.2, Fig. 13: \"47%\"",
            AALO_BELOW_TENTH,
            aalo_tenth,
        ),
    ]
}

/// The section of Fig. 2 and 13.
pub fn section(replays: &Replays, workload: &Workload) -> String {
    let flow_lengths = |coflow: &CoflowSpec| deviation(coflow.flows.iter().map(|flow| flow.bytes.get()));
    let lengths: Vec<f64> = workload.coflows.iter().map(flow_lengths).collect();
    let mut lines = vec![line("2b", "flow lengths, all coflows", &lengths)];
    for (figure, name, policy) in [("2c, 13", "FCTs under Aalo", "aalo"), ("13", "FCTs under Saath", "saath")]
    {
        for (flows, equal) in [("equal flows", true), ("unequal flows", false)] {
            lines.push(line(figure, &format!("{name}, {flows}"), &deviations(replays.of(policy), equal)));
        }
    }
    let head = ["Figure", "Deviation of", "At 0", "Below 10 %", "P50", "P80", "P90", "Max"];
    format!(
        "\n## Fig. 2 and 13: coflows out of sync\n\nThe normalised deviation of a coflow is the standard deviation of its \
         flow lengths, or of its FCTs, divided by their mean. The rows about FCTs leave out coflows with one flow.\n{}",
        table(&head, 2, &lines)
    )
}

fn line(figure: &str, name: &str, deviations: &[f64]) -> Vec<String> {
    let mut line = vec![figure.to_owned(), name.to_owned()];
    line.extend([at_once(deviations), below(deviations, 0.1)].map(share));
    line.extend([50.0, 80.0, 90.0, 100.0].map(|p| share(percentile(deviations, p))));
    line
}

/// The normalised FCT deviations of the coflows with several flows, either equal or unequal in length.
pub fn deviations(outcome: &Outcome, equal: bool) -> Vec<f64> {
    let kept = outcome.coflows.iter().filter(|coflow| coflow.width > 1 && coflow.equal_lengths == equal);
    kept.map(|coflow| coflow.deviation).collect()
}

/// The share of coflows whose flows complete at the same time.
pub fn at_once(deviations: &[f64]) -> f64 {
    below(deviations, AT_ONCE)
}

/// The share of values below a bound; 0 of no values.
pub fn below(values: &[f64], bound: f64) -> f64 {
    mean(&values.iter().map(|&value| f64::from(value < bound)).collect::<Vec<f64>>())
}
