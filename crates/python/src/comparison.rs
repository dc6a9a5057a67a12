//! Replays under several policies, and their results.

use std::sync::Arc;

use pyo3::prelude::*;
use weir_console::failure::Failure;
use weir_console::policy_spec;
use weir_console::record::Record;
use weir_console::run::{self, ReplayTask};
use weir_experiment::comparison::{
    ComparedReplays, add_slowdowns, caption, compare_replays, job_times, jobs_table, services_table,
    with_baseline,
};
use weir_experiment::jobs::Jobs;
use weir_experiment::metrics::Metrics;
use weir_experiment::network::{KeptDetails, Network};
use weir_experiment::results::Results;
use weir_experiment::source::Source;
use weir_experiment::summary_table;
use weir_experiment::tables::ResultTable;
use weir_sim::{NoObserver, Observer, Outcome, ReplayError, replay_until_stalled};

use crate::argument;
use crate::error::{Error, to_exception};
use crate::explanation::Explanation;
use crate::network::NetworkArguments;
use crate::policy::is_registered;
use crate::replays::{self, Control, ControlledReplay, OnProgress};
use crate::table::Table;
use crate::trace::Trace;

/// The results of policies on one trace and network.
#[pyclass(frozen, module = "weir._native")]
pub struct Comparison {
    source: Arc<Source>,
    network: Network,
    policies: Vec<String>,
    outcomes: Vec<Outcome>,
    alone: Vec<Option<f64>>,
    records: Vec<Record>,
    baseline: String,
    min_mean_cct: Option<f64>,
    missing: Vec<String>,
    problem: Option<String>,
}

/// What replays need.
struct Prepared {
    source: Arc<Source>,
    network: Network,
    policies: Vec<String>,
    /// The position of the baseline among the policies.
    baseline: usize,
}

/// Reads the arguments of a comparison.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct ReplayArguments<'py> {
    policies: Option<Vec<String>>,
    baseline: Option<String>,
    network: NetworkArguments<'py>,
    arrival: Option<Bound<'py, PyAny>>,
}

impl ReplayArguments<'_> {
    fn prepare(
        self,
        py: Python<'_>,
        trace: &Trace,
        per_stage: bool,
        kept: KeptDetails,
    ) -> PyResult<Prepared> {
        let ReplayArguments { policies, baseline, network, arrival } = self;
        let requested = network.parse()?;
        let arrival = arrival.map_or(Ok(1.0), |factor| arrival_factor(&factor))?;
        let prepare = || {
            let mut source = trace.source(requested.interval, arrival, per_stage)?;
            let network = Network::read(&requested, &mut source, kept)?;
            let policies = policies.unwrap_or_else(|| {
                let mut policies = network.default_policies(&source.workload);
                // A class that a program happens to define is no default, so that defaults are those of the command line.
                policies.retain(|policy| !is_registered(policy));
                policies
            });
            let (policies, baseline) = with_baseline(&policies, baseline.as_ref())?;
            Ok(Prepared { source, network, policies, baseline })
        };
        py.detach(prepare).map_err(to_exception)
    }
}

/// The factor by which coflows arrive faster than in the trace.
fn arrival_factor(factor: &Bound<'_, PyAny>) -> crate::error::Result<f64> {
    let factor = argument::number("arrival", factor)?;
    let is_valid = (1e-6..=1e6).contains(&factor);
    if is_valid { Ok(factor) } else { Err(Error::parameter("arrival", factor, "a factor from 1e-6 to 1e6")) }
}

/// Checks the arguments of a comparison without replays.
#[pyfunction]
#[pyo3(signature = (trace, arguments, *, per_stage))]
pub fn check(py: Python<'_>, trace: &Trace, arguments: ReplayArguments<'_>, per_stage: bool) -> PyResult<()> {
    let kept = KeptDetails::default();
    let Prepared { source, policies, .. } = arguments.prepare(py, trace, per_stage, kept)?;
    let control = Control::new(0);
    check_policies(&source, &policies, &control).map_err(|failure| control.to_exception(py, failure))
}

