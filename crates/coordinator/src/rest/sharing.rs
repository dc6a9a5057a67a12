//! Saba's applications, connections and queues: `/v1/sensitivity`, `/v1/applications`, `/v1/connections`, `/v1/queues`
//! and `/v1/observed`.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::body::{Named, Object, Text};
use super::{Api, Who, complete, may_change, may_see, may_touch, service_of, through};
use crate::problem::Problem;
use crate::registry::{Application, ApplicationBody, Connection, ConnectionBody, FoundState, PortQueues};

/// The sensitivity table, in TOML as described by docs/sensitivity-table.md.
#[utoipa::path(get, path = "/v1/sensitivity",
    responses((status = 200, body = String, content_type = "application/toml"), (status = "4XX", body = Problem)))]
pub async fn table(State(api): State<Api>, who: Who) -> Result<Response, Problem> {
    may_see(&who, None)?;
    let mut text = Vec::new();
    let written = api.registry.table().await.write(&mut text);
    written.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "application/toml")], text).into_response())
}

/// Replaces the sensitivity table, which must have the models of all registered applications. Operators only.
#[utoipa::path(put, path = "/v1/sensitivity", request_body(content = String, content_type = "application/toml"),
    responses((status = 204), (status = "4XX", body = Problem)))]
pub async fn set_table(State(api): State<Api>, who: Who, Text(text): Text) -> Result<StatusCode, Problem> {
    may_change(&who, None)?;
    complete(async move { api.registry.set_table(text).await }).await
}

/// All applications; for a framework, its own.
#[utoipa::path(get, path = "/v1/applications",
    responses((status = 200, body = Vec<Application>), (status = "4XX", body = Problem)))]
pub async fn list(State(api): State<Api>, who: Who) -> Result<Json<Vec<Application>>, Problem> {
    may_see(&who, None)?;
    let mut applications = api.registry.applications().await;
    applications.retain(|application| who.may_see(Some(&application.service)));
    Ok(Json(applications))
}

/// One application.
#[utoipa::path(get, path = "/v1/applications/{id}", params(("id", description = "The application's id")),
    responses((status = 200, body = Application), (status = "4XX", body = Problem)))]
pub async fn show(State(api): State<Api>, who: Who, Named(id): Named) -> Result<Json<Application>, Problem> {
    may_see(&who, None)?;
    let application = api.registry.application(&id).await?;
    may_see(&who, Some(&application.service))?;
    Ok(Json(application))
}

/// Registers an application. The answer has its priority level.
#[utoipa::path(put, path = "/v1/applications/{id}", params(("id", description = "An id that the framework chooses")),
    responses((status = 200, body = Application), (status = "4XX", body = Problem)))]
pub async fn register(
    State(api): State<Api>,
    who: Who,
    Named(id): Named,
    Object(body): Object<ApplicationBody>,
) -> Result<Json<Application>, Problem> {
    let service = service_of(&who, body.service);
    may_change(&who, Some(&service))?;
    let body = ApplicationBody { service: Some(service), model: body.model };
    through(async move { api.registry.register_application(&id, body).await }).await.map(Json)
}

/// Removes an application without open connections.
#[utoipa::path(delete, path = "/v1/applications/{id}", params(("id", description = "The application's id")),
    responses((status = 204), (status = "4XX", body = Problem)))]
pub async fn deregister(State(api): State<Api>, who: Who, Named(id): Named) -> Result<StatusCode, Problem> {
    may_touch(&who, api.registry.service_of_application(&id)).await?;
    complete(async move { api.registry.deregister_application(&id).await }).await
}

/// One connection.
#[utoipa::path(get, path = "/v1/connections/{id}", params(("id", description = "The connection's id")),
    responses((status = 200, body = Connection), (status = "4XX", body = Problem)))]
pub async fn connection(
    State(api): State<Api>,
    who: Who,
    Named(id): Named,
) -> Result<Json<Connection>, Problem> {
    may_see(&who, None)?;
    let connection = api.registry.connection(&id).await?;
    may_see(&who, Some(&api.registry.service_of_application(&connection.application).await?))?;
    Ok(Json(connection))
}

/// Opens a connection of an application. The answer has the priority level for its packets.
#[utoipa::path(put, path = "/v1/connections/{id}", params(("id", description = "An id that the framework chooses")),
    responses((status = 200, body = Connection), (status = "4XX", body = Problem)))]
pub async fn open(
    State(api): State<Api>,
    who: Who,
    Named(id): Named,
    Object(body): Object<ConnectionBody>,
) -> Result<Json<Connection>, Problem> {
    may_touch(&who, api.registry.service_of_application(&body.application)).await?;
    through(async move { api.registry.open(&id, body).await }).await.map(Json)
}

/// Closes a connection.
#[utoipa::path(delete, path = "/v1/connections/{id}", params(("id", description = "The connection's id")),
    responses((status = 204), (status = "4XX", body = Problem)))]
pub async fn close(State(api): State<Api>, who: Who, Named(id): Named) -> Result<StatusCode, Problem> {
    may_see(&who, None)?;
    let connection = api.registry.connection(&id).await?;
    may_touch(&who, api.registry.service_of_application(&connection.application)).await?;
    complete(async move { api.registry.close(&id).await }).await
}

/// Queues that links should have for the open connections. Orders to hosts carry those of their links out, orders to
/// switches those of their ports.
#[utoipa::path(get, path = "/v1/queues",
    responses((status = 200, body = Vec<PortQueues>), (status = "4XX", body = Problem)))]
pub async fn queues(State(api): State<Api>, who: Who) -> Result<Json<Vec<PortQueues>>, Problem> {
    may_see(&who, None)?;
    Ok(Json(api.registry.queues().await))
}

/// Observed connections by host, application and address.
#[utoipa::path(get, path = "/v1/observed",
    responses((status = 200, body = Vec<FoundState>), (status = "4XX", body = Problem)))]
pub async fn found(State(api): State<Api>, who: Who) -> Result<Json<Vec<FoundState>>, Problem> {
    may_see(&who, None)?;
    Ok(Json(api.registry.found().await?))
}
