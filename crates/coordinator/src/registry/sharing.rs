//! Applications and their connections (Saba, section 6): assigns priority levels to applications and queues to ports.
//!
//! Every host has two ports, one out and one in; a connection crosses its sender's and its receiver's. The port into a
//! host is a port of a switch; its queues are sent to that switch if the configuration lists it. The same holds for the
//! ports between switches that a connection can cross ([`Ways`]).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_core::model::Names;
use weir_core::saba::controller::{AppId, ConnectionId, Port};
use weir_proto::{Found, MAX_APPLICATIONS, MAX_ID_LENGTH, Queues};
use weir_trace::sensitivity::SensitivityTable;

use super::Registry;
use super::division::Division;
use super::routing::Ways;
use crate::config::{Config, End, Queueing};
use crate::events::What;
use crate::master::Stopped;
use crate::plane::{Services, UnknownName};
use crate::problem::{At, Problem};
use crate::store::{Room, Store};

/// Maximum number of open connections.
const MAX_CONNECTIONS: usize = 100_000;

/// The expected value where an application is unknown.
const APPLICATION_ID: &str = "the id of a registered application";

/// An application, as its framework registers it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplicationBody {
    /// The service that it belongs to. Default: the framework's service, or `default` for other clients.
    pub service: Option<String>,
    /// Name of its model in the sensitivity table; optional only if queues belong to services.
    pub model: Option<String>,
}

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
}

/// A connection, as its framework opens it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectionBody {
    /// The id of its application.
    pub application: String,
    /// The host that sends.
    pub from: String,
    /// The host that receives.
    pub to: String,
}

/// An open connection.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Connection {
    /// Its id.
    pub id: String,
    /// The id of its application.
    pub application: String,
    /// The host that sends.
    pub from: String,
    /// The host that receives.
    pub to: String,
    /// The priority level of its application, from 0.
    pub level: u16,
}

/// The queues of a link in one direction.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct PortQueues {
    /// The host, or the switch that sends to another switch.
    pub host: String,
    /// `out` of the host, `in` to the host, or `to SWITCH`: all links between these two switches have the same queues.
    pub way: String,
    /// Weight of each queue as a fraction of the link; the sum is 1.
    pub weights: Vec<f64>,
    /// The queue of each priority level.
    pub queue_of: Vec<u16>,
}

pub(super) struct Known<T> {
    pub(super) number: u64,
    body: T,
}

/// The sending host, the application, and the receiving host if the configuration has its address.
pub(super) type FoundKey = (u32, Arc<str>, Option<u32>);

/// Division of links, with the ids and names of its objects.
pub(super) struct Sharing {
    pub(super) division: Division,
    pub(super) ways: Arc<Ways>,
    table: SensitivityTable,
    /// Services by number.
    names: Names,
    /// Addresses of hosts, with the host's number.
    pub(super) addresses: BTreeMap<IpAddr, u32>,
    pub(super) applications: BTreeMap<Arc<str>, Known<ApplicationBody>>,
    /// Open connections, with the numbers of both hosts.
    connections: BTreeMap<String, Known<(ConnectionBody, [u32; 2])>>,
    /// Observed connections by host, and the number of the connection in the division that represents each key.
    pub(super) seen: BTreeMap<u32, Vec<Found>>,
    pub(super) found: BTreeMap<FoundKey, u64>,
    /// The next number for an application or connection.
    pub(super) next: u64,
}

