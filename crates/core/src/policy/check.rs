//! Checks the decisions of policies of other crates.
//!
//! Weir's own policies are not checked: tests cover them, and a check costs as much as a part of a schedule.

use super::error::{InvalidDecision, PolicyError, PolicyFailure};
use super::interface::{DecidedBy, PolicyObject};
use super::{Event, LinkService, Routing, Timing, TrunkSupport};
use crate::allocation::{Allocation, CommonRate, InterQueueSharing, QueueDiscipline};
use crate::model::{BitSet, CoflowKey, CommonRateKind, FlowState, Network, Slot};

/// A policy whose decisions are checked. After an invalid decision, the policy decides nothing more.
pub(super) struct CheckedPolicy {
    policy: Box<dyn PolicyObject>,
    /// The specification of the policy.
    name: String,
    /// The queues of the first schedule, if the policy sets some.
    queues: Option<QueueDiscipline>,
    has_decided: bool,
    check: AllocationCheck,
    error: Option<PolicyError>,
}

impl CheckedPolicy {
    pub(super) fn new(policy: Box<dyn PolicyObject>, name: &str) -> CheckedPolicy {
        CheckedPolicy {
            policy,
            name: name.to_owned(),
            queues: None,
            has_decided: false,
            check: AllocationCheck::default(),
            error: None,
        }
    }

    /// Ends the decisions of a policy that reports a failure.
    fn check_failure(&mut self, now: f64) {
        if let Some(PolicyFailure { slot, reason }) = self.policy.failure() {
            let invalid = Invalid { slot, links: Vec::new(), reason: InvalidDecision::Failure(reason) };
            self.error = Some(invalid.into_error(&self.name, now));
        }
    }

    /// Checks a decision.
    fn check(&mut self, decided: &Allocation, network: &Network, now: f64) -> Result<(), Invalid> {
        let queues = decided.queue_discipline();
        if !self.has_decided {
            self.has_decided = true;
            self.queues = queues.cloned();
        }
        if let Some(queues) = queues {
            check_queues(queues, self.policy.trunk_support(), decided, network)?;
        }
        if queues != self.queues.as_ref() {
            return Err(Invalid::new(InvalidDecision::QueuesChanged));
        }
        self.check.check(decided, network, now)
    }
}

impl PolicyObject for CheckedPolicy {
    fn common_rate_kind(&self) -> CommonRateKind {
        self.policy.common_rate_kind()
    }

    fn trunk_support(&self) -> TrunkSupport {
        self.policy.trunk_support()
    }

    fn link_service(&self) -> LinkService {
        self.policy.link_service()
    }

    fn routing(&self) -> Routing {
        self.policy.routing()
    }

    fn timing(&self) -> Timing {
        self.policy.timing()
    }

    fn uses(&self, key: CoflowKey) -> bool {
        self.policy.uses(key)
    }

    fn on_event(&mut self, event: Event, network: &mut Network, now: f64) {
        if self.error.is_none() {
            self.policy.on_event(event, network, now);
            self.check_failure(now);
        }
    }

    fn decide(&mut self, by: DecidedBy, network: &mut Network, now: f64, out: &mut Allocation) {
        if self.error.is_none() {
            self.policy.decide(by, network, now, out);
            out.drop_unkept_flows();
            self.check_failure(now);
        }
        if self.error.is_none() {
            let checked = self.check(out, network, now);
            self.error = checked.err().map(|invalid| invalid.into_error(&self.name, now));
        }
        if self.error.is_some() {
            *out = Allocation::default();
            out.start_decision(network.slots());
        }
    }

    fn next_wakeup(&mut self, network: &mut Network, now: f64, allocation: &Allocation) -> f64 {
        if self.error.is_some() {
            return f64::INFINITY;
        }
        let next = self.policy.next_wakeup(network, now, allocation);
        self.check_failure(now);
        if next > now {
            return next;
        }
        let invalid = || Invalid::new(InvalidDecision::Wakeup(next)).into_error(&self.name, now);
        self.error.get_or_insert_with(invalid);
        f64::INFINITY
    }

