//! Hosts that join by the rules of the configuration, and that operators remove.
//!
//! A host has a slot from its first connection until an operator removes it. Its name, rate and addresses are in the store before its
//! agent gets a welcome, so a coordinator that restarts knows the hosts that registrations name. A host that loses its agent keeps its
//! slot. A removed host keeps it while coflows or connections name it.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tracing::{info, warn};
use weir_core::units::Rate;
use weir_proto::Network;
use weir_tls::LogLimit;

use super::Registry;
use super::hosts::{HostEntry, HostTable};
use super::refused_claims::RefusedClaims;
use super::unfit::UnfitRecords;
use crate::audit::Actor;
use crate::config::{JoinRule, slots_at};
use crate::control_plane::{ControlPlane, Link};
use crate::control_thread::Stopped;
use crate::events::EventKind;
use crate::problem::Problem;
use crate::store::{Store, StoreError, Table};

/// What an agent states about its host when it connects.
#[derive(Debug, Clone, PartialEq)]
pub struct HostClaim {
    /// The name, which its certificate proves if there is one.
    pub name: String,
    /// The rate of its link in its options, in bytes per second; none if it is a switch.
    pub rate: Option<u64>,
    /// The addresses of its interfaces, and the networks of its pods.
    pub addresses: Vec<Network>,
    /// Its labels, by name.
    pub labels: BTreeMap<String, String>,
}

/// What a host has joined with; its record in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinedHost {
    /// The index of its slot.
    pub slot: u32,
    /// The rate of its link, in bytes per second.
    pub rate: u64,
    /// Its addresses and networks.
    #[serde(with = "short_networks")]
    pub addresses: Vec<Network>,
    /// When it joined, in milliseconds of Unix time.
    pub joined_unix_ms: u64,
    /// The switch of the topology that it is under, if there is a topology.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaf: Option<String>,
    /// Whether an operator has removed it, although registrations name it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_removed: bool,
}

impl JoinedHost {
    fn link(&self) -> Option<Link> {
        let rate = Rate::new(self.rate as f64)?;
        Some(Link { send: rate, recv: rate })
    }
}

/// Why a host may not join.
#[derive(Debug, thiserror::Error)]
pub enum JoinRefusal {
    /// A name that is neither configured nor matches a rule.
    #[error("`{name}` is not a host or switch of the configuration; expected {expected}")]
    UnknownName {
        /// The name.
        name: String,
        /// The known names and the names of rules.
        expected: String,
    },
    /// No rate, or a rate above that of the rule.
    #[error(
        "host `{name}`: rate {rate} of its options; expected at most {max}, the `max-rate` of `[[join]]` for {names}"
    )]
    Rate {
        /// The host.
        name: String,
        /// Its rate.
        rate: Rate,
        /// The maximum.
        max: Rate,
        /// The names of the rule.
        names: String,
    },
    /// An address or network outside of the networks of the rule.
    #[error(
        "host `{name}`: its address {address} is not allowed; expected addresses and networks in {networks}, the networks of `[[join]]` for {names}"
    )]
    Network {
        /// The host.
        name: String,
        /// The address or network.
        address: String,
        /// The networks of the rule.
        networks: String,
        /// The names of the rule.
        names: String,
    },
    /// Another host has the address, or one of the network.
    #[error(
        "host `{name}`: its address {address} is that of host `{owner}`; expected addresses and networks that no other host has; help: give each host its own, or remove `{owner}`"
    )]
    AddressTaken {
        /// The host.
        name: String,
        /// The address or network.
        address: String,
        /// The host that has it.
        owner: String,
    },
    /// The label that tells its position is missing, or is not the name of a switch.
    #[error(
        "host `{name}`: its label `{label}` is {value}; expected one of the switches {leaves}; help: `weir agent run --label {label}=SWITCH`"
    )]
    Position {
        /// The host.
        name: String,
        /// The name of the label.
        label: String,
        /// Its value, or `missing`.
        value: String,
        /// The switches to which hosts may attach.
        leaves: String,
    },
    /// It has joined at another switch.
    #[error(
        "host `{name}`: its label tells the switch `{leaf}`, and it has joined at `{former}`; expected the same; help: `weir ctl hosts remove {name}` if it has moved"
    )]
    Moved {
        /// The host.
        name: String,
        /// The switch by the label.
        leaf: String,
        /// The switch at which it has joined.
        former: String,
    },
    /// The hosts of the rule have all slots.
    #[error(
        "host `{name}`: {max} hosts have joined by the rule for {names}{at}; expected fewer; help: `weir ctl hosts remove` hosts that are gone, or raise `max-hosts`"
    )]
    Full {
        /// The host.
        name: String,
        /// The maximum number of hosts.
        max: u32,
        /// At which switch, if there is a topology.
        at: String,
        /// The names of the rule.
        names: String,
    },
    /// The minimum bandwidths of services do not fit into its link.
    #[error("host `{name}`: {reason}")]
    Bandwidth {
        /// The host.
        name: String,
        /// Why.
        reason: String,
    },
    /// The store cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The coordinator has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Limits lines about refused hosts, whose agents connect again each second.
