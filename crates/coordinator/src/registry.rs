//! Registry: applies requests of frameworks and operators to the control plane, and writes them to the store before the
//! answer.
//!
//! Requests that name an id are idempotent: repeating one changes nothing. Handlers check permissions before they call
//! the registry. For the owner of a coflow, application or connection, they query the registry: see
//! [`Registry::coflow`] and similar methods.
//!
//! Requests that replace something are checked first, then written to the store, and applied last. A change that was
//! applied could not be reverted without a trace, and a change that cannot be stored must not be applied. If applying
//! fails after all, the former value is written to the store again.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, MutexGuard, watch};
use tracing::warn;
use utoipa::ToSchema;
use weir_core::model::Names;
use weir_core::units::{Bytes, Time};
use weir_trace::sensitivity::SensitivityTable;
use weir_trace::{TraceError, sensitivity};

use crate::config::{Config, Host, Queueing, Switch};
use crate::events::{Events, What};
use crate::master::{Declined, Handle};
use crate::plane::{Refusal, Registration, Standing, Transfer, UnknownName};
use crate::policy::{Asked, Chosen, PolicyError};
use crate::problem::{At, Problem};
use crate::store::{Room, Snapshot, Store, StoreError};

mod division;
mod observed_connections;
pub(crate) mod records;
pub mod routing;
mod sharing;
#[cfg(test)]
mod tests;
mod watcher;

use routing::Ways;

pub use observed_connections::FoundState;
pub use sharing::{Application, ApplicationBody, Connection, ConnectionBody, PortQueues};

/// Keys of the store's [`Room::Settings`].
const POLICY: &str = "policy";
const SENSITIVITY: &str = "sensitivity";

/// Name by which a tree of the API refers to the table of [`Registry::set_table`].
pub const REGISTERED: &str = "registered";

/// Valid weights of services.
const WEIGHTS: std::ops::RangeInclusive<f64> = weir_trace::MIN_WEIGHT..=weir_trace::MAX_WEIGHT;

/// Number of locks for ids: requests about ids with different locks run concurrently.
const STRIPES: usize = 64;

/// The expected value where a coflow is unknown.
const COFLOW_ID: &str = "the id of a registered coflow";

/// The JSON pointer of the flows of a coflow.
const FLOWS: &str = "/flows";

/// A coflow, as its framework registers it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CoflowBody {
    /// The service that it belongs to. Default: the framework's service, or `default` for other clients.
    pub service: Option<String>,
    /// An application of that service. Default: `default`.
    pub application: Option<String>,
    /// Its importance to weighted policies, above 0. Default: 1.
    pub weight: Option<f64>,
    /// Time after its registration by which it should complete, such as `10s`.
    pub deadline: Option<String>,
    /// Its flows, at least one. Requests and answers refer to a flow by its index, from 0.
    pub flows: Vec<FlowBody>,
}

/// A flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowBody {
    /// The host that sends.
    pub from: String,
    /// The host that receives.
    pub to: String,
    /// Size in bytes; absent if it is unknown. Policies that use sizes refuse flows of unknown size.
    pub bytes: Option<u64>,
}

/// A value that was set, and the configured value at that time. A changed configuration takes precedence.
#[derive(Debug, Serialize, Deserialize)]
struct Set<T> {
    set: T,
    configured: T,
}

impl<T: PartialEq> Set<T> {
    /// The value in force under this configured value.
    fn under(self, configured: T) -> T {
        if self.configured == configured { self.set } else { configured }
    }
}

/// Policy, weights and sensitivity table, set and configured.
struct Deciding {
    policy: Chosen,
    /// The policy of the configuration.
    configured: Asked,
    weights: BTreeMap<String, f64>,
    configured_weights: BTreeMap<String, f64>,
    table: SensitivityTable,
}

/// A service.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ServiceState {
    /// Its name.
    pub name: String,
    /// Its applications.
    pub applications: Vec<String>,
    /// Its weight; `null` if the policy decides. Then its queues have weight 1.
    pub weight: Option<f64>,
    /// Its weight for unused bandwidth, if the configuration sets one. Default: its weight.
    pub excess: Option<f64>,
    /// Whether the policy or queues use the weights of services.
    pub weights_used: bool,
}

