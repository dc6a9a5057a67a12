//! The numbers of a start of a coordinator: its epoch and its generations.

use std::time::{SystemTime, UNIX_EPOCH};

use redb::{Database, ReadTransaction, TableError};

use super::{NUMBERS_TABLE, RESTORED_KEY, Table, VERSION};

const EPOCH_KEY: &str = "epoch";

/// Key of the lowest generation of the store, and of the lowest one that no coordinator may have used.
const FIRST_GENERATION_KEY: &str = "first generation";
const NEXT_GENERATION_KEY: &str = "next generation";

/// Number of generations that a coordinator reserves when it starts: registering 1,000 coflows a second, it uses them in 50 days. A
/// reservation needs no write for each registration.
const RESERVED_GENERATIONS: u64 = 1 << 32;

/// The numbers in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoredNumbers {
    /// The epoch of the last start; `None` in a new store.
    pub epoch: Option<u64>,
    first_generation: Option<u64>,
    next_generation: Option<u64>,
    is_restored: bool,
}

impl StoredNumbers {
    pub fn read(transaction: &ReadTransaction) -> Result<StoredNumbers, redb::Error> {
        let numbers = match transaction.open_table(NUMBERS_TABLE) {
            Err(TableError::TableDoesNotExist(_)) => return Ok(StoredNumbers::default()),
            numbers => numbers?,
        };
        let number = |key: &str| Ok::<_, redb::Error>(numbers.get(key)?.map(|number| number.value()));
        Ok(StoredNumbers {
            epoch: number(EPOCH_KEY)?,
            first_generation: number(FIRST_GENERATION_KEY)?,
            next_generation: number(NEXT_GENERATION_KEY)?,
            is_restored: number(RESTORED_KEY)?.is_some(),
        })
    }
}

/// The numbers of one start of a coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartNumbers {
    pub epoch: u64,
    /// The lowest generation of the store.
    pub first_generation: u64,
    /// The lowest generation of this start.
    pub next_generation: u64,
}

impl StartNumbers {
    /// The numbers of the start after those of `stored`: raises the epoch, and reserves [`RESERVED_GENERATIONS`]. The epoch is also above
    /// `reserved_epoch`, that of the epoch file. The epoch of a new store, and of a store that was restored from a backup, is at
    /// least `unix_millis`, the time of day in milliseconds, since agents refuse epochs below that of their last accepted order. Other
    /// starts do not use the clock: a coordinator that was replaced by one with a higher epoch stays replaced when it restarts.
    /// Generations of a new or restored store begin at the time of day in units of 2^-20 ms: above those of an earlier store, if
    /// that store was opened less often than every four seconds.
    pub fn after(stored: StoredNumbers, reserved_epoch: Option<u64>, unix_millis: u64) -> StartNumbers {
        let last = stored.epoch.max(reserved_epoch);
        let uses_clock = stored.is_restored || stored.epoch.is_none();
        let raised = last.map_or(unix_millis, |last| last.saturating_add(1));
        let epoch = if uses_clock { raised.max(unix_millis) } else { raised };
        let stored_next = stored.next_generation.unwrap_or(0);
        // Generation 1 is that of old records, and 0 is none.
        let new_first = stored_next.max(unix_millis.saturating_mul(1 << 20)).max(2);
        let (first_generation, next_generation) =
            match stored.first_generation.filter(|_| !stored.is_restored) {
                Some(first) => (first, stored_next),
                None => (new_first, new_first),
            };
        StartNumbers { epoch, first_generation, next_generation }
    }

    /// Writes the numbers, and creates missing tables.
    pub fn write(&self, database: &Database) -> Result<(), redb::Error> {
        let mut transaction = database.begin_write()?;
        transaction.set_two_phase_commit(true);
        {
            let mut numbers = transaction.open_table(NUMBERS_TABLE)?;
            numbers.remove(RESTORED_KEY)?;
            let reserved = self.next_generation.saturating_add(RESERVED_GENERATIONS);
            for (key, number) in [
                ("version", VERSION),
                (EPOCH_KEY, self.epoch),
                (FIRST_GENERATION_KEY, self.first_generation),
                (NEXT_GENERATION_KEY, reserved),
            ] {
                numbers.insert(key, number)?;
            }
        }
        for table in Table::ALL {
            transaction.open_table(table.definition())?;
        }
        Ok(transaction.commit()?)
    }
}

/// The time of day in milliseconds since 1970; 1 if the clock is before 1970.
pub fn unix_millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use redb::ReadableDatabase;
    use redb::backends::InMemoryBackend;

    use super::*;

    /// Starts a coordinator with a store, without an epoch file.
    fn start(database: &Database, clock: u64) -> StartNumbers {
        let stored = StoredNumbers::read(&database.begin_read().unwrap()).unwrap();
        let numbers = StartNumbers::after(stored, None, clock);
        numbers.write(database).unwrap();
        numbers
    }

    fn restore(database: &Database) {
        let transaction = database.begin_write().unwrap();
        transaction.open_table(NUMBERS_TABLE).unwrap().insert(RESTORED_KEY, 1).unwrap();
        transaction.commit().unwrap();
    }

    #[test]
    fn epochs_rise_for_any_clock_and_are_at_least_the_clock_in_new_and_restored_stores() {
        const HOUR: u64 = 3_600_000;
        const NOW: u64 = 1_000 * HOUR;
        let database = Database::builder().create_with_backend(InMemoryBackend::new()).unwrap();
        let epochs = [NOW, NOW - HOUR, NOW + HOUR, 0].map(|clock| start(&database, clock).epoch);
        assert_eq!(epochs, [NOW, NOW + 1, NOW + 2, NOW + 3]);
        restore(&database);
        let epochs = [NOW + HOUR, NOW + 2 * HOUR].map(|clock| start(&database, clock).epoch);
        assert_eq!(epochs, [NOW + HOUR, NOW + HOUR + 1]);
        restore(&database);
        assert_eq!(start(&database, NOW).epoch, NOW + HOUR + 2);
        // The epoch file contains the epochs of starts on a full disk.
        let stored = StoredNumbers::read(&database.begin_read().unwrap()).unwrap();
        let epoch = |reserved| StartNumbers::after(stored, reserved, 0).epoch;
        let reserved = [NOW + HOUR, NOW + HOUR + 2, NOW + HOUR + 9].map(|reserved| epoch(Some(reserved)));
        assert_eq!(reserved, [NOW + HOUR + 3, NOW + HOUR + 3, NOW + HOUR + 10]);
    }

    #[test]
    fn generations_rise_with_each_start_and_with_new_and_restored_stores() {
        const NOW: u64 = 1_800_000_000_000;
        let database = Database::builder().create_with_backend(InMemoryBackend::new()).unwrap();
        let generations = |started: StartNumbers| (started.first_generation, started.next_generation);
        assert_eq!(generations(start(&database, NOW)), (NOW << 20, NOW << 20));
        // Later starts do not use the clock.
        for (starts, clock) in [(1, NOW + 5), (2, 0), (3, 2 * NOW)] {
            let next = (NOW << 20) + starts * RESERVED_GENERATIONS;
            assert_eq!(generations(start(&database, clock)), (NOW << 20, next));
        }
        restore(&database);
        let restored_at = (NOW + 3_600_000) << 20;
        assert_eq!(generations(start(&database, NOW + 3_600_000)), (restored_at, restored_at));
    }
}
