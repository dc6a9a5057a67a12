//! Residual capacity of each link during the construction of a schedule.

use crate::model::bit_set::{WordBits, bits_from};
use crate::model::{BitSet, CandidateFlows, Coflow, Fabric, FlowState, LiveWord, RemainingLoads};
use crate::rounding;

/// Residual capacity of the links, and the set of links with any.
#[derive(Debug, Clone, Default)]
pub struct SavedResidual {
    residuals: Vec<f64>,
    open_links: BitSet,
}

impl SavedResidual {
    fn set_residuals(&mut self, residuals: &[f64], tolerance: f64) {
        self.residuals.clear();
        self.residuals.extend_from_slice(residuals);
        self.open_links.set_where(residuals, |&residual| residual > tolerance);
    }

    fn copy_from(&mut self, other: &SavedResidual) {
        self.residuals.clone_from(&other.residuals);
        self.open_links.copy_from(&other.open_links);
    }

    #[inline]
    fn subtract_rate(&mut self, link: usize, rate: f64, tolerance: f64) {
        self.residuals[link] -= rate;
        if self.residuals[link] <= tolerance {
            self.residuals[link] = 0.0;
            self.open_links.remove(link);
        }
    }

    /// Removes those links of a flow that have closed from the open ones.
    #[inline]
    fn close_links(&mut self, (src, dst): (usize, usize), trunks: &[u32], closed: ClosedLinks) {
        if closed & SENDER != 0 {
            self.open_links.remove(src);
        }
        if closed & RECEIVER != 0 {
            self.open_links.remove(dst);
        }
        if closed & !(SENDER | RECEIVER) != 0 {
            for &trunk in trunks.iter().filter(|&&trunk| self.residuals[trunk as usize] == 0.0) {
                self.open_links.remove(trunk as usize);
            }
        }
    }

    /// See [`ResidualCapacity::max_equal_rate`].
    #[inline]
    fn max_equal_rate(&self, coflow: &Coflow) -> f64 {
        let mut rate = f64::INFINITY;
        for load in coflow.links() {
            // A product is cheaper than a quotient, and most links are not the bottleneck.
            if rate * f64::from(load.live_flow_count) > self.residuals[load.link as usize] {
                rate = self.residuals[load.link as usize] / f64::from(load.live_flow_count);
            }
        }
        rate
    }
}

/// Bit by position of a flow's link for those of the links that close: its sender, its receiver, then trunks.
type ClosedLinks = u32;

/// The bits of a flow's sender and receiver.
const SENDER: ClosedLinks = 1;
const RECEIVER: ClosedLinks = 2;

/// All links from this position on share one bit, and a search with it set is not repeated.
const LAST_POSITION: u32 = ClosedLinks::BITS - 1;

/// Gives a flow the residual capacity of its links. Returns its rate, and which links close.
#[inline]
fn fill_flow(
    residuals: &mut [f64],
    (src, dst): (usize, usize),
    trunks: &[u32],
    tolerance: f64,
) -> (f64, ClosedLinks) {
    let (from, to) = (residuals[src], residuals[dst]);
    let mut rate = if from < to { from } else { to };
    for &trunk in trunks {
        rate = rate.min(residuals[trunk as usize]);
    }
    let (from, to) = (from - rate, to - rate);
    (residuals[src], residuals[dst]) = (from, to);
    let mut closed = (SENDER * u32::from(from <= tolerance)) | (RECEIVER * u32::from(to <= tolerance));
    for (&trunk, position) in trunks.iter().zip(2..) {
        let left = &mut residuals[trunk as usize];
        *left -= rate;
        if *left <= tolerance {
            *left = 0.0;
            closed |= 1 << LAST_POSITION.min(position);
        }
    }
    (rate, closed)
}

/// A flow that got the residual capacity of its links, and which of them closed.
#[derive(Debug)]
struct FilledFlow {
    flow: u32,
    src: u32,
    dst: u32,
    closed: ClosedLinks,
}

/// The last search for flows of a coflow between open links.
///
/// What a search finds depends on the live flows, the open links, and the links that each flow closes, but not on amounts of capacity.
#[derive(Debug, Default)]
struct FillSearch {
    seq: u64,
    start_count: u64,
    live_count: usize,
    /// The links of the live flows before the search, and those of them that were open, by word.
    live_words: Vec<LiveWord>,
    open_words: Vec<u64>,
    /// The flows that it found, in order.
    found: Vec<FilledFlow>,
    /// Over trunks: the flows that searches test.
    candidates: CandidateFlows,
}

