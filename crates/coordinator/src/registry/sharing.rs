//! Registers applications and their connections (Saba, section 6), and assigns priority levels to applications and queues to
//! ports.
//!
//! Each host has two ports, one out and one in. A connection crosses the port out of its sender, the port into its receiver,
//! and ports between switches ([`PortMap`]). The ports into hosts and between switches are ports of switches: if the
//! configuration lists the switch, the registry sends it the queues of these ports.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use weir_core::model::ServiceNames;
use weir_core::netshare::shares_with_minima;
use weir_core::saba::controller::{AppId, Port, PortLimits};
use weir_proto::{MAX_APPLICATIONS, NetworkTable, ObservedConnections, Queues};
use weir_trace::sensitivity::SensitivityTable;

use super::bodies::{
    ApplicationBody, ConnectionBody, EXPECTED_APPLICATION_ID, Ends, TrafficBody, check_id, service_name,
    service_of,
};
use super::division::LinkDivision;
use super::flow_weights::FlowWeights;
use super::routing::PortMap;
use super::unfit::UnfitRecords;
use super::{HostTable, Registry, unknown_host};
use crate::audit::Actor;
use crate::config::{CableEnd, Config, QueueAssignment};
use crate::control_plane::{ControlPlane, ServiceWeights, UnknownName};
use crate::control_thread::Stopped;
use crate::events::EventKind;
use crate::problem::{Location, Problem};
use crate::quota::{self, QuotaReached, ServiceQuota};
use crate::service_bandwidth::ServiceBandwidth;
use crate::store::{Store, Table};

/// A registered application.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Application {
    /// Its id.
    pub id: String,
    /// The service that it belongs to.
    pub service: String,
    /// Name of its model in the sensitivity table.
    pub model: Option<String>,
    /// Its priority level, from 0: packets of level 0 have the mark (DSCP) 1.
    pub level: u16,
    /// Its traffic of unmodified programs; absent if none is registered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic: Option<TrafficBody>,
}

/// The queues of a link in one direction.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct PortQueues {
    /// The host, or the switch that sends to another switch.
    pub host: String,
    /// `out` of the host, `in` to the host, or `to SWITCH`: all links between these two switches have the same queues.
    pub direction: String,
    /// The guaranteed fraction of each queue; the sum is 1. At links of hosts, it includes the minimum bandwidths of services; elsewhere,
    /// it is the weight.
    pub weights: Vec<f64>,
    /// The queue of each priority level.
    pub queue_of: Vec<u16>,
}

/// An object of the API, and its number in the division.
pub(super) struct Numbered<T> {
    pub(super) number: u64,
    pub(super) body: T,
}

/// The sending host, the application, and the receiving host if the configuration has its address.
pub(super) type ObservedKey = (u32, Arc<str>, Option<u32>);

/// Division of links, with the ids and names of its objects.
pub(super) struct SharingState {
    pub(super) division: LinkDivision,
    /// The fraction of links that packets without a class are guaranteed.
    unclassified_fraction: f64,
    pub(super) port_map: Arc<PortMap>,
    sensitivity_table: SensitivityTable,
    names: ServiceNames,
    /// Addresses and networks of hosts, with the host's number.
    pub(super) addresses: Arc<NetworkTable<u32>>,
    pub(super) applications: BTreeMap<Arc<str>, Numbered<ApplicationBody>>,
    /// Open connections, with the numbers of their hosts.
    pub(super) connections: BTreeMap<String, Numbered<(ConnectionBody, Ends)>>,
    /// Number of these connections by service.
    pub(super) connection_counts: BTreeMap<String, usize>,
    /// The weights of flows with weighted connections.
    pub(super) flow_weights: FlowWeights,
    /// Observed connections by host.
    pub(super) observed: BTreeMap<u32, Vec<ObservedConnections>>,
    /// The number of the connection in the division that represents all observed connections of a key.
    pub(super) observed_numbers: BTreeMap<ObservedKey, u64>,
    /// The next number for an application or connection.
    pub(super) next_number: u64,
    /// Services in shadow mode, whose applications have no class in orders.
    pub(super) shadow_services: BTreeSet<String>,
}

