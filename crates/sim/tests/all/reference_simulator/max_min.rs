//! Max-min rates, by progressive filling.

use super::incast::GoodputCurve;
use super::{Flow, FlowPhase, ReferenceSimulator, TOLERANCE};

impl ReferenceSimulator<'_> {
    pub(super) fn schedule_fair(&mut self) {
        let flows = self.coflows.iter_mut().flat_map(|c| &mut c.flows);
        flows.filter(|f| f.phase == FlowPhase::Live).for_each(|f| f.rate = f64::INFINITY);
        self.limit_to_links(0, self.goodput);
    }

    /// Limits rates that a policy decided over ports only: max-min over the trunks, up to these rates.
    pub(super) fn limit_to_trunks(&mut self) {
        let ports = self.workload.ports as usize;
        if self.links.len() > 2 * ports {
            self.limit_to_links(2 * ports, None);
        }
    }

    /// The links from `first` on, max-min: all rates rise together, up to the offers or until a link is full. With
    /// a goodput curve, receivers have the capacity for the number of their flows.
    pub(super) fn limit_to_links(&mut self, first: usize, goodput: Option<&GoodputCurve>) {
        let flows = self.coflows.iter_mut().flat_map(|c| &mut c.flows);
        let open: Vec<(f64, &mut Flow)> =
            flows.filter(|f| f.phase == FlowPhase::Live && f.rate > 0.0).map(|f| (f.rate, f)).collect();
        let mut left = self.links.clone();
        if let Some(goodput) = goodput {
            let sends = |flow: &Flow| flow.links().all(|link| link < first || self.links[link] > 0.0);
            let senders = open.iter().map(|(_, flow)| &**flow).filter(|flow| sends(flow));
            let connections = goodput.connections(senders, left.len());
            left.iter_mut().zip(connections).for_each(|(left, count)| *left *= goodput.share(count));
        }
        share_max_min(open, left, first);
    }
}

/// Raises the rates of flows together, up to their offers, or until one of their links from `first` on is full.
pub(super) fn share_max_min(mut open: Vec<(f64, &mut Flow)>, mut left: Vec<f64>, first: usize) {
    let links = |flow: &Flow| -> Vec<usize> { flow.links().filter(|&link| link >= first).collect() };
    open.iter_mut().for_each(|(_, flow)| flow.rate = 0.0);
    while !open.is_empty() {
        let mut counts = vec![0.0; left.len()];
        open.iter().for_each(|(_, flow)| links(flow).iter().for_each(|&link| counts[link] += 1.0));
        let shares =
            left.iter().zip(&counts).filter(|(_, count)| **count > 0.0).map(|(l, n)| (l / n).max(0.0));
        let step =
            shares.chain(open.iter().map(|(offer, flow)| offer - flow.rate)).fold(f64::INFINITY, f64::min);
        for (_, flow) in &mut open {
            flow.rate += step;
            links(flow).iter().for_each(|&link| left[link] -= step);
        }
        open.retain(|(offer, flow)| {
            flow.rate < offer - TOLERANCE / 10.0
                && links(flow).iter().all(|&link| left[link] > TOLERANCE / 10.0)
        });
    }
}