impl FillSearch {
    /// Starts the next search: keeps those flows of the last one that it finds too if they close the same links. Returns whether it finds
    /// no others.
    #[inline]
    fn start(&mut self, coflow: &Coflow, open: &BitSet) -> bool {
        let is_same_coflow = (self.seq, self.start_count) == (coflow.seq, coflow.start_count());
        let (mut closed, mut opened) = (0, 0);
        if is_same_coflow {
            let words = self.live_words.iter().zip(&self.open_words).zip(coflow.live_words());
            for ((before, was_open), live) in words {
                let is_open = before.open_bits(open.words());
                closed |= was_open & !is_open;
                opened |= is_open & !was_open & live.bits;
            }
            if closed | opened == 0 && self.live_count == coflow.live_count() {
                return true;
            }
        }
        let is_lost = |found: &FilledFlow| {
            let trunks = coflow.flow_trunks(found.flow);
            [found.src, found.dst].iter().chain(trunks).any(|&link| !open.contains(link as usize))
                || coflow.flow_state(found.flow) != FlowState::Live
        };
        let finds_others = !is_same_coflow || opened != 0;
        let lost = if finds_others { Some(0) } else { self.found.iter().position(is_lost) };
        self.found.truncate(lost.unwrap_or(usize::MAX));
        (self.seq, self.start_count) = (coflow.seq, coflow.start_count());
        self.live_count = coflow.live_count();
        self.live_words.clear();
        self.live_words.extend_from_slice(coflow.live_words());
        self.open_words.clear();
        self.open_words.extend(self.live_words.iter().map(|live| live.open_bits(open.words())));
        lost.is_none()
    }

    /// Fills the flows of the last search, as long as they close the same links. Returns whether they all do.
    #[inline]
    fn repeat(
        &mut self,
        coflow: &Coflow,
        now: &mut SavedResidual,
        tolerance: f64,
        mut on_rate: impl FnMut(u32, f64),
    ) -> bool {
        for at in 0..self.found.len() {
            let found = &mut self.found[at];
            let (ends, trunks) = ((found.src as usize, found.dst as usize), coflow.flow_trunks(found.flow));
            let (rate, closed) = fill_flow(&mut now.residuals, ends, trunks, tolerance);
            on_rate(found.flow, rate);
            now.close_links(ends, trunks, closed);
            if closed != found.closed || closed >> LAST_POSITION == 1 {
                found.closed = closed;
                self.found.truncate(at + 1);
                return false;
            }
        }
        true
    }

    /// Finds the flows that follow those of the last search, on one switch.
    #[inline]
    fn search(
        &mut self,
        coflow: &Coflow,
        now: &mut SavedResidual,
        tolerance: f64,
        mut on_rate: impl FnMut(u32, f64),
    ) {
        let first_sender = self.first_sender();
        let SavedResidual { residuals, open_links } = now;
        coflow.visit_open_flows_from(first_sender, open_links, |flow, src, dst| {
            let (rate, closed) = fill_flow(residuals, (src, dst), &[], tolerance);
            on_rate(flow, rate);
            self.found.push(FilledFlow { flow, src: src as u32, dst: dst as u32, closed });
            (closed & SENDER != 0, closed & RECEIVER != 0)
        });
    }

    /// [`FillSearch::search`] over trunks. O(words of 64 receivers) for each open sender, and at worst the flows of these senders to open
    /// receivers.
    fn search_over_trunks(
        &mut self,
        coflow: &Coflow,
        now: &mut SavedResidual,
        tolerance: f64,
        mut on_rate: impl FnMut(u32, f64),
    ) {
        let first_sender = self.first_sender();
        coflow.include_open_flows(&now.open_links, &mut self.candidates);
        let mut at = 0;
        while let Some(live) = coflow.live_senders(at) {
            let word = live.word as usize;
            for bit in WordBits(live.open_bits(now.open_links.words()) & bits_from(first_sender, word)) {
                let mut closed_ends = 0;
                'sender: for block in coflow.blocks_of_sender(at, bit) {
                    let mut untested = u64::MAX;
                    while let Some((flow, dst)) =
                        coflow.next_open_flow(block, &mut untested, &now.open_links, &mut self.candidates)
                    {
                        let (ends, trunks) = ((64 * word + bit, dst), coflow.flow_trunks(flow));
                        let (rate, closed) = fill_flow(&mut now.residuals, ends, trunks, tolerance);
                        on_rate(flow, rate);
                        now.close_links(ends, trunks, closed);
                        self.found.push(FilledFlow { flow, src: ends.0 as u32, dst: dst as u32, closed });
                        closed_ends |= closed;
                        if closed & SENDER != 0 {
                            break 'sender;
                        }
                    }
                }
                if closed_ends & RECEIVER != 0 && !coflow.has_open_receiver(&now.open_links) {
                    return;
                }
            }
            at += 1;
        }
    }

    /// The first sender of flows that the last search may not have found: those of earlier senders are found.
    fn first_sender(&self) -> usize {
        self.found.last().map_or(0, |last| last.src as usize)
    }
}

