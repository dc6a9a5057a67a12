//! Flows that begin at this relay.

use std::collections::BTreeSet;

use bytes::Bytes;
use weir_flow::{FirstLine, Reason};

use super::{Event, FlowKey, INITIAL_CREDIT_BYTES, Relay, Source};
use crate::forwarding::{Path, RegionId, Splitter, relays_for};
use crate::message::{ADDRESS_BYTES, FlowId, Header, Kind, MAX_HOPS, MAX_OFFSET, RelayId, encode_address};

impl Relay {
    /// Opens a flow of a local program. An earlier generation of the flow is closed.
    ///
    /// # Errors
    /// The reason for the line `reset REASON`.
    pub fn open(&mut self, request: &FirstLine) -> Result<FlowKey, Reason> {
        if self.is_draining {
            return Err(Reason::Busy);
        }
        let coflow = *self.coflow_numbers.get(request.coflow.as_str()).ok_or(Reason::UnknownCoflow)?;
        let flow = FlowId { coflow, flow: request.flow };
        let serving = self.overlay.relays_of(request.receiver.ip());
        let destination = self.choose_destination(flow, &serving).ok_or(Reason::Unreachable)?;
        if request.offset.get() > MAX_OFFSET - INITIAL_CREDIT_BYTES {
            return Err(Reason::Unreachable);
        }
        if let Some(source) = self.sources.get(&flow) {
            if source.generation >= request.generation {
                return Err(Reason::Replaced);
            }
            self.reset_source(flow, Reason::Replaced);
        }
        let rule = self.overlay.rule_for(flow, self.id, destination).cloned();
        if rule.is_none() {
            self.events.push_back(Event::Unruled(flow, destination));
        }
        let source = Source {
            generation: request.generation,
            destination,
            rule,
            offset: request.offset.get(),
            acked: request.offset.get(),
            limit: request.offset.get() + INITIAL_CREDIT_BYTES,
            is_readable: false,
            splitter: Splitter::default(),
            used: BTreeSet::new(),
            queued_at: None,
        };
        // The direct path is usually the fastest: data on detours should not arrive before this message.
        let direct = self.is_connected(destination).then_some(destination);
        let hop = direct.or_else(|| self.next_hop(flow, &source)).ok_or(Reason::Unreachable)?;
        self.sources.insert(flow, source);
        self.groups.entry((coflow, destination)).or_default().open_flows += 1;
        let header = self.header(Kind::Open, flow, request.offset.get(), ADDRESS_BYTES as u32);
        self.push_control(hop, header, Bytes::copy_from_slice(&encode_address(request.receiver)));
        if let Some(source) = self.sources.get_mut(&flow) {
            source.used.insert(hop);
        }
        Ok(FlowKey { flow, generation: request.generation })
    }

    /// A message from a source of this relay.
    pub(super) fn header(&self, kind: Kind, flow: FlowId, offset: u64, length: u32) -> Header {
        let (generation, destination) =
            self.sources.get(&flow).map_or((0, self.id), |source| (source.generation, source.destination));
        Header { kind, hops: MAX_HOPS, generation, length, flow, offset, source: self.id, destination }
    }

    pub(super) fn source_mut(&mut self, key: FlowKey) -> Option<&mut Source> {
        self.sources.get_mut(&key.flow).filter(|source| source.generation == key.generation)
    }

    /// The program of a flow has written data.
    pub fn set_readable(&mut self, key: FlowKey) {
        if let Some(source) = self.source_mut(key).filter(|source| !source.is_readable) {
            source.is_readable = true;
            self.requeue(key.flow);
        }
    }

    /// The program of a flow has closed its connection, and all of its data was read.
    pub fn end(&mut self, key: FlowKey) {
        self.finish_source(key, Kind::End);
    }

    /// The connection with the program of a flow has failed.
    pub fn abort(&mut self, key: FlowKey) {
        self.finish_source(key, Kind::Abort);
    }

    fn finish_source(&mut self, key: FlowKey, kind: Kind) {
        if self.source_mut(key).is_some() {
            self.remove_source(key.flow, kind);
        }
    }

