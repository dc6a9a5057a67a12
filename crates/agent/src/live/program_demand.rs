//! Finds flows whose programs write less than the rates of the flows.
//!
//! The written bytes of a flow are those that the kernel has sent, and those that wait in the kernel. A flow has a *demand* if no data
//! waited for its turn in two windows, and if it then wrote clearly less than its rate: the highest rate of the last windows. The demand
//! ends as soon as data waits. Data waits at any flow that the network or the receiver slows down, so such a flow has no demand.
//!
//! [`weir_core::netshare::DemandEstimator`] estimates demands of connections over longer times, and also limits connections with a backlog
//! that is limited elsewhere. A flow of a coflow with a backlog needs its full rate within two intervals.

use std::time::Duration;

/// The time over which written bytes are counted: several writes of most programs, and several measurements.
const WINDOW: Duration = Duration::from_millis(40);

/// The number of last windows that decide, and the number after which a flow has a demand.
const MAX_WINDOWS: usize = 4;
const MIN_WINDOWS: usize = 2;

/// Unsent bytes that are no backlog: two full packets, which TCP sends together. The rest of a packet may wait for acknowledgements
/// (Nagle's algorithm).
const MIN_BACKLOG_BYTES: f64 = 3_000.0;

/// A limited flow is backlogged if its program writes more than it wrote so far in this time. Its packets are paced, so some of its data
/// always waits.
const BACKLOG_SECONDS: f64 = 0.016;

/// A flow that writes this fraction of its rate uses it. A flow with a demand has a tenth more than that, and uses its rate from the
/// second fraction on.
const USE_FRACTION: f64 = 0.8;
const LIMITED_USE_FRACTION: f64 = 0.95;

/// A lower demand is reported if it is below this fraction of the last one: bursts make measurements differ.
const HYSTERESIS_FRACTION: f64 = 0.8;

/// The state of a flow at a measurement.
#[derive(Debug, Clone, Copy)]
pub struct Measurement {
    /// Bytes that the program has written to this connection.
    pub written_bytes: u64,
    /// Written bytes that the kernel has not sent.
    pub unsent_bytes: u32,
    /// Whether the program has data that the kernel does not have.
    pub has_more: bool,
    /// The rate of the flow, in bytes per second; `None` without a limit.
    pub rate: Option<u64>,
    /// The time, which counts from any point.
    pub time: Duration,
}

/// What the program of a flow writes.
#[derive(Debug, Clone, Default)]
pub struct ProgramDemand {
    /// The written bytes at the start of the window, and the time of the start.
    window_start: Option<(u64, Duration)>,
    /// The rates of the last windows, the latest first.
    rates: [f64; MAX_WINDOWS],
    window_count: usize,
    was_backlogged: bool,
    demand: Option<u64>,
}

impl ProgramDemand {
    /// The demand in bytes per second, if the program writes less than the rate of the flow.
    pub fn get(&self) -> Option<u64> {
        self.demand
    }

    /// Adds a measurement.
    pub fn add(&mut self, measurement: &Measurement) {
        let &Measurement { written_bytes, unsent_bytes, has_more, rate, time } = measurement;
        let max_unsent = self.demand.map_or(0.0, |demand| BACKLOG_SECONDS * demand as f64);
        let is_backlogged = has_more || f64::from(unsent_bytes) > MIN_BACKLOG_BYTES.max(max_unsent);
        let was_backlogged = std::mem::replace(&mut self.was_backlogged, is_backlogged);
        // A measurement can find data that was written at that moment. A flow with a demand must not wait for the next measurement.
        if is_backlogged && (was_backlogged || self.demand.is_some()) {
            *self = ProgramDemand { was_backlogged: true, ..ProgramDemand::default() };
            return;
        }
        let &mut (start_bytes, start) = self.window_start.get_or_insert((written_bytes, time));
        let elapsed = time.saturating_sub(start);
        if elapsed < WINDOW {
            return;
        }
        self.window_start = Some((written_bytes, time));
        self.rates.rotate_right(1);
        self.rates[0] = written_bytes.saturating_sub(start_bytes) as f64 / elapsed.as_secs_f64();
        self.window_count = MAX_WINDOWS.min(self.window_count + 1);
        self.update_demand(rate);
    }

