//! The choices of the micro scheduler (Algorithm 3): the connections that close, and the candidates that get one.

use std::cmp::Ordering;

use super::candidates::{PendingFlow, ReducerPriority, by_remaining_bytes};

/// Line 2: orders two connections of a reducer, each with its rate and its flow. The fastest closes first.
pub(crate) fn by_closing(a: (f64, u32), b: (f64, u32)) -> Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// Lines 7 to 10: orders two candidates of a reducer. The first one gets a connection: for a prioritized reducer that with the
/// most residual capacity, for others that with the most remaining bytes.
pub(crate) fn by_opening(priority: ReducerPriority, a: &PendingFlow, b: &PendingFlow) -> Ordering {
    match priority {
        ReducerPriority::Prioritized => {
            let balanced = || b.balanced.total_cmp(&a.balanced).then_with(|| by_remaining_bytes(a, b));
            b.vacant.total_cmp(&a.vacant).then_with(balanced)
        }
        ReducerPriority::Other(_) => by_remaining_bytes(a, b),
    }
}
