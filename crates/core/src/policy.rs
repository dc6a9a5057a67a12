//! Scheduling policies for the ports of one switch, and the table that maps policy names to constructors.

use crate::model::{Blind, Sizes};
use crate::tree::plan::Plan;

mod aalo;
mod aalo_plus;
pub(crate) mod contract;
mod django;
mod fair;
mod fifo;
mod lcf;
mod lwtf;
mod ncf;
mod ordered;
pub(crate) mod params;
mod pfp;
mod saath;
mod scf;
mod shares;
pub mod sincronia;
mod srtf;
pub(crate) mod table;
mod thresholds;
mod varys;

pub use contract::{Event, Policy};
pub use params::{Params, ParamsError};
pub use table::Entry;
use table::{WIDE_AREA_ONLY, build_from};

/// A policy, by the knowledge of flows that it needs.
pub enum AnyPolicy {
    /// The policy sees the bytes that flows have sent, and no sizes.
    Blind(Box<dyn Policy<Knows = Blind>>),
    /// The policy sees the sizes of flows.
    Sizes(Box<dyn Policy<Knows = Sizes>>),
    /// A policy tree: services and applications share the ports, and a policy schedules the coflows of each.
    Tree(Plan),
}

fn blind(policy: impl Policy<Knows = Blind> + 'static) -> AnyPolicy {
    AnyPolicy::Blind(Box::new(policy))
}

fn sizes(policy: impl Policy<Knows = Sizes> + 'static) -> AnyPolicy {
    AnyPolicy::Sizes(Box::new(policy))
}

/// Parameters of the policies with queues by bytes at each port.
const QUEUES: &[(&str, &str)] = &[
    ("start=10MB", "S: upper threshold of the first queue"),
    ("growth=10", "E: how much larger each next threshold is"),
    ("queues=10", "K: how many queues there are"),
    ("sharing=weighted", "ports share among queues by `weighted` turns K..1, or in `strict` priority"),
    ("at=senders", "queues at `senders` with TCP behind, or at `both` ends as if coordinated"),
];

const TIME: (&str, &str) =
    ("time=bottleneck", "remaining time by the `bottleneck` port or the longest `flow`");

