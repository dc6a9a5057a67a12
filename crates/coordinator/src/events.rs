//! Defines events of the coordinator, and sends them to clients of the API.

use serde::Serialize;
use tokio::sync::broadcast;
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
    /// The sensitivity table was replaced.
    TableChanged,
    /// An application was registered.
    ApplicationRegistered,
    /// An application was deregistered.
    ApplicationDeregistered,
    /// The priority level of an application changed, because other applications were registered or deregistered.
    ApplicationLevelChanged,
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
    /// The service that the object belongs to; absent for hosts, switches, relays, the policy and the sensitivity table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
}

/// Broadcast channel of events. A slow receiver misses the oldest events.
#[derive(Clone)]
pub struct EventChannel(broadcast::Sender<Event>);

impl EventChannel {
    /// A channel that keeps at most `max_queued` events for a slow receiver.
    pub fn new(max_queued: usize) -> EventChannel {
        EventChannel(broadcast::Sender::new(max_queued))
    }

    /// Sends an event to all receivers.
    pub fn send(&self, event: EventKind, subject: &str, service: Option<String>) {
        // Sending fails only without receivers.
        let _ = self.0.send(Event { event, subject: subject.to_owned(), service });
    }

    /// Receives all events from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.0.subscribe()
    }
}
