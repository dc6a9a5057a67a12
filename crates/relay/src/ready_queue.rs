//! The flows that have data for one next hop, in the order of service: strict priorities, and weighted fair sharing inside a priority.
//!
//! Siphon, ATC '18, section 4.2.1: a priority queue orders the messages for a next hop. Here the data itself waits where it is, in the
//! sockets of programs. Weights follow start-time fair queueing (Goyal et al., SIGCOMM '96): each flow has a virtual start time, which
//! grows by length / weight with each message, and the flow with the lowest start time is served. A flow that was idle starts at the
//! virtual time of the priority, so it gains nothing from its idle time.

use std::collections::{BTreeMap, BTreeSet};

use crate::forwarding::Class;
use crate::message::FlowId;

/// A start time that can be compared: finite and not negative, so its bits are in its order.
fn ordered(start: f64) -> u64 {
    start.to_bits()
}

#[derive(Debug)]
struct Share {
    class: Class,
    /// The virtual start time of the next message.
    start: f64,
    is_ready: bool,
}

impl Share {
    fn key(&self, flow: FlowId) -> (u16, u64, FlowId) {
        (self.class.priority, ordered(self.start), flow)
    }
}

/// The flows of one next hop. Each operation is O(log flows).
#[derive(Debug, Default)]
pub struct ReadyQueue {
    flows: BTreeMap<FlowId, Share>,
    /// The flows with data: priority, start time, flow.
    ready: BTreeSet<(u16, u64, FlowId)>,
    /// By priority, the start time of the message served last.
    virtual_times: BTreeMap<u16, f64>,
}

impl ReadyQueue {
    /// Adds a flow that has data, in its class.
    pub fn insert(&mut self, flow: FlowId, class: Class) {
        let virtual_time = self.virtual_times.get(&class.priority).copied().unwrap_or(0.0);
        let share = self.flows.entry(flow).or_insert(Share { class, start: virtual_time, is_ready: false });
        if share.is_ready {
            if share.class == class {
                return;
            }
            self.ready.remove(&share.key(flow));
        }
        if share.class.priority != class.priority {
            // Start times of different priorities cannot be compared.
            share.start = virtual_time;
        }
        share.start = share.start.max(virtual_time);
        share.class = class;
        share.is_ready = true;
        self.ready.insert(share.key(flow));
    }

    /// Removes a flow that has no data at the moment.
    pub fn remove(&mut self, flow: FlowId) {
        let Some(share) = self.flows.get_mut(&flow).filter(|share| share.is_ready) else { return };
        share.is_ready = false;
        self.ready.remove(&share.key(flow));
        if self.ready.is_empty() {
            // No flow waits, so none is ahead of another one: start times begin at 0 again, before they lose precision.
            self.virtual_times.clear();
            self.flows.clear();
        }
    }

    /// The flow that is served next, and its priority.
    pub fn first(&self) -> Option<(FlowId, u16)> {
        self.ready.first().map(|&(priority, _, flow)| (flow, priority))
    }

    /// Charges a message to a ready flow, which keeps its place in the queue.
    pub fn charge(&mut self, flow: FlowId, bytes: u32) {
        let Some(share) = self.flows.get_mut(&flow).filter(|share| share.is_ready) else { return };
        self.ready.remove(&share.key(flow));
        self.virtual_times.insert(share.class.priority, share.start);
        share.start += f64::from(bytes) / share.class.weight;
        self.ready.insert(share.key(flow));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(flow: u32) -> FlowId {
        FlowId { coflow: 1, flow }
    }

    fn class(priority: u16, weight: f64) -> Class {
        Class { priority, weight }
    }

    fn serve(queue: &mut ReadyQueue, messages: usize) -> Vec<u32> {
        let serve_one = |_| {
            let (first, _) = queue.first()?;
            queue.charge(first, 100);
            Some(first.flow)
        };
        (0..messages).map_while(serve_one).collect()
    }

    fn count(served: &[u32], flow: u32) -> usize {
        served.iter().filter(|&&served| served == flow).count()
    }

    #[test]
    fn lower_priority_number_is_served_first() {
        let mut queue = ReadyQueue::default();
        queue.insert(flow(1), class(2, 1.0));
        queue.insert(flow(2), class(1, 1.0));
        assert_eq!(serve(&mut queue, 3), [2, 2, 2]);
        queue.remove(flow(2));
        assert_eq!(serve(&mut queue, 1), [1]);
        queue.remove(flow(1));
        assert_eq!(queue.first(), None);
    }

    #[test]
    fn ready_flows_of_one_priority_share_by_weight() {
        let mut queue = ReadyQueue::default();
        queue.insert(flow(1), class(0, 1.0));
        queue.insert(flow(2), class(0, 2.0));
        let served = serve(&mut queue, 90);
        assert_eq!((count(&served, 1), count(&served, 2)), (30, 60));
    }

    #[test]
    fn idle_flow_gets_no_compensation_for_its_idle_time() {
        let mut queue = ReadyQueue::default();
        queue.insert(flow(1), class(0, 1.0));
        queue.insert(flow(2), class(0, 1.0));
        queue.remove(flow(2));
        serve(&mut queue, 50);
        queue.insert(flow(2), class(0, 1.0));
        let next = serve(&mut queue, 20);
        assert!((9..=11).contains(&count(&next, 2)), "{next:?}");
    }

    #[test]
    fn new_class_applies_to_ready_flows() {
        let mut queue = ReadyQueue::default();
        queue.insert(flow(1), class(5, 1.0));
        queue.insert(flow(2), class(4, 1.0));
        queue.insert(flow(1), class(3, 1.0));
        assert_eq!(queue.first(), Some((flow(1), 3)));
    }
}
