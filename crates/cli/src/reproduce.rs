//! `weir reproduce`: evaluations of papers done again, published and measured side by side.
//!
//! Numbers of a paper are written down with where they stand there ([`claims`], [`figures`], [`sensitivity`]); all others are measured, and
//! the sentences that depend on them are made from them.

mod claims;
mod composition;
mod django;
mod doc;
mod experiments;
mod figures;
mod lab;
#[cfg(target_os = "linux")]
mod live;
mod netshare;
mod saba;
mod sensitivity;
mod siphon;
mod standin;
mod world;

use std::fmt::Write;

use weir_trace::describe::{self, Description};

use crate::args;
use crate::failure::Failure;
use crate::input::{Source, limits};
use crate::output::{self, Sink};
use crate::progress::Progress;
use crate::table::{bytes, seconds};

pub use composition::composition;
pub use django::django;
use lab::Lab;
#[cfg(target_os = "linux")]
pub use live::live;
pub use netshare::netshare;
pub use saba::saba;
pub use siphon::siphon;

/// Runs `weir reproduce saath`.
///
/// # Errors
/// Whatever ends it early.
pub fn saath(args: &args::Reproduction) -> Result<(), Failure> {
    output::check_distinct(&args.trace, &[("--out", args.making.out.as_deref())])?;
    let sink = Sink::new(args.making.out.as_deref())?;
    let trace = weir_trace::read(&args.trace, args.reading.trace_unit, &limits(&args.reading))?;
    let name = args.trace.file_name().unwrap_or(args.trace.as_os_str()).to_string_lossy().into_owned();
    let source = Source { name, workload: trace.workload, format: trace.format };
    if source.workload.coflows.is_empty() {
        return Err(Failure::input(format_args!("{}: expected a trace with coflows", args.trace.display())));
    }
    let unit = source.unit().unwrap_or(args.reading.trace_unit);
    let description = Description::new(&source.workload, describe::threshold(unit))
        .map_err(|error| Failure::input(format_args!("{}: {error}", args.trace.display())))?;
    let lab = Lab::new(&source.workload, unit.bytes(), args.port_rate, args.interval);
    // The first time it only asks.
    document(args, &source, &description, &lab);
    lab.run(args.making.running.jobs, &Progress::new(args.making.running.quiet))?;
    sink.fill(document(args, &source, &description, &lab).as_bytes())
}

fn document(args: &args::Reproduction, source: &Source, description: &Description, lab: &Lab<'_>) -> String {
    let mut out = head(args, source, description, lab);
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
    out.push_str(&sensitivity::overhead(lab, !args.no_timing));
    doc::tidy(out)
}

fn head(args: &args::Reproduction, source: &Source, description: &Description, lab: &Lab<'_>) -> String {
    let mut out = String::from("# Saath, published and measured\n\n");
    let unit = args.reading.trace_unit;
    let mut command = format!("weir reproduce saath --trace {} --out docs/results/saath.md", source.name);
    for (given, default, option) in [
        (unit.to_string(), "MB", "--trace-unit"),
        (args.port_rate.to_string(), "1Gbit", "--port-rate"),
        (args.interval.to_string(), "8ms", "--interval"),
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
        source.name,
        if source.name == "FB2010-1Hr-150-0.txt" { ", the public trace of coflow-benchmark" } else { "" },
        description.coflows,
        description.flows,
        bytes(description.bytes),
        description.ports,
        source.understood(),
        args.port_rate,
        seconds(args.interval.get()),
        lab.replays(),
    )
    .expect("memory takes all");
    out
}
