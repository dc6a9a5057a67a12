//! The flows of a host: sockets that programs handed over, and flows that are over.
//!
//! A socket here is a duplicate, which keeps its connection open. So it is let go of once its program says that it is done, or is gone,
//! and all that it wrote has arrived; or when the connection ends.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::time::Instant;

use weir_proto::{FlowKey, MOST_SEEN, Seen};

use super::news::Told;
use super::socket::{self, Info};

/// The most sockets at a time.
pub const MOST_SOCKETS: usize = 4096;

/// How many flows that are over are remembered, the last ones.
pub const MOST_OVER: usize = 1 << 14;

/// Why a socket is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There are too many.
    #[error("{MOST_SOCKETS} sockets are there: expected no more")]
    Full,
    /// The flow has a socket.
    #[error("the flow has a socket already")]
    Taken,
    /// Nobody has handed it over.
    #[error("the flow has no socket of this program")]
    Unknown,
    /// Not of TCP, or not connected.
    #[error("expected a TCP socket that is connected")]
    Socket,
}

#[derive(Debug)]
struct Flow {
    owner: u64,
    socket: OwnedFd,
    /// What is on the socket.
    rate: Option<u64>,
    /// What was acknowledged before it came, and what the flow had sent by other sockets.
    base: u64,
    before: u64,
    sent: u64,
    told: Option<Told>,
    /// Whether its program writes no more.
    done: bool,
}

#[derive(Debug)]
struct Over {
    sent: u64,
    told: bool,
    /// Whether the coordinator has said that it knows.
    settled: bool,
}

/// The flows.
#[derive(Debug, Default)]
pub struct Flows {
    open: BTreeMap<FlowKey, Flow>,
    over: BTreeMap<FlowKey, Over>,
    /// Those that are over, in the order in which they ended; some of them may have begun again.
    ended: VecDeque<FlowKey>,
}

impl Flow {
    /// Puts a rate on the socket, if it has another.
    fn pace(&mut self, rate: Option<u64>) {
        // A socket that takes no rate is gone, which is seen when it is asked.
        if rate != self.rate && socket::pace(&self.socket, rate).is_ok() {
            self.rate = rate;
        }
    }

    /// Asks the socket; the answer is whether the flow is over.
    fn measure(&mut self) -> bool {
        let Ok(info) = socket::info(&self.socket) else { return true };
        let Info { acked, drained, shut, gone, .. } = info;
        // The mark of the last packet counts as a byte.
        let sent = self.before + acked.saturating_sub(self.base).saturating_sub(u64::from(shut));
        self.sent = self.sent.max(sent);
        gone || shut || self.done && drained
    }
}

impl Flows {
    /// Takes a socket of a flow, and paces it.
    ///
    /// # Errors
    /// Why it is not taken; then it is closed.
    pub fn open(
        &mut self,
        key: FlowKey,
        owner: u64,
        socket: OwnedFd,
        rate: Option<u64>,
    ) -> Result<(), Refusal> {
        if self.open.contains_key(&key) {
            return Err(Refusal::Taken);
        }
        if self.open.len() == MOST_SOCKETS {
            return Err(Refusal::Full);
        }
        let info = socket::info(&socket).ok().filter(|info| info.open).ok_or(Refusal::Socket)?;
        // A flow that goes on over another socket has sent what it has.
        let before = self.over.remove(&key).map_or(0, |over| over.sent);
        let mut flow = Flow {
            owner,
            socket,
            rate: None,
            base: info.acked,
            before,
            sent: before,
            told: None,
            done: false,
        };
        flow.pace(rate);
        self.open.insert(key, flow);
        Ok(())
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
            self.ended.push_back(key.clone());
            self.over.insert(key, Over { sent: flow.sent, told: false, settled: false });
        }
        while self.ended.len() > MOST_OVER {
            let Some(key) = self.ended.pop_front() else { break };
            // One that ended again since then is in the list again.
            if !self.ended.contains(&key) {
                self.over.remove(&key);
            }
        }
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
    pub fn changes(&mut self, now: Instant) -> Vec<Seen> {
        let mut seen = Vec::new();
        for (key, flow) in &mut self.open {
            let is = Told::new(flow.sent, flow.rate, now);
            if seen.len() < MOST_SEEN && flow.told.is_none_or(|told| told.is_old(&is)) {
                flow.told = Some(is);
                seen.push(Seen { key: key.clone(), sent: flow.sent, closed: false });
            }
        }
        for (key, over) in &mut self.over {
            if seen.len() < MOST_SEEN && !over.told {
                over.told = true;
                seen.push(Seen { key: key.clone(), sent: over.sent, closed: true });
            }
        }
        seen.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        seen
    }

    /// Nothing was told to whoever listens now.
    pub fn tell_anew(&mut self) {
        self.over.values_mut().for_each(|over| (over.told, over.settled) = (false, false));
        self.tell_unsettled();
    }

    /// What the coordinator has not said it knows is told again.
    pub fn tell_unsettled(&mut self) {
        self.open.values_mut().for_each(|flow| flow.told = None);
        self.over.values_mut().filter(|over| !over.settled).for_each(|over| over.told = false);
    }

    /// The coordinator knows that a flow is over.
    pub fn settle(&mut self, key: &FlowKey) {
        if let Some(over) = self.over.get_mut(key) {
            over.settled = true;
        }
    }
}
