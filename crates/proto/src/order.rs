//! What hosts are told, and what they tell.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use crate::{Conflict, FRAME, MAX_CLASSES, MAX_ID_LENGTH, PAYLOAD, Refusals, Restored};

/// A flow: its coflow's id, and its place in the registration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// The coflow.
    pub coflow: Arc<str>,
    /// The place.
    pub flow: u32,
}

/// What a host is to do with a flow that it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// At most so many bytes of packets with their headers per second; above zero.
    Rate(u64),
    /// As fast as the transport goes.
    Free,
    /// Nothing any more: the flow is over, or somebody else's.
    Gone,
}

/// What a flow at a rate sends in such a time, in seconds, without the headers of full packets.
pub fn estimate_sent(rate: u64, time: f64) -> f64 {
    rate as f64 * time * f64::from(PAYLOAD) / f64::from(FRAME)
}

/// What one host or switch is to do.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Order {
    /// Which coordinator decided: of two, the one with the higher number is right.
    pub epoch: u64,
    /// Which of its decisions this is; rises by one from an order to a host to the next.
    pub seq: u64,
    /// How long it holds without another. After that flows go as the transport lets them.
    pub lease: Duration,
    /// Whether flows that are not named are gone; otherwise they go on as they were told before.
    pub whole: bool,
    /// In order of keys, each once.
    pub flows: Vec<(FlowKey, Pace)>,
    /// Queues of interfaces, for those whose queues change, in order; interfaces are numbered as the host has them.
    pub queues: Vec<(u32, Queues)>,
    /// What arrives elsewhere of what the host sends, as it was measured there since the order before; in order of ways, each once.
    pub arrivals: Vec<Arrival>,
    /// What connections that the host found may send, of those where it changes; in order of applications and addresses, each once.
    pub limits: Vec<Limit>,
}

/// The queues of an interface, and who uses which.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Queues {
    /// The weight of each, finite and above zero.
    pub weights: Vec<f64>,
    /// The queue of each class, from 0. Classes are numbered from 1, which is the mark (DSCP) of their packets everywhere.
    pub queue_of: Vec<u32>,
    /// The class of each application that has one, by the application's name, in order. Names are ids as those of coflows are.
    pub classes: Vec<(Arc<str>, u32)>,
    /// Whether the weights are what somebody was promised, and so hold without a coordinator too. Others end some time after the last order.
    pub guaranteed: bool,
}

/// What connections that a host found may send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// Of which application.
    pub application: Arc<str>,
    /// The other host's address.
    pub peer: IpAddr,
    /// All of them together.
    pub pace: Pace,
}

/// What connections ask for, before anybody limits them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Demand {
    /// Nobody has measured it.
    #[default]
    Unknown,
    /// So many bytes of packets with their headers per second.
    Rate(u64),
    /// As much as they can have.
    All,
}

/// What a host saw of flows that it sends.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// The last order that it carries out: epoch and number. Zeros before the first.
    pub obeys: (u64, u64),
    /// What it says of its flows: those that are over, or have sent something else than [`estimate_sent`] has it since they were last named, in
    /// order of keys, each once.
    pub flows: Vec<FlowProgress>,
    /// What it found of connections that programs have by themselves, where something changed, in order of applications and addresses, each
    /// once.
    pub found: Vec<Found>,
    /// What arrived of UDP since the last report of it, in order of ways, each once. Said only to a coordinator that asks for it.
    pub arrivals: Vec<Arrival>,
    /// The orders that it refused since it began.
    pub refusals: Refusals,
    /// The kernel objects that the agent restored since it started.
    pub restored: Restored,
    /// The interfaces that differ from the agent's orders now: at most [`MAX_CONFLICTS`].
    ///
    /// [`MAX_CONFLICTS`]: crate::MAX_CONFLICTS
    pub conflicts: Vec<Conflict>,
}

/// The mark (DSCP) of a class: 1 to [`MAX_CLASSES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark(u8);

impl Mark {
    /// The mark with this number, if there is one.
    pub const fn new(mark: u8) -> Option<Mark> {
        if mark >= 1 && mark as usize <= MAX_CLASSES { Some(Mark(mark)) } else { None }
    }

    /// Its number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// Packets of UDP from one address to another, of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Way {
    /// Who sends them.
    pub from: Ipv4Addr,
    /// Who gets them.
    pub to: Ipv4Addr,
    /// Their class.
    pub mark: Mark,
}

/// What arrives of a way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Of which.
    pub way: Way,
    /// Bytes of packets with their headers per second.
    pub rate: u64,
}

/// The connections of an application of a host with another host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The application's name.
    pub application: Arc<str>,
    /// The other host's address.
    pub peer: IpAddr,
    /// How many there are; 0 once there has been none for a while.
    pub open: u32,
    /// All bytes that this host has sent by them, also by those that are over.
    pub sent: u64,
    /// What they will ask for next. Said only to a coordinator that asks for it.
    pub demand: Demand,
}

/// What a host saw of one flow.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowProgress {
    /// Which.
    pub key: FlowKey,
    /// All bytes that it has sent.
    pub sent: u64,
    /// Whether that was all.
    pub closed: bool,
}

/// Whether a text can be a coflow's id: 1 to [`MAX_ID_LENGTH`] printable ASCII characters without spaces.
pub fn is_id(text: &str) -> bool {
    (1..=MAX_ID_LENGTH).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_graphic())
}
