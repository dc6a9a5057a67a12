//! A port side between those that have flows there: by weight, and what somebody cannot use goes to the others by weight.

/// Divides `total` in proportion to `weights`; nobody gets more than its claim as long as somebody else claims more. What
/// no one claims is given in proportion to weights as well, on top, so that all of it is given. At least one weight, all
/// above 0; claims are not negative, infinite for all that there is. O(parts^2) at worst.
pub(super) fn divide(total: f64, weights: &[f64], claims: &[f64], parts: &mut Vec<f64>) {
    parts.clear();
    if let [_] = weights {
        // Exactly all of it: the product and the quotient of a weight are not always what it was.
        parts.push(total);
        return;
    }
    // Above 0 while the claim still counts.
    let mut open: f64 = weights.iter().sum();
    let mut left = total;
    parts.resize(weights.len(), f64::NAN);
    loop {
        let level = left / open;
        let before = left;
        for ((part, &weight), &claim) in parts.iter_mut().zip(weights).zip(claims) {
            if part.is_nan() && claim <= weight * level {
                *part = claim;
                left -= claim;
                open -= weight;
            }
        }
        if left == before && parts.iter().any(|part| part.is_nan()) {
            // Claims of nothing change nothing: those that are left share all of it.
            let open: f64 = unclaimed(parts, weights).sum();
            let level = left.max(0.0) / open;
            for (part, &weight) in parts.iter_mut().zip(weights) {
                if part.is_nan() {
                    *part = weight * level;
                }
            }
            return;
        }
        if !parts.iter().any(|part| part.is_nan()) {
            let level = left.max(0.0) / weights.iter().sum::<f64>();
            for (part, &weight) in parts.iter_mut().zip(weights) {
                *part += weight * level;
            }
            return;
        }
        open = unclaimed(parts, weights).sum();
    }
}

/// The weights of those without a part yet.
fn unclaimed<'a>(parts: &'a [f64], weights: &'a [f64]) -> impl Iterator<Item = f64> + 'a {
    parts.iter().zip(weights).filter(|(part, _)| part.is_nan()).map(|(_, &weight)| weight)
}

#[cfg(test)]
mod tests {
    use super::divide;

    fn parts(total: f64, weights: &[f64], claims: &[f64]) -> Vec<f64> {
        let mut parts = Vec::new();
        divide(total, weights, claims, &mut parts);
        parts
    }

    #[test]
    fn by_hand() {
        let all = f64::INFINITY;
        assert_eq!(parts(12.0, &[1.0, 2.0], &[all, all]), [4.0, 8.0]);
        // The first wants less than its 4: the other two have the rest, 1 to 2.
        assert_eq!(parts(12.0, &[1.0, 1.0, 2.0], &[0.0, all, all]), [0.0, 4.0, 8.0]);
        assert_eq!(parts(12.0, &[1.0, 1.0, 1.0], &[3.0, 4.0, all]), [3.0, 4.0, 5.0]);
        // Nobody claims 6 of it: they are shared too.
        assert_eq!(parts(12.0, &[1.0, 2.0], &[2.0, 4.0]), [4.0, 8.0]);
        assert_eq!(parts(12.0, &[1.0, 2.0], &[6.0, 0.0]), [8.0, 4.0]);
        assert_eq!(parts(0.0, &[1.0, 2.0], &[1.0, all]), [0.0, 0.0]);
        assert_eq!(parts(0.3, &[0.7], &[0.1]), [0.3]);
    }
}
