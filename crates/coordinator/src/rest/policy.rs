//! Serves the policy, and the weights and bandwidths of services: `/v1/policy` and `/v1/services`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Deserializer};
use utoipa::{PartialSchema, ToSchema};
use weir_core::units::Rate;

use super::body::{JsonObject, PathParam};
use super::{Api, Client, check_may_change, check_may_see, run_without_content};
use crate::audit::Actor;
use crate::policy::PolicySpec;
use crate::problem::{Location, Problem};
use crate::registry::{ServiceChange, ServiceState};
use crate::service_bandwidth::BandwidthKey;
use crate::values::{Bandwidth, Name, Weight};

/// New parameters of a service, at least one. Others are unchanged.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServiceParameters {
    /// Its weight.
    #[schema(schema_with = Weight::schema)]
    #[serde(deserialize_with = "read_present")]
    weight: Option<f64>,
    /// Guaranteed in sum over its hosts; `null` for no minimum.
    #[schema(inline, value_type = Option<Bandwidth>)]
    #[serde(deserialize_with = "read_present")]
    min_bandwidth: Option<Option<String>>,
    /// Not exceeded in sum over its hosts; `null` for no maximum.
    #[schema(inline, value_type = Option<Bandwidth>)]
    #[serde(deserialize_with = "read_present")]
    max_bandwidth: Option<Option<String>>,
    /// Guaranteed to each host, in each direction; `null` for no minimum.
    #[schema(inline, value_type = Option<Bandwidth>)]
    #[serde(deserialize_with = "read_present")]
    min_bandwidth_per_host: Option<Option<String>>,
    /// Not exceeded by any host, in each direction; `null` for no maximum.
    #[schema(inline, value_type = Option<Bandwidth>)]
    #[serde(deserialize_with = "read_present")]
    max_bandwidth_per_host: Option<Option<String>>,
}

/// Reads a field that is present, which may be `null` if its type allows it.
fn read_present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(input: D) -> Result<Option<T>, D::Error> {
    T::deserialize(input).map(Some)
}

impl ServiceParameters {
    fn into_change(self) -> Result<ServiceChange, Problem> {
        let texts = [
            self.min_bandwidth,
            self.max_bandwidth,
            self.min_bandwidth_per_host,
            self.max_bandwidth_per_host,
        ];
        let mut bandwidth = Vec::new();
        for (key, text) in BandwidthKey::ALL.into_iter().zip(texts) {
            let Some(text) = text else { continue };
            let parse = |text: String| {
                text.parse::<Rate>().map_err(|_| {
                    let location = Location::field(&key.name().replace('-', "_"));
                    Problem::invalid(location, &text, key.expected())
                })
            };
            bandwidth.push((key, text.map(parse).transpose()?));
        }
        if self.weight.is_none() && bandwidth.is_empty() {
            let (status, location) = (StatusCode::UNPROCESSABLE_ENTITY, Location::Body(String::new()));
            return Err(Problem::located(status, location, "no parameter", "a `weight` or a bandwidth"));
        }
        Ok(ServiceChange { weight: self.weight, bandwidth })
    }
}

/// The current policy.
#[utoipa::path(get, path = "/v1/policy", operation_id = "show_policy",
    responses((status = 200, description = "The policy", body = PolicySpec), Problem))]
pub async fn show(State(api): State<Api>, client: Client) -> Result<Json<PolicySpec>, Problem> {
    check_may_see(&client, None)?;
    Ok(Json(api.registry.policy().await))
}

/// Replaces the policy from the next schedule on; active coflows continue. Operators only.
#[utoipa::path(put, path = "/v1/policy", operation_id = "set_policy",
    request_body = PolicySpec, responses((status = 204, description = "The policy is set"), Problem))]
pub async fn set(
    State(api): State<Api>,
    actor: Actor,
    JsonObject(spec): JsonObject<PolicySpec>,
) -> Result<StatusCode, Problem> {
    check_may_change(actor.identity(), None)?;
    run_without_content(async move { api.registry.set_policy(&actor, spec).await }).await
}

/// All services; for a framework, its own.
#[utoipa::path(get, path = "/v1/services", operation_id = "list_services",
    responses((status = 200, description = "The services", body = Vec<ServiceState>), Problem))]
pub async fn services(State(api): State<Api>, client: Client) -> Result<Json<Vec<ServiceState>>, Problem> {
    check_may_see(&client, None)?;
    let mut services = api.registry.services().await;
    services.retain(|service| client.may_see(Some(&service.name)));
    Ok(Json(services))
}

/// Sets the weight, or minimum and maximum bandwidths, of a service. Operators only.
#[utoipa::path(put, path = "/v1/services/{name}", operation_id = "set_service",
    params(("name" = inline(Name), Path, description = "The service")),
    request_body = ServiceParameters, responses((status = 204, description = "The parameters are set"), Problem))]
pub async fn set_service(
    State(api): State<Api>,
    actor: Actor,
    PathParam(name): PathParam,
    JsonObject(body): JsonObject<ServiceParameters>,
) -> Result<StatusCode, Problem> {
    check_may_change(actor.identity(), None)?;
    let change = body.into_change()?;
    run_without_content(async move { api.registry.set_service(&actor, &name, &change).await }).await
}
