//! Decides the order of coflows, the order of flow groups and the paths, by the policies that the simulator also runs, and converts the
//! decision to rules.

use std::sync::Arc;

use weir_core::model::BandwidthHistory;
use weir_core::wide_area::detour::{self, CoflowPaths, PathShare, RegionLimits};
use weir_core::wide_area::relays::{GroupPath, HopSchedule, RelayedCoflow, hop_schedules};
use weir_core::wide_area::{ServiceOrder, WaitingCoflow, estimate};
use weir_core::wide_area_policy::{Mechanisms, WideAreaPolicy};

use super::bandwidth;
use super::flows::FlowIndex;
use super::rules::{RegionRules, region_rules};

/// The input of a decision.
#[derive(Debug, Clone)]
pub struct DecisionRequest {
    /// Time of the request.
    pub requested_at: f64,
    /// Maximum fraction of a coflow's bytes that uses detours.
    pub max_detoured: f64,
    /// Past measurements of the links.
    pub past: BandwidthHistory,
    /// The last measurements of the links.
    pub recent: Arc<BandwidthHistory>,
    /// For each region, the seconds in which a byte leaves it over all links; 0 without a limit.
    pub interfaces: Vec<f64>,
    /// For each region, whether a relay accepts detours.
    pub has_detours: Arc<[bool]>,
    /// The active coflows in the order of registration.
    pub coflows: Vec<CoflowDemand>,
    /// The last order, if only bandwidths of links or regions with detours have changed since then: policies decide when coflows change.
    pub order: Option<ServiceOrder>,
}

/// An active coflow.
#[derive(Debug, Clone)]
pub struct CoflowDemand {
    /// Its number.
    pub number: u32,
    /// The number of its updates.
    pub revision: u32,
    /// Its bytes by direct link.
    pub bytes: Vec<(u32, f64)>,
    /// Its remaining bytes by direct link.
    pub remaining: Vec<(u32, f64)>,
    /// Its flow groups.
    pub index: Arc<FlowIndex>,
    /// Its paths, if an earlier decision chose them.
    pub paths: Option<Arc<ChosenPaths>>,
}

/// The paths of a coflow.
#[derive(Debug, Clone)]
pub struct ChosenPaths {
    /// The paths.
    pub paths: CoflowPaths,
    /// The bandwidth for which they were chosen.
    pub bandwidth: Arc<BandwidthHistory>,
    /// For each region, whether a relay accepted detours then.
    pub has_detours: Arc<[bool]>,
}

/// A decision.
#[derive(Debug, Clone)]
pub struct Decision {
    /// Time of the request.
    pub requested_at: f64,
    /// The decided coflows.
    pub coflows: Vec<DecidedCoflow>,
    /// The order of the coflows.
    pub order: ServiceOrder,
    /// Instructions by region and next region.
    pub hops: Vec<HopSchedule>,
    /// Past measurements of the links.
    pub past: BandwidthHistory,
    /// For each region, whether a relay accepted detours at the time of the request.
    pub has_detours: Arc<[bool]>,
    /// The rules of the relays in each region.
    pub(super) rules: Vec<Arc<RegionRules>>,
}

impl Decision {
    /// Converts the decision to rules. `has_detours`: for each region, whether a relay accepts detours.
    pub(super) fn update_rules(&mut self, has_detours: Arc<[bool]>) {
        let index_of = self.coflows.iter().map(|coflow| (coflow.number, &*coflow.index)).collect();
        self.rules = region_rules(&self.past, &has_detours, &index_of, &self.hops);
        self.has_detours = has_detours;
    }
}

/// The paths and the estimate of a coflow.
#[derive(Debug, Clone)]
pub struct DecidedCoflow {
    /// Its number.
    pub number: u32,
    /// The number of its updates at the time of the request.
    pub revision: u32,
    /// Its flow groups at the time of the request.
    pub index: Arc<FlowIndex>,
    /// Its paths.
    pub paths: Arc<ChosenPaths>,
    /// Estimated time from the request to its completion, in seconds.
    pub seconds: f64,
}

/// The last paths of a coflow stay if others shorten the time of its slowest link by less than this fraction, and all regions of their
/// detours accept detours.
const MIN_GAIN: f64 = 0.1;

