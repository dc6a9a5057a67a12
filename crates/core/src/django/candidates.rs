//! The candidates of a reducer (Algorithm 4).

use std::cmp::Ordering;

use super::Params;
use super::local_scheduler::Downlink;

/// A reducer without priority gets 1/`UNPRIORITIZED_DIVISOR` of the candidates of a prioritized one: section 4.4 says that its list
/// is "much smaller".
const UNPRIORITIZED_DIVISOR: usize = 4;

/// Whether a reducer is the prioritized one of its host.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ReducerPriority {
    Prioritized,
    /// Another reducer, of a host with this downlink.
    Other(Downlink),
}

/// A flow without a connection. Capacities are in bytes per second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingFlow {
    pub flow: u32,
    pub sender: u32,
    pub remaining_bytes: f64,
    /// The residual capacity of its sender's uplink.
    pub vacant: f64,
    /// The same, with the bonus of line 8.
    pub balanced: f64,
}

/// Line 8: the residual capacity of an uplink, with the bonus of a sender that prioritizes the reducer's coflow.
pub(crate) fn balanced_capacity(params: &Params, vacant: f64, capacity: f64, is_matched: bool) -> f64 {
    vacant + if is_matched { params.lambda * capacity } else { 0.0 }
}

/// Algorithm 4: keeps the candidates of a reducer among its flows without a connection, in any order. `max_count` is the
/// maximum number for a prioritized reducer. O(pending).
///
/// - Lines 4 to 10, for a prioritized reducer: the senders with the most balanced capacity. The text wants these; line 10 names
///   those with the least.
/// - Lines 12 to 16, for others: the sender whose residual capacity is nearest to that of the host's downlink, and the next
///   senders with less.
///
/// Ties go to the flow with the most remaining bytes, then to the first flow.
pub(crate) fn retain_candidates(
    params: &Params,
    priority: ReducerPriority,
    max_count: usize,
    pending: &mut Vec<PendingFlow>,
) {
    match priority {
        ReducerPriority::Prioritized => retain_first(pending, max_count, |a, b| {
            b.balanced.total_cmp(&a.balanced).then_with(|| by_remaining_bytes(a, b))
        }),
        ReducerPriority::Other(downlink) => {
            let by_vacancy = |a: &PendingFlow, b: &PendingFlow| {
                b.vacant.total_cmp(&a.vacant).then_with(|| by_remaining_bytes(a, b))
            };
            let gap = |pending: &PendingFlow| (downlink.vacant - pending.vacant).abs();
            let by_gap =
                |a: &&PendingFlow, b: &&PendingFlow| gap(a).total_cmp(&gap(b)).then_with(|| by_vacancy(a, b));
            let nearest = pending.iter().min_by(by_gap).copied();
            match nearest.filter(|_| downlink.has_vacant(params.theta)) {
                Some(nearest) => pending.retain(|other| by_vacancy(other, &nearest).is_ge()),
                None => pending.clear(),
            }
            retain_first(pending, (max_count / UNPRIORITIZED_DIVISOR).max(1), by_vacancy);
        }
    }
}

/// Keeps the first `count` flows of an order.
fn retain_first(
    pending: &mut Vec<PendingFlow>,
    count: usize,
    order: impl Fn(&PendingFlow, &PendingFlow) -> Ordering,
) {
    if count < pending.len() {
        pending.select_nth_unstable_by(count, order);
        pending.truncate(count);
    }
}

/// The most bytes first, then the first flow.
pub(crate) fn by_remaining_bytes(a: &PendingFlow, b: &PendingFlow) -> Ordering {
    b.remaining_bytes.total_cmp(&a.remaining_bytes).then(a.flow.cmp(&b.flow))
}
