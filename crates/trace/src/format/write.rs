//! Writes Weir's own trace format.

use std::io::Write;

use weir_core::model::{CoflowSpec, FlowSpec, PortSide, ServiceNames, Workload, WorkloadChange};
use weir_core::units::{Bytes, Time};

use super::{Comments, MAGIC, VERSION};
use crate::bounds;
use crate::error::WriteError;
use crate::number;
use crate::shuffle;

pub(super) fn write_workload<W: Write>(
    workload: &Workload,
    port_names: &[String],
    comments: &Comments,
    mut out: W,
) -> Result<(), WriteError> {
    bounds::check_workload(workload)?;
    if let Some((id, parent)) = repeated_parent(workload) {
        let reason = format!("it names its parent {parent} twice");
        return Err(WriteError::Inexpressible { subject: format!("coflow {id}"), reason });
    }
    if let Some(coflow) = workload.coflows.iter().find(|c| c.is_endless || c.max_flow_rate.is_some()) {
        let reason = "it belongs to a service".to_owned();
        return Err(WriteError::Inexpressible { subject: format!("coflow {}", coflow.id), reason });
    }
    if !are_names_in_order_of_use(workload) {
        let reason = "its services and applications are not in the order of their first coflows".to_owned();
        return Err(WriteError::Inexpressible { subject: "the trace".to_owned(), reason });
    }
    writeln!(out, "{MAGIC} {VERSION}")?;
    for comment in &comments.head {
        writeln!(out, "# {comment}")?;
    }
    writeln!(out, "ports {}", workload.ports)?;
    for (port, name) in port_names.iter().enumerate() {
        writeln!(out, "port {port} {name}")?;
    }
    for (position, spec) in workload.coflows.iter().enumerate() {
        if let Some(comment) = comments.coflows.get(position) {
            writeln!(out, "# {comment}")?;
        }
        write_coflow(workload, spec, &mut out)?;
    }
    for event in &workload.events {
        let at = number::format_time(event.time);
        let id = |position: usize| workload.coflows[position].id;
        match event.change {
            WorkloadChange::PortRate { port, side, factor } => {
                let (side, rate) = (side_name(side), number::format_exact(factor));
                writeln!(out, "event {at} port={port} side={side} rate={rate}")?;
            }
            WorkloadChange::RestartFlow { coflow, flow } => {
                writeln!(out, "event {at} restart coflow={} flow={flow}", id(coflow))?;
            }
            WorkloadChange::DelayFlow { coflow, flow, until } => {
                let until = number::format_time(until);
                writeln!(out, "event {at} late coflow={} flow={flow} until={until}", id(coflow))?;
            }
        }
    }
    out.flush()?;
    Ok(())
}

/// Whether a reader, which numbers names by first use, assigns the workload's numbers.
fn are_names_in_order_of_use(workload: &Workload) -> bool {
    let mut names_in_order = ServiceNames::empty();
    for coflow in &workload.coflows {
        let (service, application) = names_of(workload, coflow);
        names_in_order.intern(service, application);
    }
    let expected = if workload.coflows.is_empty() { ServiceNames::default() } else { names_in_order };
    expected == workload.names
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

fn write_coflow<W: Write>(workload: &Workload, spec: &CoflowSpec, out: &mut W) -> Result<(), WriteError> {
    write!(out, "coflow {} arrival={}", spec.id, number::format_time(spec.arrival))?;
    if spec.weight != 1.0 {
        write!(out, " weight={}", number::format_exact(spec.weight))?;
    }
    if let Some(deadline) = spec.deadline {
        write!(out, " deadline={}", number::format_time(deadline))?;
    }
    let (service, application) = names_of(workload, spec);
    for (key, name) in [("service", service), ("application", application)] {
        if name != ServiceNames::DEFAULT {
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
    for (key, time) in [
        ("compute-before", spec.compute_before),
        ("overlapped-compute", spec.overlapped_compute),
        ("compute-after", spec.compute_after),
    ] {
        if time != Time::ZERO {
            write!(out, " {key}={}", number::format_time(time))?;
        }
    }
    if let Some(limit) = spec.max_transfer_time {
        write!(out, " transfer-limit={}", number::format_time(limit))?;
    }
    writeln!(out)?;
    if let Some(line) = format_shuffle(&spec.flows) {
        writeln!(out, "{line}")?;
        return Ok(());
    }
    for flow in &spec.flows {
        let (size, release) = (number::format_size(flow.bytes), format_release(flow.data_delay));
        writeln!(out, "flow {} {} {size}{release}", flow.src, flow.dst)?;
    }
    Ok(())
}

/// The flows as one `shuffle` line, if they are a shuffle with sizes that split into exactly these flows.
fn format_shuffle(flows: &[FlowSpec]) -> Option<String> {
    let first = flows.first()?.data_delay;
    if flows.len() < 2 || flows.iter().any(|f| f.data_delay != first) {
        return None;
    }
    shuffle::shuffles_of_flows(flows).find_map(|shuffle| {
        let parts = shuffle.mappers.len() as f64;
        let mut reducers = Vec::with_capacity(shuffle.reducers.len());
        for (port, part) in shuffle.reducers {
            let total = Bytes::new(number::total_from_part(part, parts, 1.0)?)?;
            // Rounding could increase the size beyond the reader's bound.
            if total.get() >= bounds::MAX_BYTES {
                return None;
            }
            reducers.push(format!("{port}:{}", number::format_size(total)));
        }
        let mappers: Vec<String> = shuffle.mappers.iter().map(u32::to_string).collect();
        Some(format!("shuffle {} {}{}", mappers.join(","), reducers.join(","), format_release(first)))
    })
}

fn format_release(release: Time) -> String {
    if release == Time::ZERO { String::new() } else { format!(" release={}", number::format_time(release)) }
}

fn side_name(side: PortSide) -> &'static str {
    match side {
        PortSide::Send => "send",
        PortSide::Receive => "receive",
        PortSide::Both => "both",
    }
}
