//! Explains the completion time of one coflow.
//!
//! An [`Explainer`] observes a replay and follows one coflow. From release to completion it records the coflow's queue, the
//! rule that served it, and its *pace*. Where the pace is below that of the coflow alone, it also records the port that
//! limits the coflow and the coflows that use that port.
//!
//! Alone on healthy ports, the remaining bytes of a coflow take the time of its *bottleneck*: the side of a port with the
//! most bytes left to move. The *pace* is the rate at which that time shrinks. 1 is as fast as alone; 0 is no progress
//! towards the end, even if flows move that do not use the bottleneck. A coflow's CCT is therefore the time that it takes
//! alone, plus the time lost at a pace below 1, plus the time to repeat lost bytes if flows restarted. A coflow is
//! *waiting* while none of its flows moves, and *slowed* while its pace is below 1.
//!
//! The limiting port is determined as follows:
//!
//! 1. If other coflows use the capacity that the coflow lacks at its bottleneck, the bottleneck.
//! 2. Otherwise, the flows there wait for their data, are limited at their other ends, or wait for the rest of the coflow.
//!    The limiting port is then one of the coflow's ports without residual capacity: the one at which the coflow would take
//!    longest with the capacity that others leave. Ties go to the port with the most bytes left to move.

mod timeline;

use std::collections::BTreeMap;

pub use timeline::{Entry, timeline};
use weir_core::allocation::{Common, Rule, Standing};
use weir_core::model::{Change, Coflow, FlowState, Slot, Workload};

use crate::bound;
use crate::outcome::CoflowOutcome;
use crate::replay::{Observer, Options, Snapshot};

/// Residual capacities up to this fraction of a port's nominal rate count as none.
const NOTHING: f64 = 1e-6;

/// The minimum pace at which a coflow is not slowed.
const FULL: f64 = 0.999;

/// One side of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortSide {
    /// The port.
    pub port: u32,
    /// Whether it is the sending side; otherwise it is the receiving side.
    pub sends: bool,
}

impl PortSide {
    /// `send` or `receive`.
    pub const fn name(self) -> &'static str {
        if self.sends { "send" } else { "receive" }
    }
}

/// The progress of a coflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// No flow moves.
    Waiting,
    /// Slower than alone.
    Slowed,
    /// As fast as alone.
    Full,
}

impl State {
    /// The state's name.
    pub const fn name(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Slowed => "slowed",
            State::Full => "full",
        }
    }
}

/// The reason why a coflow is slower than alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// No reason. Time can still be lost, because the bottleneck became another port between two schedules.
    Nothing,
    /// The coflow was released between two schedules.
    NextSchedule,
    /// All its flows at the bottleneck wait for their data.
    NoData,
    /// Other coflows use this port.
    Port(PortSide),
    /// This port has less than its nominal rate, and the coflow uses all of it.
    SlowPort(PortSide),
    /// All its ports have residual capacity, but the policy does not assign it.
    Policy,
}

impl Cause {
    /// The cause's name.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Nothing => "nothing",
            Cause::NextSchedule => "next-schedule",
            Cause::NoData => "no-data",
            Cause::Port(_) => "port",
            Cause::SlowPort(_) => "slow-port",
            Cause::Policy => "policy",
        }
    }

    /// The side of a port that is the cause, if any.
    pub const fn side(self) -> Option<PortSide> {
        match self {
            Cause::Port(side) | Cause::SlowPort(side) => Some(side),
            _ => None,
        }
    }
}

/// A coflow that uses a port that the explained coflow needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Holder {
    /// Its id in the trace.
    pub coflow: u64,
    /// Its queue; the last one if it changed.
    pub queue: usize,
    /// The values that determine its place in the order; the last ones if they changed.
    pub standing: Standing,
    /// Its mean share of the port's nominal rate over the segment.
    pub share: f64,
    /// Seconds that it cost; see [`Segment::lost`].
    pub lost: f64,
}

