//! Estimates when coflows complete under a decision, if all links have their median bandwidth and no further coflow arrives.
//!
//! Each link serves coflows as decided, independently of other links, and a coflow completes at its last link. This is the cost
//! model of Siphon's Monte Carlo search (ATC '18, section 3.1.3).

use super::{ServiceOrder, WaitingCoflow};
use crate::model::BandwidthHistory;

/// The estimated completion of each waiting coflow, in seconds from now. O(links x n^2) if links are shared, otherwise O(links x n).
pub fn completion_times(
    past: &BandwidthHistory,
    order: &ServiceOrder,
    waiting: &[WaitingCoflow],
) -> Vec<f64> {
    let mut times = vec![0.0_f64; waiting.len()];
    for link in 0..past.links() as u32 {
        let all: Vec<usize> = (0..waiting.len()).collect();
        match order {
            ServiceOrder::InOrder(order) => serve_in_order(past, link, 1.0, order, waiting, &mut times),
            ServiceOrder::MaxMin => serve_evenly(past, link, 1.0, &all, waiting, &mut times),
            ServiceOrder::Weighted(shares) => {
                for share in shares {
                    let fraction = share.link_fractions[link as usize];
                    match &share.order {
                        Some(order) => serve_in_order(past, link, fraction, order, waiting, &mut times),
                        None => serve_evenly(past, link, fraction, &share.coflows, waiting, &mut times),
                    }
                }
            }
        }
    }
    times
}

fn bytes_at(coflow: &WaitingCoflow, link: u32) -> f64 {
    coflow.remaining_bytes.iter().filter(|(other, _)| *other == link).map(|(_, bytes)| bytes).sum()
}

fn serve_in_order(
    past: &BandwidthHistory,
    link: u32,
    fraction: f64,
    order: &[usize],
    waiting: &[WaitingCoflow],
    times: &mut [f64],
) {
    let mut served = 0.0;
    for &place in order {
        let bytes = bytes_at(&waiting[place], link);
        served += bytes;
        if bytes > 0.0 {
            times[place] = times[place].max(served * past.median_seconds_per_byte(link) / fraction);
        }
    }
}

/// Coflows share the link evenly. Until one completes, each other coflow sends as much as that one, or all of its bytes.
fn serve_evenly(
    past: &BandwidthHistory,
    link: u32,
    fraction: f64,
    places: &[usize],
    waiting: &[WaitingCoflow],
    times: &mut [f64],
) {
    for &place in places {
        let own = bytes_at(&waiting[place], link);
        let served: f64 = places.iter().map(|&other| bytes_at(&waiting[other], link).min(own)).sum();
        if own > 0.0 {
            times[place] = times[place].max(served * past.median_seconds_per_byte(link) / fraction);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::completion_times;
    use crate::model::wide_area::{LinkMeasurement, WideArea};
    use crate::units::{Rate, Time};
    use crate::wide_area::{LeafShare, ServiceOrder, WaitingCoflow};

    #[test]
    fn estimates_follow_the_order_of_service() {
        let samples = [10.0, 20.0, 1000.0].map(|rate| Rate::new(rate).unwrap()).to_vec();
        let link = |from, to| LinkMeasurement { from, to, samples: samples.clone() };
        let names = ["a", "b"].map(str::to_owned).to_vec();
        let area = WideArea::new(names, vec![link(0, 1), link(1, 0)], Time::new(1.0).unwrap(), 0.0).unwrap();
        let past = area.bandwidth_history();
        let coflow =
            |seq, bytes: &[(u32, f64)]| WaitingCoflow { seq, leaf: 0, remaining_bytes: bytes.to_vec() };
        let waiting = [coflow(0, &[(0, 100.0)]), coflow(1, &[(0, 40.0), (1, 100.0)])];
        let times = |order: &ServiceOrder| completion_times(&past, order, &waiting);
        assert_eq!(times(&ServiceOrder::InOrder(vec![1, 0])), [7.0, 5.0]);
        assert_eq!(times(&ServiceOrder::InOrder(vec![0, 1])), [5.0, 7.0]);
        assert_eq!(times(&ServiceOrder::MaxMin), [7.0, 5.0]);
        let share = |place, fraction| LeafShare {
            coflows: vec![place],
            order: (place == 0).then(|| vec![0]),
            link_fractions: vec![fraction, place as f64],
        };
        assert_eq!(times(&ServiceOrder::Weighted(vec![share(0, 0.5), share(1, 0.5)])), [10.0, 5.0]);
    }
}
