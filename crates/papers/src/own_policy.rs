//! Writes the page of `weir reproduce weir`: Weir's own policy next to the policies of the papers.
//!
//! `families` are groups of workloads, `figures` the statistics of policies over a family, and `shortfalls` the comparisons that `weir`
//! loses, which come first on the page. `weir` is compared with Varys and Sincronia, which know all sizes; with Philae, the order of
//! the Gittins index, Saath, Aalo and TCP, which know none; and with the order of the Gittins index by the true distribution of sizes. The
//! generated workloads of this page were not used to choose constants of `weir`; its source states the origin of each constant.

mod contender;
mod families;
mod figures;
mod goal;
mod goals;
mod policies_table;
mod priors;
mod shortfalls;
mod variants;

use std::ops::Range;

use weir_console::failure::Failure;
use weir_console::policy_spec::build_policy;

use crate::picture::Pictures;
use crate::{Page, RunContext, Trace, markdown};
use contender::{Contender, measure, named};
use goals::Goals;
use policies_table::policies_table;
use shortfalls::Shortfalls;

/// The default number of generated workloads of each family.
pub const DEFAULT_SEEDS: u64 = 10;

/// The default first seed. Constants of the policy were chosen with smaller seeds.
pub const DEFAULT_FIRST_SEED: u64 = 1001;

/// Options of the page.
#[derive(Debug, Clone)]
pub struct Options {
    /// The number of generated workloads of each family.
    pub seeds: u64,
    /// The seed of the first of them.
    pub first_seed: u64,
    /// Parts of names of families, in any case. If there are any, the page has these families only, and no sections about variants, priors
    /// and constants.
    pub only: Vec<String>,
}

impl Options {
    fn seeds(&self) -> Range<u64> {
        self.first_seed..self.first_seed + self.seeds
    }

    /// The options that differ from the default ones.
    fn arguments(&self) -> String {
        let mut arguments = String::new();
        for text in &self.only {
            arguments += &format!(" --only \"{text}\"");
        }
        if self.seeds != DEFAULT_SEEDS {
            arguments += &format!(" --seeds {}", self.seeds);
        }
        if self.first_seed != DEFAULT_FIRST_SEED {
            arguments += &format!(" --first-seed {}", self.first_seed);
        }
        arguments
    }
}

/// Saath.
const SAATH: &str = "saath";

/// Saath with the re-queueing of its section 4.3, which is worse on the public trace.
const SAATH_WITH_ESTIMATES: &str = "saath:requeue=on";

/// The policies with knowledge of all sizes.
const KNOWN_POLICIES: [&str; 3] = ["varys", "sincronia", "weir:sizes=known"];

/// The other compared policies, without `weir`.
const RIVALS: [&str; 7] =
    ["philae", "gittins", "gittins:index=las", SAATH, SAATH_WITH_ESTIMATES, "aalo", "fair"];

