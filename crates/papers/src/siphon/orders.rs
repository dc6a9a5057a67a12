//! Section 5.3: orders of coflows over three regions, against MRTF (minimum remaining time first).

use weir_console::failure::Failure;
use weir_console::run::pool;
use weir_console::table::bytes;
use weir_core::model::wide_area::Measured;
use weir_core::model::{WideArea, Workload};
use weir_core::units::Time;
use weir_core::wide_area::build;
use weir_sim::outcome::{mean, percentile};
use weir_sim::wide_area::{Demand, Inside, Options, demands, run};

use crate::spread::Spread;
use crate::{Running, doc};

/// The baseline.
const MRTF: &str = "mrtf";

/// Bins of coflows by size, with equal numbers of coflows (Fig. 15).
const BINS: usize = 4;

/// A policy in a world, run against MRTF.
struct Case {
    /// The assumption that differs from the first case; none for a policy of Fig. 15.
    assumption: Option<&'static str>,
    policy: &'static str,
    /// The load of the busiest link until the last arrival: bytes over mean bandwidth.
    load: f64,
    /// The time in seconds until a link's bandwidth changes.
    holds: f64,
    /// The correlation between successive bandwidths of a link.
    correlation: f64,
}

/// The choices of this page where the paper publishes none.
const CHOSEN: Case =
    Case { assumption: Some("none (Fig. 15)"), policy: "siphon", load: 0.7, holds: 10.0, correlation: 0.9 };

/// The rows of the table of assumptions, of which the first is Siphon in Fig. 15, then further policies for Fig. 15.
const CASES: [Case; 13] = [
    CHOSEN,
    Case { assumption: Some("load 0.5"), load: 0.5, ..CHOSEN },
    Case { assumption: Some("load 1.2"), load: 1.2, ..CHOSEN },
    Case { assumption: Some("no correlation"), correlation: 0.0, ..CHOSEN },
    Case { assumption: Some("correlation 0.99"), correlation: 0.99, ..CHOSEN },
    Case { assumption: Some("bandwidth holds for 1 s"), holds: 1.0, ..CHOSEN },
    Case { assumption: Some("bandwidth holds for 100 s"), holds: 100.0, ..CHOSEN },
    Case { assumption: Some("`depth=1`"), policy: "siphon:depth=1", ..CHOSEN },
    Case { assumption: Some("`samples=100`"), policy: "siphon:samples=100", ..CHOSEN },
    Case { assumption: Some("`choose=mean`"), policy: "siphon:choose=mean", ..CHOSEN },
    Case { assumption: None, policy: "siphon:detours=on", ..CHOSEN },
    Case { assumption: None, policy: "mrtf:detours=on", ..CHOSEN },
    Case { assumption: None, policy: "fair", ..CHOSEN },
];

/// The CCT of each coflow of one replay, in seconds.
type Ccts = Vec<f64>;

/// One case with one seed.
struct Replays {
    own: Ccts,
    mrtf: Ccts,
    /// A lower bound of the mean CCT of any order without detours; computed for Siphon's default parameters only.
    bound: Option<f64>,
}

/// The coflows of the trace with bytes between regions.
struct Coflows {
    area: WideArea,
    demands: Vec<Demand>,
    /// The number of coflows of the trace without bytes between regions.
    left_out: usize,
}

/// The section of the page.
pub fn section(
    workload: &Workload,
    area: &WideArea,
    seeds: u64,
    running: &Running<'_>,
) -> Result<String, Failure> {
    let coflows = Coflows::new(workload, area)?;
    let bar = running.progress.steps("replays", CASES.len() * seeds as usize);
    let found = pool(CASES.len() * seeds as usize, running.jobs, |at| {
        let replays = coflows.replay(&CASES[at / seeds as usize], 1 + at as u64 % seeds)?;
        bar.inc(1);
        Ok(replays)
    });
    bar.finish_and_clear();
    let found = found?;
    let by_case: Vec<&[Replays]> = found.chunks(seeds as usize).collect();
    Ok(coflows.introduction() + &coflows.fig15(&by_case) + &coflows.assumptions(&by_case))
}

impl Coflows {
    fn new(workload: &Workload, area: &WideArea) -> Result<Coflows, Failure> {
        let all = demands(workload, area).map_err(|error| Failure::wide_area(MRTF, &error))?;
        let crosses = |demand: &&Demand| demand.groups.iter().any(|group| !group.flows.is_empty());
        let demands: Vec<Demand> = all.iter().filter(crosses).cloned().collect();
        if !demands.iter().any(|demand| demand.arrival > 0.0) {
            return Err(Failure::input(
                "expected a trace with coflows between regions that do not all arrive at 0 s",
            ));
        }
        Ok(Coflows { area: area.clone(), left_out: all.len() - demands.len(), demands })
    }

