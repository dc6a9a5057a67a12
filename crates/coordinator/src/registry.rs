//! Registry: applies requests of frameworks and operators to the control plane, and writes them to the store before the
//! answer.
//!
//! Requests with an id are idempotent: repeating one changes nothing. Handlers check permissions before they call the
//! registry, and get the owner of an object from [`Registry::service_of`] and similar methods.
//!
//! A registration is applied and then stored; if it cannot be stored, it is withdrawn. A removal is stored first. A request that
//! replaces a value is checked, then stored, and applied last, since reverting an applied change would be visible. If a checked
//! change cannot be applied, the former value is written to the store again.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock, RwLock};

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, watch};
use utoipa::openapi::{ArrayBuilder, Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};
use weir_core::model::{LinkBudget, ServiceNames, Topology};
use weir_core::saba::controller::PortLimits;
use weir_fields::FileError;
use weir_trace::sensitivity;
use weir_trace::sensitivity::SensitivityTable;

use crate::audit::{Actor, AuditLog, fingerprint};
use crate::config::{Config, JoinRule, QueueAssignment, Switch};
use crate::control_plane::Refusal;
use crate::control_thread::Handle;
use crate::events::{EventChannel, EventKind};
use crate::network_bounds::NetworkBounds;
use crate::overlay::Handle as OverlayHandle;
use crate::policy::{PolicyError, PolicySpec, ValidatedPolicy};
use crate::problem::{Location, Problem};
use crate::quota::ServiceQuota;
use crate::service_bandwidth::ServiceBandwidth;
use crate::store::{Snapshot, Store, StoreError, StoreStatus, Table};
use crate::values::{self, WEIGHT_RANGE, expected_weight};

mod bandwidth;
mod bodies;
mod carried_state;
mod change_watcher;
mod coflows;
mod connections;
mod division;
mod flow_weights;
mod hosts;
mod links;
mod membership;
mod observed_connections;
mod overlay;
mod pauses;
mod programs;
mod quota;
mod records;
mod refused_claims;
pub mod routing;
mod services;
mod sharing;
mod stored_bandwidths;
mod stored_coflow;
#[cfg(test)]
mod tests;
mod traffic;
mod unfit;

use links::{LinkStates, LinkTable};
use routing::PortMap;

pub use bodies::{ApplicationBody, ConnectionBody, TrafficBody};
pub use connections::{Connection, ProgramStream};
pub use hosts::{HostEntry, HostTable};
pub use links::{LinkChange, LinkCondition, LinkState};
pub use membership::{HostClaim, JoinRefusal, JoinedHost};
pub use observed_connections::ObservedState;
pub use pauses::{PauseChange, PauseState, PauseTarget};
pub use quota::ObjectUsage;
pub use records::check_record;
pub use services::{ServiceChange, ServiceState};
pub use sharing::{Application, PortQueues};
pub use unfit::UnfitRecords;

/// Key of the policy in the store's [`Table::Settings`].
const POLICY_KEY: &str = "policy";

/// Key of the sensitivity table in the store's [`Table::Settings`].
const SENSITIVITY_KEY: &str = "sensitivity";

/// Name of the table of [`Registry::set_sensitivity_table`] in policy trees of the API.
pub const REGISTERED_TABLE: &str = "registered";

/// Number of locks for ids. Requests about ids with different locks run concurrently.
const ID_LOCK_COUNT: usize = 64;

/// The expected value where a coflow is unknown.
const EXPECTED_COFLOW_ID: &str = "the id of a registered coflow";

/// The expected value of a host's name.
const EXPECTED_HOST: &str = "a host of GET /v1/hosts";

/// The JSON pointer of the flows of a coflow.
const FLOWS_POINTER: &str = "/flows";

