//! Writes the page of `weir reproduce composition`: the gain of each level of a policy tree.
//!
//! No paper has this experiment. NetShare shares bandwidth between services, Saba between applications, Saath between
//! coflows. A policy tree nests the three. The page replays the same generated workloads and adds one level at a time. It
//! measures for each variant:
//!
//! - the CCTs;
//! - the slowdowns that Saba's models predict;
//! - how often a service gets less than its weighted share (`share_monitor`).

mod share_monitor;

use weir_core::model::Workload;
use weir_core::policy::{self, AnyPolicy};
use weir_core::saba::{Fraction, SabaLimits, Sensitivity};
use weir_core::solve::Polynomial;
use weir_core::tree::{Application, ApplicationSharing, Service, TreeSpec};
use weir_core::units::{Rate, Time};
use weir_sim::lower_bound::alone_seconds;
use weir_sim::outcome::mean;
use weir_sim::{CoflowOutcome, Outcome, ReplayOptions, replay};
use weir_trace::generate::{Preset, assign_services, generate};
use weir_trace::{Limits, TraceUnit};

use crate::picture::Pictures;
use crate::{Page, RunContext, markdown};
use share_monitor::ShareMonitor;
use weir_console::chart::{DotPlot, DotRow, DotSeries, Scale};
use weir_console::failure::Failure;
use weir_console::run::run_concurrently;

/// The default number of workloads.
pub const DEFAULT_SEEDS: u64 = 10;

/// The services and their weights.
const SERVICES: [(&str, f64); 2] = [("service-1", 3.0), ("service-2", 1.0)];

/// The applications of each service and their slowdowns with half of the bandwidth.
const APPLICATIONS: [(&str, f64); 3] =
    [("application-1", 2.2), ("application-2", 1.4), ("application-3", 1.1)];

/// Differences below this fraction of a port's rate are rounding errors.
const ROUNDING_TOLERANCE: f64 = 1e-6;

/// The levels of a tree above its leaves.
#[derive(Clone, Copy, PartialEq)]
enum Levels {
    None,
    Services,
    ServicesAndApplications,
}

/// A policy tree, described by its levels and the policy of its leaves.
struct Variant {
    name: &'static str,
    levels: Levels,
    leaf_policy: &'static str,
}

const fn variant(name: &'static str, levels: Levels, leaf_policy: &'static str) -> Variant {
    Variant { name, levels, leaf_policy }
}

const VARIANTS: [Variant; 11] = [
    variant("fair", Levels::None, "fair"),
    variant("services", Levels::Services, "fair"),
    variant("services, `saath`", Levels::Services, "saath"),
    variant("services, `varys`", Levels::Services, "varys"),
    variant("services, `sincronia`", Levels::Services, "sincronia"),
    variant("services, applications", Levels::ServicesAndApplications, "fair"),
    variant("services, applications, `saath`", Levels::ServicesAndApplications, "saath"),
    variant(
        "services, applications, `saath:all-or-none=off`",
        Levels::ServicesAndApplications,
        "saath:all-or-none=off",
    ),
    variant("services, applications, `varys`", Levels::ServicesAndApplications, "varys"),
    variant("services, applications, `sincronia`", Levels::ServicesAndApplications, "sincronia"),
    variant("`saath` alone", Levels::None, "saath"),
];

impl Variant {
    fn policy(&self) -> Result<AnyPolicy, Failure> {
        let between = match self.levels {
            Levels::None => return policy::build(self.leaf_policy).map_err(Failure::input),
            Levels::Services => ApplicationSharing::SingleLeaf(self.leaf_policy.to_owned()),
            Levels::ServicesAndApplications => ApplicationSharing::Saba(
                APPLICATIONS.map(|(name, slowdown)| (name.to_owned(), sensitivity(slowdown))).into(),
                SabaLimits::default(),
            ),
        };
        let policy = self.leaf_policy.to_owned();
        let other = Application { name: String::new(), weight: 1.0, model: None, policy };
        let services = SERVICES.map(|(name, weight)| Service {
            name: name.to_owned(),
            weight,
            application_sharing: between.clone(),
            applications: Vec::new(),
            default_application: other.clone(),
        });
        Ok(AnyPolicy::Tree(TreeSpec::Services(services.into(), None)))
    }
}

