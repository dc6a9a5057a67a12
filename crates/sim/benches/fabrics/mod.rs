//! Measures replays over networks with links between switches, next to those on one switch.

use std::sync::Arc;

use weir_core::model::{TopologyTemplate, Trunks, Workload};
use weir_core::units::Rate;
use weir_sim::{NetworkModel, ReplayOptions};

use super::{ReplayMeasurement, Result, SEED, Table, format_significant, read_or_generate_workload};

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
    print_growth(&workload)
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