pub(super) struct RefusalLog {
    start: Instant,
    limit: LogLimit,
}

impl RefusalLog {
    pub(super) fn new() -> RefusalLog {
        RefusalLog { start: Instant::now(), limit: LogLimit::default() }
    }

    fn log(&mut self, host: &str, reason: &str) {
        if self.limit.permits(host, reason, self.start.elapsed()) {
            warn!(host, "agent refused: {reason}");
        }
    }
}

/// The hosts of a configuration, and those that have joined before. Notes records that no longer fit the configuration.
pub(super) fn load_hosts(
    rules: &[JoinRule],
    mut table: HostTable,
    store: &Store,
    unfit: &mut UnfitRecords,
) -> Result<HostTable, String> {
    let mut records: Vec<(String, JoinedHost)> =
        store.records(Table::Hosts).map_err(|error| error.to_string())?;
    records.sort_by_key(|(_, joined)| joined.slot);
    for (name, joined) in records {
        // The configuration lists the host now.
        if table.number(&name).is_some() {
            continue;
        }
        // Hosts keep their slots, unless rules have fewer hosts now.
        let stored = table.first_slot().saturating_add(joined.slot);
        let rule = rules.iter().find(|rule| rule.matches(&name));
        if let Some(rule) = rule.filter(|_| !joined.is_removed) {
            let addresses = joined.addresses.clone();
            let claim =
                HostClaim { name: name.clone(), rate: Some(joined.rate), addresses, labels: BTreeMap::new() };
            if let Err(refusal) = check_claim(rule, &table, None, claim) {
                unfit.note("host", &name, refusal);
                continue;
            }
        }
        let slots = rule.and_then(|rule| slots_at(rules, rule, joined.leaf.as_deref()));
        let slot = slots.and_then(|slots| {
            let is_free = slots.contains(&joined.slot) && table.get(stored).is_none();
            if is_free { Some(stored) } else { table.free_slot(&slots) }
        });
        match slot.zip(joined.link()) {
            Some((slot, link)) => {
                // The configuration may have lost its topology.
                let leaf = joined.leaf.filter(|_| rule.is_some_and(|rule| rule.position.is_some()));
                let joined = JoinedHost { slot: slot - table.first_slot(), leaf, ..joined };
                table.set(slot, HostEntry { name, link, joined: Some(joined) });
            }
            None => unfit.note("host", &name, "the configuration does not let it join any more"),
        }
    }
    Ok(table)
}

