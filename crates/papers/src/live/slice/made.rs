//! The coflows, by the generator.

use weir_core::model::Workload;
use weir_core::units::{Bytes, Time};
use weir_trace::generate::{Arrival, Kind, Law, Skew, Spec, generate};
use weir_trace::{Limits, TraceUnit};

use weir_console::failure::Failure;

/// Hosts that send and receive.
pub const HOSTS: u32 = 16;

/// The most coflows of a slice.
pub const MOST: usize = 48;

/// What the slice is.
pub const ABOUT: &str = "made by Weir's generator (seed 3), with the kinds of coflows that Saath's Table 1 has (narrow and wide, small and large) at \
     sizes that such links carry in a minute or two; flows of a host to itself are left out";

/// Of the generator.
const SEED: u64 = 3;

/// More than are taken, since some may have no flow between two hosts.
const GENERATED: usize = MOST + 8;

/// The first coflows of what the generator makes, less what hosts send to themselves.
///
/// # Errors
/// None, for numbers of coflows up to [`MOST`].
pub fn slice(coflows: usize) -> Result<Workload, Failure> {
    let mut workload = generate(&spec(), TraceUnit::MB, &Limits::default())?;
    for coflow in &mut workload.coflows {
        coflow.flows.retain(|flow| flow.src != flow.dst);
        for flow in &mut coflow.flows {
            // What is written to a socket is whole.
            flow.bytes = Bytes::new(flow.bytes.get().round()).expect("it was one before");
        }
    }
    workload.coflows.retain(|coflow| !coflow.flows.is_empty());
    workload.coflows.truncate(coflows);
    Ok(workload)
}

fn spec() -> Spec {
    let mean = Time::new(1.2).expect("a constant");
    Spec { ports: HOSTS, coflows: GENERATED, seed: SEED, arrival: Arrival::Poisson { mean }, kinds: kinds() }
}

/// Wide is more than 5 senders or receivers here, and large more than 100 MB. The shares are those of `Preset::Small`, rounded.
fn kinds() -> Vec<Kind> {
    let one = Law::Constant(1.0);
    let uniform = |min, max| Law::Uniform { min, max };
    let lognormal = |median, min, max| Law::LogNormal { median, sigma: 0.5, min, max };
    let kind = |share, mappers, reducers, size, skew| Kind { share, mappers, reducers, size, skew };
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
    fn a_slice_is_as_long_as_asked_and_begins_the_same() {
        let whole = slice(MOST).unwrap();
        assert_eq!(whole.coflows.len(), MOST);
        assert_eq!(whole.check(), Ok(()));
        assert!(whole.coflows.iter().flat_map(|coflow| &coflow.flows).all(|flow| flow.src != flow.dst));
        assert_eq!(slice(5).unwrap().coflows, whole.coflows[..5]);
    }
}
