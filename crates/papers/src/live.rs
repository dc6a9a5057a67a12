//! `weir reproduce live`: what the mechanisms do to real traffic over the testbed's kernel, beside the papers and the simulator.
//!
//! Numbers of papers are written down with where they stand there; all others are measured.

mod netshare;
mod overheads;
mod process;
mod programs;
mod saba;
mod slice;

use std::fmt;
use std::str::FromStr;

use weir_console::failure::Failure;
use weir_console::interrupt;
use weir_console::progress::Progress;
use weir_core::units::Time;
use weir_testbed::Name;
use weir_testbed::batch::CONGESTION;

use crate::doc;

/// An experiment with real traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Experiment {
    /// NetShare's section 5.3.
    Netshare,
    /// A slice of coflows under plain TCP, Aalo and Saath.
    Slice,
    /// Jobs that are profiled, under equal shares and under Saba.
    Saba,
    /// Unmodified programs in cgroups, their classes and their shares.
    Programs,
    /// The processor time and memory of a coordinator and agents, next to Saath's Table 2.
    Overheads,
}

impl Experiment {
    /// All experiments, in the order of the page.
    pub const ALL: [Experiment; 5] = [
        Experiment::Netshare,
        Experiment::Slice,
        Experiment::Saba,
        Experiment::Programs,
        Experiment::Overheads,
    ];

    fn name(self) -> &'static str {
        match self {
            Experiment::Netshare => "netshare",
            Experiment::Slice => "slice",
            Experiment::Saba => "saba",
            Experiment::Programs => "programs",
            Experiment::Overheads => "overheads",
        }
    }
}

impl fmt::Display for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Experiment {
    type Err = String;

    fn from_str(text: &str) -> Result<Experiment, String> {
        Experiment::ALL
            .into_iter()
            .find(|one| one.name() == text)
            .ok_or_else(|| format!("expected one of {}", Experiment::ALL.map(Experiment::name).join(", ")))
    }
}

/// Options of the page.
pub struct Options {
    /// The experiments to run.
    pub only: Vec<Experiment>,
    /// The duration of each phase of NetShare's experiment.
    pub phase: Time,
    /// The number of coflows of the slice, at most [`COFLOWS`].
    pub coflows: usize,
    /// The testbed to use; it is created if it does not exist.
    pub bed: Name,
}

/// The number of coflows of the slice.
pub const COFLOWS: usize = slice::MOST;

/// The page: real traffic next to the papers' figures and the simulator's.
///
/// # Errors
/// If the testbed cannot be created, an experiment fails, or a signal stops the work.
pub fn page(options: &Options, progress: &Progress) -> Result<String, Failure> {
    // A signal must not keep the testbed from being removed.
    interrupt::watch();
    let mut out = head(options);
    for experiment in &options.only {
        out.push_str(&match experiment {
            Experiment::Netshare => netshare::section(&options.bed, options.phase, progress),
            Experiment::Slice => slice::section(&options.bed, options.coflows, progress),
            Experiment::Saba => saba::section(&options.bed, progress),
            Experiment::Programs => programs::section(&options.bed, progress),
            Experiment::Overheads => overheads::section(progress),
        }?);
    }
    Ok(doc::tidy(out))
}

fn head(page: &Options) -> String {
    let mut options = match page.phase.get() {
        30.0 => String::new(),
        seconds => format!(" --phase {seconds}s"),
    };
    if page.coflows != COFLOWS {
        options.push_str(&format!(" --coflows {}", page.coflows));
    }
    if page.only != Experiment::ALL {
        options.push_str(&format!(
            " --only {}",
            page.only.iter().map(Experiment::to_string).collect::<Vec<_>>().join(",")
        ));
    }
    format!(
        "# Real traffic\n\n\
         Made by `weir reproduce live --out docs/results/live.md{options}`, as root. Measured is real traffic: sockets of one machine, in network \
         namespaces that are joined by veth pairs, with HTB at the end of every link ([the testbed](../testbed.md)); TCP there is `{CONGESTION}` unless something else is said. So numbers depend on the \
         machine and on what else it does. Published numbers stand with their place in the paper, simulated ones are the fluid \
         simulator's for the same scenario, and every \"yes\" and \"no\" was found by that one command.\n\n"
    )
}
