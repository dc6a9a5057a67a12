//! Divides a link among services by weight, with minimum rates.

/// Divides `capacity` among services: each gets the higher of its minimum and `weight * level`, with the level at which the shares sum to
/// the capacity. If the minima exceed the capacity, all are reduced by one factor, and services without a minimum get nothing.
///
/// Weights are above zero, and minima finite and not negative; both lists have one entry for each service. O(n log n).
pub fn shares_with_minima(weights: &[f64], minima: &[f64], capacity: f64) -> Vec<f64> {
    debug_assert_eq!(weights.len(), minima.len(), "each service has a weight and a minimum");
    let sum_of_minima: f64 = minima.iter().sum();
    if sum_of_minima >= capacity && sum_of_minima > 0.0 {
        return minima.iter().map(|minimum| minimum / sum_of_minima * capacity).collect();
    }
    // Services above their minimum are those with the lowest minimum for their weight.
    let level_of = |service: usize| minima[service] / weights[service];
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by(|&a, &b| level_of(a).total_cmp(&level_of(b)));
    let mut weight_sums = Vec::with_capacity(order.len());
    let mut sum = 0.0;
    for &service in &order {
        sum += weights[service];
        weight_sums.push(sum);
    }
    let mut fixed = 0.0;
    let mut level = 0.0;
    for (&service, weight_sum) in order.iter().zip(weight_sums).rev() {
        level = (capacity - fixed) / weight_sum;
        if level >= level_of(service) {
            break;
        }
        fixed += minima[service];
    }
    weights.iter().zip(minima).map(|(weight, minimum)| minimum.max(weight * level)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::shares_with_minima;

    #[test]
    fn service_below_its_minimum_gets_it_and_others_divide_the_rest_by_weight() {
        assert_eq!(shares_with_minima(&[1.0, 1.0, 2.0], &[60.0, 0.0, 0.0], 120.0), [60.0, 20.0, 40.0]);
        // Its weight alone gives it more.
        assert_eq!(shares_with_minima(&[1.0, 1.0, 2.0], &[20.0, 0.0, 0.0], 120.0), [30.0, 30.0, 60.0]);
        // After the first one has its minimum, the level is too low for the second one.
        assert_eq!(shares_with_minima(&[1.0, 1.0, 2.0], &[60.0, 25.0, 0.0], 120.0), [60.0, 25.0, 35.0]);
        // The link is slower than the configuration says.
        assert_eq!(shares_with_minima(&[1.0, 1.0, 2.0], &[60.0, 20.0, 0.0], 40.0), [30.0, 10.0, 0.0]);
    }

    proptest! {
        #[test]
        fn shares_sum_to_the_capacity_and_are_proportional_above_minima(
            services in vec((-9.0..9.0f64, prop_oneof![Just(0.0), 0.0..1.0f64]), 1..40),
            used in 0.0..0.999f64,
            capacity in 1e3..1e10f64,
        ) {
            let weights: Vec<f64> = services.iter().map(|(exponent, _)| 10f64.powf(*exponent)).collect();
            let sum: f64 = services.iter().map(|(_, minimum)| minimum).sum();
            let scale = if sum > 0.0 { used * capacity / sum } else { 0.0 };
            let minima: Vec<f64> = services.iter().map(|(_, minimum)| minimum * scale).collect();
            let shares = shares_with_minima(&weights, &minima, capacity);
            let total: f64 = shares.iter().sum();
            prop_assert!((total / capacity - 1.0).abs() < 1e-9, "{} instead of {}", total, capacity);
            prop_assert!(shares.iter().zip(&minima).all(|(share, minimum)| share >= minimum));
            let above = || (0..shares.len()).filter(|&at| shares[at] > minima[at]);
            let level = above().map(|at| shares[at] / weights[at]).fold(0.0, f64::max);
            for at in above() {
                prop_assert!((shares[at] / weights[at] / level - 1.0).abs() < 1e-9);
            }
            // A service at its minimum would get less by weight.
            for at in (0..shares.len()).filter(|&at| shares[at] == minima[at]) {
                prop_assert!(weights[at] * level <= minima[at] * (1.0 + 1e-9));
            }
        }
    }
}
