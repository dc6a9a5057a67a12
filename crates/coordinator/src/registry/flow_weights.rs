//! Weights of connections: sums them up for each flow that the allocator limits, which are all connections of an application from one
//! host to another.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::bodies::{ConnectionBody, Ends};
use crate::control_plane::{FlowPeer, WeightedFlow};

/// The sum of the weights of each flow with a weighted connection, in thousandths: sums of whole numbers do not drift.
#[derive(Debug, Default)]
pub(super) struct FlowWeights {
    sums: BTreeMap<WeightedFlow, u64>,
    /// Flows that changed since the last call of [`FlowWeights::take_changes`].
    changed: BTreeSet<WeightedFlow>,
}

/// A weight in thousandths.
fn thousandths(weight: f64) -> u64 {
    (weight * 1000.0).round() as u64
}

/// The flows of a connection in both directions, as far as their sender is a host.
fn flows_of(body: &ConnectionBody, (from, to): Ends) -> Vec<WeightedFlow> {
    let flow = |host: u32, peer: FlowPeer| (host, Arc::from(&*body.application), peer);
    match (to, body.to.parse::<IpAddr>()) {
        (Some(to), _) => vec![flow(from, FlowPeer::Host(to)), flow(to, FlowPeer::Host(from))],
        (None, Ok(address)) => vec![flow(from, FlowPeer::Address(address.to_canonical()))],
        (None, Err(_)) => Vec::new(),
    }
}

impl FlowWeights {
    /// Adds an open connection.
    pub fn add(&mut self, body: &ConnectionBody, ends: Ends) {
        let Some(weight) = body.weight else { return };
        for flow in flows_of(body, ends) {
            *self.sums.entry(flow.clone()).or_default() += thousandths(weight);
            self.changed.insert(flow);
        }
    }

    /// Removes a closed connection.
    pub fn remove(&mut self, body: &ConnectionBody, ends: Ends) {
        let Some(weight) = body.weight else { return };
        for flow in flows_of(body, ends) {
            if let Some(sum) = self.sums.get_mut(&flow) {
                *sum -= thousandths(weight);
                if *sum == 0 {
                    self.sums.remove(&flow);
                }
                self.changed.insert(flow);
            }
        }
    }

    /// The flows whose sum changed since the last call, each with its sum; none without a weighted connection.
    pub fn take_changes(&mut self) -> Vec<(WeightedFlow, Option<u64>)> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        changed.map(|flow| (flow.clone(), self.sums.get(&flow).copied())).collect()
    }
}
