//! Flows that pass through this relay on a detour: messages wait here until the next relay accepts them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use crate::forwarding::RelayId;
use crate::message::{FlowId, Header};

/// How long a relay remembers an idle flow, in order to report that its messages may be lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The maximum number of flows. Messages of further flows are forwarded, and their loss is not reported.
const MAX_FLOWS: usize = 65_536;

/// Memory that a waiting message uses in addition to its payload.
const OVERHEAD_BYTES: u64 = 128;

#[derive(Debug)]
struct Transit {
    /// The header of the last message.
    last: Header,
    next: RelayId,
    messages: VecDeque<(Header, Bytes)>,
    last_seen: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Transits {
    flows: BTreeMap<FlowId, Transit>,
    waiting_bytes: u64,
}

fn cost(header: &Header) -> u64 {
    u64::from(header.length) + OVERHEAD_BYTES
}

impl Transits {
    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    /// The memory of all waiting messages.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }

    /// A flow begins or continues. Messages of earlier generations are dropped. Returns whether messages of the header's generation
    /// are forwarded.
    pub(crate) fn open(&mut self, header: Header, next: RelayId, now: Duration) -> bool {
        if let Some(transit) = self.flows.get(&header.flow) {
            if transit.last.generation > header.generation {
                return false;
            }
            if transit.last.generation < header.generation || transit.next != next {
                self.remove(header.flow);
            }
        }
        if self.flows.len() >= MAX_FLOWS && !self.flows.contains_key(&header.flow) {
            return false;
        }
        let new = || Transit { last: header, next, messages: VecDeque::new(), last_seen: now };
        let transit = self.flows.entry(header.flow).or_insert_with(new);
        (transit.last, transit.last_seen) = (header, now);
        true
    }

    /// Appends a message to its flow. Returns whether it waits now; otherwise it is dropped.
    pub(crate) fn push(&mut self, header: Header, payload: Bytes, next: RelayId, now: Duration) -> bool {
        if !self.open(header, next, now) {
            return false;
        }
        let Some(transit) = self.flows.get_mut(&header.flow) else { return false };
        self.waiting_bytes += cost(&header);
        transit.messages.push_back((header, payload));
        true
    }

    /// The length of a flow's first message, if it waits for this relay.
    pub(crate) fn next_length(&self, flow: FlowId, next: RelayId) -> Option<u32> {
        let transit = self.flows.get(&flow).filter(|transit| transit.next == next)?;
        transit.messages.front().map(|(header, _)| header.length)
    }

    /// Removes a flow's first message.
    pub(crate) fn pop(&mut self, flow: FlowId) -> Option<(Header, Bytes)> {
        let message = self.flows.get_mut(&flow)?.messages.pop_front()?;
        self.waiting_bytes -= cost(&message.0);
        Some(message)
    }

    /// Removes a flow and its messages.
    pub(crate) fn remove(&mut self, flow: FlowId) {
        if let Some(transit) = self.flows.remove(&flow) {
            self.waiting_bytes -= transit.messages.iter().map(|(header, _)| cost(header)).sum::<u64>();
        }
    }

    /// Removes the flows to this relay, and returns a header of each. O(flows).
    pub(crate) fn remove_hop(&mut self, next: RelayId) -> Vec<Header> {
        let lost: Vec<Header> =
            self.flows.values().filter(|transit| transit.next == next).map(|transit| transit.last).collect();
        lost.iter().for_each(|header| self.remove(header.flow));
        lost
    }

    /// Removes flows that have been idle. O(flows).
    pub(crate) fn expire(&mut self, now: Duration) {
        self.flows.retain(|_, transit| {
            !transit.messages.is_empty() || now < transit.last_seen.saturating_add(IDLE_TIMEOUT)
        });
    }
}
