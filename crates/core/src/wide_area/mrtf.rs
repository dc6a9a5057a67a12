//! MRTF: minimum remaining time first, the baseline of Siphon's evaluation (ATC '18, section 5.3).
//!
//! The paper takes it from CODA (SIGCOMM '16), and calls it the state of the art with full knowledge of coflows. A coflow's
//! remaining time is that of its slowest flow with exclusive use of all links. The paper does not state the bandwidth. Here
//! it is the median of the measurements, as for the coflows after a branch in Siphon's own search. The order is computed at
//! every arrival and end.

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
        ServiceOrder::InOrder(montecarlo::order_by_remaining_time(past, &coflows))
    }
}
