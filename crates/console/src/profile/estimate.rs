//! How long runs still take, judged by those that are over.

/// What runs still take together, in seconds. `done` has the parts of the bandwidth and times so far, from much to little bandwidth, and
/// `ahead` the parts that are still to be run with. Nothing is known before the first run is over.
///
/// A job computes for some time, and sends for some time that is longer the less bandwidth it has: the first and the last run say how long
/// each. With one alone, all of it may be sending.
pub fn left(done: &[(f64, f64)], ahead: &[f64]) -> Option<f64> {
    let (&(most, first), &(least, last)) = (done.first()?, done.last()?);
    let sends = if least < most { (last - first) / (1.0 / least - 1.0 / most) } else { first * most };
    let sends = sends.clamp(0.0, first * most);
    let computes = first - sends / most;
    Some(ahead.iter().map(|part| computes + sends / part).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_by_what_is_known() {
        assert_eq!(left(&[], &[0.5]), None);
        // All of it sends, for all that is known.
        assert_eq!(left(&[(1.0, 2.0)], &[0.5, 0.25]), Some(12.0));
        // One second of two.
        assert_eq!(left(&[(1.0, 2.0), (0.5, 3.0)], &[0.25]), Some(5.0));
        // Nothing of it, and no less than that.
        assert_eq!(left(&[(1.0, 2.0), (0.5, 1.9)], &[0.25, 0.25]), Some(4.0));
        assert_eq!(left(&[(1.0, 2.0), (0.5, 9.0)], &[0.25]), Some(8.0));
    }
}
