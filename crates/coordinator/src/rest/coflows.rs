//! `/v1/coflows`.

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

/// The most in one answer.
const MAX: usize = 1000;

/// Which part of a list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Page {
    /// The last id of the page before.
    after: Option<String>,
    /// At most so many; 100 if it does not say, and 1000 at most.
    limit: Option<usize>,
}

/// A coflow is registered.
#[derive(Debug, Serialize, ToSchema)]
pub struct CoflowAnswer {
    /// Its id.
    id: String,
    /// The service that it belongs to.
    service: String,
    /// The application of that service.
    application: String,
    /// How many flows it has.
    flows: usize,
}

/// A coflow in a list.
#[derive(Debug, Serialize, ToSchema)]
pub struct CoflowSummary {
    /// Its id.
    id: String,
    /// The service that it belongs to.
    service: String,
    /// The application of that service.
    application: String,
    /// How many flows it has.
    flows: usize,
    /// How many of these are over.
    done: usize,
    /// Bytes that all of them have sent.
    sent_bytes: f64,
    /// Its class in the last schedule, from 0; nothing if it is over.
    class: Option<usize>,
}

/// A part of all coflows, in order of ids.
#[derive(Debug, Serialize, ToSchema)]
pub struct CoflowList {
    coflows: Vec<CoflowSummary>,
    /// What to ask for `after`, if there are more. A framework's page may have fewer than there is room for.
    next: Option<String>,
}

/// A coflow as it stands.
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
    /// How long after its registration it should be done.
    deadline: Option<String>,
    /// Whether all of its flows are over.
    over: bool,
    /// Its class in the last schedule, from 0; nothing if it is over.
    class: Option<usize>,
    /// Its flows, in their places.
    flows: Vec<FlowState>,
}

/// A flow as it stands.
#[derive(Debug, Serialize, ToSchema)]
pub struct FlowState {
    /// The host that sends.
    from: String,
    /// The host that receives.
    to: String,
    /// How many bytes it has, if that is known.
    bytes: Option<f64>,
    /// How many it has sent.
    sent_bytes: f64,
    /// Whether it is over.
    done: bool,
    /// What its host was told last; nothing if it was told nothing.
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

/// All coflows that are known, or a framework's own.
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

/// Registers a coflow. The same body again has the same answer; another body is refused with 409.
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

/// Gives a coflow other flows, as for tasks that moved or were started anew. Those in the same place with the same ends go on.
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

/// Forgets a coflow, whatever is left of it.
#[utoipa::path(delete, path = "/v1/coflows/{id}", params(("id", description = "The coflow's id")),
    responses((status = 204), (status = "4XX", body = Problem)))]
pub async fn deregister(State(api): State<Api>, who: Who, Named(id): Named) -> Result<StatusCode, Problem> {
    may_touch(&who, api.registry.service_of(&id)).await?;
    complete(async move { api.registry.deregister(&id).await }).await
}
