//! The order of a coflow's flows.

use super::super::fabric::Fabric;
use super::super::workload::CoflowSpec;

/// A flow's place in the order of the flows: ascending, field by field. Paths have no influence on the order, since a link that
/// limits no flow must not change which flow goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FlowKey {
    /// The link of the sending port. Links of ports are in the order of ports.
    pub src: u32,
    /// Number of earlier flows between the same ports.
    pub layer: u32,
    /// The link of the receiving port.
    pub dst: u32,
    /// Position in the specification.
    pub spec_index: u32,
}

/// Orders the flows of a coflow. O(n log n) for n flows.
pub(super) fn order_flows(spec: &CoflowSpec, fabric: &Fabric) -> Vec<FlowKey> {
    let mut keys: Vec<FlowKey> = (0..)
        .zip(&spec.flows)
        .map(|(spec_index, f)| FlowKey {
            src: fabric.send_link(f.src) as u32,
            layer: 0,
            dst: fabric.recv_link(f.dst) as u32,
            spec_index,
        })
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
