//! Serves links of hosts and between switches: `/v1/links`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::ToSchema;

use super::body::JsonObject;
use super::{Api, Client, check_may_change, check_may_see, run_without_content};
use crate::audit::Actor;
use crate::problem::Problem;
use crate::registry::{LinkChange, LinkCondition, LinkState};

/// A request to take links down, or to end that.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkBody {
    /// Names of links, at least one.
    #[schema(min_items = 1)]
    links: Vec<String>,
    /// `down` until a request with `up`. A link that agents report as down stays down.
    state: LinkCondition,
}

/// The links of hosts and between switches, whether they are up, and why not.
#[utoipa::path(get, path = "/v1/links", operation_id = "list_links",
    responses((status = 200, description = "The links", body = Vec<LinkState>), Problem))]
pub async fn list(State(api): State<Api>, client: Client) -> Result<Json<Vec<LinkState>>, Problem> {
    check_may_see(&client, None)?;
    Ok(Json(api.registry.link_states().await))
}

/// Takes links down, or ends that, from the next schedule on. Operators only.
#[utoipa::path(put, path = "/v1/links", operation_id = "set_links", request_body = LinkBody,
    responses((status = 204, description = "The links are set"), Problem))]
pub async fn set(
    State(api): State<Api>,
    actor: Actor,
    JsonObject(LinkBody { links, state }): JsonObject<LinkBody>,
) -> Result<StatusCode, Problem> {
    check_may_change(actor.identity(), None)?;
    let change = LinkChange { links, state };
    run_without_content(async move { api.registry.change_links(&actor, &change).await }).await
}