/// A period with one explanation.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// Its start, in seconds.
    pub from: f64,
    /// Its end, in seconds.
    pub to: f64,
    /// Bytes moved, including those that a restart lost later.
    pub bytes: f64,
    /// Seconds by which the remaining time alone shrank.
    pub alone: f64,
    /// The coflow's progress.
    pub state: State,
    /// The coflow's queue.
    pub queue: usize,
    /// The values that determine its place in the order, at the end of the segment.
    pub standing: Standing,
    /// The rule that served it.
    pub rule: Rule,
    /// The reason why it is slower than alone.
    pub cause: Cause,
    /// The coflows that use the limiting port, the largest share first.
    pub holders: Vec<Holder>,
}

impl Segment {
    /// The duration, in seconds.
    pub fn time(&self) -> f64 {
        self.to - self.from
    }

    /// The pace, from 0 to 1.
    pub fn pace(&self) -> f64 {
        // Rounding can make the quotient negative or larger than 1.
        if self.time() > 0.0 { (self.alone / self.time()).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Seconds lost compared with running alone.
    pub fn lost(&self) -> f64 {
        (self.time() - self.alone).max(0.0)
    }
}

/// The explanation of a coflow's completion time. Times are in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// The coflow's outcome.
    pub outcome: CoflowOutcome,
    /// Its completion time alone on healthy ports.
    pub alone: f64,
    /// Bytes moved in vain by flows that restarted.
    pub lost_bytes: f64,
    /// Segments without gaps from release to completion; empty if the CCT is 0.
    pub segments: Vec<Segment>,
}

impl Explanation {
    /// Seconds in a state.
    pub fn time_in(&self, state: State) -> f64 {
        self.segments.iter().filter(|s| s.state == state).map(Segment::time).fold(0.0, |sum, time| sum + time)
    }

    /// Seconds under each rule, in descending order.
    pub fn by_rule(&self) -> Vec<(Rule, f64)> {
        let mut sums: Vec<(Rule, f64)> = Vec::new();
        for segment in self.segments.iter().filter(|s| s.cause != Cause::NextSchedule) {
            match sums.iter_mut().find(|(rule, _)| *rule == segment.rule) {
                Some((_, sum)) => *sum += segment.time(),
                None => sums.push((segment.rule, segment.time())),
            }
        }
        sums.sort_by(|a, b| b.1.total_cmp(&a.1));
        sums
    }

    /// Seconds lost by cause, in descending order.
    pub fn by_cause(&self) -> Vec<(Cause, f64)> {
        let mut sums: BTreeMap<Cause, f64> = BTreeMap::new();
        for segment in &self.segments {
            *sums.entry(segment.cause).or_default() += segment.lost();
        }
        most_first(sums, self.outcome.cct())
    }

    /// Seconds to repeat the progress that restarts of flows lost.
    pub fn thrown_back(&self) -> f64 {
        if self.lost_bytes == 0.0 {
            return 0.0;
        }
        let lost: f64 = self.segments.iter().map(Segment::lost).sum();
        (self.outcome.cct() - self.alone - lost).max(0.0)
    }