impl SharingState {
    /// Loads applications and connections from the store. Notes records that do not fit the configuration.
    pub(super) fn new(
        config: &Config,
        (port_map, hosts): (&Arc<PortMap>, &HostTable),
        table: &SensitivityTable,
        (weights, bandwidths): (&BTreeMap<String, f64>, &BTreeMap<String, ServiceBandwidth>),
        (store, unfit): (&Store, &mut UnfitRecords),
    ) -> Result<SharingState, String> {
        let division = match config.queues {
            QueueAssignment::Applications(saba) => {
                let limits = port_map.port_limits(&config.switches, saba.limits);
                LinkDivision::applications(table, (saba.settings, limits))
                    .map_err(|error| error.to_string())?
            }
            QueueAssignment::Services => LinkDivision::services(
                config.service_queues(bandwidths),
                weights_by_service(&config.names, weights),
                bandwidths_by_service(&config.names, bandwidths),
            ),
        };
        let (names, addresses) = (config.names.clone(), Arc::clone(hosts.addresses()));
        let mut sharing = SharingState::without_applications(
            division,
            config.settings.budget.unclassified_fraction(),
            Arc::clone(port_map),
            table.clone(),
            names,
            addresses,
        );
        let applications =
            store.records::<ApplicationBody>(Table::Applications).map_err(|e| e.to_string())?;
        for (id, body) in applications {
            if let Err(problem) = sharing.register(&id, body) {
                unfit.note("application", &id, problem);
            }
        }
        let connections = store.records::<ConnectionBody>(Table::Connections).map_err(|e| e.to_string())?;
        for (id, body) in connections {
            let host_number = |name: &str, field| {
                hosts.number(name).ok_or_else(|| unknown_host(name, Location::field(field)))
            };
            let opened = sharing.ends(&body, host_number).and_then(|ends| sharing.open(&id, body, ends));
            if let Err(problem) = opened {
                unfit.note("connection", &id, problem);
            }
        }
        sharing.division.update();
        Ok(sharing)
    }

    fn without_applications(
        division: LinkDivision,
        unclassified_fraction: f64,
        port_map: Arc<PortMap>,
        table: SensitivityTable,
        names: ServiceNames,
        addresses: Arc<NetworkTable<u32>>,
    ) -> SharingState {
        SharingState {
            division,
            unclassified_fraction,
            port_map,
            sensitivity_table: table,
            names,
            addresses,
            applications: BTreeMap::new(),
            connections: BTreeMap::new(),
            connection_counts: BTreeMap::new(),
            flow_weights: FlowWeights::default(),
            observed: BTreeMap::new(),
            observed_numbers: BTreeMap::new(),
            next_number: 0,
            shadow_services: BTreeSet::new(),
        }
    }

    /// The same applications and connections under another table.
    pub(super) fn with_table(&self, table: &SensitivityTable) -> Result<SharingState, Problem> {
        self.rebuilt(self.division.with_table(table)?, Arc::clone(&self.port_map), table)
    }

    /// The same applications and connections over other ports, with these limits.
    pub(super) fn with_ports(
        &self,
        port_map: Arc<PortMap>,
        limits: Vec<PortLimits>,
    ) -> Result<SharingState, Problem> {
        let table = &self.sensitivity_table;
        self.rebuilt(self.division.with_ports(table, limits)?, port_map, table)
    }

