//! What arrives at hosts of UDP, which goes to those that send it: they follow it with their limits (NetShare, section 3.2).
//!
//! Nothing of it is kept but what waits for the next order. A host is believed about what arrives at its own addresses, as far as its link
//! carries it: whoever lies there changes what is sent to it, and no more than by not saying anything.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use weir_core::netshare::PERIOD;
use weir_proto::{Arrival, MAX_WAYS, Way};

use super::ControlPlane;

/// What may arrive above what a link carries, for who measures, and a large packet that is counted at once, in bytes.
const SLACK: f64 = 1.05;
const PACKET: f64 = 65_536.0;

/// Whose addresses are whose, and what waits for hosts.
#[derive(Debug)]
pub(super) struct Arrivals {
    of: BTreeMap<Ipv4Addr, u32>,
    /// For each host that sends.
    waiting: BTreeMap<u32, BTreeMap<Way, u64>>,
    /// How many went with orders.
    passed: u64,
}

impl Arrivals {
    /// What a host is to be told now, if it can be: later it is old.
    pub fn take(&mut self, host: u32, is_addressed: bool) -> Vec<Arrival> {
        let waiting = self.waiting.remove(&host).filter(|_| is_addressed).unwrap_or_default();
        self.passed += waiting.len() as u64;
        waiting.into_iter().map(|(way, rate)| Arrival { way, rate }).collect()
    }
}

impl ControlPlane {
    /// The same for hosts that limit UDP as it arrives, whose addresses these are.
    pub fn with_throttling(mut self, of: BTreeMap<Ipv4Addr, u32>) -> ControlPlane {
        self.arrivals = Some(Arrivals { of, waiting: BTreeMap::new(), passed: 0 });
        self
    }

    /// Whether hosts are to say what arrives.
    pub fn throttles(&self) -> bool {
        self.arrivals.is_some()
    }

    /// How many measures of what arrives went to those who send it.
    pub fn passed_on(&self) -> u64 {
        self.arrivals.as_ref().map_or(0, |arrivals| arrivals.passed)
    }

    /// Takes in what a host says arrives there.
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
                // Those of many hosts, and others that nobody said are its own.
                None => continue,
            }
            if sum + rate as f64 > most {
                self.doubts.beyond += 1;
                continue;
            }
            sum += rate as f64;
            // Strangers may send what they like.
            let Some(&sender) = arrivals.of.get(&way.from) else { continue };
            let waiting = arrivals.waiting.entry(sender).or_default();
            if waiting.len() == MAX_WAYS && !waiting.contains_key(&way) {
                self.doubts.crowded += 1;
                continue;
            }
            // Of two measures the later is right.
            waiting.insert(way, rate);
        }
    }
}
