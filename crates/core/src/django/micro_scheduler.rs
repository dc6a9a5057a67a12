//! The choices of the micro scheduler (Algorithm 3): the connections that close, and the candidates that get one.

use std::cmp::Ordering;

use super::candidates::{PendingFlow, ReducerPriority, by_remaining_bytes};

/// Line 2: orders two connections of a reducer, each with its rate and its flow. The fastest closes first.
pub(crate) fn by_closing(a: (f64, u32), b: (f64, u32)) -> Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// Lines 5 to 12, for several connections in a row: sorts candidates in the order in which a reducer opens them. A new connection takes the
/// residual capacity of both of its ends, so the next choice sees less; `vacant_downlink` is that of the reducer's host. O(n log n), and
/// O(n) more for each connection before the downlink has no residual capacity.
pub(crate) fn sort_by_opening(
    priority: ReducerPriority,
    mut vacant_downlink: f64,
    pending: &mut [PendingFlow],
) {
    let mut waiting = pending;
    while vacant_downlink > 0.0
        && let Some(next) = (0..waiting.len()).min_by(|&a, &b| by_opening(priority, &waiting[a], &waiting[b]))
    {
        waiting.swap(0, next);
        let Some((chosen, others)) = waiting.split_first_mut() else { return };
        let rate = chosen.vacant.min(vacant_downlink);
        if rate <= 0.0 {
            waiting = others;
            break;
        }
        vacant_downlink -= rate;
        for other in others.iter_mut().filter(|other| other.sender == chosen.sender) {
            other.vacant -= rate;
            other.balanced -= rate;
        }
        waiting = others;
    }
    waiting.sort_by(|a, b| by_opening(priority, a, b));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(flow: u32, sender: u32, remaining_bytes: f64, vacant: f64) -> PendingFlow {
        PendingFlow { flow, sender, remaining_bytes, vacant, balanced: vacant }
    }

    fn order(priority: ReducerPriority, vacant_downlink: f64, mut flows: Vec<PendingFlow>) -> Vec<u32> {
        sort_by_opening(priority, vacant_downlink, &mut flows);
        flows.into_iter().map(|pending| pending.flow).collect()
    }

    #[test]
    fn next_connection_sees_the_capacity_that_the_last_one_leaves() {
        // Sender 0 has the most residual capacity, 8, and then 0.
        let flows = || {
            vec![
                pending(0, 0, 9.0, 8.0),
                pending(1, 0, 8.0, 8.0),
                pending(2, 1, 1.0, 5.0),
                pending(3, 2, 1.0, 4.0),
            ]
        };
        assert_eq!(order(ReducerPriority::Prioritized, 100.0, flows()), [0, 2, 3, 1]);
        // The downlink carries 3 more: sender 0 has 5 left, as sender 1 has, and its flow has more bytes.
        assert_eq!(order(ReducerPriority::Prioritized, 3.0, flows()), [0, 1, 2, 3]);
        // A full downlink.
        assert_eq!(order(ReducerPriority::Prioritized, 0.0, flows()), [0, 1, 2, 3]);
    }

    #[test]
    fn other_reducers_open_the_largest_flows_first() {
        let flows = vec![pending(0, 0, 1.0, 8.0), pending(1, 0, 8.0, 8.0), pending(2, 1, 3.0, 5.0)];
        let downlink = crate::django::local_scheduler::Downlink { capacity: 10.0, vacant: 10.0 };
        assert_eq!(order(ReducerPriority::Other(downlink), 10.0, flows), [1, 2, 0]);
    }
}
