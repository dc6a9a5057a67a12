//! `weir reproduce django`: sections 2.3 and 6 of Django (JPDC '21).

mod claim;
mod figures;
mod lab;
mod optimum;
mod parameters;
mod prediction;
mod theorem;

use std::fmt::Write;

use weir_trace::incast::Measured;

use crate::{Running, Trace, doc};
use weir_console::failure::Failure;
use weir_console::table::bytes;

use lab::{Cost, Data, Lab, What, World, rate};

/// What connections cost, as measured.
const PLAIN: &str = include_str!("../../../examples/incast/cost-512kB.csv");
const MARKED: &str = include_str!("../../../examples/incast/cost-512kB-marks.csv");
const SMALL: &str = include_str!("../../../examples/incast/cost-64kB-marks.csv");

/// The world that figures begin with. Its links are as those by which costs were measured, so that nothing has to be taken from one rate to
/// another.
fn world() -> World {
    World { what: What::Trace, hosts: 16, load: 1.0, buffer: 100, cost: Cost::Marked, pace: 0.1 }
}

fn incast(text: &str, name: &str) -> Result<Measured, Failure> {
    Ok(weir_trace::incast::read_from(text.as_bytes(), name)?)
}

/// The default number of seeds.
pub const SEEDS: u64 = 10;

/// The page: Django's figures, published and measured. `seeds` coflows are drawn for Fig. 2; without `timing` the page
/// contains no processor times, which no two runs agree on.
///
/// # Errors
/// A trace whose coflows all arrive at 0 s, a replay without an outcome, or a signal that stops the work.
pub fn page(trace: &Trace, seeds: u64, timing: bool, running: &Running<'_>) -> Result<String, Failure> {
    if !trace.workload.coflows.iter().any(|coflow| coflow.arrival.get() > 0.0) {
        let name = &trace.name;
        return Err(Failure::input(format_args!("{name}: expected coflows that do not all arrive at 0 s")));
    }
    let data = Data {
        trace: &trace.workload,
        plain: incast(PLAIN, "examples/incast/cost-512kB.csv")?,
        marked: incast(MARKED, "examples/incast/cost-512kB-marks.csv")?,
        small: incast(SMALL, "examples/incast/cost-64kB-marks.csv")?,
    };
    let lab = Lab::new(data);
    let predicted = prediction::section(timing, running.progress)?;
    let answers = theorem::ask(lab.data.threshold())?;
    let document = || {
        let theorem = theorem::section(&lab, &answers);
        document(&head(trace, seeds, &lab), seeds, timing, &lab, &format!("{predicted}\n{theorem}"))
    };
    // The first call collects the replays that the page needs.
    document();
    lab.run(running.jobs, running.progress)?;
    Ok(document())
}

fn document(head: &str, seeds: u64, timing: bool, lab: &Lab<'_>, predicted: &str) -> String {
    let mut out = head.to_owned();
    out.push_str(&optimum::cost(lab));
    out.push_str(&optimum::section(lab, seeds));
    out.push_str(predicted);
    out.push_str(&figures::fig5(lab));
    out.push_str(&figures::fig6(lab));
    out.push_str(&figures::fig7(lab));
    out.push_str(&figures::fig8(lab));
    out.push_str(&figures::fig9(lab));
    if timing {
        out.push_str(&figures::fig10(lab));
    }
    out.push_str(&parameters::fig11(lab));
    out.push_str(&figures::table2(lab));
    out.push_str(&parameters::experiments(lab));
    doc::tidy(out)
}

fn head(trace: &Trace, seeds: u64, lab: &Lab<'_>) -> String {
    let options = trace.options();
    let option = if seeds == SEEDS { String::new() } else { format!(" --seeds {seeds}") };
    let workload = lab.data.workload(&world());
    let total: f64 = workload.coflows.iter().map(|coflow| coflow.bytes()).sum();
    let flows = workload.flows();
    let mut out = String::from("# Django, published and measured\n\n");
    write!(
        out,
        "Made by `weir reproduce django {options} --out docs/results/django.md{option}`. The paper is Zheng et al., \"Django: Bilateral coflow \
         scheduling with predictive concurrent connections\", JPDC '21. Its numbers are quoted with the place where they stand; every other \
         number was computed by that one command, and so was every \"yes\" and \"no\" and every sentence that says what comes out. A number \
         holds within {} %.\n\n\
         - *The trace on fewer hosts* (6.1: \"the size and (or) arrival time of coflows is scaled down accordingly\"): port p is on host p modulo {}. A \
         reducer of the trace stays one, and gets what the mappers of one host have for it over one connection. One coflow arrives a second on average at \
         a load ratio of 1 (6.4), and sizes are such that ports have the load that they have in the trace. That makes {} coflows, {flows} flows \
         and {}, a flow of {} on average.\n\
         - Links of {}, as those by which costs were measured, and sizes a tenth, so that nothing takes longer than with the paper's 1 Gbit; a schedule \
         every 8 ms; ports of {} packets where nothing else is said.\n\
         - `{}` stands for DCTCP: per-flow max-min. All pay for connections what TCP paid that goes by marks (ECN), as DCTCP does; what plain TCP \
         pays is among the experiments. `{}` is Aalo+ as Weir reads it (`weir policies {}`).\n\
         - Django has as many connections a host as theorem 4.1 says for the buffer: q - k, with q packets of buffer and marks from k = {} on, so {} here. \
         The paper predicts q; how often that is right, and what else would be best, is below.\n\
         - Not done again: the testbed of 8 servers (Table 2 is simulated), and ns-3. {} replays.\n\n",
        doc::SAME * 100.0,
        world().hosts,
        workload.coflows.len(),
        bytes(total),
        bytes(total / flows.max(1) as f64),
        rate(&world()),
        world().buffer,
        lab::DCTCP,
        lab::AALO,
        lab::AALO,
        lab.data.threshold(),
        lab.connections(&world()),
        lab.replays(),
    )
    .expect("memory takes all");
    out
}
