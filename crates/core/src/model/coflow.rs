//! The state of one active coflow: the live flows at each port, and the progress of each flow.
//!
//! Progress is lazy. A schedule gives all live flows of a coflow one common rate (Saath), or rates in proportion to
//! their remaining bytes (MADD), and adds own rates to a few flows. One number for each coflow, the *level*, moves
//! with time and covers the common part. Every flow stores its distance to the level. Only flows with own rates need
//! work between two schedules.

mod grid;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use self::grid::{Grid, Place};
use super::mask::Mask;
use super::workload::CoflowSpec;
use crate::order::Key;

/// How the common part of the rates is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Every live flow sends at the same rate. The level is the bytes sent, and rises.
    Equal,
    /// Every live flow sends in proportion to its remaining bytes. The level is the remaining share, and falls from
    /// 1.
    Remaining,
}

/// The state of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowState {
    /// The flow waits for its data.
    Waiting,
    /// The flow can send.
    Live,
    /// The flow has completed.
    Done,
}

/// One flow. Flows are sorted by (sending port, receiving port).
#[derive(Debug, Clone)]
pub(super) struct Flow {
    /// Size in bytes; infinite if unknown.
    pub size: f64,
    /// Live with [`Sharing::Equal`]: bytes sent minus the level. Live with [`Sharing::Remaining`]: remaining bytes
    /// divided by the level. Waiting: bytes sent or remaining bytes.
    pub base: f64,
    sender: u32,
    place: Place,
    /// Position in the specification.
    pub original: u32,
    /// Position among the network's flows with own rates, or [`NONE`].
    pub own: u32,
    pub state: FlowState,
    /// Whether `base` was ever different from the common start.
    touched: bool,
    /// Whether the heaps lack the current `base`.
    dirty: bool,
}

/// No position.
pub(super) const NONE: u32 = u32::MAX;

/// The load of a coflow on one side of one port.
#[derive(Debug, Clone)]
pub struct PortLoad {
    /// Number of the port.
    pub port: u32,
    /// Number of live flows at the port.
    pub live: u32,
    /// [`Sharing::Remaining`]: sum of the bases of the live flows at the port.
    pub(super) weight: f64,
}

/// An active coflow.
#[derive(Debug, Clone)]
pub struct Coflow {
    /// Number of the coflow in the trace.
    pub id: u64,
    /// Position in the workload.
    pub index: usize,
    /// Order of release: a coflow that is released later has a higher number.
    pub seq: u64,
    /// Time of the release, in seconds.
    pub arrival: f64,
    /// Weight for weighted policies.
    pub weight: f64,
    /// Absolute time of the deadline in seconds; infinite without a deadline.
    pub deadline: f64,
    /// Bytes of all flows, and of the longest flow.
    pub(super) bytes: f64,
    pub(super) longest: f64,
    pub(super) flows: Vec<Flow>,
    grid: Grid,
    senders: Vec<PortLoad>,
    receivers: Vec<PortLoad>,
    send_mask: Mask,
    recv_mask: Mask,
    live: usize,
    done: usize,
    pub(super) sharing: Sharing,
    level: f64,
    slope: f64,
    since: f64,
    /// Flows by the level at which they complete. Entries of flows that changed are stale.
    ends: BinaryHeap<Reverse<(Key, u32)>>,
    /// The same for flows that were live from the start: sorted once, the first to complete is last.
    first_ends: Vec<(Key, u32)>,
    sorted: bool,
    /// Touched live flows by base, for the most and the least advanced flow. Contain stale entries too.
    ahead: BinaryHeap<(Key, u32)>,
    behind: BinaryHeap<Reverse<(Key, u32)>>,
    /// Flows whose heap entries are pushed at the next access to a heap, because most flows change many times before.
    dirty: Vec<u32>,
    untouched: usize,
    /// Whether some base was ever below the common start.
    below_start: bool,
    /// Sum of the bases of the live flows ([`Sharing::Equal`]).
    bases: f64,
    /// Bytes that flows which are not live have sent.
    sent_before: f64,
    /// Size of the longest completed flow in bytes.
    longest_done: f64,
    /// Number of waiting flows that have sent bytes ([`Sharing::Equal`]).
    held: usize,
    /// As reported: bytes sent by all flows, their total rate, and the time of the report.
    reported: (f64, f64, f64),
}

