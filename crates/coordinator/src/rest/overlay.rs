//! Serves the overlay: `/v1/relays`, `/v1/routes` and `/v1/paths`.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::body::{QueryParams, page_size};
use super::{Api, Client, check_may_see};
use crate::overlay::{PathState, RelayState, RouteState};
use crate::problem::Problem;
use crate::values::{COFLOW_PAGE, CoflowPageLimit};

/// Part of the list of routes.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RoutePage {
    /// The last coflow of the previous page.
    #[param(value_type = String, required = false)]
    after: Option<String>,
    /// Maximum number of coflows.
    #[param(inline, value_type = CoflowPageLimit, required = false)]
    limit: Option<usize>,
}

/// A page of routes in order of coflows.
#[derive(Debug, Serialize, ToSchema)]
pub struct RouteList {
    routes: Vec<RouteState>,
    /// The value of `after` for the next page; `null` after the last page.
    next: Option<String>,
}

/// All relays; empty without an overlay.
#[utoipa::path(get, path = "/v1/relays", operation_id = "list_relays",
    responses((status = 200, description = "The relays", body = Vec<RelayState>), Problem))]
pub async fn relays(State(api): State<Api>, client: Client) -> Result<Json<Vec<RelayState>>, Problem> {
    check_may_see(&client, None)?;
    let Some(handle) = api.registry.overlay() else { return Ok(Json(Vec::new())) };
    Ok(Json(handle.call(|overlay, now| overlay.relay_states(now))))
}

/// The routes of active coflows between regions; for a framework, those of its service.
#[utoipa::path(get, path = "/v1/routes", operation_id = "list_routes", params(RoutePage),
    responses((status = 200, description = "The routes", body = RouteList), Problem))]
pub async fn routes(
    State(api): State<Api>,
    client: Client,
    QueryParams(page): QueryParams<RoutePage>,
) -> Result<Json<RouteList>, Problem> {
    check_may_see(&client, None)?;
    let page_size = page_size(page.limit, &COFLOW_PAGE)?;
    let Some(handle) = api.registry.overlay() else {
        return Ok(Json(RouteList { routes: Vec::new(), next: None }));
    };
    let (mut routes, next) = handle.call(|overlay, _| overlay.routes(page.after.as_deref(), page_size));
    routes.retain(|route| client.may_see(Some(&route.service)));
    Ok(Json(RouteList { routes, next: next.map(|id| id.to_string()) }))
}

/// The last measurements of all paths between relays; empty without an overlay.
#[utoipa::path(get, path = "/v1/paths", operation_id = "list_paths",
    responses((status = 200, description = "The paths", body = Vec<PathState>), Problem))]
pub async fn paths(State(api): State<Api>, client: Client) -> Result<Json<Vec<PathState>>, Problem> {
    check_may_see(&client, None)?;
    let Some(handle) = api.registry.overlay() else { return Ok(Json(Vec::new())) };
    // With a thousand relays, names take longer than relays should wait.
    let samples = handle.call(|overlay, _| overlay.path_samples());
    let state = |(from, sample)| PathState::new(from, &sample, handle.config());
    Ok(Json(samples.into_iter().map(state).collect()))
}
