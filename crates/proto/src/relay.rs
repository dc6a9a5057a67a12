//! Defines the messages between a coordinator and its relays.
//!
//! [`wire`] is the encoding, generated from `proto/weir/relay.proto`. A decoded message becomes a checked type of this module only if it
//! is valid. Receivers limit the length of a message to [`MAX_RELAY_REPORT_BYTES`] or [`MAX_RELAY_ORDER_BYTES`] before they decode it.

mod hello;
mod order;
mod report;
mod rule;

use std::time::Duration;

use crate::MessageError;

pub use hello::{RelayHello, RelayWelcome};
pub use order::{RelayCoflow, RelayOrder, RelayPeer};
pub use report::{GroupProgress, PathSample, RelayReport, UnruledFlow};
pub use rule::{RegionPair, RelayMatch, RelayPath, RelayRule, RuleScope};

/// The encoded messages, generated from `proto/weir/relay.proto`.
pub mod wire {
    #![allow(missing_docs, reason = "relay.proto documents the messages")]
    #![allow(clippy::large_enum_variant, reason = "most messages are of the large variant")]
    include!("generated/weir.relay.rs");
}

/// The lowest version of the relay protocol that this version of Weir can speak.
pub const MIN_RELAY_VERSION: u32 = 1;

/// The highest version of the relay protocol that this version of Weir can speak.
pub const MAX_RELAY_VERSION: u32 = 1;

/// The maximum number of relays, and of path samples in a report.
pub const MAX_RELAYS: usize = 1 << 10;

/// The maximum number of networks of a relay.
pub const MAX_RELAY_NETWORKS: usize = 64;

/// The maximum number of coflows of a relay, and of added or removed coflows in an order.
pub const MAX_RELAY_COFLOWS: usize = 1 << 12;

/// The maximum number of rules of a relay, and of set or removed rules in an order.
pub const MAX_RELAY_RULES: usize = 1 << 14;

/// The maximum number of paths of a rule.
pub const MAX_RULE_PATHS: usize = 32;

/// The maximum number of groups in a report: those of the lowest numbers of coflows.
pub const MAX_REPORTED_GROUPS: usize = 1 << 14;

/// The maximum number of flows without a rule in a report. A relay leaves out the others.
pub const MAX_UNRULED_FLOWS: usize = 1 << 10;

/// The maximum length of an encoded order, in bytes.
pub const MAX_RELAY_ORDER_BYTES: usize = 16 << 20;

/// The maximum length of an encoded report, in bytes.
pub const MAX_RELAY_REPORT_BYTES: usize = 1 << 20;

fn parse_number(field: &'static str, number: u32) -> Result<u16, MessageError> {
    number.try_into().map_err(|_| MessageError::Invalid { field, expected: "a number of at most 65535" })
}

fn check_strictly_sorted<T, K: Ord>(
    list: &'static str,
    entries: &[T],
    key: impl Fn(&T) -> K,
) -> Result<(), MessageError> {
    if entries.is_sorted_by(|a, b| key(a) < key(b)) { Ok(()) } else { Err(MessageError::Unsorted(list)) }
}

/// A time of 0 means that it is unknown.
fn parse_known_micros(micros: u32) -> Option<Duration> {
    (micros > 0).then(|| Duration::from_micros(micros.into()))
}