    fn replay(&self, case: &Case, seed: u64) -> Result<Replays, Failure> {
        let area = timed(&self.area, case.holds, case.correlation);
        let demands = scaled(&self.demands, self.factor(case.load));
        let seeded = format!("{}:seed={seed}", case.policy);
        let policy = if case.policy.starts_with("siphon") { &seeded } else { case.policy };
        Ok(Replays {
            own: ccts(&demands, &area, policy, seed)?,
            mrtf: ccts(&demands, &area, MRTF, seed)?,
            bound: match case.policy == CHOSEN.policy {
                true => Some(min_mean(&demands, &area, seed)?),
                false => None,
            },
        })
    }

    /// The factor on sizes for this load of the busiest link.
    fn factor(&self, load: f64) -> f64 {
        load / loads(&self.demands, &self.area).into_iter().fold(0.0, f64::max)
    }

    /// The coflows of each bin, in ascending order of size, and the largest size in bytes.
    fn bins(&self) -> Vec<(Vec<usize>, f64)> {
        let size = |demand: &Demand| demand.groups[0].flows.iter().map(|flow| flow.1).sum();
        let sizes: Vec<f64> = scaled(&self.demands, self.factor(CHOSEN.load)).iter().map(size).collect();
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.sort_by(|&a, &b| sizes[a].total_cmp(&sizes[b]));
        let count = order.len().div_ceil(BINS).max(1);
        order.chunks(count).map(|bin| (bin.to_vec(), sizes[bin[bin.len() - 1]])).collect()
    }

    fn introduction(&self) -> String {
        let factor = self.factor(CHOSEN.load);
        let loads = loads(&scaled(&self.demands, factor), &self.area);
        format!(
            "## Orders of coflows (section 5.3)\n\n\
             The public trace over three regions, as in the paper: workers are spread evenly over the regions, and a coflow has one flow \
             per link. Choices where the paper publishes no figure:\n\n\
             - *Bandwidth* (Fig. 14): `{}`, invented. A link's bandwidth changes every {} with a correlation of {}.\n\
             - *Load*: \"flow sizes are scaled down, with the average load on inter-datacenter links reduced by 30%\". Here sizes are \
             multiplied by {:.5}, for a load of {} on the busiest link until the last arrival (bytes over mean bandwidth). The links have {}.\n\
             - *Bins*: a quarter of the coflows each, by bytes between regions.\n\
             - {} coflows count; the other {} have no bytes between regions.\n\n",
            super::PRIVATE_CLOUD.0,
            self.area.holds(),
            self.area.correlation(),
            factor,
            CHOSEN.load,
            loads.iter().map(|load| format!("{load:.2}")).collect::<Vec<String>>().join(", "),
            self.demands.len(),
            self.left_out,
        )
    }

    fn fig15(&self, found: &[&[Replays]]) -> String {
        let bins = self.bins();
        let mut head = vec!["policy".to_owned(), "statistic".to_owned(), "all".to_owned()];
        head.extend(bins.iter().map(|(_, largest)| format!("to {}", bytes(*largest))));
        let published = |statistic: &str, all: &str, largest: &str| {
            ["Siphon, published (5.3)", statistic, all, "-", "-", "-", largest].map(str::to_owned).to_vec()
        };
        let mut lines = vec![
            published("mean", "\"reduced by ~10%\"", "the gain \"mostly stems from\" these"),
            published("P90", "below 1", "-"),
        ];
        let mut columns: Vec<Vec<usize>> = vec![(0..self.demands.len()).collect()];
        columns.extend(bins.into_iter().map(|(bin, _)| bin));
        let fig15 = CASES.iter().zip(found).enumerate();
        for (_, (case, replays)) in fig15.filter(|(at, (case, _))| *at == 0 || case.assumption.is_none()) {
            for (name, statistic) in [("mean", mean as fn(&[f64]) -> f64), ("P90", p90)] {
                let mut line = vec![format!("`{}`", case.policy), name.to_owned()];
                line.extend(columns.iter().map(|coflows| over_mrtf(replays, coflows, statistic).ratio()));
                lines.push(line);
            }
        }
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        format!(
            "### Fig. 15: CCTs over those of MRTF\n\nBins are named by their largest coflow. `siphon:detours=on` and \
             `mrtf:detours=on` differ in the order only.\n{}",
            doc::table(&head, 2, &lines)
        )
    }

