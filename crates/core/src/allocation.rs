//! The output of a policy: rates, classes and queues. Drivers enforce an [`Allocation`] without other input from the
//! policy.
//!
//! A rate policy sets one common rate for each coflow, and adds own rates of single flows. A policy that leaves
//! rates to the transport sets [`QueueDiscipline`] and the class of each coflow instead.

use crate::model::{Network, Slot};

/// The common rate of a coflow's live flows.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum CommonRate {
    /// No common rate.
    #[default]
    None,
    /// Every live flow sends at this rate, in bytes per second.
    Equal(f64),
    /// Every live flow sends at its remaining bytes divided by this number of seconds, so that all complete together
    /// (MADD).
    CompleteTogether(f64),
}

/// The rule that decided a coflow's rates; `weir explain` reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rule {
    /// The policy does not explain decisions about single coflows.
    #[default]
    Unexplained,
    /// All flows were admitted at once, at equal rates (Saath D1, D2).
    AllOrNone,
    /// A port without residual capacity, or missing data, prevented all-or-none. The flows share residual capacity
    /// (Saath D4).
    WorkConservation,
    /// As for [`Rule::WorkConservation`], but the flows receive no rates (Saath without D4).
    NotAdmitted,
    /// The rates let all flows complete together (Varys, MADD).
    Madd,
    /// The rates let all flows complete at the deadline (Varys's deadline mode).
    Deadline,
    /// The flows receive only residual capacity (Varys, backfilling).
    Backfill,
    /// Flows take residual capacity one by one, in the order of coflows.
    InOrder,
    /// Some flows wait for data (Saath 4.3).
    WaitingForData,
    /// The transport shares the queue's bandwidth.
    Transport,
    /// The flows send over the connections that the receivers opened (Django).
    Connections,
    /// A rule of a policy of another crate, by its name in results.
    Other(&'static str),
}

impl Rule {
    /// The name of the rule in results.
    pub fn name(self) -> &'static str {
        match self {
            Rule::Unexplained => "unexplained",
            Rule::AllOrNone => "all-or-none",
            Rule::WorkConservation => "work-conservation",
            Rule::NotAdmitted => "not-admitted",
            Rule::Madd => "madd",
            Rule::Deadline => "deadline",
            Rule::Backfill => "backfill",
            Rule::InOrder => "in-order",
            Rule::WaitingForData => "waiting-for-data",
            Rule::Transport => "transport",
            Rule::Connections => "connections",
            Rule::Other(name) => name,
        }
    }
}

/// The criterion, next to the class, that orders a coflow; `weir explain` reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OrderCriterion {
    /// The policy's order does not depend on a value that changes over time.
    #[default]
    Constant,
    /// Number of coflows that contend with the coflow; fewer go first (Saath, least contention first).
    Contention(u32),
    /// The deadline has expired, and the coflow goes before all classes (Saath D5).
    DeadlineExpired,
    /// The estimated time that the coflow needs; shorter ones go first (Weir's own policy).
    EstimatedTime {
        /// Time that the estimated remaining bytes take at the bottleneck, in microseconds; the maximum if a link is down.
        needed_us: u64,
        /// Number of completed flows that estimate the sizes; 0 if earlier coflows of the application do.
        completed_flows: u32,
    },
    /// The time that the coflow is expected to need by the sizes of earlier coflows, because it has no completed flow (Weir's own
    /// policy); compared with the estimated times of other coflows.
    ExpectedTime {
        /// The expected time in microseconds.
        needed_us: u64,
        /// The time that the sent bytes took at the bottleneck, in microseconds.
        attained_us: u64,
    },
    /// The coflow was not admitted, because it could not complete by its deadline (Varys's deadline mode).
    Rejected {
        /// Time that it would have needed on the residual capacity, in microseconds; the maximum if a link had none.
        needed_us: u64,
        /// Time that was left until the deadline, in microseconds.
        left_us: u64,
    },
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
pub struct QueueDiscipline {
    /// Sharing between classes at each sending port. A class is an index, from 0.
    pub inter_queue: InterQueueSharing,
    /// Sharing inside a class.
    pub intra_queue: IntraQueueSharing,
    /// What receiving ports do.
    pub receiver_mode: ReceiverMode,
}

/// Sharing between the queues of a port.
#[derive(Debug, Clone, PartialEq)]
pub enum InterQueueSharing {
    /// By weight among the backlogged queues.
    Weighted(Vec<f64>),
    /// Strict priority: a queue gets only the residual capacity of lower-numbered queues. The number is the count of
    /// queues.
    StrictPriority(usize),
}

/// Sharing inside a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntraQueueSharing {
    /// Max-min fairness between flows.
    MaxMin,
    /// Coflow by coflow in the order of release; max-min fairness between the flows of the first coflow.
    Fifo,
}

/// What receiving ports do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiverMode {
    /// Max-min fairness between the arriving flows, in all classes: receivers do not know the queues.
    Transport,
    /// The same queues, in the same order, as at the senders.
    SameQueues,
}

