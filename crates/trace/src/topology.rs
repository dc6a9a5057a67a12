//! Reads and writes topologies in TOML, as a list of cables or as the parameters of a template.
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

mod bisection;
pub(crate) mod cable_events;
pub mod describe;

use std::io::{self, Read, Write};
use std::path::Path;

use weir_core::model::topology::{CableEvent, TopologyBuilder};
use weir_core::model::{LinkId, NodeId, Topology, TopologyError, TopologyTemplate};
use weir_fields::{FileError, FileKind, TableFields, Value, expectation};

pub use crate::number::format_rate;

/// The maximum length of a file, in bytes.
pub const MAX_FILE_BYTES: usize = 8 << 20;

/// The version of the format.
pub const VERSION: u32 = 1;

/// The key that contains the version.
const MAGIC: &str = FileKind::Fabric.key();

/// The kind that lists its cables.
const LINKS: &str = "links";

/// Reads the topology at `path`; `-` is the standard input.
///
/// # Errors
/// [`FileError::Io`] if the file cannot be read; [`FileError::Field`] for the first invalid field.
pub fn read(path: &Path) -> Result<Topology, FileError> {
    weir_fields::read_file(path, |input, name| read_from(input, name))
}

/// Reads a topology from `input`, which errors call `name`.
///
/// # Errors
/// As for [`read`].
pub fn read_from<R: Read>(input: R, name: &str) -> Result<Topology, FileError> {
    weir_fields::read_versioned(input, name, MAX_FILE_BYTES, (FileKind::Fabric, VERSION), from_fields)
}

/// Reads a topology from `input`, which errors call `name`, and the events of its cables.
///
/// # Errors
/// As for [`read`].
pub fn read_with_events<R: Read>(input: R, name: &str) -> Result<(Topology, Vec<CableEvent>), FileError> {
    weir_fields::read_versioned(
        input,
        name,
        MAX_FILE_BYTES,
        (FileKind::Fabric, VERSION),
        from_fields_with_events,
    )
}

/// The topology described by the keys of a table, and the events of its cables.
pub(crate) fn from_fields_with_events(
    mut fields: TableFields<'_>,
) -> Result<(Topology, Vec<CableEvent>), FileError> {
    // Mark the key as known; events are read when the names of nodes are.
    fields.optional("event");
    let topology = from_fields(fields.clone())?;
    let events = cable_events::read_events(&mut fields, &topology)?;
    Ok((topology, events))
}

/// The topology described by the keys of a table.
fn from_fields(mut fields: TableFields<'_>) -> Result<Topology, FileError> {
    let kind = fields.required("kind", KINDS)?;
    let name = fields.read_string(&kind, KINDS)?;
    if name == LINKS {
        return read_links(fields);
    }
    let plan = read_plan(name, &kind, &mut fields)?;
    fields.finish()?;
    plan.build().map_err(|error| {
        let key = match &error {
            TopologyError::Parameter { parameter, .. } => *parameter,
            TopologyError::Count { kind: what, .. } => *what,
            TopologyError::Rate { .. } => "rate",
            _ => "kind",
        };
        // Some errors concern no single key, such as too many cables.
        let value = fields.optional(key).unwrap_or(kind);
        fields.value_error(&value, &expectation(&error))
    })
}

const KINDS: &str = "`links`, `big-switch`, `leaf-spine`, `fat-tree`, `netshare-fig1`, `netshare-fig3`, \
                     `netshare-fig6`, `netshare-fig7`, `netshare-fig16` or `saba-tiers`";

fn read_plan<'a>(
    name: &str,
    kind: &Value<'a>,
    fields: &mut TableFields<'a>,
) -> Result<TopologyTemplate, FileError> {
    Ok(match name {
        "big-switch" => TopologyTemplate::BigSwitch {
            hosts: fields.required_u32("hosts")?,
            rate: fields.required_rate("rate")?,
        },
        "netshare-fig1" => TopologyTemplate::NetShareFig1,
        "netshare-fig3" => TopologyTemplate::NetShareFig3,
        "netshare-fig6" => TopologyTemplate::NetShareFig6,
        "netshare-fig7" => TopologyTemplate::NetShareFig7,
        "netshare-fig16" => TopologyTemplate::NetShareFig16 { services: fields.required_u32("services")? },
        "leaf-spine" => TopologyTemplate::LeafSpine {
            spines: fields.required_u32("spines")?,
            leaves: fields.required_u32("leaves")?,
            hosts: fields.required_u32("hosts")?,
            rate: fields.required_rate("rate")?,
            oversubscription: fields.required_number("oversubscription")?,
        },
        "fat-tree" => TopologyTemplate::FatTree {
            ports: fields.required_u32("ports")?,
            rate: fields.required_rate("rate")?,
            oversubscription: read_oversubscription(fields)?,
        },
        "saba-tiers" => TopologyTemplate::SabaTiers { oversubscription: read_oversubscription(fields)? },
        _ => return Err(fields.value_error(kind, KINDS)),
    })
}

