//! The coflows to send: of a trace, or generated.

use weir_core::model::{WideArea, Workload};
use weir_core::units::{Bytes, Time};
use weir_lab::LabError;
use weir_sim::regions::{coflows_between_regions, link_loads};
use weir_trace::generate::{
    ArrivalProcess, CoflowKind, Distribution, Resolution, Skew, WorkloadSpec, generate,
};
use weir_trace::{Limits, TraceOptions, TraceUnit};

use super::Args;

/// The ports of generated coflows, which are spread evenly over the regions.
const PORTS: u32 = 30;

/// The first coflows between regions, with one flow for each link, scaled to the requested span and load. Sizes are whole bytes.
pub(super) fn read(args: &Args, area: &WideArea) -> Result<Workload, LabError> {
    let workload = match &args.trace {
        Some(path) => weir_trace::read(path, &TraceOptions::default()).map_err(other)?.workload,
        None => generated(args)?,
    };
    let mut workload = coflows_between_regions(&workload, area);
    workload.coflows.truncate(args.coflows.into());
    let arrivals = || workload.coflows.iter().map(|coflow| coflow.arrival.get());
    let (first, last) = (arrivals().fold(f64::INFINITY, f64::min), arrivals().fold(0.0, f64::max));
    if last <= first {
        return Err(other("trace: expected coflows between regions that arrive at different times"));
    }
    for coflow in &mut workload.coflows {
        let arrival = (coflow.arrival.get() - first) / (last - first) * args.span.get();
        coflow.arrival = Time::new(arrival).expect("a time within the span is valid");
    }
    let busiest = link_loads(&workload, area).into_iter().fold(0.0, f64::max);
    workload.scale_sizes(args.load / busiest);
    for flow in workload.coflows.iter_mut().flat_map(|coflow| &mut coflow.flows) {
        flow.bytes = Bytes::new(flow.bytes.get().ceil()).expect("a rounded size is valid");
    }
    Ok(workload)
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
        arrival: ArrivalProcess::Poisson { mean: Time::new(3.0).expect("the constant is valid") },
        arrival_resolution: Resolution::PublicTrace,
        size_resolution: Resolution::PublicTrace,
        kinds: vec![kind],
        ..WorkloadSpec::default()
    };
    generate(&spec, TraceUnit::MB, &Limits::default()).map_err(other)
}

fn other(error: impl ToString) -> LabError {
    LabError::Other(error.to_string())
}