/// The page: the trace and its faster copies, and workloads of each generated family. A trace is not needed if the options select none of
/// its families.
///
/// # Errors
/// If a replay fails, a text of the options selects no family, the trace is missing, or a signal stops the work.
pub fn page(options: &Options, trace: Option<&Trace>, run_context: &RunContext<'_>) -> Result<Page, Failure> {
    let families = families::select(families::all(trace), &options.only)?;
    let seeds = options.seeds();
    let policies: Vec<&str> = [&KNOWN_POLICIES[..], &["weir"], &RIVALS].concat();
    // A wrong name fails before the first replay, not after minutes.
    policies
        .iter()
        .chain(&variants::VARIANTS)
        .try_for_each(|policy| build_policy(policy, None, &[]).map(drop))?;
    let contenders: Vec<Contender> = named(&policies).into_iter().chain([Contender::TrueSizes]).collect();
    let (mut goals, mut shortfalls, mut tables) = (Goals::default(), Shortfalls::default(), String::new());
    for family in &families {
        let figures = measure(family, &seeds, &contenders, run_context)?;
        shortfalls.add_family(family, &figures);
        goals.add(family, &figures);
        tables += &format!("\n### {}\n\n{}\n", family.name, family.description);
        tables += &policies_table(contenders.iter().map(Contender::name), &figures);
    }
    let mut last_sections = String::new();
    if options.only.is_empty() {
        let variants::Sections { variants, constants } =
            variants::sections(&seeds, &mut shortfalls, run_context)?;
        last_sections = variants + &priors::section(&seeds, run_context)? + &constants;
    }
    let mut out = head(trace, options);
    out += &shortfalls.summary();
    out += &conditions(options);
    out += &shortfalls.section();
    out += GOALS_HEAD;
    out += &goals.table();
    let mut pictures = Pictures::new("weir");
    out += &pictures.add(
        "goals",
        "Mean completion time of weir divided by that of other policies, with the goals",
        "The means of the table with their confidence intervals. Hollow: goals. A mean at or left of its goal meets it.",
        goals.plot(),
    );
    out += policies_table::HEAD;
    out += &tables;
    out += &last_sections;
    Ok(pictures.finish(markdown::collapse_blank_lines(out)))
}

/// A page of the section about priors alone.
///
/// # Errors
/// If a replay fails, or a signal stops the work.
pub fn priors_page(options: &Options, run_context: &RunContext<'_>) -> Result<Page, Failure> {
    Ok(Pictures::new("weir").finish(priors::section(&options.seeds(), run_context)?))
}

fn head(trace: Option<&Trace>, options: &Options) -> String {
    let trace = trace.map_or_else(String::new, |trace| format!(" {}", trace.options()));
    let arguments = options.arguments();
    // The page in the documentation has all families, with the default seeds. Repeating another command must not overwrite it.
    let out = if arguments.is_empty() { " --out docs/results/weir.md" } else { "" };
    format!("# Weir's own policy\n\nMade by `weir reproduce weir{trace}{arguments}{out}`.\n\n")
}

const GOALS_HEAD: &str = "## Goals\n\nThe mean completion time of `weir` divided by that of the other policy: the mean over workloads, with its \
    95 % confidence interval, and the maximum. Next to it, the mean of `gittins` with the true distribution of sizes divided by that of the \
    same policy.\n";

fn conditions(options: &Options) -> String {
    let seeds = options.seeds();
    format!(
        "## Conditions\n\n`weir` orders coflows by their estimated remaining time. It knows no sizes: completed flows of a coflow estimate \
         those of its other flows, and earlier coflows those of a coflow without completed flows. `crates/core/src/policy/weir.rs` describes and bounds it. The other policies:\n\n\
         - `varys` and `sincronia` know all sizes. Without deadlines, `varys` gives the same schedules as `srtf`: shortest remaining time \
         first.\n\
         - `philae`, `gittins`, `saath`, `aalo` and `fair` (TCP) know none. `philae` serves coflows of at most seven flows first in, first \
         out on purpose, so single flows are in order of arrival under it.\n\
         - \"`gittins`, true sizes\" knows the sizes of all coflows of the workload, but not which coflow has which. On one link with \
         Poisson arrivals and interval 0, no policy without sizes has a lower mean.\n\n\
         With an interval, hosts and switches act at once under `fair`, and start coflows at once under `aalo` and `weir`; under the other \
         policies, all decisions wait for the interval, also those of `weir:sizes=known`. So `weir` can be faster than policies that know \
         sizes there; [a table](../policies.md#what-happens-at-once) has the rules. Agents of real hosts do not start coflows of `weir` at \
         once yet.\n\n\
         Ports have 1 Gbit/s, and policies decide at multiples of 8 ms unless stated. Each generated family has {} workloads, with the \
         seeds {} to {}.\n\n",
        options.seeds,
        seeds.start,
        seeds.end - 1,
    )
}
