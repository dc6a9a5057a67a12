//! What hosts and switches do at once under a policy, and what waits for the coordinator's next schedule.

/// When an event takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reaction {
    /// At once: hosts or switches react.
    AtOnce,
    /// With the next schedule of the coordinator, at a multiple of the interval.
    AtInterval,
}

/// When a policy reacts to events. Changes of links are always known at once.
///
/// If flows start at once but completions wait, the coordinator decides at intervals only. Between two of its schedules, hosts serve flows
/// of fresh coflows that have no rates: they share the capacity that flows with rates leave, as TCP does. A flow whose data becomes
/// available after the release of its coflow waits for the coordinator. See `host_service.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// A flow starts: its coflow is released, or its data becomes available.
    pub start: Reaction,
    /// Other flows use the capacity of a flow that has completed.
    pub completion: Reaction,
    /// What the coordinator decides at multiples of the interval; empty if hosts and switches decide everything.
    pub at_interval: &'static str,
    /// The place in the policy's paper, or another reason.
    pub source: &'static str,
}

impl Timing {
    /// A coordinator decides everything. `source` says where.
    pub const fn central(source: &'static str) -> Timing {
        let wait = Reaction::AtInterval;
        Timing { start: wait, completion: wait, at_interval: "everything", source }
    }

    /// Hosts and switches decide everything. `source` says where.
    pub const fn local(source: &'static str) -> Timing {
        Timing { start: Reaction::AtOnce, completion: Reaction::AtOnce, at_interval: "", source }
    }

    /// Whether hosts serve flows without rates between two schedules of the coordinator.
    pub fn hosts_serve_between_schedules(&self) -> bool {
        self.start == Reaction::AtOnce && self.completion == Reaction::AtInterval
    }

    /// Whether hosts and switches decide everything.
    pub fn is_local(&self) -> bool {
        self.at_interval.is_empty()
    }
}
