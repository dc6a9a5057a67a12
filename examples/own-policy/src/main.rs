//! The commands of `weir` with one more policy: `two-queues`.

use std::process::ExitCode;

use weir_core::allocation::Rule;
use weir_core::model::{SizesKnown, Slot, View};
use weir_core::policy::{AnyPolicy, CoflowOrder, OrderedPolicy, PolicyEntry, Thresholds};
use weir_core::units::Bytes;

/// Two queues, below and above a threshold of bytes sent. First in, first out inside a queue.
struct TwoQueues(Thresholds);

impl CoflowOrder for TwoQueues {
    fn queue(&self, slot: Slot, view: &View<'_, SizesKnown>) -> usize {
        self.0.queue_by_sent_bytes(view.total_sent_bytes(slot))
    }

    fn rule(&self, queue: usize) -> Rule {
        Rule::Other(["below-threshold", "above-threshold"][queue])
    }

    // A coflow changes its queue without an event.
    fn next_wakeup(&mut self, view: &View<'_, SizesKnown>) -> f64 {
        self.0.next_queue_change(view)
    }
}

fn main() -> ExitCode {
    weir_cli::run(vec![PolicyEntry {
        name: "two-queues",
        description: "two queues by bytes sent, FIFO and MADD inside; needs flow sizes",
        params: &[("threshold=1MB", "bytes that a coflow sends in the first queue")],
        build: |params| {
            let default = Bytes::new(1e6).expect("1 MB is a valid size");
            let is_valid = |bytes: &Bytes| bytes.get() > 0.0;
            let threshold =
                params.take_value("threshold", default, is_valid, "a size above 0 such as 1MB")?;
            let order = TwoQueues(Thresholds::new(threshold, 10.0, 2));
            Ok(AnyPolicy::from(OrderedPolicy::new(order)))
        },
    }])
}
