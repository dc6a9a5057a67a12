//! Chooses the number of connections that carry data to another relay, where BBR is not permitted.
//!
//! Loss limits the rate of a connection with CUBIC, however much bandwidth the path has. Several connections have the sum of their rates
//! (Siphon, ATC '18, section 5.2). The number doubles, and stays if the rate with waiting data rises by [`MIN_GAIN`]; otherwise it
//! returns to the former one. If half of the connections seem to suffice, the same measurement decides whether they do.
//!
//! Congestion loses segments, too, and more connections would only take bandwidth from other senders. So the number grows only on paths
//! with loss and without a queue. A policer or a shallow buffer also drops segments without a queue: there the number grows at the expense
//! of others.

use std::time::Duration;

use super::congestion::lossy_rate;
use super::socket::ConnectionInfo;

/// The maximum number of connections.
pub(crate) const MAX_CONNECTIONS: usize = 32;

/// The ratio of two rates from which on the higher number of connections is worth its cost.
const MIN_GAIN: f64 = 1.1;

/// After a change of the number, new connections need some round trips until their rates are steady.
const SETTLE_SECONDS: f64 = 1.0;

/// The time that decides about a number, while data waits.
const WINDOW_SECONDS: f64 = 2.0;

/// After an interruption of this length, rates have to become steady again.
const INTERRUPTION: Duration = Duration::from_secs(1);

/// How long it may take to establish further connections.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause after a trial that failed: it doubles with each one up to the maximum.
const MIN_PAUSE: Duration = Duration::from_secs(30);
const MAX_PAUSE: Duration = Duration::from_secs(300);

/// Without waiting data for this long, the number returns to 1.
const MAX_IDLE: Duration = Duration::from_secs(300);

/// What a relay observes of a path at one time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathState {
    /// Whether data waits for all connections.
    pub(crate) is_backlogged: bool,
    /// Whether the path carries as much as it can: it has a queue.
    pub(crate) is_full: bool,
    /// The number of established connections.
    pub(crate) established: usize,
    /// The maximum number of connections at the rate of the path.
    pub(crate) max: usize,
}

/// A changed number of connections whose rate is being measured.
#[derive(Debug, Clone, Copy)]
struct Trial {
    /// The number before, and its rate in bytes per second.
    former: usize,
    rate: f64,
}

/// Sums over steps in which data waited.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    seconds: f64,
    full_seconds: f64,
    bytes: u64,
    segments: u64,
    retransmitted_segments: u64,
}

/// The number of connections to one relay.
#[derive(Debug)]
pub(crate) struct ConnectionCount {
    count: usize,
    trial: Option<Trial>,
    /// The time with waiting data since the number of established connections changed.
    settled_seconds: f64,
    window: Window,
    pause: Duration,
    next_trial: Duration,
    last_step: Duration,
    last: ConnectionInfo,
    last_backlog: Duration,
    was_backlogged: bool,
    established: usize,
    /// Since when the number of established connections is another one; none if it is the same.
    mismatch_start: Option<Duration>,
}

impl Default for ConnectionCount {
    fn default() -> ConnectionCount {
        ConnectionCount {
            count: 1,
            trial: None,
            settled_seconds: 0.0,
            window: Window::default(),
            pause: MIN_PAUSE,
            next_trial: Duration::ZERO,
            last_step: Duration::ZERO,
            last: ConnectionInfo::default(),
            last_backlog: Duration::ZERO,
            was_backlogged: false,
            established: 1,
            mismatch_start: None,
        }
    }
}

impl ConnectionCount {
    /// Advances by a step. `info`: sums over all connections, those that were closed included, and the lowest round-trip time. Returns
    /// the number of connections to use.
    pub(crate) fn step(&mut self, now: Duration, info: &ConnectionInfo, state: PathState) -> usize {
        let last = std::mem::replace(&mut self.last, *info);
        let seconds = now.saturating_sub(std::mem::replace(&mut self.last_step, now)).as_secs_f64();
        let was_backlogged = std::mem::replace(&mut self.was_backlogged, state.is_backlogged);
        if state.established != std::mem::replace(&mut self.established, state.established) {
            self.restart_measurement();
        }
        if state.is_backlogged {
            if now > self.last_backlog + INTERRUPTION {
                self.restart_measurement();
            }
            self.last_backlog = now;
        } else if now > self.last_backlog + MAX_IDLE {
            (self.count, self.trial) = (1, None);
        }
        if self.count > state.max {
            (self.count, self.trial) = (state.max, None);
        }
        if state.established != self.count {
            self.check_establishment(now, state.established);
            return self.count;
        }
        self.mismatch_start = None;
        if state.is_backlogged && was_backlogged {
            self.measure(now, &last, info, seconds, &state);
        }
        self.count
    }

