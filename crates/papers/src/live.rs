//! Writes the page of `weir reproduce live`: mechanisms on real traffic, next to figures of the papers and of the simulator.
//!
//! Each `Experiment` has a module. `cluster` starts coordinators and agents as processes, and
//! `coflows` measures the coflows of `slice` and `fabric`.

mod cgroup;
mod cluster;
pub(crate) mod coflows;
mod fabric;
mod hosted_coordinator;
mod netshare;
mod overheads;
mod programs;
mod responsiveness;
mod saba;
mod slice;

use std::fs;
use std::process::Command;
use std::str::FromStr;
use std::thread;

use weir_console::failure::Failure;
use weir_console::interrupt;
use weir_console::progress::Progress;
use weir_core::model::{Topology, TopologyTemplate};
use weir_core::units::{Rate, Time};
use weir_testbed::BedName;
use weir_testbed::batch::CONGESTION_CONTROL;

use crate::markdown;

/// An experiment with real traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Experiment {
    /// NetShare's section 5.3.
    Netshare,
    /// Table 1 of NetShare: the time from a change to the new rates.
    Responsiveness,
    /// A slice of coflows under plain TCP, Aalo, Saath and Weir's own policy.
    Slice,
    /// A slice of coflows over faster links.
    FastLinks,
    /// Coflows over a fabric with oversubscribed uplinks.
    Fabric,
    /// Profiled jobs under equal shares and under Saba.
    Saba,
    /// Unmodified programs in cgroups, and their shares of a link.
    Programs,
    /// The processor time and memory of a coordinator and agents, next to Saath's Table 2.
    Overheads,
}

impl Experiment {
    /// All experiments, in the order of the page.
    pub const ALL: [Self; 8] = [
        Self::Netshare,
        Self::Responsiveness,
        Self::Slice,
        Self::FastLinks,
        Self::Fabric,
        Self::Saba,
        Self::Programs,
        Self::Overheads,
    ];

    /// The name on the command line, and the heading of the section.
    const fn name_and_heading(self) -> (&'static str, &'static str) {
        match self {
            Self::Netshare => ("netshare", "NetShare, section 5.3: queues, throttling, both and neither"),
            Self::Responsiveness => {
                ("responsiveness", "NetShare, Table 1: time from a change to the new rates")
            }
            Self::Slice => ("slice", "A slice of coflows"),
            Self::FastLinks => ("fast-links", "A slice of coflows over faster links"),
            Self::Fabric => ("fabric", "Coflows over an oversubscribed fabric"),
            Self::Saba => ("saba", "Saba: jobs of different sensitivity"),
            Self::Programs => ("programs", "Unmodified programs"),
            Self::Overheads => ("overheads", "Overheads next to Saath's Table 2"),
        }
    }

    /// The heading of the section on the page.
    pub const fn heading(self) -> &'static str {
        self.name_and_heading().1
    }
}

impl FromStr for Experiment {
    type Err = String;

    fn from_str(text: &str) -> Result<Experiment, String> {
        Experiment::ALL.into_iter().find(|experiment| experiment.name_and_heading().0 == text).ok_or_else(
            || {
                format!(
                    "expected one of {}",
                    Experiment::ALL.map(|experiment| experiment.name_and_heading().0).join(", ")
                )
            },
        )
    }
}

/// Options of the page.
pub struct Options {
    /// The experiments to run.
    pub experiments: Vec<Experiment>,
    /// The duration of each phase of NetShare's experiment.
    pub phase: Time,
    /// The number of coflows of the slice, at most [`MAX_COFLOWS`]; an upper limit for the fabric.
    pub coflows: usize,
    /// The fraction of the bytes of the slice and of the fabric, and of the times between their coflows.
    pub volume: f64,
    /// The testbed to use; it is created if it does not exist.
    pub bed: BedName,
}

/// The default and maximum number of coflows of the slice.
pub const MAX_COFLOWS: usize = coflows::workload::MAX_COFLOWS;

/// The duration of a phase of NetShare's experiment in the paper, in seconds.
const PAPER_PHASE_SECS: f64 = 30.0;

/// The rate of every link, with headers, in bytes per second. NetShare's experiment has other links.
const LINK_BYTES_PER_SEC: f64 = 12.5e6;

fn link_rate() -> Rate {
    Rate::new(LINK_BYTES_PER_SEC).expect("the constant is a valid rate")
}

/// The topology of `hosts` hosts under one switch.
fn big_switch(hosts: u32, rate: Rate) -> Topology {
    TopologyTemplate::BigSwitch { hosts, rate }.build().expect("the plan is valid")
}