impl Sharing {
    /// Loads applications and connections from the store; records that do not fit the configuration are skipped.
    pub(super) fn new(
        config: &Config,
        ways: &Arc<Ways>,
        table: &SensitivityTable,
        weights: &BTreeMap<String, f64>,
        store: &Store,
    ) -> Result<Sharing, String> {
        let division = match config.queues {
            Queueing::Applications(saba) => {
                let queues = vec![saba.queues; ways.ports()];
                Division::applications(table, (saba.settings, queues)).map_err(|error| error.to_string())?
            }
            Queueing::Services => Division::services(of_services(&config.names, weights)),
        };
        let (names, addresses) = (config.names.clone(), config.addresses.clone());
        let mut sharing = Sharing::empty(division, Arc::clone(ways), table.clone(), names, addresses);
        let applications = store.all::<ApplicationBody>(Room::Applications).map_err(|e| e.to_string())?;
        for (id, body) in applications {
            if let Err(problem) = sharing.register(&id, body) {
                tracing::warn!(application = id, %problem, "not taken from the store");
            }
        }
        let connections = store.all::<ConnectionBody>(Room::Connections).map_err(|e| e.to_string())?;
        for (id, body) in connections {
            let number = |name: &str| config.hosts.iter().position(|host| host.name == name);
            let (Some(from), Some(to)) = (number(&body.from), number(&body.to)) else {
                tracing::warn!(connection = id, "not taken from the store: its hosts are not there");
                continue;
            };
            if let Err(problem) = sharing.open(&id, body, from as u32, to as u32) {
                tracing::warn!(connection = id, %problem, "not taken from the store");
            }
        }
        sharing.division.update();
        Ok(sharing)
    }

    fn empty(
        division: Division,
        ways: Arc<Ways>,
        table: SensitivityTable,
        names: Names,
        addresses: BTreeMap<IpAddr, u32>,
    ) -> Sharing {
        Sharing {
            division,
            ways,
            table,
            names,
            addresses,
            applications: BTreeMap::new(),
            connections: BTreeMap::new(),
            seen: BTreeMap::new(),
            found: BTreeMap::new(),
            next: 0,
        }
    }

    /// The same applications and connections under another table.
    pub(super) fn with_table(&self, table: &SensitivityTable) -> Result<Sharing, Problem> {
        let division = self.division.anew(table)?;
        let (ways, names, addresses) = (Arc::clone(&self.ways), self.names.clone(), self.addresses.clone());
        let mut next = Sharing::empty(division, ways, table.clone(), names, addresses);
        for (id, known) in &self.applications {
            next.register(id, known.body.clone()).map_err(|_| {
                let model = known.body.model.as_deref().unwrap_or_default();
                Problem::conflict(&format!(
                    "application `{id}` uses the model `{model}`; expected a table that has the model"
                ))
            })?;
        }
        for (id, known) in &self.connections {
            let (body, [from, to]) = &known.body;
            next.open(id, body.clone(), *from, *to)?;
        }
        next.seen = self.seen.clone();
        next.settle()?;
        next.division.update();
        Ok(next)
    }

    /// Registers an application. Returns whether it is new, and the applications whose level changed.
    fn register(&mut self, id: &str, body: ApplicationBody) -> Result<(bool, Vec<AppId>), Problem> {
        if let Some(known) = self.applications.get(id) {
            if known.body == body {
                return Ok((false, Vec::new()));
            }
            return Err(Problem::conflict(&format!(
                "application `{id}` is registered with another body; expected the same body, or another id"
            )));
        }
        check_id(id)?;
        if self.applications.len() == MAX_APPLICATIONS {
            return Err(Problem::full(&format!(
                "too many applications; expected at most {MAX_APPLICATIONS}"
            )));
        }
        let app = AppId(self.next);
        let moved = match &mut self.division {
            Division::Applications { controller, .. } => {
                let model = body.model.as_deref().and_then(|model| self.table.position(model));
                let model = model.ok_or_else(|| {
                    let found = body.model.as_deref().unwrap_or("nothing");
                    let expected = "the name of an application in the table of GET /v1/sensitivity";
                    Problem::invalid(At::field("model"), found, expected)
                })?;
                controller.register(app, model)?.moved.into_iter().map(|(app, _)| app).collect()
            }
            Division::Services { of, .. } => {
                let number = UnknownName::check_service(&self.names, &service_of(&body))?;
                of.insert(app, number as u16);
                Vec::new()
            }
        };
        self.applications.insert(id.into(), Known { number: self.next, body });
        self.next += 1;
        Ok((true, moved))
    }

