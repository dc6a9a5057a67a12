//! Ends the pacing rates of handed-over sockets with their lease, in the kernel: also if the agent and its watchdog are killed together,
//! as the processes of a container are.
//!
//! Each socket with a rate has a record with the rate that its program had set, and the lease. A program at the root cgroup
//! (`bpf/lease.c`) sets that rate again at the first acknowledgement after the end of the lease. [`Sweep::run`] lets the kernel call it
//! for new records, and ends the rates of idle sockets. Only sockets with a record are touched.
//!
//! A socket can also be paused while the lease lasts: a program at the root cgroup refuses its new data, so the data waits in the socket's
//! queue, and leaves as soon as the pause ends. Pacing would set the time of the next packet by the low rate of a waiting flow.
//!
//! The next agent has another lease. It takes over the sockets that programs hand to it; for others the earlier lease ends.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use aya::maps::{HashMap, Map, MapData, MapError, SkStorage};
use aya::programs::{CgroupAttachMode, CgroupSkb, CgroupSkbAttachType, ProgramError, SockOps};
use aya::{Btf, Ebpf, EbpfLoader, include_bytes_aligned};
use rustix::net::sockopt::socket_cookie;

use super::attachment::Attachment;
use super::cgroup::Cgroup;
use super::folder::{FolderKind, PinFolder};
use super::program::find_program;
use super::record::UNPACED;
use super::sweep::Sweep;
use super::{TrafficError, monotonic_now};

static LEASE: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/lease.o"));

/// The names of the programs at the root cgroup, and of their files in the folder.
const EXPIRE: &str = "expire";
const HOLD: &str = "hold";

/// The name of the program that looks at sockets.
const SWEEP: &str = "sweep";

/// `struct lease_record` of `bpf/lease.c`: the lease, the program's own rate, and whether the kernel calls `expire`.
type Record = [u8; 16];

/// `struct held_data` of `bpf/lease.c`, which begins with the bytes of refused packets.
type HeldData = [u64; 3];

/// The maps of `bpf/lease.c`: records by the cookies of sockets, the ends of leases, the leases of paused sockets, and their held data.
struct Maps {
    records: HashMap<MapData, u64, Record>,
    leases: HashMap<MapData, u64, u64>,
    pauses: SkStorage<MapData, u64>,
    held: SkStorage<MapData, HeldData>,
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
    can_pause: bool,
    _programs: [Attachment; 2],
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
        // The kernel accepts no flags for links, and always allows several at a cgroup.
        let mode = CgroupAttachMode::Single;
        let expire: &mut SockOps = find_program(&mut bpf, EXPIRE);
        expire.load().map_err(to_error)?;
        let link = expire.attach(&root.folder, mode).map_err(to_error)?;
        let expire = Attachment::pin(folder.path(), EXPIRE, expire.take_link(link).map_err(to_error)?)?;
        let hold: &mut CgroupSkb = find_program(&mut bpf, HOLD);
        hold.load().map_err(to_error)?;
        let link = hold.attach(&root.folder, CgroupSkbAttachType::Egress, mode).map_err(to_error)?;
        let hold = Attachment::pin(folder.path(), HOLD, hold.take_link(link).map_err(to_error)?)?;
        Ok(SocketLeases {
            maps: Maps::open(&folder)?,
            lease: nanoseconds(monotonic_now()),
            has_new_records: true,
            sweep: Sweep::load(bpf, SWEEP, &read_kernel_types()?)?,
            _programs: [expire, hold],
            folder,
            can_pause: allows_pauses(),
        })
    }

    /// Whether this network namespace lets connections wait for long enough.
    pub fn can_pause(&self) -> bool {
        self.can_pause
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

    /// Pauses a socket while the lease lasts: only acknowledgements and lost packets leave, and a packet of new data every 3 to 4.5 s,
    /// which keeps the connection alive.
    ///
    /// # Errors
    /// If this is not a socket, or the kernel has no memory.
    pub fn pause(&mut self, socket: &OwnedFd) -> Result<(), TrafficError> {
        let paused = self.maps.pauses.insert(socket, self.lease, 0);
        paused.map_err(|error| TrafficError::kernel("pauses", &error))
    }

    /// Ends the pause of a socket. Its data leaves at the next attempt to send.
    pub fn resume(&mut self, socket: &OwnedFd) {
        // The kernel removes the pauses of closed connections.
        let _ = self.maps.pauses.remove(socket);
    }

    /// The bytes that the kernel counts as sent by a socket, although a pause held them back.
    pub fn held_bytes(&self, socket: &OwnedFd) -> u64 {
        self.maps.held.get(socket, 0).map_or(0, |[bytes, ..]| bytes)
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
            if folder.is_current(FolderKind::Leases) {
                // Creates the maps that are missing.
                let sweep = Sweep::load(load(&folder)?, SWEEP, &read_kernel_types()?)?;
                Maps::open(&folder)?.end_leases(&sweep)?;
            }
            folder.remove()?;
        }
        Ok(had_any)
    }
}

fn read_kernel_types() -> Result<Btf, TrafficError> {
    Btf::from_sys_fs().map_err(|error| TrafficError::kernel("the kernel's types", &error))
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
            pauses: open("pauses")?.try_into().map_err(to_error)?,
            held: open("held")?.try_into().map_err(to_error)?,
        })
    }

    /// Ends all leases, and with them the rates of all records.
    fn end_leases(&mut self, sweep: &Sweep) -> Result<(), TrafficError> {
        let leases: Vec<u64> = self.leases.keys().filter_map(Result::ok).collect();
        leases.iter().for_each(|lease| drop(self.leases.remove(lease)));
        match self.records.keys().next() {
            Some(_) => sweep.run().map(drop),
            None => Ok(()),
        }
    }
}

/// Whether the kernel lets data of a connection wait unsent for several attempts, as RFC 1122 demands of it (4.2.3.5).
fn allows_pauses() -> bool {
    const MIN_ATTEMPTS: u32 = 8;
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_retries2");
    text.is_ok_and(|text| text.trim().parse().is_ok_and(|attempts: u32| attempts >= MIN_ATTEMPTS))
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
