//! `weir-lab coflows`: Siphon's comparison of orders of coflows (ATC '18, section 5.3), simulated and with real traffic.

mod comparison;
mod workload;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueHint;
use weir_console::interrupt::InterruptObserver;
use weir_core::model::wide_area::LinkMeasurement;
use weir_core::model::{CoflowSpec, FlowSpec, WideArea, Workload};
use weir_core::policy::build;
use weir_core::units::{Rate, Time};
use weir_lab::LabError;
use weir_lab::coflows::{MeasuredCoflow, PlannedCoflow, PlannedFlow, replay};
use weir_lab::overlay::Overlay;
use weir_lab::regions::{Distance, Regions, RegionsSettings};
use weir_sim::{RegionLinks, ReplayOptions};

use super::regions::{DistanceMap, duration, parse_scale};
use comparison::{Comparison, CpuShares, PolicyResult};

/// The payload of a TCP segment, and the length of its IP packet. The rates of lines include headers, those of the simulator do not.
pub(super) const SEGMENT_BYTES: (f64, f64) = (1448.0, 1500.0);

/// The time of the first arrival in the series of bandwidths. The overlay starts before it.
const FIRST_ARRIVAL: Duration = Duration::from_secs(15);

/// Arguments of `weir-lab coflows`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  weir-lab coflows
  weir-lab coflows --policies mrtf,siphon,siphon:detours=on --seed 2 --per-coflow ccts.csv")]
pub struct Args {
    /// The policies of the overlay: docs/wide-area-format.md. The first one is the baseline of ratios
    #[arg(long, value_name = "POLICY", value_delimiter = ',', default_value = "mrtf,siphon")]
    policies: Vec<String>,

    /// The regions and the bandwidth between them: docs/wide-area-format.md
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, default_value = "examples/wide-area/private-cloud.toml")]
    wide_area: PathBuf,

    /// Delay and loss between regions, in CSV with the columns from, to, delay and loss
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, default_value = "examples/wide-area/private-cloud-delays.csv")]
    distances: PathBuf,

    /// Multiplies all bandwidths, so that the processors are not the bottleneck
    #[arg(long, value_name = "FACTOR", default_value_t = 0.2, value_parser = parse_scale)]
    scale: f64,

    /// The maximum time that a packet waits for a link
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    queue: Time,

    /// A trace, of which the first coflows between regions are sent; by default, coflows are generated
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    trace: Option<PathBuf>,

    /// The number of coflows
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u16).range(2..=1000))]
    coflows: u16,

    /// The time from the first to the last arrival; arrivals are scaled to it
    #[arg(long, value_name = "TIME", default_value = "180s")]
    span: Time,

    /// The load of the busiest link until the last arrival; sizes are scaled to it
    #[arg(long, value_name = "LOAD", default_value_t = 0.7, value_parser = parse_load)]
    load: f64,

    /// Determines the generated coflows, and the changes of bandwidth
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// The `weir` command that runs the coordinator and the relays; by default the one next to this program
    #[arg(long, value_name = "PATH")]
    weir: Option<PathBuf>,

    /// Write the completion times of each coflow to this file, in CSV
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    per_coflow: Option<PathBuf>,
}

fn parse_load(text: &str) -> Result<f64, &'static str> {
    let load = text.parse().ok().filter(|load| (0.01..=10.0).contains(load));
    load.ok_or("expected a load of 0.01 to 10")
}

/// Measures each policy, and prints the comparison with the simulation.
pub fn run(args: &Args) -> Result<(), LabError> {
    super::raise_open_files();
    raise_priority();
    let area =
        weir_trace::wide_area::read(&args.wide_area).map_err(|error| LabError::Other(error.to_string()))?;
    let lines = scale_area(&area, args.scale);
    let (payload, packet) = SEGMENT_BYTES;
    let simulated_area = scale_area(&lines, payload / packet);
    let workload = workload::read(args, &simulated_area)?;
    // The first arrival is at 0.
    let mut later = workload.clone();
    for coflow in &mut later.coflows {
        let arrival = coflow.arrival.get() + FIRST_ARRIVAL.as_secs_f64();
        coflow.arrival = Time::new(arrival).expect("a later time of valid times is valid");
    }
    let mut results = Vec::new();
    for policy in &args.policies {
        let simulated = simulate(&later, &simulated_area, policy, args.seed)?;
        let (measured, cpu) = measure(args, &lines, &simulated_area, &later, policy)?;
        results.push(PolicyResult { policy: policy.clone(), simulated, measured, cpu });
        // A later policy may fail, or take too long.
        let comparison = Comparison { args, area: &simulated_area, workload: &workload, results: &results };
        if let Some(path) = &args.per_coflow {
            comparison.write_csv(path)?;
        }
        eprintln!("{}", comparison.times());
    }
    let comparison = Comparison { args, area: &simulated_area, workload: &workload, results: &results };
    print!("{}", comparison.section());
    Ok(())
}

