//! The messages that wait for one next hop, in the order of service: strict priorities, and weighted fair sharing inside a priority.
//!
//! Siphon, ATC '18, section 4.2.1: a priority queue buffers the messages for a next hop. Weights follow start-time fair queueing
//! (Goyal et al., SIGCOMM '96): each flow has a virtual start time, which grows by length / weight with each message, and the flow with the
//! lowest start time is served. A flow that was idle starts at the virtual time of the priority, so it gains nothing from its
//! idle time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::forwarding::Class;
use crate::message::FlowId;

/// A start time that can be compared: finite and not negative, so its bits are in its order.
fn ordered(start: f64) -> u64 {
    start.to_bits()
}

#[derive(Debug)]
struct FlowQueue<M> {
    class: Class,
    /// The virtual start time of the next message.
    start: f64,
    messages: VecDeque<(u32, M)>,
    waiting_bytes: u64,
}

/// Messages of type `M` by flow. Each operation is O(log flows).
#[derive(Debug)]
pub struct OutputQueue<M> {
    flows: BTreeMap<FlowId, FlowQueue<M>>,
    /// The flows with messages: priority, start time, flow.
    backlogged: BTreeSet<(u16, u64, FlowId)>,
    /// By priority, the start time of the message served last.
    virtual_times: BTreeMap<u16, f64>,
}

impl<M> Default for OutputQueue<M> {
    fn default() -> Self {
        OutputQueue { flows: BTreeMap::new(), backlogged: BTreeSet::new(), virtual_times: BTreeMap::new() }
    }
}

impl<M> OutputQueue<M> {
    /// Appends a message of `length` bytes to a flow. The class applies to all messages of the flow.
    pub fn push(&mut self, flow: FlowId, class: Class, length: u32, message: M) {
        self.set_class(flow, class);
        let virtual_time = self.virtual_times.get(&class.priority).copied().unwrap_or(0.0);
        let queue = self.flows.entry(flow).or_insert(FlowQueue {
            class,
            start: virtual_time,
            messages: VecDeque::new(),
            waiting_bytes: 0,
        });
        if queue.messages.is_empty() {
            queue.start = queue.start.max(virtual_time);
            self.backlogged.insert((class.priority, ordered(queue.start), flow));
        }
        queue.waiting_bytes += u64::from(length);
        queue.messages.push_back((length, message));
    }

    /// Changes the class of a flow, also of its waiting messages.
    pub fn set_class(&mut self, flow: FlowId, class: Class) {
        let Some(queue) = self.flows.get_mut(&flow).filter(|queue| queue.class != class) else { return };
        let is_backlogged = self.backlogged.remove(&(queue.class.priority, ordered(queue.start), flow));
        if queue.class.priority != class.priority {
            // Start times of different priorities cannot be compared.
            queue.start = self.virtual_times.get(&class.priority).copied().unwrap_or(0.0);
        }
        if is_backlogged {
            self.backlogged.insert((class.priority, ordered(queue.start), flow));
        }
        queue.class = class;
    }

    /// Removes the message that is served next.
    pub fn pop(&mut self) -> Option<M> {
        let (priority, _, flow) = self.backlogged.pop_first()?;
        let queue = self.flows.get_mut(&flow).expect("a backlogged flow has a queue");
        let (length, message) = queue.messages.pop_front().expect("a backlogged flow has messages");
        queue.waiting_bytes -= u64::from(length);
        self.virtual_times.insert(priority, queue.start);
        queue.start += f64::from(length) / queue.class.weight;
        if !queue.messages.is_empty() {
            self.backlogged.insert((priority, ordered(queue.start), flow));
        }
        if self.backlogged.is_empty() {
            // No flow waits, so none is ahead of another one: start times begin at 0 again, before they lose precision.
            self.virtual_times.clear();
            self.flows.clear();
        }
        Some(message)
    }

    /// Removes a flow and returns its messages, in order.
    pub fn remove(&mut self, flow: FlowId) -> impl Iterator<Item = M> {
        let queue = self.flows.remove(&flow);
        if let Some(queue) = &queue {
            self.backlogged.remove(&(queue.class.priority, ordered(queue.start), flow));
        }
        queue.into_iter().flat_map(|queue| queue.messages).map(|(_, message)| message)
    }

    /// Removes the first messages of a flow, as long as they are obsolete.
    pub fn drop_while(&mut self, flow: FlowId, is_obsolete: impl Fn(&M) -> bool) {
        let Some(queue) = self.flows.get_mut(&flow) else { return };
        while let Some((length, message)) = queue.messages.front()
            && is_obsolete(message)
        {
            queue.waiting_bytes -= u64::from(*length);
            queue.messages.pop_front();
            if queue.messages.is_empty() {
                self.backlogged.remove(&(queue.class.priority, ordered(queue.start), flow));
            }
        }
    }

    /// The sum of the lengths of a flow's waiting messages.
    pub fn waiting_bytes(&self, flow: FlowId) -> u64 {
        self.flows.get(&flow).map_or(0, |queue| queue.waiting_bytes)
    }

    /// Whether no message waits.
    pub fn is_empty(&self) -> bool {
        self.backlogged.is_empty()
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

    fn served(queue: &mut OutputQueue<u32>, count: usize) -> Vec<u32> {
        (0..count).map_while(|_| queue.pop()).collect()
    }

    #[test]
    fn lower_priority_number_is_served_first() {
        let mut queue = OutputQueue::default();
        queue.push(flow(1), class(2, 1.0), 10, 1);
        queue.push(flow(2), class(1, 1.0), 10, 2);
        queue.push(flow(1), class(2, 1.0), 10, 1);
        assert_eq!(served(&mut queue, 9), [2, 1, 1]);
        assert!(queue.is_empty());
    }

    #[test]
    fn backlogged_flows_of_one_priority_share_by_weight() {
        let mut queue = OutputQueue::default();
        for _ in 0..90 {
            queue.push(flow(1), class(0, 1.0), 100, 1);
            queue.push(flow(2), class(0, 2.0), 100, 2);
        }
        let first = served(&mut queue, 90);
        assert_eq!(first.iter().filter(|&&flow| flow == 2).count(), 60);
    }

    #[test]
    fn idle_flow_gets_no_compensation_for_its_idle_time() {
        let mut queue = OutputQueue::default();
        for _ in 0..100 {
            queue.push(flow(1), class(0, 1.0), 100, 1);
        }
        served(&mut queue, 50);
        for _ in 0..100 {
            queue.push(flow(2), class(0, 1.0), 100, 2);
        }
        let next = served(&mut queue, 20);
        assert!((9..=11).contains(&next.iter().filter(|&&flow| flow == 2).count()), "{next:?}");
    }

    #[test]
    fn new_class_applies_to_waiting_messages() {
        let mut queue = OutputQueue::default();
        queue.push(flow(1), class(5, 1.0), 10, 1);
        queue.push(flow(2), class(4, 1.0), 10, 2);
        queue.set_class(flow(1), class(3, 1.0));
        assert_eq!(served(&mut queue, 2), [1, 2]);
    }

    #[test]
    fn removed_flow_returns_its_messages_in_order() {
        let mut queue = OutputQueue::default();
        queue.push(flow(1), class(0, 1.0), 10, 1);
        queue.push(flow(2), class(0, 1.0), 10, 3);
        queue.push(flow(1), class(0, 1.0), 10, 2);
        assert_eq!(queue.remove(flow(1)).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(served(&mut queue, 2), [3]);
    }
}