    /// Seconds lost to each coflow, in descending order. If several coflows use the limiting port, each counts by its share.
    pub fn by_coflow(&self) -> Vec<(u64, f64)> {
        let mut sums: BTreeMap<u64, f64> = BTreeMap::new();
        for holder in self.segments.iter().flat_map(|s| &s.holders) {
            *sums.entry(holder.coflow).or_default() += holder.lost;
        }
        most_first(sums, self.outcome.cct())
    }
}

/// The sums above rounding, in descending order.
fn most_first<K>(sums: BTreeMap<K, f64>, cct: f64) -> Vec<(K, f64)> {
    let mut sums: Vec<(K, f64)> = sums.into_iter().filter(|(_, sum)| *sum > 1e-9 * cct).collect();
    sums.sort_by(|a, b| b.1.total_cmp(&a.1));
    sums
}

/// Follows one coflow through a replay.
pub struct Explainer {
    index: usize,
    port_rate: f64,
    /// The size and the remaining bytes of each flow, in the order of the specification.
    sizes: Vec<f64>,
    left: Vec<f64>,
    /// The sending and receiving port of each flow, in the same order, by the replay's numbers; empty before the first
    /// schedule after the release.
    ends: Vec<(u32, u32)>,
    /// Seconds that the remaining bytes take alone.
    needs: f64,
    /// The times and flows of restarts; those from index `restarted` on are yet to come.
    restarts: Vec<(f64, usize)>,
    restarted: usize,
    ports: usize,
    alone: f64,
    slot: Option<Slot>,
    since: f64,
    /// Flows with rates since then: index in the coflow, index in the specification, rate.
    rates: Vec<(u32, usize, f64)>,
    open: Option<Open>,
    lost_bytes: f64,
    segments: Vec<Segment>,
    outcome: Option<CoflowOutcome>,
    /// Bytes per second, or bytes, by side of a port (sending sides first); reused to save allocations.
    used: Vec<f64>,
    own: Vec<f64>,
    load: Vec<f64>,
}

/// The explanation since the last schedule.
struct Open {
    state: State,
    queue: usize,
    standing: Standing,
    rule: Rule,
    cause: Cause,
    holders: Vec<Held>,
}

/// A coflow that uses the limiting port, and its rate there.
struct Held {
    coflow: u64,
    queue: usize,
    standing: Standing,
    rate: f64,
}

impl Explainer {
    /// Follows the coflow at `index` of `workload`.
    ///
    /// # Panics
    /// If `index` is out of range.
    pub fn new(workload: &Workload, index: usize, options: &Options) -> Explainer {
        let spec = &workload.coflows[index];
        let sizes: Vec<f64> = spec.flows.iter().map(|f| f.bytes.get()).collect();
        let restarts = workload.events.iter().filter_map(|event| match event.what {
            Change::Restart { coflow, flow } if coflow == index => Some((event.at.get(), flow)),
            _ => None,
        });
        let sides = 2 * workload.ports as usize;
        let alone = bound::bottleneck(spec, workload.ports) / options.port_rate.get();
        Explainer {
            index,
            port_rate: options.port_rate.get(),
            left: sizes.clone(),
            sizes,
            restarts: restarts.collect(),
            restarted: 0,
            ports: workload.ports as usize,
            ends: Vec::new(),
            needs: alone,
            alone,
            slot: None,
            since: 0.0,
            rates: Vec::new(),
            open: None,
            lost_bytes: 0.0,
            segments: Vec::new(),
            outcome: None,
            used: vec![0.0; sides],
            own: vec![0.0; sides],
            load: vec![0.0; sides],
        }
    }

    /// The explanation; `None` if the coflow did not complete in the replay.
    pub fn finish(self) -> Option<Explanation> {
        Some(Explanation {
            outcome: self.outcome?,
            alone: self.alone,
            lost_bytes: self.lost_bytes,
            segments: self.segments,
        })
    }

    /// Moves bytes at the present rates until `now`, and records a segment. `ended` returns whether a flow has completed by
    /// then.
    fn advance(&mut self, now: f64, ended: impl Fn(u32) -> bool) {
        // By rounding, a schedule can be slightly before the release that caused it.
        let now = now.max(self.since);
        let time = now - self.since;
        let (mut bytes, mut some_ended) = (0.0, false);
        for &(flow, original, rate) in &self.rates {
            let left = &mut self.left[original];
            let ended = ended(flow);
            let moved = if ended { *left } else { left.min(rate * time) };
            *left -= moved;
            bytes += moved;
            some_ended |= ended;
            let (src, dst) = self.ends[original];
            self.load[src as usize] -= moved;
            self.load[self.ports + dst as usize] -= moved;
        }
        if some_ended {
            // Differences leave rounding errors; ports without remaining bytes must have a load of exactly 0.
            self.sum_loads();
        }
        let before = self.needs;
        self.needs = self.needed();
        if let Some(open) = self.open.take() {
            self.lay(now, bytes, before - self.needs, &open);
        }
        self.since = now;
    }

    /// Seconds that the remaining bytes take alone.
    fn needed(&self) -> f64 {
        self.load.iter().copied().fold(0.0, f64::max) / self.port_rate
    }

    /// Computes the remaining bytes of each side of a port.
    fn sum_loads(&mut self) {
        self.load.fill(0.0);
        for (&left, &(src, dst)) in self.left.iter().zip(&self.ends) {
            self.load[src as usize] += left;
            self.load[self.ports + dst as usize] += left;
        }
    }

