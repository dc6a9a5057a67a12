//! Varys: smallest effective bottleneck first (SEBF), with optional deadlines.
//!
//! Source: Chowdhury et al., "Efficient Coflow Scheduling with Varys", SIGCOMM '14, sections 5.1 to 5.4.
//!
//! - *SEBF*: coflows are ordered by Γ, the time in which the remaining bytes of a coflow complete on idle ports. The
//!   paper reorders "whenever anything happens"; here Γ is recomputed from the remaining bytes at every schedule.
//!   CoflowSim computes Γ once, at arrival.
//! - *Deadline mode* (`deadlines=on`): a coflow with a deadline is admitted if it can complete in time on the
//!   residual capacity of the coflows admitted before. An admitted coflow is served first, at the rates at which all
//!   of its flows complete at the deadline.
//! - *Coflows without a deadline* follow the admitted coflows, in the order of SEBF. The paper does not cover this
//!   mix.
//! - *Rejected coflows* receive only the residual capacity after all others, so they delay no other coflow. The paper
//!   does not cover them. CoflowSim drops rejected coflows, which hides how late they would complete.
//! - *Admission* counts only flows whose data exists, because the arrival of the other data is unknown. A coflow that
//!   waits for data may therefore be admitted and miss its deadline, or make a coflow that is admitted later miss its
//!   deadline.
//! - If a port of an admitted coflow slows down, the coflow may miss its deadline. It then completes as early as
//!   possible.

use super::coflow_order::{SortedCoflows, assign_madd, assign_madd_or_backfill, backfill_coflows};
use super::{Event, Params, ParamsError, Policy};
use crate::allocation::{Allocation, OrderCriterion, Rule};
use crate::model::{CoflowKey, SizesKnown, Slot, View};
use crate::rounding;
use crate::solve::ResidualCapacity;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Admission {
    /// The coflow has no deadline, or deadline mode is off.
    #[default]
    NotApplicable,
    /// The coflow waits for its first schedule.
    Pending,
    Admitted,
    /// The criterion states the reason.
    Rejected(OrderCriterion),
}

/// SEBF with optional admission by deadline.
pub struct Varys {
    deadline_mode: bool,
    admissions: Vec<Admission>,
    residual: ResidualCapacity,
    coflow_order: SortedCoflows,
}

impl Varys {
    pub(super) fn from_params(params: &mut Params) -> Result<Varys, ParamsError> {
        Ok(Varys {
            deadline_mode: params.take_switch("deadlines", false)?,
            admissions: Vec::new(),
            residual: ResidualCapacity::default(),
            coflow_order: SortedCoflows::default(),
        })
    }

    /// Sets the rates of the admitted coflows, in order of release, and then admits or rejects the pending coflows.
    fn admit_by_deadline(&mut self, view: &View<'_, SizesKnown>, out: &mut Allocation) {
        for pending in [false, true] {
            for &slot in view.active_coflows() {
                let coflow = view.coflow(slot);
                let left = coflow.deadline - view.now();
                let admission = &mut self.admissions[slot as usize];
                match *admission {
                    Admission::Admitted if !pending => {}
                    Admission::Pending if pending => {
                        let needed = match self.residual.admits(coflow) {
                            true => self.residual.min_completion_time(view.remaining_loads(slot)),
                            false => f64::INFINITY,
                        };
                        if needed > left * (1.0 + rounding::PROGRESS) {
                            // Conversions to integers saturate.
                            let [needed_us, left_us] =
                                [needed, left].map(|seconds| (seconds * 1e6).round() as u64);
                            *admission = Admission::Rejected(OrderCriterion::Rejected { needed_us, left_us });
                            continue;
                        }
                        *admission = Admission::Admitted;
                    }
                    _ => continue,
                }
                if coflow.live_count() > 0 && assign_madd(slot, left, &mut self.residual, view, out) {
                    out.set_rule(slot, Rule::Deadline);
                }
            }
        }
    }
}

impl Policy for Varys {
    type Knowledge = SizesKnown;

    fn uses(&self, key: CoflowKey) -> bool {
        self.deadline_mode && key == CoflowKey::Deadline
    }

    fn on_event(&mut self, event: Event, view: &mut View<'_, SizesKnown>) {
        if let Event::CoflowReleased(slot) = event {
            self.admissions.resize(view.slots(), Admission::NotApplicable);
            let has_deadline = self.deadline_mode && view.coflow(slot).deadline.is_finite();
            self.admissions[slot as usize] =
                if has_deadline { Admission::Pending } else { Admission::NotApplicable };
        }
    }

    /// O(coflows x ports of each).
    fn schedule(&mut self, view: &mut View<'_, SizesKnown>, out: &mut Allocation) {
        self.residual.reset(view.fabric());
        if self.deadline_mode {
            self.admit_by_deadline(view, out);
        }
        self.coflow_order.sort(view, out, |slot| view.effective_bottleneck(slot));
        for slot in self.coflow_order.slots() {
            if let Admission::Rejected(reason) = self.admissions[slot as usize] {
                out.set_order_criterion(slot, reason);
                out.set_rule(slot, Rule::Backfill);
            }
            if self.admissions[slot as usize] == Admission::NotApplicable {
                assign_madd_or_backfill(slot, &mut self.residual, view, out);
            }
        }
        for rejected in [false, true] {
            let is_rejected = |slot: Slot| matches!(self.admissions[slot as usize], Admission::Rejected(_));
            let slots = self.coflow_order.slots().filter(|&slot| is_rejected(slot) == rejected);
            backfill_coflows(slots, &mut self.residual, view, out);
        }
    }
}
