//! Changes that no request makes: completed coflows, connected and disconnected hosts, observed connections.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use super::Registry;
use crate::events::What;
use crate::master::Stopped;
use crate::store::Room;

/// Time between two checks.
const EVERY: Duration = Duration::from_millis(250);

pub(super) async fn watch(registry: &Registry, mut stop: watch::Receiver<bool>) {
    let mut clock = interval(EVERY);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut present = vec![false; registry.attendants().count()];
    loop {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            _ = clock.tick() => {}
        }
        if look(registry, &mut present).await.is_err() {
            return;
        }
    }
}

async fn look(registry: &Registry, present: &mut [bool]) -> Result<(), Stopped> {
    for id in registry.handle().endings().await? {
        let _alone = registry.alone(&id).await;
        // The coflow may have been updated or registered again in the meantime.
        let Some((service, true)) = registry.handle().belongs(id.to_string()).await? else { continue };
        if let Err(error) = registry.store.remove(Room::Coflows, &id).await {
            warn!(coflow = &*id, %error, "over, but still in the store");
        }
        registry.events.tell(What::CoflowCompleted, &id, Some(service));
    }
    registry.take_found().await?;
    let states = registry.handle().host_states().await?;
    for ((was, state), name) in present.iter_mut().zip(states).zip(registry.attendants()) {
        if *was != state.present {
            *was = state.present;
            let event = if state.present { What::HostConnected } else { What::HostDisconnected };
            info!(host = name, present = state.present, "a host or switch came or went");
            registry.events.tell(event, name, None);
        }
    }
    Ok(())
}