/// Everything that clients have registered and set, with the store and the control plane.
pub struct Registry {
    handle: Handle,
    store: Store,
    names: Names,
    hosts: Vec<Host>,
    switches: Vec<Switch>,
    /// Numbers of the network's ports.
    ways: Arc<Ways>,
    numbers: BTreeMap<String, u32>,
    deciding: Mutex<Deciding>,
    sharing: Mutex<sharing::Sharing>,
    stripes: Vec<Mutex<()>>,
    hasher: RandomState,
    /// Whether queues belong to services (NetShare) and not to applications (Saba).
    by_services: bool,
    /// Configured weights of services for unused bandwidth.
    excess: BTreeMap<String, f64>,
    /// Events of changes.
    pub events: Events,
}

impl Registry {
    /// Loads the store, and applies its contents to the control plane of `handle`.
    ///
    /// # Errors
    /// The store cannot be read, it contains an invalid record, the control plane refuses the policy, or it has
    /// stopped.
    pub async fn new(config: &Config, store: Store, handle: Handle) -> Result<Registry, String> {
        let text = store.get::<String>(Room::Settings, SENSITIVITY).map_err(|error| error.to_string())?;
        let table = match text {
            Some(text) => sensitivity::parse(&text, "table").map_err(|error| {
                store.damaged_record(Room::Settings, SENSITIVITY, error.to_string()).to_string()
            })?,
            None => SensitivityTable::default(),
        };
        let configured = config.policy.asked().clone();
        let kept: Option<Set<Asked>> =
            store.get(Room::Settings, POLICY).map_err(|error| error.to_string())?;
        let asked = kept.map_or(configured.clone(), |kept| kept.under(configured.clone()));
        let policy = if asked == configured {
            config.policy.clone()
        } else {
            choose(asked, "the store's policy", &table, &config.names).map_err(|error| error.to_string())?
        };
        let mut weights = config.weights.clone();
        let kept: Vec<(String, Set<Option<f64>>)> =
            store.all(Room::Weights).map_err(|error| error.to_string())?;
        for (name, kept) in kept {
            let weight = kept.under(config.weights.get(&name).copied());
            if let Some(weight) = weight.filter(|weight| !WEIGHTS.contains(weight)) {
                let what = format!("weight {weight}; expected {}", expected_weight());
                return Err(store.damaged_record(Room::Weights, &name, what).to_string());
            }
            match weight {
                Some(weight) => weights.insert(name, weight),
                None => weights.remove(&name),
            };
        }
        handle
            .set_policy(policy.build(&config.names, &weights))
            .await
            .map_err(|error| format!("policy: {error}"))?;
        let ways = Arc::new(Ways::new(config.hosts.len(), &config.switches));
        let sharing = sharing::Sharing::new(config, &ways, &table, &weights, &store)?;
        let numbers = (0u32..).zip(&config.hosts).map(|(number, host)| (host.name.clone(), number)).collect();
        let deciding =
            Deciding { policy, configured, weights, configured_weights: config.weights.clone(), table };
        let registry = Registry {
            handle,
            store,
            names: config.names.clone(),
            hosts: config.hosts.clone(),
            switches: config.switches.clone(),
            ways,
            numbers,
            deciding: Mutex::new(deciding),
            sharing: Mutex::new(sharing),
            stripes: std::iter::repeat_with(Mutex::default).take(STRIPES).collect(),
            hasher: RandomState::new(),
            by_services: config.queues == Queueing::Services,
            excess: config.excess.clone(),
            events: Events::new(config.limits.events as usize),
        };
        registry.restore().await?;
        let sharing = registry.sharing.lock().await;
        registry.order_all(&sharing).await.map_err(|stopped| stopped.to_string())?;
        drop(sharing);
        Ok(registry)
    }