/// A coflow, as its framework registers it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CoflowBody {
    /// The service that it belongs to. Default: the framework's service, or `default` for other clients.
    pub service: Option<String>,
    /// An application of that service. Default: `default`.
    pub application: Option<String>,
    /// Its weight for weighted policies. Default: 1.
    #[schema(inline, value_type = Option<values::Weight>)]
    pub weight: Option<f64>,
    /// Time after its registration by which it should complete, such as `10s`. An exponent and more digits are also valid.
    #[schema(inline, value_type = Option<values::Duration>)]
    pub deadline: Option<String>,
    /// Its flows, at least one. Requests and answers refer to a flow by its index, from 0.
    #[schema(min_items = 1)]
    pub flows: Vec<FlowBody>,
}

/// The flows of a coflow, at least one.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct FlowList(pub Vec<FlowBody>);

impl PartialSchema for FlowList {
    fn schema() -> RefOr<Schema> {
        let flow = Ref::from_schema_name(FlowBody::name());
        ArrayBuilder::new().items(flow).min_items(Some(1)).into()
    }
}

impl ToSchema for FlowList {}

/// A flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FlowBody {
    /// The host that sends. Between regions: an address, or the name of a region.
    pub from: String,
    /// The host that receives. Between regions: an address, or the name of a region.
    pub to: String,
    /// Size in bytes; absent if it is unknown. Policies that use sizes refuse flows of unknown size.
    #[schema(inline, value_type = Option<values::FlowBytes>)]
    #[serde(default, deserialize_with = "values::read_flow_bytes")]
    pub bytes: Option<u64>,
    /// Only between regions: the first and the last number of its data flows. Default: its index. Flows with the same `to` and `numbers`
    /// are a flow group; those of other groups between the same regions have other numbers.
    #[schema(inline, value_type = Option<Vec<values::FlowNumber>>, min_items = 2, max_items = 2)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numbers: Option<[u32; 2]>,
}

/// A value that a client set, and the configured value at that time. A later change of the configuration takes precedence.
#[derive(Debug, Serialize, Deserialize)]
struct Override<T> {
    set: T,
    configured: T,
}

impl<T: PartialEq> Override<T> {
    /// The value that applies if `configured` is the configured value now.
    fn value_for(self, configured: T) -> T {
        if self.configured == configured { self.set } else { configured }
    }
}

/// Current and configured policy, weights and bandwidths, and the sensitivity table.
struct PolicyState {
    policy: ValidatedPolicy,
    /// The policy of the configuration.
    configured_policy: PolicySpec,
    weights: BTreeMap<String, f64>,
    configured_weights: BTreeMap<String, f64>,
    bandwidths: BTreeMap<String, ServiceBandwidth>,
    configured_bandwidths: BTreeMap<String, ServiceBandwidth>,
    sensitivity_table: SensitivityTable,
}

impl PolicyState {
    /// Loads the values that clients set from the store.
    fn load(config: &Config, store: &Store, unfit: &mut UnfitRecords) -> Result<PolicyState, String> {
        let stored_table =
            store.get::<String>(Table::Settings, SENSITIVITY_KEY).map_err(|error| error.to_string())?;
        let sensitivity_table = match stored_table {
            Some(text) => sensitivity::parse(&text, "table").map_err(|error| {
                store.damaged_record(Table::Settings, SENSITIVITY_KEY, error.to_string()).to_string()
            })?,
            None => SensitivityTable::default(),
        };
        let configured_policy = config.policy.spec().clone();
        let stored: Option<Override<PolicySpec>> =
            store.get(Table::Settings, POLICY_KEY).map_err(|error| error.to_string())?;
        let spec =
            stored.map_or(configured_policy.clone(), |stored| stored.value_for(configured_policy.clone()));
        let policy = if spec == configured_policy {
            config.policy.clone()
        } else {
            let file = "policy in the store";
            match validate_policy(spec, file, &sensitivity_table, &config.names, config.settings.interval) {
                // An earlier version accepted it.
                Err(error @ PolicyError::NotEnforceable(_)) => {
                    unfit.note("policy", "set by a client", error);
                    config.policy.clone()
                }
                policy => policy.map_err(|error| error.to_string())?,
            }
        };
        let weights = load_weights(config, store)?;
        let configured_weights = config.weights.clone();
        let bandwidths = stored_bandwidths::load_bandwidths(config, store, unfit)?;
        let configured_bandwidths = config.bandwidths.clone();
        Ok(PolicyState {
            policy,
            configured_policy,
            weights,
            configured_weights,
            bandwidths,
            configured_bandwidths,
            sensitivity_table,
        })
    }
}