/// D(b) = 1 + 4 (s - 1) (1 - b)^2, with the slowdown s at half of the bandwidth.
fn sensitivity(slowdown: f64) -> Sensitivity {
    let k = 4.0 * (slowdown - 1.0);
    Sensitivity::new(Polynomial::new(&[1.0 + k, -2.0 * k, k]).expect("the three coefficients are finite"))
}

/// The service and the application of a coflow, as indices into [`SERVICES`] and [`APPLICATIONS`].
fn owner(workload: &Workload, index: usize) -> (usize, usize) {
    let (coflow, names) = (&workload.coflows[index], &workload.names);
    let (service, application) =
        (names.service(coflow.service), &names.applications(coflow.service)[coflow.application as usize]);
    let position_in =
        |list: &[(&str, f64)], name: &str| list.iter().position(|(own, _)| *own == name).unwrap_or(0);
    (position_in(&SERVICES, service), position_in(&APPLICATIONS, application))
}

/// The figures of a replay, or their means over several replays, in the order of [`COLUMNS`].
type Metrics = Vec<f64>;

type Format = fn(f64) -> String;

/// The columns of the table of measurements, with the format of their figures.
const COLUMNS: [(&str, Format); 11] = [
    ("below share: service-1", markdown::format_percent),
    ("service-2", markdown::format_percent),
    ("application below share: service-1", markdown::format_percent),
    ("service-2", markdown::format_percent),
    ("mean CCT s: service-1", markdown::format_cell),
    ("service-2", markdown::format_cell),
    ("all", markdown::format_cell),
    ("slowdown: application-1", three_digits),
    ("application-2", three_digits),
    ("application-3", three_digits),
    ("all", three_digits),
];

fn three_digits(slowdown: f64) -> String {
    format!("{slowdown:.3}")
}

fn replay_metrics(
    workload: &Workload,
    outcome: &Outcome,
    rate: Rate,
    share_monitor: &ShareMonitor<'_>,
) -> Metrics {
    let mean_over = |is_included: &dyn Fn(usize, usize) -> bool, value: &dyn Fn(&CoflowOutcome) -> f64| {
        let owned_coflows = outcome.coflows.iter().map(|coflow| (coflow, owner(workload, coflow.index)));
        let included =
            owned_coflows.filter(|(_, (service, application))| is_included(*service, *application));
        mean(&included.map(|(coflow, _)| value(coflow)).collect::<Vec<f64>>())
    };
    let slowdown = |coflow: &CoflowOutcome| slowdown(workload, coflow, rate);
    let mut metrics = share_monitor.fractions_below_share().to_vec();
    metrics.extend([0, 1].map(|at| mean_over(&|service, _| service == at, &CoflowOutcome::cct)));
    metrics.push(mean_over(&|_, _| true, &CoflowOutcome::cct));
    metrics.extend([0, 1, 2].map(|at| mean_over(&|_, application| application == at, &slowdown)));
    metrics.push(mean_over(&|_, _| true, &slowdown));
    metrics
}

/// The slowdown that the model of a coflow's application predicts for the bandwidth that the coflow got.
fn slowdown(workload: &Workload, coflow: &CoflowOutcome, rate: Rate) -> f64 {
    let (_, application) = owner(workload, coflow.index);
    let alone = alone_seconds(&workload.coflows[coflow.index], workload.ports, rate);
    // Rounding can make a coflow slightly faster than its bound.
    let bandwidth = Fraction::new((alone / coflow.cct()).min(1.0)).unwrap_or(Fraction::ALL);
    sensitivity(APPLICATIONS[application].1).slowdown(bandwidth)
}

