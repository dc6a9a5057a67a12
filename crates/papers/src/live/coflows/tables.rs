//! The tables of measured and simulated CCTs.

use weir_sim::outcome::{mean, percentile, speedups};

use super::SetupCcts;
use crate::markdown::{format_cell, format_percent, table};

fn plain_tcp(all: &[SetupCcts]) -> &SetupCcts {
    all.first().expect("plain TCP is the first setup")
}

/// The CCTs of all setups; the first one is plain TCP.
pub fn ccts_table(all: &[SetupCcts]) -> String {
    let plain = plain_tcp(all);
    let mut lines = Vec::new();
    for SetupCcts { setup, simulated, measured, .. } in all {
        let error = |(measured, simulated): (&f64, &f64)| (measured / simulated - 1.0).abs();
        let errors: Vec<f64> = measured.iter().zip(simulated).map(error).collect();
        let errors = [50.0, 90.0].map(|p| format_percent(percentile(&errors, p)));
        let no_errors = ["-", "-"].map(str::to_owned);
        let rows = [
            ("measured", measured, &plain.measured, errors),
            ("simulated", simulated, &plain.simulated, no_errors),
        ];
        for (source, ccts, plain, errors) in rows {
            let speedups = speedups(plain, ccts);
            let numbers = [mean(ccts), percentile(ccts, 50.0), percentile(ccts, 90.0)].map(format_cell);
            let speedup_percentiles = [10.0, 50.0, 90.0].map(|p| format_cell(percentile(&speedups, p)));
            let names = [setup.name.to_owned(), source.to_owned()];
            lines.push(names.into_iter().chain(numbers).chain(errors).chain(speedup_percentiles).collect());
        }
    }
    let head = ["policy", "", "mean", "median", "P90", "median error", "P90 of the error"];
    table(&[&head[..], &["P10 of the speedup", "median", "P90"]].concat(), 2, &lines)
}

/// Ratios of measured to simulated distributions, of the measured mean to plain TCP's, and of simulated distributions with a lower
/// capacity.
pub fn ratios_table(all: &[SetupCcts]) -> String {
    let plain = plain_tcp(all);
    let to_line = |ccts: &SetupCcts| {
        let SetupCcts { setup, simulated, simulated_lower, measured, unscheduled } = ccts;
        let statistics = |ccts: &[f64]| [mean(ccts), percentile(ccts, 50.0), percentile(ccts, 90.0)];
        let ratios = |a: [f64; 3], b: [f64; 3]| [0, 1, 2].map(|at| format_cell(a[at] / b[at]));
        let measured_speedups = speedups(&plain.measured, measured);
        let simulated_speedups = speedups(&plain.simulated, simulated);
        let speedup_ratios = [50.0, 90.0]
            .map(|p| format_cell(percentile(&measured_speedups, p) / percentile(&simulated_speedups, p)));
        let simulated = statistics(simulated);
        let name = [setup.name.to_owned()];
        let to_plain = [format_cell(mean(measured) / mean(&plain.measured))];
        let lower = ratios(statistics(simulated_lower), simulated);
        let measured = ratios(statistics(measured), simulated);
        name.into_iter()
            .chain(measured)
            .chain(speedup_ratios)
            .chain(to_plain)
            .chain(lower)
            .chain([format_percent(*unscheduled)])
            .collect()
    };
    let head = ["policy", "mean", "median", "P90", "median speedup", "P90", "mean / plain TCP's"];
    let lower = ["mean with less capacity", "median", "P90", "unscheduled"];
    table(&[&head[..], &lower].concat(), 1, &all.iter().map(to_line).collect::<Vec<_>>())
}

/// The ratio of each coflow's CCT under one policy to that under another one, as in Fig. 15 of Saath. `published` are the figures of the
/// paper's testbed.
pub fn coflow_ratios_table(all: &[SetupCcts], policies: [&str; 2], published: [&str; 3]) -> String {
    let with_policy =
        |policy: &str| all.iter().filter(move |ccts| ccts.setup.policy == policy).collect::<Vec<_>>();
    let [slower, faster] = policies.map(with_policy);
    let mut lines =
        vec![["published", "", published[0], published[1], published[2]].map(str::to_owned).to_vec()];
    for (slower, faster) in slower.into_iter().zip(faster) {
        let sources = [
            ("measured", &slower.measured, &faster.measured),
            ("simulated", &slower.simulated, &faster.simulated),
        ];
        for (source, slower, faster_ccts) in sources {
            let ratios = speedups(slower, faster_ccts);
            let above = ratios.iter().filter(|&&ratio| ratio > 1.0).count() as f64 / ratios.len() as f64;
            let numbers =
                [format_cell(percentile(&ratios, 50.0)), format_cell(mean(&ratios)), format_percent(above)];
            lines
                .push([source.to_owned(), faster.setup.name.to_owned()].into_iter().chain(numbers).collect());
        }
    }
    table(&["", "under", "median", "mean", "above 1"], 2, &lines)
}
