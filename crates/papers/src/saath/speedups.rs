//! Figures 3, 9, 10, 11 and 15: speedups of coflows.

use weir_core::units::Bytes;
use weir_sim::CoflowOutcome;
use weir_sim::outcome::{mean, percentile, speedups};
use weir_trace::describe;

use super::published::Comparison;
use super::replays::{Replays, Setting, mean_cct, speedup};
use super::synchrony::below;
use crate::doc::{n, ratio, share, spread, table};

/// The parts of Saath, each with those before it: all-or-none with FIFO, per-flow thresholds, least contention first.
const PARTS: [(&str, &str); 3] =
    [("A/N", "saath:lcof=off:per-flow=off"), ("A/N + P/F", "saath:lcof=off"), ("Saath", "saath")];
/// Orders that know the sizes of flows (Fig. 3).
const CLAIRVOYANT: [&str; 3] = ["scf", "srtf", "lwtf"];
/// The policies that Saath is compared with. Max-min sharing (`fair`) stands for UC-TCP.
const BASELINES: [&str; 3] = ["aalo", "varys", "fair"];
/// The speedup above which a coflow counts as faster.
const FASTER: f64 = 1.001;

/// Saath over Aalo, P50 and P90, as published (6.1).
pub const OVER_AALO: [f64; 2] = [1.53, 4.5];
/// Saath over UC-TCP, P50, as published (6.1).
pub const OVER_TCP: f64 = 154.0;

pub fn settings() -> Vec<Setting> {
    let parts = PARTS.iter().map(|(_, policy)| policy);
    parts.chain(&CLAIRVOYANT).chain(&BASELINES).map(|policy| Setting::new(*policy)).collect()
}

/// The numbers of sections 6.1 and 6.2.
pub fn published(replays: &Replays) -> Vec<Comparison> {
    let over = |policy, baseline| spread(&speedup(replays.of(policy), replays.of(baseline)));
    let [[_, an, an_p90], [_, pf, pf_p90], [_, saath, saath_p90]] =
        PARTS.map(|(_, policy)| over(policy, "aalo"));
    let number = Comparison::number;
    vec![
        number("Saath over Aalo, P50", "6.1, Fig. 9: \"1.53x (median)\"", OVER_AALO[0], saath),
        number("Saath over Aalo, P90", "6.1, Fig. 9: \"4.5x (P90)\"", OVER_AALO[1], saath_p90),
        number("Saath over Varys, P50", "6.1: \"close to that of SEBF\"", 1.0, over("saath", "varys")[1]),
        number("Saath over UC-TCP, P50", "6.1, Fig. 9: \"154x\"", OVER_TCP, over("saath", "fair")[1]),
        number("A/N over Aalo, P50", "6.2, Fig. 10: \"1.13x\"", 1.13, an),
        number("A/N over Aalo, P90", "6.2, Fig. 10: \"3.05x at P90\"", 3.05, an_p90),
        number("A/N + P/F over Aalo, P50", "6.2, Fig. 10: \"1.3x\"", 1.3, pf),
        number("A/N + P/F over Aalo, P90", "6.2, Fig. 10: \"3.83x at P90\"", 3.83, pf_p90),
    ]
}

/// The numbers of section 7.1, from a testbed.
pub fn testbed(replays: &Replays) -> Vec<Comparison> {
    let over_aalo = speedup(replays.of("saath"), replays.of("aalo"));
    let at = |p| percentile(&over_aalo, p);
    let number = Comparison::number;
    vec![
        number(
            "Testbed, Saath over Aalo, mean",
            "7.1, Fig. 15: \"average of 1.88x\"",
            1.88,
            mean(&over_aalo),
        ),
        number("Testbed, Saath over Aalo, P50", "7.1, Fig. 15: \"median of 1.43x\"", 1.43, at(50.0)),
        number("Testbed, Saath over Aalo, min", "7.1, Fig. 15: \"0.09-12.15x\"", 0.09, at(0.0)),
        number("Testbed, Saath over Aalo, max", "7.1, Fig. 15: \"0.09-12.15x\"", 12.15, at(100.0)),
        Comparison::share("Testbed, coflows with a lower CCT", "7.1: \">70%\"", 0.7, faster(&over_aalo)),
    ]
}

fn faster(speedups: &[f64]) -> f64 {
    1.0 - below(speedups, FASTER)
}

