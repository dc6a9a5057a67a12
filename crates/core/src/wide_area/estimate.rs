//! Estimates when coflows complete under a decision, if all links have their median bandwidth and no further coflow arrives.
//!
//! Each link serves coflows as decided, independently of other links, and a coflow completes at its last link. This is the cost
//! model of Siphon's Monte Carlo search (ATC '18, section 3.1.3).

use super::{ServiceOrder, WaitingCoflow};
use crate::model::LinkHistory;

/// The estimated completion of each waiting coflow, in seconds from now. O(links x n^2) if links are shared, otherwise O(links x n).
pub fn completion_times(past: &LinkHistory, order: &ServiceOrder, waiting: &[WaitingCoflow]) -> Vec<f64> {
    let mut times = vec![0.0_f64; waiting.len()];
    for link in 0..past.links() as u32 {
        match order {
            ServiceOrder::InOrder(order) => serve_in_order(past, link, order, waiting, &mut times),
            ServiceOrder::MaxMin => serve_evenly(past, link, waiting, &mut times),
        }
    }
    times
}

fn bytes_at(coflow: &WaitingCoflow, link: u32) -> f64 {
    coflow.remaining_bytes.iter().filter(|(other, _)| *other == link).map(|(_, bytes)| bytes).sum()
}

fn serve_in_order(
    past: &LinkHistory,
    link: u32,
    order: &[usize],
    waiting: &[WaitingCoflow],
    times: &mut [f64],
) {
    let mut served = 0.0;
    for &place in order {
        let bytes = bytes_at(&waiting[place], link);
        served += bytes;
        if bytes > 0.0 {
            times[place] = times[place].max(served * past.median_seconds_per_byte(link));
        }
    }
}

/// Coflows share the link evenly. Until one completes, each other coflow sends as much as that one, or all of its bytes.
fn serve_evenly(past: &LinkHistory, link: u32, waiting: &[WaitingCoflow], times: &mut [f64]) {
    for (coflow, time) in waiting.iter().zip(times) {
        let own = bytes_at(coflow, link);
        let served: f64 = waiting.iter().map(|other| bytes_at(other, link).min(own)).sum();
        if own > 0.0 {
            *time = time.max(served * past.median_seconds_per_byte(link));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::completion_times;
    use crate::model::wide_area::{LinkMeasurement, WideArea};
    use crate::units::{Rate, Time};
    use crate::wide_area::{ServiceOrder, WaitingCoflow};

    #[test]
    fn estimates_follow_the_order_of_service() {
        let samples = [10.0, 20.0, 1000.0].map(|rate| Rate::new(rate).unwrap()).to_vec();
        let link = |from, to| LinkMeasurement { from, to, samples: samples.clone() };
        let names = ["a", "b"].map(str::to_owned).to_vec();
        let area = WideArea::new(names, vec![link(0, 1), link(1, 0)], Time::new(1.0).unwrap(), 0.0).unwrap();
        let past = area.bandwidth_history();
        let coflow = |seq, bytes: &[(u32, f64)]| WaitingCoflow { seq, remaining_bytes: bytes.to_vec() };
        let waiting = [coflow(0, &[(0, 100.0)]), coflow(1, &[(0, 40.0), (1, 100.0)])];
        let times = |order: &ServiceOrder| completion_times(&past, order, &waiting);
        assert_eq!(times(&ServiceOrder::InOrder(vec![1, 0])), [7.0, 5.0]);
        assert_eq!(times(&ServiceOrder::InOrder(vec![0, 1])), [5.0, 7.0]);
        assert_eq!(times(&ServiceOrder::MaxMin), [7.0, 5.0]);
    }
}
