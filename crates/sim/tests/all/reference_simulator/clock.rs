//! What happens at once under a policy, and what waits for the next multiple of the interval.

use super::{Flow, Policy, RATE_TOLERANCE};

#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    pub(super) interval: f64,
    pub(super) starts_wait: bool,
    pub(super) completions_wait: bool,
    /// Whether hosts and switches decide everything.
    pub(super) is_local: bool,
}

impl Clock {
    pub(super) fn new(policy: &Policy, interval: f64) -> Clock {
        let (starts_wait, completions_wait, is_local) = match policy {
            Policy::Fair | Policy::Pfp => (false, false, true),
            Policy::Aalo(aalo) => (false, false, aalo.knows_sizes()),
            Policy::Sincronia | Policy::Django(_) => (true, false, false),
            Policy::Saath(saath) => (true, !saath.serves_locally(), false),
            Policy::Weir(weir) => (weir.knows_sizes(), true, false),
            Policy::Varys { .. }
            | Policy::Ordered(_)
            | Policy::Mrtf { .. }
            | Policy::Gittins(_)
            | Policy::Philae(_) => (true, true, false),
        };
        Clock { interval, starts_wait, completions_wait, is_local }
    }

    /// The first multiple of the interval from `at` on.
    pub(super) fn next_multiple(&self, at: f64) -> f64 {
        if self.interval == 0.0 || at.is_infinite() {
            return at;
        }
        ((at - self.schedule_slack()) / self.interval).ceil() * self.interval
    }

    /// Events within this distance of a schedule are part of it.
    fn schedule_slack(&self) -> f64 {
        (1e-6 * self.interval).clamp(RATE_TOLERANCE, 1e-8)
    }

    /// Events within this distance of a step are part of it. What happens at once needs none.
    pub(super) fn step_slack(&self) -> f64 {
        if self.completions_wait { self.schedule_slack() } else { 0.0 }
    }

    /// When something starts that could start at `at`.
    pub(super) fn start(&self, at: f64) -> f64 {
        if self.starts_wait { self.next_multiple(at) } else { at }
    }

    /// Whether hosts serve flows of fresh coflows between two schedules.
    pub(super) fn hosts_serve(&self) -> bool {
        !self.starts_wait && self.completions_wait && self.interval > 0.0
    }

    /// When a waiting flow of a released coflow starts. A flow that takes no time needs no schedule. If hosts serve between schedules,
    /// they know only the flows whose data was available at the release.
    pub(super) fn flow_start(&self, flow: &Flow, released_at: f64) -> f64 {
        let is_late = self.hosts_serve() && flow.available_at > released_at;
        match flow.takes_no_time() {
            false if is_late => self.next_multiple(flow.available_at),
            false => self.start(flow.available_at),
            true => flow.available_at,
        }
    }

    /// When others use the capacity of a flow that completes at `at`.
    pub(super) fn completion(&self, at: f64) -> f64 {
        if self.completions_wait { self.next_multiple(at) } else { at }
    }
}