/// Replays `trace` under policies, at most `jobs` concurrently. Returns the results, and the exception that interrupted replays.
/// `on_progress` receives the policies, the numbers of coflows that each has completed, and the number of all coflows.
#[pyfunction]
#[pyo3(signature = (trace, arguments, *, per_stage, jobs, flows, links, timing, on_progress))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub fn compare(
    py: Python<'_>,
    trace: &Trace,
    arguments: ReplayArguments<'_>,
    per_stage: bool,
    jobs: usize,
    flows: bool,
    links: bool,
    timing: bool,
    on_progress: Option<Py<PyAny>>,
) -> PyResult<(Option<Comparison>, Option<PyErr>)> {
    let kept = KeptDetails { flow_ends: flows, link_use: links };
    let Prepared { source, network, policies, baseline } = arguments.prepare(py, trace, per_stage, kept)?;
    let control = Control::new(policies.len());
    let work = || run_replays(&source, &network, &policies, jobs, &control);
    let coflows = source.workload.finite_coflows().len();
    let names = &policies;
    let report = on_progress.map(|function| {
        move |py: Python<'_>, completed: Vec<usize>| {
            function.call1(py, (names, completed, coflows)).map(|_| ())
        }
    });
    let on_progress = report.as_ref().map(|report| report as &OnProgress<'_>);
    let (finished, exception) = replays::run(py, &control, on_progress, work);
    let (alone, outcomes) = match (finished, &exception) {
        (Ok(finished), _) => finished,
        (Err(_), Some(_)) => return Ok((None, exception)),
        (Err(failure), None) => return Err(control.to_exception(py, failure)),
    };
    let (mut done, mut missing) = ((Vec::new(), Vec::new()), Vec::new());
    let baseline = policies[baseline].clone();
    for (policy, outcome) in policies.into_iter().zip(outcomes) {
        match outcome {
            Some(outcome) => {
                done.0.push(policy);
                done.1.push(outcome);
            }
            None => missing.push(policy),
        }
    }
    let results = py.detach(|| Comparison::new((source, network), done, alone, (baseline, missing), timing));
    // A signal that arrives now does not cost the results.
    let exception = exception.or_else(|| py.check_signals().err());
    Ok((Some(results), exception))
}

type FinishedReplays = (Vec<Option<f64>>, Vec<Option<Outcome>>);

/// Checks all policies, before the first replay.
fn check_policies(source: &Source, policies: &[String], control: &Control) -> Result<(), Failure> {
    control.run(|| {
        policies.iter().try_for_each(|policy| {
            let names = Some(&source.workload.names);
            policy_spec::build_policy(policy, names, &source.sensitivities).map(drop)
        })
    })
}

/// Replays jobs alone, and all policies. Replays that were stopped have no outcome.
fn run_replays(
    source: &Source,
    network: &Network,
    policies: &[String],
    jobs: usize,
    control: &Control,
) -> Result<FinishedReplays, Failure> {
    check_policies(source, policies, control)?;
    let replay_alone = |task: &ReplayTask<'_>| {
        let outcome = control.run(|| replay(task, &mut ControlledAlone(control)))?;
        outcome.ok_or_else(|| Failure::runtime("interrupted"))
    };
    let durations =
        |alone: &Jobs| alone.durations_alone(&source.workload, network.options(), jobs, replay_alone);
    let alone = source.jobs.as_ref().map_or(Ok(Vec::new()), durations)?;
    let outcomes = run::run_concurrently(policies.len(), jobs, |number| {
        let task = ReplayTask {
            policy: policies[number].clone(),
            workload: &source.workload,
            options: network.options().clone(),
            sensitivities: &source.sensitivities,
        };
        let outcome = control
            .run(|| replay(&task, &mut ControlledReplay { control, number, observer: &mut NoObserver }));
        // After an interrupt, a policy in Python can fail.
        outcome.or_else(|failure| if control.is_stopped() { Ok(None) } else { Err(failure) })
    })?;
    Ok((alone, outcomes))
}

/// Stops a replay of a job alone with the others.
struct ControlledAlone<'a>(&'a Control);

impl Observer for ControlledAlone<'_> {
    fn on_schedule(&mut self, _: &weir_sim::Snapshot<'_>) -> bool {
        !self.0.is_stopped()
    }
}

