//! Section 5.3: orders of coflows over three regions, against MRTF.

use std::fmt::Write;

use weir_console::failure::Failure;
use weir_core::model::wide_area::Measured;
use weir_core::model::{WideArea, Workload};
use weir_core::units::Time;
use weir_core::wide_area::build;
use weir_sim::outcome::{mean, percentile};
use weir_sim::wide_area::{Demand, Inside, Options, demands, run};

use crate::doc;
use crate::spread::Spread;
use weir_console::progress::Progress;
use weir_console::run::pool;

/// What is compared with MRTF where nothing else is varied.
const POLICIES: [&str; 14] = [
    "siphon",
    "siphon:depth=1",
    "siphon:depth=2",
    "siphon:breadth=5",
    "siphon:samples=100",
    "siphon:confidence=0.8",
    "siphon:confidence=1",
    "siphon:reuse=off",
    BY_COST[0].1,
    BY_COST[1].1,
    DETOURS[0],
    DETOURS[1],
    "fifo",
    "fair",
];

/// Searches that choose by wins, as the paper has it, and the same that choose by mean cost.
const BY_COST: [(&str, &str); 2] =
    [("siphon", "siphon:choose=mean"), ("siphon:depth=1", "siphon:depth=1:choose=mean")];

/// Detours with the search and without it.
const DETOURS: [&str; 2] = ["siphon:detours=on", "mrtf:detours=on"];

/// What all is compared with.
const RIVAL: &str = "mrtf";

/// Bins of coflows by size, as many in each (Fig. 15).
const BINS: usize = 4;

/// What the paper leaves open, one at a time: a name, the load, how long a bandwidth holds in seconds, the correlation.
const WORLDS: [(&str, f64, f64, f64); 8] = [
    ("as above", 0.7, 10.0, 0.9),
    ("load 0.5", 0.5, 10.0, 0.9),
    ("load 0.9", 0.9, 10.0, 0.9),
    ("load 1.2", 1.2, 10.0, 0.9),
    ("no correlation", 0.7, 10.0, 0.0),
    ("correlation 0.99", 0.7, 10.0, 0.99),
    ("holds for 1 s", 0.7, 1.0, 0.9),
    ("holds for 100 s", 0.7, 100.0, 0.9),
];

/// One run: when each coflow ended, less its arrival.
type Ccts = Vec<f64>;

/// All runs.
pub struct Inter {
    area: WideArea,
    /// Bytes between regions of each coflow that has any, at the first world's load.
    sizes: Vec<f64>,
    left_out: usize,
    factor: f64,
    /// Of the links in the first world.
    loads: Vec<f64>,
    /// By world, then policy (the rival first), then seed.
    found: Vec<Vec<Vec<Ccts>>>,
    /// What no mean CCT is below if nothing takes a detour, by world, then seed.
    least: Vec<Vec<f64>>,
}

/// The mean of some coflows' CCTs.
fn mean_of(bin: &[usize], ccts: &[f64]) -> f64 {
    mean(&bin.iter().map(|&at| ccts[at]).collect::<Vec<f64>>())
}

/// The same area with other times.
fn timed(area: &WideArea, holds: f64, correlation: f64) -> WideArea {
    let links = (0..area.links() as u32).map(|link| {
        let (from, to) = area.ends(link);
        Measured { from, to, samples: area.samples(link).to_vec() }
    });
    let holds = Time::new(holds).expect("a constant");
    WideArea::new(area.regions().to_vec(), links.collect(), holds, correlation).expect("it was one before")
}

/// The loads of links until the last arrival: bytes over mean bandwidth.
fn loads(demands: &[Demand], area: &WideArea) -> Vec<f64> {
    let span = demands.iter().map(|demand| demand.arrival).fold(0.0, f64::max);
    let mut bytes = vec![0.0; area.links()];
    for &(link, some) in demands.iter().flat_map(|demand| &demand.groups).flat_map(|group| &group.flows) {
        bytes[link as usize] += some;
    }
    bytes.iter().zip(0..).map(|(bytes, link)| bytes / (area.mean(link) * span)).collect()
}

/// By what to multiply sizes so that no link has more than this load.
fn factor(demands: &[Demand], area: &WideArea, load: f64) -> f64 {
    load / loads(demands, area).into_iter().fold(0.0, f64::max)
}

