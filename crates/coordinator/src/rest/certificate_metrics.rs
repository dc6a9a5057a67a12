//! Metrics of certificates and handshakes.

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use weir_tls::{CertificateStatus, FailureCounts, seconds_until};

use super::PortStatus;

/// Values of the metrics.
#[derive(Debug)]
pub(super) struct CertificateMetrics {
    /// The coordinator's certificate; none for plain text.
    own: Option<CertificateStatus>,
    /// Seconds until the first certificate of connected peers expires, by port and role.
    peers: Vec<(&'static str, &'static str, f64)>,
    /// Failed handshakes by port and reason.
    failures: Vec<(&'static str, FailureCounts)>,
}

impl CertificateMetrics {
    pub(super) fn new(ports: &PortStatus) -> CertificateMetrics {
        let (mut peers, mut failures) = (Vec::new(), Vec::new());
        for known in &ports.peers {
            let port = known.port().name();
            let expiries = known.first_expiries().into_iter();
            peers.extend(expiries.map(|(role, expiry)| (port, role, seconds_until(expiry))));
            failures.push((port, known.failures()));
        }
        let own = ports.certificate.as_ref().map(|certificate| certificate.status());
        CertificateMetrics { own, peers, failures }
    }
}

impl Collector for CertificateMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let Some(own) = &self.own else { return Ok(()) };
        let gauge = MetricType::Gauge;
        let help = "Time until the coordinator's certificate expires; negative after that";
        let (name, unit) = ("weir_certificate_expiry", Some(&Unit::Seconds));
        ConstGauge::new(own.seconds_left()).encode(encoder.encode_descriptor(name, help, unit, gauge)?)?;
        let help = "Time until the first certificate of the connected peers of a role expires";
        let mut all = encoder.encode_descriptor("weir_peer_certificate_expiry", help, unit, gauge)?;
        for &(port, role, seconds) in &self.peers {
            let labels = [("port", port), ("role", role)];
            ConstGauge::new(seconds).encode(all.encode_family(&labels)?)?;
        }
        let help = "Failed handshakes, and peers whose role is not for the port";
        let mut all = encoder.encode_descriptor("weir_handshakes_failed", help, None, MetricType::Counter)?;
        for (port, counts) in &self.failures {
            for (reason, count) in counts.iter() {
                let labels = [("port", *port), ("reason", reason.name())];
                ConstCounter::new(count).encode(all.encode_family(&labels)?)?;
            }
        }
        let counters = [
            ("weir_certificate_reloads", "How often changed certificate files were read", own.reloads),
            (
                "weir_certificate_reloads_failed",
                "How often changed certificate files could not be used",
                own.failed_reloads,
            ),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        Ok(())
    }
}
