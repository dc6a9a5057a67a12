//! Residual capacity of each link during the construction of a schedule.

use crate::model::bit_set::WordBits;
use crate::model::{BitSet, BlockFlows, Coflow, Fabric, LinkLoad, OpenLinks, OpenPaths, RemainingLoads};

/// Links of one kind: the sending sides of ports, the receiving sides, or trunks.
#[derive(Debug, Clone, Default)]
struct LinkResiduals {
    residuals: Vec<f64>,
    /// Links with residual capacity.
    open_links: BitSet,
}

impl LinkResiduals {
    fn new(capacities: &[f64], tolerance: f64) -> LinkResiduals {
        let mut links = LinkResiduals { residuals: Vec::new(), open_links: BitSet::empty(capacities.len()) };
        links.set_residuals(capacities, tolerance);
        links
    }

    fn set_residuals(&mut self, capacities: &[f64], dust: f64) {
        self.residuals.clear();
        self.residuals.extend_from_slice(capacities);
        self.open_links.set_where(capacities, |&capacity| capacity > dust);
    }

    fn copy_from(&mut self, other: &LinkResiduals) {
        self.residuals.clone_from(&other.residuals);
        self.open_links.copy_from(&other.open_links);
    }

    #[inline]
    fn subtract_rate(&mut self, link: usize, rate: f64, dust: f64) {
        self.residuals[link] -= rate;
        if self.residuals[link] <= dust {
            self.residuals[link] = 0.0;
            self.open_links.remove(link);
        }
    }

    /// Lowers `rate` to the rate that every live flow of these loads can have.
    #[inline]
    fn limit_equal_rate(&self, loads: &[LinkLoad], mut rate: f64) -> f64 {
        for load in loads {
            // A product is cheaper than a quotient, and most links are not the bottleneck.
            if rate * f64::from(load.live_flow_count) > self.residuals[load.link as usize] {
                rate = self.residuals[load.link as usize] / f64::from(load.live_flow_count);
            }
        }
        rate
    }

    #[inline]
    fn subtract_equal_rates(&mut self, loads: &[LinkLoad], rate: f64, dust: f64) {
        for load in loads.iter().filter(|load| load.live_flow_count > 0) {
            self.subtract_rate(load.link as usize, rate * f64::from(load.live_flow_count), dust);
        }
    }

    /// Raises `seconds` to the time in which all links carry these bytes.
    #[inline]
    fn extend_time(&self, loads: impl Iterator<Item = (usize, f64)>, mut seconds: f64) -> f64 {
        for (link, bytes) in loads {
            if bytes > seconds * self.residuals[link] {
                seconds = bytes / self.residuals[link];
            }
        }
        seconds
    }
}

/// Residual capacity of the links, and the sets of links with any.
#[derive(Debug, Default)]
pub struct ResidualCapacity {
    senders: LinkResiduals,
    receivers: LinkResiduals,
    trunks: LinkResiduals,
    /// A residual capacity up to this value counts as 0: it is rounding.
    rounding_tolerance: f64,
    ports_limit: bool,
    /// The links of the idle fabric, and the version of the fabric that they come from.
    idle: SavedResidual,
    version: u64,
    /// Buffers of [`ResidualCapacity::fill_flows`].
    path_buffer: OpenPaths,
    flow_buffer: Vec<BlockFlows>,
}

/// A saved state of a [`ResidualCapacity`].
#[derive(Debug, Default)]
pub struct SavedResidual {
    senders: LinkResiduals,
    receivers: LinkResiduals,
    trunks: LinkResiduals,
}

impl SavedResidual {
    /// See [`ResidualCapacity::max_equal_rate`].
    fn max_equal_rate(&self, coflow: &Coflow) -> f64 {
        let rate = self.senders.limit_equal_rate(coflow.senders(), f64::INFINITY);
        let rate = self.receivers.limit_equal_rate(coflow.receivers(), rate);
        self.trunks.limit_equal_rate(coflow.trunks(), rate)
    }
}

