//! The metrics of a relay.

use std::fmt::Error;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout};
use weir_tls::{CertificateStatus, Reloaded};

use crate::control::OrderStatus;
use crate::io::{Command, Handle, LinkStatus, RelayTls, Status};
use crate::reason_counts::ReasonCounts;

/// The maximum time for the relay's thread to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// What the metrics show.
#[derive(Clone)]
pub struct MetricsSource {
    /// The relay.
    pub relay: Handle,
    /// The orders of a coordinator; none without a coordinator.
    pub orders: Option<watch::Receiver<OrderStatus>>,
    /// The relay's certificate; none for plain text.
    pub certificate: Option<Arc<Reloaded<RelayTls>>>,
}

impl weir_metrics::MetricsSource for MetricsSource {
    /// None if the relay does not answer.
    async fn text(&self) -> Option<String> {
        let (sender, status) = oneshot::channel();
        // The client may have closed the connection before the answer.
        self.relay.send(Command::Inspect(Box::new(move |status| drop(sender.send(status)))));
        let status = timeout(ANSWER_TIMEOUT, status).await.ok()?.ok()?;
        let orders = self.orders.as_ref().map(|orders| *orders.borrow());
        let certificate = self.certificate.as_ref().map(|certificate| certificate.status());
        let values = MetricValues { status, orders, certificate, now: Instant::now() };
        let mut registry = Registry::default();
        registry.register_collector(Box::new(values));
        let mut text = String::new();
        encode(&mut text, &registry).ok()?;
        Some(text)
    }
}

#[derive(Debug)]
struct MetricValues {
    status: Status,
    orders: Option<OrderStatus>,
    certificate: Option<CertificateStatus>,
    now: Instant,
}

/// The name, unit, explanation and value of a metric of a path.
type PathMetric<T> = (&'static str, Option<Unit>, &'static str, fn(&LinkStatus) -> T);

const PATH_COUNTERS: [PathMetric<u64>; 8] = [
    (
        "weir_relay_peer_failures",
        None,
        "How often established connections with another relay have failed",
        |link| link.failures,
    ),
    ("weir_relay_peer_sent", Some(Unit::Bytes), "Payload bytes sent to another relay", |link| {
        link.counters.sent_bytes
    }),
    (
        "weir_relay_peer_detoured",
        Some(Unit::Bytes),
        "Payload bytes sent to another relay that began here and end at a third relay",
        |link| link.counters.detoured_bytes,
    ),
    ("weir_relay_peer_received", Some(Unit::Bytes), "Payload bytes received from another relay", |link| {
        link.counters.received_bytes
    }),
    (
        "weir_relay_peer_sent_messages",
        None,
        "Messages sent to another relay, with control messages",
        |link| link.counters.sent_messages,
    ),
    (
        "weir_relay_peer_received_messages",
        None,
        "Messages received from another relay, with control messages",
        |link| link.counters.received_messages,
    ),
    (
        "weir_relay_peer_segments",
        None,
        "TCP segments sent to another relay over the established connections",
        |link| link.segments,
    ),
    ("weir_relay_peer_retransmitted_segments", None, "TCP segments of these that were sent again", |link| {
        link.retransmitted_segments
    }),
];

const PATH_GAUGES: [PathMetric<Option<f64>>; 5] = [
    (
        "weir_relay_peer_connected",
        None,
        "Whether all connections with another relay are established",
        |link| Some(f64::from(link.is_up)),
    ),
    (
        "weir_relay_peer_connections",
        None,
        "Connections over which this relay sends data to another relay",
        |link| Some(link.connections as f64),
    ),
    (
        "weir_relay_peer_bytes_per_second",
        None,
        "Smoothed throughput to another relay while data waits",
        |link| (link.smoothed_rate > 0).then_some(link.smoothed_rate as f64),
    ),
    (
        "weir_relay_peer_min_rtt",
        Some(Unit::Seconds),
        "Lowest round-trip time to another relay in the last 30 s",
        |link| (!link.min_round_trip.is_zero()).then_some(link.min_round_trip.as_secs_f64()),
    ),
    ("weir_relay_peer_rtt", Some(Unit::Seconds), "Smoothed round-trip time to another relay", |link| {
        (!link.round_trip.is_zero()).then_some(link.round_trip.as_secs_f64())
    }),
];

impl MetricValues {
    fn encode_paths(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        for (name, unit, help, value) in &PATH_COUNTERS {
            let mut all = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
            for link in self.status.links.values() {
                ConstCounter::new(value(link)).encode(all.encode_family(&[("peer", &*link.name)])?)?;
            }
        }
        for (name, unit, help, value) in &PATH_GAUGES {
            let mut all = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
            for link in self.status.links.values() {
                let Some(value) = value(link) else { continue };
                ConstGauge::new(value).encode(all.encode_family(&[("peer", &*link.name)])?)?;
            }
        }
        Ok(())
    }

