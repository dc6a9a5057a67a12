//! Limits entries about refused requests, for each identity and status.

use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of entries in a burst.
const BURST: f64 = 20.0;

/// Entries a second after a burst.
const RATE: f64 = 1.0;

/// Maximum number of limited pairs of identity and status. Further ones share one limit.
const MAX_KEYS: usize = 1024;

/// The identity of pairs above [`MAX_KEYS`].
const OTHER_IDENTITIES: &str = "other identities";

/// An identity and the status of its refused requests.
pub(super) type Key = (String, u16);

#[derive(Debug)]
struct Allowance {
    /// Number of entries that the limit permits now.
    entries: f64,
    updated_at: Duration,
    suppressed: u64,
    /// The last entry about this pair.
    stated_at: Duration,
}

/// Recent refusals by identity and status.
#[derive(Debug, Default)]
pub(super) struct RefusalLimit(BTreeMap<Key, Allowance>);

impl RefusalLimit {
    /// Whether a refusal has an entry: then the number of suppressed ones before it, which no other entry has stated.
    pub fn admit(&mut self, key: Key, now: Duration) -> Option<u64> {
        let key = if self.0.len() < MAX_KEYS || self.0.contains_key(&key) {
            key
        } else {
            (OTHER_IDENTITIES.to_owned(), key.1)
        };
        let allowance = self.0.entry(key).or_insert(Allowance {
            entries: BURST,
            updated_at: now,
            suppressed: 0,
            stated_at: now,
        });
        allowance.update(now);
        if allowance.entries < 1.0 {
            allowance.suppressed += 1;
            return None;
        }
        allowance.entries -= 1.0;
        allowance.stated_at = now;
        Some(std::mem::take(&mut allowance.suppressed))
    }

    /// The numbers of suppressed refusals that no entry has stated, of pairs without an entry for `interval`. Forgets pairs without a
    /// recent refusal.
    pub fn take_suppressed(&mut self, now: Duration, interval: Duration) -> Vec<(Key, u64)> {
        self.0.retain(|_, allowance| {
            allowance.update(now);
            allowance.entries < BURST || allowance.suppressed > 0
        });
        let take = |(key, allowance): (&Key, &mut Allowance)| {
            let is_due = allowance.suppressed > 0 && now >= allowance.stated_at + interval;
            is_due.then(|| {
                allowance.stated_at = now;
                (key.clone(), std::mem::take(&mut allowance.suppressed))
            })
        };
        self.0.iter_mut().filter_map(take).collect()
    }
}

impl Allowance {
    fn update(&mut self, now: Duration) {
        let elapsed = now.saturating_sub(self.updated_at).as_secs_f64();
        self.entries = (self.entries + elapsed * RATE).min(BURST);
        self.updated_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(identity: &str, status: u16) -> Key {
        (identity.to_owned(), status)
    }

    #[test]
    fn flood_is_suppressed_counted_and_separate_from_others() {
        let mut limit = RefusalLimit::default();
        let start = Duration::ZERO;
        let admitted = (0..1000).filter(|_| limit.admit(key("ads", 403), start).is_some()).count();
        assert_eq!(admitted, 20);
        assert_eq!(limit.admit(key("ads", 409), start), Some(0));
        assert_eq!(limit.admit(key("search", 403), start), Some(0));
        assert_eq!(limit.admit(key("ads", 403), Duration::from_secs(1)), Some(980));
        assert_eq!(limit.admit(key("ads", 403), Duration::from_secs(1)), None);
        let interval = Duration::from_secs(10);
        assert_eq!(limit.take_suppressed(Duration::from_secs(10), interval), []);
        assert_eq!(limit.take_suppressed(Duration::from_secs(11), interval), [(key("ads", 403), 1)]);
        assert_eq!(limit.take_suppressed(Duration::from_secs(100), interval), []);
        assert!(limit.0.is_empty());
    }

    #[test]
    fn number_of_keys_is_bounded() {
        let mut limit = RefusalLimit::default();
        for number in 0..5000 {
            limit.admit(key(&number.to_string(), 403), Duration::ZERO);
        }
        assert_eq!(limit.0.len(), MAX_KEYS + 1);
        assert_eq!(
            limit.take_suppressed(Duration::ZERO, Duration::ZERO),
            [(key(OTHER_IDENTITIES, 403), 5000 - 1024 - 20)]
        );
    }
}
