//! Scheduling policies, and the table that maps policy names to constructors.

use crate::model::{CoflowKey, CommonRateKind, ServiceNames};
use crate::tree::spec::{TreeError, TreeSpec};
use crate::wide_area::{Siphon, mrtf};

mod aalo;
mod aalo_plus;
mod attained_service;
mod check;
pub mod coflow_order;
mod django;
mod error;
mod fair;
mod fifo;
mod gittins;
mod index_table;
pub(crate) mod interface;
mod lcf;
mod lwtf;
mod ncf;
mod normal;
pub(crate) mod params;
mod pfp;
mod philae;
pub(crate) mod policy_table;
mod saath;
mod scf;
mod served_in_order;
pub mod sincronia;
mod srtf;
#[cfg(test)]
mod test_engine;
mod thresholds;
pub(crate) mod timing;
mod tree_policies;
mod varys;
mod weir;

use check::CheckedPolicy;
pub use coflow_order::{CoflowOrder, OrderedPolicy};
pub use error::{InvalidDecision, PolicyError, PolicyFailure};
pub(crate) use interface::{DecidedBy, PolicyObject};
pub use interface::{Event, LinkService, MIN_WAKEUP_SECONDS, Policy, Routing, TrunkSupport};
pub use params::{Params, ParamsError};
pub use policy_table::{PolicyEntry, RegisterError, all, build, django_settings, register};
use served_in_order::{DETOURS_PARAM, GROUPS_PARAM, ServedInOrder};
pub use thresholds::Thresholds;
pub use timing::{Reaction, Timing};
pub use weir::Constants as WeirConstants;

/// A policy of any knowledge, or a tree of policies.
pub enum AnyPolicy {
    /// One policy for all coflows.
    Policy(Box<dyn PolicyObject>),
    /// A policy tree: services and applications share the ports, and a policy schedules the coflows of each.
    Tree(TreeSpec),
}

impl<P: Policy + 'static> From<P> for AnyPolicy {
    fn from(policy: P) -> AnyPolicy {
        AnyPolicy::Policy(Box::new(policy))
    }
}

impl AnyPolicy {
    /// Checks the decisions of this policy: an invalid one makes a schedule fail with a [`PolicyError`] that names `policy`. Policies
    /// that were [registered](register) are checked, and so are the leaves of a tree. A check costs O(links of the coflows + n log n)
    /// for n flows with own rates.
    pub fn checked(self, policy: &str) -> AnyPolicy {
        match self {
            AnyPolicy::Policy(inner) => AnyPolicy::Policy(Box::new(CheckedPolicy::new(inner, policy))),
            AnyPolicy::Tree(tree) => AnyPolicy::Tree(tree),
        }
    }

    /// Whether this is a policy that reads the sizes of flows.
    pub fn needs_sizes(&self) -> bool {
        matches!(self, AnyPolicy::Policy(policy) if policy.common_rate_kind() == CommonRateKind::ProportionalRates)
    }

    /// What sets the rates of flows over trunks.
    pub fn trunk_support(&self) -> TrunkSupport {
        match self {
            AnyPolicy::Policy(policy) => policy.trunk_support(),
            AnyPolicy::Tree(tree) => {
                let leaves = tree.leaf_policies().filter_map(|spec| build(spec).ok());
                // Outside of leaves, the tree itself decides.
                leaves.map(|policy| policy.trunk_support()).fold(TrunkSupport::Decides, Ord::min)
            }
        }
    }

    /// What happens at once under the policy, and what waits for the next multiple of the interval.
    pub fn timing(&self) -> Timing {
        match self {
            AnyPolicy::Policy(policy) => policy.timing(),
            AnyPolicy::Tree(tree) => tree.timing(),
        }
    }

    /// Whether decisions depend on this key of coflows.
    pub fn uses(&self, key: CoflowKey) -> bool {
        match self {
            AnyPolicy::Policy(policy) => policy.uses(key),
            AnyPolicy::Tree(tree) => {
                tree.divides_by(key)
                    || tree.leaf_policies().filter_map(|spec| build(spec).ok()).any(|policy| policy.uses(key))
            }
        }
    }

