//! Reads and writes the maps that the BPF programs and the agent share.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use aya::maps::{Array, HashMap, Map, MapData, MapError, RingBuf};
use weir_core::units::Rate;

use super::cgroup::TrafficClass;
use super::folder::PinFolder;
use super::record::{
    CONNECTION_BYTES, Connection, ConnectionEnds, ConnectionEvent, ENDS_BYTES, parse_own_rate, to_ipv6_octets,
};
use super::{ApplicationId, LossCounts, SocketRates, TrafficError};

/// A rate, and the time at which its lease ends.
type PacingEntry = [u8; 16];

/// A key of the map of starts: the application, and the address of the other host.
type StartKey = [u8; 24];

/// The maps of `bpf/application.c` and `bpf/interface.c`.
pub(super) struct Maps {
    applications: HashMap<MapData, u64, u8>,
    priorities: HashMap<MapData, u64, u32>,
    used_marks: HashMap<MapData, u32, u8>,
    marked_bytes: HashMap<MapData, [u32; 2], u64>,
    connections: HashMap<MapData, [u8; ENDS_BYTES], [u8; CONNECTION_BYTES]>,
    pacing_rates: HashMap<MapData, [u8; ENDS_BYTES], PacingEntry>,
    start_rates: HashMap<MapData, StartKey, PacingEntry>,
    events: RingBuf<MapData>,
    counts: Array<MapData, u64>,
    /// The same maps, to pin them again.
    map_data: Vec<(&'static str, MapData)>,
}

/// The names of the maps' files. The folder of an earlier version may lack some: load the programs before, which creates them.
const NAMES: [&str; 9] = [
    "applications",
    "priorities",
    "used_marks",
    "marked_bytes",
    "connections",
    "paces",
    "starts",
    "events",
    "counts",
];

impl Maps {
    pub fn open(folder: &PinFolder) -> Result<Maps, TrafficError> {
        let open = |name: &str| {
            let map = MapData::from_pin(folder.path().join(name)).and_then(Map::from_map_data);
            map.map_err(|error| TrafficError::kernel(name, &error))
        };
        let to_error = |error: MapError| TrafficError::kernel("maps", &error);
        let open_data = |name: &'static str| {
            let map = MapData::from_pin(folder.path().join(name));
            map.map(|map| (name, map)).map_err(|error| TrafficError::kernel(name, &error))
        };
        Ok(Maps {
            applications: open("applications")?.try_into().map_err(to_error)?,
            priorities: open("priorities")?.try_into().map_err(to_error)?,
            used_marks: open("used_marks")?.try_into().map_err(to_error)?,
            marked_bytes: open("marked_bytes")?.try_into().map_err(to_error)?,
            connections: open("connections")?.try_into().map_err(to_error)?,
            pacing_rates: open("paces")?.try_into().map_err(to_error)?,
            start_rates: open("starts")?.try_into().map_err(to_error)?,
            events: open("events")?.try_into().map_err(to_error)?,
            counts: open("counts")?.try_into().map_err(to_error)?,
            map_data: NAMES.into_iter().map(open_data).collect::<Result<_, _>>()?,
        })
    }

    /// Pins the maps again whose files were deleted, and returns how many. The programs and the agent keep maps without a file.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn repin(&self, folder: &PinFolder) -> Result<u64, TrafficError> {
        let mut count = 0;
        for (name, map) in self.map_data.iter().filter(|(name, _)| !folder.contains(name)) {
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
    pub fn is_map_name(name: &str) -> bool {
        NAMES.contains(&name)
    }

    /// Lets the programs of an application follow new connections. `depth` is that of its cgroup, or 0 for a port. Returns whether this
    /// changes the map.
    pub fn enable_application(&mut self, application: u64, depth: u8) -> Result<bool, TrafficError> {
        let to_error = |error: MapError| TrafficError::kernel("applications", &error);
        match self.applications.get(&application, 0) {
            Ok(found) if found == depth => return Ok(false),
            Ok(_) | Err(MapError::KeyNotFound) => {}
            Err(error) => return Err(to_error(error)),
        }
        self.applications.insert(application, depth, 0).map_err(to_error)?;
        Ok(true)
    }

    /// Prevents the programs of all other applications from following new connections, except for those that are running now. The kernel
    /// detaches a program some time after its file is removed, and until then the program would add a removed connection again.
    pub fn retain_applications(&mut self, applications: &[u64]) -> Result<(), TrafficError> {
        let to_error = |error: MapError| TrafficError::kernel("applications", &error);
        let known: Vec<u64> = self.applications.keys().collect::<Result<_, _>>().map_err(to_error)?;
        for application in known.iter().filter(|known| !applications.contains(known)) {
            ignore_missing(self.applications.remove(application), "applications")?;
        }
        Ok(())
    }

    pub fn set_class(&mut self, application: u64, class: Option<TrafficClass>) -> Result<(), TrafficError> {
        let Some(class) = class else {
            return ignore_missing(self.priorities.remove(&application), "priorities");
        };
        let to_error = |error: MapError| TrafficError::kernel("priorities", &error);
        self.priorities.insert(application, class.priority(), 0).map_err(to_error)
    }

    /// Sets the class of an application if it is another one, and returns whether it was.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn restore_class(
        &mut self,
        application: u64,
        class: Option<TrafficClass>,
    ) -> Result<bool, TrafficError> {
        if self.class(application)? == class {
            return Ok(false);
        }
        self.set_class(application, class)?;
        Ok(true)
    }

