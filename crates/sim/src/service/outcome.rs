//! The outcome of a scenario: rates of services over time.

use weir_core::model::LinkId;
use weir_core::model::scenario::{Reduction, Scenario};
use weir_core::units::Time;

use super::at;
use super::streams::{Stream, Streams};

/// A period with constant rates.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// Its start.
    pub start: Time,
    /// Its end.
    pub end: Time,
    /// The rate of arrival of all connections of each demand, in bytes per second.
    pub delivered_rates: Vec<f64>,
    /// The sending rate of all connections of each demand, in bytes per second.
    pub sent_rates: Vec<f64>,
}

/// A period in which no demand began or ended, no cable changed, and some demand was active.
#[derive(Debug, Clone, PartialEq)]
pub struct Phase {
    /// Its start.
    pub start: Time,
    /// Its end.
    pub end: Time,
    /// The mean rate of arrival of each demand, in bytes per second.
    pub mean_rates: Vec<f64>,
    /// The rate of arrival of each demand at the phase's end, in bytes per second.
    pub final_rates: Vec<f64>,
    /// The sending rate of each demand at the phase's end, in bytes per second.
    pub final_sent_rates: Vec<f64>,
    /// The number of connections of each demand without a path, which send nothing; 0 for a demand that is not active.
    pub pathless_connections: Vec<u32>,
    /// What arrived of each stream, on average.
    streams: Vec<f64>,
}

/// The rates of one service in one phase, in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ServicePhase {
    /// The index of the service in the scenario.
    pub service: usize,
    /// The mean rate of arrival.
    pub mean_rate: f64,
    /// The rate of arrival at the end of the phase.
    pub final_rate: f64,
    /// The sending rate at the end of the phase.
    pub final_sent_rate: f64,
    /// The number of connections without a path.
    pub pathless_connections: u32,
    /// The reduction with the lowest factor among those of the service's guarantees in this phase.
    pub reduction: Option<Reduction>,
}

/// The outcome of a scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioOutcome {
    /// Segments from the first connection on, without the periods in which no connection sent.
    pub segments: Vec<Segment>,
    /// Phases in order of time.
    pub phases: Vec<Phase>,
    /// The maximum distance of rates from steady state ([`weir_core::solve::wfq::WfqStats::residual`]); 0 if all rates had
    /// settled.
    pub convergence_error: f64,
    /// The periods in which guarantees were reduced because an event lowered a link below their sum; the same under every
    /// mechanism.
    pub reductions: Vec<Reduction>,
    /// The service of each demand, and how many services there are.
    service_of: Vec<usize>,
    services: usize,
    streams: Vec<Stream>,
    /// Bytes of each stream in the phase under way.
    bytes: Vec<f64>,
}

impl ScenarioOutcome {
    pub(super) fn new(scenario: &Scenario) -> ScenarioOutcome {
        ScenarioOutcome {
            segments: Vec::new(),
            phases: Vec::new(),
            convergence_error: 0.0,
            reductions: scenario.reductions(),
            service_of: scenario.demands.iter().map(|demand| demand.service).collect(),
            services: scenario.services.len(),
            streams: Vec::new(),
            bytes: Vec::new(),
        }
    }

    pub(super) fn begin(&mut self, from: f64, scenario: &Scenario, streams: &Streams) {
        let demands = self.service_of.len();
        self.bytes.clear();
        self.bytes.resize(streams.len(), 0.0);
        let stranded = scenario.demands.iter().zip(streams.stranded());
        self.phases.push(Phase {
            start: at(from),
            end: at(from),
            mean_rates: vec![0.0; demands],
            final_rates: vec![0.0; demands],
            final_sent_rates: vec![0.0; demands],
            pathless_connections: stranded
                .map(|(demand, &n)| if demand.is_active(at(from)) { n } else { 0 })
                .collect(),
            streams: Vec::new(),
        });
    }

    pub(super) fn unsettled(&mut self, residual: f64) {
        self.convergence_error = self.convergence_error.max(residual);
    }

