//! Finds the link that limits a coflow, and the coflows that use it.

use std::collections::BTreeMap;

use weir_core::allocation::{CommonRate, OrderCriterion};
use weir_core::model::{Coflow, Slot};

use super::report::{Link, SlowdownCause};
use crate::replay::Snapshot;

/// Residual capacities up to this fraction of a link's nominal rate count as none.
const NEGLIGIBLE_FRACTION: f64 = 1e-6;

/// A coflow that uses the limiting link, and its rate there.
pub(super) struct HolderRate {
    pub coflow: u64,
    pub queue: usize,
    pub order_criterion: OrderCriterion,
    pub rate: f64,
}

/// The explained coflow at a schedule.
pub(super) struct CoflowLoads<'a> {
    pub slot: Slot,
    /// By link.
    pub remaining_bytes: &'a [f64],
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

/// The cause of a coflow's pace, the nominal rate of the limiting link, and the other coflows that use it, the fastest first.
pub(super) fn find_cause(
    snapshot: &Snapshot<'_>,
    coflow: &CoflowLoads<'_>,
) -> (SlowdownCause, f64, Vec<HolderRate>) {
    // A policy does not assign the capacity that becomes free where other limits reduce its rates.
    let decided = snapshot.has_limited_rates().then_some(RateKind::Decided);
    let found = [Some(RateKind::InForce), decided]
        .into_iter()
        .flatten()
        .find_map(|kind| find_limiting_link(snapshot, coflow, kind).map(|limit| (kind, limit)));
    let Some((kind, (link, is_contended))) = found else {
        return (SlowdownCause::Policy, 0.0, Vec::new());
    };
    let nominal_rate = snapshot.nominal_rates()[link];
    let name = name_link(snapshot, link);
    if is_contended {
        (SlowdownCause::ContendedLink(name), nominal_rate, find_holders(snapshot, coflow.slot, link, kind))
    } else {
        (SlowdownCause::SlowLink(name), nominal_rate, Vec::new())
    }
}

fn name_link(snapshot: &Snapshot<'_>, link: usize) -> Link {
    let ports = snapshot.fabric().ports();
    match link.checked_sub(2 * ports) {
        Some(trunk) => Link::Trunk(trunk as u32),
        None if link < ports => Link::Sender(snapshot.workload_port(link as u32)),
        None => Link::Receiver(snapshot.workload_port((link - ports) as u32)),
    }
}

/// The limiting link, and whether other coflows use it.
fn find_limiting_link(
    snapshot: &Snapshot<'_>,
    coflow: &CoflowLoads<'_>,
    kind: RateKind,
) -> Option<(usize, bool)> {
    let links = coflow.remaining_bytes.len();
    let (mut used, mut used_by_others, mut flow_counts) =
        (vec![0.0; links], vec![0.0; links], vec![0; links]);
    visit_rates(snapshot, kind, |slot, link, rate| {
        used[link] += rate;
        used_by_others[link] += if slot == coflow.slot { 0.0 } else { rate };
        // With incast, all rates are visited flow by flow.
        flow_counts[link] += 1;
    });
    let decided_links = match kind {
        RateKind::InForce => links,
        RateKind::Decided => 2 * snapshot.fabric().ports(),
    };
    let mut worst: Option<((f64, f64), usize, bool)> = None;
    for (link, capacity) in snapshot.link_capacities().enumerate().take(decided_links) {
        let capacity = match kind {
            RateKind::InForce => capacity * snapshot.goodput_fraction(link, flow_counts[link]),
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

/// The coflows other than that in `slot` that use a link, the fastest first.
fn find_holders(snapshot: &Snapshot<'_>, slot: Slot, link: usize, kind: RateKind) -> Vec<HolderRate> {
    let mut rates: BTreeMap<Slot, f64> = BTreeMap::new();
    visit_rates(snapshot, kind, |other, at, rate| {
        if other != slot && at == link {
            *rates.entry(other).or_default() += rate;
        }
    });
    let allocation = snapshot.allocation();
    let negligible_rate = NEGLIGIBLE_FRACTION * snapshot.nominal_rates()[link];
    let rates = rates.into_iter().filter(|(_, rate)| *rate > negligible_rate);
    let mut holders: Vec<HolderRate> = rates
        .map(|(other, rate)| HolderRate {
            coflow: snapshot.coflow(other).id,
            queue: allocation.class(other),
            order_criterion: allocation.order_criterion(other),
            rate,
        })
        .collect();
    holders.sort_by(|a, b| b.rate.total_cmp(&a.rate).then(a.coflow.cmp(&b.coflow)));
    holders
}

/// Calls `visit` with slot, link and rate for all rates. Coflows whose flows all have one rate need no visit of single flows.
fn visit_rates(snapshot: &Snapshot<'_>, kind: RateKind, mut visit: impl FnMut(Slot, usize, f64)) {
    let allocation = snapshot.allocation();
    let ports = snapshot.fabric().ports();
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
            for (link, load) in coflow.link_loads(ports).filter(|(_, load)| load.live_flow_count > 0) {
                visit(slot, link, rate * f64::from(load.live_flow_count));
            }
        }
    }
    for own in allocation.flow_rates() {
        if kind == RateKind::Decided || !has_flow_rates(own.slot) {
            snapshot.flow_links(own.slot, own.flow).for_each(|link| visit(own.slot, link, own.rate));
        }
    }
}
