//! Serves coflows: `/v1/coflows`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use weir_core::model::ServiceNames;
use weir_core::units::{Bytes, Time};
use weir_proto::OrderedRate;

use super::body::{JsonObject, JsonValue, PathParam, QueryParams, page_size};
use super::{
    Api, Client, check_may_change, check_may_change_existing, check_may_see, run_to_completion,
    run_without_content, service_or_own,
};
use crate::audit::Actor;
use crate::coflow_status::{CoflowSummary, Phase, WideAreaFields};
use crate::control_plane::{CoflowStatus, ControlPlane, PauseMode};
use crate::overlay;
use crate::problem::{Location, Problem};
use crate::registry::HostTable;
use crate::registry::{CoflowBody, FlowList};
use crate::rest::state::FlowRate;
use crate::values::{
    COFLOW_PAGE, CoflowPageLimit, FailureReason, FlowNumber, Id, MAX_REASON_LENGTH, is_failure_reason,
};

/// Part of the list of coflows.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CoflowPage {
    /// The last id of the previous page.
    #[param(value_type = String, required = false)]
    after: Option<String>,
    /// Maximum number of coflows.
    #[param(inline, value_type = CoflowPageLimit, required = false)]
    limit: Option<usize>,
}

/// How a coflow ended.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CoflowEnd {
    /// Only between regions: why the coflow failed, for example since its flows did not use the relays. It stays in the list, with the
    /// state `failed` and this reason, as long as completed coflows.
    #[param(inline, value_type = FailureReason, required = false)]
    failed: Option<String>,
}

/// The answer to a registration.
#[derive(Debug, Serialize, ToSchema)]
pub struct RegisteredCoflow {
    /// Its id.
    id: String,
    /// The service that it belongs to.
    service: String,
    /// The application of that service.
    application: String,
    /// Number of flows.
    flows: usize,
}

/// A page of coflows in order of ids.
#[derive(Debug, Serialize, ToSchema)]
pub struct CoflowList {
    coflows: Vec<CoflowSummary>,
    /// The value of `after` for the next page; `null` after the last page. A framework sees only its own coflows, so its
    /// pages may be shorter than `limit`.
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
    /// Whether it is active, or how it has ended.
    state: Phase,
    /// Whether it has ended without a failure.
    completed: bool,
    /// Its class in the last schedule, from 0; `null` after completion, and for a coflow between regions.
    class: Option<usize>,
    /// `paused` if one of its flows is paused, else `shadow` if one is in shadow mode; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pause: Option<PauseMode>,
    #[serde(flatten)]
    wide_area: WideAreaFields,
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
    /// Between regions: the first and the last number of its data flows, if they were registered.
    #[schema(inline, value_type = Option<Vec<FlowNumber>>, min_items = 2, max_items = 2)]
    #[serde(skip_serializing_if = "Option::is_none")]
    numbers: Option<[u32; 2]>,
    /// Bytes sent. Between regions: its part of the acknowledged bytes of all flows between the same regions.
    sent_bytes: f64,
    /// Whether it has completed.
    done: bool,
    /// The last ordered rate; `null` if no rate is ordered.
    rate: Option<FlowRate>,
    /// The pause that applies to it; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pause: Option<PauseMode>,
    /// The rate that it would have, in shadow mode; otherwise absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    shadow_rate: Option<FlowRate>,
}

impl CoflowState {
    fn new(
        summary: CoflowSummary,
        weight: f64,
        deadline: Option<Time>,
        flows: Vec<FlowState>,
    ) -> CoflowState {
        let CoflowSummary { id, service, application, state, class, pause, wide_area, .. } = summary;
        let (deadline, completed) =
            (deadline.map(|deadline| deadline.to_string()), state.is_completed_or_abandoned());
        CoflowState {
            id,
            service,
            application,
            weight,
            deadline,
            state,
            completed,
            class,
            pause,
            wide_area,
            flows,
        }
    }

    fn between_hosts(status: CoflowStatus, hosts: &HostTable) -> CoflowState {
        let CoflowStatus { registration, summary, flows, .. } = status;
        let host_name = |host: u32| hosts.name(host).to_owned();
        let flows = registration.flows.iter().zip(flows).map(|(transfer, progress)| FlowState {
            from: host_name(transfer.src),
            to: host_name(transfer.dst),
            bytes: transfer.bytes.map(Bytes::get),
            numbers: None,
            sent_bytes: progress.sent_bytes,
            done: progress.is_completed,
            rate: progress.ordered_rate.filter(|rate| *rate != OrderedRate::Removed).map(FlowRate::from),
            pause: progress.pause,
            shadow_rate: progress.shadow_rate.map(FlowRate::from),
        });
        CoflowState::new(summary, registration.weight, registration.deadline, flows.collect())
    }

    fn between_regions(status: overlay::CoflowStatus) -> CoflowState {
        let overlay::CoflowStatus { registration, summary, flow_progress, .. } = status;
        let flows = registration.flows.iter().zip(flow_progress).map(|(flow, progress)| FlowState {
            from: flow.from.clone(),
            to: flow.to.clone(),
            bytes: Some(flow.bytes as f64),
            numbers: flow.numbers.map(|(first, last)| [first, last]),
            sent_bytes: flow.bytes as f64 * progress,
            done: progress >= 1.0,
            rate: None,
            pause: None,
            shadow_rate: None,
        });
        CoflowState::new(summary, 1.0, None, flows.collect())
    }
}