    fn lay(&mut self, to: f64, bytes: f64, alone: f64, open: &Open) {
        let from = self.since;
        let lost = (to - from - alone).max(0.0);
        let others: f64 = open.holders.iter().map(|h| h.rate).sum();
        let holders = open.holders.iter().map(|&Held { coflow, queue, standing, rate }| Holder {
            coflow,
            queue,
            standing,
            // An integral over time until the segment is closed.
            share: rate / self.port_rate * (to - from),
            lost: lost * rate / others,
        });
        match self.segments.last_mut() {
            Some(last) if same(last, open) => {
                last.to = to;
                last.bytes += bytes;
                last.alone += alone;
                last.standing = open.standing;
                for holder in holders {
                    match last.holders.iter_mut().find(|h| h.coflow == holder.coflow) {
                        Some(known) => {
                            (known.queue, known.standing) = (holder.queue, holder.standing);
                            known.share += holder.share;
                            known.lost += holder.lost;
                        }
                        None => last.holders.push(holder),
                    }
                }
            }
            _ if to <= from && bytes == 0.0 => {}
            _ => {
                let Open { state, queue, standing, rule, cause, .. } = *open;
                let holders = holders.collect();
                self.close();
                self.segments.push(Segment {
                    from,
                    to,
                    bytes,
                    alone,
                    state,
                    queue,
                    standing,
                    rule,
                    cause,
                    holders,
                });
            }
        }
    }

    /// Converts the integrals of the last segment to means.
    fn close(&mut self) {
        if let Some(last) = self.segments.last_mut() {
            let time = last.time();
            for holder in &mut last.holders {
                holder.share = if time > 0.0 { holder.share / time } else { 0.0 };
            }
            last.holders.sort_by(|a, b| b.share.total_cmp(&a.share));
        }
    }

    /// Resets the progress of flows that restarted until `now`.
    fn restart(&mut self, now: f64) {
        while let Some(&(at, flow)) = self.restarts.get(self.restarted) {
            if at > now {
                return;
            }
            self.restarted += 1;
            // A completed flow stays completed.
            if self.left[flow] > 0.0 {
                self.lost_bytes += self.sizes[flow] - self.left[flow];
                self.left[flow] = self.sizes[flow];
                self.sum_loads();
                self.needs = self.needed();
            }
        }
    }

    /// Determines the explanation from this schedule on.
    fn look(&mut self, moment: &Snapshot<'_>, slot: Slot) {
        let coflow = moment.coflow(slot);
        self.rates.clear();
        self.own.fill(0.0);
        for flow in coflow.live_flows() {
            let rate = moment.rate(slot, flow);
            if rate > 0.0 {
                let (src, dst) = coflow.ends_of(flow);
                self.own[src as usize] += rate;
                self.own[self.ports + dst as usize] += rate;
                self.rates.push((flow, coflow.original(flow) as usize, rate));
            }
        }
        // Of several bottlenecks, the slowest.
        let most = self.load.iter().copied().fold(0.0, f64::max);
        let bottleneck = (0..self.load.len())
            .filter(|&side| self.load[side] >= most * (1.0 - 1e-9))
            .min_by(|&a, &b| self.own[a].total_cmp(&self.own[b]));
        let pace = bottleneck.map_or(0.0, |side| self.own[side] / self.port_rate);
        let state = match pace {
            _ if self.rates.is_empty() => State::Waiting,
            pace if pace < FULL => State::Slowed,
            _ => State::Full,
        };
        let mut holders = Vec::new();
        let moves = |side: usize| match side < self.ports {
            true => coflow.send_mask().contains(side),
            false => coflow.recv_mask().contains(side - self.ports),
        };
        let cause = if state == State::Full {
            Cause::Nothing
        } else if !bottleneck.is_some_and(moves) {
            // No other coflow limits it.
            Cause::NoData
        } else {
            self.hold_up(moment, slot, bottleneck, &mut holders)
        };
        self.open = Some(Open {
            state,
            queue: moment.allocation().class(slot),
            standing: moment.allocation().standing(slot),
            rule: moment.allocation().rule(slot),
            cause,
            holders,
        });
    }

