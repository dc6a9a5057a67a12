//! Merges traces into one.

use std::collections::HashSet;

use weir_core::model::{ServiceNames, Workload, WorkloadChange};

use crate::Trace;

/// Traces that cannot be merged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// Two traces have different names of ports.
    #[error("port {port} is `{first}` in one trace and `{second}` in another; expected the same names")]
    PortNames {
        /// The port.
        port: usize,
        /// Its name in an earlier trace.
        first: String,
        /// Its name in a later one.
        second: String,
    },
    /// Numbers of coflows or jobs are too large to be increased.
    #[error("numbers of coflows or jobs exceed 2^64 - 1 once they are distinct; expected smaller ones")]
    Numbers,
    /// There are too many names.
    #[error("the traces have more than {} applications in total", ServiceNames::MAX_APPLICATIONS)]
    Names,
}

/// All coflows and events of the traces, at their times, on the ports of the largest one.
///
/// If a trace has ids of coflows that earlier ones have, all its ids increase by the largest of those plus 1; likewise the numbers of jobs.
/// Services and applications with the same names are the same.
///
/// # Errors
/// If ports have different names, or numbers or names do not fit.
pub fn merge(traces: impl IntoIterator<Item = Trace>) -> Result<(Workload, Vec<String>), MergeError> {
    let mut merged =
        Workload { ports: 1, coflows: Vec::new(), events: Vec::new(), names: ServiceNames::empty() };
    let mut port_names: Vec<String> = Vec::new();
    let (mut ids, mut jobs) = (HashSet::new(), HashSet::new());
    for Trace { workload, port_names: more_names, .. } in traces {
        merge_port_names(&mut port_names, more_names)?;
        merged.ports = merged.ports.max(workload.ports);
        let first = merged.coflows.len();
        let id_increase = increase(&ids, workload.coflows.iter().map(|coflow| coflow.id));
        let job_increase = increase(&jobs, workload.coflows.iter().filter_map(|coflow| coflow.job));
        for mut coflow in workload.coflows {
            coflow.id = coflow.id.checked_add(id_increase).ok_or(MergeError::Numbers)?;
            let job = coflow.job.map(|job| job.checked_add(job_increase).ok_or(MergeError::Numbers));
            coflow.job = job.transpose()?;
            coflow.parents.iter_mut().for_each(|parent| *parent += first);
            let service = workload.names.service(coflow.service);
            let application = &workload.names.applications(coflow.service)[coflow.application as usize];
            let numbers = merged.names.intern(service, application).ok_or(MergeError::Names)?;
            (coflow.service, coflow.application) = numbers;
            ids.insert(coflow.id);
            jobs.extend(coflow.job);
            merged.coflows.push(coflow);
        }
        merged.events.extend(workload.events.into_iter().map(|mut event| {
            match &mut event.change {
                WorkloadChange::PortRate { .. } => {}
                WorkloadChange::RestartFlow { coflow, .. } | WorkloadChange::DelayFlow { coflow, .. } => {
                    *coflow += first;
                }
            }
            event
        }));
    }
    merged.events.sort_by(|a, b| a.time.get().total_cmp(&b.time.get()));
    if merged.coflows.is_empty() {
        merged.names = ServiceNames::default();
    }
    Ok((merged, port_names))
}

/// By how much the numbers of a trace increase, so that no earlier one has them.
fn increase(earlier: &HashSet<u64>, mut numbers: impl Iterator<Item = u64>) -> u64 {
    let is_known = numbers.any(|number| earlier.contains(&number));
    // The largest one plus 1, so that 0 is new too.
    if is_known { earlier.iter().max().map_or(0, |max| max.saturating_add(1)) } else { 0 }
}

/// Adds the names of the ports after those with a name.
fn merge_port_names(names: &mut Vec<String>, more: Vec<String>) -> Result<(), MergeError> {
    let mut pairs = names.iter().zip(&more).enumerate();
    if let Some((port, (first, second))) = pairs.find(|(_, (first, second))| first != second) {
        return Err(MergeError::PortNames { port, first: first.clone(), second: second.clone() });
    }
    names.extend(more.into_iter().skip(names.len()));
    Ok(())
}
