//! The tracker (Algorithm 4): residual capacities of links, and the choice of the mapper for a connection.

use crate::model::{BitSet, Fabric, Slot};

/// A reducer without priority gets 1/`UNPRIORITIZED_DIVISOR` of the candidates of a prioritized one.
const UNPRIORITIZED_DIVISOR: usize = 4;

/// A flow without a connection that could get one.
#[derive(Debug, Clone, Copy)]
pub(super) struct PendingFlow {
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
    lambda: f64,
    theta: f64,
    /// Capacities of the links, and their residual capacities.
    uplink_capacities: Vec<f64>,
    uplink_residuals: Vec<f64>,
    downlink_capacities: Vec<f64>,
    downlink_residuals: Vec<f64>,
    /// By sending host: coflow of the prioritized mapper.
    prioritized_mappers: Vec<Option<Slot>>,
    /// Sending hosts without a prioritized mapper.
    hosts_without_mapper: BitSet,
    candidates: Vec<usize>,
}

impl Tracker {
    pub(super) fn new(max_candidates: usize, lambda: f64, theta: f64) -> Tracker {
        Tracker {
            max_candidates,
            lambda,
            theta,
            uplink_capacities: Vec::new(),
            uplink_residuals: Vec::new(),
            downlink_capacities: Vec::new(),
            downlink_residuals: Vec::new(),
            prioritized_mappers: Vec::new(),
            hosts_without_mapper: BitSet::default(),
            candidates: Vec::new(),
        }
    }

    /// Resets all links to idle. Returns whether the capacity of a link has changed.
    pub(super) fn reset_residuals(&mut self, fabric: &Fabric) -> bool {
        let changed = self.uplink_capacities != fabric.send_capacities()
            || self.downlink_capacities != fabric.recv_capacities();
        if changed {
            self.uplink_capacities = fabric.send_capacities().to_vec();
            self.downlink_capacities = fabric.recv_capacities().to_vec();
        }
        self.uplink_residuals.clone_from(&self.uplink_capacities);
        self.downlink_residuals.clone_from(&self.downlink_capacities);
        self.prioritized_mappers.clear();
        self.prioritized_mappers.resize(fabric.ports(), None);
        self.hosts_without_mapper.set_where(fabric.send_capacities(), |_| true);
        changed
    }

    /// Registers the sending hosts of a coflow. The caller passes coflows in the order of remaining bytes.
    pub(super) fn prioritize_mappers(&mut self, slot: Slot, senders: &BitSet) {
        for port in self.hosts_without_mapper.intersection(senders) {
            self.prioritized_mappers[port] = Some(slot);
        }
        self.hosts_without_mapper.difference_with(senders);
    }

    /// Subtracts the rate of a connection.
    pub(super) fn subtract_rate(&mut self, src: u32, dst: usize, rate: f64) {
        // Links may have slowed down since the rate was computed.
        for left in [&mut self.uplink_residuals[src as usize], &mut self.downlink_residuals[dst]] {
            *left = (*left - rate).max(0.0);
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

    /// Residual capacity of a host's downlink.
    pub(super) fn downlink_residual(&self, port: usize) -> f64 {
        self.downlink_residuals[port]
    }

    /// Whether reducers without priority of a host may get more connections (theta).
    pub(super) fn allows_more_connections(&self, port: usize) -> bool {
        self.downlink_residuals[port] > self.theta * self.downlink_capacities[port]
    }

    /// Chooses the mapper that a reducer of a host connects to. O(pending).
    ///
    /// Algorithm 4 selects the candidates, and Algorithm 3 (lines 7 to 10) one of the candidates. Returns a position
    /// in `pending`. Ties go to the flow with the most remaining bytes, then to the first flow.
    pub(super) fn choose_mapper(
        &mut self,
        pending: &[PendingFlow],
        slot: Slot,
        dst: usize,
        prioritized: bool,
    ) -> Option<usize> {
        if pending.is_empty() || !(prioritized || self.allows_more_connections(dst)) {
            return None;
        }
        let (up, mappers) = (&self.uplink_residuals, &self.prioritized_mappers);
        let vacant = |at: usize| up[pending[at].src as usize];
        let most_left = |a: usize, b: usize| {
            let (a, b) = (pending[a], pending[b]);
            b.remaining_bytes.total_cmp(&a.remaining_bytes).then(a.flow.cmp(&b.flow))
        };
        self.candidates.clear();
        self.candidates.extend(0..pending.len());
        if prioritized {
            let balanced = |at: usize| {
                let src = pending[at].src as usize;
                let matched = mappers[src] == Some(slot);
                up[src] + if matched { self.lambda * self.uplink_capacities[src] } else { 0.0 }
            };
            let by_balanced =
                |&a: &usize, &b: &usize| balanced(b).total_cmp(&balanced(a)).then(most_left(a, b));
            if self.max_candidates < pending.len() {
                self.candidates.select_nth_unstable_by(self.max_candidates, by_balanced);
                self.candidates.truncate(self.max_candidates);
            }
            return self
                .candidates
                .iter()
                .copied()
                .min_by(|&a, &b| vacant(b).total_cmp(&vacant(a)).then_with(|| by_balanced(&a, &b)));
        }
        // Starts at the sender whose residual capacity is nearest to the host's, and continues with senders that have
        // less.
        let down = self.downlink_residuals[dst];
        let gap = |at: usize| (down - vacant(at)).abs();
        let by_vacancy = |&a: &usize, &b: &usize| vacant(b).total_cmp(&vacant(a)).then(most_left(a, b));
        let by_gap = |&a: &usize, &b: &usize| gap(a).total_cmp(&gap(b)).then_with(|| by_vacancy(&a, &b));
        let nearest = self.candidates.iter().copied().min_by(by_gap)?;
        self.candidates.retain(|at| by_vacancy(at, &nearest).is_ge());
        let candidate_count = (self.max_candidates / UNPRIORITIZED_DIVISOR).max(1);
        if candidate_count < self.candidates.len() {
            self.candidates.select_nth_unstable_by(candidate_count, by_vacancy);
            self.candidates.truncate(candidate_count);
        }
        self.candidates.iter().copied().min_by(|&a, &b| most_left(a, b))
    }
}
