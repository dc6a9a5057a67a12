//! Writes the page of `weir reproduce weir`: Weir's own policy next to the policies of the papers.
//!
//! `families` are groups of workloads, and `figures` the statistics of a policy over a family. `weir` is compared with Varys and
//! Sincronia, which know all sizes, and with Saath and Aalo, which know none. The generated workloads of this
//! page were not used to choose constants of `weir`; its source states the origin of each constant.

mod families;
mod figures;

use weir_console::failure::Failure;
use weir_console::policy_spec::build_policy;
use weir_console::run::{ReplayTask, run_concurrently};
use weir_sim::lower_bound::LowerBounds;

use crate::{RunContext, Trace, markdown};
use families::Family;
use figures::Figures;

/// The default number of generated workloads of each family.
pub const DEFAULT_SEEDS: u64 = 10;

/// Saath without the re-queueing of its section 4.3, with which it is worse on the public trace.
const SAATH: &str = "saath:requeue=off";

/// The compared policies. The first knows all sizes.
const POLICIES: [&str; 7] = ["varys", "sincronia", "weir:sizes=known", "weir", SAATH, "saath", "aalo"];

/// `weir` without some of its ideas.
const VARIANTS: [&str; 5] = ["weir", "weir:turns=0", "weir:turns=0.05", "weir:pilots=1h", "weir:pilots=0s"];

/// The page: the trace and its faster copies, and `seeds` workloads of each generated family.
///
/// # Errors
/// If a replay fails, or a signal stops the work.
pub fn page(trace: &Trace, seeds: u64, run_context: &RunContext<'_>) -> Result<String, Failure> {
    // A wrong name fails before the first replay, not after minutes.
    POLICIES.iter().chain(&VARIANTS).try_for_each(|policy| build_policy(policy, None, &[]).map(drop))?;
    let families = families::all(trace, seeds)?;
    let mut out = head(trace, seeds);
    let mut figures = Vec::new();
    for family in &families {
        figures.push(measure(family, &POLICIES, run_context)?);
    }
    out += "## Goals\n\nMean completion time of `weir` divided by that of the other policy.\n";
    out += &goals_table(&families, &figures);
    out += "## Policies\n\nThe mean over `varys`, and the median, 90th and 99th percentiles over `saath`, are ratios of completion \
            times: below 1, the policy is better. *Bound* is the mean divided by a lower bound for every schedule. *Late* is the share \
            of coflows that take more than twice as long as under `saath`. Of several workloads, the mean of the ratios with its 95 % \
            confidence interval.\n";
    for (family, figures) in families.iter().zip(&figures) {
        out += &format!("\n### {}\n\n{}\n", family.name, family.description);
        out += &policies_table(&POLICIES, figures);
    }
    out += "## Variants of `weir`\n\n`turns=0` has no bound on the time of a coflow; `pilots=1h` serves no pilots, and `pilots=0s` serves \
            pilots of all coflows.\n";
    for family in families.iter().filter(|family| family.has_variants) {
        let compared: Vec<&str> = ["varys", SAATH, "saath"].into_iter().chain(VARIANTS).collect();
        let figures = measure(family, &compared, run_context)?;
        out += &format!("\n### Variants: {}\n", family.name);
        out += &policies_table(&compared, &figures);
    }
    Ok(markdown::collapse_blank_lines(out))
}

/// The figures of each policy over the workloads of a family.
fn measure(
    family: &Family,
    policies: &[&str],
    run_context: &RunContext<'_>,
) -> Result<Vec<Figures>, Failure> {
    let count = family.cases.len() * policies.len();
    let bar = run_context.progress.add_step_bar(&family.name, count);
    let outcomes = run_concurrently(count, run_context.jobs, |at| {
        let case = &family.cases[at / policies.len()];
        let task = ReplayTask {
            policy: policies[at % policies.len()].to_owned(),
            workload: &case.workload,
            options: case.options.clone(),
            sensitivities: &[],
        };
        let outcome = task.run(run_context.progress)?;
        bar.inc(1);
        Ok(outcome.ccts())
    })?;
    bar.finish_and_clear();
    let position =
        |name: &str| policies.iter().position(|policy| *policy == name).expect("all lists have this policy");
    let (varys, saath, requeue_off) = (position("varys"), position("saath"), position(SAATH));
    let mut figures = vec![Figures::default(); policies.len()];
    for (case, ccts) in family.cases.iter().zip(outcomes.chunks(policies.len())) {
        let bound = LowerBounds::new(&case.workload, &case.options);
        for (figures, own) in figures.iter_mut().zip(ccts) {
            figures.add(own, &ccts[varys], &ccts[saath], &ccts[requeue_off]);
            figures.add_bound(own, bound.min_mean_cct);
        }
    }
    Ok(figures)
}

fn goals_table(families: &[Family], figures: &[Vec<Figures>]) -> String {
    let weir = POLICIES.iter().position(|policy| *policy == "weir").expect("the list has this policy");
    let goal = |goal: Option<f64>| goal.map_or_else(|| "-".to_owned(), |goal| format!("{goal}"));
    let lines: Vec<Vec<String>> = families
        .iter()
        .zip(figures)
        .map(|(family, figures)| {
            let figures = &figures[weir];
            vec![
                family.name.clone(),
                figures::interval(&figures.over_varys),
                goal(family.goals.0),
                figures::interval(&figures.over_requeue_off),
                goal(family.goals.1),
            ]
        })
        .collect();
    let saath = format!("/ `{SAATH}`");
    markdown::table(&["workloads", "/ `varys`", "goal", &saath, "goal"], 1, &lines)
}

fn policies_table(policies: &[&str], figures: &[Figures]) -> String {
    let saath = format!("/ `{SAATH}`");
    let head = ["policy", "mean / `varys`", &saath, "P50 / `saath`", "P90", "P99", "bound", "late"];
    let lines: Vec<Vec<String>> =
        policies.iter().zip(figures).map(|(policy, figures)| figures.line(policy)).collect();
    markdown::table(&head, 1, &lines)
}

fn head(trace: &Trace, seeds: u64) -> String {
    let option = if seeds == DEFAULT_SEEDS { String::new() } else { format!(" --seeds {seeds}") };
    format!(
        "# Weir's own policy\n\nMade by `weir reproduce weir {}{option} --out docs/results/weir.md`.\n\n\
         `weir` orders coflows by their estimated remaining time. It knows no sizes: completed flows of a coflow estimate those of its \
         other flows. `crates/core/src/policy/weir.rs` describes and bounds it. `varys` and `sincronia` know all sizes; `saath` and \
         `aalo` know none.\n\nPorts have 1 Gbit/s, and policies decide at multiples of 8 ms unless stated.\n\n",
        trace.options(),
    )
}
