//! Writes the page of `weir reproduce fabrics`: decisions over all links against decisions over ports.
//!
//! No paper has this experiment. The papers schedule the ports of one switch. If the links between switches carry less than
//! the ports, a policy can decide over these links too, or decide over ports and leave the rest to the network.

use std::sync::Arc;

use weir_console::chart::{Dot, DotPlot, DotRow, DotSeries, Scale};
use weir_console::confidence_interval::ConfidenceInterval;
use weir_console::failure::Failure;
use weir_console::run::{ReplayTask, run_concurrently};
use weir_core::engine::DecidesOver;
use weir_core::model::{TopologyTemplate, Trunks, Workload};
use weir_core::units::Rate;
use weir_sim::{NetworkModel, ReplayOptions};
use weir_trace::generate::{Preset, WorkloadSpec, generate};
use weir_trace::{Limits, TraceUnit};

use crate::picture::Pictures;
use crate::{Page, RunContext, markdown};

/// The default number of workloads.
pub const DEFAULT_SEEDS: u64 = 20;

/// Coflows of a workload.
const COFLOWS: usize = 60;

const LEAVES: u32 = 10;
const HOSTS_PER_LEAF: u32 = 5;
const SPINES: u32 = 2;

/// Capacity of a leaf's hosts divided by the capacity of its links to spines.
const OVERSUBSCRIPTIONS: [f64; 4] = [1.0, 2.0, 3.0, 5.0];

/// An oversubscription at which links between switches limit no flow: each carries more than all hosts together.
const CONTROL: f64 = 0.01;

/// Saath, which backfills missed coflows only, as in the paper; and with backfilling of admitted coflows.
const SAATH: &str = "saath";
const SAATH_ALL: &str = "saath:backfill=all";

/// The policies that order coflows and set rates.
const POLICIES: [&str; 10] =
    ["fifo", "scf", "ncf", "lcf", "srtf", "lwtf", "varys", "sincronia", SAATH, SAATH_ALL];

const BOTH: [DecidesOver; 2] = [DecidesOver::Links, DecidesOver::Ports];

/// The mean CCTs of one policy on one network: by seed, over links and over ports.
type MeanCcts = Vec<[f64; 2]>;

/// The page: `seeds` generated workloads, one for each seed from 1 on, which also selects the paths.
///
/// # Errors
/// If a replay fails, or a signal stops the work.
pub fn page(seeds: u64, run_context: &RunContext<'_>) -> Result<Page, Failure> {
    let mut pictures = Pictures::new("fabrics");
    let workloads = (1..=seeds).map(workload).collect::<Result<Vec<Workload>, Failure>>()?;
    let networks: Vec<f64> = OVERSUBSCRIPTIONS.into_iter().chain([CONTROL]).collect();
    let count = networks.len() * workloads.len();
    let bar = run_context.progress.add_step_bar("networks", count);
    let replays = run_concurrently(count, run_context.jobs, |at| {
        let (oversubscription, seed) = (networks[at / workloads.len()], at % workloads.len());
        let ccts = mean_ccts(&workloads[seed], oversubscription, seed as u64 + 1, run_context);
        bar.inc(1);
        ccts
    })?;
    let one_switch = run_concurrently(workloads.len(), run_context.jobs, |seed| {
        mean_ccts_on_one_switch(&workloads[seed], run_context)
    })?;
    // By policy and network.
    let of = |policy: usize, network: usize| -> MeanCcts {
        let replays = &replays[network * workloads.len()..(network + 1) * workloads.len()];
        replays.iter().map(|policies| policies[policy]).collect()
    };
    let position =
        |name| POLICIES.iter().position(|policy| *policy == name).expect("the list has this policy");
    let ratio_interval = |policy: usize, network: usize| {
        let ratios: Vec<f64> = of(policy, network).iter().map(|[links, ports]| ports / links).collect();
        ConfidenceInterval::from_values(&ratios)
    };
    let ports_over_links = |policy, network| ratio_interval(policy, network).format_ratio();
    let mut out = head(seeds);
    out.push_str(&summary(|policy| ports_over_links(position(policy), OVERSUBSCRIPTIONS.len() - 1)));
    out.push_str(&conditions(seeds));
    out.push_str(
        "## Mean CCT over ports divided by mean CCT over links\n\nAbove 1, decisions over links are better. Means over workloads with \
         95 % confidence intervals.\n",
    );
    out.push_str(&table(&POLICIES, &[], ports_over_links));
    out.push_str(&pictures.add(
        "ratios",
        "Mean completion time over ports divided by that over links, by policy and oversubscription",
        "The ratios of the table with their confidence intervals. Right of the line at 1, decisions over links are better.",
        ratios_plot(ratio_interval),
    ));
    out.push_str(
        "## Mean CCT over links in seconds\n\nThe last two columns are the control: links between switches that carry more than all hosts \
         together, and one switch. They are equal.\n",
    );
    out.push_str(&table(&POLICIES, &["links that limit nothing", "one switch"], |policy, network| {
        let ccts: Vec<f64> = match network < networks.len() {
            true => of(policy, network).iter().map(|[links, _]| *links).collect(),
            false => one_switch.iter().map(|policies| policies[policy]).collect(),
        };
        markdown::format_interval(&ConfidenceInterval::from_values(&ccts))
    }));
    out.push_str(
        "## Mean CCT of `saath` divided by that of `saath:backfill=all`, over links\n\nAbove 1, backfilling of admitted coflows is better. \
         Means of the ratios by workload. The last column is the control.\n",
    );
    let (missed, all) = (position(SAATH), position(SAATH_ALL));
    out.push_str(&table(&[SAATH_ALL], &["links that limit nothing"], |_, network| {
        let pairs = of(missed, network).into_iter().zip(of(all, network));
        let ratios: Vec<f64> = pairs.map(|(missed, all)| missed[0] / all[0]).collect();
        ConfidenceInterval::from_values(&ratios).format_ratio()
    }));
    out.push_str(NOTES);
    Ok(pictures.finish(markdown::collapse_blank_lines(out)))
}

