//! The state of one active coflow: the live flows at each link, and the progress of each flow.
//!
//! Progress is lazy. A schedule gives all live flows of a coflow one common rate (Saath), or rates in proportion to
//! their remaining bytes (MADD), and adds own rates to a few flows. One number for each coflow, the *level*, moves
//! with time and covers the common part. Every flow stores its distance to the level. Only flows with own rates need
//! work between two schedules.

mod completion_queue;
mod grid;
mod layout;
mod live_links;
mod paths;
mod reducers;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use self::completion_queue::CompletionQueue;
use self::grid::{GridPosition, LiveFlowGrid};
use self::layout::FlowKey;
pub(crate) use self::live_links::LiveWord;
use self::live_links::{LiveLinks, Role};
pub(crate) use self::paths::CandidateFlows;
use self::paths::{FlowTrunks, Paths};
use self::reducers::Reducers;
use super::Slot;
use super::bit_set::BitSet;
use super::fabric::{Fabric, LinkKind};
use super::trunks::Trunks;
use super::workload::CoflowSpec;
use crate::ordered_f64::OrderedF64;

/// How the common part of the rates is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommonRateKind {
    /// Every live flow sends at the same rate. The level is the bytes sent, and rises.
    EqualRates,
    /// Every live flow sends in proportion to its remaining bytes. The level is the remaining share, and falls from
    /// 1.
    ProportionalRates,
    /// As [`CommonRateKind::ProportionalRates`], but the remaining bytes are those of an estimated size, which the policy sets.
    /// Flows complete at their actual sizes. The level is the share that was sent since the level started, and rises from 0: sent bytes
    /// are exact although they can be far fewer than the estimate.
    EstimatedRates,
}

impl CommonRateKind {
    /// Whether common rates are in proportion to remaining bytes, of known or of estimated sizes.
    pub fn is_proportional(self) -> bool {
        self != CommonRateKind::EqualRates
    }

    /// The level before any flow sends.
    fn first_level(self) -> f64 {
        match self {
            CommonRateKind::EqualRates | CommonRateKind::EstimatedRates => 0.0,
            CommonRateKind::ProportionalRates => 1.0,
        }
    }
}

/// The state of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowState {
    /// The flow waits for its data.
    Waiting,
    /// The flow can send.
    Live,
    /// The flow has completed.
    Completed,
}

/// One flow. Flows are sorted by sending port, layer ([`FlowKey`]) and receiving port.
#[derive(Debug, Clone)]
pub(super) struct Flow {
    /// Size in bytes; infinite if unknown.
    pub size: f64,
    /// Live with [`CommonRateKind::EqualRates`]: bytes sent minus the level. Live with other kinds: remaining bytes, as estimated,
    /// divided by the remaining share ([`Coflow::remaining_share`]). Waiting: bytes sent or remaining bytes.
    pub base: f64,
    /// [`CommonRateKind::EstimatedRates`]: bytes sent, without the base times the level if the flow is live.
    pub sent_before_level: f64,
    /// Position of its sending link in [`Coflow::links`].
    sender_index: u32,
    grid_position: GridPosition,
    /// Position in the specification.
    pub spec_index: u32,
    /// Position among the network's flows with own rates, or [`NO_INDEX`].
    pub own_rate_index: u32,
    pub state: FlowState,
    /// Whether `base` was ever different from the common start.
    base_changed: bool,
    /// Whether the heaps lack the current `base`.
    heaps_stale: bool,
}

impl Flow {
    /// The estimated size ([`CommonRateKind::EstimatedRates`]).
    pub(super) fn estimate(&self) -> f64 {
        self.sent_before_level + self.base
    }

    /// Bytes that the live flow has sent at a level ([`CommonRateKind::EstimatedRates`]).
    pub fn estimated_sent(&self, level: f64) -> f64 {
        self.sent_before_level + self.base * level
    }

    /// Sets the estimated size of a live flow that has sent `sent` bytes ([`CommonRateKind::EstimatedRates`]). Returns the change of
    /// the base.
    fn set_estimate(&mut self, estimate: f64, sent: f64, level: f64) -> f64 {
        let before = self.base;
        self.base = (estimate - sent) / (1.0 - level);
        self.sent_before_level = sent - self.base * level;
        self.base - before
    }

    /// The level at which the live flow completes without its own rate. Not with [`CommonRateKind::ProportionalRates`].
    fn completion_level(&self, kind: CommonRateKind) -> f64 {
        match kind {
            CommonRateKind::EstimatedRates if self.base > 0.0 => {
                (self.size - self.sent_before_level) / self.base
            }
            CommonRateKind::EstimatedRates => f64::INFINITY,
            CommonRateKind::EqualRates | CommonRateKind::ProportionalRates => self.size - self.base,
        }
    }
}

/// The waiting flows of a specification, in the order of their keys.
fn build_flows(
    spec: &CoflowSpec,
    keys: &[FlowKey],
    positions: Vec<GridPosition>,
    senders: &[u32],
    sharing: CommonRateKind,
    default_estimate: f64,
) -> Vec<Flow> {
    let mut sender_index = 0;
    let build = |(key, grid_position): (&FlowKey, GridPosition)| {
        let bytes = spec.flows[key.spec_index as usize].bytes.get();
        if senders[sender_index] != key.src {
            sender_index = senders.partition_point(|&port| port < key.src);
        }
        Flow {
            size: bytes,
            base: match sharing {
                CommonRateKind::EqualRates => 0.0,
                CommonRateKind::ProportionalRates => bytes,
                CommonRateKind::EstimatedRates => default_estimate,
            },
            sent_before_level: 0.0,
            sender_index: sender_index as u32,
            grid_position,
            spec_index: key.spec_index,
            own_rate_index: NO_INDEX,
            state: FlowState::Waiting,
            base_changed: false,
            heaps_stale: false,
        }
    };
    keys.iter().zip(positions).map(build).collect()
}

/// The distinct numbers, sorted.
fn distinct(numbers: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// The ports of these links.
fn ports_of<'a>(links: impl Iterator<Item = &'a u32>, fabric: &Fabric) -> Vec<u32> {
    let ports = links.map(|&link| match fabric.kind(link as usize) {
        LinkKind::Sender(port) | LinkKind::Receiver(port) => port,
        LinkKind::Trunk(_) => unreachable!("a flow ends at ports"),
    });
    ports.collect()
}

/// The lowest remaining share that bytes sent at own rates are divided by ([`CommonRateKind::EstimatedRates`]).
const LOW_SHARE: f64 = 1e-3;

/// The remaining share at which flows have sent their estimates, and the part of its estimate at which a flow has. It is far above the
/// rounding of equal estimates: MADD gives nearly no rate to a flow that lacks less than others.
const SPENT_SHARE: f64 = 1e-6;

