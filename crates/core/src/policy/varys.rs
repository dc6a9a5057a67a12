//! Varys: smallest effective bottleneck first, with deadlines if asked.
//!
//! Chowdhury et al., "Efficient Coflow Scheduling with Varys", SIGCOMM '14, sections 5.1 to 5.4.
//!
//! - *SEBF*: by Γ, the time in which what a coflow has left ends on idle ports. "Whenever anything happens" is taken at its
//!   word: remaining bytes, at every schedule. CoflowSim orders by Γ at arrival, once.
//! - *Deadline mode* (`deadlines=on`): a coflow with a deadline is admitted if, on what the coflows admitted before leave of the
//!   ports, it can end in time; it then gets the rates at which all its flows end at the deadline, first of all. The
//!   paper is silent on coflows that are not admitted, and on coflows without deadlines among those with: the latter
//!   follow in the order of SEBF, the former get what is left over after that, so that they cost nobody anything. (CoflowSim
//!   drops them. Then nobody learns how late they would have been.)
//! - *Admission* counts what a coflow has whose data is there. Nobody knows when the rest comes, so one that waits for some may be
//!   admitted and end late, or make one that was admitted after it late.
//! - An admitted coflow whose port slows down may have to end late: it then ends as soon as it can.

use super::ordered::{backfill, madd};
use super::{Event, Params, ParamsError, Policy};
use crate::allocation::{Allocation, Rule};
use crate::model::{Sizes, Slot, View};
use crate::solve::Residual;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Admission {
    /// Has no deadline, or deadlines do not count.
    #[default]
    None,
    /// Waits for its first schedule.
    Pending,
    Admitted,
    Rejected,
}

/// Smallest effective bottleneck first.
pub struct Varys {
    deadlines: bool,
    admissions: Vec<Admission>,
    residual: Residual,
    turns: Vec<(f64, u64, Slot)>,
}

impl Varys {
    pub(super) fn read(params: &mut Params) -> Result<Varys, ParamsError> {
        Ok(Varys {
            deadlines: params.switch("deadlines", false)?,
            admissions: Vec::new(),
            residual: Residual::default(),
            turns: Vec::new(),
        })
    }

    /// Rates that end the admitted coflows at their deadlines, in order of admission; and admission itself.
    fn keep_deadlines(&mut self, view: &View<'_, Sizes>, out: &mut Allocation) {
        for pending in [false, true] {
            for &slot in view.active() {
                let coflow = view.coflow(slot);
                let left = coflow.deadline - view.now();
                let admission = &mut self.admissions[slot as usize];
                match *admission {
                    Admission::Admitted if !pending => {}
                    Admission::Pending if pending => {
                        let fits = self.residual.admits(coflow)
                            && self.residual.least_time(view.loads(slot)) <= left * (1.0 + 1e-12);
                        *admission = if fits { Admission::Admitted } else { Admission::Rejected };
                        if !fits {
                            continue;
                        }
                    }
                    _ => continue,
                }
                if coflow.live() > 0 && madd(slot, left, &mut self.residual, view, out) {
                    out.set_rule(slot, Rule::Deadline);
                }
            }
        }
    }
}

impl Policy for Varys {
    type Knows = Sizes;

    fn on(&mut self, event: Event, view: &mut View<'_, Sizes>) {
        if let Event::Released(slot) = event {
            self.admissions.resize(view.slots(), Admission::None);
            let counts = self.deadlines && view.coflow(slot).deadline.is_finite();
            self.admissions[slot as usize] = if counts { Admission::Pending } else { Admission::None };
        }
    }

    /// O(coflows x their ports).
    fn schedule(&mut self, view: &mut View<'_, Sizes>, out: &mut Allocation) {
        self.residual.reset(view.fabric());
        if self.deadlines {
            self.keep_deadlines(view, out);
        }
        self.turns.clear();
        for &slot in view.active() {
            let coflow = view.coflow(slot);
            if coflow.live() == 0 {
                out.set_rule(slot, Rule::LacksData);
                continue;
            }
            self.turns.push((view.bottleneck(slot), coflow.seq, slot));
        }
        self.turns.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        for &(_, _, slot) in &self.turns {
            if self.admissions[slot as usize] == Admission::None {
                let rated = madd(slot, 0.0, &mut self.residual, view, out);
                out.set_rule(slot, if rated { Rule::Madd } else { Rule::Backfill });
            }
        }
        for rejected in [false, true] {
            for &(_, _, slot) in &self.turns {
                if self.residual.is_exhausted() {
                    return;
                }
                if (self.admissions[slot as usize] == Admission::Rejected) == rejected {
                    backfill(slot, &mut self.residual, view, out);
                }
            }
        }
    }
}
