//! What blind and clairvoyant policies can read and decide.

use pyo3::PyResult;
use pyo3::exceptions::PyAttributeError;
use weir_core::allocation::{Allocation, CommonRate, Rule};
use weir_core::model::{Knowledge, SizesKnown, SizesUnknown, Slot, TotalsKnown, View};
use weir_core::policy::coflow_order::{assign_equal_rates, assign_madd_or_backfill};
use weir_core::solve::ResidualCapacity;

/// The knowledge of a policy that is written in Python.
pub(super) trait PolicyKnowledge: Knowledge + TotalsKnown + Send {
    /// Bytes that the most advanced flow of a coflow has sent.
    fn max_sent_bytes(slot: Slot, view: &mut View<'_, Self>) -> f64
    where
        Self: Sized;

    /// A view that has sizes.
    ///
    /// # Errors
    /// If the policy does not know sizes.
    fn with_sizes<'a, 'b>(view: &'a View<'b, Self>, field: &str) -> PyResult<&'a View<'b, SizesKnown>>
    where
        Self: Sized;

    /// Gives a coflow the common rates of an order: equal rates, or MADD.
    fn assign_in_order(
        slot: Slot,
        residual: &mut ResidualCapacity,
        view: &View<'_, Self>,
        out: &mut Allocation,
    ) where
        Self: Sized;

    /// The common rate that a number of the policy means: bytes per second, or seconds until all flows have completed.
    ///
    /// # Errors
    /// The expected number.
    fn common_rate(number: f64) -> Result<CommonRate, &'static str>;
}

impl PolicyKnowledge for SizesUnknown {
    fn max_sent_bytes(slot: Slot, view: &mut View<'_, SizesUnknown>) -> f64 {
        view.max_sent_bytes(slot)
    }

    fn with_sizes<'a, 'b>(_: &'a View<'b, SizesUnknown>, field: &str) -> PyResult<&'a View<'b, SizesKnown>> {
        Err(PyAttributeError::new_err(format!(
            "`{field}` of a blind policy: sizes are unknown; derive the class from weir.ClairvoyantPolicy to read them"
        )))
    }

    fn assign_in_order(
        slot: Slot,
        residual: &mut ResidualCapacity,
        view: &View<'_, SizesUnknown>,
        out: &mut Allocation,
    ) {
        assign_equal_rates(slot, residual, view, out);
    }

    fn common_rate(number: f64) -> Result<CommonRate, &'static str> {
        match number {
            0.0 => Ok(CommonRate::None),
            rate if rate > 0.0 && rate.is_finite() => Ok(CommonRate::Equal(rate)),
            _ => Err("a finite rate of at least 0 bytes per second"),
        }
    }
}

impl PolicyKnowledge for SizesKnown {
    /// O(flows of the coflow).
    fn max_sent_bytes(slot: Slot, view: &mut View<'_, SizesKnown>) -> f64 {
        let flows = 0..view.coflow(slot).width() as u32;
        flows.map(|flow| view.sent_bytes(slot, flow)).fold(0.0, f64::max)
    }

    fn with_sizes<'a, 'b>(view: &'a View<'b, SizesKnown>, _: &str) -> PyResult<&'a View<'b, SizesKnown>> {
        Ok(view)
    }

    fn assign_in_order(
        slot: Slot,
        residual: &mut ResidualCapacity,
        view: &View<'_, SizesKnown>,
        out: &mut Allocation,
    ) {
        assign_madd_or_backfill(slot, residual, view, out);
    }

    fn common_rate(number: f64) -> Result<CommonRate, &'static str> {
        match number {
            f64::INFINITY => Ok(CommonRate::None),
            seconds if seconds > 0.0 => Ok(CommonRate::CompleteTogether(seconds)),
            _ => Err("a time above 0 seconds, or infinity for no rate"),
        }
    }
}

/// Gives a coflow its common rates in an order of coflows.
pub(super) fn serve_in_order<K: PolicyKnowledge>(
    slot: Slot,
    residual: &mut ResidualCapacity,
    view: &View<'_, K>,
    out: &mut Allocation,
    has_backfilling: bool,
) {
    K::assign_in_order(slot, residual, view, out);
    if !has_backfilling && out.common(slot) == CommonRate::None {
        out.set_rule(slot, Rule::NotAdmitted);
    }
}

/// The live flows of coflows: the position of the coflow, its slot, and the flow.
pub(super) fn live_flows<'a, K: Knowledge>(
    view: &'a View<'_, K>,
) -> impl Iterator<Item = (usize, Slot, u32)> + 'a {
    let slots = view.active_coflows().iter().enumerate();
    slots.flat_map(|(position, &slot)| view.coflow(slot).live_flows().map(move |flow| (position, slot, flow)))
}
