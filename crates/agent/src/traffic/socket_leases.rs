//! Ends the pacing rates of handed-over sockets with their lease, in the kernel: also if the agent and its watchdog are killed together,
//! as the processes of a container are.
//!
//! Each socket with a rate has a record with the rate that its program had set, and the lease. A program at the root cgroup
//! (`bpf/lease.c`) sets that rate again at the first acknowledgement after the end of the lease. [`Sweep::run`] lets the kernel call it
//! for new records, and ends the rates of idle sockets. Only sockets with a record are touched.
//!
//! The next agent has another lease. It takes over the sockets that programs hand to it; for others the earlier lease ends.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use aya::maps::{HashMap, Map, MapData, MapError};
use aya::programs::{CgroupAttachMode, ProgramError, SockOps};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use rustix::net::sockopt::socket_cookie;

use super::attachment::Attachment;
use super::cgroup::Cgroup;
use super::folder::{FolderKind, PinFolder};
use super::program::find_program;
use super::record::UNPACED;
use super::sweep::Sweep;
use super::{TrafficError, monotonic_now};

static LEASE: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/lease.o"));

/// The name of the program at the root cgroup, and of its file in the folder.
const EXPIRE: &str = "expire";

/// The name of the program that looks at sockets.
const SWEEP: &str = "sweep";

/// `struct lease_record` of `bpf/lease.c`: the lease, the program's own rate, and whether the kernel calls `expire`.
type Record = [u8; 16];

/// The maps of `bpf/lease.c`: records by the cookies of sockets, and the ends of leases.
struct Maps {
    records: HashMap<MapData, u64, Record>,
    leases: HashMap<MapData, u64, u64>,
}

/// The records of the sockets of one agent.
pub struct SocketLeases {
    maps: Maps,
    /// The number of this agent's lease: the time of its start.
    lease: u64,
    /// Whether a sweep has yet to see new records.
    has_new_records: bool,
    sweep: Sweep,
    folder: PinFolder,
    _expire: Attachment,
}

impl SocketLeases {
    /// Loads the programs, and takes over the records of an earlier agent in this network namespace.
    ///
    /// # Errors
    /// If the programs were not built, another agent runs, the root of all cgroups is not visible, or the kernel refuses. It needs BTF,
    /// CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON.
    pub fn start() -> Result<SocketLeases, TrafficError> {
        if LEASE.is_empty() {
            return Err(TrafficError::NotBuilt(env!("WEIR_BPF_LACKS")));
        }
        let root = Cgroup::open_root()?;
        let folder = PinFolder::create(FolderKind::Leases)?;
        let mut bpf = load(&folder)?;
        let to_error = |error: ProgramError| TrafficError::kernel("the root cgroup", &error);
        let expire: &mut SockOps = find_program(&mut bpf, EXPIRE);
        expire.load().map_err(to_error)?;
        // The kernel accepts no flags for links, and always allows several at a cgroup.
        let link = expire.attach(&root.folder, CgroupAttachMode::Single).map_err(to_error)?;
        let link = expire.take_link(link).map_err(to_error)?;
        Ok(SocketLeases {
            maps: Maps::open(&folder)?,
            lease: nanoseconds(monotonic_now()),
            has_new_records: true,
            sweep: Sweep::load(bpf, SWEEP)?,
            _expire: Attachment::pin(&folder, EXPIRE, link)?,
            folder,
        })
    }

    /// Records a socket, before it gets a rate. Returns the program's own rate, in bytes per second: that of an earlier record, or
    /// `current_rate` if it is higher, since no order raises the rate of a socket above its program's.
    ///
    /// # Errors
    /// If the map is full, or this is not a socket.
    pub fn add(&mut self, socket: BorrowedFd<'_>, current_rate: u64) -> io::Result<u64> {
        let cookie = socket_cookie(socket)?;
        let earlier = self.maps.records.get(&cookie, 0).ok().map(|record| parse_record(&record));
        let current_rate = u32::try_from(current_rate).unwrap_or(UNPACED);
        let (earlier_rate, is_armed) = earlier.unwrap_or((0, false));
        let own_rate = current_rate.max(earlier_rate);
        let record = encode_record(self.lease, own_rate, is_armed);
        self.maps.records.insert(cookie, record, 0).map_err(io::Error::other)?;
        self.has_new_records |= !is_armed;
        Ok(if own_rate == UNPACED { u64::MAX } else { u64::from(own_rate) })
    }

