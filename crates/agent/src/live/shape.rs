//! What is done at the interfaces of a host or switch: queues with the weights of the last order, and a host's applications' packets in
//! them.
//!
//! Queues are compared with what is there, and what differs is changed: an agent that starts anew under the same order changes nothing.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{sleep_until, timeout};
use weir_core::units::Rate;
use weir_proto::Queues;

use super::{Link, Shared, Wanted};
use crate::queues::{Desired, Interface, Limited};

/// How long to wait before what failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// How long from one change to the next where flows of UDP have rates.
const PAUSE: Duration = Duration::from_millis(100);

/// Says what failed, if that is something else than before.
fn say(last: &mut Option<String>, failed: Option<String>) {
    if let Some(why) = failed.as_ref().filter(|_| *last != failed) {
        super::say(why);
    }
    *last = failed;
}

/// Puts what is wanted on the links' interfaces, for ever; or prints how.
pub async fn keep(shared: &Shared, links: &[Link], dry_run: bool, mut ordered: watch::Receiver<Wanted>) {
    let mut last = None;
    let mut done = BTreeMap::new();
    while ordered.changed().await.is_ok() {
        loop {
            let began = Instant::now();
            let wanted = ordered.borrow_and_update().clone();
            let is_limited = !wanted.limited.is_empty();
            let failed = shape(shared, links, dry_run, wanted, &mut done).await.err();
            let is_done = failed.is_none();
            say(&mut last, failed);
            if is_done && is_limited {
                // Rates of UDP are others at each schedule, and each time takes some processes.
                sleep_until((began + PAUSE).into()).await;
            }
            // What is wanted meanwhile is tried at once.
            if is_done || timeout(AGAIN, ordered.changed()).await.is_ok_and(|changed| changed.is_err()) {
                break;
            }
        }
    }
}

/// What a link has: its queues, if some were ordered, and the classes of flows of UDP.
type Has = (Option<Queues>, BTreeMap<u16, Limited>);

/// Does what is not done yet. The queues first: packets of a class that is not there would wait with those that have none.
async fn shape(
    shared: &Shared,
    links: &[Link],
    dry_run: bool,
    mut wanted: Wanted,
    done: &mut BTreeMap<u32, Has>,
) -> Result<(), String> {
    for (number, link) in (0u32..).zip(links) {
        // Only a host has flows, and it has one link.
        let has = (wanted.queues.remove(&number), std::mem::take(&mut wanted.limited));
        let is_there = done.get(&number).map_or(has == Has::default(), |last| *last == has);
        if is_there {
            continue;
        }
        // Half of it may be done when it fails.
        done.remove(&number);
        let (link, ordered) = (link.clone(), has.clone());
        let reconciled = spawn_blocking(move || {
            link.interfaces.iter().try_for_each(|one| reconcile(one, &link, &ordered, dry_run))
        });
        // It does not panic, and nobody ends it.
        reconciled.await.map_err(|error| error.to_string())??;
        if let Some(queues) = &has.0 {
            shared.lock().applications.as_mut().map_or(Ok(()), |known| known.classify(queues))?;
        }
        done.insert(number, has);
    }
    Ok(())
}

fn reconcile(
    interface: &Interface,
    link: &Link,
    (queues, limited): &Has,
    dry_run: bool,
) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{interface}: {error}");
    let among = link.interfaces.len() as f64;
    let part = |rate: Rate| {
        Rate::new(rate.get() / among).expect("a rate divided by one or more interfaces is a rate")
    };
    let segments = interface.segments().map_err(|error| failed(&error))?;
    // Without queues all others have one.
    let (weights, queue_of) = queues.as_ref().map_or((&[1.0][..], &[0][..]), |q| (&q.weights, &q.queue_of));
    // A flow is at one of the interfaces, and nobody knows at which.
    let limited = limited.iter().map(|(&class, flow)| (class, Limited { rate: part(flow.rate), ..*flow }));
    let desired = Desired::new(part(link.rate), segments, weights, &limited.collect())
        .and_then(|desired| desired.with_classes(queue_of))
        .map_err(|error| failed(&error))?;
    if dry_run {
        let commands = interface.commands(&desired).map_err(|error| failed(&error))?;
        return io::stdout().write_all(commands.as_bytes()).map_err(|error| error.to_string());
    }
    interface.reconcile(&desired).map(drop).map_err(|error| failed(&error))
}
