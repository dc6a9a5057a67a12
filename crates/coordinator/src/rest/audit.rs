//! Names requests for the audit log, and notes the refused ones.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use utoipa::openapi::OpenApi;

use super::Api;
use crate::audit::Actor;
use crate::identity::Identity;
use crate::problem::{Problem, ProblemDetail};

/// The address of a client: an extension of its requests.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub SocketAddr);

/// The `operationId` of each method and path.
pub(super) struct Actions(HashMap<(Method, String), String>);

impl Actions {
    /// The operations of a document.
    pub fn new(document: &OpenApi) -> Actions {
        let operations = document.paths.paths.iter().flat_map(|(path, item)| {
            let methods = [
                (Method::GET, &item.get),
                (Method::PUT, &item.put),
                (Method::POST, &item.post),
                (Method::DELETE, &item.delete),
            ];
            methods.into_iter().filter_map(|(method, operation)| {
                let action = operation.as_ref()?.operation_id.clone()?;
                Some(((method, path.clone()), action))
            })
        });
        Actions(operations.collect())
    }

    /// The actor of a request; none without a connection.
    fn actor(&self, parts: &Parts) -> Option<Actor> {
        let identity = parts.extensions.get::<Arc<Identity>>()?;
        let &Peer(address) = parts.extensions.get()?;
        let path = parts.extensions.get::<MatchedPath>().map_or("", MatchedPath::as_str);
        let action = self.0.get(&(parts.method.clone(), path.to_owned()));
        // Other methods and paths change nothing, and have no operation.
        let action = action.cloned().unwrap_or_else(|| parts.method.to_string());
        Some(Actor::new(Arc::clone(identity), address, action, parts.uri.path()))
    }
}

/// The client of a request that changes something, and the request's name: an argument of handlers.
impl FromRequestParts<Api> for Actor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Actor, Problem> {
        let no_connection =
            || Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "request without a connection");
        api.actions.actor(parts).ok_or_else(no_connection)
    }
}

/// Notes each request that is refused with 403, and each refused change.
pub(super) async fn note_refusals(State(api): State<Api>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let may_change = !matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS);
    let actor = api.actions.actor(&parts);
    let mut response = next.run(Request::from_parts(parts, body)).await;
    let status = response.status();
    let is_noted = status == StatusCode::FORBIDDEN
        || may_change && (status.is_client_error() || status.is_server_error());
    if is_noted && let Some(actor) = actor {
        let detail = response.extensions_mut().remove::<ProblemDetail>();
        api.registry.audit().note_refused(
            &actor,
            status.as_u16(),
            &detail.map_or_else(String::new, |detail| detail.0),
        );
    }
    response
}
