//! MRTF: minimum remaining time first, the baseline of Siphon's evaluation (ATC '18, section 5.3).
//!
//! The paper takes it from CODA (SIGCOMM '16), and calls it the state of the art with full knowledge of coflows. A coflow's
//! remaining time is that of its slowest flow with exclusive use of all links, "based on the expectation of recent measurements"
//! (section 3.1.2): the mean of the measured bandwidths. The order is computed at every arrival and end.

use super::{Policy, ServiceOrder, WaitingCoflow};
use crate::model::LinkHistory;
use crate::solve::montecarlo::{self, SearchCoflow};

/// Minimum remaining time first.
pub struct Mrtf;

impl Policy for Mrtf {
    fn decide_order(&mut self, waiting: &[WaitingCoflow], past: &LinkHistory) -> ServiceOrder {
        let coflows: Vec<SearchCoflow<'_>> = waiting
            .iter()
            .map(|coflow| SearchCoflow { key: coflow.seq, remaining_bytes: &coflow.remaining_bytes })
            .collect();
        let seconds_per_byte: Vec<f64> =
            (0..past.links() as u32).map(|link| past.mean_seconds_per_byte(link)).collect();
        let order = montecarlo::order_by_remaining_time(|link| seconds_per_byte[link as usize], &coflows);
        ServiceOrder::InOrder(order)
    }
}
