//! Runs the replays of all figures. Each figure lists its settings; each distinct setting is replayed once.

use weir_console::failure::Failure;
use weir_console::run::{self, ReplayTask};
use weir_core::model::Workload;
use weir_core::units::Time;
use weir_sim::outcome::{mean, speedups};
use weir_sim::{self, Outcome};

use super::Options;
use crate::{RunContext, Trace};

/// The policy and conditions of a replay of the trace.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplaySetting {
    /// The policy and its parameters.
    pub policy: String,
    /// The scheduling interval; `None` for the interval of the page.
    pub interval: Option<Time>,
    /// The factor by which coflows arrive faster than in the trace (Fig. 14d).
    pub arrival_factor: f64,
}

impl ReplaySetting {
    /// A replay with the interval of the page and the arrivals of the trace.
    pub fn new(policy: impl Into<String>) -> ReplaySetting {
        ReplaySetting { policy: policy.into(), interval: None, arrival_factor: 1.0 }
    }

    fn with_default_interval(&self, interval: Time) -> ReplaySetting {
        ReplaySetting { interval: self.interval.or(Some(interval)), ..self.clone() }
    }
}

/// The outcomes of replays, without the times of their schedules.
pub struct Replays {
    interval: Time,
    outcomes: Vec<(ReplaySetting, Outcome)>,
}

impl Replays {
    /// Replays the trace once for each different setting.
    ///
    /// # Errors
    /// The error of the first replay that fails.
    pub fn run(
        trace: &Trace,
        options: &Options,
        settings: Vec<ReplaySetting>,
        run_context: &RunContext<'_>,
    ) -> Result<Replays, Failure> {
        let interval = options.interval;
        let mut distinct: Vec<ReplaySetting> = Vec::new();
        for setting in settings.iter().map(|setting| setting.with_default_interval(interval)) {
            if !distinct.contains(&setting) {
                distinct.push(setting);
            }
        }
        let mut faster_workloads: Vec<(f64, Workload)> = Vec::new();
        for &ReplaySetting { arrival_factor, .. } in &distinct {
            if arrival_factor != 1.0 && faster_workloads.iter().all(|(factor, _)| *factor != arrival_factor) {
                faster_workloads.push((arrival_factor, trace.workload.with_faster_arrivals(arrival_factor)));
            }
        }
        let task = |setting: &ReplaySetting| {
            let faster_workload =
                faster_workloads.iter().find(|(factor, _)| *factor == setting.arrival_factor);
            ReplayTask {
                policy: setting.policy.clone(),
                workload: faster_workload.map_or(&trace.workload, |(_, workload)| workload),
                options: weir_sim::ReplayOptions {
                    interval: setting.interval.unwrap_or(interval),
                    ..replay_options(options)
                },
                sensitivities: &[],
            }
        };
        let tasks: Vec<ReplayTask<'_>> = distinct.iter().map(task).collect();
        let bar = run_context.progress.add_step_bar("replays", tasks.len());
        let outcomes = run::run_replays(&tasks, run_context.jobs, run_context.progress, |_, outcome| {
            bar.inc(1);
            Outcome { schedule_ns: Vec::new(), ..outcome }
        })?;
        bar.finish_and_clear();
        Ok(Replays { interval, outcomes: distinct.into_iter().zip(outcomes).collect() })
    }

    /// The outcome of a setting.
    ///
    /// # Panics
    /// If the setting was not among those of [`Replays::run`].
    pub fn outcome(&self, setting: &ReplaySetting) -> &Outcome {
        let setting = setting.with_default_interval(self.interval);
        let found = self.outcomes.iter().find(|(known, _)| *known == setting);
        &found.expect("the caller passed this setting to `Replays::run`").1
    }

    /// The outcome of a policy on the trace, with the interval of the page.
    pub fn outcome_of_policy(&self, policy: &str) -> &Outcome {
        self.outcome(&ReplaySetting::new(policy))
    }
}

/// The options of a replay with the interval of the page.
pub fn replay_options(options: &Options) -> weir_sim::ReplayOptions {
    weir_sim::ReplayOptions {
        port_rate: options.port_rate,
        interval: options.interval,
        ..weir_sim::ReplayOptions::default()
    }
}

/// The mean CCT, in seconds.
pub fn mean_cct(outcome: &Outcome) -> f64 {
    mean(&outcome.ccts())
}

/// The speedup of each coflow: its CCT under `baseline` divided by its CCT in `outcome`.
pub fn coflow_speedups(outcome: &Outcome, baseline: &Outcome) -> Vec<f64> {
    speedups(&baseline.ccts(), &outcome.ccts())
}

#[cfg(test)]
mod tests {
    use weir_console::progress::Progress;
    use weir_core::model::{CoflowSpec, FlowSpec, ServiceNames};
    use weir_core::units::{Bytes, Rate};
    use weir_trace::TraceUnit;

    use super::*;

    #[test]
    fn each_distinct_setting_is_replayed_once() {
        let flow = FlowSpec::new(0, 1, Bytes::new(1e6).unwrap());
        let coflow = CoflowSpec::new(1, Time::new(0.5).unwrap(), vec![flow]);
        let workload =
            Workload { ports: 2, coflows: vec![coflow], events: Vec::new(), names: ServiceNames::default() };
        let trace = Trace { name: "one.txt".to_owned(), workload, unit: TraceUnit::MB };
        let interval = Time::new(0.2).unwrap();
        let options = Options { port_rate: Rate::new(1e6).unwrap(), interval, seeds: 1, timing: false };
        let run_context = RunContext { jobs: 1, progress: &Progress::new(true) };

        let plain = ReplaySetting::new("saath");
        let explicit_default = ReplaySetting { interval: Some(interval), ..plain.clone() };
        let at_events = ReplaySetting { interval: Some(Time::ZERO), ..plain.clone() };
        let faster = ReplaySetting { arrival_factor: 2.0, ..plain.clone() };
        let settings = vec![plain.clone(), explicit_default.clone(), at_events.clone(), faster.clone()];
        let replays = Replays::run(&trace, &options, settings, &run_context).unwrap();

        assert_eq!(replays.outcomes.len(), 3);
        // The flow takes one second, starting at the first multiple of 0.2 s after its arrival.
        for (setting, cct) in [(&plain, 1.1), (&explicit_default, 1.1), (&at_events, 1.0), (&faster, 1.15)] {
            let ccts = replays.outcome(setting).ccts();
            assert!((ccts[0] - cct).abs() < 1e-9, "{setting:?}: {ccts:?}");
        }
    }
}
