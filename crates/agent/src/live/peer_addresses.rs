//! Finds the addresses of the hosts at the other ends of connections, also of those to the address of a service ([`crate::conntrack`]).
//!
//! Another thread asks the kernel, once for each connection: the answer is late while another process removes many of its entries. Until
//! then, the connection does not count. After [`TIMEOUT`] or an error, it has the remote address of its socket until a later answer.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use super::lookup_retries::Retries;
use crate::conntrack::{self, FoundPeers};
use crate::traffic::ConnectionEnds;

/// How long connections wait for the kernel's answer.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum number of connections in a lookup.
pub const MAX_BATCH: usize = 4096;

/// The maximum number of connections that wait for a lookup. Others have the remote addresses of their sockets.
pub const MAX_WANTED: usize = 1 << 16;

/// Connections by the numbers (cookies) of their sockets.
pub type Lookup = Vec<(u64, ConnectionEnds)>;

/// Connections, and the addresses of the other hosts in the same order.
type Answer = (Lookup, FoundPeers);

/// The other host of a connection.
#[derive(Debug)]
struct Peer {
    address: IpAddr,
    /// Whether the address is known, or the kernel did not answer in time or refused.
    is_found: bool,
    /// The number of calls of [`PeerAddresses::forget_unused`] before it was last needed.
    used_at: u64,
}

/// A thread that asks the kernel.
#[derive(Debug)]
struct Thread {
    lookups: Sender<Lookup>,
    answers: Receiver<Answer>,
    /// When it received the lookup that it has not answered.
    busy_since: Option<Instant>,
    /// Whether connections of that lookup had no answer before.
    is_retry: bool,
}

/// The other hosts of connections.
#[derive(Debug, Default)]
pub struct PeerAddresses {
    /// By the number (cookie) of the socket.
    peers: HashMap<u64, Peer>,
    /// The connections of the next lookups.
    wanted: Lookup,
    /// Those whose lookup failed.
    retries: Retries,
    thread: Option<Thread>,
    round: u64,
    /// The last error, which is logged once.
    last_error: Option<String>,
}

impl PeerAddresses {
    /// The address of the other host of a connection; none until it is known.
    pub fn find(&mut self, socket: u64, ends: &ConnectionEnds) -> Option<IpAddr> {
        let remote = ends.remote.ip();
        if remote.is_loopback() || remote == ends.local.ip() {
            return Some(remote);
        }
        let round = self.round;
        let peer = self.peers.entry(socket).or_insert_with(|| {
            let is_wanted = self.wanted.len() < MAX_WANTED;
            if is_wanted {
                self.wanted.push((socket, *ends));
            }
            Peer { address: remote, is_found: !is_wanted, used_at: round }
        });
        peer.used_at = round;
        peer.is_found.then_some(peer.address)
    }

    /// Reads the kernel's answers, and asks for further addresses, in the network namespace of the calling thread. If the kernel refuses,
    /// connections have the remote addresses of their sockets, and wait for another lookup.
    pub fn update(&mut self, now: Instant) {
        self.read_answer(now);
        let busy_since = self.thread.as_ref().and_then(|thread| thread.busy_since);
        if busy_since.is_some_and(|since| now.saturating_duration_since(since) >= TIMEOUT) {
            // A late answer corrects the addresses.
            self.peers.values_mut().for_each(|peer| peer.is_found = true);
        }
        if busy_since.is_some() || self.wanted.is_empty() && !self.retries.is_due(now) {
            return;
        }
        if self.thread.is_none() {
            match start_thread() {
                Ok(thread) => self.thread = Some(thread),
                Err(error) => self.give_up(&error, now),
            }
        }
        if let Some(thread) = &mut self.thread {
            thread.is_retry = self.retries.is_due(now);
            let batch = if thread.is_retry {
                self.retries.take_batch()
            } else {
                self.wanted.drain(..self.wanted.len().min(MAX_BATCH)).collect()
            };
            // The next call finds the end of a thread.
            thread.busy_since = thread.lookups.send(batch).is_ok().then_some(now);
        }
    }

