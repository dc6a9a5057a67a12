//! What is reported of a replay.

use serde_json::Value;
use weir_core::model::Workload;
use weir_sim::bound::Bounds;
use weir_sim::outcome::{mean, percentile, speedups};
use weir_sim::{Options, Outcome};

use crate::behind::Short;
use crate::input::Source;
use crate::wide::Wide;
use weir_console::failure::Failure;
use weir_console::record::Record;

/// What a replay went by, besides the policy.
pub struct Setting {
    trace: String,
    trace_unit: Value,
    network: Vec<(&'static str, Value)>,
    /// What no schedule beats, if it is known.
    bounds: Option<Bounds>,
    deadlines: bool,
    jobs: bool,
    timing: bool,
}

impl Setting {
    /// Replays of `workload`, which came from `source`.
    pub fn new(
        source: &Source,
        workload: &Workload,
        options: &Options,
        short: Option<&Short>,
        timing: bool,
    ) -> Setting {
        let mut network = vec![
            ("port_rate", options.port_rate.to_string().into()),
            ("interval_s", options.interval.get().into()),
        ];
        network.extend(short.into_iter().flat_map(Short::values));
        Setting {
            trace: source.name.clone(),
            trace_unit: source.unit_value(),
            network,
            bounds: Bounds::new(workload, options.port_rate),
            deadlines: workload.coflows.iter().any(|c| c.deadline.is_some()),
            jobs: workload.coflows.iter().any(|c| c.job.is_some()),
            timing,
        }
    }

    /// The same over a wide area, where nothing is known that no schedule beats.
    pub fn wide(source: &Source, workload: &Workload, wide: &Wide, timing: bool) -> Setting {
        Setting {
            trace: source.name.clone(),
            trace_unit: source.unit_value(),
            network: vec![("wide_area", wide.name.clone().into()), ("bandwidth_seed", wide.seed.into())],
            bounds: None,
            deadlines: workload.coflows.iter().any(|c| c.deadline.is_some()),
            // A job's coflows do not wait for each other here.
            jobs: false,
            timing,
        }
    }

    /// The least mean CCT that any schedule has, if there is one.
    pub fn least_mean(&self) -> Option<f64> {
        self.bounds.as_ref().filter(|bounds| !bounds.ccts.is_empty()).map(|bounds| bounds.mean_cct)
    }

    /// Everything about a replay; with speed-ups if there is a baseline to have them against. What is the mean or a
    /// percentile of nothing is null.
    ///
    /// # Errors
    /// An outcome that no schedule has.
    pub fn record(
        &self,
        policy: &str,
        outcome: &Outcome,
        baseline: Option<&Baseline>,
    ) -> Result<Record, Failure> {
        if let Some(bounds) = &self.bounds {
            let check = bounds.check(outcome);
            check.map_err(|error| Failure::undone(format_args!("{policy}: internal error: {error}")))?;
        }
        let mut r = Record::default();
        let ccts = outcome.ccts();
        r.add("policy", policy);
        r.add("coflows", outcome.coflows.len());
        r.add("flows", outcome.flows);
        let mean_cct = mean_of(&ccts);
        r.add("mean_cct_s", mean_cct);
        for (name, p) in [("p50_cct_s", 50.0), ("p90_cct_s", 90.0), ("p95_cct_s", 95.0), ("p99_cct_s", 99.0)]
        {
            r.add(name, percentile_of(&ccts, p));
        }
        r.add("makespan_s", outcome.makespan);
        if let Some(baseline) = baseline {
            baseline.compare(&ccts, &mut r);
        }
        let bound = self.least_mean();
        r.add("lower_bound_mean_cct_s", bound);
        let over = mean_cct.zip(bound).filter(|(_, bound)| *bound > 0.0);
        r.add("over_bound", over.map(|(mean, bound)| mean / bound));
        let several: Vec<f64> = outcome.coflows.iter().filter(|c| c.width > 1).map(|c| c.deviation).collect();
        r.add("out_of_sync_p50", percentile_of(&several, 50.0));
        r.add("out_of_sync_p90", percentile_of(&several, 90.0));
        let mut used: Vec<f64> =
            outcome.send_utilisation.iter().chain(&outcome.recv_utilisation).copied().collect();
        // What ports are called decides no digit of a sum either.
        used.sort_by(f64::total_cmp);
        let used = if outcome.makespan > 0.0 { used } else { Vec::new() };
        r.add("utilisation_mean", mean_of(&used));
        r.add("utilisation_max", used.iter().copied().reduce(f64::max));
        if self.deadlines {
            let met = |met: &bool| outcome.coflows.iter().filter(|c| c.met_deadline == Some(*met)).count();
            r.add("deadlines_met", met(&true));
            r.add("deadlines", met(&true) + met(&false));
        }
        if self.jobs {
            let jcts: Vec<f64> = outcome.jobs.iter().map(|job| job.end - job.arrival).collect();
            r.add("mean_jct_s", mean_of(&jcts));
        }
        self.add_times(outcome, &mut r);
        r.add("trace", self.trace.clone());
        r.add("trace_unit", self.trace_unit.clone());
        self.network.iter().for_each(|&(name, ref value)| r.add(name, value.clone()));
        Ok(r)
    }

    fn add_times(&self, outcome: &Outcome, r: &mut Record) {
        let us: Vec<f64> = outcome.schedule_ns.iter().map(|&ns| f64::from(ns) / 1e3).collect();
        let timed = |value: Option<f64>| value.filter(|_| self.timing);
        r.add("schedules", outcome.schedule_ns.len());
        r.add("schedule_mean_us", timed(mean_of(&us)));
        r.add("schedule_p90_us", timed(percentile_of(&us, 90.0)));
        r.add("schedule_p99_us", timed(percentile_of(&us, 99.0)));
        r.add("wall_s", timed(Some(outcome.wall)));
    }
}

/// The mean, if there is something.
fn mean_of(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| mean(values))
}

/// A percentile, if there is something.
fn percentile_of(values: &[f64], p: f64) -> Option<f64> {
    (!values.is_empty()).then(|| percentile(values, p))
}

/// The replay that others are compared with.
pub struct Baseline {
    policy: String,
    ccts: Vec<f64>,
}

impl Baseline {
    /// The outcome of a policy as the baseline.
    pub fn new(policy: &str, outcome: &Outcome) -> Baseline {
        Baseline { policy: policy.to_owned(), ccts: outcome.ccts() }
    }

    fn compare(&self, ccts: &[f64], r: &mut Record) {
        let ups = speedups(&self.ccts, ccts);
        r.add("baseline", self.policy.clone());
        for (name, p) in [("speedup_p10", 10.0), ("speedup_p50", 50.0), ("speedup_p90", 90.0)] {
            r.add(name, percentile_of(&ups, p));
        }
        r.add("speedup_mean", mean_of(&ups));
        r.add("speedup_left_out", ccts.len() - ups.len());
    }
}