    fn failure(&self) -> Option<PolicyFailure> {
        self.policy.failure()
    }

    fn error(&self) -> Option<&PolicyError> {
        self.error.as_ref()
    }
}

/// An invalid decision; the fields are those of [`PolicyError`].
struct Invalid {
    slot: Option<Slot>,
    links: Vec<usize>,
    reason: InvalidDecision,
}

impl Invalid {
    fn new(reason: InvalidDecision) -> Invalid {
        Invalid { slot: None, links: Vec::new(), reason }
    }

    fn about_coflow(slot: Slot, reason: InvalidDecision) -> Invalid {
        Invalid { slot: Some(slot), links: Vec::new(), reason }
    }

    fn about_flow(slot: Slot, flow: u32, network: &Network, reason: InvalidDecision) -> Invalid {
        let links = network.coflow(slot).flow_links(flow).collect();
        Invalid { slot: Some(slot), links, reason }
    }

    fn into_error(self, policy: &str, time: f64) -> PolicyError {
        let Invalid { slot, links, reason } = self;
        PolicyError { policy: policy.to_owned(), time, slot, links, reason }
    }
}

/// Checks allocations, in memory that is used again.
#[derive(Debug, Default)]
struct AllocationCheck {
    active: BitSet,
    rated_flows: Vec<(Slot, u32)>,
    link_rates: Vec<f64>,
}

impl AllocationCheck {
    /// Checks an allocation for the active coflows. O(links of the coflows + n log n) for n flows with own rates.
    fn check(&mut self, allocation: &Allocation, network: &Network, now: f64) -> Result<(), Invalid> {
        if let Some(slot) = allocation.vacant_slot() {
            return Err(Invalid::new(InvalidDecision::VacantSlot(slot)));
        }
        for &slot in network.active_coflows() {
            check_common_rate(slot, allocation, network, now)?;
        }
        self.check_flow_rates(allocation, network)?;
        self.check_links(allocation, network, now)
    }

    /// Checks that own rates are those of live flows, above 0, and one a flow.
    fn check_flow_rates(&mut self, allocation: &Allocation, network: &Network) -> Result<(), Invalid> {
        self.active.clear();
        network.active_coflows().iter().for_each(|&slot| self.active.insert(slot as usize));
        self.rated_flows.clear();
        for rated in allocation.flow_rates() {
            if !self.active.contains(rated.slot as usize) {
                return Err(Invalid::new(InvalidDecision::VacantSlot(rated.slot)));
            }
            let coflow = network.coflow(rated.slot);
            if rated.flow as usize >= coflow.width() || coflow.flow_state(rated.flow) != FlowState::Live {
                return Err(Invalid::about_coflow(rated.slot, InvalidDecision::FlowNotLive(rated.flow)));
            }
            if !(rated.rate > 0.0 && rated.rate.is_finite()) {
                let reason = InvalidDecision::FlowRate(rated.rate);
                return Err(Invalid::about_flow(rated.slot, rated.flow, network, reason));
            }
            self.rated_flows.push((rated.slot, rated.flow));
        }
        self.rated_flows.sort_unstable();
        match self.rated_flows.windows(2).find(|pair| pair[0] == pair[1]) {
            None => Ok(()),
            Some(pair) => {
                let (slot, flow) = pair[0];
                Err(Invalid::about_flow(slot, flow, network, InvalidDecision::RateSetTwice))
            }
        }
    }