/// The page: means over `seeds` generated workloads, one for each seed from 1 on.
///
/// # Errors
/// If a replay fails, or a signal stops the work.
pub fn page(seeds: u64, run_context: &RunContext<'_>) -> Result<Page, Failure> {
    let mut pictures = Pictures::new("composition");
    let options = ReplayOptions { interval: Time::ZERO, ..ReplayOptions::default() };
    let workloads = (1..=seeds).map(workload).collect::<Result<Vec<Workload>, Failure>>()?;
    let replays = run_concurrently(VARIANTS.len() * workloads.len(), run_context.jobs, |at| {
        let (variant, workload) = (&VARIANTS[at / workloads.len()], &workloads[at % workloads.len()]);
        let watch = run_context.progress.add_replay_bar(variant.name, workload.coflows.len());
        let rate = options.port_rate;
        let mut share_monitor = ShareMonitor::new(watch, workload, variant.levels, rate.get());
        let outcome = replay(workload, variant.policy()?, &options, &mut share_monitor)
            .map_err(|error| Failure::from_replay_error(variant.name, &error))?;
        Ok(replay_metrics(workload, &outcome, rate, &share_monitor))
    })?;
    let column = |replays_of_variant: &[Metrics], at: usize| {
        mean(&replays_of_variant.iter().map(|replay| replay[at]).collect::<Vec<f64>>())
    };
    let variants = replays.chunks(workloads.len());
    let means: Vec<Metrics> = variants
        .map(|replays_of_variant| (0..COLUMNS.len()).map(|at| column(replays_of_variant, at)).collect())
        .collect();
    let mut out = head(seeds);
    out.push_str(&summary(&means));
    out.push_str(&conditions(seeds, &workloads[0]));
    out.push_str(&measured_section(&means, &mut pictures));
    out.push_str(&gains_section(&means));
    Ok(pictures.finish(markdown::collapse_blank_lines(out)))
}

/// A workload of the generator's small preset, with its coflows spread at random over services and applications.
fn workload(seed: u64) -> Result<Workload, Failure> {
    let mut workload = generate(&Preset::Small.spec(seed), TraceUnit::MB, &Limits::default())?;
    assign_services(&mut workload, SERVICES.len(), APPLICATIONS.len(), seed)?;
    Ok(workload)
}

fn head(seeds: u64) -> String {
    let option = if seeds == DEFAULT_SEEDS { String::new() } else { format!(" --seeds {seeds}") };
    format!(
        "# What each level of a policy tree adds\n\n\
         Made by `weir reproduce composition --out docs/results/composition.md{option}`.\n\n\
         No paper has this experiment. NetShare shares bandwidth between services, Saba between applications, Saath between \
         coflows. A [policy tree](../policy-tree.md) nests the three. The replays below add one level at a time.\n\n"
    )
}

/// The position of a variant.
fn variant_position(name: &str) -> usize {
    let position = VARIANTS.iter().position(|variant| variant.name == name);
    position.expect("the variants have this one")
}

fn summary(means: &[Metrics]) -> String {
    let cell = |name: &str, column: usize| (COLUMNS[column].1)(means[variant_position(name)][column]);
    let [below_share, mean_cct, slowdown] = [0, 6, 10];
    format!(
        "## Summary\n\n\
         - Services: without weights, `service-1` is below its share at {} of the contended port sides; with weights, at \
         {}.\n\
         - Applications in services: the mean predicted slowdown is {} without Saba's weights, and {} with them.\n\
         - Coflows in services: the mean CCT is {} s with max-min, {} s with `saath` and {} s with `varys`. With `saath`, \
         `service-1` is below its share at {} of the contended port sides, since all-or-none leaves capacity unused; with \
         `varys`, at {}.\n\
         - All three levels: with `varys`, the mean CCT is {} s and the mean predicted slowdown {}; `saath` alone, without \
         shares, has {} s and {}.\n\n",
        cell("fair", below_share),
        cell("services", below_share),
        cell("services", slowdown),
        cell("services, applications", slowdown),
        cell("services", mean_cct),
        cell("services, `saath`", mean_cct),
        cell("services, `varys`", mean_cct),
        cell("services, `saath`", below_share),
        cell("services, `varys`", below_share),
        cell("services, applications, `varys`", mean_cct),
        cell("services, applications, `varys`", slowdown),
        cell("`saath` alone", mean_cct),
        cell("`saath` alone", slowdown),
    )
}

