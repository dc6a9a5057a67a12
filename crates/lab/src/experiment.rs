//! One measurement: relays in a chain under a load.

use std::time::{Duration, Instant};

use weir_console::interrupt;

use crate::LabError;
use crate::chain::{Chain, SINK, SOURCE};
use crate::relays::{BULK_PORT, PROBE_FLOW, PROBE_PORT, Programs, Relay, RunningRelays, SLOW_PORT};
use crate::traffic::{ConnectedFlows, Receiver, ReceiverSettings, SenderSettings, probe};

/// The bytes of a request of the probe.
const PROBE_BYTES: usize = 64;

/// The pause between two requests of the probe.
const PROBE_PAUSE: Duration = Duration::from_millis(2);

/// The maximum time until all flows have reached their receivers.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(20);

/// The traffic of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Flows that send as fast as possible.
    pub bulk_flows: u32,
    /// The bytes of a write of these flows.
    pub message_bytes: usize,
    /// Further such flows, whose receivers read slowly.
    pub slow_flows: u32,
    /// Whether a flow of small requests measures latency.
    pub probe: bool,
}

impl Load {
    /// Flows that write 256 KiB at once.
    pub fn bulk(flows: u32) -> Load {
        Load { bulk_flows: flows, message_bytes: 256 << 10, slow_flows: 0, probe: false }
    }
}

/// The times of a measurement.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// From the establishment of all flows to the start of the measurement.
    pub warm_up: Duration,
    /// The measurement.
    pub duration: Duration,
}

/// A relay with a congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    /// The relay.
    pub relay: Relay,
    /// The congestion control of connections across the link; none is the relay's choice.
    pub congestion: Option<&'static str>,
}

/// The result of a measurement.
#[derive(Debug, Clone)]
pub struct Measurement {
    /// Bytes of bulk flows that arrived.
    pub bytes: u64,
    /// The duration.
    pub duration: Duration,
    /// The processor time of all relays.
    pub cpu: Duration,
    /// The latencies of the probe.
    pub latencies: Vec<Duration>,
}

impl Measurement {
    /// Bytes per second of processor time; none without relays.
    pub fn bytes_per_cpu_second(&self) -> Option<f64> {
        (!self.cpu.is_zero()).then(|| self.bytes as f64 / self.cpu.as_secs_f64())
    }

    /// The rate of bulk flows in bytes per second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.duration.as_secs_f64()
    }
}

/// Measures a variant, with new relays and connections.
///
/// # Errors
/// If a relay does not start, a flow fails, or a signal asks to stop.
pub fn measure(
    chain: &Chain,
    variant: Variant,
    load: Load,
    times: Times,
    programs: &Programs,
) -> Result<Measurement, LabError> {
    chain.set_congestion_control(variant.congestion)?;
    let network = chain.network();
    let any = |port| std::net::SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, port);
    let start_receiver = |settings| Receiver::start(network, SINK, settings);
    let bulk = start_receiver(ReceiverSettings::fast(any(BULK_PORT)))?;
    let _probe = start_receiver(ReceiverSettings::echo(any(PROBE_PORT), PROBE_BYTES as u64))?;
    let slow = start_receiver(ReceiverSettings::slow(any(SLOW_PORT)))?;
    let relays = variant.relay.start(chain, programs)?;
    let with_message = |error: LabError| match relays.last_message() {
        Some(message) => LabError::Other(format!("{error}; the relay's last message: {message}")),
        None => error,
    };
    run_load(chain, variant.relay, load, times, [&bulk, &slow], &relays).map_err(with_message)
}

fn run_load(
    chain: &Chain,
    relay: Relay,
    load: Load,
    times: Times,
    [bulk, slow]: [&Receiver; 2],
    relays: &RunningRelays,
) -> Result<Measurement, LabError> {
    let network = chain.network();
    let connect = |first: u32, flows: u32, port| {
        let routes = relay.routes(chain, port);
        let settings =
            SenderSettings { flows: first..first + flows, routes, message_bytes: load.message_bytes };
        ConnectedFlows::connect(network, SOURCE, &settings)
    };
    let first = PROBE_FLOW + 1;
    let bulk_flows = connect(first, load.bulk_flows, BULK_PORT)?;
    let slow_flows = connect(first + load.bulk_flows, load.slow_flows, SLOW_PORT)?;
    wait_for_flows(bulk, load.bulk_flows)?;
    wait_for_flows(slow, load.slow_flows)?;
    let (bulk_sender, slow_sender) = (bulk_flows.send()?, slow_flows.send()?);
    sleep(times.warm_up)?;
    let (started, bytes, cpu) = (Instant::now(), bulk.bytes(), relays.cpu_time());
    let latencies = if load.probe {
        let route = relay.routes(chain, PROBE_PORT)[0];
        probe(network, SOURCE, (PROBE_FLOW, route), PROBE_BYTES, (times.duration, PROBE_PAUSE))?
    } else {
        sleep(times.duration)?;
        Vec::new()
    };
    let measurement = Measurement {
        bytes: bulk.bytes() - bytes,
        duration: started.elapsed(),
        cpu: relays.cpu_time().saturating_sub(cpu),
        latencies,
    };
    bulk_sender.stop()?;
    slow_sender.stop()?;
    Ok(measurement)
}

fn wait_for_flows(receiver: &Receiver, count: u32) -> Result<(), LabError> {
    let started = Instant::now();
    while receiver.flows() < count as usize {
        if started.elapsed() > ESTABLISH_TIMEOUT {
            let arrived = receiver.flows();
            return Err(LabError::Other(format!("{arrived} of {count} flows reached the receiver")));
        }
        sleep(Duration::from_millis(10))?;
    }
    Ok(())
}

/// Sleeps, unless a signal asks to stop.
fn sleep(duration: Duration) -> Result<(), LabError> {
    let started = Instant::now();
    loop {
        if interrupt::is_requested() {
            return Err(LabError::Interrupted);
        }
        let left = duration.saturating_sub(started.elapsed());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
}
