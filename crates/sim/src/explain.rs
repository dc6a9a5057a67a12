//! Why one coflow took as long as it did.
//!
//! An [`Explainer`] watches a replay and follows one coflow. From its release to its end it notes what it was given
//! and why: the queue that it was in, the rule that served it, its *pace*, and, where that is below what it would have
//! alone, the port that holds it back and the coflows that have that port.
//!
//! What a coflow has left takes, alone on healthy ports, the time that its *bottleneck* takes: the side of a port with
//! the most left to move. The *pace* is the rate at which that time shrinks: 1 is as fast as alone, and 0 is no nearer to
//! the end, even if flows move that are not at the bottleneck. So a coflow's CCT is the time that it takes alone plus
//! what it lost, second by second, where the pace was below 1; and, if flows started anew, what that threw it back.
//! A coflow *waits* where nothing of it moves, and is *slowed* where its pace is below 1.
//!
//! The port that holds it back is the bottleneck, if others have what it lacks there. Else its flows there wait for their
//! data, or are held up at their other ends, or wait for the rest of the coflow: of its own ports without capacity left, it
//! is then the one where it would need longest with what the others leave it; of several, the one where it has most left to
//! move.

mod timeline;

use std::collections::BTreeMap;

pub use timeline::{Entry, timeline};
use weir_core::allocation::{Common, Rule, Standing};
use weir_core::model::{Change, Coflow, FlowState, Slot, Workload};

use crate::bound;
use crate::outcome::CoflowOutcome;
use crate::replay::{Observer, Options, Snapshot};

/// Below this share of a port's nominal rate, nothing is left of it.
const NOTHING: f64 = 1e-6;

/// From this pace on a coflow is not slowed.
const FULL: f64 = 0.999;

/// One side of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortSide {
    /// The port.
    pub port: u32,
    /// Whether it is the sending side; else the receiving one.
    pub sends: bool,
}

impl PortSide {
    /// `send` or `receive`.
    pub const fn name(self) -> &'static str {
        if self.sends { "send" } else { "receive" }
    }
}

/// How a coflow gets on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Nothing moves.
    Waiting,
    /// Slower than alone.
    Slowed,
    /// As fast as alone.
    Full,
}

impl State {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Slowed => "slowed",
            State::Full => "full",
        }
    }
}

/// What keeps a coflow from its pace alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Nothing does. What is lost all the same is so because its bottleneck became another port between two schedules.
    Nothing,
    /// It was released between two schedules.
    NextSchedule,
    /// Flows at its bottleneck wait for their data, and none there has any.
    NoData,
    /// Others have this port.
    Port(PortSide),
    /// This port has less than its nominal rate, and the coflow has all of it.
    SlowPort(PortSide),
    /// None of its ports is short: the policy gives it no more.
    Policy,
}

impl Cause {
    /// Its name.
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

    /// The side of a port that is the cause.
    pub const fn side(self) -> Option<PortSide> {
        match self {
            Cause::Port(side) | Cause::SlowPort(side) => Some(side),
            _ => None,
        }
    }
}

/// A coflow that has a port that another one needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Holder {
    /// Its id.
    pub coflow: u64,
    /// Its queue; the last, if it changed.
    pub queue: usize,
    /// What its place goes by; likewise.
    pub standing: Standing,
    /// Its share of the port's nominal rate, on average over the segment.
    pub share: f64,
    /// Seconds that it cost; see [`Segment::lost`].
    pub lost: f64,
}

/// A time with one explanation.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// In seconds.
    pub from: f64,
    /// In seconds.
    pub to: f64,
    /// Bytes that were moved, those included that were lost later.
    pub bytes: f64,
    /// Seconds by which the time that the rest takes alone became less.
    pub alone: f64,
    /// How it got on.
    pub state: State,
    /// Its queue.
    pub queue: usize,
    /// What its place goes by; contention as it was last.
    pub standing: Standing,
    /// The rule that served it.
    pub rule: Rule,
    /// What held it back.
    pub cause: Cause,
    /// Who has the port that held it back; the one with the largest share first.
    pub holders: Vec<Holder>,
}

