//! Writes Weir's own trace format.

use std::io::Write;

use weir_core::model::{Change, CoflowSpec, FlowSpec, Names, Side, Workload};
use weir_core::units::{Bytes, Time};

use super::{MAGIC, VERSION};
use crate::bounds;
use crate::error::WriteError;
use crate::number;
use crate::shuffle;

pub(super) fn workload<W: Write>(workload: &Workload, mut out: W) -> Result<(), WriteError> {
    bounds::check(workload)?;
    if let Some((id, parent)) = repeated_parent(workload) {
        let what = format!("it names its parent {parent} twice");
        return Err(WriteError::Inexpressible { place: format!("coflow {id}"), what });
    }
    if !names_come_back(workload) {
        let what = "its services and applications are not in the order of their first coflows".to_owned();
        return Err(WriteError::Inexpressible { place: "the trace".to_owned(), what });
    }
    writeln!(out, "{MAGIC} {VERSION}\nports {}", workload.ports)?;
    for spec in &workload.coflows {
        coflow(workload, spec, &mut out)?;
    }
    for event in &workload.events {
        let at = number::time(event.at);
        let id = |position: usize| workload.coflows[position].id;
        match event.what {
            Change::PortRate { port, side, factor } => {
                let (side, rate) = (side_name(side), number::exact(factor));
                writeln!(out, "event {at} port={port} side={side} rate={rate}")?;
            }
            Change::Restart { coflow, flow } => {
                writeln!(out, "event {at} restart coflow={} flow={flow}", id(coflow))?;
            }
            Change::Late { coflow, flow, until } => {
                let until = number::time(until);
                writeln!(out, "event {at} late coflow={} flow={flow} until={until}", id(coflow))?;
            }
        }
    }
    out.flush()?;
    Ok(())
}

/// Whether a reader, which numbers names by first use, assigns the workload's numbers.
fn names_come_back(workload: &Workload) -> bool {
    let mut read = Names::empty();
    for coflow in &workload.coflows {
        let (service, application) = names_of(workload, coflow);
        read.number(service, application);
    }
    let same = if workload.coflows.is_empty() { Names::default() } else { read };
    same == workload.names
}

/// The names of a coflow's service and application.
fn names_of<'a>(workload: &'a Workload, coflow: &CoflowSpec) -> (&'a str, &'a str) {
    let names = &workload.names;
    let application = &names.applications(coflow.service)[coflow.application as usize];
    (names.service(coflow.service), application)
}

/// The ids of a coflow and of a parent that it lists twice, if any.
fn repeated_parent(workload: &Workload) -> Option<(u64, u64)> {
    let mut parents = Vec::new();
    workload.coflows.iter().find_map(|coflow| {
        parents.clone_from(&coflow.parents);
        parents.sort_unstable();
        let pair = parents.windows(2).find(|pair| pair[0] == pair[1])?;
        Some((coflow.id, workload.coflows[pair[0]].id))
    })
}

fn coflow<W: Write>(workload: &Workload, spec: &CoflowSpec, out: &mut W) -> Result<(), WriteError> {
    write!(out, "coflow {} arrival={}", spec.id, number::time(spec.arrival))?;
    if spec.weight != 1.0 {
        write!(out, " weight={}", number::exact(spec.weight))?;
    }
    if let Some(deadline) = spec.deadline {
        write!(out, " deadline={}", number::time(deadline))?;
    }
    let (service, application) = names_of(workload, spec);
    for (key, name) in [("service", service), ("application", application)] {
        if name != Names::DEFAULT {
            write!(out, " {key}={name}")?;
        }
    }
    if let Some(job) = spec.job {
        write!(out, " job={job}")?;
    }
    if let Some(stage) = spec.stage {
        write!(out, " stage={stage}")?;
    }
    if let Some(wave) = spec.wave {
        write!(out, " wave={wave}")?;
    }
    if !spec.parents.is_empty() {
        let ids: Vec<String> = spec.parents.iter().map(|&p| workload.coflows[p].id.to_string()).collect();
        write!(out, " parents={}", ids.join(","))?;
    }
    for (key, time) in [("compute-before", spec.compute_before), ("compute-after", spec.compute_after)] {
        if time != Time::ZERO {
            write!(out, " {key}={}", number::time(time))?;
        }
    }
    writeln!(out)?;
    if let Some(line) = shuffle_line(&spec.flows) {
        writeln!(out, "{line}")?;
        return Ok(());
    }
    for flow in &spec.flows {
        let (size, release) = (number::size(flow.bytes), release(flow.release));
        writeln!(out, "flow {} {} {size}{release}", flow.src, flow.dst)?;
    }
    Ok(())
}

/// The flows as one `shuffle` line, if they are a shuffle with sizes that split into exactly these flows.
fn shuffle_line(flows: &[FlowSpec]) -> Option<String> {
    let first = flows.first()?.release;
    if flows.len() < 2 || flows.iter().any(|f| f.release != first) {
        return None;
    }
    shuffle::factor(flows).find_map(|shuffle| {
        let parts = shuffle.mappers.len() as f64;
        let mut reducers = Vec::with_capacity(shuffle.reducers.len());
        for (port, part) in shuffle.reducers {
            let whole = Bytes::new(number::unsplit(part, parts, 1.0)?)?;
            // Rounding could increase the size beyond the reader's bound.
            if whole.get() >= bounds::MAX_BYTES {
                return None;
            }
            reducers.push(format!("{port}:{}", number::size(whole)));
        }
        let mappers: Vec<String> = shuffle.mappers.iter().map(u32::to_string).collect();
        Some(format!("shuffle {} {}{}", mappers.join(","), reducers.join(","), release(first)))
    })
}

fn release(release: Time) -> String {
    if release == Time::ZERO { String::new() } else { format!(" release={}", number::time(release)) }
}

fn side_name(side: Side) -> &'static str {
    match side {
        Side::Send => "send",
        Side::Receive => "receive",
        Side::Both => "both",
    }
}
