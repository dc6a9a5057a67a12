//! Explains the completion time of one coflow.
//!
//! An [`Explainer`] observes a replay and follows one coflow. From release to completion it records the coflow's queue, the
//! rule that served it, and its *pace*. Where the pace is below that of the coflow alone, it also records the link that
//! limits the coflow and the coflows that use that link. Links are the sides of ports, and links between switches or regions.
//!
//! Alone on links with their nominal capacity, the remaining bytes of a coflow take the time of its *bottleneck*: the link
//! that needs the longest time for the bytes left to move. The *pace* is the rate at which that time shrinks. 1 is as fast as
//! alone; 0 is no progress towards the end, even if flows move that do not use the bottleneck. A coflow's CCT is therefore the
//! time that it takes alone, plus the time lost at a pace below 1, plus the time to repeat lost bytes if flows restarted. A
//! coflow is *waiting* while none of its flows moves, and *slowed* while its pace is below 1. Where the capacity of a link
//! exceeds the nominal one, as between regions, a pace can be above 1 and makes up for lost time.
//!
//! The limiting link is a link of the coflow without residual capacity that other coflows use, or whose rate is reduced:
//!
//! 1. The bottleneck, if it is such a link.
//! 2. Otherwise the one at which the remaining bytes take longest with the capacity that other coflows do not use. Ties
//!    go to the link with the most bytes left to move.
//!
//! No link limits the coflow if all its flows at the bottleneck wait for data, or if the policy does not assign residual
//! capacity.
//!
//! # Division of lost time
//!
//! One rule for all policies divides the time that a segment loses, in this order:
//!
//! 1. *Slow link*: alone on links with their present capacities, the coflow would have needed this time in addition to the time on
//!    nominal capacities. The slow link is the one at which the remaining bytes take longest at present.
//! 2. *Other coflows*: each coflow on the limiting link loses the explained one the time that the bytes which it sent there take at
//!    the link's present capacity.
//! 3. *Next schedule*: the time until the first schedule in which hosts do not serve the coflow, and the time that the limiting link was
//!    idle because flows of other coflows had ended.
//! 4. *Policy*: the time that the explained coflow loses although neither a slow link nor other coflows use it.
//!
//! The rest is lost because the bottleneck became another link between two schedules. No coflow is charged more time on a link than
//! its bytes take alone there.

mod collision;
mod limit;
mod link;
mod open_segment;
mod report;
#[cfg(test)]
mod tests;
mod timeline;

pub use collision::PathCollision;
pub use link::Link;
pub use report::{Explanation, Holder, ProgressState, Segment, SlowdownCause};
pub use timeline::{TimelineEntry, build_timeline};

use std::mem::discriminant;

use weir_core::allocation::{OrderCriterion, Rule};
use weir_core::model::{Coflow, FlowState, LinkKind, Slot, WorkloadChange};
use weir_core::ordered_f64::OrderedF64;
use weir_core::rounding;
use weir_core::units::Time;

use crate::outcome::CoflowOutcome;
use crate::replay::{Observer, Snapshot};
use collision::RoutedFlow;
use limit::{CoflowLoads, FlowsByLink, NEGLIGIBLE_FRACTION};
use open_segment::{OpenSegment, Progress};

/// Follows one coflow through a replay.
pub struct Explainer {
    index: usize,
    /// The size and the remaining bytes of each flow, in the order of the specification.
    sizes: Vec<f64>,
    remaining_bytes: Vec<f64>,
    /// The links of each flow, and its number in the network, in the same order; empty before the first schedule after the
    /// release.
    flow_links: Vec<Vec<usize>>,
    flow_numbers: Vec<u32>,
    /// Seconds that the remaining bytes take alone on nominal capacities, and on those since the last schedule.
    alone_remaining_seconds: f64,
    present_remaining_seconds: f64,
    /// The times and flows of restarts; those from index `next_restart` on are in the future.
    restarts: Vec<(f64, usize)>,
    next_restart: usize,
    alone_seconds: f64,
    collision: Option<PathCollision>,
    slot: Option<Slot>,
    last_time: f64,
    /// Flows with rates since `last_time`: index in the specification, rate.
    rates: Vec<(usize, f64)>,
    open_segment: Option<OpenSegment>,
    /// Whether the coordinator has decided since the release.
    is_scheduled: bool,
    lost_bytes: f64,
    segments: Vec<Segment>,
    outcome: Option<CoflowOutcome>,
    /// By link, in the numbering of the fabric: nominal rate, capacity since the last schedule, the coflow's rate, and its remaining
    /// bytes.
    nominal_rates: Vec<f64>,
    capacities: Vec<f64>,
    own_rates: Vec<f64>,
    remaining_by_link: Vec<f64>,
    /// Of the coflows that use limiting links.
    flows_by_link: FlowsByLink,
}

