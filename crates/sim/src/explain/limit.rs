//! Finds the link that limits a coflow, and the coflows that use it.

use std::collections::BTreeMap;

use weir_core::allocation::{CommonRate, OrderCriterion};
use weir_core::model::{Coflow, FlowState, LinkKind, Slot};

use super::link::Link;
use super::report::SlowdownCause;
use crate::replay::Snapshot;

/// Residual capacities up to this fraction of a link's nominal rate count as none.
pub(super) const NEGLIGIBLE_FRACTION: f64 = 1e-6;

/// A coflow that uses the limiting link, and its rates there.
pub(super) struct HolderRates {
    pub coflow: u64,
    pub queue: usize,
    pub order_criterion: OrderCriterion,
    /// Its rate relative to the nominal rate of the link.
    pub rate_share: f64,
    /// Of its flows on the link.
    flows: Vec<HolderFlow>,
}

/// A flow on the limiting link.
struct HolderFlow {
    /// Its rate relative to the capacity of the link.
    used_fraction: f64,
    /// Time until it has sent all bytes at this rate.
    seconds_left: f64,
}

impl HolderRates {
    /// The fraction of the link's capacity that the coflow uses before one of its flows ends.
    pub fn used_fraction(&self) -> f64 {
        self.flows.iter().map(|flow| flow.used_fraction).sum()
    }

    /// Seconds that the bytes which the coflow sends in this time take alone.
    pub fn used_seconds(&self, time: f64) -> f64 {
        self.flows.iter().map(|flow| flow.used_fraction * flow.seconds_left.min(time)).sum()
    }

    /// Seconds in which the coflow uses the link at its rate: fewer than `time` if its flows end before.
    pub fn sending_seconds(&self, time: f64) -> f64 {
        let used_fraction = self.used_fraction();
        let has_ending_flows = self.flows.iter().any(|flow| flow.seconds_left < time);
        if has_ending_flows && used_fraction > 0.0 { self.used_seconds(time) / used_fraction } else { time }
    }

    /// Seconds that the link carries nothing because flows of the coflow have ended in this time.
    pub fn idle_seconds(&self, time: f64) -> f64 {
        self.used_fraction() * time - self.used_seconds(time)
    }
}

/// By release number of a coflow and link: the flows of the coflow over the link, as far as needed.
#[derive(Default)]
pub(super) struct FlowsByLink(BTreeMap<(u64, usize), Vec<u32>>);

impl FlowsByLink {
    /// Forgets all flows, if cables change their paths.
    pub fn prepare(&mut self, snapshot: &Snapshot<'_>) {
        if snapshot.has_cable_events() {
            self.0.clear();
        }
    }

    fn find(&mut self, snapshot: &Snapshot<'_>, slot: Slot, link: usize) -> &[u32] {
        let coflow = snapshot.coflow(slot);
        self.0.entry((coflow.seq, link)).or_insert_with(|| {
            let crosses = |&flow: &u32| snapshot.flow_links(slot, flow).any(|at| at == link);
            (0..coflow.width() as u32).filter(crosses).collect()
        })
    }
}

/// The explained coflow at a schedule.
pub(super) struct CoflowLoads<'a> {
    pub slot: Slot,
    /// By link.
    pub remaining_bytes: &'a [f64],
    /// By link; see [`write_present_capacities`].
    pub capacities: &'a [f64],
    /// The link whose remaining bytes take longest alone.
    pub bottleneck: usize,
}

/// Which rates of flows count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RateKind {
    InForce,
    /// The rates that the policy decided at ports, before limits outside of its decision reduce them.
    Decided,
}

