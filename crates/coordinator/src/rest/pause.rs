//! Serves pauses of hosts and services: `/v1/pause`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::ToSchema;

use super::body::JsonObject;
use super::{Api, Client, check_may_change, check_may_see, run_without_content};
use crate::audit::Actor;
use crate::control_plane::PauseMode;
use crate::problem::Problem;
use crate::registry::{PauseChange, PauseState};

/// The effect of orders from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RequestedMode {
    /// Orders are enforced: ends a pause.
    Enforced,
    /// Plain TCP, without rates and limits.
    Paused,
    /// Rates and limits are computed and shown only. Hosts have no queues and no marks.
    Shadow,
}

impl RequestedMode {
    fn pause_mode(self) -> Option<PauseMode> {
        match self {
            RequestedMode::Enforced => None,
            RequestedMode::Paused => Some(PauseMode::Paused),
            RequestedMode::Shadow => Some(PauseMode::Shadow),
        }
    }
}

/// A request to pause or resume all, hosts or services; at least one.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PauseBody {
    /// The effect of orders from now on.
    mode: RequestedMode,
    /// All hosts and switches. Pauses of single hosts and services are separate, and stay. Default: `false`.
    #[serde(default)]
    all: bool,
    /// Names of hosts. Default: none.
    #[serde(default)]
    hosts: Vec<String>,
    /// Names of services. Default: none.
    #[serde(default)]
    services: Vec<String>,
    /// Whether queues and marks of the hosts end, too. Only for a pause of hosts or of all. Default: `false`.
    #[serde(default)]
    queues: bool,
}

/// All pauses, with their beginning and the identity of the client. A framework sees no pauses of other services.
#[utoipa::path(get, path = "/v1/pause", operation_id = "list_pauses",
    responses((status = 200, description = "The pauses", body = Vec<PauseState>), Problem))]
pub async fn list(State(api): State<Api>, client: Client) -> Result<Json<Vec<PauseState>>, Problem> {
    check_may_see(&client, None)?;
    let mut pauses = api.registry.pauses().await;
    pauses.retain(|pause| client.may_see(pause.service()));
    Ok(Json(pauses))
}

/// Pauses hosts or services, lets them run in shadow mode, or resumes them, from the next schedule on. Operators only.
#[utoipa::path(put, path = "/v1/pause", operation_id = "set_pause", request_body = PauseBody,
    responses((status = 204, description = "The pauses are set"), Problem))]
pub async fn set(
    State(api): State<Api>,
    actor: Actor,
    JsonObject(body): JsonObject<PauseBody>,
) -> Result<StatusCode, Problem> {
    check_may_change(actor.identity(), None)?;
    let PauseBody { mode, all, hosts, services, queues } = body;
    let change = PauseChange { mode: mode.pause_mode(), all, hosts, services, queues };
    run_without_content(async move { api.registry.change_pauses(&actor, &change).await }).await
}