/// All coflows, active, completed or failed; for a framework, those of its service.
#[utoipa::path(get, path = "/v1/coflows", operation_id = "list_coflows", params(CoflowPage),
    responses((status = 200, description = "The coflows", body = CoflowList), Problem))]
pub async fn list(
    State(api): State<Api>,
    client: Client,
    QueryParams(page): QueryParams<CoflowPage>,
) -> Result<Json<CoflowList>, Problem> {
    check_may_see(&client, None)?;
    let page_size = page_size(page.limit, &COFLOW_PAGE)?;
    let after = page.after.clone();
    let overlay = api.registry.overlay();
    let between_regions =
        overlay.map(|handle| handle.call(|overlay, _| overlay.coflow_summaries(after.as_deref(), page_size)));
    let list = move |plane: &mut ControlPlane, _| plane.coflow_summaries(page.after.as_deref(), page_size);
    let mut coflows = api.registry.handle().call(list).await?;
    coflows.extend(between_regions.into_iter().flatten());
    coflows.sort_by(|a, b| a.id.cmp(&b.id));
    // A failed coflow may be registered again meanwhile.
    coflows.dedup_by(|later, former| later.id == former.id);
    coflows.truncate(page_size);
    let next = coflows.last().filter(|_| coflows.len() == page_size).map(|last| last.id.clone());
    coflows.retain(|coflow| client.may_see(Some(&coflow.service)));
    Ok(Json(CoflowList { coflows, next }))
}

/// One coflow.
#[utoipa::path(get, path = "/v1/coflows/{id}", operation_id = "show_coflow",
    params(("id" = inline(Id), Path, description = "The coflow's id")),
    responses((status = 200, description = "The coflow", body = CoflowState), Problem))]
pub async fn show(
    State(api): State<Api>,
    client: Client,
    PathParam(id): PathParam,
) -> Result<Json<CoflowState>, Problem> {
    check_may_see(&client, None)?;
    let state = match api.registry.overlay_coflow(&id) {
        Some(status) => CoflowState::between_regions(status),
        None => CoflowState::between_hosts(api.registry.coflow(&id).await?, &api.registry.hosts()),
    };
    check_may_see(&client, Some(&state.service))?;
    Ok(Json(state))
}

/// Registers a coflow. Repeating the same body gives the same answer; another body is refused with 409.
#[utoipa::path(put, path = "/v1/coflows/{id}", operation_id = "register_coflow",
    params(("id" = inline(Id), Path, description = "An id that the framework chooses: 1 to 128 printable \
    characters without spaces")), request_body = CoflowBody,
    responses((status = 200, description = "The coflow is registered", body = RegisteredCoflow), Problem))]
pub async fn register(
    State(api): State<Api>,
    actor: Actor,
    PathParam(id): PathParam,
    JsonObject(body): JsonObject<CoflowBody>,
) -> Result<Json<RegisteredCoflow>, Problem> {
    let service = service_or_own(actor.identity(), body.service.clone());
    check_may_change(actor.identity(), Some(&service))?;
    let application = body.application.clone().unwrap_or_else(|| ServiceNames::DEFAULT.to_owned());
    let flows = body.flows.len();
    let body = CoflowBody { service: Some(service.clone()), application: Some(application.clone()), ..body };
    let registered_id = id.clone();
    run_to_completion(async move { api.registry.register(&actor, &registered_id, body).await }).await?;
    Ok(Json(RegisteredCoflow { id, service, application, flows }))
}

/// Replaces the flows of a coflow, for example after tasks moved or restarted. Flows with the same index and hosts
/// continue.
#[utoipa::path(put, path = "/v1/coflows/{id}/flows", operation_id = "update_coflow",
    params(("id" = inline(Id), Path, description = "The coflow's id")),
    request_body = FlowList, responses((status = 204, description = "The flows are replaced"), Problem))]
pub async fn update(
    State(api): State<Api>,
    actor: Actor,
    PathParam(id): PathParam,
    JsonValue(FlowList(flows)): JsonValue<FlowList>,
) -> Result<StatusCode, Problem> {
    let service = check_may_change_existing(actor.identity(), api.registry.service_of(&id)).await?;
    run_without_content(async move { api.registry.update(&actor, (&id, &service), flows).await }).await
}

/// Removes a coflow, active or ended. With `failed`, a coflow between regions stays visible as failed.
#[utoipa::path(delete, path = "/v1/coflows/{id}", operation_id = "deregister_coflow",
    params(("id" = inline(Id), Path, description = "The coflow's id"), CoflowEnd),
    responses((status = 204, description = "The coflow is removed"), Problem))]
pub async fn deregister(
    State(api): State<Api>,
    actor: Actor,
    PathParam(id): PathParam,
    QueryParams(CoflowEnd { failed }): QueryParams<CoflowEnd>,
) -> Result<StatusCode, Problem> {
    let service = check_may_change_existing(actor.identity(), api.registry.service_of_visible(&id)).await?;
    if let Some(reason) = failed.as_deref().filter(|reason| !is_failure_reason(reason)) {
        let expected = format!("1 to {MAX_REASON_LENGTH} printable ASCII characters");
        return Err(Problem::invalid(Location::parameter("failed"), reason, &expected));
    }
    let deregister = async move { api.registry.deregister(&actor, (&id, &service), failed.as_deref()).await };
    run_without_content(deregister).await
}
