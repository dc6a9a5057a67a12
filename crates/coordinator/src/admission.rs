//! Limits the number of open connections: in total, from one address and of one identity.
//!
//! A connection counts for its address until it has proven an identity, and for that identity afterwards. Each address and each
//! identity has [`Quota::reserved`] connections; further ones share [`Quota::total`]. No client can
//! therefore keep another one out, such as an operator or a monitoring system.
//!
//! A connection over a limit becomes a *probe*: it can request only the coordinator's health and metrics. At most
//! [`Quota::probes`] probes are open, and a new probe closes the oldest. A health check that sends its request at once is
//! therefore answered, regardless of the number of idle connections. A probe that proves an identity below its limits is no
//! longer one.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The limits of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Maximum number of connections that all addresses and identities share, without reserved ones and probes. Also the maximum
    /// sum of the reserved connections of all addresses, and of all identities.
    pub total: usize,
    /// Number of connections that are reserved for each address and for each identity.
    pub reserved: usize,
    /// Maximum number of connections without a proven identity from one IPv4 address or one IPv6 network of 64 bits.
    pub per_address: usize,
    /// Maximum number of connections of one proven identity.
    pub per_identity: usize,
    /// Maximum number of probes. If it is 0, connections over a limit are closed at once.
    pub probes: usize,
}

/// Counts the connections of a listener. Each call takes O(1), the end of a probe O(probes).
#[derive(Debug)]
pub struct Admission(Mutex<ConnectionCounts>);

#[derive(Debug)]
struct ConnectionCounts {
    quota: Quota,
    /// Connections that count for [`Quota::total`].
    shared: usize,
    addresses: ClientCounts<IpAddr>,
    identities: ClientCounts<String>,
    /// Open probes by id, the oldest first, and the signal that closes each.
    probes: VecDeque<(u64, Arc<Notify>)>,
    next_probe: u64,
    /// Connections over a limit since the start.
    over_limit: u64,
}

/// The connections of each address, or of each identity.
#[derive(Debug)]
struct ClientCounts<K> {
    clients: HashMap<K, ClientCount>,
    /// The sum of reserved connections.
    reserved: usize,
}

/// The connections of one address or identity.
#[derive(Debug, Clone, Copy, Default)]
struct ClientCount {
    reserved: usize,
    shared: usize,
}

impl<K> Default for ClientCounts<K> {
    fn default() -> ClientCounts<K> {
        ClientCounts { clients: HashMap::new(), reserved: 0 }
    }
}

/// What a connection counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pool {
    /// The connections reserved for its address or identity.
    Reserved,
    /// The connections that all share.
    Shared,
}

/// A counted connection. Dropping the slot ends the count.
#[derive(Debug)]
pub struct ConnectionSlot {
    admission: Arc<Admission>,
    /// None once the count has ended.
    counted_as: Option<CountedAs>,
}

#[derive(Debug)]
enum CountedAs {
    Address(IpAddr, Pool),
    Identity(String, Pool),
    Probe(u64, Arc<Notify>),
}

impl Admission {
    /// No connections yet.
    pub fn new(quota: Quota) -> Arc<Admission> {
        Arc::new(Admission(Mutex::new(ConnectionCounts {
            quota,
            shared: 0,
            addresses: ClientCounts::default(),
            identities: ClientCounts::default(),
            probes: VecDeque::new(),
            next_probe: 0,
            over_limit: 0,
        })))
    }

    /// Changes the limits for connections from now on.
    pub fn set_quota(&self, quota: Quota) {
        self.lock().quota = quota;
    }

    /// Counts a new connection. `None` if a limit is reached and the quota has no probes.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionSlot> {
        let address = limit_address(address);
        let mut open = self.lock();
        let ConnectionCounts { quota, shared, addresses, .. } = &mut *open;
        let counted_as = match addresses.admit(&address, quota, quota.per_address, shared) {
            Some(pool) => CountedAs::Address(address, pool),
            None => open.admit_probe()?,
        };
        Some(ConnectionSlot { admission: Arc::clone(self), counted_as: Some(counted_as) })
    }

    /// Number of connections over a limit since the start.
    pub fn over_limit(&self) -> u64 {
        self.lock().over_limit
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq + Clone> ClientCounts<K> {
    /// Counts a connection of a client: for its reserved ones, else for `shared`. `None` if the limits are reached.
    fn admit(&mut self, client: &K, quota: &Quota, max: usize, shared: &mut usize) -> Option<Pool> {
        let count = self.clients.get(client).copied().unwrap_or_default();
        if count.reserved + count.shared >= max {
            return None;
        }
        let has_reserved = count.reserved < quota.reserved && self.reserved < quota.total;
        if !has_reserved && *shared >= quota.total {
            return None;
        }
        let count = self.clients.entry(client.clone()).or_default();
        let (pool, sum, client_sum) = if has_reserved {
            (Pool::Reserved, &mut self.reserved, &mut count.reserved)
        } else {
            (Pool::Shared, shared, &mut count.shared)
        };
        *sum += 1;
        *client_sum += 1;
        Some(pool)
    }

    fn release(&mut self, client: &K, pool: Pool, shared: &mut usize) {
        let Some(count) = self.clients.get_mut(client) else { return };
        let (sum, client_sum) = match pool {
            Pool::Reserved => (&mut self.reserved, &mut count.reserved),
            Pool::Shared => (shared, &mut count.shared),
        };
        *sum -= 1;
        *client_sum -= 1;
        if count.reserved + count.shared == 0 {
            self.clients.remove(client);
        }
    }
}

impl ConnectionCounts {
    /// Adds a probe. If the maximum number of probes is open, the new one closes the oldest. `None` if the quota allows no probes.
    fn admit_probe(&mut self) -> Option<CountedAs> {
        let max = self.quota.probes;
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
            CountedAs::Address(address, pool) => self.addresses.release(address, *pool, &mut self.shared),
            CountedAs::Identity(name, pool) => self.identities.release(name, *pool, &mut self.shared),
            CountedAs::Probe(id, _) => self.probes.retain(|(other, _)| other != id),
        }
    }
}

