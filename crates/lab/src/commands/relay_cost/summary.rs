//! Medians of rounds, as cells of a table.

use std::time::Duration;

use weir_lab::experiment::Measurement;

/// A figure of the rounds of a variant, and those of Weir.
type Figure = fn(&[Option<Measurement>], &[Option<Measurement>]) -> Option<String>;

/// The cells of a load: headers and figures.
#[derive(Debug, Clone, Copy)]
pub struct Cells(&'static [(&'static str, Figure)]);

/// Bytes per CPU-second, the ratio of Weir's to it, and the rate.
pub const EFFICIENCY: Cells =
    Cells(&[("GB/CPU-s", efficiency), ("Weir/this", efficiency_ratio), ("Gbit/s", gigabits)]);

/// Percentiles of latency, and the rate of the bulk flows.
pub const LATENCY: Cells = Cells(&[("P50 ms", p50), ("P99 ms", p99), ("Mbit/s", megabits)]);

/// The rate, and the ratio of Weir's to it.
pub const RATE: Cells = Cells(&[("Mbit/s", megabits), ("Weir/this", rate_ratio), ("GB/CPU-s", efficiency)]);

impl Cells {
    /// The names of the figures.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(name, _)| *name)
    }

    /// The values: `-` without a successful round.
    pub fn values(self, rounds: &[Option<Measurement>], weir: &[Option<Measurement>]) -> Vec<String> {
        self.0.iter().map(|(_, figure)| figure(rounds, weir).unwrap_or_else(|| "-".to_owned())).collect()
    }
}

fn efficiency(rounds: &[Option<Measurement>], _: &[Option<Measurement>]) -> Option<String> {
    let values = rounds.iter().flatten().filter_map(Measurement::bytes_per_cpu_second);
    Some(format!("{:.2}", median(values)? / 1e9))
}

fn efficiency_ratio(rounds: &[Option<Measurement>], weir: &[Option<Measurement>]) -> Option<String> {
    ratio(rounds, weir, Measurement::bytes_per_cpu_second)
}

fn rate_ratio(rounds: &[Option<Measurement>], weir: &[Option<Measurement>]) -> Option<String> {
    ratio(rounds, weir, |measurement| Some(measurement.rate()).filter(|&rate| rate > 0.0))
}

fn gigabits(rounds: &[Option<Measurement>], _: &[Option<Measurement>]) -> Option<String> {
    Some(format!("{:.2}", median(rounds.iter().flatten().map(Measurement::rate))? * 8.0 / 1e9))
}

fn megabits(rounds: &[Option<Measurement>], _: &[Option<Measurement>]) -> Option<String> {
    Some(format!("{:.0}", median(rounds.iter().flatten().map(Measurement::rate))? * 8.0 / 1e6))
}

fn p50(rounds: &[Option<Measurement>], _: &[Option<Measurement>]) -> Option<String> {
    percentile(rounds, 50)
}

fn p99(rounds: &[Option<Measurement>], _: &[Option<Measurement>]) -> Option<String> {
    percentile(rounds, 99)
}

/// The median of the rounds' ratios of Weir to the variant.
fn ratio(
    rounds: &[Option<Measurement>],
    weir: &[Option<Measurement>],
    value: impl Fn(&Measurement) -> Option<f64>,
) -> Option<String> {
    let pairs = weir.iter().zip(rounds).filter_map(|(weir, own)| Some((weir.as_ref()?, own.as_ref()?)));
    let ratios = pairs.filter_map(|(weir, own)| Some(value(weir)? / value(own)?));
    Some(format!("{:.2}", median(ratios)?))
}

/// A percentile of the latencies of all rounds, in milliseconds.
fn percentile(rounds: &[Option<Measurement>], percent: usize) -> Option<String> {
    let mut latencies: Vec<Duration> =
        rounds.iter().flatten().flat_map(|measurement| measurement.latencies.iter().copied()).collect();
    latencies.sort_unstable();
    let last = latencies.len().checked_sub(1)?;
    Some(format!("{:.3}", latencies[(latencies.len() * percent / 100).min(last)].as_secs_f64() * 1e3))
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len() % 2 == 1 { upper } else { f64::midpoint(values[middle - 1], upper) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(bytes: u64, latencies: &[u64]) -> Option<Measurement> {
        let (duration, cpu) = (Duration::from_secs(1), Duration::from_secs(2));
        let latencies = latencies.iter().copied().map(Duration::from_millis).collect();
        Some(Measurement { bytes, duration, cpu, latencies })
    }

    #[test]
    fn ratio_is_the_median_of_the_rounds_in_which_both_succeeded() {
        let weir = [measurement(3, &[]), measurement(40, &[]), None];
        let other = [measurement(1, &[]), measurement(10, &[]), measurement(10, &[])];
        assert_eq!(efficiency_ratio(&other, &weir).as_deref(), Some("3.50"));
        assert_eq!(efficiency_ratio(&other, &[]), None);
    }

    #[test]
    fn figures_are_medians_and_percentiles_of_all_rounds() {
        let rounds = [measurement(4_000_000_000, &[1, 2]), None, measurement(2_000_000_000, &[3, 100])];
        assert_eq!(efficiency(&rounds, &[]).as_deref(), Some("1.50"));
        assert_eq!(p50(&rounds, &[]).as_deref(), Some("3.000"));
        assert_eq!(p99(&rounds, &[]).as_deref(), Some("100.000"));
        assert_eq!(LATENCY.values(&[None], &[]), ["-", "-", "-"]);
    }
}