/// All policies for one switch.
pub const TABLE: &[Entry<AnyPolicy>] = &[
    Entry {
        name: "fair",
        about: "per-flow max-min, as TCP shares (UC-TCP); knows nothing",
        params: &[],
        build: |p| fair::Fair::read(p).map(blind),
    },
    Entry {
        name: "pfp",
        about: "shortest remaining flow first, whatever its coflow; knows sizes",
        params: &[],
        build: |p| pfp::Pfp::read(p).map(sizes),
    },
    Entry {
        name: "fifo",
        about: "coflows in order of arrival, MADD and backfilling; knows sizes",
        params: &[],
        build: |p| fifo::Fifo::read(p).map(sizes),
    },
    Entry {
        name: "scf",
        about: "shortest coflow first; knows sizes",
        params: &[("by=size", "short in total `size` or in the `length` of its longest flow")],
        build: |p| scf::Scf::read(p).map(sizes),
    },
    Entry {
        name: "ncf",
        about: "narrowest coflow first; knows sizes",
        params: &[("by=flows", "narrow in `flows` or in `endpoints` on the smaller side")],
        build: |p| ncf::Ncf::read(p).map(sizes),
    },
    Entry {
        name: "lcf",
        about: "lightest coflow first, by bytes left; knows sizes",
        params: &[],
        build: |p| lcf::Lcf::read(p).map(sizes),
    },
    Entry {
        name: "srtf",
        about: "shortest remaining time first; knows sizes",
        params: &[TIME],
        build: |p| srtf::Srtf::read(p).map(sizes),
    },
    Entry {
        name: "lwtf",
        about: "least waiting time of others first (Saath 2.4); knows sizes",
        params: &[],
        build: |p| lwtf::Lwtf::read(p).map(sizes),
    },
    Entry {
        name: "varys",
        about: "smallest effective bottleneck first, MADD, backfilling (SIGCOMM '14); knows sizes",
        params: &[("deadlines=off", "admit coflows by their deadlines, and keep them")],
        build: |p| varys::Varys::read(p).map(sizes),
    },
    Entry {
        name: "sincronia",
        about: "BSSI order, greedy rates (SIGCOMM '18); knows sizes, heeds weights",
        params: &[],
        build: |p| sincronia::Sincronia::read(p).map(sizes),
    },
    Entry {
        name: "aalo",
        about: "D-CLAS: queues by total bytes, FIFO inside (SIGCOMM '15); sizes unknown",
        params: &[
            QUEUES[0],
            QUEUES[1],
            QUEUES[2],
            (
                "sharing=weighted",
                "ports share among queues by `weighted` K..1, in `strict` priority, or they take `turns`",
            ),
            ("turn=8ms", "with `sharing=turns`: how long the last queue's is; the first has K times that"),
            QUEUES[4],
        ],
        build: |p| aalo::Aalo::read(p).map(blind),
    },
    Entry {
        name: "aalo+",
        about: "Aalo's queues, by the sizes that coflows have (Django's rival); knows sizes",
        params: QUEUES,
        build: |p| aalo_plus::AaloPlus::read(p).map(sizes),
    },
    Entry {
        name: "django",
        about: "receivers open connections, senders order them (JPDC '21); knows sizes",
        params: &[
            ("connections=11", "m: how many a host has for all that it receives"),
            ("alpha=0.1", "part of a downlink that has to be vacant for a connection without priority"),
            ("beta=0.7", "part of the connections for the prioritized reducer"),
            ("eta=0.6", "part of the free connections that one without priority may have already"),
            (
                "lambda=0.2",
                "part of a link by which a sender counts as vacant that has the same coflow first",
            ),
            ("theta=0.5", "part of a downlink that has to be vacant for senders to be looked for"),
        ],
        build: |p| django::Django::read(p).map(sizes),
    },
    Entry {
        name: "saath",
        about: "all-or-none, least contention first (CoNEXT '17); sizes unknown",
        params: &[
            ("start=10MB", "S: upper threshold of the first queue"),
            ("growth=10", "E: how much larger each next threshold is"),
            ("queues=10", "K: how many queues there are"),
            ("d=2", "deadline factor; `inf` for no deadlines"),
            ("all-or-none=on", "A/N: all flows of a coflow at once, or none"),
            ("per-flow=on", "P/F: queues by the furthest flow, or by total bytes"),
            ("lcof=on", "least contention first inside a queue, or FIFO"),
            ("work-conservation=on", "D4: coflows that miss all-or-none take what is left (`off`: Fig. 4b)"),
            ("requeue=on", "estimate what is left by the median of finished flows (4.3)"),
            ("contention=queue", "count rivals in the same `queue`, or `all`"),
            ("available=any", "a port is available with `any` bandwidth left, or only `full`"),
            ("time=total", "t of the deadline: `total` bytes of the queue, or a `flow`'s part"),
        ],
        build: |p| saath::Saath::read(p).map(blind),
    },
    Entry {
        name: "netshare",
        about: "services by weight at every port, max-min between flows inside (UCSD 2010); knows nothing",
        params: &[(
            "weights=1",
            "of the trace's services in their order, as in `4/2/1`; 1 where the list ends",
        )],
        build: |p| shares::netshare(p).map(AnyPolicy::Tree),
    },
    Entry {
        name: "saba",
        about: "applications by sensitivity at every port, max-min between flows inside (EuroSys '23)",
        params: &[(
            "slowdown=2",
            "of each application with half the bandwidth, in the trace's order, as in `2.3/1.1`; the last holds for the rest",
        )],
        build: |p| shares::saba(p).map(AnyPolicy::Tree),
    },
];

/// Builds a policy from its specification, `name` or `name:key=value:key=value`.
///
/// # Errors
/// The name, a parameter or a value is unknown or invalid, or the policy exists only for a wide area. The error lists
/// the known names.
pub fn build(spec: &str) -> Result<AnyPolicy, ParamsError> {
    build_from(TABLE, spec).map_err(|error| match error {
        ParamsError::UnknownPolicy { name, known } if WIDE_AREA_ONLY.contains(&&*name) => {
            ParamsError::NotForSwitch { name, known }
        }
        other => other,
    })
}
