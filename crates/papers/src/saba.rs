//! Writes the page of `weir reproduce saba`: Katebzadeh, Costa and Grot, "Saba: Rethinking Datacenter Network Allocation from
//! Application's Perspective", EuroSys '23.
//!
//! The paper measured ten HiBench workloads on 32 servers with InfiniBand, and twenty synthetic workloads in a packet
//! simulator of 1,944 servers. Both are fluid simulations here: jobs compute and transfer in stages (`weir_sim::jobs`).
//!
//! | Paper | Content | Module |
//! |---|---|---|
//! | Fig. 1a, 2, 5, 6 (2, 4.2) | Slowdowns and sensitivity models of the ten workloads | `workloads` |
//! | Fig. 1b, 8, 9 (2.2, 8.2, 8.3) | Speedups on 32 servers: 500 setups; data, nodes, degrees | `studies`, `testbed`, `setup` |
//! | Fig. 10, 11 (8.4) | Saba, ideal max-min, Homa and Sincronia on 1,944 servers | `rivals`, `simulation`, [`synthetic`] |
//! | Fig. 12 (8.5) | Calculation time of the central controller | `controller`, [`scenario`] |
//!
//! `assumptions` shows the choices that the paper leaves open and that change a result most. In one of them, curves of any shape
//! replace the polynomials ([`curve`]).

mod assumptions;
mod controller;
pub mod curve;
pub mod lockstep;
mod random;
mod rivals;
pub mod scenario;
mod setup;
mod simulation;
mod studies;
pub mod synthetic;
mod testbed;
mod workloads;

use std::num::NonZeroU16;

use crate::saba::lockstep::sharing::{ConnectionLifetime, ControllerKind, SabaParameters, SharingRule};
use weir_console::failure::Failure;
use weir_core::saba::{Fraction, Sensitivity};
use weir_sim::outcome::mean;

use crate::picture::Pictures;
use crate::{Page, RunContext, markdown};
use simulation::Simulation;
use testbed::Testbed;

/// Options of the page.
pub struct Options {
    /// The number of cluster setups to draw (section 8.2).
    pub setups: u32,
    /// The seed by which setups and synthetic workloads are drawn.
    pub seed: u64,
    /// Whether the page contains processor times, which differ between runs.
    pub timing: bool,
}

/// The default number of setups, as in the paper.
pub const DEFAULT_SETUPS: u32 = 500;

/// The number of priority levels of InfiniBand (section 7.2).
const LEVELS: u16 = 16;

/// The number of queues per port in the testbed and in most simulations (section 8.1).
const QUEUES: u16 = 8;

/// The page: Saba's figures, published and measured.
///
/// # Errors
/// If a simulation fails, or a signal stops the work.
pub fn page(options: &Options, run_context: &RunContext<'_>) -> Result<Page, Failure> {
    let mut pictures = Pictures::new("saba");
    let testbed = Testbed::new(options.setups, options.seed, run_context);
    let simulation = Simulation::new(options.seed, run_context);
    let main = studies::main_results(&testbed)?;
    let rivals = rivals::measure(&simulation)?;
    let mut out = head(options);
    out.push_str(&summary(&main, &rivals));
    out.push_str(CONDITIONS);
    out.push_str(&workloads::section(testbed.workloads(), &mut pictures)?);
    out.push_str(&studies::section(&testbed, &main, &mut pictures)?);
    out.push_str(&rivals::section(&simulation, &rivals, &mut pictures));
    out.push_str(&assumptions::section(&testbed, &simulation)?);
    if options.timing {
        out.push_str(&controller::section(options.seed, run_context.progress)?);
    }
    Ok(pictures.finish(markdown::collapse_blank_lines(out)))
}

fn head(options: &Options) -> String {
    let mut command = String::from("weir reproduce saba --out docs/results/saba.md");
    for (value, default, option) in
        [(u64::from(options.setups), u64::from(DEFAULT_SETUPS), "--setups"), (options.seed, 1, "--seed")]
    {
        if value != default {
            command.push_str(&format!(" {option} {value}"));
        }
    }
    if !options.timing {
        command.push_str(" --no-timing");
    }
    format!(
        "# Saba, published and measured\n\n\
         Made by `{command}`. The paper is Katebzadeh, Costa and Grot, \"Saba: Rethinking Datacenter Network Allocation from \
         Application's Perspective\", EuroSys '23. The page quotes every published figure with its place; the command \
         computes every other figure.\n\n"
    )
}

const CONDITIONS: &str = "\
## Conditions

