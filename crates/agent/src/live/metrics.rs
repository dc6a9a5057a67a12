//! The metrics of an agent: the queues of its interfaces, its orders, and its stream to the coordinator.

use std::collections::BTreeMap;
use std::fmt::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use tokio::task::spawn_blocking;
use weir_proto::{CounterTotals, Queues, RefusedOrders, RestoredObjects};

use super::SharedState;
use super::endpoint::CoordinatorEndpoint;
use crate::queues::{ClassCounters, Interface, QueueError, ids};

/// The minimum time between two readings that give a rate.
const MIN_RATE_INTERVAL: Duration = Duration::from_millis(500);

/// The counters of the classes of interfaces.
type InterfaceCounters = BTreeMap<Interface, BTreeMap<u16, ClassCounters>>;

/// The name, unit, explanation and value of a metric of a queue.
type QueueMetric<Queue, Value> = (&'static str, Option<Unit>, &'static str, fn(&Queue) -> Value);

/// What the metrics of an agent show.
#[derive(Clone)]
pub struct AgentMetrics {
    pub shared: SharedState,
    pub coordinator: CoordinatorEndpoint,
    /// The last reading that gave rates, and these rates.
    pub last: Arc<Mutex<Option<Reading>>>,
}

/// A reading of counters.
pub struct Reading {
    time: Instant,
    counters: InterfaceCounters,
    /// The bytes per second of each class since the reading before.
    rates: BTreeMap<(Interface, u16), f64>,
}

/// A queue of an interface.
#[derive(Debug)]
struct QueueMetrics {
    interface: String,
    /// The numbers of its classes, `control` or `unclassified`.
    class: String,
    counters: ClassCounters,
    /// Backlog divided by the rate at which it leaves.
    estimated_delay: f64,
}

#[derive(Debug)]
struct MetricValues {
    is_connected: bool,
    /// Until the end of the lease of the last order; none before the first.
    lease_seconds: Option<f64>,
    open_sockets: usize,
    conflicts: usize,
    applied: (u64, u64),
    refused: RefusedOrders,
    restored: RestoredObjects,
    certificate_seconds: Option<f64>,
    queues: Vec<QueueMetrics>,
    /// The class of each application at each interface's link, with the interface.
    application_classes: Vec<(String, String, u32)>,
}

impl weir_metrics::MetricsSource for AgentMetrics {
    /// None if `tc` fails.
    async fn text(&self) -> Option<String> {
        let (mut values, ordered) = self.read_state();
        let interfaces = ordered.keys().cloned().collect();
        let counters = spawn_blocking(move || read_counters(interfaces)).await.ok()?;
        let counters = counters.inspect_err(|error| tracing::warn!("metrics: {error}")).ok()?;
        let rates = self.update_rates(&counters);
        values.add_queues(&counters, &rates, &ordered);
        let mut registry = Registry::default();
        registry.register_collector(Box::new(values));
        let mut text = String::new();
        encode(&mut text, &registry).ok()?;
        Some(text)
    }
}

fn read_counters(interfaces: Vec<Interface>) -> Result<InterfaceCounters, QueueError> {
    let read = |interface: Interface| interface.read_counters().map(|counters| (interface, counters));
    interfaces.into_iter().map(read).collect()
}

impl AgentMetrics {
    /// The values that the agent knows, and its interfaces with their ordered queues.
    fn read_state(&self) -> (MetricValues, BTreeMap<Interface, Option<Queues>>) {
        let agent = self.shared.lock();
        let now = agent.now();
        let mut restored = agent.applications.as_ref().map(|known| known.restored()).unwrap_or_default();
        restored.queues += agent.interfaces.restored;
        let lease_end = agent.lease.lease_end();
        let values = MetricValues {
            is_connected: agent.is_connected,
            lease_seconds: lease_end.map(|end| end.as_secs_f64() - now.as_secs_f64()),
            open_sockets: agent.flows.open_sockets(),
            conflicts: agent.interfaces.conflicts.len()
                + agent.ordered_traffic.conflict_count()
                + agent.applications.as_ref().map_or(0, |known| known.conflicts().len()),
            applied: agent.lease.applied(),
            refused: agent.lease.refusals(),
            restored,
            certificate_seconds: self.coordinator.certificate_status().map(|status| status.seconds_left()),
            queues: Vec::new(),
            application_classes: Vec::new(),
        };
        let queues = agent.lease.queues(now);
        let names = agent.interfaces.names.iter();
        (values, names.map(|(link, name)| (name.clone(), queues.get(link).cloned())).collect())
    }

