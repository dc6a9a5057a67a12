//! PFP: shortest remaining flow first (PDQ, pFabric). It decides over ports only.

use super::{Flow, FlowPhase, ReferenceSimulator, TOLERANCE};

impl ReferenceSimulator<'_> {
    /// Live flows as their coflows and places, the shortest first. Of equal flows, the order of release and of ports counts.
    fn shortest_flows(&self) -> Vec<(usize, usize)> {
        let mut flows: Vec<(f64, usize, usize)> = Vec::new();
        for c in self.active() {
            for (f, flow) in self.coflows[c].flows.iter().enumerate() {
                if flow.phase == FlowPhase::Live {
                    flows.push((flow.size - flow.sent_bytes, c, f));
                }
            }
        }
        flows.sort_by(|a, b| a.0.total_cmp(&b.0));
        flows.into_iter().map(|(_, c, f)| (c, f)).collect()
    }

    /// Each flow, the shortest first, takes the residual capacity of both of its ports.
    pub(super) fn schedule_pfp(&mut self, left: &mut [f64]) {
        for (c, f) in self.shortest_flows() {
            let flow = &mut self.coflows[c].flows[f];
            let rate = left[flow.src].min(left[flow.dst]);
            if rate > TOLERANCE {
                flow.rate = rate;
                left[flow.src] -= rate;
                left[flow.dst] -= rate;
            }
        }
        self.limit_to_trunks();
    }

    /// The time at which a flow becomes shorter than another one at the same port.
    pub(super) fn next_overtaking(&self) -> f64 {
        let ranked = self.shortest_flows().into_iter();
        let flows: Vec<&Flow> = ranked.map(|(c, f)| &self.coflows[c].flows[f]).collect();
        let mut next = f64::INFINITY;
        for (rank, shorter) in flows.iter().enumerate() {
            for longer in &flows[rank + 1..] {
                let shares_port = longer.src == shorter.src || longer.dst == shorter.dst;
                if shares_port && longer.rate > shorter.rate {
                    let gap = (longer.size - longer.sent_bytes) - (shorter.size - shorter.sent_bytes);
                    next = next.min(self.now + gap / (longer.rate - shorter.rate));
                }
            }
        }
        next
    }
}
