//! The names of hosts and switches.

use std::collections::BTreeMap;

/// The names of hosts and switches by number, each once. Their agents say them when they connect.
#[derive(Debug, Clone, Default)]
pub struct AgentNames {
    names: Vec<String>,
    numbers: BTreeMap<String, u32>,
}

impl AgentNames {
    /// The names in order of numbers.
    pub fn new(names: impl IntoIterator<Item = String>) -> AgentNames {
        let names: Vec<String> = names.into_iter().collect();
        let numbers: BTreeMap<String, u32> = names.iter().cloned().zip(0..).collect();
        debug_assert_eq!(numbers.len(), names.len(), "each name occurs once");
        AgentNames { names, numbers }
    }

    /// The names `h0`, `h1` and so on, for a coordinator without a configuration.
    pub fn numbered(count: usize) -> AgentNames {
        AgentNames::new((0..count).map(|number| format!("h{number}")))
    }

    /// The name of a number below the number of hosts and switches.
    pub fn name(&self, number: u32) -> &str {
        &self.names[number as usize]
    }

    /// The number of a name; none if no host or switch has the name.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// All names in order of numbers.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }
}
