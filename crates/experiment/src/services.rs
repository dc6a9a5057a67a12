//! Services of a replay: reads them from a scenario, and reports what their connections received.

use std::path::Path;

use weir_console::failure::Failure;
use weir_console::report::ServiceRates;
use weir_console::table::{Alignment, Table, format_count, format_rate, format_seconds};
use weir_core::model::scenario::{CableEvent, SendMode};
use weir_core::model::{Scenario, Workload};
use weir_sim::demands::{self, ActiveDemand};
use weir_sim::{CoflowOutcome, Outcome};

use crate::embedded_network::EmbeddedNetwork;

/// The maximum number of services in tables; `--per-demand`, CSV and JSON have all.
const MAX_SHOWN: usize = 8;

/// The start and the end of the name of a column with the mean rate of a service; the name of the service is between them.
const RATE_COLUMN: [&str; 2] = ["service_", "_bit_per_s"];

/// The column with the mean rate of a service.
pub fn rate_column(service: &str) -> String {
    RATE_COLUMN.join(service)
}

/// Whether a column has the mean rate of a service.
pub fn is_rate_column(column: &str) -> bool {
    column.strip_prefix(RATE_COLUMN[0]).is_some_and(|rest| rest.ends_with(RATE_COLUMN[1]))
}

/// The services of a scenario.
#[derive(Clone)]
pub struct Services {
    /// The name of the file, as given.
    pub name: String,
    scenario: Scenario,
    active: Vec<ActiveDemand>,
}

/// What the connections of a demand received in one of its active intervals. Times are in seconds.
pub struct ServedDemand<'a> {
    /// The name of the service.
    pub service: &'a str,
    /// The number of the demand in the file, from 1.
    pub demand: usize,
    /// The number of the coflow.
    pub coflow: u64,
    /// The interval in which the demand was active.
    pub from: f64,
    /// The end of the interval.
    pub to: f64,
    /// Number of connections.
    pub connections: usize,
    /// The bytes that all connections sent.
    pub bytes: f64,
}

impl ServedDemand<'_> {
    /// The mean rate of all connections together, in bytes per second.
    pub fn mean_rate(&self) -> f64 {
        self.bytes / (self.to - self.from)
    }
}

/// A scenario, with the name of its file as given.
pub type NamedScenario = (String, Scenario);

/// Reads a scenario and its network.
///
/// # Errors
/// If the file cannot be read or is invalid.
pub fn read(path: &Path) -> Result<(NamedScenario, EmbeddedNetwork), Failure> {
    let scenario = weir_trace::scenario::read(path)?;
    let name = path.display().to_string();
    let network = EmbeddedNetwork {
        name: name.clone(),
        topology: scenario.topology.clone(),
        cable_events: scenario.events.clone(),
        path_seed: scenario.seed,
    };
    Ok(((name, scenario), network))
}

impl Services {
    /// Adds the demands' coflows to `workload`, which is replayed with these events of cables.
    ///
    /// # Errors
    /// If policies cannot serve the demands.
    pub fn add(
        (name, scenario): NamedScenario,
        workload: &mut Workload,
        cable_events: &[CableEvent],
        max_flows: usize,
    ) -> Result<Services, Failure> {
        let added = demands::add_demands(workload, &scenario, cable_events, max_flows);
        let active = added.map_err(|error| Failure::input(format_args!("{name}: {error}")))?;
        Ok(Services { name, scenario, active })
    }

    /// The numbers of services and of connections as text.
    pub fn caption(&self) -> String {
        let connections: u64 = self.scenario.demands.iter().map(|demand| demand.connection_count()).sum();
        format!(
            "{} with {} until {}",
            format_count(self.scenario.services.len(), "service"),
            format_count(connections, "connection"),
            self.scenario.end
        )
    }

    /// What each demand received under a policy, in the order of the file.
    pub fn served<'a>(&'a self, outcome: &'a Outcome) -> impl Iterator<Item = ServedDemand<'a>> {
        self.with_outcomes(outcome).map(|(active, coflow)| self.served_demand(active, coflow))
    }

