//! The commands of `weir` with one more policy: `least-attained-service`.

use std::process::ExitCode;

use weir_core::allocation::Allocation;
use weir_core::model::{SizesUnknown, View};
use weir_core::policy::coflow_order::{SortedCoflows, assign_equal_rates};
use weir_core::policy::{AnyPolicy, Policy, PolicyEntry, Thresholds};
use weir_core::solve::ResidualCapacity;
use weir_core::units::Bytes;

/// Least attained service: coflows that have sent the fewest bytes are first. A coflow moves back at each threshold of bytes, so that
/// coflows with nearly equal bytes do not take turns at each schedule. Inside a step, coflows are first in, first out.
struct LeastAttainedService {
    thresholds: Thresholds,
    order: SortedCoflows,
    residual: ResidualCapacity,
}

impl Policy for LeastAttainedService {
    type Knowledge = SizesUnknown;

    fn schedule(&mut self, view: &mut View<'_, SizesUnknown>, out: &mut Allocation) {
        for &slot in view.active_coflows() {
            out.set_class(slot, self.thresholds.queue_by_sent_bytes(view.total_sent_bytes(slot)));
        }
        // By class, and in the order of release.
        self.order.sort(view, out, |_| 0.0);
        self.residual.reset(view.fabric());
        for slot in self.order.slots() {
            assign_equal_rates(slot, &mut self.residual, view, out);
        }
        self.order.backfill(&mut self.residual, view, out);
    }

    // A coflow reaches its next step without an event.
    fn next_wakeup(&mut self, view: &mut View<'_, SizesUnknown>, _: &Allocation) -> f64 {
        self.thresholds.next_queue_change(view)
    }
}

fn main() -> ExitCode {
    weir_cli::run(vec![PolicyEntry {
        name: "least-attained-service",
        description: "least attained service first, all or none, then backfilling; sizes unknown",
        params: &[("start=1MB", "bytes of the first step; each later one is twice as long")],
        build: |params| {
            let default = Bytes::new(1e6).expect("1 MB is a valid size");
            let is_valid = |bytes: &Bytes| bytes.get() > 0.0;
            let start = params.take_value("start", default, is_valid, "a size above 0 such as 1MB")?;
            Ok(AnyPolicy::from(LeastAttainedService {
                thresholds: Thresholds::new(start, 2.0, 40),
                order: SortedCoflows::default(),
                residual: ResidualCapacity::default(),
            }))
        },
    }])
}
