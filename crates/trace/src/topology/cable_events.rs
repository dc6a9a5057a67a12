//! Reads failures, repairs and rate changes of cables.

use weir_core::model::Topology;
use weir_core::model::topology::{CableChange, CableEvent};
use weir_fields::{FileError, TableFields, Value};

/// Reads the events of a network from its optional tables `event`.
pub(crate) fn read_events(
    fields: &mut TableFields<'_>,
    topology: &Topology,
) -> Result<Vec<CableEvent>, FileError> {
    const TABLES: &str = "a list of tables";
    let Some(value) = fields.optional("event") else { return Ok(Vec::new()) };
    let tables = fields.read_list(&value, TABLES)?;
    if tables.len() > CableEvent::MAX_EVENTS {
        return Err(fields.value_error(&value, &format!("at most {} events", CableEvent::MAX_EVENTS)));
    }
    let (mut events, mut event_fields) = (Vec::new(), Vec::new());
    for (number, table) in (1..).zip(tables) {
        let mut event = fields.read_table(&table, format!("event {number} "))?;
        events.push(read_event(&mut event, topology)?);
        event_fields.push(event);
    }
    CableEvent::check(&events, topology)
        .map_err(|error| event_fields[error.event].key_error(error.field, &error.value, &error.expected))?;
    Ok(events)
}

/// Reads one event of a cable of `topology`.
pub(crate) fn read_event(fields: &mut TableFields<'_>, topology: &Topology) -> Result<CableEvent, FileError> {
    const CABLE: &str = "the two ends of a cable of the fabric, such as [\"E1\", \"C1\"]";
    const CHANGE: &str = "`down`, `up` or `rate`";
    let at = fields.required("at", "a time with a unit such as \"5s\"")?;
    let at = fields.read_time(&at)?;
    let value = fields.required("cable", CABLE)?;
    let node = |value: &Value<'_>, name: &str| {
        topology.find_node(name).ok_or_else(|| fields.value_error(value, CABLE))
    };
    let cable = match fields.read_list(&value, CABLE)?[..] {
        [a, b] => topology.link_between(
            node(&a, fields.read_string(&a, CABLE)?)?,
            node(&b, fields.read_string(&b, CABLE)?)?,
        ),
        _ => None,
    };
    let cable = cable.ok_or_else(|| fields.value_error(&value, CABLE))?;
    let value = fields.required("change", CHANGE)?;
    let change = match fields.read_string(&value, CHANGE)? {
        "down" => CableChange::Down,
        "up" => CableChange::Up,
        "rate" => CableChange::Rate(fields.required_rate("rate")?),
        _ => return Err(fields.value_error(&value, CHANGE)),
    };
    fields.finish()?;
    Ok(CableEvent { time: at, cable, change })
}
