//! UDP measurements: forwards the rates that receivers measure to the senders, which throttle UDP to them (NetShare,
//! section 3.2).
//!
//! Measurements are kept until the next order only. A host's measurements count for its own addresses, up to the rate
//! of its link. A misreporting host changes only the traffic sent to it, with the same effect as if it sent no
//! measurements.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use weir_core::netshare::MEASUREMENT_PERIOD;
use weir_proto::{MAX_UDP_FLOWS, UdpFlow, UdpMeasurement};

use super::ControlPlane;

/// Tolerance above the link's rate for measurement errors (factor), and a large packet that is counted at once (bytes).
const RATE_TOLERANCE: f64 = 1.05;
const MAX_PACKET_BYTES: f64 = 65_536.0;

/// Hosts' addresses, and the measurements for the next orders.
#[derive(Debug)]
pub(super) struct UdpMeasurements {
    host_by_address: BTreeMap<Ipv4Addr, u32>,
    /// By sending host.
    pending: BTreeMap<u32, BTreeMap<UdpFlow, u64>>,
    /// Number of measurements that were put into orders.
    forwarded: u64,
}

impl UdpMeasurements {
    /// Removes the measurements for a host's next order. They are dropped if the host gets no order, since they would
    /// be outdated later.
    pub fn take(&mut self, host: u32, receives_orders: bool) -> Vec<UdpMeasurement> {
        let waiting = self.pending.remove(&host).filter(|_| receives_orders).unwrap_or_default();
        self.forwarded += waiting.len() as u64;
        waiting.into_iter().map(|(way, rate)| UdpMeasurement { flow: way, rate }).collect()
    }
}

impl ControlPlane {
    /// Enables UDP throttling. `of` maps addresses to host numbers.
    pub fn with_throttling(mut self, host_by_address: BTreeMap<Ipv4Addr, u32>) -> ControlPlane {
        self.udp_measurements =
            Some(UdpMeasurements { host_by_address, pending: BTreeMap::new(), forwarded: 0 });
        self
    }

    /// Whether agents have to report UDP measurements.
    pub fn has_throttling(&self) -> bool {
        self.udp_measurements.is_some()
    }

    /// Number of UDP measurements that were forwarded to senders.
    pub fn forwarded_udp_measurements(&self) -> u64 {
        self.udp_measurements.as_ref().map_or(0, |arrivals| arrivals.forwarded)
    }

    /// Checks the UDP measurements of a report and stores them for the senders.
    pub(super) fn store_udp_measurements(&mut self, host: u32, measurements: &[UdpMeasurement]) {
        let Some(arrivals) = &mut self.udp_measurements else { return };
        let Some(link) = self.links.get(host as usize) else {
            self.rejected_entries.foreign_flow += measurements.len() as u64;
            return;
        };
        let max_rate = RATE_TOLERANCE * link.recv.get() + MAX_PACKET_BYTES / MEASUREMENT_PERIOD.get();
        let mut accepted_rate = 0.0;
        for &UdpMeasurement { flow: way, rate } in measurements {
            match arrivals.host_by_address.get(&way.dst) {
                Some(&owner) if owner == host => {}
                Some(_) => {
                    self.rejected_entries.foreign_flow += 1;
                    continue;
                }
                // Multicast addresses, and addresses of hosts that the configuration does not list.
                None => continue,
            }
            if accepted_rate + rate as f64 > max_rate {
                self.rejected_entries.above_link_rate += 1;
                continue;
            }
            accepted_rate += rate as f64;
            // Senders outside the configuration are not throttled.
            let Some(&sender) = arrivals.host_by_address.get(&way.src) else { continue };
            let waiting = arrivals.pending.entry(sender).or_default();
            if waiting.len() == MAX_UDP_FLOWS && !waiting.contains_key(&way) {
                self.rejected_entries.too_many += 1;
                continue;
            }
            // The later of two measurements counts.
            waiting.insert(way, rate);
        }
    }
}