/// Residual capacity of the links during the construction of a schedule.
#[derive(Debug, Default)]
pub struct ResidualCapacity {
    now: SavedResidual,
    /// The state of the idle fabric, and the version of the fabric that it comes from.
    idle: SavedResidual,
    version: u64,
    /// A residual capacity up to this value counts as 0: it is rounding.
    rounding_tolerance: f64,
    /// The links that are sending sides of ports, and receiving sides.
    senders: BitSet,
    receivers: BitSet,
    first_limiting_link: usize,
    /// By slot: see [`ResidualCapacity::fill_flows`].
    searches: Vec<FillSearch>,
}

impl ResidualCapacity {
    /// Resets all links to the capacities of the fabric. O(links).
    pub fn reset(&mut self, fabric: &Fabric) {
        if self.version != fabric.version() {
            self.version = fabric.version();
            self.set_fabric(fabric);
            self.idle.set_residuals(fabric.capacities(), self.rounding_tolerance);
        }
        self.now.copy_from(&self.idle);
    }

    fn set_fabric(&mut self, fabric: &Fabric) {
        self.rounding_tolerance = fabric.rounding_tolerance();
        self.senders.copy_from(fabric.senders());
        self.receivers.copy_from(fabric.receivers());
        self.first_limiting_link = fabric.first_limiting_link();
    }

    /// Saves the present state in `copy`. O(links).
    pub fn save(&self, copy: &mut SavedResidual) {
        copy.copy_from(&self.now);
    }

    /// Restores a state of the same fabric. O(links).
    pub fn restore(&mut self, copy: &SavedResidual) {
        self.now.copy_from(copy);
    }

    /// Sets the residual capacities of all links, such as the result of an earlier allocation. O(links).
    pub fn set_residuals(&mut self, fabric: &Fabric, residuals: &[f64]) {
        self.version = 0;
        self.set_fabric(fabric);
        self.now.set_residuals(residuals, self.rounding_tolerance);
    }

    /// Whether all ports are exhausted on one of the sides, so that no flow can get a rate.
    pub fn is_exhausted(&self) -> bool {
        !self.senders.intersects(&self.now.open_links) || !self.receivers.intersects(&self.now.open_links)
    }

    /// Links with residual capacity.
    pub fn open_links(&self) -> &BitSet {
        &self.now.open_links
    }

    /// Whether every link that a coflow's live flows cross has residual capacity.
    #[inline]
    pub fn admits(&self, coflow: &Coflow) -> bool {
        coflow.has_open_links(&self.now.open_links)
    }

    /// Whether no port of a coflow's live flows is in use, and no trunk lowers the rate that the flows would have alone. Between
    /// regions, where ports limit no flow: whether no link is in use. O(links of the coflow).
    pub fn admits_at_full_capacity(&self, coflow: &Coflow) -> bool {
        if !self.admits(coflow) {
            return false;
        }
        let ports_limit = self.first_limiting_link == 0;
        let port_count = coflow.sending_ports().len() + coflow.receiving_ports().len();
        let (ports, trunks) = coflow.links().split_at(port_count);
        let mut used = if ports_limit { ports } else { trunks }
            .iter()
            .filter(|load| load.live_flow_count > 0)
            .map(|load| load.link as usize);
        used.all(|link| self.now.residuals[link] == self.idle.residuals[link])
            && (!ports_limit
                || self.max_equal_rate(coflow)
                    >= self.idle.max_equal_rate(coflow) * (1.0 - rounding::CAPACITY))
    }

