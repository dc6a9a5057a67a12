//! `weir reproduce live`: what the mechanisms do to real traffic over the testbed's kernel, beside the papers and the simulator.
//!
//! Numbers of papers are written down with where they stand there; all others are measured.

mod netshare;
mod overheads;
mod process;
mod programs;
mod saba;
mod slice;

use clap::ValueEnum;
use weir_testbed::batch::CONGESTION;

use super::doc;
use crate::args::{self, Experiment};
use crate::failure::Failure;
use crate::interrupt;
use crate::output::Sink;
use crate::progress::Progress;

/// Runs `weir reproduce live`.
///
/// # Errors
/// Whatever ends it early.
pub fn live(args: &args::LiveReproduction) -> Result<(), Failure> {
    // What is begun has to be taken away again.
    interrupt::watch();
    let sink = Sink::new(args.out.as_deref())?;
    let progress = Progress::new(args.quiet);
    let mut out = head(args);
    if args.only.contains(&Experiment::Netshare) {
        out.push_str(&netshare::section(&args.bed.name, args.phase, &progress)?);
    }
    if args.only.contains(&Experiment::Slice) {
        out.push_str(&slice::section(&args.bed.name, args.coflows as usize, &progress)?);
    }
    if args.only.contains(&Experiment::Saba) {
        out.push_str(&saba::section(&args.bed.name, &progress)?);
    }
    if args.only.contains(&Experiment::Programs) {
        out.push_str(&programs::section(&args.bed.name, &progress)?);
    }
    if args.only.contains(&Experiment::Overheads) {
        out.push_str(&overheads::section(&progress)?);
    }
    sink.fill(doc::tidy(out).as_bytes())
}

fn head(args: &args::LiveReproduction) -> String {
    let mut options = match args.phase.get() {
        30.0 => String::new(),
        seconds => format!(" --phase {seconds}s"),
    };
    if args.coflows as usize != slice::MOST {
        options.push_str(&format!(" --coflows {}", args.coflows));
    }
    if !Experiment::value_variants().iter().all(|one| args.only.contains(one)) {
        let name =
            |only: &Experiment| only.to_possible_value().expect("all have names").get_name().to_owned();
        let names: Vec<String> = args.only.iter().map(name).collect();
        options.push_str(&format!(" --only {}", names.join(",")));
    }
    let out = if args.out.is_some() { " --out docs/results/live.md" } else { "" };
    format!(
        "# Real traffic\n\n\
         Made by `weir reproduce live{out}{options}`, as root. Measured is real traffic: sockets of one machine, in network \
         namespaces that are joined by veth pairs, with HTB at the end of every link ([the testbed](../testbed.md)); TCP there is `{CONGESTION}` unless something else is said. So numbers depend on the \
         machine and on what else it does. Published numbers stand with their place in the paper, simulated ones are the fluid \
         simulator's for the same scenario, and every \"yes\" and \"no\" was found by that one command.\n\n"
    )
}
