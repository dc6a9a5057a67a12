//! What is done at the interfaces of a host: queues with the weights of the last order, and its applications' packets in them.
//!
//! Queues are compared with what is there, and what differs is changed: an agent that starts anew under the same order changes nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use weir_core::units::Rate;
use weir_proto::Queues;

use super::Shared;
use crate::queues::{Desired, Interface};

/// How long to wait before what failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// Says what failed, if that is something else than before.
fn say(last: &mut Option<String>, failed: Option<String>) {
    if let Some(why) = failed.as_ref().filter(|_| *last != failed) {
        eprintln!("weir agent: {why}");
    }
    *last = failed;
}

/// Puts the queues that are ordered on the interfaces, which share `rate`, for ever.
pub async fn keep(
    shared: &Shared,
    interfaces: &[Interface],
    rate: Rate,
    mut ordered: watch::Receiver<Option<Queues>>,
) {
    let mut last = None;
    while ordered.changed().await.is_ok() {
        loop {
            let Some(queues) = ordered.borrow_and_update().clone() else { break };
            let failed = shape(shared, interfaces, rate, queues).await.err();
            let done = failed.is_none();
            say(&mut last, failed);
            // Other queues are tried at once.
            if done || timeout(AGAIN, ordered.changed()).await.is_ok_and(|changed| changed.is_err()) {
                break;
            }
        }
    }
}

/// The queues first: packets of a class that is not there would wait with those that have none.
async fn shape(shared: &Shared, interfaces: &[Interface], rate: Rate, queues: Queues) -> Result<(), String> {
    let all = interfaces.to_vec();
    let weights = queues.weights.clone();
    let done =
        spawn_blocking(move || all.iter().try_for_each(|one| reconcile(one, rate, all.len(), &weights)));
    // It does not panic, and nobody ends it.
    done.await.map_err(|error| error.to_string())??;
    shared.lock().applications.as_mut().map_or(Ok(()), |known| known.classify(&queues))
}

fn reconcile(interface: &Interface, rate: Rate, among: usize, weights: &[f64]) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{interface}: {error}");
    let rate = Rate::new(rate.get() / among as f64).expect("a part of a rate is one");
    let segments = interface.segments().map_err(|error| failed(&error))?;
    let desired = Desired::new(rate, segments, weights, &BTreeMap::new()).map_err(|error| failed(&error))?;
    interface.reconcile(&desired).map(drop).map_err(|error| failed(&error))
}
