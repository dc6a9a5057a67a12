//! The replays that the figures are computed from. Each figure lists its settings; each setting is replayed once.

use weir_console::failure::Failure;
use weir_console::run::{self, Task};
use weir_core::model::Workload;
use weir_core::units::Time;
use weir_sim::outcome::{mean, speedups};
use weir_sim::{self, Outcome};

use super::Options;
use crate::{Running, Trace};

/// How to replay the trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// The policy and its parameters.
    pub policy: String,
    /// The scheduling interval; `None` for that of the page.
    pub interval: Option<Time>,
    /// The factor by which coflows arrive faster than in the trace (Fig. 14d).
    pub speed: f64,
}

impl Setting {
    /// The trace, with the interval of the page.
    pub fn new(policy: impl Into<String>) -> Setting {
        Setting { policy: policy.into(), interval: None, speed: 1.0 }
    }

    fn or_interval(&self, interval: Time) -> Setting {
        Setting { interval: self.interval.or(Some(interval)), ..self.clone() }
    }
}

/// The outcomes of replays, without the times of their schedules.
pub struct Replays {
    interval: Time,
    outcomes: Vec<(Setting, Outcome)>,
}

impl Replays {
    /// Replays the trace once for each different setting.
    ///
    /// # Errors
    /// The first replay that fails.
    pub fn run(
        trace: &Trace,
        options: &Options,
        settings: Vec<Setting>,
        running: &Running<'_>,
    ) -> Result<Replays, Failure> {
        let interval = options.interval;
        let mut distinct: Vec<Setting> = Vec::new();
        for setting in settings.iter().map(|setting| setting.or_interval(interval)) {
            if !distinct.contains(&setting) {
                distinct.push(setting);
            }
        }
        let mut faster: Vec<(f64, Workload)> = Vec::new();
        for &Setting { speed, .. } in &distinct {
            if speed != 1.0 && faster.iter().all(|(known, _)| *known != speed) {
                faster.push((speed, trace.workload.sped_up(speed)));
            }
        }
        let task = |setting: &Setting| {
            let sped_up = faster.iter().find(|(speed, _)| *speed == setting.speed);
            Task {
                policy: setting.policy.clone(),
                workload: sped_up.map_or(&trace.workload, |(_, workload)| workload),
                options: weir_sim::Options {
                    interval: setting.interval.unwrap_or(interval),
                    ..replay_options(options)
                },
            }
        };
        let tasks: Vec<Task<'_>> = distinct.iter().map(task).collect();
        let bar = running.progress.steps("replays", tasks.len());
        let outcomes = run::run(&tasks, running.jobs, running.progress, |_, outcome| {
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
    pub fn at(&self, setting: &Setting) -> &Outcome {
        let setting = setting.or_interval(self.interval);
        let found = self.outcomes.iter().find(|(known, _)| *known == setting);
        &found.expect("the caller passed this setting to `Replays::run`").1
    }

    /// The outcome of a policy on the trace, with the interval of the page.
    pub fn of(&self, policy: &str) -> &Outcome {
        self.at(&Setting::new(policy))
    }
}

/// The options of a replay with the interval of the page.
pub fn replay_options(options: &Options) -> weir_sim::Options {
    weir_sim::Options {
        port_rate: options.port_rate,
        interval: options.interval,
        keep_flows: false,
        behind: None,
    }
}

/// The mean CCT, in seconds.
pub fn mean_cct(outcome: &Outcome) -> f64 {
    mean(&outcome.ccts())
}

/// The speedup of each coflow: its CCT under `baseline` divided by its CCT in `outcome`.
pub fn speedup(outcome: &Outcome, baseline: &Outcome) -> Vec<f64> {
    speedups(&baseline.ccts(), &outcome.ccts())
}

#[cfg(test)]
mod tests {
    use weir_console::progress::Progress;
    use weir_core::model::{CoflowSpec, FlowSpec, Names};
    use weir_core::units::{Bytes, Rate};
    use weir_trace::TraceUnit;

    use super::*;

    #[test]
    fn equal_settings_are_replayed_once_and_others_apart() {
        let flow = FlowSpec::new(0, 1, Bytes::new(1e6).unwrap());
        let coflow = CoflowSpec::new(1, Time::new(0.5).unwrap(), vec![flow]);
        let workload =
            Workload { ports: 2, coflows: vec![coflow], events: Vec::new(), names: Names::default() };
        let trace = Trace { name: "one.txt".to_owned(), workload, unit: TraceUnit::MB };
        let interval = Time::new(0.2).unwrap();
        let options = Options { port_rate: Rate::new(1e6).unwrap(), interval, timing: false };
        let running = Running { jobs: 1, progress: &Progress::new(true) };

        let plain = Setting::new("fair");
        let same = Setting { interval: Some(interval), ..plain.clone() };
        let at_events = Setting { interval: Some(Time::ZERO), ..plain.clone() };
        let faster = Setting { speed: 2.0, ..plain.clone() };
        let settings = vec![plain.clone(), same.clone(), at_events.clone(), faster.clone()];
        let replays = Replays::run(&trace, &options, settings, &running).unwrap();

        assert_eq!(replays.outcomes.len(), 3);
        // The flow takes one second from the first multiple of 0.2 s after its arrival.
        for (setting, cct) in [(&plain, 1.1), (&same, 1.1), (&at_events, 1.0), (&faster, 1.15)] {
            let ccts = replays.at(setting).ccts();
            assert!((ccts[0] - cct).abs() < 1e-9, "{setting:?}: {ccts:?}");
        }
    }
}
