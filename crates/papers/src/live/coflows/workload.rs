//! Generates the coflows of the experiments `slice` and `fabric`.

use weir_console::failure::Failure;
use weir_core::model::Workload;
use weir_core::units::{Bytes, Rate, Time};
use weir_trace::generate::{
    ArrivalProcess, CoflowKind, Distribution, Resolution, Skew, WorkloadSpec, generate,
};
use weir_trace::{Limits, TraceUnit};

/// The hosts and links of an experiment. Sizes of coflows are proportional to the rate of links.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    /// The number of hosts that send and receive.
    pub hosts: u32,
    /// The rate of hosts' links, in multiples of [`super::super::link_rate`].
    pub rate_factor: f64,
    /// The mean time between coflows, in seconds.
    pub mean_arrival_secs: f64,
}

impl Scale {
    /// The slice.
    pub const SLICE: Scale = Scale { hosts: 16, rate_factor: 1.0, mean_arrival_secs: 1.2 };

    /// Faster links.
    pub const FAST: Scale = Scale { hosts: 8, rate_factor: 10.0, mean_arrival_secs: 2.4 };

    /// More hosts.
    pub const WIDE: Scale = Scale { hosts: 40, rate_factor: 1.0, mean_arrival_secs: 0.6 };

    /// The rate of hosts' links.
    pub fn link_rate(&self) -> Rate {
        Rate::new(self.rate_factor * super::super::link_rate().get())
            .expect("a rate times a factor is a rate")
    }
}

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
pub fn generate_slice(scale: Scale, coflows: usize, volume: f64) -> Result<Workload, Failure> {
    let mut workload = generate(&spec(scale), TraceUnit::MB, &Limits::default())?;
    for coflow in &mut workload.coflows {
        coflow.arrival = Time::new(coflow.arrival.get() * volume).expect("a time times a fraction is a time");
        coflow.flows.retain(|flow| flow.src != flow.dst);
        for flow in &mut coflow.flows {
            // Sockets carry whole bytes.
            flow.bytes = Bytes::new((flow.bytes.get() * volume * scale.rate_factor).round())
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

fn spec(scale: Scale) -> WorkloadSpec {
    let mean = Time::new(scale.mean_arrival_secs).expect("the constant is a valid time");
    WorkloadSpec {
        ports: scale.hosts,
        coflows: GENERATED_COFLOWS,
        seed: 3,
        arrival: ArrivalProcess::Poisson { mean },
        arrival_resolution: Resolution::PublicTrace,
        size_resolution: Resolution::PublicTrace,
        kinds: kinds(),
        ..WorkloadSpec::default()
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
    fn sizes_follow_the_rate_of_links() {
        let fast = Scale { rate_factor: 10.0, ..Scale::SLICE };
        let [fast, slice] = [fast, Scale::SLICE].map(|scale| generate_slice(scale, 5, 1.0).unwrap());
        for (fast, slow) in fast.coflows.iter().zip(&slice.coflows) {
            assert_eq!(fast.arrival, slow.arrival);
            assert!((fast.total_bytes() / slow.total_bytes() - 10.0).abs() < 1e-4);
        }
    }

    #[test]
    fn all_scales_have_coflows_between_their_hosts() {
        for scale in [Scale::SLICE, Scale::FAST, Scale::WIDE] {
            let workload = generate_slice(scale, MAX_COFLOWS, 1.0).unwrap();
            assert_eq!((workload.ports, workload.coflows.len()), (scale.hosts, MAX_COFLOWS));
            let load = workload.coflows.iter().map(|coflow| coflow.total_bytes()).sum::<f64>();
            let capacity = scale.link_rate().get() * f64::from(scale.hosts);
            let last = workload.coflows.last().unwrap().arrival.get();
            assert!((0.2..1.0).contains(&(load / capacity / last)));
        }
    }

    #[test]
    fn shorter_slice_is_a_prefix_of_the_whole() {
        let longest = generate_slice(Scale::SLICE, MAX_COFLOWS, 1.0).unwrap();
        assert_eq!(longest.coflows.len(), MAX_COFLOWS);
        assert_eq!(longest.check(), Ok(()));
        assert!(longest.coflows.iter().flat_map(|coflow| &coflow.flows).all(|flow| flow.src != flow.dst));
        assert_eq!(generate_slice(Scale::SLICE, 5, 1.0).unwrap().coflows, longest.coflows[..5]);
        let half = generate_slice(Scale::SLICE, 5, 0.5).unwrap();
        for (half, whole) in half.coflows.iter().zip(&longest.coflows) {
            assert_eq!(half.arrival.get(), 0.5 * whole.arrival.get());
            assert!((half.total_bytes() - 0.5 * whole.total_bytes()).abs() <= half.flows.len() as f64);
        }
    }
}
