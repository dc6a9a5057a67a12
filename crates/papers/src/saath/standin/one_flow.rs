//! Aalo and Saath whose senders send one flow at a time, each with the whole port.
//!
//! That the simulator of the Saath paper had it so is a guess. What speaks for it is the public simulator of a later system of the same
//! line (github.com/coflowPhilae/simulator), in which a flow has the whole of its two ports or nothing, and every sender one that is "currently
//! allocated"; its declarations still name an order by all-or-none. An Aalo and a Saath of its kind are not public, and in which order senders
//! send is not known.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;
use weir_core::model::{CoflowSpec, FlowSpec};

mod aalo;
mod saath;

pub use aalo::aalo;
pub use saath::{Switches, saath};

const QUEUES: i32 = 10;

/// In which order a sender sends the flows of a coflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Every sender in one of its own, which is drawn.
    Any,
    /// By port of the receiver, every sender from one on that is drawn.
    Ring,
    /// By port of the receiver, all senders alike.
    Alike,
}

/// A flow that has not ended.
struct Flow {
    dst: usize,
    bytes: f64,
    left: f64,
}

/// What of a coflow is left at a sender. The last flow is the first to be sent.
struct Part {
    /// Its coflow, as a rank by arrival.
    coflow: usize,
    src: usize,
    flows: Vec<Flow>,
}

/// The flows of a coflow that have bytes, by sender and in the order in which it sends them.
fn parts(coflow: &CoflowSpec, rank: usize, order: Order, random: &mut ChaCha8Rng) -> Vec<Part> {
    let mut some: Vec<&FlowSpec> = coflow.flows.iter().filter(|flow| flow.bytes.get() > 0.0).collect();
    some.sort_by_key(|flow| (flow.src, flow.dst));
    let mut of_sender = |flows: &mut [&FlowSpec]| {
        match order {
            Order::Any => flows.sort_by_cached_key(|_| random.next_u64()),
            Order::Ring => flows.rotate_left(random.next_u32() as usize % flows.len()),
            Order::Alike => {}
        }
        let last_first = flows.iter().rev().map(|flow| {
            let bytes = flow.bytes.get();
            Flow { dst: flow.dst as usize, bytes, left: bytes }
        });
        Part { coflow: rank, src: flows[0].src as usize, flows: last_first.collect() }
    };
    some.chunk_by_mut(|a, b| a.src == b.src).map(&mut of_sender).collect()
}

/// What a coflow may have sent in a queue before it leaves it; `start` is that of the first of ten, and each next is ten times as high.
fn limit(queue: i32, start: f64) -> f64 {
    if queue + 1 < QUEUES { start * 10f64.powi(queue) } else { f64::INFINITY }
}
