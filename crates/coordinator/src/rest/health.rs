//! Health checks and metrics: `/livez`, `/readyz` and `/metrics`.

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

use super::{Api, Who, may_see};
use weir_proto::{Reason, Totals};

use crate::master::Overview;
use crate::plane::HostState;
use crate::problem::Problem;

/// Maximum time for the control plane to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether the control plane answers. If not, restart the coordinator. Any client may use this path.
#[utoipa::path(get, path = "/livez", responses((status = 200), (status = 503, body = Problem)))]
pub async fn livez(State(api): State<Api>) -> Result<&'static str, Problem> {
    overview(&api).await?;
    Ok("alive\n")
}

/// Whether the coordinator accepts requests: it is alive and not shutting down. Any client may use this path.
#[utoipa::path(get, path = "/readyz", responses((status = 200), (status = 503, body = Problem)))]
pub async fn readyz(State(api): State<Api>) -> Result<&'static str, Problem> {
    if *api.stop.borrow() {
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the coordinator ends"));
    }
    overview(&api).await?;
    Ok("ready\n")
}

async fn overview(api: &Api) -> Result<Overview, Problem> {
    let late = |_| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the plane does not answer");
    Ok(timeout(PATIENCE, api.registry.handle().overview()).await.map_err(late)??)
}

/// Metrics for Prometheus, in base units.
#[utoipa::path(get, path = "/metrics", responses((status = 200, body = String), (status = "4XX", body = Problem)))]
pub async fn metrics(State(api): State<Api>, who: Who) -> Result<Response, Problem> {
    may_see(&who, None)?;
    let overview = overview(&api).await?;
    let states = api.registry.handle().host_states().await?;
    let (hosts, switches) = states.split_at(api.registry.hosts().len());
    let conflicts = |states: &[HostState], reason| {
        let all = states.iter().filter(|state| state.present).flat_map(|state| &state.conflicts);
        all.filter(|conflict| conflict.reason() == reason).count()
    };
    let present = |states: &[HostState]| states.iter().filter(|state| state.present).count();
    let figures = Figures {
        hosts: (hosts.len(), present(hosts)),
        switches: (switches.len(), present(switches)),
        epoch: api.registry.epoch(),
        over_limits: api.admission.refused(),
        conflicts: Reason::ALL.map(|reason| (reason.name(), conflicts(&states, reason))),
        overview,
    };
    let mut all = Metrics::default();
    all.register_collector(Box::new(Arc::new(figures)));
    let mut text = String::new();
    encode(&mut text, &all)
        .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}

/// Values of the metrics.
#[derive(Debug)]
struct Figures {
    overview: Overview,
    /// Number of configured hosts (switches), and of present ones.
    hosts: (usize, usize),
    switches: (usize, usize),
    epoch: u64,
    over_limits: u64,
    /// Number of interfaces with a conflict, by reason.
    conflicts: [(&'static str, usize); 5],
}

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let Overview { under_way, coflows, flows, attending, doubts, dropped, histogram, .. } =
            &self.overview;
        let Overview { reports, passed_on, refusals, restored, .. } = &self.overview;
        let gauges: [(&str, &str, u64); 9] = [
            ("weir_epoch", "The epoch of this coordinator's orders", self.epoch),
            ("weir_coflows", "Known coflows", *coflows as u64),
            ("weir_coflows_active", "Coflows that have not completed", *under_way as u64),
            ("weir_flows", "Flows of known coflows", *flows as u64),
            ("weir_hosts", "Hosts of the configuration", self.hosts.0 as u64),
            ("weir_hosts_present", "Hosts that schedules include", self.hosts.1 as u64),
            ("weir_agents_connected", "Hosts and switches whose agents receive orders", *attending as u64),
            ("weir_switches", "Switches of the configuration", self.switches.0 as u64),
            ("weir_switches_present", "Switches whose agents report", self.switches.1 as u64),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value as i64);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        let over = "Connections to the API over a limit, which can only query the coordinator's health";
        let counters = [
            ("weir_connections_over_limit", over, self.over_limits),
            ("weir_reports", "Reports received", *reports),
            ("weir_udp_measurements_forwarded", "UDP measurements forwarded to senders", *passed_on),
            (
                "weir_orders_dropped",
                "Orders not sent because the host had not taken the ones before",
                *dropped,
            ),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        let doubts = [
            ("unknown-flow", doubts.unknown),
            ("foreign-flow", doubts.foreign),
            ("decreasing", doubts.backward),
            ("above-link-rate", doubts.beyond),
            ("unknown-host", doubts.absent),
            ("too-many", doubts.crowded),
        ];
        let by_reason = [
            ("weir_report_entries_rejected", "Report entries rejected as implausible", &doubts[..]),
            ("weir_orders_refused", "Orders that agents refused", &refusals.by_name()),
        ];
        for (name, help, counts) in by_reason {
            let mut all = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for &(reason, count) in counts {
                ConstCounter::new(count).encode(all.encode_family(&[("reason", reason)])?)?;
            }
        }
        let help = "Kernel objects that agents restored after another process had removed or changed them";
        let mut all = encoder.encode_descriptor("weir_restored_objects", help, None, MetricType::Counter)?;
        for (kind, count) in restored.by_name() {
            ConstCounter::new(count).encode(all.encode_family(&[("kind", kind)])?)?;
        }
        let help = "Interfaces of hosts and switches that differ from their orders";
        let mut all = encoder.encode_descriptor("weir_interface_conflicts", help, None, MetricType::Gauge)?;
        for (reason, count) in self.conflicts {
            ConstGauge::new(count as i64).encode(all.encode_family(&[("reason", reason)])?)?;
        }
        let help = "Duration of a schedule, until its orders are sent";
        let mut schedules =
            encoder.encode_descriptor("weir_schedule", help, Some(&Unit::Seconds), MetricType::Histogram)?;
        let buckets: Vec<(f64, u64)> = histogram.buckets().collect();
        schedules.encode_histogram::<NoLabelSet>(
            histogram.sum().as_secs_f64(),
            histogram.count(),
            &buckets,
            None,
        )
    }
}
