//! Writes Fig. 3, 9, 10, 11 and 15: speedups of coflows.

use weir_console::chart::{LineChart, Marks, Scale, distribution};
use weir_core::units::Bytes;
use weir_sim::CoflowOutcome;
use weir_sim::outcome::{mean, percentile, speedups};
use weir_trace::describe;

use super::published::Comparison;
use super::replays::{ReplaySetting, Replays, coflow_speedups, mean_cct};
use super::synchrony::fraction_below;
use crate::markdown::{format_cell, format_percent, format_ratio, p10_p50_p90, table};
use crate::picture::Pictures;

/// The parts of Saath, each together with those before it: all-or-none with FIFO, per-flow thresholds, least contention first.
const MECHANISMS: [(&str, &str); 3] =
    [("A/N", "saath:lcof=off:per-flow=off"), ("A/N + P/F", "saath:lcof=off"), ("Saath", "saath")];
/// Orders that know the sizes of flows (Fig. 3).
const CLAIRVOYANT: [&str; 3] = ["scf", "srtf", "lwtf"];
/// The policies that Saath is compared with. Max-min sharing (`fair`) is in place of UC-TCP.
const BASELINES: [&str; 3] = ["aalo", "varys", "fair"];
/// The minimum speedup of a coflow that counts as faster, so that rounding errors do not count.
const MIN_SPEEDUP_OF_FASTER: f64 = 1.001;

/// Saath over Aalo, P50 and P90, as published (6.1).
pub const PUBLISHED_OVER_AALO: [f64; 2] = [1.53, 4.5];
/// Saath over UC-TCP, P50, as published (6.1).
pub const PUBLISHED_OVER_TCP: f64 = 154.0;

/// The settings of all figures.
pub fn settings() -> Vec<ReplaySetting> {
    let parts = MECHANISMS.iter().map(|(_, policy)| policy);
    parts.chain(&CLAIRVOYANT).chain(&BASELINES).map(|policy| ReplaySetting::new(*policy)).collect()
}

/// The numbers of sections 6.1 and 6.2.
pub fn published(replays: &Replays) -> Vec<Comparison> {
    let speedup_percentiles = |policy, baseline| {
        p10_p50_p90(&coflow_speedups(replays.outcome_of_policy(policy), replays.outcome_of_policy(baseline)))
    };
    let [[_, an, an_p90], [_, pf, pf_p90], [_, saath, saath_p90]] =
        MECHANISMS.map(|(_, policy)| speedup_percentiles(policy, "aalo"));
    let number = Comparison::number;
    vec![
        number("Saath over Aalo, P50", "6.1, Fig. 9: \"1.53x (median)\"", PUBLISHED_OVER_AALO[0], saath),
        number("Saath over Aalo, P90", "6.1, Fig. 9: \"4.5x (P90)\"", PUBLISHED_OVER_AALO[1], saath_p90),
        number(
            "Saath over Varys, P50",
            "6.1: \"close to that of SEBF\"",
            1.0,
            speedup_percentiles("saath", "varys")[1],
        ),
        number(
            "Saath over UC-TCP, P50",
            "6.1, Fig. 9: \"154x\"",
            PUBLISHED_OVER_TCP,
            speedup_percentiles("saath", "fair")[1],
        ),
        number("A/N over Aalo, P50", "6.2, Fig. 10: \"1.13x\"", 1.13, an),
        number("A/N over Aalo, P90", "6.2, Fig. 10: \"3.05x at P90\"", 3.05, an_p90),
        number("A/N + P/F over Aalo, P50", "6.2, Fig. 10: \"1.3x\"", 1.3, pf),
        number("A/N + P/F over Aalo, P90", "6.2, Fig. 10: \"3.83x at P90\"", 3.83, pf_p90),
    ]
}

/// The numbers of section 7.1, from a testbed.
pub fn published_testbed(replays: &Replays) -> Vec<Comparison> {
    let over_aalo = coflow_speedups(replays.outcome_of_policy("saath"), replays.outcome_of_policy("aalo"));
    let percentile_at = |p| percentile(&over_aalo, p);
    let number = Comparison::number;
    vec![
        number(
            "Testbed, Saath over Aalo, mean",
            "7.1, Fig. 15: \"average of 1.88x\"",
            1.88,
            mean(&over_aalo),
        ),
        number(
            "Testbed, Saath over Aalo, P50",
            "7.1, Fig. 15: \"median of 1.43x\"",
            1.43,
            percentile_at(50.0),
        ),
        number("Testbed, Saath over Aalo, min", "7.1, Fig. 15: \"0.09-12.15x\"", 0.09, percentile_at(0.0)),
        number("Testbed, Saath over Aalo, max", "7.1, Fig. 15: \"0.09-12.15x\"", 12.15, percentile_at(100.0)),
        Comparison::fraction(
            "Testbed, coflows with a lower CCT",
            "7.1: \">70%\"",
            0.7,
            fraction_faster(&over_aalo),
        ),
    ]
}

fn fraction_faster(speedups: &[f64]) -> f64 {
    1.0 - fraction_below(speedups, MIN_SPEEDUP_OF_FASTER)
}

/// The sections of all figures; `bin_threshold` is the size that separates the bins of Table 1.
pub fn section(replays: &Replays, bin_threshold: Bytes, pictures: &mut Pictures) -> String {
    [fig3(replays), fig9(replays, pictures), fig10(replays, bin_threshold)].concat()
}

