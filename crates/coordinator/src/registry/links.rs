//! Links of hosts and between switches that are down: what agents report, and what operators state. Applies them to schedules, to the
//! allocator and to queues, and shows them.
//!
//! A link has the name of its host, or `A:B` between two switches, with a number from 2 for further cables, as in `A:B:2`. It is down while
//! an operator states so, or the agent of one of its ends reports so. What operators state outlives the coordinator; agents report again.
//! The report of an agent that has stopped counts until its next one. A withdrawn report counts for [`HOLD_TIME`] more, so that a
//! link that flaps does not change paths at each report.
//!
//! States and the links of hosts change at once. One task per registry applies links between switches ([`Registry::apply_path_changes`]),
//! since the computation of paths takes long in large networks. Changes during a computation are applied together after it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::watch;
use tracing::{error, info, warn};
use utoipa::ToSchema;
use weir_core::model::topology::CableChange;
use weir_core::model::{LinkId, NodeId, Topology, Trunks};
use weir_core::timestamp;
use weir_core::units::Rate;

use super::Registry;
use super::routing::PortMap;
use super::unfit::UnfitRecords;
use crate::audit::{Actor, identity_name};
use crate::config::{CableEnd, Config, Switch};
use crate::control_thread::Stopped;
use crate::events::EventKind;
use crate::problem::{Location, Problem};
use crate::store::{Store, Table};

/// Key of the links that operators have taken down in the store's [`Table::Settings`].
pub(super) const LINKS_KEY: &str = "links";

/// Time for which a link stays down after its agent no longer reports it as down.
const HOLD_TIME: Duration = Duration::from_secs(2);

/// The expected value of a link's name.
const EXPECTED_LINK: &str = "a link of GET /v1/links";

/// A link that an operator has taken down, as the store has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredLink {
    since: String,
    by: String,
}

/// By name: the links that operators have taken down.
pub(super) type StoredLinks = BTreeMap<String, StoredLink>;

/// Whether a link can carry packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LinkCondition {
    /// It can.
    Up,
    /// It cannot: flows use other links, or wait.
    Down,
}

/// A request of an operator about links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkChange {
    /// Their names.
    pub links: Vec<String>,
    /// Down until the next request, or as agents report.
    pub state: LinkCondition,
}

/// A link.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct LinkState {
    /// Its name: that of its host, or `A:B` between two switches.
    pub name: String,
    /// The names of its ends. The second one is `-` if the configuration does not have the switch of the host.
    pub ends: Vec<String>,
    /// Its capacity from the first end to the second, in bytes per second; `null` if the configuration does not have it.
    pub bytes_per_second: Option<f64>,
    /// Its capacity from the second end to the first.
    pub reverse_bytes_per_second: Option<f64>,
    /// Whether it can carry packets.
    pub state: LinkCondition,
    /// Why it is down: `operator`, and `reported by` each agent that reports so.
    pub reasons: Vec<String>,
    /// Since when an operator has taken it down, in UTC; otherwise `null`.
    pub since: Option<String>,
    /// The identity of that operator, or `plain text`; otherwise `null`.
    pub by: Option<String>,
}

/// A link of an agent: the agent's number, and the link's.
type AgentLink = (u32, u32);

/// A link between two switches.
#[derive(Debug)]
struct SwitchLink {
    name: String,
    ends: [String; 2],
    rate: Option<Rate>,
    /// The switch, by its index, and the port at each end, if the configuration lists both.
    ports: Option<[(u32, u32); 2]>,
    /// Its cable of the topology, which parallel links share.
    cable: Option<LinkId>,
}

/// The links of the configuration, apart from those of hosts, which join and leave.
#[derive(Debug)]
pub(super) struct LinkTable {
    between_switches: Vec<SwitchLink>,
    /// By host: the switch, by its index, and the port whose report is about all of the host's link.
    port_of_host: BTreeMap<u32, (u32, u32)>,
    /// By host: the name of its switch, or of its switches.
    switch_of_host: BTreeMap<u32, String>,
}

/// The effect of all links that are down.
#[derive(Debug, Default, Clone, PartialEq)]
struct Failures {
    hosts: BTreeSet<u32>,
    cables: Vec<(LinkId, CableChange)>,
    /// Ports between switches, each by its switch's index and its number.
    ports: BTreeSet<(u32, u32)>,
}

