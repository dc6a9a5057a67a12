//! Single flows whose sizes have a published distribution, on fast links.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use weir_core::model::Workload;
use weir_sim::NoObserver;
use weir_trace::generate::FlowSizes;

use crate::common::{coflow, mean, replay_with, workload};

const PORTS: u32 = 8;
/// So many that the tail of the distributions does not decide. With a tenth of them, the mean of `saath` is sometimes lower.
const FLOWS: u64 = 20_000;

/// 100 Gbit/s, in bytes per second.
const RATE: f64 = 1.25e10;

/// The mean utilization of ports.
const LOAD: f64 = 0.7;

/// Coflows of one flow each, with Poisson arrivals between random ports.
fn single_flows(sizes: FlowSizes) -> Workload {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    // From above 0 to 1.
    let mut part = || (f64::from(rng.next_u32()) + 1.0) / (f64::from(u32::MAX) + 1.0);
    let sizes = sizes.cdf();
    let mean_gap = sizes.mean() / (LOAD * f64::from(PORTS) * RATE);
    let mut now = 0.0;
    let flows = (0..FLOWS).map(|id| {
        now -= part().ln() * mean_gap;
        let [src, dst] = [part(), part()].map(|part| ((part * f64::from(PORTS)) as u32).min(PORTS - 1));
        coflow(id, now, &[(src, dst, sizes.sample(part()))])
    });
    workload(PORTS, flows.collect())
}

#[test]
fn single_flows_have_a_lower_mean_time_under_weir_than_under_fair_and_saath() {
    for sizes in FlowSizes::ALL {
        let all = single_flows(sizes);
        let mean_time =
            |policy: &str| mean(&replay_with(&all, policy, RATE, 0.0, &mut NoObserver).unwrap().ccts());
        let weir = mean_time("weir");
        for other in ["fair", "saath"] {
            let other_mean = mean_time(other);
            assert!(weir < other_mean, "{}: weir {weir} s, {other} {other_mean} s", sizes.name());
        }
    }
}
