//! HTTP API for frameworks and operators: JSON over HTTP/1.1, described by `/openapi.json`.
//!
//! Limits apply before memory is allocated: to connections ([`crate::listener`]), the head of a request, the length of one
//! body and of all concurrently read bodies, and the duration of a request. Errors are [`Problem`]s.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::timeout;
use tracing::debug;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use weir_core::model::ServiceNames;

use crate::admission::Admission;
use crate::config::Limits;
use crate::identity::Identity;
use crate::listener::{PeerConnection, run_unless_closed};
use crate::peers::Peers;
use crate::problem::Problem;
use crate::registry::Registry;
use crate::reload::Reloader;
use crate::tls::ServerCertificate;

mod audit;
mod backup;
mod bandwidth;
mod body;
mod body_permits;
mod certificate_metrics;
mod coflows;
mod connections;
mod events;
mod health;
mod links;
mod overlay;
mod overlay_metrics;
mod pause;
mod policy;
mod quota_metrics;
mod reload;
mod service_metrics;
mod sharing;
mod state;
mod trace;
mod workload;

use audit::{Actions, Peer};
use body_permits::BodyPermits;
pub use coflows::{CoflowList, CoflowState, FlowState, RegisteredCoflow};
pub use overlay::RouteList;
pub use state::{AllocationList, FlowRate, HostState, SwitchState};

/// Maximum length of a request's head, in bytes.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// Maximum number of header lines of a request.
const MAX_HEADERS: usize = 64;

/// Maximum duration of reading a request's head, and maximum idle time of a connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum duration of reading the head of a probe's request.
const PROBE_HEAD_TIMEOUT: Duration = Duration::from_secs(1);

/// Time for pending requests to complete after the server is stopped.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// What metrics show about the ports.
#[derive(Clone)]
pub struct PortStatus {
    /// The connections of the API.
    pub admission: Arc<Admission>,
    /// The peers of each port.
    pub peers: [Arc<Peers>; 2],
    /// The coordinator's certificate; none for plain text.
    pub certificate: Option<Arc<ServerCertificate>>,
}

/// State of all request handlers.
#[derive(Clone)]
struct Api {
    registry: Arc<Registry>,
    reloader: Reloader,
    ports: PortStatus,
    limits: Limits,
    body_permits: Arc<BodyPermits>,
    /// A permit for each concurrent backup.
    backup_permits: Arc<Semaphore>,
    /// A permit for each concurrent trace.
    trace_permits: Arc<Semaphore>,
    /// A permit for each concurrent workload.
    workload_permits: Arc<Semaphore>,
    stop: watch::Receiver<bool>,
    openapi: Arc<utoipa::openapi::OpenApi>,
    actions: Arc<Actions>,
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Weir's coordinator",
        description = "Coflows, policies, services, applications and the rates of flows. See docs/api.md of Weir."
    ),
    components(schemas(Problem))
)]
struct ApiDescription;

fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::with_openapi(ApiDescription::openapi())
        .routes(routes!(coflows::list))
        .routes(routes!(coflows::show, coflows::register, coflows::deregister))
        .routes(routes!(coflows::update))
        .routes(routes!(policy::show, policy::set))
        .routes(routes!(policy::services))
        .routes(routes!(policy::set_service))
        .routes(routes!(state::hosts))
        .routes(routes!(state::remove))
        .routes(routes!(bandwidth::limit, bandwidth::end))
        .routes(routes!(pause::list, pause::set))
        .routes(routes!(reload::reload))
        .routes(routes!(state::switches))
        .routes(routes!(links::list, links::set))
        .routes(routes!(state::allocation))
        .routes(routes!(trace::trace))
        .routes(routes!(workload::workload))
        .routes(routes!(overlay::relays))
        .routes(routes!(overlay::routes))
        .routes(routes!(overlay::paths))
        .routes(routes!(sharing::sensitivity_table, sharing::set_sensitivity_table))
        .routes(routes!(sharing::list))
        .routes(routes!(sharing::show, sharing::register, sharing::deregister))
        .routes(routes!(connections::list))
        .routes(routes!(connections::connection, connections::open, connections::close))
        .routes(routes!(connections::level))
        .routes(routes!(sharing::queues))
        .routes(routes!(sharing::observed))
        .routes(routes!(events::events))
        .routes(routes!(backup::backup))
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
}