/// The links that are down.
pub(super) struct LinkStates {
    by_operators: StoredLinks,
    reported: BTreeSet<AgentLink>,
    /// When agents stopped to report links as down, less than [`HOLD_TIME`] ago.
    withdrawn: BTreeMap<AgentLink, Instant>,
    failures: watch::Sender<Failures>,
    /// The failures that paths avoid.
    applied: Failures,
    /// The names of the links.
    down: BTreeSet<String>,
}

impl LinkStates {
    pub(super) fn load(store: &Store) -> Result<LinkStates, String> {
        let stored: Option<StoredLinks> =
            store.get(Table::Settings, LINKS_KEY).map_err(|error| error.to_string())?;
        Ok(LinkStates {
            by_operators: stored.unwrap_or_default(),
            reported: BTreeSet::new(),
            withdrawn: BTreeMap::new(),
            failures: watch::Sender::default(),
            applied: Failures::default(),
            down: BTreeSet::new(),
        })
    }

    /// Whether a link is down that has these ends at agents.
    fn is_down(&self, name: &str, ends: &[AgentLink]) -> bool {
        self.by_operators.contains_key(name) || ends.iter().any(|end| self.is_reported(end))
    }

    /// Whether an agent reports a link as down, or has done so less than [`HOLD_TIME`] ago.
    fn is_reported(&self, end: &AgentLink) -> bool {
        self.reported.contains(end) || self.withdrawn.contains_key(end)
    }

    /// Notes the reports of all agents, if there are new ones, and ends hold times. Returns whether links can have changed.
    fn update_reports(&mut self, reports: Option<BTreeMap<u32, Vec<u32>>>, now: Instant) -> bool {
        let held = self.withdrawn.len();
        self.withdrawn.retain(|_, withdrawn_at| now.duration_since(*withdrawn_at) < HOLD_TIME);
        let Some(reports) = reports else { return self.withdrawn.len() < held };
        let to_links = |(agent, links): (u32, Vec<u32>)| links.into_iter().map(move |link| (agent, link));
        let reported: BTreeSet<AgentLink> = reports.into_iter().flat_map(to_links).collect();
        self.withdrawn.extend(self.reported.difference(&reported).map(|&link| (link, now)));
        self.withdrawn.retain(|link, _| !reported.contains(link));
        self.reported = reported;
        true
    }
}

impl LinkTable {
    pub(super) fn new(config: &Config) -> LinkTable {
        let topology = config.topology.as_ref();
        let (mut port_of_host, mut switch_of_host) = (BTreeMap::new(), BTreeMap::new());
        for node in (0..topology.map_or(0, Topology::hosts) as u32).map(NodeId) {
            switch_of_host
                .insert(node.0, topology.map_or_else(String::new, |known| switches_of(known, node)));
        }
        for (index, switch) in (0u32..).zip(&config.switches) {
            for (port, end) in (0u32..).zip(&switch.ports) {
                let &CableEnd::Host(host) = end else { continue };
                // One of several cables of a host may fail.
                if topology.is_none_or(|known| known.outgoing_links(NodeId(host)).len() == 1) {
                    port_of_host.insert(host, (index, port));
                }
                switch_of_host.entry(host).or_insert_with(|| switch.name.clone());
            }
        }
        let between_switches = links_between_switches(&config.switches, topology);
        LinkTable { between_switches, port_of_host, switch_of_host }
    }
}

/// The names of the switches of a host.
fn switches_of(topology: &Topology, host: NodeId) -> String {
    let cables = topology.outgoing_links(host).iter();
    let names: Vec<&str> = cables.map(|&cable| topology.name(topology.link(cable).to)).collect();
    names.join(", ")
}

/// The links between the switches of the configuration, then those between other switches of the topology.
fn links_between_switches(switches: &[Switch], topology: Option<&Topology>) -> Vec<SwitchLink> {
    let mut ports: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
    for (index, switch) in (0u32..).zip(switches) {
        for (port, end) in (0u32..).zip(&switch.ports) {
            if let &CableEnd::Switch(other) = end {
                ports.entry((index, other)).or_default().push(port);
            }
        }
    }
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    let mut name_link = |ends: &[String; 2]| {
        let name = ends.join(":");
        let count = counts.entry(name.clone()).or_default();
        *count += 1;
        if *count == 1 { name } else { format!("{name}:{count}") }
    };
    let (mut links, mut listed_cables) = (Vec::new(), BTreeSet::new());
    for (&(from, to), own) in ports.range(..).filter(|((from, to), _)| from < to) {
        let Some(others) = ports.get(&(to, from)) else { continue };
        let ends = [from, to].map(|index| switches[index as usize].name.clone());
        let cable = topology.and_then(|known| find_cable(known, &ends));
        listed_cables.extend(cable);
        let rate = topology.zip(cable).map(|(known, cable)| known.link(cable).rate.get());
        let rate = rate.and_then(|rate| Rate::new(rate / own.len() as f64));
        for (&port, &other) in own.iter().zip(others) {
            let (name, ports) = (name_link(&ends), Some([(from, port), (to, other)]));
            links.push(SwitchLink { name, ends: ends.clone(), rate, ports, cable });
        }
    }
    for (number, link) in (0u32..).zip(topology.map_or(&[][..], Topology::links)).step_by(2) {
        let Some(topology) = topology else { break };
        if topology.is_host_link(*link) || listed_cables.contains(&LinkId(number)) {
            continue;
        }
        let ends = [link.from, link.to].map(|node| topology.name(node).to_owned());
        let (name, cable) = (name_link(&ends), Some(LinkId(number)));
        links.push(SwitchLink { name, ends, rate: Some(link.rate), ports: None, cable });
    }
    links
}