/// Runs a replay. Without an outcome, the observer has stopped it.
pub fn replay(task: &ReplayTask<'_>, observer: &mut dyn Observer) -> Result<Option<Outcome>, Failure> {
    let policy = policy_spec::build_policy(&task.policy, Some(&task.workload.names), task.sensitivities)?;
    match replay_until_stalled(task.workload, policy, &task.options, observer) {
        Ok(outcome) => Ok(Some(outcome)),
        Err(ReplayError::Interrupted { .. }) => Ok(None),
        Err(error) => Err(Failure::from_replay_error(&task.policy, &error)),
    }
}

impl Comparison {
    fn new(
        (source, network): (Arc<Source>, Network),
        done: (Vec<String>, Vec<Outcome>),
        alone: Vec<Option<f64>>,
        (baseline, missing): (String, Vec<String>),
        timing: bool,
    ) -> Comparison {
        let metrics = Metrics::new(&source, &source.workload, &network, timing);
        let ComparedReplays { mut records, policies, outcomes, failure } =
            compare_replays(done, &baseline, &metrics, None);
        add_slowdowns(&mut records, &job_times(&source, &alone, &outcomes));
        let min_mean_cct = metrics.min_mean_cct();
        // The command line begins each line with its name.
        let problem = failure.map(|failure| failure.message.replace("\nweir: ", "\n"));
        Comparison {
            source,
            network,
            policies,
            outcomes,
            alone,
            records,
            baseline,
            min_mean_cct,
            missing,
            problem,
        }
    }

    fn results(&self) -> Results<'_> {
        Results {
            source: &self.source,
            network: &self.network,
            policies: &self.policies,
            outcomes: &self.outcomes,
            alone: &self.alone,
        }
    }
}

#[pymethods]
impl Comparison {
    /// The policies with results.
    #[getter]
    fn policies(&self) -> Vec<String> {
        self.policies.clone()
    }

    /// The policy that speedups refer to.
    #[getter]
    fn baseline(&self) -> &str {
        &self.baseline
    }

    /// The policies whose replays were interrupted.
    #[getter]
    fn missing(&self) -> Vec<String> {
        self.missing.clone()
    }

    /// The failure of results, such as coflows that cannot complete.
    #[getter]
    fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// The records of all policies, as JSON.
    fn records_json(&self) -> PyResult<String> {
        let json = serde_json::to_string(&self.records);
        json.map_err(|error| pyo3::exceptions::PyRuntimeError::new_err(error.to_string()))
    }

    /// The tables that the command line prints.
    fn text(&self, py: Python<'_>, wide: bool) -> String {
        py.detach(|| {
            let tables = if wide { summary_table::wide_table } else { summary_table::short_table };
            let has_times = !self.source.is_services_alone();
            let times = job_times(&self.source, &self.alone, &self.outcomes);
            caption(&self.source, &self.network, &self.policies)
                + &tables(&self.records, &self.baseline, self.min_mean_cct, has_times)
                + &jobs_table(&self.policies, &times)
                + &services_table(&self.source, &self.policies, &self.outcomes)
        })
    }

    /// A table of results in detail.
    fn table(&self, py: Python<'_>, name: &str) -> PyResult<Table> {
        let table = match name {
            "coflows" => ResultTable::Coflows,
            "flows" => ResultTable::Flows,
            "bins" => ResultTable::Bins,
            "groups" => ResultTable::Groups,
            "jobs" => ResultTable::Jobs,
            "demands" => ResultTable::Demands,
            "links" => ResultTable::Links,
            "link_times" => ResultTable::LinkTimes,
            "schedules" => ResultTable::Schedules,
            _ => return Err(pyo3::exceptions::PyKeyError::new_err(name.to_owned())),
        };
        py.detach(|| Table::from_results(table, &self.results()))
    }

    /// Replays the trace under a policy again, and explains the completion time of a coflow.
    fn explain(&self, py: Python<'_>, policy: &str, coflow: u64, all: bool) -> PyResult<Explanation> {
        Explanation::new(py, (&self.source, &self.network), policy, coflow, all)
    }

    /// Number of policies with results.
    fn __len__(&self) -> usize {
        self.policies.len()
    }
}
