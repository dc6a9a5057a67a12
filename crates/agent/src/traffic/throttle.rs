//! Counts UDP that arrives, and limits UDP that is sent, by BPF programs at the interfaces (`bpf/throttle.c`).
//!
//! The maps have no files: they exist as long as the programs, and the next agent creates new ones.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use aya::maps::{HashMap, MapData, MapError};
use aya::programs::TcAttachType;
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use weir_core::units::Rate;
use weir_proto::{Mark, Way};

use super::attached::{Attached, Programs};
use super::cgroup::FIRST;
use super::folder::Folder;
use super::maps::gone;
use super::program::{self, at};
use super::{TrafficError, now};
use crate::htb::MAX_SERVICES;
use crate::queues::Interface;

static THROTTLE: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/throttle.o"));

/// The kernel's `struct way`.
type Key = [u8; 12];

/// The kernel's `struct limit` and `struct bucket`: two numbers each.
type Pair = [u8; 16];

/// The bytes of a UDP flow ([`Way`]) that have arrived so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// The flow.
    pub way: Way,
    /// The number of bytes.
    pub bytes: u64,
    /// When the count was read.
    pub at: Instant,
}

/// The maps of the attached programs.
pub struct Throttling {
    arrivals: HashMap<MapData, Key, u64>,
    limits: HashMap<MapData, Key, Pair>,
    buckets: HashMap<MapData, Key, Pair>,
}

/// Whether the programs were built.
pub(super) fn is_built() -> bool {
    !THROTTLE.is_empty()
}

/// The file names of an interface's programs in the folder.
pub(super) fn names(number: u32) -> [String; 2] {
    ["arrive", "limit"].map(|program| format!("{number}-{program}"))
}

impl Throttling {
    /// Attaches the programs to interfaces, each with its number, in place of earlier ones.
    pub(super) fn start(
        folder: &Folder,
        places: &[(Interface, u32)],
    ) -> Result<(Throttling, Programs), TrafficError> {
        let mut programs = Programs::new();
        let classes = MAX_SERVICES as u32;
        let mut loader = EbpfLoader::new();
        // The programs do not use the kernel's own types, so BTF is not loaded.
        loader.btf(None);
        loader.override_global("FIRST", &FIRST, true).override_global("CLASSES", &classes, true);
        let loaded = loader.load(THROTTLE);
        let mut bpf = loaded.map_err(|error| TrafficError::kernel("the programs that throttle", &error))?;
        for (name, place) in [("arrive", TcAttachType::Ingress), ("limit", TcAttachType::Egress)] {
            program::load(&mut bpf, name)?;
            for (interface, number) in places {
                let (program, link) = at(&mut bpf, name, interface, place)?;
                let link = program.take_link(link);
                let link = link.map_err(|error| TrafficError::kernel(&interface.to_string(), &error))?;
                let name = format!("{number}-{name}");
                let attached = Attached::pin(folder, &name, link)?;
                programs.insert(name, attached);
            }
        }
        let (arrivals, limits) = (map(&mut bpf, "arrivals")?, map(&mut bpf, "limits")?);
        Ok((Throttling { arrivals, limits, buckets: map(&mut bpf, "buckets")? }, programs))
    }

    /// The bytes that have arrived, by flow, in no order.
    ///
    /// # Errors
    /// If the map cannot be read.
    pub fn arrived(&self) -> Result<Vec<Arrived>, TrafficError> {
        let mut list = Vec::new();
        for key in self.arrivals.keys() {
            let bytes = key.and_then(|key| Ok((key, self.arrivals.get(&key, 0)?)));
            let at = Instant::now();
            match bytes {
                Ok((key, bytes)) => list.extend(way(&key).map(|way| Arrived { way, bytes, at })),
                Err(MapError::KeyNotFound) => {}
                Err(error) => return Err(TrafficError::kernel("arrivals", &error)),
            }
        }
        Ok(list)
    }

    /// Removes the count of a flow that has ended. Its next packet starts a new count at zero.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn forget(&mut self, way: Way) -> Result<(), TrafficError> {
        gone(self.arrivals.remove(&key(way)), "arrivals")
    }

    /// Limits the rate of a flow for a lease.
    ///
    /// # Errors
    /// If the map is full.
    pub fn limit(&mut self, way: Way, rate: Rate, lease: Duration) -> Result<(), TrafficError> {
        let key = key(way);
        let until = u64::try_from((now() + lease).as_nanos()).unwrap_or(u64::MAX);
        // The program treats a rate of 0 as no limit.
        let rate = (rate.get() as u64).max(1);
        match self.buckets.get(&key, 0) {
            Ok(_) => {}
            Err(MapError::KeyNotFound) => put(&mut self.buckets, "buckets", key, [0, 0])?,
            Err(error) => return Err(TrafficError::kernel("buckets", &error)),
        }
        put(&mut self.limits, "limits", key, [rate, until])
    }

    /// Removes the limit of a flow.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn free(&mut self, way: Way) -> Result<(), TrafficError> {
        gone(self.limits.remove(&key(way)), "limits")?;
        gone(self.buckets.remove(&key(way)), "buckets")
    }
}

fn map<V: aya::Pod>(bpf: &mut Ebpf, name: &str) -> Result<HashMap<MapData, Key, V>, TrafficError> {
    let map = bpf.take_map(name).expect("the object that this crate embeds has a map of this name");
    map.try_into().map_err(|error: MapError| TrafficError::kernel(name, &error))
}

fn put(
    map: &mut HashMap<MapData, Key, Pair>,
    name: &str,
    key: Key,
    [first, second]: [u64; 2],
) -> Result<(), TrafficError> {
    let mut pair = [0; 16];
    pair[..8].copy_from_slice(&first.to_ne_bytes());
    pair[8..].copy_from_slice(&second.to_ne_bytes());
    map.insert(key, pair, 0).map_err(|error| TrafficError::kernel(name, &error))
}

fn key(way: Way) -> Key {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&way.from.octets());
    key[4..8].copy_from_slice(&way.to.octets());
    key[8] = way.mark.get();
    key
}

/// None if the key is malformed, which the programs never write.
fn way(&[a, b, c, d, e, f, g, h, mark, ..]: &Key) -> Option<Way> {
    Some(Way { from: Ipv4Addr::new(a, b, c, d), to: Ipv4Addr::new(e, f, g, h), mark: Mark::new(mark)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn udp_flow_keys_survive_encoding() {
        let mark = Mark::new(63).unwrap();
        let known = Way { from: Ipv4Addr::new(10, 0, 0, 1), to: Ipv4Addr::new(10, 0, 1, 2), mark };
        assert_eq!(key(known), [10, 0, 0, 1, 10, 0, 1, 2, 63, 0, 0, 0]);
        assert_eq!(way(&key(known)), Some(known));
        assert_eq!(way(&[0; 12]), None);
        assert_eq!(way(&[64; 12]), None);
    }
}