impl ResidualCapacity {
    /// Resets all links to the capacities of the fabric. O(links).
    pub fn reset(&mut self, fabric: &Fabric) {
        if self.version != fabric.version() {
            self.version = fabric.version();
            self.ports_limit = fabric.has_limiting_ports();
            self.rounding_tolerance = fabric.rounding_tolerance();
            self.idle = SavedResidual {
                senders: LinkResiduals::new(fabric.send_capacities(), self.rounding_tolerance),
                receivers: LinkResiduals::new(fabric.recv_capacities(), self.rounding_tolerance),
                trunks: LinkResiduals::new(fabric.trunk_capacities(), self.rounding_tolerance),
            };
        }
        self.senders.copy_from(&self.idle.senders);
        self.receivers.copy_from(&self.idle.receivers);
        self.trunks.copy_from(&self.idle.trunks);
    }

    /// Saves the present state in `copy`. O(links).
    pub fn save(&self, copy: &mut SavedResidual) {
        copy.senders.copy_from(&self.senders);
        copy.receivers.copy_from(&self.receivers);
        copy.trunks.copy_from(&self.trunks);
    }

    /// Restores a state of the same fabric. O(links).
    pub fn restore(&mut self, copy: &SavedResidual) {
        self.senders.copy_from(&copy.senders);
        self.receivers.copy_from(&copy.receivers);
        self.trunks.copy_from(&copy.trunks);
    }

    /// Sets the residual capacities of all links, in the order of [`Fabric::link_capacities`], such as the result of an
    /// earlier allocation. O(links).
    pub fn set_residuals(&mut self, fabric: &Fabric, residuals: &[f64]) {
        self.rounding_tolerance = fabric.rounding_tolerance();
        self.version = 0;
        let (send, others) = residuals.split_at(fabric.ports());
        let (recv, trunks) = others.split_at(fabric.ports());
        self.senders.set_residuals(send, self.rounding_tolerance);
        self.receivers.set_residuals(recv, self.rounding_tolerance);
        self.trunks.set_residuals(trunks, self.rounding_tolerance);
    }

    /// Whether all ports are exhausted on one of the sides, so that no flow can get a rate.
    pub fn is_exhausted(&self) -> bool {
        self.senders.open_links.is_empty() || self.receivers.open_links.is_empty()
    }

    /// Sending ports with residual capacity.
    pub fn open_senders(&self) -> &BitSet {
        &self.senders.open_links
    }

    /// Receiving ports with residual capacity.
    pub fn open_receivers(&self) -> &BitSet {
        &self.receivers.open_links
    }

    /// Whether every link that a coflow's live flows cross has residual capacity.
    #[inline]
    pub fn admits(&self, coflow: &Coflow) -> bool {
        coflow.sending_ports().is_subset(&self.senders.open_links)
            && coflow.receiving_ports().is_subset(&self.receivers.open_links)
            && coflow.live_trunks().is_subset(&self.trunks.open_links)
    }

    /// Whether no port of a coflow's live flows is in use, and no trunk lowers the rate that the flows would have alone. Between
    /// regions, where ports limit no flow: whether no link is in use. O(links of the coflow).
    pub fn admits_at_full_capacity(&self, coflow: &Coflow) -> bool {
        let is_unused = |loads: &[LinkLoad], now: &LinkResiduals, idle: &LinkResiduals| {
            let mut used =
                loads.iter().filter(|load| load.live_flow_count > 0).map(|load| load.link as usize);
            used.all(|link| now.residuals[link] == idle.residuals[link])
        };
        if !self.admits(coflow) {
            return false;
        }
        if !self.ports_limit {
            return is_unused(coflow.trunks(), &self.trunks, &self.idle.trunks);
        }
        is_unused(coflow.senders(), &self.senders, &self.idle.senders)
            && is_unused(coflow.receivers(), &self.receivers, &self.idle.receivers)
            && self.max_equal_rate(coflow) >= self.idle.max_equal_rate(coflow) * (1.0 - 1e-9)
    }