/// Decides. Paths are chosen for the coflow's own bytes, as in the simulator: once after its registration or update, and again for the
/// remaining bytes when the bandwidth of a link has changed, or other regions accept detours.
pub fn decide(policy: &mut WideAreaPolicy, request: DecisionRequest) -> Decision {
    // Without a policy tree, all coflows are in one leaf.
    let mechanisms = policy.mechanisms;
    let paths: Vec<Arc<ChosenPaths>> =
        request.coflows.iter().map(|coflow| choose_paths(coflow, &request, mechanisms)).collect();
    let DecisionRequest { requested_at, past, has_detours, coflows, order, .. } = request;
    let waiting: Vec<WaitingCoflow> =
        coflows.iter().zip(&paths).map(|(coflow, chosen)| to_waiting(coflow, &chosen.paths, &past)).collect();
    let relayed: Vec<RelayedCoflow> = coflows
        .iter()
        .zip(&paths)
        .map(|(coflow, chosen)| to_relayed(coflow, &chosen.paths, &past, mechanisms))
        .collect();
    let order = order.unwrap_or_else(|| policy.decide_order(&waiting, &past));
    let seconds = estimate::completion_times(&past, &order, &waiting);
    let hops = hop_schedules(&past, &order, &relayed);
    let decided = coflows.into_iter().zip(paths).zip(seconds);
    let coflows = decided.map(|((coflow, paths), seconds)| {
        let CoflowDemand { number, revision, index, .. } = coflow;
        DecidedCoflow { number, revision, index, paths, seconds }
    });
    let coflows = coflows.collect();
    let mut decision =
        Decision { requested_at, coflows, order, hops, past, has_detours: Arc::default(), rules: Vec::new() };
    decision.update_rules(has_detours);
    decision
}

fn choose_paths(
    coflow: &CoflowDemand,
    request: &DecisionRequest,
    mechanisms: Mechanisms,
) -> Arc<ChosenPaths> {
    let DecisionRequest { recent, interfaces, max_detoured, has_detours, .. } = request;
    let limits = RegionLimits { interfaces, has_relay: has_detours };
    let choose = |bytes: &[(u32, f64)]| {
        if !mechanisms.detours {
            return detour::direct_paths(recent, bytes);
        }
        let paths = detour::relieve_bottlenecks_within(recent, bytes, limits);
        paths.limit_detours(recent, bytes, *max_detoured)
    };
    let chosen = |paths| {
        let (bandwidth, has_detours) = (Arc::clone(recent), Arc::clone(has_detours));
        Arc::new(ChosenPaths { paths, bandwidth, has_detours })
    };
    let Some(last) = &coflow.paths else { return chosen(choose(&coflow.bytes)) };
    let is_same = last.has_detours == *has_detours && !bandwidth::has_changed(&last.bandwidth, recent);
    if !mechanisms.detours || is_same {
        return Arc::clone(last);
    }
    let paths = choose(&coflow.remaining);
    let unchanged = last.paths.with_bytes(recent, &coflow.remaining);
    let is_faster = paths.max_link_seconds(recent) < unchanged.max_link_seconds(recent) * (1.0 - MIN_GAIN);
    let is_usable = |share: &PathShare| share.relay.is_none_or(|region| has_detours[region as usize]);
    let are_usable = last.paths.path_shares.iter().all(is_usable);
    chosen(if is_faster || !are_usable { paths } else { last.paths.clone() })
}

fn to_waiting(coflow: &CoflowDemand, paths: &CoflowPaths, past: &BandwidthHistory) -> WaitingCoflow {
    let mut remaining = vec![0.0; past.links()];
    for share in &paths.path_shares {
        let direct = coflow.remaining.iter().filter(|(link, _)| *link == share.direct_link);
        let bytes = direct.map(|(_, bytes)| bytes * share.fraction).sum::<f64>();
        for link in detour::path_links(past, share).into_iter().flatten() {
            remaining[link as usize] += bytes;
        }
    }
    let remaining_bytes = (0..).zip(remaining).filter(|(_, bytes)| *bytes > 0.0).collect();
    WaitingCoflow { seq: coflow.number.into(), remaining_bytes }
}

fn to_relayed(
    coflow: &CoflowDemand,
    paths: &CoflowPaths,
    past: &BandwidthHistory,
    mechanisms: Mechanisms,
) -> RelayedCoflow {
    let mut group_paths = Vec::new();
    for (pair, groups) in &coflow.index.ranges {
        let Some(link) = past.link_between(pair.source.into(), pair.destination.into()) else { continue };
        let shares: Vec<&PathShare> =
            paths.path_shares.iter().filter(|share| share.direct_link == link).collect();
        for &group in groups.keys() {
            group_paths.extend(shares.iter().map(|share| GroupPath {
                group,
                direct_link: link,
                links: detour::path_links(past, share),
                fraction: share.fraction,
            }));
        }
    }
    RelayedCoflow {
        seq: coflow.number.into(),
        group_order: mechanisms.largest_group_first.then(|| coflow.index.group_order.clone()),
        paths: group_paths,
    }
}
