//! The flows of a host: sockets that programs handed over, and flows that are over.
//!
//! A socket here is a duplicate, which keeps its connection open. So it is let go of once its program says that it is done, or is gone,
//! and all that it wrote has arrived; or when the connection ends.
//!
//! TCP is paced by the kernel and says what has arrived. UDP is not and does not: its packets have a class of their own at the interface
//! ([`Flows::limited`]), and they count as sent at the rate that they were told, as far as that is known.

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

/// The most sockets at a time.
pub const MAX_SOCKETS: usize = 4096;

/// What flows of UDP have of a link together at most: a little less than the kernel takes ([`crate::queues::Desired`]).
const LIMITED: f64 = 0.985;

/// Why a socket is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There are too many.
    #[error("{MAX_SOCKETS} sockets are there: expected no more")]
    Full,
    /// The flow has a socket.
    #[error("the flow has a socket already")]
    Taken,
    /// Nobody has handed it over.
    #[error("the flow has no socket of this program")]
    Unknown,
    /// There is no interface to limit UDP at.
    #[error("UDP needs an agent with --interface")]
    Classes,
    /// Not of TCP or UDP, or not connected.
    #[error("expected a socket of TCP, or of UDP over IPv4, that is connected")]
    Socket,
}

/// How a flow is sent.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// With what was acknowledged before it came, and the pacing rate that the kernel was given last, if it was given one.
    Tcp { base: u64, pacing: Option<u64> },
    /// With its ends, the number of its class, and what it has sent by this socket, as far as that is reckoned, by a time.
    Udp { ends: (SocketAddrV4, SocketAddrV4), class: u16, reckoned: f64, by: Instant },
}

#[derive(Debug)]
struct Flow {
    /// A number of its own, by which the watchdog knows its socket.
    number: u64,
    owner: u64,
    socket: OwnedFd,
    way: Way,
    /// What is on the socket, or on its class.
    rate: Option<u64>,
    /// What the flow had sent by other sockets.
    before: u64,
    sent: u64,
    /// Whether its program writes no more.
    done: bool,
}

/// The flows.
#[derive(Debug, Default)]
pub struct Flows {
    open: BTreeMap<FlowKey, Flow>,
    /// What the coordinator was told of these, and of those that are over.
    pub report_delta: ReportDelta,
    next: u64,
    /// What the watchdog is still to be given or to close, in order.
    pending: VecDeque<Handover>,
}

/// A change that the watchdog has to be told of.
#[derive(Debug)]
enum Handover {
    /// A flow of this number has a socket.
    Hold(FlowKey, u64),
    /// It is gone.
    Release(u64),
}

impl Flow {
    /// Puts a rate on the socket, if it has another.
    fn pace(&mut self, rate: Option<u64>) {
        if rate == self.rate {
            return;
        }
        match &mut self.way {
            // A socket that takes no rate is gone, which is seen when it is asked.
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

    /// Counts what a flow of UDP has sent at its rate; of one without nobody knows.
    fn count(&mut self, now: Instant) {
        let Way::Udp { reckoned, by, .. } = &mut self.way else { return };
        let since = now.saturating_duration_since(std::mem::replace(by, now)).as_secs_f64();
        *reckoned += self.rate.map_or(0.0, |rate| estimate_sent(rate, since));
        self.sent = self.before + *reckoned as u64;
    }

    /// Asks the socket; the answer is whether the flow is over.
    fn measure(&mut self) -> bool {
        let Way::Tcp { base, pacing } = self.way else {
            self.count(Instant::now());
            return self.done;
        };
        let Ok(info) = socket::info(&self.socket) else { return true };
        let Info { acked, drained, shut, gone, max_pacing, .. } = info;
        // Another process raised the rate, as a former agent's watchdog does: it is set again. A program may lower its own.
        if self.rate.is_some() && pacing.is_some_and(|pacing| max_pacing > pacing) {
            self.rate = None;
        }
        // The mark of the last packet counts as a byte.
        let sent = self.before + acked.saturating_sub(base).saturating_sub(u64::from(shut));
        self.sent = self.sent.max(sent);
        gone || shut || self.done && drained
    }
}

impl Flows {
    /// Takes a socket of a flow, and paces it.
    ///
    /// # Errors
    /// Why it is not taken; then it is closed. One of UDP is taken only where it can have a class.
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
        // A flow that goes on over another socket has sent what it has.
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

    /// The number of a class that no flow has.
    fn class(&self) -> Option<u16> {
        let taken: BTreeSet<u16> = self.datagrams().map(|(class, ..)| class).collect();
        (0..ids::MAX_LIMITED).find(|class| !taken.contains(class))
    }

    /// Flows of UDP, each by its class: its ends and its rate.
    fn datagrams(&self) -> impl Iterator<Item = (u16, (SocketAddrV4, SocketAddrV4), Option<u64>)> {
        self.open.values().filter_map(|flow| match flow.way {
            Way::Udp { ends, class, .. } => Some((class, ends, flow.rate)),
            Way::Tcp { .. } => None,
        })
    }

    /// The classes that flows of UDP have to have, on a link that carries so many bytes per second: together they leave a part of it.
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

    /// A program writes no more to a flow.
    ///
    /// # Errors
    /// If the flow is none of its own.
    pub fn done(&mut self, key: &FlowKey, owner: u64) -> Result<(), Refusal> {
        let flow = self.open.get_mut(key).filter(|flow| flow.owner == owner).ok_or(Refusal::Unknown)?;
        flow.done = true;
        Ok(())
    }

    /// A program is gone, and writes no more to any of its flows.
    pub fn leave(&mut self, owner: u64) {
        for flow in self.open.values_mut().filter(|flow| flow.owner == owner) {
            flow.done = true;
        }
    }

    /// Reads what all have sent, and lets go of those that are over.
    pub fn measure(&mut self) {
        let over = self.open.extract_if(.., |_, flow| flow.measure());
        for (key, mut flow) in over {
            // The program may still have it.
            flow.pace(None);
            if matches!(flow.way, Way::Tcp { .. }) {
                self.pending.push_back(Handover::Release(flow.number));
            }
            self.report_delta.end(key, flow.sent);
            socket::close(flow.socket);
        }
    }

    /// Tells the watchdog which sockets came and went, as far as it takes them now.
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
                    // It is over already.
                    None => true,
                },
            };
            if !taken {
                return;
            }
            self.pending.pop_front();
        }
    }

    /// A new watchdog has no sockets.
    pub fn hand_over_all(&mut self) {
        let sockets = self.open.iter().filter(|(_, flow)| matches!(flow.way, Way::Tcp { .. }));
        self.pending = sockets.map(|(key, flow)| Handover::Hold(key.clone(), flow.number)).collect();
    }

    /// Puts rates on the sockets that differ.
    pub fn pace(&mut self, rate: impl Fn(&FlowKey) -> Option<u64>) {
        for (key, flow) in &mut self.open {
            flow.pace(rate(key));
        }
    }

    /// Frees all sockets.
    pub fn free(&mut self) {
        self.pace(|_| None);
    }

    /// What is otherwise than was told, in order; as much as fits into a report.
    pub fn changes(&mut self, now: Duration) -> Vec<FlowProgress> {
        self.report_delta.changes(self.open.iter().map(|(key, flow)| (key, flow.sent, flow.rate)), now)
    }
}