    /// Whether some live flow of a coflow might get a rate. Can be true although none can; never false if one can.
    #[inline]
    pub fn may_serve(&self, coflow: &Coflow) -> bool {
        coflow.sending_ports().intersects(&self.senders.open_links)
            && coflow.receiving_ports().intersects(&self.receivers.open_links)
    }

    /// The highest rate that all live flows of a coflow can have at the same time: the minimum over its links of
    /// residual capacity divided by the number of live flows. O(links of the coflow).
    pub fn max_equal_rate(&self, coflow: &Coflow) -> f64 {
        let rate = self.senders.limit_equal_rate(coflow.senders(), f64::INFINITY);
        let rate = self.receivers.limit_equal_rate(coflow.receivers(), rate);
        self.trunks.limit_equal_rate(coflow.trunks(), rate)
    }

    /// Subtracts `rate` for every live flow of a coflow. O(links of the coflow).
    pub fn subtract_equal_rates(&mut self, coflow: &Coflow, rate: f64) {
        self.senders.subtract_equal_rates(coflow.senders(), rate, self.rounding_tolerance);
        self.receivers.subtract_equal_rates(coflow.receivers(), rate, self.rounding_tolerance);
        self.trunks.subtract_equal_rates(coflow.trunks(), rate, self.rounding_tolerance);
    }

    /// The minimum time in which a coflow with these loads can complete (Varys's Γ on the residual capacity), in seconds;
    /// infinite if a link that it needs is exhausted. O(links of the coflow).
    pub fn min_completion_time(&self, loads: RemainingLoads<'_>) -> f64 {
        let seconds = self.senders.extend_time(loads.by_sender(), 0.0);
        let seconds = self.receivers.extend_time(loads.by_receiver(), seconds);
        self.trunks.extend_time(loads.by_trunk(), seconds)
    }

    /// Subtracts the rates at which these loads complete together after `seconds`. O(links of the coflow).
    pub fn subtract_madd_rates(&mut self, loads: RemainingLoads<'_>, seconds: f64) {
        for (port, bytes) in loads.by_sender() {
            self.senders.subtract_rate(port, bytes / seconds, self.rounding_tolerance);
        }
        for (port, bytes) in loads.by_receiver() {
            self.receivers.subtract_rate(port, bytes / seconds, self.rounding_tolerance);
        }
        for (trunk, bytes) in loads.by_trunk() {
            self.trunks.subtract_rate(trunk, bytes / seconds, self.rounding_tolerance);
        }
    }

    /// The residual capacity of a link, by its number in [`Fabric::link_capacities`].
    pub(crate) fn link_residual(&self, link: usize) -> f64 {
        let ports = self.senders.residuals.len();
        match link.checked_sub(ports) {
            None => self.senders.residuals[link],
            Some(link) if link < ports => self.receivers.residuals[link],
            Some(link) => self.trunks.residuals[link - ports],
        }
    }

    /// The highest rate that a flow can have: the minimum residual capacity of its links.
    #[inline]
    pub fn flow_residual(&self, coflow: &Coflow, flow: u32) -> f64 {
        let (src, dst) = coflow.flow_ports(flow);
        let at_ports = self.senders.residuals[src as usize].min(self.receivers.residuals[dst as usize]);
        let trunks = coflow.flow_trunks(flow).iter().map(|&trunk| self.trunks.residuals[trunk as usize]);
        trunks.fold(at_ports, f64::min)
    }

    /// Subtracts the rate of one flow from its links.
    pub fn subtract_flow_rate(&mut self, coflow: &Coflow, flow: u32, rate: f64) {
        let (src, dst) = coflow.flow_ports(flow);
        self.senders.subtract_rate(src as usize, rate, self.rounding_tolerance);
        self.receivers.subtract_rate(dst as usize, rate, self.rounding_tolerance);
        for &trunk in coflow.flow_trunks(flow) {
            self.trunks.subtract_rate(trunk as usize, rate, self.rounding_tolerance);
        }
    }