/// The OpenAPI document.
pub fn openapi_document() -> utoipa::openapi::OpenApi {
    routes().into_openapi()
}

/// The handlers of requests, until `stop` is true or another router replaces this one.
pub fn router(
    registry: &Arc<Registry>,
    reloader: &Reloader,
    ports: &PortStatus,
    limits: Limits,
    stop: watch::Receiver<bool>,
) -> Router {
    let (router, document) = routes().split_for_parts();
    let api = Api {
        registry: Arc::clone(registry),
        reloader: reloader.clone(),
        ports: ports.clone(),
        limits,
        body_permits: Arc::new(BodyPermits::new(limits.max_body.get() as usize)),
        backup_permits: Arc::new(Semaphore::new(1)),
        trace_permits: Arc::new(Semaphore::new(1)),
        workload_permits: Arc::new(Semaphore::new(1)),
        stop,
        actions: Arc::new(Actions::new(&document)),
        openapi: Arc::new(document),
    };
    router
        .route("/openapi.json", get(serve_openapi))
        .fallback(unknown_path)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(api.clone(), limit_duration))
        .layer(middleware::from_fn_with_state(api.clone(), audit::note_refusals))
        .with_state(api)
}

async fn serve_openapi(State(api): State<Api>) -> Response {
    Json(&*api.openapi).into_response()
}

async fn unknown_path() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "unknown path; expected a path of /openapi.json")
}

async fn method_not_allowed() -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method not allowed; expected a method that /openapi.json lists for this path",
    )
}

/// Ends requests that exceed `limits.request` with status 408.
async fn limit_duration(State(api): State<Api>, request: Request, next: Next) -> Response {
    let max_duration = Duration::from_secs_f64(api.limits.max_request_duration.get());
    match timeout(max_duration, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let detail = format!(
                "request: no answer in time; expected less than {} (`limits.request`)",
                api.limits.max_request_duration
            );
            Problem::new(StatusCode::REQUEST_TIMEOUT, detail).into_response()
        }
    }
}

/// The client of a connection.
#[derive(Clone)]
struct RequestClient {
    identity: Arc<Identity>,
    address: SocketAddr,
    /// Whether it exceeds a limit: only health checks and requests for metrics are answered, and others get status 503.
    is_probe: bool,
    router: watch::Receiver<Router>,
}

impl RequestClient {
    /// The answer of the present router to a request.
    async fn answer(self, request: hyper::Request<Incoming>) -> Result<Response, Infallible> {
        if self.is_probe && !matches!(request.uri().path(), "/livez" | "/readyz" | "/metrics") {
            let detail = "too many connections; expected fewer than the limits of the configuration, or a request for /livez, /readyz or /metrics";
            return Ok(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).into_response());
        }
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(self.identity);
        request.extensions_mut().insert(Peer(self.address));
        let router = self.router.borrow().clone();
        TowerToHyperService::new(router).call(request).await
    }
}

fn http_builder(head_timeout: Duration) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(head_timeout)
        .max_headers(MAX_HEADERS)
        .max_header_size(MAX_HEAD_BYTES);
    http
}