/// The decision about one coflow.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct CoflowDecision {
    common: CommonRate,
    order_criterion: OrderCriterion,
    class: u16,
    rule: Rule,
    /// See [`Allocation::serving_position`].
    serving_position: Option<u32>,
}

/// The decision about all active coflows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Allocation {
    decisions: Vec<CoflowDecision>,
    flow_rates: Vec<FlowRate>,
    /// Number of flows at the start of `flow_rates` that are those of the previous decision.
    kept_flow_count: usize,
    /// Whether no flow was added since the start of this decision.
    no_flow_added: bool,
    /// The position of the next coflow that is served.
    next_position: u32,
    queue_discipline: Option<QueueDiscipline>,
    /// A slot that a policy decided about although it does not exist.
    vacant_slot: Option<Slot>,
}

impl Allocation {
    /// Starts a new decision for `slot_count` coflow slots.
    pub fn start_decision(&mut self, slot_count: usize) {
        self.decisions.clear();
        self.decisions.resize(slot_count, CoflowDecision::default());
        self.kept_flow_count = 0;
        self.no_flow_added = true;
        self.next_position = 0;
        self.vacant_slot = None;
    }

    /// The decision about a coflow. A slot that does not exist is recorded.
    #[inline]
    fn decision_mut(&mut self, slot: Slot) -> Option<&mut CoflowDecision> {
        let decision = self.decisions.get_mut(slot as usize);
        if decision.is_none() {
            self.vacant_slot = Some(slot);
        }
        decision
    }

    /// A slot that the policy decided about although it does not exist.
    pub(crate) fn vacant_slot(&self) -> Option<Slot> {
        self.vacant_slot
    }

    /// Keeps the first `count` flows with own rates of the previous decision. All of them have to be live.
    ///
    /// Call at most once, before any [`Allocation::add_flow_rate`].
    pub(crate) fn keep_flow_rates(&mut self, count: usize) {
        self.kept_flow_count = count;
    }

    /// Keeps all flows of the previous decision.
    pub(crate) fn keep_all_flow_rates(&mut self) {
        self.kept_flow_count = self.flow_rates.len();
    }

    /// Number of flows with own rates so far.
    pub(crate) fn flow_count(&self) -> usize {
        if self.no_flow_added { self.kept_flow_count } else { self.flow_rates.len() }
    }

    /// Ends the decision: drops the flows of the previous decision that were not kept.
    #[inline]
    pub(crate) fn drop_unkept_flows(&mut self) {
        if self.no_flow_added {
            self.no_flow_added = false;
            self.flow_rates.truncate(self.kept_flow_count);
        }
    }

    /// Number of flows that are those of the previous decision, in the same positions.
    pub(crate) fn kept_flow_count(&self) -> usize {
        self.kept_flow_count
    }

    /// Drops the own rates of flows that are not scheduled any more.
    pub(crate) fn retain_flow_rates(&mut self, is_scheduled: impl Fn(Slot, u32) -> bool) {
        self.flow_rates.retain(|rated| is_scheduled(rated.slot, rated.flow));
    }

    /// Continues the last decision for `seconds` after it was made: the rates of the flows that `is_live` stay.
    pub(crate) fn continue_decision(&mut self, seconds: f64, is_live: impl Fn(Slot, u32) -> bool) {
        for decision in &mut self.decisions {
            if let CommonRate::CompleteTogether(left) = &mut decision.common {
                *left -= seconds;
            }
        }
        self.retain_flow_rates(is_live);
    }

    /// Continues the last decision at `now`: flows keep their rates. `rates` are those of the flows with own rates, before the progress
    /// of the network was updated; common parts included.
    pub(crate) fn keep_rates(&mut self, rates: &[f64], network: &Network, now: f64) {
        for (slot, decision) in (0..).zip(&mut self.decisions) {
            if let CommonRate::CompleteTogether(_) = decision.common {
                let seconds = network.common_seconds_left(slot, now);
                decision.common = seconds.map_or(CommonRate::None, CommonRate::CompleteTogether);
            }
        }
        for (own, rate) in self.flow_rates.iter_mut().zip(rates) {
            // The common part follows the remaining bytes of the flow, which its own rate reduces in addition.
            own.rate += rate - network.rate(own.slot, own.flow);
        }
    }

    /// Removes the common rates of these coflows, whose flows have no own rates, and gives flows of them own rates.
    pub(crate) fn replace_common_rates(&mut self, slots: &[Slot], rates: Vec<FlowRate>) {
        slots.iter().for_each(|&slot| self.decisions[slot as usize].common = CommonRate::None);
        self.flow_rates.extend(rates);
    }

    /// Makes room for `slot_count` coflow slots, and forgets the decisions about `slots`, whose flows have no own rates.
    pub(crate) fn forget_decisions(&mut self, slot_count: usize, slots: &[Slot]) {
        self.decisions.resize(slot_count, CoflowDecision::default());
        slots.iter().for_each(|&slot| self.decisions[slot as usize] = CoflowDecision::default());
        self.kept_flow_count = 0;
    }