/// The page: measurements of real traffic next to figures of the papers and of the simulator.
///
/// # Errors
/// If the testbed cannot be created, an experiment fails, or a signal stops the work.
pub fn page(options: &Options, progress: &Progress) -> Result<String, Failure> {
    // Signals are recorded and do not end the process, so the testbed is always removed.
    interrupt::record_signals();
    let mut out = head(options);
    for experiment in &options.experiments {
        out.push_str(&format!("## {}\n\n", experiment.heading()));
        out.push_str(&match experiment {
            Experiment::Netshare => netshare::section(&options.bed, options.phase, progress),
            Experiment::Responsiveness => responsiveness::section(&options.bed, progress),
            Experiment::Slice => slice::section(&options.bed, options.coflows, options.volume, progress),
            Experiment::FastLinks => {
                slice::section_with_fast_links(&options.bed, options.coflows, options.volume, progress)
            }
            Experiment::Fabric => fabric::section(&options.bed, options.coflows, options.volume, progress),
            Experiment::Saba => saba::section(&options.bed, progress),
            Experiment::Programs => programs::section(&options.bed, progress),
            Experiment::Overheads => overheads::section(progress),
        }?);
    }
    Ok(markdown::collapse_blank_lines(out))
}

fn head(options: &Options) -> String {
    format!(
        "# Real traffic\n\n\
         {}\n\n\
         The command needs root. It sends traffic between network namespaces of one machine. Veth pairs connect the \
         namespaces, and HTB at the sending end of every link limits the rate ([the testbed](../testbed.md)). TCP uses \
         `{CONGESTION_CONTROL}`. Measured figures depend on the machine and on its other load. The page quotes published \
         figures with their place in the paper. Simulated figures are from the fluid simulator with the same scenario.\n\n\
         {SUMMARY}",
        measured_by(&command(options)),
    )
}

/// The line of a page of measurements that says how it was made.
pub(crate) fn measured_by(command: &str) -> String {
    let commit = commit().map(|commit| format!(" at commit {commit}")).unwrap_or_default();
    format!("Measured by `{command}`{commit} on {}.", machine_description())
}

const SUMMARY: &str = "\
## Summary

- Next to published figures: NetShare's rates (section 5.3) and responsiveness (Table 1), and Saath's overheads (Table 2).
- Next to simulated figures: a slice of coflows, coflows over an oversubscribed fabric, jobs under Saba's weights, and shares of unmodified \
programs.
- Not reproduced: the papers' clusters and workloads. Hosts are namespaces that share the processors of one machine, and links carry 100 \
Mbit/s to 1 Gbit/s.
- [Where live runs differ from the simulator](../live.md#where-it-differs-from-the-simulator) has the causes of the differences.

";

/// The command that writes the page with these options.
fn command(options: &Options) -> String {
    let mut command = "weir reproduce live --out docs/results/live.md".to_owned();
    if options.phase.get() != PAPER_PHASE_SECS {
        command.push_str(&format!(" --phase {}", options.phase));
    }
    if options.coflows != MAX_COFLOWS {
        command.push_str(&format!(" --coflows {}", options.coflows));
    }
    if options.volume != 1.0 {
        command.push_str(&format!(" --volume {}", options.volume));
    }
    if options.experiments != Experiment::ALL {
        let names: Vec<&str> =
            options.experiments.iter().map(|experiment| experiment.name_and_heading().0).collect();
        command.push_str(&format!(" --only {}", names.join(",")));
    }
    command
}

/// The commit that is checked out in the working directory; `None` outside of a repository.
fn commit() -> Option<String> {
    let output = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output().ok()?;
    let commit = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    output.status.success().then_some(commit)
}

/// The kernel and the number of processors.
fn machine_description() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // A distribution's suffix follows the version.
    let version = release.split(['-', '+', '\n']).next().unwrap_or_default();
    let processors = thread::available_parallelism().map_or(1, usize::from);
    format!("Linux {version}, {processors} processors")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_names_command_and_machine_on_the_line_after_the_title() {
        let bed = "bed".parse().unwrap();
        let (experiments, phase) = (Experiment::ALL.to_vec(), Time::new(PAPER_PHASE_SECS).unwrap());
        let mut options = Options { experiments, phase, coflows: MAX_COFLOWS, volume: 1.0, bed };
        let page = head(&options);
        let line = page.lines().nth(2).unwrap();
        assert!(line.starts_with("Measured by `weir reproduce live --out docs/results/live.md`"), "{line}");
        assert!(line.contains(" on Linux ") && line.ends_with(" processors."), "{line}");
        options.phase = Time::new(5.0).unwrap();
        options.coflows = 4;
        options.volume = 0.3;
        options.experiments = vec![Experiment::Slice, Experiment::Saba];
        let page = head(&options);
        assert!(page.contains("live.md --phase 5s --coflows 4 --volume 0.3 --only slice,saba`"), "{page}");
    }
}
