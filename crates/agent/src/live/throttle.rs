//! Measures and limits UDP, in one of two ways ([`UdpControl`]):
//!
//! - *Throttling* between the agents of two hosts (NetShare, section 3.2). The receiver's agent measures the rate at which UDP arrives, and
//!   the sender's agent limits the rate by Algorithm 1 ([`RateThrottle`]). The coordinator forwards the measurements.
//! - *Allocation* (section 3.3). The sender's agent measures the rate that programs offer, before the limit. The coordinator's allocator
//!   computes the limit.
//!
//! Where the paper is silent:
//!
//! - *Definition of a flow*: all UDP from one address to another, of one class ([`UdpFlow`]).
//! - *Only whole periods are reported.* A source that starts or pauses within a period would seem slower than it is. A source
//!   that pauses for longer sends no packets to limit.
//! - *A lost measurement* changes nothing.
//! - *Tunnels* ([`crate::tunnels`]) neither count nor have a limit.
//! - *The end of a flow*: its limit ends [`LIMIT_LEASE`] after the last measurement or order with a limit, even if the agents of both
//!   hosts have exited. A later flow of the same addresses and class starts without a limit.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weir_core::netshare::{MEASUREMENT_PERIOD, RateThrottle};
use weir_core::units::Rate;
use weir_proto::{MAX_UDP_FLOWS, Order, UdpControl, UdpFlow, UdpLimit, UdpMeasurement};

use super::tunnel_ports::TunnelPorts;
use crate::htb::FRAME_BYTES;
use crate::traffic::{ThrottleMaps, Traffic, TrafficError, UdpByteCount};

/// How long a limit holds after a measurement or an order: twenty periods.
const LIMIT_LEASE: Duration = Duration::from_secs(1);

/// The time without a packet after which a flow has ended.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// The wait before programs that the kernel refused are loaded again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The minimum limit, as a fraction of the link. A source that uses its limit reaches the whole link in 38 periods, if all are measured.
const MIN_LIMIT_FRACTION: f64 = 1e-3;

/// The minimum limit in full packets per period: with less than one, some periods would have no packet, and would not be reported.
const MIN_PACKETS_PER_PERIOD: u32 = 4;

/// The UDP measurements and limits of a host.
pub struct UdpThrottling {
    meter: Meter,
    measurements: Vec<UdpMeasurement>,
    limits: Limits,
    timer: MeasurementTimer,
    tunnel_ports: TunnelPorts,
    /// How the coordinator limits UDP; none if it does not.
    control: Option<UdpControl>,
    /// When the kernel last refused the programs; none if it accepted them.
    last_refusal: Option<Instant>,
    /// The last errors of measuring, of limiting, and of reading the ports of tunnels.
    last_errors: [LastError; 3],
}

/// The last error, if any.
#[derive(Debug, Default)]
struct LastError(Option<String>);

impl LastError {
    /// Logs an error unless it equals the last one.
    fn log_new(&mut self, result: Result<(), impl std::fmt::Display>) {
        let error_text = result.err().map(|error| error.to_string());
        if let Some(error_text) = error_text.as_ref().filter(|_| self.0 != error_text) {
            tracing::warn!("{error_text}");
        }
        self.0 = error_text;
    }
}

/// Runs all steps, and returns the first error.
fn run_all(results: impl Iterator<Item = Result<(), TrafficError>>) -> Result<(), TrafficError> {
    results.fold(Ok(()), Result::and)
}

impl UdpThrottling {
    /// For a host with a link of this rate.
    pub fn new(link_rate: Rate) -> UdpThrottling {
        let min_limit = (link_rate.get() * MIN_LIMIT_FRACTION)
            .max(f64::from(MIN_PACKETS_PER_PERIOD * FRAME_BYTES) / MEASUREMENT_PERIOD.get());
        UdpThrottling::with_min_limit(Rate::new(min_limit).expect("a finite rate times a fraction is a rate"))
    }

