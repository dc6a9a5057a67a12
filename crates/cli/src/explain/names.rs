//! Converts the criteria and links of an explanation to the names and numbers in its output.

use weir_core::allocation::OrderCriterion;
use weir_sim::explain::{Explanation, Link};

use crate::network::Network;

/// For a coflow that was rejected at admission: the seconds that it needed, and those that were left until its deadline. The first is
/// infinite if a link had no residual capacity.
pub fn rejection_seconds(explanation: &Explanation) -> Option<(f64, f64)> {
    explanation.segments.iter().find_map(|segment| match segment.order_criterion {
        OrderCriterion::Rejected { needed_us, left_us } => {
            let needed = if needed_us == u64::MAX { f64::INFINITY } else { needed_us as f64 / 1e6 };
            Some((needed, left_us as f64 / 1e6))
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
        OrderCriterion::Constant | OrderCriterion::DeadlineExpired | OrderCriterion::Rejected { .. } => None,
    }
}