    fn read_answer(&mut self, now: Instant) {
        let Some(thread) = &mut self.thread else { return };
        let (lookup, found) = match thread.answers.try_recv() {
            Ok(answer) => answer,
            Err(TryRecvError::Empty) => return,
            Err(TryRecvError::Disconnected) => {
                self.thread = None;
                return self.give_up(&io::Error::other("the thread has ended"), now);
            }
        };
        thread.busy_since = None;
        if thread.is_retry {
            self.retries.record_result(found.addresses.iter().any(Option::is_some), now);
        }
        if let Some(error) = found.error {
            self.log_new(&error);
        }
        let mut unanswered = Vec::new();
        for (connection, address) in lookup.into_iter().zip(found.addresses) {
            // A connection that has closed needs no address.
            let Some(peer) = self.peers.get_mut(&connection.0) else { continue };
            peer.is_found = true;
            match address {
                Some(address) => peer.address = address,
                None => unanswered.push(connection),
            }
        }
        // A lookup stops at the first batch that fails, so connections behind it go first.
        self.retries.add(unanswered.into_iter().rev(), now);
    }

    /// Lets all connections have the remote addresses of their sockets until another lookup.
    fn give_up(&mut self, error: &io::Error, now: Instant) {
        self.log_new(error);
        self.retries.record_result(false, now);
        self.retries.add(self.wanted.drain(..), now);
        self.peers.values_mut().for_each(|peer| peer.is_found = true);
    }

    fn log_new(&mut self, error: &io::Error) {
        let text = error.to_string();
        if self.last_error.as_ref() != Some(&text) {
            tracing::warn!("connections to addresses of services count at the sender's link only: {text}");
            self.last_error = Some(text);
        }
    }

    /// Forgets the connections that were not needed since the call before the last one, except the sockets of `waiting`: their events
    /// wait behind that of another connection, and need the address then.
    pub fn forget_unused(&mut self, waiting: impl IntoIterator<Item = u64>) {
        let round = self.round;
        for socket in waiting {
            if let Some(peer) = self.peers.get_mut(&socket) {
                peer.used_at = round;
            }
        }
        self.peers.retain(|_, peer| peer.used_at + 1 >= round);
        self.retries.retain(|socket| self.peers.contains_key(&socket));
        self.round += 1;
    }
}

fn start_thread() -> io::Result<Thread> {
    let (lookups, requests) = channel::<Lookup>();
    let (results, answers) = channel();
    Builder::new().name("weir-peers".to_owned()).spawn(move || {
        for lookup in requests {
            let ends: Vec<ConnectionEnds> = lookup.iter().map(|(_, ends)| *ends).collect();
            if results.send((lookup, conntrack::find_peers(&ends))).is_err() {
                return;
            }
        }
    })?;
    Ok(Thread { lookups, answers, busy_since: None, is_retry: false })
}

#[cfg(test)]
mod tests {
    use super::super::lookup_retries::MIN_RETRY_DELAY;
    use super::*;

    fn ends(port: u16) -> ConnectionEnds {
        ConnectionEnds { local: ([10, 0, 0, 1], port).into(), remote: ([10, 96, 0, 1], 80).into() }
    }

