//! One coflow under way: which of its flows are live at which ports, and how far each has come.
//!
//! Progress is lazy. A schedule gives all live flows of a coflow one common rate (Saath), or rates in
//! proportion to what they have left (MADD), and a few flows something on top. So the common part is one
//! number per coflow that moves with time (the *level*), every flow stores its distance to it, and
//! only flows with a rate of their own are touched between a schedule and the next.

mod grid;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use self::grid::{Grid, Place};
use super::mask::Mask;
use super::workload::CoflowSpec;
use crate::order::Key;

/// How the common part of the service is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Every live flow at the same rate: the level is bytes sent, and rises.
    Equal,
    /// Every live flow in proportion to what it has left: the level is the share left, and falls from 1.
    Remaining,
}

/// Where a flow is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowState {
    /// Its data is not there.
    Waiting,
    /// It can send.
    Live,
    /// All of it was sent.
    Done,
}

/// One flow. Kept in the order (sending port, receiving port).
#[derive(Debug, Clone)]
pub(super) struct Flow {
    /// Bytes in all; infinite where nobody knows.
    pub size: f64,
    /// Live and [`Sharing::Equal`]: bytes sent less the level. Live and [`Sharing::Remaining`]: bytes left
    /// over the level. Waiting: the bytes sent, or left, themselves.
    pub base: f64,
    sender: u32,
    place: Place,
    /// Position in the specification.
    pub original: u32,
    /// Position among the network's individually rated flows, or [`NONE`].
    pub own: u32,
    pub state: FlowState,
    /// Whether `base` was ever other than the common start.
    touched: bool,
    /// Whether the heaps still have to hear of its base.
    dirty: bool,
}

/// No position.
pub(super) const NONE: u32 = u32::MAX;

/// What a coflow does at one side of one port.
#[derive(Debug, Clone)]
pub struct PortLoad {
    /// The port.
    pub port: u32,
    /// Live flows there.
    pub live: u32,
    /// [`Sharing::Remaining`]: the bases of the live flows there, summed.
    pub(super) weight: f64,
}

/// A coflow under way.
#[derive(Debug, Clone)]
pub struct Coflow {
    /// The trace's number for it.
    pub id: u64,
    /// Its position in the workload.
    pub index: usize,
    /// Order of release: a later coflow has a higher number.
    pub seq: u64,
    /// When it was released, in seconds.
    pub arrival: f64,
    /// Its weight.
    pub weight: f64,
    /// The moment by which it has to be done; infinite if it does not say.
    pub deadline: f64,
    /// Bytes of all its flows, and of the longest.
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
    /// Flows by the level at which they end; entries of flows that changed are stale.
    ends: BinaryHeap<Reverse<(Key, u32)>>,
    /// The same for flows that were live from the start: sorted once, last to end first.
    first_ends: Vec<(Key, u32)>,
    sorted: bool,
    /// Touched live flows by base, for the furthest and the least advanced; with stale entries as well.
    ahead: BinaryHeap<(Key, u32)>,
    behind: BinaryHeap<Reverse<(Key, u32)>>,
    /// Flows whose entries are to be pushed before a heap is asked: most change many times in between.
    dirty: Vec<u32>,
    untouched: usize,
    /// Whether some base was ever below the common start.
    below_start: bool,
    /// Bases of the live flows, summed ([`Sharing::Equal`]).
    bases: f64,
    /// What flows that are not live have sent.
    sent_before: f64,
    /// The longest flow that is done.
    longest_done: f64,
    /// How many waiting flows have sent something ([`Sharing::Equal`]).
    held: usize,
    /// Bytes sent by all flows as reported, the rate at which that grows, and when it was said.
    reported: (f64, f64, f64),
}

impl Coflow {
    /// The coflow of a specification, released at `now`, with every flow waiting.
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
        // A flow's layer counts the flows before it between the same ports.
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

    // What everybody may see.

    /// How many flows it has in all (the paper's N_c, its width).
    pub fn width(&self) -> usize {
        self.flows.len()
    }

    /// How many flows can send now.
    pub fn live(&self) -> usize {
        self.live
    }

    /// How many flows are done.
    pub fn done(&self) -> usize {
        self.done
    }

    /// Whether some flow is neither done nor able to send.
    pub fn lacks_data(&self) -> bool {
        self.live + self.done < self.flows.len()
    }

    /// What it does at each port that it sends from, in order of ports.
    pub fn senders(&self) -> &[PortLoad] {
        &self.senders
    }

    /// What it does at each port that it receives at, in order of ports.
    pub fn receivers(&self) -> &[PortLoad] {
        &self.receivers
    }

    /// How many live flows it receives at a port. O(log ports of the coflow).
    pub(crate) fn live_to(&self, port: usize) -> usize {
        let found = self.receivers.binary_search_by_key(&port, |load| load.port as usize);
        found.map_or(0, |at| self.receivers[at].live as usize)
    }

    /// Ports that live flows send from.
    pub fn send_mask(&self) -> &Mask {
        &self.send_mask
    }

    /// Ports that live flows receive at.
    pub fn recv_mask(&self) -> &Mask {
        &self.recv_mask
    }

    /// The ends of a flow: sending and receiving port.
    pub fn ends_of(&self, flow: u32) -> (u32, u32) {
        let f = &self.flows[flow as usize];
        (self.senders[f.sender as usize].port, self.receivers[f.place.receiver as usize].port)
    }

    /// Where a flow is in its life.
    pub fn state(&self, flow: u32) -> FlowState {
        self.flows[flow as usize].state
    }