    /// The paths that the policy requires between regions, by service and application of these names.
    ///
    /// # Errors
    /// If a policy tree does not fit the names.
    pub fn routing_by_application(&self, names: &ServiceNames) -> Result<Vec<Vec<Routing>>, TreeError> {
        let services = 0..names.services() as u32;
        let everywhere = |routing: Routing| {
            Ok(services.map(|service| vec![routing; names.applications(service).len()]).collect())
        };
        match self {
            AnyPolicy::Policy(policy) => everywhere(policy.routing()),
            AnyPolicy::Tree(tree) => {
                let layout = tree.layout(names)?;
                let of_leaf = |spec: &String| match build(spec)? {
                    AnyPolicy::Policy(policy) => Ok(policy.routing()),
                    AnyPolicy::Tree(_) => Ok(Routing::default()),
                };
                let by_leaf = layout.policies.iter().map(of_leaf).collect::<Result<Vec<_>, ParamsError>>()?;
                let of_service =
                    |leaves: Vec<u32>| leaves.iter().map(|&leaf| by_leaf[leaf as usize]).collect();
                Ok(layout.leaf_by_application.into_iter().map(of_service).collect())
            }
        }
    }
}

/// Parameters of the policies with queues by bytes at each port.
const QUEUE_PARAMS: &[(&str, &str)] = &[
    ("start=10MB", "S: upper threshold of the first queue"),
    ("growth=10", "E: factor from each threshold to the next"),
    ("queues=10", "K: number of queues"),
    (
        "sharing=weighted",
        "sharing between queues of a port: `weighted` with weights K..1, or `strict` priority",
    ),
    (
        "at=senders",
        "`senders`: queues at senders, receivers share as TCP; `both`: the same queues at both ends",
    ),
];

const TIME_PARAM: (&str, &str) =
    ("time=bottleneck", "remaining time by the `bottleneck` port or the longest `flow`");

