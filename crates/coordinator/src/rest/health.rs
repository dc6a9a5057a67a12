//! Serves health checks and metrics: `/livez`, `/readyz` and `/metrics`.

use std::fmt::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry as Metrics, Unit};
use tokio::time::timeout;

use super::certificate_metrics::CertificateMetrics;
use super::overlay_metrics::OverlayMetrics;
use super::quota_metrics::QuotaMetrics;
use super::service_metrics::ServiceMetrics;
use super::{Api, Client, check_may_see};
use weir_proto::{ConflictReason, CounterTotals};

use crate::control_plane::{HostStatus, PauseMode};
use crate::control_thread::Overview;
use crate::problem::Problem;
use crate::store::{StoreError, StoreStatus};

/// Maximum time for the control plane to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// The media type of the metrics.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Whether the control plane answers. If it does not, restart the coordinator. Any client may use this path.
#[utoipa::path(get, path = "/livez", operation_id = "check_liveness",
    responses((status = 200, description = "The control plane answers", body = String), Problem))]
pub async fn livez(State(api): State<Api>) -> Result<&'static str, Problem> {
    overview(&api).await?;
    Ok("alive\n")
}

/// Whether the coordinator accepts requests: it is alive and not shutting down, and its store can be written. Any client may use this
/// path.
#[utoipa::path(get, path = "/readyz", operation_id = "check_readiness",
    responses((status = 200, description = "The coordinator accepts requests", body = String), Problem))]
pub async fn readyz(State(api): State<Api>) -> Result<&'static str, Problem> {
    if *api.stop.borrow() {
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the coordinator is shutting down"));
    }
    overview(&api).await?;
    let unwritable = |error: StoreError| Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string());
    api.registry.check_writable().map_err(unwritable)?;
    Ok("ready\n")
}

async fn overview(api: &Api) -> Result<Overview, Problem> {
    let late = |_| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the control plane does not answer");
    Ok(timeout(ANSWER_TIMEOUT, api.registry.handle().overview()).await.map_err(late)??)
}

/// Metrics for Prometheus, in base units.
#[utoipa::path(get, path = "/metrics", operation_id = "show_metrics",
    responses((status = 200, description = "The metrics", body = String, content_type = METRICS_TYPE), Problem))]
pub async fn metrics(State(api): State<Api>, client: Client) -> Result<Response, Problem> {
    check_may_see(&client, None)?;
    let overview = overview(&api).await?;
    let states = api.registry.handle().call(|plane, _| plane.host_statuses()).await?;
    let known = api.registry.hosts();
    let (slots, switches) = states.split_at(known.slot_count());
    let hosts: Vec<(&str, &HostStatus)> =
        known.iter().map(|(number, host)| (&*host.name, &slots[number as usize])).collect();
    let count_conflicts = |states: &[HostStatus], reason| {
        let all = states.iter().filter(|state| state.present).flat_map(|state| &state.conflicts);
        all.filter(|conflict| conflict.reason() == reason).count()
    };
    let connections =
        hosts.iter().filter_map(|(name, state)| Some(((*name).to_owned(), state.max_connections?)));
    let host_pauses = hosts.iter().filter_map(|(_, state)| state.pause);
    let services = api.registry.services().await;
    let service_pauses = services.iter().filter_map(|service| service.pause);
    let values = MetricValues {
        hosts: (hosts.len(), hosts.iter().filter(|(_, state)| state.present).count()),
        switches: (switches.len(), switches.iter().filter(|state| state.present).count()),
        failed_links: api.registry.failed_link_count().await,
        epoch: api.registry.epoch(),
        configuration: (api.reloader.loaded_at(), !api.reloader.has_failed()),
        store: api.registry.store_status(),
        audit_entries: [api.registry.audit().written(), api.registry.audit().lost()],
        connections_over_limit: api.ports.admission.over_limit(),
        connections: connections.collect(),
        paused_hosts: count_pauses(host_pauses),
        paused_services: count_pauses(service_pauses),
        conflicts: ConflictReason::ALL.map(|reason| (reason.name(), count_conflicts(&states, reason))),
        overview,
    };
    let overlay = api.registry.overlay().map(OverlayMetrics::new);
    let mut metrics = Metrics::default();
    metrics.register_collector(Box::new(Arc::new(values)));
    metrics.register_collector(Box::new(CertificateMetrics::new(&api.ports)));
    metrics.register_collector(Box::new(ServiceMetrics(api.registry.service_classes().await)));
    metrics.register_collector(Box::new(QuotaMetrics(api.registry.object_usage().await?)));
    if let Some(overlay) = overlay {
        metrics.register_collector(Box::new(Arc::new(overlay)));
    }
    let mut text = String::new();
    encode(&mut text, &metrics)
        .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, METRICS_TYPE)], text).into_response())
}

