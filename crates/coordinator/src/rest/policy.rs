//! Serves the policy and the weights of services: `/v1/policy` and `/v1/services`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::ToSchema;

use super::body::{JsonObject, PathParam};
use super::{Api, Client, check_may_change, check_may_see, run_without_content};
use crate::policy::PolicySpec;
use crate::problem::Problem;
use crate::registry::ServiceState;

/// New parameters of a service.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceParameters {
    /// Its weight, above 0.
    weight: f64,
}

/// The current policy.
#[utoipa::path(get, path = "/v1/policy",
    responses((status = 200, body = PolicySpec), (status = "4XX", body = Problem)))]
pub async fn show(State(api): State<Api>, client: Client) -> Result<Json<PolicySpec>, Problem> {
    check_may_see(&client, None)?;
    Ok(Json(api.registry.policy().await))
}

/// Replaces the policy from the next schedule on; active coflows continue. Operators only.
#[utoipa::path(put, path = "/v1/policy", request_body = PolicySpec, responses((status = 204), (status = "4XX", body = Problem)))]
pub async fn set(
    State(api): State<Api>,
    client: Client,
    JsonObject(spec): JsonObject<PolicySpec>,
) -> Result<StatusCode, Problem> {
    check_may_change(&client, None)?;
    run_without_content(async move { api.registry.set_policy(spec).await }).await
}

/// All services; for a framework, its own.
#[utoipa::path(get, path = "/v1/services",
    responses((status = 200, body = Vec<ServiceState>), (status = "4XX", body = Problem)))]
pub async fn services(State(api): State<Api>, client: Client) -> Result<Json<Vec<ServiceState>>, Problem> {
    check_may_see(&client, None)?;
    let mut services = api.registry.services().await;
    services.retain(|service| client.may_see(Some(&service.name)));
    Ok(Json(services))
}

/// Sets the weight of a service. Operators only.
#[utoipa::path(put, path = "/v1/services/{name}", params(("name", description = "The service")),
    request_body = ServiceParameters, responses((status = 204), (status = "4XX", body = Problem)))]
pub async fn set_service(
    State(api): State<Api>,
    client: Client,
    PathParam(name): PathParam,
    JsonObject(body): JsonObject<ServiceParameters>,
) -> Result<StatusCode, Problem> {
    check_may_change(&client, None)?;
    run_without_content(async move { api.registry.set_weight(&name, body.weight).await }).await
}
