//! Generates the coflows of the experiments `slice` and `fabric`.

use weir_console::failure::Failure;
use weir_core::model::Workload;
use weir_core::units::{Bytes, Time};
use weir_trace::generate::{
    ArrivalProcess, CoflowKind, Distribution, Resolution, Skew, WorkloadSpec, generate,
};
use weir_trace::{Limits, TraceUnit};

/// The number of hosts that send and receive.
pub const HOSTS: u32 = 16;

/// The maximum number of coflows.
pub const MAX_COFLOWS: usize = 48;

/// The origin of the coflows, which the page prints after "They are".
pub const DESCRIPTION: &str = "the first coflows of Weir's generator with the kinds of Saath's Table 1 (narrow and wide, \
                               small and large). Flows from a host to itself are removed. These links carry the remaining \
                               bytes in one to two minutes";

/// The number of generated coflows. A few of them have no flow between two hosts and are removed.
const GENERATED_COFLOWS: usize = MAX_COFLOWS + 8;

/// The first `coflows` coflows that the generator makes, without the flows from a host to itself. Their sizes and the times between them
/// are multiplied by `volume`, so that the same coflows overlap.
pub fn generate_slice(coflows: usize, volume: f64) -> Result<Workload, Failure> {
    let mut workload = generate(&spec(), TraceUnit::MB, &Limits::default())?;
    for coflow in &mut workload.coflows {
        coflow.arrival = Time::new(coflow.arrival.get() * volume).expect("a time times a fraction is a time");
        coflow.flows.retain(|flow| flow.src != flow.dst);
        for flow in &mut coflow.flows {
            // Sockets carry whole bytes.
            flow.bytes = Bytes::new((flow.bytes.get() * volume).round())
                .expect("a size rounded to an integer is a size");
        }
    }
    workload.coflows.retain(|coflow| !coflow.flows.is_empty());
    workload.coflows.truncate(coflows);
    Ok(workload)
}

/// The sentence of the page about a volume below 1.
pub fn volume_text(volume: f64) -> String {
    if volume == 1.0 {
        return String::new();
    }
    format!(" Their sizes and the times between them are multiplied by {volume}.")
}

fn spec() -> WorkloadSpec {
    let mean = Time::new(1.2).expect("the constant is a valid time");
    WorkloadSpec {
        ports: HOSTS,
        coflows: GENERATED_COFLOWS,
        seed: 3,
        arrival: ArrivalProcess::Poisson { mean },
        arrival_resolution: Resolution::PublicTrace,
        size_resolution: Resolution::PublicTrace,
        kinds: kinds(),
    }
}

/// The kinds of coflows. A coflow is wide with more than 5 senders or receivers, and large with more than 100 MB. The shares are those
/// of `Preset::Small`, rounded.
fn kinds() -> Vec<CoflowKind> {
    let one = Distribution::Constant(1.0);
    let uniform = |min, max| Distribution::Uniform { min, max };
    let lognormal = |median, min, max| Distribution::LogNormal { median, sigma: 0.5, min, max };
    let kind = |share, mappers, reducers, size, skew| CoflowKind {
        share,
        mappers,
        reducers,
        mean_megabytes: size,
        skew,
    };
    vec![
        // Narrow and small.
        kind(0.23, one, one, lognormal(20.0, 10.0, 60.0), Skew::None),
        kind(0.24, uniform(1.5, 4.5), one, lognormal(25.0, 10.0, 60.0), Skew::None),
        // Wide and small.
        kind(0.15, uniform(6.0, 12.0), one, lognormal(30.0, 12.0, 90.0), Skew::None),
        kind(0.07, one, uniform(6.0, 12.0), uniform(3.0, 8.0), Skew::Spread(0.5)),
        // Narrow and large.
        kind(0.08, uniform(0.5, 3.5), one, lognormal(150.0, 101.0, 250.0), Skew::None),
        // Wide and large.
        kind(0.23, uniform(2.5, 4.5), uniform(6.0, 10.0), lognormal(50.0, 20.0, 120.0), Skew::Spread(0.5)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shorter_slice_is_a_prefix_of_the_whole() {
        let longest = generate_slice(MAX_COFLOWS, 1.0).unwrap();
        assert_eq!(longest.coflows.len(), MAX_COFLOWS);
        assert_eq!(longest.check(), Ok(()));
        assert!(longest.coflows.iter().flat_map(|coflow| &coflow.flows).all(|flow| flow.src != flow.dst));
        assert_eq!(generate_slice(5, 1.0).unwrap().coflows, longest.coflows[..5]);
        let half = generate_slice(5, 0.5).unwrap();
        for (half, whole) in half.coflows.iter().zip(&longest.coflows) {
            assert_eq!(half.arrival.get(), 0.5 * whole.arrival.get());
            assert!((half.total_bytes() - 0.5 * whole.total_bytes()).abs() <= half.flows.len() as f64);
        }
    }
}
