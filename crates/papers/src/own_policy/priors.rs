//! The section about priors: applications that recur, and two guards against wrong priors.

use std::ops::Range;

use weir_console::failure::Failure;

use super::contender::{measure, named};
use super::figures::{Statistic, interval};
use super::policies_table::policies_table;
use super::{SAATH, families};
use crate::{RunContext, markdown};

/// The compared policies.
const POLICIES: [&str; 4] = ["varys", SAATH, "weir", "weir:prior=on"];

/// The section.
///
/// # Errors
/// If a replay fails, or a signal stops the work.
pub fn section(seeds: &Range<u64>, run_context: &RunContext<'_>) -> Result<String, Failure> {
    let mut lines = Vec::new();
    let mut tables = String::new();
    for family in &families::recurring() {
        let figures = measure(family, seeds, &named(&POLICIES), run_context)?;
        let ratios = |policy, other| figures.ratios(policy, other, Statistic::Mean);
        let over_weir = ratios("weir:prior=on", "weir");
        lines.push(vec![
            family.name.clone(),
            interval(&over_weir),
            format!("{:.3}", over_weir.iter().copied().fold(0.0, f64::max)),
            interval(&ratios("weir", "varys")),
            interval(&ratios("weir:prior=on", "varys")),
        ]);
        tables += &format!("\n### {}\n\n{}\n", family.name, family.description);
        tables += &policies_table(POLICIES, &figures);
    }
    let mut out = "## Priors\n\n`prior=on` starts each coflow with the sizes of earlier coflows of its application. Ratios of the mean \
                   completion time: the mean over workloads, with its 95 % confidence interval, and the maximum.\n"
        .to_owned();
    let head = ["workloads", "`prior=on` / `weir`", "maximum", "`weir` / `varys`", "`prior=on` / `varys`"];
    out += &markdown::table(&head, 1, &lines);
    Ok(out + &tables)
}
