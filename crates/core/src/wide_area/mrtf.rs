//! MRTF: minimum remaining time first, the baseline of Siphon's evaluation (ATC '18, section 5.3).
//!
//! The paper takes it from CODA (SIGCOMM '16), and calls it the state of the art with full knowledge of coflows. A coflow's
//! remaining time is that of its slowest flow with exclusive use of all links, "based on the expectation of recent measurements"
//! (section 3.1.2): the mean of the measured bandwidths. The order is computed at every arrival and end.

use super::WaitingCoflow;
use crate::model::LinkHistory;
use crate::solve::montecarlo::{self, SearchCoflow};

/// The order of service, as indices of coflows.
pub(crate) fn decide_order(waiting: &[WaitingCoflow], past: &LinkHistory) -> Vec<usize> {
    let coflows: Vec<SearchCoflow<'_>> = waiting.iter().map(WaitingCoflow::for_search).collect();
    let seconds_per_byte: Vec<f64> =
        (0..past.links() as u32).map(|link| past.mean_seconds_per_byte(link)).collect();
    montecarlo::order_by_remaining_time(|link| seconds_per_byte[link as usize], &coflows)
}
