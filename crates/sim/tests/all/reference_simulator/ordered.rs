//! Policies that serve coflows in an order, by MADD and backfilling; Varys with deadlines.

use std::collections::BTreeSet;

use super::{Flow, FlowPhase, Policy, RATE_TOLERANCE, ReferenceSimulator, TOLERANCE, Variant};

/// The key by which coflows are served in ascending order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum SortKey {
    Release,
    Bytes,
    LongestFlow,
    Width,
    /// The number of senders or receivers, whichever is less.
    Endpoints,
    RemainingBytes,
    LongestRemainingFlow,
    Bottleneck,
    /// The bottleneck, times the number of coflows that share a link.
    AddedWaiting,
}

impl ReferenceSimulator<'_> {
    /// Minimum completion time of a coflow on the residual capacity.
    pub(super) fn min_completion_seconds(&self, c: usize, left: &[f64]) -> f64 {
        let coflow = &self.coflows[c];
        let links = coflow.live_flows().flat_map(Flow::links);
        links.map(|link| coflow.remaining_over(link) / left[link]).fold(0.0, f64::max)
    }

    /// Whether all links of a coflow's live flows have residual capacity.
    pub(super) fn is_open(&self, c: usize, left: &[f64]) -> bool {
        self.coflows[c].live_flows().all(|f| f.links().all(|link| left[link] > TOLERANCE))
    }

    pub(super) fn assign_madd(&mut self, c: usize, min_seconds: f64, left: &mut [f64]) {
        if !self.is_open(c, left) {
            return;
        }
        let seconds = self.min_completion_seconds(c, left).max(min_seconds);
        for flow in self.coflows[c].flows.iter_mut().filter(|f| f.phase == FlowPhase::Live) {
            flow.madd_rate = flow.remaining() / seconds;
            flow.take_rate(flow.madd_rate, left);
        }
    }

    pub(super) fn schedule_varys(&mut self, deadlines: bool, left: &mut [f64]) {
        let active = self.active();
        if deadlines {
            let kept: Vec<usize> =
                active.iter().copied().filter(|&c| self.coflows[c].admitted == Some(true)).collect();
            for c in kept {
                self.assign_madd(c, self.coflows[c].deadline - self.now, left);
            }
            for &c in &active {
                if self.coflows[c].admitted.is_some() || self.coflows[c].deadline.is_infinite() {
                    continue;
                }
                let seconds = self.coflows[c].deadline - self.now;
                let fits =
                    self.is_open(c, left) && self.min_completion_seconds(c, left) <= seconds * (1.0 + 1e-12);
                self.coflows[c].admitted = Some(fits);
                if fits {
                    self.assign_madd(c, seconds, left);
                }
            }
        }
        let order = self.sort(SortKey::Bottleneck);
        for &c in &order {
            if self.coflows[c].admitted.is_none() {
                self.assign_madd(c, 0.0, left);
            }
        }
        for rejected in [false, true] {
            for &c in &order {
                if (self.coflows[c].admitted == Some(false)) == rejected {
                    self.backfill(c, left);
                }
            }
        }
    }

    /// The active coflows in the order of a key, and of their release if keys are equal.
    fn sort(&mut self, key: SortKey) -> Vec<usize> {
        let active = self.active();
        let key_of = |c: usize| {
            let coflow = &self.coflows[c];
            let remaining = || coflow.live_flows().map(|f| f.size - f.sent_bytes);
            match key {
                SortKey::Release => 0.0,
                SortKey::Bytes => coflow.flows.iter().map(|f| f.size).sum(),
                SortKey::LongestFlow => coflow.flows.iter().map(|f| f.size).fold(0.0, f64::max),
                SortKey::Width => coflow.flows.len() as f64,
                SortKey::Endpoints => {
                    let senders: BTreeSet<usize> = coflow.flows.iter().map(|flow| flow.src).collect();
                    let receivers: BTreeSet<usize> = coflow.flows.iter().map(|flow| flow.dst).collect();
                    senders.len().min(receivers.len()) as f64
                }
                SortKey::RemainingBytes => remaining().sum(),
                SortKey::LongestRemainingFlow => remaining().fold(0.0, f64::max),
                SortKey::Bottleneck => self.min_completion_seconds(c, &self.links),
                SortKey::AddedWaiting => {
                    let others = active.iter().filter(|&&o| o != c && self.contend(c, o));
                    self.min_completion_seconds(c, &self.links) * others.count() as f64
                }
            }
        };
        let mut order: Vec<(f64, usize)> = active.iter().map(|&c| (key_of(c), c)).collect();
        // The sort is stable: active coflows are in order of release.
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        if ![SortKey::Release, SortKey::Width, SortKey::Endpoints].contains(&key) {
            self.has_ties |=
                order.windows(2).any(|two| two[1].0 > 0.0 && two[1].0 - two[0].0 < RATE_TOLERANCE);
        }
        order.into_iter().map(|(_, c)| c).collect()
    }

    pub(super) fn schedule_ordered(&mut self, key: SortKey, left: &mut [f64]) {
        let order = self.sort(key);
        order.iter().for_each(|&c| self.assign_madd(c, 0.0, left));
        order.iter().for_each(|&c| self.backfill(c, left));
    }
}

/// The policies that serve coflows in the order of a key.
pub(super) fn variants() -> Vec<Variant> {
    let keys = [
        ("fifo", SortKey::Release),
        ("scf", SortKey::Bytes),
        ("scf:by=length", SortKey::LongestFlow),
        ("ncf", SortKey::Width),
        ("ncf:by=endpoints", SortKey::Endpoints),
        ("lcf", SortKey::RemainingBytes),
        ("srtf", SortKey::Bottleneck),
        ("srtf:time=flow", SortKey::LongestRemainingFlow),
        ("lwtf", SortKey::AddedWaiting),
    ];
    keys.map(|(name, key)| (name.to_owned(), Policy::Ordered(key))).into()
}
