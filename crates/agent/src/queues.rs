//! Compares the queues of an interface with the desired ones, and applies the differences.
//!
//! [`DesiredQueues`] is the desired state, [`ActualQueues`] is the state that the kernel reports, and [`changes`] returns the
//! differences as lines for `tc`. All three are pure. [`Interface`] reads the kernel, applies the lines in one batch, and records
//! and restores the previous root.
//!
//! The agent's objects are the root queueing discipline with the handle 7765:, the classes and filters below it with the numbers
//! in [`ids`], and the queues of these classes. The agent changes no other objects, but it replaces the root queueing discipline
//! and, with it, everything below.

mod actual_queues;
mod change;
mod counters;
mod desired_queues;
mod device;
mod error;
pub mod ids;
mod interface;
mod interface_lock;
mod interface_queues;
mod records;

pub use actual_queues::{
    ActualClass, ActualQueues, Fifo, FilterHandle, LeafQueue, Mq, ParseError, RootQdisc,
};
pub use change::{Change, changes};
pub use counters::ClassCounters;
pub use desired_queues::{DesiredClass, DesiredError, DesiredQueues, Filter, LimitedFlow, Shares, U32Match};
pub use device::Device;
pub use error::QueueError;
pub use interface::Interface;
pub use interface_lock::InterfaceLock;
pub use interface_queues::{PreviousRoot, ReplaceableRoots, cleanup, cleanup_unused};