impl Explainer {
    /// Follows the coflow at `index` of the workload.
    pub fn new(index: usize) -> Explainer {
        Explainer {
            index,
            sizes: Vec::new(),
            remaining_bytes: Vec::new(),
            flow_links: Vec::new(),
            flow_numbers: Vec::new(),
            alone_remaining_seconds: 0.0,
            present_remaining_seconds: 0.0,
            restarts: Vec::new(),
            next_restart: 0,
            alone_seconds: 0.0,
            collision: None,
            slot: None,
            last_time: 0.0,
            rates: Vec::new(),
            open_segment: None,
            is_scheduled: false,
            lost_bytes: 0.0,
            segments: Vec::new(),
            outcome: None,
            nominal_rates: Vec::new(),
            capacities: Vec::new(),
            own_rates: Vec::new(),
            remaining_by_link: Vec::new(),
            flows_by_link: FlowsByLink::default(),
        }
    }

    /// Notes the coflow's flows at the first schedule after its release.
    fn begin(&mut self, snapshot: &Snapshot<'_>, slot: Slot) {
        let coflow = snapshot.coflow(slot);
        let workload = snapshot.workload();
        self.slot = Some(slot);
        self.last_time = coflow.released_at;
        self.sizes = workload.coflows[self.index].flows.iter().map(|flow| flow.bytes.get()).collect();
        self.remaining_bytes.clone_from(&self.sizes);
        self.nominal_rates = snapshot.nominal_rates().to_vec();
        self.capacities.clone_from(&self.nominal_rates);
        self.own_rates = vec![0.0; self.nominal_rates.len()];
        self.remaining_by_link = vec![0.0; self.nominal_rates.len()];
        let restarts = workload.events.iter().filter_map(|event| match event.change {
            WorkloadChange::RestartFlow { coflow, flow } if coflow == self.index => {
                Some((event.time.get(), flow))
            }
            _ => None,
        });
        // Events before its release had no effect on it.
        self.restarts = restarts.filter(|(at, _)| *at > self.last_time).collect();
        self.note_numbers(coflow);
        for (left, &flow) in self.remaining_bytes.iter_mut().zip(&self.flow_numbers) {
            // A flow inside a region takes no time.
            if coflow.flow_state(flow) == FlowState::Completed {
                *left = 0.0;
            }
        }
        self.note_links(snapshot, slot);
        let limit = workload.coflows[self.index].max_transfer_time.map_or(f64::INFINITY, Time::get);
        self.alone_seconds = self.alone_remaining_seconds.min(limit);
        self.collision = self.find_collision(snapshot, slot);
        let allocation = snapshot.allocation();
        self.open_segment = Some(OpenSegment::waiting(
            allocation.class(slot),
            allocation.order_criterion(slot),
            allocation.rule(slot),
            SlowdownCause::NextSchedule,
        ));
    }

    /// The collision of the flows on the paths that they have at the release.
    fn find_collision(&self, snapshot: &Snapshot<'_>, slot: Slot) -> Option<PathCollision> {
        let flows = self.flow_links.iter().zip(&self.flow_numbers).zip(&self.remaining_bytes);
        let flows = flows.map(|((links, &number), &bytes)| RoutedFlow { number, bytes, links });
        collision::find_collision(snapshot, slot, &flows.collect::<Vec<_>>())
    }

