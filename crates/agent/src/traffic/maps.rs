//! Reads and writes the maps that the BPF programs and the agent share.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use aya::maps::{Array, HashMap, Map, MapData, MapError, RingBuf};

use super::cgroup::Class;
use super::folder::Folder;
use super::record::{CONNECTION, Connection, ENDS, Ends, Event};
use super::{Counts, TrafficError};

/// The time limit for the removal of pacing rates. A busy connection removes its rate at the next acknowledgement.
const PATIENCE: Duration = Duration::from_secs(1);

/// A key of the map of classes: the cgroup's number, the interface's number, and four bytes of padding.
type Place = [u8; 16];

/// A rate, and the time at which its lease ends.
type Pace = [u8; 16];

/// The maps of `bpf/application.c`.
pub(super) struct Maps {
    classes: HashMap<MapData, Place, u32>,
    connections: HashMap<MapData, [u8; ENDS], [u8; CONNECTION]>,
    paces: HashMap<MapData, [u8; ENDS], Pace>,
    events: RingBuf<MapData>,
    counts: Array<MapData, u64>,
    /// The same maps, to pin them again.
    pins: Vec<(&'static str, MapData)>,
}

/// The names of the maps' files.
const NAMES: [&str; 5] = ["classes", "connections", "paces", "events", "counts"];

impl Maps {
    pub fn open(folder: &Folder) -> Result<Maps, TrafficError> {
        let open = |name: &str| {
            let map = MapData::from_pin(folder.path().join(name)).and_then(Map::from_map_data);
            map.map_err(|error| TrafficError::kernel(name, &error))
        };
        let failed = |error: MapError| TrafficError::kernel("maps", &error);
        let pin = |name: &'static str| {
            let map = MapData::from_pin(folder.path().join(name));
            map.map(|map| (name, map)).map_err(|error| TrafficError::kernel(name, &error))
        };
        Ok(Maps {
            classes: open("classes")?.try_into().map_err(failed)?,
            connections: open("connections")?.try_into().map_err(failed)?,
            paces: open("paces")?.try_into().map_err(failed)?,
            events: open("events")?.try_into().map_err(failed)?,
            counts: open("counts")?.try_into().map_err(failed)?,
            pins: NAMES.into_iter().map(pin).collect::<Result<_, _>>()?,
        })
    }

