//! Metrics of the overlay: relays, and bytes by link.

use std::fmt::Error;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use crate::overlay::{Handle, LinkBytes, RelayState};

/// Values of the metrics.
#[derive(Debug)]
pub(super) struct OverlayMetrics {
    /// In order of their numbers.
    relays: Vec<RelayState>,
    /// Bytes by link, with the names of the regions at both ends.
    links: Vec<([String; 2], LinkBytes)>,
    rejected_entries: u64,
    /// Number of all coflows, of active coflows, and of flows.
    coflows: [usize; 3],
    /// Number of coflows that have failed since the start.
    failed_coflows: u64,
}

impl OverlayMetrics {
    pub fn new(handle: &Handle) -> OverlayMetrics {
        let area = &handle.config().area;
        let regions =
            |link| <[usize; 2]>::from(area.link_ends(link)).map(|region| area.regions()[region].clone());
        handle.call(|overlay, now| OverlayMetrics {
            relays: overlay.relay_states(now),
            links: (0..).map(regions).zip(overlay.link_bytes().iter().copied()).collect(),
            rejected_entries: overlay.rejected_entries(),
            coflows: overlay.counts(),
            failed_coflows: overlay.failed_count(),
        })
    }

    fn encode_relays(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let help = "Time since the last report of a relay";
        let mut ages = encoder.encode_descriptor(
            "weir_relay_report_age",
            help,
            Some(&Unit::Seconds),
            MetricType::Gauge,
        )?;
        for relay in &self.relays {
            let Some(age) = relay.seconds_since_report else { continue };
            ConstGauge::new(age).encode(ages.encode_family(&[("relay", relay.name.as_str())])?)?;
        }
        type Value = fn(&RelayState) -> u64;
        let gauges: [(&str, &str, Value); 3] = [
            ("weir_relay_coflows", "Active coflows that a relay forwards", |relay| relay.coflows as u64),
            ("weir_relay_rules", "Rules of a relay", |relay| relay.rules as u64),
            ("weir_relay_omitted_rules", "Rules of a relay beyond its limit", |relay| {
                relay.omitted_rules as u64
            }),
        ];
        for (name, help, value) in gauges {
            let mut all = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for relay in &self.relays {
                let gauge = ConstGauge::new(value(relay) as i64);
                gauge.encode(all.encode_family(&[("relay", relay.name.as_str())])?)?;
            }
        }
        let help = "Flows that a relay forwarded without a rule";
        let mut all =
            encoder.encode_descriptor("weir_relay_unruled_flows", help, None, MetricType::Counter)?;
        for relay in &self.relays {
            let counter = ConstCounter::new(relay.unruled_flows);
            counter.encode(all.encode_family(&[("relay", relay.name.as_str())])?)?;
        }
        Ok(())
    }

    fn encode_links(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        type Value = fn(&LinkBytes) -> u64;
        let counters: [(&str, &str, Value); 2] = [
            ("weir_wan_sent", "Bytes that relays sent from one region to another", |bytes| bytes.sent),
            ("weir_wan_detoured", "Bytes of these that belong to flows on a detour", |bytes| bytes.detoured),
        ];
        for (name, help, value) in counters {
            let mut all = encoder.encode_descriptor(name, help, Some(&Unit::Bytes), MetricType::Counter)?;
            for ([from, to], bytes) in &self.links {
                let labels = [("from", from.as_str()), ("to", to.as_str())];
                ConstCounter::new(value(bytes)).encode(all.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

impl Collector for OverlayMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let [coflows, active, flows] = self.coflows;
        let present = self.relays.iter().filter(|relay| relay.present).count();
        let gauges: [(&str, &str, usize); 5] = [
            ("weir_relays", "Relays of the configuration", self.relays.len()),
            ("weir_relays_connected", "Relays that receive orders", present),
            ("weir_wan_coflows", "Coflows between regions, active or completed", coflows),
            ("weir_wan_coflows_active", "Coflows between regions that have not completed", active),
            ("weir_wan_flows", "Flows of coflows between regions", flows),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value as i64);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        let counters: [(&str, &str, u64); 2] = [
            (
                "weir_wan_coflows_failed",
                "Coflows between regions that their owners reported as failed",
                self.failed_coflows,
            ),
            (
                "weir_relay_report_entries_rejected",
                "Entries of relays' reports rejected as implausible",
                self.rejected_entries,
            ),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        self.encode_relays(&mut encoder)?;
        self.encode_links(&mut encoder)
    }
}
