//! Serves the policy and the weights of services: `/v1/policy` and `/v1/services`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::{PartialSchema, ToSchema};

use super::body::{JsonObject, PathParam};
use super::{Api, Client, check_may_change, check_may_see, run_without_content};
use crate::audit::Actor;
use crate::policy::PolicySpec;
use crate::problem::Problem;
use crate::registry::ServiceState;
use crate::values::{Name, Weight};

/// New parameters of a service.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceParameters {
    /// Its weight.
    #[schema(schema_with = Weight::schema)]
    weight: f64,
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

/// Sets the weight of a service. Operators only.
#[utoipa::path(put, path = "/v1/services/{name}", operation_id = "set_service",
    params(("name" = inline(Name), Path, description = "The service")),
    request_body = ServiceParameters, responses((status = 204, description = "The weight is set"), Problem))]
pub async fn set_service(
    State(api): State<Api>,
    actor: Actor,
    PathParam(name): PathParam,
    JsonObject(body): JsonObject<ServiceParameters>,
) -> Result<StatusCode, Problem> {
    check_may_change(actor.identity(), None)?;
    run_without_content(async move { api.registry.set_weight(&actor, &name, body.weight).await }).await
}
