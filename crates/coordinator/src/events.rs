//! Defines events of the coordinator, and sends them to clients of the API.

use serde::Serialize;
use tokio::sync::{broadcast, watch};
use utoipa::ToSchema;

/// Type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A coflow was registered.
    CoflowRegistered,
    /// The flows of a coflow were replaced.
    CoflowUpdated,
    /// A coflow was deregistered.
    CoflowDeregistered,
    /// All flows of a coflow have completed.
    CoflowCompleted,
    /// The policy was replaced.
    PolicyChanged,
    /// The weight of a service was set.
    WeightChanged,
    /// The minimum or maximum bandwidth of a service was set.
    BandwidthChanged,
    /// A host, a service or all (`all`) were paused, set to shadow mode, or resumed.
    PauseChanged,
    /// The sensitivity table was replaced.
    TableChanged,
    /// A link of a host, or between switches, has failed, or an operator has taken it down.
    LinkDown,
    /// A link is up again.
    LinkUp,
    /// An application was registered.
    ApplicationRegistered,
    /// An application was deregistered.
    ApplicationDeregistered,
    /// The priority level of an application changed, because other applications were registered or deregistered.
    ApplicationLevelChanged,
    /// A host has joined by a rule of the configuration.
    HostJoined,
    /// An operator has removed a host.
    HostRemoved,
    /// A host or switch has started to send reports.
    HostConnected,
    /// A host or switch has stopped sending reports.
    HostDisconnected,
    /// A relay has connected and sends reports.
    RelayConnected,
    /// A relay has stopped sending reports.
    RelayDisconnected,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Event {
    /// Its type.
    pub event: EventKind,
    /// Id or name of the object.
    pub subject: String,
    /// The service that the object belongs to; absent for hosts, switches, links, relays, the policy and the sensitivity table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
}

impl EventKind {
    /// Whether levels of applications may have changed.
    fn may_change_levels(self) -> bool {
        matches!(
            self,
            EventKind::TableChanged | EventKind::ApplicationLevelChanged | EventKind::ApplicationDeregistered
        )
    }
}

/// Broadcast channel of events. A slow receiver misses the oldest events.
#[derive(Clone)]
pub struct EventChannel {
    events: broadcast::Sender<Event>,
    /// Programs that follow their level wait for this alone: there may be many, and coflows have many more events.
    level_changes: watch::Sender<()>,
}

impl EventChannel {
    /// A channel that keeps at most `max_queued` events for a slow receiver.
    pub fn new(max_queued: usize) -> EventChannel {
        EventChannel { events: broadcast::Sender::new(max_queued), level_changes: watch::Sender::new(()) }
    }

    /// Sends an event to all receivers.
    pub fn send(&self, event: EventKind, subject: &str, service: Option<String>) {
        // Sending fails only without receivers.
        let _ = self.events.send(Event { event, subject: subject.to_owned(), service });
        if event.may_change_levels() {
            self.level_changes.send_replace(());
        }
    }

    /// Receives all events from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    /// Notices, from now on, that levels of applications may have changed.
    pub fn level_changes(&self) -> watch::Receiver<()> {
        self.level_changes.subscribe()
    }
}
