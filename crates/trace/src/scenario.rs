//! Reads scenarios from TOML: services that share a network.
//!
//! `docs/scenario-format.md` is the reference. Rates and times have units; unknown keys are refused. A reader returns a
//! consistent [`Scenario`], or a [`FileError`] that names the line, the field, the value and the expected value.

mod port;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use weir_core::model::scenario::{
    Demand, ErrorLocation, Guarantee, Scenario, ScenarioError, SendMode, Service,
};
use weir_core::model::topology::CableEvent;
use weir_core::model::{NodeId, Topology};
use weir_core::units::Time;
use weir_fields::{FileError, FileKind, TableFields, Value};

use crate::topology::{self, cable_events};

/// The maximum length of a file, in bytes.
pub const MAX_FILE_BYTES: usize = 8 << 20;

/// The version of the format.
pub const VERSION: u32 = 1;

/// Reads the scenario at `path`; `-` is the standard input. The name of a fabric's file is relative to the scenario's
/// folder.
///
/// # Errors
/// [`FileError::Io`] if a file cannot be read; [`FileError::Field`] for the first invalid field.
pub fn read(path: &Path) -> Result<Scenario, FileError> {
    weir_fields::read_file_in_folder(path, |input, name, folder| read_from(input, name, folder))
}

/// Reads a scenario from `input`, which errors call `name`. The name of a fabric's file is relative to `folder`.
///
/// # Errors
/// As for [`read`].
pub fn read_from<R: Read>(input: R, name: &str, folder: &Path) -> Result<Scenario, FileError> {
    weir_fields::read_versioned(input, name, MAX_FILE_BYTES, (FileKind::Services, VERSION), |fields| {
        from_fields(fields, folder)
    })
}

/// The scenario described by the keys of a file.
fn from_fields(mut fields: TableFields<'_>, folder: &Path) -> Result<Scenario, FileError> {
    let mut scenario = read_settings(&mut fields, folder)?;
    let mut tables = Tables::list(fields)?;
    let service_indices = tables.read_services(&mut scenario)?;
    tables.read_demands(&mut scenario, &service_indices)?;
    for guarantee in &mut tables.guarantees {
        scenario.guarantees.push(read_guarantee(guarantee, &scenario.topology, &service_indices)?);
    }
    tables.read_ports(&mut scenario, &service_indices)?;
    for event in &mut tables.events {
        scenario.events.push(cable_events::read_event(event, &scenario.topology)?);
    }
    scenario.check().map_err(|error| tables.to_file_error(&error))?;
    Ok(scenario)
}

/// A scenario of the keys that contain no lists of tables.
fn read_settings(fields: &mut TableFields<'_>, folder: &Path) -> Result<Scenario, FileError> {
    let (topology, cable_events) = read_fabric(fields, folder)?;
    if !cable_events.is_empty() {
        return Err(fields.key_error(
            "fabric",
            "event",
            "a fabric without events; the scenario itself can have them",
        ));
    }
    let end = fields.required("end", "a time with a unit such as \"125s\"")?;
    let end = fields.read_time(&end)?;
    let min_limit = match fields.optional("min-limit") {
        Some(value) => fields.read_rate(&value)?,
        None => Scenario::DEFAULT_MIN_LIMIT,
    };
    let seed = match fields.optional("seed") {
        Some(value) => fields.read_u32(&value, "a whole number from 0 to 4294967295")?,
        None => 0,
    };
    Ok(Scenario {
        topology,
        seed: u64::from(seed),
        end,
        min_limit,
        services: Vec::new(),
        demands: Vec::new(),
        guarantees: Vec::new(),
        ports: Vec::new(),
        events: Vec::new(),
    })
}

/// The tables of a file, which also have the positions of errors.
struct Tables<'a> {
    root: TableFields<'a>,
    services: Vec<TableFields<'a>>,
    demands: Vec<TableFields<'a>>,
    guarantees: Vec<TableFields<'a>>,
    ports: Vec<TableFields<'a>>,
    /// By port that has been read: its queues.
    queues: Vec<Vec<TableFields<'a>>>,
    events: Vec<TableFields<'a>>,
}