    /// Notes the numbers of the flows, which change when cables fail.
    fn note_numbers(&mut self, coflow: &Coflow) {
        self.flow_numbers.resize(coflow.width(), 0);
        for flow in 0..coflow.width() as u32 {
            self.flow_numbers[coflow.spec_index(flow) as usize] = flow;
        }
    }

    /// Notes the links of the flows, which change when cables fail, and their loads. A flow that loses its path keeps the links of that
    /// path too: alone, it would have it.
    fn note_links(&mut self, snapshot: &Snapshot<'_>, slot: Slot) {
        self.flow_links.resize(self.flow_numbers.len(), Vec::new());
        for (links, &flow) in self.flow_links.iter_mut().zip(&self.flow_numbers) {
            let is_dead_end = |link: &usize| self.nominal_rates[*link] == 0.0;
            match snapshot.flow_links(slot, flow).find(is_dead_end) {
                Some(dead_end) if !links.is_empty() => {
                    if !links.contains(&dead_end) {
                        links.push(dead_end);
                    }
                }
                _ => {
                    links.clear();
                    links.extend(snapshot.flow_links(slot, flow));
                }
            }
        }
        self.sum_loads();
        self.alone_remaining_seconds = self.compute_alone_seconds();
    }

    /// The explanation; `None` if the coflow did not complete in the replay.
    pub fn finish(mut self) -> Option<Explanation> {
        // The bottleneck can become another link between two schedules, which changes the pace.
        self.segments.iter_mut().for_each(Segment::set_state_by_pace);
        Some(Explanation {
            outcome: self.outcome?,
            alone_seconds: self.alone_seconds,
            collision: self.collision,
            lost_bytes: self.lost_bytes,
            segments: self.segments,
        })
    }

    /// Moves bytes at the present rates until `now`, and records a segment. `is_completed` returns whether a flow has
    /// completed by then.
    fn advance(&mut self, now: f64, is_completed: impl Fn(usize) -> bool) {
        // By rounding, a schedule can be slightly before the release that caused it.
        let now = now.max(self.last_time);
        let time = now - self.last_time;
        let (mut bytes, mut any_completed) = (0.0, false);
        for &(original, rate) in &self.rates {
            let left = &mut self.remaining_bytes[original];
            let completed = is_completed(original);
            let moved = if completed { *left } else { left.min(rate * time) };
            *left -= moved;
            bytes += moved;
            any_completed |= completed;
            for &link in &self.flow_links[original] {
                self.remaining_by_link[link] -= moved;
            }
        }
        if any_completed {
            // Differences leave rounding errors; links without remaining bytes must have a load of exactly 0.
            self.sum_loads();
        }
        let (alone_before, present_before) = (self.alone_remaining_seconds, self.present_remaining_seconds);
        self.alone_remaining_seconds = self.compute_alone_seconds();
        self.present_remaining_seconds = self.compute_present_seconds();
        if let Some(open) = self.open_segment.take() {
            let alone_seconds = alone_before - self.alone_remaining_seconds;
            // On a link without capacity, the coflow alone would not end either.
            let present_seconds = match present_before {
                f64::INFINITY => time,
                before => before - self.present_remaining_seconds,
            };
            self.record_segment(now, &Progress { bytes, alone_seconds, present_seconds }, &open);
        }
        self.last_time = now;
    }

    /// Seconds that the remaining bytes of a link take alone on its nominal capacity. None on the link that flows without a path cross:
    /// alone, they have a path.
    fn alone_seconds_at(&self, link: usize) -> f64 {
        let nominal_rate = self.nominal_rates[link];
        if nominal_rate > 0.0 { self.remaining_by_link[link] / nominal_rate } else { 0.0 }
    }

    /// Seconds that the remaining bytes of a link take alone on its capacity since the last schedule.
    fn present_seconds_at(&self, link: usize) -> f64 {
        self.remaining_by_link[link] / self.capacities[link]
    }

    fn compute_alone_seconds(&self) -> f64 {
        self.loaded_links().map(|link| self.alone_seconds_at(link)).fold(0.0, f64::max)
    }

    fn compute_present_seconds(&self) -> f64 {
        self.loaded_links().map(|link| self.present_seconds_at(link)).fold(0.0, f64::max)
    }