    pub(super) fn add(&mut self, from: f64, to: f64, streams: &Streams) {
        let demands = self.service_of.len();
        let (mut delivered, mut sent) = (vec![0.0; demands], vec![0.0; demands]);
        for (stream, rates) in streams.rates() {
            let (demand, connections) = (streams.get(stream).demand, streams.connections(stream));
            delivered[demand] += rates.delivered_rate * f64::from(connections);
            sent[demand] += rates.sending_rate * f64::from(connections);
            self.bytes[stream] += rates.delivered_rate * f64::from(connections) * (to - from);
        }
        if let Some(phase) = self.phases.last_mut() {
            phase.final_rates.clone_from(&delivered);
            phase.final_sent_rates.clone_from(&sent);
        }
        let (from, to) = (at(from), at(to));
        match self.segments.last_mut() {
            Some(last)
                if last.end == from && last.delivered_rates == delivered && last.sent_rates == sent =>
            {
                last.end = to
            }
            _ => self.segments.push(Segment {
                start: from,
                end: to,
                delivered_rates: delivered,
                sent_rates: sent,
            }),
        }
    }

    pub(super) fn end(&mut self, to: f64, streams: &Streams) {
        let Some(phase) = self.phases.last_mut() else { return };
        phase.end = at(to);
        let length = to - phase.start.get();
        phase.streams = self.bytes.iter().map(|bytes| bytes / length).collect();
        for (stream, mean) in phase.streams.iter().enumerate() {
            phase.mean_rates[streams.get(stream).demand] += mean;
        }
    }

    /// Completes the outcome. Of the streams, only the crossed links are kept.
    pub(super) fn finish(mut self, streams: Streams) -> ScenarioOutcome {
        self.streams = streams.into_crossed();
        self
    }

    /// The rates of each service with active demands in a phase.
    pub fn service_phases(&self, scenario: &Scenario, phase: &Phase) -> Vec<ServicePhase> {
        let [mean, last, sent] = [&phase.mean_rates, &phase.final_rates, &phase.final_sent_rates]
            .map(|of_demands| self.sum_by_service(of_demands));
        let active = |service: &usize| {
            let mut own = scenario.demands.iter().filter(|demand| demand.service == *service);
            own.any(|demand| demand.is_active(phase.start))
        };
        let of_service = |service: usize| {
            let demands = self.service_of.iter().zip(&phase.pathless_connections);
            let stranded = demands.filter(|(of, _)| **of == service).map(|(_, stranded)| stranded).sum();
            let (mean, last, sent) = (mean[service], last[service], sent[service]);
            let reduction = self.reduction(scenario, phase, service);
            ServicePhase {
                service,
                mean_rate: mean,
                final_rate: last,
                final_sent_rate: sent,
                pathless_connections: stranded,
                reduction,
            }
        };
        (0..self.services).filter(active).map(of_service).collect()
    }

    /// The reduction with the lowest factor among those of a service's guarantees in a phase.
    fn reduction(&self, scenario: &Scenario, phase: &Phase, service: usize) -> Option<Reduction> {
        let during = self.reductions.iter().filter(|r| r.start <= phase.start && phase.start < r.end);
        let own = during.filter(|r| {
            let mut guarantees = scenario.guarantees.iter();
            guarantees.any(|guarantee| guarantee.service == service && guarantee.link == r.link)
        });
        own.min_by(|a, b| a.factor.total_cmp(&b.factor)).copied()
    }

    /// Sums by service of numbers by demand.
    pub fn sum_by_service(&self, values_by_demand: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; self.services];
        for (&service, number) in self.service_of.iter().zip(values_by_demand) {
            sums[service] += number;
        }
        sums
    }

    /// By service, the mean rate over a phase of traffic that crosses a link and arrives, in bytes per second.
    pub fn mean_rates_on_link(&self, phase: &Phase, link: LinkId) -> Vec<f64> {
        let mut sums = vec![0.0; self.services];
        for (stream, mean) in self.streams.iter().zip(&phase.streams) {
            if stream.links.contains(&link.0) {
                sums[stream.service] += mean;
            }
        }
        sums
    }
}