/// Numbers of pauses, each with the name of its mode.
type CountsByMode = [(&'static str, u64); 2];

/// The number of pauses of each mode.
fn count_pauses(pauses: impl Iterator<Item = PauseMode>) -> CountsByMode {
    let (paused, shadow): (Vec<PauseMode>, Vec<PauseMode>) =
        pauses.partition(|mode| *mode == PauseMode::Paused);
    [("paused", paused.len() as u64), ("shadow", shadow.len() as u64)]
}

/// Values of the metrics.
#[derive(Debug)]
struct MetricValues {
    overview: Overview,
    /// Number of configured hosts, and of present hosts.
    hosts: (usize, usize),
    /// Number of configured switches, and of present switches.
    switches: (usize, usize),
    /// Number of links that are down.
    failed_links: usize,
    epoch: u64,
    /// When the configuration was loaded, in seconds since 1970, and whether the last reload succeeded.
    configuration: (f64, bool),
    store: StoreStatus,
    connections_over_limit: u64,
    /// Number of written and of lost entries of the audit log.
    audit_entries: [u64; 2],
    /// The number of connections of each host, by its name, if it follows the loss.
    connections: Vec<(String, u32)>,
    /// Number of hosts by the mode of their pause.
    paused_hosts: CountsByMode,
    /// Number of services by the mode of their pause.
    paused_services: CountsByMode,
    /// Number of interfaces with a conflict, by reason.
    conflicts: [(&'static str, usize); ConflictReason::ALL.len()],
}

impl Collector for MetricValues {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        self.encode_gauges(&mut encoder)?;
        self.encode_counters(&mut encoder)?;
        self.encode_families(&mut encoder)?;
        let help = "Duration of a schedule, until its orders are queued";
        let mut schedules =
            encoder.encode_descriptor("weir_schedule", help, Some(&Unit::Seconds), MetricType::Histogram)?;
        let histogram = &self.overview.schedule_histogram;
        let buckets: Vec<(f64, u64)> = histogram.buckets().collect();
        schedules.encode_histogram::<NoLabelSet>(
            histogram.sum().as_secs_f64(),
            histogram.count(),
            &buckets,
            None,
        )
    }
}

impl MetricValues {
    /// Encodes gauges without labels.
    fn encode_gauges(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let overview = &self.overview;
        let gauges: [(&str, &str, u64); 12] = [
            ("weir_epoch", "Epoch of the orders of this coordinator", self.epoch),
            (
                "weir_store_writable",
                "Whether the store accepts changes",
                u64::from(self.store.failure.is_none()),
            ),
            (
                "weir_reload_successful",
                "Whether the last reload of the configuration succeeded",
                u64::from(self.configuration.1),
            ),
            ("weir_coflows", "Coflows, active or completed", overview.coflows as u64),
            ("weir_coflows_active", "Coflows that have not completed", overview.active_coflows as u64),
            ("weir_flows", "Flows of all coflows, active or completed", overview.flows as u64),
            ("weir_hosts", "Hosts of the configuration, and those that have joined", self.hosts.0 as u64),
            ("weir_hosts_present", "Hosts that schedules include", self.hosts.1 as u64),
            (
                "weir_agents_connected",
                "Hosts and switches whose agents receive orders",
                overview.connected_agents as u64,
            ),
            ("weir_switches", "Switches of the configuration", self.switches.0 as u64),
            ("weir_switches_present", "Switches whose agents send reports", self.switches.1 as u64),
            (
                "weir_links_down",
                "Links of hosts and between switches that are down",
                self.failed_links as u64,
            ),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value as i64);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        let help = "When the configuration in use was loaded, in seconds since 1970";
        let loaded_at = ConstGauge::new(self.configuration.0);
        let name = "weir_configuration_loaded_timestamp";
        loaded_at.encode(encoder.encode_descriptor(
            name,
            help,
            Some(&Unit::Seconds),
            loaded_at.metric_type(),
        )?)?;
        Ok(())
    }

    /// Encodes counters without labels.
    fn encode_counters(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let overview = &self.overview;
        let over_limit_help = "Connections to the API over a limit, which can request only the coordinator's health and metrics";
        let counters = [
            ("weir_connections_over_limit", over_limit_help, self.connections_over_limit),
            ("weir_store_failed_writes", "Failed writes of the store", self.store.failed_writes),
            ("weir_store_recoveries", "Times that the store could be written again", self.store.recoveries),
            ("weir_audit_entries", "Entries written to the audit log", self.audit_entries[0]),
            (
                "weir_audit_entries_lost",
                "Entries of the audit log that could not be written",
                self.audit_entries[1],
            ),
            ("weir_reports", "Reports received", overview.received_reports),
            (
                "weir_udp_measurements_forwarded",
                "UDP measurements forwarded to senders",
                overview.forwarded_udp_measurements,
            ),
            ("weir_udp_limits", "Limits of UDP by the allocator in orders", overview.ordered_udp_limits),
            (
                "weir_orders_dropped",
                "Orders dropped because earlier orders to the agent were still queued",
                overview.dropped_orders,
            ),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        Ok(())
    }

    /// Encodes gauges and counters by reason or kind.
    fn encode_families(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let overview = &self.overview;
        let rejected = &overview.rejected_entries;
        let rejected_entries = [
            ("unknown-flow", rejected.unknown_flow),
            ("former-generation", rejected.former_generation),
            ("foreign-flow", rejected.foreign_flow),
            ("decreasing", rejected.decreasing),
            ("above-link-rate", rejected.above_link_rate),
            ("unknown-host", rejected.unknown_host),
            ("too-many", rejected.too_many),
        ];
        let by_reason = [
            ("weir_report_entries_rejected", "Report entries rejected as implausible", &rejected_entries[..]),
            ("weir_orders_refused", "Orders that agents refused", &overview.refused_orders.by_name()),
        ];
        for (name, help, counts) in by_reason {
            let mut all = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for &(reason, count) in counts {
                ConstCounter::new(count).encode(all.encode_family(&[("reason", reason)])?)?;
            }
        }
        let help = "Kernel objects that agents restored after another process removed or changed them";
        let mut all = encoder.encode_descriptor("weir_restored_objects", help, None, MetricType::Counter)?;
        for (kind, count) in overview.restored_objects.by_name() {
            ConstCounter::new(count).encode(all.encode_family(&[("kind", kind)])?)?;
        }
        if let Some(messages) = overview.matching_messages {
            let help = "Messages of Django; a repeated change counts once";
            let mut all =
                encoder.encode_descriptor("weir_matching_messages", help, None, MetricType::Counter)?;
            for (message, count) in messages.by_name() {
                ConstCounter::new(count).encode(all.encode_family(&[("message", message)])?)?;
            }
        }
        if !self.connections.is_empty() {
            let help = "Connections that a host may have, by the loss of the flows to it";
            let mut all =
                encoder.encode_descriptor("weir_matching_connections", help, None, MetricType::Gauge)?;
            for (host, count) in &self.connections {
                ConstGauge::new(i64::from(*count)).encode(all.encode_family(&[("host", host.as_str())])?)?;
            }
        }
        for (name, help, counts) in [
            ("weir_paused_hosts", "Hosts that are paused or in shadow mode", self.paused_hosts),
            ("weir_paused_services", "Services that are paused or in shadow mode", self.paused_services),
        ] {
            let mut all = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (mode, count) in counts {
                ConstGauge::new(count as i64).encode(all.encode_family(&[("mode", mode)])?)?;
            }
        }
        let help = "Interfaces of hosts and switches that differ from their orders";
        let mut all = encoder.encode_descriptor("weir_interface_conflicts", help, None, MetricType::Gauge)?;
        for (reason, count) in self.conflicts {
            ConstGauge::new(count as i64).encode(all.encode_family(&[("reason", reason)])?)?;
        }
        Ok(())
    }
}
