//! Limits repeated log lines about connections that fail.

use std::collections::BTreeMap;
use std::time::Duration;

/// The minimum time between two lines with the same cause, and how long a cause must be absent to count as new.
const INTERVAL: Duration = Duration::from_secs(60);

/// The maximum number of causes. Further ones are not logged.
const MAX_CAUSES: usize = 64;

#[derive(Debug)]
struct Cause {
    text: String,
    logged_at: Duration,
    seen_at: Duration,
}

/// The causes of recent lines. Texts that differ in their numbers, such as times, have the same cause.
#[derive(Debug, Default)]
pub struct LogLimit(BTreeMap<(String, String), Cause>);

impl LogLimit {
    /// Whether to log a text about a peer: its cause is new, or its numbers differ from those of the last line, a minute ago or more.
    pub fn permits(&mut self, peer: &str, text: &str, now: Duration) -> bool {
        let key = (peer.to_owned(), text.replace(|letter: char| letter.is_ascii_digit(), ""));
        self.0.retain(|_, cause| now < cause.seen_at + INTERVAL);
        let is_full = self.0.len() >= MAX_CAUSES;
        let Some(cause) = self.0.get_mut(&key) else {
            if !is_full {
                self.0.insert(key, Cause { text: text.to_owned(), logged_at: now, seen_at: now });
            }
            return !is_full;
        };
        cause.seen_at = now;
        let is_due = cause.text != text && now >= cause.logged_at + INTERVAL;
        if is_due {
            (cause.text, cause.logged_at) = (text.to_owned(), now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_the_same_cause_are_a_minute_apart() {
        let mut limit = LogLimit::default();
        let mut lines = 0;
        for second in 0..600 {
            let now = Duration::from_secs(second);
            lines += u32::from(limit.permits("east", &format!("expired {second} seconds ago"), now));
            let is_first = second == 0;
            assert_eq!(limit.permits("east", "connection refused", now), is_first);
            assert_eq!(limit.permits("north", "connection refused", now), is_first);
        }
        assert_eq!(lines, 10);
        // A cause that has been absent is new.
        assert!(limit.permits("east", "connection refused", Duration::from_secs(700)));
        let count = (0..1000).filter(|peer| limit.permits(&peer.to_string(), "x", Duration::from_secs(701)));
        assert_eq!(count.count(), MAX_CAUSES - 1);
    }
}