    /// The same applications and connections in a division without them.
    fn rebuilt(
        &self,
        division: LinkDivision,
        port_map: Arc<PortMap>,
        table: &SensitivityTable,
    ) -> Result<SharingState, Problem> {
        let (names, addresses) = (self.names.clone(), Arc::clone(&self.addresses));
        let unclassified = self.unclassified_fraction;
        let mut updated = SharingState::without_applications(
            division,
            unclassified,
            port_map,
            table.clone(),
            names,
            addresses,
        );
        for (id, application) in &self.applications {
            updated.register(id, application.body.clone()).map_err(|_| {
                let model = application.body.model.as_deref().unwrap_or_default();
                Problem::conflict(&format!(
                    "application `{id}` uses the model `{model}`; expected a table that has the model"
                ))
            })?;
        }
        for (id, connection) in &self.connections {
            let (body, ends) = &connection.body;
            updated.open(id, body.clone(), *ends)?;
        }
        updated.shadow_services = self.shadow_services.clone();
        updated.observed = self.observed.clone();
        updated.sync_observed_connections()?;
        updated.division.update();
        Ok(updated)
    }

    /// Registers an application. Returns whether it is new, and the applications whose level changed.
    fn register(&mut self, id: &str, body: ApplicationBody) -> Result<(bool, Vec<AppId>), Problem> {
        if let Some(known) = self.applications.get(id) {
            if known.body.is_same_registration(&body) {
                return Ok((false, Vec::new()));
            }
            return Err(Problem::conflict(&format!(
                "application `{id}` is registered with another body; expected the same body, or another id"
            )));
        }
        check_id(id, || Location::parameter("id"))?;
        if self.applications.len() == MAX_APPLICATIONS {
            return Err(Problem::limit_reached(&format!(
                "too many applications; expected at most {MAX_APPLICATIONS}"
            )));
        }
        let app = AppId(self.next_number);
        let changed_levels = match &mut self.division {
            LinkDivision::Applications { controller, .. } => {
                let model = model_position(&self.sensitivity_table, body.model.as_deref())?;
                controller.register(app, model)?.changed_levels.into_iter().map(|(app, _)| app).collect()
            }
            LinkDivision::Services(services) => {
                let service = UnknownName::check_service(&self.names, &service_of(&body))?;
                services.service_of.insert(app, service);
                Vec::new()
            }
        };
        self.applications.insert(id.into(), Numbered { number: self.next_number, body });
        self.next_number += 1;
        Ok((true, changed_levels))
    }

    /// Replaces the body of a registered application. Returns whether it differs, and calls `note` with both bodies if so.
    fn replace_body(
        &mut self,
        id: &str,
        body: ApplicationBody,
        note: impl FnOnce(&ApplicationBody, &ApplicationBody),
    ) -> bool {
        let Some(known) = self.applications.get_mut(id).filter(|known| known.body != body) else {
            return false;
        };
        note(&known.body, &body);
        known.body = body;
        true
    }

    fn ports(&self) -> std::ops::Range<Port> {
        0..self.port_map.port_count() as Port
    }

    /// Whether an open connection begins or ends at a host.
    pub(super) fn has_connection_of(&self, host: u32) -> bool {
        let mut ends = self.connections.values().map(|connection| connection.body.1);
        ends.any(|(from, to)| from == host || to == Some(host))
    }

    /// Number of applications by service.
    pub(super) fn application_counts(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for known in self.applications.values() {
            *counts.entry(service_name(&known.body)).or_default() += 1;
        }
        counts
    }

    /// Checks the quota of a service for a new application. A repeated registration adds none.
    fn check_application_quota(
        &self,
        id: &str,
        service: &str,
        quota: Option<ServiceQuota>,
    ) -> Result<(), QuotaReached> {
        let Some(quota) = quota.filter(|_| !self.applications.contains_key(id)) else { return Ok(()) };
        let count = self.application_counts().get(service).copied().unwrap_or(0);
        quota::check(service, "applications", count + 1, quota.applications)
    }

    pub(super) fn application(&self, id: &str) -> Result<Application, Problem> {
        let entry = self
            .applications
            .get(id)
            .ok_or_else(|| Problem::not_found("application", id, EXPECTED_APPLICATION_ID))?;
        Ok(Application {
            id: id.to_owned(),
            service: service_of(&entry.body),
            model: entry.body.model.clone(),
            level: self.division.level(AppId(entry.number)).unwrap_or(0),
            traffic: entry.body.traffic.clone(),
        })
    }

