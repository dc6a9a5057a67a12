//! Writes the page of `weir reproduce weir`: Weir's own policy next to the policies of the papers.
//!
//! `families` are groups of workloads, `figures` the statistics of policies over a family, and `shortfalls` the comparisons that `weir`
//! loses, which come first on the page. `weir` is compared with Varys and Sincronia, which know all sizes, and with Philae, the order of
//! the Gittins index, Saath and Aalo, which know none. The generated workloads of this page were not used to choose constants of
//! `weir`; its source states the origin of each constant.

mod families;
mod figures;
mod shortfalls;

use std::ops::Range;

use weir_console::chart::{Dot, DotPlot, DotRow, DotSeries, Scale};
use weir_console::confidence_interval::ConfidenceInterval;
use weir_console::failure::Failure;
use weir_console::policy_spec::build_policy;
use weir_console::run::run_concurrently;
use weir_core::policy::{WeirConstants, weir_with};
use weir_sim::lower_bound::LowerBounds;
use weir_sim::replay;

use crate::picture::Pictures;
use crate::{Page, RunContext, Trace, markdown};
use families::{Case, Family, Timed};
use figures::{Figures, Statistic, Times};
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

/// `weir` without some of its ideas.
const VARIANTS: [&str; 4] = ["weir:turns=0", "weir:turns=0.05", "weir:pilots=1h", "weir:pilots=0s"];

/// A constant that changes the mean by less than this part, if halved or doubled, is not named among the shortfalls.
const SMALL_CHANGE: f64 = 0.01;

/// A policy and its name on the page.
enum Contender {
    /// By its specification.
    Named(&'static str),
    /// `weir` with other constants.
    Weir(String, WeirConstants),
}

impl Contender {
    fn name(&self) -> &str {
        match self {
            Contender::Named(name) => name,
            Contender::Weir(name, _) => name,
        }
    }