    fn with_min_limit(min_limit: Rate) -> UdpThrottling {
        let meter = Meter::default();
        let limits = Limits { min_limit, throttles: BTreeMap::new(), lease_ends: BTreeMap::new() };
        UdpThrottling {
            meter,
            measurements: Vec::new(),
            limits,
            timer: MeasurementTimer::default(),
            tunnel_ports: TunnelPorts::default(),
            control: None,
            last_refusal: None,
            last_errors: Default::default(),
        }
    }

    /// Records how a new coordinator limits UDP, and loads or removes the programs.
    pub fn begin_stream(&mut self, traffic: &mut Traffic, control: Option<UdpControl>, now: Instant) {
        self.measurements.clear();
        (self.control, self.last_refusal) = (control, None);
        let loaded = traffic.udp_control();
        self.load_or_remove_programs(now, loaded, |control| traffic.set_udp_control(control));
    }

    /// Loads or removes the programs if the coordinator's setting has changed, or after an earlier attempt was refused.
    fn load_or_remove_programs(
        &mut self,
        now: Instant,
        loaded: Option<UdpControl>,
        set_control: impl FnOnce(Option<UdpControl>) -> Result<(), TrafficError>,
    ) {
        let is_waiting =
            self.last_refusal.is_some_and(|last| now.saturating_duration_since(last) < RETRY_INTERVAL);
        if self.control == loaded || is_waiting {
            return;
        }
        let last_errors = std::mem::take(&mut self.last_errors);
        *self = UdpThrottling {
            control: self.control,
            last_errors,
            ..UdpThrottling::with_min_limit(self.limits.min_limit)
        };
        let result = set_control(self.control);
        self.last_refusal = result.is_err().then_some(now);
        self.last_errors[0].log_new(result);
    }

    /// Updates the limits of this host's flows by an order: by measurements of other hosts, or by limits of the allocator. Ends the
    /// limits that the order ends.
    pub fn apply_order(&mut self, traffic: &mut Traffic, order: &UdpOrder, now: Instant) {
        let limits = match self.control {
            None => return,
            Some(UdpControl::Throttling) => self.limits.apply_measurements(&order.measurements, now),
            Some(UdpControl::Allocation) => self.limits.apply_limits(&order.limits, now),
        };
        let ended = self.limits.remove_ended(&order.limits);
        let is_empty = limits.is_empty() && ended.is_empty();
        let Some(throttling) = traffic.throttling().filter(|_| !is_empty) else { return };
        let removed = run_all(ended.into_iter().map(|flow| throttling.remove_limit(flow)));
        let set =
            run_all(limits.into_iter().map(|(flow, rate)| throttling.set_limit(flow, rate, LIMIT_LEASE)));
        self.last_errors[1].log_new(removed.and(set));
    }

    /// Measures rates once a period, and removes limits whose lease has ended.
    pub fn update(&mut self, traffic: &mut Traffic, now: Instant) {
        let loaded = traffic.udp_control();
        self.load_or_remove_programs(now, loaded, |control| traffic.set_udp_control(control));
        if let Some(throttling) = traffic.throttling().filter(|_| self.timer.is_due(now)) {
            let result = self.measure(throttling, now);
            self.last_errors[0].log_new(result);
        }
    }

    fn measure(&mut self, throttling: &mut ThrottleMaps, now: Instant) -> Result<(), TrafficError> {
        // Measurements that were not reported are out of date.
        self.measurements.clear();
        if let Some(result) = self.tunnel_ports.update(now) {
            self.last_errors[2].log_new(result.map_err(|error| format!("ports of tunnels: {error}")));
        }
        let result = throttling.set_tunnel_ports(self.tunnel_ports.ports());
        let result = result.and(run_all(
            self.limits.remove_expired(now).into_iter().map(|flow| throttling.remove_limit(flow)),
        ));
        let (measurements, ended) = self.meter.measure(throttling.byte_counts()?);
        self.measurements = measurements;
        result.and(run_all(ended.into_iter().map(|flow| throttling.remove_byte_count(flow))))
    }

    /// The rates measured since the last call, sorted by [`UdpFlow`].
    pub fn take_measurements(&mut self) -> Vec<UdpMeasurement> {
        std::mem::take(&mut self.measurements)
    }
}