/// The policies of this crate.
pub const POLICIES: &[PolicyEntry] = &[
    PolicyEntry {
        name: "fair",
        description: "per-flow max-min, as TCP shares (UC-TCP); sizes unknown",
        params: &[DETOURS_PARAM],
        build: |p| fair::Fair::from_params(p).map(AnyPolicy::from),
    },
    PolicyEntry {
        name: "pfp",
        description: "shortest remaining flow first, independent of coflows; needs flow sizes",
        params: &[],
        build: |p| pfp::Pfp::from_params(p).map(AnyPolicy::from),
    },
    PolicyEntry {
        name: "fifo",
        description: "coflows in order of arrival, MADD and backfilling; needs flow sizes",
        params: &[],
        build: |p| fifo::Fifo::from_params(p).map(AnyPolicy::from),
    },
    PolicyEntry {
        name: "scf",
        description: "shortest coflow first; needs flow sizes",
        params: &[("by=size", "shortest by total `size`, or by the `length` of the longest flow")],
        build: |p| scf::Scf::from_params(p).map(AnyPolicy::from),
    },
    PolicyEntry {
        name: "ncf",
        description: "narrowest coflow first; needs flow sizes",
        params: &[("by=flows", "width as number of `flows`, or of `endpoints` on the side with fewer")],
        build: |p| ncf::Ncf::from_params(p).map(AnyPolicy::from),
    },
    PolicyEntry {
        name: "lcf",
        description: "lightest coflow first, by remaining bytes; needs flow sizes",
        params: &[],
        build: |p| lcf::Lcf::from_params(p).map(AnyPolicy::from),
    },
    PolicyEntry {
        name: "srtf",
        description: "shortest remaining time first; needs flow sizes",
        params: &[TIME_PARAM],
        build: |p| srtf::Srtf::from_params(p).map(AnyPolicy::from),
    },
    PolicyEntry {
        name: "lwtf",
        description: "least waiting time first, by the delay that a coflow adds to others (Saath 2.4); needs flow sizes",
        params: &[],
        build: |p| lwtf::Lwtf::from_params(p).map(AnyPolicy::from),
    },
    PolicyEntry {
        name: "varys",
        description: "smallest effective bottleneck first, MADD, backfilling (SIGCOMM '14); needs flow sizes",
        params: &[(
            "deadlines=off",
            "admit the coflows that can meet their deadlines, and complete them in time",
        )],
        build: |p| varys::Varys::from_params(p).map(AnyPolicy::from),
    },
    PolicyEntry {
        name: "sincronia",
        description: "BSSI order, greedy rates (SIGCOMM '18); needs flow sizes, uses weights",
        params: &[],
        build: |p| sincronia::Sincronia::from_params(p).map(AnyPolicy::from),
    },
    PolicyEntry {
        name: "aalo",
        description: "D-CLAS: queues by total bytes sent, FIFO inside a queue (SIGCOMM '15); sizes unknown",
        params: &[
            QUEUE_PARAMS[0],
            QUEUE_PARAMS[1],
            QUEUE_PARAMS[2],
            (
                "sharing=weighted",
                "sharing between queues of a port: `weighted` with weights K..1, `strict` priority, or `turns`",
            ),
            (
                "turn=8ms",
                "with `sharing=turns`: length of the last queue's turn; the first queue's is K times that",
            ),
            QUEUE_PARAMS[4],
        ],
        build: |p| aalo::Aalo::from_params(p).map(AnyPolicy::from),
    },
    PolicyEntry {
        name: "aalo+",
        description: "Aalo's queues by coflow size (the baseline of Django's evaluation); needs flow sizes",
        params: QUEUE_PARAMS,
        build: |p| aalo_plus::AaloPlus::from_params(p).map(AnyPolicy::from),
    },
    PolicyEntry {
        name: "django",
        description: "receivers open connections, senders order them (JPDC '21); needs flow sizes",
        params: &[
            ("connections=11", "m: number of connections of a receiving host"),
            ("alpha=0.1", "fraction of the downlink that must be unused for a connection without priority"),
            ("beta=0.7", "fraction of the connections for the prioritized reducer"),
            ("eta=0.5", "maximum connections of a reducer without priority, as a fraction of the free ones"),
            (
                "lambda=0.2",
                "fraction of a link that is added to the unused bandwidth of a sender with the same coflow first",
            ),
            ("theta=0", "fraction of the downlink that must be unused before the tracker looks for senders"),
        ],
        build: |p| django::Django::from_params(p).map(AnyPolicy::from),
    },
    PolicyEntry {
        name: "saath",
        description: "all-or-none, least contention first (CoNEXT '17); sizes unknown",
        params: &[
            ("start=10MB", "S: upper threshold of the first queue"),
            ("growth=10", "E: factor from each threshold to the next"),
            ("queues=10", "K: number of queues"),
            ("d=2", "deadline factor; `inf` for no deadlines"),
            ("all-or-none=on", "A/N: all flows of a coflow at equal rates, or none"),
            ("per-flow=on", "P/F: queue by the flow that has sent the most bytes (`off`: by total bytes)"),
            ("lcof=on", "least contention first inside a queue (`off`: FIFO)"),
            (
                "work-conservation=on",
                "D4: coflows that are not admitted use residual capacity (`off`: Fig. 4b)",
            ),
            (
                "backfill=missed",
                "D4: work conservation serves the `missed` coflows, or `all`: the admitted ones too, after all queues",
            ),
            ("requeue=off", "estimate the remaining bytes by the median of completed flows (4.3) (`on`)"),
            ("contention=queue", "contention counts coflows of the same `queue`, or `all`"),
            (
                "available=any",
                "a port is available with `any` residual capacity, or only with `full` capacity",
            ),
            ("local=off", "between two schedules, hosts serve the next flow when one has completed (`on`)"),
            (
                "time=total",
                "t of the deadline: time of the `total` bytes of the queue, or of one `flow`'s part",
            ),
        ],
        build: |p| saath::Saath::from_params(p).map(AnyPolicy::from),
    },
    PolicyEntry {
        name: "philae",
        description: "shortest coflow first, by the mean size of pilot flows and contention (ToN '23); sizes unknown",
        params: &[
            ("pilots=0.01", "fraction of a coflow's flows that are pilots, at least one flow"),
            ("thin=7", "maximum number of flows of a coflow that is served first, without pilots"),
            (
                "order=contention",
                "sampled coflows by estimated size times `contention`, or by estimated `size`",
            ),
        ],
        build: |p| philae::Philae::from_params(p).map(AnyPolicy::from),
    },
    PolicyEntry {
        name: "gittins",
        description: "highest Gittins index of the attained service first, by a learned distribution of sizes; sizes unknown",
        params: &[
            ("index=gittins", "`gittins`, or `las`: least attained service, without a distribution"),
            ("prior=1", "number of coflows that the distribution before the first sizes counts as"),
        ],
        build: |p| gittins::Gittins::from_params(p).map(AnyPolicy::from),
    },
    PolicyEntry {
        name: "weir",
        description: "shortest estimated remaining time first, by pilot flows and earlier coflows; sizes unknown",
        params: &[
            (
                "sizes=estimated",
                "sizes of flows: `estimated` from completed flows, or `known`, for comparison",
            ),
            (
                "pilots=median",
                "time that a coflow has used, or is estimated to need, from which on it serves pilots; `median`: twice that of earlier coflows",
            ),
            (
                "turns=0.01",
                "fraction of the time in which coflows are served in order of release, so that none starves: 0.000001 to below 1; 0: no bound",
            ),
            (
                "prior=off",
                "`on`: a coflow starts with the sizes of earlier coflows of its application, until its flows contradict them",
            ),
        ],
        build: |p| match p.take_choice("sizes", &[("estimated", false), ("known", true)])? {
            false => weir::Weir::from_params(p).map(AnyPolicy::from),
            true => weir::WeirKnown::from_params(p).map(AnyPolicy::from),
        },
    },
    PolicyEntry {
        name: "netshare",
        description: "services by weight at every port, max-min between flows inside (UCSD 2010); sizes unknown",
        params: &[(
            "weights=",
            "weights of the services in order, as in `4/2/1`; others have the weights of a scenario, or else 1",
        )],
        build: |p| tree_policies::netshare_tree(p).map(AnyPolicy::Tree),
    },
    PolicyEntry {
        name: "saba",
        description: "applications by sensitivity at every port, max-min between flows inside (EuroSys '23); sizes unknown",
        params: &[
            (
                "slowdown=2",
                "slowdown of each application at half the bandwidth, in the trace's order, as in `2.3/1.1`; others use the last one",
            ),
            (
                "share=1",
                "C_saba: the sum of the weights at a port, above 0 and up to 1; below 1, one queue is reserved",
            ),
            (
                "levels=",
                "number of priority levels; applications of similar sensitivity share one; default: one for each model",
            ),
            (
                "queues=",
                "number of queues of each port; default: one for each level, or each application without `levels`",
            ),
            (
                "min-weight=0",
                "minimum weight of a queue with applications, as a fraction of the port; with `queues`",
            ),
        ],
        build: |p| tree_policies::saba_tree(p).map(AnyPolicy::Tree),
    },
    PolicyEntry {
        name: "siphon",
        description: "Monte Carlo search over orders of coflows under uncertain bandwidth; every link serves in that order (ATC '18); needs flow sizes",
        params: &[
            (
                "depth=3",
                "d: number of coflows of an order that are searched, 1 to 4; minimum remaining time at median bandwidth orders the others",
            ),
            ("breadth=10", "number of candidate coflows, the first by MRTF, 1 to 16"),
            ("samples=1000", "maximum number of rounds of a simulation, 1 to 100000"),
            (
                "confidence=0.95",
                "confidence level at which branches are closed and rounds end; 1 simulates all",
            ),
            (
                "choose=wins",
                "the chosen order: with the lowest cost in most rounds (`wins`), or with the lowest mean cost (`mean`)",
            ),
            ("reuse=on", "keep branches closed that an arrival or a completion does not change"),
            ("seed=1", "seed of the random bandwidths"),
            ("threads=1", "number of threads of a simulation, 1 to 64; it does not change the result"),
            DETOURS_PARAM,
            GROUPS_PARAM,
        ],
        build: |p| {
            let mut siphon = Siphon::from_params(p)?;
            ServedInOrder::from_params(
                Box::new(move |waiting, past| siphon.search_order(waiting, past).order),
                p,
            )
            .map(AnyPolicy::from)
        },
    },
    PolicyEntry {
        name: "mrtf",
        description: "minimum remaining time first, at mean bandwidth; every link serves in that order; needs flow sizes",
        params: &[DETOURS_PARAM, GROUPS_PARAM],
        build: |p| ServedInOrder::from_params(Box::new(mrtf::decide_order), p).map(AnyPolicy::from),
    },
];

/// The policy `gittins` with the distribution of these sizes, in seconds on the busiest link. It learns no others.
pub fn gittins_with(sizes: &[f64]) -> AnyPolicy {
    gittins::Gittins::with_sizes(sizes).into()
}

/// The policy `weir` with other constants than the default ones.
pub fn weir_with(constants: WeirConstants) -> AnyPolicy {
    weir::Weir::new(constants).into()
}
