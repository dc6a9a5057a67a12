//! `weir`, the command line.

#[cfg(all(feature = "live", target_os = "linux"))]
mod agent;
mod args;
mod behind;
mod compare;
#[cfg(feature = "live")]
mod ctl;
mod explain;
mod fabric;
mod incast;
mod input;
mod measure;
mod policies;
mod predict;
#[cfg(all(feature = "live", target_os = "linux"))]
mod profile;
mod reference;
#[cfg(feature = "papers")]
mod reproduce;
mod saba;
#[cfg(feature = "live")]
mod serve;
mod share;
mod sweep;
#[cfg(all(feature = "live", target_os = "linux"))]
mod testbed;
mod trace;
mod wide;

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use weir_console::failure::Failure;

use args::{Cli, Command};

/// The commands that this build lacks, and the feature that contains each.
const MISSING: &[(&str, &[&str])] = &[
    #[cfg(not(feature = "live"))]
    ("live", &["agent", "ctl", "profile", "serve", "testbed"]),
    #[cfg(not(feature = "papers"))]
    ("papers", &["reproduce"]),
];

fn main() -> ExitCode {
    let result = match missing_feature() {
        Some((command, feature)) => Err(Failure::input(format_args!(
            "{command}: this build lacks the command: built without `{feature}`; run `make install`"
        ))),
        None => dispatch(&Cli::parse().command),
    };
    let Err(failure) = result else { return ExitCode::SUCCESS };
    if !failure.message.is_empty() {
        // If standard error is closed, the exit code has to be enough.
        let _ = writeln!(io::stderr(), "weir: {}", failure.message);
    }
    ExitCode::from(failure.code)
}

/// The requested command and the feature that it needs, if this build lacks that feature.
fn missing_feature() -> Option<(String, &'static str)> {
    let command = env::args().nth(1)?;
    let (feature, _) = MISSING.iter().find(|(_, commands)| commands.contains(&command.as_str()))?;
    Some((command, feature))
}

fn dispatch(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Sim(args) => compare::sim(args),
        Command::Compare(args) => compare::compare(args),
        Command::Sweep(args) => sweep::sweep(args),
        Command::Explain(args) => explain::explain(args),
        Command::Share(args) => share::share(args),
        #[cfg(feature = "papers")]
        Command::Reproduce(args) => reproduce::reproduce(args),
        Command::Saba(args) => saba::saba(args),
        Command::Predict(args) => predict::predict(args),
        #[cfg(all(feature = "live", target_os = "linux"))]
        Command::Profile(args) => profile::profile(args),
        Command::Policies(args) => policies::policies(args),
        Command::Trace(args) => trace::trace(args),
        Command::Fabric(args) => fabric::fabric(args),
        #[cfg(all(feature = "live", target_os = "linux"))]
        Command::Testbed(args) => testbed::testbed(args),
        #[cfg(feature = "live")]
        Command::Serve(args) => serve::serve(args),
        #[cfg(feature = "live")]
        Command::Ctl(args) => ctl::ctl(args),
        #[cfg(all(feature = "live", target_os = "linux"))]
        Command::Agent(args) => agent::agent(args),
        Command::Completions(args) => reference::completions(args),
        Command::Man(args) => reference::man(args),
        Command::Reference => reference::markdown(),
    }
}
