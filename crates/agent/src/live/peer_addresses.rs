//! Finds the addresses of the hosts at the other ends of connections, also of those to the address of a service ([`crate::conntrack`]).
//!
//! Another thread asks the kernel, once for each connection: the answer is late while another process removes many of its entries. Until
//! then, the connection does not count. After [`TIMEOUT`], it counts with the remote address of its socket.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use crate::conntrack;
use crate::traffic::ConnectionEnds;

/// How long connections wait for the kernel's answer.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum number of connections in a lookup.
const MAX_BATCH: usize = 4096;

/// The maximum number of connections that wait for a lookup. Others have the remote addresses of their sockets.
const MAX_WANTED: usize = 1 << 16;

/// Connections by the numbers (cookies) of their sockets.
type Lookup = Vec<(u64, ConnectionEnds)>;

/// Connections, and the addresses of the other hosts in the same order.
type Answer = (Lookup, io::Result<Vec<IpAddr>>);

/// The other host of a connection.
#[derive(Debug)]
struct Peer {
    address: IpAddr,
    /// Whether the address is known, or the kernel did not answer in time.
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
}

/// The other hosts of connections.
#[derive(Debug, Default)]
pub struct PeerAddresses {
    /// By the number (cookie) of the socket.
    peers: HashMap<u64, Peer>,
    /// The connections of the next lookups.
    wanted: Lookup,
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
    /// connections have the remote addresses of their sockets.
    pub fn update(&mut self, now: Instant) {
        self.read_answer();
        let busy_since = self.thread.as_ref().and_then(|thread| thread.busy_since);
        if busy_since.is_some_and(|since| now.saturating_duration_since(since) >= TIMEOUT) {
            // A late answer corrects the addresses.
            self.peers.values_mut().for_each(|peer| peer.is_found = true);
        }
        if busy_since.is_some() || self.wanted.is_empty() {
            return;
        }
        if self.thread.is_none() {
            match start_thread() {
                Ok(thread) => self.thread = Some(thread),
                Err(error) => self.give_up(&error),
            }
        }
        if let Some(thread) = &mut self.thread {
            let batch = self.wanted.drain(..self.wanted.len().min(MAX_BATCH)).collect();
            // The next call finds the end of a thread.
            thread.busy_since = thread.lookups.send(batch).is_ok().then_some(now);
        }
    }

    fn read_answer(&mut self) {
        let Some(thread) = &mut self.thread else { return };
        let (lookup, result) = match thread.answers.try_recv() {
            Ok(answer) => answer,
            Err(TryRecvError::Empty) => return,
            Err(TryRecvError::Disconnected) => {
                self.thread = None;
                return self.give_up(&io::Error::other("the thread has ended"));
            }
        };
        thread.busy_since = None;
        let addresses = result.unwrap_or_else(|error| {
            self.log_new(&error);
            lookup.iter().map(|(_, ends)| ends.remote.ip()).collect()
        });
        for ((socket, _), address) in lookup.iter().zip(addresses) {
            if let Some(peer) = self.peers.get_mut(socket) {
                (peer.address, peer.is_found) = (address, true);
            }
        }
    }

    /// Lets all connections have the remote addresses of their sockets.
    fn give_up(&mut self, error: &io::Error) {
        self.log_new(error);
        self.wanted.clear();
        self.peers.values_mut().for_each(|peer| peer.is_found = true);
    }

    fn log_new(&mut self, error: &io::Error) {
        let text = error.to_string();
        if self.last_error.as_ref() != Some(&text) {
            tracing::warn!("connections to addresses of services count at the sender's link only: {text}");
            self.last_error = Some(text);
        }
    }

    /// Forgets the connections that were not needed since the call before the last one.
    pub fn forget_unused(&mut self) {
        let round = self.round;
        self.peers.retain(|_, peer| peer.used_at + 1 >= round);
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
    Ok(Thread { lookups, answers, busy_since: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(port: u16) -> ConnectionEnds {
        ConnectionEnds { local: ([10, 0, 0, 1], port).into(), remote: ([10, 96, 0, 1], 80).into() }
    }

    const SERVICE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 96, 0, 1));

    /// Peers whose kernel is the test: the lookups that it receives, and where it sends answers.
    fn simulated() -> (PeerAddresses, Receiver<Lookup>, Sender<Answer>) {
        let (lookups, requests) = channel();
        let (results, answers) = channel();
        let thread = Some(Thread { lookups, answers, busy_since: None });
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
        let host: IpAddr = [10, 0, 0, 2].into();
        results.send((lookup, Ok(vec![host]))).unwrap();
        peers.update(now);
        assert_eq!((peers.find(1, &ends(1)), peers.find(2, &ends(2))), (Some(host), None));
        results.send((requests.try_recv().unwrap(), Err(io::Error::other("refused")))).unwrap();
        peers.update(now);
        assert_eq!(peers.find(2, &ends(2)), Some(SERVICE));
        // A connection that has closed is forgotten.
        (0..3).for_each(|_| {
            peers.forget_unused();
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
        let host: IpAddr = [10, 0, 0, 2].into();
        results.send((requests.try_recv().unwrap(), Ok(vec![host]))).unwrap();
        peers.update(now + 2 * TIMEOUT);
        assert_eq!(peers.find(1, &ends(1)), Some(host));
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