/// How far the remaining share falls below 0 until the policy is called for new estimates. Flows that end exactly at their estimates
/// complete before.
const OUTGROWN_SHARE: f64 = 1e-9;

/// A flow that becomes live starts the level again if the others have sent more than this multiple of its size since the last start.
const MAX_SENT_SIZES: f64 = 1e3;

/// An estimate by a policy; `sent`, the bytes that the flow has sent, if the policy gives no number above them.
fn valid_estimate(estimate: f64, sent: f64) -> f64 {
    if estimate > sent && estimate.is_finite() { estimate } else { sent }
}

/// Heaps of flows with up to this number of stale entries remain.
const MIN_ENTRIES: usize = 64;

/// No position.
pub(super) const NO_INDEX: u32 = u32::MAX;

/// The load of a coflow on one link.
#[derive(Debug, Clone)]
pub struct LinkLoad {
    /// The link, by its number in [`Fabric`].
    pub link: u32,
    /// Number of live flows over the link.
    pub live_flow_count: u32,
    /// Sum of the bases of the live flows over the link, unless rates are equal.
    pub(super) base_sum: f64,
}

impl LinkLoad {
    fn idle(link: u32) -> LinkLoad {
        LinkLoad { link, live_flow_count: 0, base_sum: 0.0 }
    }

    /// Adds a live flow.
    #[inline]
    fn add_flow(&mut self, role: Role, live_links: &mut LiveLinks) {
        if self.live_flow_count == 0 {
            live_links.insert(self.link, role);
        }
        self.live_flow_count += 1;
    }

    /// Removes a live flow with this base.
    #[inline]
    fn remove_flow(&mut self, base: f64, role: Role, live_links: &mut LiveLinks) {
        self.live_flow_count -= 1;
        if self.live_flow_count == 0 {
            live_links.remove(self.link, role);
            self.base_sum = 0.0;
        } else {
            self.base_sum -= base;
        }
    }
}

/// An active coflow.
#[derive(Debug, Clone)]
pub struct Coflow {
    /// Number of the coflow in the trace.
    pub id: u64,
    /// Position in the workload.
    pub workload_index: usize,
    /// Order of release: a coflow that is released later has a higher number.
    pub seq: u64,
    /// Time of the release, in seconds.
    pub released_at: f64,
    /// Weight for weighted policies.
    pub weight: f64,
    /// The numbers of its service and application.
    pub application: (u32, u32),
    /// Absolute time of the deadline in seconds; infinite without a deadline.
    pub deadline: f64,
    /// Bytes of all flows, and of the longest flow, from the specification.
    pub(super) total_bytes: f64,
    pub(super) longest_flow_bytes: f64,
    /// Sum of the flows' sizes, which can differ from those of the specification; meaningless if a size is unknown.
    size_sum: f64,
    /// The estimate of each flow's size before the policy sets one, in bytes.
    pub(crate) default_estimate: f64,
    pub(super) flows: Vec<Flow>,
    grid: LiveFlowGrid,
    paths: Paths,
    /// `None` if all flows have reducer 0.
    reducers: Option<Box<Reducers>>,
    /// The sending sides of ports, then the receiving sides, then trunks; each in the order of links.
    links: Vec<LinkLoad>,
    /// The ports of the first links.
    ports: Vec<u32>,
    sender_count: usize,
    /// Its slot, and a number that no other layout of flows has had. Solvers keep state of the flows by slot, while the number stays.
    pub(super) slot: Slot,
    pub(super) layout: u64,
    live_links: LiveLinks,
    live_count: usize,
    start_count: u64,
    completed_count: usize,
    pub(super) common_rate_kind: CommonRateKind,
    level: f64,
    level_slope: f64,
    level_time: f64,
    /// [`CommonRateKind::EstimatedRates`]: flows that have sent their estimate at their own rates. May contain flows that have
    /// completed.
    outgrown_flows: Vec<u32>,
    /// The live flows by the level at which they complete, from the first access on: the levels of many coflows never move. Entries of
    /// flows that changed are stale.
    completions: Option<Box<CompletionQueue>>,
    /// Touched live flows by base, for the most and the least advanced flow. Contain stale entries too.
    most_advanced: BinaryHeap<(OrderedF64, u32)>,
    least_advanced: BinaryHeap<Reverse<(OrderedF64, u32)>>,
    /// Flows whose heap entries are pushed at the next access to a heap, because most flows change many times before.
    stale_flows: Vec<u32>,
    unchanged_base_count: usize,
    /// Whether some base was ever below the common start.
    has_base_below_start: bool,
    /// Sum of the bases of the live flows ([`CommonRateKind::EqualRates`]).
    base_sum: f64,
    /// Bytes that flows which are not live have sent.
    sent_by_non_live: f64,
    /// Size of the longest completed flow in bytes.
    longest_completed_bytes: f64,
    /// Number of waiting flows that have sent bytes ([`CommonRateKind::EqualRates`]).
    waiting_with_progress: usize,
    /// As reported: bytes sent by all flows, their total rate, and the time of the report.
    last_report: (f64, f64, f64),
}

impl Coflow {
    /// Creates a coflow from its specification, released at `now`, with all flows waiting. Without `routes`, no flow
    /// crosses a trunk.
    pub(super) fn new(
        spec: &CoflowSpec,
        index: usize,
        seq: u64,
        now: f64,
        (fabric, routes): (&Fabric, Option<&mut Trunks>),
        sharing: CommonRateKind,
        default_estimate: f64,
    ) -> Coflow {
        let keys = layout::order_flows(spec, fabric);
        let (senders, receivers) =
            (distinct(keys.iter().map(|key| key.src)), distinct(keys.iter().map(|key| key.dst)));
        let (grid, positions) = LiveFlowGrid::new(&keys, &receivers);
        let flow_trunks = routes.map(|routes| FlowTrunks::new(spec, &keys, index, fabric, routes));
        let paths = flow_trunks.map_or_else(Paths::default, |trunks| {
            Paths::new(&keys, &positions, &trunks, senders.len() + receivers.len())
        });
        let reducers = Reducers::new(spec, &keys, &positions, receivers.len());
        let flows = build_flows(spec, &keys, positions, &senders, sharing, default_estimate);
        let sender_count = senders.len();
        let trunks = paths.distinct_trunks();
        let live_links = LiveLinks::new(&senders, &receivers, &trunks);
        let ports = ports_of(senders.iter().chain(&receivers), fabric);
        let links = senders.into_iter().chain(receivers).chain(trunks).map(LinkLoad::idle);
        Coflow {
            id: spec.id,
            workload_index: index,
            seq,
            released_at: now,
            weight: spec.weight,
            application: (spec.service, spec.application),
            total_bytes: spec.total_bytes(),
            size_sum: spec.total_bytes(),
            longest_flow_bytes: spec.flows.iter().map(|f| f.bytes.get()).fold(0.0, f64::max),
            default_estimate,
            deadline: spec.deadline.map_or(f64::INFINITY, |d| now + d.get()),
            flows,
            grid,
            paths,
            reducers,
            links: links.collect(),
            ports,
            sender_count,
            slot: 0,
            layout: 0,
            live_links,
            live_count: 0,
            start_count: 0,
            completed_count: 0,
            common_rate_kind: sharing,
            level: sharing.first_level(),
            level_slope: 0.0,
            level_time: now,
            outgrown_flows: Vec::new(),
            completions: None,
            most_advanced: BinaryHeap::new(),
            least_advanced: BinaryHeap::new(),
            stale_flows: Vec::new(),
            unchanged_base_count: 0,
            has_base_below_start: false,
            base_sum: 0.0,
            sent_by_non_live: 0.0,
            longest_completed_bytes: 0.0,
            waiting_with_progress: 0,
            last_report: (0.0, 0.0, now),
        }
    }

