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
//! The limiting port is a port of the coflow without residual capacity that other coflows use, or whose rate is
//! reduced:
//!
//! 1. The bottleneck, if it is such a port.
//! 2. Otherwise the one at which the remaining bytes take longest with the capacity that other coflows do not use. Ties
//!    go to the port with the most bytes left to move.
//!
//! No port limits the coflow if all its flows at the bottleneck wait for data, or if the policy does not assign
//! residual capacity.

mod timeline;

use std::collections::BTreeMap;

pub use timeline::{TimelineEntry, build_timeline};
use weir_core::allocation::{CommonRate, OrderCriterion, Rule};
use weir_core::model::{Coflow, FlowState, Slot, Workload, WorkloadChange};

use crate::lower_bound;
use crate::outcome::CoflowOutcome;
use crate::replay::{Observer, ReplayOptions, Snapshot};

/// Residual capacities up to this fraction of a port's nominal rate count as none.
const NEGLIGIBLE_FRACTION: f64 = 1e-6;

/// The minimum pace at which a coflow is not slowed.
const MIN_FULL_PACE: f64 = 0.999;

/// One side of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirectedPort {
    /// The port.
    pub port: u32,
    /// Whether it is the sending side; otherwise it is the receiving side.
    pub is_sending: bool,
}

impl DirectedPort {
    /// `send` or `receive`.
    pub const fn name(self) -> &'static str {
        if self.is_sending { "send" } else { "receive" }
    }
}

/// The progress of a coflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProgressState {
    /// No flow moves.
    Waiting,
    /// Slower than alone.
    Slowed,
    /// As fast as alone.
    FullPace,
}

impl ProgressState {
    /// The state's name.
    pub const fn name(self) -> &'static str {
        match self {
            ProgressState::Waiting => "waiting",
            ProgressState::Slowed => "slowed",
            ProgressState::FullPace => "full",
        }
    }
}

/// The reason why a coflow is slower than alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SlowdownCause {
    /// No cause. Time can still be lost, because the bottleneck became another port between two schedules.
    None,
    /// The coflow was released between two schedules.
    NextSchedule,
    /// All its flows at the bottleneck wait for their data.
    NoData,
    /// Other coflows use this port.
    ContendedPort(DirectedPort),
    /// This port has less than its nominal rate, and the coflow uses all of it.
    SlowPort(DirectedPort),
    /// All its ports have residual capacity, but the policy does not assign it.
    Policy,
}

impl SlowdownCause {
    /// The cause's name.
    pub const fn name(self) -> &'static str {
        match self {
            SlowdownCause::None => "nothing",
            SlowdownCause::NextSchedule => "next-schedule",
            SlowdownCause::NoData => "no-data",
            SlowdownCause::ContendedPort(_) => "port",
            SlowdownCause::SlowPort(_) => "slow-port",
            SlowdownCause::Policy => "policy",
        }
    }

    /// The side of a port that is the cause, if any.
    pub const fn port(self) -> Option<DirectedPort> {
        match self {
            SlowdownCause::ContendedPort(side) | SlowdownCause::SlowPort(side) => Some(side),
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
    pub order_criterion: OrderCriterion,
    /// Its mean share of the port's nominal rate over the segment.
    pub rate_share: f64,
    /// Seconds that it cost; see [`Segment::lost_seconds`].
    pub lost_seconds: f64,
}

/// A period with one explanation.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// Its start, in seconds.
    pub start: f64,
    /// Its end, in seconds.
    pub end: f64,
    /// Bytes moved, including those that a restart lost later.
    pub bytes: f64,
    /// Seconds by which the remaining time alone shrank.
    pub alone_seconds: f64,
    /// The coflow's progress.
    pub state: ProgressState,
    /// The coflow's queue.
    pub queue: usize,
    /// The values that determine its place in the order, at the end of the segment.
    pub order_criterion: OrderCriterion,
    /// The rule that served it.
    pub rule: Rule,
    /// The reason why it is slower than alone.
    pub cause: SlowdownCause,
    /// The coflows that use the limiting port, the largest share first.
    pub holders: Vec<Holder>,
}

impl Segment {
    /// The duration, in seconds.
    pub fn duration_seconds(&self) -> f64 {
        self.end - self.start
    }

