//! Estimates the remaining time of a profile from the runs so far.

/// Estimates the total duration of the remaining runs, in seconds; none before the first run has completed. `completed` has the
/// fractions of the bandwidth and the durations so far, in descending order of fractions.
///
/// The model is a constant computing time plus a sending time that is inversely proportional to the bandwidth. The first and the last run
/// determine both. With one run, all of its time counts as sending.
pub fn estimate_remaining(completed: &[(f64, f64)], remaining_fractions: &[f64]) -> Option<f64> {
    let (&(first_fraction, first), &(last_fraction, last)) = (completed.first()?, completed.last()?);
    let sending_secs = if last_fraction < first_fraction {
        (last - first) / (1.0 / last_fraction - 1.0 / first_fraction)
    } else {
        first * first_fraction
    };
    let sending_secs = sending_secs.clamp(0.0, first * first_fraction);
    let computing_secs = first - sending_secs / first_fraction;
    Some(remaining_fractions.iter().map(|fraction| computing_secs + sending_secs / fraction).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimate_uses_the_first_and_last_run() {
        assert_eq!(estimate_remaining(&[], &[0.5]), None);
        // With one run, all of its time counts as sending.
        assert_eq!(estimate_remaining(&[(1.0, 2.0)], &[0.5, 0.25]), Some(12.0));
        // Sending takes one second of two.
        assert_eq!(estimate_remaining(&[(1.0, 2.0), (0.5, 3.0)], &[0.25]), Some(5.0));
        // The estimated sending time is not negative.
        assert_eq!(estimate_remaining(&[(1.0, 2.0), (0.5, 1.9)], &[0.25, 0.25]), Some(4.0));
        assert_eq!(estimate_remaining(&[(1.0, 2.0), (0.5, 9.0)], &[0.25]), Some(8.0));
    }
}
