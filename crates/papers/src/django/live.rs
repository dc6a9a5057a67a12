//! Writes the page of `weir reproduce django-live`: Django, Aalo+ and DCTCP on real traffic, next to the simulator and the paper.
//!
//! - `scenario.rs`: coflows of the trace and of Fig. 7, between seven hosts with agents and a coordinator at an eighth host.
//! - `pulls.rs`: Fig. 2, a coflow whose reducers pull from random hosts, without a coordinator.
//! - `ports.rs`: drops and queue lengths at the switch.
//! - `tables.rs`: the tables, and the summary of what differs.

mod ports;
mod pulls;
mod scenario;
mod tables;

use weir_console::failure::Failure;
use weir_console::interrupt;
use weir_console::progress::Progress;
use weir_console::testbed;
use weir_core::model::{Topology, TopologyTemplate};
use weir_core::units::Rate;
use weir_testbed::congestion::DCTCP;
use weir_testbed::tcp_bed::{TcpBed, TcpBedError, TcpOptions};
use weir_testbed::{Bed, BedName};

use super::inputs;
use super::replays::Inputs;
use super::setup::{DEFAULT, Setup};
use crate::{Trace, live, markdown};

/// The number of coflows of the trace by default.
pub const DEFAULT_COFLOWS: usize = 100;

/// The number of hosts with data: those of the paper's testbed (5.1, 6.3). One more host has the tracker.
const WORKERS: u32 = 7;

/// The network of Fig. 2. Its links have half of the rate: few processors forward the packets of all hosts.
const PULLS: Setup = Setup { hosts: 16, rate_scale: 0.5 * DEFAULT.rate_scale, ..DEFAULT };

/// The network of all other figures.
const COFLOWS: Setup = Setup { hosts: WORKERS, ..DEFAULT };

/// Options of the page.
pub struct Options {
    /// The number of coflows of the trace.
    pub coflows: usize,
    /// The testbed to use for the coflows of the trace; it is created if it does not exist. That of Fig. 2 has `_pulls` added to
    /// its name.
    pub bed: BedName,
}

/// The page: measured CCTs of Django, Aalo+ and DCTCP next to simulated and published ones.
///
/// # Errors
/// If the testbed cannot be created, all coflows of the trace arrive at 0 s, the trace has no flow between hosts, a transfer fails, or a
/// signal stops the work.
pub fn page(trace: &Trace, options: &Options, progress: &Progress) -> Result<String, Failure> {
    interrupt::record_signals();
    let pulls_bed: BedName = format!("{}_pulls", options.bed).parse().map_err(Failure::input)?;
    let inputs = inputs(trace)?;
    let scenarios = scenario::all(&inputs, options.coflows)?;
    let (congestion_control, measured) =
        on_bed(&options.bed, big_switch(WORKERS + 1, COFLOWS.rate()), &inputs, |bed, tcp_bed| {
            let measure = |scenario| scenario::measure(bed, tcp_bed, scenario, &inputs, progress);
            let measured = scenarios.iter().map(measure).collect::<Result<Vec<_>, Failure>>()?;
            Ok((tcp_bed.congestion_control().to_string(), measured))
        })?;
    let pulls = on_bed(&pulls_bed, big_switch(PULLS.hosts, PULLS.rate()), &inputs, |bed, tcp_bed| {
        pulls::measure(bed, tcp_bed, &inputs, progress)
    })?;
    let mut out = head(trace, options);
    out.push_str(&tables::summary(&measured, &pulls));
    out.push_str(&conditions(&inputs, &congestion_control));
    out.push_str(&tables::table2(&measured));
    out.push_str(&tables::speedups(&measured));
    out.push_str(&tables::queues(&measured));
    out.push_str(&pulls::section(&pulls));
    out.push_str(&tables::control(&measured));
    Ok(markdown::collapse_blank_lines(out))
}

/// Runs work on a bed of one switch, whose hosts use DCTCP with marks.
fn on_bed<T>(
    name: &BedName,
    network: Topology,
    inputs: &Inputs<'_>,
    work: impl FnOnce(&Bed, &TcpBed<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let tcp =
        TcpOptions { congestion_control: Some(DCTCP.to_owned()), ecn_threshold: Some(inputs.threshold()) };
    testbed::with_bed(name, &network, |bed| {
        let tcp_bed = TcpBed::new(bed, &tcp).map_err(failure)?;
        work(bed, &tcp_bed)
    })
}

fn big_switch(hosts: u32, rate: Rate) -> Topology {
    TopologyTemplate::BigSwitch { hosts, rate }.build().expect("the plan is valid")
}

fn failure(error: TcpBedError) -> Failure {
    match error {
        TcpBedError::Bed(error) => testbed::failure(&error),
        other => Failure::runtime(other),
    }
}

fn head(trace: &Trace, options: &Options) -> String {
    let trace_options = trace.options();
    let mut command = format!("weir reproduce django-live {trace_options} --out docs/results/django-live.md");
    if options.coflows != DEFAULT_COFLOWS {
        command.push_str(&format!(" --coflows {}", options.coflows));
    }
    format!(
        "# Django on real traffic\n\n\
         {}\n\n\
         The command needs root, and takes up to an hour.\n\n",
        live::measured_by(&command),
    )
}

/// The section about the conditions of all experiments.
fn conditions(inputs: &Inputs<'_>, congestion_control: &str) -> String {
    format!(
        "## Conditions\n\n\
         - **Network**: network namespaces of one machine under one switch ([the testbed](../testbed.md)). Links carry {}, and those of \
         Fig. 2 {}. The switch's ports to the hosts mark from {} packets on. All connections use {congestion_control}, and hosts emit single \
         packets.\n\
         - **Coflows**: those of [the simulated page](django.md), with seven hosts: port p of the trace is host p modulo 7. Sizes are \
         in proportion to the rate of links, so transfers take as long as over the paper's 1 Gbit/s. Flows from a host to itself are left out, \
         and all flows of a coflow to a host are one reducer, also in the simulator.\n\
         - **Hosts**: senders use the library (`FlowSender`), with an agent at each of the seven hosts. An eighth host has the coordinator, as \
         a library in the measuring process, with the default settings. Reports and orders use the same links. Under DCTCP, senders have no \
         agent. Agents measure their links under Django only.\n\
         - **CCTs**: from the release of a coflow to its last byte, with the time to connect.\n\
         - **Simulator**: links carry the payload of their rate, {}. Connections cost what steady ones cost.\n\n",
        COFLOWS.rate(),
        PULLS.rate(),
        inputs.threshold(),
        markdown::format_percent(live::coflows::payload_fraction()),
    )
}
