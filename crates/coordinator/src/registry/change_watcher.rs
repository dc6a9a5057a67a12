//! Handles changes without a request: completed coflows, ended programs, links that fail, connected and disconnected agents and relays,
//! observed connections.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use super::Registry;
use crate::coflow_status::Phase;
use crate::control_thread::Stopped;
use crate::events::EventKind;
use crate::store::Table;

/// Time between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Time between two writes of measured bandwidths between regions and addresses of relays. A killed coordinator loses those since the last
/// write.
const MEASUREMENTS_INTERVAL: Duration = Duration::from_secs(60);

pub(super) async fn watch_changes(registry: &Registry, stop: watch::Receiver<bool>) {
    tokio::select! {
        () = check_changes(registry, stop) => {}
        // Fails if the coordinator has stopped.
        Err(_) = registry.apply_path_changes() => {}
    }
}

async fn check_changes(registry: &Registry, mut stop: watch::Receiver<bool>) {
    let mut clock = interval(CHECK_INTERVAL);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut was_present = Vec::new();
    let mut relays_were_present =
        vec![false; registry.overlay().map_or(0, |handle| handle.config().relays.len())];
    let mut remaining = Remaining::new();
    // The API accepts connections from now on.
    registry.begin_leases().await;
    if let Err(error) = registry.remove_unused_first_flows().await {
        warn!(%error, "unused records are removed at the next start");
    }
    let mut measurements_stored_at = Instant::now();
    loop {
        let is_stopped = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => true,
            _ = clock.tick() => false,
        };
        if is_stopped {
            return;
        }
        if handle_changes(registry, &mut was_present, &mut remaining).await.is_err() {
            return;
        }
        registry.apply_overlay_changes(&mut remaining).await;
        if measurements_stored_at.elapsed() >= MEASUREMENTS_INTERVAL {
            registry.store_measurements().await;
            measurements_stored_at = Instant::now();
        }
        note_relay_presence(registry, &mut relays_were_present);
    }
}

fn note_relay_presence(registry: &Registry, were_present: &mut [bool]) {
    let Some(handle) = registry.overlay() else { return };
    let presences = handle.call(|overlay, _| overlay.presences());
    for ((was, present), relay) in were_present.iter_mut().zip(presences).zip(&handle.config().relays) {
        if *was != present {
            *was = present;
            let event = if present { EventKind::RelayConnected } else { EventKind::RelayDisconnected };
            info!(relay = relay.name, present, "presence of a relay changed");
            registry.events.send(event, &relay.name, None);
        }
    }
}

/// Completed coflows that could not be removed from the store: they would be active again after a restart.
pub(super) type Remaining = BTreeSet<(Table, Arc<str>)>;

/// Removes completed coflows from the store that could not be removed before.
pub(super) async fn remove_completed(registry: &Registry, remaining: &mut Remaining) -> Result<(), Stopped> {
    while registry.check_writable().is_ok()
        && let Some((table, id)) = remaining.pop_first()
    {
        let _id_lock = registry.lock_id(&id).await;
        let state = match table {
            Table::OverlayCoflows => registry.phase_between_regions(&id),
            _ => registry.phase_at_hosts(&id).await?,
        };
        // The coflow may have been updated or registered again since its completion.
        if let Some((_, Phase::Active)) = state {
            continue;
        }
        if !remove_record(registry, (table, Arc::clone(&id)), remaining).await {
            break;
        }
    }
    Ok(())
}

/// Removes a completed coflow from the store. Returns whether it is removed; if not, it is in `remaining`. The caller has locked the id.
pub(super) async fn remove_record(
    registry: &Registry,
    (table, id): (Table, Arc<str>),
    remaining: &mut Remaining,
) -> bool {
    let removed = registry.store.remove(table, &id).await;
    if let Err(error) = &removed {
        warn!(coflow = &*id, %error, "completed coflow cannot be removed from the store yet");
        remaining.insert((table, id));
    }
    removed.is_ok()
}

/// Removes a completed coflow from the store, and sends its event. The caller has locked the id.
pub(super) async fn note_completion(
    registry: &Registry,
    (table, id): (Table, Arc<str>),
    service: String,
    remaining: &mut Remaining,
) {
    remove_record(registry, (table, Arc::clone(&id)), remaining).await;
    registry.events.send(EventKind::CoflowCompleted, &id, Some(service));
}

pub(super) async fn handle_changes(
    registry: &Registry,
    was_present: &mut Vec<bool>,
    remaining: &mut Remaining,
) -> Result<(), Stopped> {
    remove_completed(registry, remaining).await?;
    for id in registry.handle().call(|plane, _| plane.take_completed()).await? {
        let _id_lock = registry.lock_id(&id).await;
        let record = (Table::Coflows, Arc::clone(&id));
        match registry.phase_at_hosts(&id).await? {
            // The coflow has been updated or registered again since its completion.
            Some((_, Phase::Active)) => {}
            Some((service, _)) => note_completion(registry, record, service, remaining).await,
            // It has expired, or its owner has deregistered it.
            None => {
                remove_record(registry, record, remaining).await;
            }
        }
    }
    registry.apply_link_reports().await?;
    registry.apply_observed_changes().await?;
    registry.close_abandoned_connections().await?;
    registry.free_unused_slots().await?;
    let states = registry.handle().call(|plane, _| plane.host_statuses()).await?;
    was_present.resize(states.len(), false);
    for ((number, was), state) in (0u32..).zip(was_present).zip(states) {
        if *was != state.present {
            *was = state.present;
            let name = &*registry.agent_name(number);
            let event = if state.present { EventKind::HostConnected } else { EventKind::HostDisconnected };
            info!(host = name, present = state.present, "presence of a host or switch changed");
            registry.events.send(event, name, None);
        }
    }
    Ok(())
}