    fn open(&mut self, id: &str, body: ConnectionBody, from: u32, to: u32) -> Result<bool, Problem> {
        if let Some(known) = self.connections.get(id) {
            if known.body.0 == body {
                return Ok(false);
            }
            return Err(Problem::conflict(&format!(
                "connection `{id}` is open with another body; expected the same body, or another id"
            )));
        }
        check_id(id)?;
        if self.connections.len() == MAX_CONNECTIONS {
            return Err(Problem::full(&format!("too many connections; expected at most {MAX_CONNECTIONS}")));
        }
        let Some(application) = self.applications.get(&*body.application) else {
            return Err(Problem::invalid(At::field("application"), &body.application, APPLICATION_ID));
        };
        let path = self.ways.path(from, Some(to));
        self.division.open(ConnectionId(self.next), AppId(application.number), &path)?;
        self.connections.insert(id.to_owned(), Known { number: self.next, body: (body, [from, to]) });
        self.next += 1;
        Ok(true)
    }

    fn application(&self, id: &str) -> Result<Application, Problem> {
        let known =
            self.applications.get(id).ok_or_else(|| Problem::unknown("application", id, APPLICATION_ID))?;
        Ok(Application {
            id: id.to_owned(),
            service: service_of(&known.body),
            model: known.body.model.clone(),
            level: self.division.level(AppId(known.number)).unwrap_or(0),
        })
    }

    fn connection(&self, id: &str) -> Result<Connection, Problem> {
        let known = self
            .connections
            .get(id)
            .ok_or_else(|| Problem::unknown("connection", id, "the id of an open connection"))?;
        let ConnectionBody { application, from, to } = known.body.0.clone();
        let level = self.application(&application)?.level;
        Ok(Connection { id: id.to_owned(), application, from, to, level })
    }

    /// Services with their weights for the allocator; `None` if queues do not belong to services. The default weight
    /// for unused bandwidth is the service's weight.
    fn services(&self, excess: &BTreeMap<String, f64>) -> Option<Services> {
        let Division::Services { weights, of, .. } = &self.division else { return None };
        let part = |(service, &weight): (u32, &f64)| {
            excess.get(self.names.service(service)).copied().unwrap_or(weight)
        };
        let parts: Option<Vec<f64>> = (!excess.is_empty()).then(|| (0..).zip(weights).map(part).collect());
        let service = |(id, known): (&Arc<str>, &Known<ApplicationBody>)| {
            Some((Arc::clone(id), u32::from(*of.get(&AppId(known.number))?)))
        };
        let of = self.applications.iter().filter_map(service).collect();
        let services = Services::new(weights.clone(), parts.as_deref(), of);
        Some(services.expect("the configuration, the API and the store have weights in range"))
    }

    /// Ids and services of the applications with these numbers.
    fn named(&self, numbers: &[AppId]) -> Vec<(String, String)> {
        let is_one = |known: &Known<ApplicationBody>| numbers.contains(&AppId(known.number));
        let moved = self.applications.iter().filter(|(_, known)| is_one(known));
        moved.map(|(id, known)| (id.to_string(), service_of(&known.body))).collect()
    }

    /// Queues of a port for an order; `None` if no connection is known at the port. Orders for ports out of hosts
    /// include the classes of all applications.
    fn told(&self, port: Port) -> Option<Queues> {
        let plan = self.division.plan(port)?;
        // An empty queue gets the smallest weight: packets of a new application must not wait until its connections are
        // known. A weight takes nothing from other queues while its queue is empty.
        let used = || plan.weights.iter().copied().filter(|&weight| weight > 0.0);
        let least = used().fold(f64::INFINITY, f64::min);
        let weights = plan.weights.iter().map(|&weight| if weight > 0.0 { weight } else { least }).collect();
        let class = |(id, known): (&Arc<str>, &Known<ApplicationBody>)| {
            Some((Arc::clone(id), u32::from(self.division.level(AppId(known.number))?) + 1))
        };
        // Hosts mark only the packets that they send.
        let begin = if self.ways.begins(port) { self.applications.iter() } else { Default::default() };
        let queue_of = plan.queue_of.iter().map(|&queue| queue.into()).collect();
        // The weights of services are guarantees; those of applications depend on the connections known so far.
        let guaranteed = matches!(self.division, Division::Services { .. });
        Some(Queues { weights, queue_of, classes: begin.filter_map(class).collect(), guaranteed })
    }
}