/// Writes the capacities of all links to `capacities`, at receiving ports with incast those for the present number of flows.
pub(super) fn write_present_capacities(snapshot: &Snapshot<'_>, capacities: &mut Vec<f64>) {
    capacities.clear();
    capacities.extend(snapshot.link_capacities());
    if snapshot.has_incast() {
        let mut flow_counts = vec![0; capacities.len()];
        // With incast, all rates are visited flow by flow.
        visit_rates(snapshot, RateKind::InForce, |_, link, _| flow_counts[link] += 1);
        for (link, (capacity, count)) in capacities.iter_mut().zip(flow_counts).enumerate() {
            *capacity *= snapshot.goodput_fraction(link, count);
        }
    }
}

/// The cause of a coflow's pace, and the other coflows that use the limiting link, the fastest first.
pub(super) fn find_cause(
    snapshot: &Snapshot<'_>,
    coflow: &CoflowLoads<'_>,
    flows_by_link: &mut FlowsByLink,
) -> (SlowdownCause, Vec<HolderRates>) {
    // A policy does not assign the capacity that becomes free where other limits reduce its rates.
    let decided = snapshot.has_limited_rates().then_some(RateKind::Decided);
    let found = [Some(RateKind::InForce), decided]
        .into_iter()
        .flatten()
        .find_map(|kind| find_limiting_link(snapshot, coflow, kind).map(|limit| (kind, limit)));
    match found {
        None => (SlowdownCause::Policy, Vec::new()),
        Some((kind, (link, true))) => (
            SlowdownCause::ContendedLink(name_link(snapshot, link)),
            find_holders(snapshot, coflow, link, kind, flows_by_link),
        ),
        Some((_, (link, false))) => (SlowdownCause::SlowLink(name_link(snapshot, link)), Vec::new()),
    }
}

/// The link with this number.
pub(super) fn name_link(snapshot: &Snapshot<'_>, link: usize) -> Link {
    match snapshot.link_kind(link) {
        LinkKind::Sender(port) => Link::Sender(snapshot.workload_port(port)),
        LinkKind::Receiver(port) => Link::Receiver(snapshot.workload_port(port)),
        LinkKind::Trunk(trunk) => Link::Trunk(trunk),
    }
}

/// The limiting link, and whether other coflows use it.
fn find_limiting_link(
    snapshot: &Snapshot<'_>,
    coflow: &CoflowLoads<'_>,
    kind: RateKind,
) -> Option<(usize, bool)> {
    let links = coflow.remaining_bytes.len();
    let (mut used, mut used_by_others) = (vec![0.0; links], vec![0.0; links]);
    visit_rates(snapshot, kind, |slot, link, rate| {
        used[link] += rate;
        used_by_others[link] += if slot == coflow.slot { 0.0 } else { rate };
    });
    let decided_links = match kind {
        RateKind::InForce => links,
        RateKind::Decided => snapshot.fabric().trunk_links().start,
    };
    let mut worst: Option<((f64, f64), usize, bool)> = None;
    for (link, capacity) in snapshot.link_capacities().enumerate().take(decided_links) {
        let capacity = match kind {
            RateKind::InForce => coflow.capacities[link],
            RateKind::Decided => capacity,
        };
        let (remaining, nominal) = (coflow.remaining_bytes[link], snapshot.nominal_rates()[link]);
        let negligible_rate = NEGLIGIBLE_FRACTION * nominal;
        if remaining > 0.0 && nominal == 0.0 && worst.is_none_or(|((most, _), ..)| most < f64::INFINITY) {
            // Flows without a path cross this link.
            worst = Some(((f64::INFINITY, remaining), link, false));
        }
        if remaining == 0.0 || capacity - used[link] > negligible_rate {
            continue;
        }
        let is_contended = used_by_others[link] > negligible_rate;
        if !is_contended && capacity >= nominal - negligible_rate {
            // The coflow has this link to itself, so another link limits it.
            continue;
        }
        let available_rate = capacity - used_by_others[link];
        let seconds =
            if available_rate > negligible_rate { remaining / available_rate } else { f64::INFINITY };
        if link == coflow.bottleneck {
            return Some((link, is_contended));
        }
        if worst.is_none_or(|(most, ..)| (seconds, remaining) > most) {
            worst = Some(((seconds, remaining), link, is_contended));
        }
    }
    worst.map(|(_, link, is_contended)| (link, is_contended))
}