    /// The pace, from 0 to 1.
    pub fn pace(&self) -> f64 {
        // Rounding can make the quotient negative or larger than 1.
        if self.duration_seconds() > 0.0 {
            (self.alone_seconds / self.duration_seconds()).clamp(0.0, 1.0)
        } else {
            0.0
        }
    }

    /// Seconds lost compared with running alone.
    pub fn lost_seconds(&self) -> f64 {
        (self.duration_seconds() - self.alone_seconds).max(0.0)
    }
}

/// The explanation of a coflow's completion time. Times are in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// The coflow's outcome.
    pub outcome: CoflowOutcome,
    /// Its completion time alone on healthy ports.
    pub alone_seconds: f64,
    /// Bytes moved in vain by flows that restarted.
    pub lost_bytes: f64,
    /// Segments without gaps from release to completion; empty if the CCT is 0.
    pub segments: Vec<Segment>,
}

impl Explanation {
    /// Seconds in a state.
    pub fn seconds_in_state(&self, state: ProgressState) -> f64 {
        self.segments
            .iter()
            .filter(|s| s.state == state)
            .map(Segment::duration_seconds)
            .fold(0.0, |sum, time| sum + time)
    }

    /// Seconds under each rule, in descending order.
    pub fn seconds_under_each_rule(&self) -> Vec<(Rule, f64)> {
        let mut sums: Vec<(Rule, f64)> = Vec::new();
        for segment in self.segments.iter().filter(|s| s.cause != SlowdownCause::NextSchedule) {
            match sums.iter_mut().find(|(rule, _)| *rule == segment.rule) {
                Some((_, sum)) => *sum += segment.duration_seconds(),
                None => sums.push((segment.rule, segment.duration_seconds())),
            }
        }
        sums.sort_by(|a, b| b.1.total_cmp(&a.1));
        sums
    }

    /// Seconds lost by cause, in descending order.
    pub fn lost_seconds_by_cause(&self) -> Vec<(SlowdownCause, f64)> {
        let mut sums: BTreeMap<SlowdownCause, f64> = BTreeMap::new();
        for segment in &self.segments {
            *sums.entry(segment.cause).or_default() += segment.lost_seconds();
        }
        sort_descending(sums, self.outcome.cct())
    }

    /// Seconds to repeat the progress that restarts of flows lost.
    pub fn restart_seconds(&self) -> f64 {
        if self.lost_bytes == 0.0 {
            return 0.0;
        }
        let lost: f64 = self.segments.iter().map(Segment::lost_seconds).sum();
        (self.outcome.cct() - self.alone_seconds - lost).max(0.0)
    }

    /// Seconds lost to each coflow, in descending order. If several coflows use the limiting port, each counts by its share.
    pub fn lost_seconds_by_coflow(&self) -> Vec<(u64, f64)> {
        let mut sums: BTreeMap<u64, f64> = BTreeMap::new();
        for holder in self.segments.iter().flat_map(|s| &s.holders) {
            *sums.entry(holder.coflow).or_default() += holder.lost_seconds;
        }
        sort_descending(sums, self.outcome.cct())
    }
}

/// The sums above rounding, in descending order.
fn sort_descending<K>(sums: BTreeMap<K, f64>, cct: f64) -> Vec<(K, f64)> {
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
    remaining_bytes: Vec<f64>,
    /// The sending and receiving port of each flow, in the same order, by the replay's numbers; empty before the first
    /// schedule after the release.
    flow_ports: Vec<(u32, u32)>,
    /// Seconds that the remaining bytes take alone.
    alone_remaining_seconds: f64,
    /// The times and flows of restarts; those from index `next_restart` on are in the future.
    restarts: Vec<(f64, usize)>,
    next_restart: usize,
    port_count: usize,
    alone_seconds: f64,
    slot: Option<Slot>,
    last_time: f64,
    /// Flows with rates since `last_time`: index in the coflow, index in the specification, rate.
    rates: Vec<(u32, usize, f64)>,
    open_segment: Option<OpenSegment>,
    lost_bytes: f64,
    segments: Vec<Segment>,
    outcome: Option<CoflowOutcome>,
    /// Bytes per second, or bytes, by side of a port (sending sides first); reused to save allocations.
    used_rates: Vec<f64>,
    own_rates: Vec<f64>,
    remaining_by_side: Vec<f64>,
}

