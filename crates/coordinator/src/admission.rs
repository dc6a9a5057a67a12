//! Limits the number of open connections: in total, from one address and of one identity.
//!
//! A connection counts for its address until it has proven an identity, and for that identity afterwards. A connection over a
//! limit becomes a *probe*: it can request only the coordinator's health. At most [`Quota::probes`] probes are open, and a new
//! probe closes the oldest. A health check that sends its request at once is therefore answered, regardless of the number of idle
//! connections.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The limits of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Maximum number of connections in total, without probes.
    pub total: usize,
    /// Maximum number of connections without a proven identity from one IPv4 address or one IPv6 network of 64 bits.
    pub per_address: usize,
    /// Maximum number of connections of one proven identity.
    pub per_identity: usize,
    /// Maximum number of probes. If it is 0, connections over a limit are closed at once.
    pub probes: usize,
}

/// Counts the connections of a listener. Each call takes O(1), the end of a probe O(probes).
#[derive(Debug)]
pub struct Admission {
    quota: Quota,
    counts: Mutex<ConnectionCounts>,
}

#[derive(Debug, Default)]
struct ConnectionCounts {
    /// All connections except probes.
    total: usize,
    addresses: HashMap<IpAddr, usize>,
    identities: HashMap<String, usize>,
    /// Open probes by id, the oldest first, and the signal that closes each.
    probes: VecDeque<(u64, Arc<Notify>)>,
    next_probe: u64,
    /// Connections over a limit since the start.
    over_limit: u64,
}

/// A counted connection. Dropping the slot ends the count.
#[derive(Debug)]
pub struct ConnectionSlot {
    admission: Arc<Admission>,
    counted_as: CountedAs,
}

#[derive(Debug)]
enum CountedAs {
    Address(IpAddr),
    Identity(String),
    Probe(u64, Arc<Notify>),
}

impl Admission {
    /// No connections yet.
    pub fn new(quota: Quota) -> Arc<Admission> {
        Arc::new(Admission { quota, counts: Mutex::default() })
    }