impl<'a> Tables<'a> {
    /// The tables in the lists of a file, whose other keys have been read.
    fn list(mut root: TableFields<'a>) -> Result<Tables<'a>, FileError> {
        let services = root.required("service", TABLES)?;
        let services = read_table_list(&root, "service", &services)?;
        let demands = root.required("demand", TABLES)?;
        let demands = read_table_list(&root, "demand", &demands)?;
        let guarantees = read_optional_table_list(&mut root, "guarantee")?;
        let ports = read_optional_table_list(&mut root, "port")?;
        let events = read_optional_table_list(&mut root, "event")?;
        root.finish()?;
        Ok(Tables { root, services, demands, guarantees, ports, queues: Vec::new(), events })
    }

    /// Adds the services to `scenario`, and returns their positions by name.
    fn read_services(&mut self, scenario: &mut Scenario) -> Result<BTreeMap<String, usize>, FileError> {
        let mut service_indices = BTreeMap::new();
        for service in &mut self.services {
            let read = read_service(service)?;
            if service_indices.insert(read.name.clone(), scenario.services.len()).is_some() {
                return Err(service.key_error("name", &read.name, "a distinct name"));
            }
            scenario.services.push(read);
        }
        Ok(service_indices)
    }

    /// Adds the demands to `scenario`.
    fn read_demands(
        &mut self,
        scenario: &mut Scenario,
        service_indices: &BTreeMap<String, usize>,
    ) -> Result<(), FileError> {
        let mut connections = 0u64;
        for demand in &mut self.demands {
            let read = read_demand(demand, scenario, service_indices)?;
            let count = read.connection_count();
            connections = connections.saturating_add(count);
            scenario.demands.push(read);
            // `Scenario::check` refuses both cases. A few lines of `*` can mean many hosts, so stop reading here.
            if count == 0 || connections > Scenario::MAX_CONNECTIONS as u64 {
                break;
            }
        }
        Ok(())
    }

    /// Adds the ports with their queues to `scenario`.
    fn read_ports(
        &mut self,
        scenario: &mut Scenario,
        service_indices: &BTreeMap<String, usize>,
    ) -> Result<(), FileError> {
        let mut links = 0;
        for port in &mut self.ports {
            let (read, queues) = port::read(port, &scenario.topology, service_indices)?;
            links += read.links.len();
            scenario.ports.push(read);
            self.queues.push(queues);
            // More links than exist means that one is configured twice, which `Scenario::check` rejects. Stop reading here, because
            // a few lines of `*` can mean many links.
            if links > scenario.topology.links().len() {
                break;
            }
        }
        Ok(())
    }

    fn to_file_error(&self, error: &ScenarioError) -> FileError {
        let fields = match error.location {
            ErrorLocation::Scenario => &self.root,
            ErrorLocation::Service(at) => &self.services[at],
            ErrorLocation::Demand(at) => &self.demands[at],
            ErrorLocation::Guarantee(at) => &self.guarantees[at],
            ErrorLocation::Port(at) => &self.ports[at],
            ErrorLocation::Queue { port, queue } => &self.queues[port][queue],
            ErrorLocation::Event(at) => &self.events[at],
        };
        fields.key_error(error.field, &error.value, &error.expected)
    }
}

/// The network: a table, or the name of a file.
pub(crate) fn read_fabric(
    fields: &mut TableFields<'_>,
    folder: &Path,
) -> Result<(Topology, Vec<CableEvent>), FileError> {
    const FABRIC: &str = "a table with the keys of a fabric, or the name of a file";
    let value = fields.required("fabric", FABRIC)?;
    if TableFields::is_table(&value) {
        return topology::from_fields_with_events(fields.read_table(&value, "fabric ".to_owned())?);
    }
    let path = folder.join(fields.read_string(&value, FABRIC)?);
    let read = weir_fields::read_file(&path, |input, name| topology::read_with_events(input, name));
    fields.referenced(&value, read)
}

const TABLES: &str = "a list of tables";

/// The tables of a list.
pub(crate) fn read_table_list<'a>(
    fields: &TableFields<'a>,
    key: &str,
    value: &Value<'a>,
) -> Result<Vec<TableFields<'a>>, FileError> {
    let list = fields.read_list(value, TABLES)?;
    (1..).zip(&list).map(|(number, table)| fields.read_table(table, format!("{key} {number} "))).collect()
}

/// The tables of an optional list.
fn read_optional_table_list<'a>(
    fields: &mut TableFields<'a>,
    key: &'static str,
) -> Result<Vec<TableFields<'a>>, FileError> {
    fields.optional(key).map_or(Ok(Vec::new()), |value| read_table_list(fields, key, &value))
}

fn read_service(fields: &mut TableFields<'_>) -> Result<Service, FileError> {
    const NAME: &str = "a service's name";
    let name = fields.required("name", NAME)?;
    let name = fields.read_string(&name, NAME)?.to_owned();
    let weight = fields.required_number("weight")?;
    let excess = match fields.optional("excess") {
        Some(value) => Some(fields.read_number(&value)?),
        None => None,
    };
    fields.finish()?;
    Ok(Service { name, weight, excess_weight: excess })
}

