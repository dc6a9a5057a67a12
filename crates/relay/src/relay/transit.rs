//! Flows that pass through this relay on a detour: messages wait here until the next relay accepts them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use crate::message::{FlowId, Header, RelayId};

/// How long a relay remembers an idle flow, in order to report that its messages may be lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The maximum number of flows. Further flows are refused.
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
    /// Whether no message follows those that wait.
    has_ended: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Transits {
    flows: BTreeMap<FlowId, Transit>,
    waiting_bytes: BTreeMap<RelayId, u64>,
}

fn cost(header: &Header) -> u64 {
    u64::from(header.length) + OVERHEAD_BYTES
}

impl Transits {
    /// The number of flows whose messages wait. O(flows).
    pub(crate) fn waiting_flows(&self) -> usize {
        self.flows.values().filter(|transit| !transit.messages.is_empty()).count()
    }

    /// The memory of all waiting messages.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes.values().sum()
    }

    /// The memory of messages that wait for a relay.
    pub(crate) fn waiting_bytes_to(&self, next: RelayId) -> u64 {
        self.waiting_bytes.get(&next).copied().unwrap_or(0)
    }

    /// A flow begins or continues. Messages of earlier generations are dropped. Returns whether messages of the header's generation
    /// are forwarded: it is the latest one, and the table has space.
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
        let new =
            || Transit { last: header, next, messages: VecDeque::new(), last_seen: now, has_ended: false };
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
        *self.waiting_bytes.entry(next).or_default() += cost(&header);
        transit.messages.push_back((header, payload));
        true
    }

    /// The length of a flow's first message, if it waits for this relay.
    pub(crate) fn next_length(&self, flow: FlowId, next: RelayId) -> Option<u32> {
        let transit = self.flows.get(&flow).filter(|transit| transit.next == next)?;
        transit.messages.front().map(|(header, _)| header.length)
    }

    /// Removes a flow's first message, or its first `max` bytes, which are a message, too.
    pub(crate) fn pop(&mut self, flow: FlowId, max: u32) -> Option<(Header, Bytes)> {
        let transit = self.flows.get_mut(&flow)?;
        if let Some((rest, payload)) = transit.messages.front_mut().filter(|(first, _)| first.length > max) {
            let first = Header { length: max, ..*rest };
            (rest.offset, rest.length) = (rest.offset + u64::from(max), rest.length - max);
            *self.waiting_bytes.entry(transit.next).or_default() -= u64::from(max);
            return Some((first, payload.split_to(max as usize)));
        }
        let message = transit.messages.pop_front()?;
        *self.waiting_bytes.entry(transit.next).or_default() -= cost(&message.0);
        if transit.has_ended && transit.messages.is_empty() {
            self.flows.remove(&flow);
        }
        Some(message)
    }

    /// All messages of a generation have been forwarded, or wait.
    pub(crate) fn end(&mut self, header: &Header) {
        let Some(transit) = self.flows.get_mut(&header.flow) else { return };
        if transit.last.generation == header.generation {
            transit.has_ended = true;
            if transit.messages.is_empty() {
                self.flows.remove(&header.flow);
            }
        }
    }

    /// Drops the waiting messages of a generation and of earlier ones. Returns false if a later generation is known.
    pub(crate) fn close(&mut self, header: &Header) -> bool {
        let is_stale =
            self.flows.get(&header.flow).is_some_and(|transit| transit.last.generation > header.generation);
        if !is_stale {
            self.remove(header.flow);
        }
        !is_stale
    }

    /// Removes a flow and its messages.
    fn remove(&mut self, flow: FlowId) {
        if let Some(transit) = self.flows.remove(&flow) {
            let bytes = transit.messages.iter().map(|(header, _)| cost(header)).sum::<u64>();
            *self.waiting_bytes.entry(transit.next).or_default() -= bytes;
        }
    }

    /// Removes the flows to this relay, and returns a header of each. O(flows).
    pub(crate) fn remove_hop(&mut self, next: RelayId) -> Vec<Header> {
        let lost: Vec<Header> =
            self.flows.values().filter(|transit| transit.next == next).map(|transit| transit.last).collect();
        lost.iter().for_each(|header| self.remove(header.flow));
        lost
    }

    /// Removes the flows of this relay's programs, and returns a header of each with its next relay. O(flows).
    pub(crate) fn remove_source(&mut self, source: RelayId) -> Vec<(Header, RelayId)> {
        let of_source = self.flows.values().filter(|transit| transit.last.source == source);
        let lost: Vec<_> = of_source.map(|transit| (transit.last, transit.next)).collect();
        lost.iter().for_each(|(header, _)| self.remove(header.flow));
        lost
    }

    /// Removes flows that have been idle. O(flows).
    pub(crate) fn expire(&mut self, now: Duration) {
        self.flows.retain(|_, transit| {
            !transit.messages.is_empty() || now < transit.last_seen.saturating_add(IDLE_TIMEOUT)
        });
    }
}