    /// The rates of classes since an earlier reading. Readings that follow soon after it keep its rates.
    fn update_rates(&self, counters: &InterfaceCounters) -> BTreeMap<(Interface, u16), f64> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let rates = match &*last {
            Some(last) if now - last.time < MIN_RATE_INTERVAL => return last.rates.clone(),
            Some(last) => rates_between(&last.counters, counters, (now - last.time).as_secs_f64()),
            None => BTreeMap::new(),
        };
        *last = Some(Reading { time: now, counters: counters.clone(), rates: rates.clone() });
        rates
    }
}

fn rates_between(
    before: &InterfaceCounters,
    after: &InterfaceCounters,
    seconds: f64,
) -> BTreeMap<(Interface, u16), f64> {
    let rates = after.iter().flat_map(|(interface, classes)| {
        classes.iter().filter_map(move |(&class, counters)| {
            // Queues that were set up again start at 0.
            let sent = counters.sent_bytes.checked_sub(before.get(interface)?.get(&class)?.sent_bytes)?;
            Some(((interface.clone(), class), sent as f64 / seconds))
        })
    });
    rates.collect()
}

impl MetricValues {
    fn add_queues(
        &mut self,
        counters: &InterfaceCounters,
        rates: &BTreeMap<(Interface, u16), f64>,
        ordered: &BTreeMap<Interface, Option<Queues>>,
    ) {
        for (interface, classes) in counters {
            let name = interface.to_string();
            let ordered = ordered.get(interface).and_then(Option::as_ref);
            for (&class, &counters) in classes {
                let Some(label) = class_label(class, ordered) else { continue };
                // A queue with backlog sends at its guaranteed rate or more.
                let guaranteed = counters.rate as f64 / 8.0;
                let rate = rates.get(&(interface.clone(), class)).copied().unwrap_or(0.0).max(guaranteed);
                let estimated_delay = if rate > 0.0 { counters.backlog_bytes as f64 / rate } else { 0.0 };
                let queue = QueueMetrics { interface: name.clone(), class: label, counters, estimated_delay };
                self.queues.push(queue);
            }
            let applications = ordered.into_iter().flat_map(|queues| &queues.class_of_application);
            let applications = applications.filter(|(_, class)| *class != Queues::UNMARKED);
            let entry =
                |(application, class): &(Arc<str>, u32)| (name.clone(), application.to_string(), *class);
            self.application_classes.extend(applications.map(entry));
        }
    }
}

/// The label of a class of the kernel; none for the class of the link and for limited flows.
fn class_label(class: u16, queues: Option<&Queues>) -> Option<String> {
    match class {
        ids::CONTROL_CLASS => Some("control".to_owned()),
        ids::DEFAULT_CLASS => Some("unclassified".to_owned()),
        ids::FIRST_QUEUE_CLASS..ids::CONTROL_CLASS => {
            let queue = u32::from(class - ids::FIRST_QUEUE_CLASS);
            // Queues of an earlier agent, before the first order.
            let Some(queues) = queues else { return Some(format!("queue-{queue}")) };
            let classes = (1..).zip(&queues.queue_of_class).filter(|&(_, &of_class)| of_class == queue);
            let numbers: Vec<String> = classes.map(|(class, _): (u32, _)| class.to_string()).collect();
            Some(numbers.join(","))
        }
        _ => None,
    }
}

