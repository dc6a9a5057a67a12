//! `weir reproduce netshare`: the examples and experiments of NetShare (UCSD 2010), published and measured side by side.
//!
//! Numbers of the paper are written down with where they stand there; all others are computed.

mod claim;
mod examples;
mod scaling;
mod scene;
mod shuffles;
mod throttling;

use super::doc;
use crate::args;
use crate::failure::Failure;
use crate::output::Sink;
use crate::progress::Progress;
#[cfg(target_os = "linux")]
pub(super) use scene::MBIT;
#[cfg(target_os = "linux")]
pub(super) use throttling::{VARIANTS, table_2};

/// How the document is made.
struct Making<'a> {
    /// Ways to hash connections to paths.
    seeds: u64,
    jobs: usize,
    progress: &'a Progress,
}

/// Runs `weir reproduce netshare`.
///
/// # Errors
/// Whatever ends it early.
pub fn netshare(args: &args::NetshareReproduction) -> Result<(), Failure> {
    let sink = Sink::new(args.making.out.as_deref())?;
    let progress = Progress::new(args.making.running.quiet);
    let making = Making { seeds: args.seeds, jobs: args.making.running.jobs, progress: &progress };
    let mut out = head(args);
    out.push_str(&examples::section(&making)?);
    out.push_str(&throttling::section(&making)?);
    out.push_str(&shuffles::section(&making)?);
    out.push_str(&scaling::section(&making)?);
    sink.fill(doc::tidy(out).as_bytes())
}

fn head(args: &args::NetshareReproduction) -> String {
    let seeds = if args.seeds == 20 { String::new() } else { format!(" --seeds {}", args.seeds) };
    format!(
        "# NetShare, published and measured\n\n\
         Made by `weir reproduce netshare --out docs/results/netshare.md{seeds}`. The paper is Lam, Radhakrishnan, Vahdat and \
         Varghese, \"NetShare: Virtualizing Data Center Networks across Services\", UCSD technical report, 2010. Its numbers are quoted \
         with the place where they stand; every other number was computed by that one command, and so was every \"yes\" and \"no\".\n\n\
         - Measured is the fluid simulator: queues settle at once, nothing is lost but what unresponsive sources send too much, and \
         acknowledgements take nothing. The paper's numbers of section 5.1 to 5.3 are from switches, those of 5.4 from ns-2.\n\
         - What was chosen where the paper is silent is at the head of `crates/sim/src/service.rs`, `crates/core/src/netshare/` and \
         `crates/core/src/model/topology/plan.rs`.\n\
         - Numbers that depend on how connections are hashed to paths are means over {} seeds.\n\
         - The paper's scale of the central allocator (section 3.3), 128 million flows in less than 100 ms, is measured in \
         [a document of its own](allocator.md).\n\n",
        args.seeds
    )
}
