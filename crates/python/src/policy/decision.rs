//! Turns the arrays that a policy in Python returns into an [`Allocation`].

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use weir_core::allocation::{Allocation, Rule};
use weir_core::model::{Slot, View};
use weir_core::policy::PolicyFailure;
use weir_core::policy::coflow_order::backfill_coflows;
use weir_core::solve::ResidualCapacity;

use super::knowledge::{PolicyKnowledge, live_flows, serve_in_order};

/// Rules of policies stay in memory: a policy names few of them.
const MAX_RULES: usize = 1000;

/// The arrays of a decision, in the order of bytes of this machine. Those of flows are by live flow, as in a view.
#[derive(FromPyObject)]
pub(super) struct Decision {
    /// Positions of coflows, as 64-bit integers: they are served in this order.
    order: Option<PyBackedBytes>,
    /// Whether flows of this order use the capacity that is left.
    backfill: bool,
    /// Rates of single flows, in bytes per second.
    rates: Option<PyBackedBytes>,
    /// By coflow: see [`PolicyKnowledge::common_rate`].
    common: Option<PyBackedBytes>,
    /// By coflow: its queue, as a 64-bit integer.
    queues: Option<PyBackedBytes>,
    /// By coflow: the name of the rule that decided.
    rules: Option<Vec<String>>,
}

/// The 64-bit numbers of an array.
fn words(array: &PyBackedBytes) -> impl ExactSizeIterator<Item = u64> {
    array.as_chunks::<8>().0.iter().map(|bytes| u64::from_ne_bytes(*bytes))
}

fn floats(array: &PyBackedBytes) -> impl ExactSizeIterator<Item = f64> {
    words(array).map(f64::from_bits)
}

fn integers(array: &PyBackedBytes) -> impl ExactSizeIterator<Item = i64> {
    words(array).map(u64::cast_signed)
}

fn fail<T>(slot: Option<Slot>, reason: String) -> Result<T, PolicyFailure> {
    Err(PolicyFailure { slot, reason })
}

/// Checks the length of an array.
fn check_length(name: &str, length: usize, expected: usize) -> Result<(), PolicyFailure> {
    match length == expected {
        true => Ok(()),
        false => fail(None, format!("{name}: {length} values; expected {expected}")),
    }
}

/// Writes a decision to `out`.
///
/// # Errors
/// If a number is invalid. Whether rates fit links is checked later, as for all policies of other crates.
pub(super) fn apply_decision<K: PolicyKnowledge>(
    decision: &Decision,
    residual: &mut ResidualCapacity,
    view: &View<'_, K>,
    out: &mut Allocation,
) -> Result<(), PolicyFailure> {
    let slots = view.active_coflows();
    if let Some(queues) = &decision.queues {
        check_length("queues", queues.len() / 8, slots.len())?;
        for (&slot, queue) in slots.iter().zip(integers(queues)) {
            let Ok(class) = u16::try_from(queue) else {
                return fail(Some(slot), format!("queue {queue}; expected 0 to {}", u16::MAX));
            };
            out.set_class(slot, class.into());
        }
    }
    for &slot in slots.iter().filter(|&&slot| view.coflow(slot).live_count() == 0) {
        out.set_rule(slot, Rule::WaitingForData);
    }
    if let Some(order) = &decision.order {
        let order = check_order(order, slots)?;
        serve_coflows(&order, decision.backfill, residual, view, out);
    }
    if let Some(common) = &decision.common {
        check_length("rates of coflows", common.len() / 8, slots.len())?;
        set_common_rates(common, view, out)?;
    }
    if let Some(rates) = &decision.rates {
        add_flow_rates(rates, view, out)?;
    }
    if let Some(rules) = &decision.rules {
        check_length("rules", rules.len(), slots.len())?;
        for (&slot, rule) in slots.iter().zip(rules) {
            if view.coflow(slot).live_count() > 0 {
                out.set_rule(slot, Rule::Other(intern_rule(rule, slot)?));
            }
        }
    }
    Ok(())
}

/// The slots of an order of positions.
fn check_order(order: &PyBackedBytes, slots: &[Slot]) -> Result<Vec<Slot>, PolicyFailure> {
    let mut is_served = vec![false; slots.len()];
    let slot_at = |position: i64| {
        let served =
            usize::try_from(position).ok().and_then(|at| Some((slots.get(at)?, is_served.get_mut(at)?)));
        match served {
            None => {
                let last = slots.len().saturating_sub(1);
                fail(None, format!("order: position {position}; expected positions of coflows, 0 to {last}"))
            }
            Some((&slot, true)) => {
                fail(Some(slot), format!("order: position {position} twice; expected each coflow once"))
            }
            Some((&slot, served)) => {
                *served = true;
                Ok(slot)
            }
        }
    };
    integers(order).map(slot_at).collect()
}

/// Serves coflows in an order: common rates for each, and then the capacity that is left to their flows.
fn serve_coflows<K: PolicyKnowledge>(
    order: &[Slot],
    has_backfilling: bool,
    residual: &mut ResidualCapacity,
    view: &View<'_, K>,
    out: &mut Allocation,
) {
    residual.reset(view.fabric());
    let live = || order.iter().copied().filter(|&slot| view.coflow(slot).live_count() > 0);
    for slot in live() {
        serve_in_order(slot, residual, view, out, has_backfilling);
    }
    if has_backfilling {
        backfill_coflows(live(), residual, view, out);
    }
}

fn set_common_rates<K: PolicyKnowledge>(
    common: &PyBackedBytes,
    view: &View<'_, K>,
    out: &mut Allocation,
) -> Result<(), PolicyFailure> {
    for (&slot, number) in view.active_coflows().iter().zip(floats(common)) {
        match K::common_rate(number) {
            Err(expected) => return fail(Some(slot), format!("{number}; expected {expected}")),
            Ok(common) if view.coflow(slot).live_count() > 0 => out.set_common(slot, common),
            Ok(_) => {}
        }
    }
    Ok(())
}

fn add_flow_rates<K: PolicyKnowledge>(
    rates: &PyBackedBytes,
    view: &View<'_, K>,
    out: &mut Allocation,
) -> Result<(), PolicyFailure> {
    let counts = view.active_coflows().iter().map(|&slot| view.coflow(slot).live_count());
    check_length("rates of flows", rates.len() / 8, counts.sum())?;
    for ((_, slot, flow), rate) in live_flows(view).zip(floats(rates)) {
        if !(rate >= 0.0 && rate.is_finite()) {
            let number = view.coflow(slot).spec_index(flow);
            let expected = "a finite rate of at least 0 bytes per second";
            return fail(Some(slot), format!("rate of flow {number}: {rate}; expected {expected}"));
        }
        if rate > 0.0 {
            out.add_flow_rate(slot, flow, rate);
        }
    }
    Ok(())
}

/// A name that stays in memory.
fn intern_rule(rule: &str, slot: Slot) -> Result<&'static str, PolicyFailure> {
    static RULES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut rules = RULES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = rules.get(rule) {
        return Ok(known);
    }
    if rules.len() == MAX_RULES {
        let expected = format!("at most {MAX_RULES} names of rules in a process");
        return fail(Some(slot), format!("rule `{rule}` is one too many; expected {expected}"));
    }
    let name: &'static str = String::leak(rule.to_owned());
    rules.insert(name);
    Ok(name)
}