    fn replay(&self, case: &Case, timed: Timed, run_context: &RunContext<'_>) -> Result<Times, Failure> {
        let policy = match self {
            Contender::Named(name) => build_policy(name, Some(&case.workload.names), &[])?,
            Contender::Weir(_, constants) => weir_with(*constants),
        };
        let mut watch = run_context.progress.add_replay_bar(self.name(), case.workload.coflows.len());
        let outcome = replay(&case.workload, policy, &case.options, &mut watch);
        Ok(Times::new(&outcome.map_err(|error| Failure::from_replay_error(self.name(), &error))?, timed))
    }
}

fn named(names: &[&'static str]) -> Vec<Contender> {
    names.iter().map(|name| Contender::Named(name)).collect()
}

/// The page: the trace and its faster copies, and workloads of each generated family. A trace is not needed if the options select none of
/// its families.
///
/// # Errors
/// If a replay fails, a text of the options selects no family, the trace is missing, or a signal stops the work.
pub fn page(options: &Options, trace: Option<&Trace>, run_context: &RunContext<'_>) -> Result<Page, Failure> {
    let families = families::select(families::all(trace), &options.only)?;
    let policies: Vec<&str> = [&KNOWN_POLICIES[..], &["weir"], &RIVALS].concat();
    // A wrong name fails before the first replay, not after minutes.
    policies.iter().chain(&VARIANTS).try_for_each(|policy| build_policy(policy, None, &[]).map(drop))?;
    let (mut goals, mut goal_rows, mut tables) = (Vec::new(), Vec::new(), String::new());
    let mut shortfalls = Shortfalls::default();
    for family in &families {
        let figures = measure(family, &options.seeds(), &named(&policies), run_context)?;
        shortfalls.add_family(family, &figures);
        goals.extend(goal_lines(family, &figures));
        goal_rows.extend(self::goal_rows(family, &figures));
        tables += &format!("\n### {}\n\n{}\n", family.name, family.description);
        tables += &policies_table(&policies, &figures);
    }
    let last_sections = match options.only.is_empty() {
        true => last_sections(&options.seeds(), &mut shortfalls, run_context)?,
        false => String::new(),
    };
    let mut out = head(trace, options);
    out += &shortfalls.summary();
    out += &conditions(options);
    out += &shortfalls.section();
    out += "## Goals\n\nThe mean completion time of `weir` divided by that of the other policy: the mean over workloads, with its 95 % \
            confidence interval, and the maximum.\n";
    out += &markdown::table(&["workloads", "/", "mean", "goal", "maximum", "goal", "met"], 2, &goals);
    let mut pictures = Pictures::new("weir");
    out += &pictures.add(
        "goals",
        "Mean completion time of weir divided by that of other policies, with the goals",
        "The means of the table with their confidence intervals. Hollow: goals. A mean at or left of its goal meets it.",
        goals_plot(goal_rows),
    );
    out += TABLES_HEAD;
    out += &tables;
    out += &last_sections;
    Ok(pictures.finish(markdown::collapse_blank_lines(out)))
}

/// The sections about variants of `weir`, priors and constants.
fn last_sections(
    seeds: &Range<u64>,
    shortfalls: &mut Shortfalls,
    run_context: &RunContext<'_>,
) -> Result<String, Failure> {
    let mut variants = String::new();
    let (mut sensitivity_head, mut sensitivity) = (Vec::new(), constant_names());
    for family in &families::for_variants() {
        let compared: Vec<&str> = [&["varys", SAATH, SAATH_WITH_ESTIMATES, "weir"][..], &VARIANTS].concat();
        let (halves, doubles) = (scaled_constants("half", 0.5), scaled_constants("double", 2.0));
        let contenders: Vec<Contender> = named(&compared).into_iter().chain(halves).chain(doubles).collect();
        let figures = measure(family, seeds, &contenders, run_context)?;
        shortfalls.add_variants(family, &figures, contenders.iter().map(Contender::name));
        variants += &format!("\n### Variants: {}\n\n{}\n", family.name, family.description);
        variants += &policies_table(&compared, &figures);
        sensitivity_head.extend([format!("{}: half", family.name), "double".to_owned()]);
        for line in &mut sensitivity {
            for scale in ["half", "double"] {
                let ratio = figures.ratio(&scaled_name(scale, &line[0]), "weir", Statistic::Mean);
                line.push(format!("{ratio:.3}"));
            }
        }
    }
    let mut out = "## Variants of `weir`\n\n`turns=0` has no bound on the time of a coflow; `pilots=1h` serves no pilots, and `pilots=0s` \
                   serves pilots of all coflows.\n"
        .to_owned();
    out += &variants;
    out += &priors_section(seeds, run_context)?;
    out += "## Constants of `weir`\n\nThe mean completion time with one constant at half or double, divided by that with the default: mean \
            of the ratios over workloads. `crates/core/src/policy/weir.rs` describes the constants.\n";
    let columns: Vec<&str> =
        ["constant", "default"].into_iter().chain(sensitivity_head.iter().map(String::as_str)).collect();
    out += &markdown::table(&columns, 1, &with_defaults(sensitivity));
    Ok(out)
}

/// A page of the section about priors alone.
///
/// # Errors
/// If a replay fails, or a signal stops the work.
pub fn priors_page(options: &Options, run_context: &RunContext<'_>) -> Result<Page, Failure> {
    Ok(Pictures::new("weir").finish(priors_section(&options.seeds(), run_context)?))
}

/// The section about priors: applications that recur, and two guards against wrong priors.
fn priors_section(seeds: &Range<u64>, run_context: &RunContext<'_>) -> Result<String, Failure> {
    let policies = ["varys", SAATH, SAATH_WITH_ESTIMATES, "weir", "weir:prior=on"];
    let mut lines = Vec::new();
    let mut tables = String::new();
    for family in &families::recurring() {
        let figures = measure(family, seeds, &named(&policies), run_context)?;
        let ratios = |policy, other| figures.ratios(policy, other, Statistic::Mean);
        let over_weir = ratios("weir:prior=on", "weir");
        lines.push(vec![
            family.name.clone(),
            figures::interval(&over_weir),
            format!("{:.3}", over_weir.iter().copied().fold(0.0, f64::max)),
            figures::interval(&ratios("weir", "varys")),
            figures::interval(&ratios("weir:prior=on", "varys")),
        ]);
        tables += &format!("\n### {}\n\n{}\n", family.name, family.description);
        tables += &policies_table(&policies, &figures);
    }
    let mut out = "## Priors\n\n`prior=on` starts each coflow with the sizes of earlier coflows of its application. Ratios of the mean \
                   completion time: the mean over workloads, with its 95 % confidence interval, and the maximum.\n"
        .to_owned();
    let head = ["workloads", "`prior=on` / `weir`", "maximum", "`weir` / `varys`", "`prior=on` / `varys`"];
    out += &markdown::table(&head, 1, &lines);
    Ok(out + &tables)
}

const TABLES_HEAD: &str = "## Policies\n\nThe mean over `varys`, and the median, 90th and 99th percentiles over `saath:requeue=on`, are ratios of \
    completion times: below 1, the policy is better. *Bound* is the mean divided by a lower bound for every schedule. *Late* is the share \
    of coflows that take more than twice as long as under `saath:requeue=on`. *Met* is the share of deadlines that are met. Of several workloads, the \
    mean of the ratios with its 95 % confidence interval.\n";

/// The times of each policy over the workloads of a family.
fn measure(
    family: &Family<'_>,
    seeds: &Range<u64>,
    contenders: &[Contender],
    run_context: &RunContext<'_>,
) -> Result<Figures, Failure> {
    let workloads = family.cases(seeds)?;
    let (cases, timed) = (workloads.len(), family.timed);
    let bar = run_context.progress.add_step_bar(&family.name, cases * contenders.len());
    let mut times = run_concurrently(cases * contenders.len(), run_context.jobs, |at| {
        let times = contenders[at / cases].replay(&workloads[at % cases], timed, run_context)?;
        bar.inc(1);
        Ok(times)
    })?
    .into_iter();
    bar.finish_and_clear();
    let bound = |case: &Case| {
        let bounds = LowerBounds::new(&case.workload, &case.options);
        // The bound is one of coflows, not of jobs.
        (timed == Timed::Coflows).then_some(bounds.min_mean_cct)
    };
    let bounds: Option<Vec<f64>> = workloads.iter().map(bound).collect();
    let mut figures = Figures::new(bounds.unwrap_or_default());
    for contender in contenders {
        figures.add(contender.name(), times.by_ref().take(cases).collect());
    }
    Ok(figures)
}

fn goal_lines(family: &Family<'_>, figures: &Figures) -> Vec<Vec<String>> {
    let line = |goal: &families::Goal| {
        let other = figures.yardstick(goal.against);
        let ratios = figures.ratios("weir", other, Statistic::Mean);
        vec![
            family.name.clone(),
            goal.against.describe(other),
            figures::interval(&ratios),
            goal.max_mean.to_string(),
            format!("{:.3}", ratios.iter().copied().fold(0.0, f64::max)),
            goal.max_each.map_or_else(|| "-".to_owned(), |max| max.to_string()),
            if shortfalls::is_met(goal, &ratios) { "yes" } else { "no" }.to_owned(),
        ]
    };
    family.goals.iter().map(line).collect()
}

/// Rows of the plot of goals, below the name of the family.
fn goal_rows(family: &Family<'_>, figures: &Figures) -> Vec<DotRow> {
    let row = |goal: &families::Goal| {
        let other = figures.yardstick(goal.against);
        let ratios = figures.ratios("weir", other, Statistic::Mean);
        let interval = ConfidenceInterval::from_values(&ratios);
        // A single workload has no interval.
        let half_width = if ratios.len() > 1 { interval.half_width } else { 0.0 };
        let dots = vec![Some(goal.max_mean.into()), Some(Dot { value: interval.mean, half_width })];
        DotRow { name: format!("/ {other}"), dots }
    };
    let heading = (!family.goals.is_empty()).then(|| DotRow::heading(family.name.as_str()));
    heading.into_iter().chain(family.goals.iter().map(row)).collect()
}

fn goals_plot(rows: Vec<DotRow>) -> Option<String> {
    let series = vec![DotSeries::published("goal"), DotSeries::measured("mean of weir")];
    let title = "mean completion time of weir / of the other policy";
    DotPlot { title, scale: Scale::Log, reference: Some(1.0), series, rows }.to_svg()
}

fn policies_table(policies: &[&str], figures: &Figures) -> String {
    let saath = format!("/ `{SAATH}`");
    let estimates = format!("P50 / `{SAATH_WITH_ESTIMATES}`");
    let mut head = vec!["policy", "mean / `varys`", &saath, &estimates, "P90", "P99", "bound", "late"];
    let has_deadlines = figures.met_share("weir").is_some();
    if has_deadlines {
        head.push("met");
    }
    let line = |policy: &&str| {
        let means = ["varys", SAATH].map(|other| figures.ratios(policy, other, Statistic::Mean));
        let percentiles =
            [50.0, 90.0, 99.0].map(|p| figures.ratio(policy, SAATH_WITH_ESTIMATES, Statistic::Percentile(p)));
        let bound = figures.over_bound(policy).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        let mut line = vec![format!("`{policy}`")];
        line.extend(means.iter().map(|ratios| figures::interval(ratios)));
        line.extend(percentiles.iter().map(|ratio| format!("{ratio:.3}")));
        line.extend([bound, markdown::format_percent(figures.late_share(policy, SAATH_WITH_ESTIMATES))]);
        line.extend(figures.met_share(policy).map(markdown::format_percent));
        line
    };
    markdown::table(&head, 1, &policies.iter().map(line).collect::<Vec<_>>())
}

/// A line with the name of each constant.
fn constant_names() -> Vec<Vec<String>> {
    WeirConstants::default().by_name().iter().map(|(name, _)| vec![(*name).to_owned()]).collect()
}

/// Formats the names of constants, and adds the default values after them.
fn with_defaults(mut lines: Vec<Vec<String>>) -> Vec<Vec<String>> {
    for (line, (name, value)) in lines.iter_mut().zip(WeirConstants::default().by_name()) {
        line[0] = format!("`{name}`");
        line.insert(1, markdown::format_cell(*value));
    }
    lines
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

fn head(trace: Option<&Trace>, options: &Options) -> String {
    let trace = trace.map_or_else(String::new, |trace| format!(" {}", trace.options()));
    format!(
        "# Weir's own policy\n\nMade by `weir reproduce weir{trace}{} --out docs/results/weir.md`.\n\n\
         `weir` orders coflows by their estimated remaining time. It knows no sizes: completed flows of a coflow estimate those of its \
         other flows. `crates/core/src/policy/weir.rs` describes and bounds it. `varys` and `sincronia` know all sizes; `philae`, \
         `gittins`, `saath`, `aalo` and `fair` (TCP) know none. Without deadlines, `varys` gives the same schedules as `srtf`: shortest \
         remaining time first.\n\n",
        options.arguments(),
    )
}

fn conditions(options: &Options) -> String {
    let seeds = options.seeds();
    format!(
        "Ports have 1 Gbit/s, and policies decide at multiples of 8 ms unless stated. Each generated family has {} workloads, with the \
         seeds {} to {}.\n\n",
        options.seeds,
        seeds.start,
        seeds.end - 1,
    )
}
