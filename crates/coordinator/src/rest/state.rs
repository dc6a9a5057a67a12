//! Serves hosts, switches and the allocation: `/v1/hosts`, `/v1/switches` and `/v1/allocation`.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use weir_proto::{Conflict, OrderedRate};

use super::body::{PathParam, QueryParams, page_size};
use super::{Api, Client, check_may_change, check_may_see, check_may_see_all_flows, run_without_content};
use crate::audit::Actor;
use crate::config::CableEnd;
use crate::control_plane::{ControlPlane, HostStatus, PauseMode};
use crate::problem::Problem;
use crate::values::{ALLOCATION_PAGE, AllocationPageLimit, FlowIndex, Name};

/// The ordered rate of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FlowRate {
    /// At most this number of bytes per second. 0 if the flow's program waits.
    BytesPerSecond(u64),
    /// Without a rate limit: the flow competes with no other coflow, or TCP divides the links.
    Unlimited,
}

impl From<OrderedRate> for FlowRate {
    fn from(rate: OrderedRate) -> FlowRate {
        match rate {
            OrderedRate::Rate(rate) | OrderedRate::Reserve(rate) => FlowRate::BytesPerSecond(rate),
            OrderedRate::Paused => FlowRate::BytesPerSecond(0),
            OrderedRate::Unlimited | OrderedRate::Removed => FlowRate::Unlimited,
        }
    }
}

/// State of a host.
#[derive(Debug, Serialize, ToSchema)]
pub struct HostState {
    /// Its name.
    name: String,
    /// Whether it has joined by a rule of the configuration. Operators can remove such a host.
    joined: bool,
    /// The switch of the topology under which it has joined; absent for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<String>,
    /// Its addresses.
    #[schema(value_type = Vec<String>)]
    addresses: Vec<String>,
    /// Capacity of its link in the sending direction, in bytes per second.
    send_bytes_per_second: f64,
    /// Capacity of its link in the receiving direction, in bytes per second.
    recv_bytes_per_second: f64,
    /// Whether schedules include it.
    present: bool,
    /// Seconds since its last report; `null` before the first.
    seconds_since_report: Option<f64>,
    /// The sequence number of the last order sent to it.
    ordered: u64,
    /// The sequence number of the last order that its agent has applied.
    applied: u64,
    /// The interfaces that differ from the host's orders, each as `INTERFACE: REASON (DETAIL)`, by the agent's last report. Hosts that were
    /// refused in the last 5 s since they claim one of its addresses, as `ADDRESS: also claimed by host NAME, which was refused`.
    conflicts: Vec<String>,
    /// The limit of its sending rate, as a fraction of its link; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    bandwidth_fraction: Option<f64>,
    /// The limit of all its interfaces, by the agent's last report; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    applied_bandwidth_fraction: Option<f64>,
    /// The number of connections that it may have, if it follows the loss under the policy `django`; otherwise absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_connections: Option<u32>,
    /// The pause that applies to it; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pause: Option<PauseMode>,
}

/// State of a switch.
#[derive(Debug, Serialize, ToSchema)]
pub struct SwitchState {
    /// Its name.
    name: String,
    /// The host or other switch at each of its ports.
    ports: Vec<String>,
    /// Whether its agent sends reports.
    present: bool,
    /// Seconds since its last report; `null` before the first.
    seconds_since_report: Option<f64>,
    /// The sequence number of the last order sent to it.
    ordered: u64,
    /// The sequence number of the last order that its agent has applied.
    applied: u64,
    /// The interfaces that differ from the switch's orders, each as `INTERFACE: REASON (DETAIL)`, by the agent's last report.
    conflicts: Vec<String>,
    /// The pause that applies to it; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pause: Option<PauseMode>,
}

/// Part of the allocation.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AllocationPage {
    /// The coflow of the last flow of the previous page.
    #[param(value_type = String, required = false)]
    coflow: Option<String>,
    /// The index of the last flow of the previous page.
    #[param(inline, value_type = FlowIndex, required = false)]
    flow: Option<u32>,
    /// Maximum number of flows.
    #[param(inline, value_type = AllocationPageLimit, required = false)]
    limit: Option<usize>,
}

/// The ordered rate of one flow.
#[derive(Debug, Serialize, ToSchema)]
pub struct FlowAllocation {
    /// Its coflow.
    coflow: String,
    /// Its index in the coflow.
    flow: u32,
    /// The host that sends.
    from: String,
    /// The host that receives.
    to: String,
    /// The last ordered rate.
    rate: FlowRate,
    /// The rate that it would have, in shadow mode; otherwise absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    shadow_rate: Option<FlowRate>,
}

/// A page of ordered rates, by coflow and flow index.
#[derive(Debug, Serialize, ToSchema)]
pub struct AllocationList {
    flows: Vec<FlowAllocation>,
    /// Whether more flows may follow after the last one.
    more: bool,
}

/// Why a host is removed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct HostRemoval {
    /// Whether the host is removed although active coflows name it. Its name stays until no coflow or connection names it. Default: false.
    #[serde(default)]
    #[param(required = false)]
    force: bool,
}

