//! Sections 5.1 and 5.2: two Hadoop shuffles on one core (Fig. 6, 8, 9) and on two (Fig. 7, 10, 11).

use weir_core::model::{Plan, Topology};
use weir_sim::outcome::{mean, percentile};
use weir_sim::service::Mechanism;

use super::Making;
use super::claim::{Claim, claims};
use super::scene::{MBIT, Scene};
use crate::doc::{n, table};
use weir_console::failure::Failure;
use weir_console::run::pool;

/// What the two services have at the links out of core switches, by link.
type Ports = Vec<(String, [f64; 2])>;

/// One reducer has a connection to each other server: 8 and 4 reducers on each (5.1).
const REDUCERS: [u32; 2] = [8, 4];

/// Completion times in seconds, without NetShare and with it: A1 on one core and on two, then A2 (5.1, 5.2).
const SORTED: [(&str, f64, f64, &str); 3] = [
    ("no mechanism, A1", 2586.0, 1558.0, "5.2: \"1558s ... 2586s\", less 500 s of maps"),
    ("queues, A1", 3070.0, 1633.0, "5.2: \"1633s ... 3070s\", less 500 s of maps"),
    ("queues, A2", 3212.0, 1810.0, "5.2: \"1810s ... 3212s\", less 500 s of maps"),
];
const MAPS: f64 = 500.0;

fn scene(plan: Plan, seed: u64) -> Scene {
    let all = |_: &str| true;
    let scene = Scene::new(plan, &[1.0, 1.0], 1.0).seed(seed);
    scene.all_pairs(0, all, REDUCERS[0]).all_pairs(1, all, REDUCERS[1])
}

/// Loads of the links from core switches to edges.
fn ports(plan: Plan, seed: u64, mechanism: Mechanism, making: &Making<'_>) -> Result<Ports, Failure> {
    let scene = scene(plan, seed);
    let shared = scene.run(mechanism, making)?;
    let topology: &Topology = scene.topology();
    let mut ports = Vec::new();
    for core in 1..=2 {
        for edge in 1..=3 {
            let (core, edge) = (format!("C{core}"), format!("E{edge}"));
            let (Some(from), Some(to)) = (topology.node(&core), topology.node(&edge)) else { continue };
            let link = topology.between(from, to).expect("edges have links to all cores");
            let load = shared.load(&shared.phases[0], link);
            ports.push((format!("{core}-{edge}"), [load[0] / MBIT, load[1] / MBIT]));
        }
    }
    Ok(ports)
}

fn totals(ports: &Ports) -> [f64; 2] {
    [0, 1].map(|service| ports.iter().map(|(_, load)| load[service]).sum())
}

/// Published and measured.
///
/// # Errors
/// If a run is ended early.
pub(super) fn section(making: &Making<'_>) -> Result<String, Failure> {
    let one = |mechanism| ports(Plan::NetShareFig6, 0, mechanism, making);
    let single = [one(Mechanism::None)?, one(Mechanism::Queues)?];
    let seeds = making.seeds as usize;
    let two = |mechanism| {
        pool(seeds, making.running.jobs, |seed| ports(Plan::NetShareFig7, seed as u64, mechanism, making))
    };
    let double = [two(Mechanism::None)?, two(Mechanism::Queues)?];
    let ratio = |ports: &Ports| totals(ports)[0] / totals(ports)[1];
    let of_seeds = |runs: &[Ports]| runs.iter().map(ratio).collect::<Vec<f64>>();
    let representative = |ports: &Ports| ports[0].1[0] / ports[0].1[1];
    let total = |runs: &[Ports], service: usize| {
        mean(&runs.iter().map(|ports| totals(ports)[service]).collect::<Vec<f64>>())
    };
    let faster = [
        total(&double[0], 0) / totals(&single[0])[0],
        total(&double[1], 0) / totals(&single[1])[0],
        total(&double[1], 1) / totals(&single[1])[1],
    ];
    let mut list = vec![
        Claim::new(
            "one core, no mechanism: a core port, A1 over A2",
            "5.1, Fig. 8a: \"nearly twice as much bandwidth\"",
            2.0,
            representative(&single[0]),
        ),
        Claim::new(
            "one core, queues: a core port, A1 over A2",
            "5.1, Fig. 9a: \"almost equally\"",
            1.0,
            representative(&single[1]),
        ),
        Claim::new(
            "two cores, no mechanism: all core ports, A1 over A2",
            "5.2, Fig. 10: \"twice the bandwidth (summed over all core links ...)\"",
            2.0,
            mean(&of_seeds(&double[0])),
        ),
        Claim::new(
            "two cores, queues: all core ports, A1 over A2",
            "5.2, Fig. 11: \"nearly equally shared\"",
            1.0,
            mean(&of_seeds(&double[1])),
        ),
    ];
    for ((what, one, two, place), measured) in SORTED.into_iter().zip(faster) {
        let published = (one - MAPS) / (two - MAPS);
        list.push(Claim::new(format!("{what}: two cores over one"), place, published, measured));
    }
    let mut out = String::from(
        "## Sections 5.1 and 5.2: two shuffles, one core and two\n\nTwelve servers, all to all; each reducer has a connection to every \
         other server, 8 reducers on each for A1, 4 for A2, equal weights. The text says both that A1 has 96 reducers and that A2 \
         has twice as many; it is A1 that \"used nearly twice as much bandwidth\". The last three lines are ratios of \
         sorting times without the maps, against ratios of rates.\n",
    );
    out.push_str(&claims(&list));
    out.push_str(
        "\nAt the links from the cores down, in Mbit/s (Fig. 8 to 11; for two cores, the first seed):\n",
    );
    let mut lines = Vec::new();
    for (place, runs) in [("Fig. 6", &single), ("Fig. 7", &[double[0][0].clone(), double[1][0].clone()])] {
        for (plain, queues) in runs[0].iter().zip(&runs[1]) {
            let loads = plain.1.iter().chain(&queues.1).map(|&load| n(load));
            lines.push([place.to_owned(), plain.0.clone()].into_iter().chain(loads).collect());
        }
    }
    let head = ["", "port", "A1, no mechanism", "A2, no mechanism", "A1, queues", "A2, queues"];
    out.push_str(&table(&head, 2, &lines));
    let spread = |runs: &[Ports]| {
        let ratios = of_seeds(runs);
        format!("{} to {}", n(percentile(&ratios, 0.0)), n(percentile(&ratios, 100.0)))
    };
    out.push_str(&format!(
        "By hash, the two cores do not get the same connections: over {seeds} seeds, A1 over A2 is {} without queues and {} with. The \
         paper too sees links \"not shared as uniformly because of hashing effects\".\n\nNo way to share links makes both services more \
         than twice as fast on twice the links, so where sorting got faster than that, something else did it: the paper has it that the \
         two \"do not always contend for the core links at the same time\". Sorting times also have disks in them. Neither is in the \
         simulator, so it has no sorting times.\n\n",
        spread(&double[0]),
        spread(&double[1]),
    ));
    Ok(out)
}
