//! Reads the rules by which hosts join while the coordinator runs.

use std::ops::Range;

use weir_core::model::{NodeId, ServiceNames, Topology};
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
    /// The maximum number of hosts that have joined by this rule; with a position, at each switch.
    pub max_hosts: u32,
    /// Where hosts of this rule are in the topology, if there is one.
    pub position: Option<JoinPosition>,
}

/// The position of hosts that join: under the switch with the name that a label of the agent has.
#[derive(Debug, Clone, PartialEq)]
pub struct JoinPosition {
    /// The name of the label.
    pub label: String,
    /// The switches to which hosts may attach, in the order of their numbers in the topology.
    pub leaves: Vec<String>,
}

impl JoinRule {
    /// Whether a host with this name joins by this rule, if no earlier rule matches.
    pub fn matches(&self, name: &str) -> bool {
        matches_component(&self.names, name)
    }

    /// The number of hosts that may join by this rule.
    fn slot_count(&self) -> usize {
        self.max_hosts as usize * self.position.as_ref().map_or(1, |position| position.leaves.len())
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
    rules.iter().map(JoinRule::slot_count).sum()
}

/// The slots, from the first one, for the hosts of a rule at a leaf; none if the rule's hosts cannot be there. Without a topology, all
/// rules share all slots.
pub fn slots_at(rules: &[JoinRule], rule: &JoinRule, leaf: Option<&str>) -> Option<Range<u32>> {
    let Some(position) = &rule.position else { return Some(0..slot_count(rules) as u32) };
    let at = position.leaves.iter().position(|known| Some(&**known) == leaf)?;
    let earlier = slot_count(rules.split(|other| other == rule).next().unwrap_or_default());
    let first = earlier as u32 + at as u32 * rule.max_hosts;
    Some(first..first + rule.max_hosts)
}

/// The topology with a host for each slot of these rules, whose cable has the highest rate of the rule.
pub(super) fn add_slots(
    fields: &TableFields<'_>,
    topology: &Topology,
    rules: &[JoinRule],
) -> Result<Topology, FileError> {
    let mut cables = Vec::with_capacity(slot_count(rules));
    for rule in rules {
        let leaves = rule.position.iter().flat_map(|position| &position.leaves);
        for leaf in leaves.filter_map(|leaf| topology.find_node(leaf)) {
            cables.extend(std::iter::repeat_n((leaf, rule.max_rate), rule.max_hosts as usize));
        }
    }
    let expected = |error| format!("places for hosts that join, but {error}");
    topology.with_hosts(&cables).map_err(|error| fields.key_error("join", "[[join]]", &expected(error)))
}

/// The switches to which hosts may attach: those of tier 1, and those with hosts.
fn leaves(topology: &Topology) -> Vec<String> {
    let switches = (topology.hosts() as u32..topology.nodes() as u32).map(NodeId);
    let has_host = |switch: NodeId| {
        let mut links = topology.outgoing_links(switch).iter();
        links.any(|&link| topology.is_host(topology.link(link).to))
    };
    let leaves = switches.filter(|&switch| topology.tier(switch) == 1 || has_host(switch));
    leaves.map(|switch| topology.name(switch).to_owned()).collect()
}

/// Reads the rules. `hosts`: the number of configured hosts.
pub(super) fn read_joins(
    fields: &TableFields<'_>,
    value: &Value<'_>,
    hosts: usize,
    topology: Option<&Topology>,
) -> Result<Vec<JoinRule>, FileError> {
    let leaves = topology.map(leaves);
    let rules = fields.read_list(value, "tables `[[join]]`")?;
    let rules =
        rules.iter().map(|value| read_rule(fields.read_table(value, "join ".to_owned())?, leaves.as_deref()));
    let rules = rules.collect::<Result<Vec<JoinRule>, FileError>>()?;
    let total = hosts + slot_count(&rules);
    if total > MAX_HOSTS {
        let expected = format!("at most {MAX_HOSTS} hosts, with the sum of `max-hosts`");
        return Err(fields.key_error("join", &total.to_string(), &expected));
    }
    Ok(rules)
}

fn read_rule(mut rule: TableFields<'_>, leaves: Option<&[String]>) -> Result<JoinRule, FileError> {
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
    let position = read_position(&mut rule, leaves)?;
    rule.finish()?;
    Ok(JoinRule { names: names.to_owned(), networks, max_rate, max_hosts, position })
}

/// Reads the position of hosts in a topology with these leaves.
fn read_position(
    rule: &mut TableFields<'_>,
    leaves: Option<&[String]>,
) -> Result<Option<JoinPosition>, FileError> {
    const EXPECTED: &str =
        "with `topology`, the name of the label whose value is the host's switch, such as \"rack\"";
    let Some(leaves) = leaves else {
        return match rule.optional("position") {
            None => Ok(None),
            Some(value) => Err(rule.value_error(&value, "no such key without `topology`")),
        };
    };
    let value = rule.required("position", EXPECTED)?;
    let label = rule.read_string(&value, EXPECTED)?;
    if !ServiceNames::is_name(label) {
        return Err(rule.value_error(&value, EXPECTED));
    }
    Ok(Some(JoinPosition { label: label.to_owned(), leaves: leaves.to_vec() }))
}
