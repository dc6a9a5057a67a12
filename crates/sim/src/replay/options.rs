//! How to replay a workload, and on what.

use std::sync::Arc;

use weir_core::model::{Goodput, Trunks};
use weir_core::units::{Rate, Time};

/// How to replay.
#[derive(Debug, Clone)]
pub struct Options {
    /// What each port sends and receives, unless [`Behind::Trunks`] says it.
    pub port_rate: Rate,
    /// The scheduling interval δ: schedules are computed at its multiples only, and what ends between two leaves its
    /// ports idle until the next. An event of the workload (a port that changes, a flow that starts anew or loses its
    /// data) does not wait for it, and gets a schedule of its own. Zero: a schedule whenever something happens.
    pub interval: Time,
    /// Whether to keep the end of every flow.
    pub keep_flows: bool,
    /// What is short besides ports, if anything is. Policies do not know.
    pub behind: Option<Behind>,
}

/// What is short besides ports.
#[derive(Debug, Clone)]
pub enum Behind {
    /// Receiving ports to which many flows send.
    Goodput(Arc<Goodput>),
    /// Links between switches. The workload's port 0 is the first host of their topology, and ports carry what hosts' cables do.
    Trunks(Arc<Trunks>),
}

impl Options {
    /// What rounding may put between two things that happen at once, in seconds: a millionth of the interval, but no more than
    /// 10 ns, so that what comes early by that has sent next to nothing.
    pub(super) fn slack(&self) -> f64 {
        (self.interval.get() * 1e-6).min(1e-8)
    }
}

impl Default for Options {
    /// 1 Gbit/s ports and 8 ms, as in the Saath paper.
    fn default() -> Options {
        Options {
            port_rate: Rate::GBIT,
            interval: Time::new(8e-3).expect("8 ms is a valid time"),
            keep_flows: false,
            behind: None,
        }
    }
}
