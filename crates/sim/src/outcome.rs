//! The outcome of a replay, and statistics over its values.

use serde::{Deserialize, Serialize};

/// What became of a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeadlineOutcome {
    /// The coflow completed in time.
    Met,
    /// The policy admitted the coflow, or admits all, and it completed late.
    Missed,
    /// The policy rejected the coflow at admission, before its deadline, and it completed late.
    Rejected,
}

impl DeadlineOutcome {
    /// All outcomes with their names.
    pub const ALL: [(DeadlineOutcome, &str); 3] = [
        (DeadlineOutcome::Met, "met"),
        (DeadlineOutcome::Missed, "missed"),
        (DeadlineOutcome::Rejected, "rejected"),
    ];
}

/// The result of one coflow. Times are in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CoflowOutcome {
    /// Its index in the workload.
    pub index: usize,
    /// Its id in the trace.
    pub id: u64,
    /// Its release: the arrival, or the end of its parents, plus the computing before it.
    pub released_at: f64,
    /// The end of its last flow.
    pub end: f64,
    /// Number of flows.
    pub width: usize,
    /// Bytes of all flows.
    pub bytes: f64,
    /// Bytes of these that were not sent in the maximum transfer time.
    pub dropped_bytes: f64,
    /// The standard deviation of its flows' completion times divided by their mean (Saath Fig. 2c and 13).
    pub flow_time_deviation: f64,
    /// Whether all its flows have the same size.
    pub has_equal_flow_sizes: bool,
    /// What became of its deadline; `None` without one.
    pub deadline: Option<DeadlineOutcome>,
    /// The end of each flow, in the order of the specification; empty unless [`crate::ReplayOptions::keep_flow_ends`] is set.
    pub flow_ends: Vec<f64>,
    /// The links between switches or regions that each flow crossed when it ended, in the same order; empty with `flow_ends`, and without
    /// such links.
    pub flow_paths: Vec<Box<[u32]>>,
}

impl CoflowOutcome {
    /// The coflow completion time: from the release to the end of the last flow.
    pub fn cct(&self) -> f64 {
        self.end - self.released_at
    }

    /// The bytes that the network carried.
    pub fn sent_bytes(&self) -> f64 {
        self.bytes - self.dropped_bytes
    }

    /// Whether it met its deadline; `None` without a deadline.
    pub fn met_deadline(&self) -> Option<bool> {
        self.deadline.map(|deadline| deadline == DeadlineOutcome::Met)
    }
}

/// The result of one job: its coflows and the computing around them. Times are in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobOutcome {
    /// Its id in the trace.
    pub id: u64,
    /// The arrival of its first coflow, before computing.
    pub arrival: f64,
    /// The end of its last computing.
    pub end: f64,
}

/// A coflow that cannot complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StalledCoflow {
    /// Its index in the workload.
    pub index: usize,
    /// Its id in the trace.
    pub id: u64,
    /// Bytes that were not sent.
    pub remaining_bytes: f64,
    /// Names of the links without capacity that its flows need.
    pub links: Vec<String>,
    /// The ids of its parents that cannot complete, if it was not released.
    pub parents: Vec<u64>,
}

/// The end of a replay in which some coflows cannot complete.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stall {
    /// The time from which on no flow can send, in seconds.
    pub time: f64,
    /// The coflows that cannot complete, in the order of the workload; at least one.
    pub coflows: Vec<StalledCoflow>,
}

/// The utilization of links over time: bytes carried divided by the bytes that the link could have carried, in parts of equal length.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LinkUse {
    /// The length of a part in seconds. The last part ends at the makespan: it can be shorter, or longer by up to 1 %.
    pub part_seconds: f64,
    /// By port and part, for sending. Empty if ports limit no flow, as between regions.
    pub send: Vec<Vec<f64>>,
    /// The same for receiving.
    pub recv: Vec<Vec<f64>>,
    /// By trunk and part. Empty on one switch.
    pub trunks: Vec<Vec<f64>>,
}

