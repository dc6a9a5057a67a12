//! Raises the epoch of an open store: a coordinator with another configuration takes over from the present one.
//!
//! Changes wait from [`Store::hold`] until the successor takes over or is dropped, so it reads a state that does not change meanwhile. If
//! it takes over, the changes that waited are refused with [`StoreError::Superseded`], as are all later ones through handles of the former
//! epoch.

use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;
use tokio::task::spawn_blocking;

use super::epoch_file::{self, epoch_path};
use super::writer::WriterEpoch;
use super::{Store, StoreError};

/// A handle of the next epoch. Changes wait until it is used or dropped.
pub struct Successor {
    store: Store,
    current: OwnedMutexGuard<WriterEpoch>,
}

impl Store {
    /// Lets all changes wait after the transaction in progress.
    pub async fn hold(&self) -> Successor {
        let current = Arc::clone(&self.writer_epoch).lock_owned().await;
        let mut store = self.clone();
        store.numbers = current.numbers;
        store.numbers.epoch = store.numbers.epoch.saturating_add(1);
        Successor { store, current }
    }
}

impl Successor {
    /// The handle of the next epoch. It can read at once, and write once it has taken over.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Writes the next epoch.
    ///
    /// # Errors
    /// The store cannot be written. The former epoch stays.
    pub async fn take_over(self) -> Result<(), StoreError> {
        self.store.check_writable()?;
        let write = move || {
            let Successor { store, mut current } = self;
            let mut numbers = store.numbers;
            // The generations that this process has reserved stay so.
            numbers.next_generation = store.next_generation();
            current.failed_epoch = Some(numbers.epoch);
            store.database.with(|open| open.make_writable(&numbers))?;
            *current = WriterEpoch { numbers, stored_epoch: Some(numbers.epoch), failed_epoch: None };
            // The store has the epoch, so a failure only means that a later start on a full disk uses the clock.
            let _ = epoch_file::write(&epoch_path(&store.path), numbers.epoch);
            Ok(())
        };
        spawn_blocking(write).await.unwrap_or(Err(StoreError::Closed))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Table;
    use super::*;

    #[tokio::test]
    async fn changes_wait_for_a_successor_and_are_refused_once_it_has_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weir.redb");
        let store = Store::open(&path).unwrap();
        store.put(Table::Settings, "a", &1).await.unwrap();
        let write = |key: &'static str| {
            let store = store.clone();
            tokio::spawn(async move { store.put(Table::Settings, key, &2).await })
        };

        let dropped = store.hold().await;
        let waiting = write("a");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        assert!(!waiting.is_finished());
        assert_eq!(dropped.store().get::<u64>(Table::Settings, "a").unwrap(), Some(1));
        drop(dropped);
        waiting.await.unwrap().unwrap();

        let successor = store.hold().await;
        let waiting = write("b");
        let next = successor.store().clone();
        assert_eq!(next.epoch(), store.epoch() + 1);
        successor.take_over().await.unwrap();
        assert!(matches!(waiting.await.unwrap(), Err(StoreError::Superseded)));
        assert!(matches!(store.remove(Table::Settings, "a").await, Err(StoreError::Superseded)));
        next.put(Table::Settings, "b", &3).await.unwrap();
        assert_eq!(next.get::<u64>(Table::Settings, "a").unwrap(), Some(2));

        let (epoch, generation) = (next.epoch(), next.next_generation());
        drop((store, next));
        let reopened = loop {
            match Store::open(&path) {
                Err(StoreError::AlreadyOpen(_)) => {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await
                }
                opened => break opened.unwrap(),
            }
        };
        assert_eq!(reopened.epoch(), epoch + 1);
        assert!(reopened.next_generation() > generation);
        assert_eq!(reopened.get::<u64>(Table::Settings, "b").unwrap(), Some(3));
    }
}
