//! Compares simulated and measured completion times.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::time::ClockId;
use weir_console::table::{format_bytes, format_rate};
use weir_core::model::{WideArea, Workload};
use weir_lab::LabError;
use weir_lab::coflows::MeasuredCoflow;
use weir_lab::overlay::Overlay;
use weir_sim::outcome::{mean, percentile};
use weir_sim::regions::link_loads;

use super::{Args, SEGMENT_BYTES};

/// Processor time, or the share of all processors.
#[derive(Debug, Clone, Copy)]
pub(super) struct CpuShares {
    /// The coordinator and the relays.
    overlay: f64,
    /// This program: senders, receivers and lines.
    lab: f64,
    /// All programs and the kernel.
    machine: f64,
}

impl CpuShares {
    /// The processor time so far, in seconds.
    pub(super) fn read(overlay: &Overlay) -> CpuShares {
        let lab = ClockId::CLOCK_PROCESS_CPUTIME_ID.now().map_or(Duration::ZERO, Duration::from);
        CpuShares {
            overlay: overlay.cpu_time().as_secs_f64(),
            lab: lab.as_secs_f64(),
            machine: machine_seconds().unwrap_or(0.0),
        }
    }

    /// The shares of all processors since an earlier time.
    pub(super) fn since(self, before: CpuShares, elapsed: Duration) -> CpuShares {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let total = elapsed.as_secs_f64() * processors as f64;
        CpuShares {
            overlay: (self.overlay - before.overlay) / total,
            lab: (self.lab - before.lab) / total,
            machine: (self.machine - before.machine) / total,
        }
    }
}

/// The busy time of all processors in seconds, of `/proc/stat`.
fn machine_seconds() -> Option<f64> {
    const TICKS_PER_SECOND: f64 = 100.0;
    let text = fs::read_to_string("/proc/stat").ok()?;
    let ticks: Vec<f64> =
        text.lines().next()?.split_whitespace().skip(1).map_while(|word| word.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; the others are part of the first ones.
    let is_busy = |(index, _): &(usize, &f64)| !matches!(index, 3 | 4);
    Some(
        ticks.iter().take(8).enumerate().filter(is_busy).map(|(_, ticks)| ticks).sum::<f64>()
            / TICKS_PER_SECOND,
    )
}

/// The completion times under a policy, by coflow.
#[derive(Debug)]
pub(super) struct PolicyResult {
    pub(super) policy: String,
    /// In seconds.
    pub(super) simulated: Vec<f64>,
    pub(super) measured: Vec<MeasuredCoflow>,
    pub(super) cpu: CpuShares,
}

impl PolicyResult {
    fn measured_seconds(&self) -> Vec<f64> {
        self.measured.iter().map(|coflow| coflow.seconds).collect()
    }

    /// The relative errors of the simulation, by coflow.
    fn errors(&self) -> Vec<f64> {
        let pairs = self.simulated.iter().zip(&self.measured);
        pairs.map(|(simulated, measured)| (simulated / measured.seconds - 1.0).abs()).collect()
    }
}

/// All results with their conditions.
#[derive(Debug)]
pub(super) struct Comparison<'a> {
    pub(super) args: &'a Args,
    /// The simulated area.
    pub(super) area: &'a WideArea,
    pub(super) workload: &'a Workload,
    pub(super) results: &'a [PolicyResult],
}

