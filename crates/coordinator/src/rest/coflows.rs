//! Coflows: `/v1/coflows`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use weir_core::model::Names;
use weir_proto::Pace;

use super::body::{Asked, List, Named, Object, page_size};
use super::{Api, Who, complete, may_change, may_see, may_touch, service_of, through};
use crate::config::Host;
use crate::plane::Standing;
use crate::problem::Problem;
use crate::registry::{CoflowBody, FlowBody};
use crate::rest::state::Rate;

/// Maximum number of coflows in an answer.
const MAX: usize = 1000;

/// Part of the list of coflows.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Page {
    /// The last id of the page before.
    after: Option<String>,
    /// Maximum number of coflows: 100 by default, at most 1000.
    limit: Option<usize>,
}

/// The answer to a registration.
#[derive(Debug, Serialize, ToSchema)]
pub struct CoflowAnswer {
    /// Its id.
    id: String,
    /// The service that it belongs to.
    service: String,
    /// The application of that service.
    application: String,
    /// Number of flows.
    flows: usize,
}

/// A coflow in a list of coflows.
#[derive(Debug, Serialize, ToSchema)]
pub struct CoflowSummary {
    /// Its id.
    id: String,
    /// The service that it belongs to.
    service: String,
    /// The application of that service.
    application: String,
    /// Number of flows.
    flows: usize,
    /// Number of completed flows.
    done: usize,
    /// Bytes sent, summed over all flows.
    sent_bytes: f64,
    /// Its class in the last schedule, from 0; `null` after completion.
    class: Option<usize>,
}

/// A page of coflows in order of ids.
#[derive(Debug, Serialize, ToSchema)]
pub struct CoflowList {
    coflows: Vec<CoflowSummary>,
    /// The value of `after` for the next page; `null` after the last page. A framework sees its own coflows only, so
    /// its pages may be shorter than `limit`.
    next: Option<String>,
}

/// State of a coflow.
#[derive(Debug, Serialize, ToSchema)]
pub struct CoflowState {
    /// Its id.
    id: String,
    /// The service that it belongs to.
    service: String,
    /// The application of that service.
    application: String,
    /// Its weight.
    weight: f64,
    /// Time after its registration by which it should complete.
    deadline: Option<String>,
    /// Whether all of its flows have completed.
    over: bool,
    /// Its class in the last schedule, from 0; `null` after completion.
    class: Option<usize>,
    /// Its flows, by index.
    flows: Vec<FlowState>,
}

/// State of a flow.
#[derive(Debug, Serialize, ToSchema)]
pub struct FlowState {
    /// The host that sends.
    from: String,
    /// The host that receives.
    to: String,
    /// Its size in bytes, if it is known.
    bytes: Option<f64>,
    /// Bytes sent.
    sent_bytes: f64,
    /// Whether it has completed.
    done: bool,
    /// The last ordered rate; `null` without one.
    rate: Option<Rate>,
}

impl CoflowState {
    fn new(id: String, standing: Standing, hosts: &[Host]) -> CoflowState {
        let Standing { registration, class, flows, .. } = standing;
        let name = |host: u32| hosts[host as usize].name.clone();
        let flows = registration.flows.iter().zip(flows).map(|(transfer, progress)| FlowState {
            from: name(transfer.src),
            to: name(transfer.dst),
            bytes: transfer.bytes.map(weir_core::units::Bytes::get),
            sent_bytes: progress.sent,
            done: progress.done,
            rate: progress.pace.filter(|pace| *pace != Pace::Gone).map(Rate::from),
        });
        CoflowState {
            id,
            weight: registration.weight,
            deadline: registration.deadline.map(|deadline| deadline.to_string()),
            over: class.is_none(),
            class,
            flows: flows.collect(),
            service: registration.service,
            application: registration.application,
        }
    }
}

/// All known coflows; for a framework, its own.
#[utoipa::path(get, path = "/v1/coflows", params(Page),
    responses((status = 200, body = CoflowList), (status = "4XX", body = Problem)))]
pub async fn list(
    State(api): State<Api>,
    who: Who,
    Asked(page): Asked<Page>,
) -> Result<Json<CoflowList>, Problem> {
    may_see(&who, None)?;
    let most = page_size(page.limit, 100, MAX)?;
    let found = api.registry.handle().list(page.after, most).await?;
    let next = if found.len() == most { found.last().map(|last| last.id.to_string()) } else { None };
    let own = found.into_iter().filter(|summary| who.may_see(Some(&summary.service)));
    let coflows = own.map(|summary| CoflowSummary {
        id: summary.id.to_string(),
        service: summary.service,
        application: summary.application,
        flows: summary.flows,
        done: summary.done,
        sent_bytes: summary.sent,
        class: summary.class,
    });
    Ok(Json(CoflowList { coflows: coflows.collect(), next }))
}

/// One coflow.
#[utoipa::path(get, path = "/v1/coflows/{id}", params(("id", description = "The coflow's id")),
    responses((status = 200, body = CoflowState), (status = "4XX", body = Problem)))]
pub async fn show(State(api): State<Api>, who: Who, Named(id): Named) -> Result<Json<CoflowState>, Problem> {
    may_see(&who, None)?;
    let standing = api.registry.coflow(&id).await?;
    may_see(&who, Some(&standing.registration.service))?;
    Ok(Json(CoflowState::new(id, standing, api.registry.hosts())))
}

/// Registers a coflow. Repeating the same body gives the same answer; another body is refused with 409.
#[utoipa::path(put, path = "/v1/coflows/{id}", params(("id", description = "An id that the framework chooses: 1 to 128 printable \
    characters without spaces")),
    responses((status = 200, body = CoflowAnswer), (status = "4XX", body = Problem)))]
pub async fn register(
    State(api): State<Api>,
    who: Who,
    Named(id): Named,
    Object(body): Object<CoflowBody>,
) -> Result<Json<CoflowAnswer>, Problem> {
    let service = service_of(&who, body.service.clone());
    may_change(&who, Some(&service))?;
    let application = body.application.clone().unwrap_or_else(|| Names::DEFAULT.to_owned());
    let flows = body.flows.len();
    let body = CoflowBody { service: Some(service.clone()), application: Some(application.clone()), ..body };
    let registered = id.clone();
    through(async move { api.registry.register(&registered, body).await }).await?;
    Ok(Json(CoflowAnswer { id, service, application, flows }))
}

/// Replaces the flows of a coflow, for example after tasks moved or restarted. Flows with the same index and hosts
/// continue.
#[utoipa::path(put, path = "/v1/coflows/{id}/flows", params(("id", description = "The coflow's id")),
    responses((status = 204), (status = "4XX", body = Problem)))]
pub async fn update(
    State(api): State<Api>,
    who: Who,
    Named(id): Named,
    List(flows): List<FlowBody>,
) -> Result<StatusCode, Problem> {
    may_touch(&who, api.registry.service_of(&id)).await?;
    complete(async move { api.registry.update(&id, flows).await }).await
}

/// Removes a coflow, active or completed.
#[utoipa::path(delete, path = "/v1/coflows/{id}", params(("id", description = "The coflow's id")),
    responses((status = 204), (status = "4XX", body = Problem)))]
pub async fn deregister(State(api): State<Api>, who: Who, Named(id): Named) -> Result<StatusCode, Problem> {
    may_touch(&who, api.registry.service_of(&id)).await?;
    complete(async move { api.registry.deregister(&id).await }).await
}
