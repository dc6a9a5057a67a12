//! Reads the rules by which hosts join while the coordinator runs.

use weir_core::model::{ServiceNames, Topology};
use weir_core::units::Rate;
use weir_fields::{FileError, TableFields, Value};
use weir_proto::Network;
use weir_proto::matches_component;

use super::overlay::read_networks;
use super::{Config, MAX_HOSTS};

/// Which hosts may join, with which addresses and rates.
#[derive(Debug, Clone, PartialEq)]
pub struct JoinRule {
    /// The names of the hosts. `*` stands for any characters.
    pub names: String,
    /// The networks of their addresses and pods.
    pub networks: Vec<Network>,
    /// The highest rate of their links.
    pub max_rate: Rate,
    /// The maximum number of hosts that have joined by this rule.
    pub max_hosts: u32,
}

impl JoinRule {
    /// Whether a host with this name joins by this rule, if no earlier rule matches.
    pub fn matches(&self, name: &str) -> bool {
        matches_component(&self.names, name)
    }

    /// Whether hosts of this rule may have all addresses of a network.
    pub fn allows(&self, network: &Network) -> bool {
        self.networks.iter().any(|allowed| allowed.contains_network(network))
    }
}

impl Config {
    /// The number of hosts that may join.
    pub fn slots(&self) -> usize {
        slot_count(&self.joins)
    }
}

/// The number of hosts that may join by these rules.
pub(super) fn slot_count(rules: &[JoinRule]) -> usize {
    rules.iter().map(|rule| rule.max_hosts as usize).sum()
}

/// Reads the rules. `hosts`: the number of configured hosts.
pub(super) fn read_joins(
    fields: &TableFields<'_>,
    value: &Value<'_>,
    hosts: usize,
    has_topology: bool,
) -> Result<Vec<JoinRule>, FileError> {
    if has_topology {
        let expected = "no `[[join]]` with `topology`, in which a host that joins has no place";
        return Err(fields.key_error("join", "[[join]]", expected));
    }
    let rules = fields.read_list(value, "tables `[[join]]`")?;
    let rules = rules.iter().map(|value| read_rule(fields.read_table(value, "join ".to_owned())?));
    let rules = rules.collect::<Result<Vec<JoinRule>, FileError>>()?;
    let total = hosts + slot_count(&rules);
    if total > MAX_HOSTS {
        let expected = format!("at most {MAX_HOSTS} hosts, with the sum of `max-hosts`");
        return Err(fields.key_error("join", &total.to_string(), &expected));
    }
    Ok(rules)
}

fn read_rule(mut rule: TableFields<'_>) -> Result<JoinRule, FileError> {
    const EXPECTED_NAMES: &str =
        "names of hosts: 1 to 100 letters, digits, `-`, `_`, `.` and `*`, which stands for any characters";
    const EXPECTED_HOSTS: &str = "a number of hosts above 0";
    let value = rule.required("names", EXPECTED_NAMES)?;
    let names = rule.read_string(&value, EXPECTED_NAMES)?;
    if !ServiceNames::is_name(&names.replace('*', "-")) {
        return Err(rule.value_error(&value, EXPECTED_NAMES));
    }
    let networks = read_networks(&mut rule)?;
    let value = rule.required("max-rate", "a rate such as \"10Gbit\"")?;
    let max_rate = rule.read_rate(&value)?;
    if max_rate.get() < 1.0 || max_rate > Topology::MAX_RATE {
        return Err(rule.value_error(&value, &format!("a rate from 8bit to {}", Topology::MAX_RATE)));
    }
    let value = rule.required("max-hosts", EXPECTED_HOSTS)?;
    let max_hosts = rule.read_u32(&value, EXPECTED_HOSTS)?;
    if max_hosts == 0 {
        return Err(rule.value_error(&value, EXPECTED_HOSTS));
    }
    rule.finish()?;
    Ok(JoinRule { names: names.to_owned(), networks, max_rate, max_hosts })
}