/// The sections of all figures; `threshold` is the size that separates the bins of Table 1.
pub fn section(replays: &Replays, threshold: Bytes) -> String {
    [fig3(replays), fig9(replays), fig10(replays, threshold)].concat()
}

fn fig3(replays: &Replays) -> String {
    let aalo = replays.of("aalo");
    let line = |policy: &&str| {
        let outcome = replays.of(policy);
        let mut line = vec![format!("`{policy}`")];
        line.extend(spread(&speedup(outcome, aalo)).map(n));
        line.extend([n(mean_cct(outcome)), ratio(mean_cct(aalo), mean_cct(outcome))]);
        line
    };
    let head = ["Policy", "P10", "P50", "P90", "Mean CCT, s", "Mean CCT of Aalo / mean CCT"];
    format!(
        "\n## Fig. 3: clairvoyant orders over Aalo\n\nThe paper: \"LWTF outperforms SRTF and SCF\"; \"the curves for SRTF and \
         LWTF overlap in (a)\". It prints no numbers. P10 to P90 are speedups over Aalo.\n{}",
        table(&head, 1, &CLAIRVOYANT.iter().map(line).collect::<Vec<_>>())
    )
}

fn fig9(replays: &Replays) -> String {
    let line = |baseline: &&str| {
        let over = speedup(replays.of("saath"), replays.of(baseline));
        let mut line = vec![format!("`{baseline}`")];
        line.extend([0.0, 10.0, 50.0, 90.0, 100.0].map(|p| n(percentile(&over, p))));
        line.extend([n(mean(&over)), share(faster(&over))]);
        line
    };
    let head = ["Over", "Min", "P10", "P50", "P90", "Max", "Mean", "Coflows with a lower CCT"];
    format!(
        "\n## Fig. 9 and 15: speedup of Saath\n\n`fair` is max-min sharing between flows, for UC-TCP. A CCT is lower if it \
         falls by more than 0.1 %.\n{}",
        table(&head, 1, &BASELINES.iter().map(line).collect::<Vec<_>>())
    )
}

fn fig10(replays: &Replays, threshold: Bytes) -> String {
    let line = |bin: Option<u8>| {
        let ccts = |policy| -> Vec<f64> {
            let coflows = replays.of(policy).coflows.iter();
            let bin_of = |coflow: &CoflowOutcome| describe::bin(coflow.width, coflow.bytes, threshold);
            let kept = coflows.filter(|coflow| bin.is_none_or(|bin| bin_of(coflow) == bin));
            kept.map(CoflowOutcome::cct).collect()
        };
        let aalo = ccts("aalo");
        let part = aalo.len() as f64 / replays.of("aalo").coflows.len() as f64;
        let mut line = vec![bin.map_or("all".to_owned(), |bin| bin.to_string()), share(part), n(mean(&aalo))];
        for (_, policy) in PARTS {
            let ccts = ccts(policy);
            let [_, p50, p90] = spread(&speedups(&aalo, &ccts));
            line.extend([p50, p90, mean(&ccts)].map(n));
        }
        line
    };
    let mut head = vec!["Bin".to_owned(), "Coflows".to_owned(), "Aalo, mean CCT in s".to_owned()];
    for (name, _) in PARTS {
        head.extend(["P50", "P90", "mean CCT in s"].map(|column| format!("{name}, {column}")));
    }
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let policies = PARTS.map(|(name, policy)| format!("{name} is `{policy}`")).join(", ");
    format!(
        "\n## Fig. 10 and 11: the parts of Saath\n\nP50 and P90 are speedups over Aalo. {policies}: all-or-none with FIFO; plus \
         the per-flow threshold; plus least contention first (LCoF). Bins 1 and 2 of Table 1 hold coflows of at most 100 MB, \
         bins 1 and 3 coflows of at most 10 flows.\n\n\
         The paper: A/N is \"effective for small, thin CoFlows\"; P/F is \"highly effective for CoFlows in bins 2 and 4\"; LCoF \
         \"improves the CCT of CoFlows in all bins\". LCoF and FIFO order coflows differently only if at least three meet in a \
         queue: of two, each blocks one other, and ties are FIFO.\n{}",
        table(&head, 1, &[None, Some(1), Some(2), Some(3), Some(4)].map(line))
    )
}
