//! Computes statistics of one replay, and of the speedup between two replays.

use crate::outcome::{DeadlineOutcome, Outcome, mean, percentile, speedups};

/// Statistics of one replay. Statistics without any coflows, flows, ports or schedules are `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The mean CCT, in seconds.
    pub mean_cct: Option<f64>,
    /// The 50th, 90th, 95th and 99th percentile of the CCT, in seconds.
    pub cct_percentiles: [Option<f64>; 4],
    /// The 50th and 90th percentile of [`CoflowOutcome::flow_time_deviation`](crate::CoflowOutcome::flow_time_deviation)
    /// over coflows with several flows.
    pub deviation_percentiles: [Option<f64>; 2],
    /// The mean utilization over both sides of all ports, from 0 to 1.
    pub mean_utilization: Option<f64>,
    /// The utilization of the busiest side of a port, from 0 to 1.
    pub max_utilization: Option<f64>,
    /// Number of coflows with deadlines that were met, missed and rejected, in the order of [`DeadlineOutcome::ALL`].
    pub deadlines: [usize; 3],
    /// The mean job completion time, in seconds.
    pub mean_jct: Option<f64>,
    /// The mean wall time to compute a schedule, in microseconds.
    pub mean_schedule_us: Option<f64>,
    /// The 90th and 99th percentile of the wall time to compute a schedule, in microseconds.
    pub schedule_us_percentiles: [Option<f64>; 2],
}

impl Summary {
    /// The statistics of `outcome`. O(n log n) for n coflows, ports and schedules.
    pub fn new(outcome: &Outcome) -> Summary {
        let ccts = outcome.ccts();
        let wide = outcome.coflows.iter().filter(|coflow| coflow.width > 1);
        let deviations: Vec<f64> = wide.map(|coflow| coflow.flow_time_deviation).collect();
        let utilizations = utilizations(outcome);
        let with_deadline =
            |deadline| outcome.coflows.iter().filter(|c| c.deadline == Some(deadline)).count();
        let jcts: Vec<f64> = outcome.jobs.iter().map(|job| job.end - job.arrival).collect();
        let schedules: Vec<f64> = outcome.schedule_ns.iter().map(|&ns| f64::from(ns) / 1e3).collect();
        Summary {
            mean_cct: mean_of(&ccts),
            cct_percentiles: percentiles_of(&ccts, [50.0, 90.0, 95.0, 99.0]),
            deviation_percentiles: percentiles_of(&deviations, [50.0, 90.0]),
            mean_utilization: mean_of(&utilizations),
            max_utilization: utilizations.last().copied(),
            deadlines: DeadlineOutcome::ALL.map(|(deadline, _)| with_deadline(deadline)),
            mean_jct: mean_of(&jcts),
            mean_schedule_us: mean_of(&schedules),
            schedule_us_percentiles: percentiles_of(&schedules, [90.0, 99.0]),
        }
    }
}

/// The utilizations of all sides of ports, or of the trunks if ports limit no flow; sorted, so that sums do not depend on the
/// numbering of links. Empty if the replay took no time.
fn utilizations(outcome: &Outcome) -> Vec<f64> {
    if outcome.makespan <= 0.0 {
        return Vec::new();
    }
    let sides = outcome.send_utilization.iter().chain(&outcome.recv_utilization);
    let mut utilizations: Vec<f64> = sides.copied().collect();
    if utilizations.is_empty() {
        utilizations.clone_from(&outcome.trunk_utilization);
    }
    utilizations.sort_by(f64::total_cmp);
    utilizations
}

/// Statistics of the speedups of a replay over a baseline, coflow by coflow ([`speedups`]). Statistics without any coflows
/// are `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct SpeedupSummary {
    /// The 10th, 50th and 90th percentile.
    pub percentiles: [Option<f64>; 3],
    /// The mean.
    pub mean: Option<f64>,
    /// Number of coflows without a speedup, whose CCT is 0 under only one of the two.
    pub undefined_count: usize,
}

impl SpeedupSummary {
    /// The statistics over coflows that have completed under both.
    pub fn new(baseline: &Outcome, outcome: &Outcome) -> SpeedupSummary {
        let common =
            outcome.coflows.iter().filter_map(|coflow| Some((baseline.coflow(coflow.index)?, coflow)));
        let (baseline, ccts): (Vec<f64>, Vec<f64>) =
            common.map(|(baseline, coflow)| (baseline.cct(), coflow.cct())).unzip();
        let speedups = speedups(&baseline, &ccts);
        SpeedupSummary {
            percentiles: percentiles_of(&speedups, [10.0, 50.0, 90.0]),
            mean: mean_of(&speedups),
            undefined_count: ccts.len() - speedups.len(),
        }
    }
}

fn mean_of(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| mean(values))
}

fn percentiles_of<const N: usize>(values: &[f64], percentages: [f64; N]) -> [Option<f64>; N] {
    percentages.map(|percentage| (!values.is_empty()).then(|| percentile(values, percentage)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CoflowOutcome;

    fn coflow(cct: f64, width: usize, deviation: f64, deadline: Option<DeadlineOutcome>) -> CoflowOutcome {
        CoflowOutcome {
            index: 0,
            id: 0,
            released_at: 1.0,
            end: 1.0 + cct,
            width,
            bytes: 1.0,
            dropped_bytes: 0.0,
            flow_time_deviation: deviation,
            has_equal_flow_sizes: true,
            deadline,
            flow_ends: Vec::new(),
            flow_paths: Vec::new(),
        }
    }

    #[test]
    fn empty_outcome_has_no_statistics() {
        let summary = Summary::new(&Outcome { send_utilization: vec![0.0], ..Outcome::default() });
        assert_eq!((summary.mean_cct, summary.cct_percentiles), (None, [None; 4]));
        assert_eq!(
            (summary.mean_utilization, summary.mean_jct, summary.mean_schedule_us),
            (None, None, None)
        );
        let outcome_of = |cct| Outcome { coflows: vec![coflow(cct, 1, 0.0, None)], ..Outcome::default() };
        assert_eq!(SpeedupSummary::new(&outcome_of(0.0), &outcome_of(1.0)).undefined_count, 1);
    }

    #[test]
    fn single_flow_coflows_have_no_deviation() {
        let outcome = Outcome {
            coflows: vec![
                coflow(1.0, 1, 9.0, Some(DeadlineOutcome::Met)),
                coflow(2.0, 2, 0.5, Some(DeadlineOutcome::Missed)),
                coflow(6.0, 3, 0.7, None),
            ],
            makespan: 7.0,
            send_utilization: vec![0.5],
            recv_utilization: vec![0.25],
            schedule_ns: vec![1_000, 3_000],
            ..Outcome::default()
        };
        let summary = Summary::new(&outcome);
        assert_eq!((summary.mean_cct, summary.cct_percentiles[0]), (Some(3.0), Some(2.0)));
        assert_eq!(summary.deviation_percentiles[0], Some(0.6));
        assert_eq!((summary.mean_utilization, summary.max_utilization), (Some(0.375), Some(0.5)));
        assert_eq!(summary.deadlines, [1, 1, 0]);
        assert_eq!(summary.mean_schedule_us, Some(2.0));
    }
}
