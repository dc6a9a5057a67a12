//! Serves coflows: `/v1/coflows`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use weir_core::model::ServiceNames;
use weir_proto::OrderedRate;

use super::body::{JsonObject, JsonValue, PathParam, QueryParams, page_size};
use super::{
    Api, Client, check_may_change, check_may_change_existing, check_may_see, run_to_completion,
    run_without_content, service_or_own,
};
use crate::audit::Actor;
use crate::config::Host;
use crate::control_plane::{self, CoflowStatus};
use crate::overlay;
use crate::problem::{Location, Problem};
use crate::registry::{CoflowBody, FailedCoflow, FlowList};
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

/// Whether a coflow is active, or how it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Some of its bytes have not arrived.
    Active,
    /// All of its flows have completed.
    Completed,
    /// Only between regions: it lost a relay, and had no open flow for 5 minutes.
    Abandoned,
    /// Only between regions: its owner deregistered it with a reason.
    Failed,
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

/// A coflow in a list of coflows.
#[derive(Debug, Serialize, ToSchema)]
pub struct CoflowSummary {
    /// Its id.
    id: String,
    /// The service that it belongs to.
    service: String,
    /// The application of that service.
    application: String,
    /// Whether it is active, or how it has ended.
    state: Phase,
    /// Number of flows.
    flows: usize,
    /// Number of completed flows.
    done: usize,
    /// Bytes sent, summed over all flows.
    sent_bytes: f64,
    /// Its class in the last schedule, from 0; `null` after completion, and for a coflow between regions.
    class: Option<usize>,
    #[serde(flatten)]
    wide_area: WideAreaFields,
}

/// What only a coflow between regions has; absent for other coflows.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct WideAreaFields {
    /// The estimate of the first decision after the last update before the first byte: seconds from the registration, at median
    /// bandwidth and without later coflows.
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted_seconds: Option<f64>,
    /// The measured seconds from the registration to the completion.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured_seconds: Option<f64>,
    /// Bytes that relays sent on a detour, resent ones included.
    #[serde(skip_serializing_if = "Option::is_none")]
    detoured_bytes: Option<u64>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
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
}

impl CoflowState {
    fn new(id: String, status: CoflowStatus, hosts: &[Host]) -> CoflowState {
        let CoflowStatus { registration, class, flows, .. } = status;
        let host_name = |host: u32| hosts[host as usize].name.clone();
        let flows = registration.flows.iter().zip(flows).map(|(transfer, progress)| FlowState {
            from: host_name(transfer.src),
            to: host_name(transfer.dst),
            bytes: transfer.bytes.map(weir_core::units::Bytes::get),
            numbers: None,
            sent_bytes: progress.sent_bytes,
            done: progress.is_completed,
            rate: progress.ordered_rate.filter(|rate| *rate != OrderedRate::Removed).map(FlowRate::from),
        });
        CoflowState {
            id,
            weight: registration.weight,
            deadline: registration.deadline.map(|deadline| deadline.to_string()),
            state: Phase::in_region(class),
            completed: class.is_none(),
            class,
            wide_area: WideAreaFields::default(),
            flows: flows.collect(),
            service: registration.service,
            application: registration.application,
        }
    }
}

impl CoflowState {
    fn between_regions(id: String, status: overlay::CoflowStatus) -> CoflowState {
        let overlay::CoflowStatus { registration, summary, flow_progress, .. } = status;
        let flows = registration.flows.iter().zip(flow_progress).map(|(flow, progress)| FlowState {
            from: flow.from.clone(),
            to: flow.to.clone(),
            bytes: Some(flow.bytes as f64),
            numbers: flow.numbers.map(|(first, last)| [first, last]),
            sent_bytes: flow.bytes as f64 * progress,
            done: progress >= 1.0,
            rate: None,
        });
        CoflowState {
            id,
            weight: 1.0,
            deadline: None,
            state: Phase::between_regions(&summary),
            completed: summary.is_completed,
            class: None,
            wide_area: WideAreaFields::new(&summary),
            flows: flows.collect(),
            service: registration.service.clone(),
            application: registration.application.clone(),
        }
    }
}

