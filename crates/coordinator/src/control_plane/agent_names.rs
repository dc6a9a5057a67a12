//! The names of hosts and switches.

use std::collections::BTreeMap;

/// The names of hosts and switches by number, each once. Their agents say them when they connect. A free slot has an empty name.
#[derive(Debug, Clone, Default)]
pub struct AgentNames {
    names: Vec<String>,
    numbers: BTreeMap<String, u32>,
}

impl AgentNames {
    /// The names in order of numbers.
    pub fn new(names: impl IntoIterator<Item = String>) -> AgentNames {
        let names: Vec<String> = names.into_iter().collect();
        let named = names.iter().cloned().zip(0..).filter(|(name, _)| !name.is_empty());
        let numbers: BTreeMap<String, u32> = named.collect();
        AgentNames { names, numbers }
    }

    /// The names `h0`, `h1` and so on, for a coordinator without a configuration.
    pub fn numbered(count: usize) -> AgentNames {
        AgentNames::new((0..count).map(|number| format!("h{number}")))
    }

    /// The number of hosts, slots and switches.
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// The name of a number below the number of hosts, slots and switches.
    pub fn name(&self, number: u32) -> &str {
        &self.names[number as usize]
    }

    /// The number of a name; none if no host or switch has the name.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// The names of hosts and switches in order of numbers.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str).filter(|name| !name.is_empty())
    }

    /// Sets the name of a slot; an empty one frees the slot.
    pub(super) fn set(&mut self, number: u32, name: &str) {
        let former = std::mem::replace(&mut self.names[number as usize], name.to_owned());
        self.numbers.remove(&former);
        if !name.is_empty() {
            self.numbers.insert(name.to_owned(), number);
        }
    }
}