/// The cable between two switches, by its link of the lower number.
fn find_cable(topology: &Topology, ends: &[String; 2]) -> Option<LinkId> {
    let (from, to) = (topology.find_node(&ends[0])?, topology.find_node(&ends[1])?);
    let link = topology.link_between(from, to)?;
    Some(LinkId(link.0.min(link.reverse().0)))
}

impl Registry {
    /// All links: those of hosts, then those between switches.
    pub async fn link_states(&self) -> Vec<LinkState> {
        let links = self.links.lock().await;
        let to_state = |name: &str, ends: [String; 2], rates: [Option<f64>; 2], agents: &[AgentLink]| {
            let stored = links.by_operators.get(name);
            let reporters = agents.iter().filter(|end| links.is_reported(end));
            let reported = reporters.map(|&(agent, _)| format!("reported by {}", self.agent_name(agent)));
            let reasons: Vec<String> =
                stored.map(|_| "operator".to_owned()).into_iter().chain(reported).collect();
            LinkState {
                name: name.to_owned(),
                ends: ends.into(),
                bytes_per_second: rates[0],
                reverse_bytes_per_second: rates[1],
                state: if reasons.is_empty() { LinkCondition::Up } else { LinkCondition::Down },
                reasons,
                since: stored.map(|stored| stored.since.clone()),
                by: stored.map(|stored| stored.by.clone()),
            }
        };
        let hosts = self.hosts();
        let of_hosts = hosts.iter().map(|(number, entry)| {
            let switch = self.link_table.switch_of_host.get(&number).map_or("-", String::as_str);
            let rates = [entry.link.send, entry.link.recv].map(|rate| Some(rate.get()));
            to_state(&entry.name, [entry.name.clone(), switch.to_owned()], rates, &self.ends_of_host(number))
        });
        let of_switches = self.link_table.between_switches.iter().map(|link| {
            let rate = link.rate.map(Rate::get);
            to_state(&link.name, link.ends.clone(), [rate, rate], &self.ends_of_switch_link(link))
        });
        of_hosts.chain(of_switches).collect()
    }

    /// The number of links that are down.
    pub async fn failed_link_count(&self) -> usize {
        self.links.lock().await.down.len()
    }

    /// Takes links down, or ends that and the hold time of reports. Repeating a request changes nothing.
    ///
    /// # Errors
    /// 422 for unknown links and without any, 503 if the store cannot be written. Nothing is changed.
    pub async fn change_links(&self, actor: &Actor, change: &LinkChange) -> Result<(), Problem> {
        let mut links = self.links.lock().await;
        self.check_link_change(change, &links.by_operators)?;
        let mut changed = links.by_operators.clone();
        let stored =
            StoredLink { since: timestamp::format(SystemTime::now()), by: identity_name(actor.identity()) };
        for name in &change.links {
            match change.state {
                LinkCondition::Up => drop(changed.remove(name)),
                LinkCondition::Down => drop(changed.entry(name.clone()).or_insert_with(|| stored.clone())),
            }
        }
        if changed != links.by_operators {
            self.store.put(Table::Settings, LINKS_KEY, &changed).await?;
            self.audit.note_accepted(actor, json!(links.by_operators), json!(changed));
            links.by_operators = changed;
        }
        if change.state == LinkCondition::Up {
            let ends = self.ends_of_links(&change.links);
            links.withdrawn.retain(|end, _| !ends.contains(end));
        }
        self.apply_links(&mut links).await?;
        Ok(())
    }