fn scaled(demands: &[Demand], factor: f64) -> Vec<Demand> {
    let mut scaled = demands.to_vec();
    for group in scaled.iter_mut().flat_map(|demand| &mut demand.groups) {
        group.bytes *= factor;
        group.flows.iter_mut().for_each(|(_, bytes)| *bytes *= factor);
    }
    scaled
}

/// The area and the coflows of one of [`WORLDS`].
fn world(at: usize, demands: &[Demand], area: &WideArea) -> (WideArea, Vec<Demand>) {
    let (_, load, holds, correlation) = WORLDS[at];
    let area = timed(area, holds, correlation);
    let demands = scaled(demands, factor(demands, &area, load));
    (area, demands)
}

/// One replay.
fn ccts(demands: &[Demand], area: &WideArea, policy: &str, seed: u64) -> Result<Ccts, Failure> {
    let options = Options { seed, inside: Inside::Shared, keep_flows: false };
    let scheme = build(policy).map_err(Failure::input)?;
    let found = run(demands, area, scheme, &options, |_| Failure::unless_asked().is_ok());
    let found = found.map_err(|error| Failure::wide_area(policy, &error))?;
    let last = |ends: &Vec<Vec<f64>>| ends.iter().flatten().copied().fold(0.0, f64::max);
    Ok(found.ends.iter().zip(demands).map(|(ends, demand)| last(ends) - demand.arrival).collect())
}

/// What these coflows' mean CCT cannot be below without detours. On one link alone nothing has a lower mean than the shortest remaining
/// first, which MRTF is there, and coflows that are not on it take no less than they would alone. The greatest of all links counts.
fn least_mean(demands: &[Demand], area: &WideArea, seed: u64) -> Result<f64, Failure> {
    let ccts = |demands: &[Demand]| ccts(demands, area, RIVAL, seed);
    let alone = demands.iter().map(|demand| Ok(ccts(std::slice::from_ref(demand))?[0]));
    let alone = alone.collect::<Result<Ccts, Failure>>()?;
    let mut least = 0.0f64;
    for link in 0..area.links() as u32 {
        let only = |demand: &Demand| {
            let mut demand = demand.clone();
            for group in &mut demand.groups {
                group.flows.retain(|flow| flow.0 == link);
                group.bytes = group.flows.iter().map(|flow| flow.1).sum();
            }
            demand
        };
        let on: Vec<usize> = (0..demands.len())
            .filter(|&at| {
                demands[at].groups.iter().any(|group| group.flows.iter().any(|flow| flow.0 == link))
            })
            .collect();
        let mut each = alone.clone();
        let here: Vec<Demand> = on.iter().map(|&at| only(&demands[at])).collect();
        for (&at, cct) in on.iter().zip(ccts(&here)?) {
            each[at] = cct;
        }
        least = least.max(mean(&each));
    }
    Ok(least)
}

impl Inter {
    /// Runs all of it.
    pub fn run(
        workload: &Workload,
        area: &WideArea,
        seeds: u64,
        jobs: usize,
        progress: &Progress,
    ) -> Result<Inter, Failure> {
        let all = demands(workload, area).map_err(|error| Failure::wide_area(RIVAL, &error))?;
        let crosses = |demand: &&Demand| demand.groups.iter().any(|group| !group.flows.is_empty());
        let demands: Vec<Demand> = all.iter().filter(crosses).cloned().collect();
        if !demands.iter().any(|demand| demand.arrival > 0.0) {
            return Err(Failure::input(
                "expected a trace with coflows between regions that do not all arrive at 0 s",
            ));
        }
        let mut tasks = Vec::new();
        for at in 0..WORLDS.len() {
            let with = if at == 0 { &POLICIES[..] } else { &POLICIES[..1] };
            for policy in std::iter::once(&RIVAL).chain(with) {
                tasks.extend((1..=seeds).map(|seed| (at, *policy, seed)));
            }
        }
        let bar = progress.steps("replays", tasks.len());
        let mut runs = pool(tasks.len(), jobs, |at| {
            let (at, policy, seed) = tasks[at];
            let (area, demands) = world(at, &demands, area);
            let own = if policy.starts_with("siphon") {
                format!("{policy}:seed={seed}")
            } else {
                policy.to_owned()
            };
            let ccts = ccts(&demands, &area, &own, seed)?;
            bar.inc(1);
            Ok(ccts)
        })?
        .into_iter();
        let mut found = Vec::new();
        for at in 0..WORLDS.len() {
            let policies = if at == 0 { 1 + POLICIES.len() } else { 2 };
            found.push((0..policies).map(|_| runs.by_ref().take(seeds as usize).collect()).collect());
        }
        let factor = factor(&demands, area, WORLDS[0].1);
        let at_load = scaled(&demands, factor);
        let sizes = at_load.iter().map(|demand| demand.groups[0].flows.iter().map(|flow| flow.1).sum());
        let bar = progress.steps("bounds", WORLDS.len() * seeds as usize);
        let mut least = pool(WORLDS.len() * seeds as usize, jobs, |at| {
            let (area, demands) = world(at / seeds as usize, &demands, area);
            let least = least_mean(&demands, &area, 1 + at as u64 % seeds)?;
            bar.inc(1);
            Ok(least)
        })?
        .into_iter();
        let least = WORLDS.iter().map(|_| least.by_ref().take(seeds as usize).collect()).collect();
        Ok(Inter {
            area: area.clone(),
            sizes: sizes.collect(),
            left_out: all.len() - demands.len(),
            factor,
            loads: loads(&at_load, area),
            found,
            least,
        })
    }

