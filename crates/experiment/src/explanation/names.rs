//! Converts the criteria and links of an explanation to the names and numbers in its output.

use weir_core::allocation::OrderCriterion;
use weir_sim::explain::{Explanation, Link};

use crate::network::Network;

/// For a coflow that was rejected at admission: the seconds that it needed, and those that were left until its deadline. The first is
/// infinite if a link had no residual capacity.
pub fn rejection_seconds(explanation: &Explanation) -> Option<(f64, f64)> {
    explanation.segments.iter().find_map(|segment| match segment.order_criterion {
        OrderCriterion::Rejected { needed_us, left_us } => {
            Some((seconds_or_infinity(needed_us), left_us as f64 / 1e6))
        }
        _ => None,
    })
}

/// The name of a link that limits a coflow, such as `port 3 (sending)` or `leaf0 -> spine1`.
pub fn link_name(link: Link, network: &Network) -> String {
    match link {
        Link::Sender(port) => format!("port {port} (sending)"),
        Link::Receiver(port) => format!("port {port} (receiving)"),
        Link::Trunk(trunk) => network.trunk_name(trunk as usize),
    }
}

/// The number of coflows that a coflow contends with, if its policy orders coflows by contention.
pub fn contending_coflows(criterion: OrderCriterion) -> Option<u32> {
    match criterion {
        OrderCriterion::Contention(others) => Some(others),
        _ => None,
    }
}

/// The estimated time that a coflow needs, in seconds, and the number of completed flows that it is based on, if its policy orders
/// coflows by estimates; 0 if it is based on earlier coflows. The time is infinite if a link is down.
pub fn estimated_seconds(criterion: OrderCriterion) -> Option<(f64, u32)> {
    match criterion {
        OrderCriterion::EstimatedTime { needed_us, completed_flows } => {
            Some((seconds_or_infinity(needed_us), completed_flows))
        }
        OrderCriterion::ExpectedTime { needed_us, .. } => Some((seconds_or_infinity(needed_us), 0)),
        _ => None,
    }
}

/// The time that a coflow without completed flows was served, in seconds, if its policy orders coflows by estimates.
pub fn attained_seconds(criterion: OrderCriterion) -> Option<f64> {
    match criterion {
        OrderCriterion::ExpectedTime { attained_us, .. } => Some(attained_us as f64 / 1e6),
        _ => None,
    }
}

/// Seconds from microseconds, of which the maximum stands for infinity.
fn seconds_or_infinity(microseconds: u64) -> f64 {
    if microseconds == u64::MAX { f64::INFINITY } else { microseconds as f64 / 1e6 }
}
