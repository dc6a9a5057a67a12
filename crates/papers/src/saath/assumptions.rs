//! Writes the section with the assumptions that change a result most.

use weir_sim::outcome::percentile;

use super::replays::{ReplaySetting, Replays, coflow_speedups, mean_cct};
use super::speedups::{PUBLISHED_OVER_AALO, PUBLISHED_OVER_TCP};
use super::synchrony::{
    PUBLISHED_AALO_BELOW_TENTH, PUBLISHED_SAATH_IN_SYNC, fct_deviations, fraction_below, fraction_in_sync,
};
use crate::markdown::{format_cell, format_percent, table};

/// Another reading of the paper: its settings for each of the compared policies.
struct AlternativeReading {
    name: &'static str,
    /// The option of a policy that selects this reading; `-` for the defaults.
    option: &'static str,
    saath: ReplaySetting,
    aalo: ReplaySetting,
    tcp: ReplaySetting,
}

fn assumptions() -> Vec<AlternativeReading> {
    let default = |name, option| AlternativeReading {
        name,
        option,
        saath: ReplaySetting::new("saath"),
        aalo: ReplaySetting::new("aalo"),
        tcp: ReplaySetting::new("fair"),
    };
    let aalo =
        |name, option| AlternativeReading { aalo: ReplaySetting::new(option), ..default(name, option) };
    let saath =
        |name, option| AlternativeReading { saath: ReplaySetting::new(option), ..default(name, option) };
    vec![
        default("Defaults", "-"),
        aalo("Aalo has strict priorities between queues (2.2)", "aalo:sharing=strict"),
        aalo("Aalo has queues at receivers too, as in CoflowSim", "aalo:at=both"),
        aalo("Both of these", "aalo:at=both:sharing=strict"),
        AlternativeReading {
            tcp: ReplaySetting::new("aalo:queues=1"),
            ..default("UC-TCP is FIFO by coflow at each sender (6.1)", "aalo:queues=1")
        },
        saath("The deadline of D5 uses the per-flow threshold", "saath:time=flow"),
        saath("Flow lengths are estimated in all coflows (4.3)", "saath:requeue=on"),
        saath("All-or-none needs whole ports (Fig. 7, line 7)", "saath:available=full"),
        saath("No work conservation (D4)", "saath:work-conservation=off"),
    ]
}

/// The settings of all rows.
pub fn settings() -> Vec<ReplaySetting> {
    let settings_of = |assumption: AlternativeReading| [assumption.saath, assumption.aalo, assumption.tcp];
    assumptions().into_iter().flat_map(settings_of).collect()
}

/// The differences between Weir and CoflowSim, the simulator that the paper cites.
const COFLOWSIM_DIFFERENCES: &str = "The paper cites CoflowSim (github.com/coflow/coflowsim) for Aalo and Varys; its own \
                                     simulator is not public. CoflowSim differs from Weir in these points. Aalo has strict \
                                     priorities and queues at both ends; queues and rates change only when a coflow arrives \
                                     or completes. A preempted flow can keep its rate, so a port can exceed its capacity. \
                                     Fair sharing gives each flow the smaller of its equal shares at its two ports, and \
                                     leaves the rest unused. Coflows arrive in steps of ten seconds. A megabyte is 2^20 \
                                     bytes, a gigabit 2^30 bits, a second 1,024 ms. Reducer sizes are rounded up to \
                                     megabytes, and each flow has at least one. Weir does not reproduce these points, except \
                                     for the queues: `aalo:at=both:sharing=strict`.\n";

/// The section with a row for each assumption.
pub fn section(replays: &Replays) -> String {
    let line = |assumption: &AlternativeReading| {
        let [saath, aalo, tcp] =
            [&assumption.saath, &assumption.aalo, &assumption.tcp].map(|setting| replays.outcome(setting));
        let option = assumption.option;
        let over_aalo = coflow_speedups(saath, aalo);
        let (aalo_deviations, saath_deviations) = (fct_deviations(aalo, true), fct_deviations(saath, true));
        vec![
            assumption.name.to_owned(),
            if option == "-" { option.to_owned() } else { format!("`{option}`") },
            format_cell(percentile(&over_aalo, 50.0)),
            format_cell(percentile(&over_aalo, 90.0)),
            format_cell(percentile(&coflow_speedups(saath, tcp), 50.0)),
            format_percent(fraction_below(&aalo_deviations, 0.1)),
            format_percent(fraction_in_sync(&saath_deviations)),
            format_cell(mean_cct(saath)),
        ]
    };
    let [p50, p90] = PUBLISHED_OVER_AALO.map(format_cell);
    let published = ["Published".to_owned(), "-".to_owned(), p50, p90, format_cell(PUBLISHED_OVER_TCP)]
        .into_iter()
        .chain([PUBLISHED_AALO_BELOW_TENTH, PUBLISHED_SAATH_IN_SYNC].map(format_percent))
        .chain(["-".to_owned()])
        .collect();
    let mut lines = vec![published];
    lines.extend(assumptions().iter().map(line));
    let head = [
        "Assumption",
        "Option",
        "Saath over Aalo, P50",
        "P90",
        "Saath over UC-TCP, P50",
        "Aalo, equal flows: deviation below 10 %",
        "Saath, equal flows: all at once",
        "Mean CCT of Saath, s",
    ];
    format!(
        "\n\
         ## Assumptions that change a result most\n\n\
         Each row replaces one choice of Weir by another reading of the paper.\n\
         {}\n\
         {COFLOWSIM_DIFFERENCES}",
        table(&head, 2, &lines)
    )
}