impl Coflow {
    /// Creates a coflow from its specification, released at `now`, with all flows waiting.
    pub(super) fn new(
        spec: &CoflowSpec,
        index: usize,
        seq: u64,
        now: f64,
        ports: usize,
        sharing: Sharing,
    ) -> Coflow {
        let mut order: Vec<u32> = (0..spec.flows.len() as u32).collect();
        order.sort_by_key(|&i| {
            let f = &spec.flows[i as usize];
            (f.src, f.dst, i)
        });
        // The layer of a flow is the number of earlier flows between the same ports.
        let mut layers = vec![0u32; order.len()];
        for at in 1..order.len() {
            let (a, b) = (&spec.flows[order[at - 1] as usize], &spec.flows[order[at] as usize]);
            if (a.src, a.dst) == (b.src, b.dst) {
                layers[at] = layers[at - 1] + 1;
            }
        }
        if layers.iter().any(|&l| l > 0) {
            let mut keyed: Vec<(u32, u32)> = layers.iter().copied().zip(order.iter().copied()).collect();
            keyed.sort_by_key(|&(layer, i)| {
                let f = &spec.flows[i as usize];
                (f.src, layer, f.dst)
            });
            (layers, order) = keyed.into_iter().unzip();
        }

        let mut receivers: Vec<u32> = spec.flows.iter().map(|f| f.dst).collect();
        receivers.sort_unstable();
        receivers.dedup();
        let ends: Vec<(u32, u32, u32)> = order
            .iter()
            .zip(&layers)
            .map(|(&i, &layer)| (spec.flows[i as usize].src, layer, spec.flows[i as usize].dst))
            .collect();
        let (grid, places) = Grid::new(&ends, &receivers);
        let load = |port| PortLoad { port, live: 0, weight: 0.0 };
        let receivers: Vec<PortLoad> = receivers.into_iter().map(load).collect();
        let mut senders: Vec<PortLoad> = Vec::new();
        let mut flows: Vec<Flow> = Vec::with_capacity(order.len());
        for (&i, place) in order.iter().zip(places) {
            let f = &spec.flows[i as usize];
            if senders.last().is_none_or(|s| s.port != f.src) {
                senders.push(load(f.src));
            }
            flows.push(Flow {
                size: f.bytes.get(),
                base: match sharing {
                    Sharing::Equal => 0.0,
                    Sharing::Remaining => f.bytes.get(),
                },
                sender: senders.len() as u32 - 1,
                place,
                original: i,
                own: NONE,
                state: FlowState::Waiting,
                touched: false,
                dirty: false,
            });
        }
        Coflow {
            id: spec.id,
            index,
            seq,
            arrival: now,
            weight: spec.weight,
            bytes: spec.bytes(),
            longest: spec.flows.iter().map(|f| f.bytes.get()).fold(0.0, f64::max),
            deadline: spec.deadline.map_or(f64::INFINITY, |d| now + d.get()),
            flows,
            grid,
            senders,
            receivers,
            send_mask: Mask::empty(ports),
            recv_mask: Mask::empty(ports),
            live: 0,
            done: 0,
            sharing,
            level: match sharing {
                Sharing::Equal => 0.0,
                Sharing::Remaining => 1.0,
            },
            slope: 0.0,
            since: now,
            ends: BinaryHeap::new(),
            first_ends: Vec::new(),
            sorted: true,
            ahead: BinaryHeap::new(),
            behind: BinaryHeap::new(),
            dirty: Vec::new(),
            untouched: 0,
            below_start: false,
            bases: 0.0,
            sent_before: 0.0,
            longest_done: 0.0,
            held: 0,
            reported: (0.0, 0.0, now),
        }
    }

    // State that every policy may read.

    /// Number of all flows (N_c in Saath: the width).
    pub fn width(&self) -> usize {
        self.flows.len()
    }

    /// Number of live flows.
    pub fn live(&self) -> usize {
        self.live
    }

    /// Number of completed flows.
    pub fn done(&self) -> usize {
        self.done
    }

    /// Whether a flow waits for data.
    pub fn lacks_data(&self) -> bool {
        self.live + self.done < self.flows.len()
    }

