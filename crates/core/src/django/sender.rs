//! The sending side of a host.

use std::collections::BTreeMap;

use super::{Change, FlowKey, is_open};

/// The part of the uplink that coflows with priority may take in addition in each interval. Without it, the others would fill the
/// uplink, and a coflow with priority could not grow.
const HEADROOM: f64 = 0.05;

/// The factor by which the limit of a coflow without priority may grow in an interval.
const GROWTH: f64 = 1.5;

/// The part of the uplink that the coflows without priority may always use together, so that their connections stay alive.
const MIN_PART: f64 = 0.01;

/// The part of the uplink above which it counts as the bottleneck: a coflow that starts stops those behind it for a moment.
const BOTTLENECK_PART: f64 = 0.75;

/// Divides the uplink of a host whose senders are TCP. Section 1: a sender "throttles low-priority coflows when its egress link becomes the
/// bottleneck".
///
/// The coflow with priority sends without a limit, and the others get the rest of the uplink. Its demand is unknown when it starts, so
/// the others stop first if the uplink is the bottleneck, and then grow.
#[derive(Debug, Default)]
pub struct Uplink {
    /// The limits of coflows in the last interval, in bytes per second; none without a limit.
    limits: BTreeMap<u64, Option<f64>>,
}

impl Uplink {
    /// What each coflow may send until the next interval, in bytes per second; none without a limit. `coflows` are those that send now, in
    /// the order of their remaining bytes, with the rates at which they send. O(n log n).
    pub fn divide(&mut self, capacity: f64, coflows: &[(u64, f64)]) -> Vec<Option<f64>> {
        let min = MIN_PART * capacity / coflows.len() as f64;
        let is_bottleneck = coflows.iter().map(|(_, rate)| rate).sum::<f64>() > BOTTLENECK_PART * capacity;
        let (mut used, mut has_new) = (0.0, false);
        let mut limits = Vec::with_capacity(coflows.len());
        for (at, &(coflow, rate)) in coflows.iter().enumerate() {
            let last = self.limits.get(&coflow);
            let residual = (1.0 - HEADROOM) * capacity - used;
            let grown = match last {
                Some(last) if !has_new || !is_bottleneck => GROWTH * last.unwrap_or(capacity),
                None if !is_bottleneck => capacity,
                _ => min,
            };
            limits.push((at > 0).then_some(residual.min(grown).max(min)));
            has_new |= last.is_none();
            used += rate;
        }
        self.limits = coflows.iter().zip(&limits).map(|(&(coflow, _), &limit)| (coflow, limit)).collect();
        limits
    }
}

/// The flows of a sending host.
#[derive(Debug, Default)]
pub struct Sender {
    /// The newest version of each flow's connection; 0 before the first one.
    versions: BTreeMap<FlowKey, u32>,
}

impl Sender {
    /// Adds a flow, which waits until its receiver opens a connection.
    pub fn add_flow(&mut self, flow: FlowKey) {
        self.versions.entry(flow).or_insert(0);
    }

    /// Removes a flow that has completed.
    pub fn remove_flow(&mut self, flow: FlowKey) {
        self.versions.remove(&flow);
    }

    /// Applies a change, unless a newer one has arrived. Returns the acknowledgement, which has the newest version; `None` for
    /// an unknown flow.
    pub fn apply(&mut self, change: Change) -> Option<Change> {
        let version = self.versions.get_mut(&change.flow)?;
        *version = change.version.max(*version);
        Some(Change { version: *version, ..change })
    }

    /// Whether a flow may send.
    pub fn is_open(&self, flow: FlowKey) -> bool {
        self.versions.get(&flow).is_some_and(|&version| is_open(version))
    }
}

#[cfg(test)]
mod tests {
    use super::Uplink;

    #[test]
    fn coflows_without_priority_send_what_is_left() {
        let mut uplink = Uplink::default();
        assert_eq!(uplink.divide(100.0, &[]), []);
        assert_eq!(uplink.divide(100.0, &[(7, 60.0)]), [None]);
        // A coflow that begins behind it.
        assert_eq!(uplink.divide(100.0, &[(7, 60.0), (8, 0.0)]), [None, Some(35.0)]);
        // A coflow that begins before them, at the bottleneck.
        assert_eq!(
            uplink.divide(100.0, &[(1, 0.0), (7, 60.0), (8, 35.0)]),
            [None, Some(1.0 / 3.0), Some(1.0 / 3.0)]
        );
        // The first one does not take all.
        assert_eq!(uplink.divide(100.0, &[(1, 70.0), (7, 0.3), (8, 0.3)]), [None, Some(0.5), Some(0.5)]);
        for _ in 0..12 {
            uplink.divide(100.0, &[(1, 70.0), (7, 1.0), (8, 1.0)]);
        }
        assert_eq!(uplink.divide(100.0, &[(1, 70.0), (7, 20.0), (8, 5.0)]), [None, Some(25.0), Some(5.0)]);
        // It has ended.
        assert_eq!(uplink.divide(100.0, &[(7, 20.0), (8, 5.0)])[0], None);
    }

    /// A coflow with priority that could fill the uplink does so after a few intervals.
    #[test]
    fn coflow_with_priority_gets_the_uplink() {
        let mut uplink = Uplink::default();
        let mut rates = [0.0, 100.0];
        uplink.divide(100.0, &[(2, 100.0)]);
        for interval in 0..100 {
            let limit = uplink.divide(100.0, &[(1, rates[0]), (2, rates[1])])[1].unwrap();
            // TCP divides evenly what both want, and the measured rate follows with a delay.
            rates[1] = limit.min(50.0);
            rates[0] += 0.25 * (100.0 - rates[1] - rates[0]);
            assert!(interval < 12 || rates[0] > 85.0, "{interval}: {rates:?}");
        }
        assert!(rates[0] > 98.0, "{rates:?}");
    }
}