impl Comparison<'_> {
    /// The section in Markdown.
    pub(super) fn section(&self) -> String {
        format!(
            "## Orders of coflows (section 5.3)\n\n{}\n{}\n{}\n{}",
            self.conditions(),
            self.times(),
            self.ratios(),
            self.cpu()
        )
    }

    fn conditions(&self) -> String {
        let Args { scale, queue, span, seed, .. } = self.args;
        let sizes: Vec<f64> = self.workload.coflows.iter().map(|coflow| coflow.total_bytes()).collect();
        let size = |percentage| format_bytes(percentile(&sizes, percentage));
        let loads: Vec<String> =
            link_loads(self.workload, self.area).iter().map(|load| format!("{load:.2}")).collect();
        let means: Vec<String> =
            (0..self.area.links() as u32).map(|link| format_rate(self.area.mean_bandwidth(link))).collect();
        let source = self.args.trace.as_ref().map_or("generated".to_owned(), |path| {
            format!("the first of `{}`", path.file_name().unwrap_or_default().to_string_lossy())
        });
        format!(
            "- *Regions*: `{}`, bandwidth times {scale}, delays of `{}`, queues of {queue}, seed {seed}. The mean bandwidths of the \
             links are {}.\n\
             - *Coflows*: {}, {source}, one flow for each link, arrivals over {span}. Sizes are scaled to a load of {} on the \
             busiest link; the loads are {}. P10, P50, P90 and maximum of the sizes: {}, {}, {}, {}.\n\
             - *Measured*: from the arrival until the receivers have read all data, with a coordinator, a relay in each region and \
             the client library.\n\
             - *Simulated*: the same coflows, bandwidths and policy. Lines count IP packets, so the simulated bandwidth is {} of \
             theirs. The simulator has no delay.\n",
            self.args.wide_area.display(),
            self.args.distances.display(),
            means.join(", "),
            self.workload.coflows.len(),
            self.args.load,
            loads.join(", "),
            size(10.0),
            size(50.0),
            size(90.0),
            size(100.0),
            format_args!("{:.0}/{:.0}", SEGMENT_BYTES.0, SEGMENT_BYTES.1),
        )
    }

    /// The table of completion times.
    pub(super) fn times(&self) -> String {
        let mut out = String::from(
            "| policy | mean CCT simulated (s) | measured (s) | error | P90 simulated (s) | measured (s) | error | error of a coflow, P50 | P90 |\n\
             |---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        );
        for result in self.results {
            let (simulated, measured) = (&result.simulated, result.measured_seconds());
            let _ = write!(out, "| `{}` |", result.policy);
            for statistic in [mean as fn(&[f64]) -> f64, p90] {
                let (simulated, measured) = (statistic(simulated), statistic(&measured));
                let error = simulated / measured - 1.0;
                let _ = write!(out, " {simulated:.2} | {measured:.2} | {:+.1} % |", 100.0 * error);
            }
            let errors = result.errors();
            let _ = writeln!(
                out,
                " {:.1} % | {:.1} % |",
                100.0 * percentile(&errors, 50.0),
                100.0 * p90(&errors)
            );
        }
        out
    }

    fn ratios(&self) -> String {
        let [baseline, others @ ..] = self.results else { return String::new() };
        let mut out = format!(
            "| policy over `{}` | mean simulated | measured | P90 simulated | measured |\n|---|---:|---:|---:|---:|\n",
            baseline.policy
        );
        for result in others {
            let _ = write!(out, "| `{}` |", result.policy);
            for statistic in [mean as fn(&[f64]) -> f64, p90] {
                let simulated = statistic(&result.simulated) / statistic(&baseline.simulated);
                let measured =
                    statistic(&result.measured_seconds()) / statistic(&baseline.measured_seconds());
                let _ = write!(out, " {simulated:.3} | {measured:.3} |");
            }
            out.push('\n');
        }
        out
    }

    fn cpu(&self) -> String {
        let mut out = String::from(
            "| policy | relays and coordinator | senders, receivers and lines | all programs | coordinator's mean CCT (s) | coflows without one |\n\
             |---|---:|---:|---:|---:|---:|\n",
        );
        for result in self.results {
            let CpuShares { overlay, lab, machine } = result.cpu;
            let noticed: Vec<f64> =
                result.measured.iter().filter_map(|coflow| coflow.coordinator_seconds).collect();
            let _ = writeln!(
                out,
                "| `{}` | {:.1} % | {:.1} % | {:.1} % | {:.2} | {} |",
                result.policy,
                100.0 * overlay,
                100.0 * lab,
                100.0 * machine,
                mean(&noticed),
                result.measured.len() - noticed.len()
            );
        }
        format!("Shares of all processors, and the completion times that the coordinator measured:\n\n{out}")
    }

    /// Writes a line for each policy and coflow.
    pub(super) fn write_csv(&self, path: &Path) -> Result<(), LabError> {
        let failure = |error: csv::Error| LabError::Other(format!("{}: {error}", path.display()));
        let mut writer = csv::Writer::from_path(path).map_err(failure)?;
        let header =
            ["policy", "coflow", "arrival", "bytes", "simulated", "measured", "coordinator", "registration"];
        writer.write_record(header).map_err(failure)?;
        for result in self.results {
            let coflows =
                self.workload.coflows.iter().zip(&result.simulated).zip(&result.measured).enumerate();
            for (index, ((coflow, simulated), measured)) in coflows {
                let numbers = [
                    coflow.arrival.get(),
                    coflow.total_bytes(),
                    *simulated,
                    measured.seconds,
                    measured.coordinator_seconds.unwrap_or(f64::NAN),
                    measured.registration_seconds,
                ];
                let numbers = numbers.map(|number| format!("{number:.3}"));
                let names = [result.policy.clone(), index.to_string()];
                writer.write_record(names.into_iter().chain(numbers)).map_err(failure)?;
            }
        }
        writer.flush().map_err(LabError::system(path.display().to_string()))
    }
}

fn p90(values: &[f64]) -> f64 {
    percentile(values, 90.0)
}