    /// Removes the record of a socket, whose own rate is set again.
    pub fn remove(&mut self, socket: BorrowedFd<'_>) {
        if let Ok(cookie) = socket_cookie(socket) {
            // The kernel removes the records of closed connections.
            let _ = self.maps.records.remove(&cookie);
        }
    }

    /// Renews the lease, until a time of the monotonic clock.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn renew(&mut self, end: Duration) -> Result<(), TrafficError> {
        let inserted = self.maps.leases.insert(self.lease, nanoseconds(end), 0);
        inserted.map_err(|error| TrafficError::kernel("leases", &error))
    }

    /// The sweep that is necessary now, if any: for new records, or since the lease of an earlier agent has ended.
    pub fn take_sweep(&mut self) -> Option<Sweep> {
        let (own, now) = (self.lease, nanoseconds(monotonic_now()));
        let has_ended = |(lease, end): (u64, u64)| (lease != own && end <= now).then_some(lease);
        let ended: Vec<u64> =
            self.maps.leases.iter().filter_map(|entry| entry.ok().and_then(has_ended)).collect();
        ended.iter().for_each(|lease| drop(self.maps.leases.remove(lease)));
        let is_necessary = std::mem::take(&mut self.has_new_records) || !ended.is_empty();
        is_necessary.then(|| self.sweep.clone())
    }

    /// Removes the programs and maps. The agent has removed the rates of its sockets.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub fn stop(mut self) -> Result<(), TrafficError> {
        self.maps.end_leases(&self.sweep)?;
        self.folder.remove()
    }

    /// Ends the rates that earlier agents of this network namespace have left, and removes their programs and maps. Returns whether there
    /// were any.
    ///
    /// # Errors
    /// If an agent runs, or a program, map or file cannot be removed.
    pub(super) fn cleanup() -> Result<bool, TrafficError> {
        let folders = PinFolder::open_existing(FolderKind::Leases, None)?;
        let had_any = !folders.is_empty();
        for folder in folders {
            // Another version's records are not known. Its program ends their rates until its folder is removed.
            if folder.is_current(FolderKind::Leases)
                && let Ok(mut maps) = Maps::open(&folder)
            {
                maps.end_leases(&Sweep::load(load(&folder)?, SWEEP)?)?;
            }
            folder.remove()?;
        }
        Ok(had_any)
    }
}

fn load(folder: &PinFolder) -> Result<Ebpf, TrafficError> {
    let mut loader = EbpfLoader::new();
    loader.default_map_pin_directory(folder.path());
    loader.load(LEASE).map_err(|error| TrafficError::kernel("the programs of leases", &error))
}

impl Maps {
    fn open(folder: &PinFolder) -> Result<Maps, TrafficError> {
        let open = |name: &str| {
            let map = MapData::from_pin(folder.path().join(name)).and_then(Map::from_map_data);
            map.map_err(|error| TrafficError::kernel(name, &error))
        };
        let to_error = |error: MapError| TrafficError::kernel("maps", &error);
        Ok(Maps {
            records: open("records")?.try_into().map_err(to_error)?,
            leases: open("leases")?.try_into().map_err(to_error)?,
        })
    }

    /// Ends all leases, and with them the rates of all records.
    fn end_leases(&mut self, sweep: &Sweep) -> Result<(), TrafficError> {
        let leases: Vec<u64> = self.leases.keys().filter_map(Result::ok).collect();
        leases.iter().for_each(|lease| drop(self.leases.remove(lease)));
        match self.records.keys().next() {
            Some(_) => sweep.run(),
            None => Ok(()),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn encode_record(lease: u64, own_rate: u32, is_armed: bool) -> Record {
    let mut record = [0; 16];
    record[..8].copy_from_slice(&lease.to_ne_bytes());
    record[8..12].copy_from_slice(&own_rate.to_ne_bytes());
    record[12..].copy_from_slice(&u32::from(is_armed).to_ne_bytes());
    record
}

/// The program's own rate, and whether the kernel calls `expire` for the socket.
fn parse_record(record: &Record) -> (u32, bool) {
    let [own_rate, is_armed] =
        [8, 12].map(|at| u32::from_ne_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]));
    (own_rate, is_armed != 0)
}
