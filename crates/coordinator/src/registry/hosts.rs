//! The hosts of the configuration, and those that have joined.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use weir_proto::NetworkTable;

use super::membership::JoinedHost;
use crate::config::{Config, Host};
use crate::control_plane::Link;

/// A host that has a number.
#[derive(Debug, Clone, PartialEq)]
pub struct HostEntry {
    /// Its name.
    pub name: String,
    /// Capacity of its link.
    pub link: Link,
    /// Its rate and addresses when it joined; none for a host of the configuration.
    pub joined: Option<JoinedHost>,
}

impl HostEntry {
    /// Whether it has been removed. Its name stays known while registrations name it.
    pub fn is_removed(&self) -> bool {
        self.joined.as_ref().is_some_and(|joined| joined.is_removed)
    }
}

/// The hosts by number: those of the configuration, then a slot for each host that can join. A snapshot, which does not change.
#[derive(Debug, Clone)]
pub struct HostTable {
    entries: Vec<Option<HostEntry>>,
    numbers: BTreeMap<String, u32>,
    addresses: Arc<NetworkTable<u32>>,
    configured: usize,
}

impl HostTable {
    /// The hosts of a configuration, with free slots.
    pub(super) fn new(config: &Config) -> HostTable {
        let to_entry =
            |host: &Host| Some(HostEntry { name: host.name.clone(), link: host.link, joined: None });
        let configured = config.hosts.iter().map(to_entry);
        let entries: Vec<Option<HostEntry>> =
            configured.chain(std::iter::repeat_n(None, config.slots())).collect();
        let names = config.hosts.iter().map(|host| host.name.clone());
        HostTable {
            entries,
            numbers: names.zip(0..).collect(),
            addresses: Arc::new(config.addresses.clone()),
            configured: config.hosts.len(),
        }
    }

    /// The number of hosts and free slots. Numbers of switches begin here.
    pub fn slot_count(&self) -> usize {
        self.entries.len()
    }

    /// The number of the first slot.
    pub(super) fn first_slot(&self) -> u32 {
        self.configured as u32
    }

    /// The hosts that exist, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &HostEntry)> {
        self.all().filter(|(_, entry)| !entry.is_removed())
    }

    /// The hosts with their numbers, also removed ones.
    pub(super) fn all(&self) -> impl Iterator<Item = (u32, &HostEntry)> {
        (0u32..).zip(&self.entries).filter_map(|(number, entry)| Some((number, entry.as_ref()?)))
    }

    /// The host with a number, also if it has been removed; none for a free slot.
    pub fn get(&self, number: u32) -> Option<&HostEntry> {
        self.entries.get(number as usize)?.as_ref()
    }

    /// The name of a host, also of a removed one. A free slot, which no registration names, has the name `-`.
    pub fn name(&self, number: u32) -> &str {
        self.get(number).map_or("-", |entry| &entry.name)
    }

    /// The number of a host. A removed host has one while registrations name it.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// The addresses and networks of hosts.
    pub fn addresses(&self) -> &Arc<NetworkTable<u32>> {
        &self.addresses
    }

    /// The first free slot of a range, which begins at the first slot.
    pub(super) fn free_slot(&self, slots: &Range<u32>) -> Option<u32> {
        let mut numbers = slots.clone().map(|slot| self.first_slot() + slot);
        numbers.find(|&number| self.entries.get(number as usize).is_some_and(Option::is_none))
    }

    /// Sets or replaces the host of a slot.
    pub(super) fn set(&mut self, slot: u32, entry: HostEntry) {
        self.clear(slot);
        self.numbers.insert(entry.name.clone(), slot);
        if let Some(joined) = entry.joined.as_ref().filter(|joined| !joined.is_removed) {
            Arc::make_mut(&mut self.addresses).set_networks(slot, &joined.addresses);
        }
        self.entries[slot as usize] = Some(entry);
    }

    /// Frees a slot.
    pub(super) fn clear(&mut self, slot: u32) {
        if let Some(entry) = self.entries[slot as usize].take() {
            self.numbers.remove(&entry.name);
        }
        Arc::make_mut(&mut self.addresses).remove_owner(slot);
    }
}
