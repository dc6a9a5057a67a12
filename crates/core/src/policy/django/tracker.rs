//! The tracker (Algorithm 4): residual capacities of links, and the choice of the mapper for a connection.

use crate::model::{Fabric, Mask, Slot};

/// A reducer without priority gets 1/`FEWER` of the candidates of a prioritized one.
const FEWER: usize = 4;

/// A flow without a connection that could get one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pending {
    pub flow: u32,
    /// Host of the mapper.
    pub src: u32,
    /// Remaining bytes.
    pub left: f64,
}

/// State of all hosts. Rates are in bytes per second.
#[derive(Debug)]
pub(super) struct Tracker {
    /// Maximum number of candidates of a prioritized reducer.
    most: usize,
    lambda: f64,
    theta: f64,
    /// Capacities of the links, and their residual capacities.
    uplinks: Vec<f64>,
    up: Vec<f64>,
    downlinks: Vec<f64>,
    down: Vec<f64>,
    /// By sending host: coflow of the prioritized mapper.
    mappers: Vec<Option<Slot>>,
    /// Sending hosts without a prioritized mapper.
    idle: Mask,
    candidates: Vec<usize>,
}

impl Tracker {
    pub(super) fn new(most: usize, lambda: f64, theta: f64) -> Tracker {
        Tracker {
            most,
            lambda,
            theta,
            uplinks: Vec::new(),
            up: Vec::new(),
            downlinks: Vec::new(),
            down: Vec::new(),
            mappers: Vec::new(),
            idle: Mask::default(),
            candidates: Vec::new(),
        }
    }

    /// Resets all links to idle. Returns whether the capacity of a link has changed.
    pub(super) fn reset(&mut self, fabric: &Fabric) -> bool {
        let changed = self.uplinks != fabric.send() || self.downlinks != fabric.recv();
        if changed {
            self.uplinks = fabric.send().to_vec();
            self.downlinks = fabric.recv().to_vec();
        }
        self.up.clone_from(&self.uplinks);
        self.down.clone_from(&self.downlinks);
        self.mappers.clear();
        self.mappers.resize(fabric.ports(), None);
        self.idle.set_where(fabric.send(), |_| true);
        changed
    }

    /// Registers the sending hosts of a coflow. The caller passes coflows in the order of remaining bytes.
    pub(super) fn prioritize(&mut self, slot: Slot, senders: &Mask) {
        for port in self.idle.both(senders) {
            self.mappers[port] = Some(slot);
        }
        self.idle.take_out(senders);
    }

    /// Subtracts the rate of a connection.
    pub(super) fn take(&mut self, src: u32, dst: usize, rate: f64) {
        // Links may have slowed down since the rate was computed.
        for left in [&mut self.up[src as usize], &mut self.down[dst]] {
            *left = (*left - rate).max(0.0);
        }
    }

    /// Restores the rate of a closed connection.
    pub(super) fn give_back(&mut self, src: u32, dst: usize, rate: f64) {
        for (left, link) in [
            (&mut self.up[src as usize], self.uplinks[src as usize]),
            (&mut self.down[dst], self.downlinks[dst]),
        ] {
            *left = (*left + rate).min(link);
        }
    }

    /// Reserves the expected rate of a new connection, the residual capacity of both ends. Returns the rate in bytes
    /// per second.
    pub(super) fn expect(&mut self, src: u32, dst: usize) -> f64 {
        let rate = self.up[src as usize].min(self.down[dst]);
        self.take(src, dst, rate);
        rate
    }

    /// Residual capacity of a host's downlink.
    pub(super) fn down(&self, port: usize) -> f64 {
        self.down[port]
    }

    /// Whether reducers without priority of a host may get more connections (theta).
    pub(super) fn looks_for_more(&self, port: usize) -> bool {
        self.down[port] > self.theta * self.downlinks[port]
    }

    /// Chooses the mapper that a reducer of a host connects to. O(pending).
    ///
    /// Algorithm 4 selects the candidates, and Algorithm 3 (lines 7 to 10) one of the candidates. Returns a position
    /// in `pending`. Ties go to the flow with the most remaining bytes, then to the first flow.
    pub(super) fn choose(
        &mut self,
        pending: &[Pending],
        slot: Slot,
        dst: usize,
        prioritized: bool,
    ) -> Option<usize> {
        if pending.is_empty() || !(prioritized || self.looks_for_more(dst)) {
            return None;
        }
        let (up, mappers) = (&self.up, &self.mappers);
        let vacant = |at: usize| up[pending[at].src as usize];
        let most_left = |a: usize, b: usize| {
            let (a, b) = (pending[a], pending[b]);
            b.left.total_cmp(&a.left).then(a.flow.cmp(&b.flow))
        };
        self.candidates.clear();
        self.candidates.extend(0..pending.len());
        if prioritized {
            let balanced = |at: usize| {
                let src = pending[at].src as usize;
                let matched = mappers[src] == Some(slot);
                up[src] + if matched { self.lambda * self.uplinks[src] } else { 0.0 }
            };
            let by_balanced =
                |&a: &usize, &b: &usize| balanced(b).total_cmp(&balanced(a)).then(most_left(a, b));
            if self.most < pending.len() {
                self.candidates.select_nth_unstable_by(self.most, by_balanced);
                self.candidates.truncate(self.most);
            }
            return self
                .candidates
                .iter()
                .copied()
                .min_by(|&a, &b| vacant(b).total_cmp(&vacant(a)).then_with(|| by_balanced(&a, &b)));
        }
        // Starts at the sender whose residual capacity is nearest to the host's, and continues with senders that have
        // less.
        let down = self.down[dst];
        let gap = |at: usize| (down - vacant(at)).abs();
        let by_vacancy = |&a: &usize, &b: &usize| vacant(b).total_cmp(&vacant(a)).then(most_left(a, b));
        let by_gap = |&a: &usize, &b: &usize| gap(a).total_cmp(&gap(b)).then_with(|| by_vacancy(&a, &b));
        let nearest = self.candidates.iter().copied().min_by(by_gap)?;
        self.candidates.retain(|at| by_vacancy(at, &nearest).is_ge());
        let fewer = (self.most / FEWER).max(1);
        if fewer < self.candidates.len() {
            self.candidates.select_nth_unstable_by(fewer, by_vacancy);
            self.candidates.truncate(fewer);
        }
        self.candidates.iter().copied().min_by(|&a, &b| most_left(a, b))
    }
}