    /// What the demand of an endless coflow of `workload` received.
    pub fn served_by<'a>(&'a self, workload: &Workload, coflow: &CoflowOutcome) -> Option<ServedDemand<'a>> {
        let position = coflow.index.checked_sub(workload.finite_coflows().len())?;
        Some(self.served_demand(&self.active[position], coflow))
    }

    /// The active intervals with their coflows. All endless coflows are of services. With `--per-stage`, their positions differ from those
    /// at which they were added.
    fn with_outcomes<'a>(
        &'a self,
        outcome: &'a Outcome,
    ) -> impl Iterator<Item = (&'a ActiveDemand, &'a CoflowOutcome)> {
        self.active.iter().zip(&outcome.endless_coflows)
    }

    fn served_demand<'a>(&'a self, active: &ActiveDemand, coflow: &CoflowOutcome) -> ServedDemand<'a> {
        ServedDemand {
            service: &self.scenario.services[self.scenario.demands[active.demand].service].name,
            demand: active.demand + 1,
            coflow: coflow.id,
            from: active.interval.0.get(),
            to: active.interval.1.get(),
            connections: coflow.width,
            bytes: coflow.sent_bytes(),
        }
    }

    /// The seconds in which any connection of a service is active.
    fn active_seconds(&self, service: usize) -> f64 {
        let of_service =
            self.active.iter().filter(|active| self.scenario.demands[active.demand].service == service);
        let mut intervals: Vec<(f64, f64)> =
            of_service.map(|active| (active.interval.0.get(), active.interval.1.get())).collect();
        intervals.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut seconds, mut end) = (0.0, 0.0);
        for (from, to) in intervals {
            seconds += (to - from.max(end)).max(0.0);
            end = end.max(to);
        }
        seconds
    }

    /// The first services with their weights and active times, as a line of text. `all` names the output that has all services.
    pub fn description(&self, all: &str) -> String {
        let services = self.scenario.services.iter().enumerate().take(MAX_SHOWN);
        let described: Vec<String> = services
            .map(|(number, service)| {
                let seconds = format_seconds(self.active_seconds(number));
                format!("{} (weight {}, active {seconds})", service.name, service.weight)
            })
            .collect();
        let omitted = match self.scenario.services.len().saturating_sub(MAX_SHOWN) {
            0 => String::new(),
            count => format!("; {count} more are not shown, {all} writes all"),
        };
        format!(
            "Mean rates of services while their connections are active: {}{omitted}.",
            described.join(", ")
        )
    }

    /// The names of the first services.
    pub fn shown_names(&self) -> impl Iterator<Item = &str> {
        self.scenario.services.iter().take(MAX_SHOWN).map(|service| service.name.as_str())
    }

    /// The name and the mean rate of each service in an outcome, in bytes per second, while any of its connections is active; `None` for a
    /// service without active connections.
    pub fn mean_rates(&self, outcome: &Outcome) -> Vec<(&str, Option<f64>)> {
        let mut bytes = vec![0.0; self.scenario.services.len()];
        for (active, coflow) in self.with_outcomes(outcome) {
            bytes[self.scenario.demands[active.demand].service] += coflow.sent_bytes();
        }
        let rate = |number: usize| {
            let seconds = self.active_seconds(number);
            (seconds > 0.0).then(|| bytes[number] / seconds)
        };
        let services = self.scenario.services.iter().enumerate();
        services.map(|(number, service)| (service.name.as_str(), rate(number))).collect()
    }

    /// The mean rates of the first services in each outcome.
    pub fn rates(&self, outcomes: &[Outcome]) -> ServiceRates {
        let cell = |(_, rate): (&str, Option<f64>)| rate.map_or_else(|| "-".to_owned(), format_rate);
        let row = |outcome| self.mean_rates(outcome).into_iter().take(MAX_SHOWN).map(cell).collect();
        ServiceRates {
            description: self.description("--per-demand"),
            names: self.shown_names().map(str::to_owned).collect(),
            rates: outcomes.iter().map(row).collect(),
        }
    }

    /// Whether the rate of any connection has a limit.
    pub fn have_limits(&self) -> bool {
        self.scenario.demands.iter().any(|demand| matches!(demand.send_mode, SendMode::Capped(_)))
    }
}

/// The rates of services under each policy, as a table.
pub fn rate_table(policies: &[String], services: &ServiceRates) -> String {
    let names = services.names.iter().map(|name| (name.as_str(), Alignment::Right));
    let mut table = Table::new(&[("policy", Alignment::Left)].into_iter().chain(names).collect::<Vec<_>>());
    for (policy, rates) in policies.iter().zip(&services.rates) {
        table.add_row([std::slice::from_ref(policy), rates].concat());
    }
    format!("\n{}\n\n{table}", services.description)
}