/// A row for each policy, with a dot for each oversubscription.
fn ratios_plot(interval: impl Fn(usize, usize) -> ConfidenceInterval) -> Option<String> {
    let dot = |policy: usize, network: usize| {
        let interval = interval(policy, network);
        Some(Dot { value: interval.mean, half_width: interval.half_width })
    };
    let row = |(policy, name): (usize, &&str)| DotRow {
        name: (*name).to_owned(),
        dots: (0..OVERSUBSCRIPTIONS.len()).map(|network| dot(policy, network)).collect(),
    };
    let rows = POLICIES.iter().enumerate().map(row).collect();
    let series =
        OVERSUBSCRIPTIONS.map(|over| DotSeries::measured(&format!("oversubscription {over}:1"))).to_vec();
    let title = "mean completion time over ports / over links";
    DotPlot { title, scale: Scale::Log, reference: Some(1.0), series, rows }.to_svg()
}

/// By policy: the mean CCT over links and over ports.
fn mean_ccts(
    workload: &Workload,
    oversubscription: f64,
    path_seed: u64,
    run_context: &RunContext<'_>,
) -> Result<Vec<[f64; 2]>, Failure> {
    let template = TopologyTemplate::LeafSpine {
        spines: SPINES,
        leaves: LEAVES,
        hosts: HOSTS_PER_LEAF,
        rate: Rate::GBIT,
        oversubscription,
    };
    let topology = template.build().map_err(Failure::runtime)?;
    let trunks = Trunks::new(topology, path_seed).map_err(Failure::runtime)?;
    let trunks = Arc::new(trunks);
    let mut ccts = vec![[0.0; 2]; POLICIES.len()];
    for (policy, ccts) in POLICIES.iter().zip(&mut ccts) {
        for (decides_over, mean_cct) in BOTH.into_iter().zip(ccts) {
            let network =
                NetworkModel { trunks: Some(Arc::clone(&trunks)), decides_over, ..NetworkModel::default() };
            let options = ReplayOptions { network, ..ReplayOptions::default() };
            let task = ReplayTask { policy: (*policy).to_owned(), workload, options, sensitivities: &[] };
            *mean_cct = weir_sim::outcome::mean(&task.run(run_context.progress)?.ccts());
        }
    }
    Ok(ccts)
}

