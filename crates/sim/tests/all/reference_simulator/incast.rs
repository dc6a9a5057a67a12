//! Incast: receiving ports whose capacity depends on the number of flows that send to them (docs/incast-format.md).

use std::sync::Arc;

use super::{Flow, ReferenceSimulator};
use crate::incast::goodput_of;
use proptest::prelude::*;
use weir_core::model::Goodput;

/// The share of its rate that a receiving port carries, by the number of sending flows.
#[derive(Debug, Clone)]
pub struct GoodputCurve {
    /// Measured numbers, rising from 1, and their shares, falling from 1.
    points: Vec<(u32, f64)>,
}

impl GoodputCurve {
    /// The model that the engine reads from measurements with these shares.
    pub(super) fn to_model(&self) -> Arc<Goodput> {
        goodput_of(&self.points, 1.0)
    }

    /// Linear between the measured numbers of flows, and constant beyond the last one.
    pub(super) fn share(&self, flows: usize) -> f64 {
        let flows = flows as f64;
        for pair in self.points.windows(2) {
            let [(from, high), (to, low)] =
                [(f64::from(pair[0].0), pair[0].1), (f64::from(pair[1].0), pair[1].1)];
            if flows <= to {
                return if flows <= from { high } else { high + (low - high) * (flows - from) / (to - from) };
            }
        }
        self.points.last().map_or(1.0, |point| point.1)
    }

    /// By link: the number of these flows that it receives.
    pub(super) fn connections<'a>(&self, flows: impl Iterator<Item = &'a Flow>, links: usize) -> Vec<usize> {
        let mut connections = vec![0; links];
        flows.for_each(|flow| connections[flow.dst] += 1);
        connections
    }
}

impl ReferenceSimulator<'_> {
    /// All flows to a receiving port keep the same fraction of their rates if they exceed its capacity together.
    pub(super) fn limit_to_goodput(&mut self) {
        let Some(goodput) = self.goodput else { return };
        let links = self.links.clone();
        for (link, capacity) in links.iter().enumerate() {
            let flows = self.coflows.iter_mut().flat_map(|c| &mut c.flows);
            let mut senders: Vec<&mut Flow> = flows.filter(|f| f.dst == link && f.rate > 0.0).collect();
            let rate: f64 = senders.iter().map(|f| f.rate).sum();
            let share = goodput.share(senders.len());
            if share < 1.0 && rate > capacity * share {
                senders.iter_mut().for_each(|f| f.rate *= capacity * share / rate);
            }
        }
    }
}

pub(super) fn any_curve() -> impl Strategy<Value = GoodputCurve> {
    let falls = prop::collection::vec(0.05..0.9f64, 3);
    (falls, prop::sample::select(vec![[2, 3, 4], [2, 4, 8], [3, 4, 6], [2, 5, 6]])).prop_map(
        |(falls, numbers)| {
            let mut points = vec![(1, 1.0)];
            for (number, fall) in numbers.into_iter().zip(falls) {
                points.push((number, points[points.len() - 1].1 * (1.0 - fall)));
            }
            GoodputCurve { points }
        },
    )
}
