//! The order of a coflow's flows.

use super::super::workload::CoflowSpec;

/// A flow's place in the order of the flows: ascending, field by field. Paths have no influence on the order, since a link that
/// limits no flow must not change which flow goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FlowKey {
    pub src: u32,
    /// Number of earlier flows between the same ports.
    pub layer: u32,
    pub dst: u32,
    /// Position in the specification.
    pub spec_index: u32,
}

/// Orders the flows of a coflow. O(n log n) for n flows.
pub(super) fn order_flows(spec: &CoflowSpec) -> Vec<FlowKey> {
    let mut keys: Vec<FlowKey> = (0..)
        .zip(&spec.flows)
        .map(|(spec_index, f)| FlowKey { src: f.src, layer: 0, dst: f.dst, spec_index })
        .collect();
    keys.sort_unstable();
    let mut has_layers = false;
    for at in 1..keys.len() {
        let (before, key) = (keys[at - 1], keys[at]);
        if (before.src, before.dst) == (key.src, key.dst) {
            keys[at].layer = before.layer + 1;
            has_layers = true;
        }
    }
    if has_layers {
        keys.sort_unstable();
    }
    keys
}
