//! `weir fabric`: networks checked, described and made.

use serde_json::{Value, json};
use weir_core::model::{Plan, Topology};
use weir_core::units::Rate;
pub use weir_trace::topology::PLANS;
use weir_trace::topology::{self, describe::Description};

use crate::args::{self, Format};
use weir_console::failure::Failure;
use weir_console::output::{self, Sink};
use weir_console::record::{self, Record};
use weir_console::table::{Align, BITS, Table, count, number, rate};

/// Runs `weir fabric`.
///
/// # Errors
/// Whatever ends it early.
pub fn fabric(args: &args::Fabric) -> Result<(), Failure> {
    match args {
        args::Fabric::Check(args) => check(args),
        args::Fabric::Describe(args) => describe(args),
        args::Fabric::Generate(args) => generate(args),
    }
}

fn check(args: &args::FabricCheck) -> Result<(), Failure> {
    let topology = topology::read(&args.fabric)?;
    let line = format!("ok: {}: {}\n", args.fabric.display(), counts(&topology));
    Ok(output::print(line.as_bytes())?)
}

fn counts(topology: &Topology) -> String {
    let hosts = topology.hosts();
    let (switches, cables) = (topology.nodes() - hosts, topology.links().len() / 2);
    format!("{}, {}, {}", count(hosts, "host"), count(switches, "switch"), count(cables, "cable"))
}

fn describe(args: &args::FabricDescribe) -> Result<(), Failure> {
    let output = &args.output;
    output::check_distinct(&args.fabric, &[("--out", output.out.as_deref())])?;
    let sink = Sink::new(output.out.as_deref())?;
    let topology = topology::read(&args.fabric)?;
    let description = Description::new(&topology);
    let name = args.fabric.display().to_string();
    let text = match output.format {
        Format::Table => for_people(&name, &topology, &description).into_bytes(),
        Format::Json => record::json(&as_json(&name, &description)).into_bytes(),
        Format::Csv => record::csv(&[flat(&name, &description)]),
    };
    sink.fill(&text)
}

/// What a tier is called.
fn tier(tier: u8) -> String {
    if tier == 0 { "hosts".to_owned() } else { format!("tier {tier}") }
}

fn for_people(name: &str, topology: &Topology, d: &Description) -> String {
    let mut out = format!("{name}: {}\n\n", counts(topology));
    let columns = [("switches", Align::Left), ("", Align::Right), ("oversubscription", Align::Right)];
    let mut table = Table::new(&columns);
    for t in &d.tiers {
        let over = t.oversubscription.map_or_else(|| "-".to_owned(), number);
        table.line(vec![tier(t.tier), t.switches.to_string(), over]);
    }
    table.print(&mut out);
    out.push('\n');
    let columns = ["from", "least", "most", "in all"].map(|name| (name, Align::Right));
    let mut table = Table::new(
        &[("cables", Align::Left), ("to", Align::Left)].into_iter().chain(columns).collect::<Vec<_>>(),
    );
    for c in &d.between {
        let rates = [c.least, c.most, c.total].map(rate);
        table.line([vec![tier(c.low), tier(c.high), c.count.to_string()], rates.to_vec()].concat());
    }
    table.print(&mut out);
    let part = |bisection: f64| {
        let part = if d.half > 0.0 { number(bisection / d.half) } else { "-".to_owned() };
        format!("{}, {part} of what the links of these hosts carry", rate(bisection))
    };
    let bisection = d.bisection.map_or_else(|| "too large to find".to_owned(), part);
    out.push_str(&format!("\nFrom the first half of the hosts to the second: {bisection}.\n\n"));
    let Some(pairs) = &d.pairs else {
        out.push_str("The paths between hosts are too many to count.\n");
        return out;
    };
    let columns = ["hops", "shortest paths", "pairs of hosts"].map(|name| (name, Align::Right));
    let mut table = Table::new(&columns);
    for p in pairs {
        table.line(vec![p.hops.to_string(), p.paths.to_string(), p.count.to_string()]);
    }
    table.print(&mut out);
    out
}

/// The numbers that every network has.
fn flat(name: &str, d: &Description) -> Record {
    let mut r = Record::default();
    r.add("fabric", name);
    r.add("hosts", d.hosts);
    r.add("switches", d.switches);
    r.add("cables", d.cables);
    r.add("tiers", d.tiers.len());
    let over = d.tiers.iter().filter_map(|tier| tier.oversubscription).reduce(f64::max);
    r.add("oversubscription_most", over.map_or(Value::Null, Value::from));
    r.add("bisection_bit_per_s", d.bisection.map_or(Value::Null, |rate| (rate * BITS).into()));
    r.add("half_bit_per_s", d.half * BITS);
    let pairs = d.pairs.as_deref();
    let of = |what: fn(&topology::describe::Pairs) -> u64, most: bool| {
        let all = pairs.unwrap_or_default().iter().map(what);
        let found = if most { all.max() } else { all.min() };
        found.map_or(Value::Null, Value::from)
    };
    r.add("hops_least", of(|p| p.hops.into(), false));
    r.add("hops_most", of(|p| p.hops.into(), true));
    r.add("paths_least", of(|p| p.paths, false));
    r.add("paths_most", of(|p| p.paths, true));
    r
}

