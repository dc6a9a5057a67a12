//! Merges traces into one.

use std::collections::{HashMap, HashSet};

use weir_core::model::{ServiceNames, Workload, WorkloadChange};
use weir_core::units::Time;

use crate::Trace;

/// Traces that cannot be merged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// Only some of the traces have names of ports.
    #[error(
        "some traces have names of ports, and others have only numbers; expected names in all of them, or in none"
    )]
    SomeNames,
    /// There are too many ports.
    #[error("the traces have more than {} ports with different names in total", Workload::MAX_PORTS)]
    Ports,
    /// Numbers of coflows or jobs are too large to be increased.
    #[error("numbers of coflows or jobs exceed 2^64 - 1 once they are distinct; expected smaller ones")]
    Numbers,
    /// There are too many names.
    #[error("the traces have more than {} applications in total", ServiceNames::MAX_APPLICATIONS)]
    Names,
}

/// All coflows and events of the traces, at their times: if their readers made them earlier, all are as much earlier as the trace that
/// was made earlier by least. Ports with the same name are the same; without names, ports with the same number
/// are.
///
/// If a trace has ids of coflows that earlier ones have, all its ids increase by the largest of those plus 1; likewise the numbers of jobs.
/// Services and applications with the same names are the same.
///
/// # Errors
/// If ports have different names, or numbers or names do not fit.
pub fn merge(traces: Vec<Trace>) -> Result<(Workload, Vec<String>), MergeError> {
    let mut merged =
        Workload { ports: 1, coflows: Vec::new(), events: Vec::new(), names: ServiceNames::empty() };
    let mut port_names: Vec<String> = Vec::new();
    let (mut ids, mut jobs) = (HashSet::new(), HashSet::new());
    let mut has_names = None;
    let origin = traces.iter().map(|trace| trace.time_shift.get()).fold(f64::INFINITY, f64::min);
    for Trace { workload, port_names: names, time_shift, .. } in traces {
        let later = |time: Time| Time::new(time.get() + (time_shift.get() - origin)).unwrap_or(time);
        let is_partial = !names.is_empty() && names.len() != workload.ports as usize;
        if is_partial || *has_names.get_or_insert(!names.is_empty()) == names.is_empty() {
            return Err(MergeError::SomeNames);
        }
        let numbers = port_numbers(&mut port_names, workload.ports, names);
        merged.ports = numbers.iter().map(|&port| port + 1).fold(merged.ports, u32::max);
        if merged.ports > Workload::MAX_PORTS {
            return Err(MergeError::Ports);
        }
        let first = merged.coflows.len();
        let id_increase = increase(&ids, workload.coflows.iter().map(|coflow| coflow.id));
        let job_increase = increase(&jobs, workload.coflows.iter().filter_map(|coflow| coflow.job));
        for mut coflow in workload.coflows {
            coflow.arrival = later(coflow.arrival);
            coflow.id = coflow.id.checked_add(id_increase).ok_or(MergeError::Numbers)?;
            let job = coflow.job.map(|job| job.checked_add(job_increase).ok_or(MergeError::Numbers));
            coflow.job = job.transpose()?;
            coflow.parents.iter_mut().for_each(|parent| *parent += first);
            for flow in &mut coflow.flows {
                (flow.src, flow.dst) = (numbers[flow.src as usize], numbers[flow.dst as usize]);
            }
            let service = workload.names.service(coflow.service);
            let application = &workload.names.applications(coflow.service)[coflow.application as usize];
            let numbers = merged.names.intern(service, application).ok_or(MergeError::Names)?;
            (coflow.service, coflow.application) = numbers;
            ids.insert(coflow.id);
            jobs.extend(coflow.job);
            merged.coflows.push(coflow);
        }
        merged.events.extend(workload.events.into_iter().map(|mut event| {
            event.time = later(event.time);
            match &mut event.change {
                WorkloadChange::PortRate { port, .. } => *port = numbers[*port as usize],
                WorkloadChange::RestartFlow { coflow, .. } => *coflow += first,
                WorkloadChange::DelayFlow { coflow, until, .. } => {
                    *coflow += first;
                    *until = later(*until);
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

/// The number of each port of a trace in the merged one, to which its names are added.
fn port_numbers(merged: &mut Vec<String>, ports: u32, names: Vec<String>) -> Vec<u32> {
    let known: HashMap<String, u32> = merged.iter().cloned().zip(0..).collect();
    let mut numbers: Vec<u32> = Vec::new();
    for name in names {
        numbers.push(known.get(&name).copied().unwrap_or_else(|| {
            merged.push(name);
            merged.len() as u32 - 1
        }));
    }
    // Without names, ports keep their numbers.
    numbers.extend(numbers.len() as u32..ports);
    numbers
}
