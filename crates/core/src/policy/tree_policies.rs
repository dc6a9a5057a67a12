//! The policies `netshare` and `saba`: weights at every port, and max-min fairness between flows inside. Both are
//! policy trees of one level.
//!
//! - `netshare`: NetShare (UCSD 2010), section 2, group allocation. Each service of the trace has its weight at every
//!   port, for any number of flows. TCP is modelled as per-flow max-min.
//! - `saba`: Saba (EuroSys '23), section 5.1. At every port, the applications with flows there get the weights of Eq.
//!   2. By default, C_saba is 1, and each application has a queue. With `levels` or `queues`, applications share queues as
//!   in section 5.3: applications of similar models share a priority level, and the levels at a port share its queues.
//!
//! Choices that the paper leaves open:
//!
//! - *Levels* are computed in advance from all applications of the workload, as in the distributed controller (5.4).
//! - *Inside a queue*, all flows share max-min, as with TCP and a FIFO queue.
//! - *Traffic outside of C_saba*: all applications of a workload are registered, so the reserved queue is empty. Queues
//!   are work-conserving (5.2), so applications use the whole port even if `share` is below 1. `share` changes the result
//!   in two ways: Eq. 2 divides less, and one of the `queues` is reserved. A policy tree with a second service simulates
//!   traffic in the reserved queue.
//!
//! The parameter of `saba` is one number for each application: the slowdown s at half of the bandwidth. The sensitivity
//! model is D(b) = 1 + 4 (s - 1) (1 - b)^2, which decreases, is convex, and has D(1) = 1. For logistic regression at
//! 25, 50 and 75 % of the bandwidth, the model gives 3.8, 2.26 and 1.3; the paper measures 3.4, 2.26 and 1.3. To use
//! models that are fitted to profiles, write a policy tree with a sensitivity table.

use std::num::NonZeroU16;

use super::{Params, ParamsError};
use crate::saba::{Fraction, SabaLimits, Sensitivity};
use crate::tree::spec::TreeSpec;

pub(super) fn netshare_tree(params: &mut Params) -> Result<TreeSpec, ParamsError> {
    let expected = "numbers from 1e-9 to 1e9, separated by `/`, such as 4/2/1";
    let weights = params.take_list("weights", |weight| (1e-9..=1e9).contains(&weight), expected)?;
    Ok(TreeSpec::Netshare(weights.unwrap_or_default()))
}

pub(super) fn saba_tree(params: &mut Params) -> Result<TreeSpec, ParamsError> {
    let expected = "numbers from 1 to 1e6, separated by `/`, such as 2.3/1.1";
    let slowdowns = params.take_list(
        "slowdown",
        |slowdown| (1.0..=Sensitivity::MAX_SLOWDOWN).contains(&slowdown),
        expected,
    )?;
    let models = slowdowns.unwrap_or_default().into_iter().map(Sensitivity::with_slowdown).collect();
    Ok(TreeSpec::Saba { models, limits: saba_limits(params)? })
}

fn saba_limits(params: &mut Params) -> Result<SabaLimits, ParamsError> {
    let share = params.take_value(
        "share",
        1.0,
        |&share| Fraction::new(share).is_ok(),
        "a number above 0 and up to 1",
    )?;
    let c_saba = Fraction::new(share).unwrap_or(Fraction::ALL);
    // 0 stands for a missing parameter.
    let levels =
        params.take_value("levels", 0, |&levels: &u16| levels > 0, "a whole number from 1 to 65535")?;
    let mut limits = SabaLimits { c_saba, max_levels: NonZeroU16::new(levels), ..SabaLimits::default() };
    let min = limits.min_queues();
    let expected = match min {
        1 => "a whole number from 1 to 65535".to_owned(),
        _ => format!("a whole number from {min} to 65535, since `share` reserves one queue"),
    };
    let queues = params.take_value("queues", 0, |&queues: &u16| queues >= min, &expected)?;
    limits.queues = NonZeroU16::new(queues);
    let expected = match limits.max_min_weight() {
        Some(max) => format!("a number from 0 to {max}, the maximum for {queues} queues"),
        None => "0, or also `queues=N`".to_owned(),
    };
    let is_valid = |&min_weight: &f64| SabaLimits { min_weight, ..limits }.is_feasible();
    limits.min_weight = params.take_value("min-weight", 0.0, is_valid, &expected)?;
    Ok(limits)
}
