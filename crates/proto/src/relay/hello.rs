//! Defines the first messages of a stream: the hello of a relay and the welcome of a coordinator.

use std::time::Duration;

use super::{MAX_RELAY_VERSION, MIN_RELAY_VERSION, parse_number, wire};
use crate::encoding::to_micros_rounding_up;
use crate::{MessageError, is_id};

/// The first message of a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayHello {
    /// The name of the relay in the coordinator's configuration; an id ([`is_id`]).
    pub name: String,
    /// The lowest version of the protocol that the relay can speak.
    pub min_version: u32,
    /// The highest version of the protocol that the relay can speak.
    pub max_version: u32,
}

impl RelayHello {
    /// The hello of a relay of this version of Weir.
    pub fn new(name: &str) -> RelayHello {
        RelayHello { name: name.to_owned(), min_version: MIN_RELAY_VERSION, max_version: MAX_RELAY_VERSION }
    }

    /// The highest version that this version of Weir and the sender of the hello can speak. `None` if they share no version.
    pub fn common_version(&self) -> Option<u32> {
        let highest = self.max_version.min(MAX_RELAY_VERSION);
        (highest >= self.min_version.max(MIN_RELAY_VERSION)).then_some(highest)
    }
}

/// The first message of a coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayWelcome {
    /// The number of the relay.
    pub id: u16,
    /// The time between two reports; above 0.
    pub report_interval: Duration,
    /// The version of the protocol that both use from now on.
    pub version: u32,
}

impl From<&RelayHello> for wire::RelayMessage {
    fn from(hello: &RelayHello) -> wire::RelayMessage {
        let RelayHello { name, min_version, max_version } = hello.clone();
        let hello = wire::RelayHello { name, min_version, max_version };
        wire::RelayMessage { body: Some(wire::relay_message::Body::Hello(hello)) }
    }
}

impl TryFrom<wire::RelayHello> for RelayHello {
    type Error = MessageError;

    fn try_from(hello: wire::RelayHello) -> Result<RelayHello, MessageError> {
        let wire::RelayHello { name, min_version, max_version } = hello;
        if !is_id(&name) {
            return Err(MessageError::Id);
        }
        Ok(RelayHello { name, min_version, max_version })
    }
}

impl From<&RelayWelcome> for wire::ControllerMessage {
    fn from(welcome: &RelayWelcome) -> wire::ControllerMessage {
        let RelayWelcome { id, report_interval, version } = *welcome;
        let report_interval_us = to_micros_rounding_up(report_interval);
        let welcome = wire::RelayWelcome { id: id.into(), report_interval_us, version };
        wire::ControllerMessage { body: Some(wire::controller_message::Body::Welcome(welcome)) }
    }
}

impl TryFrom<wire::RelayWelcome> for RelayWelcome {
    type Error = MessageError;

    fn try_from(welcome: wire::RelayWelcome) -> Result<RelayWelcome, MessageError> {
        if welcome.report_interval_us == 0 {
            return Err(MessageError::Invalid { field: "report interval", expected: "a time above 0" });
        }
        if !(MIN_RELAY_VERSION..=MAX_RELAY_VERSION).contains(&welcome.version) {
            return Err(MessageError::Invalid { field: "version", expected: "a version of the hello" });
        }
        Ok(RelayWelcome {
            id: parse_number("relay", welcome.id)?,
            report_interval: Duration::from_micros(welcome.report_interval_us.into()),
            version: welcome.version,
        })
    }
}