    /// What a policy's runs are worth over the rival's, seed by seed.
    fn over(&self, world: usize, policy: usize, what: impl Fn(&[f64]) -> f64) -> Spread {
        let runs = &self.found[world];
        let each = runs[1 + policy].iter().zip(&runs[0]).map(|(own, rival)| what(own) / what(rival));
        Spread::of(&each.collect::<Vec<f64>>())
    }

    /// The same in the first world for a policy by name.
    fn named(&self, policy: &str, what: impl Fn(&[f64]) -> f64) -> Spread {
        let at = POLICIES.iter().position(|other| *other == policy).expect("it was compared");
        self.over(0, at, what)
    }

    /// The coflows of each bin.
    fn bins(&self) -> Vec<Vec<usize>> {
        let mut order: Vec<usize> = (0..self.sizes.len()).collect();
        order.sort_by(|&a, &b| self.sizes[a].total_cmp(&self.sizes[b]));
        let each = order.len().div_ceil(BINS).max(1);
        order.chunks(each).map(<[usize]>::to_vec).collect()
    }

    /// How much of the difference of all CCTs is that of a bin's.
    fn part(&self, bin: &[usize]) -> f64 {
        let runs = &self.found[0];
        let less = |places: &mut dyn Iterator<Item = usize>| {
            places
                .map(|at| runs[0].iter().zip(&runs[1]).map(|(rival, own)| rival[at] - own[at]).sum::<f64>())
                .sum::<f64>()
        };
        less(&mut bin.iter().copied()) / less(&mut (0..self.sizes.len()))
    }

    /// The section of the document.
    pub fn section(&self) -> String {
        let mut out = String::from("## 5.3: orders of coflows\n\n");
        let (holds, correlation) = (self.area.holds(), self.area.correlation());
        write!(
            out,
            "The public trace over three regions, as the paper has it: workers evenly in them, one flow of a coflow on each link, CCTs over \
             those of MRTF. What the paper does not publish, and what was chosen:\n\n\
             - *Bandwidth* (Fig. 14 has no numbers in the text): `examples/wide-area/private-cloud.toml`, made up; another every {holds} at a \
             correlation of {correlation}.\n\
             - *Load*: \"flow sizes are scaled down, with the average load on inter-datacenter links reduced by 30%\" does not say of what. Here \
             sizes are multiplied by {:.5}, so that the busiest link has a load of {} until the last arrival (bytes over mean bandwidth), 30 % less than \
             all that it carries; the links have {}.\n\
             - *Bins*: a quarter of the coflows each, by bytes between regions.\n\
             - {} coflows count; the other {} have no bytes between regions.\n\n### Fig. 15: CCTs over those of MRTF\n",
            self.factor,
            WORLDS[0].1,
            self.loads.iter().map(|load| format!("{load:.2}")).collect::<Vec<String>>().join(", "),
            self.sizes.len(),
            self.left_out,
        )
        .expect("memory takes all");
        let bins = self.bins();
        let mut head = vec!["policy".to_owned(), "mean".to_owned(), "P90".to_owned()];
        head.extend(bins.iter().map(|bin| {
            let most = bin.iter().map(|&at| self.sizes[at]).fold(0.0, f64::max);
            format!("mean, to {}", weir_console::table::bytes(most))
        }));
        let published = ["Siphon, published", "about 0.9", "below 1", "-", "-", "-", "most of the gain"]
            .map(str::to_owned);
        let mut lines = vec![published.to_vec()];
        for (at, policy) in POLICIES.iter().enumerate() {
            let mut line = vec![format!("`{policy}`")];
            line.push(self.over(0, at, mean).ratio());
            line.push(self.over(0, at, |ccts| percentile(ccts, 90.0)).ratio());
            for bin in &bins {
                line.push(self.over(0, at, |ccts| mean_of(bin, ccts)).ratio());
            }
            lines.push(line);
        }
        let names: Vec<&str> = head.iter().map(String::as_str).collect();
        out.push_str(&doc::table(&names, 1, &lines));
        out.push_str(&self.claims(&bins));
        out.push_str(&self.room());
        out.push_str(&self.tails(&bins));
        out.push_str(&self.small(&bins[0]));
        out.push_str(&self.detours());
        out.push_str(&self.worlds());
        out
    }

