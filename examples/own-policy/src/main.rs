//! The commands of `weir` with one more policy: `las`, least attained service.

use std::process::ExitCode;

use weir_core::allocation::{Allocation, CommonRate, Rule};
use weir_core::model::{SizesUnknown, Slot, View};
use weir_core::policy::{AnyPolicy, Params, ParamsError, Policy, PolicyEntry};
use weir_core::solve::ResidualCapacity;
use weir_core::units::Time;

/// Least attained service: the coflow that has sent the fewest bytes goes first.
struct LeastAttainedService {
    /// The time between two schedules without an event, in seconds.
    seconds: f64,
    residual: ResidualCapacity,
    order: Vec<(f64, u64, Slot)>,
}

impl LeastAttainedService {
    fn from_params(params: &mut Params) -> Result<AnyPolicy, ParamsError> {
        let default = Time::new(0.01).expect("10 ms is a valid time");
        let every = params.take_value("every", default, |time| time.get() > 0.0, "a time above 0")?;
        let policy = LeastAttainedService {
            seconds: every.get(),
            residual: ResidualCapacity::default(),
            order: Vec::new(),
        };
        Ok(AnyPolicy::SizesUnknown(Box::new(policy)))
    }
}

impl Policy for LeastAttainedService {
    type Knowledge = SizesUnknown;

    fn schedule(&mut self, view: &mut View<'_, SizesUnknown>, out: &mut Allocation) {
        // Ties by order of arrival.
        self.order.clear();
        for &slot in view.active_coflows() {
            self.order.push((view.total_sent_bytes(slot), view.coflow(slot).seq, slot));
        }
        self.order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));

        // One rate for all flows of a coflow, if each of its links has residual capacity.
        self.residual.reset(view.fabric());
        for &(_, _, slot) in &self.order {
            let coflow = view.coflow(slot);
            if coflow.live_count() > 0 && self.residual.admits(coflow) {
                let rate = self.residual.max_equal_rate(coflow);
                self.residual.subtract_equal_rates(coflow, rate);
                out.set_common(slot, CommonRate::Equal(rate));
                out.set_rule(slot, Rule::AllOrNone);
            } else {
                out.set_rule(slot, Rule::WorkConservation);
            }
        }

        // Residual capacity, flow by flow.
        for &(_, _, slot) in &self.order {
            self.residual.fill_flows(view.coflow(slot), |flow, rate| out.add_flow_rate(slot, flow, rate));
        }
    }

    // The bytes sent change continuously, so the order has to be looked at again.
    fn next_wakeup(&mut self, view: &mut View<'_, SizesUnknown>, _: &Allocation) -> f64 {
        view.now() + self.seconds
    }
}

fn main() -> ExitCode {
    weir_cli::run(vec![PolicyEntry {
        name: "las",
        description: "least attained service first; sizes unknown",
        params: &[("every=10ms", "time between two schedules without an event")],
        build: LeastAttainedService::from_params,
    }])
}
