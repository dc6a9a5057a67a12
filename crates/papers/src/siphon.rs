//! Writes the page of `weir reproduce siphon`: Liu, Chen and Li, "Siphon: Expediting Inter-Datacenter Coflows in Wide-Area Data
//! Analytics", ATC '18.
//!
//! | Paper | Measured there | Reproduced by |
//! |---|---|---|
//! | 5.1: Fig. 8, 9, Table 2 | Six Spark jobs in five regions, with and without Siphon | - (no Spark, no TCP) |
//! | 5.2: Fig. 10 to 13 | One sort over five regions: Spark; Siphon with and without parts | `sort`, `shuffle`, without Spark |
//! | 5.3: Fig. 15 | The public trace over three regions: Monte Carlo ordering against MRTF | `orders` |

mod orders;
mod shuffle;
mod sort;

use std::sync::Arc;

use weir_console::failure::Failure;
use weir_console::interrupt::InterruptObserver;
use weir_core::model::{WideArea, Workload};
use weir_core::policy::build;
use weir_sim::{Outcome, RegionLinks, ReplayOptions};

use crate::picture::Pictures;
use crate::{Page, RunContext, Trace, markdown};

/// The links of section 5.3: the path and the text of the file.
const PRIVATE_CLOUD: (&str, &str) =
    ("examples/wide-area/private-cloud.toml", include_str!("../../../examples/wide-area/private-cloud.toml"));

/// The links of Table 1: the path and the text of the file.
const TABLE_1: (&str, &str) =
    ("examples/wide-area/table-1.toml", include_str!("../../../examples/wide-area/table-1.toml"));

/// The default number of seeds.
pub const DEFAULT_SEEDS: u64 = 5;

/// The page: Siphon's figures, published and measured, as means over `seeds` seeds, at least two.
///
/// # Errors
/// If a replay fails, or a signal stops the work.
pub fn page(trace: &Trace, seeds: u64, run_context: &RunContext<'_>) -> Result<Page, Failure> {
    let mut pictures = Pictures::new("siphon");
    let (ratios, orders) =
        orders::section(&trace.workload, &read_wide_area(PRIVATE_CLOUD)?, seeds, run_context, &mut pictures)?;
    let sort = sort::section(&read_wide_area(TABLE_1)?, seeds, &mut pictures)?;
    let out = head(trace, seeds) + &summary(&ratios) + &conditions(seeds) + &orders + &sort;
    Ok(pictures.finish(markdown::collapse_blank_lines(out)))
}

fn read_wide_area((name, text): (&str, &str)) -> Result<WideArea, Failure> {
    Ok(weir_trace::wide_area::read_from(text.as_bytes(), name)?)
}

/// Replays coflows between regions. The outcome has the end of every flow.
fn replay(
    workload: &Workload,
    area: &WideArea,
    policy: &str,
    bandwidth_seed: u64,
) -> Result<Outcome, Failure> {
    let regions = RegionLinks { area: Arc::new(area.clone()), bandwidth_seed };
    let options = ReplayOptions { keep_flow_ends: true, ..ReplayOptions::between_regions(regions) };
    let built = build(policy).map_err(Failure::input)?;
    let outcome = weir_sim::replay(workload, built, &options, &mut InterruptObserver);
    outcome.map_err(|error| Failure::from_replay_error(policy, &error))
}

fn head(trace: &Trace, seeds: u64) -> String {
    let options = trace.options();
    let option = if seeds == DEFAULT_SEEDS { String::new() } else { format!(" --seeds {seeds}") };
    format!(
        "# Siphon, published and measured\n\n\
         Made by `weir reproduce siphon {options} --out docs/results/siphon.md{option}`. The paper is Liu, Chen and Li, \
         \"Siphon: Expediting Inter-Datacenter Coflows in Wide-Area Data Analytics\", ATC '18. The page quotes every \
         published figure with its place; the command computes every other figure.\n\n"
    )
}

/// The summary, from the mean CCTs over those of MRTF.
fn summary(ratios: &orders::MeanRatios) -> String {
    format!(
        "## Summary\n\n\
         - Reproduced by simulation: orders of coflows (section 5.3, Fig. 15) and one shuffle (5.2, Fig. 10 to 13).\n\
         - The mean CCT of Siphon's order, divided by that of MRTF, is {}; published: \"reduced by ~10%\". With detours over a \
         third region, the ratio is {} for Siphon's order and {} for MRTF's.\n\
         - The bandwidths of Fig. 14 are not published, so the links here have invented ones.\n\
         - Not reproduced here: Spark (5.1, Fig. 8 and 9, Table 2; *Spark* in Fig. 10 to 12). In the paper, Spark is slower \
         because of single TCP connections over long distances, and the simulator has no TCP. [Siphon with real \
         traffic](siphon-live.md) runs Spark over relays.\n\n",
        ratios.siphon, ratios.siphon_with_detours, ratios.mrtf_with_detours,
    )
}

fn conditions(seeds: u64) -> String {
    format!(
        "## Conditions\n\n\
         - Only links between regions limit rates ([the wide-area format](../wide-area-format.md)).\n\
         - Figures are means over {seeds} seeds with the 95 % confidence interval of the mean (Student's t).\n\n"
    )
}