    fn claims(&self, bins: &[Vec<usize>]) -> String {
        let all = self.over(0, 0, mean);
        let tail = self.over(0, 0, |ccts| percentile(ccts, 90.0));
        let largest = self.part(bins.last().expect("there are coflows"));
        let line = |claim: &str, source: &str, published: &str, measured: String, holds: bool| {
            vec![claim.to_owned(), source.to_owned(), published.to_owned(), measured, doc::yes(holds)]
        };
        let lines = [
            line("mean CCT below MRTF's", "5.3: \"reduced by ~10%\"", "0.90", all.ratio(), all.below(1.0)),
            line(
                "by as much",
                "5.3",
                "0.90",
                all.ratio(),
                all.below(1.0) && (all.mean - 0.9).abs() <= all.half,
            ),
            line(
                "P90 CCT below MRTF's",
                "5.3: \"both average and tail CCTs\"",
                "below 1",
                tail.ratio(),
                tail.below(1.0),
            ),
            line(
                "most of the gain is the largest bin's",
                "5.3: \"mostly stems from expediting the largest bin\"",
                "over half",
                if all.mean < 1.0 { doc::share(largest) } else { "no gain".to_owned() },
                all.mean < 1.0 && largest > 0.5,
            ),
        ];
        doc::table(&["claim", "where", "published", "measured", "holds"], 3, &lines)
    }

    /// What no order without detours is below, over the rival's mean CCT.
    fn bound(&self, world: usize) -> Spread {
        let pairs = self.least[world].iter().zip(&self.found[world][0]);
        Spread::of(&pairs.map(|(least, rival)| least / mean(rival)).collect::<Vec<f64>>())
    }

    /// How much any order could gain.
    fn room(&self) -> String {
        let part = self.bound(0);
        let worlds = (0..WORLDS.len()).filter(|&world| self.bound(world).above(0.9)).count();
        let says = if part.above(0.9) {
            &format!(
                "So no order of coflows, whatever it knows, comes to the published 0.90 here, nor in {} of the {} other worlds below: the gain that the \
                 paper has needs bandwidths, loads or a rival that it does not publish, or comes from elsewhere than the order.",
                worlds - 1,
                WORLDS.len() - 1
            )
        } else {
            "So the published 0.90 is not ruled out by that."
        };
        format!(
            "### How much there is to gain\n\nOn one link nothing has a lower mean than the shortest remaining time first. A bound for all \
             orders, of which each knows what links will carry: the coflows of one link so, all others as if alone, and of the links that which \
             makes the most. Without detours no mean CCT is below {} of MRTF's. {says}\n\n",
            part.ratio(),
        )
    }

    /// P90 by bin.
    fn tails(&self, bins: &[Vec<usize>]) -> String {
        let tail = |bin: &[usize], ccts: &[f64]| {
            percentile(&bin.iter().map(|&at| ccts[at]).collect::<Vec<f64>>(), 90.0)
        };
        let mut lines = Vec::new();
        for (at, policy) in POLICIES.iter().enumerate() {
            let mut line = vec![format!("`{policy}`")];
            line.extend(bins.iter().map(|bin| self.over(0, at, |ccts| tail(bin, ccts)).ratio()));
            lines.push(line);
        }
        let names: Vec<String> = (1..=bins.len()).map(|bin| format!("P90, bin {bin}")).collect();
        let mut head = vec!["policy"];
        head.extend(names.iter().map(String::as_str));
        format!("### P90 of each bin over MRTF's\n{}", doc::table(&head, 1, &lines))
    }