    /// The applications whose level differs from that in an earlier state.
    pub(super) fn applications_with_other_levels(&self, earlier: &SharingState) -> Vec<AppId> {
        let level_in = |state: &SharingState, id: &str| {
            state.applications.get(id).and_then(|known| state.division.level(AppId(known.number)))
        };
        let is_changed = |id: &str| level_in(self, id) != level_in(earlier, id);
        let changed = self.applications.iter().filter(|(id, _)| is_changed(id));
        changed.map(|(_, known)| AppId(known.number)).collect()
    }

    /// Services with their weights for the allocator; `None` if queues do not belong to services. The default weight
    /// for unused bandwidth is the service's weight.
    fn service_weights(&self, excess: &BTreeMap<String, f64>) -> Option<ServiceWeights> {
        let LinkDivision::Services(division) = &self.division else { return None };
        let excess_weight = |(service, &weight): (u32, &f64)| {
            excess.get(self.names.service(service)).copied().unwrap_or(weight)
        };
        let excess_weights: Option<Vec<f64>> =
            (!excess.is_empty()).then(|| (0..).zip(&division.weights).map(excess_weight).collect());
        let to_service = |(id, known): (&Arc<str>, &Numbered<ApplicationBody>)| {
            Some((Arc::clone(id), *division.service_of.get(&AppId(known.number))?))
        };
        let service_of_application = self.applications.iter().filter_map(to_service).collect();
        let services =
            ServiceWeights::new(division.weights.clone(), excess_weights.as_deref(), service_of_application)
                .expect("the configuration, the API and the store accept only weights in range");
        let services = services.with_bandwidths(division.bandwidths.clone());
        Some(services.with_service_of_class(division.queues.owners()))
    }

    /// Whether a service shares its queue with others.
    pub(super) fn is_queue_shared(&self, service: u32) -> bool {
        matches!(&self.division, LinkDivision::Services(division) if division.queues.is_shared(service))
    }

    /// Ids and services of the applications with these numbers.
    fn ids_and_services(&self, numbers: &[AppId]) -> Vec<(String, String)> {
        let is_selected = |known: &Numbered<ApplicationBody>| numbers.contains(&AppId(known.number));
        let selected = self.applications.iter().filter(|(_, known)| is_selected(known));
        selected.map(|(id, known)| (id.to_string(), service_of(&known.body))).collect()
    }

    /// The class of each application, in the order of ids. Those in shadow mode have no marks, also if options of agents set classes.
    fn class_of_application(&self) -> Vec<(Arc<str>, u32)> {
        let to_class = |(id, known): (&Arc<str>, &Numbered<ApplicationBody>)| {
            let class = match self.shadow_services.contains(service_name(&known.body)) {
                true => Queues::UNMARKED,
                false => u32::from(self.division.level(AppId(known.number))?) + 1,
            };
            Some((Arc::clone(id), class))
        };
        self.applications.iter().filter_map(to_class).collect()
    }

    /// Queues of a port for an order; `None` if no connection is known at the port. Orders for ports out of hosts
    /// include the classes of all applications.
    fn queues_for_order(&self, port: Port) -> Option<Queues> {
        let plan = self.division.plan(port)?;
        // A queue without known connections gets the smallest weight, so that packets of a new application do not wait until its
        // connections are known. The weight of an empty queue does not reduce the rates of other queues.
        let used_weights = || plan.weights.iter().copied().filter(|&weight| weight > 0.0);
        let min_weight = used_weights().fold(f64::INFINITY, f64::min);
        let weights =
            plan.weights.iter().map(|&weight| if weight > 0.0 { weight } else { min_weight }).collect();
        // Hosts mark only the packets that they send.
        let class_of_application =
            if self.port_map.is_host_egress(port) { self.class_of_application() } else { Vec::new() };
        let queue_of_class = plan.queue_of.iter().map(|&queue| queue.into()).collect();
        // The weights of services are configured. Those of applications depend on the known connections.
        let guaranteed = matches!(self.division, LinkDivision::Services(_));
        let rate_bounds = match &self.division {
            LinkDivision::Applications { .. } => Vec::new(),
            LinkDivision::Services(services) => {
                services.rate_bounds(self.port_map.is_host_link(port), self.port_map.group_links(port).len())
            }
        };
        Some(Queues {
            weights,
            queue_of_class,
            class_of_application,
            guaranteed,
            unclassified: self.division.unclassified(port, self.unclassified_fraction),
            rate_bounds,
        })
    }
}

