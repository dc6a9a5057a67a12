//! Serves the overlay: `/v1/relays`, `/v1/routes` and `/v1/paths`.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use weir_proto::relay::Network;

use super::body::{QueryParams, page_size};
use super::{Api, Client, check_may_see};
use crate::config::{self, RelayAddress};
use crate::overlay::{PathStatus, RouteStatus};
use crate::problem::Problem;
use crate::values::{COFLOW_PAGE, CoflowPageLimit};

/// State of a relay.
#[derive(Debug, Serialize, ToSchema)]
pub struct RelayState {
    /// Its name.
    name: String,
    /// Its region.
    region: String,
    /// Where it accepts other relays: an address or a name, and a port.
    address: String,
    /// The address that a name has; `null` if it is not resolved yet, and for addresses.
    resolved: Option<String>,
    /// The networks that it serves.
    networks: Vec<String>,
    /// Whether it is connected and sends reports.
    present: bool,
    /// Seconds since its last report; `null` before its first connection.
    seconds_since_report: Option<f64>,
    /// The sequence number of the last order sent to it.
    ordered: u64,
    /// The sequence number of the last order that it has applied.
    applied: u64,
    /// Number of coflows that it forwards.
    coflows: usize,
    /// Number of its rules.
    rules: usize,
    /// Orders that it refused since it started.
    refused_orders: u64,
    /// Flows that it forwarded without a rule, since the start of the coordinator.
    unruled_flows: u64,
}

/// Part of the list of routes.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RoutePage {
    /// The last coflow of the previous page.
    #[param(value_type = String, required = false)]
    after: Option<String>,
    /// Maximum number of coflows.
    #[param(inline, value_type = CoflowPageLimit, required = false)]
    limit: Option<usize>,
}

/// The flows of an active coflow between two regions.
#[derive(Debug, Serialize, ToSchema)]
pub struct RouteState {
    /// The coflow.
    coflow: String,
    /// The region of the senders.
    from: String,
    /// The region of the receivers.
    to: String,
    /// The priority of the flows that are served first: 0 before 1; `null` without a rule.
    priority: Option<u16>,
    /// The next regions and their fractions of the bytes, such as `asia 0.25`. Empty: the direct path.
    via: Vec<String>,
    /// Sum of the sizes of the flows.
    bytes: u64,
    /// Bytes that the receivers have acknowledged.
    acked_bytes: u64,
    /// Bytes that the relays of the senders sent on a detour.
    detoured_bytes: u64,
    /// Number of open flows.
    open_flows: u32,
}

/// A page of routes in order of coflows.
#[derive(Debug, Serialize, ToSchema)]
pub struct RouteList {
    routes: Vec<RouteState>,
    /// The value of `after` for the next page; `null` after the last page.
    next: Option<String>,
}

/// The last measurement of the path from one relay to another.
#[derive(Debug, Serialize, ToSchema)]
pub struct PathState {
    /// The relay that sends, and measures.
    from: String,
    /// The relay that receives.
    to: String,
    /// The region of the sending relay.
    from_region: String,
    /// The region of the receiving relay.
    to_region: String,
    /// Whether all connections are established.
    connected: bool,
    /// Bytes per second while data waits; `null` if no data waited.
    bytes_per_second: Option<u64>,
    /// The lowest round-trip time.
    min_rtt_seconds: Option<f64>,
    /// The smoothed round-trip time.
    rtt_seconds: Option<f64>,
    /// The fraction of segments that were retransmitted since the connection began; `null` before the first segment.
    retransmitted: Option<f64>,
    /// Bytes sent since the relay started.
    sent_bytes: u64,
    /// Bytes of these that belong to flows on a detour.
    detoured_bytes: u64,
}

impl RouteState {
    fn new(route: RouteStatus, overlay: &config::Overlay) -> RouteState {
        let name = |region: u16| overlay.area.regions()[usize::from(region)].clone();
        let via = route.paths.iter().map(|path| format!("{} {:.3}", name(path.next_region), path.fraction));
        RouteState {
            coflow: route.coflow.to_string(),
            from: name(route.regions.source),
            to: name(route.regions.destination),
            priority: route.priority,
            via: via.collect(),
            bytes: route.bytes,
            acked_bytes: route.acked_bytes,
            detoured_bytes: route.detoured_bytes,
            open_flows: route.open_flows,
        }
    }
}