/// The weights of services, configured or set by a client.
fn load_weights(config: &Config, store: &Store) -> Result<BTreeMap<String, f64>, String> {
    let mut weights = config.weights.clone();
    let stored: Vec<(String, Override<Option<f64>>)> =
        store.records(Table::Weights).map_err(|error| error.to_string())?;
    for (name, stored) in stored {
        let weight = stored.value_for(config.weights.get(&name).copied());
        if let Some(weight) = weight.filter(|weight| !WEIGHT_RANGE.contains(weight)) {
            let reason = format!("weight {weight}; expected {}", expected_weight());
            return Err(store.damaged_record(Table::Weights, &name, reason).to_string());
        }
        match weight {
            Some(weight) => weights.insert(name, weight),
            None => weights.remove(&name),
        };
    }
    Ok(weights)
}

/// The registered objects and settings, with the store and the control plane.
pub struct Registry {
    handle: Handle,
    overlay: Option<OverlayHandle>,
    store: Store,
    names: ServiceNames,
    /// The hosts at this moment. Replaced as a whole.
    hosts: RwLock<Arc<HostTable>>,
    joins: Vec<JoinRule>,
    /// Locked while a host joins or is removed, before all other locks.
    membership: Mutex<membership::RefusalLog>,
    /// Never locked across an await.
    refused_claims: std::sync::Mutex<refused_claims::RefusedClaims>,
    switches: Vec<Switch>,
    /// The links of the configuration.
    link_table: LinkTable,
    /// Locked after `membership` and before all other locks, if several are.
    links: Mutex<LinkStates>,
    /// The limits of the queues of ports without own limits, if queues belong to applications.
    port_limits: Option<PortLimits>,
    policy_state: Mutex<PolicyState>,
    /// Locked before `sharing`, if both are.
    pauses: Mutex<pauses::StoredPauses>,
    sharing: Mutex<sharing::SharingState>,
    /// Locked after `sharing`, if both are, and never across an await.
    programs: std::sync::Mutex<programs::Programs>,
    id_locks: Vec<Mutex<()>>,
    hasher: RandomState,
    /// Whether queues belong to services (NetShare) and not to applications (Saba).
    queues_per_service: bool,
    /// Configured weights of services for unused bandwidth.
    excess_weights: BTreeMap<String, f64>,
    /// The parts of every link.
    budget: LinkBudget,
    topology: Option<Topology>,
    /// Whether an allocator divides the links of the network among services.
    divides_links: bool,
    /// Computed at the first bandwidth that a client sets.
    network_bounds: OnceLock<NetworkBounds>,
    /// Events of changes.
    pub events: EventChannel,
    audit: Arc<AuditLog>,
    framework_quota: ServiceQuota,
    unfit: UnfitRecords,
}

