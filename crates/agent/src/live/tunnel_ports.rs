//! Keeps the UDP ports of tunnels up to date. Another thread reads them, since a host may have thousands of interfaces.

use std::collections::BTreeSet;
use std::io;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::tunnels::{WELL_KNOWN_PORTS, read_ports};

/// The minimum time from one reading to the next.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// Readings take at most about one `READ_TIME_DIVISOR`th of the time.
const READ_TIME_DIVISOR: u32 = 50;

/// The ports, the result, and how long it took.
type Reading = (BTreeSet<u16>, io::Result<()>, Duration);

/// The ports at the last reading.
#[derive(Debug)]
pub struct TunnelPorts {
    ports: BTreeSet<u16>,
    reading: Option<JoinHandle<Reading>>,
    next: Option<Instant>,
}

impl Default for TunnelPorts {
    fn default() -> TunnelPorts {
        TunnelPorts { ports: BTreeSet::from(WELL_KNOWN_PORTS), reading: None, next: None }
    }
}

impl TunnelPorts {
    /// The ports.
    pub fn ports(&self) -> &BTreeSet<u16> {
        &self.ports
    }

    /// Starts a reading if one is due, in the network namespace of the calling thread. Returns the result of the one that has ended, if
    /// any.
    pub fn update(&mut self, now: Instant) -> Option<io::Result<()>> {
        if let Some(reading) = self.reading.take_if(|reading| reading.is_finished()) {
            let (ports, result, duration) = reading.join().ok()?;
            self.next = Some(now + READ_INTERVAL.max(duration * READ_TIME_DIVISOR));
            // After an error some ports are missing.
            match &result {
                Ok(()) => self.ports = ports,
                Err(_) => self.ports.extend(ports),
            }
            return Some(result);
        }
        if self.reading.is_some() || self.next.is_some_and(|next| now < next) {
            return None;
        }
        match Builder::new().name("weir-tunnels".to_owned()).spawn(read_timed) {
            Ok(reading) => self.reading = Some(reading),
            Err(error) => {
                self.next = Some(now + READ_INTERVAL);
                return Some(Err(error));
            }
        }
        None
    }
}

fn read_timed() -> Reading {
    let began = Instant::now();
    let (ports, result) = read_ports();
    (ports, result, began.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_once_a_second() {
        let (began, mut tunnels) = (Instant::now(), TunnelPorts::default());
        tunnels.ports.insert(1);
        // Repeats the time of a step until the thread has ended.
        let mut wait_for_reading = |now: Instant| {
            assert!(tunnels.update(now).is_none());
            while !tunnels.reading.as_ref()?.is_finished() {
                std::thread::yield_now();
            }
            let result = tunnels.update(now);
            assert!(result?.is_ok());
            Some(tunnels.ports.contains(&1))
        };
        assert_eq!(wait_for_reading(began), Some(false));
        assert_eq!(wait_for_reading(began + Duration::from_millis(999)), None);
        let much_later = began + Duration::from_secs(600);
        assert_eq!(wait_for_reading(much_later), Some(false));
    }
}
