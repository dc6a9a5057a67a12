//! Measures the time of a decision of Siphon.

use weir_core::model::BandwidthHistory;
use weir_core::solve::montecarlo::{Objective, SearchCoflow, SearchParams, search_order};
use weir_sim::outcome::mean;

use super::{Result, Table, fastest, format_significant, strings};

#[path = "../../../core/tests/all/cases.rs"]
mod cases;

/// Samples of each link.
const SAMPLES: usize = 100;

/// Number of coflows that a search chooses from.
const SEARCH_BREADTH: usize = 10;

/// Number of coflow sets per line.
const SEEDS: u64 = 10;

/// Coflows, depths and rounds. The first case is the baseline; each other case differs from it in one value.
const CASES: [(usize, usize, usize); 11] = [
    (10, 3, 1000),
    (2, 3, 1000),
    (5, 3, 1000),
    (20, 3, 1000),
    (50, 3, 1000),
    (10, 1, 1000),
    (10, 2, 1000),
    (10, 4, 1000),
    (10, 3, 100),
    (10, 3, 300),
    (10, 3, 10_000),
];

pub fn print_table() -> Result<()> {
    println!("## A decision of Siphon\n");
    println!(
        "The time to compute an order of coflows from scratch, in one thread. Coflows have up to six flows over the six links \
         between three regions. The search chooses among the first {SEARCH_BREADTH} coflows by remaining time."
    );
    println!(
        "All rounds: no branch is closed. Closing: branches are closed at the default confidence of 95 %. Times are the mean \
         and the maximum over {SEEDS} sets of coflows, each of the fastest of three runs. Target: the first row within 10 ms.\n"
    );
    let mut table = Table::new(&[
        "coflows",
        "depth",
        "max rounds",
        "all rounds: mean (ms)",
        "max (ms)",
        "closing: mean (ms)",
        "max (ms)",
        "closing: mean rounds",
    ]);
    let bandwidth_history = cases::history_of_three_regions(SAMPLES);
    for (count, depth, samples) in CASES {
        eprintln!("orders of {count} coflows, depth {depth}, {samples} rounds");
        let search_settings = |confidence| {
            let best = Objective::MostWins;
            SearchParams {
                depth,
                breadth: SEARCH_BREADTH,
                objective: best,
                max_rounds: samples,
                confidence,
                seed: 1,
                threads: 1,
            }
        };
        let all_rounds = time_decisions(&bandwidth_history, count, &search_settings(1.0));
        let early_stopping = time_decisions(&bandwidth_history, count, &search_settings(0.95));
        table.line(strings(&[
            &count,
            &depth,
            &samples,
            &format_significant(mean(&all_rounds.milliseconds)),
            &format_significant(max_time(&all_rounds.milliseconds)),
            &format_significant(mean(&early_stopping.milliseconds)),
            &format_significant(max_time(&early_stopping.milliseconds)),
            &format_significant(mean(&early_stopping.rounds)),
        ]));
    }
    table.print();
    Ok(())
}

/// Milliseconds and rounds of each coflow set.
#[derive(Default)]
struct SearchTimings {
    milliseconds: Vec<f64>,
    rounds: Vec<f64>,
}

fn time_decisions(
    bandwidth_history: &BandwidthHistory,
    count: usize,
    settings: &SearchParams,
) -> SearchTimings {
    let mut decided = SearchTimings::default();
    for seed in 1..=SEEDS {
        let remaining_by_coflow = cases::random_coflows(seed, count, 6);
        let coflows: Vec<SearchCoflow<'_>> = remaining_by_coflow
            .iter()
            .zip(0..)
            .map(|(left, key)| SearchCoflow { key, remaining_bytes: left })
            .collect();
        let (seconds, found) = fastest(3, || search_order(bandwidth_history, &coflows, settings, |_| false));
        decided.milliseconds.push(seconds * 1e3);
        decided.rounds.push(found.rounds as f64);
    }
    decided
}

fn max_time(times: &[f64]) -> f64 {
    times.iter().copied().fold(0.0, f64::max)
}
