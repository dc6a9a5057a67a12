//! Simulates sections 5.1 and 5.2: two Hadoop shuffles on one core (Fig. 6, 8, 9) and on two (Fig. 7, 10, 11).

use weir_console::chart::Scale;
use weir_core::model::TopologyTemplate;
use weir_sim::outcome::{mean, percentile};
use weir_sim::service::Mechanism;

use super::Context;
use super::scenario::{MBIT, ScenarioBuilder};
use crate::claim::{Claim, claims_table};
use crate::markdown::format_cell;
use crate::picture::{Pictures, published_next_to_measured};
use weir_console::failure::Failure;
use weir_console::run::run_concurrently;

/// The rates of the two services on each link from a core switch to an edge switch, in Mbit/s.
type CorePortRates = Vec<[f64; 2]>;

/// The numbers of reducers of A1 and A2 on each server (5.1). Each reducer has a connection to every other server.
const REDUCERS: [u32; 2] = [8, 4];

/// The paper's statements: rates of A1 over those of A2, and times on one core over times on two.
const PUBLISHED: [(&str, &str, f64); 7] = [
    ("one core: rates of A1 / A2", "5.1, Fig. 8a: \"nearly twice as much bandwidth\"", 2.0),
    ("one core, queues: rates of A1 / A2", "5.1, Fig. 9a: \"almost equally\"", 1.0),
    (
        "two cores: rates of A1 / A2",
        "5.2, Fig. 10: \"twice the bandwidth (summed over all core links ...)\"",
        2.0,
    ),
    ("two cores, queues: rates of A1 / A2", "5.2, Fig. 11: \"nearly equally shared\"", 1.0),
    ("speedup of two cores over one: A1", "5.2: \"1558s ... 2586s\"", published_speedup(2586.0, 1558.0)),
    (
        "speedup of two cores over one, queues: A1",
        "5.2: \"1633s ... 3070s\"",
        published_speedup(3070.0, 1633.0),
    ),
    (
        "speedup of two cores over one, queues: A2",
        "5.2: \"1810s ... 3212s\"",
        published_speedup(3212.0, 1810.0),
    ),
];

/// The speedup of a shuffle, from completion times of the sort in seconds. 5.2: "500s is devoted to the map phase".
const fn published_speedup(one_core: f64, two_cores: f64) -> f64 {
    (one_core - 500.0) / (two_cores - 500.0)
}

/// Simulates both shuffles, and returns their rates at the ports of the core switches.
fn core_port_rates(
    plan: TopologyTemplate,
    seed: u64,
    mechanism: Mechanism,
    context: &Context<'_>,
) -> Result<CorePortRates, Failure> {
    let all = |_: &str| true;
    let builder = ScenarioBuilder::new(plan, &[1.0, 1.0], 1.0);
    let mut builder = builder.all_pairs(0, all, REDUCERS[0]).all_pairs(1, all, REDUCERS[1]);
    builder.0.seed = seed;
    let outcome = builder.simulate(mechanism, context)?;
    let topology = &builder.0.topology;
    let mut ports = Vec::new();
    for core in ["C1", "C2"] {
        for edge in ["E1", "E2", "E3"] {
            let (Some(from), Some(to)) = (topology.find_node(core), topology.find_node(edge)) else {
                continue;
            };
            let link = topology.link_between(from, to).expect("every core has a link to every edge");
            let load = outcome.mean_rates_on_link(&outcome.phases[0], link);
            ports.push([load[0] / MBIT, load[1] / MBIT]);
        }
    }
    Ok(ports)
}

/// The sum over all ports of the rates of a service, for each run.
fn totals(runs: &[CorePortRates], service: usize) -> Vec<f64> {
    runs.iter().map(|ports| ports.iter().map(|rates| rates[service]).sum()).collect()
}

/// The picture of the section.
pub(super) fn picture(claims: &[Claim], pictures: &mut Pictures) -> String {
    let rows = claims.iter().filter_map(Claim::to_row).collect();
    pictures.add(
        "shuffles",
        "Ratios of rates in two shuffles: published and measured",
        "The ratios of the table.",
        published_next_to_measured("ratio", Scale::Linear, Some(1.0), rows),
    )
}

/// The figures of the paper, and the section of the page.
pub(super) fn section(context: &Context<'_>) -> Result<(Vec<Claim>, String), Failure> {
    let seeds = context.seeds as usize;
    let run = |plan, seeds, mechanism| {
        run_concurrently(seeds, context.run_context.jobs, |seed| {
            core_port_rates(plan, seed as u64, mechanism, context)
        })
    };
    let one_core = run(TopologyTemplate::NetShareFig6, 1, Mechanism::None)?;
    let one_core_queues = run(TopologyTemplate::NetShareFig6, 1, Mechanism::Queues)?;
    let two_cores = run(TopologyTemplate::NetShareFig7, seeds, Mechanism::None)?;
    let two_cores_queues = run(TopologyTemplate::NetShareFig7, seeds, Mechanism::Queues)?;
    let first_port = |runs: &[CorePortRates]| runs[0][0][0] / runs[0][0][1];
    let ratios = |runs: &[CorePortRates]| -> Vec<f64> {
        totals(runs, 0).iter().zip(totals(runs, 1)).map(|(a1, a2)| a1 / a2).collect()
    };
    let speedup = |two: &[CorePortRates], one: &[CorePortRates], service| {
        mean(&totals(two, service)) / totals(one, service)[0]
    };
    let measured = [
        first_port(&one_core),
        first_port(&one_core_queues),
        mean(&ratios(&two_cores)),
        mean(&ratios(&two_cores_queues)),
        speedup(&two_cores, &one_core, 0),
        speedup(&two_cores_queues, &one_core_queues, 0),
        speedup(&two_cores_queues, &one_core_queues, 1),
    ];
    let list = PUBLISHED.iter().zip(measured);
    let list: Vec<Claim> = list
        .map(|(&(subject, citation, published), measured)| {
            Claim::number(subject, citation, published, measured)
        })
        .collect();
    let range =
        |runs: &[CorePortRates]| [0.0, 100.0].map(|p| format_cell(percentile(&ratios(runs), p))).join(" to ");
    let section = format!(
        "## Sections 5.1 and 5.2: two shuffles, one core and two\n\n\
         Twelve servers, all to all. Each reducer has a connection to every other server. A1 has 8 reducers on each server \
         and A2 has 4; their weights are equal. (The text also says that A2 has twice as many, but A1 \"used nearly twice as \
         much bandwidth\".) With one core, rates are those at one core port; with two cores, they are sums over all core \
         ports. The last three rows compare rates with the paper's sorting times, less 500 s for the maps. Twice as many \
         links can at most double the rates, so a ratio above 2 has a cause outside the network.\n\
         {}With two cores, the ratio of rates A1 / A2 is {} without queues and {} with queues over {seeds} seeds. The paper also reports \
         that links are \"not shared as uniformly because of hashing effects\".\n\n",
        claims_table(&list),
        range(&two_cores),
        range(&two_cores_queues),
    );
    Ok((list, section))
}
