//! Pauses of hosts and services: checks and stores changes, applies them to orders, and shows them. They outlive the coordinator.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use weir_core::timestamp;

use super::unfit::UnfitRecords;
use super::{Registry, unknown_host};
use crate::audit::{Actor, identity_name};
use crate::control_plane::{HostPause, PauseMode, Pauses, UnknownName};
use crate::control_thread::Stopped;
use crate::events::EventKind;
use crate::problem::{Location, Problem};
use crate::store::{Store, Table};

/// Key of the pauses in the store's [`Table::Settings`].
pub(super) const PAUSES_KEY: &str = "pauses";

/// The subject of events about the pause of all hosts.
const ALL: &str = "all";

/// One pause, as the store has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredPause {
    mode: PauseMode,
    /// Whether queues and marks end, too.
    queues: bool,
    since: String,
    by: String,
}

impl StoredPause {
    fn host_pause(&self) -> HostPause {
        HostPause { mode: self.mode, with_queues: self.queues }
    }

    /// Whether both do the same.
    fn is_same(&self, other: &StoredPause) -> bool {
        (self.mode, self.queues) == (other.mode, other.queues)
    }
}

/// All pauses, as the store has them, by the names of hosts and services.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredPauses {
    all: Option<StoredPause>,
    hosts: BTreeMap<String, StoredPause>,
    services: BTreeMap<String, StoredPause>,
}

/// A request to pause or resume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PauseChange {
    /// None resumes.
    pub mode: Option<PauseMode>,
    /// All hosts and switches. Pauses of single hosts and services are separate.
    pub all: bool,
    /// Names of hosts.
    pub hosts: Vec<String>,
    /// Names of services.
    pub services: Vec<String>,
    /// Whether queues and marks of the hosts end, too.
    pub queues: bool,
}

/// The object of a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PauseTarget {
    /// All hosts and switches.
    All,
    /// One host.
    Host,
    /// One service.
    Service,
}

/// A pause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct PauseState {
    /// The kind of object that is paused.
    pub target: PauseTarget,
    /// The name of the host or service; `null` for all.
    pub name: Option<String>,
    /// Its mode.
    pub mode: PauseMode,
    /// Whether the hosts have no queues and no marks; always so for hosts in shadow mode.
    pub queues: bool,
    /// When it began, in UTC.
    pub since: String,
    /// Who requested it: the identity of the client's certificate, or `plain text`.
    pub by: String,
}

impl PauseState {
    /// The service that it is about, if it is about one.
    pub fn service(&self) -> Option<&str> {
        self.name.as_deref().filter(|_| self.target == PauseTarget::Service)
    }
}

impl StoredPauses {
    pub(super) fn load(store: &Store) -> Result<StoredPauses, String> {
        let stored = store.get(Table::Settings, PAUSES_KEY).map_err(|error| error.to_string())?;
        Ok(stored.unwrap_or_default())
    }

    /// The same pauses after a change by `by`. A repeated pause keeps its beginning.
    fn changed(&self, change: &PauseChange, by: &str) -> StoredPauses {
        let mut pauses = self.clone();
        let Some(mode) = change.mode else {
            if change.all {
                pauses.all = None;
            }
            change.hosts.iter().for_each(|host| drop(pauses.hosts.remove(host)));
            change.services.iter().for_each(|service| drop(pauses.services.remove(service)));
            return pauses;
        };
        let since = timestamp::format(SystemTime::now());
        let pause = |known: Option<StoredPause>, queues| {
            let new = StoredPause { mode, queues, since: since.clone(), by: by.to_owned() };
            known.filter(|known| known.is_same(&new)).unwrap_or(new)
        };
        if change.all {
            pauses.all = Some(pause(pauses.all.take(), change.queues));
        }
        for host in &change.hosts {
            let pause = pause(pauses.hosts.remove(host), change.queues);
            pauses.hosts.insert(host.clone(), pause);
        }
        for service in &change.services {
            let pause = pause(pauses.services.remove(service), false);
            pauses.services.insert(service.clone(), pause);
        }
        pauses
    }

    /// The services in shadow mode, whose packets have no marks.
    pub(super) fn shadow_services(&self) -> BTreeSet<String> {
        let in_shadow = self.services.iter().filter(|(_, pause)| pause.mode == PauseMode::Shadow);
        in_shadow.map(|(name, _)| name.clone()).collect()
    }

    /// The mode that applies to all traffic of a service.
    pub(super) fn service_mode(&self, service: &str) -> Option<PauseMode> {
        let mode = |pause: Option<&StoredPause>| pause.map(|pause| pause.mode);
        mode(self.all.as_ref()).max(mode(self.services.get(service)))
    }

    fn states(&self) -> Vec<PauseState> {
        let to_state = |target, name: Option<&String>, pause: &StoredPause| PauseState {
            target,
            name: name.cloned(),
            mode: pause.mode,
            queues: pause.queues || target != PauseTarget::Service && pause.mode == PauseMode::Shadow,
            since: pause.since.clone(),
            by: pause.by.clone(),
        };
        let all = self.all.iter().map(|pause| to_state(PauseTarget::All, None, pause));
        let hosts = self.hosts.iter().map(|(name, pause)| to_state(PauseTarget::Host, Some(name), pause));
        let services =
            self.services.iter().map(|(name, pause)| to_state(PauseTarget::Service, Some(name), pause));
        all.chain(hosts).chain(services).collect()
    }

