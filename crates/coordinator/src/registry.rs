//! What frameworks and operators register, change and ask for: in the plane at once, and in the store before it is answered.
//!
//! What is asked for by id is idempotent: the same again changes nothing. Whoever asks has been found to be allowed to before it
//! comes here, but for whose a coflow, application or connection is, which only this knows: see [`Registry::coflow`] and the like.
//!
//! What takes the place of something is looked at, then kept, and done last: what was done could not be taken back without a trace,
//! and what cannot be kept is not to be done. Where it cannot be done after all, what was there before is kept again.

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

/// What the store's [`Room::Settings`] has.
const POLICY: &str = "policy";
const SENSITIVITY: &str = "sensitivity";

/// What a tree that comes over the API calls the table of [`Registry::set_table`].
pub const REGISTERED: &str = "registered";

/// The weights that a service may have.
const WEIGHTS: std::ops::RangeInclusive<f64> = weir_trace::MIN_WEIGHT..=weir_trace::MAX_WEIGHT;

/// How many requests about different ids go on at once.
const STRIPES: usize = 64;

/// The expected value where a coflow is unknown.
const COFLOW_ID: &str = "the id of a registered coflow";

/// The JSON pointer of the flows of a coflow.
const FLOWS: &str = "/flows";

/// A coflow, as its framework describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CoflowBody {
    /// The service that it belongs to; a framework's own, or `default`, if it does not say.
    pub service: Option<String>,
    /// An application of that service; `default` if it does not say.
    pub application: Option<String>,
    /// Its importance to weighted policies, above 0; 1 if it does not say.
    pub weight: Option<f64>,
    /// How long after its registration it should be done, such as `10s`.
    pub deadline: Option<String>,
    /// Its flows, at least one. They are called by their places, from 0.
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
    /// How many bytes; left out if nobody knows, which policies that go by sizes refuse.
    pub bytes: Option<u64>,
}

/// A value that was set, and what the configuration said then: once it says something else, that holds.
#[derive(Debug, Serialize, Deserialize)]
struct Set<T> {
    set: T,
    configured: T,
}

impl<T: PartialEq> Set<T> {
    /// What holds, if the configuration says this.
    fn under(self, configured: T) -> T {
        if self.configured == configured { self.set } else { configured }
    }
}

/// What decides.
struct Deciding {
    policy: Chosen,
    /// What the configuration has.
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
    /// Its weight; nothing if it is left to the policy. In queues it is 1 then.
    pub weight: Option<f64>,
    /// Its part of what others leave, where the configuration has one; otherwise that goes by its weight.
    pub excess: Option<f64>,
    /// Whether the policy in force, or queues, go by weights of services.
    pub weights_used: bool,
}

/// All of it.
pub struct Registry {
    handle: Handle,
    store: Store,
    names: Names,
    hosts: Vec<Host>,
    switches: Vec<Switch>,
    /// What is at which port of the network.
    ways: Arc<Ways>,
    numbers: BTreeMap<String, u32>,
    deciding: Mutex<Deciding>,
    sharing: Mutex<sharing::Sharing>,
    stripes: Vec<Mutex<()>>,
    hasher: RandomState,
    /// Whether queues go by services.
    by_services: bool,
    /// The parts of services of what others leave, if they are not their weights'.
    excess: BTreeMap<String, f64>,
    /// What happens.
    pub events: Events,
}