/// The open segment: the explanation from the last schedule on, closed at the next one.
struct OpenSegment {
    state: ProgressState,
    queue: usize,
    order_criterion: OrderCriterion,
    rule: Rule,
    cause: SlowdownCause,
    holders: Vec<HolderRate>,
}

/// A coflow that uses the limiting port, and its rate there.
struct HolderRate {
    coflow: u64,
    queue: usize,
    order_criterion: OrderCriterion,
    rate: f64,
}

impl Explainer {
    /// Follows the coflow at `index` of `workload`.
    ///
    /// # Panics
    /// If `index` is out of range.
    pub fn new(workload: &Workload, index: usize, options: &ReplayOptions) -> Explainer {
        let spec = &workload.coflows[index];
        let sizes: Vec<f64> = spec.flows.iter().map(|f| f.bytes.get()).collect();
        let restarts = workload.events.iter().filter_map(|event| match event.change {
            WorkloadChange::RestartFlow { coflow, flow } if coflow == index => Some((event.time.get(), flow)),
            _ => None,
        });
        let sides = 2 * workload.ports as usize;
        let alone_seconds = lower_bound::alone_seconds(spec, workload.ports, options.port_rate);
        Explainer {
            index,
            port_rate: options.port_rate.get(),
            remaining_bytes: sizes.clone(),
            sizes,
            restarts: restarts.collect(),
            next_restart: 0,
            port_count: workload.ports as usize,
            flow_ports: Vec::new(),
            alone_remaining_seconds: alone_seconds,
            alone_seconds,
            slot: None,
            last_time: 0.0,
            rates: Vec::new(),
            open_segment: None,
            lost_bytes: 0.0,
            segments: Vec::new(),
            outcome: None,
            used_rates: vec![0.0; sides],
            own_rates: vec![0.0; sides],
            remaining_by_side: vec![0.0; sides],
        }
    }

    /// The explanation; `None` if the coflow did not complete in the replay.
    pub fn finish(self) -> Option<Explanation> {
        Some(Explanation {
            outcome: self.outcome?,
            alone_seconds: self.alone_seconds,
            lost_bytes: self.lost_bytes,
            segments: self.segments,
        })
    }

    /// Moves bytes at the present rates until `now`, and records a segment. `is_completed` returns whether a flow has
    /// completed by then.
    fn advance(&mut self, now: f64, is_completed: impl Fn(u32) -> bool) {
        // By rounding, a schedule can be slightly before the release that caused it.
        let now = now.max(self.last_time);
        let time = now - self.last_time;
        let (mut bytes, mut any_completed) = (0.0, false);
        for &(flow, original, rate) in &self.rates {
            let left = &mut self.remaining_bytes[original];
            let completed = is_completed(flow);
            let moved = if completed { *left } else { left.min(rate * time) };
            *left -= moved;
            bytes += moved;
            any_completed |= completed;
            let (src, dst) = self.flow_ports[original];
            self.remaining_by_side[src as usize] -= moved;
            self.remaining_by_side[self.port_count + dst as usize] -= moved;
        }
        if any_completed {
            // Differences leave rounding errors; ports without remaining bytes must have a load of exactly 0.
            self.sum_loads();
        }
        let previous_seconds = self.alone_remaining_seconds;
        self.alone_remaining_seconds = self.compute_alone_seconds();
        if let Some(open) = self.open_segment.take() {
            self.record_segment(now, bytes, previous_seconds - self.alone_remaining_seconds, &open);
        }
        self.last_time = now;
    }

    /// Seconds that the remaining bytes take alone.
    fn compute_alone_seconds(&self) -> f64 {
        self.remaining_by_side.iter().copied().fold(0.0, f64::max) / self.port_rate
    }

    /// Computes the remaining bytes of each side of a port.
    fn sum_loads(&mut self) {
        self.remaining_by_side.fill(0.0);
        for (&left, &(src, dst)) in self.remaining_bytes.iter().zip(&self.flow_ports) {
            self.remaining_by_side[src as usize] += left;
            self.remaining_by_side[self.port_count + dst as usize] += left;
        }
    }