/// Weights of services by number. Default: 1.
fn weights_by_service(names: &ServiceNames, weights: &BTreeMap<String, f64>) -> Vec<f64> {
    let weight = |service| weights.get(names.service(service)).copied().unwrap_or(1.0);
    (0..names.services() as u32).map(weight).collect()
}

/// Bandwidths of services by number.
fn bandwidths_by_service(
    names: &ServiceNames,
    bandwidths: &BTreeMap<String, ServiceBandwidth>,
) -> Vec<ServiceBandwidth> {
    let bandwidth = |service| bandwidths.get(names.service(service)).copied().unwrap_or_default();
    (0..names.services() as u32).map(bandwidth).collect()
}

/// The position of an application's model in the sensitivity table.
fn model_position(table: &SensitivityTable, model: Option<&str>) -> Result<usize, Problem> {
    model.and_then(|model| table.position(model)).ok_or_else(|| {
        let expected = "the name of an application in the table of GET /v1/sensitivity";
        Problem::invalid(Location::field("model"), model.unwrap_or("nothing"), expected)
    })
}

impl Registry {
    /// A registered application.
    ///
    /// # Errors
    /// 404 if no application has this id.
    pub async fn application(&self, id: &str) -> Result<Application, Problem> {
        self.sharing.lock().await.application(id)
    }

    /// The service of an application.
    ///
    /// # Errors
    /// 404 if no application has this id.
    pub async fn service_of_application(&self, id: &str) -> Result<String, Problem> {
        self.application(id).await.map(|application| application.service)
    }

    /// The classes of the packets of services, by name; empty unless services have queues.
    pub async fn service_classes(&self) -> Vec<(String, u32)> {
        let sharing = self.sharing.lock().await;
        let LinkDivision::Services(division) = &sharing.division else { return Vec::new() };
        let to_class = |service: u32| {
            (sharing.names.service(service).to_owned(), u32::from(division.queues.queue(service)) + 1)
        };
        (0..sharing.names.services() as u32).map(to_class).collect()
    }

    /// All applications in order of ids.
    pub async fn applications(&self) -> Vec<Application> {
        let sharing = self.sharing.lock().await;
        sharing.applications.keys().filter_map(|id| sharing.application(id).ok()).collect()
    }

