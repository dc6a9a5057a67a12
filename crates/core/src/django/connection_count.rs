//! The number of connections of a host, from the loss of the connections to it (section 4.1), while they send.
//!
//! Section 3 predicts the number "at each interval", for each host. These rules are not in the paper:
//!
//! - *Windows.* The loss is that of all packets to the host in a window. A window with few packets, or without an open connection, has no
//!   effect.
//! - *Loss.* The predictor infers the buffer q from the loss and the number of open connections, and Theorem 4.1 gives the number:
//!   q - k, if the switch marks packets from a queue of k packets on.
//! - *Hysteresis.* A window can be one of short flows that start together. The number changes only if two windows with loss in a row
//!   predict about the same.
//! - *Growth.* Without loss, the buffer is only known to hold more. The number grows by one after some windows without loss in which the
//!   host used its connections, and loss ends the growth.

use std::fmt::Debug;

/// Numbers of connections are about the same if they differ by this fraction, or by 1.
const TOLERANCE: f64 = 0.125;

/// Two windows are in a row if the later one ends at most this number of windows after the other.
const MAX_GAP: f64 = 3.0;

/// Infers the buffer of a switch's port from the loss at it.
pub trait BufferPredictor: Debug + Send + Sync {
    /// The buffer in packets, if this number of connections loses this fraction of the packets.
    fn predict_buffer(&self, loss: f64, connections: u32) -> u32;
}

/// How a host's number of connections follows the loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CountSettings {
    /// The length of a window, in seconds.
    pub window: f64,
    /// A window with fewer packets has no effect.
    pub min_segments: u64,
    /// The fraction of lost packets up to which a window counts as one without loss: senders also send packets again that are only late.
    pub min_loss: f64,
    /// The number grows by one after this number of windows without loss.
    pub growth_windows: u32,
    /// The queue length from which the switch marks packets, in packets.
    pub marking_threshold: u32,
    /// The maximum number of connections, at least 1.
    pub max_connections: u32,
}

/// The number of connections of a host.
#[derive(Debug, Clone)]
pub struct ConnectionCount {
    count: u32,
    window: Window,
    /// The number that the last window with an effect predicts, and the end of that window, if it had loss.
    predicted: Option<(u32, f64)>,
    /// The windows without loss in which the host used its connections, since the last loss or change.
    lossless_windows: u32,
}

/// What a window has so far.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    start: f64,
    segments: u64,
    retransmitted: u64,
    /// The time with an open connection in seconds, the integral of the number of connections, and the time in which all are used.
    seconds: f64,
    connection_secs: f64,
    full_secs: f64,
}

impl Window {
    fn loss(&self) -> f64 {
        (self.retransmitted as f64 / self.segments as f64).min(1.0)
    }

    /// The mean number of open connections while there were any, at least 1. The window had an open connection.
    fn mean_connections(&self) -> u32 {
        (self.connection_secs / self.seconds).round().max(1.0) as u32
    }

    /// Whether the host used its connections for at least half of the time in which it received.
    fn is_full(&self) -> bool {
        2.0 * self.full_secs >= self.seconds
    }
}

impl ConnectionCount {
    /// A host that begins with `count` connections, at the time `now` in seconds.
    pub fn new(count: u32, now: f64) -> ConnectionCount {
        let window = Window { start: now, ..Window::default() };
        ConnectionCount { count: count.max(1), window, predicted: None, lossless_windows: 0 }
    }

    /// The number of connections, at least 1.
    pub fn get(&self) -> u32 {
        self.count
    }

    /// Adds packets that were sent to the host, and how many of them were sent again.
    pub fn record_segments(&mut self, segments: u64, retransmitted: u64) {
        self.window.segments = self.window.segments.saturating_add(segments);
        self.window.retransmitted = self.window.retransmitted.saturating_add(retransmitted);
    }

    /// Adds the number of open connections to the host during some seconds. `is_full` is whether it may open no more.
    pub fn record_connections(&mut self, connections: u32, is_full: bool, seconds: f64) {
        if connections > 0 {
            self.window.seconds += seconds;
            self.window.connection_secs += f64::from(connections) * seconds;
            self.window.full_secs += if is_full { seconds } else { 0.0 };
        }
    }

