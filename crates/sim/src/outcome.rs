//! What a replay found.

/// One coflow's fate. Times in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct CoflowOutcome {
    /// Its position in the workload.
    pub index: usize,
    /// The trace's number for it.
    pub id: u64,
    /// When it was released: its arrival, or its parents' end and the computing before it.
    pub arrival: f64,
    /// When its last flow ended.
    pub end: f64,
    /// How many flows it has.
    pub width: usize,
    /// Their bytes.
    pub bytes: f64,
    /// The standard deviation of its flows' completion times over their mean (Saath Fig. 2c and 13).
    pub deviation: f64,
    /// Whether all its flows have one size.
    pub equal_lengths: bool,
    /// Whether it was done in time; `None` without a deadline.
    pub met_deadline: Option<bool>,
    /// When each flow ended, in the order of the specification; empty unless asked for.
    pub flow_ends: Vec<f64>,
}

impl CoflowOutcome {
    /// The coflow completion time: from its release to its last flow's end.
    pub fn cct(&self) -> f64 {
        self.end - self.arrival
    }
}

/// One job's fate: its coflows and the computing around them.
#[derive(Debug, Clone, PartialEq)]
pub struct JobOutcome {
    /// The trace's number for it.
    pub id: u64,
    /// When its first coflow arrived, before computing.
    pub arrival: f64,
    /// When its last computing ended.
    pub end: f64,
}

/// The outcome of a replay.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// In the order of the workload.
    pub coflows: Vec<CoflowOutcome>,
    /// In the order of their numbers.
    pub jobs: Vec<JobOutcome>,
    /// Flows of all coflows.
    pub flows: usize,
    /// When the last flow ended.
    pub makespan: f64,
    /// By port: bytes sent over what the healthy port could have sent until the makespan.
    pub send_utilisation: Vec<f64>,
    /// By port: the same for receiving.
    pub recv_utilisation: Vec<f64>,
    /// How long each schedule took to compute, in nanoseconds; in the order in which they were computed.
    pub schedule_ns: Vec<u32>,
    /// How long the replay took, in seconds.
    pub wall: f64,
}

impl Outcome {
    /// Completion times of the coflows, in the order of the workload.
    pub fn ccts(&self) -> Vec<f64> {
        self.coflows.iter().map(CoflowOutcome::cct).collect()
    }
}

/// The mean; 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// The `p`-th percentile (0 to 100) with linear interpolation between the closest ranks, as numpy and R count by
/// default; 0 of nothing.
pub fn percentile(values: &[f64], p: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let rank = p / 100.0 * last as f64;
    let (low, share) = (rank.floor() as usize, rank.fract());
    let high = (low + 1).min(last);
    sorted[low] + (sorted[high] - sorted[low]) * share
}

/// The standard deviation over the mean (of all values, not of a sample); 0 of nothing, or if the mean is 0.
pub fn deviation(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let count = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / count;
    if mean.is_nan() || mean <= 0.0 {
        return 0.0;
    }
    (values.map(|v| (v - mean) * (v - mean)).sum::<f64>() / count).sqrt() / mean
}

/// For each coflow, its CCT under the baseline over its CCT. One that takes no time under both is as fast under
/// both; one that takes none under one of them has no quotient, and is left out.
pub fn speedups(baseline: &[f64], ccts: &[f64]) -> Vec<f64> {
    baseline
        .iter()
        .zip(ccts)
        .filter_map(|(&base, &cct)| match (base == 0.0, cct == 0.0) {
            (true, true) => Some(1.0),
            (false, false) => Some(base / cct),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coflows_without_time_do_not_distort() {
        assert_eq!(speedups(&[2.0, 0.0, 0.0, 1.0], &[1.0, 0.0, 1.0, 0.0]), [2.0, 1.0]);
    }
}
