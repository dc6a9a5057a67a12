//! The tracker (Algorithm 4): residual capacities of links, and the choice of the mapper for a connection.

use crate::django::Params;
use crate::django::candidates::{PendingFlow, ReducerPriority, balanced_capacity, retain_candidates};
use crate::django::local_scheduler::Downlink;
use crate::django::micro_scheduler::by_opening;
use crate::model::{BitSet, Fabric, Slot};
use crate::rounding;

/// A flow without a connection that could get one.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitingFlow {
    pub flow: u32,
    /// Host of the mapper.
    pub src: u32,
    /// Remaining bytes.
    pub remaining_bytes: f64,
}

/// State of all hosts. Rates are in bytes per second.
#[derive(Debug)]
pub(super) struct Tracker {
    /// Maximum number of candidates of a prioritized reducer.
    max_candidates: usize,
    params: Params,
    /// Capacities of the links, and their residual capacities.
    uplink_capacities: Vec<f64>,
    uplink_residuals: Vec<f64>,
    downlink_capacities: Vec<f64>,
    downlink_residuals: Vec<f64>,
    /// By host: the link that it sends on.
    send_links: Vec<usize>,
    /// By link: coflow of the prioritized mapper of the host that sends on it.
    prioritized_mappers: Vec<Option<Slot>>,
    /// The links of sending hosts without a prioritized mapper.
    links_without_mapper: BitSet,
    candidates: Vec<PendingFlow>,
}

impl Tracker {
    pub(super) fn new(max_candidates: usize, params: Params) -> Tracker {
        Tracker {
            max_candidates,
            params,
            uplink_capacities: Vec::new(),
            uplink_residuals: Vec::new(),
            downlink_capacities: Vec::new(),
            downlink_residuals: Vec::new(),
            send_links: Vec::new(),
            prioritized_mappers: Vec::new(),
            links_without_mapper: BitSet::default(),
            candidates: Vec::new(),
        }
    }

    /// Resets all links to idle. Returns whether the capacity of a link has changed.
    pub(super) fn reset_residuals(&mut self, fabric: &Fabric) -> bool {
        let changed = !fabric.send_capacities().eq(self.uplink_capacities.iter().copied())
            || !fabric.recv_capacities().eq(self.downlink_capacities.iter().copied());
        if changed {
            self.uplink_capacities = fabric.send_capacities().collect();
            self.downlink_capacities = fabric.recv_capacities().collect();
            self.send_links = (0..fabric.ports() as u32).map(|port| fabric.send_link(port)).collect();
        }
        self.uplink_residuals.clone_from(&self.uplink_capacities);
        self.downlink_residuals.clone_from(&self.downlink_capacities);
        self.prioritized_mappers.clear();
        self.prioritized_mappers.resize(fabric.links(), None);
        self.links_without_mapper.copy_from(fabric.senders());
        changed
    }

    /// Registers the sending hosts of a coflow with these live links. The caller passes coflows in the order of remaining bytes.
    pub(super) fn prioritize_mappers(&mut self, slot: Slot, live_links: &BitSet) {
        for link in self.links_without_mapper.intersection(live_links) {
            self.prioritized_mappers[link] = Some(slot);
        }
        self.links_without_mapper.difference_with(live_links);
    }

    /// Subtracts the rate of a connection.
    pub(super) fn subtract_rate(&mut self, src: u32, dst: usize, rate: f64) {
        for (left, link) in [
            (&mut self.uplink_residuals[src as usize], self.uplink_capacities[src as usize]),
            (&mut self.downlink_residuals[dst], self.downlink_capacities[dst]),
        ] {
            *left -= rate;
            // Below 0, the link has slowed down since the rate was computed.
            if *left <= rounding::CAPACITY * link {
                *left = 0.0;
            }
        }
    }

    /// Restores the rate of a closed connection.
    pub(super) fn restore_rate(&mut self, src: u32, dst: usize, rate: f64) {
        for (left, link) in [
            (&mut self.uplink_residuals[src as usize], self.uplink_capacities[src as usize]),
            (&mut self.downlink_residuals[dst], self.downlink_capacities[dst]),
        ] {
            *left = (*left + rate).min(link);
        }
    }

    /// Reserves the expected rate of a new connection, the residual capacity of both ends. Returns the rate in bytes
    /// per second.
    pub(super) fn reserve_expected_rate(&mut self, src: u32, dst: usize) -> f64 {
        let rate = self.uplink_residuals[src as usize].min(self.downlink_residuals[dst]);
        self.subtract_rate(src, dst, rate);
        rate
    }

    /// Capacities by host, for sending and for receiving.
    pub(super) fn capacities(&self) -> (&[f64], &[f64]) {
        (&self.uplink_capacities, &self.downlink_capacities)
    }

    /// A host's downlink.
    pub(super) fn downlink(&self, port: usize) -> Downlink {
        Downlink { capacity: self.downlink_capacities[port], vacant: self.downlink_residuals[port] }
    }

    /// Whether reducers without priority of a host may get more connections (theta).
    pub(super) fn allows_more_connections(&self, port: usize) -> bool {
        self.downlink(port).has_vacant(self.params.theta)
    }

    /// Chooses the mapper that a reducer of a host connects to. O(waiting).
    ///
    /// Algorithm 4 selects the candidates, and Algorithm 3 (lines 7 to 10) one of the candidates. Returns a position
    /// in `waiting`.
    pub(super) fn choose_mapper(
        &mut self,
        waiting: &[WaitingFlow],
        slot: Slot,
        dst: usize,
        prioritized: bool,
    ) -> Option<usize> {
        let priority = match prioritized {
            true => ReducerPriority::Prioritized,
            false => ReducerPriority::Other(self.downlink(dst)),
        };
        let (params, mappers, send_links) = (&self.params, &self.prioritized_mappers, &self.send_links);
        let (capacities, residuals) = (&self.uplink_capacities, &self.uplink_residuals);
        self.candidates.clear();
        self.candidates.extend(waiting.iter().map(|&WaitingFlow { flow, src, remaining_bytes }| {
            let (vacant, capacity) = (residuals[src as usize], capacities[src as usize]);
            let is_matched = mappers[send_links[src as usize]] == Some(slot);
            let balanced = balanced_capacity(params, vacant, capacity, is_matched);
            PendingFlow { flow, sender: src, remaining_bytes, vacant, balanced }
        }));
        retain_candidates(params, priority, self.max_candidates, &mut self.candidates);
        let chosen = self.candidates.iter().min_by(|a, b| by_opening(priority, a, b))?;
        waiting.iter().position(|waiting| waiting.flow == chosen.flow)
    }
}