- Workloads are simulated as stages. A stage computes and then transfers bytes between all servers of the job; both can overlap. The \
simulator is fluid: it has no packets, losses, delays, disks or garbage collections.
- The baseline is exact per-flow max-min. The baseline of the paper is InfiniBand's congestion control, which approximates max-min.
- Ideal max-min is max-min between applications: a queue per application, all with the same weight (section 8.4).
- A speedup is a job's time under the baseline divided by its time under the policy. Averages are geometric means (section 8.1).

";

fn summary(main: &studies::MainResults, rivals: &rivals::RivalSpeedups) -> String {
    let [paper, .., quarter, _] = &rivals.conditions;
    format!(
        "## Summary\n\n\
         - Reproduced by simulation: the sensitivity models (Fig. 1, 2, 5, 6), the testbed (Fig. 8), other data, nodes and \
         degrees (Fig. 9), the simulations of 1,944 servers (Fig. 10, 11), and the controller's calculation time (Fig. 12).\n\
         - Section 8.2, 32 servers: the average speedup of Saba is {}; the paper has {}.\n\
         - Section 8.4, 1,944 servers: the average speedup of Saba is {}; the paper has {}. Each server runs one job, and \
         links between switches are not oversubscribed. Jobs take {} times as long under the baseline as with all bandwidth, \
         so no policy can gain more than that. With links between switches at a quarter of their rate, the factor is {} and \
         Saba's speedup is {}.\n\
         - The paper publishes slowdowns below 25 % of the bandwidth for LR and SQL only. Eq. 2 assigns such shares, and the \
         cubic models predict far too small slowdowns there. Simulated slowdowns in place of these models, or a limit on the \
         wait for bytes, raise the speedup (\"Assumptions\").\n\
         - The paper's baseline is slower than max-min: ideal max-min is 1.14 times as fast in section 8.4. The baseline \
         here wastes no bandwidth.\n\
         - Not reproduced: the real workloads on InfiniBand. [Real traffic](live.md) has profiles of real commands and their \
         speedups.\n\n",
        markdown::format_cell(main.saba.mean),
        markdown::format_cell(studies::PUBLISHED_MEAN_SPEEDUP),
        markdown::format_cell(paper.policies[0].mean),
        markdown::format_cell(rivals::PUBLISHED_SABA_SPEEDUP),
        markdown::format_cell(paper.slowdown),
        markdown::format_cell(quarter.slowdown),
        markdown::format_cell(quarter.policies[0].mean),
    )
}

/// Saba's queues and weights for `jobs` jobs: `queues` queues at each port, or a queue and a priority level per job. `floor` is the
/// minimum weight as a fraction of an equal share.
fn saba_sharing(
    models: Vec<Sensitivity>,
    queues: Option<u16>,
    jobs: usize,
    floor: Fraction,
    controllers: ControllerKind,
) -> SharingRule {
    let one_per_job = jobs as u16;
    SharingRule::Saba(SabaParameters {
        models,
        queues_per_port: queues.unwrap_or(one_per_job),
        priority_levels: NonZeroU16::new(queues.map_or(one_per_job, |_| LEVELS))
            .expect("a run has at least one job"),
        c_saba: Fraction::ALL,
        min_share: floor,
        connection_lifetime: ConnectionLifetime::Transfer,
        controller_kind: controllers,
    })
}

/// The geometric mean of numbers, from their logarithms; 1 without numbers.
fn geometric_mean(logarithms: &[f64]) -> f64 {
    if logarithms.is_empty() { 1.0 } else { mean(logarithms).exp() }
}

#[cfg(test)]
mod tests {
    use weir_console::progress::Progress;

    use super::*;

    #[test]
    fn saba_page_does_not_depend_on_the_number_of_threads() {
        let progress = Progress::new(true);
        let measured = |jobs| {
            let run_context = RunContext { jobs, progress: &progress };
            let testbed = Testbed::new(3, 7, &run_context);
            let fig8 = studies::main_results(&testbed).unwrap();
            let simulation = Simulation::new(7, &run_context);
            let policies = [simulation::Policy::IdealMaxMin, simulation::SABA];
            let comparison = simulation
                .compare(simulation::QUARTER_TRUNKS, simulation::QUARTER_TRUNKS, &policies)
                .unwrap();
            let ideal = comparison.policies[0].workloads.clone();
            (fig8.saba.setups, fig8.saba.workloads, comparison.slowdown.to_bits(), ideal)
        };
        assert_eq!(measured(1), measured(4));
    }
}