    /// Registers the coflows of the store.
    async fn restore(&self) -> Result<(), String> {
        let coflows: Vec<(String, CoflowBody)> =
            self.store.all(Room::Coflows).map_err(|error| error.to_string())?;
        let first: Vec<(String, Vec<FlowBody>)> =
            self.store.all(Room::First).map_err(|error| error.to_string())?;
        let mut first: BTreeMap<String, Vec<FlowBody>> = first.into_iter().collect();
        for (id, body) in coflows {
            // The first flows are only compared with a repeated registration, and no client can repeat one with hosts
            // that do not exist.
            let first = first.remove(&id).and_then(|flows| self.transfers(FLOWS, &flows).ok());
            // A record that does not fit the configuration stays in the store, for a later configuration that it fits.
            match self.registration(&body) {
                Ok(registration) => match self.handle.restore(id.clone(), registration, first).await {
                    Ok(()) => {}
                    Err(Declined::Refused(error)) => warn!(coflow = id, %error, "not taken from the store"),
                    Err(Declined::Stopped(stopped)) => return Err(stopped.to_string()),
                },
                Err(problem) => warn!(coflow = id, %problem, "not taken from the store"),
            }
        }
        // These ids have no coflow any more, and another coflow may use them later.
        for id in first.into_keys() {
            self.store.remove(Room::First, &id).await.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// The client of the control plane.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Hosts in order of their numbers.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Switches in order of their numbers, which follow those of the hosts.
    pub fn switches(&self) -> &[Switch] {
        &self.switches
    }

    /// Names of all hosts and switches in order of their numbers.
    pub fn attendants(&self) -> impl Iterator<Item = &str> {
        let hosts = self.hosts.iter().map(|host| &*host.name);
        hosts.chain(self.switches.iter().map(|switch| &*switch.name))
    }

    /// The contents of the store at this moment.
    ///
    /// # Errors
    /// [`StoreError`]: the store cannot be read.
    pub fn snapshot(&self) -> Result<Snapshot, StoreError> {
        self.store.snapshot()
    }

    /// The epoch of this coordinator, which rises with each start.
    pub fn epoch(&self) -> u64 {
        self.store.epoch()
    }

    /// Handles changes that no request makes, until `stop` is true: removes completed coflows from the store, sends
    /// events, and applies observed connections.
    pub async fn watch(&self, stop: watch::Receiver<bool>) {
        watcher::watch(self, stop).await;
    }

    /// Locks an id: other requests about it wait until the guard is dropped.
    async fn alone(&self, id: &str) -> MutexGuard<'_, ()> {
        self.stripes[self.hasher.hash_one(id) as usize % STRIPES].lock().await
    }

    fn host(&self, name: &str, at: impl FnOnce() -> At) -> Result<u32, Problem> {
        let number = self.numbers.get(name).copied();
        number.ok_or_else(|| Problem::invalid(at(), name, "a host of GET /v1/hosts"))
    }

    /// The transfers of a list of flows; `list` is the JSON pointer of that list.
    fn transfers(&self, list: &str, flows: &[FlowBody]) -> Result<Vec<Transfer>, Problem> {
        let transfer = |(at, flow): (usize, &FlowBody)| {
            Ok(Transfer {
                src: self.host(&flow.from, || At::Body(format!("{list}/{at}/from")))?,
                dst: self.host(&flow.to, || At::Body(format!("{list}/{at}/to")))?,
                bytes: flow.bytes.and_then(|bytes| Bytes::new(bytes as f64)),
            })
        };
        flows.iter().enumerate().map(transfer).collect()
    }

    fn registration(&self, body: &CoflowBody) -> Result<Registration, Problem> {
        let deadline = body.deadline.as_deref().map(|text| {
            let time = text.parse::<Time>();
            time.map_err(|error| Problem::invalid(At::field("deadline"), text, error.expected))
        });
        let or_default = |name: &Option<String>| name.clone().unwrap_or_else(|| Names::DEFAULT.to_owned());
        let (service, application) = (or_default(&body.service), or_default(&body.application));
        UnknownName::check(&self.names, &service, &application)?;
        Ok(Registration {
            service,
            application,
            weight: body.weight.unwrap_or(1.0),
            deadline: deadline.transpose()?,
            flows: self.transfers(FLOWS, &body.flows)?,
        })
    }

    /// State of a coflow.
    ///
    /// # Errors
    /// 404 if no coflow has this id, 503 if the coordinator has stopped.
    pub async fn coflow(&self, id: &str) -> Result<Standing, Problem> {
        let standing = self.handle.show(id.to_owned()).await?;
        standing.ok_or_else(|| Problem::unknown("coflow", id, COFLOW_ID))
    }

    /// The service of a coflow.
    ///
    /// # Errors
    /// 404 if no coflow has this id, 503 if the coordinator has stopped.
    pub async fn service_of(&self, id: &str) -> Result<String, Problem> {
        let found = self.handle.belongs(id.to_owned()).await?;
        found.map(|(service, _)| service).ok_or_else(|| Problem::unknown("coflow", id, COFLOW_ID))
    }

    /// Registers a coflow. Repeating a registration changes nothing.
    ///
    /// # Errors
    /// [`Problem`]: a field is invalid, another coflow has the id, a limit is reached, or the store cannot be written.
    /// The coflow is not registered.
    pub async fn register(&self, id: &str, body: CoflowBody) -> Result<(), Problem> {
        let registration = self.registration(&body)?;
        let service = registration.service.clone();
        let _alone = self.alone(id).await;
        // A known coflow is in the store already. If it has completed, storing it again would register it at the next
        // start.
        if !self.handle.register(id.to_owned(), registration).await? {
            return Ok(());
        }
        if let Err(error) = self.store.put(Room::Coflows, id, &body).await {
            self.handle.deregister(id.to_owned()).await?;
            return Err(error.into());
        }
        self.events.tell(What::CoflowRegistered, id, Some(service));
        Ok(())
    }

    /// Replaces the flows of a coflow.
    ///
    /// # Errors
    /// [`Problem`]: the coflow is unknown, a flow is invalid, a limit is reached, or the store cannot be written. The
    /// coflow is unchanged.
    pub async fn update(&self, id: &str, flows: Vec<FlowBody>) -> Result<(), Problem> {
        // The body is the list itself, so the JSON pointer of the list is empty.
        let refused = |declined: Declined| declined_problem(declined, "");
        let transfers = self.transfers("", &flows)?;
        let _alone = self.alone(id).await;
        let Standing { registration, first, class, .. } = self.coflow(id).await?;
        self.handle.check_update(id.to_owned(), transfers.clone()).await.map_err(refused)?;
        let first = self.flows(first.as_ref().unwrap_or(&registration.flows));
        self.store.put(Room::First, id, &first).await?;
        self.store.put(Room::Coflows, id, &body(&registration, flows)).await?;
        if let Err(declined) = self.handle.update(id.to_owned(), transfers).await {
            let was_over = class.is_none();
            if was_over {
                self.store.remove(Room::Coflows, id).await?;
            } else {
                let before = body(&registration, self.flows(&registration.flows));
                self.store.put(Room::Coflows, id, &before).await?;
            }
            return Err(declined.into());
        }
        self.events.tell(What::CoflowUpdated, id, Some(registration.service));
        Ok(())
    }

    /// Flows in the format of requests.
    fn flows(&self, transfers: &[Transfer]) -> Vec<FlowBody> {
        let name = |host: u32| self.hosts[host as usize].name.clone();
        let flow = |transfer: &Transfer| FlowBody {
            from: name(transfer.src),
            to: name(transfer.dst),
            bytes: transfer.bytes.map(|bytes| bytes.get() as u64),
        };
        transfers.iter().map(flow).collect()
    }

    /// Removes a coflow.
    ///
    /// # Errors
    /// 404 if no coflow has this id, 503 if the store cannot be written.
    pub async fn deregister(&self, id: &str) -> Result<(), Problem> {
        let _alone = self.alone(id).await;
        let service = self.service_of(id).await?;
        self.store.remove(Room::Coflows, id).await?;
        self.handle.deregister(id.to_owned()).await?;
        self.events.tell(What::CoflowDeregistered, id, Some(service));
        Ok(())
    }

    /// The policy in force.
    pub async fn policy(&self) -> Asked {
        self.deciding.lock().await.policy.asked().clone()
    }

    /// Replaces the policy. Active coflows continue.
    ///
    /// # Errors
    /// [`Problem`]: the policy is invalid or does not fit the registered coflows, or the store cannot be written. The
    /// policy is unchanged.
    pub async fn set_policy(&self, asked: Asked) -> Result<(), Problem> {
        let mut deciding = self.deciding.lock().await;
        let policy = choose(asked.clone(), "tree", &deciding.table, &self.names)?;
        let built = || policy.build(&self.names, &deciding.weights);
        let set = |asked: &Asked| Set { set: asked.clone(), configured: deciding.configured.clone() };
        self.handle.check_policy(built()).await.map_err(policy_problem)?;
        self.store.put(Room::Settings, POLICY, &set(&asked)).await?;
        if let Err(declined) = self.handle.set_policy(built()).await {
            self.store.put(Room::Settings, POLICY, &set(deciding.policy.asked())).await?;
            return Err(policy_problem(declined));
        }
        deciding.policy = policy;
        self.events.tell(What::PolicyChanged, POLICY, None);
        Ok(())
    }

    /// All services, in the order of the configuration.
    pub async fn services(&self) -> Vec<ServiceState> {
        let deciding = self.deciding.lock().await;
        let state = |number: u32| {
            let name = self.names.service(number);
            ServiceState {
                name: name.to_owned(),
                applications: self.names.applications(number).to_vec(),
                weight: deciding.weights.get(name).copied(),
                excess: self.excess.get(name).copied(),
                weights_used: self.by_services || deciding.policy.heeds_weights(),
            }
        };
        (0..self.names.services() as u32).map(state).collect()
    }

    /// Sets the weight of a service.
    ///
    /// # Errors
    /// 404 if the service is unknown, 422 if the weight is out of range, 503 if the store cannot be written. The weight
    /// is unchanged.
    pub async fn set_weight(&self, service: &str, weight: f64) -> Result<(), Problem> {
        UnknownName::check_service(&self.names, service)
            .map_err(|unknown| Problem::unknown("service", service, &unknown.expected))?;
        if !WEIGHTS.contains(&weight) {
            return Err(Problem::invalid(At::field("weight"), &weight.to_string(), &expected_weight()));
        }
        let mut deciding = self.deciding.lock().await;
        let mut weights = deciding.weights.clone();
        weights.insert(service.to_owned(), weight);
        let configured = deciding.configured_weights.get(service).copied();
        let set = |weight: Option<f64>| Set { set: weight, configured };
        self.store.put(Room::Weights, service, &set(Some(weight))).await?;
        if let Err(declined) = self.weigh(&deciding.policy, &weights).await {
            self.store.put(Room::Weights, service, &set(deciding.weights.get(service).copied())).await?;
            return Err(declined.into());
        }
        deciding.weights = weights;
        self.events.tell(What::WeightChanged, service, Some(service.to_owned()));
        Ok(())
    }

    /// Applies weights of services to the policy and to the queues, if they use them.
    async fn weigh(&self, policy: &Chosen, weights: &BTreeMap<String, f64>) -> Result<(), Declined> {
        if policy.heeds_weights() {
            self.handle.set_policy(policy.build(&self.names, weights)).await?;
        }
        Ok(self.set_weights_of_queues(weights).await?)
    }

    /// The sensitivity table.
    pub async fn table(&self) -> SensitivityTable {
        self.deciding.lock().await.table.clone()
    }

    /// Replaces the sensitivity table for applications. A policy tree that uses the former table keeps it until the
    /// tree is set again.
    ///
    /// # Errors
    /// [`Problem`]: the text is not a valid table, it lacks the model of a registered application, or the store cannot
    /// be written.
    pub async fn set_table(&self, text: String) -> Result<(), Problem> {
        let table = sensitivity::parse(&text, "body")?;
        let mut deciding = self.deciding.lock().await;
        let mut sharing = self.sharing.lock().await;
        let next = sharing.with_table(&table)?;
        self.store.put(Room::Settings, SENSITIVITY, &text).await?;
        *sharing = next;
        self.order_all(&sharing).await?;
        deciding.table = table;
        self.events.tell(What::TableChanged, SENSITIVITY, None);
        Ok(())
    }
}

/// The expected value in errors about a weight outside of [`WEIGHTS`].
fn expected_weight() -> String {
    format!("a number from {:e} to {:e}", WEIGHTS.start(), WEIGHTS.end())
}

/// The request body of a registration with these flows.
fn body(registration: &Registration, flows: Vec<FlowBody>) -> CoflowBody {
    let Registration { service, application, weight, deadline, .. } = registration;
    CoflowBody {
        service: Some(service.clone()),
        application: Some(application.clone()),
        weight: Some(*weight),
        // All digits, whereas `Time` prints fifteen: the stored time has to be equal when it is read.
        deadline: deadline.map(|deadline| format!("{}s", deadline.get())),
        flows,
    }
}

/// A policy for these names; a tree can refer to `table` by the name [`REGISTERED`].
fn choose(asked: Asked, file: &str, table: &SensitivityTable, names: &Names) -> Result<Chosen, PolicyError> {
    let tables = |name: &str| {
        if name == REGISTERED {
            return Ok(table.clone());
        }
        let expected = format!("expected `{REGISTERED}`, which is the table of PUT /v1/sensitivity");
        Err(TraceError::Io { file: format!("table `{name}`"), source: std::io::Error::other(expected) })
    };
    Chosen::new(asked, file, &tables, names)
}

/// The problem of a policy that cannot schedule the registered coflows.
fn policy_problem(declined: Declined) -> Problem {
    match declined {
        Declined::Refused(Refusal::Size(_)) => {
            let (status, at) = (StatusCode::UNPROCESSABLE_ENTITY, At::field("policy"));
            let expected = "a policy that does not use sizes, or `bytes` for every flow";
            Problem::at(status, at, "a registered coflow has flows of unknown size", expected)
        }
        other => other.into(),
    }
}

/// The problem of a request that was declined; `flows` is the JSON pointer of the list of flows.
fn declined_problem(declined: Declined, flows: &str) -> Problem {
    match declined {
        Declined::Refused(refusal) => refusal_problem(refusal, flows),
        Declined::Stopped(stopped) => stopped.into(),
    }
}

fn refusal_problem(refusal: Refusal, flows: &str) -> Problem {
    let text = refusal.to_string();
    let (at, value) = match refusal {
        Refusal::Taken(_) => return Problem::conflict(&text),
        Refusal::Unknown(id) => return Problem::unknown("coflow", &id, COFLOW_ID),
        Refusal::Full { .. } => return Problem::full(&text),
        Refusal::Tree(_) => return Problem::new(StatusCode::UNPROCESSABLE_ENTITY, text),
        Refusal::Id(id) => (At::parameter("id"), id),
        Refusal::Empty => (At::Body(flows.to_owned()), "[]".to_owned()),
        Refusal::Host { flow, host, .. } => (At::Body(format!("{flows}/{flow}")), host.to_string()),
        Refusal::Size(flow) => (At::Body(format!("{flows}/{flow}/bytes")), "null".to_owned()),
        Refusal::Weight(weight) => (At::field("weight"), weight.to_string()),
        Refusal::Name(unknown) => return unknown.into(),
    };
    let expected = text.rsplit_once("expected ").map_or(text.as_str(), |(_, expected)| expected);
    Problem::invalid(at, &value, expected)
}

impl From<Declined> for Problem {
    fn from(declined: Declined) -> Problem {
        declined_problem(declined, FLOWS)
    }
}