impl Registry {
    /// What a configuration and a store say, with all that is registered in the plane of `handle`.
    ///
    /// # Errors
    /// A store that cannot be read, or a policy in it that is none.
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
            // With hosts that are not there any more nobody registers it again.
            let first = first.remove(&id).and_then(|flows| self.transfers(FLOWS, &flows).ok());
            // What the configuration has no place for any more stays in the store, for when it has again.
            match self.registration(&body) {
                Ok(registration) => match self.handle.restore(id.clone(), registration, first).await {
                    Ok(()) => {}
                    Err(Declined::Refused(error)) => warn!(coflow = id, %error, "not taken from the store"),
                    Err(Declined::Stopped(stopped)) => return Err(stopped.to_string()),
                },
                Err(problem) => warn!(coflow = id, %problem, "not taken from the store"),
            }
        }
        // Of no coflow any more: another one may come to have the id.
        for id in first.into_keys() {
            self.store.remove(Room::First, &id).await.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// The plane.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The hosts, in order of their numbers.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The switches, in order of their numbers, which go on from those of the hosts.
    pub fn switches(&self) -> &[Switch] {
        &self.switches
    }

    /// What everybody with an agent is called, in order of their numbers.
    pub fn attendants(&self) -> impl Iterator<Item = &str> {
        let hosts = self.hosts.iter().map(|host| &*host.name);
        hosts.chain(self.switches.iter().map(|switch| &*switch.name))
    }

    /// The contents of the store at this moment.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn snapshot(&self) -> Result<Snapshot, StoreError> {
        self.store.snapshot()
    }

    /// Rises at each start of a coordinator.
    pub fn epoch(&self) -> u64 {
        self.store.epoch()
    }

    /// Looks after what happens by itself until `stop` says so: coflows that end leave the store, and hosts that come and go are told.
    pub async fn watch(&self, stop: watch::Receiver<bool>) {
        watcher::watch(self, stop).await;
    }

    /// Holds up all other requests about an id.
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

    /// A coflow as it stands.
    ///
    /// # Errors
    /// If there is none.
    pub async fn coflow(&self, id: &str) -> Result<Standing, Problem> {
        let standing = self.handle.show(id.to_owned()).await?;
        standing.ok_or_else(|| Problem::unknown("coflow", id, COFLOW_ID))
    }

    /// The service of a coflow.
    ///
    /// # Errors
    /// If there is none.
    pub async fn service_of(&self, id: &str) -> Result<String, Problem> {
        let found = self.handle.belongs(id.to_owned()).await?;
        found.map(|(service, _)| service).ok_or_else(|| Problem::unknown("coflow", id, COFLOW_ID))
    }

    /// Registers a coflow; the same again changes nothing.
    ///
    /// # Errors
    /// Why it is not registered.
    pub async fn register(&self, id: &str, body: CoflowBody) -> Result<(), Problem> {
        let registration = self.registration(&body)?;
        let service = registration.service.clone();
        let _alone = self.alone(id).await;
        // What is known was kept when it came, and what is over must not come back with the next start.
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

    /// Gives a coflow other flows.
    ///
    /// # Errors
    /// Why it has those that it had.
    pub async fn update(&self, id: &str, flows: Vec<FlowBody>) -> Result<(), Problem> {
        // The list is the body.
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

    /// Flows as they are asked for.
    fn flows(&self, transfers: &[Transfer]) -> Vec<FlowBody> {
        let name = |host: u32| self.hosts[host as usize].name.clone();
        let flow = |transfer: &Transfer| FlowBody {
            from: name(transfer.src),
            to: name(transfer.dst),
            bytes: transfer.bytes.map(|bytes| bytes.get() as u64),
        };
        transfers.iter().map(flow).collect()
    }

    /// Forgets a coflow.
    ///
    /// # Errors
    /// If there is none, or it cannot be forgotten for good.
    pub async fn deregister(&self, id: &str) -> Result<(), Problem> {
        let _alone = self.alone(id).await;
        let service = self.service_of(id).await?;
        self.store.remove(Room::Coflows, id).await?;
        self.handle.deregister(id.to_owned()).await?;
        self.events.tell(What::CoflowDeregistered, id, Some(service));
        Ok(())
    }

    /// The policy that decides.
    pub async fn policy(&self) -> Asked {
        self.deciding.lock().await.policy.asked().clone()
    }

    /// Lets another policy decide; coflows go on where they are.
    ///
    /// # Errors
    /// Why the policy before stays.
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

    /// Gives a service a weight.
    ///
    /// # Errors
    /// If there is none of this name, or it stays without.
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

    /// Lets services have these weights wherever a policy and queues go by them.
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

    /// Gives applications another sensitivity table. A policy tree that goes by the one before goes on with that until it is set again.
    ///
    /// # Errors
    /// A text that is none, or lacks a model that an application has.
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

/// What an error says of a weight outside of [`WEIGHTS`].
fn expected_weight() -> String {
    format!("a number from {:e} to {:e}", WEIGHTS.start(), WEIGHTS.end())
}

/// A registration with these flows as it is asked for.
fn body(registration: &Registration, flows: Vec<FlowBody>) -> CoflowBody {
    let Registration { service, application, weight, deadline, .. } = registration;
    CoflowBody {
        service: Some(service.clone()),
        application: Some(application.clone()),
        weight: Some(*weight),
        // All digits, where a time is printed with fifteen: it has to be the same when it is read.
        deadline: deadline.map(|deadline| format!("{}s", deadline.get())),
        flows,
    }
}

/// A policy with the table that a tree can name.
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

/// Why a policy cannot decide over the coflows that are registered.
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

/// Why the plane declined; `flows` is the JSON pointer of the list of flows.
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