/// What an order says about UDP that this host sends.
#[derive(Debug, Default)]
pub struct UdpOrder {
    measurements: Vec<UdpMeasurement>,
    limits: Vec<UdpLimit>,
}

impl UdpOrder {
    /// Takes it from an order.
    pub fn take(order: &mut Order) -> UdpOrder {
        UdpOrder {
            measurements: std::mem::take(&mut order.udp_measurements),
            limits: std::mem::take(&mut order.udp_limits),
        }
    }
}

/// The time of the next measurement.
#[derive(Debug, Default)]
struct MeasurementTimer(Option<Instant>);

impl MeasurementTimer {
    /// Whether a measurement is due. A late measurement, as by the agent's interval, does not delay the next one.
    fn is_due(&mut self, now: Instant) -> bool {
        let period = Duration::from_secs_f64(MEASUREMENT_PERIOD.get());
        let due = self.0.unwrap_or(now);
        if now < due {
            return false;
        }
        let began = if now.saturating_duration_since(due) < period { due } else { now };
        self.0 = Some(began + period);
        true
    }
}

/// The bytes of a flow up to a time.
#[derive(Debug)]
struct MeteredFlow {
    bytes: u64,
    counted_at: Instant,
    /// Whether a packet was counted in the last period.
    is_active: bool,
    /// When a packet was counted last.
    last_arrival: Instant,
}

/// Computes rates from byte counts, which only increase.
#[derive(Debug, Default)]
struct Meter(BTreeMap<UdpFlow, MeteredFlow>);

impl Meter {
    /// The rates since the last reading, sorted by [`UdpFlow`], and the flows that have ended.
    fn measure(&mut self, counts: Vec<UdpByteCount>) -> (Vec<UdpMeasurement>, Vec<UdpFlow>) {
        let (mut measurements, mut ended, mut previous) =
            (Vec::new(), Vec::new(), std::mem::take(&mut self.0));
        for UdpByteCount { flow, bytes, time } in counts {
            // A count that was removed starts again at zero.
            let known = previous.remove(&flow).filter(|known| known.bytes <= bytes);
            let new = MeteredFlow { bytes, counted_at: time, is_active: bytes > 0, last_arrival: time };
            let Some(known) = known else {
                self.0.insert(flow, new);
                continue;
            };
            let (arrived_bytes, elapsed_secs) =
                (bytes - known.bytes, time.saturating_duration_since(known.counted_at).as_secs_f64());
            if arrived_bytes == 0 && time.saturating_duration_since(known.last_arrival) >= IDLE_TIMEOUT {
                ended.push(flow);
                continue;
            }
            if arrived_bytes > 0 && known.is_active && elapsed_secs > 0.0 {
                measurements
                    .push(UdpMeasurement { flow, rate: (arrived_bytes as f64 / elapsed_secs) as u64 });
            }
            let last_arrival = if arrived_bytes > 0 { time } else { known.last_arrival };
            self.0.insert(flow, MeteredFlow { is_active: arrived_bytes > 0, last_arrival, ..new });
        }
        measurements.sort_unstable_by_key(|measurement| measurement.flow);
        // The kernel's map changes while it is read, so a key can occur twice.
        measurements.dedup_by_key(|measurement| measurement.flow);
        measurements.truncate(MAX_UDP_FLOWS);
        (measurements, ended)
    }
}

/// The limits of the flows that this host sends.
#[derive(Debug)]
struct Limits {
    min_limit: Rate,
    /// The flows that Algorithm 1 limits.
    throttles: BTreeMap<UdpFlow, RateThrottle>,
    /// The end of the lease of each limit.
    lease_ends: BTreeMap<UdpFlow, Instant>,
}

