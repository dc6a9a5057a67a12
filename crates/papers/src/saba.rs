//! `weir reproduce saba`: the sensitivity models, the testbed and the simulations of Saba, published and measured.

mod calibration;
mod hall;
mod lab;
mod limits;
mod overhead;
mod port;
mod simulation;
mod studies;
mod testbed;

use std::fmt::Write;

use crate::{Running, doc};
use weir_console::failure::Failure;

use hall::Hall;
use lab::Lab;
use limits::Limits;
use overhead::Overhead;

/// Options of the page.
pub struct Options {
    /// How many cluster setups to draw (section 8.2).
    pub setups: u32,
    /// Different seeds draw different setups.
    pub seed: u64,
    /// Whether the page contains processor times, which no two runs agree on.
    pub timing: bool,
}

/// The default number of setups, the paper's.
pub const SETUPS: u32 = 500;

/// The page: Saba's figures, published and measured.
///
/// # Errors
/// If a simulation has no outcome, or a signal stops the work.
pub fn page(options: &Options, running: &Running<'_>) -> Result<String, Failure> {
    let mut lab = Lab::new(options.setups, options.seed, running.jobs, running.progress);
    let mut hall = Hall::new(options.seed, running.jobs, running.progress);
    let limits = Limits::measure(&mut lab)?;
    let overhead =
        if options.timing { Some(Overhead::measure(options.seed, running.progress)?) } else { None };
    let mut out = head(options);
    out.push_str(&testbed::summary(&mut lab, &limits)?);
    out.push_str(&simulation::summary(&mut hall)?);
    out.push_str(&overhead.as_ref().map_or_else(overhead::no_summary, Overhead::summary));
    out.push('\n');
    out.push_str(&calibration::section(&lab)?);
    out.push_str(&testbed::section(&mut lab, &limits)?);
    out.push_str(&studies::section(&lab)?);
    out.push_str(&simulation::section(&mut hall)?);
    out.push_str(
        &overhead.as_ref().map_or_else(overhead::no_section, |overhead| overhead.section(hall.took())),
    );
    Ok(doc::tidy(out))
}

fn head(options: &Options) -> String {
    let mut command = String::from("weir reproduce saba --out docs/results/saba.md");
    for (given, default, option) in
        [(u64::from(options.setups), u64::from(SETUPS), "--setups"), (options.seed, 1, "--seed")]
    {
        if given != default {
            write!(command, " {option} {given}").expect("memory takes all");
        }
    }
    if !options.timing {
        command.push_str(" --no-timing");
    }
    format!(
        "# Saba, published and measured\n\nMade by `{command}`. The paper is Katebzadeh, Costa and Grot, \"Saba: Rethinking \
         Datacenter Network Allocation from Application's Perspective\", EuroSys '23. Its numbers are quoted with the place where \
         they stand; every other number was computed by that one command.\n\n\
         - Workloads are simulated: stages that compute and then move bytes between all servers of the job, partly \
         overlapped. There are no packets, losses, delays, disks or garbage collections.\n\
         - The baseline is exact per-flow max-min. The paper's is InfiniBand's congestion control, which only approximates that.\n\
         - Speed-ups are per job, its time under the baseline over its time; averages are geometric means, as in section 8.1.\n\n"
    )
}

#[cfg(test)]
mod tests {
    use super::hall::{PAPER, Rival, World};
    use super::*;
    use weir_console::progress::Progress;

    #[test]
    fn the_number_of_threads_changes_nothing() {
        let progress = Progress::new(true);
        let made = |jobs| {
            let mut lab = Lab::new(3, 7, jobs, &progress);
            let fig8 = testbed::fig8(&mut lab).unwrap();
            let searched = lab.best_by_workload(lab::PLAIN, 1).unwrap();
            let mut hall = Hall::new(7, jobs, &progress);
            let narrow = World { between: 0.25, ..PAPER };
            hall.prepare(&[(narrow, Rival::Baseline), (narrow, Rival::Ideal)]).unwrap();
            let ideal = hall.compared((narrow, Rival::Ideal), (narrow, Rival::Baseline)).unwrap();
            (fig8, searched.to_bits(), ideal.workloads, ideal.all)
        };
        assert_eq!(made(1), made(4));
    }
}
