//! Limits that hosts set after each period: by rate throttling, or by a central allocator.

use std::ops::Range;

use weir_core::model::scenario::{CableChange, CableEvent, Guarantee, Scenario, SendMode, Service};
use weir_core::netshare::{
    DemandEstimator, FlowDemand, MEASUREMENT_PERIOD, RateThrottle, limit_for_demand, limit_with_headroom,
};
use weir_core::solve::{ClassId, HierarchicalMaxMin, ServiceShares, hierarchy};
use weir_core::units::Rate;

use super::mechanism::Mechanism;
use super::streams::Streams;
use super::{PERIODS, SAME_TIME};

/// Rates that differ by a smaller fraction are one.
const SAME_RATE: f64 = 1e-9;

/// Who sets limits, and what was measured in this period.
pub(super) struct Control {
    kind: Kind,
    /// Of each stream: bytes of one connection in this period, and what it would have sent.
    received: Vec<f64>,
    offered: Vec<f64>,
}

enum Kind {
    Nobody,
    Throttles { floor: Rate, throttles: Vec<RateThrottle>, on: Vec<bool> },
    Allocator(Box<Allocator>),
}

/// NetShare's central allocator (3.3).
///
/// A host knows what an unresponsive source sends, before its limit. The demand of any other source follows from its
/// rate and its backlog ([`DemandEstimator`]). The allocator knows those connections that were measured once, and divides
/// links between services by weights and inside a service equally. A source that is allocated less than its demand gets
/// exactly its allocation, and any other one 10 % more; none gets less than the floor.
///
/// Each stream is a class of its own, made once, and solutions follow the changes. Classes by demand
/// ([`HierarchicalMaxMin::add_flow`]) would be created again in every period, since predicted demands hardly repeat.
struct Allocator {
    floor: Rate,
    hierarchy: HierarchicalMaxMin,
    classes: Vec<ClassId>,
    demands: Vec<DemandEstimator>,
    limits: Vec<Option<Rate>>,
}

impl Control {
    pub(super) fn new(scenario: &Scenario, mechanism: Mechanism, streams: &Streams) -> Control {
        let kind = if mechanism.has_throttling() {
            Kind::Throttles { floor: scenario.min_limit, throttles: Vec::new(), on: Vec::new() }
        } else if mechanism.has_allocator() {
            Kind::Allocator(Box::new(Allocator::new(scenario)))
        } else {
            Kind::Nobody
        };
        let mut control = Control { kind, received: Vec::new(), offered: Vec::new() };
        control.extend(streams);
        control
    }

    /// Takes in streams that are new.
    pub(super) fn extend(&mut self, streams: &Streams) {
        let new = self.received.len()..streams.len();
        self.received.resize(new.end, 0.0);
        self.offered.resize(new.end, 0.0);
        match &mut self.kind {
            Kind::Nobody => {}
            Kind::Throttles { floor, throttles, on } => {
                throttles.resize(new.end, RateThrottle::new(*floor));
                on.extend(new.map(|stream| matches!(streams.sending(stream), SendMode::Unresponsive(_))));
            }
            Kind::Allocator(allocator) => allocator.extend(streams, new),
        }
    }

    /// A cable has another rate.
    pub(super) fn change(&mut self, event: &CableEvent) {
        if let (Kind::Allocator(allocator), CableChange::Rate(rate)) = (&mut self.kind, event.change) {
            for link in [event.cable, event.cable.reverse()] {
                let set = allocator.hierarchy.set_capacity(link.0, rate.get());
                set.expect("`Scenario::check` accepted the rate");
            }
        }
    }

    /// A stream begins: nothing is known of it.
    pub(super) fn start(&mut self, stream: usize) {
        self.received[stream] = 0.0;
        self.offered[stream] = 0.0;
        match &mut self.kind {
            Kind::Nobody => {}
            Kind::Throttles { floor, throttles, .. } => throttles[stream] = RateThrottle::new(*floor),
            Kind::Allocator(allocator) => {
                allocator.demands[stream] = DemandEstimator::new();
                allocator.limits[stream] = None;
            }
        }
    }

    /// What a connection of a stream may send.
    pub(super) fn limit(&self, stream: usize) -> Option<Rate> {
        match &self.kind {
            Kind::Nobody => None,
            Kind::Throttles { throttles, on, .. } => throttles[stream].limit().filter(|_| on[stream]),
            Kind::Allocator(allocator) => allocator.limits[stream],
        }
    }

    /// Until when rates stay as they are, in a phase that ends then.
    pub(super) fn until(&self, now: f64, end: f64) -> f64 {
        if matches!(self.kind, Kind::Nobody) {
            return end;
        }
        let next = ((now * PERIODS + SAME_TIME * PERIODS).floor() + 1.0) / PERIODS;
        if next > end - SAME_TIME { end } else { next }
    }

    /// The last end of a period in a phase that ends then.
    pub(super) fn last_full(&self, until: f64, end: f64) -> f64 {
        let last = (end * PERIODS + SAME_TIME * PERIODS).floor() / PERIODS;
        let last = if last > end - SAME_TIME { end } else { last };
        last.max(until)
    }

    /// Counts what arrived from `now` until `until`, and at a period's end sets new limits. The answer is whether a full
    /// period changed nothing, so that the next ones do not either.
    pub(super) fn measure(&mut self, streams: &Streams, now: f64, until: f64) -> bool {
        if matches!(self.kind, Kind::Nobody) {
            return false;
        }
        let length = until - now;
        for (stream, rates) in streams.rates() {
            let offers = match streams.sending(stream) {
                SendMode::Unresponsive(rate) => rate.get(),
                SendMode::Elastic | SendMode::Capped(_) => rates.sending_rate,
            };
            self.received[stream] += rates.delivered_rate * length;
            self.offered[stream] += offers * length;
        }
        let periods = until * PERIODS;
        if (periods - periods.round()).abs() > SAME_TIME * PERIODS {
            return false;
        }
        let full = (length - MEASUREMENT_PERIOD.get()).abs() <= SAME_TIME;
        let changed = self.report(streams, full);
        full && !changed
    }