impl Registry {
    /// Loads the store, and applies its contents to the control plane of `handle` and to the overlay. The store is unchanged.
    ///
    /// # Errors
    /// The store cannot be read or contains an invalid record, the control plane refuses the policy,
    /// or the coordinator has stopped.
    pub async fn new(
        config: &Config,
        (store, audit): (Store, Arc<AuditLog>),
        handle: Handle,
        overlay: Option<OverlayHandle>,
    ) -> Result<Registry, String> {
        let mut unfit = UnfitRecords::default();
        let policy_state = PolicyState::load(config, &store, &mut unfit)?;
        let PolicyState { policy, weights, bandwidths, sensitivity_table, .. } = &policy_state;
        let built_policy = policy.build(&config.names, weights);
        handle
            .call(move |plane, now| plane.set_policy(built_policy, now))
            .await
            .map_err(|stopped| stopped.to_string())?
            .map_err(|error| format!("policy: {error}"))?;
        let hosts = membership::load_hosts(&config.joins, HostTable::new(config), &store, &mut unfit)?;
        let port_map = Arc::new(PortMap::new(hosts.slot_count(), &config.switches, &BTreeSet::new()));
        let services = (weights, bandwidths);
        let network = (&port_map, &hosts);
        let stored = (&store, &mut unfit);
        let mut sharing = sharing::SharingState::new(config, network, sensitivity_table, services, stored)?;
        let pauses = pauses::StoredPauses::load(&store)?;
        sharing.shadow_services = pauses.shadow_services();
        let links = LinkStates::load(&store)?;
        let mut registry = Registry {
            handle,
            overlay,
            store,
            names: config.names.clone(),
            hosts: RwLock::new(Arc::new(hosts)),
            joins: config.joins.clone(),
            membership: Mutex::new(membership::RefusalLog::new()),
            refused_claims: std::sync::Mutex::default(),
            switches: config.switches.clone(),
            link_table: LinkTable::new(config),
            links: Mutex::new(links),
            port_limits: config.queues.saba().map(|saba| saba.limits),
            policy_state: Mutex::new(policy_state),
            pauses: Mutex::new(pauses),
            sharing: Mutex::new(sharing),
            programs: std::sync::Mutex::default(),
            id_locks: std::iter::repeat_with(Mutex::default).take(ID_LOCK_COUNT).collect(),
            hasher: RandomState::new(),
            queues_per_service: config.queues == QueueAssignment::Services,
            excess_weights: config.excess_weights.clone(),
            budget: config.settings.budget,
            topology: config.topology.clone(),
            divides_links: config.allocator,
            network_bounds: OnceLock::new(),
            events: EventChannel::new(config.limits.max_queued_events as usize),
            audit,
            framework_quota: config.limits.framework,
            unfit: UnfitRecords::default(),
        };
        registry.restore_all(&mut unfit).await?;
        registry.unfit = unfit;
        Ok(registry)
    }

    /// Applies the store's pauses, links that are down, coflows and the queues to the control plane and the overlay.
    async fn restore_all(&self, unfit: &mut UnfitRecords) -> Result<(), String> {
        self.restore_hosts().await.map_err(|stopped| stopped.to_string())?;
        self.restore_pauses(unfit).await.map_err(|stopped| stopped.to_string())?;
        self.restore_links().await.map_err(|stopped| stopped.to_string())?;
        self.note_unknown_links(unfit).await;
        self.restore(unfit).await?;
        self.restore_overlay(unfit).await.map_err(|error| error.to_string())?;
        self.restore_measurements().map_err(|error| error.to_string())?;
        let mut sharing = self.sharing.lock().await;
        self.send_all_queues(&sharing).await.map_err(|stopped| stopped.to_string())?;
        self.send_flow_weights(&mut sharing).await.map_err(|stopped| stopped.to_string())?;
        self.send_traffic(&sharing).await.map_err(|stopped| stopped.to_string())
    }

    /// Logs the records that do not fit the configuration, and notes the start in the audit log.
    pub async fn begin(&self) {
        self.unfit.log();
        self.audit.note_start(self.policy_state.lock().await.audit_value(self.epoch()));
    }

