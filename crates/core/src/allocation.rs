//! The boundary: what a policy decides, and all that whoever carries it out goes by.
//!
//! A rate policy fills in rates: one common rate a coflow, and rates of their own for single flows. A
//! policy that leaves rates to the transport fills in [`Queues`] and each coflow's class instead.

use crate::model::Slot;

/// The rate that the live flows of a coflow have in common.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Common {
    /// None.
    #[default]
    None,
    /// Every live flow at this rate, in bytes per second.
    Each(f64),
    /// Every live flow at what it has left over this many seconds, so that all end together (MADD).
    Together(f64),
}

/// Why a coflow got what it got; what `weir explain` reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rule {
    /// The policy says nothing about single coflows.
    #[default]
    Unsaid,
    /// All of its flows at once, at equal rates (Saath D1, D2).
    AllOrNone,
    /// Some port of it had nothing left, or some of its data was not there; its flows got what others left over (Saath D4).
    WorkConservation,
    /// Likewise, and nothing is given to its flows (Saath without D4).
    None,
    /// All of its flows at rates at which they end together (Varys, MADD).
    Madd,
    /// All of its flows at rates at which they end at its deadline (Varys's deadline mode).
    Deadline,
    /// Only what others left over (Varys, backfilling).
    Backfill,
    /// Flow by flow, in the order of coflows.
    InOrder,
    /// Some of its data is not there (Saath 4.3).
    LacksData,
    /// Shared by the transport inside its queue.
    Transport,
    /// Over the connections that its receivers have opened (Django).
    Connections,
}

/// What a coflow's place in the order goes by, besides its class; what `weir explain` reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Standing {
    /// What the policy goes by is the same in every schedule: arrival, mostly.
    #[default]
    Unsaid,
    /// With how many others it contends: the fewer, the earlier (Saath, least contention first).
    Contention(u32),
    /// It has waited as long as it may, and goes before all classes (Saath D5).
    Overdue,
}

/// A flow's own rate, on top of its coflow's common one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlowRate {
    /// Its coflow.
    pub slot: Slot,
    /// Its number in the coflow.
    pub flow: u32,
    /// In bytes per second; above zero.
    pub rate: f64,
}

/// How ports share among the classes of flows that have no rates.
#[derive(Debug, Clone, PartialEq)]
pub struct Queues {
    /// The weight of each class at each sending port; the class is a position in this list.
    pub weights: Weights,
    /// Who goes first inside a class.
    pub inside: Inside,
    /// Whether receiving ports keep the same queues, or only share what arrives as TCP would.
    pub receivers: Receivers,
}

/// Sharing between the queues of a port.
#[derive(Debug, Clone, PartialEq)]
pub enum Weights {
    /// By weight among the queues that have something to send.
    Weighted(Vec<f64>),
    /// A lower class only gets what higher classes leave.
    Strict(usize),
}

/// Sharing inside a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inside {
    /// Max-min between flows.
    MaxMin,
    /// Coflow by coflow, earliest first; max-min between the flows of the first.
    Fifo,
}

/// What receiving ports do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receivers {
    /// Max-min between the flows that arrive, whatever their class: nobody told them anything.
    Transport,
    /// The same queues in the same order as at the senders.
    Queues,
}

/// What a policy decided about one coflow.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Share {
    common: Common,
    standing: Standing,
    class: u16,
    rule: Rule,
}

/// What a policy decided about everything.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Allocation {
    shares: Vec<Share>,
    flows: Vec<FlowRate>,
    /// How many of the flows are those of the decision before.
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

    /// Takes over the first `count` flows with rates of their own from the decision before; all of them have to be live
    /// still. At most once, before any [`Allocation::add_flow`].
    pub(crate) fn keep_flows(&mut self, count: usize) {
        self.kept = count;
    }

    /// Takes over all flows of the decision before.
    pub(crate) fn keep_all_flows(&mut self) {
        self.kept = self.flows.len();
    }

    /// How many flows have rates of their own by now.
    pub(crate) fn decided(&self) -> usize {
        if self.untouched { self.kept } else { self.flows.len() }
    }

    /// Ends the decision: what was neither kept nor added is gone.
    pub(crate) fn seal(&mut self) {
        if self.untouched {
            self.untouched = false;
            self.flows.truncate(self.kept);
        }
    }

    /// How many of the flows are those of the decision before, in their places.
    pub(crate) fn kept(&self) -> usize {
        self.kept
    }

    /// Takes over what another allocation decides about these coflows, of which it has nothing yet; all single flows of the other
    /// are theirs.
    pub(crate) fn take_over(&mut self, other: &Allocation, slots: &[Slot]) {
        self.seal();
        for &slot in slots {
            self.shares[slot as usize] = other.shares[slot as usize];
        }
        self.flows.extend_from_slice(&other.flows);
    }

    /// Gives the live flows of a coflow a common rate.
    pub fn set_common(&mut self, slot: Slot, common: Common) {
        self.shares[slot as usize].common = common;
    }

    /// Gives one flow a rate of its own, on top. Once a flow.
    pub fn add_flow(&mut self, slot: Slot, flow: u32, rate: f64) {
        self.seal();
        self.flows.push(FlowRate { slot, flow, rate });
    }

    /// Puts a coflow in a class.
    pub fn set_class(&mut self, slot: Slot, class: usize) {
        self.shares[slot as usize].class = class as u16;
    }

    /// Says what its place goes by.
    pub fn set_standing(&mut self, slot: Slot, standing: Standing) {
        self.shares[slot as usize].standing = standing;
    }

    /// Says why.
    pub fn set_rule(&mut self, slot: Slot, rule: Rule) {
        self.shares[slot as usize].rule = rule;
    }

    /// Leaves the rates to the transport, with these queues.
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

    /// What a coflow's place in the order goes by.
    pub fn standing(&self, slot: Slot) -> Standing {
        self.shares.get(slot as usize).map_or(Standing::Unsaid, |s| s.standing)
    }

    /// Why a coflow got what it got.
    pub fn rule(&self, slot: Slot) -> Rule {
        self.shares.get(slot as usize).map_or(Rule::Unsaid, |s| s.rule)
    }

    /// The flows with rates of their own.
    pub fn flows(&self) -> &[FlowRate] {
        &self.flows
    }

    /// The queues, if rates are left to the transport.
    pub fn queues(&self) -> Option<&Queues> {
        self.queues.as_ref()
    }
}
