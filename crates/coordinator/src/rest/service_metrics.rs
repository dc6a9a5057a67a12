//! Metrics of services that have queues.

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

/// The names of services with the classes of their packets.
#[derive(Debug)]
pub(super) struct ServiceMetrics(pub Vec<(String, u32)>);

impl Collector for ServiceMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let help = "The class of the packets of a service: always 1";
        let mut all = encoder.encode_descriptor("weir_service_class", help, None, MetricType::Gauge)?;
        for (service, class) in &self.0 {
            let labels = [("service", service.clone()), ("class", class.to_string())];
            ConstGauge::new(1i64).encode(all.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
