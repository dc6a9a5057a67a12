//! The sections about variants of `weir` and about its constants.

use std::ops::Range;

use weir_console::failure::Failure;
use weir_core::policy::WeirConstants;

use super::SAATH;
use super::contender::{Contender, measure, named};
use super::families::{self, Family};
use super::figures::Statistic;
use super::policies_table::policies_table;
use super::shortfalls::Shortfalls;
use crate::{RunContext, markdown};

/// `weir` without some of its ideas.
pub const VARIANTS: [&str; 4] = ["weir:turns=0", "weir:turns=0.05", "weir:pilots=1h", "weir:pilots=0s"];

/// The factors of a constant, with their names.
const SCALES: [(&str, f64); 2] = [("half", 0.5), ("double", 2.0)];

/// Both sections.
pub struct Sections {
    /// Variants of `weir`.
    pub variants: String,
    /// Constants of `weir`.
    pub constants: String,
}

/// Measures variants and constants, and adds lost comparisons to the shortfalls.
///
/// # Errors
/// If a replay fails, or a signal stops the work.
pub fn sections(
    seeds: &Range<u64>,
    shortfalls: &mut Shortfalls,
    run_context: &RunContext<'_>,
) -> Result<Sections, Failure> {
    let mut variants = "## Variants of `weir`\n\n`turns=0` has no bound on the time of a coflow; `pilots=1h` serves no pilots, and \
                        `pilots=0s` serves pilots of all coflows of at least ten flows. Both are omitted if no coflow has ten flows.\n"
        .to_owned();
    let mut head = vec!["constant".to_owned(), "default".to_owned()];
    let mut lines: Vec<Vec<String>> = WeirConstants::default()
        .by_name()
        .iter()
        .map(|(name, value)| vec![format!("`{name}`"), markdown::format_cell(**value)])
        .collect();
    for family in &families::for_variants() {
        let mut compared: Vec<&str> = [&["varys", SAATH, "weir"][..], &VARIANTS].concat();
        let can_have_pilots = has_wide_coflows(family, seeds)?;
        compared.retain(|variant| can_have_pilots || !variant.starts_with("weir:pilots="));
        let scaled = SCALES.iter().flat_map(|&(scale, factor)| scaled_constants(scale, factor));
        let contenders: Vec<Contender> = named(&compared).into_iter().chain(scaled).collect();
        let figures = measure(family, seeds, &contenders, run_context)?;
        let others =
            contenders.iter().map(Contender::name).filter(|name| !["varys", SAATH, "weir"].contains(name));
        shortfalls.add_variants(family, &figures, others);
        variants += &format!("\n### Variants: {}\n\n{}\n", family.name, family.description);
        variants += &policies_table(compared.iter().copied(), &figures);
        head.extend([format!("{}: half", family.name), "double".to_owned()]);
        for (line, (name, _)) in lines.iter_mut().zip(WeirConstants::default().by_name()) {
            for (scale, _) in SCALES {
                let ratio = figures.ratio(&scaled_name(scale, name), "weir", Statistic::Mean);
                line.push(format!("{ratio:.3}"));
            }
        }
    }
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let constants = format!(
        "## Constants of `weir`\n\nThe mean completion time with one constant at half or double, divided by that with the default: mean of \
         the ratios over workloads. `crates/core/src/policy/weir.rs` describes the constants.\n{}",
        markdown::table(&head, 1, &lines)
    );
    Ok(Sections { variants, constants })
}

/// Whether a workload of the family has a coflow with enough flows for pilots.
fn has_wide_coflows(family: &Family<'_>, seeds: &Range<u64>) -> Result<bool, Failure> {
    let min_width = WeirConstants::default().pilot_flows;
    let mut cases = family.cases(seeds)?.into_iter();
    Ok(cases.any(|case| case.workload.coflows.iter().any(|coflow| coflow.flows.len() as f64 >= min_width)))
}

fn scaled_name(scale: &str, constant: &str) -> String {
    format!("{scale} {constant}")
}

/// `weir` with one constant times `factor`, for each constant.
fn scaled_constants(scale: &'static str, factor: f64) -> impl Iterator<Item = Contender> {
    (0..WeirConstants::default().by_name().len()).map(move |at| {
        let mut constants = WeirConstants::default();
        let (name, value) = &mut constants.by_name()[at];
        **value *= factor;
        let name = scaled_name(scale, name);
        Contender::Weir(name, constants)
    })
}
