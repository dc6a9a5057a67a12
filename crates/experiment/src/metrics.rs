//! Computes the metrics of a replay, as a record.

use weir_console::problem::Problem;
use weir_console::record::Record;
use weir_console::table::BITS_PER_BYTE;
use weir_core::model::{CoflowKey, Workload};
use weir_sim::lower_bound::LowerBounds;
use weir_sim::summary::{SpeedupSummary, Summary};
use weir_sim::{CoflowOutcome, Outcome};

use crate::network::Network;
use crate::services;
use crate::source::Source;
use crate::unused_keys::unused_keys;

/// Computes the metrics of replays of one workload over one network.
pub struct Metrics<'a> {
    source: &'a Source,
    network: &'a Network,
    bounds: LowerBounds,
    has_deadlines: bool,
    has_jobs: bool,
    has_limits: bool,
    /// The weights of all coflows, if they differ.
    weights: Option<Vec<f64>>,
    include_timing: bool,
}

/// The replay that others are compared with.
#[derive(Clone, Copy)]
pub struct Baseline<'a> {
    policy: &'a str,
    /// The outcome; `None` if the replay has not finished or has no results. Speedups are null then.
    outcome: Option<&'a Outcome>,
}

impl<'a> Baseline<'a> {
    /// `policy` as the baseline, if its outcome violates no bound of `metrics`.
    pub fn new(policy: &'a str, outcome: Option<&'a Outcome>, metrics: &Metrics<'_>) -> Baseline<'a> {
        let is_valid = |outcome: &&Outcome| metrics.bounds.check(outcome).is_ok();
        Baseline { policy, outcome: outcome.filter(is_valid) }
    }
}

impl<'a> Metrics<'a> {
    /// Metrics of replays of `workload`, which is the trace of `source`, possibly with scaled arrivals. Without
    /// `include_timing`, measured times are null.
    pub fn new(
        source: &'a Source,
        workload: &Workload,
        network: &'a Network,
        include_timing: bool,
    ) -> Metrics<'a> {
        let mut coflows = workload.finite_coflows().iter();
        let bounds = network.bounds(workload);
        let has_deadlines = coflows.clone().any(|coflow| coflow.deadline.is_some());
        let has_limits = coflows.clone().any(|coflow| coflow.max_transfer_time.is_some());
        let has_jobs = coflows.any(|coflow| coflow.job.is_some());
        let weights: Vec<f64> = workload.finite_coflows().iter().map(|coflow| coflow.weight).collect();
        let weights = weights.windows(2).any(|pair| pair[0] != pair[1]).then_some(weights);
        Metrics { source, network, bounds, has_deadlines, has_jobs, has_limits, weights, include_timing }
    }

    /// The lower bound of the mean CCT in seconds; `None` without coflows, or if some of them cannot complete.
    pub fn min_mean_cct(&self) -> Option<f64> {
        let bound = (!self.bounds.min_ccts.is_empty()).then_some(self.bounds.min_mean_cct);
        bound.filter(|bound| bound.is_finite())
    }

    /// By coflow: the lower bound of its completion time, in seconds.
    pub fn min_ccts(&self) -> &[f64] {
        &self.bounds.min_ccts
    }

    /// All metrics of a replay, with speedups if there is a baseline, and the problem of the replay. A statistic without samples is null,
    /// and all are if the outcome violates a bound.
    pub fn record(
        &self,
        policy: &str,
        outcome: &Outcome,
        baseline: Option<&Baseline<'_>>,
    ) -> (Record, Option<Problem>) {
        let problem = Problem::find(outcome, &self.bounds);
        let mut record = self.results(policy, outcome, baseline);
        if problem.as_ref().is_some_and(Problem::is_invalid) {
            record.clear_values(&["policy", "coflows", "flows", "baseline"]);
        }
        let unused_keys = unused_keys(self.source, policy);
        record.add("unused_keys", unused_keys.into_iter().map(CoflowKey::name).collect::<Vec<_>>());
        let fields = self.source.record_fields().into_iter().chain(self.network.record_fields());
        fields.for_each(|(name, value)| record.add(name, value));
        (record, problem)
    }

    /// The statistics of a replay.
    fn results(&self, policy: &str, outcome: &Outcome, baseline: Option<&Baseline<'_>>) -> Record {
        let summary = Summary::new(outcome);
        let mut r = Record::default();
        r.add("policy", policy);
        r.add("coflows", self.bounds.min_ccts.len());
        r.add("flows", outcome.flow_count);
        r.add("mean_cct_s", summary.mean_cct);
        r.add_all(["p50_cct_s", "p90_cct_s", "p95_cct_s", "p99_cct_s"], summary.cct_percentiles);
        r.add("makespan_s", outcome.makespan);
        if let Some(&Baseline { policy, outcome: baseline }) = baseline {
            let speedups = baseline.map(|baseline| SpeedupSummary::new(baseline, outcome));
            r.add("baseline", policy);
            let percentiles = speedups.as_ref().map_or([None; 3], |speedups| speedups.percentiles);
            r.add_all(["speedup_p10", "speedup_p50", "speedup_p90"], percentiles);
            r.add("speedup_mean", speedups.as_ref().and_then(|speedups| speedups.mean));
            r.add("speedups_excluded", speedups.map(|speedups| speedups.undefined_count));
        }
        let bound = self.min_mean_cct();
        r.add("lower_bound_mean_cct_s", bound);
        // The bound is for all coflows.
        let means = summary.mean_cct.zip(bound).filter(|(_, bound)| *bound > 0.0 && outcome.stall.is_none());
        r.add("over_bound", means.map(|(mean, bound)| mean / bound));
        r.add_all(["out_of_sync_p50", "out_of_sync_p90"], summary.deviation_percentiles);
        r.add("utilization_mean", summary.mean_utilization);
        r.add("utilization_max", summary.max_utilization);
        if let Some(weights) = &self.weights {
            let of_completed = || outcome.coflows.iter().map(|coflow| (coflow.cct(), weights[coflow.index]));
            let total: f64 = of_completed().map(|(_, weight)| weight).sum();
            let weighted: f64 = of_completed().map(|(cct, weight)| cct * weight).sum();
            r.add("weighted_mean_cct_s", (total > 0.0).then(|| weighted / total));
        }
        if self.has_deadlines {
            r.add_all(["deadlines_met", "deadlines_missed", "deadlines_rejected"], summary.deadlines);
            r.add("deadlines", summary.deadlines.iter().sum::<usize>());
        }
        if self.has_jobs {
            r.add("mean_jct_s", summary.mean_jct);
        }
        if self.has_limits {
            r.add("dropped_bytes", outcome.coflows.iter().map(|coflow| coflow.dropped_bytes).sum::<f64>());
        }
        if let Some(services) = &self.source.services {
            let bytes = outcome.endless_coflows.iter().map(CoflowOutcome::sent_bytes).sum::<f64>();
            r.add("service_bytes", bytes);
            for (name, rate) in services.mean_rates(outcome) {
                r.add_named(services::rate_column(name), rate.map(|rate| rate * BITS_PER_BYTE));
            }
        }
        let if_timing = |value: Option<f64>| value.filter(|_| self.include_timing);
        r.add("schedules", outcome.schedule_ns.len());
        r.add("schedule_mean_us", if_timing(summary.mean_schedule_us));
        r.add_all(["schedule_p90_us", "schedule_p99_us"], summary.schedule_us_percentiles.map(if_timing));
        r.add("wall_s", if_timing(Some(outcome.wall_seconds)));
        r.add("processor_s", if_timing(Some(outcome.processor_seconds)));
        r
    }
}