    /// How the common part of its rates is counted.
    pub(crate) fn common_rate_kind(&self) -> CommonRateKind {
        self.common_rate_kind
    }

    // State that every policy may read.

    /// Number of all flows (N_c in Saath: the width).
    pub fn width(&self) -> usize {
        self.flows.len()
    }

    /// A number that no other layout of flows has had.
    pub(crate) fn layout(&self) -> u64 {
        self.layout
    }

    /// Number of live flows.
    pub fn live_count(&self) -> usize {
        self.live_count
    }

    /// How often a flow has become live, or all flows were replaced: between equal numbers, live flows only end or stop.
    #[inline]
    pub(crate) fn start_count(&self) -> u64 {
        self.start_count
    }

    /// Number of completed flows.
    pub fn completed_count(&self) -> usize {
        self.completed_count
    }

    /// Whether all flows have completed.
    pub fn is_completed(&self) -> bool {
        self.completed_count == self.flows.len()
    }

    /// The completed flows, in their order. O(flows).
    pub fn completed_flows(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.width() as u32).filter(|&flow| self.flow_state(flow) == FlowState::Completed)
    }

    /// Whether a flow waits for data.
    pub fn has_waiting_flows(&self) -> bool {
        self.live_count + self.completed_count < self.flows.len()
    }

    /// The load of each link: senders, receivers, then trunks.
    #[inline]
    pub fn links(&self) -> &[LinkLoad] {
        &self.links
    }

    /// The load of the sending side of each port, in order of ports.
    pub fn senders(&self) -> &[LinkLoad] {
        &self.links[..self.sender_count]
    }

    /// The load of the receiving side of each port, in order of ports.
    pub fn receivers(&self) -> &[LinkLoad] {
        &self.links[self.sender_count..self.ports.len()]
    }

    /// The sending ports, in the order of [`Coflow::senders`].
    pub fn sending_ports(&self) -> &[u32] {
        &self.ports[..self.sender_count]
    }

    /// The receiving ports, in the order of [`Coflow::receivers`].
    pub fn receiving_ports(&self) -> &[u32] {
        &self.ports[self.sender_count..]
    }

    /// The position of a receiving port in [`Coflow::receivers`]. O(log ports of the coflow).
    pub fn position_of_receiver(&self, port: u32) -> Option<usize> {
        self.receiving_ports().binary_search(&port).ok()
    }

    /// The number of a flow's reducer among those of the coflow at the receiving port: [`super::FlowSpec::reducer`].
    pub fn reducer(&self, flow: u32) -> u32 {
        self.reducers.as_ref().map_or(0, |reducers| reducers.number(flow))
    }

    /// Whether flows have other reducers than 0. Otherwise, the flows to a port are one reducer.
    #[inline]
    pub(crate) fn has_separate_reducers(&self) -> bool {
        self.reducers.is_some()
    }

    /// The flows of each reducer at a receiving port, by number; none if the coflow has no separate reducers. O(log ports of the
    /// coflow), and the flows to the port.
    pub(crate) fn separate_reducers_at(&self, port: u32) -> impl Iterator<Item = &[u32]> {
        let found = self.reducers.as_ref().zip(self.position_of_receiver(port));
        found.into_iter().flat_map(|(reducers, receiver)| reducers.at(receiver))
    }

    /// The flows of a reducer at a receiving port, in order; `None` if the coflow has no separate reducers. O(log flows of the
    /// coflow).
    pub(crate) fn flows_of_separate_reducer(&self, port: u32, number: u32) -> Option<&[u32]> {
        let reducers = self.reducers.as_ref()?;
        Some(self.position_of_receiver(port).map_or(&[], |receiver| reducers.flows_of(receiver, number)))
    }

    /// Number of live flows of a reducer at a receiving port. O(log ports of the coflow), and the flows of a separate reducer.
    pub(crate) fn live_flow_count_of_reducer(&self, port: u32, number: u32) -> usize {
        match self.flows_of_separate_reducer(port, number) {
            Some(flows) => flows.iter().filter(|&&flow| self.flow_state(flow) == FlowState::Live).count(),
            None => {
                let receiver = self.position_of_receiver(port);
                receiver.map_or(0, |at| self.receivers()[at].live_flow_count as usize)
            }
        }
    }

    /// Links with live flows.
    #[inline]
    pub fn live_links(&self) -> &BitSet {
        self.live_links.set()
    }

    /// The links that a flow crosses: of its ports, then trunks.
    #[inline]
    pub fn flow_links(&self, flow: u32) -> impl Iterator<Item = usize> + Clone {
        let (src, dst) = self.flow_port_links(flow);
        [src, dst].into_iter().chain(self.flow_trunks(flow).iter().map(|&trunk| trunk as usize))
    }

    /// The links of a flow's sending and receiving port.
    #[inline]
    pub fn flow_port_links(&self, flow: u32) -> (usize, usize) {
        let (sender, receiver) = self.port_indices(flow);
        (self.links[sender].link as usize, self.links[receiver].link as usize)
    }

    /// The links of the trunks that a flow crosses.
    #[inline]
    pub fn flow_trunks(&self, flow: u32) -> &[u32] {
        self.paths.trunks(flow)
    }

    /// A number that flows over the same trunks share.
    pub fn flow_path(&self, flow: u32) -> u32 {
        self.paths.path(flow)
    }

    /// The sending and the receiving port of a flow.
    #[inline]
    pub fn flow_ports(&self, flow: u32) -> (u32, u32) {
        let (sender, receiver) = self.port_indices(flow);
        (self.ports[sender], self.ports[receiver])
    }

    /// The position of a flow's receiving port in [`Coflow::receivers`].
    pub fn receiver_index(&self, flow: u32) -> usize {
        self.flows[flow as usize].grid_position.receiver as usize
    }

    /// The state of a flow.
    pub fn flow_state(&self, flow: u32) -> FlowState {
        self.flows[flow as usize].state
    }

    /// The position of a flow in the specification.
    pub fn spec_index(&self, flow: u32) -> u32 {
        self.flows[flow as usize].spec_index
    }

    /// Size of the longest completed flow in bytes.
    pub fn longest_completed_bytes(&self) -> f64 {
        self.longest_completed_bytes
    }

    /// The maximum number of bytes that a waiting flow has sent ([`CommonRateKind::EqualRates`]). O(flows) if a waiting flow has
    /// sent bytes.
    pub(super) fn max_waiting_sent_bytes(&self) -> f64 {
        if self.waiting_with_progress == 0 {
            return 0.0;
        }
        let waiting = self.flows.iter().filter(|f| f.state == FlowState::Waiting);
        waiting.map(|f| f.base).fold(0.0, f64::max)
    }

    /// The minimum number of bytes that a waiting flow has sent ([`CommonRateKind::EqualRates`]); `None` without waiting flows.
    /// O(flows) if all waiting flows have sent bytes.
    pub(super) fn min_waiting_sent_bytes(&self) -> Option<f64> {
        match self.flows.len() - self.live_count - self.completed_count {
            0 => None,
            waiting if waiting > self.waiting_with_progress => Some(0.0),
            _ => {
                let waiting = self.flows.iter().filter(|f| f.state == FlowState::Waiting);
                Some(waiting.map(|f| f.base).fold(f64::INFINITY, f64::min))
            }
        }
    }

    /// Bytes that all flows have sent by `now`, as reported.
    pub fn reported_sent_bytes(&self, now: f64) -> f64 {
        let (sent, rate, since) = self.last_report;
        sent + rate * (now - since)
    }

    /// The rate at which [`Coflow::reported_sent_bytes`] grows, in bytes per second.
    pub fn reported_rate(&self) -> f64 {
        self.last_report.1
    }

    /// Calls `visit` with each live flow between open ports, and the links of its ports, in the order of flows.
    ///
    /// `visit` returns whether the sending and the receiving link close. The iteration skips closed links.
    #[inline]
    pub fn visit_open_flows(&self, open: &mut BitSet, visit: impl FnMut(u32, usize, usize) -> (bool, bool)) {
        self.visit_open_flows_from(0, open, visit);
    }

    /// [`Coflow::visit_open_flows`] without the flows of the sending links before one.
    #[inline]
    pub(crate) fn visit_open_flows_from(
        &self,
        first_sender: usize,
        open: &mut BitSet,
        visit: impl FnMut(u32, usize, usize) -> (bool, bool),
    ) {
        self.grid.visit_open_flows(&self.live_links, first_sender, open, visit);
    }

    /// Whether every link of live flows is open.
    #[inline]
    pub(crate) fn has_open_links(&self, open: &BitSet) -> bool {
        self.live_links.are_open(open)
    }

    /// Whether a live flow may cross only links that are open: whether live flows have an open sender, and an open receiver. O(ports of
    /// the coflow).
    pub(crate) fn reaches(&self, is_open: impl Fn(usize) -> bool) -> bool {
        let has_open = |loads: &[LinkLoad]| {
            loads.iter().any(|load| load.live_flow_count > 0 && is_open(load.link as usize))
        };
        has_open(self.senders()) && has_open(self.receivers())
    }

    /// [`Coflow::reaches`] by a set of open links. O(words of 64 ports of the coflow).
    #[inline]
    pub(crate) fn has_open_ends(&self, open: &BitSet) -> bool {
        self.live_links.have_open_ends(open.words())
    }

    /// Whether live flows have an open receiver.
    #[inline]
    pub(crate) fn has_open_receiver(&self, open: &BitSet) -> bool {
        self.live_links.have_open_receiver(open.words())
    }

    /// The slot of the coflow.
    pub(crate) fn slot(&self) -> Slot {
        self.slot
    }

    /// The links with live flows, by word and role, those of senders first. The number of words is constant.
    #[inline]
    pub(crate) fn live_words(&self) -> &[LiveWord] {
        self.live_links.words()
    }

    /// Whether no flow crosses a trunk.
    #[inline]
    pub(crate) fn is_on_one_switch(&self) -> bool {
        self.paths.is_switch()
    }

    /// Includes the flows over excluded trunks that are open now.
    pub(crate) fn include_open_flows(&self, open: &BitSet, flows: &mut CandidateFlows) {
        self.paths.include_open_flows(self.layout, open, flows);
    }

    /// The live senders in the `at`-th word of senders.
    #[inline]
    pub(crate) fn live_senders(&self, at: usize) -> Option<LiveWord> {
        self.live_links.senders().get(at).copied()
    }

    /// The blocks of flows of the sender at a bit of the `at`-th word of senders.
    #[inline]
    pub(crate) fn blocks_of_sender(&self, at: usize, bit: usize) -> Range<usize> {
        self.grid.blocks_of_bit(at, bit)
    }

    /// The next live flow of a block over an open path to an open receiver, and the receiver. `untested` are the receivers of the block
    /// that may be next.
    #[inline]
    pub(crate) fn next_open_flow(
        &self,
        block: usize,
        untested: &mut u64,
        open: &BitSet,
        flows: &mut CandidateFlows,
    ) -> Option<(u32, usize)> {
        *untested &= self.grid.open_bits(block, open) & flows.in_block(block);
        while *untested != 0 {
            let (flow, receiver) = self.grid.flow(block, untested.trailing_zeros() as usize);
            *untested &= *untested - 1;
            if self.paths.test_flow(flow, open, flows) {
                return Some((flow, receiver));
            }
        }
        None
    }

    /// Calls `visit` with the live flows, and their receiving links, from the `index`-th sender of [`Coflow::senders`].
    #[inline]
    pub fn visit_flows_of_sender(&self, index: usize, visit: impl FnMut(u32, u32)) {
        self.grid.visit_flows_of_sender(index, visit);
    }

    /// The live flows, in order.
    pub fn live_flows(&self) -> impl Iterator<Item = u32> + '_ {
        self.grid.live_flows()
    }

    // The level.

    pub(super) fn level(&self, now: f64) -> f64 {
        self.level + self.level_slope * (now - self.level_time)
    }

    /// Moves the origin of the level to `now`, and changes its slope.
    pub(super) fn set_level_slope(&mut self, slope: f64, now: f64) {
        self.level = self.level(now);
        self.level_time = now;
        self.level_slope = slope;
    }

    pub(super) fn level_slope(&self) -> f64 {
        self.level_slope
    }

    /// The remaining bytes of live flows divided by their bases. Not with equal rates.
    pub(super) fn remaining_share(&self, now: f64) -> f64 {
        match self.common_rate_kind {
            CommonRateKind::EstimatedRates => 1.0 - self.level(now),
            CommonRateKind::EqualRates | CommonRateKind::ProportionalRates => self.level(now),
        }
    }

    /// The common part of the rates of live flows divided by their bases. Not with equal rates.
    pub(super) fn rate_per_base(&self) -> f64 {
        match self.common_rate_kind {
            CommonRateKind::EstimatedRates => self.level_slope,
            CommonRateKind::EqualRates | CommonRateKind::ProportionalRates => -self.level_slope,
        }
    }

    /// The slope of the level at which the remaining bytes of live flows take this many seconds. Not with equal rates.
    pub(super) fn slope_to_complete_in(&self, seconds: f64, now: f64) -> f64 {
        let slope = self.remaining_share(now) / seconds;
        if self.common_rate_kind == CommonRateKind::EstimatedRates { slope } else { -slope }
    }

    /// Time of the next completion by the level alone; infinite if no flow completes.
    pub(super) fn next_completion(&mut self) -> f64 {
        if self.level_slope == 0.0 || self.live_count == 0 {
            return f64::INFINITY;
        }
        match self.common_rate_kind {
            CommonRateKind::ProportionalRates => self.level_time - self.level / self.level_slope,
            CommonRateKind::EqualRates | CommonRateKind::EstimatedRates => {
                match self.first_level_completion() {
                    Some((end, _)) => self.level_time + (end - self.level).max(0.0) / self.level_slope,
                    None => f64::INFINITY,
                }
            }
        }
    }

    /// The flow that completes first as the level rises, and the level of its completion.
    fn first_level_completion(&mut self) -> Option<(f64, u32)> {
        self.push_stale_flows();
        if self.completions.is_none() {
            self.list_completions();
        }
        let kind = self.common_rate_kind;
        let flows = &self.flows;
        self.completions.as_mut()?.first(|end, flow| {
            let f = &flows[flow as usize];
            let is_by_level = kind != CommonRateKind::EstimatedRates || f.own_rate_index == NO_INDEX;
            f.state == FlowState::Live && is_by_level && f.completion_level(kind) == end
        })
    }

    /// Completes the flows that the level alone completes by `until`, and calls `on_completed` with each flow and its time.
    pub(super) fn complete_flows_until(&mut self, until: f64, mut on_completed: impl FnMut(u32, f64)) {
        while self.live_count > 0 {
            let at = self.next_completion();
            if at > until {
                return;
            }
            match self.common_rate_kind {
                CommonRateKind::EqualRates | CommonRateKind::EstimatedRates => {
                    let Some((_, flow)) = self.first_level_completion() else { return };
                    self.complete_flow(flow);
                    on_completed(flow, at);
                }
                CommonRateKind::ProportionalRates => {
                    let all: Vec<u32> = self.live_flows().collect();
                    for flow in all {
                        self.complete_flow(flow);
                        on_completed(flow, at);
                    }
                    // No live flow depends on this level. The next flow starts a new level.
                    (self.level, self.level_slope, self.level_time) = (1.0, 0.0, at);
                }
            }
        }
    }

    // Progress of single flows.

    /// Adds `bytes`, which a live flow sent at its own rate, to its base.
    pub(super) fn add_own_bytes(&mut self, flow: u32, bytes: f64, now: f64) {
        let level = self.level(now);
        let f = &mut self.flows[flow as usize];
        match self.common_rate_kind {
            CommonRateKind::EqualRates => {
                f.base += bytes;
                self.base_sum += bytes;
                self.mark_base_changed(flow);
            }
            CommonRateKind::ProportionalRates => self.reduce_base(flow, bytes / level),
            CommonRateKind::EstimatedRates => {
                self.restart_low_share(now);
                self.reduce_estimated_base(flow, bytes / self.remaining_share(now));
            }
        }
    }

    /// Subtracts a part, in units of the level, from the remaining bytes of a live flow ([`CommonRateKind::ProportionalRates`]).
    #[inline]
    pub(super) fn reduce_base(&mut self, flow: u32, part: f64) {
        let f = &mut self.flows[flow as usize];
        let part = part.min(f.base);
        f.base -= part;
        self.add_to_base_sums(flow, -part);
    }

    /// Moves a part, in units of the remaining share, from the estimated remaining bytes of a live flow to its sent bytes. The
    /// remaining bytes can become negative ([`CommonRateKind::EstimatedRates`]).
    #[inline]
    pub(super) fn reduce_estimated_base(&mut self, flow: u32, part: f64) {
        let f = &mut self.flows[flow as usize];
        f.base -= part;
        f.sent_before_level += part;
        // By rounding, a wake-up at the end of the estimate can leave some bytes.
        if f.base <= SPENT_SHARE * f.estimate() {
            self.outgrown_flows.push(flow);
        }
        self.add_to_base_sums(flow, -part);
    }

    /// The positions of a flow's sending and receiving side in [`Coflow::links`].
    #[inline]
    fn port_indices(&self, flow: u32) -> (usize, usize) {
        let f = &self.flows[flow as usize];
        (f.sender_index as usize, self.sender_count + f.grid_position.receiver as usize)
    }

    /// Adds to the sums of bases at the links of a live flow.
    #[inline]
    fn add_to_base_sums(&mut self, flow: u32, part: f64) {
        let (sender, receiver) = self.port_indices(flow);
        self.links[sender].base_sum += part;
        self.links[receiver].base_sum += part;
        for &trunk in self.paths.trunk_indices(flow) {
            self.links[trunk as usize].base_sum += part;
        }
    }

    /// Records that the base of a live flow has its own value from now on.
    fn mark_base_changed(&mut self, flow: u32) {
        let f = &mut self.flows[flow as usize];
        if !f.base_changed {
            f.base_changed = true;
            self.unchanged_base_count -= 1;
        }
        if !f.heaps_stale {
            f.heaps_stale = true;
            self.stale_flows.push(flow);
        }
    }

    /// Prepares a live flow for its own rate.
    pub(super) fn ensure_base_changed(&mut self, flow: u32) {
        if !self.flows[flow as usize].base_changed {
            self.mark_base_changed(flow);
        }
    }

    /// Pushes the changed bases to the heaps. O(log flows) for each.
    fn push_stale_flows(&mut self) {
        while let Some(flow) = self.stale_flows.pop() {
            let f = &mut self.flows[flow as usize];
            f.heaps_stale = false;
            if f.state != FlowState::Live {
                continue;
            }
            let base = f.base;
            self.push_completion(flow);
            self.most_advanced.push((OrderedF64(base), flow));
            self.least_advanced.push(Reverse((OrderedF64(base), flow)));
        }
        if self.most_advanced.len().max(self.least_advanced.len()) > self.max_entries() {
            self.rebuild_heaps();
        }
    }

    /// The maximum number of entries of a heap, of which at most one for each live flow is current.
    fn max_entries(&self) -> usize {
        2 * self.live_count + MIN_ENTRIES
    }

    /// Drops stale entries of the flows by base. O(live flows).
    fn rebuild_heaps(&mut self) {
        let flows = self.live_flows().filter(|&flow| self.flows[flow as usize].base_changed);
        let entries: Vec<_> = flows.map(|flow| (OrderedF64(self.flows[flow as usize].base), flow)).collect();
        self.least_advanced = entries.iter().copied().map(Reverse).collect();
        self.most_advanced = entries.into();
    }

    /// Lists the live flows by the level at which they complete. O(live flows).
    fn list_completions(&mut self) {
        self.completions = Some(Box::new(CompletionQueue::with_capacity(self.live_count)));
        let flows: Vec<u32> = self.live_flows().collect();
        flows.into_iter().for_each(|flow| self.push_completion(flow));
    }

    /// Records the level at which a live flow completes without its own rate. Not with [`CommonRateKind::ProportionalRates`].
    pub(super) fn push_completion(&mut self, flow: u32) {
        let max_entries = self.max_entries();
        let Some(completions) = &mut self.completions else { return };
        let f = &self.flows[flow as usize];
        let is_by_level = self.common_rate_kind == CommonRateKind::EqualRates || f.own_rate_index == NO_INDEX;
        let end = f.completion_level(self.common_rate_kind);
        if is_by_level && end.is_finite() {
            completions.push(end, flow);
            if completions.len() > max_entries {
                self.completions = None;
            }
        }
    }

    /// Bytes that a flow has sent by `now`, without bytes sent at its own rate since the last fold.
    pub(super) fn sent_bytes(&self, flow: u32, now: f64) -> f64 {
        let f = &self.flows[flow as usize];
        match (f.state, self.common_rate_kind) {
            (FlowState::Completed, _) => f.size,
            (FlowState::Live, CommonRateKind::EqualRates) => f.base + self.level(now),
            (FlowState::Waiting, CommonRateKind::EqualRates) => f.base,
            (FlowState::Live, CommonRateKind::ProportionalRates) => f.size - f.base * self.level(now),
            (FlowState::Waiting, CommonRateKind::ProportionalRates) => f.size - f.base,
            (FlowState::Live, CommonRateKind::EstimatedRates) => f.estimated_sent(self.level(now)),
            (FlowState::Waiting, CommonRateKind::EstimatedRates) => f.sent_before_level,
        }
    }

    /// Remaining bytes of a live flow, as estimated, without bytes sent at its own rate since the last fold. Not with equal rates.
    ///
    /// The result is also exact if the size is far greater than the remainder.
    pub(crate) fn remaining_bytes(&self, flow: u32, now: f64) -> f64 {
        self.flows[flow as usize].base * self.remaining_share(now)
    }

    /// Bytes that all flows have sent, without bytes sent at own rates since the last fold. Not with estimated sizes. O(1) with equal
    /// rates; otherwise O(senders), and O(flows) while a flow waits for data.
    pub(super) fn total_sent_bytes(&self, now: f64) -> f64 {
        match self.common_rate_kind {
            CommonRateKind::EqualRates => {
                self.sent_by_non_live + self.base_sum + self.live_count as f64 * self.level(now)
            }
            CommonRateKind::ProportionalRates | CommonRateKind::EstimatedRates => {
                let mut remaining = self.live_base_sum() * self.remaining_share(now);
                if self.has_waiting_flows() {
                    let waiting = self.flows.iter().filter(|f| f.state == FlowState::Waiting);
                    remaining += waiting.map(|f| f.base).sum::<f64>();
                }
                (self.size_sum - remaining).max(0.0)
            }
        }
    }

    /// Sum of the bases of the live flows. Not with equal rates. O(senders).
    fn live_base_sum(&self) -> f64 {
        self.senders().iter().map(|load| load.base_sum.max(0.0)).sum()
    }

    /// The total of the live flows' common rates, in bytes per second. O(1) with equal rates, otherwise O(senders).
    pub(super) fn total_common_rate(&self) -> f64 {
        match self.common_rate_kind {
            CommonRateKind::EqualRates => self.level_slope * self.live_count as f64,
            CommonRateKind::ProportionalRates | CommonRateKind::EstimatedRates => {
                self.rate_per_base() * self.live_base_sum()
            }
        }
    }

    /// The highest base of a live flow ([`CommonRateKind::EqualRates`]).
    pub(super) fn max_base(&mut self) -> Option<f64> {
        self.push_stale_flows();
        let common = (self.unchanged_base_count > 0).then_some(0.0);
        while let Some(&(OrderedF64(base), flow)) = self.most_advanced.peek() {
            let f = &self.flows[flow as usize];
            if f.state == FlowState::Live && f.base == base {
                return Some(common.map_or(base, |c: f64| c.max(base)));
            }
            self.most_advanced.pop();
        }
        common
    }

    /// The lowest base of a live flow, and this flow unless it was never touched ([`CommonRateKind::EqualRates`]).
    pub(super) fn min_base(&mut self) -> Option<(f64, Option<u32>)> {
        let common = (self.unchanged_base_count > 0).then_some((0.0, None));
        if common.is_some() && !self.has_base_below_start {
            return common;
        }
        self.push_stale_flows();
        while let Some(&Reverse((OrderedF64(base), flow))) = self.least_advanced.peek() {
            let f = &self.flows[flow as usize];
            if f.state == FlowState::Live && f.base == base {
                return match common {
                    Some(c) if c.0 <= base => Some(c),
                    _ => Some((base, Some(flow))),
                };
            }
            self.least_advanced.pop();
        }
        common
    }

    // Estimated sizes ([`CommonRateKind::EstimatedRates`]).

    /// Whether the remaining share is so low that divisions by it lose precision ([`CommonRateKind::EstimatedRates`]).
    pub(super) fn has_low_share(&self, now: f64) -> bool {
        self.common_rate_kind == CommonRateKind::EstimatedRates && self.remaining_share(now) < LOW_SHARE
    }

    /// Restarts the level at 0 if the remaining share is so low that divisions by it lose precision.
    pub(super) fn restart_low_share(&mut self, now: f64) {
        if self.has_low_share(now) {
            self.restart_level(now);
        }
    }

    /// Restarts the level at 0: bases become the remaining bytes. O(live flows).
    ///
    /// Rates in proportion to nothing do not exist. If nothing remains, the common part of the rates ends until the next schedule.
    fn restart_level(&mut self, now: f64) {
        let (level, share) = (self.level(now), self.remaining_share(now));
        self.clear_base_sums();
        self.completions = None;
        let flows: Vec<u32> = self.live_flows().collect();
        for flow in flows {
            let f = &mut self.flows[flow as usize];
            f.sent_before_level = f.estimated_sent(level);
            f.base *= share;
            let base = f.base;
            self.add_to_base_sums(flow, base);
            // By rounding, a wake-up at the end of the estimates can leave some bytes.
            if self.is_outgrown(flow) {
                self.outgrown_flows.push(flow);
            }
        }
        let slope = if share > SPENT_SHARE { self.level_slope / share } else { 0.0 };
        (self.level, self.level_slope, self.level_time) = (0.0, slope, now);
    }

    fn clear_base_sums(&mut self) {
        self.links.iter_mut().for_each(|load| load.base_sum = 0.0);
    }

    /// Limits the estimate of a waiting flow by those of live flows. The coflow's rates apply to the flow from now on, and a flow with
    /// the default estimate would have a rate far above the others until the next schedule.
    fn limit_estimate_of_waiting(&mut self, flow: u32, now: f64) {
        if self.level_slope == 0.0 || self.live_count == 0 {
            return;
        }
        let mean = self.live_base_sum() * self.remaining_share(now) / self.live_count as f64;
        let f = &mut self.flows[flow as usize];
        if f.base > 2.0 * mean {
            f.base = mean;
        }
    }

    /// Whether a flow has sent its whole estimated size. The bytes sent at own rates are current.
    pub(super) fn has_outgrown_flows(&self, now: f64) -> bool {
        !self.outgrown_flows.is_empty() || self.remaining_share(now) < SPENT_SHARE
    }

    /// Whether a flow is live and has sent its whole estimate.
    fn is_outgrown(&self, flow: u32) -> bool {
        let f = &self.flows[flow as usize];
        f.state == FlowState::Live && f.base <= SPENT_SHARE * f.estimate()
    }

    /// Whether a live flow has sent its whole estimated size, as for [`Coflow::has_outgrown_flows`], without flows that have completed.
    pub(crate) fn has_outgrown_live_flow(&self, now: f64) -> bool {
        let is_low = self.live_count > 0 && self.remaining_share(now) < SPENT_SHARE;
        is_low || self.outgrown_flows.iter().any(|&flow| self.is_outgrown(flow))
    }

    /// The time at which flows without own rates outgrow their estimates; infinite if no such flow sends.
    pub(super) fn estimates_end_at(&self) -> f64 {
        if self.level_slope == 0.0 || self.live_count == 0 {
            return f64::INFINITY;
        }
        self.level_time + (1.0 - self.level + OUTGROWN_SHARE) / self.level_slope
    }

    /// Sets the estimated sizes of the live flows that have sent their estimates. `estimate` is as for
    /// [`Coflow::set_estimates`]. O(live flows) if flows without own rates are among these flows.
    pub(super) fn raise_estimates(&mut self, now: f64, mut estimate: impl FnMut(u32, u32, f64) -> f64) {
        self.restart_low_share(now);
        let level = self.level(now);
        let mut flows = std::mem::take(&mut self.outgrown_flows);
        flows.retain(|&flow| {
            if !self.is_outgrown(flow) {
                return false;
            }
            let f = &mut self.flows[flow as usize];
            let sent = f.estimated_sent(level);
            let estimate = valid_estimate(estimate(flow, f.grid_position.receiver, sent), sent);
            let more = f.set_estimate(estimate, sent, level);
            self.add_to_base_sums(flow, more);
            self.push_completion(flow);
            self.is_outgrown(flow)
        });
        self.outgrown_flows = flows;
    }

    /// Sets the estimated sizes of the live flows. `estimate` receives a flow, the position of its receiving port in
    /// [`Coflow::receivers`], and the bytes that the flow has sent; it returns more than these bytes, or the flow is outgrown. The
    /// bytes sent at own rates are current. O(live flows).
    pub(super) fn set_estimates(&mut self, now: f64, mut estimate: impl FnMut(u32, u32, f64) -> f64) {
        let level = self.level(now);
        self.clear_base_sums();
        self.completions = None;
        self.outgrown_flows.clear();
        let flows: Vec<u32> = self.live_flows().collect();
        for flow in flows {
            let f = &mut self.flows[flow as usize];
            let sent = f.estimated_sent(level);
            let estimate = valid_estimate(estimate(flow, f.grid_position.receiver, sent), sent);
            f.set_estimate(estimate, sent, 0.0);
            let base = f.base;
            if base <= 0.0 {
                self.outgrown_flows.push(flow);
            }
            self.add_to_base_sums(flow, base);
        }
        (self.level, self.level_time) = (0.0, now);
    }

    // Changes of state.

    /// Makes a waiting flow live. Call [`Coflow::complete_flow`] instead for a flow without bytes.
    pub(super) fn set_flow_live(&mut self, flow: u32, now: f64) {
        if self.live_count == 0 && self.common_rate_kind.is_proportional() {
            // No live flow depends on the old level, which may have continued after the last completion.
            (self.level, self.level_slope, self.level_time) = (self.common_rate_kind.first_level(), 0.0, now);
        }
        if self.common_rate_kind == CommonRateKind::EstimatedRates {
            self.restart_low_share(now);
            self.limit_estimate_of_waiting(flow, now);
            let Flow { base, size, .. } = self.flows[flow as usize];
            if base * self.level(now) > MAX_SENT_SIZES * size {
                self.restart_level(now);
            }
        }
        let level = self.level(now);
        let f = &mut self.flows[flow as usize];
        debug_assert_eq!(f.state, FlowState::Waiting);
        f.state = FlowState::Live;
        match self.common_rate_kind {
            CommonRateKind::EqualRates => {
                self.sent_by_non_live -= f.base;
                self.waiting_with_progress -= usize::from(f.base > 0.0);
                f.base -= level;
                self.base_sum += f.base;
                // The level has not moved before the first release.
                if f.base == 0.0 && !f.base_changed {
                    self.unchanged_base_count += 1;
                    self.push_completion(flow);
                } else {
                    self.has_base_below_start |= f.base < 0.0;
                    f.base_changed = true;
                    self.mark_base_changed(flow);
                }
            }
            CommonRateKind::ProportionalRates => {
                f.base /= level;
                let base = f.base;
                self.add_to_base_sums(flow, base);
            }
            CommonRateKind::EstimatedRates => {
                f.set_estimate(f.estimate(), f.sent_before_level, level);
                let base = f.base;
                self.add_to_base_sums(flow, base);
                self.push_completion(flow);
            }
        }
        self.mark_live(flow);
    }

    fn mark_live(&mut self, flow: u32) {
        let (sender, receiver) = self.port_indices(flow);
        self.live_count += 1;
        self.start_count += 1;
        self.grid.insert(self.flows[flow as usize].grid_position, self.links[receiver].link);
        self.links[receiver].add_flow(Role::Receiver, &mut self.live_links);
        self.links[sender].add_flow(Role::Sender, &mut self.live_links);
        for &trunk in self.paths.trunk_indices(flow) {
            self.links[trunk as usize].add_flow(Role::Trunk, &mut self.live_links);
        }
    }

    fn mark_not_live(&mut self, flow: u32) {
        let Flow { grid_position, base, base_changed, .. } = self.flows[flow as usize];
        let (sender, receiver) = self.port_indices(flow);
        self.live_count -= 1;
        if self.common_rate_kind == CommonRateKind::EqualRates {
            self.base_sum -= base;
            if !base_changed {
                self.unchanged_base_count -= 1;
            }
        }
        // With equal rates, the sums of bases by link are not in use.
        self.grid.remove(grid_position, self.links[receiver].link);
        self.links[receiver].remove_flow(base, Role::Receiver, &mut self.live_links);
        self.links[sender].remove_flow(base, Role::Sender, &mut self.live_links);
        for &trunk in self.paths.trunk_indices(flow) {
            self.links[trunk as usize].remove_flow(base, Role::Trunk, &mut self.live_links);
        }
    }

    /// Makes a live flow wait for its data.
    pub(super) fn set_flow_waiting(&mut self, flow: u32, now: f64) {
        let level = self.level(now);
        self.mark_not_live(flow);
        let f = &mut self.flows[flow as usize];
        f.state = FlowState::Waiting;
        match self.common_rate_kind {
            CommonRateKind::EqualRates => {
                f.base += level;
                self.sent_by_non_live += f.base;
                self.waiting_with_progress += usize::from(f.base > 0.0);
            }
            CommonRateKind::ProportionalRates => f.base *= level,
            CommonRateKind::EstimatedRates => {
                f.sent_before_level = f.estimated_sent(level);
                f.base *= 1.0 - level;
            }
        }
        f.base_changed = true;
    }

    /// Resets the progress of a waiting flow.
    fn reset_progress(&mut self, flow: u32) {
        let f = &mut self.flows[flow as usize];
        debug_assert_eq!(f.state, FlowState::Waiting);
        f.base = match self.common_rate_kind {
            CommonRateKind::EqualRates => {
                self.sent_by_non_live -= f.base;
                self.waiting_with_progress -= usize::from(f.base > 0.0);
                0.0
            }
            CommonRateKind::ProportionalRates => f.size,
            CommonRateKind::EstimatedRates => f.estimate(),
        };
        f.sent_before_level = 0.0;
    }

    /// Sets the bytes that a waiting flow has sent. If the bytes reach the size, one byte remains until the
    /// completion is observed.
    pub(super) fn set_sent_bytes(&mut self, flow: u32, bytes: f64) {
        self.reset_progress(flow);
        let f = &mut self.flows[flow as usize];
        let bytes = if bytes < f.size { bytes } else { (f.size - 1.0).max(0.0) };
        match self.common_rate_kind {
            CommonRateKind::EqualRates => {
                f.base = bytes;
                self.sent_by_non_live += bytes;
                self.waiting_with_progress += usize::from(bytes > 0.0);
            }
            CommonRateKind::ProportionalRates => f.base = f.size - bytes,
            CommonRateKind::EstimatedRates => {
                f.base -= bytes;
                f.sent_before_level = bytes;
            }
        }
    }

    /// Sets the size of a waiting flow in bytes, and resets its progress.
    pub(super) fn set_size(&mut self, flow: u32, bytes: f64) {
        self.size_sum += bytes - self.flows[flow as usize].size;
        self.flows[flow as usize].size = bytes;
        self.reset_progress(flow);
    }

    /// Sets the size of a flow that completes next. A live flow's progress is not computed: its time of completion may have passed.
    pub(super) fn set_final_size(&mut self, flow: u32, bytes: f64) {
        if self.flows[flow as usize].state == FlowState::Live {
            self.size_sum += bytes - self.flows[flow as usize].size;
            self.flows[flow as usize].size = bytes;
        } else {
            self.set_size(flow, bytes);
        }
    }

    /// Copies the progress of the flows of `other`, matched by their positions in the specifications. `other`
    /// contains no live flows.
    pub(super) fn copy_progress(&mut self, other: &Coflow, now: f64) {
        let mut other_by_spec_index: Vec<u32> = vec![NO_INDEX; other.flows.len()];
        for (flow, f) in other.flows.iter().enumerate() {
            other_by_spec_index[f.spec_index as usize] = flow as u32;
        }
        for flow in 0..self.flows.len() as u32 {
            let Some(&other_flow) = other_by_spec_index.get(self.spec_index(flow) as usize) else { continue };
            if self.flow_ports(flow) != other.flow_ports(other_flow) {
                continue;
            }
            if other.flow_state(other_flow) == FlowState::Completed {
                self.set_size(flow, other.flows[other_flow as usize].size);
                self.complete_flow(flow);
            } else {
                // By rounding, the bytes can reach the size just before the completion.
                let below_size = self.flows[flow as usize].size.next_down().max(0.0);
                self.set_sent_bytes(flow, other.sent_bytes(other_flow, now).min(below_size));
            }
        }
        (self.last_report, self.longest_completed_bytes) = (other.last_report, other.longest_completed_bytes);
        self.start_count = other.start_count + 1;
    }

    /// Completes a flow.
    pub(super) fn complete_flow(&mut self, flow: u32) {
        if self.flows[flow as usize].state == FlowState::Live {
            self.mark_not_live(flow);
        }
        let f = &mut self.flows[flow as usize];
        f.state = FlowState::Completed;
        self.sent_by_non_live += f.size;
        self.longest_completed_bytes = self.longest_completed_bytes.max(f.size);
        self.completed_count += 1;
    }

    pub(super) fn set_last_report(&mut self, sent_bytes: f64, rate: f64, now: f64) {
        self.last_report = (sent_bytes, rate, now);
    }
}