    /// The rate without the changes of a number that has just changed.
    fn restart_measurement(&mut self) {
        (self.settled_seconds, self.window) = (0.0, Window::default());
    }

    /// Ends a trial whose connections cannot be established. If those of the former number cannot be established again, the path continues
    /// with those that there are.
    fn check_establishment(&mut self, now: Duration, established: usize) {
        let start = *self.mismatch_start.get_or_insert(now);
        if now <= start + ESTABLISH_TIMEOUT {
            return;
        }
        self.mismatch_start = None;
        match self.trial {
            Some(trial) => self.reject(now, trial),
            None => self.count = established,
        }
    }

    fn measure(
        &mut self,
        now: Duration,
        last: &ConnectionInfo,
        info: &ConnectionInfo,
        seconds: f64,
        state: &PathState,
    ) {
        if self.settled_seconds < SETTLE_SECONDS {
            self.settled_seconds += seconds;
            return;
        }
        let difference = |part: fn(&ConnectionInfo) -> u64| part(info).saturating_sub(part(last));
        self.window.seconds += seconds;
        self.window.full_seconds += if state.is_full { seconds } else { 0.0 };
        self.window.bytes += difference(|info| info.acked_bytes);
        self.window.segments += difference(|info| info.segments);
        self.window.retransmitted_segments += difference(|info| info.retransmitted_segments);
        if self.window.seconds >= WINDOW_SECONDS {
            let window = std::mem::take(&mut self.window);
            self.decide(now, &window, info.min_round_trip, state.max);
        }
    }

    fn decide(&mut self, now: Duration, window: &Window, round_trip: Duration, max: usize) {
        let rate = window.bytes as f64 / window.seconds;
        match self.trial.take() {
            Some(trial) => {
                let is_better = if self.count > trial.former {
                    rate >= trial.rate * MIN_GAIN
                } else {
                    rate * MIN_GAIN > trial.rate
                };
                if !is_better {
                    return self.reject(now, trial);
                }
                self.pause = MIN_PAUSE;
            }
            None if now < self.next_trial => return,
            None => {}
        }
        let is_full = window.full_seconds > window.seconds / 2.0;
        let half = self.count / 2;
        let lossy = lossy_rate(window.segments, window.retransmitted_segments, round_trip);
        // The estimate is low for CUBIC on long paths, so that half of the connections are tried only if they clearly suffice.
        if half > 0 && (is_full || lossy * half as f64 >= rate) {
            self.start_trial(half, rate);
        } else if !is_full && window.retransmitted_segments > 0 && self.count * 2 <= max {
            self.start_trial(self.count * 2, rate);
        }
    }

    fn start_trial(&mut self, count: usize, rate: f64) {
        self.trial = Some(Trial { former: self.count, rate });
        self.count = count;
    }

