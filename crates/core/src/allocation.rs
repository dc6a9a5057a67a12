//! The output of a policy: rates, classes and queues. Drivers enforce an [`Allocation`] without other input from the
//! policy.
//!
//! A rate policy sets one common rate for each coflow, and own rates of single flows on top. A policy that leaves
//! rates to the transport sets [`Queues`] and the class of each coflow instead.

use crate::model::Slot;

/// The common rate of a coflow's live flows.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Common {
    /// No common rate.
    #[default]
    None,
    /// Every live flow sends at this rate, in bytes per second.
    Each(f64),
    /// Every live flow sends at its remaining bytes divided by this number of seconds, so that all complete together
    /// (MADD).
    Together(f64),
}

/// The rule that decided a coflow's rates; `weir explain` reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rule {
    /// The policy does not explain decisions about single coflows.
    #[default]
    Unsaid,
    /// All flows were admitted at once, at equal rates (Saath D1, D2).
    AllOrNone,
    /// A port without residual capacity, or missing data, prevented all-or-none. The flows share residual capacity
    /// (Saath D4).
    WorkConservation,
    /// As for [`Rule::WorkConservation`], but the flows receive no rates (Saath without D4).
    None,
    /// The rates let all flows complete together (Varys, MADD).
    Madd,
    /// The rates let all flows complete at the deadline (Varys's deadline mode).
    Deadline,
    /// The flows receive only residual capacity (Varys, backfilling).
    Backfill,
    /// Flows take residual capacity one by one, in the order of coflows.
    InOrder,
    /// Some flows wait for data (Saath 4.3).
    LacksData,
    /// The transport shares the queue's bandwidth.
    Transport,
    /// The flows send over the connections that the receivers opened (Django).
    Connections,
}

/// The criterion, next to the class, that orders a coflow; `weir explain` reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Standing {
    /// The criterion is constant over schedules, usually the order of arrival.
    #[default]
    Unsaid,
    /// Number of coflows that contend with the coflow; fewer go first (Saath, least contention first).
    Contention(u32),
    /// The deadline has expired, and the coflow goes before all classes (Saath D5).
    Overdue,
}

/// A flow's own rate, which adds to the common rate of its coflow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlowRate {
    /// Slot of the coflow.
    pub slot: Slot,
    /// Number of the flow in the coflow.
    pub flow: u32,
    /// Rate in bytes per second; above zero.
    pub rate: f64,
}

/// How ports serve the classes of flows without rates.
#[derive(Debug, Clone, PartialEq)]
pub struct Queues {
    /// Sharing between classes at each sending port. A class is an index, from 0.
    pub weights: Weights,
    /// Sharing inside a class.
    pub inside: Inside,
    /// What receiving ports do.
    pub receivers: Receivers,
}

/// Sharing between the queues of a port.
#[derive(Debug, Clone, PartialEq)]
pub enum Weights {
    /// By weight among the backlogged queues.
    Weighted(Vec<f64>),
    /// Strict priority: a queue gets only the residual capacity of lower-numbered queues. The number is the count of
    /// queues.
    Strict(usize),
}

/// Sharing inside a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inside {
    /// Max-min fairness between flows.
    MaxMin,
    /// Coflow by coflow in the order of release; max-min fairness between the flows of the first coflow.
    Fifo,
}

/// What receiving ports do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receivers {
    /// Max-min fairness between the arriving flows, in all classes: receivers do not know the queues.
    Transport,
    /// The same queues, in the same order, as at the senders.
    Queues,
}

/// The decision about one coflow.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Share {
    common: Common,
    standing: Standing,
    class: u16,
    rule: Rule,
}

/// The decision about all active coflows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Allocation {
    shares: Vec<Share>,
    flows: Vec<FlowRate>,
    /// Number of flows at the start of `flows` that are those of the previous decision.
    kept: usize,
    /// Whether no flow was added since the start of this decision.
    untouched: bool,
    queues: Option<Queues>,
}