    /// Counts a new connection. `None` if a limit is reached and the quota has no probes.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionSlot> {
        let address = limit_address(address);
        let mut open = self.lock();
        let address_count = open.addresses.get(&address).copied().unwrap_or(0);
        let counted_as = if open.total < self.quota.total && address_count < self.quota.per_address {
            open.total += 1;
            *open.addresses.entry(address).or_default() += 1;
            CountedAs::Address(address)
        } else {
            open.admit_probe(self.quota.probes)?
        };
        Some(ConnectionSlot { admission: Arc::clone(self), counted_as })
    }

    /// Number of connections over a limit since the start.
    pub fn over_limit(&self) -> u64 {
        self.lock().over_limit
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionCounts {
    /// Adds a probe. If `max` probes are open, the new one closes the oldest. `None` if `max` is 0.
    fn admit_probe(&mut self, max: usize) -> Option<CountedAs> {
        self.over_limit += 1;
        if max == 0 {
            return None;
        }
        if self.probes.len() >= max
            && let Some((_, oldest)) = self.probes.pop_front()
        {
            oldest.notify_one();
        }
        let close_signal = Arc::new(Notify::new());
        let id = self.next_probe;
        self.next_probe += 1;
        self.probes.push_back((id, Arc::clone(&close_signal)));
        Some(CountedAs::Probe(id, close_signal))
    }

    fn release(&mut self, counted_as: &CountedAs) {
        match counted_as {
            CountedAs::Address(address) => {
                self.total -= 1;
                decrement(&mut self.addresses, address);
            }
            CountedAs::Identity(name) => {
                self.total -= 1;
                decrement(&mut self.identities, name);
            }
            CountedAs::Probe(id, _) => self.probes.retain(|(other, _)| other != id),
        }
    }
}

impl ConnectionSlot {
    /// Counts the connection for its proven identity: `None` if the limit of the identity is reached and the quota has no probes.
    pub fn identify(mut self, identity: String) -> Option<ConnectionSlot> {
        if let CountedAs::Probe(..) = self.counted_as {
            return Some(self);
        }
        let admission = Arc::clone(&self.admission);
        let mut open = admission.lock();
        let identity_count = open.identities.get(&identity).copied().unwrap_or(0);
        let counted_as = if identity_count < admission.quota.per_identity {
            Some(CountedAs::Identity(identity.clone()))
        } else {
            open.admit_probe(admission.quota.probes)
        };
        let Some(next) = counted_as else {
            // Dropping the slot takes the lock.
            drop(open);
            return None;
        };
        open.release(&self.counted_as);
        if let CountedAs::Identity(_) = next {
            open.total += 1;
            *open.identities.entry(identity).or_default() += 1;
        }
        self.counted_as = next;
        drop(open);
        Some(self)
    }

    /// The signal that a newer probe replaces this one. `None` if the connection is not a probe.
    pub fn close_signal(&self) -> Option<Arc<Notify>> {
        match &self.counted_as {
            CountedAs::Probe(_, closed) => Some(Arc::clone(closed)),
            CountedAs::Address(_) | CountedAs::Identity(_) => None,
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.admission.lock().release(&self.counted_as);
    }
}

fn decrement<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// The address that a limit applies to: an IPv4 address, or the 64-bit network of an IPv6 address. One host can have all
/// addresses of such a network.
fn limit_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !0 << 64)),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA: Quota = Quota { total: 3, per_address: 2, per_identity: 1, probes: 2 };

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn is_probe(slot: &ConnectionSlot) -> bool {
        slot.close_signal().is_some()
    }

    #[test]
    fn connections_over_the_limit_of_an_address_become_probes() {
        let admission = Admission::new(QUOTA);
        let slots = [(); 2].map(|()| admission.admit(ip("10.0.0.1")).unwrap());
        assert!(!slots.iter().any(is_probe));
        assert!(is_probe(&admission.admit(ip("10.0.0.1")).unwrap()));
        assert!(!is_probe(&admission.admit(ip("10.0.0.2")).unwrap()));
        drop(slots);
        assert!(!is_probe(&admission.admit(ip("10.0.0.1")).unwrap()));
        assert_eq!(admission.over_limit(), 1);
    }

    #[test]
    fn connections_over_the_total_become_probes() {
        let admission = Admission::new(QUOTA);
        let slots: Vec<ConnectionSlot> =
            (1..=4).map(|host| admission.admit(ip(&format!("10.0.0.{host}"))).unwrap()).collect();
        assert_eq!(slots.iter().map(is_probe).collect::<Vec<_>>(), [false, false, false, true]);
    }

    #[test]
    fn ipv6_addresses_of_one_network_share_a_limit() {
        let admission = Admission::new(QUOTA);
        let _first = ["2001:db8::1", "2001:db8::2"].map(|text| admission.admit(ip(text)).unwrap());
        assert!(is_probe(&admission.admit(ip("2001:db8::3")).unwrap()));
        assert!(!is_probe(&admission.admit(ip("2001:db8:0:1::1")).unwrap()));
    }

    #[test]
    fn proven_identities_do_not_count_for_their_address() {
        let admission = Admission::new(QUOTA);
        let local = ip("10.0.0.1");
        let first = admission.admit(local).unwrap().identify("a".to_owned()).unwrap();
        assert!(!is_probe(&first));
        let second = admission.admit(local).unwrap().identify("a".to_owned()).unwrap();
        assert!(is_probe(&second), "the quota allows one connection of an identity");
        let unproven = [(); 2].map(|()| admission.admit(local).unwrap());
        assert!(!unproven.iter().any(is_probe));
        drop((first, second, unproven));
        let open = admission.lock();
        assert_eq!(
            (open.total, open.addresses.len(), open.identities.len(), open.probes.len()),
            (0, 0, 0, 0)
        );
    }

    #[tokio::test]
    async fn new_probes_close_the_oldest() {
        let admission = Admission::new(Quota { total: 0, ..QUOTA });
        let probes = [(); 3].map(|()| admission.admit(ip("10.0.0.1")).unwrap());
        probes[0].close_signal().unwrap().notified().await;
        assert_eq!(admission.lock().probes.len(), 2);
        drop(probes);
        assert_eq!(admission.lock().probes.len(), 0);
    }

    #[test]
    fn without_probes_connections_over_a_limit_are_refused() {
        let admission = Admission::new(Quota { probes: 0, ..QUOTA });
        let _first = [(); 2].map(|()| admission.admit(ip("10.0.0.1")).unwrap());
        assert!(admission.admit(ip("10.0.0.1")).is_none());
        let slot = admission.admit(ip("10.0.0.2")).unwrap().identify("a".to_owned()).unwrap();
        assert!(!is_probe(&slot));
        assert_eq!(admission.lock().total, 3);
    }
}
