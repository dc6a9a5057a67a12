//! Serves connections of applications, and the level that their packets have: `/v1/connections` and `/v1/applications/{id}/level`.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event as Line, KeepAlive, Sse};
use futures_util::stream::{Stream, unfold};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use utoipa::{IntoParams, ToSchema};

use super::body::{JsonObject, PathParam, QueryParams, page_size};
use super::events::KEEPALIVE_INTERVAL;
use super::{Api, Client, check_may_change_existing, check_may_see, run_to_completion, run_without_content};
use crate::audit::Actor;
use crate::problem::Problem;
use crate::registry::{Connection, ConnectionBody, ProgramStream, Registry};
use crate::values::{CONNECTION_PAGE, ConnectionPageLimit, Id};

/// Part of the list of connections.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ConnectionPage {
    /// The last id of the previous page.
    #[param(value_type = String, required = false)]
    after: Option<String>,
    /// Only connections of this application.
    #[param(value_type = String, required = false)]
    application: Option<String>,
    /// Maximum number of connections.
    #[param(inline, value_type = ConnectionPageLimit, required = false)]
    limit: Option<usize>,
}

/// A page of connections in order of ids.
#[derive(Debug, Serialize, ToSchema)]
pub struct ConnectionList {
    connections: Vec<Connection>,
    /// The value of `after` for the next page; `null` after the last page.
    next: Option<String>,
}

/// All connections opened through the API; for a framework, those of its applications.
#[utoipa::path(get, path = "/v1/connections", operation_id = "list_connections", params(ConnectionPage),
    responses((status = 200, description = "The connections", body = ConnectionList), Problem))]
pub async fn list(
    State(api): State<Api>,
    client: Client,
    QueryParams(page): QueryParams<ConnectionPage>,
) -> Result<Json<ConnectionList>, Problem> {
    check_may_see(&client, None)?;
    let size = page_size(page.limit, &CONNECTION_PAGE)?;
    let (after, application) = (page.after.as_deref(), page.application.as_deref());
    let may_see = |service: &str| client.may_see(Some(service));
    let connections = api.registry.connections(after, application, size, may_see).await;
    let next = connections.last().filter(|_| connections.len() == size).map(|last| last.id.clone());
    Ok(Json(ConnectionList { connections, next }))
}

/// One connection.
#[utoipa::path(get, path = "/v1/connections/{id}", operation_id = "show_connection",
    params(("id" = inline(Id), Path, description = "The connection's id")),
    responses((status = 200, description = "The connection", body = Connection), Problem))]
pub async fn connection(
    State(api): State<Api>,
    client: Client,
    PathParam(id): PathParam,
) -> Result<Json<Connection>, Problem> {
    check_may_see(&client, None)?;
    let connection = api.registry.connection(&id).await?;
    check_may_see(&client, Some(&api.registry.service_of_application(&connection.application).await?))?;
    Ok(Json(connection))
}

/// Opens a connection of an application. The answer has the priority level for its packets.
#[utoipa::path(put, path = "/v1/connections/{id}", operation_id = "open_connection",
    params(("id" = inline(Id), Path, description = "An id that the framework chooses")),
    request_body = ConnectionBody, responses((status = 200, description = "The connection is open", body = Connection), Problem))]
pub async fn open(
    State(api): State<Api>,
    actor: Actor,
    PathParam(id): PathParam,
    JsonObject(body): JsonObject<ConnectionBody>,
) -> Result<Json<Connection>, Problem> {
    check_may_change_existing(actor.identity(), api.registry.service_of_application(&body.application))
        .await?;
    run_to_completion(async move { api.registry.open(&actor, &id, body).await }).await.map(Json)
}

/// Closes a connection.
#[utoipa::path(delete, path = "/v1/connections/{id}", operation_id = "close_connection",
    params(("id" = inline(Id), Path, description = "The connection's id")),
    responses((status = 204, description = "The connection is closed"), Problem))]
pub async fn close(
    State(api): State<Api>,
    actor: Actor,
    PathParam(id): PathParam,
) -> Result<StatusCode, Problem> {
    check_may_see(actor.identity(), None)?;
    let connection = api.registry.connection(&id).await?;
    check_may_change_existing(actor.identity(), api.registry.service_of_application(&connection.application))
        .await?;
    run_without_content(async move { api.registry.close(&actor, &id).await }).await
}

/// The program that follows a level.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LevelFollower {
    /// A program of the application. Its connections remain open as long as this stream, and end 10 s later.
    #[param(inline, value_type = Id, required = false)]
    program: Option<String>,
}

/// The level of an application.
#[derive(Debug, Serialize, ToSchema)]
pub struct Level {
    /// The priority level, from 0: packets of level 0 have the mark (DSCP) 1.
    level: u16,
}

/// The level of an application, now and after each change, as server-sent events, until the application is removed.
#[utoipa::path(get, path = "/v1/applications/{id}/level", operation_id = "watch_level",
    params(("id" = inline(Id), Path, description = "The application's id"), LevelFollower),
    responses((status = 200, description = "The levels", body = Level, content_type = "text/event-stream"), Problem))]
pub async fn level(
    State(api): State<Api>,
    client: Client,
    PathParam(id): PathParam,
    QueryParams(follower): QueryParams<LevelFollower>,
) -> Result<Sse<impl Stream<Item = Result<Line, Infallible>>>, Problem> {
    let service = api.registry.service_of_application(&id);
    let program = match follower.program {
        Some(program) => {
            check_may_change_existing(&client, service).await?;
            Some(ProgramStream::open(&api.registry, &id, program)?)
        }
        None => {
            check_may_see(&client, None)?;
            check_may_see(&client, Some(&service.await?))?;
            None
        }
    };
    let (changes, stop) = (api.registry.events.level_changes(), api.stop.clone());
    let levels = Levels { registry: api.registry, id, last: None, changes, stop, _program: program };
    Ok(Sse::new(unfold(levels, Levels::next)).keep_alive(KeepAlive::new().interval(KEEPALIVE_INTERVAL)))
}

struct Levels {
    registry: Arc<Registry>,
    id: String,
    /// The last level that was sent.
    last: Option<u16>,
    changes: watch::Receiver<()>,
    stop: watch::Receiver<bool>,
    _program: Option<ProgramStream>,
}

impl Levels {
    /// The next level; `None` if the application is gone, or when the server stops.
    async fn next(mut self) -> Option<(Result<Line, Infallible>, Levels)> {
        loop {
            let level = self.registry.application(&self.id).await.ok()?.level;
            if self.last.replace(level) != Some(level) {
                // Serialization of this type cannot fail.
                let line = Line::default().json_data(Level { level }).ok()?;
                return Some((Ok(line), self));
            }
            tokio::select! {
                _ = self.stop.wait_for(|stop| *stop) => return None,
                change = self.changes.changed() => change.ok()?,
            }
        }
    }
}