    /// Determines the limiting port and the coflows that use it.
    fn hold_up(
        &mut self,
        moment: &Snapshot<'_>,
        slot: Slot,
        bottleneck: Option<usize>,
        holders: &mut Vec<Held>,
    ) -> Cause {
        let mut used = std::mem::take(&mut self.used);
        used.fill(0.0);
        let coflow = moment.coflow(slot);
        each_rate(
            moment,
            |_, _| true,
            |_, port, sends, rate| {
                used[if sends { port as usize } else { self.ports + port as usize }] += rate;
            },
        );
        let capacities = moment.fabric().send().iter().chain(moment.fabric().recv());
        let nothing = NOTHING * self.port_rate;
        let mut worst: Option<(f64, f64, usize, bool)> = None;
        for (side, &capacity) in capacities.enumerate() {
            if self.load[side] == 0.0 || capacity - used[side] > nothing {
                continue;
            }
            let others = used[side] - self.own[side];
            let held = others > nothing;
            if !held && capacity >= self.port_rate - nothing {
                // The coflow has this port to itself, so another port limits it.
                continue;
            }
            let leave = capacity - others;
            let takes = if leave > nothing { self.load[side] / leave } else { f64::INFINITY };
            if Some(side) == bottleneck {
                worst = Some((takes, self.load[side], side, held));
                break;
            }
            if worst.is_none_or(|(most, load, ..)| (takes, self.load[side]) > (most, load)) {
                worst = Some((takes, self.load[side], side, held));
            }
        }
        self.used = used;
        let Some((_, _, side, held)) = worst else { return Cause::Policy };
        let (port, sends) = (side % self.ports, side < self.ports);
        let named = PortSide { port: moment.port(port as u32), sends };
        if !held {
            return Cause::SlowPort(named);
        }
        let mut rates: BTreeMap<Slot, f64> = BTreeMap::new();
        let there = |other: &Coflow| {
            let mask = if sends { other.send_mask() } else { other.recv_mask() };
            other.index != coflow.index && mask.contains(port)
        };
        each_rate(
            moment,
            |_, other| there(other),
            |other, at, sending, rate| {
                if (at as usize, sending) == (port, sends) {
                    *rates.entry(other).or_default() += rate;
                }
            },
        );
        let allocation = moment.allocation();
        holders.extend(rates.into_iter().filter(|(_, rate)| *rate > nothing).map(|(other, rate)| Held {
            coflow: moment.coflow(other).id,
            queue: allocation.class(other),
            standing: allocation.standing(other),
            rate,
        }));
        holders.sort_by(|a, b| b.rate.total_cmp(&a.rate).then(a.coflow.cmp(&b.coflow)));
        Cause::Port(named)
    }
}

/// Whether an explanation equals that of a segment. Of the holders, only the first one is compared.
fn same(segment: &Segment, open: &Open) -> bool {
    (segment.state, segment.queue, segment.rule, segment.cause)
        == (open.state, open.queue, open.rule, open.cause)
        && (segment.standing == Standing::Overdue) == (open.standing == Standing::Overdue)
        && segment.holders.first().map(|h| h.coflow) == open.holders.first().map(|h| h.coflow)
}

/// Calls `visit` with slot, port, whether it is the sending side, and rate, for everything that the `wanted` coflows send
/// and receive. Coflows whose flows all have one rate need no visit of single flows.
fn each_rate(
    moment: &Snapshot<'_>,
    wanted: impl Fn(Slot, &Coflow) -> bool,
    mut visit: impl FnMut(Slot, u32, bool, f64),
) {
    let allocation = moment.allocation();
    let one_by_one =
        |slot| allocation.queues().is_some() || matches!(allocation.common(slot), Common::Together(_));
    for &slot in moment.active() {
        let coflow = moment.coflow(slot);
        if !wanted(slot, coflow) {
            continue;
        }
        if one_by_one(slot) {
            for flow in coflow.live_flows() {
                let rate = moment.rate(slot, flow);
                if rate > 0.0 {
                    let (src, dst) = coflow.ends_of(flow);
                    visit(slot, src, true, rate);
                    visit(slot, dst, false, rate);
                }
            }
        } else if let Common::Each(rate) = allocation.common(slot) {
            for (loads, sends) in [(coflow.senders(), true), (coflow.receivers(), false)] {
                for load in loads.iter().filter(|load| load.live > 0) {
                    visit(slot, load.port, sends, rate * f64::from(load.live));
                }
            }
        }
    }
    for own in allocation.flows() {
        let coflow = moment.coflow(own.slot);
        if !one_by_one(own.slot) && wanted(own.slot, coflow) {
            let (src, dst) = coflow.ends_of(own.flow);
            visit(own.slot, src, true, own.rate);
            visit(own.slot, dst, false, own.rate);
        }
    }
}

impl Observer for Explainer {
    fn scheduled(&mut self, moment: &Snapshot<'_>) -> bool {
        if self.outcome.is_some() {
            return true;
        }
        if self.slot.is_none() {
            let here = |slot: &Slot| moment.coflow(*slot).index == self.index;
            let Some(slot) = moment.active().iter().copied().find(here) else { return true };
            self.slot = Some(slot);
            let coflow = moment.coflow(slot);
            self.since = coflow.arrival;
            self.ends = vec![(0, 0); self.sizes.len()];
            for flow in 0..coflow.width() as u32 {
                self.ends[coflow.original(flow) as usize] = coflow.ends_of(flow);
            }
            self.sum_loads();
            // Events before its release had no effect on it.
            self.restarted = self.restarts.iter().take_while(|(at, _)| *at <= self.since).count();
            self.open = Some(Open {
                state: State::Waiting,
                queue: moment.allocation().class(slot),
                standing: moment.allocation().standing(slot),
                rule: moment.allocation().rule(slot),
                cause: Cause::NextSchedule,
                holders: Vec::new(),
            });
        }
        let Some(slot) = self.slot else { return true };
        let coflow = moment.coflow(slot);
        self.advance(moment.now(), |flow| coflow.state(flow) == FlowState::Done);
        self.restart(moment.now());
        self.look(moment, slot);
        true
    }

