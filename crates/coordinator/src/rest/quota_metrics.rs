//! Metrics of the objects of services, and of their quotas.

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::registry::ObjectUsage;

/// The objects of all services.
#[derive(Debug)]
pub(super) struct QuotaMetrics(pub Vec<ObjectUsage>);

impl Collector for QuotaMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        for (name, help, value) in [
            (
                "weir_service_objects",
                "Objects of a service that count for its quota",
                (|u| u.count) as fn(&ObjectUsage) -> usize,
            ),
            ("weir_service_quota", "Maximum number of these objects, for requests of frameworks", |u| u.max),
        ] {
            let mut all = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for usage in &self.0 {
                let labels = [("service", usage.service.as_str()), ("objects", usage.objects)];
                ConstGauge::new(value(usage) as i64).encode(all.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
