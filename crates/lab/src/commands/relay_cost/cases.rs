//! The cases: links, loads and variants.

use std::time::Duration;

use weir_core::units::Rate;
use weir_lab::chain::Link;
use weir_lab::delay_line::{PathSettings, Schedule};
use weir_lab::experiment::{Load, Variant};
use weir_lab::relays::Relay;

use super::Cells;
use super::summary::{EFFICIENCY, LATENCY, RATE};

/// The rate of links that are the bottleneck.
const LINK_RATE: Rate = Rate::GBIT;

/// The long path: 25 ms in each direction, 0.1 % loss, and a queue of one round trip.
const ONE_WAY_DELAY: Duration = Duration::from_millis(25);
const LOSS: f64 = 0.001;
const LONG_PATH_SEED: u64 = 28;

/// A group of measurements on one kind of link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Case {
    /// As fast as the processors, 1 to 1,000 flows
    Saturated,
    /// A link of 1 Gbit/s, 16 and 200 flows
    Link,
    /// The latency of a priority flow next to 16 bulk flows on a full link of 1 Gbit/s
    Priority,
    /// The latency of an idle pair of relays
    Idle,
    /// One flow over 50 ms, 0.1 % loss and 1 Gbit/s
    LongPath,
    /// Writes of 64 B to 1 MiB
    Messages,
    /// 1 to 64 egress relays
    Peers,
}

/// A load with its name in tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedLoad {
    pub label: String,
    pub load: Load,
}

impl Case {
    /// The heading.
    pub fn title(self) -> &'static str {
        match self {
            Case::Saturated => "Processors saturated",
            Case::Link => "Link of 1 Gbit/s",
            Case::Priority => "Latency next to bulk flows",
            Case::Idle => "Idle latency",
            Case::LongPath => "Long path with loss",
            Case::Messages => "Sizes of writes",
            Case::Peers => "Egress relays",
        }
    }

    /// What the figures are.
    pub fn explanation(self) -> &'static str {
        match self {
            Case::Saturated | Case::Link | Case::Messages | Case::Peers => {
                "GB per CPU-second: bytes that arrived, by the processor time of all relays. Weir/this: Weir's figure, divided by this \
                 one."
            }
            Case::Priority => {
                "Milliseconds of 64-byte requests on a flow of their own, next to 16 bulk flows on a link of 1 Gbit/s. Slow: 4 more bulk \
                 flows, whose receivers read 64 KiB in 50 ms."
            }
            Case::Idle => "Milliseconds of 64-byte requests without other flows.",
            Case::LongPath => "One flow over 25 ms in each direction, 0.1 % loss and 1 Gbit/s.",
        }
    }

    /// What distinguishes the loads.
    pub fn load_name(self) -> &'static str {
        match self {
            Case::Saturated | Case::Link | Case::LongPath => "flows",
            Case::Priority | Case::Idle => "receivers",
            Case::Messages => "bytes of a write",
            Case::Peers => "egress relays",
        }
    }

    /// The link between the relays.
    pub fn link(self) -> Link {
        match self {
            Case::Saturated | Case::Idle | Case::Messages | Case::Peers => Link::Unlimited,
            Case::Link | Case::Priority => Link::Rate(LINK_RATE),
            Case::LongPath => Link::DelayLine(PathSettings {
                delay: Schedule::constant(ONE_WAY_DELAY),
                rate: Schedule::constant(LINK_RATE),
                queue: 2 * ONE_WAY_DELAY,
                loss: LOSS,
                seed: LONG_PATH_SEED,
            }),
        }
    }

    /// The time until rates are steady.
    pub fn warm_up(self) -> Duration {
        Duration::from_secs(if self == Case::LongPath { 4 } else { 1 })
    }

    /// The numbers of egress relays, with the loads for each.
    pub fn networks(self) -> Vec<(u8, Vec<NamedLoad>)> {
        let flows = |counts: &[u32]| -> Vec<NamedLoad> {
            let named = |&count: &u32| NamedLoad { label: count.to_string(), load: Load::bulk(count) };
            counts.iter().map(named).collect()
        };
        let probed = |label: &str, bulk: u32, slow_flows| NamedLoad {
            label: label.to_owned(),
            load: Load { slow_flows, probe: true, ..Load::bulk(bulk) },
        };
        match self {
            Case::Saturated => vec![(1, flows(&[1, 16, 200, 1_000]))],
            Case::Link => vec![(1, flows(&[16, 200]))],
            Case::Priority => vec![(1, vec![probed("fast", 16, 0), probed("slow", 16, 4)])],
            Case::Idle => vec![(1, vec![probed("fast", 0, 0)])],
            Case::LongPath => vec![(1, flows(&[1]))],
            Case::Messages => vec![(1, write_sizes())],
            Case::Peers => [1, 4, 16, 64]
                .map(|peers| (peers, vec![NamedLoad { label: peers.to_string(), load: Load::bulk(64) }]))
                .into(),
        }
    }

    /// The variants of these relays. CUBIC costs the least processor time in namespaces, BBR bears loss; Weir chooses.
    pub fn variants(self, relays: &[Relay]) -> Vec<Variant> {
        // socat has a process for each pair of addresses.
        let measured = |relay: &&Relay| match **relay {
            Relay::Socat => self != Case::Peers,
            Relay::WeirTls => self == Case::Saturated,
            _ => true,
        };
        let congestion_controls = |relay: &Relay| match (self, relay) {
            (_, Relay::Weir | Relay::WeirTls) => &[None][..],
            (Case::LongPath, Relay::Nginx | Relay::Socat) => &[Some("bbr")],
            (_, Relay::Nginx | Relay::Socat) => &[Some("cubic")],
            _ => &[Some("cubic"), Some("bbr")],
        };
        let of_relay = |&relay: &Relay| {
            congestion_controls(&relay).iter().map(move |&congestion| Variant { relay, congestion })
        };
        relays.iter().filter(measured).flat_map(of_relay).collect()
    }

    /// What the table shows.
    pub fn cells(self) -> Cells {
        match self {
            Case::Saturated | Case::Link | Case::Messages | Case::Peers => EFFICIENCY,
            Case::Priority | Case::Idle => LATENCY,
            Case::LongPath => RATE,
        }
    }
}

fn write_sizes() -> Vec<NamedLoad> {
    const SIZES: [(&str, usize); 5] =
        [("64 B", 64), ("1 KiB", 1 << 10), ("16 KiB", 16 << 10), ("128 KiB", 128 << 10), ("1 MiB", 1 << 20)];
    let column = |(label, message_bytes)| NamedLoad {
        label: String::from(label),
        load: Load { message_bytes, ..Load::bulk(16) },
    };
    SIZES.map(column).into()
}