    /// The links with remaining bytes.
    fn loaded_links(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.remaining_by_link.len()).filter(|&link| self.remaining_by_link[link] > 0.0)
    }

    /// Computes the remaining bytes of each link.
    fn sum_loads(&mut self) {
        self.remaining_by_link.fill(0.0);
        for (&left, links) in self.remaining_bytes.iter().zip(&self.flow_links) {
            links.iter().for_each(|&link| self.remaining_by_link[link] += left);
        }
    }

    fn record_segment(&mut self, end: f64, progress: &Progress, open: &OpenSegment) {
        let start = self.last_time;
        if end <= start && progress.bytes == 0.0 {
            return;
        }
        let part = open.close(start, end, progress);
        match self.segments.last_mut() {
            Some(last) if is_continuation(last, open) => last.append(part),
            _ => {
                self.close_segment();
                self.segments.push(part);
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

    /// Explains the wait for the first schedule by its decision.
    fn note_first_schedule(&mut self, snapshot: &Snapshot<'_>, slot: Slot) {
        self.is_scheduled = true;
        let allocation = snapshot.allocation();
        for segment in self.segments.iter_mut().filter(|s| s.cause == SlowdownCause::NextSchedule) {
            segment.queue = allocation.class(slot);
            segment.order_criterion = allocation.order_criterion(slot);
            segment.rule = allocation.rule(slot);
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
                let original = coflow.spec_index(flow) as usize;
                self.flow_links[original].iter().for_each(|&link| self.own_rates[link] += rate);
                self.rates.push((original, rate));
            }
        }
        limit::write_present_capacities(snapshot, &mut self.capacities);
        self.flows_by_link.prepare(snapshot);
        self.present_remaining_seconds = self.compute_present_seconds();
        let ports = snapshot.fabric().ports();
        let bottleneck =
            self.find_slowest_link(&self.nominal_rates, ports, |link| self.alone_seconds_at(link));
        let pace = bottleneck.map_or(0.0, |link| self.pace_at(link, &self.nominal_rates));
        let slowest = self.find_slowest_link(&self.capacities, ports, |link| self.present_seconds_at(link));
        let present_pace = slowest.map_or(0.0, |link| self.pace_at(link, &self.capacities));
        let is_slow = |link: &usize| {
            let (capacity, nominal) = (self.capacities[*link], self.nominal_rates[*link]);
            capacity == 0.0 || nominal - capacity > NEGLIGIBLE_FRACTION * nominal
        };
        let slow_link = slowest.filter(is_slow);
        let state = ProgressState::from_pace(pace, !self.rates.is_empty());
        let allocation = snapshot.allocation();
        // Hosts without a decision about the coflow leave it to the coordinator.
        let waits_for_schedule = snapshot.is_between_schedules()
            && coflow.live_count() > 0
            && self.rates.is_empty()
            && allocation.rule(slot) == Rule::Unexplained;
        let (cause, holders) = match (slow_link, bottleneck) {
            _ if state == ProgressState::FullPace => (SlowdownCause::None, Vec::new()),
            _ if waits_for_schedule && !self.is_scheduled => (SlowdownCause::NextSchedule, Vec::new()),
            // As fast as alone on present capacities.
            (Some(link), _) if self.capacities[link] == 0.0 || present_pace > 1.0 - NEGLIGIBLE_FRACTION => {
                (SlowdownCause::SlowLink(limit::name_link(snapshot, link)), Vec::new())
            }
            (_, Some(bottleneck)) if self.has_live_flows(snapshot, slot, bottleneck) => {
                let (remaining_bytes, capacities) = (&self.remaining_by_link[..], &self.capacities[..]);
                let loads = CoflowLoads { slot, remaining_bytes, capacities, bottleneck };
                match limit::find_cause(snapshot, &loads, &mut self.flows_by_link) {
                    (SlowdownCause::Policy, _) if waits_for_schedule => {
                        (SlowdownCause::NextSchedule, Vec::new())
                    }
                    found => found,
                }
            }
            // No other coflow limits it.
            _ => (SlowdownCause::NoData, Vec::new()),
        };
        self.open_segment = Some(OpenSegment {
            state,
            queue: allocation.class(slot),
            order_criterion: allocation.order_criterion(slot),
            rule: allocation.rule(slot),
            cause,
            slow_link: slow_link.map(|link| limit::name_link(snapshot, link)),
            present_pace,
            holders,
        });
    }

    /// Whether a flow with data crosses a link.
    fn has_live_flows(&self, snapshot: &Snapshot<'_>, slot: Slot, link: usize) -> bool {
        let coflow = snapshot.coflow(slot);
        match snapshot.link_kind(link) {
            LinkKind::Sender(_) | LinkKind::Receiver(_) => coflow.live_links().contains(link),
            LinkKind::Trunk(_) => self
                .flow_links
                .iter()
                .zip(&self.flow_numbers)
                .any(|(links, &flow)| coflow.flow_state(flow) == FlowState::Live && links.contains(&link)),
        }
    }

    /// The link whose remaining bytes take most `seconds`; of several, the one where the coflow is slowest relative to `rates`. Of links
    /// without capacity, a port comes first, and then the link that flows without a path cross.
    fn find_slowest_link(
        &self,
        rates: &[f64],
        ports: usize,
        seconds: impl Fn(usize) -> f64 + Copy,
    ) -> Option<usize> {
        let most = self.loaded_links().map(seconds).fold(0.0, f64::max);
        let order = |link: usize| {
            let nominal_rate = if link < 2 * ports { 0.0 } else { self.nominal_rates[link] };
            (OrderedF64(self.pace_at(link, rates)), OrderedF64(nominal_rate))
        };
        self.loaded_links()
            .filter(|&link| seconds(link) > 0.0 && seconds(link) >= most * (1.0 - rounding::DURATION))
            .min_by_key(|&link| order(link))
    }

    /// The coflow's rate on a link relative to `rates`.
    fn pace_at(&self, link: usize, rates: &[f64]) -> f64 {
        if rates[link] > 0.0 { self.own_rates[link] / rates[link] } else { 0.0 }
    }
}

/// Whether an explanation equals that of a segment. Of the holders, only the first one is compared, and of the order criterion its kind.
fn is_continuation(segment: &Segment, open: &OpenSegment) -> bool {
    (segment.state, segment.queue, segment.rule, segment.cause)
        == (open.state, open.queue, open.rule, open.cause)
        && discriminant(&segment.order_criterion) == discriminant(&open.order_criterion)
        && segment.holders.first().map(|h| h.coflow) == open.holders.first().map(|h| h.coflow)
}

impl Observer for Explainer {
    fn on_schedule(&mut self, snapshot: &Snapshot<'_>) -> bool {
        if self.outcome.is_some() {
            return true;
        }
        let slot = match self.slot {
            Some(slot) => slot,
            None => {
                let is_explained = |slot: &Slot| snapshot.coflow(*slot).workload_index == self.index;
                let Some(slot) = snapshot.active().iter().copied().find(is_explained) else { return true };
                self.begin(snapshot, slot);
                slot
            }
        };
        let coflow = snapshot.coflow(slot);
        if snapshot.has_cable_events() {
            self.note_numbers(coflow);
        }
        let numbers = std::mem::take(&mut self.flow_numbers);
        self.advance(snapshot.now(), |original| coflow.flow_state(numbers[original]) == FlowState::Completed);
        self.flow_numbers = numbers;
        if snapshot.has_cable_events() {
            self.note_links(snapshot, slot);
        }
        self.apply_restarts(snapshot.now());
        if !self.is_scheduled && !snapshot.is_between_schedules() {
            self.note_first_schedule(snapshot, slot);
        }
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
            let cause = SlowdownCause::NoData;
            let (criterion, rule) = (OrderCriterion::Constant, Rule::Unexplained);
            self.open_segment = Some(OpenSegment::waiting(0, criterion, rule, cause));
        }
        // Flows that end at a limit have sent less than their sizes.
        self.advance(outcome.end, |_| outcome.dropped_bytes == 0.0);
        self.close_segment();
        self.outcome = Some(outcome.clone());
    }
}
