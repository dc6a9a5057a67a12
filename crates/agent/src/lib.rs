//! Carries out on a host what was decided elsewhere, and decides nothing itself.
//!
//! - [`htb`] has the numbers of a link: rates, bursts, turns and buffers of its classes.
//! - [`queues`] compares the queues that an interface should have with those that it has, changes what differs, and puts back
//!   what was there before.
//! - [`lease`] keeps orders of a coordinator: which are believed, and which are in force at a time.
//! - [`report_delta`] is the other way: what of a host's flows is worth a report.
//! - [`live`] is the agent as it runs: orders from a coordinator, put on sockets that programs hand over.
//! - [`traffic`] finds the traffic of applications, marks it, follows its connections and paces them.
//! - [`congestion`] marks packets as a switch for DCTCP does, for the testbed's.
//! - [`notifications`] of the kernel say which interfaces and queues changed.
//! - [`batch`] feeds lines to `ip` and `tc`.
//!
//! Everything here is on Linux only.

#![cfg(target_os = "linux")]

pub mod batch;
pub mod congestion;
pub mod htb;
pub mod lease;
pub mod live;
pub mod notifications;
pub mod queues;
pub mod report_delta;
pub mod traffic;