impl ConnectionSlot {
    /// Counts the connection for its proven identity: `None` if the limit of the identity is reached and the quota has no probes.
    pub fn identify(mut self, identity: String) -> Option<ConnectionSlot> {
        let admission = Arc::clone(&self.admission);
        let mut open = admission.lock();
        let is_probe = matches!(self.counted_as, Some(CountedAs::Probe(..)));
        // The place of the address may be the one that the identity needs.
        if !is_probe && let Some(counted_as) = self.counted_as.take() {
            open.release(&counted_as);
        }
        let ConnectionCounts { quota, shared, identities, .. } = &mut *open;
        match identities.admit(&identity, quota, quota.per_identity, shared) {
            Some(pool) => {
                if let Some(probe) = self.counted_as.replace(CountedAs::Identity(identity, pool)) {
                    open.release(&probe);
                }
            }
            None if is_probe => {}
            None => self.counted_as = open.admit_probe(),
        }
        drop(open);
        self.counted_as.is_some().then_some(self)
    }

    /// The signal that a newer probe replaces this one. `None` if the connection is not a probe.
    pub fn close_signal(&self) -> Option<Arc<Notify>> {
        match &self.counted_as {
            Some(CountedAs::Probe(_, closed)) => Some(Arc::clone(closed)),
            _ => None,
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if let Some(counted_as) = self.counted_as.take() {
            self.admission.lock().release(&counted_as);
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

    const QUOTA: Quota = Quota { total: 3, reserved: 0, per_address: 2, per_identity: 1, probes: 2 };

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
        assert!(open.addresses.clients.is_empty() && open.identities.clients.is_empty());
        assert_eq!((open.shared, open.probes.len()), (0, 0));
    }

    /// Two identities and an address that use up all shared connections.
    fn crowd(admission: &Arc<Admission>) -> Vec<ConnectionSlot> {
        let mut slots = Vec::new();
        for (client, address) in [("ads", ip("10.0.0.1")), ("search", ip("10.0.0.2"))] {
            slots.extend((0..20).map(|_| {
                let slot = admission.admit(address).unwrap();
                slot.identify(client.to_owned()).unwrap()
            }));
        }
        slots.extend((0..20).map(|_| admission.admit(ip("10.0.0.3")).unwrap()));
        slots
    }

    #[test]
    fn each_identity_and_address_has_reserved_connections() {
        let quota = Quota { total: 16, reserved: 2, per_address: 16, per_identity: 16, probes: 4 };
        let admission = Admission::new(quota);
        let crowd = crowd(&admission);
        assert_eq!(admission.lock().shared, 16);
        // Two reserved ones of each, and those that all share.
        assert_eq!(crowd.iter().filter(|slot| !is_probe(slot)).count(), 2 + 2 + 2 + 16);
        for client in ["operator", "prometheus"] {
            // The address of the crowd has no place any more, so the connection begins as a probe.
            for address in ["10.0.0.3", "10.0.0.4"] {
                let slot = admission.admit(ip(address)).unwrap();
                assert_eq!(is_probe(&slot), address == "10.0.0.3");
                let [first, second, third] = [(); 3]
                    .map(|()| admission.admit(ip(address)).unwrap().identify(client.to_owned()).unwrap());
                assert_eq!([&first, &second, &third].map(is_probe), [false, false, true], "{client}");
            }
        }
        drop(crowd);
        let open = admission.lock();
        assert_eq!(
            (open.shared, open.addresses.reserved, open.identities.reserved, open.probes.len()),
            (0, 0, 0, 0)
        );
    }

    #[test]
    fn reserved_connections_of_all_clients_are_limited() {
        let quota = Quota { total: 4, reserved: 2, per_address: 16, per_identity: 16, probes: 1 };
        let admission = Admission::new(quota);
        let slots: Vec<ConnectionSlot> =
            (0..20).map(|host| admission.admit(ip(&format!("10.0.0.{host}"))).unwrap()).collect();
        assert_eq!(slots.iter().filter(|slot| !is_probe(slot)).count(), 4 + 4);
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
        assert_eq!(admission.lock().shared, 3);
    }
}