    fn link_names(&self) -> BTreeSet<String> {
        let of_hosts = self.hosts();
        let of_hosts = of_hosts.iter().map(|(_, entry)| &entry.name);
        of_hosts.chain(self.link_table.between_switches.iter().map(|link| &link.name)).cloned().collect()
    }

    /// Notes the links of the store that the configuration has lost. A link can belong to a host that joins later.
    pub(super) async fn note_unknown_links(&self, unfit: &mut UnfitRecords) {
        let known = self.link_names();
        let links = self.links.lock().await;
        for name in
            links.by_operators.keys().filter(|name| !known.contains(*name) && self.rule(name).is_none())
        {
            unfit.note("link that is down", name, "the configuration has no link of this name");
        }
    }

    fn check_link_change(&self, change: &LinkChange, by_operators: &StoredLinks) -> Result<(), Problem> {
        if change.links.is_empty() {
            let (status, at) = (StatusCode::UNPROCESSABLE_ENTITY, Location::field("links"));
            return Err(Problem::located(status, at, "nothing is named", EXPECTED_LINK));
        }
        let known = self.link_names();
        // The configuration may have lost a link that is down.
        let ends = |name: &str| change.state == LinkCondition::Up && by_operators.contains_key(name);
        let unknown = |(_, name): &(usize, &String)| !known.contains(*name) && !ends(name);
        match change.links.iter().enumerate().find(unknown) {
            Some((at, name)) => {
                Err(Problem::invalid(Location::Body(format!("/links/{at}")), name, EXPECTED_LINK))
            }
            None => Ok(()),
        }
    }

    /// Applies what agents have reported about links since the last call, and ends hold times.
    pub(super) async fn apply_link_reports(&self) -> Result<(), Stopped> {
        let reports = self.handle.call(|plane, _| plane.take_link_reports()).await?;
        let mut links = self.links.lock().await;
        if !links.update_reports(reports, Instant::now()) {
            return Ok(());
        }
        self.apply_links(&mut links).await
    }

    /// Applies the links of the store that are down. Sends no events: they were down before.
    pub(super) async fn restore_links(&self) -> Result<(), Stopped> {
        let mut links = self.links.lock().await;
        links.down = self.find_failures(&links).1;
        self.apply_links(&mut links).await?;
        drop(links);
        self.apply_paths().await
    }

    /// Applies the links that are down, after a change of hosts.
    pub(super) async fn update_links(&self) -> Result<(), Stopped> {
        let mut links = self.links.lock().await;
        self.apply_links(&mut links).await
    }

    /// Applies the links that are down, if their effect has changed. [`Registry::apply_path_changes`] applies those between switches.
    async fn apply_links(&self, links: &mut LinkStates) -> Result<(), Stopped> {
        let (failures, down) = self.find_failures(links);
        if failures.hosts != links.failures.borrow().hosts {
            let hosts = failures.hosts.clone();
            self.handle.call(move |plane, now| plane.set_cut_off_hosts(hosts, now)).await?;
        }
        links.failures.send_if_modified(|current| {
            let is_changed = *current != failures;
            *current = failures;
            is_changed
        });
        let former = std::mem::replace(&mut links.down, down);
        for name in links.down.difference(&former) {
            warn!(link = name, "link is down");
            self.events.send(EventKind::LinkDown, name, None);
        }
        for name in former.difference(&links.down) {
            info!(link = name, "link is up again");
            self.events.send(EventKind::LinkUp, name, None);
        }
        Ok(())
    }

    /// Lets paths avoid the links that are down, until the coordinator stops. Only one call at a time.
    pub(super) async fn apply_path_changes(&self) -> Result<(), Stopped> {
        let mut failures = self.links.lock().await.failures.subscribe();
        loop {
            self.apply_paths().await?;
            failures.changed().await.map_err(|_| Stopped)?;
        }
    }

    /// Lets paths avoid the links that are down, if these have changed. Does not lock the links during the computation.
    async fn apply_paths(&self) -> Result<(), Stopped> {
        let (failures, applied) = {
            let links = self.links.lock().await;
            let failures = links.failures.borrow().clone();
            (failures, links.applied.clone())
        };
        if failures.cables != applied.cables
            && let Some(topology) = &self.topology
        {
            self.replace_trunks(topology.clone(), failures.cables.clone()).await?;
        }
        if failures.ports != applied.ports {
            self.replace_ports(failures.ports.clone()).await?;
        }
        self.links.lock().await.applied = failures;
        Ok(())
    }

