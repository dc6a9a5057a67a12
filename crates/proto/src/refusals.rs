//! What agents refuse, in figures that only rise.

use crate::wire::Refusals;

impl Refusals {
    /// Each by what its reason is called.
    pub fn by_reason(&self) -> [(&'static str, u64); 11] {
        [
            ("older", self.older),
            ("repeated", self.repeated),
            ("gap", self.gap),
            ("lease", self.lease),
            ("unsorted", self.unsorted),
            ("flows", self.flows),
            ("interface", self.interface),
            ("rate", self.rate),
            ("weights", self.weights),
            ("classes", self.classes),
            ("limits", self.limits),
        ]
    }

    /// What was refused since an agent said `last`. If that is more of anything, the agent began anew.
    pub fn since(self, last: Refusals) -> Refusals {
        let mut both = self.by_reason().into_iter().zip(last.by_reason());
        let began_anew = both.any(|((_, now), (_, last))| now < last);
        if began_anew { self } else { self.with(last, u64::saturating_sub) }
    }

    /// The sum of both.
    pub fn plus(self, more: Refusals) -> Refusals {
        self.with(more, u64::saturating_add)
    }

    fn with(self, other: Refusals, of: impl Fn(u64, u64) -> u64) -> Refusals {
        Refusals {
            older: of(self.older, other.older),
            repeated: of(self.repeated, other.repeated),
            gap: of(self.gap, other.gap),
            lease: of(self.lease, other.lease),
            unsorted: of(self.unsorted, other.unsorted),
            flows: of(self.flows, other.flows),
            interface: of(self.interface, other.interface),
            rate: of(self.rate, other.rate),
            weights: of(self.weights, other.weights),
            classes: of(self.classes, other.classes),
            limits: of(self.limits, other.limits),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_rise_also_when_an_agent_begins_anew() {
        let refused = |older, rate| Refusals { older, rate, ..Refusals::default() };
        let said = [refused(2, 1), refused(2, 4), refused(0, 1), refused(0, 1), refused(u64::MAX, 1)];
        let (mut last, mut sum) = (Refusals::default(), Refusals::default());
        let sums = said.map(|now| {
            sum = sum.plus(now.since(last));
            last = now;
            (sum.older, sum.rate)
        });
        assert_eq!(sums, [(2, 1), (2, 4), (2, 5), (2, 5), (u64::MAX, 5)]);
        let all: u64 = sum.by_reason().iter().map(|(_, count)| count % 7).sum();
        assert_eq!(all, u64::MAX % 7 + 5);
    }
}