impl WideAreaFields {
    fn new(summary: &overlay::CoflowSummary) -> WideAreaFields {
        WideAreaFields {
            predicted_seconds: summary.predicted_seconds,
            measured_seconds: summary.measured_seconds,
            detoured_bytes: Some(summary.detoured_bytes),
            reason: None,
        }
    }
}

impl Phase {
    fn in_region(class: Option<usize>) -> Phase {
        if class.is_none() { Phase::Completed } else { Phase::Active }
    }

    fn between_regions(summary: &overlay::CoflowSummary) -> Phase {
        match (summary.is_completed, summary.measured_seconds) {
            (false, _) => Phase::Active,
            (true, Some(_)) => Phase::Completed,
            (true, None) => Phase::Abandoned,
        }
    }
}

impl From<control_plane::CoflowSummary> for CoflowSummary {
    fn from(summary: control_plane::CoflowSummary) -> CoflowSummary {
        CoflowSummary {
            id: summary.id.to_string(),
            service: summary.service,
            application: summary.application,
            state: Phase::in_region(summary.class),
            flows: summary.flow_count,
            done: summary.completed_flow_count,
            sent_bytes: summary.sent_bytes,
            class: summary.class,
            wide_area: WideAreaFields::default(),
        }
    }
}

impl From<overlay::CoflowSummary> for CoflowSummary {
    fn from(summary: overlay::CoflowSummary) -> CoflowSummary {
        CoflowSummary {
            wide_area: WideAreaFields::new(&summary),
            state: Phase::between_regions(&summary),
            id: summary.id.to_string(),
            service: summary.service,
            application: summary.application,
            flows: summary.flow_count,
            done: summary.completed_flow_count,
            sent_bytes: summary.acked_bytes,
            class: None,
        }
    }
}

impl From<FailedCoflow> for CoflowSummary {
    fn from(failed: FailedCoflow) -> CoflowSummary {
        let mut summary = CoflowSummary::from(failed.status.summary);
        (summary.state, summary.wide_area.reason) = (Phase::Failed, Some(failed.reason));
        summary
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
    let between_regions = api
        .registry
        .overlay()
        .map(|handle| handle.call(|overlay, _| overlay.coflow_summaries(page.after.as_deref(), page_size)));
    let failed = api.registry.failed_coflows_after(page.after.as_deref(), page_size);
    let in_region = api
        .registry
        .handle()
        .call(move |plane, _| plane.coflow_summaries(page.after.as_deref(), page_size))
        .await?;
    let between_regions = between_regions.into_iter().flatten().map(CoflowSummary::from);
    let mut coflows: Vec<CoflowSummary> =
        in_region.into_iter().map(CoflowSummary::from).chain(between_regions).collect();
    coflows.extend(failed.into_iter().map(CoflowSummary::from));
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
    if let Some(status) = api.registry.overlay_coflow(&id) {
        check_may_see(&client, Some(&status.registration.service))?;
        return Ok(Json(CoflowState::between_regions(id, status)));
    }
    if let Some(FailedCoflow { status, reason, .. }) = api.registry.failed_coflow(&id) {
        check_may_see(&client, Some(&status.registration.service))?;
        let mut state = CoflowState::between_regions(id, status);
        (state.state, state.wide_area.reason) = (Phase::Failed, Some(reason));
        return Ok(Json(state));
    }
    let status = api.registry.coflow(&id).await?;
    check_may_see(&client, Some(&status.registration.service))?;
    Ok(Json(CoflowState::new(id, status, api.registry.hosts())))
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
    check_may_change_existing(actor.identity(), api.registry.service_of(&id)).await?;
    run_without_content(async move { api.registry.update(&actor, &id, flows).await }).await
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
    check_may_change_existing(actor.identity(), api.registry.service_of_visible(&id)).await?;
    if let Some(reason) = failed.as_deref().filter(|reason| !is_failure_reason(reason)) {
        let expected = format!("1 to {MAX_REASON_LENGTH} printable ASCII characters");
        return Err(Problem::invalid(Location::parameter("failed"), reason, &expected));
    }
    run_without_content(async move { api.registry.deregister(&actor, &id, failed.as_deref()).await }).await
}