impl Segment {
    /// How long it is.
    pub fn time(&self) -> f64 {
        self.to - self.from
    }

    /// The pace.
    pub fn pace(&self) -> f64 {
        // Rounding is no progress, backward or faster than alone.
        if self.time() > 0.0 { (self.alone / self.time()).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// Seconds lost against being alone.
    pub fn lost(&self) -> f64 {
        (self.time() - self.alone).max(0.0)
    }
}

/// Why one coflow took as long as it did. Times in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// What became of it.
    pub outcome: CoflowOutcome,
    /// What it takes alone on healthy ports.
    pub alone: f64,
    /// Bytes that were moved in vain, by flows that started anew.
    pub lost_bytes: f64,
    /// Without gaps from its release to its end; empty if that took no time.
    pub segments: Vec<Segment>,
}

impl Explanation {
    /// Seconds in a state.
    pub fn time_in(&self, state: State) -> f64 {
        self.segments.iter().filter(|s| s.state == state).map(Segment::time).fold(0.0, |sum, time| sum + time)
    }

    /// Seconds under each rule, the longest first.
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

    /// Seconds lost by cause, the most first.
    pub fn by_cause(&self) -> Vec<(Cause, f64)> {
        let mut sums: BTreeMap<Cause, f64> = BTreeMap::new();
        for segment in &self.segments {
            *sums.entry(segment.cause).or_default() += segment.lost();
        }
        most_first(sums, self.outcome.cct())
    }

    /// Seconds that it took to come as far again as before flows started anew.
    pub fn thrown_back(&self) -> f64 {
        if self.lost_bytes == 0.0 {
            return 0.0;
        }
        let lost: f64 = self.segments.iter().map(Segment::lost).sum();
        (self.outcome.cct() - self.alone - lost).max(0.0)
    }

    /// Seconds lost behind each coflow, the most first. Where several have the port, each counts by its share.
    pub fn by_coflow(&self) -> Vec<(u64, f64)> {
        let mut sums: BTreeMap<u64, f64> = BTreeMap::new();
        for holder in self.segments.iter().flat_map(|s| &s.holders) {
            *sums.entry(holder.coflow).or_default() += holder.lost;
        }
        most_first(sums, self.outcome.cct())
    }
}

/// The sums that are more than rounding, the largest first.
fn most_first<K>(sums: BTreeMap<K, f64>, cct: f64) -> Vec<(K, f64)> {
    let mut sums: Vec<(K, f64)> = sums.into_iter().filter(|(_, sum)| *sum > 1e-9 * cct).collect();
    sums.sort_by(|a, b| b.1.total_cmp(&a.1));
    sums
}

/// Follows one coflow through a replay.
pub struct Explainer {
    index: usize,
    port_rate: f64,
    /// What each flow is long and has left, in the order of the specification.
    sizes: Vec<f64>,
    left: Vec<f64>,
    /// Sending and receiving ports, in the same order, as the replay numbers them; there are none before the first schedule after its release.
    ends: Vec<(u32, u32)>,
    /// Seconds that what is left takes alone.
    needs: f64,
    /// When which of its flows starts anew; those from `restarted` on are yet to come.
    restarts: Vec<(f64, usize)>,
    restarted: usize,
    ports: usize,
    alone: f64,
    slot: Option<Slot>,
    since: f64,
    /// Flows with rates since then: the number in the coflow, that in the specification, and the rate.
    rates: Vec<(u32, usize, f64)>,
    open: Option<Open>,
    lost_bytes: f64,
    segments: Vec<Segment>,
    outcome: Option<CoflowOutcome>,
    /// Bytes per second by side of a port (sending sides first), kept for their memory.
    used: Vec<f64>,
    own: Vec<f64>,
    load: Vec<f64>,
}

/// The explanation in force since the last schedule.
struct Open {
    state: State,
    queue: usize,
    standing: Standing,
    rule: Rule,
    cause: Cause,
    holders: Vec<Held>,
}

/// Who has the port, and at which rate.
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
    /// If there is none.
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

