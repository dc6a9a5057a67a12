//! Runs `weir`: parses the command line, dispatches to a command, and reports failures with an exit code.
//!
//! A program with more policies passes them to [`run`], and has all commands: see `examples/own-policy`.

#[cfg(all(feature = "live", target_os = "linux"))]
mod agent;
mod args;
#[cfg(all(feature = "live", target_os = "linux"))]
mod cleanup;
mod compare;
#[cfg(all(feature = "live", target_os = "linux"))]
mod coordinator_hint;
#[cfg(feature = "live")]
mod ctl;
mod detail_file;
mod explain;
mod fabric;
mod inputs;
#[cfg(all(feature = "live", target_os = "linux"))]
mod metrics_endpoint;
mod policies;
mod predict;
#[cfg(all(feature = "live", target_os = "linux"))]
mod profile;
#[cfg(feature = "docs")]
mod reference;
#[cfg(all(feature = "live", target_os = "linux"))]
mod relay;
mod render;
mod replay;
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

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;

pub use args::set_commit;
use args::{Cli, Command, MISSING_COMMANDS};
use weir_console::failure::Failure;
use weir_core::policy::{self, PolicyEntry};

/// Runs the command line of this process. `policies` are available in addition to Weir's own.
pub fn run(policies: Vec<PolicyEntry>) -> ExitCode {
    if let Err(error) = policy::register(policies) {
        let failure = Failure::input(error);
        print_failure(&failure);
        return ExitCode::from(failure.exit_code);
    }
    if let Some((command, feature)) = missing_feature() {
        let failure = Failure::input(format_args!(
            "{command}: this build lacks the command, since it was built without `{feature}`; help: run `make install`"
        ));
        print_failure(&failure);
        return ExitCode::from(failure.exit_code);
    }
    let command = Cli::from_arguments().command;
    let Err(failure) = dispatch(&command) else { return ExitCode::SUCCESS };
    if !failure.message.is_empty() {
        #[cfg(feature = "live")]
        if command.log_format() == Some(args::LogFormat::Json) {
            serve::log_failure(&failure);
            return ExitCode::from(failure.exit_code);
        }
        print_failure(&failure);
    }
    ExitCode::from(failure.exit_code)
}

fn print_failure(failure: &Failure) {
    // If the standard error is closed, the exit code alone reports the failure.
    let _ = writeln!(io::stderr(), "weir: {}", failure.message);
}

/// Returns the requested command and the Cargo feature that adds it, if this build lacks the feature.
fn missing_feature() -> Option<(&'static str, &'static str)> {
    let words: Vec<String> = env::args().skip(1).collect();
    let is_requested = |command: &str| command.split(' ').eq(words.iter().take(command.split(' ').count()));
    MISSING_COMMANDS.iter().find_map(|(feature, commands)| {
        commands.iter().find(|command| is_requested(command)).map(|command| (*command, *feature))
    })
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
        #[cfg(all(feature = "live", target_os = "linux"))]
        Command::Relay(args) => relay::relay(args),
        #[cfg(feature = "docs")]
        Command::Completions(args) => reference::completions(args),
        #[cfg(feature = "docs")]
        Command::Man(args) => reference::man(args),
        #[cfg(feature = "docs")]
        Command::Reference => reference::markdown(),
    }
}