/// The other coflows that use a link, the fastest first.
fn find_holders(
    snapshot: &Snapshot<'_>,
    coflow: &CoflowLoads<'_>,
    link: usize,
    kind: RateKind,
    flows_by_link: &mut FlowsByLink,
) -> Vec<HolderRates> {
    let mut rates: BTreeMap<Slot, f64> = BTreeMap::new();
    visit_rates(snapshot, kind, |other, at, rate| {
        if other != coflow.slot && at == link {
            *rates.entry(other).or_default() += rate;
        }
    });
    let allocation = snapshot.allocation();
    let nominal_rate = snapshot.nominal_rates()[link];
    let rates = rates.into_iter().filter(|(_, rate)| *rate > NEGLIGIBLE_FRACTION * nominal_rate);
    let mut holders: Vec<HolderRates> = rates
        .map(|(other, rate)| HolderRates {
            coflow: snapshot.coflow(other).id,
            queue: allocation.class(other),
            order_criterion: allocation.order_criterion(other),
            rate_share: rate / nominal_rate,
            flows: rate_flows(
                snapshot,
                other,
                flows_by_link.find(snapshot, other, link),
                coflow.capacities[link],
            ),
        })
        .collect();
    holders.sort_by(|a, b| b.rate_share.total_cmp(&a.rate_share).then(a.coflow.cmp(&b.coflow)));
    holders
}

/// Those of the flows on a link of this capacity that have rates.
fn rate_flows(snapshot: &Snapshot<'_>, slot: Slot, flows: &[u32], capacity: f64) -> Vec<HolderFlow> {
    let coflow = snapshot.coflow(slot);
    let live = flows.iter().filter(|&&flow| coflow.flow_state(flow) == FlowState::Live);
    let rated = live.map(|&flow| (flow, snapshot.rate(slot, flow))).filter(|(_, rate)| *rate > 0.0);
    rated
        .map(|(flow, rate)| HolderFlow {
            used_fraction: rate / capacity,
            seconds_left: snapshot.remaining_bytes(slot, flow).map_or(f64::INFINITY, |bytes| bytes / rate),
        })
        .collect()
}

/// Calls `visit` with slot, link and rate for all rates. Coflows whose flows all have one rate need no visit of single flows.
fn visit_rates(snapshot: &Snapshot<'_>, kind: RateKind, mut visit: impl FnMut(Slot, usize, f64)) {
    let allocation = snapshot.allocation();
    let has_flow_rates = |slot| {
        (kind == RateKind::InForce && snapshot.has_limited_rates())
            || allocation.queue_discipline().is_some()
            || matches!(allocation.common(slot), CommonRate::CompleteTogether(_))
    };
    for &slot in snapshot.active() {
        let coflow: &Coflow = snapshot.coflow(slot);
        if has_flow_rates(slot) {
            for flow in coflow.live_flows() {
                let rate = match kind {
                    RateKind::InForce => snapshot.rate(slot, flow),
                    RateKind::Decided => snapshot.decided_common_rate(slot, flow),
                };
                if rate > 0.0 {
                    snapshot.flow_links(slot, flow).for_each(|link| visit(slot, link, rate));
                }
            }
        } else if let CommonRate::Equal(rate) = allocation.common(slot) {
            for load in coflow.links().iter().filter(|load| load.live_flow_count > 0) {
                visit(slot, load.link as usize, rate * f64::from(load.live_flow_count));
            }
        }
    }
    for own in allocation.flow_rates() {
        if kind == RateKind::Decided || !has_flow_rates(own.slot) {
            snapshot.flow_links(own.slot, own.flow).for_each(|link| visit(own.slot, link, own.rate));
        }
    }
}