impl Limits {
    /// The limits after these measurements. Beyond [`MAX_UDP_FLOWS`] flows, further flows get no limit.
    fn apply_measurements(&mut self, measurements: &[UdpMeasurement], now: Instant) -> Vec<(UdpFlow, Rate)> {
        let mut limits = Vec::new();
        for &UdpMeasurement { flow, rate } in measurements {
            if !self.renew_lease(flow, now) {
                continue;
            }
            let throttle = self.throttles.entry(flow).or_insert_with(|| RateThrottle::new(self.min_limit));
            let rate = Rate::new(rate as f64).expect("a whole number is a finite rate, not negative");
            limits.extend(throttle.update_limit(rate).map(|limit| (flow, limit)));
        }
        limits
    }

    /// The limits of the allocator. Beyond [`MAX_UDP_FLOWS`] flows, further flows get no limit.
    fn apply_limits(&mut self, limits: &[UdpLimit], now: Instant) -> Vec<(UdpFlow, Rate)> {
        let accepted =
            limits.iter().filter(|limit| limit.rate != UdpLimit::ENDED && self.renew_lease(limit.flow, now));
        let to_rate = |limit: &UdpLimit| {
            let rate = Rate::new(limit.rate as f64);
            (limit.flow, rate.expect("a whole number is a finite rate, not negative"))
        };
        accepted.map(to_rate).collect()
    }

    /// Removes the limits that an order ends, and returns their flows.
    fn remove_ended(&mut self, limits: &[UdpLimit]) -> Vec<UdpFlow> {
        let ended = limits.iter().filter(|limit| limit.rate == UdpLimit::ENDED).map(|limit| limit.flow);
        let ended: Vec<UdpFlow> = ended.filter(|flow| self.lease_ends.remove(flow).is_some()).collect();
        for flow in &ended {
            self.throttles.remove(flow);
        }
        ended
    }

    /// Starts or renews the lease of a flow's limit. Returns `false` if the maximum number of limits is reached.
    fn renew_lease(&mut self, flow: UdpFlow, now: Instant) -> bool {
        let is_accepted = self.lease_ends.len() < MAX_UDP_FLOWS || self.lease_ends.contains_key(&flow);
        if is_accepted {
            self.lease_ends.insert(flow, now + LIMIT_LEASE);
        }
        is_accepted
    }