    /// Checks that the rates on each link are within its capacity, up to the rounding that [`ResidualCapacity`] tolerates.
    ///
    /// [`ResidualCapacity`]: crate::solve::ResidualCapacity
    fn check_links(&mut self, allocation: &Allocation, network: &Network, now: f64) -> Result<(), Invalid> {
        let (slots, fabric) = (network.active_coflows(), network.fabric());
        let rates = &mut self.link_rates;
        rates.clear();
        rates.resize(fabric.links(), 0.0);
        allocation.visit_link_rates(slots, network, now, |_, link, rate| rates[link] += rate);
        let tolerance = fabric.rounding_tolerance();
        let mut limits = rates.iter().zip(fabric.limits()).enumerate();
        let Some((link, (&rate, capacity))) = limits.find(|(_, (rate, limit))| **rate > limit + tolerance)
        else {
            return Ok(());
        };
        // The error names the coflow with the highest rate.
        let mut by_slot = vec![0.0; network.slots()];
        allocation.visit_link_rates(slots, network, now, |slot, other, rate| {
            by_slot[slot as usize] += if other == link { rate } else { 0.0 };
        });
        let first = slots.iter().rev().max_by(|a, b| by_slot[**a as usize].total_cmp(&by_slot[**b as usize]));
        Err(Invalid {
            slot: first.copied(),
            links: vec![link],
            reason: InvalidDecision::AboveCapacity { rate, capacity },
        })
    }
}

/// Maximum number of queues: a class has 16 bits.
const MAX_QUEUES: usize = 1 << 16;

/// Checks the queues and the classes of a policy that leaves rates to the transport.
fn check_queues(
    queues: &QueueDiscipline,
    support: TrunkSupport,
    allocation: &Allocation,
    network: &Network,
) -> Result<(), Invalid> {
    if support != TrunkSupport::Transport {
        return Err(Invalid::new(InvalidDecision::UndeclaredQueues(support)));
    }
    let (count, is_valid) = match &queues.inter_queue {
        InterQueueSharing::Weighted(weights) => {
            (weights.len(), weights.iter().all(|weight| *weight > 0.0 && weight.is_finite()))
        }
        InterQueueSharing::StrictPriority(count) => (*count, true),
    };
    if !(1..=MAX_QUEUES).contains(&count) || !is_valid {
        return Err(Invalid::new(InvalidDecision::Queues));
    }
    let own_rate = allocation.flow_rates().first();
    for &slot in network.active_coflows() {
        let class = allocation.class(slot);
        if class >= count {
            return Err(Invalid::about_coflow(slot, InvalidDecision::Class { class, count }));
        }
        if allocation.common(slot) != CommonRate::None || own_rate.is_some_and(|rated| rated.slot == slot) {
            return Err(Invalid::about_coflow(slot, InvalidDecision::RatesAndQueues));
        }
    }
    Ok(())
}

/// Checks that the common rate of a coflow is valid, and of the kind that its policy can set.
fn check_common_rate(
    slot: Slot,
    allocation: &Allocation,
    network: &Network,
    now: f64,
) -> Result<(), Invalid> {
    let coflow = network.coflow(slot);
    let kind = coflow.common_rate_kind();
    let has_outgrown = || kind == CommonRateKind::EstimatedRates && coflow.has_outgrown_live_flow(now);
    let reason = match allocation.common(slot) {
        CommonRate::None => return Ok(()),
        CommonRate::Equal(_) if kind.is_proportional() => InvalidDecision::EqualRates,
        CommonRate::Equal(rate) if rate >= 0.0 && rate.is_finite() => return Ok(()),
        CommonRate::Equal(rate) => InvalidDecision::CommonRate(rate),
        CommonRate::CompleteTogether(_) if !kind.is_proportional() => InvalidDecision::RatesBySize,
        CommonRate::CompleteTogether(_) if has_outgrown() => InvalidDecision::OutgrownEstimate,
        CommonRate::CompleteTogether(seconds) if seconds > 0.0 => return Ok(()),
        CommonRate::CompleteTogether(seconds) => InvalidDecision::CompletionTime(seconds),
    };
    Err(Invalid::about_coflow(slot, reason))
}
