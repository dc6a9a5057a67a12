//! The event loop: arrivals, completions, events of the workload and of trunks.

use super::{
    CLOCK_TOLERANCE, Coflow, Epoch, FlowPhase, Policy, RATE_TOLERANCE, ReferenceSimulator, UNLIMITED_RATE,
};
use weir_core::model::{PortSide, WorkloadChange};

/// What starts in a step: coflows; flows that take time, after their coflows; and flows of fresh coflows that take no time.
#[derive(Debug, Clone, Copy, Default)]
struct Started {
    coflows: bool,
    flows: bool,
    instant_flows: bool,
}

impl ReferenceSimulator<'_> {
    /// Release time of a coflow; unknown while a parent is active.
    fn release_time(&self, c: usize) -> f64 {
        let parents = &self.coflows[c].parents;
        let ends = parents.iter().map(|&p| self.coflows[p].end.unwrap_or(f64::INFINITY));
        ends.fold(self.coflows[c].arrival, f64::max)
    }

    /// Runs the replay. Returns all completion times, and whether rounding may have decided an order.
    pub(super) fn run(mut self) -> (Vec<f64>, bool) {
        for _ in 0..200_000 {
            if self.coflows.iter().all(|c| c.end.is_some()) {
                return (self.coflows.iter().map(|c| c.end.unwrap() - c.arrival).collect(), self.has_ties);
            }
            let wake = self.clock.next_multiple(self.next_coordinator_decision());
            let event = self.workload.events.get(self.next_event).map_or(f64::INFINITY, |e| e.time.get());
            let epoch = self.epochs.get(self.next_epoch).map_or(f64::INFINITY, |epoch| epoch.time);
            let change = wake.min(event).min(epoch);
            let next = self.next_start_or_completion().min(change).max(self.now);
            assert!(next.is_finite(), "no event after {}", self.now);
            let (completed, hosts_complete) = self.advance(next);
            let started = self.process_events();
            while self.next_epoch < self.epochs.len()
                && self.epochs[self.next_epoch].time <= self.now + self.clock.step_slack()
            {
                self.begin_epoch(self.next_epoch);
                self.next_epoch += 1;
            }
            let by_coordinator = change <= self.now + self.clock.step_slack()
                || self.clock.interval == 0.0
                || self.clock.is_local
                || (started.coflows || started.flows) && self.clock.starts_wait
                || started.flows && self.clock.completions_wait
                || completed && self.clock.completions_wait;
            self.coordinator_is_late = !by_coordinator;
            // Flows that took no time change no rates. The coordinator learns of them with its next schedule.
            let is_served = hosts_complete || started.instant_flows;
            let has_changed = started.coflows || started.flows || completed || is_served;
            if by_coordinator || has_changed || !self.clock.completions_wait {
                self.schedule(by_coordinator);
            }
        }
        panic!("the reference simulator makes no progress after {}", self.now);
    }

    fn next_start_or_completion(&self) -> f64 {
        let mut soon = f64::INFINITY;
        for c in 0..self.coflows.len() {
            let coflow = &self.coflows[c];
            if coflow.end.is_some() {
                continue;
            }
            if coflow.release_number.is_none() {
                soon = soon.min(self.clock.start(self.release_time(c)));
                continue;
            }
            for flow in &coflow.flows {
                soon = match flow.phase {
                    FlowPhase::Live if flow.rate > 0.0 => {
                        let end = self.now + (flow.size - flow.sent_bytes) / flow.rate;
                        soon.min(if self.is_fresh(c) { end } else { self.clock.completion(end) })
                    }
                    FlowPhase::Waiting if !flow.is_blocked => {
                        soon.min(self.clock.flow_start(flow, coflow.arrival))
                    }
                    _ => soon,
                };
            }
        }
        soon
    }

    /// When the coordinator decides if nothing else happens. What hosts did without it, it learns as soon as it can.
    fn next_coordinator_decision(&self) -> f64 {
        let wake = self.next_wakeup();
        match self.coordinator_is_late {
            true => self.now,
            // A threshold that this schedule missed by rounding waits for the next one.
            false if self.clock.next_multiple(wake) <= self.now => {
                self.now + self.clock.interval.max(RATE_TOLERANCE)
            }
            false => wake,
        }
    }

    /// The time at which the policy decides again if nothing else happens.
    fn next_wakeup(&self) -> f64 {
        let active = self.coflows.iter().filter(|c| c.release_number.is_some() && c.end.is_none());
        match &self.policy {
            Policy::Saath(saath) => {
                let expires =
                    |c: &Coflow| if c.deadline_at > self.now { c.deadline_at } else { f64::INFINITY };
                let next = active.map(|c| saath.next_queue_change(c, self.now).min(expires(c)));
                next.fold(f64::INFINITY, f64::min)
            }
            Policy::Aalo(aalo) => {
                let turn_end = self.aalo_turn.end();
                active.map(|c| aalo.next_queue_change(c, self.now)).fold(turn_end, f64::min)
            }
            Policy::Pfp => self.next_overtaking(),
            Policy::Django(_) if self.django.has_changed => self.now,
            Policy::Gittins(_) => self.next_level_time(),
            Policy::Weir(weir) => self.next_weir_wakeup(weir),
            Policy::Varys { .. }
            | Policy::Ordered(_)
            | Policy::Fair
            | Policy::Sincronia
            | Policy::Mrtf { .. }
            | Policy::Philae(_)
            | Policy::Django(_) => f64::INFINITY,
        }
    }

    /// Advances all flows to `next`. Flows that complete earlier keep their own completion time. Returns whether the policy
    /// reacts to one, and whether one is of a fresh coflow.
    fn advance(&mut self, next: f64) -> (bool, bool) {
        let (from, slack) = (self.now, self.clock.step_slack());
        let (mut has_completions, mut hosts_complete) = (false, false);
        for c in 0..self.coflows.len() {
            let is_fresh = self.is_fresh(c);
            let coflow = &mut self.coflows[c];
            let mut ended: Vec<(f64, usize)> = Vec::new();
            for (place, flow) in coflow.flows.iter_mut().enumerate() {
                if flow.phase != FlowPhase::Live {
                    continue;
                }
                let end = from + (flow.size - flow.sent_bytes) / flow.rate;
                if flow.rate > 0.0 && end <= next + slack {
                    (flow.phase, flow.sent_bytes, flow.end, flow.rate) =
                        (FlowPhase::Completed, flow.size, end, 0.0);
                    ended.push((end, place));
                } else {
                    flow.sent_bytes += flow.rate * (next - from);
                }
            }
            hosts_complete |= is_fresh && !ended.is_empty();
            has_completions |= ended.iter().any(|&(end, _)| self.clock.completion(end) <= next + slack);
            coflow.completed_lengths.extend(ended.iter().map(|&(_, place)| coflow.flows[place].size));
        }
        self.now = next;
        self.complete_coflows();
        (has_completions, hosts_complete)
    }

    fn complete_coflows(&mut self) {
        for coflow in self.coflows.iter_mut().filter(|c| c.release_number.is_some() && c.end.is_none()) {
            if coflow.flows.iter().all(|f| f.phase == FlowPhase::Completed) {
                coflow.end = Some(coflow.flows.iter().map(|f| f.end).fold(coflow.arrival, f64::max));
                self.flows_changed = true;
            }
        }
        self.record_coflows();
    }

    /// Changes trunks, and moves incomplete flows to their present paths.
    fn begin_epoch(&mut self, number: usize) {
        let Epoch { capacities, paths, contended_trunks, .. } = &self.epochs[number];
        let ports = self.workload.ports as usize;
        self.links_changed |= self.regions.is_none() || self.links[2 * ports..] != capacities[..];
        self.links.truncate(2 * ports);
        self.links.extend(capacities);
        self.contended_trunks = contended_trunks.clone();
        for (coflow, paths) in self.coflows.iter_mut().zip(paths) {
            let trunks = |i: usize| -> Vec<usize> {
                paths[i].iter().map(|&trunk| 2 * ports + trunk as usize).collect()
            };
            let mut flows = coflow.flows.iter().zip(&coflow.spec_order);
            if !flows.any(|(flow, &i)| flow.phase != FlowPhase::Completed && flow.trunks != trunks(i)) {
                continue;
            }
            coflow.has_moved = true;
            for (flow, &i) in coflow.flows.iter_mut().zip(&coflow.spec_order) {
                flow.trunks = trunks(i);
            }
        }
    }

    /// Applies arrivals, data and events until now.
    fn process_events(&mut self) -> Started {
        let (clock, now) = (self.clock, self.now + self.clock.step_slack());
        let is_due = |at: f64| clock.start(at) <= now;
        let mut started = Started::default();
        loop {
            // Data before events: an event at the same time overrides data arrivals.
            for c in 0..self.coflows.len() {
                let is_fresh = self.is_fresh(c);
                let coflow = &mut self.coflows[c];
                let released_at = coflow.arrival;
                let waiting = coflow.flows.iter_mut().filter(|f| f.phase == FlowPhase::Waiting);
                for flow in waiting.filter(|f| clock.flow_start(f, released_at) <= now) {
                    // Inside a region, a flow takes no time, unless one of its ports is down.
                    let is_up = self.links[flow.src] > 0.0 && self.links[flow.dst] > 0.0;
                    if flow.size > 0.0 && flow.is_local && !is_up {
                        flow.is_blocked = true;
                        continue;
                    }
                    flow.phase = FlowPhase::Live;
                    let is_late = flow.available_at > released_at;
                    if flow.takes_no_time() {
                        started.instant_flows |= is_late && is_fresh;
                        let at = if flow.is_blocked { self.now } else { flow.available_at };
                        (flow.phase, flow.end) = (FlowPhase::Completed, at);
                        flow.sent_bytes = flow.size;
                        if flow.size > 0.0 {
                            coflow.completed_lengths.push(flow.size);
                        }
                    } else {
                        (started.flows, self.flows_changed) = (started.flows || is_late, true);
                        coflow.has_new_flow |= is_late;
                    }
                }
            }
            self.complete_coflows();
            // One release per iteration: a coflow without bytes completes at once, and may release another
            // one before the next.
            // Of coflows at the same time but for rounding, the first of the workload is the next.
            let due: Vec<usize> = (0..self.coflows.len())
                .filter(|&c| self.coflows[c].release_number.is_none() && is_due(self.release_time(c)))
                .collect();
            let first = due.iter().map(|&c| self.release_time(c)).fold(f64::INFINITY, f64::min);
            let is_first = |c: &usize| self.release_time(*c) <= first * (1.0 + CLOCK_TOLERANCE);
            if let Some(c) = due.into_iter().find(is_first) {
                started.coflows = true;
                let at = self.release_time(c);
                let coflow = &mut self.coflows[c];
                (coflow.arrival, coflow.release_number) = (at, Some(self.released));
                coflow.deadline += at;
                self.released += 1;
                self.flows_changed = true;
                for flow in &mut coflow.flows {
                    flow.phase = FlowPhase::Waiting;
                    flow.available_at = (flow.available_at + at).max(flow.withheld_until);
                }
            } else if let Some(event) = self.workload.events.get(self.next_event)
                && event.time.get() <= now
            {
                self.apply_event(event.change);
                self.next_event += 1;
            } else {
                return started;
            }
        }
    }

    fn apply_event(&mut self, change: WorkloadChange) {
        match change {
            WorkloadChange::PortRate { port, side, factor } => {
                self.links_changed = true;
                let rate = if self.regions.is_none() { factor } else { factor * UNLIMITED_RATE };
                if side != PortSide::Receive {
                    self.links[port as usize] = rate;
                }
                if side != PortSide::Send {
                    self.links[(self.workload.ports + port) as usize] = rate;
                }
            }
            WorkloadChange::RestartFlow { coflow, flow } => {
                let coflow = &mut self.coflows[coflow];
                let place = coflow.spec_order.iter().position(|&p| p == flow).unwrap();
                let flow = &mut coflow.flows[place];
                if matches!(flow.phase, FlowPhase::Live | FlowPhase::Waiting) {
                    self.flows_changed = true;
                    coflow.has_new_flow = true;
                    coflow.lost_bytes += flow.sent_bytes;
                    flow.sent_bytes = 0.0;
                }
            }
            WorkloadChange::DelayFlow { coflow, flow, until } => {
                let coflow = &mut self.coflows[coflow];
                let place = coflow.spec_order.iter().position(|&p| p == flow).unwrap();
                let flow = &mut coflow.flows[place];
                match flow.phase {
                    FlowPhase::Unreleased => flow.withheld_until = flow.withheld_until.max(until.get()),
                    FlowPhase::Waiting | FlowPhase::Live => {
                        self.flows_changed |= flow.phase == FlowPhase::Live;
                        coflow.has_new_flow |= flow.phase == FlowPhase::Live;
                        (flow.phase, flow.is_blocked) = (FlowPhase::Waiting, false);
                        flow.available_at = flow.available_at.max(until.get());
                    }
                    FlowPhase::Completed => {}
                }
            }
        }
    }
}
