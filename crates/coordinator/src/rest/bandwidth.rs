//! Serves limits of hosts' bandwidth for profilers: `/v1/hosts/{name}/bandwidth`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use super::body::{JsonObject, PathParam, QueryParams};
use super::{Api, check_may_change, run_to_completion, run_without_content};
use crate::audit::Actor;
use crate::problem::Problem;
use crate::values::{BandwidthFraction, Duration, Id, Name};

/// A limit of what a host sends.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BandwidthBody {
    /// The fraction of the rate of its link.
    #[schema(schema_with = BandwidthFraction::schema)]
    fraction: f64,
    /// The time after which the limit ends unless it is renewed, from `1s` to `60s`. An exponent and more digits are also valid.
    #[schema(inline, value_type = Duration)]
    lease: String,
    /// A name that the client chooses. Other owners cannot change the limit.
    #[schema(inline, value_type = Id)]
    owner: String,
}

/// The owner of a limit.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BandwidthOwner {
    /// The owner of the limit.
    #[param(inline, value_type = Id)]
    owner: String,
}

/// The answer to a limit.
#[derive(Debug, Serialize, ToSchema)]
pub struct BandwidthAnswer {
    /// Whether a limit of this owner was in force: it has not lapsed since the last request.
    renewed: bool,
}

/// Limits what a host sends to a fraction of its link, or renews the limit. Operators only.
#[utoipa::path(put, path = "/v1/hosts/{name}/bandwidth", operation_id = "limit_bandwidth",
    params(("name" = inline(Name), Path, description = "The host")),
    request_body = BandwidthBody,
    responses((status = 200, description = "The limit is in force", body = BandwidthAnswer), Problem))]
pub async fn limit(
    State(api): State<Api>,
    actor: Actor,
    PathParam(name): PathParam,
    JsonObject(body): JsonObject<BandwidthBody>,
) -> Result<Json<BandwidthAnswer>, Problem> {
    check_may_change(actor.identity(), None)?;
    let BandwidthBody { fraction, lease, owner } = body;
    let request = async move { api.registry.limit_bandwidth(&actor, &name, &owner, fraction, &lease).await };
    let renewed = run_to_completion(request).await?;
    Ok(Json(BandwidthAnswer { renewed }))
}

/// Ends the limit of a host. Operators only.
#[utoipa::path(delete, path = "/v1/hosts/{name}/bandwidth", operation_id = "end_bandwidth_limit",
    params(("name" = inline(Name), Path, description = "The host"), BandwidthOwner),
    responses((status = 204, description = "The host has no limit of this owner"), Problem))]
pub async fn end(
    State(api): State<Api>,
    actor: Actor,
    PathParam(name): PathParam,
    QueryParams(BandwidthOwner { owner }): QueryParams<BandwidthOwner>,
) -> Result<StatusCode, Problem> {
    check_may_change(actor.identity(), None)?;
    run_without_content(async move { api.registry.end_bandwidth_limit(&actor, &name, &owner).await }).await
}