    /// Reports what was measured in a period. The answer is whether that changed anything.
    fn report(&mut self, streams: &Streams, full: bool) -> bool {
        let mut changed = false;
        // A full period at one rate is that rate, without rounding.
        let mut measured = vec![(Rate::ZERO, Rate::ZERO); streams.len()];
        for (stream, rates) in streams.rates() {
            let rate = |bytes: f64| Rate::new(bytes / MEASUREMENT_PERIOD.get()).unwrap_or(Rate::ZERO);
            let (mut received, mut offered) = (rate(self.received[stream]), rate(self.offered[stream]));
            if full {
                received = Rate::new(rates.delivered_rate).unwrap_or(received);
                offered = match streams.sending(stream) {
                    SendMode::Unresponsive(rate) => rate,
                    _ => Rate::new(rates.sending_rate).unwrap_or(offered),
                };
            }
            measured[stream] = (received, offered);
            self.received[stream] = 0.0;
            self.offered[stream] = 0.0;
        }
        match &mut self.kind {
            Kind::Nobody => {}
            Kind::Throttles { throttles, on, .. } => {
                for &stream in streams.active().iter().filter(|&&stream| on[stream]) {
                    let before = throttles[stream].clone();
                    throttles[stream].update_limit(measured[stream].0);
                    changed |= throttles[stream] != before;
                }
            }
            Kind::Allocator(allocator) => changed = allocator.report(streams, &measured),
        }
        changed
    }
}

impl Allocator {
    fn new(scenario: &Scenario) -> Allocator {
        let capacities: Vec<f64> = scenario.topology.links().iter().map(|link| link.rate.get()).collect();
        let weights: Vec<f64> = scenario.services.iter().map(|service| service.weight).collect();
        let excess = |s: &Service| s.excess_weight.unwrap_or(s.weight);
        let excess: Vec<f64> = scenario.services.iter().map(excess).collect();
        let by_weights = scenario.services.iter().all(|service| service.excess_weight.is_none());
        let shares = if by_weights && scenario.guarantees.is_empty() {
            ServiceShares::weighted(&weights)
        } else {
            let guarantees = scenario.guarantees.iter();
            let guarantees = guarantees.map(|&Guarantee { service, link, rate }| {
                let (link, rate) = (link.0, rate.get());
                hierarchy::Guarantee { link, service, rate }
            });
            let shares = ServiceShares::with_excess(&weights, &excess);
            shares.and_then(|shares| shares.with_link_guarantees(guarantees.collect()))
        };
        let shares = shares.expect("`Scenario::check` accepted the weights and guarantees");
        Allocator {
            floor: scenario.min_limit,
            classes: Vec::new(),
            hierarchy: HierarchicalMaxMin::new(&capacities, shares)
                .expect("`Scenario::check` accepted the links and the guarantees on them"),
            demands: Vec::new(),
            limits: Vec::new(),
        }
    }

    fn extend(&mut self, streams: &Streams, new: Range<usize>) {
        self.demands.resize(new.end, DemandEstimator::new());
        self.limits.resize(new.end, None);
        for stream in new {
            let of = streams.get(stream);
            let class = self.hierarchy.add_class(of.service, &of.links, 0, 0.0);
            self.classes.push(
                class.expect("paths cross each link once, and `check_size` bounds their number and length"),
            );
        }
    }

    fn report(&mut self, streams: &Streams, measured: &[(Rate, Rate)]) -> bool {
        let mut changed = false;
        let mut flows = vec![0; streams.len()];
        for &stream in streams.active() {
            let before = self.demands[stream].clone();
            let rate = measured[stream].1;
            let (limit, is_backlogged) = match streams.sending(stream) {
                // Its demand is what it sends, before its limit.
                SendMode::Unresponsive(_) => (None, false),
                SendMode::Elastic => (self.limits[stream], true),
                SendMode::Capped(cap) => (self.limits[stream], rate.get() < (1.0 - SAME_RATE) * cap.get()),
            };
            self.demands[stream].add_measurement(rate, limit, is_backlogged);
            changed |= self.demands[stream] != before;
            flows[stream] = streams.connections(stream);
            let demand = match self.demands[stream].demand() {
                Some(FlowDemand::Rate(rate)) => rate.get(),
                Some(FlowDemand::Unlimited) => f64::INFINITY,
                None => continue,
            };
            let set = self.hierarchy.set_demand(self.classes[stream], demand);
            set.expect("a Rate is finite and not negative by construction");
        }
        for (stream, &flows) in flows.iter().enumerate() {
            if self.hierarchy.flow_count(self.classes[stream]) != flows {
                self.hierarchy.set_flows(self.classes[stream], flows);
            }
        }
        self.hierarchy.solve();
        for &stream in streams.active() {
            let rate = Rate::new(self.hierarchy.rate(self.classes[stream])).unwrap_or(Rate::ZERO);
            let limit = match self.demands[stream].demand() {
                Some(FlowDemand::Rate(demand)) => limit_for_demand(rate, demand),
                Some(FlowDemand::Unlimited) => rate,
                None => limit_with_headroom(rate),
            };
            let limit = Some(if limit < self.floor { self.floor } else { limit });
            changed |= limit != self.limits[stream];
            self.limits[stream] = limit;
        }
        changed
    }
}
