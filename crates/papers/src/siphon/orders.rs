//! Compares orders of coflows over three regions with MRTF (minimum remaining time first), as in section 5.3.

use weir_console::chart::{Dot, DotPlot, DotRow, DotSeries, Scale};
use weir_console::confidence_interval::ConfidenceInterval;
use weir_console::failure::Failure;
use weir_console::run::run_concurrently;
use weir_console::table::format_bytes;
use weir_core::model::wide_area::LinkMeasurement;
use weir_core::model::{CoflowSpec, WideArea, Workload};
use weir_core::units::Time;
use weir_sim::outcome::{mean, percentile};
use weir_sim::regions::{coflows_between_regions, link_loads, link_of_flow};

use crate::picture::Pictures;
use crate::{RunContext, markdown};

/// The published mean CCT over that of MRTF: "reduced by ~10%" (5.3).
const PUBLISHED_MEAN_RATIO: f64 = 0.9;

/// The baseline.
const MRTF: &str = "mrtf";

/// Bins of coflows by size, with equal numbers of coflows (Fig. 15).
const BINS: usize = 4;

/// A policy and the conditions of its replays, which are compared with MRTF.
struct Case {
    /// The assumption that differs from the first case; `None` for a policy of Fig. 15.
    changed_assumption: Option<&'static str>,
    policy: &'static str,
    /// The load of the busiest link until the last arrival: bytes over mean bandwidth.
    load: f64,
    /// The time in seconds until a link's bandwidth changes.
    bandwidth_period_secs: f64,
    /// The correlation between successive bandwidths of a link.
    correlation: f64,
}

/// The choices of this page for values that the paper does not publish.
const DEFAULT_CASE: Case = Case {
    changed_assumption: Some("none (Fig. 15)"),
    policy: "siphon",
    load: 0.7,
    bandwidth_period_secs: 10.0,
    correlation: 0.9,
};

/// The rows of the table of assumptions, then further policies of Fig. 15. The first row is also Siphon in Fig. 15.
const CASES: [Case; 13] = [
    DEFAULT_CASE,
    Case { changed_assumption: Some("load 0.5"), load: 0.5, ..DEFAULT_CASE },
    Case { changed_assumption: Some("load 1.2"), load: 1.2, ..DEFAULT_CASE },
    Case { changed_assumption: Some("no correlation"), correlation: 0.0, ..DEFAULT_CASE },
    Case { changed_assumption: Some("correlation 0.99"), correlation: 0.99, ..DEFAULT_CASE },
    Case { changed_assumption: Some("bandwidth holds for 1 s"), bandwidth_period_secs: 1.0, ..DEFAULT_CASE },
    Case {
        changed_assumption: Some("bandwidth holds for 100 s"),
        bandwidth_period_secs: 100.0,
        ..DEFAULT_CASE
    },
    Case { changed_assumption: Some("`depth=1`"), policy: "siphon:depth=1", ..DEFAULT_CASE },
    Case { changed_assumption: Some("`samples=100`"), policy: "siphon:samples=100", ..DEFAULT_CASE },
    Case { changed_assumption: Some("`choose=mean`"), policy: "siphon:choose=mean", ..DEFAULT_CASE },
    Case { changed_assumption: None, policy: "siphon:detours=on", ..DEFAULT_CASE },
    Case { changed_assumption: None, policy: "mrtf:detours=on", ..DEFAULT_CASE },
    Case { changed_assumption: None, policy: "fair", ..DEFAULT_CASE },
];

/// The CCT of each coflow of one replay, in seconds.
type Ccts = Vec<f64>;

/// The replays of one case with one seed.
struct CaseReplays {
    policy_ccts: Ccts,
    mrtf_ccts: Ccts,
    /// A lower bound of the mean CCT of any order without detours, in seconds. Computed only for Siphon's default parameters.
    min_mean_cct: Option<f64>,
}

/// The coflows of the trace with bytes between regions.
struct Coflows {
    area: WideArea,
    /// With one flow for each link.
    workload: Workload,
    /// The number of coflows of the trace without bytes between regions.
    excluded: usize,
}

/// Mean CCTs over those of MRTF, with confidence intervals.
pub struct MeanRatios {
    /// Of Siphon's order.
    pub siphon: String,
    /// Of Siphon's order with detours.
    pub siphon_with_detours: String,
    /// Of MRTF with detours.
    pub mrtf_with_detours: String,
}

