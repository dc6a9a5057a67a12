//! Policy and weights of services: `/v1/policy` and `/v1/services`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::ToSchema;

use super::body::{Named, Object};
use super::{Api, Who, complete, may_change, may_see};
use crate::policy::Asked;
use crate::problem::Problem;
use crate::registry::ServiceState;

/// New parameters of a service.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ServiceBody {
    /// Its weight, above 0.
    weight: f64,
}

/// The policy in force.
#[utoipa::path(get, path = "/v1/policy",
    responses((status = 200, body = Asked), (status = "4XX", body = Problem)))]
pub async fn show(State(api): State<Api>, who: Who) -> Result<Json<Asked>, Problem> {
    may_see(&who, None)?;
    Ok(Json(api.registry.policy().await))
}

/// Replaces the policy from the next schedule on; active coflows continue. Operators only.
#[utoipa::path(put, path = "/v1/policy", responses((status = 204), (status = "4XX", body = Problem)))]
pub async fn set(
    State(api): State<Api>,
    who: Who,
    Object(asked): Object<Asked>,
) -> Result<StatusCode, Problem> {
    may_change(&who, None)?;
    complete(async move { api.registry.set_policy(asked).await }).await
}

/// All services; for a framework, its own.
#[utoipa::path(get, path = "/v1/services",
    responses((status = 200, body = Vec<ServiceState>), (status = "4XX", body = Problem)))]
pub async fn services(State(api): State<Api>, who: Who) -> Result<Json<Vec<ServiceState>>, Problem> {
    may_see(&who, None)?;
    let mut services = api.registry.services().await;
    services.retain(|service| who.may_see(Some(&service.name)));
    Ok(Json(services))
}

/// Sets the weight of a service. Operators only.
#[utoipa::path(put, path = "/v1/services/{name}", params(("name", description = "The service")),
    responses((status = 204), (status = "4XX", body = Problem)))]
pub async fn set_service(
    State(api): State<Api>,
    who: Who,
    Named(name): Named,
    Object(body): Object<ServiceBody>,
) -> Result<StatusCode, Problem> {
    may_change(&who, None)?;
    complete(async move { api.registry.set_weight(&name, body.weight).await }).await
}
