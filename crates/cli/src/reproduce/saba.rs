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

use super::doc;
use crate::args;
use crate::failure::Failure;
use crate::output::Sink;
use crate::progress::Progress;

use hall::Hall;
use lab::Lab;
use limits::Limits;
use overhead::Overhead;

/// Runs `weir reproduce saba`.
///
/// # Errors
/// Whatever ends it early.
pub fn saba(args: &args::SabaReproduction) -> Result<(), Failure> {
    let sink = Sink::new(args.making.out.as_deref())?;
    let progress = Progress::new(args.making.running.quiet);
    let mut lab = Lab::new(args.setups, args.seed, args.making.running.jobs, &progress);
    let mut hall = Hall::new(args.seed, args.making.running.jobs, &progress);
    let limits = Limits::measure(&mut lab)?;
    let overhead = if args.no_timing { None } else { Some(Overhead::measure(args.seed, &progress)?) };
    let mut out = head(args);
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
    sink.fill(doc::tidy(out).as_bytes())
}

fn head(args: &args::SabaReproduction) -> String {
    let mut command = String::from("weir reproduce saba --out docs/results/saba.md");
    for (given, default, option) in [(u64::from(args.setups), 500, "--setups"), (args.seed, 1, "--seed")] {
        if given != default {
            write!(command, " {option} {given}").expect("memory takes all");
        }
    }
    if args.no_timing {
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
