//! How a link shares its capacity between the flows that it is offered.

use crate::rounding;

/// The share of flows at a link.
#[derive(Debug)]
pub(super) struct Share {
    /// The sum of the offered rates.
    pub offered: f64,
    /// The level to which the link limits rates, if it is overloaded.
    pub level: Option<f64>,
}

/// Rates, each of a number of flows.
#[derive(Debug, Clone, Copy)]
pub(super) struct OfferedRates<'a, C> {
    pub rates: &'a [f64],
    /// The number of flows with the rate at a position.
    pub count_of: C,
    pub flow_count: f64,
}

impl<C: Fn(usize) -> f64> OfferedRates<'_, C> {
    /// The sums of functions of rates and numbers of flows, in four lanes, so that additions do not wait for each other.
    fn lane_sums<const N: usize>(&self, terms_of: impl Fn(f64, f64) -> [f64; N]) -> [f64; N] {
        let mut parts = [[0.0; 4]; N];
        let mut add = |lane: usize, at: usize, rate: f64| {
            for (part, term) in parts.iter_mut().zip(terms_of(rate, (self.count_of)(at))) {
                part[lane] += term;
            }
        };
        let fours = self.rates.chunks_exact(4);
        let rest = fours.remainder();
        let mut first = 0;
        for four in fours {
            (0..4).for_each(|lane| add(lane, first + lane, four[lane]));
            first += 4;
        }
        rest.iter().enumerate().for_each(|(lane, &rate)| add(lane, first + lane, rate));
        parts.map(|part| (part[0] + part[1]) + (part[2] + part[3]))
    }

    /// Shares `capacity`. `previous_level` is the start of the search for the level; 0 if the link was not overloaded.
    #[inline(never)]
    pub fn share(&self, capacity: f64, previous_level: f64) -> Share {
        // One pass computes the offered rate and, from the last level, the start of the search for the new one.
        let [offered, below_count, below_rate] = self.lane_sums(|rate, count| {
            let [below_count, below_rate] = count_and_rate_below(rate, count, previous_level);
            [rate * count, below_count, below_rate]
        });
        // Rounding must not mark a link as overloaded if it is offered exactly its capacity.
        let is_overloaded = offered > capacity * (1.0 + rounding::PARTS);
        let level = is_overloaded.then(|| self.max_min_level(capacity, [below_count, below_rate]));
        // A level that differs by rounding stays. Otherwise links could change each other's levels without end.
        let is_rounding = |level: f64| (level - previous_level).abs() <= rounding::PARTS * previous_level;
        Share { offered, level: level.map(|level| if is_rounding(level) { previous_level } else { level }) }
    }

    /// The level to which max-min sharing of `capacity` limits the rates, whose sum is larger. `start` is the number and the sum
    /// of the rates below some level, preferably one near the result.
    ///
    /// The carried rate is a concave function of the level. The first step of Newton's method from any level therefore does not
    /// pass the result, and later steps only rise.
    fn max_min_level(&self, capacity: f64, start: [f64; 2]) -> f64 {
        let even_share = capacity / self.flow_count;
        let [mut below_count, below_rate] = start;
        let mut share = if below_count < self.flow_count {
            (capacity - below_rate) / (self.flow_count - below_count)
        } else {
            even_share
        };
        // Rates below the share stay at their value, which raises the share of the others.
        for step in 0.. {
            let [count, taken] = self.lane_sums(|rate, count| count_and_rate_below(rate, count, share));
            // The same number of rates below the share means the same rates.
            if count == below_count || count == self.flow_count || (step > 0 && count < below_count) {
                break;
            }
            below_count = count;
            share = share.max((capacity - taken) / (self.flow_count - count));
        }
        share
    }
}

/// What flows with a rate add to the number of flows below a level, and to the sum of their rates.
fn count_and_rate_below(rate: f64, count: f64, level: f64) -> [f64; 2] {
    if rate < level { [count, rate * count] } else { [0.0, 0.0] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same result by a loop over the sorted rates.
    fn level_by_sorting(mut rates: Vec<f64>, capacity: f64) -> f64 {
        rates.sort_by(f64::total_cmp);
        let mut left = capacity;
        for (at, &rate) in rates.iter().enumerate() {
            let share = left / (rates.len() - at) as f64;
            if rate >= share {
                return share;
            }
            left -= rate;
        }
        unreachable!("they add up to more")
    }

    proptest! {
        #[test]
        fn levels_match_max_min(
            flows in prop::collection::vec((0.01f64..10.0, 1usize..4), 1..40),
            part in 0.05f64..0.99,
            from in 0.0f64..12.0,
        ) {
            let rates: Vec<f64> = flows.iter().map(|(rate, _)| *rate).collect();
            let by_flow: Vec<f64> =
                flows.iter().flat_map(|(rate, count)| std::iter::repeat_n(*rate, *count)).collect();
            let capacity = part * by_flow.iter().sum::<f64>();
            let offers = OfferedRates {
                rates: &rates,
                count_of: |at: usize| flows[at].1 as f64,
                flow_count: by_flow.len() as f64,
            };
            let level = offers.share(capacity, from).level.unwrap();
            let expected = level_by_sorting(by_flow, capacity);
            prop_assert!((level / expected - 1.0).abs() < 1e-9, "{level}, not {expected}");
        }
    }
}
