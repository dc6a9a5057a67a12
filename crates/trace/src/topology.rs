//! Reads and writes topologies in TOML, as a list of cables or as the parameters of a plan.
//!
//! ```toml
//! weir-fabric = 1
//! kind = "leaf-spine"
//! spines = 4
//! leaves = 8
//! hosts = 16
//! rate = "10Gbit"
//! oversubscription = 2.0
//! ```
//!
//! `docs/fabric-format.md` is the reference. Rates have units; unknown keys are refused. [`read_from`] of the output of
//! [`write()`] gives an equal topology. Files have at most [`MAX_FILE_BYTES`], and [`Topology`] limits the size of a
//! topology, so memory is bounded for any file.

mod cut;
pub mod describe;

use std::io::{self, Read, Write};
use std::path::Path;

use weir_core::model::topology::Builder;
use weir_core::model::{LinkId, NodeId, Plan, Topology, TopologyError};

use crate::error::TraceError;
use crate::fields::{self, Fields, Value};
use crate::number;

/// The maximum length of a file, in bytes.
pub const MAX_FILE_BYTES: usize = 8 << 20;

/// The version of the format.
pub const VERSION: u32 = 1;

/// The key that contains the version.
const MAGIC: &str = "weir-fabric";

/// The kind that lists its cables.
const LINKS: &str = "links";

/// Reads the topology at `path`; `-` is the standard input.
///
/// # Errors
/// [`TraceError::Io`] if the file cannot be read; [`TraceError::Field`] for the first invalid field.
pub fn read(path: &Path) -> Result<Topology, TraceError> {
    fields::open(path, |input, name| read_from(input, name))
}

/// Reads a topology from `input`, which errors call `name`.
///
/// # Errors
/// As for [`read`].
pub fn read_from<R: Read>(input: R, name: &str) -> Result<Topology, TraceError> {
    fields::read_versioned(input, name, MAX_FILE_BYTES, (MAGIC, VERSION), from_fields)
}

/// The topology described by the keys of a table.
pub(crate) fn from_fields(mut fields: Fields<'_>) -> Result<Topology, TraceError> {
    let kind = fields.need("kind", KINDS)?;
    let name = fields.text(&kind, KINDS)?;
    if name == LINKS {
        return links(fields);
    }
    let plan = plan(name, &kind, &mut fields)?;
    fields.finish()?;
    plan.build().map_err(|error| {
        let key = match &error {
            TopologyError::Parameter { parameter, .. } => *parameter,
            TopologyError::Count { what, .. } => *what,
            TopologyError::Rate { .. } => "rate",
            _ => "kind",
        };
        // Some errors concern no single key, such as too many cables.
        let value = fields.maybe(key).unwrap_or(kind);
        fields.wrong(&value, &expected(&error))
    })
}

const KINDS: &str = "`links`, `big-switch`, `leaf-spine`, `fat-tree`, `netshare-fig1`, `netshare-fig3`, \
                     `netshare-fig6`, `netshare-fig7`, `netshare-fig16` or `saba-tiers`";

fn plan<'a>(name: &str, kind: &Value<'a>, fields: &mut Fields<'a>) -> Result<Plan, TraceError> {
    Ok(match name {
        "big-switch" => Plan::BigSwitch { hosts: fields.count("hosts")?, rate: fields.rate("rate")? },
        "netshare-fig1" => Plan::NetShareFig1,
        "netshare-fig3" => Plan::NetShareFig3,
        "netshare-fig6" => Plan::NetShareFig6,
        "netshare-fig7" => Plan::NetShareFig7,
        "netshare-fig16" => Plan::NetShareFig16 { services: fields.count("services")? },
        "leaf-spine" => Plan::LeafSpine {
            spines: fields.count("spines")?,
            leaves: fields.count("leaves")?,
            hosts: fields.count("hosts")?,
            rate: fields.rate("rate")?,
            oversubscription: fields.number("oversubscription")?,
        },
        "fat-tree" => Plan::FatTree {
            ports: fields.count("ports")?,
            rate: fields.rate("rate")?,
            oversubscription: oversubscription(fields)?,
        },
        "saba-tiers" => Plan::SabaTiers { oversubscription: oversubscription(fields)? },
        _ => return Err(fields.wrong(kind, KINDS)),
    })
}

/// The optional oversubscription of a plan; 1 if missing.
fn oversubscription(fields: &mut Fields<'_>) -> Result<f64, TraceError> {
    fields.maybe("oversubscription").map_or(Ok(1.0), |value| fields.float(&value))
}

