//! Reads the network: hosts, switches, and addresses of hosts.

use std::collections::BTreeMap;
use std::path::Path;

use weir_core::model::Topology;
use weir_fields::{FileError, TableFields, Value};
use weir_proto::NetworkTable;

use super::{
    Host, JoinRule, Overlay, QueueAssignment, Switch, hosts, join, queues as queue_assignment, switches,
};

/// The values of the keys that describe the network.
pub(super) struct NetworkValues<'a> {
    topology: Option<Value<'a>>,
    host: Option<Value<'a>>,
    join: Option<Value<'a>>,
    switch: Option<Value<'a>>,
    address: Option<Value<'a>>,
}

/// The network.
pub(super) struct NetworkTables {
    pub hosts: Vec<Host>,
    pub joins: Vec<JoinRule>,
    pub topology: Option<Topology>,
    pub switches: Vec<Switch>,
    /// By address or network: the number of its host.
    pub addresses: NetworkTable<u32>,
}

impl<'a> NetworkValues<'a> {
    /// Takes the values from the file.
    pub fn take(fields: &mut TableFields<'a>) -> NetworkValues<'a> {
        NetworkValues {
            topology: fields.optional("topology"),
            host: fields.optional("host"),
            join: fields.optional("join"),
            switch: fields.optional("switch"),
            address: fields.optional("address"),
        }
    }

    /// Reads the values. An overlay of relays needs no hosts. `queues` has the defaults for the queues of switches.
    pub fn read(
        self,
        fields: &TableFields<'_>,
        overlay: Option<&Overlay>,
        queues: &QueueAssignment,
        folder: &Path,
    ) -> Result<NetworkTables, FileError> {
        let (hosts, topology) = match (overlay, &self.topology, &self.host) {
            (Some(_), None, None) => (Vec::new(), None),
            (None, None, None) if self.join.is_some() => (Vec::new(), None),
            _ => hosts::read_hosts(fields, self.topology, self.host, folder)?,
        };
        let read_joins = |value| join::read_joins(fields, &value, hosts.len(), topology.as_ref());
        let joins = self.join.map(read_joins).transpose()?.unwrap_or_default();
        let topology = match topology {
            Some(known) if !joins.is_empty() => Some(join::add_slots(fields, &known, &joins)?),
            known => known,
        };
        queue_assignment::check_link_rates(fields, queues, &hosts, &joins)?;
        let numbers: BTreeMap<&str, u32> =
            (0u32..).zip(&hosts).map(|(number, host)| (&*host.name, number)).collect();
        let relay_names = overlay.into_iter().flat_map(|overlay| &overlay.relays).map(|relay| &*relay.name);
        let regions = overlay.into_iter().flat_map(|overlay| overlay.area.regions()).map(String::as_str);
        if let Some(name) = relay_names.chain(regions).find(|name| numbers.contains_key(name)) {
            return Err(fields.key_error("overlay", name, "names of relays and regions that no host has"));
        }
        let read_switches =
            |value| switches::read_switches(fields, &value, &numbers, topology.as_ref(), queues);
        let switches = self.switch.map(read_switches).transpose()?.unwrap_or_default();
        let read_addresses = |value| hosts::read_addresses(fields, &value, &numbers);
        let addresses = self.address.map(read_addresses).transpose()?.unwrap_or_default();
        Ok(NetworkTables { hosts, joins, topology, switches, addresses })
    }
}