    /// Drops the flows of a coflow that has completed.
    pub(crate) fn drop_flow_rates(&mut self, slot: Slot) {
        self.flow_rates.retain(|rated| rated.slot != slot);
    }

    /// Copies another allocation's decision about `slots`, and all of its flows. All flows of `other` have to belong
    /// to `slots`, and this allocation contains no decision about `slots` yet.
    pub(crate) fn copy_decisions(&mut self, other: &Allocation, slots: &[Slot]) {
        self.drop_unkept_flows();
        for &slot in slots {
            self.decisions[slot as usize] = other.decisions[slot as usize];
        }
        self.flow_rates.extend_from_slice(&other.flow_rates);
    }

    /// Calls `add` with a coflow of `slots`, a link and the rate of some of its flows there, until all rates are counted. All flows with
    /// own rates have to belong to `slots`. O(links of the coflows + flows with own rates).
    pub(crate) fn visit_link_rates(
        &self,
        slots: &[Slot],
        network: &Network,
        now: f64,
        mut add: impl FnMut(Slot, usize, f64),
    ) {
        for &slot in slots {
            let coflow = network.coflow(slot);
            match self.common(slot) {
                CommonRate::None => {}
                CommonRate::Equal(rate) => {
                    for load in coflow.links() {
                        add(slot, load.link as usize, rate * f64::from(load.live_flow_count));
                    }
                }
                CommonRate::CompleteTogether(seconds) => {
                    for (link, bytes) in coflow.remaining_loads(now).by_link() {
                        add(slot, link, bytes / seconds);
                    }
                }
            }
        }
        for rated in &self.flow_rates {
            for link in network.coflow(rated.slot).flow_links(rated.flow) {
                add(rated.slot, link, rated.rate);
            }
        }
    }

    /// Sets the common rate of a coflow's live flows.
    #[inline]
    pub fn set_common(&mut self, slot: Slot, common: CommonRate) {
        if let Some(decision) = self.decision_mut(slot) {
            decision.common = common;
        }
    }

    /// Adds an own rate of one flow, on top of the common rate. Call at most once for each flow.
    #[inline]
    pub fn add_flow_rate(&mut self, slot: Slot, flow: u32, rate: f64) {
        self.drop_unkept_flows();
        self.flow_rates.push(FlowRate { slot, flow, rate });
    }

    /// Sets the class of a coflow, at most 65,535.
    #[inline]
    pub fn set_class(&mut self, slot: Slot, class: usize) {
        if let Some(decision) = self.decision_mut(slot) {
            decision.class = class.min(usize::from(u16::MAX)) as u16;
        }
    }

    /// Sets the criterion that orders the coflow.
    #[inline]
    pub fn set_order_criterion(&mut self, slot: Slot, order_criterion: OrderCriterion) {
        if let Some(decision) = self.decision_mut(slot) {
            decision.order_criterion = order_criterion;
        }
    }

    /// Sets the rule that decided the rates. A policy that serves coflows in an order calls this in its order: capacity that programs do
    /// not use goes to coflows in the order of the first calls.
    #[inline]
    pub fn set_rule(&mut self, slot: Slot, rule: Rule) {
        let position = self.next_position;
        let Some(decision) = self.decision_mut(slot) else { return };
        decision.rule = rule;
        let is_served = !matches!(rule, Rule::WaitingForData | Rule::Transport | Rule::Connections);
        if is_served && decision.serving_position.is_none() {
            decision.serving_position = Some(position);
            self.next_position += 1;
        }
    }

    /// Sets the queues, and leaves the rates to the transport.
    pub fn set_queue_discipline(&mut self, queue_discipline: QueueDiscipline) {
        self.queue_discipline = Some(queue_discipline);
    }

    /// The common rate of a coflow.
    pub fn common(&self, slot: Slot) -> CommonRate {
        self.decisions.get(slot as usize).map_or(CommonRate::None, |s| s.common)
    }

    /// The class of a coflow (its priority level, its queue).
    pub fn class(&self, slot: Slot) -> usize {
        self.decisions.get(slot as usize).map_or(0, |s| s.class as usize)
    }

    /// The criterion that orders a coflow.
    pub fn order_criterion(&self, slot: Slot) -> OrderCriterion {
        self.decisions.get(slot as usize).map_or(OrderCriterion::Constant, |s| s.order_criterion)
    }

    /// The rule that decided a coflow's rates.
    pub fn rule(&self, slot: Slot) -> Rule {
        self.decisions.get(slot as usize).map_or(Rule::Unexplained, |s| s.rule)
    }

    /// The position of a coflow in the order in which the policy served coflows, from 0; in a policy tree, its leaf's order. `None` if the
    /// policy serves coflows in no order.
    pub fn serving_position(&self, slot: Slot) -> Option<u32> {
        self.decisions.get(slot as usize).and_then(|decision| decision.serving_position)
    }

    /// The flows with own rates.
    pub fn flow_rates(&self) -> &[FlowRate] {
        &self.flow_rates
    }

    /// The queues, if the policy leaves rates to the transport.
    pub fn queue_discipline(&self) -> Option<&QueueDiscipline> {
        self.queue_discipline.as_ref()
    }
}