fn read_demand(
    fields: &mut TableFields<'_>,
    scenario: &Scenario,
    service_indices: &BTreeMap<String, usize>,
) -> Result<Demand, FileError> {
    let service = read_service_index(fields, service_indices)?;
    let from = read_hosts(fields, "from", &scenario.topology)?;
    let to = read_hosts(fields, "to", &scenario.topology)?;
    let connections = match fields.optional("connections") {
        Some(value) => fields.read_u32(&value, "a whole number from 1 to 1048576")?,
        None => 1,
    };
    let sending = read_send_mode(fields)?;
    let active = match fields.optional("active") {
        Some(value) => read_intervals(fields, &value)?,
        None => vec![(Time::ZERO, scenario.end)],
    };
    fields.finish()?;
    Ok(Demand {
        service,
        sources: from,
        destinations: to,
        connections,
        send_mode: sending,
        active_intervals: active,
    })
}

/// The index of the service that a table names.
fn read_service_index(
    fields: &mut TableFields<'_>,
    service_indices: &BTreeMap<String, usize>,
) -> Result<usize, FileError> {
    const SERVICE: &str = "the name of a service of this file";
    let service = fields.required("service", SERVICE)?;
    let name = fields.read_string(&service, SERVICE)?;
    service_indices.get(name).copied().ok_or_else(|| fields.value_error(&service, SERVICE))
}

/// One host, several hosts, or all.
pub(crate) fn read_hosts(
    fields: &mut TableFields<'_>,
    key: &'static str,
    topology: &Topology,
) -> Result<Vec<NodeId>, FileError> {
    const HOSTS: &str = "a host of the fabric, a list of them, or \"*\" for all";
    let value = fields.required(key, HOSTS)?;
    let host = |value: &Value<'_>, name: &str| {
        let node = topology.find_node(name).filter(|&node| topology.is_host(node));
        node.ok_or_else(|| fields.value_error(value, &format!("{HOSTS}; {}", host_names(topology))))
    };
    if let Ok(name) = fields.read_string(&value, HOSTS) {
        if name == "*" && topology.find_node("*").is_none() {
            return Ok((0..topology.hosts() as u32).map(NodeId).collect());
        }
        return Ok(vec![host(&value, name)?]);
    }
    fields.read_list(&value, HOSTS)?.iter().map(|item| host(item, fields.read_string(item, HOSTS)?)).collect()
}

/// The first and the last name of the hosts, for errors.
fn host_names(topology: &Topology) -> String {
    let name = |host: usize| topology.name(NodeId(host as u32));
    match topology.hosts() {
        0 => "the fabric has no hosts".to_owned(),
        1 => format!("the only host is `{}`", name(0)),
        count => format!("the {count} hosts are `{}` to `{}`", name(0), name(count - 1)),
    }
}

fn read_send_mode(fields: &mut TableFields<'_>) -> Result<SendMode, FileError> {
    const SENDING: &str = "`elastic`, `capped` or `unresponsive`";
    let value = fields.required("sending", SENDING)?;
    Ok(match fields.read_string(&value, SENDING)? {
        "elastic" => SendMode::Elastic,
        "capped" => SendMode::Capped(fields.required_rate("rate")?),
        "unresponsive" => SendMode::Unresponsive(fields.required_rate("rate")?),
        _ => return Err(fields.value_error(&value, SENDING)),
    })
}

fn read_guarantee(
    fields: &mut TableFields<'_>,
    topology: &Topology,
    service_indices: &BTreeMap<String, usize>,
) -> Result<Guarantee, FileError> {
    let service = read_service_index(fields, service_indices)?;
    let ((_, from), (value, to)) =
        (read_link_end(fields, "from", topology)?, read_link_end(fields, "to", topology)?);
    let link = topology
        .link_between(from, to)
        .ok_or_else(|| port::no_link_error(fields, &value, topology.name(from)))?;
    let rate = fields.required_rate("rate")?;
    fields.finish()?;
    Ok(Guarantee { service, link, rate })
}

/// The node at one end of a link.
fn read_link_end<'a>(
    fields: &mut TableFields<'a>,
    key: &'static str,
    topology: &Topology,
) -> Result<(Value<'a>, NodeId), FileError> {
    const NODE: &str = "a host or switch of the fabric, at one end of a link";
    let value = fields.required(key, NODE)?;
    let node = topology
        .find_node(fields.read_string(&value, NODE)?)
        .ok_or_else(|| fields.value_error(&value, NODE))?;
    Ok((value, node))
}

fn read_intervals<'a>(fields: &TableFields<'a>, value: &Value<'a>) -> Result<Vec<(Time, Time)>, FileError> {
    const ACTIVE: &str = "a list of intervals, such as [[\"5s\", \"35s\"], [\"65s\", \"125s\"]]";
    let interval = |item: &Value<'a>| match fields.read_list(item, ACTIVE)?[..] {
        [from, to] => Ok((fields.read_time(&from)?, fields.read_time(&to)?)),
        _ => Err(fields.value_error(item, ACTIVE)),
    };
    fields.read_list(value, ACTIVE)?.iter().map(interval).collect()
}