    /// Gives each live flow of a coflow, in the order of flows, the minimum residual capacity of its links, and calls
    /// `on_rate` with each flow that got a rate. Every such flow exhausts a link, so there are at most two a port and
    /// one a trunk.
    #[inline]
    pub fn fill_flows(&mut self, coflow: &Coflow, mut on_rate: impl FnMut(u32, f64)) {
        if !self.may_serve(coflow) {
            return;
        }
        if !coflow.is_on_one_switch() {
            return self.fill_flows_over_trunks(coflow, on_rate);
        }
        let (send, recv, dust) = (&mut self.senders, &mut self.receivers, self.rounding_tolerance);
        let (send_left, recv_left) = (&mut send.residuals[..], &mut recv.residuals[..]);
        coflow.visit_open_flows(&mut send.open_links, &mut recv.open_links, |flow, src, dst| {
            let (from, to) = (send_left[src], recv_left[dst]);
            let rate = if from < to { from } else { to };
            let (from, to) = (from - rate, to - rate);
            (send_left[src], recv_left[dst]) = (from, to);
            on_rate(flow, rate);
            (from <= dust, to <= dust)
        });
    }

    /// Gives each live flow of a coflow, in the order of flows, the minimum residual capacity of its links, at most `max_rate` of the
    /// flow, and calls `on_rate` with each flow that got a rate. O(live flows).
    pub fn fill_limited_flows(
        &mut self,
        coflow: &Coflow,
        max_rate: impl Fn(u32) -> f64,
        mut on_rate: impl FnMut(u32, f64),
    ) {
        if !self.may_serve(coflow) {
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

    fn open_links(&self) -> OpenLinks<'_> {
        OpenLinks {
            senders: &self.senders.open_links,
            receivers: &self.receivers.open_links,
            trunks: &self.trunks.open_links,
        }
    }

    /// [`ResidualCapacity::fill_flows`] over trunks. O([`Coflow::find_open_paths`]), and O(words of 64 receivers + open paths) for each
    /// sender with an open path.
    fn fill_flows_over_trunks(&mut self, coflow: &Coflow, mut on_rate: impl FnMut(u32, f64)) {
        let mut paths = std::mem::take(&mut self.path_buffer);
        let mut flows = std::mem::take(&mut self.flow_buffer);
        coflow.find_open_paths(self.open_links(), &mut paths);
        for at in 0..paths.senders().words().len() {
            let senders = paths.senders().words()[at] & coflow.sending_ports().word(at);
            for bit in WordBits(senders) {
                let src = 64 * at + bit;
                coflow.find_flows(src, &paths, &self.receivers.open_links, &mut flows);
                self.fill_flows_of_sender(src, coflow, &flows, &mut paths, &mut on_rate);
            }
        }
        (self.path_buffer, self.flow_buffer) = (paths, flows);
    }

    #[inline]
    fn fill_flows_of_sender(
        &mut self,
        src: usize,
        coflow: &Coflow,
        flows: &[BlockFlows],
        paths: &mut OpenPaths,
        on_rate: &mut impl FnMut(u32, f64),
    ) {
        for &block in flows {
            for flow in coflow.flows_of_block(block) {
                if !coflow.has_open_path(flow, paths) {
                    continue;
                }
                let rate = self.flow_residual(coflow, flow);
                if rate <= self.rounding_tolerance {
                    // An earlier flow has closed the receiver or a trunk.
                    coflow.close_path(flow, &self.trunks.open_links, paths);
                    continue;
                }
                self.subtract_flow_rate(coflow, flow, rate);
                on_rate(flow, rate);
                if !self.senders.open_links.contains(src) {
                    return;
                }
            }
        }
    }
}
