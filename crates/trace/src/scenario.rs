//! Reads scenarios from TOML: services that share a network.
//!
//! `docs/scenario-format.md` is the reference. Rates and times have units; unknown keys are refused. A reader returns a
//! consistent [`Scenario`], or a [`TraceError`] that names the line, the field, the value and the expected value.

mod port;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use weir_core::model::scenario::{
    Change, Demand, Event, Guarantee, Place, Scenario, ScenarioError, Sending, Service,
};
use weir_core::model::{NodeId, Topology};
use weir_core::units::Time;

use crate::error::TraceError;
use crate::fields::{self, Fields, Value};
use crate::topology;

/// The maximum length of a file, in bytes.
pub const MAX_FILE_BYTES: usize = 8 << 20;

/// The version of the format.
pub const VERSION: u32 = 1;

/// The key that contains the version.
const MAGIC: &str = "weir-scenario";

/// Reads the scenario at `path`; `-` is the standard input. The name of a fabric's file is relative to the scenario's
/// folder.
///
/// # Errors
/// [`TraceError::Io`] if a file cannot be read; [`TraceError::Field`] for the first invalid field.
pub fn read(path: &Path) -> Result<Scenario, TraceError> {
    fields::open_in_folder(path, |input, name, folder| read_from(input, name, folder))
}

/// Reads a scenario from `input`, which errors call `name`. The name of a fabric's file is relative to `folder`.
///
/// # Errors
/// As for [`read`].
pub fn read_from<R: Read>(input: R, name: &str, folder: &Path) -> Result<Scenario, TraceError> {
    fields::read_versioned(input, name, MAX_FILE_BYTES, (MAGIC, VERSION), |fields| {
        from_fields(fields, folder)
    })
}

/// The scenario described by the keys of a file.
fn from_fields(mut fields: Fields<'_>, folder: &Path) -> Result<Scenario, TraceError> {
    let topology = fabric(&mut fields, folder)?;
    let end = fields.need("end", "a time with a unit such as \"125s\"")?;
    let end = fields.read_time(&end)?;
    let floor = match fields.maybe("floor") {
        Some(value) => fields.read_rate(&value)?,
        None => Scenario::FLOOR,
    };
    let seed = match fields.maybe("seed") {
        Some(value) => fields.whole(&value, "a whole number from 0 to 4294967295")?,
        None => 0,
    };
    let mut scenario = Scenario {
        topology,
        seed: u64::from(seed),
        end,
        floor,
        services: Vec::new(),
        demands: Vec::new(),
        guarantees: Vec::new(),
        ports: Vec::new(),
        events: Vec::new(),
    };
    let services = fields.need("service", TABLES)?;
    let services = tables(&fields, "service", &services)?;
    let demands = fields.need("demand", TABLES)?;
    let demands = tables(&fields, "demand", &demands)?;
    let guarantees = maybe_tables(&mut fields, "guarantee")?;
    let ports = maybe_tables(&mut fields, "port")?;
    let events = maybe_tables(&mut fields, "event")?;
    fields.finish()?;
    let mut places = Places {
        whole: fields,
        services: Vec::new(),
        demands: Vec::new(),
        guarantees: Vec::new(),
        ports: Vec::new(),
        events: Vec::new(),
    };
    let mut names = BTreeMap::new();
    for mut service in services {
        let read = read_service(&mut service)?;
        if names.insert(read.name.clone(), scenario.services.len()).is_some() {
            return Err(service.wrong_at("name", &read.name, "a name of its own"));
        }
        scenario.services.push(read);
        places.services.push(service);
    }
    let mut connections = 0u64;
    for mut demand in demands {
        let read = read_demand(&mut demand, &scenario, &names)?;
        let count = read.count();
        connections = connections.saturating_add(count);
        scenario.demands.push(read);
        places.demands.push(demand);
        // `check` below refuses both cases. A few lines of `*` can mean many hosts, so stop reading here.
        if count == 0 || connections > Scenario::MAX_CONNECTIONS as u64 {
            break;
        }
    }
    for mut guarantee in guarantees {
        scenario.guarantees.push(read_guarantee(&mut guarantee, &scenario.topology, &names)?);
        places.guarantees.push(guarantee);
    }
    let mut links = 0;
    for mut port in ports {
        let (read, queues) = port::read(&mut port, &scenario.topology, &names)?;
        links += read.links.len();
        scenario.ports.push(read);
        places.ports.push((port, queues));
        // More links than exist: one is configured twice, which `check` below refuses. A few lines of `*` can mean many links.
        if links > scenario.topology.links().len() {
            break;
        }
    }
    for mut event in events {
        scenario.events.push(read_event(&mut event, &scenario.topology)?);
        places.events.push(event);
    }
    scenario.check().map_err(|error| places.error(&error))?;
    Ok(scenario)
}