    /// Updates the demand after a window.
    fn update_demand(&mut self, rate: Option<u64>) {
        let highest = self.rates[..self.window_count].iter().copied().fold(0.0, f64::max);
        let use_fraction = if self.demand.is_some() { LIMITED_USE_FRACTION } else { USE_FRACTION };
        let uses_rate = rate.is_some_and(|rate| highest > use_fraction * rate as f64);
        if self.window_count < MIN_WINDOWS || uses_rate || highest == 0.0 {
            self.demand = None;
            return;
        }
        let is_near = |demand: u64| (HYSTERESIS_FRACTION..=1.0).contains(&(highest / demand as f64));
        if !self.demand.is_some_and(is_near) {
            self.demand = Some(highest.ceil() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(8);

    /// A program with a socket that sends at a rate. The link takes what the rate allows.
    #[derive(Default)]
    struct Program {
        demand: ProgramDemand,
        written: f64,
        sent: f64,
        time: Duration,
    }

    impl Program {
        /// Writes `bytes` every `period`, and measures every interval. Returns when the demand changed, and the demands.
        fn run(&mut self, (bytes, period): (f64, u64), rate: f64, millis: u64) -> Vec<(u64, Option<u64>)> {
            let mut changes = Vec::new();
            for millisecond in 0..millis {
                self.time += Duration::from_millis(1);
                if millisecond % period == 0 {
                    self.written += bytes;
                }
                self.sent = self.written.min(self.sent + rate / 1e3);
                if (self.time.as_millis()).is_multiple_of(INTERVAL.as_millis()) {
                    let former = self.demand.get();
                    self.demand.add(&Measurement {
                        written_bytes: self.written as u64,
                        unsent_bytes: (self.written - self.sent) as u32,
                        has_more: false,
                        rate: Some(rate as u64),
                        time: self.time,
                    });
                    if self.demand.get() != former {
                        changes.push((millisecond, self.demand.get()));
                    }
                }
            }
            changes
        }
    }

    #[test]
    fn program_that_writes_less_than_its_rate_has_a_demand_within_100_ms() {
        // 1 MB/s in writes of 1, 4 and 10 kB at a link of 100 Mbit/s.
        for period in [1, 4, 10] {
            let mut program = Program::default();
            let changes = program.run((1e3 * period as f64, period), 12.5e6, 100);
            let (_, demand) = *changes.last().expect("the demand is found within 100 ms");
            assert!((1_000_000..=1_250_000).contains(&demand.unwrap()), "{period} ms: {changes:?}");
            // At a rate of a tenth more than the demand, packets wait, and the demand stays.
            let changes = program.run((1e3 * period as f64, period), 1.1 * demand.unwrap() as f64, 2_000);
            assert!(changes.iter().all(|(_, demand)| demand.is_some()), "{period} ms: {changes:?}");
        }
    }

    #[test]
    fn demand_ends_at_the_next_measurement_with_a_backlog() {
        let mut program = Program::default();
        let slow = (4e3, 4);
        let demand = program.run(slow, 12.5e6, 200).last().unwrap().1.unwrap();
        let limit = 1.1 * demand as f64;
        assert!(program.run(slow, limit, 1_000).iter().all(|(_, demand)| demand.is_some()));
        // The program now writes 100 kB at once.
        let changes = program.run((1e5, 1_000), limit, 16);
        assert_eq!(changes, [(changes[0].0, None)]);
        assert!(changes[0].0 <= INTERVAL.as_millis() as u64, "{changes:?}");
        // A slow increase ends it, too: data waits for ever longer.
        let mut program = Program::default();
        program.run(slow, 12.5e6, 200);
        let changes = program.run((8e3, 4), limit, 200);
        assert_eq!(changes.last().unwrap().1, None, "{changes:?}");
    }

    #[test]
    fn program_that_uses_its_rate_or_writes_nothing_has_no_demand() {
        for (write, rate) in [((1e5, 1), 12.5e6), ((1.2e4, 1), 12.5e6), ((0.0, 1), 12.5e6)] {
            let mut program = Program::default();
            assert!(program.run(write, rate, 2_000).is_empty(), "{write:?}");
        }
    }

    #[test]
    fn sender_with_more_data_has_no_demand() {
        let mut demand = ProgramDemand::default();
        let mut add = |milliseconds: u64, has_more| {
            demand.add(&Measurement {
                written_bytes: 100 * milliseconds,
                unsent_bytes: 0,
                has_more,
                rate: Some(12_500_000),
                time: Duration::from_millis(milliseconds),
            });
            demand.get()
        };
        assert!((0..50).all(|at| add(8 * at, true).is_none()));
        assert!((50..60).all(|at| add(8 * at, false).is_none()));
        assert_eq!(add(8 * 60, false), Some(100_000));
        assert_eq!(add(8 * 61, true), None);
    }
}