/// The ratios of the summary, and the section of the page.
pub fn section(
    workload: &Workload,
    area: &WideArea,
    seeds: u64,
    run_context: &RunContext<'_>,
    pictures: &mut Pictures,
) -> Result<(MeanRatios, String), Failure> {
    let coflows = Coflows::new(workload, area)?;
    let bar = run_context.progress.add_step_bar("replays", CASES.len() * seeds as usize);
    let replays = run_concurrently(CASES.len() * seeds as usize, run_context.jobs, |index| {
        let replays = coflows.replay(&CASES[index / seeds as usize], 1 + index as u64 % seeds)?;
        bar.inc(1);
        Ok(replays)
    });
    bar.finish_and_clear();
    let found = replays?;
    let by_case: Vec<&[CaseReplays]> = found.chunks(seeds as usize).collect();
    let picture = pictures.add(
        "orders",
        "Completion times of four policies over those of MRTF, by size of the coflows",
        "The ratios of the table with their confidence intervals, which the picture cuts at its left edge. Hollow: published. Left of the \
         line at 1, the policy is better than MRTF.",
        coflows.fig15_plot(&by_case),
    );
    let section =
        coflows.introduction() + &coflows.fig15(&by_case) + &picture + &coflows.assumptions(&by_case);
    Ok((coflows.mean_ratios(&by_case), section))
}

impl Coflows {
    fn new(workload: &Workload, area: &WideArea) -> Result<Coflows, Failure> {
        let between = coflows_between_regions(workload, area);
        if !between.coflows.iter().any(|coflow| coflow.arrival.get() > 0.0) {
            return Err(Failure::input(
                "trace: no coflow between regions arrives after 0 s; expected later arrivals",
            ));
        }
        let excluded = workload.coflows.len() - between.coflows.len();
        Ok(Coflows { area: area.clone(), excluded, workload: between })
    }

    fn replay(&self, case: &Case, seed: u64) -> Result<CaseReplays, Failure> {
        let area = with_bandwidth_process(&self.area, case.bandwidth_period_secs, case.correlation);
        let workload = self.with_load(case.load);
        let with_seed = format!("{}:seed={seed}", case.policy);
        let policy = if case.policy.starts_with("siphon") { &with_seed } else { case.policy };
        Ok(CaseReplays {
            policy_ccts: replay_ccts(&workload, &area, policy, seed)?,
            mrtf_ccts: replay_ccts(&workload, &area, MRTF, seed)?,
            min_mean_cct: match case.policy == DEFAULT_CASE.policy {
                true => Some(lower_bound_of_mean(&workload, &area, seed)?),
                false => None,
            },
        })
    }

    /// The factor on sizes that gives the busiest link a load of `load`.
    fn size_factor(&self, load: f64) -> f64 {
        load / link_loads(&self.workload, &self.area).into_iter().fold(0.0, f64::max)
    }

    /// The coflows with a load of `load` on the busiest link.
    fn with_load(&self, load: f64) -> Workload {
        let mut workload = self.workload.clone();
        workload.scale_sizes(self.size_factor(load));
        workload
    }

    /// The coflows of each bin, in ascending order of size, and the largest size of the bin in bytes.
    fn size_bins(&self) -> Vec<(Vec<usize>, f64)> {
        let scaled = self.with_load(DEFAULT_CASE.load);
        let sizes: Vec<f64> = scaled.coflows.iter().map(CoflowSpec::total_bytes).collect();
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.sort_by(|&a, &b| sizes[a].total_cmp(&sizes[b]));
        let count = order.len().div_ceil(BINS).max(1);
        order.chunks(count).map(|bin| (bin.to_vec(), sizes[bin[bin.len() - 1]])).collect()
    }

    fn mean_ratios(&self, replays_by_case: &[&[CaseReplays]]) -> MeanRatios {
        let all: Vec<usize> = (0..self.workload.coflows.len()).collect();
        let ratio = |policy: &str| {
            let position = CASES.iter().position(|case| case.policy == policy);
            let position = position.expect("the cases have this policy");
            ratio_to_mrtf(replays_by_case[position], &all, mean).format_ratio()
        };
        MeanRatios {
            siphon: ratio("siphon"),
            siphon_with_detours: ratio("siphon:detours=on"),
            mrtf_with_detours: ratio("mrtf:detours=on"),
        }
    }