fn conditions(seeds: u64, first: &Workload) -> String {
    let join_values = |list: &[(&str, f64)]| {
        list.iter().map(|(name, value)| format!("`{name}` {value}")).collect::<Vec<_>>().join(", ")
    };
    format!(
        "## Conditions\n\n\
         - **Workloads**: {seeds} of the generator's `small` preset (seeds 1 to {seeds}), {} coflows on {} ports of 1 \
         Gbit/s. Coflows are spread at random over two services with three applications each. The policy runs at every \
         event. Figures are means over the workloads.\n\
         - **Weights** of the services: {}.\n\
         - **Sensitivity**: slowdown s of the applications with half of the bandwidth: {}. The model is D(b) = 1 + 4 (s - 1) \
         (1 - b)^2, as for `weir policies saba`.\n\
         - **Service below its share**: the fraction of contended port sides, weighted by time. A port side is contended if \
         both services have flows there. A service is below its share there if one of its flows meets two conditions. At \
         both port sides of the flow, the service uses less than its weighted share. At least one of the two sides is full. \
         If only one service has flows at a side, its share is the whole side.\n\
         - **Application below its share**: the fraction of contended port sides where, in addition, the application of that \
         flow is below its slice at both sides. In trees without applications, a service counts as one application.\n\
         - **Predicted slowdown**: D(b) of the coflow's application, with b = (CCT alone in the network) / CCT. The table \
         has means over coflows.\n\n",
        first.coflows.len(),
        first.ports,
        join_values(&SERVICES),
        join_values(&APPLICATIONS),
    )
}

fn measured_section(metrics: &[Metrics], pictures: &mut Pictures) -> String {
    let row = |(variant, figures): (&Variant, &Metrics)| {
        let cells = COLUMNS.iter().zip(figures).map(|((_, format), &value)| format(value));
        [vec![variant.name.to_owned()], cells.collect()].concat()
    };
    let rows: Vec<_> = VARIANTS.iter().zip(metrics).map(row).collect();
    let head: Vec<&str> = ["levels"].into_iter().chain(COLUMNS.map(|(name, _)| name)).collect();
    let picture = pictures.add(
        "times",
        "Mean completion times of both services and of all coflows, by the levels of the tree",
        "The mean CCTs of the table, by the levels of the tree.",
        times_plot(metrics),
    );
    format!("## Measured\n{}{picture}", markdown::table(&head, 1, &rows))
}

/// The mean CCTs of each variant.
fn times_plot(metrics: &[Metrics]) -> Option<String> {
    let row = |(variant, figures): (&Variant, &Metrics)| {
        DotRow::new(variant.name.replace('`', ""), &[4, 5, 6].map(|column| Some(figures[column])))
    };
    let series = ["service-1", "service-2", "all"].map(DotSeries::measured).to_vec();
    let rows = VARIANTS.iter().zip(metrics).map(row).collect();
    DotPlot { title: "mean CCT (s)", scale: Scale::Linear, reference: None, series, rows }.to_svg()
}

/// Pairs of variants, as indices into [`VARIANTS`]: without a level and with it.
const ADDED_LEVELS: [(&str, usize, usize); 10] = [
    ("services", 0, 1),
    ("applications in services", 1, 5),
    ("`saath` in services", 1, 2),
    ("`varys` in services", 1, 3),
    ("`sincronia` in services", 1, 4),
    ("`saath` in applications", 5, 6),
    ("`saath` in applications: all-or-none off", 6, 7),
    ("`varys` in applications", 5, 8),
    ("`sincronia` in applications", 5, 9),
    ("services and applications above `saath`", 10, 6),
];

/// The columns of the table of gains, as indices into [`COLUMNS`]. With two indices, a column shows the larger figure.
const LEVEL_METRICS: [(&str, &[usize]); 6] = [
    ("services below share", &[0, 1]),
    ("applications below share", &[2, 3]),
    ("mean CCT s: service-1", &[4]),
    ("all", &[6]),
    ("slowdown: application-1", &[7]),
    ("all", &[10]),
];

fn gains_section(metrics: &[Metrics]) -> String {
    let row = |&(level, without, with): &(&str, usize, usize)| {
        let cell = |columns: &[usize]| {
            let value = |variant: usize| columns.iter().map(|&at| metrics[variant][at]).fold(0.0, f64::max);
            [without, with].map(|variant| COLUMNS[columns[0]].1(value(variant))).join(" to ")
        };
        [vec![level.to_owned()], LEVEL_METRICS.iter().map(|(_, columns)| cell(columns)).collect()].concat()
    };
    let rows: Vec<Vec<String>> = ADDED_LEVELS.iter().map(row).collect();
    let head: Vec<&str> = ["added level"].into_iter().chain(LEVEL_METRICS.map(|(name, _)| name)).collect();
    format!(
        "## Gain of each level\n\nThe first two columns show the service with the higher figure.\n{}",
        markdown::table(&head, 1, &rows)
    )
}