    fn record_segment(&mut self, end: f64, bytes: f64, alone_seconds: f64, open: &OpenSegment) {
        let start = self.last_time;
        let lost_seconds = (end - start - alone_seconds).max(0.0);
        let total_rate: f64 = open.holders.iter().map(|h| h.rate).sum();
        let holders = open.holders.iter().map(|&HolderRate { coflow, queue, order_criterion, rate }| {
            Holder {
                coflow,
                queue,
                order_criterion,
                // An integral over time until the segment is closed.
                rate_share: rate / self.port_rate * (end - start),
                lost_seconds: lost_seconds * rate / total_rate,
            }
        });
        match self.segments.last_mut() {
            Some(last) if is_continuation(last, open) => {
                last.end = end;
                last.bytes += bytes;
                last.alone_seconds += alone_seconds;
                last.order_criterion = open.order_criterion;
                for holder in holders {
                    match last.holders.iter_mut().find(|h| h.coflow == holder.coflow) {
                        Some(existing) => {
                            (existing.queue, existing.order_criterion) =
                                (holder.queue, holder.order_criterion);
                            existing.rate_share += holder.rate_share;
                            existing.lost_seconds += holder.lost_seconds;
                        }
                        None => last.holders.push(holder),
                    }
                }
            }
            _ if end <= start && bytes == 0.0 => {}
            _ => {
                let OpenSegment { state, queue, order_criterion, rule, cause, .. } = *open;
                let holders = holders.collect();
                self.close_segment();
                self.segments.push(Segment {
                    start,
                    end,
                    bytes,
                    alone_seconds,
                    state,
                    queue,
                    order_criterion,
                    rule,
                    cause,
                    holders,
                });
            }
        }
    }

    /// Converts the integrals of the last segment to means.
    fn close_segment(&mut self) {
        if let Some(last) = self.segments.last_mut() {
            let time = last.duration_seconds();
            for holder in &mut last.holders {
                holder.rate_share = if time > 0.0 { holder.rate_share / time } else { 0.0 };
            }
            last.holders.sort_by(|a, b| b.rate_share.total_cmp(&a.rate_share));
        }
    }

    /// Resets the progress of flows that restarted until `now`.
    fn apply_restarts(&mut self, now: f64) {
        while let Some(&(at, flow)) = self.restarts.get(self.next_restart) {
            if at > now {
                return;
            }
            self.next_restart += 1;
            // A completed flow stays completed.
            if self.remaining_bytes[flow] > 0.0 {
                self.lost_bytes += self.sizes[flow] - self.remaining_bytes[flow];
                self.remaining_bytes[flow] = self.sizes[flow];
                self.sum_loads();
                self.alone_remaining_seconds = self.compute_alone_seconds();
            }
        }
    }

    /// Determines the explanation from this schedule on.
    fn explain_schedule(&mut self, snapshot: &Snapshot<'_>, slot: Slot) {
        let coflow = snapshot.coflow(slot);
        self.rates.clear();
        self.own_rates.fill(0.0);
        for flow in coflow.live_flows() {
            let rate = snapshot.rate(slot, flow);
            if rate > 0.0 {
                let (src, dst) = coflow.flow_ports(flow);
                self.own_rates[src as usize] += rate;
                self.own_rates[self.port_count + dst as usize] += rate;
                self.rates.push((flow, coflow.spec_index(flow) as usize, rate));
            }
        }
        // Of several bottlenecks, the slowest.
        let max_load = self.remaining_by_side.iter().copied().fold(0.0, f64::max);
        let bottleneck = (0..self.remaining_by_side.len())
            .filter(|&side| self.remaining_by_side[side] >= max_load * (1.0 - 1e-9))
            .min_by(|&a, &b| self.own_rates[a].total_cmp(&self.own_rates[b]));
        let pace = bottleneck.map_or(0.0, |side| self.own_rates[side] / self.port_rate);
        let state = match pace {
            _ if self.rates.is_empty() => ProgressState::Waiting,
            pace if pace < MIN_FULL_PACE => ProgressState::Slowed,
            _ => ProgressState::FullPace,
        };
        let mut holders = Vec::new();
        let has_live_flows = |side: usize| match side < self.port_count {
            true => coflow.sending_ports().contains(side),
            false => coflow.receiving_ports().contains(side - self.port_count),
        };
        let cause = if state == ProgressState::FullPace {
            SlowdownCause::None
        } else if !bottleneck.is_some_and(has_live_flows) {
            // No other coflow limits it.
            SlowdownCause::NoData
        } else {
            self.find_limiting_port(snapshot, slot, bottleneck, &mut holders)
        };
        self.open_segment = Some(OpenSegment {
            state,
            queue: snapshot.allocation().class(slot),
            order_criterion: snapshot.allocation().order_criterion(slot),
            rule: snapshot.allocation().rule(slot),
            cause,
            holders,
        });
    }