    fn introduction(&self) -> String {
        let factor = self.size_factor(DEFAULT_CASE.load);
        let loads = link_loads(&self.with_load(DEFAULT_CASE.load), &self.area);
        format!(
            "## Orders of coflows (section 5.3)\n\n\
             The public trace over three regions, as in the paper: workers are spread evenly over the regions, and a coflow \
             has one flow per link. Choices where the paper publishes no figure:\n\n\
             - *Bandwidth* (Fig. 14): `{}` has invented bandwidths. The bandwidth of a link changes every {} with a \
             correlation of {}.\n\
             - *Load*: \"flow sizes are scaled down, with the average load on inter-datacenter links reduced by 30%\". Here \
             sizes are multiplied by {:.5}, for a load of {} on the busiest link until the last arrival (bytes over mean \
             bandwidth). The loads of the links are {}.\n\
             - *Bins*: each bin has a quarter of the coflows, by bytes between regions.\n\
             - The figures include {} coflows; the other {} have no bytes between regions.\n\n",
            super::PRIVATE_CLOUD.0,
            self.area.change_interval(),
            self.area.correlation(),
            factor,
            DEFAULT_CASE.load,
            loads.iter().map(|load| format!("{load:.2}")).collect::<Vec<String>>().join(", "),
            self.workload.coflows.len(),
            self.excluded,
        )
    }

    /// The ratios of Fig. 15 by size of the coflows.
    fn fig15_plot(&self, replays_by_case: &[&[CaseReplays]]) -> Option<String> {
        let mut groups =
            vec![("all coflows".to_owned(), (0..self.workload.coflows.len()).collect::<Vec<usize>>())];
        groups.extend(
            self.size_bins().into_iter().map(|(bin, largest)| (format!("to {}", format_bytes(largest)), bin)),
        );
        let mut rows = Vec::new();
        for (group, (name, coflows)) in groups.iter().enumerate() {
            rows.push(DotRow::heading(name.as_str()));
            for (index, (case, replays)) in CASES.iter().zip(replays_by_case).enumerate() {
                if index > 0 && case.changed_assumption.is_some() {
                    continue;
                }
                let dot = |statistic: fn(&[f64]) -> f64| {
                    let interval = ratio_to_mrtf(replays, coflows, statistic);
                    Some(Dot { value: interval.mean, half_width: interval.half_width })
                };
                let published = (group == 0 && index == 0).then_some(PUBLISHED_MEAN_RATIO.into());
                rows.push(DotRow {
                    name: case.policy.to_owned(),
                    dots: vec![published, dot(mean), dot(p90)],
                });
            }
        }
        let series = vec![
            DotSeries::published("mean, published (5.3)"),
            DotSeries::measured("mean"),
            DotSeries::measured("P90"),
        ];
        let title = "completion time / that of MRTF";
        DotPlot { title, scale: Scale::Log, reference: Some(1.0), series, rows }.to_svg()
    }

    fn fig15(&self, replays_by_case: &[&[CaseReplays]]) -> String {
        let bins = self.size_bins();
        let mut head = vec!["policy".to_owned(), "statistic".to_owned(), "all".to_owned()];
        head.extend(bins.iter().map(|(_, largest)| format!("to {}", format_bytes(*largest))));
        let published = |statistic: &str, all: &str, largest: &str| {
            ["Siphon, published (5.3)", statistic, all, "-", "-", "-", largest].map(str::to_owned).to_vec()
        };
        let mut lines = vec![
            published("mean", "\"reduced by ~10%\"", "the gain \"mostly stems from\" these"),
            published("P90", "below 1", "-"),
        ];
        let mut columns: Vec<Vec<usize>> = vec![(0..self.workload.coflows.len()).collect()];
        columns.extend(bins.into_iter().map(|(bin, _)| bin));
        let fig15 = CASES.iter().zip(replays_by_case).enumerate();
        for (_, (case, replays)) in
            fig15.filter(|(index, (case, _))| *index == 0 || case.changed_assumption.is_none())
        {
            for (name, statistic) in [("mean", mean as fn(&[f64]) -> f64), ("P90", p90)] {
                let mut line = vec![format!("`{}`", case.policy), name.to_owned()];
                line.extend(
                    columns.iter().map(|coflows| ratio_to_mrtf(replays, coflows, statistic).format_ratio()),
                );
                lines.push(line);
            }
        }
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        format!(
            "### Fig. 15: CCTs over those of MRTF\n\nBins are named by their largest coflow. `siphon:detours=on` and \
             `mrtf:detours=on` differ in the order only.\n{}",
            markdown::table(&head, 2, &lines)
        )
    }

