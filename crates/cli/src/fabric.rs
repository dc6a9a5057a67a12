//! `weir fabric`: check, describe and generate networks.

use serde_json::{Value, json};
use weir_console::failure::Failure;
use weir_console::output::{self, Sink};
use weir_console::record::Record;
use weir_console::table::{Align, BITS, Table, count, number, rate};
use weir_core::model::{Plan, Topology};
use weir_trace::topology;
use weir_trace::topology::describe::{Description, Pairs};

use crate::args;
use crate::render;

/// Runs `weir fabric`.
pub fn fabric(args: &args::Fabric) -> Result<(), Failure> {
    match args {
        args::Fabric::Check(args) => check(args),
        args::Fabric::Describe(args) => describe(args),
        args::Fabric::Generate(args) => generate(args),
    }
}

fn check(args: &args::FabricCheck) -> Result<(), Failure> {
    let topology = topology::read(&args.fabric)?;
    Ok(output::print(format!("ok: {}: {}\n", args.fabric.display(), size(&topology)))?)
}

fn size(topology: &Topology) -> String {
    let hosts = topology.hosts();
    let (switches, cables) = (topology.nodes() - hosts, topology.links().len() / 2);
    format!("{}, {}, {}", count(hosts, "host"), count(switches, "switch"), count(cables, "cable"))
}

fn describe(args: &args::FabricDescribe) -> Result<(), Failure> {
    let sink = render::open(&args.output, &args.fabric)?;
    let topology = topology::read(&args.fabric)?;
    let description = Description::new(&topology);
    let name = args.fabric.display().to_string();
    sink.fill(render::object(
        args.output.format,
        || format!("{name}: {}\n\n{}", size(&topology), tables(&description)),
        || object(&name, &description),
        || vec![record(&name, &description)],
    ))
}

fn tier_name(tier: u8) -> String {
    if tier == 0 { "hosts".to_owned() } else { format!("tier {tier}") }
}

fn tables(d: &Description) -> String {
    let columns = [("switches", Align::Left), ("", Align::Right), ("oversubscription", Align::Right)];
    let mut tiers = Table::new(&columns);
    for tier in &d.tiers {
        let over = tier.oversubscription.map_or_else(|| "-".to_owned(), number);
        tiers.line(vec![tier_name(tier.tier), tier.switches.to_string(), over]);
    }
    let [left, right] = [Align::Left, Align::Right].map(|align| move |name| (name, align));
    let columns = [left("cables"), left("to"), right("count"), right("min"), right("max"), right("total")];
    let mut cables = Table::new(&columns);
    for c in &d.between {
        let ends = [tier_name(c.low), tier_name(c.high), c.count.to_string()];
        cables.line(ends.into_iter().chain([c.least, c.most, c.total].map(rate)).collect());
    }
    let bisection = d.bisection.map_or_else(
        || "too large to compute".to_owned(),
        |bisection| {
            let ratio = if d.half > 0.0 { number(bisection / d.half) } else { "-".to_owned() };
            format!("{}, {ratio} of the capacity of these hosts' links", rate(bisection))
        },
    );
    let paths = d.pairs.as_ref().map_or_else(
        || "The paths between hosts are too many to count.\n".to_owned(),
        |pairs| {
            let mut table = Table::new(&["hops", "shortest paths", "pairs of hosts"].map(right));
            for p in pairs {
                table.line(vec![p.hops.to_string(), p.paths.to_string(), p.count.to_string()]);
            }
            table.to_string()
        },
    );
    format!(
        "{tiers}\n{cables}\nBisection bandwidth, from the first half of the hosts to the second: {bisection}.\n\n{paths}"
    )
}

/// The numbers that every network has.
fn record(name: &str, d: &Description) -> Record {
    let mut r = Record::default();
    r.add("fabric", name);
    r.add("hosts", d.hosts);
    r.add("switches", d.switches);
    r.add("cables", d.cables);
    r.add("tiers", d.tiers.len());
    let over = d.tiers.iter().filter_map(|tier| tier.oversubscription).reduce(f64::max);
    r.add("oversubscription_most", over);
    r.add("bisection_bit_per_s", d.bisection.map(|rate| rate * BITS));
    r.add("half_bit_per_s", d.half * BITS);
    let pairs = || d.pairs.iter().flatten();
    r.add("hops_least", pairs().map(|pairs| pairs.hops).min());
    r.add("hops_most", pairs().map(|pairs| pairs.hops).max());
    r.add("paths_least", pairs().map(|pairs| pairs.paths).min());
    r.add("paths_most", pairs().map(|pairs| pairs.paths).max());
    r
}

/// The numbers, and the lists.
fn object(name: &str, d: &Description) -> Record {
    let mut r = record(name, d);
    let tiers = d
        .tiers
        .iter()
        .map(|t| json!({ "tier": t.tier, "switches": t.switches, "oversubscription": t.oversubscription }));
    r.add("by_tier", tiers.collect::<Vec<Value>>());
    let cables = d.between.iter().map(|c| {
        json!({ "low": c.low, "high": c.high, "cables": c.count, "least_bit_per_s": c.least * BITS,
            "most_bit_per_s": c.most * BITS, "total_bit_per_s": c.total * BITS })
    });
    r.add("by_tiers_of_cables", cables.collect::<Vec<Value>>());
    let pair = |p: &Pairs| json!({ "hops": p.hops, "paths": p.paths, "pairs": p.count });
    r.add("pairs", d.pairs.as_ref().map(|pairs| pairs.iter().map(pair).collect::<Vec<Value>>()));
    r
}

fn generate(args: &args::FabricGenerate) -> Result<(), Failure> {
    let plan = Plan::from(&args.plan);
    // Bad parameters are refused before a file is touched.
    let topology = plan.build().map_err(Failure::input)?;
    let mut text = Vec::new();
    if args.cables { topology::write(&topology, &mut text) } else { topology::write_plan(&plan, &mut text) }?;
    Sink::new(args.out.as_deref())?.fill(text)
}
