//! Manages the flows of a host: their sockets, pacing rates and bytes sent.
//!
//! A socket here is a duplicate of the program's, which keeps the connection open. The agent closes it when the connection ends, or when
//! the program is done (or has exited) and all its data has been acknowledged.
//!
//! The kernel paces TCP, and reports what the peer has acknowledged. It does neither for UDP: the packets of a UDP flow get a separate
//! class at the interface ([`Flows::limited`]). Their estimated progress is that of the ordered rate, while they have one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use weir_core::units::Rate;
use weir_proto::{FlowKey, FlowProgress, estimate_sent};

use super::socket::{self, Info};
use super::watchdog::Watchdog;
use crate::queues::{Limited, ids};
use crate::report_delta::ReportDelta;

/// The maximum number of open sockets.
pub const MAX_SOCKETS: usize = 4096;

/// The maximum part of a link for all UDP flows: a little less than [`crate::queues::Desired`] accepts.
const LIMITED: f64 = 0.985;

/// Why a socket is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The agent has [`MAX_SOCKETS`] sockets.
    #[error("{MAX_SOCKETS} sockets are there: expected no more")]
    Full,
    /// The flow has a socket already.
    #[error("the flow has a socket already")]
    Taken,
    /// The program has not handed over a socket of the flow.
    #[error("the flow has no socket of this program")]
    Unknown,
    /// The agent has no interface at which it could limit UDP.
    #[error("UDP needs an agent with --interface")]
    Classes,
    /// The socket is not connected, or neither TCP nor UDP over IPv4.
    #[error("expected a socket of TCP, or of UDP over IPv4, that is connected")]
    Socket,
}

/// The transport of a flow.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// `base` is the acknowledged bytes when the socket was handed over; `pacing` is the last pacing rate set, if any.
    Tcp { base: u64, pacing: Option<u64> },
    /// The ends, the number of the class, and the estimated bytes sent over this socket up to the time `by`.
    Udp { ends: (SocketAddrV4, SocketAddrV4), class: u16, reckoned: f64, by: Instant },
}

#[derive(Debug)]
struct Flow {
    /// The number by which the watchdog identifies the socket.
    number: u64,
    owner: u64,
    socket: OwnedFd,
    way: Way,
    /// The rate set on the socket or class.
    rate: Option<u64>,
    /// The bytes that the flow had sent over earlier sockets.
    before: u64,
    sent: u64,
    /// Whether the program will write no more.
    done: bool,
}

/// The flows of a host.
#[derive(Debug, Default)]
pub struct Flows {
    open: BTreeMap<FlowKey, Flow>,
    /// The reported state of open and ended flows.
    pub report_delta: ReportDelta,
    next: u64,
    /// The changes that the watchdog has not received yet, in order.
    pending: VecDeque<Handover>,
}

/// A change that the watchdog has to receive.
#[derive(Debug)]
enum Handover {
    /// The flow of this key and number got a socket.
    Hold(FlowKey, u64),
    /// The socket of this number was closed.
    Release(u64),
}

impl Flow {
    /// Sets a rate, unless it is set already.
    fn pace(&mut self, rate: Option<u64>) {
        if rate == self.rate {
            return;
        }
        match &mut self.way {
            // A socket that refuses a rate has closed; the next measurement finds this.
            Way::Tcp { pacing, .. } => {
                if let Ok(given) = socket::pace(&self.socket, rate) {
                    (self.rate, *pacing) = (rate, Some(given));
                }
            }
            Way::Udp { .. } => {
                self.count(Instant::now());
                self.rate = rate;
            }
        }
    }

    /// Adds the estimated bytes of a UDP flow since the last call. Without a rate there is no estimate.
    fn count(&mut self, now: Instant) {
        let Way::Udp { reckoned, by, .. } = &mut self.way else { return };
        let since = now.saturating_duration_since(std::mem::replace(by, now)).as_secs_f64();
        *reckoned += self.rate.map_or(0.0, |rate| estimate_sent(rate, since));
        self.sent = self.before + *reckoned as u64;
    }

    /// Reads the bytes sent. Returns whether the flow has ended.
    fn measure(&mut self) -> bool {
        let Way::Tcp { base, pacing } = self.way else {
            self.count(Instant::now());
            return self.done;
        };
        let Ok(info) = socket::info(&self.socket) else { return true };
        let Info { acked, drained, shut, gone, max_pacing, .. } = info;
        // Another process raised the rate, such as the watchdog of an earlier agent: it is set again. A program may set a lower rate.
        if self.rate.is_some() && pacing.is_some_and(|pacing| max_pacing > pacing) {
            self.rate = None;
        }
        // The kernel counts the FIN as a byte.
        let sent = self.before + acked.saturating_sub(base).saturating_sub(u64::from(shut));
        self.sent = self.sent.max(sent);
        gone || shut || self.done && drained
    }
}