    /// Determines the limiting port and the coflows that use it.
    fn find_limiting_port(
        &mut self,
        snapshot: &Snapshot<'_>,
        slot: Slot,
        bottleneck: Option<usize>,
        holders: &mut Vec<HolderRate>,
    ) -> SlowdownCause {
        let mut used = std::mem::take(&mut self.used_rates);
        used.fill(0.0);
        let coflow = snapshot.coflow(slot);
        visit_rates(
            snapshot,
            |_, _| true,
            |_, port, is_sending, rate| {
                used[if is_sending { port as usize } else { self.port_count + port as usize }] += rate;
            },
        );
        let capacities =
            snapshot.fabric().send_capacities().iter().chain(snapshot.fabric().recv_capacities());
        let negligible_rate = NEGLIGIBLE_FRACTION * self.port_rate;
        let mut worst: Option<(f64, f64, usize, bool)> = None;
        for (side, &capacity) in capacities.enumerate() {
            if self.remaining_by_side[side] == 0.0 || capacity - used[side] > negligible_rate {
                continue;
            }
            let others = used[side] - self.own_rates[side];
            let is_contended = others > negligible_rate;
            if !is_contended && capacity >= self.port_rate - negligible_rate {
                // The coflow has this port to itself, so another port limits it.
                continue;
            }
            let available_rate = capacity - others;
            let seconds = if available_rate > negligible_rate {
                self.remaining_by_side[side] / available_rate
            } else {
                f64::INFINITY
            };
            if Some(side) == bottleneck {
                worst = Some((seconds, self.remaining_by_side[side], side, is_contended));
                break;
            }
            if worst.is_none_or(|(most, load, ..)| (seconds, self.remaining_by_side[side]) > (most, load)) {
                worst = Some((seconds, self.remaining_by_side[side], side, is_contended));
            }
        }
        self.used_rates = used;
        let Some((_, _, side, is_contended)) = worst else { return SlowdownCause::Policy };
        let (port, is_sending) = (side % self.port_count, side < self.port_count);
        let directed_port = DirectedPort { port: snapshot.workload_port(port as u32), is_sending };
        if !is_contended {
            return SlowdownCause::SlowPort(directed_port);
        }
        let mut rates: BTreeMap<Slot, f64> = BTreeMap::new();
        let uses_port = |other: &Coflow| {
            let mask = if is_sending { other.sending_ports() } else { other.receiving_ports() };
            other.workload_index != coflow.workload_index && mask.contains(port)
        };
        visit_rates(
            snapshot,
            |_, other| uses_port(other),
            |other, at, sending, rate| {
                if (at as usize, sending) == (port, is_sending) {
                    *rates.entry(other).or_default() += rate;
                }
            },
        );
        let allocation = snapshot.allocation();
        holders.extend(rates.into_iter().filter(|(_, rate)| *rate > negligible_rate).map(|(other, rate)| {
            HolderRate {
                coflow: snapshot.coflow(other).id,
                queue: allocation.class(other),
                order_criterion: allocation.order_criterion(other),
                rate,
            }
        }));
        holders.sort_by(|a, b| b.rate.total_cmp(&a.rate).then(a.coflow.cmp(&b.coflow)));
        SlowdownCause::ContendedPort(directed_port)
    }
}

