//! Computes the level to which an overloaded receiver limits its flows.

/// The sums of functions of `values`, in four lanes, so that additions do not wait for each other.
pub(super) fn lane_sums<const N: usize>(values: &[f64], terms_of: impl Fn(f64) -> [f64; N]) -> [f64; N] {
    let mut parts = [[0.0; 4]; N];
    let mut add = |lane: usize, value: f64| {
        for (part, term) in parts.iter_mut().zip(terms_of(value)) {
            part[lane] += term;
        }
    };
    let fours = values.chunks_exact(4);
    let rest = fours.remainder();
    for four in fours {
        (0..4).for_each(|lane| add(lane, four[lane]));
    }
    rest.iter().enumerate().for_each(|(lane, &value)| add(lane, value));
    parts.map(|part| (part[0] + part[1]) + (part[2] + part[3]))
}

/// What one rate adds to the number of rates below a level, and to their sum: 1 and the rate, or 0 and 0.
pub(super) fn count_and_rate_below(rate: f64, level: f64) -> [f64; 2] {
    if rate < level { [1.0, rate] } else { [0.0, 0.0] }
}

/// The level at which max-min sharing of `capacity` limits `rates`, whose sum is larger. `start` is the number and the sum
/// of the rates below some level, preferably one near the result.
///
/// The carried rate is a concave function of the level. The first step of Newton's method from any level therefore does not
/// pass the result, and later steps only rise.
pub(super) fn max_min_level(rates: &[f64], capacity: f64, start: [f64; 2]) -> f64 {
    let rate_count = rates.len() as f64;
    let even_share = capacity / rate_count;
    let [mut below_count, below_sum] = start;
    let mut share = if below_count < rate_count {
        (capacity - below_sum) / (rate_count - below_count)
    } else {
        even_share
    };
    // Rates below the share stay at their value, which raises the share of the others.
    for step in 0.. {
        let [count, taken] = lane_sums(rates, |rate| count_and_rate_below(rate, share));
        // The same number of rates below the share means the same rates.
        if count == below_count || count == rate_count || (step > 0 && count < below_count) {
            break;
        }
        below_count = count;
        share = share.max((capacity - taken) / (rate_count - count));
    }
    share
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
        fn local_transport_levels_match_max_min(
            rates in prop::collection::vec(0.01f64..10.0, 1..40),
            part in 0.05f64..0.99,
            from in 0.0f64..12.0,
        ) {
            let capacity = part * rates.iter().sum::<f64>();
            let start = lane_sums(&rates, |rate| count_and_rate_below(rate, from));
            let level = max_min_level(&rates, capacity, start);
            let expected = level_by_sorting(rates, capacity);
            prop_assert!((level / expected - 1.0).abs() < 1e-9, "{level}, not {expected}");
        }
    }
}
