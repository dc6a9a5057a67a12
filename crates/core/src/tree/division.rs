//! Division of a port side among claims by weight.

/// Divides `total` in proportion to `weights`, up to the `claims`.
///
/// No part exceeds its claim while another claim is not met. Capacity above all claims is divided in proportion to
/// the weights as well, so the parts add up to `total`. Requires at least one weight; all weights are above 0, and
/// claims are not negative (infinite: no limit). O(parts^2) at worst.
pub(super) fn divide_by_weight(total: f64, weights: &[f64], claims: &[f64], parts: &mut Vec<f64>) {
    parts.clear();
    if let [_] = weights {
        // Avoids the rounding error of a multiplication and a division by the weight.
        parts.push(total);
        return;
    }
    parts.resize(weights.len(), f64::NAN);
    let mut left = total;
    loop {
        let open_parts = parts.iter().zip(weights).filter(|(part, _)| part.is_nan());
        let open_weight: f64 = open_parts.map(|(_, weight)| weight).sum();
        if open_weight == 0.0 {
            let level = left.max(0.0) / weights.iter().sum::<f64>();
            parts.iter_mut().zip(weights).for_each(|(part, weight)| *part += weight * level);
            return;
        }
        let level = left.max(0.0) / open_weight;
        let mut settled = false;
        for ((part, &weight), &claim) in parts.iter_mut().zip(weights).zip(claims) {
            if part.is_nan() && claim <= weight * level {
                *part = claim;
                left -= claim;
                settled = true;
            }
        }
        if !settled {
            let undecided = parts.iter_mut().zip(weights).filter(|(part, _)| part.is_nan());
            undecided.for_each(|(part, weight)| *part = weight * level);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::divide_by_weight;

    fn divide_parts(total: f64, weights: &[f64], claims: &[f64]) -> Vec<f64> {
        let mut parts = Vec::new();
        divide_by_weight(total, weights, claims, &mut parts);
        parts
    }

    #[test]
    fn division_matches_hand_computation() {
        let all = f64::INFINITY;
        assert_eq!(divide_parts(12.0, &[1.0, 2.0], &[all, all]), [4.0, 8.0]);
        // The first claims less than its 4. The other two divide the residual capacity 1 to 2.
        assert_eq!(divide_parts(12.0, &[1.0, 1.0, 2.0], &[0.0, all, all]), [0.0, 4.0, 8.0]);
        assert_eq!(divide_parts(12.0, &[1.0, 1.0, 1.0], &[3.0, 4.0, all]), [3.0, 4.0, 5.0]);
        // The unclaimed 6 are divided too.
        assert_eq!(divide_parts(12.0, &[1.0, 2.0], &[2.0, 4.0]), [4.0, 8.0]);
        assert_eq!(divide_parts(12.0, &[1.0, 2.0], &[6.0, 0.0]), [8.0, 4.0]);
        assert_eq!(divide_parts(0.0, &[1.0, 2.0], &[1.0, all]), [0.0, 0.0]);
        assert_eq!(divide_parts(0.3, &[0.7], &[0.1]), [0.3]);
    }
}