    fn assumptions(&self, replays_by_case: &[&[CaseReplays]]) -> String {
        let bins = self.size_bins();
        let all: Vec<usize> = (0..self.workload.coflows.len()).collect();
        let mut lines = Vec::new();
        for (case, replays) in CASES.iter().zip(replays_by_case) {
            let Some(assumption) = case.changed_assumption else { continue };
            let seconds: Vec<f64> = replays.iter().map(|replays| mean(&replays.mrtf_ccts)).collect();
            let bounds: Option<Vec<f64>> = replays
                .iter()
                .map(|replays| Some(replays.min_mean_cct? / mean(&replays.mrtf_ccts)))
                .collect();
            lines.push(vec![
                assumption.to_owned(),
                markdown::format_interval(&ConfidenceInterval::from_values(&seconds)),
                ratio_to_mrtf(replays, &all, mean).format_ratio(),
                ratio_to_mrtf(replays, &all, p90).format_ratio(),
                ratio_to_mrtf(replays, &bins[0].0, mean).format_ratio(),
                bounds.map_or_else(
                    || "-".to_owned(),
                    |bounds| ConfidenceInterval::from_values(&bounds).format_ratio(),
                ),
            ]);
        }
        let head = [
            "change",
            "MRTF: mean CCT (s)",
            "mean / MRTF's",
            "P90 / MRTF's",
            "mean of the smallest bin",
            "lower bound of the mean",
        ];
        format!(
            "### Assumptions\n\n\
             `siphon` over MRTF when one assumption or parameter changes. The last column is a lower bound for every order \
             without detours, even one that knows future bandwidths. On one link, no order has a lower mean than shortest \
             remaining time first. The bound orders the coflows of one link in this way, runs all others alone, and takes \
             the link with the largest mean.\n\
             {}`choose=mean` differs from the paper: the search chooses the branch with the lowest mean cost, not the one \
             that is most often the cheapest.\n\n",
            markdown::table(&head, 1, &lines),
        )
    }
}

fn p90(ccts: &[f64]) -> f64 {
    percentile(ccts, 90.0)
}

/// A statistic of the CCTs of `coflows`, divided by that under MRTF with the same seed.
fn ratio_to_mrtf(
    replays: &[CaseReplays],
    coflows: &[usize],
    statistic: impl Fn(&[f64]) -> f64,
) -> ConfidenceInterval {
    let statistic_of =
        |ccts: &Ccts| statistic(&coflows.iter().map(|&index| ccts[index]).collect::<Vec<f64>>());
    ConfidenceInterval::from_values(
        &replays
            .iter()
            .map(|replays| statistic_of(&replays.policy_ccts) / statistic_of(&replays.mrtf_ccts))
            .collect::<Vec<f64>>(),
    )
}

/// The area with another period and correlation of its bandwidths.
fn with_bandwidth_process(area: &WideArea, bandwidth_period_secs: f64, correlation: f64) -> WideArea {
    let links = (0..area.links() as u32).map(|link| {
        let (from, to) = area.link_ends(link);
        LinkMeasurement { from, to, samples: area.samples(link).to_vec() }
    });
    let bandwidth_period = Time::new(bandwidth_period_secs).expect("the constant is above 0");
    WideArea::new(area.regions().to_vec(), links.collect(), bandwidth_period, correlation)
        .expect("the links come from a valid wide area")
}

/// Replays coflows under a policy, and returns the CCT of each.
fn replay_ccts(workload: &Workload, area: &WideArea, policy: &str, seed: u64) -> Result<Ccts, Failure> {
    Ok(super::replay(workload, area, policy, seed)?.ccts())
}

/// A lower bound of the mean CCT of any order without detours, in seconds: the maximum of a bound over all links. For the bound of a
/// link, its coflows run in the order of MRTF, which is shortest remaining time first on one link, and all others run alone.
fn lower_bound_of_mean(workload: &Workload, area: &WideArea, seed: u64) -> Result<f64, Failure> {
    let ccts_of = |coflows: Vec<CoflowSpec>| {
        let coflows = Workload { coflows, events: Vec::new(), names: workload.names.clone(), ..*workload };
        replay_ccts(&coflows, area, MRTF, seed)
    };
    let alone_ccts = workload.coflows.iter().map(|coflow| Ok(ccts_of(vec![coflow.clone()])?[0]));
    let alone_ccts = alone_ccts.collect::<Result<Ccts, Failure>>()?;
    let mut bound = 0.0f64;
    for link in 0..area.links() as u32 {
        let on_link = |(index, coflow): (usize, &CoflowSpec)| {
            let mut coflow = coflow.clone();
            coflow.flows.retain(|flow| link_of_flow(flow, area, workload.ports) == Some(link));
            (!coflow.flows.is_empty()).then_some((index, coflow))
        };
        let (positions, coflows_on_link): (Vec<usize>, Vec<CoflowSpec>) =
            workload.coflows.iter().enumerate().filter_map(on_link).unzip();
        let mut ccts_with_link = alone_ccts.clone();
        for (index, cct) in positions.into_iter().zip(ccts_of(coflows_on_link)?) {
            ccts_with_link[index] = cct;
        }
        bound = bound.max(mean(&ccts_with_link));
    }
    Ok(bound)
}