/// The optional oversubscription of a template; 1 if missing.
fn read_oversubscription(fields: &mut TableFields<'_>) -> Result<f64, FileError> {
    fields.optional("oversubscription").map_or(Ok(1.0), |value| fields.read_number(&value))
}

/// Reads hosts, switches and cables from lists.
fn read_links(mut fields: TableFields<'_>) -> Result<Topology, FileError> {
    const NAMES: &str = "a list of names";
    const TABLES: &str = "a list of tables";
    let mut builder = TopologyBuilder::new();
    let hosts = fields.required("hosts", NAMES)?;
    for host in fields.read_list(&hosts, NAMES)? {
        let name = fields.read_string(&host, "a host's name")?;
        builder.add_host(name).map_err(|error| fields.value_error(&host, &expectation(&error)))?;
    }
    let switches = fields.required("switch", TABLES)?;
    for (number, table) in (1..).zip(fields.read_list(&switches, TABLES)?) {
        let mut switch = fields.read_table(&table, format!("switch {number} "))?;
        let name_value = switch.required("name", "a switch's name")?;
        let name = switch.read_string(&name_value, "a switch's name")?;
        let tier = switch.required("tier", TIER)?;
        let tier =
            u8::try_from(switch.read_u32(&tier, TIER)?).map_err(|_| switch.value_error(&tier, TIER))?;
        switch.finish()?;
        builder
            .add_switch(name, tier)
            .map_err(|error| switch.value_error(&name_value, &expectation(&error)))?;
    }
    let links = fields.required("link", TABLES)?;
    for (number, table) in (1..).zip(fields.read_list(&links, TABLES)?) {
        let mut link = fields.read_table(&table, format!("link {number} "))?;
        let ends = link.required("ends", ENDS)?;
        let [from, to] = link.read_list(&ends, ENDS)?[..] else { return Err(link.value_error(&ends, ENDS)) };
        let (from, to) = (link.read_string(&from, "a node's name")?, link.read_string(&to, "a node's name")?);
        let rate = link.required_rate("rate")?;
        link.finish()?;
        builder.add_cable(from, to, rate).map_err(|error| link.value_error(&ends, &expectation(&error)))?;
    }
    fields.finish()?;
    builder.build().map_err(|error| fields.value_error(&hosts, &expectation(&error)))
}

const TIER: &str = "a whole number from 0 to 255";
const ENDS: &str = "the names of two nodes";

/// Writes `topology` as a list of its cables.
///
/// # Errors
/// If `out` fails.
pub fn write<W: Write>(topology: &Topology, mut out: W) -> io::Result<()> {
    let name = |node: NodeId| weir_fields::to_toml_string(topology.name(node));
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
        let (from, to, rate) = (name(link.from), name(link.to), format_rate(link.rate));
        write!(out, "\n[[link]]\nends = [{from}, {to}]\nrate = \"{rate}\"\n")?;
    }
    Ok(())
}

/// Writes the parameters of a template without validating them; [`TopologyTemplate::build`] does that.
///
/// # Errors
/// If `out` fails.
pub fn write_plan<W: Write>(plan: &TopologyTemplate, mut out: W) -> io::Result<()> {
    writeln!(out, "{MAGIC} = {VERSION}\nkind = \"{}\"", plan.name())?;
    match *plan {
        TopologyTemplate::BigSwitch { hosts, rate } => {
            writeln!(out, "hosts = {hosts}\nrate = \"{}\"", format_rate(rate))
        }
        TopologyTemplate::NetShareFig16 { services } => writeln!(out, "services = {services}"),
        TopologyTemplate::LeafSpine { spines, leaves, hosts, rate, oversubscription } => {
            writeln!(out, "spines = {spines}\nleaves = {leaves}\nhosts = {hosts}")?;
            writeln!(out, "rate = \"{}\"\noversubscription = {oversubscription:?}", format_rate(rate))
        }
        TopologyTemplate::FatTree { ports, rate, oversubscription } => {
            writeln!(out, "ports = {ports}\nrate = \"{}\"", format_rate(rate))?;
            write_oversubscription(oversubscription, out)
        }
        TopologyTemplate::SabaTiers { oversubscription } => write_oversubscription(oversubscription, out),
        TopologyTemplate::NetShareFig1
        | TopologyTemplate::NetShareFig3
        | TopologyTemplate::NetShareFig6
        | TopologyTemplate::NetShareFig7 => Ok(()),
    }
}

/// Writes the optional oversubscription of a template, unless it is 1.
fn write_oversubscription<W: Write>(oversubscription: f64, mut out: W) -> io::Result<()> {
    if oversubscription == 1.0 {
        return Ok(());
    }
    writeln!(out, "oversubscription = {oversubscription:?}")
}