/// Weights of services by number. Default: 1.
fn of_services(names: &Names, weights: &BTreeMap<String, f64>) -> Vec<f64> {
    let weight = |service| weights.get(names.service(service)).copied().unwrap_or(1.0);
    (0..names.services() as u32).map(weight).collect()
}

fn service_of(body: &ApplicationBody) -> String {
    body.service.clone().unwrap_or_else(|| Names::DEFAULT.to_owned())
}

fn check_id(id: &str) -> Result<(), Problem> {
    if weir_proto::is_id(id) {
        return Ok(());
    }
    let expected = format!("1 to {MAX_ID_LENGTH} printable characters without spaces");
    Err(Problem::invalid(At::parameter("id"), id, &expected))
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

    /// All applications in order of ids.
    pub async fn applications(&self) -> Vec<Application> {
        let sharing = self.sharing.lock().await;
        sharing.applications.keys().filter_map(|id| sharing.application(id).ok()).collect()
    }

    /// Registers an application. Repeating a registration changes nothing.
    ///
    /// # Errors
    /// [`Problem`]: a field is invalid, another application has the id, a limit is reached, or the store cannot be
    /// written. The application is not registered.
    pub async fn register_application(
        &self,
        id: &str,
        body: ApplicationBody,
    ) -> Result<Application, Problem> {
        let service = service_of(&body);
        UnknownName::check_service(&self.names, &service)?;
        let mut sharing = self.sharing.lock().await;
        let (is_new, moved) = sharing.register(id, body.clone())?;
        sharing.settle()?;
        sharing.division.update();
        if let Err(error) = self.store.put(Room::Applications, id, &body).await {
            if is_new && let Some(known) = sharing.applications.remove(id) {
                sharing.settle()?;
                sharing.division.deregister(AppId(known.number))?;
            }
            return Err(error.into());
        }
        if is_new {
            self.events.tell(What::ApplicationRegistered, id, Some(service));
        }
        self.tell_moved(&sharing, &moved);
        self.order_all(&sharing).await?;
        sharing.application(id)
    }

    /// Sends the queues of these ports to their hosts and switches.
    pub(super) async fn order(
        &self,
        sharing: &Sharing,
        ports: impl IntoIterator<Item = Port>,
    ) -> Result<(), Stopped> {
        let mut told: Vec<((u32, u32), Queues)> = Vec::new();
        for port in ports {
            let Some(queues) = sharing.told(port) else { continue };
            told.extend(self.ways.told(port).map(|place| (place, queues.clone())));
        }
        if told.is_empty() { Ok(()) } else { self.handle.set_queues(told).await }
    }

    /// Sends all queues, and the services to the allocator: the set of applications or their parameters changed.
    pub(super) async fn order_all(&self, sharing: &Sharing) -> Result<(), Stopped> {
        if self.handle.allocates()
            && let Some(services) = sharing.services(&self.excess)
        {
            self.handle.set_services(services).await?;
        }
        self.order(sharing, self.ports()).await
    }

    /// Applies weights to the queues of services, if queues belong to services.
    pub(super) async fn set_weights_of_queues(&self, weights: &BTreeMap<String, f64>) -> Result<(), Stopped> {
        let mut sharing = self.sharing.lock().await;
        if sharing.division.set_weights(of_services(&self.names, weights)) {
            self.order_all(&sharing).await?;
        }
        Ok(())
    }

    fn ports(&self) -> std::ops::Range<Port> {
        0..self.ways.ports() as Port
    }

    fn tell_moved(&self, sharing: &Sharing, moved: &[AppId]) {
        for (id, service) in sharing.named(moved) {
            self.events.tell(What::ApplicationLevelChanged, &id, Some(service));
        }
    }

    /// Removes an application.
    ///
    /// # Errors
    /// 404 if no application has this id, 409 if it has open connections, 503 if the store cannot be written.
    pub async fn deregister_application(&self, id: &str) -> Result<(), Problem> {
        let mut sharing = self.sharing.lock().await;
        let service = sharing.application(id)?.service;
        if sharing.connections.values().any(|known| known.body.0.application == id) {
            let detail =
                format!("application `{id}` has open connections; expected that all of them are closed");
            return Err(Problem::conflict(&detail));
        }
        self.store.remove(Room::Applications, id).await?;
        if let Some(known) = sharing.applications.remove(id) {
            sharing.settle()?;
            let moved = sharing.division.deregister(AppId(known.number))?;
            sharing.division.update();
            self.events.tell(What::ApplicationDeregistered, id, Some(service));
            self.tell_moved(&sharing, &moved);
            self.order_all(&sharing).await?;
        }
        Ok(())
    }

    /// An open connection.
    ///
    /// # Errors
    /// 404 if no connection has this id.
    pub async fn connection(&self, id: &str) -> Result<Connection, Problem> {
        self.sharing.lock().await.connection(id)
    }

    /// Opens a connection of an application. Repeating a request changes nothing.
    ///
    /// # Errors
    /// [`Problem`]: a field is invalid, another connection has the id, a limit is reached, or the store cannot be
    /// written. The connection is not open.
    pub async fn open(&self, id: &str, body: ConnectionBody) -> Result<Connection, Problem> {
        let from = self.host(&body.from, || At::field("from"))?;
        let to = self.host(&body.to, || At::field("to"))?;
        let mut sharing = self.sharing.lock().await;
        let is_new = sharing.open(id, body.clone(), from, to)?;
        if let Err(error) = self.store.put(Room::Connections, id, &body).await {
            if is_new && let Some(known) = sharing.connections.remove(id) {
                sharing.division.close(ConnectionId(known.number))?;
            }
            return Err(error.into());
        }
        let changed = sharing.division.update();
        self.order(&sharing, changed).await?;
        sharing.connection(id)
    }

    /// Closes a connection.
    ///
    /// # Errors
    /// 404 if no connection has this id, 503 if the store cannot be written.
    pub async fn close(&self, id: &str) -> Result<(), Problem> {
        let mut sharing = self.sharing.lock().await;
        sharing.connection(id)?;
        self.store.remove(Room::Connections, id).await?;
        if let Some(known) = sharing.connections.remove(id) {
            sharing.division.close(ConnectionId(known.number))?;
            let changed = sharing.division.update();
            self.order(&sharing, changed).await?;
        }
        Ok(())
    }

    /// Queues of all ports. Ports without a known connection are left out.
    pub async fn queues(&self) -> Vec<PortQueues> {
        let sharing = self.sharing.lock().await;
        let queues = |port: Port, host: &str, way: String| {
            let plan = sharing.division.plan(port)?;
            let (weights, queue_of) = (plan.weights.to_vec(), plan.queue_of.to_vec());
            Some(PortQueues { host: host.to_owned(), way, weights, queue_of })
        };
        let of_host = |port: Port| {
            let way = if self.ways.begins(port) { "out" } else { "in" };
            queues(port, &self.hosts[port as usize / 2].name, way.to_owned())
        };
        let (of_hosts, trunks): (Vec<Port>, Vec<Port>) =
            self.ports().partition(|&port| self.ways.is_of_host(port));
        // Parallel cables belong to one trunk, so they have the same queues.
        let mut between: BTreeMap<(u32, u32), Port> = BTreeMap::new();
        for trunk in trunks {
            for &(from, port) in self.ways.links(trunk) {
                if let End::Switch(to) = self.switches[from as usize].ports[port as usize] {
                    between.insert((from, to), trunk);
                }
            }
        }
        let name = |place: u32| &*self.switches[place as usize].name;
        let of_switch = |((from, to), port)| queues(port, name(from), format!("to {}", name(to)));
        let of_hosts = of_hosts.into_iter().filter_map(of_host);
        of_hosts.chain(between.into_iter().filter_map(of_switch)).collect()
    }
}
