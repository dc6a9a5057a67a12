//! Writes the page of `weir reproduce netshare`: Lam, Radhakrishnan, Vahdat and Varghese, "NetShare: Virtualizing Data Center
//! Networks across Services", UCSD technical report, 2010.
//!
//! The paper:
//!
//! - computes examples (Fig. 1 to 5);
//! - runs two Hadoop sorts on switches with one core and with two (5.1, 5.2);
//! - runs a TCP flow and two UDP flows under each mechanism (5.3);
//! - simulates up to eight services on three tiers with ns-2 (5.4).
//!
//! The page reproduces all of these with the fluid simulator, except the sorting times. A benchmark of `weir-core`,
//! `hierarchy`, measures the scale of the central allocator (3.3).

mod assumptions;
mod examples;
mod scaling;
mod scenario;
mod shuffles;
mod throttling;

use crate::claim::{Claim, count_same};
use crate::picture::Pictures;
use crate::{Page, RunContext, markdown};
#[cfg(all(feature = "live", target_os = "linux"))]
pub(crate) use scenario::MBIT;
#[cfg(all(feature = "live", target_os = "linux"))]
pub(crate) use throttling::{MECHANISMS, table_2_scenario};
use weir_console::failure::Failure;

/// The default number of seeds.
pub const DEFAULT_SEEDS: u64 = 20;

/// The seeds and the resources of the page.
struct Context<'a> {
    /// The number of seeds of the hash that selects the paths of connections.
    seeds: u64,
    run_context: &'a RunContext<'a>,
}

/// The page: NetShare's figures, published and measured. Figures that depend on the hash of connections to paths are means
/// over `seeds` seeds.
///
/// # Errors
/// If a simulation fails, or a signal stops the work.
pub fn page(seeds: u64, run_context: &RunContext<'_>) -> Result<Page, Failure> {
    let context = Context { seeds, run_context };
    let table_2 = throttling::Table2::run(&context)?;
    let table_3 = scaling::Table3::run(&context)?;
    let throttling_claims = throttling::claims(&table_2);
    let (shuffle_claims, shuffles) = shuffles::section(&context)?;
    let mut pictures = Pictures::new("netshare");
    let mut out = head(seeds);
    out.push_str(&summary(&[&throttling_claims[..], &shuffle_claims].concat(), &table_3));
    out.push_str(&conditions(seeds));
    out.push_str(&examples::section(&context)?);
    out.push_str(&throttling::section(&table_2, &throttling_claims, &mut pictures));
    out.push_str(&shuffles);
    out.push_str(&shuffles::picture(&shuffle_claims, &mut pictures));
    out.push_str(&scaling::section(&table_3, &mut pictures));
    out.push_str(&assumptions::section(&context, &table_2, &table_3)?);
    Ok(pictures.finish(markdown::collapse_blank_lines(out)))
}

fn head(seeds: u64) -> String {
    let option = if seeds == DEFAULT_SEEDS { String::new() } else { format!(" --seeds {seeds}") };
    format!(
        "# NetShare, published and measured\n\n\
         Made by `weir reproduce netshare --out docs/results/netshare.md{option}`. The paper is Lam, Radhakrishnan, Vahdat \
         and Varghese, \"NetShare: Virtualizing Data Center Networks across Services\", UCSD technical report, 2010. The \
         page quotes every published figure with its place; the command computes every other figure.\n\n"
    )
}

fn summary(claims: &[Claim], table_3: &scaling::Table3) -> String {
    let (same, figures) = count_same(claims);
    let (same_in_table_3, figures_of_table_3) = table_3.count_within_10_percent(1.0);
    let (same_payload, _) = table_3.count_within_10_percent(scaling::PAYLOAD_FRACTION);
    format!(
        "## Summary\n\n\
         - Reproduced by simulation: the examples (Fig. 1 to 5), rate throttling (Table 2, Fig. 12 to 15), two shuffles over \
         one core and over two (Fig. 8 to 11), and up to eight services on three tiers (Table 3).\n\
         - {same} of {figures} published figures of sections 5.1 to 5.3 are within 10 %.\n\
         - {same_in_table_3} of {figures_of_table_3} figures of Table 3 are within 10 %, and {same_payload} if the rates count \
         payload only, as ns-2's defaults suggest ([assumptions](#assumptions)).\n\
         - [Real traffic](live.md) repeats section 5.3 in network namespaces, and has the responsiveness of Table 1; [a benchmark](allocator.md) measures the central \
         allocator with the paper's 128 million flows (3.3).\n\
         - Not reproduced: the times of the Hadoop sorts, which include disks. Simulations have no responsiveness, since their \
         queues reach their steady state at once.\n\n"
    )
}

fn conditions(seeds: u64) -> String {
    format!(
        "## Conditions\n\n\
         - **Simulator**: a fluid model. Queues reach their steady state at once, only unresponsive sources lose data, and \
         acknowledgements use no bandwidth. The paper's figures of sections 5.1 to 5.3 are from switches, those of 5.4 from \
         ns-2.\n\
         - **Seeds**: figures that depend on the hash of connections to paths are means over {seeds} seeds.\n\
         - **Choices** that the paper leaves open: see the module comments of `crates/sim/src/service.rs`, \
         `crates/core/src/netshare/` and `crates/core/src/model/topology/template.rs`.\n\n"
    )
}