    /// The load at each sending port, in order of ports.
    pub fn senders(&self) -> &[PortLoad] {
        &self.senders
    }

    /// The load at each receiving port, in order of ports.
    pub fn receivers(&self) -> &[PortLoad] {
        &self.receivers
    }

    /// Number of live flows to a receiving port. O(log ports of the coflow).
    pub(crate) fn live_to(&self, port: usize) -> usize {
        let found = self.receivers.binary_search_by_key(&port, |load| load.port as usize);
        found.map_or(0, |at| self.receivers[at].live as usize)
    }

    /// Sending ports with live flows.
    pub fn send_mask(&self) -> &Mask {
        &self.send_mask
    }

    /// Receiving ports with live flows.
    pub fn recv_mask(&self) -> &Mask {
        &self.recv_mask
    }

    /// The sending and the receiving port of a flow.
    pub fn ends_of(&self, flow: u32) -> (u32, u32) {
        let f = &self.flows[flow as usize];
        (self.senders[f.sender as usize].port, self.receivers[f.place.receiver as usize].port)
    }

    /// The state of a flow.
    pub fn state(&self, flow: u32) -> FlowState {
        self.flows[flow as usize].state
    }

    /// The position of a flow in the specification.
    pub fn original(&self, flow: u32) -> u32 {
        self.flows[flow as usize].original
    }

    /// Size of the longest completed flow in bytes.
    pub fn longest_done(&self) -> f64 {
        self.longest_done
    }

    /// The maximum number of bytes that a waiting flow has sent ([`Sharing::Equal`]). O(flows) if a waiting flow has
    /// sent bytes.
    pub(super) fn longest_held(&self) -> f64 {
        if self.held == 0 {
            return 0.0;
        }
        let waiting = self.flows.iter().filter(|f| f.state == FlowState::Waiting);
        waiting.map(|f| f.base).fold(0.0, f64::max)
    }

    /// The minimum number of bytes that a waiting flow has sent ([`Sharing::Equal`]); `None` without waiting flows.
    /// O(flows) if all waiting flows have sent bytes.
    pub(super) fn least_waiting(&self) -> Option<f64> {
        match self.flows.len() - self.live - self.done {
            0 => None,
            waiting if waiting > self.held => Some(0.0),
            _ => {
                let waiting = self.flows.iter().filter(|f| f.state == FlowState::Waiting);
                Some(waiting.map(|f| f.base).fold(f64::INFINITY, f64::min))
            }
        }
    }

    /// Bytes that all flows have sent by `now`, as reported.
    pub fn sent(&self, now: f64) -> f64 {
        let (sent, rate, since) = self.reported;
        sent + rate * (now - since)
    }

    /// The rate at which [`Coflow::sent`] grows, in bytes per second.
    pub fn sending(&self) -> f64 {
        self.reported.1
    }

    /// Calls `visit` with each live flow between open ports, and its two ports, in order of ports.
    ///
    /// `visit` returns whether the sending and the receiving port close. The iteration skips closed ports.
    #[inline]
    pub fn visit_open(
        &self,
        open_send: &mut Mask,
        open_recv: &mut Mask,
        visit: impl FnMut(u32, usize, usize) -> (bool, bool),
    ) {
        self.grid.visit_open(&self.send_mask, &self.recv_mask, open_send, open_recv, visit);
    }

    /// Calls `visit` with the live flows, and their receiving ports, from the `index`-th sender of
    /// [`Coflow::senders`] to ports of `open`.
    #[inline]
    pub fn visit_sender(&self, index: usize, open: &Mask, visit: impl FnMut(u32, u32)) {
        self.grid.visit_sender(index, open, visit);
    }

    /// Number of live flows from the `index`-th sender of [`Coflow::senders`] to ports of `open`.
    #[inline]
    pub fn count_sender(&self, index: usize, open: &Mask) -> u32 {
        self.grid.count_sender(index, open)
    }