/// By policy: the mean CCT on one switch.
fn mean_ccts_on_one_switch(workload: &Workload, run_context: &RunContext<'_>) -> Result<Vec<f64>, Failure> {
    let mean_cct = |policy: &&str| {
        let options = ReplayOptions::default();
        let task = ReplayTask { policy: (*policy).to_owned(), workload, options, sensitivities: &[] };
        Ok(weir_sim::outcome::mean(&task.run(run_context.progress)?.ccts()))
    };
    POLICIES.iter().map(mean_cct).collect()
}

/// A workload of the generator's small preset.
fn workload(seed: u64) -> Result<Workload, Failure> {
    let spec = WorkloadSpec { coflows: COFLOWS, ..Preset::Small.spec(seed) };
    Ok(generate(&spec, TraceUnit::MB, &Limits::default())?)
}

/// A row for each policy, with a column for each oversubscription and for each of `controls`.
fn table(names: &[&str], controls: &[&str], cell: impl Fn(usize, usize) -> String) -> String {
    let heads: Vec<String> = OVERSUBSCRIPTIONS.iter().map(|over| format!("{over}:1")).collect();
    let mut head = vec!["policy"];
    head.extend(heads.iter().map(String::as_str));
    head.extend(controls);
    let lines: Vec<Vec<String>> = names
        .iter()
        .enumerate()
        .map(|(policy, name)| {
            let cells = (0..heads.len() + controls.len()).map(|network| cell(policy, network));
            std::iter::once(format!("`{name}`")).chain(cells).collect()
        })
        .collect();
    markdown::table(&head, 1, &lines)
}

fn head(seeds: u64) -> String {
    let option = if seeds == DEFAULT_SEEDS { String::new() } else { format!(" --seeds {seeds}") };
    format!(
        "# Decisions over links and over ports\n\n\
         Made by `weir reproduce fabrics --out docs/results/fabrics.md{option}`.\n\n\
         No paper has this experiment: the papers schedule the ports of one switch. On a network whose links between switches carry \
         less than its ports, a policy can decide over all links (`--decide-over links`, the default). Or the policy decides over \
         ports, and rates are reduced where a link is oversubscribed (`--decide-over ports`). The reduced rates are max-min, as \
         those of TCP with senders that limit themselves to the decided rates; capacity that becomes free at ports is not \
         reassigned.\n\n"
    )
}

/// The summary; `ports_over_links` returns the ratio of mean CCTs of a policy at the highest oversubscription.
fn summary(ports_over_links: impl Fn(&'static str) -> String) -> String {
    let highest = OVERSUBSCRIPTIONS[OVERSUBSCRIPTIONS.len() - 1];
    format!(
        "## Summary\n\n\
         - Mean CCT over ports divided by mean CCT over links, at an oversubscription of {highest}:1: `saath` {}, `varys` {}, \
         `sincronia` {}, `fifo` {}. Above 1, decisions over links are better.\n\n",
        ports_over_links(SAATH),
        ports_over_links("varys"),
        ports_over_links("sincronia"),
        ports_over_links("fifo"),
    )
}

fn conditions(seeds: u64) -> String {
    format!(
        "## Conditions\n\n\
         - **Workloads**: {seeds} of the generator's `small` preset (seeds 1 to {seeds}), {COFLOWS} coflows on {} ports of 1 Gbit/s.\n\
         - **Network**: {LEAVES} leaves of {HOSTS_PER_LEAF} hosts and {SPINES} spines. Each flow takes one path by a hash with the \
         workload's seed. The oversubscription is the capacity of a leaf's hosts divided by that of its links to spines.\n\
         - **Schedules** at multiples of 8 ms.\n\n",
        LEAVES * HOSTS_PER_LEAF,
    )
}

const NOTES: &str = "\
## Reading the tables

- At 1:1, links between switches are bottlenecks only where hashes collide, so the two differ little.
- `sincronia` gains most: its greedy rates give a flow a whole port, of which an oversubscribed link carries a part; over ports, the rest \
of the port is unused.
- `fifo` does not order by size. Decisions over links follow its order more strictly: a large early coflow holds an uplink that the \
reduced rates over ports would share with the small coflows behind it.
- `saath` gives all flows of a coflow the rate of their most loaded link. Over links, `backfill=all` lets admitted coflows also use residual \
capacity of their other links; the paper's scheduler, and the default, serves missed coflows only.
- Links that limit nothing change no result: flows of a coflow are served in the order of ports on every network, and coflows contend only \
for links that the hosts behind them can exceed.
";