    /// Ends the window if its length has passed at the time `now` in seconds. Returns whether the number has changed.
    pub fn update(
        &mut self,
        settings: &CountSettings,
        predictor: &(impl BufferPredictor + ?Sized),
        now: f64,
    ) -> bool {
        if now - self.window.start < settings.window {
            return false;
        }
        let window = std::mem::replace(&mut self.window, Window { start: now, ..Window::default() });
        // Without an open connection, lost packets of paused flows may be sent again.
        if window.segments < settings.min_segments.max(1) || window.seconds <= 0.0 {
            return false;
        }
        let before = self.count;
        if window.loss() > settings.min_loss {
            self.lossless_windows = 0;
            let connections = window.mean_connections();
            let buffer = predictor.predict_buffer(window.loss(), connections);
            let number = buffer.saturating_sub(settings.marking_threshold);
            let last = self.predicted.replace((number, now));
            if let Some((last, ended)) = last
                && are_close(last, number)
                && now - ended <= MAX_GAP * settings.window
            {
                self.count = last.min(number);
            }
        } else {
            self.predicted = None;
            self.lossless_windows += u32::from(window.is_full());
            if self.lossless_windows >= settings.growth_windows {
                self.count = self.count.saturating_add(1);
            }
        }
        self.count = self.count.clamp(1, settings.max_connections.max(1));
        if self.count == before {
            self.lossless_windows = self.lossless_windows.min(settings.growth_windows);
            return false;
        }
        (self.predicted, self.lossless_windows) = (None, 0);
        true
    }
}