    /// The live flows, in order of ports.
    pub fn live_flows(&self) -> impl Iterator<Item = u32> + '_ {
        self.grid.live_flows()
    }

    // The level.

    pub(super) fn level(&self, now: f64) -> f64 {
        self.level + self.slope * (now - self.since)
    }

    /// Moves the origin of the level to `now`, and changes its slope.
    pub(super) fn set_slope(&mut self, slope: f64, now: f64) {
        self.level = self.level(now);
        self.since = now;
        self.slope = slope;
    }

    pub(super) fn slope(&self) -> f64 {
        self.slope
    }

    /// Time of the next completion by the level alone; infinite if no flow completes.
    pub(super) fn next_end(&mut self) -> f64 {
        if self.slope == 0.0 || self.live == 0 {
            return f64::INFINITY;
        }
        match self.sharing {
            Sharing::Remaining => self.since - self.level / self.slope,
            Sharing::Equal => match self.top_end() {
                Some((end, _)) => self.since + (end - self.level).max(0.0) / self.slope,
                None => f64::INFINITY,
            },
        }
    }

    /// The flow that completes first as the level rises, and the level of its completion.
    fn top_end(&mut self) -> Option<(f64, u32)> {
        self.flush();
        if !self.sorted {
            self.first_ends.sort_unstable_by(|a, b| b.cmp(a));
            self.sorted = true;
        }
        let ends = |&(Key(end), flow): &(Key, u32)| {
            let f = &self.flows[flow as usize];
            f.state == FlowState::Live && f.size - f.base == end
        };
        while self.first_ends.last().is_some_and(|last| !ends(last)) {
            self.first_ends.pop();
        }
        while self.ends.peek().is_some_and(|Reverse(top)| !ends(top)) {
            self.ends.pop();
        }
        let first = self.first_ends.last();
        let touched = self.ends.peek().map(|Reverse(top)| top);
        let next = match (first, touched) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        next.map(|&(Key(end), flow)| (end, flow))
    }

    /// Completes the flows that the level alone completes by `limit`, and calls `ended` with each flow and its time.
    pub(super) fn run_out(&mut self, limit: f64, mut ended: impl FnMut(u32, f64)) {
        while self.live > 0 {
            let at = self.next_end();
            if at > limit {
                return;
            }
            match self.sharing {
                Sharing::Equal => {
                    let Some((_, flow)) = self.top_end() else { return };
                    self.finish(flow);
                    ended(flow, at);
                }
                Sharing::Remaining => {
                    let all: Vec<u32> = self.live_flows().collect();
                    for flow in all {
                        self.finish(flow);
                        ended(flow, at);
                    }
                    // No live flow depends on this level. The next flow starts a new level.
                    (self.level, self.slope, self.since) = (1.0, 0.0, at);
                }
            }
        }
    }

    // Progress of single flows.

    /// Adds `bytes`, which a live flow sent at its own rate, to its base.
    pub(super) fn fold(&mut self, flow: u32, bytes: f64, now: f64) {
        let level = self.level(now);
        let f = &mut self.flows[flow as usize];
        match self.sharing {
            Sharing::Equal => {
                f.base += bytes;
                self.bases += bytes;
                self.touch(flow);
            }
            Sharing::Remaining => self.shrink(flow, bytes / level),
        }
    }

    /// Subtracts a part, in units of the level, from the remaining bytes of a live flow ([`Sharing::Remaining`]).
    #[inline]
    pub(super) fn shrink(&mut self, flow: u32, part: f64) {
        let f = &mut self.flows[flow as usize];
        let part = part.min(f.base);
        f.base -= part;
        let (s, r) = (f.sender as usize, f.place.receiver as usize);
        self.senders[s].weight -= part;
        self.receivers[r].weight -= part;
    }

    /// Records that the base of a live flow has its own value from now on.
    fn touch(&mut self, flow: u32) {
        let f = &mut self.flows[flow as usize];
        if !f.touched {
            f.touched = true;
            self.untouched -= 1;
        }
        if !f.dirty {
            f.dirty = true;
            self.dirty.push(flow);
        }
    }

    /// Prepares a live flow for its own rate.
    pub(super) fn touch_first(&mut self, flow: u32) {
        if !self.flows[flow as usize].touched {
            self.touch(flow);
        }
    }

    /// Pushes the changed bases to the heaps. O(log flows) for each.
    fn flush(&mut self) {
        while let Some(flow) = self.dirty.pop() {
            let f = &mut self.flows[flow as usize];
            f.dirty = false;
            if f.state != FlowState::Live {
                continue;
            }
            let (base, end) = (f.base, f.size - f.base);
            if end.is_finite() {
                self.ends.push(Reverse((Key(end), flow)));
            }
            self.ahead.push((Key(base), flow));
            self.behind.push(Reverse((Key(base), flow)));
        }
    }

    /// Bytes that a flow has sent by `now`, without bytes sent at its own rate since the last fold.
    pub(super) fn attained(&self, flow: u32, now: f64) -> f64 {
        let f = &self.flows[flow as usize];
        match (f.state, self.sharing) {
            (FlowState::Done, _) => f.size,
            (FlowState::Live, Sharing::Equal) => f.base + self.level(now),
            (FlowState::Waiting, Sharing::Equal) => f.base,
            (FlowState::Live, Sharing::Remaining) => f.size - f.base * self.level(now),
            (FlowState::Waiting, Sharing::Remaining) => f.size - f.base,
        }
    }

    /// Remaining bytes of a live flow, without bytes sent at its own rate since the last fold
    /// ([`Sharing::Remaining`]).
    ///
    /// The result is also exact if the size is far greater than the remainder.
    pub(crate) fn left(&self, flow: u32, now: f64) -> f64 {
        self.flows[flow as usize].base * self.level(now)
    }

    /// Bytes that all flows have sent, without bytes sent at own rates since the last fold ([`Sharing::Equal`]).
    pub(super) fn total(&self, now: f64) -> f64 {
        self.sent_before + self.bases + self.live as f64 * self.level(now)
    }

    /// The highest base of a live flow ([`Sharing::Equal`]).
    pub(super) fn highest(&mut self) -> Option<f64> {
        self.flush();
        let common = (self.untouched > 0).then_some(0.0);
        while let Some(&(Key(base), flow)) = self.ahead.peek() {
            let f = &self.flows[flow as usize];
            if f.state == FlowState::Live && f.base == base {
                return Some(common.map_or(base, |c: f64| c.max(base)));
            }
            self.ahead.pop();
        }
        common
    }

    /// The lowest base of a live flow, and this flow unless it was never touched ([`Sharing::Equal`]).
    pub(super) fn lowest(&mut self) -> Option<(f64, Option<u32>)> {
        let common = (self.untouched > 0).then_some((0.0, None));
        if common.is_some() && !self.below_start {
            return common;
        }
        self.flush();
        while let Some(&Reverse((Key(base), flow))) = self.behind.peek() {
            let f = &self.flows[flow as usize];
            if f.state == FlowState::Live && f.base == base {
                return match common {
                    Some(c) if c.0 <= base => Some(c),
                    _ => Some((base, Some(flow))),
                };
            }
            self.behind.pop();
        }
        common
    }

    // Changes of state.

    /// Makes a waiting flow live. Call [`Coflow::finish`] instead for a flow without bytes.
    pub(super) fn release(&mut self, flow: u32, now: f64) {
        if self.live == 0 && self.sharing == Sharing::Remaining {
            // No live flow depends on the old level, which may have continued after the last completion.
            (self.level, self.slope, self.since) = (1.0, 0.0, now);
        }
        let level = self.level(now);
        let f = &mut self.flows[flow as usize];
        debug_assert_eq!(f.state, FlowState::Waiting);
        f.state = FlowState::Live;
        match self.sharing {
            Sharing::Equal => {
                self.sent_before -= f.base;
                self.held -= usize::from(f.base > 0.0);
                f.base -= level;
                self.bases += f.base;
                // The level has not moved before the first release.
                if f.base == 0.0 && !f.touched {
                    self.untouched += 1;
                    if f.size.is_finite() {
                        self.first_ends.push((Key(f.size), flow));
                        self.sorted = false;
                    }
                } else {
                    self.below_start |= f.base < 0.0;
                    f.touched = true;
                    self.touch(flow);
                }
            }
            Sharing::Remaining => {
                f.base /= level;
                let base = f.base;
                let (s, r) = (f.sender as usize, f.place.receiver as usize);
                self.senders[s].weight += base;
                self.receivers[r].weight += base;
            }
        }
        self.mark_live(flow);
    }

    fn mark_live(&mut self, flow: u32) {
        let Flow { sender, place, .. } = self.flows[flow as usize];
        self.live += 1;
        self.grid.insert(place, self.receivers[place.receiver as usize].port);
        for (load, mask) in [
            (&mut self.senders[sender as usize], &mut self.send_mask),
            (&mut self.receivers[place.receiver as usize], &mut self.recv_mask),
        ] {
            if load.live == 0 {
                mask.insert(load.port as usize);
            }
            load.live += 1;
        }
    }

    fn mark_not_live(&mut self, flow: u32) {
        let Flow { sender, place, base, touched, .. } = self.flows[flow as usize];
        self.live -= 1;
        if self.sharing == Sharing::Equal {
            self.bases -= base;
            if !touched {
                self.untouched -= 1;
            }
        }
        self.grid.remove(place, self.receivers[place.receiver as usize].port);
        let weighted = self.sharing == Sharing::Remaining;
        for (load, mask) in [
            (&mut self.senders[sender as usize], &mut self.send_mask),
            (&mut self.receivers[place.receiver as usize], &mut self.recv_mask),
        ] {
            load.live -= 1;
            if load.live == 0 {
                mask.remove(load.port as usize);
                load.weight = 0.0;
            } else if weighted {
                load.weight -= base;
            }
        }
    }

    /// Makes a live flow wait for its data.
    pub(super) fn hold(&mut self, flow: u32, now: f64) {
        let level = self.level(now);
        self.mark_not_live(flow);
        let f = &mut self.flows[flow as usize];
        f.state = FlowState::Waiting;
        match self.sharing {
            Sharing::Equal => {
                f.base += level;
                self.sent_before += f.base;
                self.held += usize::from(f.base > 0.0);
            }
            Sharing::Remaining => f.base *= level,
        }
        f.touched = true;
    }

    /// Resets the progress of a waiting flow.
    fn lose(&mut self, flow: u32) {
        let f = &mut self.flows[flow as usize];
        debug_assert_eq!(f.state, FlowState::Waiting);
        f.base = match self.sharing {
            Sharing::Equal => {
                self.sent_before -= f.base;
                self.held -= usize::from(f.base > 0.0);
                0.0
            }
            Sharing::Remaining => f.size,
        };
    }

    /// Sets the bytes that a waiting flow has sent. If the bytes reach the size, one byte remains until the
    /// completion is observed.
    pub(super) fn set_sent(&mut self, flow: u32, bytes: f64) {
        self.lose(flow);
        let f = &mut self.flows[flow as usize];
        let bytes = if bytes < f.size { bytes } else { (f.size - 1.0).max(0.0) };
        match self.sharing {
            Sharing::Equal => {
                f.base = bytes;
                self.sent_before += bytes;
                self.held += usize::from(bytes > 0.0);
            }
            Sharing::Remaining => f.base = f.size - bytes,
        }
    }

    /// Sets the size of a waiting flow in bytes, and resets its progress.
    pub(super) fn resize(&mut self, flow: u32, bytes: f64) {
        self.lose(flow);
        self.flows[flow as usize].size = bytes;
    }

    /// Copies the progress of the flows of `other`, matched by their positions in the specifications. `other`
    /// contains no live flows.
    pub(super) fn inherit(&mut self, other: &Coflow, now: f64) {
        let mut theirs: Vec<u32> = vec![NONE; other.flows.len()];
        for (flow, f) in other.flows.iter().enumerate() {
            theirs[f.original as usize] = flow as u32;
        }
        for flow in 0..self.flows.len() as u32 {
            let Some(&before) = theirs.get(self.original(flow) as usize) else { continue };
            if self.ends_of(flow) != other.ends_of(before) {
                continue;
            }
            if other.state(before) == FlowState::Done {
                self.resize(flow, other.flows[before as usize].size);
                self.finish(flow);
            } else {
                self.set_sent(flow, other.attained(before, now));
            }
        }
        (self.reported, self.longest_done) = (other.reported, other.longest_done);
    }

    /// Completes a flow.
    pub(super) fn finish(&mut self, flow: u32) {
        if self.flows[flow as usize].state == FlowState::Live {
            self.mark_not_live(flow);
        }
        let f = &mut self.flows[flow as usize];
        f.state = FlowState::Done;
        self.sent_before += f.size;
        self.longest_done = self.longest_done.max(f.size);
        self.done += 1;
    }

    pub(super) fn report(&mut self, sent: f64, rate: f64, now: f64) {
        self.reported = (sent, rate, now);
    }
}
