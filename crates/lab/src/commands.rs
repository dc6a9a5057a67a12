//! The commands of `weir-lab`.

mod delay_line;
mod regions;
mod relay_cost;

use std::process::ExitCode;

use clap::Parser;
use weir_console::interrupt;

/// Experiments with relays in network namespaces of this machine; all of them need root
#[derive(Debug, Parser)]
#[command(name = "weir-lab", max_term_width = 100)]
enum Command {
    /// Join two network namespaces by a link with delay, loss and a rate, until Ctrl-C
    DelayLine(delay_line::Args),
    /// Create regions of namespaces with delay, loss and changing bandwidth between them, until Ctrl-C
    Regions(regions::Args),
    /// Measure Weir's relay next to other relays: bytes per CPU-second, latency and rates
    RelayCost(relay_cost::Args),
}

/// Runs the command line.
pub fn run() -> ExitCode {
    let command = Command::parse();
    if !rustix::process::geteuid().is_root() {
        eprintln!("weir-lab: skipped: this process is not root, and cannot create network namespaces");
        return ExitCode::from(SKIPPED);
    }
    // From here on, a signal does not end the process before namespaces and processes are removed.
    interrupt::record_signals();
    let result = match command {
        Command::DelayLine(args) => delay_line::run(&args),
        Command::Regions(args) => regions::run(&args),
        Command::RelayCost(args) => relay_cost::run(&args),
    };
    match result {
        _ if interrupt::is_requested() => ExitCode::from(interrupt::exit_code()),
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir-lab: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The exit code of a command that this machine cannot run.
const SKIPPED: u8 = 77;
