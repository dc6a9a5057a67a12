//! Applies the coordinator's orders on a host or switch, and reports the bytes that its flows have sent. The agent makes no
//! scheduling decisions, except that receivers decide which flows send if the coordinator runs Django.
//!
//! - [`htb`] computes the parameters of HTB classes: rates, bursts, quanta and buffers.
//! - [`queues`] compares the queues of an interface with the desired ones, applies the differences, and restores the previous
//!   root queueing discipline.
//! - [`lease`] keeps the coordinator's orders: it accepts or refuses them, and ends them with their lease.
//! - [`matching`] decides which flows to this host send, if receivers do.
//! - [`report_delta`] selects the flows of a host that a report has to contain, and decides whether a report is due.
//! - [`live`] runs the agent: it applies orders to sockets that programs hand over, and to interfaces.
//! - [`traffic`] observes, marks and paces the connections of unmodified programs.
//! - [`ecn`] sets ECN marks at the testbed's ports, as a switch for DCTCP does.
//! - [`namespace`] identifies the network namespace of a thread.
//! - [`conntrack`] finds the hosts at the other ends of connections whose addresses the kernel replaces (NAT).
//! - [`netlink`] reads netlink messages, and requests lists and single objects.
//! - [`notifications`] receives rtnetlink notifications about changed interfaces and queues.
//! - [`tunnels`] finds the UDP ports of tunnels, whose packets are not limited.
//! - [`batch`] runs `ip` and `tc` with a batch of lines.
//!
//! This crate works on Linux only.

#![cfg(target_os = "linux")]

pub mod batch;
pub mod conntrack;
pub mod ecn;
pub mod htb;
pub mod lease;
pub mod live;
pub mod matching;
pub mod namespace;
pub mod netlink;
pub mod notifications;
pub mod queues;
pub mod report_delta;
pub mod traffic;
pub mod tunnels;
