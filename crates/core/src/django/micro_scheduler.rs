//! The choices of the micro scheduler (Algorithm 3): the connections that close, and the candidates that get one.

use std::cmp::Ordering;

use super::Params;
use super::candidates::{PendingFlow, ReducerPriority, by_remaining_bytes, retain_candidates};
use super::local_scheduler::Downlink;

/// Line 2: orders two connections of a reducer, each with its rate and its flow. The fastest closes first.
pub(crate) fn by_closing(a: (f64, u32), b: (f64, u32)) -> Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// Lines 5 to 12, for several connections in a row: the flows to which a reducer opens connections, in this order, at most `max_count`. A
/// new connection takes the residual capacity of both of its ends, so Algorithm 4 sees less for the next one. `downlink` is that of the
/// reducer's host. O(n log n) for n waiting flows, and O(n) more for each sender.
pub(crate) fn choose_in_turn(
    params: &Params,
    is_prioritized: bool,
    mut downlink: Downlink,
    max_count: usize,
    mut pending: Vec<PendingFlow>,
) -> Vec<u32> {
    let priority_at = |downlink| match is_prioritized {
        true => ReducerPriority::Prioritized,
        false => ReducerPriority::Other(downlink),
    };
    let (mut chosen, mut candidates) = (Vec::new(), Vec::new());
    // Each turn uses up a sender or the downlink.
    while downlink.vacant > 0.0 && chosen.len() < max_count {
        let priority = priority_at(downlink);
        candidates.clone_from(&pending);
        retain_candidates(params, priority, max_count, &mut candidates);
        let next = candidates.iter().min_by(|a, b| by_opening(priority, a, b));
        let Some(&next) = next.filter(|next| next.vacant > 0.0) else { break };
        let rate = next.vacant.min(downlink.vacant);
        downlink.vacant -= rate;
        pending.retain(|other| other.flow != next.flow);
        for other in pending.iter_mut().filter(|other| other.sender == next.sender) {
            other.vacant -= rate;
            other.balanced -= rate;
        }
        chosen.push(next.flow);
    }
    let priority = priority_at(downlink);
    retain_candidates(params, priority, max_count, &mut pending);
    pending.sort_by(|a, b| by_opening(priority, a, b));
    pending.truncate(max_count - chosen.len());
    chosen.extend(pending.iter().map(|pending| pending.flow));
    chosen
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

    fn order(is_prioritized: bool, vacant: f64, flows: Vec<PendingFlow>) -> Vec<u32> {
        choose_in_turn(&Params::default(), is_prioritized, Downlink { capacity: 10.0, vacant }, 8, flows)
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
        assert_eq!(order(true, 100.0, flows()), [0, 2, 3, 1]);
        // The downlink carries 3 more: sender 0 has 5 left, as sender 1 has, and its flow has more bytes.
        assert_eq!(order(true, 3.0, flows()), [0, 1, 2, 3]);
        assert_eq!(order(true, 0.0, flows()), [0, 1, 2, 3], "a full downlink");
    }

    #[test]
    fn candidates_of_the_next_connection_are_those_after_the_last_one() {
        // Two of eight candidates, a quarter: both flows of sender 0. It has no capacity after the first one, and then it is nearest to the
        // 2 that the downlink has left.
        let flows = vec![pending(0, 0, 1.0, 8.0), pending(1, 0, 8.0, 8.0), pending(2, 1, 3.0, 5.0)];
        assert_eq!(order(false, 10.0, flows.clone()), [1, 0]);
        // Then sender 1, with 5 of the 6; and the flow that is left.
        assert_eq!(order(false, 14.0, flows), [1, 2, 0]);
    }
}