    /// The highest rate that all live flows of a coflow can have at the same time: the minimum over its links of
    /// residual capacity divided by the number of live flows. O(links of the coflow).
    pub fn max_equal_rate(&self, coflow: &Coflow) -> f64 {
        self.now.max_equal_rate(coflow)
    }

    /// Subtracts `rate` for every live flow of a coflow. O(links of the coflow).
    pub fn subtract_equal_rates(&mut self, coflow: &Coflow, rate: f64) {
        for load in coflow.links().iter().filter(|load| load.live_flow_count > 0) {
            let rate = rate * f64::from(load.live_flow_count);
            self.now.subtract_rate(load.link as usize, rate, self.rounding_tolerance);
        }
    }

    /// The minimum time in which a coflow with these loads can complete (Varys's Γ on the residual capacity), in seconds;
    /// infinite if a link that it needs is exhausted. O(links of the coflow).
    pub fn min_completion_time(&self, loads: RemainingLoads<'_>) -> f64 {
        let mut seconds = 0.0;
        for (link, bytes) in loads.by_link() {
            if bytes > seconds * self.now.residuals[link] {
                seconds = bytes / self.now.residuals[link];
            }
        }
        seconds
    }

    /// Subtracts the rates at which these loads complete together after `seconds`. O(links of the coflow).
    pub fn subtract_madd_rates(&mut self, loads: RemainingLoads<'_>, seconds: f64) {
        for (link, bytes) in loads.by_link() {
            self.now.subtract_rate(link, bytes / seconds, self.rounding_tolerance);
        }
    }

    /// The residual capacity by link, in bytes per second.
    pub(crate) fn residuals(&self) -> &[f64] {
        &self.now.residuals
    }

    /// The highest rate that a flow can have: the minimum residual capacity of its links.
    #[inline]
    pub fn flow_residual(&self, coflow: &Coflow, flow: u32) -> f64 {
        coflow.flow_links(flow).map(|link| self.now.residuals[link]).fold(f64::INFINITY, f64::min)
    }

    /// Subtracts the rate of one flow from its links.
    pub fn subtract_flow_rate(&mut self, coflow: &Coflow, flow: u32, rate: f64) {
        for link in coflow.flow_links(flow) {
            self.now.subtract_rate(link, rate, self.rounding_tolerance);
        }
    }

    /// Gives each live flow of a coflow, in the order of flows, the minimum residual capacity of its links, and calls
    /// `on_rate` with each flow that got a rate. Every such flow exhausts a link, so there are at most two a port and
    /// one a trunk.
    ///
    /// The cost is O(flows with a rate, and words of 64 links) as long as the same links are open and close as at the last call for
    /// the coflow.
    #[inline]
    pub fn fill_flows(&mut self, coflow: &Coflow, mut on_rate: impl FnMut(u32, f64)) {
        if !coflow.has_open_ends(&self.now.open_links) {
            return;
        }
        let slot = coflow.slot() as usize;
        if slot >= self.searches.len() {
            self.searches.resize_with(slot + 1, FillSearch::default);
        }
        let (search, tolerance) = (&mut self.searches[slot], self.rounding_tolerance);
        let is_complete = search.start(coflow, &self.now.open_links);
        if search.repeat(coflow, &mut self.now, tolerance, &mut on_rate) && is_complete {
            return;
        }
        if coflow.is_on_one_switch() {
            search.search(coflow, &mut self.now, tolerance, on_rate);
        } else {
            search.search_over_trunks(coflow, &mut self.now, tolerance, on_rate);
        }
    }

    /// Gives each live flow of a coflow, in the order of flows, the minimum residual capacity of its links, at most `max_rate` of the
    /// flow, and calls `on_rate` with each flow that got a rate. O(live flows).
    pub fn fill_limited_flows(
        &mut self,
        coflow: &Coflow,
        max_rate: impl Fn(u32) -> f64,
        mut on_rate: impl FnMut(u32, f64),
    ) {
        if !coflow.has_open_ends(&self.now.open_links) {
            return;
        }
        for flow in coflow.live_flows() {
            let rate = self.flow_residual(coflow, flow).min(max_rate(flow));
            if rate > self.rounding_tolerance {
                self.subtract_flow_rate(coflow, flow, rate);
                on_rate(flow, rate);
            }
        }
    }
}