impl Registry {
    /// The hosts at this moment.
    pub fn hosts(&self) -> Arc<HostTable> {
        Arc::clone(&self.hosts.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn replace_hosts(&self, table: HostTable) {
        *self.hosts.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
    }

    /// Whether an agent with this name may connect: it is configured, or a rule lets its host join.
    pub fn knows_agent(&self, name: &str) -> bool {
        self.agent_number(name).is_some() || self.rule(name).is_some()
    }

    /// The number of a host or switch.
    pub(super) fn agent_number(&self, name: &str) -> Option<u32> {
        let hosts = self.hosts();
        let switch = || self.switches.iter().position(|switch| switch.name == name);
        hosts.number(name).or_else(|| Some((hosts.slot_count() + switch()?) as u32))
    }

    /// The rule by which a host with this name may join.
    pub(super) fn rule(&self, name: &str) -> Option<&JoinRule> {
        let is_region = |name: &str| {
            let overlay = self.overlay().map(|overlay| overlay.config());
            overlay.is_some_and(|config| {
                config.numbers.contains_key(name) || config.area.regions().iter().any(|region| region == name)
            })
        };
        self.joins.iter().find(|rule| rule.matches(name)).filter(|_| !is_region(name))
    }

    /// The number of the host or switch of an agent that connects. A host that is not configured joins, or changes its rate and addresses.
    ///
    /// # Errors
    /// [`JoinRefusal`]: the host may not join with this name, rate and these addresses. Nothing has changed.
    pub async fn admit(&self, actor: &Actor, claim: HostClaim) -> Result<u32, JoinRefusal> {
        let mut turn = self.membership.lock().await;
        let name = claim.name.clone();
        let admitted = self.admit_in_turn(actor, claim).await;
        if let Err(refusal) = &admitted {
            turn.log(&name, &refusal.to_string());
        }
        self.lock_claims().record(&name, admitted.as_ref().map(|_| ()), Instant::now());
        admitted
    }

    fn lock_claims(&self) -> MutexGuard<'_, RefusedClaims> {
        self.refused_claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why other hosts may not join: they claim addresses of this one.
    pub fn claims_of_others(&self, name: &str) -> Vec<String> {
        self.lock_claims().conflicts_of(name, Instant::now())
    }

    /// As [`Registry::admit`]. The caller has locked the membership.
    async fn admit_in_turn(&self, actor: &Actor, claim: HostClaim) -> Result<u32, JoinRefusal> {
        let hosts = self.hosts();
        let known = self.agent_number(&claim.name);
        let is_joined =
            known.and_then(|number| hosts.get(number)).is_some_and(|entry| entry.joined.is_some());
        if let Some(number) = known.filter(|_| !is_joined) {
            return Ok(number);
        }
        let Some(rule) = self.rule(&claim.name) else {
            return Err(self.unknown_name(claim.name));
        };
        let leaf = find_leaf(rule, &claim)?;
        let (name, rate, addresses) = check_claim(rule, &hosts, known, claim)?;
        let former = known.and_then(|slot| hosts.get(slot)).and_then(|entry| entry.joined.clone());
        // The slot, by which flows have their paths, belongs to the switch.
        if let Some(former) = former.as_ref().filter(|former| former.leaf != leaf) {
            let text = |leaf: &Option<String>| leaf.clone().unwrap_or_else(|| "-".to_owned());
            return Err(JoinRefusal::Moved { name, leaf: text(&leaf), former: text(&former.leaf) });
        }
        let slot = match known {
            Some(slot) => slot,
            None => self.find_slot(rule, &hosts, &name, leaf.as_deref())?,
        };
        let link = Link { send: rate, recv: rate };
        let joined = JoinedHost {
            slot: slot - hosts.first_slot(),
            rate: rate.get() as u64,
            addresses,
            joined_unix_ms: former
                .as_ref()
                .map_or_else(crate::store::unix_millis, |former| former.joined_unix_ms),
            leaf,
            is_removed: false,
        };
        if former.as_ref() == Some(&joined) {
            return Ok(slot);
        }
        self.check_minima(&hosts, slot, &name, link).await?;
        self.store.put(Table::Hosts, &name, &joined).await?;
        let is_new = former.as_ref().is_none_or(|former| former.is_removed);
        self.audit.note_accepted(actor, json!(former), json!(joined));
        self.apply_host(slot, HostEntry { name: name.clone(), link, joined: Some(joined) }).await?;
        info!(host = name, %rate, "{}", if is_new { "host joined" } else { "rate or addresses of a host changed" });
        if is_new {
            self.events.send(EventKind::HostJoined, &name, None);
        }
        Ok(slot)
    }

    fn unknown_name(&self, name: String) -> JoinRefusal {
        let hosts = self.hosts();
        let known = hosts
            .iter()
            .map(|(_, entry)| &*entry.name)
            .chain(self.switches.iter().map(|switch| &*switch.name));
        let rules = self.joins.iter().map(|rule| &*rule.names);
        JoinRefusal::UnknownName { name, expected: crate::control_plane::join_names(known.chain(rules)) }
    }

    /// A free slot for a host of a rule.
    fn find_slot(
        &self,
        rule: &JoinRule,
        hosts: &HostTable,
        name: &str,
        leaf: Option<&str>,
    ) -> Result<u32, JoinRefusal> {
        let slots = slots_at(&self.joins, rule, leaf).unwrap_or_default();
        let members = slots.clone().filter_map(|slot| hosts.get(hosts.first_slot() + slot));
        let of_rule =
            members.filter(|entry| self.rule(&entry.name).is_some_and(|other| std::ptr::eq(other, rule)));
        let is_full = of_rule.count() >= rule.max_hosts as usize;
        hosts.free_slot(&slots).filter(|_| !is_full).ok_or_else(|| JoinRefusal::Full {
            name: name.to_owned(),
            max: rule.max_hosts,
            at: leaf.map_or_else(String::new, |leaf| format!(" at {leaf}")),
            names: rule.names.clone(),
        })
    }

    /// Checks that the minimum bandwidths of services fit into the link of a host.
    async fn check_minima(
        &self,
        hosts: &HostTable,
        slot: u32,
        name: &str,
        link: Link,
    ) -> Result<(), JoinRefusal> {
        let mut table = hosts.clone();
        table.set(slot, HostEntry { name: name.to_owned(), link, joined: None });
        let bandwidths = self.policy_state.lock().await.bandwidths.clone();
        let checked = self.network_bounds_of(&table).check(self.names.services(), &bandwidths);
        checked.map_err(|error| JoinRefusal::Bandwidth { name: name.to_owned(), reason: error.to_string() })
    }

    /// Applies the host of a slot to the control plane, to queues and to what the registry knows.
    async fn apply_host(&self, slot: u32, entry: HostEntry) -> Result<(), Stopped> {
        let mut table = HostTable::clone(&self.hosts());
        table.set(slot, entry.clone());
        self.replace_hosts(table);
        set_slot(&self.handle, slot, entry).await?;
        // A pause, or a link that is down, can name a host that joins again.
        self.update_links().await?;
        self.apply_pauses(&*self.pauses.lock().await).await?;
        self.apply_addresses().await
    }

    /// Applies the addresses and names of hosts to connections, queues and traffic.
    async fn apply_addresses(&self) -> Result<(), Stopped> {
        let mut sharing = self.sharing.lock().await;
        let addresses = Arc::clone(self.hosts().addresses());
        sharing.addresses = Arc::clone(&addresses);
        self.handle.call(move |plane, _| plane.set_addresses(addresses)).await?;
        if let Err(error) = sharing.sync_observed_connections() {
            warn!(%error, "observed connections cannot be applied to the queues");
        }
        sharing.division.update();
        self.send_all_queues(&sharing).await?;
        self.send_traffic(&sharing).await
    }

    /// Sets the slots of the hosts that had joined before the start.
    pub(super) async fn restore_hosts(&self) -> Result<(), Stopped> {
        let hosts = self.hosts();
        for (number, entry) in hosts.all() {
            if entry.joined.is_some() {
                set_slot(&self.handle, number, entry.clone()).await?;
            }
        }
        let addresses = Arc::clone(hosts.addresses());
        self.handle.call(move |plane, _| plane.set_addresses(addresses)).await
    }

    /// Removes a host that has joined. With `is_forced`, also if active coflows name it: it keeps its slot until none does.
    ///
    /// # Errors
    /// 404 if no host has the name, 409 if the host is configured, or active coflows name it and `is_forced` is not set, 503 if the store
    /// cannot be written.
    pub async fn remove_host(&self, actor: &Actor, name: &str, is_forced: bool) -> Result<(), Problem> {
        let _turn = self.membership.lock().await;
        let hosts = self.hosts();
        let found = hosts.number(name).and_then(|number| Some((number, hosts.get(number)?)));
        let (slot, entry) = found
            .filter(|(_, entry)| !entry.is_removed())
            .ok_or_else(|| Problem::not_found("host", name, super::EXPECTED_HOST))?;
        let Some(joined) = entry.joined.clone() else {
            let detail =
                format!("host `{name}` is in the configuration file; expected a host that has joined");
            return Err(Problem::conflict(&detail));
        };
        let active = self.handle.call(move |plane, _| plane.active_coflow_of_host(slot)).await?;
        if let Some(coflow) = active.filter(|_| !is_forced) {
            let detail = format!(
                "host `{name}` has flows of the active coflow `{coflow}`; expected none; help: wait for its coflows, or use `force`"
            );
            return Err(Problem::conflict(&detail));
        }
        let removed = JoinedHost { is_removed: true, ..joined.clone() };
        self.store.put(Table::Hosts, name, &removed).await?;
        self.audit.note_accepted(actor, json!(joined), Value::Null);
        let mut table = HostTable::clone(&hosts);
        table.set(slot, HostEntry { joined: Some(removed), ..entry.clone() });
        self.replace_hosts(table);
        self.handle.remove_host(slot).await?;
        self.apply_addresses().await?;
        info!(host = name, "host removed");
        self.events.send(EventKind::HostRemoved, name, None);
        self.free_slots().await.map_err(Problem::from)
    }

    /// Frees the slots of removed hosts that no registration names any more.
    pub(super) async fn free_unused_slots(&self) -> Result<(), Stopped> {
        if !self.hosts().all().any(|(_, entry)| entry.is_removed()) {
            return Ok(());
        }
        let _turn = self.membership.lock().await;
        self.free_slots().await
    }

    /// As [`Registry::free_unused_slots`]. The caller has locked the membership.
    async fn free_slots(&self) -> Result<(), Stopped> {
        let hosts = self.hosts();
        for (slot, entry) in hosts.all().filter(|(_, entry)| entry.is_removed()) {
            let is_named = self.sharing.lock().await.has_connection_of(slot);
            if is_named || self.handle.call(move |plane, _| plane.has_flows_of_host(slot)).await? {
                continue;
            }
            if let Err(error) = self.store.remove(Table::Hosts, &entry.name).await {
                warn!(host = entry.name, %error, "removed host cannot be removed from the store yet");
                continue;
            }
            let mut table = HostTable::clone(&self.hosts());
            table.clear(slot);
            self.replace_hosts(table);
            self.handle.call(move |plane, now| plane.free_slot(slot, now)).await?;
        }
        self.update_links().await?;
        self.apply_pauses(&*self.pauses.lock().await).await
    }
}

/// Gives a slot of the control plane to a host.
async fn set_slot(handle: &crate::Handle, slot: u32, entry: HostEntry) -> Result<(), Stopped> {
    let HostEntry { name, link, .. } = entry;
    handle.call(move |plane: &mut ControlPlane, now: f64| plane.set_slot(slot, &name, link, now)).await
}

/// Writes networks as the configuration has them: those of one address without the length of the prefix.
mod short_networks {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;
    use weir_proto::Network;

    pub fn serialize<S: Serializer>(networks: &[Network], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(networks.iter().map(Network::short_text))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Network>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        texts.iter().map(|text| Network::parse_short(text).map_err(D::Error::custom)).collect()
    }
}

/// The switch under which a host is, by its label; none without a topology.
fn find_leaf(rule: &JoinRule, claim: &HostClaim) -> Result<Option<String>, JoinRefusal> {
    let Some(position) = &rule.position else { return Ok(None) };
    let value = claim.labels.get(&position.label);
    if let Some(leaf) = value.filter(|value| position.leaves.contains(value)) {
        return Ok(Some(leaf.clone()));
    }
    Err(JoinRefusal::Position {
        name: claim.name.clone(),
        label: position.label.clone(),
        value: value.map_or_else(|| "missing".to_owned(), |value| format!("`{value}`")),
        leaves: crate::control_plane::join_names(position.leaves.iter().map(String::as_str)),
    })
}

/// Checks what an agent claims against a rule. Returns the name, the rate, and the addresses and networks, sorted.
fn check_claim(
    rule: &JoinRule,
    hosts: &HostTable,
    own: Option<u32>,
    claim: HostClaim,
) -> Result<(String, Rate, Vec<Network>), JoinRefusal> {
    let HostClaim { name, rate, mut addresses, .. } = claim;
    let rate = Rate::new(rate.unwrap_or(0) as f64).unwrap_or(Rate::ZERO);
    if rate.get() < 1.0 || rate > rule.max_rate {
        return Err(JoinRefusal::Rate { name, rate, max: rule.max_rate, names: rule.names.clone() });
    }
    addresses.sort_unstable();
    addresses.dedup();
    for network in &addresses {
        let address = network.short_text();
        if !rule.allows(network) {
            let networks: Vec<String> = rule.networks.iter().map(ToString::to_string).collect();
            let (networks, names) = (networks.join(", "), rule.names.clone());
            return Err(JoinRefusal::Network { name, address, networks, names });
        }
        let owner = hosts.addresses().owners_of_overlap(*network).find(|owner| Some(*owner) != own);
        if let Some(owner) = owner {
            return Err(JoinRefusal::AddressTaken { name, address, owner: hosts.name(owner).to_owned() });
        }
    }
    Ok((name, rate, addresses))
}
