//! Policies without knowledge: coflows in the order of arrival, and links shared as by TCP.

use super::{Policy, Turns, Waiting};
use crate::model::Past;

/// First in, first out.
pub struct Fifo;

impl Policy for Fifo {
    fn turns(&mut self, waiting: &[Waiting], _: &Past) -> Turns {
        Turns::InOrder((0..waiting.len()).collect())
    }
}

/// Max-min between all flows.
pub struct Fair;

impl Policy for Fair {
    fn turns(&mut self, _: &[Waiting], _: &Past) -> Turns {
        Turns::Shared
    }
}
