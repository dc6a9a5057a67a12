//! What is done at the interfaces of a host: queues with the weights of the last order, and its applications' packets in them.
//!
//! Queues are compared with what is there, and what differs is changed: an agent that starts anew under the same order changes nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use weir_core::units::Rate;
use weir_proto::Queues;

use super::Shared;
use crate::queues::{Desired, Interface};
use crate::traffic::{Class, Rule, Traffic};

/// How often is looked for cgroups that came again.
const REFRESH: Duration = Duration::from_millis(250);

/// How long to wait before what failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// Applications that are found by themselves.
pub struct Found {
    pub traffic: Traffic,
    /// With the classes that they have where no order has one for them.
    rules: Vec<Rule>,
    looked: Instant,
    /// What failed last, so that it is said once.
    failed: Option<String>,
}

impl Found {
    pub fn new(traffic: Traffic) -> Found {
        let rules = traffic.applications().map(|(rule, _)| rule.clone()).collect();
        Found { traffic, rules, looked: Instant::now(), failed: None }
    }

    /// Follows cgroups that came again.
    pub fn look(&mut self) {
        while self.traffic.event().is_some() {}
        if self.looked.elapsed() >= REFRESH {
            self.looked = Instant::now();
            let failed = self.traffic.refresh().err().map(|error| error.to_string());
            say(&mut self.failed, failed);
        }
    }

    /// Puts applications into the queues of an order.
    fn classify(&mut self, queues: &Queues) -> Result<(), String> {
        for Rule { name, class, .. } in &self.rules {
            let ordered = queues.classes.iter().find(|(known, _)| **known == **name);
            // Orders that have no place for a mark are refused before.
            let ordered = ordered.and_then(|&(_, class)| Class::new(u8::try_from(class).ok()?));
            let class = ordered.or(*class);
            self.traffic.set_class(name, class).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

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
    shared.lock().found.as_mut().map_or(Ok(()), |found| found.classify(&queues))
}

fn reconcile(interface: &Interface, rate: Rate, among: usize, weights: &[f64]) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{interface}: {error}");
    let rate = Rate::new(rate.get() / among as f64).expect("a part of a rate is one");
    let segments = interface.segments().map_err(|error| failed(&error))?;
    let desired = Desired::new(rate, segments, weights, &BTreeMap::new()).map_err(|error| failed(&error))?;
    interface.reconcile(&desired).map(drop).map_err(|error| failed(&error))
}