/// Whether an explanation equals that of a segment. Of the holders, only the first one is compared.
fn is_continuation(segment: &Segment, open: &OpenSegment) -> bool {
    (segment.state, segment.queue, segment.rule, segment.cause)
        == (open.state, open.queue, open.rule, open.cause)
        && (segment.order_criterion == OrderCriterion::DeadlineExpired)
            == (open.order_criterion == OrderCriterion::DeadlineExpired)
        && segment.holders.first().map(|h| h.coflow) == open.holders.first().map(|h| h.coflow)
}

/// Calls `visit` with slot, port, whether it is the sending side, and rate, for everything that the coflows for which
/// `is_included` returns true send and receive. Coflows whose flows all have one rate need no visit of single flows.
fn visit_rates(
    snapshot: &Snapshot<'_>,
    is_included: impl Fn(Slot, &Coflow) -> bool,
    mut visit: impl FnMut(Slot, u32, bool, f64),
) {
    let allocation = snapshot.allocation();
    let has_flow_rates = |slot| {
        allocation.queue_discipline().is_some()
            || matches!(allocation.common(slot), CommonRate::CompleteTogether(_))
    };
    for &slot in snapshot.active() {
        let coflow = snapshot.coflow(slot);
        if !is_included(slot, coflow) {
            continue;
        }
        if has_flow_rates(slot) {
            for flow in coflow.live_flows() {
                let rate = snapshot.rate(slot, flow);
                if rate > 0.0 {
                    let (src, dst) = coflow.flow_ports(flow);
                    visit(slot, src, true, rate);
                    visit(slot, dst, false, rate);
                }
            }
        } else if let CommonRate::Equal(rate) = allocation.common(slot) {
            for (loads, sends) in [(coflow.senders(), true), (coflow.receivers(), false)] {
                for load in loads.iter().filter(|load| load.live_flow_count > 0) {
                    visit(slot, load.link, sends, rate * f64::from(load.live_flow_count));
                }
            }
        }
    }
    for flow_rate in allocation.flow_rates() {
        let coflow = snapshot.coflow(flow_rate.slot);
        if !has_flow_rates(flow_rate.slot) && is_included(flow_rate.slot, coflow) {
            let (src, dst) = coflow.flow_ports(flow_rate.flow);
            visit(flow_rate.slot, src, true, flow_rate.rate);
            visit(flow_rate.slot, dst, false, flow_rate.rate);
        }
    }
}

impl Observer for Explainer {
    fn on_schedule(&mut self, snapshot: &Snapshot<'_>) -> bool {
        if self.outcome.is_some() {
            return true;
        }
        if self.slot.is_none() {
            let is_explained = |slot: &Slot| snapshot.coflow(*slot).workload_index == self.index;
            let Some(slot) = snapshot.active().iter().copied().find(is_explained) else { return true };
            self.slot = Some(slot);
            let coflow = snapshot.coflow(slot);
            self.last_time = coflow.released_at;
            self.flow_ports = vec![(0, 0); self.sizes.len()];
            for flow in 0..coflow.width() as u32 {
                self.flow_ports[coflow.spec_index(flow) as usize] = coflow.flow_ports(flow);
            }
            self.sum_loads();
            // Events before its release had no effect on it.
            self.next_restart = self.restarts.iter().take_while(|(at, _)| *at <= self.last_time).count();
            self.open_segment = Some(OpenSegment {
                state: ProgressState::Waiting,
                queue: snapshot.allocation().class(slot),
                order_criterion: snapshot.allocation().order_criterion(slot),
                rule: snapshot.allocation().rule(slot),
                cause: SlowdownCause::NextSchedule,
                holders: Vec::new(),
            });
        }
        let Some(slot) = self.slot else { return true };
        let coflow = snapshot.coflow(slot);
        self.advance(snapshot.now(), |flow| coflow.flow_state(flow) == FlowState::Completed);
        self.apply_restarts(snapshot.now());
        self.explain_schedule(snapshot, slot);
        true
    }

