//! Weights and bandwidths of services: shows them, checks changes, and applies them to the policy, queues and rates.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use weir_core::netshare::MEASUREMENT_PERIOD;
use weir_core::units::Rate;

use super::stored_bandwidths::BANDWIDTHS_KEY;
use super::{HostTable, Override, PolicyState, Registry};
use crate::audit::Actor;
use crate::control_plane::{Link, NetworkLinks, PauseMode, UnknownName};
use crate::events::EventKind;
use crate::network_bounds::NetworkBounds;
use crate::policy::ValidatedPolicy;
use crate::problem::{Location, Problem};
use crate::service_bandwidth::{BandwidthBody, BandwidthError, BandwidthKey, ServiceBandwidth};
use crate::store::{StoreError, Table};
use crate::values::{WEIGHT_RANGE, expected_weight};

/// A service.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ServiceState {
    /// Its name.
    pub name: String,
    /// Its applications.
    pub applications: Vec<String>,
    /// Its weight; `null` if the policy decides the weight, and its queues have weight 1.
    pub weight: Option<f64>,
    /// Its weight for unused bandwidth, if the configuration sets one. Default: its weight.
    pub excess: Option<f64>,
    /// Whether the policy or queues use the weights of services.
    pub weights_used: bool,
    /// Its minimum and maximum bandwidth; `null` without one.
    #[serde(flatten)]
    pub bandwidth: BandwidthBody,
    /// The pause of all its traffic; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<PauseMode>,
}

/// New parameters of a service. Others are unchanged.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ServiceChange {
    /// Its weight.
    pub weight: Option<f64>,
    /// Its minimum and maximum bandwidths; none removes one.
    pub bandwidth: Vec<(BandwidthKey, Option<Rate>)>,
}

impl Registry {
    /// All services, in the order of the configuration.
    pub async fn services(&self) -> Vec<ServiceState> {
        let pauses = self.pauses.lock().await.clone();
        let policy_state = self.policy_state.lock().await;
        let to_state = |number: u32| {
            let name = self.names.service(number);
            ServiceState {
                name: name.to_owned(),
                applications: self.names.applications(number).to_vec(),
                weight: policy_state.weights.get(name).copied(),
                excess: self.excess_weights.get(name).copied(),
                weights_used: self.queues_per_service || policy_state.policy.uses_service_weights(),
                bandwidth: (&policy_state.bandwidth(name)).into(),
                pause: pauses.service_mode(name),
            }
        };
        (0..self.names.services() as u32).map(to_state).collect()
    }

    /// Changes parameters of a service.
    ///
    /// # Errors
    /// 404 if the service is unknown, 422 if a value is out of range, 409 if queues or links cannot hold the bandwidths, 503 if the store
    /// cannot be written. All parameters are unchanged.
    pub async fn set_service(
        &self,
        actor: &Actor,
        service: &str,
        change: &ServiceChange,
    ) -> Result<(), Problem> {
        let number = UnknownName::check_service(&self.names, service)
            .map_err(|unknown| Problem::not_found("service", service, &unknown.expected))?;
        if let Some(weight) = change.weight.filter(|weight| !WEIGHT_RANGE.contains(weight)) {
            return Err(Problem::invalid(Location::field("weight"), &weight.to_string(), &expected_weight()));
        }
        let mut policy_state = self.policy_state.lock().await;
        let (mut weights, mut bandwidths) = (policy_state.weights.clone(), policy_state.bandwidths.clone());
        weights.extend(change.weight.map(|weight| (service.to_owned(), weight)));
        let former = policy_state.bandwidth(service);
        let mut bandwidth = former;
        change.bandwidth.iter().for_each(|&(key, rate)| bandwidth.set(key, rate));
        bandwidths.insert(service.to_owned(), bandwidth);
        bandwidths.retain(|_, bandwidth| !bandwidth.is_unset());
        if bandwidth != former {
            self.check_bandwidth(number, bandwidth, &bandwidths).await?;
        }
        self.store_service(&policy_state, service, change, (&weights, &bandwidths)).await?;
        if let Err(error) = self.apply_services(&policy_state.policy, &weights, &bandwidths).await {
            let former = (&policy_state.weights, &policy_state.bandwidths);
            self.store_service(&policy_state, service, change, former).await?;
            return Err(error);
        }
        let state = |weight: Option<&f64>, bandwidth: &ServiceBandwidth| match change.bandwidth.is_empty() {
            true => json!(weight),
            false => json!({ "weight": weight, "bandwidth": BandwidthBody::from(bandwidth) }),
        };
        let (before, after) = (policy_state.weights.get(service), weights.get(service));
        self.audit.note_accepted(actor, state(before, &former), state(after, &bandwidth));
        (policy_state.weights, policy_state.bandwidths) = (weights, bandwidths);
        for (is_changed, kind) in [
            (change.weight.is_some(), EventKind::WeightChanged),
            (!change.bandwidth.is_empty(), EventKind::BandwidthChanged),
        ] {
            if is_changed {
                self.events.send(kind, service, Some(service.to_owned()));
            }
        }
        Ok(())
    }

