//! The commands of `weir-lab`.

mod coflows;
mod delay_line;
mod flow_groups;
mod regions;
mod relay_cost;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use weir_console::interrupt;
use weir_lab::LabError;

/// Experiments with relays in network namespaces of this machine; all of them need root
#[derive(Debug, Parser)]
#[command(name = "weir-lab", max_term_width = 100)]
enum Command {
    /// Join two network namespaces by a link with delay, loss and a rate, until Ctrl-C
    DelayLine(delay_line::Args),
    /// Create regions of namespaces with delay, loss and changing bandwidth between them, until Ctrl-C
    Regions(regions::Args),
    /// Replay coflows over three regions under policies of the overlay: completion times, simulated and measured
    Coflows(coflows::Args),
    /// Send the two flow groups of Siphon's Fig. 3 in different orders: when the tasks that receive them end
    FlowGroups(flow_groups::Args),
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
        Command::Coflows(args) => coflows::run(&args),
        Command::FlowGroups(args) => flow_groups::run(&args),
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

/// Open files for 1,000 flows, at either end and at relays.
const OPEN_FILES: u64 = 65_536;

/// Raises the limit of open files as far as this process may. Relays inherit the limit.
fn raise_open_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let current = Some(maximum.map_or(OPEN_FILES, |maximum| maximum.min(OPEN_FILES)));
    // A flow that exceeds the limit fails and reports it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum });
}

/// The given `weir` command, or the one next to this program.
fn weir_path(given: Option<&Path>) -> Result<PathBuf, LabError> {
    if let Some(path) = given {
        return Ok(path.to_owned());
    }
    let this = std::env::current_exe().map_err(LabError::system("the path of this program"))?;
    Ok(this.with_file_name("weir"))
}