    /// Whether small coflows wait because wins are counted.
    fn small(&self, bin: &[usize]) -> String {
        let (mut lines, mut cured) = (Vec::new(), Vec::new());
        for (by_wins, by_cost) in BY_COST {
            let of = |policy: &str| self.named(policy, |ccts| mean_of(bin, ccts));
            let (wins, cost) = (of(by_wins), of(by_cost));
            lines.push(vec![format!("`{by_wins}`"), wins.ratio(), cost.ratio()]);
            if wins.above(1.0) && !cost.above(1.0) {
                cured.push(format!("`{by_wins}`"));
            }
        }
        let cause = if cured.is_empty() {
            "In none of them is the bin surely slower than with MRTF by wins, and not by cost: the count is not shown to be the cause."
                .to_owned()
        } else {
            format!(
                "For {} the bin is surely slower than with MRTF by wins, and not by cost: it is the count that makes small coflows wait.",
                cured.join(" and ")
            )
        };
        format!(
            "### Small coflows\n\nThe paper counts how often a branch is the cheapest (\"the branch with the maximum counter value\"), not by how \
             much. The same search can choose the lowest mean cost among the branches that stay open (`choose=mean`, not the paper's). The mean \
             CCT of the smallest bin over MRTF's:\n{}{cause}\n\n",
            doc::table(&["policy", "by wins", "by mean cost"], 1, &lines),
        )
    }

    /// What of the gain with detours is the search's.
    fn detours(&self) -> String {
        let [with, without] = DETOURS.map(|policy| self.named(policy, mean));
        let at =
            DETOURS.map(|policy| 1 + POLICIES.iter().position(|other| *other == policy).expect("compared"));
        let pairs = self.found[0][at[0]].iter().zip(&self.found[0][at[1]]);
        let search =
            Spread::of(&pairs.map(|(with, without)| mean(with) / mean(without)).collect::<Vec<f64>>());
        let says = if search.below(1.0) {
            "With detours the search gains."
        } else if search.above(1.0) {
            "With detours the search loses, too."
        } else if without.below(1.0) {
            "The gain is that of detours; the search adds nothing that the seeds can tell."
        } else {
            "The search adds nothing that the seeds can tell, and detours are not surely better than none."
        };
        format!(
            "### Detours\n\nThe mean CCT over MRTF's is {} with `{}` and {} with `{}`; seed by seed the first over the second is {}. {says}\n\n",
            with.ratio(),
            DETOURS[0],
            without.ratio(),
            DETOURS[1],
            search.ratio(),
        )
    }

    fn worlds(&self) -> String {
        let mut lines = Vec::new();
        let (mut gains, mut losses) = (Vec::new(), Vec::new());
        for (at, (name, ..)) in WORLDS.iter().enumerate() {
            let all = self.over(at, 0, mean);
            let tail = self.over(at, 0, |ccts| percentile(ccts, 90.0));
            let rival: Vec<f64> = self.found[at][0].iter().map(|ccts| mean(ccts)).collect();
            let bound = self.bound(at).ratio();
            lines.push(vec![(*name).to_owned(), Spread::of(&rival).text(), all.ratio(), bound, tail.ratio()]);
            if all.below(1.0) {
                gains.push(*name);
            } else if all.above(1.0) {
                losses.push(*name);
            }
        }
        let listed = |list: &[&str]| if list.is_empty() { "nowhere".to_owned() } else { list.join(", ") };
        format!(
            "### What the chosen values change\n\nOne at a time, `siphon` against MRTF:\n{}\
             The mean CCT is surely below MRTF's (its whole interval): {}. It is surely above: {}. Elsewhere the seeds do not tell them \
             apart.\n\n",
            doc::table(
                &["world", "MRTF's mean CCT s", "mean over MRTF's", "no order is below", "P90 over MRTF's"],
                1,
                &lines
            ),
            listed(&gains),
            listed(&losses),
        )
    }
}