    /// A flow's position in its specification.
    pub fn original(&self, flow: u32) -> u32 {
        self.flows[flow as usize].original
    }

    /// Bytes of the longest flow that is done.
    pub fn longest_done(&self) -> f64 {
        self.longest_done
    }

    /// The most that a flow has sent that waits for the rest of its data ([`Sharing::Equal`]). O(flows) if there is one.
    pub(super) fn longest_held(&self) -> f64 {
        if self.held == 0 {
            return 0.0;
        }
        let waiting = self.flows.iter().filter(|f| f.state == FlowState::Waiting);
        waiting.map(|f| f.base).fold(0.0, f64::max)
    }

    /// The least that a waiting flow has sent, if there is one ([`Sharing::Equal`]). O(flows) if all of them have sent something.
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

    /// Bytes that all flows together sent until `now`, as reported.
    pub fn sent(&self, now: f64) -> f64 {
        let (sent, rate, since) = self.reported;
        sent + rate * (now - since)
    }

    /// The rate at which [`Coflow::sent`] grows, in bytes per second.
    pub fn sending(&self) -> f64 {
        self.reported.1
    }

    /// Calls `visit` with each live flow between open ports, and with its ports, in their order. `visit` answers whether
    /// that closes the sending and the receiving port; what is closed is skipped from then on.
    #[inline]
    pub fn visit_open(
        &self,
        open_send: &mut Mask,
        open_recv: &mut Mask,
        visit: impl FnMut(u32, usize, usize) -> (bool, bool),
    ) {
        self.grid.visit_open(&self.send_mask, &self.recv_mask, open_send, open_recv, visit);
    }

    /// Calls `visit` with the live flows, and their receiving ports, that the `index`-th of [`Coflow::senders`] sends to
    /// ports of `open`.
    #[inline]
    pub fn visit_sender(&self, index: usize, open: &Mask, visit: impl FnMut(u32, u32)) {
        self.grid.visit_sender(index, open, visit);
    }

    /// How many live flows the `index`-th of [`Coflow::senders`] sends to ports of `open`.
    #[inline]
    pub fn count_sender(&self, index: usize, open: &Mask) -> u32 {
        self.grid.count_sender(index, open)
    }

    /// The live flows, in the order of ports.
    pub fn live_flows(&self) -> impl Iterator<Item = u32> + '_ {
        self.grid.live_flows()
    }

    // The level.

    pub(super) fn level(&self, now: f64) -> f64 {
        self.level + self.slope * (now - self.since)
    }

    /// Moves the origin of the level to `now` and lets it run with `slope` from there.
    pub(super) fn set_slope(&mut self, slope: f64, now: f64) {
        self.level = self.level(now);
        self.since = now;
        self.slope = slope;
    }

    pub(super) fn slope(&self) -> f64 {
        self.slope
    }

    /// When the next flow ends if nothing but the level moves it; infinite if none does.
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

    /// The flow that ends first as the level rises, and the level at which it does.
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

    /// Ends the flows that the level alone ends until `limit`, calling `ended` with each and its time.
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
                    // Nobody is left to measure by this level; the next flow starts a new one.
                    (self.level, self.slope, self.since) = (1.0, 0.0, at);
                }
            }
        }
    }

    // Progress of single flows.

    /// Bytes of its own that a live flow was sent since `since` at `rate`: folded into its base.
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

    /// Takes a part, over the level, of what a live flow has left ([`Sharing::Remaining`]).
    #[inline]
    pub(super) fn shrink(&mut self, flow: u32, part: f64) {
        let f = &mut self.flows[flow as usize];
        let part = part.min(f.base);
        f.base -= part;
        let (s, r) = (f.sender as usize, f.place.receiver as usize);
        self.senders[s].weight -= part;
        self.receivers[r].weight -= part;
    }

    /// Notes that a live flow's base is its own from now on.
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

    /// Notes that a live flow is about to get a rate of its own.
    pub(super) fn touch_first(&mut self, flow: u32) {
        if !self.flows[flow as usize].touched {
            self.touch(flow);
        }
    }

    /// Tells the heaps of the bases that changed. O(log flows) for each.
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

    /// Bytes that a flow has sent until `now`, without what it was sent at a rate of its own since its last fold.
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

    /// Bytes that a live flow has left, without what it was sent at a rate of its own since its last fold
    /// ([`Sharing::Remaining`]). Exact also where the size is far greater.
    pub(crate) fn left(&self, flow: u32, now: f64) -> f64 {
        self.flows[flow as usize].base * self.level(now)
    }

    /// Bytes that all flows have sent, without what flows were sent at rates of their own since their last fold
    /// ([`Sharing::Equal`]).
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

    /// The lowest base of a live flow, and that flow unless it is one of those never touched ([`Sharing::Equal`]).
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

    /// Lets a waiting flow send. A flow without bytes has to be finished instead.
    pub(super) fn release(&mut self, flow: u32, now: f64) {
        if self.live == 0 && self.sharing == Sharing::Remaining {
            // Nobody is left to measure by the old level, which may have run on since the last of them ended.
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
                // On the first release of all, nothing has moved.
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

    /// Takes a live flow's data away for a while.
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

    /// Loses what a waiting flow has sent.
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

    /// Sets what a waiting flow has sent. If that is all, a byte of it is left until somebody sees it end.
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

    /// Sets the size of a waiting flow: it was so many bytes, it turns out.
    pub(super) fn resize(&mut self, flow: u32, bytes: f64) {
        self.lose(flow);
        self.flows[flow as usize].size = bytes;
    }

    /// Takes over what the flows of another, of which none is live, have sent; by their places in the specifications.
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

    /// Ends a flow.
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