impl Allocation {
    /// Starts a new decision for `slots` coflow slots.
    pub fn clear(&mut self, slots: usize) {
        self.shares.clear();
        self.shares.resize(slots, Share::default());
        self.kept = 0;
        self.untouched = true;
    }

    /// Keeps the first `count` flows with own rates of the previous decision. All of them have to be live.
    ///
    /// Call at most once, before any [`Allocation::add_flow`].
    pub(crate) fn keep_flows(&mut self, count: usize) {
        self.kept = count;
    }

    /// Keeps all flows of the previous decision.
    pub(crate) fn keep_all_flows(&mut self) {
        self.kept = self.flows.len();
    }

    /// Number of flows with own rates so far.
    pub(crate) fn decided(&self) -> usize {
        if self.untouched { self.kept } else { self.flows.len() }
    }

    /// Ends the decision: drops the flows of the previous decision that were not kept.
    pub(crate) fn seal(&mut self) {
        if self.untouched {
            self.untouched = false;
            self.flows.truncate(self.kept);
        }
    }

    /// Number of flows that are those of the previous decision, in the same positions.
    pub(crate) fn kept(&self) -> usize {
        self.kept
    }

    /// Copies another allocation's decision about `slots`, and all of its flows. All flows of `other` have to belong
    /// to `slots`, and this allocation contains no decision about `slots` yet.
    pub(crate) fn take_over(&mut self, other: &Allocation, slots: &[Slot]) {
        self.seal();
        for &slot in slots {
            self.shares[slot as usize] = other.shares[slot as usize];
        }
        self.flows.extend_from_slice(&other.flows);
    }

    /// Sets the common rate of a coflow's live flows.
    pub fn set_common(&mut self, slot: Slot, common: Common) {
        self.shares[slot as usize].common = common;
    }

    /// Adds an own rate of one flow, on top of the common rate. Call at most once for each flow.
    pub fn add_flow(&mut self, slot: Slot, flow: u32, rate: f64) {
        self.seal();
        self.flows.push(FlowRate { slot, flow, rate });
    }

    /// Sets the class of a coflow.
    pub fn set_class(&mut self, slot: Slot, class: usize) {
        self.shares[slot as usize].class = class as u16;
    }

    /// Sets the criterion that orders the coflow.
    pub fn set_standing(&mut self, slot: Slot, standing: Standing) {
        self.shares[slot as usize].standing = standing;
    }

    /// Sets the rule that decided the rates.
    pub fn set_rule(&mut self, slot: Slot, rule: Rule) {
        self.shares[slot as usize].rule = rule;
    }

    /// Sets the queues, and leaves the rates to the transport.
    pub fn set_queues(&mut self, queues: Queues) {
        self.queues = Some(queues);
    }

    /// The common rate of a coflow.
    pub fn common(&self, slot: Slot) -> Common {
        self.shares.get(slot as usize).map_or(Common::None, |s| s.common)
    }

    /// The class of a coflow (its priority level, its queue).
    pub fn class(&self, slot: Slot) -> usize {
        self.shares.get(slot as usize).map_or(0, |s| s.class as usize)
    }

    /// The criterion that orders a coflow.
    pub fn standing(&self, slot: Slot) -> Standing {
        self.shares.get(slot as usize).map_or(Standing::Unsaid, |s| s.standing)
    }

    /// The rule that decided a coflow's rates.
    pub fn rule(&self, slot: Slot) -> Rule {
        self.shares.get(slot as usize).map_or(Rule::Unsaid, |s| s.rule)
    }

    /// The flows with own rates.
    pub fn flows(&self) -> &[FlowRate] {
        &self.flows
    }

    /// The queues, if the policy leaves rates to the transport.
    pub fn queues(&self) -> Option<&Queues> {
        self.queues.as_ref()
    }
}
