//! The number of connections of each host under `django`, from the loss of the flows to it.
//!
//! Senders report the packets that they sent, and how many of them they had sent before. The coordinator adds them by the receiver of
//! each flow, and [`weir_core::django::ConnectionCount`] decides.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_core::django::{BufferPredictor, ConnectionCount, CountSettings, Params};
use weir_proto::FlowSegments;

/// What decides the number of connections of hosts.
#[derive(Debug, Clone)]
pub struct ConnectionPredictor {
    /// Infers the buffer of a host's port.
    pub buffers: Arc<dyn BufferPredictor>,
    /// How the number follows the loss.
    pub settings: CountSettings,
}

/// The numbers of connections of all hosts.
#[derive(Debug)]
pub(super) struct ConnectionCounts {
    predictor: ConnectionPredictor,
    params: Params,
    by_host: Vec<ConnectionCount>,
    /// The sender and the receiver of each active flow over TCP, by the generation of its coflow and its number.
    ends: BTreeMap<(u64, u32), (u32, u32)>,
    /// The open connections to each host.
    open_connections: Vec<u32>,
    /// The time of the last update.
    updated_at: f64,
}

impl ConnectionCounts {
    /// For hosts that begin with `connections` connections.
    pub fn new(
        predictor: ConnectionPredictor,
        params: Params,
        connections: usize,
        hosts: usize,
        now: f64,
    ) -> ConnectionCounts {
        let first = connections as u32;
        // A configured number is never refused, also if it is far above those of the measurements.
        let max_connections = predictor.settings.max_connections.max(first);
        let settings = CountSettings { max_connections, ..predictor.settings };
        ConnectionCounts {
            predictor: ConnectionPredictor { settings, ..predictor },
            params,
            by_host: vec![ConnectionCount::new(first, now); hosts],
            ends: BTreeMap::new(),
            open_connections: vec![0; hosts],
            updated_at: now,
        }
    }

    /// The number of connections of a host.
    pub fn get(&self, host: u32) -> u32 {
        self.by_host[host as usize].get()
    }

    /// The number of each host, in the order of hosts.
    pub fn all(&self) -> Vec<u32> {
        self.by_host.iter().map(ConnectionCount::get).collect()
    }

    /// Adds what the flows from a host have sent. Flows of other hosts have no effect.
    pub fn record_segments(&mut self, host: u32, flows: &[FlowSegments]) {
        for &FlowSegments { coflow, flow, segments, retransmitted } in flows {
            if let Some((sender, receiver)) = self.ends.get(&(coflow, flow))
                && *sender == host
            {
                self.by_host[*receiver as usize]
                    .record_segments(u64::from(segments), u64::from(retransmitted));
            }
        }
    }

    /// Forgets the flows of the last schedule.
    pub fn clear_flows(&mut self) {
        self.ends.clear();
        self.open_connections.fill(0);
    }

    /// Adds an active flow over TCP.
    pub fn add_flow(&mut self, key: (u64, u32), sender: u32, receiver: u32, sends: bool) {
        self.ends.insert(key, (sender, receiver));
        self.open_connections[receiver as usize] += u32::from(sends);
    }

    /// Lets the number of each host follow the loss, after [`ConnectionCounts::add_flow`] of all flows.
    pub fn update(&mut self, now: f64) {
        let seconds = now - std::mem::replace(&mut self.updated_at, now);
        for (count, &open) in self.by_host.iter_mut().zip(&self.open_connections) {
            // Algorithm 2 gives a host with one reducer no more connections.
            let is_full = open as usize >= self.params.reserved_connections(count.get() as usize);
            count.record_connections(open, is_full, seconds);
            count.update(&self.predictor.settings, &*self.predictor.buffers, now);
        }
    }
}
