//! Policies without knowledge: coflows in the order of arrival, and links shared as by TCP.

use super::{Policy, ServiceOrder, WaitingCoflow};
use crate::model::LinkHistory;

/// First in, first out.
pub struct Fifo;

impl Policy for Fifo {
    fn decide_order(&mut self, waiting: &[WaitingCoflow], _: &LinkHistory) -> ServiceOrder {
        ServiceOrder::InOrder((0..waiting.len()).collect())
    }
}

/// Max-min between all flows.
pub struct Fair;

impl Policy for Fair {
    fn decide_order(&mut self, _: &[WaitingCoflow], _: &LinkHistory) -> ServiceOrder {
        ServiceOrder::MaxMin
    }
}