    /// The records of the store that do not fit the configuration.
    pub fn unfit_records(&self) -> &UnfitRecords {
        &self.unfit
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The client of the control plane.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Services and their applications.
    pub fn names(&self) -> &ServiceNames {
        &self.names
    }

    /// Switches in order of their numbers, which follow those of hosts and slots.
    pub fn switches(&self) -> &[Switch] {
        &self.switches
    }

    /// The name of a host or switch by its number.
    fn agent_name(&self, number: u32) -> String {
        let hosts = self.hosts();
        let switch = (number as usize).checked_sub(hosts.slot_count());
        let switch = switch.and_then(|switch| self.switches.get(switch));
        switch.map_or_else(|| hosts.name(number).to_owned(), |switch| switch.name.clone())
    }

    /// The contents of the store at this moment.
    ///
    /// # Errors
    /// [`StoreError`]: the store cannot be read.
    pub fn snapshot(&self) -> Result<Snapshot, StoreError> {
        self.store.snapshot()
    }

    /// Whether the store can be written.
    pub fn store_status(&self) -> StoreStatus {
        self.store.status()
    }

    /// Why changes are refused; `Ok` if the store can be written.
    ///
    /// # Errors
    /// [`StoreError::Unwritable`]: a write has failed, and no later attempt has succeeded.
    pub fn check_writable(&self) -> Result<(), StoreError> {
        self.store.check_writable()
    }

    /// The audit log.
    pub fn audit(&self) -> &Arc<AuditLog> {
        &self.audit
    }

    /// The epoch of this coordinator, which rises with each start.
    pub fn epoch(&self) -> u64 {
        self.store.epoch()
    }

    /// Handles changes without a request, until `stop` is true: removes completed coflows from the store, sends events, and
    /// applies observed connections.
    pub async fn watch(&self, stop: watch::Receiver<bool>) {
        change_watcher::watch_changes(self, stop).await;
    }

    /// Locks an id: other requests about it wait until the guard is dropped.
    async fn lock_id(&self, id: &str) -> MutexGuard<'_, ()> {
        self.id_locks[self.hasher.hash_one(id) as usize % ID_LOCK_COUNT].lock().await
    }

    fn host_number(&self, name: &str, location: impl FnOnce() -> Location) -> Result<u32, Problem> {
        self.hosts().number(name).ok_or_else(|| unknown_host(name, location()))
    }

    /// The current policy.
    pub async fn policy(&self) -> PolicySpec {
        self.policy_state.lock().await.policy.spec().clone()
    }

    /// Replaces the policy. Active coflows continue.
    ///
    /// # Errors
    /// [`Problem`]: the policy is invalid or does not fit the registered coflows, or the store cannot be written. The
    /// policy is unchanged.
    pub async fn set_policy(&self, actor: &Actor, spec: PolicySpec) -> Result<(), Problem> {
        let mut policy_state = self.policy_state.lock().await;
        let interval = self.handle.interval().as_secs_f64();
        let table = &policy_state.sensitivity_table;
        let policy = validate_policy(spec.clone(), "tree", table, &self.names, interval)?;
        let build = || policy.build(&self.names, &policy_state.weights);
        let stored_override = |spec: &PolicySpec| Override {
            set: spec.clone(),
            configured: policy_state.configured_policy.clone(),
        };
        let checked = build();
        self.handle.call(move |plane, _| plane.check_policy(checked)).await?.map_err(policy_problem)?;
        self.store.put(Table::Settings, POLICY_KEY, &stored_override(&spec)).await?;
        let built = build();
        let set = self.handle.call(move |plane, now| plane.set_policy(built, now)).await;
        if let Err(problem) = set.map_err(Problem::from).and_then(|set| set.map_err(policy_problem)) {
            self.store.put(Table::Settings, POLICY_KEY, &stored_override(policy_state.policy.spec())).await?;
            return Err(problem);
        }
        self.audit.note_accepted(actor, json!(policy_state.policy.spec()), json!(spec));
        policy_state.policy = policy;
        self.events.send(EventKind::PolicyChanged, POLICY_KEY, None);
        Ok(())
    }

    /// The sensitivity table.
    pub async fn sensitivity_table(&self) -> SensitivityTable {
        self.policy_state.lock().await.sensitivity_table.clone()
    }