    fn encode_flows(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let (sources, sinks, transits) = self.status.flow_counts;
        let help = "Open flows that begin here, end here, or have messages that wait here on a detour";
        let mut all = encoder.encode_descriptor("weir_relay_flows", help, None, MetricType::Gauge)?;
        for (role, count) in [("source", sources), ("destination", sinks), ("detour", transits)] {
            ConstGauge::new(count as i64).encode(all.encode_family(&[("role", role)])?)?;
        }
        let resets = &self.status.resets;
        let counters: [(&str, &str, &ReasonCounts); 3] = [
            (
                "weir_relay_flows_refused",
                "Flows of local programs that did not begin",
                &self.status.refused_flows,
            ),
            ("weir_relay_flows_reset", "Flows of local programs that were reset", &resets.flows),
            ("weir_relay_resets_sent", "Resets sent for flows that end here or pass through", &resets.sent),
        ];
        for (name, help, counts) in counters {
            let mut all = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (reason, count) in counts.iter() {
                ConstCounter::new(count).encode(all.encode_family(&[("reason", reason.as_str())])?)?;
            }
        }
        let (name, help) =
            ("weir_relay_coflow_detoured", "Bytes of a known coflow that this relay sent on a detour");
        let mut all = encoder.encode_descriptor(name, help, Some(&Unit::Bytes), MetricType::Counter)?;
        for (coflow, &bytes) in &self.status.detoured_bytes {
            ConstCounter::new(bytes).encode(all.encode_family(&[("coflow", &**coflow)])?)?;
        }
        Ok(())
    }

    fn encode_memory(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let (detours, receivers) = self.status.used_bytes;
        let limit = ConstGauge::new(self.status.memory_bytes as i64);
        let help = "Memory for data";
        let gauge = MetricType::Gauge;
        limit.encode(encoder.encode_descriptor(
            "weir_relay_memory_limit",
            help,
            Some(&Unit::Bytes),
            gauge,
        )?)?;
        let help = "Memory of messages on a detour, and memory reserved for receivers; each has one half";
        let mut all = encoder.encode_descriptor("weir_relay_memory_used", help, Some(&Unit::Bytes), gauge)?;
        for (kind, bytes) in [("detours", detours), ("receivers", receivers)] {
            ConstGauge::new(bytes as i64).encode(all.encode_family(&[("for", kind)])?)?;
        }
        Ok(())
    }

    fn encode_certificate(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let Some(certificate) = &self.certificate else { return Ok(()) };
        let gauge = ConstGauge::new(certificate.seconds_left());
        let help = "Time until the relay's certificate expires; negative after that";
        gauge.encode(encoder.encode_descriptor(
            "weir_relay_certificate_expiry",
            help,
            Some(&Unit::Seconds),
            gauge.metric_type(),
        )?)?;
        let help = "Failed handshakes with relays and programs, and certificates with the wrong name";
        let counter = MetricType::Counter;
        let mut all = encoder.encode_descriptor("weir_relay_handshakes_failed", help, None, counter)?;
        for (reason, count) in self.status.handshake_failures.iter() {
            ConstCounter::new(count).encode(all.encode_family(&[("reason", reason.name())])?)?;
        }
        let counters = [
            (
                "weir_relay_certificate_reloads",
                "How often changed certificate files were read",
                certificate.reloads,
            ),
            (
                "weir_relay_certificate_reloads_failed",
                "How often changed certificate files could not be used",
                certificate.failed_reloads,
            ),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        Ok(())
    }

    fn encode_orders(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let Some(orders) = &self.orders else { return Ok(()) };
        let lease = orders.lease_end.map_or(0.0, |end| (end - self.now).as_secs_f64());
        let (epoch, seq) = orders.applied;
        let gauges: [(&str, Option<Unit>, &str, f64); 4] = [
            (
                "weir_relay_coordinator_connected",
                None,
                "Whether the stream to the coordinator is open",
                f64::from(orders.is_connected),
            ),
            ("weir_relay_order_epoch", None, "Epoch of the last order", epoch as f64),
            ("weir_relay_order_sequence", None, "Sequence number of the last order", seq as f64),
            (
                "weir_relay_lease",
                Some(Unit::Seconds),
                "Time until the rules end without another order",
                lease,
            ),
        ];
        for (name, unit, help, value) in gauges {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, unit.as_ref(), gauge.metric_type())?)?;
        }
        if let Some(at) = orders.applied_at {
            let gauge = ConstGauge::new((self.now - at).as_secs_f64());
            let (name, help) = ("weir_relay_order_age", "Time since the last order");
            gauge.encode(encoder.encode_descriptor(
                name,
                help,
                Some(&Unit::Seconds),
                gauge.metric_type(),
            )?)?;
        }
        let counter = ConstCounter::new(orders.refused);
        let (name, help) = ("weir_relay_orders_refused", "Refused orders");
        counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)
    }
}

impl Collector for MetricValues {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        self.encode_paths(&mut encoder)?;
        self.encode_flows(&mut encoder)?;
        self.encode_memory(&mut encoder)?;
        self.encode_certificate(&mut encoder)?;
        self.encode_orders(&mut encoder)
    }
}
