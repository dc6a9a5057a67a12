//! What happens, for whoever listens.

use serde::Serialize;
use tokio::sync::broadcast;
use utoipa::ToSchema;

/// What can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// A coflow was registered.
    CoflowRegistered,
    /// A coflow got other flows.
    CoflowUpdated,
    /// A coflow was deregistered.
    CoflowDeregistered,
    /// All flows of a coflow are over.
    CoflowCompleted,
    /// Another policy decides.
    PolicyChanged,
    /// A service has another weight.
    WeightChanged,
    /// There is another sensitivity table.
    TableChanged,
    /// An application was registered.
    ApplicationRegistered,
    /// An application was deregistered.
    ApplicationDeregistered,
    /// An application has another priority level, since others came or went.
    ApplicationLevelChanged,
    /// A host is heard of.
    HostConnected,
    /// A host is not heard of any more.
    HostDisconnected,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Event {
    /// What.
    pub event: What,
    /// To what, by its id or name.
    pub subject: String,
    /// The service that it belongs to, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
}

/// Where events are told. Who listens too slowly misses the oldest.
#[derive(Clone)]
pub struct Events(broadcast::Sender<Event>);

impl Events {
    /// With room for so many that somebody has not yet heard.
    pub fn new(most: usize) -> Events {
        Events(broadcast::Sender::new(most))
    }

    /// Tells who listens.
    pub fn tell(&self, event: What, subject: &str, service: Option<String>) {
        // It is no error if nobody does.
        let _ = self.0.send(Event { event, subject: subject.to_owned(), service });
    }

    /// All from now on.
    pub fn listen(&self) -> broadcast::Receiver<Event> {
        self.0.subscribe()
    }
}
