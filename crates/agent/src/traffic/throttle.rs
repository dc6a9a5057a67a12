//! What arrives of UDP, and limits of what is sent of it, at the interfaces (`bpf/throttle.c`).
//!
//! The maps have no files: they are there as long as the programs are, and the next agent begins with others.

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

/// `struct way`.
type Key = [u8; 12];

/// `struct limit`, `struct bucket`: two numbers each.
type Pair = [u8; 16];

/// Bytes that came by a way so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// By which.
    pub way: Way,
    /// How many.
    pub bytes: u64,
    /// When it was looked.
    pub at: Instant,
}

/// The programs at work.
pub struct Throttling {
    arrivals: HashMap<MapData, Key, u64>,
    limits: HashMap<MapData, Key, Pair>,
    buckets: HashMap<MapData, Key, Pair>,
}

/// Says whether the programs were built.
pub(super) fn is_built() -> bool {
    !THROTTLE.is_empty()
}

/// The names of an interface's programs in the folder.
pub(super) fn names(number: u32) -> [String; 2] {
    ["arrive", "limit"].map(|program| format!("{number}-{program}"))
}

impl Throttling {
    /// Puts the programs at interfaces, each with its number, and takes away those that were there.
    pub(super) fn start(
        folder: &Folder,
        places: &[(Interface, u32)],
    ) -> Result<(Throttling, Programs), TrafficError> {
        let mut programs = Programs::new();
        let classes = MAX_SERVICES as u32;
        let mut loader = EbpfLoader::new();
        // Without the kernel's own types, which these programs do not look at.
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

    /// What came by all ways that are known, in no order.
    ///
    /// # Errors
    /// If it cannot be read.
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

    /// Makes room where nothing comes any more. What comes anew counts from the beginning.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn forget(&mut self, way: Way) -> Result<(), TrafficError> {
        gone(self.arrivals.remove(&key(way)), "arrivals")
    }

    /// Limits what is sent by a way, for a while.
    ///
    /// # Errors
    /// If there are too many.
    pub fn limit(&mut self, way: Way, rate: Rate, lease: Duration) -> Result<(), TrafficError> {
        let key = key(way);
        let until = u64::try_from((now() + lease).as_nanos()).unwrap_or(u64::MAX);
        // A rate of 0 is no limit there.
        let rate = (rate.get() as u64).max(1);
        match self.buckets.get(&key, 0) {
            Ok(_) => {}
            Err(MapError::KeyNotFound) => put(&mut self.buckets, "buckets", key, [0, 0])?,
            Err(error) => return Err(TrafficError::kernel("buckets", &error)),
        }
        put(&mut self.limits, "limits", key, [rate, until])
    }

    /// Takes a limit back.
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

/// None if it is none: nobody writes such ones.
fn way(&[a, b, c, d, e, f, g, h, mark, ..]: &Key) -> Option<Way> {
    Some(Way { from: Ipv4Addr::new(a, b, c, d), to: Ipv4Addr::new(e, f, g, h), mark: Mark::new(mark)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_the_same_after_the_way_through_the_kernel() {
        let mark = Mark::new(63).unwrap();
        let known = Way { from: Ipv4Addr::new(10, 0, 0, 1), to: Ipv4Addr::new(10, 0, 1, 2), mark };
        assert_eq!(key(known), [10, 0, 0, 1, 10, 0, 1, 2, 63, 0, 0, 0]);
        assert_eq!(way(&key(known)), Some(known));
        assert_eq!(way(&[0; 12]), None);
        assert_eq!(way(&[64; 12]), None);
    }
}
