//! Measures replays over networks with links between switches, next to those on one switch.

use std::sync::Arc;

use weir_core::model::{TopologyTemplate, Trunks, Workload};
use weir_core::units::Rate;
use weir_sim::{NetworkModel, ReplayOptions};
use weir_trace::generate::{Preset, generate};
use weir_trace::{Limits, TraceUnit};

use super::{
    ReplayMeasurement, Result, SEED, Table, format_significant, read_or_generate_workload, timeout_cell,
};

/// Policies over the links of a fabric. `pfp` and `django` decide over ports.
const FABRIC_POLICIES: [&str; 9] =
    ["fair", "saath", "saath:backfill=all", "varys", "fifo", "lcf", "lwtf", "sincronia", "aalo"];

const LEAVES: u32 = 10;
const SPINES: u32 = 4;
const OVERSUBSCRIPTION: f64 = 3.0;

/// Numbers of spines of the growth table.
const GROWING_SPINES: [u32; 4] = [1, 2, 4, 16];

/// Policies of the growth table.
const GROWTH_POLICIES: [&str; 4] = ["fair", "saath", "varys", "sincronia"];

/// Policies of the table over a fat tree.
const FAT_TREE_POLICIES: [&str; 5] = ["fair", "saath", "varys", "weir", "aalo"];

/// Ports of a switch of the fat tree, which has 1,024 hosts.
const FAT_TREE_PORTS: u32 = 16;

/// Ports and coflows of the workload on the fat tree.
const FAT_TREE_WORKLOAD: (u32, usize) = (1000, 800);

/// The networks of this table, as arguments of the program.
const ONE_SWITCH: &str = "one switch";
const FAT_TREE: &str = "fat tree";

/// The options of replays over a leaf-spine that carries the workload's ports.
fn leaf_spine(workload: &Workload, spines: u32) -> Result<ReplayOptions> {
    let hosts = workload.ports.div_ceil(LEAVES);
    let template = TopologyTemplate::LeafSpine {
        spines,
        leaves: LEAVES,
        hosts,
        rate: Rate::GBIT,
        oversubscription: OVERSUBSCRIPTION,
    };
    over(template)
}

/// The options of replays over a topology.
fn over(template: TopologyTemplate) -> Result<ReplayOptions> {
    let trunks = Some(Arc::new(Trunks::new(template.build()?, SEED)?));
    Ok(ReplayOptions {
        network: NetworkModel { trunks, ..NetworkModel::default() },
        ..ReplayOptions::default()
    })
}

/// Prints the times over ten leaves, next to those on one switch.
pub fn print_table() -> Result<()> {
    let workload = read_or_generate_workload()?;
    let fabric = leaf_spine(&workload, SPINES)?;
    println!("## Networks with several links\n");
    println!(
        "The same trace on {LEAVES} leaves and {SPINES} spines with links between switches that are oversubscribed {OVERSUBSCRIPTION}:1, \
         each flow over one path by a hash. Processor seconds of the fastest of three runs.\n"
    );
    let mut table =
        Table::new(&["policy", "one switch s", "fabric s", "fabric / switch", "mean schedule us"]);
    for policy in FABRIC_POLICIES {
        let [switch, fabric] = [&ReplayOptions::default(), &fabric].map(|options| {
            eprintln!("{policy}: {}", if options.network.trunks.is_some() { "fabric" } else { "one switch" });
            ReplayMeasurement::measure_in_process(&workload, policy, options, 3)
        });
        let (switch, fabric) = (switch?, fabric?);
        table.line(vec![
            format!("`{policy}`"),
            format_significant(switch.seconds),
            format_significant(fabric.seconds),
            format_significant(fabric.seconds / switch.seconds),
            format_significant(fabric.mean_us),
        ]);
    }
    table.print();
    print_growth(&workload)?;
    print_fat_tree()
}

/// Prints the times over more spines: more links, and more paths between two leaves, with the same capacity in all.
fn print_growth(workload: &Workload) -> Result<()> {
    println!(
        "More spines: each has two links with each leaf, one for each direction, and is a path between each two leaves. All spines \
         together have the same capacity.\n"
    );
    let heads: Vec<String> = GROWING_SPINES
        .iter()
        .map(|spines| format!("{spines} paths, {} links (s)", 2 * LEAVES * spines))
        .collect();
    let heads = ["policy"].into_iter().chain(heads.iter().map(String::as_str)).chain(["last / first"]);
    let mut table = Table::new(&heads.collect::<Vec<_>>());
    for policy in GROWTH_POLICIES {
        let mut seconds = Vec::new();
        for spines in GROWING_SPINES {
            eprintln!("{policy}: {spines} spines");
            let options = leaf_spine(workload, spines)?;
            seconds.push(ReplayMeasurement::measure_in_process(workload, policy, &options, 3)?.seconds);
        }
        let ratio = seconds[seconds.len() - 1] / seconds[0];
        let cells = seconds.iter().chain([&ratio]).map(|&value| format_significant(value));
        table.line([format!("`{policy}`")].into_iter().chain(cells).collect());
    }
    table.print();
    Ok(())
}

/// Measures a replay of a generated workload on a fat tree, or on one switch with as many ports.
pub fn measure_on_hosts_of_fat_tree(network: &str, policy: &str) -> Result<ReplayMeasurement> {
    let mut spec = Preset::Facebook.spec(SEED);
    (spec.ports, spec.coflows) = FAT_TREE_WORKLOAD;
    let workload = generate(&spec, TraceUnit::MB, &Limits::default())?;
    let tree = TopologyTemplate::FatTree { ports: FAT_TREE_PORTS, rate: Rate::GBIT, oversubscription: 1.0 };
    let options = if network == FAT_TREE { over(tree)? } else { ReplayOptions::default() };
    ReplayMeasurement::measure_in_process(&workload, policy, &options, 1)
}

/// Prints the times and the memory over a large fat tree, next to those on one switch.
fn print_fat_tree() -> Result<()> {
    let (ports, coflows) = FAT_TREE_WORKLOAD;
    println!(
        "A fat tree of {FAT_TREE_PORTS}-port switches: 1,024 hosts, and no oversubscription. {coflows} generated coflows (`facebook`, \
         seed {SEED}) on {ports} ports. Processor seconds of one run, and peak memory above that of the workload, divided by the maximum \
         number of live flows.\n"
    );
    let mut table = Table::new(&[
        "policy",
        "one switch s",
        "fat tree s",
        "fat tree / switch",
        "one switch B per live flow",
        "fat tree B per live flow",
    ]);
    for policy in FAT_TREE_POLICIES {
        let [switch, tree] = [ONE_SWITCH, FAT_TREE].map(|network| {
            eprintln!("{policy}: {network}");
            ReplayMeasurement::run(&["fat-tree", network, policy])
        });
        let (switch, tree) = (switch?, tree?);
        let seconds = [&switch, &tree].map(|m| m.as_ref().map(|m| m.seconds));
        let ratio = seconds[0].zip(seconds[1]).map(|(switch, tree)| tree / switch);
        let memory = [&switch, &tree].map(|m| m.as_ref().and_then(ReplayMeasurement::bytes_per_live_flow));
        let or_unknown = |value: Option<f64>| value.map_or("-".to_owned(), format_significant);
        let mut cells = vec![format!("`{policy}`")];
        cells.extend(seconds.map(|seconds| seconds.map_or_else(timeout_cell, format_significant)));
        cells.extend([or_unknown(ratio), or_unknown(memory[0]), or_unknown(memory[1])]);
        table.line(cells);
    }
    table.print();
    Ok(())
}