    /// Registers an application. Repeating a registration changes nothing; another traffic replaces the former one.
    ///
    /// # Errors
    /// [`Problem`]: a field is invalid, another application has the id, a limit is reached, or the store cannot be
    /// written. The application is not registered.
    pub async fn register_application(
        &self,
        actor: &Actor,
        id: &str,
        body: ApplicationBody,
    ) -> Result<Application, Problem> {
        let service = service_of(&body);
        UnknownName::check_service(&self.names, &service)?;
        let mut sharing = self.sharing.lock().await;
        sharing.check_application_quota(id, &service, self.quota_of(actor))?;
        // Queues of services use no model. A stored record keeps a model that a later table lacks.
        if body.model.is_some() && !sharing.applications.contains_key(id) {
            model_position(&sharing.sensitivity_table, body.model.as_deref())?;
        }
        // The traffic of an earlier request is not that of this client, and the configuration may have lost its hosts since.
        if let Some(traffic) = body.traffic.as_ref().filter(|traffic| !traffic.is_empty()) {
            self.check_traffic(&sharing, id, traffic)?;
        }
        let body = sharing.with_known_traffic(id, body);
        let (is_new, changed_levels) = sharing.register(id, body.clone())?;
        sharing.sync_observed_connections()?;
        sharing.division.update();
        if let Err(error) = self.store.put(Table::Applications, id, &body).await {
            if is_new && let Some(known) = sharing.applications.remove(id) {
                sharing.sync_observed_connections()?;
                sharing.division.deregister(AppId(known.number))?;
            }
            return Err(error.into());
        }
        let has_traffic = body.traffic.is_some();
        if is_new {
            self.audit.note_accepted(actor, Value::Null, json!(body));
            self.events.send(EventKind::ApplicationRegistered, id, Some(service));
        }
        let has_other_traffic = sharing.replace_body(id, body, |before, after| {
            self.audit.note_accepted(actor, json!(before), json!(after));
        });
        self.send_level_events(&sharing, &changed_levels);
        self.send_all_queues(&sharing).await?;
        // After the queues, so that an agent knows the class of the traffic.
        if is_new && has_traffic || has_other_traffic {
            self.send_traffic(&sharing).await?;
        }
        sharing.application(id)
    }

    /// Sends the queues of these ports to their hosts and switches.
    pub(super) async fn send_queues(
        &self,
        sharing: &SharingState,
        ports: impl IntoIterator<Item = Port>,
    ) -> Result<(), Stopped> {
        let mut queues_by_link: Vec<((u32, u32), Queues)> = Vec::new();
        let mut hosts_without_connections = Vec::new();
        for port in ports {
            let targets = sharing.port_map.order_targets(port);
            match sharing.queues_for_order(port) {
                Some(queues) => queues_by_link.extend(targets.map(|target| (target, queues.clone()))),
                None if sharing.port_map.is_host_egress(port) => {
                    hosts_without_connections.extend(targets.map(|(host, _)| host));
                }
                None => {}
            }
        }
        if !queues_by_link.is_empty() {
            let set = move |plane: &mut ControlPlane, _| {
                let queues = queues_by_link.into_iter();
                queues.for_each(|((host, link), queues)| plane.set_queues(host, link, queues));
            };
            self.handle.call(set).await?;
        }
        // Such a host may have had connections: its packets then still have classes, which may now belong to others.
        if !hosts_without_connections.is_empty() {
            let classes = sharing.class_of_application();
            let set = move |plane: &mut ControlPlane, _| {
                hosts_without_connections.into_iter().for_each(|host| plane.set_classes(host, &classes));
            };
            self.handle.call(set).await?;
        }
        Ok(())
    }

    /// Sends all queues, and the services to the allocator. Call this after a change of applications or weights.
    pub(super) async fn send_all_queues(&self, sharing: &SharingState) -> Result<(), Stopped> {
        if self.handle.has_allocator()
            && let Some(services) = sharing.service_weights(&self.excess_weights)
        {
            self.handle.set_services(services).await?;
        }
        self.send_queues(sharing, sharing.ports()).await
    }

    /// Applies weights and bandwidths to the queues of services, if queues belong to services.
    pub(super) async fn set_services_of_queues(
        &self,
        weights: &BTreeMap<String, f64>,
        bandwidths: &BTreeMap<String, ServiceBandwidth>,
    ) -> Result<(), Stopped> {
        let mut sharing = self.sharing.lock().await;
        let weights = weights_by_service(&self.names, weights);
        if sharing.division.set_services(weights, bandwidths_by_service(&self.names, bandwidths)) {
            self.send_all_queues(&sharing).await?;
        }
        Ok(())
    }

