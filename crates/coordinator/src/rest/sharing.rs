//! Serves the sensitivity table, applications and queues: `/v1/sensitivity`, `/v1/applications`, `/v1/queues` and `/v1/observed`.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::body::{JsonObject, PathParam, TextBody};
use super::{
    Api, Client, check_may_change, check_may_change_existing, check_may_see, run_to_completion,
    run_without_content, service_or_own,
};
use crate::audit::Actor;
use crate::problem::Problem;
use crate::registry::{Application, ApplicationBody, ObservedState, PortQueues};
use crate::values::Id;

/// The sensitivity table, in TOML as described by docs/sensitivity-table.md.
#[utoipa::path(get, path = "/v1/sensitivity", operation_id = "show_sensitivity_table",
    responses((status = 200, description = "The sensitivity table", body = String, content_type = "application/toml"), Problem))]
pub async fn sensitivity_table(State(api): State<Api>, client: Client) -> Result<Response, Problem> {
    check_may_see(&client, None)?;
    let mut text = Vec::new();
    let written = api.registry.sensitivity_table().await.write(&mut text);
    written.map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "application/toml")], text).into_response())
}

/// Replaces the sensitivity table. It must contain the models of all registered applications. Operators only.
#[utoipa::path(put, path = "/v1/sensitivity", operation_id = "set_sensitivity_table",
    request_body(content = String, content_type = "application/toml"),
    responses((status = 204, description = "The sensitivity table is set"), Problem))]
pub async fn set_sensitivity_table(
    State(api): State<Api>,
    actor: Actor,
    TextBody(text): TextBody,
) -> Result<StatusCode, Problem> {
    check_may_change(actor.identity(), None)?;
    run_without_content(async move { api.registry.set_sensitivity_table(&actor, text).await }).await
}

/// All applications; for a framework, its own.
#[utoipa::path(get, path = "/v1/applications", operation_id = "list_applications",
    responses((status = 200, description = "The applications", body = Vec<Application>), Problem))]
pub async fn list(State(api): State<Api>, client: Client) -> Result<Json<Vec<Application>>, Problem> {
    check_may_see(&client, None)?;
    let mut applications = api.registry.applications().await;
    applications.retain(|application| client.may_see(Some(&application.service)));
    Ok(Json(applications))
}

/// One application.
#[utoipa::path(get, path = "/v1/applications/{id}", operation_id = "show_application",
    params(("id" = inline(Id), Path, description = "The application's id")),
    responses((status = 200, description = "The application", body = Application), Problem))]
pub async fn show(
    State(api): State<Api>,
    client: Client,
    PathParam(id): PathParam,
) -> Result<Json<Application>, Problem> {
    check_may_see(&client, None)?;
    let application = api.registry.application(&id).await?;
    check_may_see(&client, Some(&application.service))?;
    Ok(Json(application))
}

/// Registers an application. The answer has its priority level. Operators may also set its traffic, or replace that of a registered
/// application.
#[utoipa::path(put, path = "/v1/applications/{id}", operation_id = "register_application",
    params(("id" = inline(Id), Path, description = "An id that the framework chooses")),
    request_body = ApplicationBody, responses((status = 200, description = "The application is registered", body = Application), Problem))]
pub async fn register(
    State(api): State<Api>,
    actor: Actor,
    PathParam(id): PathParam,
    JsonObject(body): JsonObject<ApplicationBody>,
) -> Result<Json<Application>, Problem> {
    let service = service_or_own(actor.identity(), body.service);
    check_may_change(actor.identity(), Some(&service))?;
    if body.traffic.is_some() && !actor.identity().may_change(None) {
        return Err(Problem::forbidden(format!(
            "{} may not set `traffic`, which claims packets of other programs; expected an operator",
            actor.identity()
        )));
    }
    let body = ApplicationBody { service: Some(service), ..body };
    run_to_completion(async move { api.registry.register_application(&actor, &id, body).await })
        .await
        .map(Json)
}

/// Removes an application without open connections.
#[utoipa::path(delete, path = "/v1/applications/{id}", operation_id = "deregister_application",
    params(("id" = inline(Id), Path, description = "The application's id")),
    responses((status = 204, description = "The application is removed"), Problem))]
pub async fn deregister(
    State(api): State<Api>,
    actor: Actor,
    PathParam(id): PathParam,
) -> Result<StatusCode, Problem> {
    check_may_change_existing(actor.identity(), api.registry.service_of_application(&id)).await?;
    run_without_content(async move { api.registry.deregister_application(&actor, &id).await }).await
}

/// Computed queues of all links with a known connection, or of all links if queues belong to services. Orders to a host
/// contain the queues of its link out, orders to a switch those of its ports.
#[utoipa::path(get, path = "/v1/queues", operation_id = "list_queues",
    responses((status = 200, description = "The queues", body = Vec<PortQueues>), Problem))]
pub async fn queues(State(api): State<Api>, client: Client) -> Result<Json<Vec<PortQueues>>, Problem> {
    check_may_see(&client, None)?;
    Ok(Json(api.registry.queues().await))
}

/// Observed connections by host, application and address.
#[utoipa::path(get, path = "/v1/observed", operation_id = "list_observed_connections",
    responses((status = 200, description = "The observed connections", body = Vec<ObservedState>), Problem))]
pub async fn observed(State(api): State<Api>, client: Client) -> Result<Json<Vec<ObservedState>>, Problem> {
    check_may_see(&client, None)?;
    Ok(Json(api.registry.observed().await?))
}