/// The outcome of a replay.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Completed finite coflows in the order of the workload: all, unless some stalled.
    pub coflows: Vec<CoflowOutcome>,
    /// Completed endless coflows in the order of the workload.
    pub endless_coflows: Vec<CoflowOutcome>,
    /// Jobs of which all coflows have completed, in the order of their ids.
    pub jobs: Vec<JobOutcome>,
    /// The coflows that cannot complete, if there are any.
    pub stall: Option<Stall>,
    /// Number of flows of all finite coflows.
    pub flow_count: usize,
    /// The end of the last flow, or the time from which on no flow can send, in seconds.
    pub makespan: f64,
    /// By port: bytes sent, including those of restarted flows, divided by the bytes that the healthy port can send until the
    /// makespan. Empty if ports limit no flow, as between regions.
    pub send_utilization: Vec<f64>,
    /// By port: the same for receiving.
    pub recv_utilization: Vec<f64>,
    /// By trunk: the same, with the capacity that the trunk had. Empty on one switch.
    pub trunk_utilization: Vec<f64>,
    /// The utilization of all links over time, if [`crate::ReplayOptions::keep_link_use`] is set.
    pub link_use: Option<LinkUse>,
    /// The wall time to compute each schedule, in nanoseconds, in the order of schedules. Reading the processor's clock for each
    /// schedule would take too much of the time.
    pub schedule_ns: Vec<u32>,
    /// The wall time of the replay, in seconds.
    pub wall_seconds: f64,
    /// The processor time of the replay, which runs in one thread, in seconds.
    pub processor_seconds: f64,
}

impl Outcome {
    /// The outcome of the coflow at this position in the workload; `None` if the coflow has not completed. O(log coflows).
    pub fn coflow(&self, index: usize) -> Option<&CoflowOutcome> {
        let find = |coflows: &'_ [CoflowOutcome]| coflows.binary_search_by_key(&index, |coflow| coflow.index);
        let finite = find(&self.coflows).ok().map(|at| &self.coflows[at]);
        finite.or_else(|| find(&self.endless_coflows).ok().map(|at| &self.endless_coflows[at]))
    }

    /// Completion times of the completed finite coflows, in the order of the workload.
    pub fn ccts(&self) -> Vec<f64> {
        self.coflows.iter().map(CoflowOutcome::cct).collect()
    }

    /// The number of finite coflows of the workload that cannot complete.
    pub fn stalled_count(&self) -> usize {
        self.stall.as_ref().map_or(0, |stall| stall.coflows.len())
    }
}

/// The mean; 0 for an empty list.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// The percentile for a `percentage` from 0 to 100, with linear interpolation between the closest ranks, the default of
/// numpy and R; 0 for an empty list.
pub fn percentile(values: &[f64], percentage: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let rank = percentage / 100.0 * last as f64;
    let (lower, fraction) = (rank.floor() as usize, rank.fract());
    let upper = (lower + 1).min(last);
    sorted[lower] + (sorted[upper] - sorted[lower]) * fraction
}

/// The standard deviation of the population divided by the mean; 0 for an empty list, or if the mean is 0.
pub fn coefficient_of_variation(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let count = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / count;
    if mean.is_nan() || mean <= 0.0 {
        return 0.0;
    }
    (values.map(|v| (v - mean) * (v - mean)).sum::<f64>() / count).sqrt() / mean
}

/// For each coflow, its CCT under the baseline divided by its CCT. The speedup is 1 if both are 0. If only one of them is 0,
/// the coflow has no speedup and is left out.
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
    fn zero_ccts_do_not_affect_speedups() {
        assert_eq!(speedups(&[2.0, 0.0, 0.0, 1.0], &[1.0, 0.0, 1.0, 0.0]), [2.0, 1.0]);
    }
}