    /// The guaranteed fraction of each queue of a port, by these weights and, at links of hosts, by the minimum bandwidths of services. The
    /// sum is 1.
    fn guaranteed_fractions(&self, sharing: &SharingState, port: Port, weights: &[f64]) -> Vec<f64> {
        let LinkDivision::Services(services) = &sharing.division else { return weights.to_vec() };
        let bounds = services.rate_bounds(true, 1);
        if !sharing.port_map.is_host_link(port) || bounds.iter().all(|bounds| bounds.min == 0) {
            return weights.to_vec();
        }
        let hosts = self.hosts();
        let Some(link) = hosts.get(port / 2).map(|entry| entry.link) else { return weights.to_vec() };
        let rate = if sharing.port_map.is_host_egress(port) { link.send } else { link.recv };
        let capacity = self.budget.services(rate).get();
        let minima: Vec<f64> = bounds.iter().map(|bounds| bounds.min as f64 / capacity).collect();
        shares_with_minima(weights, &minima, 1.0)
    }

    pub(super) fn send_level_events(&self, sharing: &SharingState, changed_levels: &[AppId]) {
        for (id, service) in sharing.ids_and_services(changed_levels) {
            self.events.send(EventKind::ApplicationLevelChanged, &id, Some(service));
        }
    }

    /// Removes an application.
    ///
    /// # Errors
    /// 404 if no application has this id, 409 if it has open connections, 503 if the store cannot be written.
    pub async fn deregister_application(&self, actor: &Actor, id: &str) -> Result<(), Problem> {
        let mut sharing = self.sharing.lock().await;
        let service = sharing.application(id)?.service;
        if sharing.connections.values().any(|known| known.body.0.application == id) {
            let detail = format!(
                "application `{id}` has open connections; expected none; help: close its connections first"
            );
            return Err(Problem::conflict(&detail));
        }
        self.store.remove(Table::Applications, id).await?;
        if let Some(known) = sharing.applications.remove(id) {
            sharing.sync_observed_connections()?;
            let changed_levels = sharing.division.deregister(AppId(known.number))?;
            sharing.division.update();
            self.audit.note_accepted(actor, json!(known.body), Value::Null);
            self.events.send(EventKind::ApplicationDeregistered, id, Some(service));
            self.send_level_events(&sharing, &changed_levels);
            self.send_all_queues(&sharing).await?;
            if known.body.traffic.is_some() {
                self.send_traffic(&sharing).await?;
            }
        }
        Ok(())
    }

    /// Queues of all ports, except ports without a known connection.
    pub async fn queues(&self) -> Vec<PortQueues> {
        let sharing = self.sharing.lock().await;
        let port_queues = |port: Port, host: &str, direction: String| {
            let plan = sharing.division.plan(port)?;
            let weights = self.guaranteed_fractions(&sharing, port, plan.weights);
            let queue_of = plan.queue_of.to_vec();
            Some(PortQueues { host: host.to_owned(), direction, weights, queue_of })
        };
        let hosts = self.hosts();
        let host_port_queues = |port: Port| {
            let direction = if sharing.port_map.is_host_egress(port) { "out" } else { "in" };
            port_queues(port, &hosts.get(port / 2)?.name, direction.to_owned())
        };
        let (host_ports, groups): (Vec<Port>, Vec<Port>) =
            sharing.ports().partition(|&port| sharing.port_map.is_host_link(port));
        // Parallel cables belong to one link group, so they have the same queues.
        let mut group_by_switches: BTreeMap<(u32, u32), Port> = BTreeMap::new();
        for group in groups {
            for &(from, port) in sharing.port_map.group_links(group) {
                if let CableEnd::Switch(to) = self.switches[from as usize].ports[port as usize] {
                    group_by_switches.insert((from, to), group);
                }
            }
        }
        let name = |index: u32| &*self.switches[index as usize].name;
        let switch_port_queues =
            |((from, to), port)| port_queues(port, name(from), format!("to {}", name(to)));
        let host_queues = host_ports.into_iter().filter_map(host_port_queues);
        host_queues.chain(group_by_switches.into_iter().filter_map(switch_port_queues)).collect()
    }
}
