//! `/v1/hosts`, `/v1/switches` and `/v1/allocation`.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use weir_proto::{Conflict, FlowKey, Pace};

use super::body::{Asked, page_size};
use super::{Api, Who, may_see, refused};
use crate::config::End;
use crate::identity::Identity;
use crate::problem::Problem;

/// The most flows in one answer.
const MAX: usize = 10_000;

/// What a flow may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rate {
    /// At most so many bytes per second.
    BytesPerSecond(u64),
    /// As fast as the transport goes.
    Free,
}

impl From<Pace> for Rate {
    fn from(pace: Pace) -> Rate {
        match pace {
            Pace::Rate(rate) => Rate::BytesPerSecond(rate),
            Pace::Free | Pace::Gone => Rate::Free,
        }
    }
}

/// A host as it stands.
#[derive(Debug, Serialize, ToSchema)]
pub struct HostState {
    /// Its name.
    name: String,
    /// What its link carries out of it, in bytes per second.
    send_bytes_per_second: f64,
    /// What its link carries into it, in bytes per second.
    recv_bytes_per_second: f64,
    /// Whether schedules count on it.
    present: bool,
    /// Seconds since it was heard of; nothing if it never was.
    seconds_since_report: Option<f64>,
    /// The sequence number of the last order sent to it.
    ordered: u64,
    /// The sequence number of the last order that its agent has applied.
    applied: u64,
    /// The interfaces that differ from the host's orders, each as `INTERFACE: REASON (DETAIL)`, by the agent's last report.
    conflicts: Vec<String>,
}

/// A switch as it stands.
#[derive(Debug, Serialize, ToSchema)]
pub struct SwitchState {
    /// Its name.
    name: String,
    /// The host or other switch at each of its ports.
    ports: Vec<String>,
    /// Whether it is heard of.
    present: bool,
    /// Seconds since it was heard of; nothing if it never was.
    seconds_since_report: Option<f64>,
    /// The sequence number of the last order sent to it.
    ordered: u64,
    /// The sequence number of the last order that its agent has applied.
    applied: u64,
    /// The interfaces that differ from the switch's orders, each as `INTERFACE: REASON (DETAIL)`, by the agent's last report.
    conflicts: Vec<String>,
}

/// Which part of the allocation.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Page {
    /// The coflow of the last flow of the page before.
    coflow: Option<String>,
    /// The place of the last flow of the page before.
    flow: Option<u32>,
    /// At most so many; 1000 if it does not say, and 10000 at most.
    limit: Option<usize>,
}

/// What one flow was given.
#[derive(Debug, Serialize, ToSchema)]
pub struct Share {
    /// Its coflow.
    coflow: String,
    /// Its place there.
    flow: u32,
    /// The host that sends.
    from: String,
    /// The host that receives.
    to: String,
    /// What the sender was told last.
    rate: Rate,
}

/// A part of what all flows were given, by coflow and place.
#[derive(Debug, Serialize, ToSchema)]
pub struct AllocationList {
    flows: Vec<Share>,
    /// Whether there may be more, after the last.
    more: bool,
}

/// All hosts.
#[utoipa::path(get, path = "/v1/hosts",
    responses((status = 200, body = Vec<HostState>), (status = "4XX", body = Problem)))]
pub async fn hosts(State(api): State<Api>, who: Who) -> Result<Json<Vec<HostState>>, Problem> {
    may_see(&who, None)?;
    let states = api.registry.handle().host_states().await?;
    let hosts = api.registry.hosts().iter().zip(states).map(|(host, state)| HostState {
        name: host.name.clone(),
        send_bytes_per_second: host.link.send.get(),
        recv_bytes_per_second: host.link.recv.get(),
        present: state.present,
        seconds_since_report: state.silent,
        ordered: state.told,
        applied: state.obeys,
        conflicts: state.conflicts.iter().map(Conflict::to_string).collect(),
    });
    Ok(Json(hosts.collect()))
}

/// All switches that have an agent by the configuration.
#[utoipa::path(get, path = "/v1/switches",
    responses((status = 200, body = Vec<SwitchState>), (status = "4XX", body = Problem)))]
pub async fn switches(State(api): State<Api>, who: Who) -> Result<Json<Vec<SwitchState>>, Problem> {
    may_see(&who, None)?;
    let (hosts, switches) = (api.registry.hosts(), api.registry.switches());
    let states = api.registry.handle().host_states().await?;
    let name = |end: &End| match *end {
        End::Host(host) => hosts[host as usize].name.clone(),
        End::Switch(switch) => switches[switch as usize].name.clone(),
    };
    let states = states.into_iter().skip(hosts.len());
    let switches = switches.iter().zip(states).map(|(switch, state)| SwitchState {
        name: switch.name.clone(),
        ports: switch.ports.iter().map(name).collect(),
        present: state.present,
        seconds_since_report: state.silent,
        ordered: state.told,
        applied: state.obeys,
        conflicts: state.conflicts.iter().map(Conflict::to_string).collect(),
    });
    Ok(Json(switches.collect()))
}

/// What all flows were given last. A framework sees that of its own in its coflows.
#[utoipa::path(get, path = "/v1/allocation", params(Page),
    responses((status = 200, body = AllocationList), (status = "4XX", body = Problem)))]
pub async fn allocation(
    State(api): State<Api>,
    who: Who,
    Asked(page): Asked<Page>,
) -> Result<Json<AllocationList>, Problem> {
    may_see(&who, None)?;
    if matches!(**who, Identity::Framework(_)) {
        return Err(refused(&who, "see", None));
    }
    let most = page_size(page.limit, 1000, MAX)?;
    let after = page.coflow.map(|coflow| FlowKey { coflow: coflow.into(), flow: page.flow.unwrap_or(0) });
    let found = api.registry.handle().shares(after, most).await?;
    let more = found.len() == most;
    let name = |host: u32| api.registry.hosts()[host as usize].name.clone();
    let flows = found.into_iter().map(|share| Share {
        coflow: share.key.coflow.to_string(),
        flow: share.key.flow,
        from: name(share.transfer.src),
        to: name(share.transfer.dst),
        rate: share.pace.into(),
    });
    Ok(Json(AllocationList { flows: flows.collect(), more }))
}
