//! The tracker (Algorithm 4): what links have left, and which mappers a reducer may connect to.

use crate::model::{Fabric, Mask, Slot};

/// What a reducer without priority gets of the candidates of one with it.
const FEWER: usize = 4;

/// A flow without a connection that could have one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pending {
    pub flow: u32,
    /// The mapper's host.
    pub src: u32,
    /// In bytes.
    pub left: f64,
}

/// What is known of all hosts. Rates are in bytes per second.
#[derive(Debug)]
pub(super) struct Tracker {
    /// The most candidates of a prioritized reducer.
    most: usize,
    lambda: f64,
    theta: f64,
    /// The links, and what they have left.
    uplinks: Vec<f64>,
    up: Vec<f64>,
    downlinks: Vec<f64>,
    down: Vec<f64>,
    /// The prioritized mapper's coflow at each sending host.
    mappers: Vec<Option<Slot>>,
    /// Sending hosts without one.
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

    /// Begins with idle links; says whether they are others than before.
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

    /// A coflow sends from these hosts; those with the least left are told first.
    pub(super) fn prioritize(&mut self, slot: Slot, senders: &Mask) {
        for port in self.idle.both(senders) {
            self.mappers[port] = Some(slot);
        }
        self.idle.take_out(senders);
    }

    /// A connection has a rate.
    pub(super) fn take(&mut self, src: u32, dst: usize, rate: f64) {
        // Links may have slowed down since it had this rate.
        for left in [&mut self.up[src as usize], &mut self.down[dst]] {
            *left = (*left - rate).max(0.0);
        }
    }

    /// A connection is closed.
    pub(super) fn give_back(&mut self, src: u32, dst: usize, rate: f64) {
        for (left, link) in [
            (&mut self.up[src as usize], self.uplinks[src as usize]),
            (&mut self.down[dst], self.downlinks[dst]),
        ] {
            *left = (*left + rate).min(link);
        }
    }

    /// A connection is opened: it will have what both ends have left. Answers with that.
    pub(super) fn expect(&mut self, src: u32, dst: usize) -> f64 {
        let rate = self.up[src as usize].min(self.down[dst]);
        self.take(src, dst, rate);
        rate
    }

    /// What a host's downlink has left.
    pub(super) fn down(&self, port: usize) -> f64 {
        self.down[port]
    }

    /// Whether mappers are looked for that reducers without priority of a host may connect to.
    pub(super) fn looks_for_more(&self, port: usize) -> bool {
        self.down[port] > self.theta * self.downlinks[port]
    }

    /// The mapper that a reducer of a host connects to: the candidates by Algorithm 4, and which of these by Algorithm 3 (lines 7 to
    /// 10). Answers with its place among those that are pending; ties go to who has most left, then to the first flow. O(pending).
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
        // The one whose vacancy is nearest to the host's own, and of those that have less the nearest to that one.
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