    const SERVICE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 96, 0, 1));
    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    /// The addresses of connections 1 to 4.
    fn find_all(peers: &mut PeerAddresses) -> [Option<IpAddr>; 4] {
        [1, 2, 3, 4].map(|port| peers.find(port.into(), &ends(port)))
    }

    fn found(addresses: &[Option<IpAddr>]) -> FoundPeers {
        let has_all = addresses.iter().all(Option::is_some);
        let error = (!has_all).then(|| io::Error::other("refused"));
        FoundPeers { addresses: addresses.to_vec(), error }
    }

    /// Peers whose kernel is the test: the lookups that it receives, and where it sends answers.
    fn simulated() -> (PeerAddresses, Receiver<Lookup>, Sender<Answer>) {
        let (lookups, requests) = channel();
        let (results, answers) = channel();
        let thread = Some(Thread { lookups, answers, busy_since: None, is_retry: false });
        (PeerAddresses { thread, ..PeerAddresses::default() }, requests, results)
    }

    #[test]
    fn connection_waits_for_the_address_of_its_host() {
        let ((mut peers, requests, results), now) = (simulated(), Instant::now());
        assert_eq!(peers.find(1, &ends(1)), None);
        peers.update(now);
        assert_eq!(peers.find(2, &ends(2)), None);
        peers.update(now);
        // The second lookup waits for the answer to the first.
        let lookup = requests.try_recv().unwrap();
        assert_eq!((lookup.len(), requests.try_recv().is_err()), (1, true));
        results.send((lookup, found(&[Some(HOST)]))).unwrap();
        peers.update(now);
        assert_eq!((peers.find(1, &ends(1)), peers.find(2, &ends(2))), (Some(HOST), None));
        results.send((requests.try_recv().unwrap(), found(&[None]))).unwrap();
        peers.update(now);
        assert_eq!(peers.find(2, &ends(2)), Some(SERVICE));
        // A connection that has closed is forgotten.
        (0..3).for_each(|_| {
            peers.forget_unused([]);
            peers.find(1, &ends(1));
        });
        assert_eq!(peers.peers.keys().collect::<Vec<_>>(), [&1]);
        // Connections inside of the host need no lookup.
        let local = ConnectionEnds { remote: ([127, 0, 0, 1], 80).into(), ..ends(3) };
        assert_eq!(peers.find(3, &local), Some([127, 0, 0, 1].into()));
    }

    #[test]
    fn late_answer_corrects_the_address_of_the_socket() {
        let ((mut peers, requests, results), now) = (simulated(), Instant::now());
        peers.find(1, &ends(1));
        peers.update(now);
        peers.update(now + TIMEOUT / 2);
        assert_eq!(peers.find(1, &ends(1)), None);
        peers.update(now + TIMEOUT);
        assert_eq!(peers.find(1, &ends(1)), Some(SERVICE));
        results.send((requests.try_recv().unwrap(), found(&[Some(HOST)]))).unwrap();
        peers.update(now + 2 * TIMEOUT);
        assert_eq!(peers.find(1, &ends(1)), Some(HOST));
    }

    #[test]
    fn events_that_wait_keep_their_lookups() {
        let ((mut peers, requests, results), now) = (simulated(), Instant::now());
        find_all(&mut peers);
        peers.update(now);
        // Counts during a slow lookup need only the first event's address. Connections 3 and 4 have no events.
        for _ in 0..5 {
            assert_eq!(peers.find(1, &ends(1)), None);
            peers.forget_unused([1, 2]);
        }
        results.send((requests.try_recv().unwrap(), found(&[Some(HOST); 4]))).unwrap();
        peers.update(now);
        assert_eq!(find_all(&mut peers), [Some(HOST), Some(HOST), None, None]);
    }

    #[test]
    fn connections_without_an_answer_are_looked_up_again() {
        let ((mut peers, requests, results), now) = (simulated(), Instant::now());
        find_all(&mut peers);
        peers.update(now);
        results.send((requests.try_recv().unwrap(), found(&[Some(HOST), None, None, None]))).unwrap();
        peers.update(now);
        assert_eq!(find_all(&mut peers), [Some(HOST), Some(SERVICE), Some(SERVICE), Some(SERVICE)]);
        assert!(requests.try_recv().is_err());
        // A connection that closes meanwhile needs no address.
        (0..3).for_each(|_| peers.forget_unused([1, 2, 3]));
        let later = now + MIN_RETRY_DELAY;
        peers.update(later);
        let lookup = requests.try_recv().unwrap();
        assert_eq!(lookup, [(3, ends(3)), (2, ends(2))]);
        results.send((lookup, found(&[Some(HOST); 2]))).unwrap();
        peers.update(later);
        assert_eq!(find_all(&mut peers)[1..3], [Some(HOST); 2]);
        assert!(requests.try_recv().is_err());
    }

    #[test]
    fn connections_do_not_wait_for_a_thread_that_has_ended() {
        let ((mut peers, requests, results), now) = (simulated(), Instant::now());
        drop((requests, results));
        peers.find(1, &ends(1));
        peers.update(now);
        assert_eq!(peers.find(1, &ends(1)), Some(SERVICE));
    }
}