    /// Removes a source, and sends a message of this kind to the destination.
    fn remove_source(&mut self, flow: FlowId, kind: Kind) {
        let Some(source) = self.sources.get(&flow) else { return };
        if let Some(hop) = self.next_hop(flow, source) {
            let header = self.header(kind, flow, source.offset, 0);
            self.push_control(hop, header, Bytes::new());
        }
        let Some(source) = self.sources.remove(&flow) else { return };
        if let Some(peer) = source.queued_at.and_then(|hop| self.peers.get_mut(&hop)) {
            peer.ready.remove(flow);
        }
        if let Some(group) = self.groups.get_mut(&(flow.coflow, source.destination)) {
            group.open_flows = group.open_flows.saturating_sub(1);
        }
    }

    /// Closes a flow of a local program and its other end.
    pub(super) fn reset_source(&mut self, flow: FlowId, reason: Reason) {
        let Some(source) = self.sources.get(&flow) else { return };
        self.resets.flows.add(reason);
        self.events.push_back(Event::CloseSender(FlowKey { flow, generation: source.generation }, reason));
        self.remove_source(flow, Kind::Abort);
    }

    pub(super) fn is_connected(&self, relay: RelayId) -> bool {
        self.peers.get(&relay).is_some_and(|peer| peer.is_connected)
    }

    /// The relay to which a new flow goes, of those that serve its receiver: each flow has its own first choice, and connected relays
    /// precede others. None if the receiver is served by this relay.
    fn choose_destination(&self, flow: FlowId, serving: &[RelayId]) -> Option<RelayId> {
        if serving.contains(&self.id) {
            return None;
        }
        let mut choices = relays_for(flow, serving);
        let first = choices.next()?;
        std::iter::once(first).chain(choices).find(|&relay| self.is_connected(relay)).or(Some(first))
    }

    /// The next hop of a source: a path of its rule, otherwise the direct one, otherwise any other relay. O(paths x relays of a region).
    fn next_hop(&self, flow: FlowId, source: &Source) -> Option<RelayId> {
        let destination = source.destination;
        let is_usable = |hop: RelayId| {
            let is_avoided = self.avoided.get(&(hop, destination)).is_some_and(|&until| self.now < until);
            let is_silent = hop != destination && self.peers.get(&hop).is_some_and(|peer| peer.is_silent);
            self.is_connected(hop) && !is_avoided && !is_silent
        };
        let direct = || is_usable(destination).then_some(destination);
        let own_region = self.overlay.region_of(self.id);
        let in_region = |region: RegionId| {
            if self.overlay.region_of(destination) == Some(region) {
                return direct();
            }
            // A rule for all regions may name the own one: another relay of this region is no detour.
            if own_region == Some(region) {
                return None;
            }
            relays_for(flow, self.overlay.relays_in(region)).find(|&hop| is_usable(hop))
        };
        let paths = source.rule.as_ref().map_or::<&[Path], _>(&[], |rule| &rule.paths);
        let by_rule = source.splitter.choose(paths, |region| in_region(region).is_some()).and_then(in_region);
        by_rule.or_else(direct).or_else(|| self.peers.keys().copied().find(|&hop| is_usable(hop)))
    }

    /// Puts a flow into the queue of its next hop, if it has data and credit.
    pub(super) fn requeue(&mut self, flow: FlowId) {
        let Some(source) = self.sources.get(&flow) else { return };
        let is_ready = source.is_readable && source.offset < source.limit;
        let hop = if is_ready { self.next_hop(flow, source) } else { None };
        if is_ready && hop.is_none() {
            return self.reset_source(flow, Reason::Lost);
        }
        let (class, before) = (source.class(), source.queued_at);
        if before != hop
            && let Some(peer) = before.and_then(|hop| self.peers.get_mut(&hop))
        {
            peer.ready.remove(flow);
        }
        if let Some(peer) = hop.and_then(|hop| self.peers.get_mut(&hop)) {
            peer.ready.insert(flow, class);
        }
        if let Some(source) = self.sources.get_mut(&flow) {
            source.queued_at = hop;
        }
    }

    pub(super) fn requeue_all(&mut self) {
        let flows: Vec<FlowId> = self.sources.keys().copied().collect();
        flows.into_iter().for_each(|flow| self.requeue(flow));
    }
}
