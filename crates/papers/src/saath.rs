//! `weir reproduce`: evaluations of papers done again, published and measured side by side.
//!
//! Numbers of a paper are written down with where they stand there ([`claims`], [`figures`], [`sensitivity`]); all others are measured, and
//! the sentences that depend on them are made from them.

mod claims;
mod experiments;
mod figures;
mod lab;
mod sensitivity;
mod standin;
mod world;

use std::fmt::Write;

use weir_console::failure::Failure;
use weir_console::table::{bytes, seconds};
use weir_core::units::{Rate, Time};
use weir_trace::describe::{self, Description};

use crate::{Running, Trace, doc};
use lab::Lab;

/// Options of the page.
pub struct Options {
    /// What each port sends and what it receives.
    pub port_rate: Rate,
    /// The scheduling interval where it is not varied.
    pub interval: Time,
    /// Whether the page contains processor times, which no two runs agree on.
    pub timing: bool,
}

/// The page: Saath's figures, published and measured.
///
/// # Errors
/// A trace without coflows, a replay without an outcome, or a signal that stops the work.
pub fn page(trace: &Trace, options: &Options, running: &Running<'_>) -> Result<String, Failure> {
    let name = &trace.name;
    if trace.workload.coflows.is_empty() {
        return Err(Failure::input(format_args!("{name}: expected a trace with coflows")));
    }
    let description = Description::new(&trace.workload, describe::threshold(trace.unit))
        .map_err(|error| Failure::input(format_args!("{name}: {error}")))?;
    let lab = Lab::new(&trace.workload, trace.unit.bytes(), options.port_rate, options.interval);
    // The first call collects the replays that the page needs.
    document(trace, options, &description, &lab);
    lab.run(running.jobs, running.progress)?;
    Ok(document(trace, options, &description, &lab))
}

fn document(trace: &Trace, options: &Options, description: &Description, lab: &Lab<'_>) -> String {
    let mut out = head(trace, options, description, lab);
    out.push_str(&figures::headline(lab));
    out.push_str(&experiments::section(lab));
    out.push_str(&figures::fig2(lab, description));
    out.push_str(&figures::fig3(lab));
    out.push_str(&figures::fig9(lab));
    out.push_str(&figures::fig10(lab));
    out.push_str(&figures::fig11(lab));
    out.push_str(&figures::fig13(lab));
    out.push_str(&sensitivity::fig14(lab));
    out.push_str(&figures::testbed(lab));
    out.push_str(&sensitivity::overhead(lab, options.timing));
    doc::tidy(out)
}

fn head(trace: &Trace, options: &Options, description: &Description, lab: &Lab<'_>) -> String {
    let mut out = String::from("# Saath, published and measured\n\n");
    let mut command = format!("weir reproduce saath {} --out docs/results/saath.md", trace.options());
    for (given, default, option) in [
        (options.port_rate.to_string(), "1Gbit", "--port-rate"),
        (options.interval.to_string(), "8ms", "--interval"),
    ] {
        if given != default {
            write!(command, " {option} {given}").expect("memory takes all");
        }
    }
    writeln!(
        out,
        "Made by `{command}`. The paper is Jajoo, Gandhi, Hu and Koh, \"Saath: Speeding up CoFlows by Exploiting the Spatial Dimension\", \
         CoNEXT '17. Its numbers are quoted with the place where they stand; every other number was computed by that one command, and so was \
         every \"yes\" and \"no\" and every sentence that says what comes out.\n"
    )
    .expect("memory takes all");
    writeln!(
        out,
        "- Trace: `{}`{}: {} coflows, {} flows, {} on {} ports; {}.\n- Ports of {}, a schedule every {}; in a simulator without packets, losses and delays of messages.\n\
         - Saath and Aalo: S = 10 MB, E = 10, K = 10; Saath with d = 2 (section 6 and D5). What else Weir chose where the papers are silent is said \
         by `weir policies saath` and `weir policies aalo`, and tried under \"Experiments\".\n\
         - Four readings of Aalo: `aalo` decides at senders, with weights between queues, as the Aalo paper has it; `sharing=strict` has strict \
         priorities between queues, as section 2.2 of the Saath paper describes it; `at=both` has the queues at receivers too, as \
         in CoflowSim.\n- A speed-up is per coflow: its CCT under the other policy over its CCT under Saath.\n- {} replays.",
        trace.name,
        if trace.name == "FB2010-1Hr-150-0.txt" { ", the public trace of coflow-benchmark" } else { "" },
        description.coflows,
        description.flows,
        bytes(description.bytes),
        description.ports,
        format_args!("1 {} is {} bytes", trace.unit, trace.unit.bytes()),
        options.port_rate,
        seconds(options.interval.get()),
        lab.replays(),
    )
    .expect("memory takes all");
    out
}