fn fig3(replays: &Replays) -> String {
    let aalo = replays.outcome_of_policy("aalo");
    let line = |policy: &&str| {
        let outcome = replays.outcome_of_policy(policy);
        let mut line = vec![format!("`{policy}`")];
        line.extend(p10_p50_p90(&coflow_speedups(outcome, aalo)).map(format_cell));
        line.extend([format_cell(mean_cct(outcome)), format_ratio(mean_cct(aalo), mean_cct(outcome))]);
        line
    };
    let head = ["Policy", "P10", "P50", "P90", "Mean CCT, s", "Mean CCT of Aalo / mean CCT"];
    format!(
        "\n## Fig. 3: clairvoyant orders over Aalo\n\nThe paper: \"LWTF outperforms SRTF and SCF\"; \"the curves for SRTF and \
         LWTF overlap in (a)\". It prints no numbers. P10 to P90 are speedups over Aalo.\n{}",
        table(&head, 1, &CLAIRVOYANT.iter().map(line).collect::<Vec<_>>())
    )
}

/// Distributions of the speedups of Saath.
fn fig9_chart(replays: &Replays) -> Option<String> {
    let line = |baseline: &&str| {
        distribution(&coflow_speedups(
            replays.outcome_of_policy("saath"),
            replays.outcome_of_policy(baseline),
        ))
    };
    let published = |line: usize, points: &[(f64, f64)]| {
        Marks::published(format!("over {}, published", BASELINES[line]), Some(line), points)
    };
    let [over_aalo_p50, over_aalo_p90] = PUBLISHED_OVER_AALO;
    let names = BASELINES.map(|baseline| format!("over {baseline}"));
    LineChart {
        x_title: "speedup of Saath",
        y_title: "part of the coflows",
        x_scale: Scale::Log,
        y_max: 1.0,
        lines: BASELINES.iter().map(line).collect(),
        names: &names,
        marks: vec![
            published(0, &[(over_aalo_p50, 0.5), (over_aalo_p90, 0.9)]),
            published(1, &[(1.0, 0.5)]),
            published(2, &[(PUBLISHED_OVER_TCP, 0.5)]),
        ],
        ..LineChart::default()
    }
    .to_svg()
}

fn fig9(replays: &Replays, pictures: &mut Pictures) -> String {
    let line = |baseline: &&str| {
        let saath_speedups =
            coflow_speedups(replays.outcome_of_policy("saath"), replays.outcome_of_policy(baseline));
        let mut line = vec![format!("`{baseline}`")];
        line.extend([0.0, 10.0, 50.0, 90.0, 100.0].map(|p| format_cell(percentile(&saath_speedups, p))));
        line.extend([format_cell(mean(&saath_speedups)), format_percent(fraction_faster(&saath_speedups))]);
        line
    };
    let head = ["Over", "Min", "P10", "P50", "P90", "Max", "Mean", "Coflows with a lower CCT"];
    format!(
        "\n\
         ## Fig. 9 and 15: speedup of Saath\n\n\
         `fair` is max-min sharing between flows, in place of UC-TCP. A CCT is lower if it decreases by at least 0.1 %.\n\
         {}{}",
        table(&head, 1, &BASELINES.iter().map(line).collect::<Vec<_>>()),
        pictures.add(
            "distribution",
            "Distributions of the speedups of Saath over Aalo, Varys and fair sharing, with published percentiles",
            "Part of the coflows whose speedup under Saath is at most this value. Hollow: published percentiles (6.1); `fair` is in place of \
             UC-TCP.",
            fig9_chart(replays),
        )
    )
}

fn fig10(replays: &Replays, bin_threshold: Bytes) -> String {
    let line = |bin: Option<u8>| {
        let ccts = |policy| -> Vec<f64> {
            let coflows = replays.outcome_of_policy(policy).coflows.iter();
            let bin_of =
                |coflow: &CoflowOutcome| describe::saath_bin(coflow.width, coflow.bytes, bin_threshold);
            let coflows_in_bin = coflows.filter(|coflow| bin.is_none_or(|bin| bin_of(coflow) == bin));
            coflows_in_bin.map(CoflowOutcome::cct).collect()
        };
        let aalo = ccts("aalo");
        let fraction_of_coflows = aalo.len() as f64 / replays.outcome_of_policy("aalo").coflows.len() as f64;
        let mut line = vec![
            bin.map_or("all".to_owned(), |bin| bin.to_string()),
            format_percent(fraction_of_coflows),
            format_cell(mean(&aalo)),
        ];
        for (_, policy) in MECHANISMS {
            let ccts = ccts(policy);
            let [_, p50, p90] = p10_p50_p90(&speedups(&aalo, &ccts));
            line.extend([p50, p90, mean(&ccts)].map(format_cell));
        }
        line
    };
    let mut head = vec!["Bin".to_owned(), "Coflows".to_owned(), "Aalo, mean CCT in s".to_owned()];
    for (name, _) in MECHANISMS {
        head.extend(["P50", "P90", "mean CCT in s"].map(|column| format!("{name}, {column}")));
    }
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let policies = MECHANISMS.map(|(name, policy)| format!("{name} is `{policy}`")).join(", ");
    format!(
        "\n\
         ## Fig. 10 and 11: the parts of Saath\n\n\
         P50 and P90 are speedups over Aalo. {policies}. A/N is all-or-none with FIFO, P/F adds the per-flow threshold, and \
         Saath adds least contention first (LCoF). Bins 1 and 2 of Table 1 hold coflows of at most 100 MB, bins 1 and 3 \
         coflows of at most 10 flows.\n\n\
         The paper: A/N is \"effective for small, thin CoFlows\"; P/F is \"highly effective for CoFlows in bins 2 and 4\"; \
         LCoF \"improves the CCT of CoFlows in all bins\". LCoF and FIFO order coflows differently only if at least three \
         share a queue. With two coflows, each has a contention of 1, and FIFO breaks the tie.\n\
         {}",
        table(&head, 1, &[None, Some(1), Some(2), Some(3), Some(4)].map(line))
    )
}
