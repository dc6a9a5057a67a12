//! The choices that the paper leaves open and that change a result most.

use weir_sim::outcome::percentile;

use super::replays::{Replays, Setting, mean_cct, speedup};
use super::speedups::{OVER_AALO, OVER_TCP};
use super::synchrony::{AALO_BELOW_TENTH, SAATH_AT_ONCE, at_once, below, deviations};
use crate::doc::{n, share, table};

/// A choice: the settings for each of the paper's policies.
struct Assumption {
    name: &'static str,
    /// The option of a replay or a policy that makes the choice.
    option: &'static str,
    saath: Setting,
    aalo: Setting,
    tcp: Setting,
}

fn assumptions() -> Vec<Assumption> {
    let default = |name, option| Assumption {
        name,
        option,
        saath: Setting::new("saath"),
        aalo: Setting::new("aalo"),
        tcp: Setting::new("fair"),
    };
    let aalo = |name, option| Assumption { aalo: Setting::new(option), ..default(name, option) };
    let saath = |name, option| Assumption { saath: Setting::new(option), ..default(name, option) };
    vec![
        default("Defaults", "-"),
        aalo("Aalo has strict priorities between queues (2.2)", "aalo:sharing=strict"),
        aalo("Aalo has queues at receivers too, as in CoflowSim", "aalo:at=both"),
        aalo("Both of these", "aalo:at=both:sharing=strict"),
        Assumption {
            tcp: Setting::new("aalo:queues=1"),
            ..default("UC-TCP is FIFO by coflow at each sender (6.1)", "aalo:queues=1")
        },
        saath("The deadline of D5 uses the per-flow threshold", "saath:time=flow"),
        saath("No estimate of flow lengths without failures (4.3)", "saath:requeue=off"),
        saath("All-or-none needs whole ports (Fig. 7, line 7)", "saath:available=full"),
        saath("No work conservation (D4)", "saath:work-conservation=off"),
    ]
}

pub fn settings() -> Vec<Setting> {
    let of = |assumption: Assumption| [assumption.saath, assumption.aalo, assumption.tcp];
    assumptions().into_iter().flat_map(of).collect()
}

/// What CoflowSim, the simulator that the paper names, does differently.
const COFLOWSIM: &str = "\
The paper cites CoflowSim (github.com/coflow/coflowsim) for Aalo and Varys; its own simulator is not public. \
CoflowSim differs from Weir in these points. \
Aalo has strict priorities and queues at both ends; queues and rates change only when a coflow arrives or completes. \
A flow that loses its turn can keep its rate, so a port can exceed its capacity. \
Fair sharing gives each flow the smaller of its even shares of its two ports, and wastes the rest. \
Coflows arrive in steps of ten seconds. \
A megabyte is 2^20 bytes, a gigabit 2^30 bits, a second 1,024 ms. \
Reducer sizes are rounded up to megabytes, and each flow has at least one. \
Weir does not reproduce these points, except for the queues: `aalo:at=both:sharing=strict`.\n";

/// The section with a row for each assumption.
pub fn section(replays: &Replays) -> String {
    let line = |assumption: &Assumption| {
        let [saath, aalo, tcp] =
            [&assumption.saath, &assumption.aalo, &assumption.tcp].map(|setting| replays.at(setting));
        let option = assumption.option;
        let over_aalo = speedup(saath, aalo);
        let (aalo_deviations, saath_deviations) = (deviations(aalo, true), deviations(saath, true));
        vec![
            assumption.name.to_owned(),
            if option == "-" { option.to_owned() } else { format!("`{option}`") },
            n(percentile(&over_aalo, 50.0)),
            n(percentile(&over_aalo, 90.0)),
            n(percentile(&speedup(saath, tcp), 50.0)),
            share(below(&aalo_deviations, 0.1)),
            share(at_once(&saath_deviations)),
            n(mean_cct(saath)),
        ]
    };
    let [p50, p90] = OVER_AALO.map(n);
    let published = ["Published".to_owned(), "-".to_owned(), p50, p90, n(OVER_TCP)]
        .into_iter()
        .chain([AALO_BELOW_TENTH, SAATH_AT_ONCE].map(share))
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
        "\n## Assumptions that change a result most\n\nEach row changes one choice of Weir to another reading of the paper.\n{}\n{COFLOWSIM}",
        table(&head, 2, &lines)
    )
}
