//! Runs `weir fabric`: checks, describes and generates networks.

use weir_console::failure::Failure;
use weir_console::output::{self, ResultDestination};
use weir_console::table::{Alignment, Table, format_count, format_number, format_rate};
use weir_core::model::{Topology, TopologyTemplate};
use weir_experiment::descriptions::{fabric_object, fabric_record};
use weir_trace::network_file::NetworkFile;
use weir_trace::topology;
use weir_trace::topology::describe::TopologyStatistics;

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
    let size = match NetworkFile::read(&args.fabric)? {
        NetworkFile::Topology(topology, events) if events.is_empty() => size_text(&topology),
        NetworkFile::Topology(topology, events) => {
            format!("{}, {}", size_text(&topology), format_count(events.len(), "event"))
        }
        NetworkFile::WideArea(area) => {
            let regions = format_count(area.regions().len(), "region");
            format!("{regions}, {}", format_count(area.links(), "link"))
        }
    };
    Ok(output::print(format!("ok: {}: {size}\n", args.fabric.display()))?)
}

/// The numbers of hosts, switches and cables, as text.
fn size_text(topology: &Topology) -> String {
    let hosts = topology.hosts();
    let (switches, cables) = (topology.nodes() - hosts, topology.links().len() / 2);
    format!(
        "{}, {}, {}",
        format_count(hosts, "host"),
        format_count(switches, "switch"),
        format_count(cables, "cable")
    )
}

fn describe(args: &args::FabricDescribe) -> Result<(), Failure> {
    let sink = render::open(&args.output, &args.fabric)?;
    let NetworkFile::Topology(topology, _) = NetworkFile::read(&args.fabric)? else {
        return Err(Failure::input(format_args!(
            "{}: regions have one link to each other region; expected a fabric of hosts and switches",
            args.fabric.display()
        )));
    };
    let description = TopologyStatistics::new(&topology);
    let name = args.fabric.display().to_string();
    sink.write_text(render::object(
        args.output.format,
        || format!("{name}: {}\n\n{}", size_text(&topology), tables(&description)),
        || fabric_object(&name, &description),
        || vec![fabric_record(&name, &description)],
    ))
}

/// The name of a tier in tables: tier 0 holds the hosts.
fn tier_name(tier: u8) -> String {
    if tier == 0 { "hosts".to_owned() } else { format!("tier {tier}") }
}

fn tables(d: &TopologyStatistics) -> String {
    let columns =
        [("switches", Alignment::Left), ("", Alignment::Right), ("oversubscription", Alignment::Right)];
    let mut tiers = Table::new(&columns);
    for tier in &d.tiers {
        let oversubscription = tier.oversubscription.map_or_else(|| "-".to_owned(), format_number);
        tiers.add_row(vec![tier_name(tier.tier), tier.switches.to_string(), oversubscription]);
    }
    let [left, right] = [Alignment::Left, Alignment::Right].map(|align| move |name| (name, align));
    let columns = [left("cables"), left("to"), right("count"), right("min"), right("max"), right("total")];
    let mut cables = Table::new(&columns);
    for c in &d.cables_between_tiers {
        let ends = [tier_name(c.lower_tier), tier_name(c.upper_tier), c.count.to_string()];
        cables.add_row(
            ends.into_iter()
                .chain([c.min_bytes_per_sec, c.max_bytes_per_sec, c.total_bytes_per_sec].map(format_rate))
                .collect(),
        );
    }
    let bisection = d.bisection_bytes_per_sec.map_or_else(
        || "too large to compute".to_owned(),
        |bisection| {
            let ratio = if d.half_send_bytes_per_sec > 0.0 {
                format_number(bisection / d.half_send_bytes_per_sec)
            } else {
                "-".to_owned()
            };
            format!("{}, {ratio} of the capacity of these hosts' links", format_rate(bisection))
        },
    );
    let paths = d.host_pairs.as_ref().map_or_else(
        || "The paths between hosts are too many to count.\n".to_owned(),
        |pairs| {
            let mut table = Table::new(&["hops", "shortest paths", "pairs of hosts"].map(right));
            for p in pairs {
                table.add_row(vec![p.hops.to_string(), p.paths.to_string(), p.count.to_string()]);
            }
            table.to_string()
        },
    );
    format!(
        "{tiers}\n{cables}\nBisection bandwidth, from the first half of the hosts to the second: {bisection}.\n\n{paths}"
    )
}

fn generate(args: &args::FabricGenerate) -> Result<(), Failure> {
    let plan = TopologyTemplate::from(&args.plan);
    // Invalid parameters fail before a file is created.
    let topology = plan.build().map_err(Failure::input)?;
    let mut text = Vec::new();
    if args.cables { topology::write(&topology, &mut text) } else { topology::write_plan(&plan, &mut text) }?;
    ResultDestination::new(args.out.as_deref())?.write_text(text)
}