    fn done(&mut self, outcome: &CoflowOutcome) {
        if outcome.index != self.index {
            return;
        }
        if self.slot.is_none() {
            // It completed without any schedule, because it has no bytes.
            self.since = outcome.arrival;
            self.open = Some(Open {
                state: State::Waiting,
                queue: 0,
                standing: Standing::Unsaid,
                rule: Rule::Unsaid,
                cause: Cause::NoData,
                holders: Vec::new(),
            });
        }
        self.advance(outcome.end, |_| true);
        self.close();
        self.outcome = Some(outcome.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::replay;
    use weir_core::model::{CoflowSpec, FlowSpec, Names, Side, TimedEvent};
    use weir_core::policy::{self, TABLE};
    use weir_core::units::{Bytes, Rate, Time};

    fn time(seconds: f64) -> Time {
        Time::new(seconds).unwrap()
    }

    fn coflow(id: u64, arrival: f64, flows: &[(u32, u32, f64)]) -> CoflowSpec {
        let flows = flows.iter().map(|&(s, d, b)| FlowSpec::new(s, d, Bytes::new(b).unwrap())).collect();
        CoflowSpec::new(id, time(arrival), flows)
    }

    fn explain(workload: &Workload, spec: &str, index: usize, interval: f64) -> Explanation {
        let rate = Rate::new(1.0).unwrap();
        let options = Options { port_rate: rate, interval: time(interval), keep_flows: false, behind: None };
        let mut explainer = Explainer::new(workload, index, &options);
        let outcome = replay(workload, policy::build(spec).unwrap(), &options, &mut explainer);
        assert!(outcome.is_ok(), "{spec}, interval {interval}: {outcome:?}");
        explainer.finish().unwrap()
    }

    /// Checks that segments have no gaps, and that times and bytes sum to the coflow's.
    fn check_sums(found: &Explanation) {
        let (first, last) = match (found.segments.first(), found.segments.last()) {
            (Some(first), Some(last)) => (first, last),
            _ => return assert_eq!(found.outcome.cct(), 0.0),
        };
        assert_eq!(first.from, found.outcome.arrival);
        assert_eq!(last.to, found.outcome.end);
        assert!(found.segments.windows(2).all(|pair| pair[0].to == pair[1].from));
        let bytes: f64 = found.segments.iter().map(|s| s.bytes).sum();
        let expected = found.outcome.bytes + found.lost_bytes;
        assert!((bytes - expected).abs() <= 1e-9 * expected.max(1.0), "{bytes} of {expected}");
        let states = [State::Waiting, State::Slowed, State::Full];
        let times: f64 = states.into_iter().map(|state| found.time_in(state)).sum();
        assert!((times - found.outcome.cct()).abs() <= 1e-9 * times.max(1.0));
        let (cct, lost): (f64, f64) = (found.outcome.cct(), found.segments.iter().map(Segment::lost).sum());
        let accounted = found.alone + lost - cct;
        // Repeating lost progress costs additional time.
        assert!(accounted.abs() <= 1e-9 * cct || (found.lost_bytes > 0.0 && accounted < 0.0), "{accounted}");
        for segment in &found.segments {
            assert!(segment.state != State::Waiting || segment.bytes == 0.0);
            let lost: f64 = segment.holders.iter().map(|h| h.lost).sum();
            assert!(
                segment.holders.is_empty() || (lost - segment.lost()).abs() < 1e-9 * segment.time().max(1.0),
                "{lost} of {}: {segment:?}",
                segment.lost()
            );
        }
    }

    /// A workload with contending coflows and all kinds of events.
    fn crowded() -> Workload {
        let mut state = 7_u64;
        let mut dice = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut coflows = Vec::new();
        for id in 0..30 {
            let width = 1 + dice(8);
            let flows: Vec<(u32, u32, f64)> =
                (0..width).map(|_| (dice(5) as u32, dice(5) as u32, dice(20) as f64)).collect();
            coflows.push(coflow(id, dice(60) as f64, &flows));
        }
        coflows[3].flows[0].release = time(2.5);
        coflows[9].parents = vec![2, 3];
        let rate = |at, factor| TimedEvent {
            at: time(at),
            what: Change::PortRate { port: 1, side: Side::Both, factor },
        };
        let mut events = vec![rate(10.3, 0.5), rate(40.1, 0.0), rate(50.0, 1.0)];
        for tenth in 1..200 {
            let coflow = dice(30) as usize;
            let flow = dice(coflows[coflow].flows.len() as u64) as usize;
            let what = Change::Restart { coflow, flow };
            events.push(TimedEvent { at: time(f64::from(tenth) * 0.9), what });
        }
        events.sort_by(|a, b| a.at.get().total_cmp(&b.at.get()));
        Workload { ports: 5, coflows, events, names: Names::default() }
    }

    #[test]
    fn segments_add_up_to_the_coflow_under_every_policy() {
        let workload = crowded();
        for entry in TABLE {
            for interval in [0.0, 0.7] {
                for index in 0..workload.coflows.len() {
                    check_sums(&explain(&workload, entry.name, index, interval));
                }
            }
        }
    }

    #[test]
    fn coflow_alone_loses_no_time() {
        let workload = Workload {
            ports: 2,
            coflows: vec![coflow(5, 1.0, &[(0, 1, 3.0)])],
            events: Vec::new(),
            names: Names::default(),
        };
        let found = explain(&workload, "saath", 0, 0.0);
        assert_eq!((found.alone, found.outcome.cct()), (3.0, 3.0));
        assert_eq!(found.segments.len(), 1);
        assert_eq!((found.segments[0].state, found.segments[0].cause), (State::Full, Cause::Nothing));
        assert!(found.by_cause().is_empty() && found.by_coflow().is_empty());
    }

    #[test]
    fn names_limiting_port_and_holders() {
        let coflows = vec![coflow(7, 0.0, &[(0, 1, 2.0)]), coflow(8, 0.5, &[(0, 2, 3.0)])];
        let workload = Workload { ports: 3, coflows, events: Vec::new(), names: Names::default() };
        let found = explain(&workload, "fifo", 1, 0.0);
        let port = PortSide { port: 0, sends: true };
        let wait = &found.segments[0];
        assert_eq!((wait.from, wait.to, wait.state), (0.5, 2.0, State::Waiting));
        assert_eq!(wait.cause, Cause::Port(port));
        assert_eq!((wait.holders[0].coflow, wait.holders[0].share), (7, 1.0));
        assert_eq!(found.by_cause(), [(Cause::Port(port), 1.5)]);
        assert_eq!(found.by_coflow(), [(7, 1.5)]);
        assert_eq!(found.time_in(State::Full), 3.0);
    }

    #[test]
    fn names_contention_and_deadlines_that_have_passed() {
        // Coflow 1 contends with two others at a time, which contend only with it. At its release it is alone in its queue, whose
        // 4 bytes take 4 s, so its deadline is at 1.5 x 4 s = 6 s.
        let mut coflows = vec![coflow(1, 0.0, &[(0, 1, 1.0), (2, 3, 1.0)])];
        for second in 0..10 {
            for (port, to) in [(0, 4), (2, 5)] {
                coflows.push(coflow(10 * (second + 1) + u64::from(port), second as f64, &[(port, to, 1.0)]));
            }
        }
        let workload = Workload { ports: 6, coflows, events: Vec::new(), names: Names::default() };
        let found = explain(&workload, "saath:start=4B:d=1.5", 0, 0.0);
        let standings: Vec<Standing> = found.segments.iter().map(|s| s.standing).collect();
        let (last, before) = standings.split_last().unwrap();
        assert!(before.iter().all(|standing| *standing == Standing::Contention(2)), "{standings:?}");
        assert_eq!(*last, Standing::Overdue);
        assert_eq!((found.segments.last().unwrap().from, found.outcome.end), (6.0, 7.0));
        assert_eq!(found.segments[0].holders[0].standing, Standing::Contention(1));
    }

    #[test]
    fn names_a_slow_port_and_the_wait_for_a_schedule() {
        let mut workload = Workload {
            ports: 2,
            coflows: vec![coflow(1, 0.25, &[(0, 1, 3.0)])],
            events: Vec::new(),
            names: Names::default(),
        };
        let what = Change::PortRate { port: 1, side: Side::Receive, factor: 0.5 };
        workload.events.push(TimedEvent { at: time(0.0), what });
        let found = explain(&workload, "saath", 0, 1.0);
        let causes: Vec<Cause> = found.segments.iter().map(|s| s.cause).collect();
        let port = PortSide { port: 1, sends: false };
        assert_eq!(causes, [Cause::NextSchedule, Cause::SlowPort(port)]);
        assert_eq!(found.segments[1].pace(), 0.5);
        assert_eq!(found.by_cause(), [(Cause::SlowPort(port), 3.0), (Cause::NextSchedule, 0.75)]);
    }

    #[test]
    fn names_missing_data_at_the_bottleneck() {
        let mut late = coflow(1, 0.0, &[(0, 1, 1.0), (2, 3, 4.0)]);
        late.flows[1].release = time(5.0);
        // Another coflow uses the first flow's port meanwhile, which has no effect.
        let coflows = vec![late, coflow(2, 0.0, &[(0, 4, 2.0)])];
        let workload = Workload { ports: 5, coflows, events: Vec::new(), names: Names::default() };
        for policy in ["fair", "saath", "varys", "aalo"] {
            let found = explain(&workload, policy, 0, 0.0);
            check_sums(&found);
            assert_eq!(found.by_cause(), [(Cause::NoData, 5.0)], "{policy}");
            assert!(found.by_coflow().is_empty(), "{policy}");
        }
    }

    #[test]
    fn coflow_without_bytes_has_no_segments() {
        let workload = Workload {
            ports: 2,
            coflows: vec![coflow(1, 2.0, &[(0, 1, 0.0)])],
            events: Vec::new(),
            names: Names::default(),
        };
        let found = explain(&workload, "saath", 0, 0.008);
        assert!(found.segments.is_empty());
        assert_eq!((found.alone, found.outcome.cct()), (0.0, 0.0));
    }
}