    /// The class of an application.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn class(&self, application: u64) -> Result<Option<TrafficClass>, TrafficError> {
        match self.priorities.get(&application, 0) {
            Ok(priority) => Ok(TrafficClass::from_priority(priority)),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(TrafficError::kernel("priorities", &error)),
        }
    }

    /// Removes the classes of all other applications.
    pub fn retain_classes(&mut self, applications: &[u64]) -> Result<(), TrafficError> {
        let to_error = |error: MapError| TrafficError::kernel("priorities", &error);
        let known: Vec<u64> = self.priorities.keys().collect::<Result<_, _>>().map_err(to_error)?;
        for application in known.iter().filter(|known| !applications.contains(known)) {
            ignore_missing(self.priorities.remove(application), "priorities")?;
        }
        Ok(())
    }

    /// Sets the marks that programs of pods cannot set themselves, and returns how many entries changed.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn set_used_marks(&mut self, marks: &BTreeSet<u32>) -> Result<u64, TrafficError> {
        let to_error = |error: MapError| TrafficError::kernel("used_marks", &error);
        let known: BTreeSet<u32> = self.used_marks.keys().collect::<Result<_, _>>().map_err(to_error)?;
        for mark in known.difference(marks) {
            ignore_missing(self.used_marks.remove(mark), "used_marks")?;
        }
        for &mark in marks.difference(&known) {
            self.used_marks.insert(mark, 1, 0).map_err(to_error)?;
        }
        Ok(known.symmetric_difference(marks).count() as u64)
    }

    /// The bytes that have passed the program at interfaces, by number and mark.
    ///
    /// # Errors
    /// If the map cannot be read.
    pub fn marked_bytes(&self) -> Result<BTreeMap<u32, BTreeMap<u8, u64>>, TrafficError> {
        let mut by_interface: BTreeMap<u32, BTreeMap<u8, u64>> = BTreeMap::new();
        for entry in self.marked_bytes.iter() {
            let ([interface, mark], bytes) =
                entry.map_err(|error| TrafficError::kernel("marked_bytes", &error))?;
            if let Ok(mark) = u8::try_from(mark) {
                by_interface.entry(interface).or_default().insert(mark, bytes);
            }
        }
        Ok(by_interface)
    }

    /// Removes the counts of all other interfaces.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn retain_marked_bytes(&mut self, interfaces: &[u32]) -> Result<(), TrafficError> {
        let to_error = |error: MapError| TrafficError::kernel("marked_bytes", &error);
        let keys: Vec<[u32; 2]> = self.marked_bytes.keys().collect::<Result<_, _>>().map_err(to_error)?;
        for key in keys.iter().filter(|[interface, _]| !interfaces.contains(interface)) {
            ignore_missing(self.marked_bytes.remove(key), "marked_bytes")?;
        }
        Ok(())
    }

    /// Removes the connections of all other applications.
    pub fn retain_connections(&mut self, applications: &[u64]) -> Result<(), TrafficError> {
        for (ends, connection) in self.connections()? {
            if !applications.contains(&connection.application.0) {
                ignore_missing(self.connections.remove(&ends.to_bytes()), "connections")?;
            }
        }
        Ok(())
    }

    pub fn connections(&self) -> Result<Vec<(ConnectionEnds, Connection)>, TrafficError> {
        let to_error = |error: MapError| TrafficError::kernel("connections", &error);
        // The kernel starts again from the first entry if the last one that was read has been removed, so entries can occur twice.
        let mut by_ends = BTreeMap::new();
        for entry in self.connections.iter() {
            match entry {
                Ok((ends, connection)) => {
                    by_ends.insert(ConnectionEnds::parse(&ends), Connection::parse(&connection));
                }
                // The connection closed while the map was read.
                Err(MapError::KeyNotFound) => {}
                Err(error) => return Err(to_error(error)),
            }
        }
        Ok(by_ends.into_iter().collect())
    }

    pub fn connection(&self, ends: ConnectionEnds) -> Result<Option<Connection>, TrafficError> {
        match self.connections.get(&ends.to_bytes(), 0) {
            Ok(connection) => Ok(Some(Connection::parse(&connection))),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(TrafficError::kernel("connections", &error)),
        }
    }

    /// The pacing rates of a connection; none if it is not paced, or belongs to another socket than the one with this number.
    pub fn socket_rates(&self, ends: ConnectionEnds, socket: u64) -> Option<SocketRates> {
        let record = self.connections.get(&ends.to_bytes(), 0).ok()?;
        let connection = Connection::parse(&record);
        let ordered = connection.pacing_rate.filter(|_| connection.socket == socket)?;
        let own = parse_own_rate(&record);
        Some(SocketRates { applied: own.min(u64::from(ordered)), own })
    }

    /// Sets a rate, in bytes per second, that ends at a time of the monotonic clock.
    pub fn set_pacing_rate(
        &mut self,
        ends: ConnectionEnds,
        rate: u64,
        lease_end: Duration,
    ) -> Result<(), TrafficError> {
        let to_error = |error: MapError| TrafficError::kernel("paces", &error);
        self.pacing_rates.insert(ends.to_bytes(), pacing_entry(rate, lease_end), 0).map_err(to_error)
    }

    pub fn remove_pacing_rate(&mut self, ends: ConnectionEnds) -> Result<(), TrafficError> {
        ignore_missing(self.pacing_rates.remove(&ends.to_bytes()), "paces")
    }

    /// Sets the rate of each connection of an application to an address that has no other one, up to a time of the monotonic clock.
    pub fn set_start_rate(
        &mut self,
        application: ApplicationId,
        remote: IpAddr,
        rate: Rate,
        lease_end: Duration,
    ) -> Result<(), TrafficError> {
        let to_error = |error: MapError| TrafficError::kernel("starts", &error);
        let entry = pacing_entry(rate.get() as u64, lease_end);
        self.start_rates.insert(start_key(application, remote), entry, 0).map_err(to_error)
    }

    pub fn remove_start_rate(
        &mut self,
        application: ApplicationId,
        remote: IpAddr,
    ) -> Result<(), TrafficError> {
        ignore_missing(self.start_rates.remove(&start_key(application, remote)), "starts")
    }

    /// Removes the start rates of all other applications.
    fn retain_start_rates(&mut self, applications: &[u64]) -> Result<(), TrafficError> {
        let to_error = |error: MapError| TrafficError::kernel("starts", &error);
        let is_kept = |key: &StartKey| applications.iter().any(|kept| key.starts_with(&kept.to_ne_bytes()));
        let keys: Vec<StartKey> = self.start_rates.keys().collect::<Result<_, _>>().map_err(to_error)?;
        for key in keys.iter().filter(|key| !is_kept(key)) {
            ignore_missing(self.start_rates.remove(key), "starts")?;
        }
        Ok(())
    }

    /// Removes the pacing rates of the connections of all other applications, also those of new connections. Returns how many of these
    /// connections still have their rate: they lose it at the next acknowledgement.
    pub fn retain_rates(&mut self, applications: &[u64]) -> Result<usize, TrafficError> {
        self.retain_start_rates(applications)?;
        let mut still_paced = 0;
        for (ends, connection) in self.connections()? {
            if !applications.contains(&connection.application.0) {
                self.remove_pacing_rate(ends)?;
                still_paced += usize::from(connection.pacing_rate.is_some());
            }
        }
        Ok(still_paced)
    }

    pub fn next_event(&mut self) -> Option<ConnectionEvent> {
        self.events.next().and_then(|record| ConnectionEvent::parse(&record))
    }

    pub fn loss_counts(&self) -> Result<LossCounts, TrafficError> {
        let get = |index| self.counts.get(&index, 0).map_err(|error| TrafficError::kernel("counts", &error));
        Ok(LossCounts { lost_events: get(0)?, tracking_failures: get(1)? })
    }
}

/// Readable when there are events.
impl AsFd for Maps {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

fn pacing_entry(rate: u64, lease_end: Duration) -> PacingEntry {
    let lease_end_ns = u64::try_from(lease_end.as_nanos()).unwrap_or(u64::MAX);
    let mut entry = [0; 16];
    entry[..8].copy_from_slice(&rate.to_ne_bytes());
    entry[8..].copy_from_slice(&lease_end_ns.to_ne_bytes());
    entry
}

fn start_key(application: ApplicationId, remote: IpAddr) -> StartKey {
    let mut key = [0; 24];
    key[..8].copy_from_slice(&application.0.to_ne_bytes());
    key[8..].copy_from_slice(&to_ipv6_octets(remote));
    key
}

/// An entry that does not exist counts as removed.
pub(super) fn ignore_missing(removed: Result<(), MapError>, map: &str) -> Result<(), TrafficError> {
    match removed {
        Err(MapError::SyscallError(error)) if error.io_error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|error| TrafficError::kernel(map, &error)),
    }
}