    /// Writes the changed parameters of a service to the store. If one cannot be written, the store keeps all former ones.
    async fn store_service(
        &self,
        policy_state: &PolicyState,
        service: &str,
        change: &ServiceChange,
        (weights, bandwidths): (&BTreeMap<String, f64>, &BTreeMap<String, ServiceBandwidth>),
    ) -> Result<(), StoreError> {
        let configured = policy_state.configured_weights.get(service).copied();
        let weight_of = |weights: &BTreeMap<String, f64>| {
            let set = weights.get(service).copied();
            Override { set, configured }
        };
        if change.weight.is_some() {
            self.store.put(Table::Weights, service, &weight_of(weights)).await?;
        }
        if change.bandwidth.is_empty() {
            return Ok(());
        }
        let configured = &policy_state.configured_bandwidths;
        let names = bandwidths.keys().chain(configured.keys());
        let to_override = |name: &String| {
            let body = |bandwidths: &BTreeMap<String, ServiceBandwidth>| {
                BandwidthBody::from(&bandwidths.get(name).copied().unwrap_or_default())
            };
            (name.clone(), Override { set: body(bandwidths), configured: body(configured) })
        };
        let overrides: BTreeMap<String, Override<BandwidthBody>> = names.map(to_override).collect();
        let stored = self.store.put(Table::Settings, BANDWIDTHS_KEY, &overrides).await;
        if stored.is_err() && change.weight.is_some() {
            self.store.put(Table::Weights, service, &weight_of(&policy_state.weights)).await?;
        }
        stored
    }

    /// Checks the bandwidth of a service, whether all links carry the minima of `bandwidths`, and whether rates can be computed for all
    /// services.
    async fn check_bandwidth(
        &self,
        service: u32,
        bandwidth: ServiceBandwidth,
        bandwidths: &BTreeMap<String, ServiceBandwidth>,
    ) -> Result<(), Problem> {
        bandwidth.check().map_err(bandwidth_problem)?;
        let conflict = |found: &str, expected: &str| {
            let name = self.names.service(service);
            Err(Problem::conflict(&format!("service `{name}`: {found}; expected {expected}")))
        };
        if bandwidth.is_unset() {
            return Ok(());
        }
        if !self.queues_per_service {
            return conflict("queues hold no bandwidths", "`queues = \"services\"` in the configuration");
        }
        let max_interval = MEASUREMENT_PERIOD.get();
        if bandwidth.has_max() && self.handle.interval().as_secs_f64() > max_interval {
            let expected = "an `interval` of at most 50ms in the configuration";
            return conflict("rates cannot hold a maximum bandwidth", expected);
        }
        if self.sharing.lock().await.is_queue_shared(service) {
            let expected = "a minimum or maximum in the configuration, which reserves a queue for it";
            return conflict("it shares its queue with other services", expected);
        }
        let hosts = self.hosts();
        let checked = match self.joins.is_empty() {
            true => self
                .network_bounds
                .get_or_init(|| self.network_bounds_of(&hosts))
                .check(self.names.services(), bandwidths),
            false => self.network_bounds_of(&hosts).check(self.names.services(), bandwidths),
        };
        checked.map_err(bandwidth_problem)
    }

    /// The bounds of the links of hosts, and of those between switches.
    pub(super) fn network_bounds_of(&self, hosts: &HostTable) -> NetworkBounds {
        let numbers = 0..hosts.slot_count() as u32;
        let free = Link { send: Rate::ZERO, recv: Rate::ZERO };
        let links: Vec<Link> =
            numbers.clone().map(|number| hosts.get(number).map_or(free, |entry| entry.link)).collect();
        let links = match &self.topology {
            Some(topology) => NetworkLinks::with_topology(&links, topology.clone()),
            None => NetworkLinks::one_switch(&links),
        };
        NetworkBounds::new(&links, numbers.map(|number| hosts.name(number)), &self.budget, self.divides_links)
    }

    /// Applies weights and bandwidths of services to the policy, queues and rates, as far as these use them.
    async fn apply_services(
        &self,
        policy: &ValidatedPolicy,
        weights: &BTreeMap<String, f64>,
        bandwidths: &BTreeMap<String, ServiceBandwidth>,
    ) -> Result<(), Problem> {
        if policy.uses_service_weights() {
            let policy = policy.build(&self.names, weights);
            self.handle.call(move |plane, now| plane.set_policy(policy, now)).await??;
        }
        Ok(self.set_services_of_queues(weights, bandwidths).await?)
    }
}

impl PolicyState {
    /// The bandwidth of a service.
    fn bandwidth(&self, service: &str) -> ServiceBandwidth {
        self.bandwidths.get(service).copied().unwrap_or_default()
    }

    /// The state for the audit log.
    pub(super) fn audit_value(&self, epoch: u64) -> Value {
        let mut state = json!({ "epoch": epoch, "policy": self.policy.spec(), "weights": self.weights });
        if !self.bandwidths.is_empty() {
            let bandwidths = self.bandwidths.iter();
            let bodies: BTreeMap<&str, BandwidthBody> =
                bandwidths.map(|(name, bandwidth)| (&**name, bandwidth.into())).collect();
            state["bandwidths"] = json!(bodies);
        }
        state
    }
}

/// The problem of a refused bandwidth.
fn bandwidth_problem(error: BandwidthError) -> Problem {
    match error {
        BandwidthError::Invalid { key, value, expected } => {
            Problem::invalid(Location::field(&key.replace('-', "_")), &value, &expected)
        }
        BandwidthError::LinkExceeded { .. } | BandwidthError::TooManyServices { .. } => {
            Problem::conflict(&error.to_string())
        }
    }
}
