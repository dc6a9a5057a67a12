//! The compared policies, and their replays of the workloads of a family.

use std::ops::Range;

use weir_console::failure::Failure;
use weir_console::policy_spec::build_policy;
use weir_console::run::run_concurrently;
use weir_core::policy::{WeirConstants, gittins_with, weir_with};
use weir_core::units::Time;
use weir_sim::lower_bound::LowerBounds;
use weir_sim::replay;

use super::families::{Case, Family, Timed};
use super::figures::{Figures, Times};
use crate::RunContext;

/// The name of [`Contender::TrueSizes`].
pub const TRUE_SIZES: &str = "gittins, true sizes";

/// A policy and its name.
pub enum Contender {
    /// By its specification.
    Named(&'static str),
    /// `weir` with other constants.
    Weir(String, WeirConstants),
    /// The order of the Gittins index by the true distribution of the workload's sizes.
    TrueSizes,
}

impl Contender {
    /// The name in [`Figures`].
    pub fn name(&self) -> &str {
        match self {
            Contender::Named(name) => name,
            Contender::Weir(name, _) => name,
            Contender::TrueSizes => TRUE_SIZES,
        }
    }

    fn replay(&self, case: &Case, timed: Timed, run_context: &RunContext<'_>) -> Result<Times, Failure> {
        let policy = match self {
            Contender::Named(name) => build_policy(name, Some(&case.workload.names), &[])?,
            Contender::Weir(_, constants) => weir_with(*constants),
            Contender::TrueSizes => gittins_with(&sizes(case)),
        };
        let mut watch = run_context.progress.add_replay_bar(self.name(), case.workload.coflows.len());
        let outcome = replay(&case.workload, policy, &case.options, &mut watch);
        Ok(Times::new(&outcome.map_err(|error| Failure::from_replay_error(self.name(), &error))?, timed))
    }
}

/// Policies by their specifications.
pub fn named(names: &[&'static str]) -> Vec<Contender> {
    names.iter().map(|name| Contender::Named(name)).collect()
}

/// The name of a policy as Markdown.
pub fn markdown_name(name: &str) -> String {
    match name {
        TRUE_SIZES => "`gittins`, true sizes".to_owned(),
        _ => format!("`{name}`"),
    }
}

/// The time in seconds that the busiest link of each coflow needs for its bytes at full capacity.
fn sizes(case: &Case) -> Vec<f64> {
    let mut workload = case.workload.clone();
    // Slow ports and late data make a coflow slower, but not larger.
    workload.events.clear();
    workload
        .coflows
        .iter_mut()
        .flat_map(|coflow| &mut coflow.flows)
        .for_each(|flow| flow.data_delay = Time::ZERO);
    LowerBounds::new(&workload, &case.options).min_ccts
}

/// The times of each policy over the workloads of a family, with these seeds if they are generated.
///
/// # Errors
/// If a workload cannot be built, a replay fails, or a signal stops the work.
pub fn measure(
    family: &Family<'_>,
    seeds: &Range<u64>,
    contenders: &[Contender],
    run_context: &RunContext<'_>,
) -> Result<Figures, Failure> {
    let workloads = family.cases(seeds)?;
    let (cases, timed) = (workloads.len(), family.timed);
    let bar = run_context.progress.add_step_bar(&family.name, cases * contenders.len());
    let mut times = run_concurrently(cases * contenders.len(), run_context.jobs, |at| {
        let times = contenders[at / cases].replay(&workloads[at % cases], timed, run_context)?;
        bar.inc(1);
        Ok(times)
    })?
    .into_iter();
    bar.finish_and_clear();
    let bound = |case: &Case| LowerBounds::new(&case.workload, &case.options).min_mean_cct;
    // The bound is one of coflows, not of jobs.
    let bounds = match timed {
        Timed::Coflows => workloads.iter().map(bound).collect(),
        Timed::Jobs => Vec::new(),
    };
    let mut figures = Figures::new(bounds);
    for contender in contenders {
        figures.add(contender.name(), times.by_ref().take(cases).collect());
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use weir_core::model::{
        CoflowSpec, FlowSpec, PortSide, ServiceNames, TimedEvent, Workload, WorkloadChange,
    };
    use weir_core::units::Bytes;

    use super::*;

    #[test]
    fn sizes_are_bottleneck_times_at_full_capacity() {
        let bytes = |bytes| Bytes::new(bytes).unwrap();
        // Port 0 sends 250 MB: 2 s at 1 Gbit/s.
        let flows = vec![FlowSpec::new(0, 1, bytes(125e6)), FlowSpec::new(0, 2, bytes(125e6))];
        let mut coflow = CoflowSpec::new(1, Time::ZERO, flows);
        coflow.flows[0].data_delay = Time::new(9.0).unwrap();
        let change = WorkloadChange::PortRate { port: 0, side: PortSide::Both, factor: 0.5 };
        let events = vec![TimedEvent { time: Time::ZERO, change }];
        let workload = Workload { ports: 3, coflows: vec![coflow], events, names: ServiceNames::default() };
        assert_eq!(sizes(&Case::from(workload)), [2.0]);
    }
}
