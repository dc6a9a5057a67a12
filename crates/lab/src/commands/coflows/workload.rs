//! The coflows to send: of a trace, or generated.

use weir_core::model::{WideArea, Workload};
use weir_lab::LabError;
use weir_sim::wide_area::{CoflowDemand, coflow_demands, link_loads};
use weir_trace::generate::{ArrivalProcess, CoflowKind, Distribution, Skew, WorkloadSpec, generate};
use weir_trace::{Limits, TraceUnit};

use super::Args;

/// The ports of generated coflows, which are spread evenly over the regions.
const PORTS: u32 = 30;

/// The first coflows between regions, with one flow for each link, scaled to the requested span and load. Sizes are whole bytes.
pub(super) fn demands(args: &Args, area: &WideArea) -> Result<Vec<CoflowDemand>, LabError> {
    let workload = match &args.trace {
        Some(path) => weir_trace::read(path, TraceUnit::MB, &Limits::default()).map_err(other)?.workload,
        None => generated(args)?,
    };
    let all = coflow_demands(&workload, area).map_err(other)?;
    let is_between_regions =
        |demand: &CoflowDemand| demand.groups.iter().any(|group| !group.flows.is_empty());
    let mut demands: Vec<CoflowDemand> =
        all.into_iter().filter(is_between_regions).take(args.coflows.into()).collect();
    let arrivals = || demands.iter().map(|demand| demand.arrival);
    let (first, last) = (arrivals().fold(f64::INFINITY, f64::min), arrivals().fold(0.0, f64::max));
    if last <= first {
        return Err(other("trace: expected coflows between regions that arrive at different times"));
    }
    for demand in &mut demands {
        demand.arrival = (demand.arrival - first) / (last - first) * args.span.get();
    }
    let busiest = link_loads(&demands, area).into_iter().fold(0.0, f64::max);
    for demand in &mut demands {
        demand.scale_bytes(args.load / busiest);
        for group in &mut demand.groups {
            group.flows.iter_mut().for_each(|(_, bytes)| *bytes = bytes.ceil());
            group.bytes = group.flows.iter().map(|(_, bytes)| bytes).sum();
        }
    }
    Ok(demands)
}

/// Coflows with one to six senders and receivers and a heavy tail of sizes, which arrive at random.
fn generated(args: &Args) -> Result<Workload, LabError> {
    let width = Distribution::Uniform { min: 1.0, max: 6.0 };
    let size = Distribution::LogNormal { median: 20.0, sigma: 1.2, min: 4.0, max: 400.0 };
    let kind =
        CoflowKind { share: 1.0, mappers: width, reducers: width, mean_megabytes: size, skew: Skew::None };
    let spec = WorkloadSpec {
        ports: PORTS,
        // Some have no bytes between regions.
        coflows: 2 * usize::from(args.coflows),
        seed: args.seed,
        arrival: ArrivalProcess::Poisson {
            mean: weir_core::units::Time::new(3.0).expect("the constant is valid"),
        },
        kinds: vec![kind],
    };
    generate(&spec, TraceUnit::MB, &Limits::default()).map_err(other)
}

fn other(error: impl ToString) -> LabError {
    LabError::Other(error.to_string())
}