    fn assumptions(&self, found: &[&[Replays]]) -> String {
        let bins = self.bins();
        let all: Vec<usize> = (0..self.demands.len()).collect();
        let mut lines = Vec::new();
        for (case, replays) in CASES.iter().zip(found) {
            let Some(assumption) = case.assumption else { continue };
            let seconds: Vec<f64> = replays.iter().map(|replays| mean(&replays.mrtf)).collect();
            let bounds: Option<Vec<f64>> =
                replays.iter().map(|replays| Some(replays.bound? / mean(&replays.mrtf))).collect();
            lines.push(vec![
                assumption.to_owned(),
                Spread::of(&seconds).text(),
                over_mrtf(replays, &all, mean).ratio(),
                over_mrtf(replays, &all, p90).ratio(),
                over_mrtf(replays, &bins[0].0, mean).ratio(),
                bounds.map_or_else(|| "-".to_owned(), |bounds| Spread::of(&bounds).ratio()),
            ]);
        }
        let head = [
            "change",
            "MRTF: mean CCT (s)",
            "mean over MRTF's",
            "P90 over MRTF's",
            "mean of the smallest bin",
            "lower bound of the mean",
        ];
        format!(
            "### Assumptions\n\n`siphon` over MRTF when one assumption or parameter changes. The last column is a bound for every order without \
             detours, even one that knows future bandwidths: on one link, no order has a lower mean than shortest remaining time first. \
             The bound takes the coflows of one link in this order, all others as if alone, and the link with the largest mean.\n{}\
             `choose=mean` is not the paper's: the search chooses the branch with the lowest mean cost, not the one that is most often the \
             cheapest.\n\n",
            doc::table(&head, 1, &lines),
        )
    }
}

fn p90(ccts: &[f64]) -> f64 {
    percentile(ccts, 90.0)
}

/// A statistic of some coflows' CCTs over that of MRTF, seed by seed.
fn over_mrtf(replays: &[Replays], coflows: &[usize], statistic: impl Fn(&[f64]) -> f64) -> Spread {
    let of = |ccts: &Ccts| statistic(&coflows.iter().map(|&at| ccts[at]).collect::<Vec<f64>>());
    Spread::of(&replays.iter().map(|replays| of(&replays.own) / of(&replays.mrtf)).collect::<Vec<f64>>())
}

/// The same area with other times.
fn timed(area: &WideArea, holds: f64, correlation: f64) -> WideArea {
    let links = (0..area.links() as u32).map(|link| {
        let (from, to) = area.ends(link);
        Measured { from, to, samples: area.samples(link).to_vec() }
    });
    let holds = Time::new(holds).expect("the constant is above 0");
    WideArea::new(area.regions().to_vec(), links.collect(), holds, correlation)
        .expect("the links come from a valid wide area")
}

/// The load of each link until the last arrival: bytes over mean bandwidth.
fn loads(demands: &[Demand], area: &WideArea) -> Vec<f64> {
    let span = demands.iter().map(|demand| demand.arrival).fold(0.0, f64::max);
    let mut bytes = vec![0.0; area.links()];
    for &(link, some) in demands.iter().flat_map(|demand| &demand.groups).flat_map(|group| &group.flows) {
        bytes[link as usize] += some;
    }
    bytes.iter().zip(0..).map(|(bytes, link)| bytes / (area.mean(link) * span)).collect()
}

fn scaled(demands: &[Demand], factor: f64) -> Vec<Demand> {
    let mut scaled = demands.to_vec();
    for group in scaled.iter_mut().flat_map(|demand| &mut demand.groups) {
        group.bytes *= factor;
        group.flows.iter_mut().for_each(|(_, bytes)| *bytes *= factor);
    }
    scaled
}

/// Replays coflows under a policy.
fn ccts(demands: &[Demand], area: &WideArea, policy: &str, seed: u64) -> Result<Ccts, Failure> {
    let options = Options { seed, inside: Inside::Shared, keep_flows: false };
    let scheme = build(policy).map_err(Failure::input)?;
    let found = run(demands, area, scheme, &options, |_| Failure::unless_asked().is_ok());
    let found = found.map_err(|error| Failure::wide_area(policy, &error))?;
    let last = |ends: &Vec<Vec<f64>>| ends.iter().flatten().copied().fold(0.0, f64::max);
    Ok(found.ends.iter().zip(demands).map(|(ends, demand)| last(ends) - demand.arrival).collect())
}

/// A lower bound of the mean CCT of any order without detours: for one link the coflows on it in the order of MRTF, which is shortest
/// remaining time first there, and all others alone; the maximum over links.
fn min_mean(demands: &[Demand], area: &WideArea, seed: u64) -> Result<f64, Failure> {
    let ccts = |demands: &[Demand]| ccts(demands, area, MRTF, seed);
    let alone = demands.iter().map(|demand| Ok(ccts(std::slice::from_ref(demand))?[0]));
    let alone = alone.collect::<Result<Ccts, Failure>>()?;
    let mut bound = 0.0f64;
    for link in 0..area.links() as u32 {
        let on_link = |(at, demand): (usize, &Demand)| {
            let mut demand = demand.clone();
            for group in &mut demand.groups {
                group.flows.retain(|flow| flow.0 == link);
                group.bytes = group.flows.iter().map(|flow| flow.1).sum();
            }
            demand.groups.iter().any(|group| !group.flows.is_empty()).then_some((at, demand))
        };
        let (places, here): (Vec<usize>, Vec<Demand>) =
            demands.iter().enumerate().filter_map(on_link).unzip();
        let mut each = alone.clone();
        for (at, cct) in places.into_iter().zip(ccts(&here)?) {
            each[at] = cct;
        }
        bound = bound.max(mean(&each));
    }
    Ok(bound)
}