    /// The effect of the links that are down, and their names.
    fn find_failures(&self, links: &LinkStates) -> (Failures, BTreeSet<String>) {
        let (mut failures, mut down) = (Failures::default(), BTreeSet::new());
        for (number, entry) in self.hosts().iter() {
            if links.is_down(&entry.name, &self.ends_of_host(number)) {
                failures.hosts.insert(number);
                down.insert(entry.name.clone());
            }
        }
        // The number of parallel links of each cable, and of those that are up.
        let mut counts: BTreeMap<LinkId, (u32, u32)> = BTreeMap::new();
        for link in &self.link_table.between_switches {
            let is_down = links.is_down(&link.name, &self.ends_of_switch_link(link));
            if let Some(cable) = link.cable {
                let (all, up) = counts.entry(cable).or_default();
                (*all, *up) = (*all + 1, *up + u32::from(!is_down));
            }
            if is_down {
                failures.ports.extend(link.ports.into_iter().flatten());
                down.insert(link.name.clone());
            }
        }
        let rate = |cable| self.topology.as_ref().map_or(0.0, |known| known.link(cable).rate.get());
        let to_change = |(cable, (all, up)): (LinkId, (u32, u32))| {
            let part = Rate::new(rate(cable) * f64::from(up) / f64::from(all));
            let change = part.filter(|_| up > 0).map_or(CableChange::Down, CableChange::Rate);
            (up < all).then_some((cable, change))
        };
        failures.cables = counts.into_iter().filter_map(to_change).collect();
        (failures, down)
    }

    /// The links of agents at both ends of the link of a host.
    fn ends_of_host(&self, host: u32) -> Vec<AgentLink> {
        let port = self.link_table.port_of_host.get(&host).map(|&port| self.agent_link(port));
        [(host, 0)].into_iter().chain(port).collect()
    }

    /// The links of agents at both ends of a link.
    fn ends_of_switch_link(&self, link: &SwitchLink) -> Vec<AgentLink> {
        link.ports.into_iter().flatten().map(|port| self.agent_link(port)).collect()
    }

    /// The links of agents at the ends of links with these names.
    fn ends_of_links(&self, names: &[String]) -> BTreeSet<AgentLink> {
        let hosts = self.hosts();
        let of_hosts = hosts.iter().filter(|(_, entry)| names.contains(&entry.name));
        let of_hosts = of_hosts.flat_map(|(number, _)| self.ends_of_host(number));
        let of_switches = self.link_table.between_switches.iter().filter(|link| names.contains(&link.name));
        of_hosts.chain(of_switches.flat_map(|link| self.ends_of_switch_link(link))).collect()
    }

    /// The port of a switch as a link of its agent.
    fn agent_link(&self, (switch, port): (u32, u32)) -> AgentLink {
        (self.hosts().slot_count() as u32 + switch, port)
    }

    /// Lets the control plane decide over the links of the topology after these changes.
    async fn replace_trunks(
        &self,
        topology: Topology,
        changes: Vec<(LinkId, CableChange)>,
    ) -> Result<(), Stopped> {
        // Takes long in large networks.
        let compute = move || Trunks::even_split_after(topology, &changes);
        let trunks = tokio::task::spawn_blocking(compute).await.map_err(|_| Stopped)?;
        let policy_state = self.policy_state.lock().await;
        let policy = policy_state.policy.build(&self.names, &policy_state.weights);
        let set = self.handle.call(move |plane, now| plane.set_trunks(trunks, policy, now)).await?;
        if let Err(refusal) = set {
            error!(%refusal, "links that have failed cannot be applied to schedules");
        }
        Ok(())
    }

    /// Computes the queues of links between switches for the paths without these ports.
    async fn replace_ports(&self, failed_ports: BTreeSet<(u32, u32)>) -> Result<(), Stopped> {
        let (hosts, switches) = (self.hosts().slot_count(), self.switches.clone());
        let compute = move || PortMap::new(hosts, &switches, &failed_ports);
        let port_map = tokio::task::spawn_blocking(compute).await.map_err(|_| Stopped)?;
        let limits =
            self.port_limits.map(|default| port_map.port_limits(&self.switches, default)).unwrap_or_default();
        let mut sharing = self.sharing.lock().await;
        match sharing.with_ports(Arc::new(port_map), limits) {
            Ok(updated) => {
                let changed = updated.applications_with_other_levels(&sharing);
                *sharing = updated;
                self.send_level_events(&sharing, &changed);
            }
            Err(problem) => error!(%problem, "links that have failed cannot be applied to queues"),
        }
        self.send_all_queues(&sharing).await
    }
}