    /// Pins the maps again whose files were deleted, and returns how many. The programs and the agent keep maps without a file.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn repin(&self, folder: &Folder) -> Result<u64, TrafficError> {
        let mut count = 0;
        for (name, map) in self.pins.iter().filter(|(name, _)| !folder.has(name)) {
            map.pin(folder.path().join(name)).map_err(|error| TrafficError::kernel(name, &error))?;
            count += 1;
        }
        Ok(count)
    }

    /// The names of the maps' files.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.into_iter()
    }

    /// Whether a file of the folder is one of the maps.
    pub fn is_one(name: &str) -> bool {
        NAMES.contains(&name)
    }

    pub fn set_class(
        &mut self,
        application: u64,
        interface: u32,
        class: Option<Class>,
    ) -> Result<(), TrafficError> {
        let place = place(application, interface);
        let Some(class) = class else { return gone(self.classes.remove(&place), "classes") };
        let failed = |error: MapError| TrafficError::kernel("classes", &error);
        self.classes.insert(place, class.priority(), 0).map_err(failed)
    }

    /// Sets the class of an application at an interface if it is another one, and returns whether it was.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn restore_class(
        &mut self,
        application: u64,
        interface: u32,
        class: Option<Class>,
    ) -> Result<bool, TrafficError> {
        let found = match self.classes.get(&place(application, interface), 0) {
            Ok(priority) => Some(priority),
            Err(MapError::KeyNotFound) => None,
            Err(error) => return Err(TrafficError::kernel("classes", &error)),
        };
        if found == class.map(Class::priority) {
            return Ok(false);
        }
        self.set_class(application, interface, class)?;
        Ok(true)
    }

    fn keep_classes(&mut self, applications: &[u64], interfaces: &[u32]) -> Result<(), TrafficError> {
        let failed = |error: MapError| TrafficError::kernel("classes", &error);
        let wanted =
            |key: &Place| applications.iter().any(|&a| interfaces.iter().any(|&i| place(a, i) == *key));
        let keys: Vec<Place> = self.classes.keys().collect::<Result<_, _>>().map_err(failed)?;
        for key in keys.iter().filter(|key| !wanted(key)) {
            self.classes.remove(key).map_err(failed)?;
        }
        Ok(())
    }

    /// Removes the connections of all other applications.
    pub fn keep_connections(&mut self, applications: &[u64]) -> Result<(), TrafficError> {
        for (ends, connection) in self.connections()? {
            if !applications.contains(&connection.application.0) {
                gone(self.connections.remove(&ends.to_bytes()), "connections")?;
            }
        }
        Ok(())
    }

    pub fn connections(&self) -> Result<Vec<(Ends, Connection)>, TrafficError> {
        let failed = |error: MapError| TrafficError::kernel("connections", &error);
        let mut list = Vec::new();
        for entry in self.connections.iter() {
            match entry {
                Ok((ends, connection)) => list.push((Ends::parse(&ends), Connection::parse(&connection))),
                // The connection closed while the map was read.
                Err(MapError::KeyNotFound) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(list)
    }

    pub fn connection(&self, ends: Ends) -> Result<Option<Connection>, TrafficError> {
        match self.connections.get(&ends.to_bytes(), 0) {
            Ok(connection) => Ok(Some(Connection::parse(&connection))),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(TrafficError::kernel("connections", &error)),
        }
    }

    /// Sets a rate, in bytes per second, that ends at a time of the monotonic clock.
    pub fn set_pace(&mut self, ends: Ends, rate: u64, until: Duration) -> Result<(), TrafficError> {
        let failed = |error: MapError| TrafficError::kernel("paces", &error);
        let until = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        let mut pace = [0; 16];
        pace[..8].copy_from_slice(&rate.to_ne_bytes());
        pace[8..].copy_from_slice(&until.to_ne_bytes());
        self.paces.insert(ends.to_bytes(), pace, 0).map_err(failed)
    }

    pub fn free(&mut self, ends: Ends) -> Result<(), TrafficError> {
        gone(self.paces.remove(&ends.to_bytes()), "paces")
    }

    /// Removes the classes and pacing rates of all other applications and interfaces. Programs continue for a moment after their files are
    /// removed, and a connection keeps its pacing rate without a program. Returns the number of connections that still have a rate after
    /// a second.
    pub fn let_go(&mut self, applications: &[u64], interfaces: &[u32]) -> Result<usize, TrafficError> {
        self.keep_classes(applications, interfaces)?;
        let is_other = |connection: &Connection| !applications.contains(&connection.application.0);
        let started = Instant::now();
        loop {
            let mut left = 0;
            for (ends, connection) in self.connections()?.iter().filter(|(_, known)| is_other(known)) {
                self.free(*ends)?;
                left += usize::from(connection.pace.is_some());
            }
            if left == 0 || started.elapsed() > PATIENCE {
                return Ok(left);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn event(&mut self) -> Option<Event> {
        self.events.next().and_then(|record| Event::parse(&record))
    }

    pub fn counts(&self) -> Result<Counts, TrafficError> {
        let get = |index| self.counts.get(&index, 0).map_err(|error| TrafficError::kernel("counts", &error));
        Ok(Counts { lost: get(0)?, refused: get(1)? })
    }
}

/// Readable when there are events.
impl AsFd for Maps {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

fn place(application: u64, interface: u32) -> Place {
    let mut place = [0; 16];
    place[..8].copy_from_slice(&application.to_ne_bytes());
    place[8..12].copy_from_slice(&interface.to_ne_bytes());
    place
}

/// An entry that does not exist counts as removed.
pub(super) fn gone(removed: Result<(), MapError>, map: &str) -> Result<(), TrafficError> {
    match removed {
        Err(MapError::SyscallError(error)) if error.io_error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|error| TrafficError::kernel(map, &error)),
    }
}
