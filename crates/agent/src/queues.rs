//! The queues of an interface: those that it should have against those that it has.
//!
//! [`Desired`] says what there should be, [`Actual`] what the kernel has, and [`changes`] what differs, as lines of `tc`:
//! all three pure. [`Interface`] reads the kernel, has the lines done in one batch, remembers what was there before, and puts
//! that back.
//!
//! Ours are the root queue with the handle 7765:, below it classes and filters with the numbers in [`ids`], and the queues of
//! these classes. Nothing else is changed, but a root queue gives way, and with it all that was below it.

mod actual;
mod change;
mod desired;
mod device;
pub mod ids;
mod interface;

pub use actual::{Actual, Found, Leaf, ParseError, Place, Root};
pub use change::{Change, changes};
pub use desired::{Desired, DesiredError, Filter, Key, Limited, Want};
pub use device::Device;
pub use interface::{Interface, QueueError, Remembered, Replace, cleanup};
