//! `weir reproduce netshare`: the examples and experiments of NetShare (UCSD 2010), published and measured side by side.
//!
//! Numbers of the paper are written down with where they stand there; all others are computed.

mod claim;
mod examples;
mod scaling;
mod scene;
mod shuffles;
mod throttling;

use crate::{Running, doc};
#[cfg(all(feature = "live", target_os = "linux"))]
pub(crate) use scene::MBIT;
#[cfg(all(feature = "live", target_os = "linux"))]
pub(crate) use throttling::{VARIANTS, table_2};
use weir_console::failure::Failure;

/// The default number of seeds.
pub const SEEDS: u64 = 20;

/// How the document is made.
struct Making<'a> {
    /// Ways to hash connections to paths.
    seeds: u64,
    running: &'a Running<'a>,
}

/// The page: NetShare's figures, published and measured. Figures that depend on how connections are hashed to paths are
/// means over `seeds`.
///
/// # Errors
/// If a scenario has no outcome, or a signal stops the work.
pub fn page(seeds: u64, running: &Running<'_>) -> Result<String, Failure> {
    let making = Making { seeds, running };
    let mut out = head(seeds);
    out.push_str(&examples::section(&making)?);
    out.push_str(&throttling::section(&making)?);
    out.push_str(&shuffles::section(&making)?);
    out.push_str(&scaling::section(&making)?);
    Ok(doc::tidy(out))
}

fn head(seeds: u64) -> String {
    let option = if seeds == SEEDS { String::new() } else { format!(" --seeds {seeds}") };
    format!(
        "# NetShare, published and measured\n\n\
         Made by `weir reproduce netshare --out docs/results/netshare.md{option}`. The paper is Lam, Radhakrishnan, Vahdat and \
         Varghese, \"NetShare: Virtualizing Data Center Networks across Services\", UCSD technical report, 2010. Its numbers are quoted \
         with the place where they stand; every other number was computed by that one command, and so was every \"yes\" and \"no\".\n\n\
         - Measured is the fluid simulator: queues settle at once, nothing is lost but what unresponsive sources send too much, and \
         acknowledgements take nothing. The paper's numbers of section 5.1 to 5.3 are from switches, those of 5.4 from ns-2.\n\
         - What was chosen where the paper is silent is at the head of `crates/sim/src/service.rs`, `crates/core/src/netshare/` and \
         `crates/core/src/model/topology/plan.rs`.\n\
         - Numbers that depend on how connections are hashed to paths are means over {seeds} seeds.\n\
         - The paper's scale of the central allocator (section 3.3), 128 million flows in less than 100 ms, is measured in \
         [a document of its own](allocator.md).\n\n"
    )
}