    /// The differences to earlier pauses: the subject of an event, and the service.
    fn changes_since(&self, before: &StoredPauses) -> Vec<(String, Option<String>)> {
        let changed = |now: &BTreeMap<String, StoredPause>, before: &BTreeMap<String, StoredPause>| {
            let names: BTreeSet<&String> = now.keys().chain(before.keys()).collect();
            let is_changed = |name: &&String| now.get(*name) != before.get(*name);
            names.into_iter().filter(is_changed).cloned().collect::<Vec<String>>()
        };
        let all = (self.all != before.all).then(|| (ALL.to_owned(), None));
        let hosts = changed(&self.hosts, &before.hosts).into_iter().map(|host| (host, None));
        let services = changed(&self.services, &before.services).into_iter();
        all.into_iter().chain(hosts).chain(services.map(|name| (name.clone(), Some(name)))).collect()
    }
}

impl Registry {
    /// All pauses.
    pub async fn pauses(&self) -> Vec<PauseState> {
        self.pauses.lock().await.states()
    }

    /// Pauses hosts and services, or resumes them. Repeating a request changes nothing.
    ///
    /// # Errors
    /// 422 for unknown names and without a target, 409 for a host or service to resume while all are paused, 503 if the store cannot be
    /// written. No pause is changed.
    pub async fn change_pauses(&self, actor: &Actor, change: &PauseChange) -> Result<(), Problem> {
        let mut pauses = self.pauses.lock().await;
        self.check_pause_change(change, &pauses)?;
        if change.mode.is_none() && !change.all && pauses.all.is_some() {
            let detail = "all hosts are paused; expected none or single ones; help: resume all";
            return Err(Problem::conflict(detail));
        }
        let changed = pauses.changed(change, &identity_name(actor.identity()));
        if changed == *pauses {
            return Ok(());
        }
        self.store.put(Table::Settings, PAUSES_KEY, &changed).await?;
        let before = std::mem::replace(&mut *pauses, changed);
        self.apply_pauses(&pauses).await?;
        let mut sharing = self.sharing.lock().await;
        let shadow_services = pauses.shadow_services();
        if sharing.shadow_services != shadow_services {
            sharing.shadow_services = shadow_services;
            self.send_all_queues(&sharing).await?;
        }
        self.audit.note_accepted(actor, json!(before), json!(*pauses));
        for (subject, service) in pauses.changes_since(&before) {
            self.events.send(EventKind::PauseChanged, &subject, service);
        }
        Ok(())
    }

    fn check_pause_change(&self, change: &PauseChange, pauses: &StoredPauses) -> Result<(), Problem> {
        let invalid = |location, wrong: &str, expected: &str| {
            Err(Problem::located(StatusCode::UNPROCESSABLE_ENTITY, location, wrong, expected))
        };
        let PauseChange { mode, all, hosts, services, queues } = change;
        if !all && hosts.is_empty() && services.is_empty() {
            return invalid(
                Location::Body(String::new()),
                "nothing is named",
                "`all`, `hosts` or `services`",
            );
        }
        if *queues && (mode.is_none() || !services.is_empty()) {
            let expected = "a pause of `hosts` or of `all`: the queues of a service stay for others";
            return invalid(Location::field("queues"), "no queues end", expected);
        }
        // The configuration may have lost a host or service that is paused.
        let ends_pause = |known: &BTreeMap<String, _>, name| mode.is_none() && known.contains_key(name);
        let known_hosts = self.hosts();
        for (at, host) in hosts.iter().enumerate() {
            if known_hosts.number(host).is_none() && !ends_pause(&pauses.hosts, host) {
                return Err(unknown_host(host, Location::Body(format!("/hosts/{at}"))));
            }
        }
        let new_services = services.iter().enumerate();
        for (at, service) in new_services.filter(|(_, service)| !ends_pause(&pauses.services, service)) {
            UnknownName::check_service(&self.names, service).map_err(|unknown| {
                Problem::invalid(Location::Body(format!("/services/{at}")), service, &unknown.expected)
            })?;
        }
        Ok(())
    }

    /// Applies stored pauses at the start, and notes those whose host or service the configuration has lost.
    pub(super) async fn restore_pauses(&self, unfit: &mut UnfitRecords) -> Result<(), Stopped> {
        let stored = self.pauses.lock().await;
        let hosts = self.hosts();
        for name in
            stored.hosts.keys().filter(|name| hosts.number(name).is_none() && self.rule(name).is_none())
        {
            unfit.note("pause of host", name, "the host is not in the configuration");
        }
        let is_lost = |name: &&String| UnknownName::check_service(&self.names, name).is_err();
        for name in stored.services.keys().filter(is_lost) {
            unfit.note("pause of service", name, "the service is not in the configuration");
        }
        self.apply_pauses(&stored).await
    }

    /// Applies pauses to the control plane. Ignores hosts that do not exist, until they join, and services that the configuration has lost.
    pub(super) async fn apply_pauses(&self, stored: &StoredPauses) -> Result<(), Stopped> {
        let hosts = self.hosts();
        let host = |(name, pause): (&String, &StoredPause)| Some((hosts.number(name)?, pause.host_pause()));
        let service = |(name, pause): (&String, &StoredPause)| {
            Some((UnknownName::check_service(&self.names, name).ok()?, pause.mode))
        };
        let pauses = Pauses {
            all: stored.all.as_ref().map(StoredPause::host_pause),
            hosts: stored.hosts.iter().filter_map(host).collect(),
            services: stored.services.iter().filter_map(service).collect(),
        };
        self.handle.call(move |plane, now| plane.set_pauses(pauses, now)).await
    }
}