/// Reads hosts, switches and cables from lists.
fn links(mut fields: Fields<'_>) -> Result<Topology, TraceError> {
    const NAMES: &str = "a list of names";
    const TABLES: &str = "a list of tables";
    let mut builder = Builder::new();
    let hosts = fields.need("hosts", NAMES)?;
    for host in fields.list(&hosts, NAMES)? {
        let name = fields.text(&host, "a host's name")?;
        builder.host(name).map_err(|error| fields.wrong(&host, &expected(&error)))?;
    }
    let switches = fields.need("switch", TABLES)?;
    for (number, table) in (1..).zip(fields.list(&switches, TABLES)?) {
        let mut switch = fields.table(&table, format!("switch {number} "))?;
        let named = switch.need("name", "a switch's name")?;
        let name = switch.text(&named, "a switch's name")?;
        let tier = switch.need("tier", TIER)?;
        let tier = u8::try_from(switch.whole(&tier, TIER)?).map_err(|_| switch.wrong(&tier, TIER))?;
        switch.finish()?;
        builder.switch(name, tier).map_err(|error| switch.wrong(&named, &expected(&error)))?;
    }
    let links = fields.need("link", TABLES)?;
    for (number, table) in (1..).zip(fields.list(&links, TABLES)?) {
        let mut link = fields.table(&table, format!("link {number} "))?;
        let ends = link.need("ends", ENDS)?;
        let [from, to] = link.list(&ends, ENDS)?[..] else { return Err(link.wrong(&ends, ENDS)) };
        let (from, to) = (link.text(&from, "a node's name")?, link.text(&to, "a node's name")?);
        let rate = link.rate("rate")?;
        link.finish()?;
        builder.cable(from, to, rate).map_err(|error| link.wrong(&ends, &expected(&error)))?;
    }
    fields.finish()?;
    builder.build().map_err(|error| fields.wrong(&hosts, &expected(&error)))
}

const TIER: &str = "a whole number from 0 to 255";
const ENDS: &str = "the names of two nodes";

/// Writes `topology` as a list of its cables.
///
/// # Errors
/// If `out` fails.
pub fn write<W: Write>(topology: &Topology, mut out: W) -> io::Result<()> {
    let name = |node: NodeId| number::quoted(topology.name(node));
    writeln!(out, "{MAGIC} = {VERSION}\nkind = \"{LINKS}\"\nhosts = [")?;
    let nodes = |from: usize, to: usize| (from as u32..to as u32).map(NodeId);
    for host in nodes(0, topology.hosts()) {
        writeln!(out, "    {},", name(host))?;
    }
    writeln!(out, "]")?;
    for switch in nodes(topology.hosts(), topology.nodes()) {
        write!(out, "\n[[switch]]\nname = {}\ntier = {}\n", name(switch), topology.tier(switch))?;
    }
    for cable in (0..topology.links().len() as u32).step_by(2) {
        let link = topology.link(LinkId(cable));
        let (from, to, rate) = (name(link.from), name(link.to), number::rate(link.rate));
        write!(out, "\n[[link]]\nends = [{from}, {to}]\nrate = \"{rate}\"\n")?;
    }
    Ok(())
}

/// Writes the parameters of a plan without validating them; [`Plan::build`] does that.
///
/// # Errors
/// If `out` fails.
pub fn write_plan<W: Write>(plan: &Plan, mut out: W) -> io::Result<()> {
    writeln!(out, "{MAGIC} = {VERSION}\nkind = \"{}\"", plan.name())?;
    match *plan {
        Plan::BigSwitch { hosts, rate } => {
            writeln!(out, "hosts = {hosts}\nrate = \"{}\"", number::rate(rate))
        }
        Plan::NetShareFig16 { services } => writeln!(out, "services = {services}"),
        Plan::LeafSpine { spines, leaves, hosts, rate, oversubscription } => {
            writeln!(out, "spines = {spines}\nleaves = {leaves}\nhosts = {hosts}")?;
            writeln!(out, "rate = \"{}\"\noversubscription = {oversubscription:?}", number::rate(rate))
        }
        Plan::FatTree { ports, rate, oversubscription } => {
            writeln!(out, "ports = {ports}\nrate = \"{}\"", number::rate(rate))?;
            write_oversubscription(oversubscription, out)
        }
        Plan::SabaTiers { oversubscription } => write_oversubscription(oversubscription, out),
        Plan::NetShareFig1 | Plan::NetShareFig3 | Plan::NetShareFig6 | Plan::NetShareFig7 => Ok(()),
    }
}

/// Writes the optional oversubscription of a plan, unless it is 1.
fn write_oversubscription<W: Write>(oversubscription: f64, mut out: W) -> io::Result<()> {
    if oversubscription == 1.0 {
        return Ok(());
    }
    writeln!(out, "oversubscription = {oversubscription:?}")
}

/// The expected value in errors about topologies.
fn expected(error: &TopologyError) -> String {
    format!("a topology that holds together: {error}")
}