    fn on_coflow_completed(&mut self, outcome: &CoflowOutcome) {
        if outcome.index != self.index {
            return;
        }
        if self.slot.is_none() {
            // It completed without any schedule, because it has no bytes.
            self.last_time = outcome.released_at;
            self.open_segment = Some(OpenSegment {
                state: ProgressState::Waiting,
                queue: 0,
                order_criterion: OrderCriterion::Constant,
                rule: Rule::Unexplained,
                cause: SlowdownCause::NoData,
                holders: Vec::new(),
            });
        }
        self.advance(outcome.end, |_| true);
        self.close_segment();
        self.outcome = Some(outcome.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::replay;
    use weir_core::model::{CoflowSpec, FlowSpec, PortSide, ServiceNames, TimedEvent};
    use weir_core::policy::{self, POLICIES};
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
        let options = ReplayOptions {
            port_rate: rate,
            interval: time(interval),
            keep_flow_ends: false,
            network: crate::NetworkModel::default(),
        };
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
        assert_eq!(first.start, found.outcome.released_at);
        assert_eq!(last.end, found.outcome.end);
        assert!(found.segments.windows(2).all(|pair| pair[0].end == pair[1].start));
        let bytes: f64 = found.segments.iter().map(|s| s.bytes).sum();
        let expected = found.outcome.bytes + found.lost_bytes;
        assert!((bytes - expected).abs() <= 1e-9 * expected.max(1.0), "{bytes} of {expected}");
        let states = [ProgressState::Waiting, ProgressState::Slowed, ProgressState::FullPace];
        let times: f64 = states.into_iter().map(|state| found.seconds_in_state(state)).sum();
        assert!((times - found.outcome.cct()).abs() <= 1e-9 * times.max(1.0));
        let (cct, lost): (f64, f64) =
            (found.outcome.cct(), found.segments.iter().map(Segment::lost_seconds).sum());
        let accounted = found.alone_seconds + lost - cct;
        // Repeating lost progress costs additional time.
        assert!(accounted.abs() <= 1e-9 * cct || (found.lost_bytes > 0.0 && accounted < 0.0), "{accounted}");
        for segment in &found.segments {
            assert!(segment.state != ProgressState::Waiting || segment.bytes == 0.0);
            let lost: f64 = segment.holders.iter().map(|h| h.lost_seconds).sum();
            assert!(
                segment.holders.is_empty()
                    || (lost - segment.lost_seconds()).abs() < 1e-9 * segment.duration_seconds().max(1.0),
                "{lost} of {}: {segment:?}",
                segment.lost_seconds()
            );
        }
    }

    /// A workload with contending coflows and all kinds of events.
    fn contended_workload() -> Workload {
        let mut state = 7_u64;
        let mut random_below = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut coflows = Vec::new();
        for id in 0..30 {
            let width = 1 + random_below(8);
            let flows: Vec<(u32, u32, f64)> = (0..width)
                .map(|_| (random_below(5) as u32, random_below(5) as u32, random_below(20) as f64))
                .collect();
            coflows.push(coflow(id, random_below(60) as f64, &flows));
        }
        coflows[3].flows[0].data_delay = time(2.5);
        coflows[9].parents = vec![2, 3];
        let rate = |at, factor| TimedEvent {
            time: time(at),
            change: WorkloadChange::PortRate { port: 1, side: PortSide::Both, factor },
        };
        let mut events = vec![rate(10.3, 0.5), rate(40.1, 0.0), rate(50.0, 1.0)];
        for tenth in 1..200 {
            let coflow = random_below(30) as usize;
            let flow = random_below(coflows[coflow].flows.len() as u64) as usize;
            let what = WorkloadChange::RestartFlow { coflow, flow };
            events.push(TimedEvent { time: time(f64::from(tenth) * 0.9), change: what });
        }
        events.sort_by(|a, b| a.time.get().total_cmp(&b.time.get()));
        Workload { ports: 5, coflows, events, names: ServiceNames::default() }
    }

    #[test]
    fn segments_add_up_to_the_coflow_under_every_policy() {
        let workload = contended_workload();
        for entry in POLICIES {
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
            names: ServiceNames::default(),
        };
        let found = explain(&workload, "saath", 0, 0.0);
        assert_eq!((found.alone_seconds, found.outcome.cct()), (3.0, 3.0));
        assert_eq!(found.segments.len(), 1);
        assert_eq!(
            (found.segments[0].state, found.segments[0].cause),
            (ProgressState::FullPace, SlowdownCause::None)
        );
        assert!(found.lost_seconds_by_cause().is_empty() && found.lost_seconds_by_coflow().is_empty());
    }

    #[test]
    fn names_limiting_port_and_holders() {
        let coflows = vec![coflow(7, 0.0, &[(0, 1, 2.0)]), coflow(8, 0.5, &[(0, 2, 3.0)])];
        let workload = Workload { ports: 3, coflows, events: Vec::new(), names: ServiceNames::default() };
        let found = explain(&workload, "fifo", 1, 0.0);
        let port = DirectedPort { port: 0, is_sending: true };
        let wait = &found.segments[0];
        assert_eq!((wait.start, wait.end, wait.state), (0.5, 2.0, ProgressState::Waiting));
        assert_eq!(wait.cause, SlowdownCause::ContendedPort(port));
        assert_eq!((wait.holders[0].coflow, wait.holders[0].rate_share), (7, 1.0));
        assert_eq!(found.lost_seconds_by_cause(), [(SlowdownCause::ContendedPort(port), 1.5)]);
        assert_eq!(found.lost_seconds_by_coflow(), [(7, 1.5)]);
        assert_eq!(found.seconds_in_state(ProgressState::FullPace), 3.0);
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
        let workload = Workload { ports: 6, coflows, events: Vec::new(), names: ServiceNames::default() };
        let found = explain(&workload, "saath:start=4B:d=1.5", 0, 0.0);
        let standings: Vec<OrderCriterion> = found.segments.iter().map(|s| s.order_criterion).collect();
        let (last, before) = standings.split_last().unwrap();
        assert!(before.iter().all(|standing| *standing == OrderCriterion::Contention(2)), "{standings:?}");
        assert_eq!(*last, OrderCriterion::DeadlineExpired);
        assert_eq!((found.segments.last().unwrap().start, found.outcome.end), (6.0, 7.0));
        assert_eq!(found.segments[0].holders[0].order_criterion, OrderCriterion::Contention(1));
    }

    #[test]
    fn names_a_slow_port_and_the_wait_for_a_schedule() {
        let mut workload = Workload {
            ports: 2,
            coflows: vec![coflow(1, 0.25, &[(0, 1, 3.0)])],
            events: Vec::new(),
            names: ServiceNames::default(),
        };
        let what = WorkloadChange::PortRate { port: 1, side: PortSide::Receive, factor: 0.5 };
        workload.events.push(TimedEvent { time: time(0.0), change: what });
        let found = explain(&workload, "saath", 0, 1.0);
        let causes: Vec<SlowdownCause> = found.segments.iter().map(|s| s.cause).collect();
        let port = DirectedPort { port: 1, is_sending: false };
        assert_eq!(causes, [SlowdownCause::NextSchedule, SlowdownCause::SlowPort(port)]);
        assert_eq!(found.segments[1].pace(), 0.5);
        assert_eq!(
            found.lost_seconds_by_cause(),
            [(SlowdownCause::SlowPort(port), 3.0), (SlowdownCause::NextSchedule, 0.75)]
        );
    }

    #[test]
    fn names_missing_data_at_the_bottleneck() {
        let mut late = coflow(1, 0.0, &[(0, 1, 1.0), (2, 3, 4.0)]);
        late.flows[1].data_delay = time(5.0);
        // Another coflow uses the first flow's port meanwhile, which has no effect.
        let coflows = vec![late, coflow(2, 0.0, &[(0, 4, 2.0)])];
        let workload = Workload { ports: 5, coflows, events: Vec::new(), names: ServiceNames::default() };
        for policy in ["fair", "saath", "varys", "aalo"] {
            let found = explain(&workload, policy, 0, 0.0);
            check_sums(&found);
            assert_eq!(found.lost_seconds_by_cause(), [(SlowdownCause::NoData, 5.0)], "{policy}");
            assert!(found.lost_seconds_by_coflow().is_empty(), "{policy}");
        }
    }

    #[test]
    fn coflow_without_bytes_has_no_segments() {
        let workload = Workload {
            ports: 2,
            coflows: vec![coflow(1, 2.0, &[(0, 1, 0.0)])],
            events: Vec::new(),
            names: ServiceNames::default(),
        };
        let found = explain(&workload, "saath", 0, 0.008);
        assert!(found.segments.is_empty());
        assert_eq!((found.alone_seconds, found.outcome.cct()), (0.0, 0.0));
    }
}
