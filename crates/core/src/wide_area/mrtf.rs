//! MRTF: minimum remaining time first, what Siphon's evaluation (ATC '18, section 5.3) compares with.
//!
//! The paper takes it from CODA (SIGCOMM '16), and calls it the state of the art with full knowledge of coflows. A coflow's remaining
//! time is that of its slowest flow, were all links its own. The paper does not say at which bandwidth; here it is the
//! median of what was measured, as below the depth of Siphon's own search. Computed anew at every arrival and end.

use super::{Policy, Turns, Waiting};
use crate::model::Past;
use crate::solve::montecarlo::{self, Coflow};

/// Minimum remaining time first.
pub struct Mrtf;

impl Policy for Mrtf {
    fn turns(&mut self, waiting: &[Waiting], past: &Past) -> Turns {
        let coflows: Vec<Coflow<'_>> =
            waiting.iter().map(|coflow| Coflow { key: coflow.seq, left: &coflow.left }).collect();
        Turns::InOrder(montecarlo::by_remaining(past, &coflows))
    }
}