    /// Removes the limits whose lease has ended, and returns their flows.
    fn remove_expired(&mut self, now: Instant) -> Vec<UdpFlow> {
        let expired = self.lease_ends.extract_if(.., |_, lease_end| *lease_end <= now);
        let expired: Vec<UdpFlow> = expired.map(|(flow, _)| flow).collect();
        for flow in &expired {
            self.throttles.remove(flow);
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use weir_proto::Mark;

    use super::*;

    fn udp_flow(number: u32) -> UdpFlow {
        let mark = Mark::new(1).unwrap();
        UdpFlow { src: Ipv4Addr::from(0x0a00_0000 + number).into(), dst: [10, 1, 0, 0].into(), mark }
    }

    fn millis(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn rates_are_of_whole_periods() {
        let (began, mut meter) = (Instant::now(), Meter::default());
        let mut measure = |bytes: u64, ms: u64| {
            let (measurements, ended) =
                meter.measure(vec![UdpByteCount { flow: udp_flow(1), bytes, time: began + millis(ms) }]);
            (measurements.first().map(|measurement| measurement.rate), ended.len())
        };
        // The flow started within the first period.
        assert_eq!(measure(1000, 50), (None, 0));
        assert_eq!(measure(6000, 100), (Some(100_000), 0));
        // A late reading: the rate counts the time that has passed.
        assert_eq!(measure(16_000, 200), (Some(100_000), 0));
        // The flow pauses, and continues within a period.
        assert_eq!(measure(16_000, 250), (None, 0));
        assert_eq!(measure(17_000, 300), (None, 0));
        assert_eq!(measure(22_000, 350), (Some(100_000), 0));
        // Two readings at the same time give no rate.
        assert_eq!(measure(22_001, 350), (None, 0));
        // The flow has ended.
        assert_eq!(measure(22_001, 1300), (None, 0));
        assert_eq!(measure(22_001, 1350), (None, 1));
        // A flow that has ended starts a new count; so does one whose count was removed meanwhile.
        assert_eq!(measure(5000, 1400), (None, 0));
        assert_eq!(measure(10_000, 1450), (Some(100_000), 0));
        assert_eq!(measure(7000, 1500), (None, 0));
        assert_eq!(measure(12_000, 1550), (Some(100_000), 0));
    }

    #[test]
    fn measured_rates_are_sorted_and_unique() {
        let (began, mut meter) = (Instant::now(), Meter::default());
        let byte_count =
            |number, bytes, ms| UdpByteCount { flow: udp_flow(number), bytes, time: began + millis(ms) };
        meter.measure(vec![byte_count(2, 1, 0), byte_count(1, 1, 0), byte_count(3, 1, 0)]);
        let (measurements, ended) =
            meter.measure(vec![byte_count(2, 2, 50), byte_count(1, 2, 50), byte_count(1, 3, 60)]);
        let flows: Vec<UdpFlow> = measurements.iter().map(|measurement| measurement.flow).collect();
        assert_eq!((flows, ended), (vec![udp_flow(1), udp_flow(2)], vec![]));
        // A flow without a count is forgotten.
        assert_eq!(meter.0.len(), 2);
    }

    #[test]
    fn limit_follows_measurements_and_expires() {
        let (now, link) = (Instant::now(), Rate::new(12.5e6).unwrap());
        let mut limits = UdpThrottling::new(link).limits;
        let mut apply_measurement = |rate: u64, ms: u64| {
            let now = now + millis(ms);
            limits
                .apply_measurements(&[UdpMeasurement { flow: udp_flow(1), rate }], now)
                .into_iter()
                .map(|(_, rate)| rate.get().round())
        };
        let mut limit = |rate, ms| apply_measurement(rate, ms).next();
        // Section 3.2: 20 % above a rate that rises, 10 % above one that does not, and never below the minimum.
        assert_eq!(limit(1_000_000, 0), Some(1_200_000.0));
        assert_eq!(limit(1_000_000, 50), Some(1_100_000.0));
        assert_eq!(limit(500_000, 100), Some(550_000.0));
        assert_eq!(limit(0, 150), Some(121_120.0));
        assert_eq!(limit(1_000_000, 200), Some(1_200_000.0));
        assert!(limit(u64::MAX, 250).is_some());
        assert_eq!(limits.remove_expired(now + millis(1249)), []);
        assert_eq!(limits.remove_expired(now + millis(1250)), [udp_flow(1)]);
        // The next flow starts from scratch.
        let again = limits
            .apply_measurements(&[UdpMeasurement { flow: udp_flow(1), rate: 500_000 }], now + millis(1300));
        assert_eq!(again[0].1.get(), 600_000.0);
    }

    #[test]
    fn min_limit_scales_with_the_link_rate() {
        assert_eq!(UdpThrottling::new(Rate::new(1.25e9).unwrap()).limits.min_limit.get(), 1.25e6);
    }

    #[test]
    fn measurements_are_one_period_apart() {
        let began = Instant::now();
        let count_measurements = |every: usize| {
            let mut timer = MeasurementTimer::default();
            (0..8000).step_by(every).filter(|&ms| timer.is_due(began + millis(ms))).count()
        };
        // However often the agent checks, up to once a period.
        assert_eq!([1, 8, 30, 49, 50].map(count_measurements), [160; 5]);
        // The agent does not make up for missed periods.
        let mut timer = MeasurementTimer::default();
        let is_due = [0, 500, 508, 549, 550].map(|ms| timer.is_due(began + millis(ms)));
        assert_eq!(is_due, [true, true, false, false, true]);
    }

    #[test]
    fn refused_programs_are_loaded_again_after_1_s() {
        let (now, mut throttles) = (Instant::now(), UdpThrottling::new(Rate::new(1e9).unwrap()));
        throttles.control = Some(UdpControl::Throttling);
        let mut attempts = Vec::new();
        for ms in (0..2500).step_by(100) {
            throttles.load_or_remove_programs(now + millis(ms), None, |control| {
                attempts.push((ms, control));
                Err(TrafficError::NotBuilt("for a test"))
            });
        }
        assert_eq!(attempts, [0, 1000, 2000].map(|ms| (ms, Some(UdpControl::Throttling))));
        throttles.load_or_remove_programs(now + millis(3000), None, |_| Ok(()));
        assert_eq!(throttles.last_refusal, None);
        throttles.load_or_remove_programs(now + millis(3100), Some(UdpControl::Throttling), |_| {
            panic!("loaded programs are not loaded again")
        });
        // Programs that count other bytes are replaced.
        let mut attempts = Vec::new();
        throttles.load_or_remove_programs(now + millis(3200), Some(UdpControl::Allocation), |control| {
            attempts.push(control);
            Ok(())
        });
        assert_eq!(attempts, [Some(UdpControl::Throttling)]);
    }

    #[test]
    fn all_steps_run_after_an_error() {
        let mut completed = 0;
        let results = [Ok(()), Err("the first"), Ok(()), Err("the second")];
        let result = run_all(results.into_iter().map(|result| {
            completed += 1;
            result.map_err(TrafficError::NotBuilt)
        }));
        assert_eq!(completed, 4);
        assert!(matches!(result, Err(TrafficError::NotBuilt("the first"))));
    }

    #[test]
    fn limit_of_the_allocator_is_unmodified_and_expires() {
        let (now, mut limits) = (Instant::now(), UdpThrottling::new(Rate::new(12.5e6).unwrap()).limits);
        let limit = |number, rate| UdpLimit { flow: udp_flow(number), rate };
        let rates = |limits: Vec<(UdpFlow, Rate)>| limits.into_iter().map(|(_, rate)| rate.get()).collect();
        let applied: Vec<f64> = rates(limits.apply_limits(&[limit(1, 1), limit(2, 1_000_000)], now));
        assert_eq!(applied, [1.0, 1e6]);
        let applied: Vec<f64> = rates(limits.apply_limits(&[limit(2, 900_000)], now + millis(500)));
        assert_eq!(applied, [9e5]);
        assert_eq!(limits.remove_expired(now + LIMIT_LEASE), [udp_flow(1)]);
        assert_eq!(limits.remove_expired(now + millis(500) + LIMIT_LEASE), [udp_flow(2)]);
    }

    #[test]
    fn orders_end_limits_of_measurements_and_of_the_allocator() {
        let (now, mut limits) = (Instant::now(), UdpThrottling::new(Rate::new(12.5e6).unwrap()).limits);
        let ended = |number| UdpLimit { flow: udp_flow(number), rate: UdpLimit::ENDED };
        limits.apply_measurements(&[UdpMeasurement { flow: udp_flow(1), rate: 1_000_000 }], now);
        limits.apply_limits(&[UdpLimit { flow: udp_flow(2), rate: 1 }], now);
        assert_eq!(limits.apply_limits(&[ended(1), ended(2), ended(3)], now), []);
        assert_eq!(limits.remove_ended(&[ended(1), ended(2), ended(3)]), [udp_flow(1), udp_flow(2)]);
        assert!(limits.throttles.is_empty() && limits.lease_ends.is_empty());
        assert_eq!(limits.remove_ended(&[ended(1)]), []);
    }

    #[test]
    fn number_of_limits_is_bounded() {
        let (now, mut limits) = (Instant::now(), UdpThrottling::new(Rate::new(1e9).unwrap()).limits);
        let measurements: Vec<UdpMeasurement> = (0..MAX_UDP_FLOWS as u32 + 10)
            .map(|number| UdpMeasurement { flow: udp_flow(number), rate: 1 })
            .collect();
        assert_eq!(limits.apply_measurements(&measurements, now).len(), MAX_UDP_FLOWS);
        // Existing flows keep their limits.
        assert_eq!(limits.apply_measurements(&measurements, now).len(), MAX_UDP_FLOWS);
        assert_eq!(limits.throttles.len(), MAX_UDP_FLOWS);
        assert_eq!(limits.remove_expired(now + LIMIT_LEASE).len(), MAX_UDP_FLOWS);
        assert!(limits.throttles.is_empty());
    }
}
