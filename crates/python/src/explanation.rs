//! Explanations of completion times.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use weir_console::failure::Failure;
use weir_console::policy_spec;
use weir_console::run::ReplayTask;
use weir_experiment::explanation::{
    Leaves, MAX_ENTRIES, Report, explanation_record, explanation_text, find_coflow, finish_explanations,
};
use weir_experiment::network::Network;
use weir_experiment::source::Source;
use weir_sim::explain::{Explainer, build_timeline};

use crate::comparison::replay;
use crate::replays::{self, Control, ControlledReplay};

/// Why a coflow took as long as it did.
#[pyclass(frozen, get_all, module = "weir._native")]
pub struct Explanation {
    /// The text that `weir explain` prints.
    text: String,
    /// The record that `weir explain --format json` prints.
    json: String,
}

impl Explanation {
    /// Replays coflows under a policy, and explains one of them. With `all`, its time line has every segment.
    ///
    /// # Errors
    /// If the policy or the coflow does not exist, the coflow cannot complete, or a signal arrives.
    pub fn new(
        py: Python<'_>,
        (source, network): (&Source, &Network),
        policy: &str,
        coflow: u64,
        all: bool,
    ) -> PyResult<Explanation> {
        let control = Control::new(1);
        let work = || control.run(|| explain(&control, (source, network), policy, coflow, all));
        match replays::run(py, &control, None, work) {
            (_, Some(exception)) => Err(exception),
            (Ok(Some(explanation)), None) => Ok(explanation),
            (Ok(None), None) => Err(PyRuntimeError::new_err("interrupted")),
            (Err(failure), None) => Err(control.to_exception(py, failure)),
        }
    }
}

fn explain(
    control: &Control,
    (source, network): (&Source, &Network),
    policy: &str,
    coflow: u64,
    all: bool,
) -> Result<Option<Explanation>, Failure> {
    let index = find_coflow(coflow, source)?;
    let built = policy_spec::build_policy(policy, Some(&source.workload.names), &source.sensitivities)?;
    let leaves = Leaves::new(&built, &source.workload).map_err(Failure::input)?;
    let task = ReplayTask {
        policy: policy.to_owned(),
        workload: &source.workload,
        options: network.options().clone(),
        sensitivities: &source.sensitivities,
    };
    let mut explainer = Explainer::new(index);
    let mut observer = ControlledReplay { control, number: 0, observer: &mut explainer };
    let Some(outcome) = replay(&task, &mut observer)? else { return Ok(None) };
    let explained = (policy, &source.workload);
    let explanations = finish_explanations(vec![explainer], &[index], explained, &outcome)?;
    let explanation = &explanations[0];
    let max_entries = if all { usize::MAX } else { MAX_ENTRIES };
    let entries = build_timeline(&explanation.segments, max_entries);
    let report = Report { source, network, policy, leaves: &leaves, explanation, entries: &entries };
    let json = serde_json::to_string(&explanation_record(&report)).map_err(Failure::runtime)?;
    Ok(Some(Explanation { text: explanation_text(&report, None), json }))
}