    /// What was found; `None` if the replay did not come to the coflow's end.
    pub fn finish(self) -> Option<Explanation> {
        Some(Explanation {
            outcome: self.outcome?,
            alone: self.alone,
            lost_bytes: self.lost_bytes,
            segments: self.segments,
        })
    }

    /// Moves what the rates in force move until `now`, and lays it down as a segment. `ended` are the flows that are
    /// done by then.
    fn advance(&mut self, now: f64, ended: impl Fn(u32) -> bool) {
        // By rounding, a schedule may come a moment before the release that it is for.
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
            // Differences leave roundings behind, of which ports that are done with have to be free.
            self.sum_loads();
        }
        let before = self.needs;
        self.needs = self.needed();
        if let Some(open) = self.open.take() {
            self.lay(now, bytes, before - self.needs, &open);
        }
        self.since = now;
    }

    /// Seconds that what is left takes alone.
    fn needed(&self) -> f64 {
        self.load.iter().copied().fold(0.0, f64::max) / self.port_rate
    }

    /// What each side of a port has left to move.
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
            // A sum over time until the segment is closed.
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

    /// Turns the sums of the last segment into averages.
    fn close(&mut self) {
        if let Some(last) = self.segments.last_mut() {
            let time = last.time();
            for holder in &mut last.holders {
                holder.share = if time > 0.0 { holder.share / time } else { 0.0 };
            }
            last.holders.sort_by(|a, b| b.share.total_cmp(&a.share));
        }
    }

    /// Lets flows lose what they have sent, where they started anew.
    fn restart(&mut self, now: f64) {
        while let Some(&(at, flow)) = self.restarts.get(self.restarted) {
            if at > now {
                return;
            }
            self.restarted += 1;
            // A flow that has ended stays so.
            if self.left[flow] > 0.0 {
                self.lost_bytes += self.sizes[flow] - self.left[flow];
                self.left[flow] = self.sizes[flow];
                self.sum_loads();
                self.needs = self.needed();
            }
        }
    }

    /// What is in force from now on.
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
            // Nobody else could make it faster.
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

    /// What holds the coflow back, and who has it.
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
                // It has this port to itself; what it lacks is elsewhere.
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

/// Whether an explanation is that of a segment. The holder with the most is part of it, the others are not.
fn same(segment: &Segment, open: &Open) -> bool {
    (segment.state, segment.queue, segment.rule, segment.cause)
        == (open.state, open.queue, open.rule, open.cause)
        && (segment.standing == Standing::Overdue) == (open.standing == Standing::Overdue)
        && segment.holders.first().map(|h| h.coflow) == open.holders.first().map(|h| h.coflow)
}

/// Calls `visit` with coflow, port, whether it is the sending side, and rate, for all that is sent and received by
/// the coflows that are `wanted`. Coflows whose flows all have one rate cost no look at single flows.
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
            // What came before its release had no effect on it.
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
            // It was done before any schedule had to do with it: it has no bytes.
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

    /// Segments follow each other without gaps, and times and bytes add up to the coflow's.
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
        // Being thrown back costs what it takes to come as far again.
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

    /// A workload of some coflows that get in each other's way, with everything that can happen to them.
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
    fn a_coflow_alone_is_not_held_up() {
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
    fn names_the_port_and_who_has_it() {
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
        // The first contends with two at a time, who contend with it only. It is alone in its queue when it comes, whose 4 bytes take 4 s.
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
    fn says_that_the_bottleneck_waits_for_its_data() {
        let mut late = coflow(1, 0.0, &[(0, 1, 1.0), (2, 3, 4.0)]);
        late.flows[1].release = time(5.0);
        // The port of the first flow is another's meanwhile, which does not matter.
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
    fn a_coflow_without_bytes_has_nothing_to_explain() {
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
