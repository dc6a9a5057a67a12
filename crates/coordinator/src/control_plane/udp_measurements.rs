//! Forwards UDP rates that receivers measure to the senders, which throttle UDP to these rates (NetShare, section 3.2). With an allocator,
//! senders measure UDP instead, and their measurements are [demands](super::udp_demands).
//!
//! Measurements are kept until the next order only. A host's measurements are accepted for its own addresses, up to the
//! rate of its link. A misreporting host therefore affects only the traffic sent to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_core::netshare::MEASUREMENT_PERIOD;
use weir_proto::{MAX_UDP_FLOWS, NetworkTable, UdpControl, UdpFlow, UdpLimit, UdpMeasurement};

use super::ControlPlane;
use super::pause::pause_of_udp;

/// Tolerated ratio of a measured rate to the rate of the link, for measurement errors.
pub(super) const RATE_TOLERANCE: f64 = 1.05;

/// Size of the largest IP packet, rounded up, in bytes. A packet counts as sent or received at one time.
pub(super) const MAX_PACKET_BYTES: f64 = 65_536.0;

/// The measurements for the next orders.
#[derive(Debug, Default)]
pub(super) struct UdpMeasurements {
    /// Measurements for the next order, by sending host.
    pending: BTreeMap<u32, BTreeMap<UdpFlow, u64>>,
    /// Measured flows that are paused, whose limits the next order ends, by sending host.
    ended: BTreeMap<u32, BTreeSet<UdpFlow>>,
    /// Number of measurements in orders so far.
    forwarded: u64,
}

impl UdpMeasurements {
    /// Returns the measurements for the next order of a host, and the limits that it ends. Drops them if the host gets no order, since
    /// they would be outdated later.
    pub fn take(&mut self, host: u32, receives_orders: bool) -> (Vec<UdpMeasurement>, Vec<UdpLimit>) {
        let pending = self.pending.remove(&host).filter(|_| receives_orders).unwrap_or_default();
        let ended = self.ended.remove(&host).filter(|_| receives_orders).unwrap_or_default();
        self.forwarded += pending.len() as u64;
        let measurements = pending.into_iter().map(|(flow, rate)| UdpMeasurement { flow, rate });
        let ended = ended.into_iter().map(|flow| UdpLimit { flow, rate: UdpLimit::ENDED });
        (measurements.collect(), ended.collect())
    }
}

impl ControlPlane {
    /// Enables limits of UDP: by throttling, or by the allocator if there is one. `addresses` has the numbers of hosts.
    pub fn with_throttling(mut self, addresses: NetworkTable<u32>) -> ControlPlane {
        self.addresses = Arc::new(addresses);
        self.udp_measurements = Some(UdpMeasurements::default());
        self
    }

    /// How hosts limit UDP, and which rates agents have to report; none if UDP is not limited. Without throttling, the allocator limits UDP
    /// of services with a maximum bandwidth.
    pub fn udp_control(&self) -> Option<UdpControl> {
        match (&self.udp_measurements, self.divides_links()) {
            (Some(_), true) => Some(UdpControl::Allocation),
            (Some(_), false) => Some(UdpControl::Throttling),
            (None, _) => self.limits_udp_of_maxima().then_some(UdpControl::Allocation),
        }
    }

    /// Number of UDP measurements forwarded to senders since the start.
    pub fn forwarded_udp_measurements(&self) -> u64 {
        self.udp_measurements.as_ref().map_or(0, |state| state.forwarded)
    }

    /// Stores the UDP measurements of a report.
    pub(super) fn store_udp_measurements(&mut self, host: u32, measurements: &[UdpMeasurement]) {
        match self.udp_control() {
            None => {}
            Some(UdpControl::Throttling) => self.forward_udp_measurements(host, measurements),
            Some(UdpControl::Allocation) => self.store_udp_demands(host, measurements),
        }
    }

    /// Checks the UDP measurements of a receiver and stores them for the senders.
    fn forward_udp_measurements(&mut self, host: u32, measurements: &[UdpMeasurement]) {
        let Some(state) = &mut self.udp_measurements else { return };
        let Some(link) = self.links.hosts.get(host as usize) else {
            self.rejected_entries.foreign_flow += measurements.len() as u64;
            return;
        };
        let max_rate = RATE_TOLERANCE * link.recv.get() + MAX_PACKET_BYTES / MEASUREMENT_PERIOD.get();
        let mut accepted_rate = 0.0;
        for &UdpMeasurement { flow, rate } in measurements {
            match self.addresses.owner_of(flow.dst) {
                Some(owner) if owner == host => {}
                Some(_) => {
                    self.rejected_entries.foreign_flow += 1;
                    continue;
                }
                // Multicast addresses, and addresses that are not in the configuration.
                None => continue,
            }
            if accepted_rate + rate as f64 > max_rate {
                self.rejected_entries.above_link_rate += 1;
                continue;
            }
            accepted_rate += rate as f64;
            // Senders outside the configuration are not throttled.
            let Some(sender) = self.addresses.owner_of(flow.src) else { continue };
            if pause_of_udp(&self.pauses, self.allocator.as_ref(), sender, flow).is_some() {
                let ended = state.ended.entry(sender).or_default();
                if ended.len() < MAX_UDP_FLOWS {
                    ended.insert(flow);
                }
                continue;
            }
            let pending = state.pending.entry(sender).or_default();
            if pending.len() == MAX_UDP_FLOWS && !pending.contains_key(&flow) {
                self.rejected_entries.too_many += 1;
                continue;
            }
            // The later of two measurements replaces the earlier one.
            pending.insert(flow, rate);
        }
    }
}