/// Lets this program and those that it starts run before others on this machine.
pub(super) fn raise_priority() {
    const NICENESS: i32 = -15;
    // With the default priority, the measurement includes the load of other programs.
    let _ = rustix::process::setpriority_process(None, NICENESS);
}

/// The area with all bandwidths multiplied by a factor.
fn scale_area(area: &WideArea, factor: f64) -> WideArea {
    let scale =
        |rate: &Rate| Rate::new(rate.get() * factor).expect("a scaled rate is finite and not negative");
    let links = (0..area.links() as u32).map(|link| {
        let (from, to) = area.link_ends(link);
        LinkMeasurement { from, to, samples: area.samples(link).iter().map(scale).collect() }
    });
    WideArea::new(area.regions().to_vec(), links.collect(), area.change_interval(), area.correlation())
        .expect("scaled bandwidths of a valid wide area are within the bounds")
}

/// The simulated CCT of each coflow in seconds.
fn simulate(workload: &Workload, area: &WideArea, policy: &str, seed: u64) -> Result<Vec<f64>, LabError> {
    let area = Arc::new(area.clone());
    let options = ReplayOptions::between_regions(RegionLinks { area, bandwidth_seed: seed });
    let built = build(policy).map_err(|error| LabError::Other(format!("--policies: {error}")))?;
    let outcome = weir_sim::replay(workload, built, &options, &mut InterruptObserver);
    Ok(outcome.map_err(|error| LabError::Other(error.to_string()))?.ccts())
}

/// Measures the coflows with real traffic under a policy.
fn measure(
    args: &Args,
    lines: &WideArea,
    first_estimate: &WideArea,
    workload: &Workload,
    policy: &str,
) -> Result<(Vec<MeasuredCoflow>, CpuShares), LabError> {
    let distances = DistanceMap::read(&args.distances, lines)?;
    let distance =
        |from, to| distances.get(from, to).unwrap_or(Distance { delay: Duration::ZERO, loss: 0.0 });
    let settings = RegionsSettings {
        wide_area: lines,
        scale: 1.0,
        seed: args.seed,
        queue: duration(args.queue),
        workers: 1,
    };
    let regions = Regions::create("coflows", &settings, distance)?;
    let overlay = Overlay::start(&regions, first_estimate, policy, &super::weir_path(args.weir.as_deref())?)?;
    if regions.bandwidth_start().elapsed() > FIRST_ARRIVAL {
        return Err(LabError::Other(format!("the overlay has not started within {FIRST_ARRIVAL:?}")));
    }
    let (started, before) = (Instant::now(), CpuShares::read(&overlay));
    let total = workload.coflows.len();
    let progress = |completed| {
        eprintln!("{policy}: {completed} of {total} coflows, {:.0} s", started.elapsed().as_secs_f64())
    };
    let measured = replay(&regions, &overlay, &plan(workload, lines), progress)?;
    let cpu = CpuShares::read(&overlay).since(before, started.elapsed());
    drop(overlay);
    regions.stop()?;
    Ok((measured, cpu))
}

fn plan(workload: &Workload, area: &WideArea) -> Vec<PlannedCoflow> {
    let region = |port| area.region_of_port(port, workload.ports);
    let flow = |flow: &FlowSpec| PlannedFlow {
        from: region(flow.src),
        to: region(flow.dst),
        bytes: flow.bytes.get() as u64,
        registered_bytes: flow.bytes.get() as u64,
        group: None,
    };
    let coflow = |coflow: &CoflowSpec| PlannedCoflow {
        arrival: Duration::from_secs_f64(coflow.arrival.get()),
        flows: coflow.flows.iter().map(flow).collect(),
    };
    workload.coflows.iter().map(coflow).collect()
}
