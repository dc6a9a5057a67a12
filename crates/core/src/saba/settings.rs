//! Settings of a controller.

use std::num::NonZeroU16;

use super::sensitivity::Fraction;

/// Settings of the operator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ControllerSettings {
    /// The fraction of each port that is reserved for Saba (C_saba). The last queue of the port gets the rest.
    pub c_saba: Fraction,
    /// The minimum weight of an application at a port, as a fraction of an even share of C_saba.
    /// [`super::app_weights::DEFAULT_MIN_SHARE`] is the default.
    pub min_share: Fraction,
    /// Maximum number of priority levels of the network (S).
    pub max_levels: NonZeroU16,
}