    /// Replaces the sensitivity table for applications. A policy tree that uses the former table keeps it until the
    /// tree is set again.
    ///
    /// # Errors
    /// [`Problem`]: the text is not a valid table, it lacks the model of a registered application, or the store cannot
    /// be written.
    pub async fn set_sensitivity_table(&self, actor: &Actor, text: String) -> Result<(), Problem> {
        let table = sensitivity::parse(&text, "body")?;
        let mut policy_state = self.policy_state.lock().await;
        let mut sharing = self.sharing.lock().await;
        let updated = sharing.with_table(&table)?;
        self.store.put(Table::Settings, SENSITIVITY_KEY, &text).await?;
        *sharing = updated;
        self.send_all_queues(&sharing).await?;
        let (before, after) = (table_value(&policy_state.sensitivity_table), table_value(&table));
        self.audit.note_accepted(actor, before, after);
        policy_state.sensitivity_table = table;
        self.events.send(EventKind::TableChanged, SENSITIVITY_KEY, None);
        Ok(())
    }
}

fn unknown_host(name: &str, location: Location) -> Problem {
    Problem::invalid(location, name, EXPECTED_HOST)
}

/// The length and checksum of a sensitivity table, as GET returns it.
fn table_value(table: &SensitivityTable) -> Value {
    let mut text = Vec::new();
    // A vector accepts all bytes.
    let _ = table.write(&mut text);
    fingerprint(&String::from_utf8_lossy(&text))
}

/// Validates a policy for these names. A tree can refer to `table` by the name [`REGISTERED_TABLE`].
fn validate_policy(
    spec: PolicySpec,
    file: &str,
    table: &SensitivityTable,
    names: &ServiceNames,
    interval: f64,
) -> Result<ValidatedPolicy, PolicyError> {
    let find_table = |name: &str| {
        if name == REGISTERED_TABLE {
            return Ok(table.clone());
        }
        let expected = format!("expected `{REGISTERED_TABLE}`, the table of PUT /v1/sensitivity");
        Err(FileError::Io { file: format!("table `{name}`"), source: std::io::Error::other(expected) })
    };
    ValidatedPolicy::new(spec, file, &find_table, names, interval)
}

/// The problem of a policy that cannot schedule the registered coflows.
fn policy_problem(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::UnknownSize(_) => {
            let (status, at) = (StatusCode::UNPROCESSABLE_ENTITY, Location::field("policy"));
            let expected = "a policy that does not use sizes, or `bytes` for every flow";
            Problem::located(status, at, "a registered coflow has a flow of unknown size", expected)
        }
        other => other.into(),
    }
}

/// The problem of a request that was not applied; `flows` is the JSON pointer of the list of flows.
fn refusal_problem(refusal: Refusal, flows: &str) -> Problem {
    let text = refusal.to_string();
    let (location, value) = match refusal {
        Refusal::IdTaken(_) => return Problem::conflict(&text),
        Refusal::UnknownCoflow(id) => return Problem::not_found("coflow", &id, EXPECTED_COFLOW_ID),
        Refusal::LimitReached { .. } => return Problem::limit_reached(&text),
        Refusal::QuotaReached(reached) => return reached.into(),
        Refusal::NoTreeLeaf(_) => return Problem::new(StatusCode::UNPROCESSABLE_ENTITY, text),
        Refusal::InvalidId(id) => (Location::parameter("id"), id),
        Refusal::NoFlows => (Location::Body(flows.to_owned()), "[]".to_owned()),
        Refusal::UnknownHost { flow, host, .. } => {
            (Location::Body(format!("{flows}/{flow}")), host.to_string())
        }
        Refusal::UnknownSize(flow) => (Location::Body(format!("{flows}/{flow}/bytes")), "nothing".to_owned()),
        Refusal::InvalidWeight(weight) => (Location::field("weight"), weight.to_string()),
        Refusal::UnknownName(unknown) => return unknown.into(),
    };
    let expected = text.rsplit_once("expected ").map_or(text.as_str(), |(_, expected)| expected);
    Problem::invalid(location, &value, expected)
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        refusal_problem(refusal, FLOWS_POINTER)
    }
}
