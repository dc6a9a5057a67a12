//! `weir`, the command line.

#[cfg(target_os = "linux")]
mod agent;
mod args;
mod behind;
mod compare;
mod ctl;
mod explain;
mod fabric;
mod failure;
mod incast;
mod input;
mod interrupt;
mod measure;
mod output;
mod policies;
mod predict;
#[cfg(target_os = "linux")]
mod profile;
mod progress;
mod record;
mod reference;
mod reproduce;
mod run;
mod saba;
mod serve;
mod share;
mod spec;
mod sweep;
mod table;
#[cfg(target_os = "linux")]
mod testbed;
mod trace;
mod wide;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use failure::Failure;

fn main() -> ExitCode {
    let Err(failure) = dispatch(&Cli::parse().command) else { return ExitCode::SUCCESS };
    if !failure.message.is_empty() {
        // If nobody listens there either, the exit code has to do.
        let _ = writeln!(io::stderr(), "weir: {}", failure.message);
    }
    ExitCode::from(failure.code)
}

fn dispatch(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Sim(args) => compare::sim(args),
        Command::Compare(args) => compare::compare(args),
        Command::Sweep(args) => sweep::sweep(args),
        Command::Explain(args) => explain::explain(args),
        Command::Share(args) => share::share(args),
        Command::Reproduce(args::Reproduce::Saath(args)) => reproduce::saath(args),
        Command::Reproduce(args::Reproduce::Netshare(args)) => reproduce::netshare(args),
        Command::Reproduce(args::Reproduce::Saba(args)) => reproduce::saba(args),
        Command::Reproduce(args::Reproduce::Django(args)) => reproduce::django(args),
        Command::Reproduce(args::Reproduce::Siphon(args)) => reproduce::siphon(args),
        Command::Reproduce(args::Reproduce::Composition(args)) => reproduce::composition(args),
        #[cfg(target_os = "linux")]
        Command::Reproduce(args::Reproduce::Live(args)) => reproduce::live(args),
        Command::Saba(args) => saba::saba(args),
        Command::Predict(args) => predict::predict(args),
        #[cfg(target_os = "linux")]
        Command::Profile(args) => profile::profile(args),
        Command::Policies(args) => policies::policies(args),
        Command::Trace(args) => trace::trace(args),
        Command::Fabric(args) => fabric::fabric(args),
        #[cfg(target_os = "linux")]
        Command::Testbed(args) => testbed::testbed(args),
        Command::Serve(args) => serve::serve(args),
        Command::Ctl(args) => ctl::ctl(args),
        #[cfg(target_os = "linux")]
        Command::Agent(args) => agent::agent(args),
        Command::Completions(args) => reference::completions(args),
        Command::Man(args) => reference::man(args),
        Command::Reference => reference::markdown(),
    }
}
