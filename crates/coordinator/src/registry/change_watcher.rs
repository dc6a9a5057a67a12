//! Handles changes without a request: completed coflows, ended programs, connected and disconnected agents and relays, observed
//! connections.

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

pub(super) async fn watch_changes(registry: &Registry, mut stop: watch::Receiver<bool>) {
    let mut clock = interval(CHECK_INTERVAL);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut was_present = vec![false; registry.agent_names().count()];
    let mut relays_were_present =
        vec![false; registry.overlay().map_or(0, |handle| handle.config().relays.len())];
    let mut stored_completed = BTreeSet::new();
    // The API accepts connections from now on.
    registry.begin_leases().await;
    let mut measurements_stored_at = Instant::now();
    loop {
        let is_stopped = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => true,
            _ = clock.tick() => false,
        };
        if is_stopped {
            return registry.store_measurements().await;
        }
        if handle_changes(registry, &mut was_present, &mut stored_completed).await.is_err() {
            return;
        }
        registry.apply_overlay_changes().await;
        if measurements_stored_at.elapsed() >= MEASUREMENTS_INTERVAL {
            registry.store_measurements().await;
            measurements_stored_at = Instant::now();
        }
        handle_relay_presence(registry, &mut relays_were_present);
    }
}

fn handle_relay_presence(registry: &Registry, were_present: &mut [bool]) {
    let Some(handle) = registry.overlay() else { return };
    let states = handle.call(|overlay, now| overlay.relay_statuses(now));
    for ((was, state), relay) in were_present.iter_mut().zip(states).zip(&handle.config().relays) {
        if *was != state.present {
            *was = state.present;
            let event = if state.present { EventKind::RelayConnected } else { EventKind::RelayDisconnected };
            info!(relay = relay.name, present = state.present, "presence of a relay changed");
            registry.events.send(event, &relay.name, None);
        }
    }
}

/// Removes completed coflows from the store. `remaining` are those that could not be removed: they would be active again after a
/// restart.
async fn remove_completed(registry: &Registry, remaining: &mut BTreeSet<Arc<str>>) -> Result<(), Stopped> {
    while registry.check_writable().is_ok()
        && let Some(id) = remaining.pop_first()
    {
        let _id_lock = registry.lock_id(&id).await;
        // The coflow may have been updated or registered again since its completion.
        if let Some((_, Phase::Active)) = registry.phase_at_hosts(&id).await? {
            continue;
        }
        if let Err(error) = registry.store.remove(Table::Coflows, &id).await {
            warn!(coflow = &*id, %error, "completed coflow cannot be removed from the store yet");
            remaining.insert(id);
            break;
        }
    }
    Ok(())
}

async fn handle_changes(
    registry: &Registry,
    was_present: &mut [bool],
    stored_completed: &mut BTreeSet<Arc<str>>,
) -> Result<(), Stopped> {
    remove_completed(registry, stored_completed).await?;
    for id in registry.handle().call(|plane, _| plane.take_completed()).await? {
        let _id_lock = registry.lock_id(&id).await;
        // The coflow may have been updated or registered again since its completion.
        let Some((service, Phase::Completed)) = registry.phase_at_hosts(&id).await? else {
            continue;
        };
        if let Err(error) = registry.store.remove(Table::Coflows, &id).await {
            warn!(coflow = &*id, %error, "completed coflow cannot be removed from the store yet");
            stored_completed.insert(Arc::clone(&id));
        }
        registry.events.send(EventKind::CoflowCompleted, &id, Some(service));
    }
    registry.apply_observed_changes().await?;
    registry.close_abandoned_connections().await?;
    let states = registry.handle().call(|plane, _| plane.host_statuses()).await?;
    for ((was, state), name) in was_present.iter_mut().zip(states).zip(registry.agent_names()) {
        if *was != state.present {
            *was = state.present;
            let event = if state.present { EventKind::HostConnected } else { EventKind::HostDisconnected };
            info!(host = name, present = state.present, "presence of a host or switch changed");
            registry.events.send(event, name, None);
        }
    }
    Ok(())
}
