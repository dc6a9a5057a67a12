//! UDP measurements: forwards the rates that receivers measure to the senders, which throttle UDP to them (NetShare,
//! section 3.2).
//!
//! Measurements are kept until the next order only. A host's measurements count for its own addresses, up to the rate
//! of its link. A misreporting host changes only the traffic sent to it, with the same effect as if it sent no
//! measurements.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use weir_core::netshare::PERIOD;
use weir_proto::{Arrival, MAX_WAYS, Way};

use super::ControlPlane;

/// Tolerance above the link's rate for measurement errors (factor), and a large packet that is counted at once (bytes).
const SLACK: f64 = 1.05;
const PACKET: f64 = 65_536.0;

/// Hosts' addresses, and the measurements for the next orders.
#[derive(Debug)]
pub(super) struct Arrivals {
    of: BTreeMap<Ipv4Addr, u32>,
    /// By sending host.
    waiting: BTreeMap<u32, BTreeMap<Way, u64>>,
    /// Number of measurements that were put into orders.
    passed: u64,
}

impl Arrivals {
    /// Removes the measurements for a host's next order. They are dropped if the host gets no order, since they would
    /// be outdated later.
    pub fn take(&mut self, host: u32, is_addressed: bool) -> Vec<Arrival> {
        let waiting = self.waiting.remove(&host).filter(|_| is_addressed).unwrap_or_default();
        self.passed += waiting.len() as u64;
        waiting.into_iter().map(|(way, rate)| Arrival { way, rate }).collect()
    }
}

impl ControlPlane {
    /// Enables UDP throttling. `of` maps addresses to host numbers.
    pub fn with_throttling(mut self, of: BTreeMap<Ipv4Addr, u32>) -> ControlPlane {
        self.arrivals = Some(Arrivals { of, waiting: BTreeMap::new(), passed: 0 });
        self
    }

    /// Whether agents have to report UDP measurements.
    pub fn throttles(&self) -> bool {
        self.arrivals.is_some()
    }

    /// Number of UDP measurements that were forwarded to senders.
    pub fn passed_on(&self) -> u64 {
        self.arrivals.as_ref().map_or(0, |arrivals| arrivals.passed)
    }

    /// Checks the UDP measurements of a report and stores them for the senders.
    pub(super) fn arrive(&mut self, host: u32, said: &[Arrival]) {
        let Some(arrivals) = &mut self.arrivals else { return };
        let Some(link) = self.links.get(host as usize) else {
            self.doubts.foreign += said.len() as u64;
            return;
        };
        let most = SLACK * link.recv.get() + PACKET / PERIOD.get();
        let mut sum = 0.0;
        for &Arrival { way, rate } in said {
            match arrivals.of.get(&way.to) {
                Some(&at) if at == host => {}
                Some(_) => {
                    self.doubts.foreign += 1;
                    continue;
                }
                // Multicast addresses, and addresses of hosts that the configuration does not list.
                None => continue,
            }
            if sum + rate as f64 > most {
                self.doubts.beyond += 1;
                continue;
            }
            sum += rate as f64;
            // Senders outside the configuration are not throttled.
            let Some(&sender) = arrivals.of.get(&way.from) else { continue };
            let waiting = arrivals.waiting.entry(sender).or_default();
            if waiting.len() == MAX_WAYS && !waiting.contains_key(&way) {
                self.doubts.crowded += 1;
                continue;
            }
            // The later of two measurements counts.
            waiting.insert(way, rate);
        }
    }
}