    fn reject(&mut self, now: Duration, trial: Trial) {
        (self.count, self.trial) = (trial.former, None);
        self.next_trial = now + self.pause;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        self.restart_measurement();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(100);
    const ROUND_TRIP: Duration = Duration::from_millis(50);
    const MBIT: f64 = 125_000.0;

    /// A path that delivers the rate of a connection for each one, up to its bandwidth.
    struct Path {
        count: ConnectionCount,
        connections: usize,
        /// The maximum number of connections that the other relay accepts.
        max_connections: usize,
        /// The maximum number at the rate of the path.
        max_number: usize,
        now: Duration,
        info: ConnectionInfo,
        bytes: f64,
        /// In Mbit/s.
        bandwidth: f64,
        rate_of_connection: f64,
        /// The part of the segments that is lost.
        loss: f64,
        /// The number with every change.
        numbers: Vec<usize>,
    }

    impl Path {
        fn new(bandwidth: f64, rate_of_connection: f64, loss: f64) -> Path {
            Path {
                count: ConnectionCount::default(),
                connections: 1,
                max_connections: usize::MAX,
                max_number: MAX_CONNECTIONS,
                now: Duration::ZERO,
                info: ConnectionInfo { min_round_trip: ROUND_TRIP, ..ConnectionInfo::default() },
                bytes: 0.0,
                bandwidth,
                rate_of_connection,
                loss,
                numbers: vec![1],
            }
        }

        /// Sends for some time. Returns the last number of connections.
        fn send(&mut self, seconds: u32, is_backlogged: bool) -> usize {
            for _ in 0..seconds * 10 {
                self.now += STEP;
                let available = self.rate_of_connection * self.connections as f64;
                if is_backlogged {
                    self.bytes += available.min(self.bandwidth) * MBIT * STEP.as_secs_f64();
                }
                self.info.acked_bytes = self.bytes as u64;
                self.info.segments = (self.bytes / 1448.0) as u64;
                self.info.retransmitted_segments = (self.bytes / 1448.0 * self.loss) as u64;
                let state = PathState {
                    is_backlogged,
                    is_full: is_backlogged && available > self.bandwidth * 1.5,
                    established: self.connections,
                    max: self.max_number,
                };
                let number = self.count.step(self.now, &self.info, state);
                self.connections = number.min(self.max_connections);
                if self.numbers.last() != Some(&number) {
                    self.numbers.push(number);
                }
            }
            self.count.count
        }
    }

    #[test]
    fn number_grows_while_the_rate_does() {
        let mut path = Path::new(1000.0, 15.0, 0.001);
        assert_eq!(path.send(30, true), 32);
        assert_eq!(path.numbers, [1, 2, 4, 8, 16, 32]);
        assert_eq!(path.send(300, true), 32);
        assert_eq!(path.numbers.len(), 6);
    }

    #[test]
    fn number_returns_to_the_former_one_if_the_gain_is_small() {
        // 4 connections have 60 Mbit/s, 8 have 64.
        let mut path = Path::new(64.0, 15.0, 0.001);
        assert_eq!(path.send(20, true), 4);
        assert_eq!(path.numbers, [1, 2, 4, 8, 4]);
        // Trials are rare.
        path.send(600, true);
        assert_eq!(path.numbers[5..], [8, 4, 8, 4, 8, 4, 8, 4]);
    }

    #[test]
    fn paths_without_loss_or_with_a_queue_keep_one_connection() {
        assert_eq!(Path::new(1000.0, 15.0, 0.0).send(100, true), 1);
        assert_eq!(Path::new(50.0, 100.0, 0.01).send(100, true), 1);
    }

    #[test]
    fn number_falls_when_the_bandwidth_falls() {
        let mut path = Path::new(1000.0, 15.0, 0.001);
        path.send(30, true);
        path.bandwidth = 60.0;
        assert_eq!(path.send(60, true), 4);
    }

    #[test]
    fn number_falls_when_the_loss_ends() {
        let mut path = Path::new(1000.0, 15.0, 0.001);
        path.send(30, true);
        (path.loss, path.rate_of_connection) = (0.0, 1000.0);
        assert_eq!(path.send(60, true), 1);
    }

    #[test]
    fn number_returns_to_one_without_data() {
        let mut path = Path::new(1000.0, 15.0, 0.001);
        path.send(30, true);
        assert_eq!(path.send(290, false), 32);
        assert_eq!(path.send(20, false), 1);
    }

    #[test]
    fn short_pauses_of_the_data_do_not_count() {
        let mut path = Path::new(1000.0, 15.0, 0.001);
        for _ in 0..15 {
            path.send(4, true);
            path.send(3, false);
        }
        assert_eq!(path.count.count, 32);
    }

    #[test]
    fn trial_ends_if_connections_cannot_be_established() {
        let mut path = Path::new(1000.0, 15.0, 0.001);
        path.max_connections = 1;
        assert_eq!(path.send(20, true), 1);
        assert_eq!(path.numbers, [1, 2, 1]);
    }

    #[test]
    fn path_continues_with_the_connections_that_there_are_after_a_rejected_halving() {
        // 8 connections have a queue, and 4 have less than the bandwidth.
        let mut path = Path::new(75.0, 15.0, 0.001);
        while path.numbers != [1, 2, 4, 8, 4] {
            path.send(1, true);
            assert!(path.now < Duration::from_secs(60), "{:?}", path.numbers);
        }
        path.max_connections = 4;
        assert_eq!(path.send(20, true), 4);
        assert_eq!(path.numbers, [1, 2, 4, 8, 4, 8, 4]);
        // Measurements continue.
        path.max_connections = 8;
        path.send(60, true);
        assert_eq!(path.numbers[7..9], [8, 4]);
    }

    #[test]
    fn number_stays_within_the_maximum_of_the_path() {
        let mut path = Path::new(1000.0, 15.0, 0.001);
        path.max_number = 6;
        assert_eq!(path.send(30, true), 4);
        path.max_number = MAX_CONNECTIONS;
        assert_eq!(path.send(60, true), 32);
        path.max_number = 6;
        assert_eq!(path.send(30, true), 6);
    }
}
