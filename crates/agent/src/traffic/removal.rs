//! Removes the state of applications that no longer exist from the kernel: programs, classes, connections and their pacing rates.
//!
//! The kernel needs time between the steps, in which the caller need not hold the [`Traffic`] ([`RemovalWait`]).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{MembarrierCommand, membarrier};

use super::maps::Maps;
use super::{Traffic, TrafficError, program, sweep, throttle};

/// The time limit for the removal of pacing rates. A busy connection removes its rate at the next acknowledgement.
const UNPACE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long to wait for acknowledgements between two steps.
const UNPACE_INTERVAL: Duration = Duration::from_millis(10);

/// How far a removal is.
#[derive(Debug)]
pub(super) enum RemovalState {
    /// Nothing is left.
    Complete,
    /// The kernel may have state of applications that no longer exist.
    Found,
    /// Their programs follow no new connections.
    Disabled,
    /// Their connections lose their pacing rates.
    Releasing(RateRemoval),
}

/// A wait between two steps of a removal. A separate thread can run it.
#[derive(Debug)]
#[must_use = "the next step of the removal follows it"]
pub enum RemovalWait {
    /// Programs that are running complete.
    RunningPrograms,
    /// Idle connections, which have programs in this folder, lose their rates.
    IdleConnections(PathBuf),
    /// Peers acknowledge data.
    Acknowledgements,
}

impl RemovalWait {
    /// Waits, for some milliseconds.
    pub fn run(self) {
        match self {
            // Waits for programs that are running and have read the map of applications before. A kernel with `nohz_full` refuses; a
            // program runs for microseconds, less than the steps that follow.
            RemovalWait::RunningPrograms => drop(membarrier(MembarrierCommand::Global)),
            // Without the privileges, the rates end at the next acknowledgements.
            RemovalWait::IdleConnections(folder) => drop(sweep::release_connections(&folder)),
            RemovalWait::Acknowledgements => thread::sleep(UNPACE_INTERVAL),
        }
    }
}

/// The time that connections have to lose their pacing rates.
#[derive(Debug)]
pub(super) struct RateRemoval {
    started: Instant,
    has_released: bool,
}

impl RateRemoval {
    pub fn start() -> RateRemoval {
        RateRemoval { started: Instant::now(), has_released: false }
    }

    /// The wait while this number of connections has a rate; none if it is zero, or after a second.
    pub fn next_wait(&mut self, still_paced: usize, folder: &Path) -> Option<RemovalWait> {
        if still_paced == 0 || self.started.elapsed() > UNPACE_TIMEOUT {
            return None;
        }
        Some(match std::mem::replace(&mut self.has_released, true) {
            false => RemovalWait::IdleConnections(folder.to_owned()),
            true => RemovalWait::Acknowledgements,
        })
    }
}

impl Traffic {
    /// Removes programs, classes and connections of other applications and interfaces.
    ///
    /// # Errors
    /// As [`Traffic::removal_step`].
    pub fn remove_stale_state(&mut self) -> Result<(), TrafficError> {
        while let Some(wait) = self.removal_step()? {
            wait.run();
        }
        Ok(())
    }

    /// The next step of [`Traffic::remove_stale_state`]. Returns the wait before the step after it; none if nothing is left.
    ///
    /// # Errors
    /// If the kernel refuses. The next call tries again.
    pub fn removal_step(&mut self) -> Result<Option<RemovalWait>, TrafficError> {
        let ids: Vec<u64> = self.applications.iter().map(|known| known.id).collect();
        match &mut self.removal {
            RemovalState::Complete => return Ok(None),
            RemovalState::Found => {
                self.maps.retain_applications(&ids)?;
                self.removal = RemovalState::Disabled;
                return Ok(Some(RemovalWait::RunningPrograms));
            }
            RemovalState::Disabled => {
                self.maps.retain_classes(&ids)?;
                self.restore_used_marks()?;
                let interfaces: Vec<u32> = self.interfaces.iter().map(|&(_, index)| index).collect();
                self.maps.retain_marked_bytes(&interfaces)?;
                self.removal = RemovalState::Releasing(RateRemoval::start());
            }
            RemovalState::Releasing(_) => {}
        }
        let still_paced = self.maps.retain_rates(&ids)?;
        if let RemovalState::Releasing(rates) = &mut self.removal
            && let Some(wait) = rates.next_wait(still_paced, self.folder.path())
        {
            return Ok(Some(wait));
        }
        self.retain_programs()?;
        self.maps.retain_connections(&ids)?;
        self.removal = RemovalState::Complete;
        Ok(None)
    }

    /// Removes the programs of other applications and interfaces.
    fn retain_programs(&mut self) -> Result<(), TrafficError> {
        let applications = self.applications.iter();
        let mut kept_names: Vec<String> = applications
            .map(|known| program::application_pin_name(known.id, known.rule.port.is_some()))
            .collect();
        kept_names.extend(self.interfaces.iter().map(|&(_, index)| program::interface_pin_name(index)));
        kept_names.extend(self.paths.pin_names());
        if self.throttling.is_some() {
            kept_names.extend(
                self.interfaces.iter().flat_map(|&(_, index)| throttle::throttle_program_names(index)),
            );
        }
        // An open link keeps its program attached without a file.
        self.programs.retain(|name, _| kept_names.contains(name));
        self.folder
            .retain(|name| Maps::is_map_name(name) || kept_names.iter().any(|kept_name| kept_name == name))
    }
}

impl Maps {
    /// Removes all classes and pacing rates. Programs continue for a moment after their files are removed, and a connection keeps its
    /// pacing rate without a program. Rates of idle connections end too, if the kernel has the program for it. Returns the number of
    /// connections that still have a rate after a second.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn remove_classes_and_rates(&mut self, folder: &Path) -> Result<usize, TrafficError> {
        self.retain_classes(&[])?;
        self.set_used_marks(&BTreeSet::new())?;
        let mut removal = RateRemoval::start();
        loop {
            let still_paced = self.retain_rates(&[])?;
            let Some(wait) = removal.next_wait(still_paced, folder) else { return Ok(still_paced) };
            wait.run();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_without_rates_need_no_wait_and_others_lose_them_when_idle_first() {
        let folder = Path::new("/x");
        assert!(RateRemoval::start().next_wait(0, folder).is_none());
        let mut removal = RateRemoval::start();
        assert!(matches!(removal.next_wait(2, folder), Some(RemovalWait::IdleConnections(_))));
        assert!(matches!(removal.next_wait(1, folder), Some(RemovalWait::Acknowledgements)));
        assert!(removal.next_wait(0, folder).is_none());
        // Peers that acknowledge nothing do not delay the rest for longer.
        removal.started -= UNPACE_TIMEOUT + UNPACE_INTERVAL;
        assert!(removal.next_wait(1, folder).is_none());
    }
}
