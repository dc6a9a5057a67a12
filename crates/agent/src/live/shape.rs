//! What is done at the interfaces of a host or switch: queues with the weights of the last order, and a host's applications' packets in
//! them.
//!
//! Queues are compared with what is there, and what differs is changed: an agent that starts anew under the same order changes nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use weir_core::units::Rate;
use weir_proto::Queues;

use super::{Link, Shared};
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

/// Puts the queues that are ordered on the links' interfaces, for ever.
pub async fn keep(shared: &Shared, links: &[Link], mut ordered: watch::Receiver<BTreeMap<u32, Queues>>) {
    let mut last = None;
    let mut done = BTreeMap::new();
    while ordered.changed().await.is_ok() {
        loop {
            let queues = ordered.borrow_and_update().clone();
            let failed = shape(shared, links, queues, &mut done).await.err();
            let is_done = failed.is_none();
            say(&mut last, failed);
            // Other queues are tried at once.
            if is_done || timeout(AGAIN, ordered.changed()).await.is_ok_and(|changed| changed.is_err()) {
                break;
            }
        }
    }
}

/// Does what is not done yet. The queues first: packets of a class that is not there would wait with those that have none.
async fn shape(
    shared: &Shared,
    links: &[Link],
    queues: BTreeMap<u32, Queues>,
    done: &mut BTreeMap<u32, Queues>,
) -> Result<(), String> {
    for (number, queues) in queues {
        if done.get(&number) == Some(&queues) {
            continue;
        }
        // Half of it may be done when it fails.
        done.remove(&number);
        // Orders about links that are not there were refused.
        let (link, ordered) = (links[number as usize].clone(), queues.clone());
        let reconciled = spawn_blocking(move || {
            link.interfaces.iter().try_for_each(|one| reconcile(one, &link, &ordered))
        });
        // It does not panic, and nobody ends it.
        reconciled.await.map_err(|error| error.to_string())??;
        shared.lock().applications.as_mut().map_or(Ok(()), |known| known.classify(&queues))?;
        done.insert(number, queues);
    }
    Ok(())
}

fn reconcile(interface: &Interface, link: &Link, queues: &Queues) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{interface}: {error}");
    let rate = Rate::new(link.rate.get() / link.interfaces.len() as f64).expect("a part of a rate is one");
    let segments = interface.segments().map_err(|error| failed(&error))?;
    let desired = Desired::new(rate, segments, &queues.weights, &BTreeMap::new())
        .and_then(|desired| desired.with_classes(&queues.queue_of))
        .map_err(|error| failed(&error))?;
    interface.reconcile(&desired).map(drop).map_err(|error| failed(&error))
}
