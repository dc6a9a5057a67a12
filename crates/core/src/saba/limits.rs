//! The limits of Saba's queues in a simulation, equal at all links (sections 5.1 and 5.3).

use std::num::NonZeroU16;

use super::port::PortLimits;
use super::sensitivity::Fraction;

/// C_saba, and limits of priority levels and queues. By default, C_saba is 1, and each application has a queue at each
/// link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SabaLimits {
    /// The sum of the weights of applications at a link (C_saba). If it is below 1, the last queue is reserved.
    pub c_saba: Fraction,
    /// Maximum number of priority levels; `None`: one for each different model.
    pub max_levels: Option<NonZeroU16>,
    /// Number of queues; `None`: one for each priority level.
    pub queues: Option<NonZeroU16>,
    /// The minimum weight of a queue with applications, as a fraction of the link. Requires `queues`; 0: no minimum.
    pub min_weight: f64,
}

impl Default for SabaLimits {
    fn default() -> SabaLimits {
        SabaLimits { c_saba: Fraction::ALL, max_levels: None, queues: None, min_weight: 0.0 }
    }
}

impl SabaLimits {
    /// The smallest number of queues: the reserved queue, and one for applications.
    pub fn min_queues(&self) -> u16 {
        if self.c_saba < Fraction::ALL { 2 } else { 1 }
    }

    /// The largest feasible minimum weight with the present number of queues, rounded down for messages; none without such a
    /// number.
    pub fn max_min_weight(&self) -> Option<f64> {
        self.queues.map(|queues| PortLimits::rounded_max_min_weight(queues.get(), self.c_saba))
    }

    /// Whether the number of queues is enough for C_saba, and the minimum weight is from 0 to
    /// [`SabaLimits::max_min_weight`], up to rounding.
    pub fn is_feasible(&self) -> bool {
        let min_weight = self.min_weight;
        self.queues.map_or(min_weight == 0.0, |queues| {
            let queues = queues.get();
            queues >= self.min_queues() && PortLimits { queues, min_weight }.is_feasible(self.c_saba)
        })
    }

    /// Whether applications can share a queue.
    pub(crate) fn has_shared_queues(&self) -> bool {
        self.max_levels.is_some() || self.queues.is_some()
    }

    /// The limits of a link if `levels` priority levels are in use.
    pub(crate) fn port_limits(&self, levels: usize) -> PortLimits {
        // With a queue for each level, the reserved queue is an additional one.
        let one_per_level = || u16::try_from(levels).unwrap_or(u16::MAX).saturating_add(1).max(2);
        let queues = self.queues.map_or_else(one_per_level, |queues| queues.get().max(self.min_queues()));
        let max = PortLimits::max_min_weight(queues, self.c_saba);
        PortLimits { queues, min_weight: self.min_weight.clamp(0.0, max) }
    }
}