fn are_close(a: u32, b: u32) -> bool {
    f64::from(a.abs_diff(b)) <= (TOLERANCE * f64::from(a.max(b))).max(1.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SETTINGS: CountSettings = CountSettings {
        window: 1.0,
        min_segments: 100,
        min_loss: 0.001,
        growth_windows: 5,
        marking_threshold: 20,
        max_connections: 200,
    };

    /// Knows the buffer of [`loss`].
    #[derive(Debug)]
    struct Inverse;

    impl BufferPredictor for Inverse {
        fn predict_buffer(&self, loss: f64, connections: u32) -> u32 {
            ((1.0 - loss) * f64::from(connections)).round() as u32 + SETTINGS.marking_threshold
        }
    }

    /// The loss of some connections at a buffer: the part of the packets that it has no room for.
    fn loss(buffer: u32, connections: u32) -> f64 {
        let room = f64::from(buffer.saturating_sub(SETTINGS.marking_threshold));
        (1.0 - room / f64::from(connections)).max(0.0)
    }

    /// A window with this loss, in which the host uses all its connections.
    fn add_window(count: &mut ConnectionCount, loss: f64, now: &mut f64) -> bool {
        count.record_segments(10_000, (10_000.0 * loss) as u64);
        count.record_connections(count.get(), true, SETTINGS.window);
        *now += SETTINGS.window;
        count.update(&SETTINGS, &Inverse, *now)
    }

    #[test]
    fn count_changes_after_two_windows_that_predict_the_same() {
        let (mut count, mut now) = (ConnectionCount::new(100, 7.0), 7.0);
        assert!(!count.update(&SETTINGS, &Inverse, 7.999));
        // 40 % loss of 100 connections: room for 60. Then for 30: not the same, and again.
        assert!(!add_window(&mut count, 0.4, &mut now));
        assert!(!add_window(&mut count, 0.7, &mut now));
        // A window with few packets has no effect.
        count.record_segments(99, 99);
        now += 1.0;
        assert!(!count.update(&SETTINGS, &Inverse, now));
        assert!(add_window(&mut count, 0.68, &mut now));
        assert_eq!(count.get(), 30);
        // Windows without loss between those with loss.
        for loss in [0.5, 0.0, 0.5, 0.0, 0.5, 0.0] {
            assert!(!add_window(&mut count, loss, &mut now));
        }
        assert_eq!(count.get(), 30);
    }

    #[test]
    fn count_grows_by_one_while_the_host_uses_its_connections_without_loss() {
        let (mut count, mut now) = (ConnectionCount::new(4, 0.0), 0.0);
        let changes: Vec<bool> = (0..10).map(|_| add_window(&mut count, 0.0, &mut now)).collect();
        assert_eq!(changes, [false, false, false, false, true, false, false, false, false, true]);
        assert_eq!(count.get(), 6);
        for _ in 0..20 {
            count.record_segments(10_000, 10);
            count.record_connections(6, true, 0.4);
            count.record_connections(5, false, 0.6);
            now += 1.0;
            assert!(!count.update(&SETTINGS, &Inverse, now), "the host does not use its connections");
        }
    }

    #[test]
    fn count_is_one_if_the_switch_marks_at_the_end_of_its_buffer() {
        let (mut count, mut now) = (ConnectionCount::new(11, 0.0), 0.0);
        for _ in 0..10 {
            add_window(&mut count, 1.0, &mut now);
        }
        assert_eq!(count.get(), 1);
    }

    #[test]
    fn windows_far_apart_and_windows_without_a_connection_have_no_effect() {
        let (mut count, mut now) = (ConnectionCount::new(100, 0.0), 0.0);
        for _ in 0..5 {
            assert!(!add_window(&mut count, 0.5, &mut now));
            now += MAX_GAP;
        }
        for _ in 0..5 {
            count.record_segments(10_000, 5_000);
            now += SETTINGS.window;
            assert!(!count.update(&SETTINGS, &Inverse, now));
        }
        assert_eq!(count.get(), 100);
    }

    #[test]
    fn loss_is_that_of_the_connections_that_were_open() {
        let mut count = ConnectionCount::new(100, 0.0);
        for now in [1.0, 2.0] {
            count.record_segments(1000, 500);
            for connections in [0, 0, 30, 50, 0] {
                count.record_connections(connections, false, 0.2);
            }
            count.update(&SETTINGS, &Inverse, now);
        }
        assert_eq!(count.get(), 20);
    }

    proptest! {
        /// From below and from above, the number becomes that of the buffer, and stays there, but for one more connection as a test.
        #[test]
        fn count_converges(buffer in 21..=220u32, first in 1..=200u32) {
            let (mut count, mut now) = (ConnectionCount::new(first, 0.0), 0.0);
            let room = buffer - SETTINGS.marking_threshold;
            let growth = room.saturating_sub(first) * SETTINGS.growth_windows;
            for _ in 0..growth + 4 {
                let lost = loss(buffer, count.get());
                add_window(&mut count, lost, &mut now);
            }
            for _ in 0..100 {
                prop_assert!((room..=room + 1).contains(&count.get()), "{} connections, room for {}", count.get(), room);
                let lost = loss(buffer, count.get());
                add_window(&mut count, lost, &mut now);
            }
        }

        #[test]
        fn count_is_in_its_bounds(
            first in 0..=1000u32,
            max in 1..=300u32,
            windows in proptest::collection::vec((0..=1000u64, 0..=2000u64, 0..=400u32, 0..=70_000u32), 0..60),
        ) {
            #[derive(Debug)]
            struct Constant(u32);
            impl BufferPredictor for Constant {
                fn predict_buffer(&self, loss: f64, connections: u32) -> u32 {
                    assert!((0.0..=1.0).contains(&loss) && connections >= 1, "{loss} of {connections}");
                    self.0
                }
            }
            let settings = CountSettings { max_connections: max, ..SETTINGS };
            let mut count = ConnectionCount::new(first, 0.0);
            for (at, (segments, retransmitted, connections, buffer)) in (1..).zip(windows) {
                let before = count.get();
                count.record_segments(segments, retransmitted);
                count.record_connections(connections, true, settings.window);
                let has_changed = count.update(&settings, &Constant(buffer), f64::from(at));
                prop_assert_eq!(has_changed, count.get() != before);
                prop_assert!(!has_changed || (1..=max).contains(&count.get()));
                let has_loss = retransmitted as f64 > settings.min_loss * segments as f64;
                prop_assert!(has_loss || before > max || count.get() <= before + 1);
            }
        }
    }
}