/// The tables of a file, for the positions of errors.
struct Places<'a> {
    whole: Fields<'a>,
    services: Vec<Fields<'a>>,
    demands: Vec<Fields<'a>>,
    guarantees: Vec<Fields<'a>>,
    /// Each port with its queues.
    ports: Vec<(Fields<'a>, Vec<Fields<'a>>)>,
    events: Vec<Fields<'a>>,
}

impl Places<'_> {
    fn error(&self, error: &ScenarioError) -> TraceError {
        let fields = match error.place {
            Place::Scenario => &self.whole,
            Place::Service(at) => &self.services[at],
            Place::Demand(at) => &self.demands[at],
            Place::Guarantee(at) => &self.guarantees[at],
            Place::Port(at) => &self.ports[at].0,
            Place::Queue { port, queue } => &self.ports[port].1[queue],
            Place::Event(at) => &self.events[at],
        };
        fields.wrong_at(error.field, &error.value, &error.expected)
    }
}

/// The network: a table, or the name of a file.
pub(crate) fn fabric(fields: &mut Fields<'_>, folder: &Path) -> Result<Topology, TraceError> {
    const FABRIC: &str = "a table with the keys of a fabric, or the name of a file";
    let value = fields.need("fabric", FABRIC)?;
    if Fields::is_table(&value) {
        return topology::from_fields(fields.table(&value, "fabric ".to_owned())?);
    }
    topology::read(&folder.join(fields.text(&value, FABRIC)?))
}

const TABLES: &str = "a list of tables";

/// The tables of a list.
pub(crate) fn tables<'a>(
    fields: &Fields<'a>,
    key: &str,
    value: &Value<'a>,
) -> Result<Vec<Fields<'a>>, TraceError> {
    let list = fields.list(value, TABLES)?;
    (1..).zip(&list).map(|(number, table)| fields.table(table, format!("{key} {number} "))).collect()
}

/// The tables of an optional list.
fn maybe_tables<'a>(fields: &mut Fields<'a>, key: &'static str) -> Result<Vec<Fields<'a>>, TraceError> {
    fields.maybe(key).map_or(Ok(Vec::new()), |value| tables(fields, key, &value))
}

fn read_service(fields: &mut Fields<'_>) -> Result<Service, TraceError> {
    const NAME: &str = "a service's name";
    let name = fields.need("name", NAME)?;
    let name = fields.text(&name, NAME)?.to_owned();
    let weight = fields.number("weight")?;
    let excess = match fields.maybe("excess") {
        Some(value) => Some(fields.float(&value)?),
        None => None,
    };
    fields.finish()?;
    Ok(Service { name, weight, excess })
}

fn read_demand(
    fields: &mut Fields<'_>,
    scenario: &Scenario,
    names: &BTreeMap<String, usize>,
) -> Result<Demand, TraceError> {
    let service = service_named(fields, names)?;
    let from = hosts(fields, "from", &scenario.topology)?;
    let to = hosts(fields, "to", &scenario.topology)?;
    let connections = match fields.maybe("connections") {
        Some(value) => fields.whole(&value, "a whole number from 1 to 1048576")?,
        None => 1,
    };
    let sending = sending(fields)?;
    let active = match fields.maybe("active") {
        Some(value) => intervals(fields, &value)?,
        None => vec![(Time::ZERO, scenario.end)],
    };
    fields.finish()?;
    Ok(Demand { service, from, to, connections, sending, active })
}

/// The index of the service that a table names.
fn service_named(fields: &mut Fields<'_>, names: &BTreeMap<String, usize>) -> Result<usize, TraceError> {
    const SERVICE: &str = "the name of a service of this file";
    let service = fields.need("service", SERVICE)?;
    let name = fields.text(&service, SERVICE)?;
    names.get(name).copied().ok_or_else(|| fields.wrong(&service, SERVICE))
}