/// Serves `peers` until `stop` is true, each request by the present router. Pending requests then have [`DRAIN_TIMEOUT`] to complete.
pub async fn serve(
    mut peers: mpsc::Receiver<PeerConnection>,
    router: watch::Receiver<Router>,
    mut stop: watch::Receiver<bool>,
) {
    let (full_http, mut probe_http) = (http_builder(HEAD_TIMEOUT), http_builder(PROBE_HEAD_TIMEOUT));
    probe_http.keep_alive(false);
    let connections = GracefulShutdown::new();
    loop {
        let peer = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break,
            peer = peers.recv() => peer,
        };
        let Some(PeerConnection { identity, address, stream, close_signal }) = peer else { break };
        let identity = Arc::new(identity);
        let client = RequestClient {
            identity: Arc::clone(&identity),
            address,
            is_probe: close_signal.is_some(),
            router: router.clone(),
        };
        let http = if client.is_probe { &probe_http } else { &full_http };
        let service = service_fn(move |request| client.clone().answer(request));
        let connection = connections.watch(http.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            match run_unless_closed(close_signal.as_deref(), connection).await {
                Some(Err(error)) => debug!(%address, %identity, %error, "connection ended"),
                None => debug!(%address, %identity, "connection closed: too many connections"),
                Some(Ok(())) => {}
            }
        });
    }
    drop(peers);
    // Closes the connections whose requests take longer.
    let _ = timeout(DRAIN_TIMEOUT, connections.shutdown()).await;
}

/// The client's identity, as an argument of handlers.
type Client = axum::Extension<Arc<Identity>>;

/// Refuses clients that may not see objects of a service. `None` stands for objects without a service.
fn check_may_see(identity: &Identity, service: Option<&str>) -> Result<(), Problem> {
    if identity.may_see(service) { Ok(()) } else { Err(permission_problem(identity, "see", service)) }
}

/// Refuses clients that may not see the flows of all services.
fn check_may_see_all_flows(identity: &Identity) -> Result<(), Problem> {
    check_may_see(identity, None)?;
    match identity {
        Identity::Framework(_) => Err(permission_problem(identity, "see", None)),
        _ => Ok(()),
    }
}

/// Refuses clients that may not change objects of a service. `None` stands for objects that all services share.
fn check_may_change(identity: &Identity, service: Option<&str>) -> Result<(), Problem> {
    if identity.may_change(service) { Ok(()) } else { Err(permission_problem(identity, "change", service)) }
}

fn permission_problem(identity: &Identity, action: &str, service: Option<&str>) -> Problem {
    let (objects, expected) = match service {
        Some(service) => {
            (format!("objects of service `{service}`"), "a framework of the service, or an operator")
        }
        None => ("objects of all services".to_owned(), "a role that may (docs/security.md)"),
    };
    Problem::forbidden(format!("{identity} may not {action} {objects}; expected {expected}"))
}

/// Refuses clients that may not change objects of this service. A client without any permission gets the same answer whether
/// or not the object exists. Returns the service.
async fn check_may_change_existing(
    identity: &Identity,
    service: impl Future<Output = Result<String, Problem>>,
) -> Result<String, Problem> {
    check_may_see(identity, None)?;
    let service = service.await?;
    check_may_change(identity, Some(&service))?;
    Ok(service)
}

/// The service of a new object: the requested service, or the framework's own.
fn service_or_own(identity: &Identity, requested: Option<String>) -> String {
    requested.unwrap_or_else(|| match identity {
        Identity::Framework(own) => own.clone(),
        _ => ServiceNames::DEFAULT.to_owned(),
    })
}

/// [`run_to_completion`] for requests without a result; the answer is 204.
async fn run_without_content(
    request: impl Future<Output = Result<(), Problem>> + Send + 'static,
) -> Result<StatusCode, Problem> {
    run_to_completion(request).await.map(|()| StatusCode::NO_CONTENT)
}

/// Runs a request to its end even if the client closes its connection, so that the control plane and the store get the same
/// changes.
async fn run_to_completion<T: Send + 'static>(
    request: impl Future<Output = Result<T, Problem>> + Send + 'static,
) -> Result<T, Problem> {
    match tokio::spawn(request).await {
        Ok(result) => result,
        Err(error) => {
            tracing::error!(%error, "request failed: internal error");
            Err(Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal error; help: see the log of the coordinator",
            ))
        }
    }
}
