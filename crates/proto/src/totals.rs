//! Defines counts that rise from the start of an agent until it restarts, so a lost report loses no count.

use crate::wire::{RefusedOrders, RestoredObjects};

/// Counts by name, since the start of an agent.
pub trait CounterTotals: Copy + Default {
    /// Applies `op` to each count of `self` and `other`.
    fn combine(self, other: Self, op: impl Fn(u64, u64) -> u64) -> Self;

    /// Each count with its name.
    fn by_name(&self) -> Vec<(&'static str, u64)>;

    /// The increase since the agent reported `last`. If a count is below that of `last`, the agent has restarted, and the increase is
    /// the count itself.
    fn since(self, last: Self) -> Self {
        let restarted = self.by_name().iter().zip(last.by_name()).any(|(now, last)| now.1 < last.1);
        if restarted { self } else { self.combine(last, u64::saturating_sub) }
    }

    /// The sum of both.
    fn add(self, other: Self) -> Self {
        self.combine(other, u64::saturating_add)
    }
}

/// Implements [`CounterTotals`] for a message whose fields are all counts, and the names of the counts in metrics.
macro_rules! totals {
    ($message:ident: $($field:ident = $name:literal),+) => {
        impl CounterTotals for $message {
            fn combine(self, other: Self, op: impl Fn(u64, u64) -> u64) -> Self {
                $message { $($field: op(self.$field, other.$field)),+ }
            }

            fn by_name(&self) -> Vec<(&'static str, u64)> {
                vec![$(($name, self.$field)),+]
            }
        }
    };
}

totals!(
    RefusedOrders: stale_epoch = "stale-epoch", duplicate = "duplicate", gap = "gap", lease = "lease", unsorted = "unsorted",
    flows = "flows", interface = "interface", rate = "rate", weights = "weights", classes = "classes", limits = "limits"
);
totals!(RestoredObjects: queues = "queues", programs = "programs", maps = "maps");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_rise_across_restarts_of_an_agent() {
        let refused_orders =
            |stale_epoch, rate| RefusedOrders { stale_epoch, rate, ..RefusedOrders::default() };
        let reported = [
            refused_orders(2, 1),
            refused_orders(2, 4),
            refused_orders(0, 1),
            refused_orders(0, 1),
            refused_orders(u64::MAX, 1),
        ];
        let (mut last, mut sum) = (RefusedOrders::default(), RefusedOrders::default());
        let sums = reported.map(|now| {
            sum = sum.add(now.since(last));
            last = now;
            (sum.stale_epoch, sum.rate)
        });
        assert_eq!(sums, [(2, 1), (2, 4), (2, 5), (2, 5), (u64::MAX, 5)]);
        let names: Vec<&str> = sum.by_name().iter().map(|(name, _)| *name).collect();
        assert_eq!((names.len(), names[0], names[10]), (11, "stale-epoch", "limits"));
    }
}