/// One host, several hosts, or all.
pub(crate) fn hosts(
    fields: &mut Fields<'_>,
    key: &'static str,
    topology: &Topology,
) -> Result<Vec<NodeId>, TraceError> {
    const HOSTS: &str = "a host of the fabric, a list of them, or \"*\" for all";
    let value = fields.need(key, HOSTS)?;
    let host = |value: &Value<'_>, name: &str| {
        let node = topology.node(name).filter(|&node| topology.is_host(node));
        node.ok_or_else(|| fields.wrong(value, HOSTS))
    };
    if let Ok(name) = fields.text(&value, HOSTS) {
        if name == "*" && topology.node("*").is_none() {
            return Ok((0..topology.hosts() as u32).map(NodeId).collect());
        }
        return Ok(vec![host(&value, name)?]);
    }
    fields.list(&value, HOSTS)?.iter().map(|item| host(item, fields.text(item, HOSTS)?)).collect()
}

fn sending(fields: &mut Fields<'_>) -> Result<Sending, TraceError> {
    const SENDING: &str = "`elastic`, `capped` or `unresponsive`";
    let value = fields.need("sending", SENDING)?;
    Ok(match fields.text(&value, SENDING)? {
        "elastic" => Sending::Elastic,
        "capped" => Sending::Capped(fields.rate("rate")?),
        "unresponsive" => Sending::Unresponsive(fields.rate("rate")?),
        _ => return Err(fields.wrong(&value, SENDING)),
    })
}

fn read_guarantee(
    fields: &mut Fields<'_>,
    topology: &Topology,
    names: &BTreeMap<String, usize>,
) -> Result<Guarantee, TraceError> {
    let service = service_named(fields, names)?;
    let ((_, from), (value, to)) = (end(fields, "from", topology)?, end(fields, "to", topology)?);
    let link = topology.between(from, to).ok_or_else(|| no_link(fields, &value, topology.name(from)))?;
    let rate = fields.rate("rate")?;
    fields.finish()?;
    Ok(Guarantee { service, link, rate })
}

/// The node at one end of a link.
fn end<'a>(
    fields: &mut Fields<'a>,
    key: &'static str,
    topology: &Topology,
) -> Result<(Value<'a>, NodeId), TraceError> {
    const NODE: &str = "a host or switch of the fabric, at one end of a link";
    let value = fields.need(key, NODE)?;
    let node = topology.node(fields.text(&value, NODE)?).ok_or_else(|| fields.wrong(&value, NODE))?;
    Ok((value, node))
}

/// The error for a second end without a cable to the first.
fn no_link(fields: &Fields<'_>, value: &Value<'_>, from: &str) -> TraceError {
    fields.wrong(value, &format!("a host or switch with a cable to `{from}`"))
}

fn read_event(fields: &mut Fields<'_>, topology: &Topology) -> Result<Event, TraceError> {
    const CABLE: &str = "the two ends of a cable of the fabric, such as [\"E1\", \"C1\"]";
    const CHANGE: &str = "`down`, `up` or `rate`";
    let at = fields.need("at", "a time with a unit such as \"5s\"")?;
    let at = fields.read_time(&at)?;
    let value = fields.need("cable", CABLE)?;
    let end = |value: &Value<'_>, name: &str| topology.node(name).ok_or_else(|| fields.wrong(value, CABLE));
    let cable = match fields.list(&value, CABLE)?[..] {
        [a, b] => topology.between(end(&a, fields.text(&a, CABLE)?)?, end(&b, fields.text(&b, CABLE)?)?),
        _ => None,
    };
    let cable = cable.ok_or_else(|| fields.wrong(&value, CABLE))?;
    let value = fields.need("change", CHANGE)?;
    let change = match fields.text(&value, CHANGE)? {
        "down" => Change::Down,
        "up" => Change::Up,
        "rate" => Change::Rate(fields.rate("rate")?),
        _ => return Err(fields.wrong(&value, CHANGE)),
    };
    fields.finish()?;
    Ok(Event { at, cable, change })
}

fn intervals<'a>(fields: &Fields<'a>, value: &Value<'a>) -> Result<Vec<(Time, Time)>, TraceError> {
    const ACTIVE: &str = "a list of intervals, such as [[\"5s\", \"35s\"], [\"65s\", \"125s\"]]";
    let interval = |item: &Value<'a>| match fields.list(item, ACTIVE)?[..] {
        [from, to] => Ok((fields.read_time(&from)?, fields.read_time(&to)?)),
        _ => Err(fields.wrong(item, ACTIVE)),
    };
    fields.list(value, ACTIVE)?.iter().map(interval).collect()
}