impl Flows {
    /// Accepts a socket of a flow, and paces it.
    ///
    /// # Errors
    /// Why the socket is refused, and closed. A UDP socket needs `has_classes`.
    pub fn open(
        &mut self,
        key: FlowKey,
        owner: u64,
        socket: OwnedFd,
        rate: Option<u64>,
        has_classes: bool,
    ) -> Result<(), Refusal> {
        if self.open.contains_key(&key) {
            return Err(Refusal::Taken);
        }
        if self.open.len() == MAX_SOCKETS {
            return Err(Refusal::Full);
        }
        let way = match socket::info(&socket) {
            Ok(info) if info.open => Way::Tcp { base: info.acked, pacing: None },
            Ok(_) => return Err(Refusal::Socket),
            Err(_) => {
                let ends = socket::datagrams(&socket).ok_or(Refusal::Socket)?;
                if !has_classes {
                    return Err(Refusal::Classes);
                }
                let class = self.class().ok_or(Refusal::Full)?;
                Way::Udp { ends, class, reckoned: 0.0, by: Instant::now() }
            }
        };
        // A flow that continues over another socket keeps its bytes.
        let before = self.report_delta.open(key.clone());
        let number = self.next;
        self.next += 1;
        let mut flow = Flow { number, owner, socket, way, rate: None, before, sent: before, done: false };
        flow.pace(rate);
        if matches!(way, Way::Tcp { .. }) {
            self.pending.push_back(Handover::Hold(key.clone(), number));
        }
        self.open.insert(key, flow);
        Ok(())
    }

    /// The lowest number of a class that no flow uses.
    fn class(&self) -> Option<u16> {
        let taken: BTreeSet<u16> = self.datagrams().map(|(class, ..)| class).collect();
        (0..ids::MAX_LIMITED).find(|class| !taken.contains(class))
    }

    /// The class, ends and rate of each UDP flow.
    fn datagrams(&self) -> impl Iterator<Item = (u16, (SocketAddrV4, SocketAddrV4), Option<u64>)> {
        self.open.values().filter_map(|flow| match flow.way {
            Way::Udp { ends, class, .. } => Some((class, ends, flow.rate)),
            Way::Tcp { .. } => None,
        })
    }

    /// The classes of UDP flows, on a link of this many bytes per second. If the rates add up to more than a part of the link, all of them
    /// are scaled down.
    pub fn limited(&self, link: f64) -> BTreeMap<u16, Limited> {
        let paced = || self.datagrams().filter_map(|(class, ends, rate)| Some((class, ends, rate? as f64)));
        let sum: f64 = paced().map(|(.., rate)| rate).sum();
        let part = (LIMITED * link / sum).min(1.0);
        let limited = |(class, (from, to), rate): (u16, (SocketAddrV4, SocketAddrV4), f64)| {
            let rate = Rate::new((rate * part).max(1.0)).expect("a whole number times a fraction is a rate");
            (class, Limited { from, to, rate })
        };
        paced().map(limited).collect()
    }

    /// Records that a program will write no more to a flow.
    ///
    /// # Errors
    /// If the program has not handed over a socket of the flow.
    pub fn done(&mut self, key: &FlowKey, owner: u64) -> Result<(), Refusal> {
        let flow = self.open.get_mut(key).filter(|flow| flow.owner == owner).ok_or(Refusal::Unknown)?;
        flow.done = true;
        Ok(())
    }

    /// Records that a program has exited, which ends writes to its flows.
    pub fn leave(&mut self, owner: u64) {
        for flow in self.open.values_mut().filter(|flow| flow.owner == owner) {
            flow.done = true;
        }
    }

    /// Reads the bytes sent of all flows, and closes the sockets of flows that have ended.
    pub fn measure(&mut self) {
        let over = self.open.extract_if(.., |_, flow| flow.measure());
        for (key, mut flow) in over {
            // The program may still use the socket, so the rate is removed.
            flow.pace(None);
            if matches!(flow.way, Way::Tcp { .. }) {
                self.pending.push_back(Handover::Release(flow.number));
            }
            self.report_delta.end(key, flow.sent);
            socket::close(flow.socket);
        }
    }

    /// Sends pending changes to the watchdog, until its socket is full.
    pub fn hand_over(&mut self, watchdog: Option<&mut Watchdog>) {
        // A new watchdog gets all sockets.
        let Some(watchdog) = watchdog.filter(|watchdog| watchdog.is_running()) else {
            self.pending.clear();
            return;
        };
        while let Some(next) = self.pending.front() {
            let taken = match next {
                Handover::Release(number) => watchdog.release(*number),
                Handover::Hold(key, number) => match self.open.get(key).filter(|flow| flow.number == *number)
                {
                    Some(flow) => watchdog.hold(*number, flow.socket.as_fd()),
                    // The flow has ended already.
                    None => true,
                },
            };
            if !taken {
                return;
            }
            self.pending.pop_front();
        }
    }

    /// Queues all sockets for a new watchdog.
    pub fn hand_over_all(&mut self) {
        let sockets = self.open.iter().filter(|(_, flow)| matches!(flow.way, Way::Tcp { .. }));
        self.pending = sockets.map(|(key, flow)| Handover::Hold(key.clone(), flow.number)).collect();
    }

    /// Sets the rates that differ.
    pub fn pace(&mut self, rate: impl Fn(&FlowKey) -> Option<u64>) {
        for (key, flow) in &mut self.open {
            flow.pace(rate(key));
        }
    }

    /// Removes the rates of all sockets.
    pub fn free(&mut self) {
        self.pace(|_| None);
    }

    /// The flows that a report has to contain, sorted by key, at most [`weir_proto::MAX_SEEN`].
    pub fn changes(&mut self, now: Duration) -> Vec<FlowProgress> {
        self.report_delta.changes(self.open.iter().map(|(key, flow)| (key, flow.sent, flow.rate)), now)
    }
}