/// The numbers, and the lists.
fn as_json(name: &str, d: &Description) -> Record {
    let mut r = flat(name, d);
    let tiers: Vec<Value> = d
        .tiers
        .iter()
        .map(|t| json!({ "tier": t.tier, "switches": t.switches, "oversubscription": t.oversubscription }))
        .collect();
    r.add("by_tier", tiers);
    let cables: Vec<Value> = d
        .between
        .iter()
        .map(|c| {
            json!({ "low": c.low, "high": c.high, "cables": c.count, "least_bit_per_s": c.least * BITS,
                "most_bit_per_s": c.most * BITS, "total_bit_per_s": c.total * BITS })
        })
        .collect();
    r.add("by_tiers_of_cables", cables);
    let pairs = d.pairs.as_ref().map(|pairs| {
        let pair =
            |p: &topology::describe::Pairs| json!({ "hops": p.hops, "paths": p.paths, "pairs": p.count });
        pairs.iter().map(pair).collect::<Vec<Value>>()
    });
    r.add("pairs", pairs.map_or(Value::Null, Value::from));
    r
}

fn generate(args: &args::FabricGenerate) -> Result<(), Failure> {
    let plan = plan(args)?;
    // What is wrong with the parameters is said before a file is touched.
    let built = plan.build().map_err(Failure::input)?;
    let mut text = Vec::new();
    if args.cables { topology::write(&built, &mut text) } else { topology::write_plan(&plan, &mut text) }?;
    Sink::new(args.out.as_deref())?.fill(&text)
}

/// The plan with its parameters: all of them, and no others.
fn plan(args: &args::FabricGenerate) -> Result<Plan, Failure> {
    let name = &args.plan;
    let mut used: Vec<&str> = Vec::new();
    let missing = |option: &str| Failure::input(format_args!("{name}: expected {option}"));
    let mut count = |option: &'static str, value: Option<u32>| {
        used.push(option);
        value.ok_or_else(|| missing(option))
    };
    let rate = |value: Option<Rate>| value.ok_or_else(|| missing("--rate"));
    // The plan of leaves and spines says it, the others may.
    let oversubscription = args.oversubscription.unwrap_or(1.0);
    let plan = match name.as_str() {
        "big-switch" => {
            let hosts = count("--hosts", args.hosts)?;
            used.push("--rate");
            Plan::BigSwitch { hosts, rate: rate(args.rate)? }
        }
        "leaf-spine" => {
            let spines = count("--spines", args.spines)?;
            let leaves = count("--leaves", args.leaves)?;
            let hosts = count("--hosts", args.hosts)?;
            used.extend(["--rate", "--oversubscription"]);
            let oversubscription = args.oversubscription.ok_or_else(|| missing("--oversubscription"))?;
            Plan::LeafSpine { spines, leaves, hosts, rate: rate(args.rate)?, oversubscription }
        }
        "fat-tree" => {
            let ports = count("--ports", args.ports)?;
            used.extend(["--rate", "--oversubscription"]);
            Plan::FatTree { ports, rate: rate(args.rate)?, oversubscription }
        }
        "netshare-fig1" => Plan::NetShareFig1,
        "netshare-fig3" => Plan::NetShareFig3,
        "netshare-fig6" => Plan::NetShareFig6,
        "netshare-fig7" => Plan::NetShareFig7,
        "netshare-fig16" => Plan::NetShareFig16 { services: count("--services", args.services)? },
        "saba-tiers" => {
            used.push("--oversubscription");
            Plan::SabaTiers { oversubscription }
        }
        _ => return Err(Failure::input(format_args!("no plan is called `{name}`"))),
    };
    for (option, given) in [
        ("--hosts", args.hosts.is_some()),
        ("--rate", args.rate.is_some()),
        ("--spines", args.spines.is_some()),
        ("--leaves", args.leaves.is_some()),
        ("--oversubscription", args.oversubscription.is_some()),
        ("--ports", args.ports.is_some()),
        ("--services", args.services.is_some()),
    ] {
        if given && !used.contains(&option) {
            let known = if used.is_empty() { "no parameters".to_owned() } else { used.join(", ") };
            return Err(Failure::input(format_args!("{name}: {option}: expected {known}")));
        }
    }
    Ok(plan)
}
