//! Agents of many hosts in one process, to measure what a coordinator carries. They speak as agents do, over the same streams; sockets they
//! have none, and what they report is made up.
//!
//! Every host has a flow of each of [`STEADY`] coflows, all of which get further in every report, and one of each of [`ENDING`] coflows,
//! which end one after another. With the end of a flow its host's order has to change, so there is an answer to wait for.

use std::ops::Range;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tonic::transport::Endpoint;
use weir_core::units::Rate;
use weir_proto::{FlowKey, Report, Seen};

use super::link::{self, Event};
use super::{ALONE, clock};
use crate::lease::Keeper;

/// How many coflows do not end.
pub const STEADY: u32 = 40;

/// How many coflows end.
pub const ENDING: u32 = 32;

/// How far a flow gets from one report to the next, in bytes.
const STEP: u64 = 100_000;

/// How long after the beginning the first flow of a host ends, and how long after one the next.
const WARM: Duration = Duration::from_secs(2);
const APART: Duration = Duration::from_millis(250);

/// How long all of it takes: the last flows have a second to be answered.
pub const TIME: Duration =
    WARM.saturating_add(APART.saturating_mul(ENDING)).saturating_add(Duration::from_secs(1));

/// The ids of the coflows that have to be registered. Flow N of each is sent by host N.
pub fn coflows() -> impl Iterator<Item = String> {
    let steady = (0..STEADY).map(|number| format!("steady-{number:02}"));
    steady.chain((0..ENDING).map(ending))
}

fn ending(number: u32) -> String {
    format!("ending-{number:02}")
}

/// Attends for hosts with links of such a rate for [`TIME`]. The answer is how long each order that had to change came after the report that
/// it answers was given to the stream, from the shortest; one that never came counts until the end.
pub async fn attend(coordinator: Endpoint, hosts: Range<u32>, rate: Rate) -> Vec<Duration> {
    let mut all = JoinSet::new();
    for host in hosts {
        all.spawn(one(coordinator.clone(), host, rate));
    }
    let mut waits = all.join_all().await.concat();
    waits.sort_unstable();
    waits
}

async fn one(coordinator: Endpoint, host: u32, rate: Rate) -> Vec<Duration> {
    let (said, events) = mpsc::channel(16);
    tokio::select! {
        () = link::keep(coordinator, host, said, |_| {}) => Vec::new(),
        waits = speak(host, rate, events) => waits,
    }
}

async fn speak(host: u32, rate: Rate, mut events: mpsc::Receiver<Event>) -> Vec<Duration> {
    let mut keeper = Keeper::new(vec![rate]);
    let mut clock = clock(ALONE);
    let (mut up, mut turn) = (None, ALONE);
    let (mut sent, mut ended, mut waits) = (0, 0, Vec::new());
    let mut asked: Option<(FlowKey, Instant)> = None;
    // Hosts do not all wait at the same time.
    let first = WARM + APART * (host % ENDING) / ENDING;
    let began = Instant::now();
    loop {
        tokio::select! {
            biased;
            event = events.recv() => match event {
                Some(Event::Begun { every, up: reports }) => {
                    clock = super::clock(every);
                    (up, turn) = (Some(reports), link::turn(host, every));
                }
                Some(Event::Order(order)) => {
                    // What is over, an order that names everything leaves out.
                    let named = |key: &FlowKey| order.flows.binary_search_by(|flow| flow.0.cmp(key)).is_ok();
                    if let Some((_, since)) = asked.take_if(|(key, _)| order.whole || named(key)) {
                        waits.push(since.elapsed());
                    }
                    // Who refuses it says so by the next report.
                    let _ = keeper.accept(order, began.elapsed());
                    clock.reset_after(turn);
                }
                Some(Event::Ended) => up = None,
                None => return waits,
            },
            _ = clock.tick() => {
                if began.elapsed() > TIME {
                    waits.extend(asked.map(|(_, since)| since.elapsed()));
                    return waits;
                }
                let Some(Ok(place)) = up.as_ref().map(mpsc::Sender::try_reserve) else { continue };
                sent += STEP;
                let seen = |id: String, closed| {
                    Seen { key: FlowKey { coflow: id.into(), flow: host }, sent, closed }
                };
                let mut flows: Vec<Seen> = Vec::new();
                if asked.is_none() && ended < ENDING && began.elapsed() > first + APART * ended {
                    let over = seen(ending(ended), true);
                    asked = Some((over.key.clone(), Instant::now()));
                    flows.push(over);
                    ended += 1;
                }
                flows.extend(coflows().take(STEADY as usize).map(|id| seen(id, false)));
                place.send(Report { obeys: keeper.obeys(), flows, found: Vec::new() });
            }
        }
    }
}
