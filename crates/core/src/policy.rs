//! Scheduling policies for the ports of one switch, and the table that maps policy names to constructors.

use crate::model::{SizesKnown, SizesUnknown};
use crate::tree::spec::TreeSpec;

mod aalo;
mod aalo_plus;
mod coflow_order;
mod django;
mod fair;
mod fifo;
pub(crate) mod interface;
mod lcf;
mod lwtf;
mod ncf;
pub(crate) mod params;
mod pfp;
pub(crate) mod policy_table;
mod saath;
mod scf;
pub mod sincronia;
mod srtf;
mod thresholds;
mod tree_policies;
mod varys;

pub use interface::{Event, Policy};
pub use params::{Params, ParamsError};
pub use policy_table::PolicyEntry;
use policy_table::{WIDE_AREA_POLICIES, build_from};

/// A policy, by the knowledge of flows that it needs.
pub enum AnyPolicy {
    /// The policy sees the bytes that flows have sent, and no sizes.
    SizesUnknown(Box<dyn Policy<Knowledge = SizesUnknown>>),
    /// The policy sees the sizes of flows.
    SizesKnown(Box<dyn Policy<Knowledge = SizesKnown>>),
    /// A policy tree: services and applications share the ports, and a policy schedules the coflows of each.
    Tree(TreeSpec),
}

fn box_sizes_unknown(policy: impl Policy<Knowledge = SizesUnknown> + 'static) -> AnyPolicy {
    AnyPolicy::SizesUnknown(Box::new(policy))
}

fn box_sizes_known(policy: impl Policy<Knowledge = SizesKnown> + 'static) -> AnyPolicy {
    AnyPolicy::SizesKnown(Box::new(policy))
}

/// Parameters of the policies with queues by bytes at each port.
const QUEUE_PARAMS: &[(&str, &str)] = &[
    ("start=10MB", "S: upper threshold of the first queue"),
    ("growth=10", "E: how much larger each next threshold is"),
    ("queues=10", "K: how many queues there are"),
    ("sharing=weighted", "ports share among queues by `weighted` turns K..1, or in `strict` priority"),
    ("at=senders", "queues at `senders` with TCP behind, or at `both` ends as if coordinated"),
];

const TIME_PARAM: (&str, &str) =
    ("time=bottleneck", "remaining time by the `bottleneck` port or the longest `flow`");

/// All policies for one switch.
pub const POLICIES: &[PolicyEntry<AnyPolicy>] = &[
    PolicyEntry {
        name: "fair",
        description: "per-flow max-min, as TCP shares (UC-TCP); knows nothing",
        params: &[],
        build: |p| fair::Fair::from_params(p).map(box_sizes_unknown),
    },
    PolicyEntry {
        name: "pfp",
        description: "shortest remaining flow first, whatever its coflow; knows sizes",
        params: &[],
        build: |p| pfp::Pfp::from_params(p).map(box_sizes_known),
    },
    PolicyEntry {
        name: "fifo",
        description: "coflows in order of arrival, MADD and backfilling; knows sizes",
        params: &[],
        build: |p| fifo::Fifo::from_params(p).map(box_sizes_known),
    },
    PolicyEntry {
        name: "scf",
        description: "shortest coflow first; knows sizes",
        params: &[("by=size", "short in total `size` or in the `length` of its longest flow")],
        build: |p| scf::Scf::from_params(p).map(box_sizes_known),
    },
    PolicyEntry {
        name: "ncf",
        description: "narrowest coflow first; knows sizes",
        params: &[("by=flows", "narrow in `flows` or in `endpoints` on the smaller side")],
        build: |p| ncf::Ncf::from_params(p).map(box_sizes_known),
    },
    PolicyEntry {
        name: "lcf",
        description: "lightest coflow first, by bytes left; knows sizes",
        params: &[],
        build: |p| lcf::Lcf::from_params(p).map(box_sizes_known),
    },
    PolicyEntry {
        name: "srtf",
        description: "shortest remaining time first; knows sizes",
        params: &[TIME_PARAM],
        build: |p| srtf::Srtf::from_params(p).map(box_sizes_known),
    },
    PolicyEntry {
        name: "lwtf",
        description: "least waiting time of others first (Saath 2.4); knows sizes",
        params: &[],
        build: |p| lwtf::Lwtf::from_params(p).map(box_sizes_known),
    },
    PolicyEntry {
        name: "varys",
        description: "smallest effective bottleneck first, MADD, backfilling (SIGCOMM '14); knows sizes",
        params: &[("deadlines=off", "admit coflows by their deadlines, and keep them")],
        build: |p| varys::Varys::from_params(p).map(box_sizes_known),
    },
    PolicyEntry {
        name: "sincronia",
        description: "BSSI order, greedy rates (SIGCOMM '18); knows sizes, heeds weights",
        params: &[],
        build: |p| sincronia::Sincronia::from_params(p).map(box_sizes_known),
    },
    PolicyEntry {
        name: "aalo",
        description: "D-CLAS: queues by total bytes, FIFO inside (SIGCOMM '15); sizes unknown",
        params: &[
            QUEUE_PARAMS[0],
            QUEUE_PARAMS[1],
            QUEUE_PARAMS[2],
            (
                "sharing=weighted",
                "ports share among queues by `weighted` K..1, in `strict` priority, or they take `turns`",
            ),
            ("turn=8ms", "with `sharing=turns`: how long the last queue's is; the first has K times that"),
            QUEUE_PARAMS[4],
        ],
        build: |p| aalo::Aalo::from_params(p).map(box_sizes_unknown),
    },
    PolicyEntry {
        name: "aalo+",
        description: "Aalo's queues, by the sizes that coflows have (Django's rival); knows sizes",
        params: QUEUE_PARAMS,
        build: |p| aalo_plus::AaloPlus::from_params(p).map(box_sizes_known),
    },
    PolicyEntry {
        name: "django",
        description: "receivers open connections, senders order them (JPDC '21); knows sizes",
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
        build: |p| django::Django::from_params(p).map(box_sizes_known),
    },
    PolicyEntry {
        name: "saath",
        description: "all-or-none, least contention first (CoNEXT '17); sizes unknown",
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
        build: |p| saath::Saath::from_params(p).map(box_sizes_unknown),
    },
    PolicyEntry {
        name: "netshare",
        description: "services by weight at every port, max-min between flows inside (UCSD 2010); knows nothing",
        params: &[(
            "weights=1",
            "of the trace's services in their order, as in `4/2/1`; 1 where the list ends",
        )],
        build: |p| tree_policies::netshare_tree(p).map(AnyPolicy::Tree),
    },
    PolicyEntry {
        name: "saba",
        description: "applications by sensitivity at every port, max-min between flows inside (EuroSys '23)",
        params: &[(
            "slowdown=2",
            "of each application with half the bandwidth, in the trace's order, as in `2.3/1.1`; the last holds for the rest",
        )],
        build: |p| tree_policies::saba_tree(p).map(AnyPolicy::Tree),
    },
];

/// Builds a policy from its specification, `name` or `name:key=value:key=value`.
///
/// # Errors
/// The name, a parameter or a value is unknown or invalid, or the policy exists only for a wide area. The error lists
/// the known names.
pub fn build(spec: &str) -> Result<AnyPolicy, ParamsError> {
    build_from(POLICIES, spec).map_err(|error| match error {
        ParamsError::UnknownPolicy { name, known } if WIDE_AREA_POLICIES.contains(&&*name) => {
            ParamsError::NotForSwitch { name, known }
        }
        other => other,
    })
}