impl Collector for MetricValues {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        self.encode_state(&mut encoder)?;
        self.encode_queues(&mut encoder)?;
        let help = "The class of the packets of an application: always 1";
        let mut all =
            encoder.encode_descriptor("weir_agent_application_class", help, None, MetricType::Gauge)?;
        for (interface, application, class) in &self.application_classes {
            let labels = [
                ("interface", interface.clone()),
                ("application", application.clone()),
                ("class", class.to_string()),
            ];
            ConstGauge::new(1i64).encode(all.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

impl MetricValues {
    fn encode_state(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let gauges = [
            (
                "weir_agent_coordinator_connected",
                None,
                "Whether a stream to a coordinator is open",
                Some(f64::from(u8::from(self.is_connected))),
            ),
            ("weir_agent_order_epoch", None, "Epoch of the last order", Some(self.applied.0 as f64)),
            ("weir_agent_order_sequence", None, "Number of the last order", Some(self.applied.1 as f64)),
            (
                "weir_agent_lease",
                Some(Unit::Seconds),
                "Time until the end of the lease of the last order; negative after it",
                self.lease_seconds,
            ),
            (
                "weir_agent_sockets",
                None,
                "Sockets of flows that programs handed over",
                Some(self.open_sockets as f64),
            ),
            (
                "weir_agent_conflicts",
                None,
                "Interfaces that differ from their orders",
                Some(self.conflicts as f64),
            ),
            (
                "weir_agent_certificate_expiry",
                Some(Unit::Seconds),
                "Time until the agent's certificate expires; negative after that",
                self.certificate_seconds,
            ),
        ];
        for (name, unit, help, value) in gauges {
            let Some(value) = value else { continue };
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, unit.as_ref(), gauge.metric_type())?)?;
        }
        let families = [
            ("weir_agent_orders_refused", "Orders that the agent refused", "reason", self.refused.by_name()),
            (
                "weir_agent_restored_objects",
                "Kernel objects that the agent restored after another process removed or changed them",
                "kind",
                self.restored.by_name(),
            ),
        ];
        for (name, help, label, counts) in families {
            let mut all = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (kind, count) in counts {
                ConstCounter::new(count).encode(all.encode_family(&[(label, kind)])?)?;
            }
        }
        Ok(())
    }

    fn encode_queues(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let bytes = || Some(Unit::Bytes);
        let counters: [QueueMetric<ClassCounters, u64>; 3] = [
            ("weir_agent_queue_sent", bytes(), "Bytes that a queue has sent, with headers", |class| {
                class.sent_bytes
            }),
            ("weir_agent_queue_sent_packets", None, "Packets that a queue has sent", |class| {
                class.sent_packets
            }),
            ("weir_agent_queue_dropped_packets", None, "Packets that found a queue full", |class| {
                class.dropped_packets
            }),
        ];
        for (name, unit, help, value) in counters {
            let mut all = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
            for queue in &self.queues {
                ConstCounter::new(value(&queue.counters)).encode(all.encode_family(&queue.labels())?)?;
            }
        }
        let gauges: [QueueMetric<QueueMetrics, f64>; 3] = [
            ("weir_agent_queue_backlog", bytes(), "Bytes that wait in a queue", |queue| {
                queue.counters.backlog_bytes as f64
            }),
            (
                "weir_agent_queue_guaranteed_bytes_per_second",
                None,
                "The rate that a queue has while all are busy",
                |queue| queue.counters.rate as f64 / 8.0,
            ),
            (
                "weir_agent_queue_estimated_delay",
                Some(Unit::Seconds),
                "Estimated: the backlog of a queue, divided by its rate since an earlier request or by the guaranteed one",
                |queue| queue.estimated_delay,
            ),
        ];
        for (name, unit, help, value) in gauges {
            let mut all = encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
            for queue in &self.queues {
                ConstGauge::new(value(queue)).encode(all.encode_family(&queue.labels())?)?;
            }
        }
        Ok(())
    }
}

impl QueueMetrics {
    fn labels(&self) -> [(&'static str, &str); 2] {
        [("interface", &self.interface), ("class", &self.class)]
    }
}