/// Removes a host that has joined. If its agent runs, the host joins again. Operators only.
#[utoipa::path(delete, path = "/v1/hosts/{name}", operation_id = "remove_host",
    params(("name" = inline(Name), Path, description = "The host"), HostRemoval),
    responses((status = 204, description = "The host is removed"), Problem))]
pub async fn remove(
    State(api): State<Api>,
    actor: Actor,
    PathParam(name): PathParam,
    QueryParams(HostRemoval { force }): QueryParams<HostRemoval>,
) -> Result<StatusCode, Problem> {
    check_may_change(actor.identity(), None)?;
    run_without_content(async move { api.registry.remove_host(&actor, &name, force).await }).await
}

/// All hosts.
#[utoipa::path(get, path = "/v1/hosts", operation_id = "list_hosts",
    responses((status = 200, description = "The hosts", body = Vec<HostState>), Problem))]
pub async fn hosts(State(api): State<Api>, client: Client) -> Result<Json<Vec<HostState>>, Problem> {
    check_may_see(&client, None)?;
    let states = api.registry.handle().call(|plane, _| plane.host_statuses()).await?;
    let known = api.registry.hosts();
    let mut addresses: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for (network, owners) in known.addresses().iter() {
        owners.iter().for_each(|host| addresses.entry(*host).or_default().push(network.short_text()));
    }
    let mut states: BTreeMap<u32, HostStatus> = (0u32..).zip(states).collect();
    let with_state = known.iter().filter_map(|(number, host)| Some((number, host, states.remove(&number)?)));
    let conflicts = |name: &str, state: &HostStatus| {
        let of_agent = state.conflicts.iter().map(Conflict::to_string);
        of_agent.chain(api.registry.claims_of_others(name)).collect()
    };
    let hosts = with_state.map(|(number, host, state)| HostState {
        name: host.name.clone(),
        joined: host.joined.is_some(),
        position: host.joined.as_ref().and_then(|joined| joined.leaf.clone()),
        addresses: addresses.remove(&number).unwrap_or_default(),
        send_bytes_per_second: host.link.send.get(),
        recv_bytes_per_second: host.link.recv.get(),
        present: state.present,
        seconds_since_report: state.seconds_since_report,
        ordered: state.ordered_seq,
        applied: state.applied_seq,
        conflicts: conflicts(&host.name, &state),
        bandwidth_fraction: state.bandwidth_fraction,
        applied_bandwidth_fraction: state.applied_bandwidth_fraction,
        max_connections: state.max_connections,
        pause: state.pause,
    });
    Ok(Json(hosts.collect()))
}

/// All switches of the configuration.
#[utoipa::path(get, path = "/v1/switches", operation_id = "list_switches",
    responses((status = 200, description = "The switches", body = Vec<SwitchState>), Problem))]
pub async fn switches(State(api): State<Api>, client: Client) -> Result<Json<Vec<SwitchState>>, Problem> {
    check_may_see(&client, None)?;
    let (hosts, switches) = (api.registry.hosts(), api.registry.switches());
    let states = api.registry.handle().call(|plane, _| plane.host_statuses()).await?;
    let name_of = |end: &CableEnd| match *end {
        CableEnd::Host(host) => hosts.name(host).to_owned(),
        CableEnd::Switch(switch) => switches[switch as usize].name.clone(),
    };
    let states = states.into_iter().skip(hosts.slot_count());
    let switches = switches.iter().zip(states).map(|(switch, state)| SwitchState {
        name: switch.name.clone(),
        ports: switch.ports.iter().map(name_of).collect(),
        present: state.present,
        seconds_since_report: state.seconds_since_report,
        ordered: state.ordered_seq,
        applied: state.applied_seq,
        conflicts: state.conflicts.iter().map(Conflict::to_string).collect(),
        pause: state.pause,
    });
    Ok(Json(switches.collect()))
}

/// The last ordered rates of all flows. Frameworks get the rates of their flows from `/v1/coflows/{id}`.
#[utoipa::path(get, path = "/v1/allocation", operation_id = "show_allocation", params(AllocationPage),
    responses((status = 200, description = "The ordered rates", body = AllocationList), Problem))]
pub async fn allocation(
    State(api): State<Api>,
    client: Client,
    QueryParams(page): QueryParams<AllocationPage>,
) -> Result<Json<AllocationList>, Problem> {
    check_may_see_all_flows(&client)?;
    let page_size = page_size(page.limit, &ALLOCATION_PAGE)?;
    let list = move |plane: &mut ControlPlane, _| {
        let after = page.coflow.as_deref().map(|coflow| (coflow, page.flow.unwrap_or(0)));
        plane.flow_allocations(after, page_size)
    };
    let allocations = api.registry.handle().call(list).await?;
    let more = allocations.len() == page_size;
    let hosts = api.registry.hosts();
    let name = |host: u32| hosts.name(host).to_owned();
    let flows = allocations.into_iter().map(|flow| FlowAllocation {
        coflow: flow.key.coflow.to_string(),
        flow: flow.key.flow,
        from: name(flow.transfer.src),
        to: name(flow.transfer.dst),
        rate: flow.ordered_rate.into(),
        shadow_rate: flow.shadow_rate.map(FlowRate::from),
    });
    Ok(Json(AllocationList { flows: flows.collect(), more }))
}