impl PathState {
    fn new(PathStatus { from, sample }: PathStatus, overlay: &config::Overlay) -> PathState {
        let name = |relay: u16| overlay.relays[usize::from(relay)].name.clone();
        let region = |relay: u16| overlay.region_of(relay).to_owned();
        let retransmitted = sample.retransmitted_segments as f64 / sample.segments as f64;
        PathState {
            from: name(from),
            to: name(sample.peer),
            from_region: region(from),
            to_region: region(sample.peer),
            connected: sample.is_connected,
            bytes_per_second: sample.rate,
            min_rtt_seconds: sample.min_rtt.map(|rtt| rtt.as_secs_f64()),
            rtt_seconds: sample.rtt.map(|rtt| rtt.as_secs_f64()),
            retransmitted: (sample.segments > 0).then_some(retransmitted),
            sent_bytes: sample.sent_bytes,
            detoured_bytes: sample.detoured_bytes,
        }
    }
}

/// All relays; empty without an overlay.
#[utoipa::path(get, path = "/v1/relays", operation_id = "list_relays",
    responses((status = 200, description = "The relays", body = Vec<RelayState>), Problem))]
pub async fn relays(State(api): State<Api>, client: Client) -> Result<Json<Vec<RelayState>>, Problem> {
    check_may_see(&client, None)?;
    let Some(handle) = api.registry.overlay() else { return Ok(Json(Vec::new())) };
    let overlay = handle.config();
    let (statuses, addresses) =
        handle.call(|overlay, now| (overlay.relay_statuses(now), overlay.addresses().to_vec()));
    let relays = (0..).zip(&overlay.relays).zip(statuses).map(|((number, relay), status)| RelayState {
        name: relay.name.clone(),
        region: overlay.region_of(number).to_owned(),
        address: relay.address.to_string(),
        resolved: match relay.address {
            RelayAddress::Fixed(_) => None,
            RelayAddress::Name { .. } => addresses[usize::from(number)].map(|address| address.to_string()),
        },
        networks: relay.networks.iter().map(Network::to_string).collect(),
        present: status.present,
        seconds_since_report: status.seconds_since_report,
        ordered: status.ordered_seq,
        applied: status.applied_seq,
        coflows: status.coflows,
        rules: status.rules,
        refused_orders: status.refused_orders,
        unruled_flows: status.unruled_flows,
    });
    Ok(Json(relays.collect()))
}

/// The routes of active coflows between regions; for a framework, those of its service.
#[utoipa::path(get, path = "/v1/routes", operation_id = "list_routes", params(RoutePage),
    responses((status = 200, description = "The routes", body = RouteList), Problem))]
pub async fn routes(
    State(api): State<Api>,
    client: Client,
    QueryParams(page): QueryParams<RoutePage>,
) -> Result<Json<RouteList>, Problem> {
    check_may_see(&client, None)?;
    let page_size = page_size(page.limit, &COFLOW_PAGE)?;
    let Some(handle) = api.registry.overlay() else {
        return Ok(Json(RouteList { routes: Vec::new(), next: None }));
    };
    let (routes, next) = handle.call(|overlay, _| overlay.route_statuses(page.after.as_deref(), page_size));
    let visible = routes.into_iter().filter(|route| client.may_see(Some(&route.service)));
    let routes = visible.map(|route| RouteState::new(route, handle.config())).collect();
    Ok(Json(RouteList { routes, next: next.map(|id| id.to_string()) }))
}

/// The last measurements of all paths between relays; empty without an overlay.
#[utoipa::path(get, path = "/v1/paths", operation_id = "list_paths",
    responses((status = 200, description = "The paths", body = Vec<PathState>), Problem))]
pub async fn paths(State(api): State<Api>, client: Client) -> Result<Json<Vec<PathState>>, Problem> {
    check_may_see(&client, None)?;
    let Some(handle) = api.registry.overlay() else { return Ok(Json(Vec::new())) };
    let paths = handle.call(|overlay, _| overlay.path_statuses());
    Ok(Json(paths.into_iter().map(|path| PathState::new(path, handle.config())).collect()))
}
