//! Counts UDP that arrives or is sent, and limits UDP that is sent, by BPF programs at the interfaces (`bpf/throttle.c`).
//!
//! The programs stay attached when the agent is killed. Their maps have no files, so the next agent cannot open them: it attaches
//! new programs with new maps.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use aya::maps::{HashMap, MapData, MapError};
use aya::programs::TcAttachType;
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use weir_core::units::Rate;
use weir_proto::{Mark, UdpControl, UdpFlow};

use super::attachment::{Attachment, Programs};
use super::cgroup::FIRST_PRIORITY;
use super::folder::PinFolder;
use super::maps::ignore_missing;
use super::program::{self, attach_classifier};
use super::record::to_ipv6_octets;
use super::{TrafficError, monotonic_now};
use crate::htb::MAX_SERVICES;
use crate::queues::Interface;

static THROTTLE: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/throttle.o"));

/// `struct udp_flow` of `bpf/throttle.c`.
type FlowKeyBytes = [u8; 36];

/// `struct limit` or `struct bucket` of `bpf/throttle.c`: two numbers each.
type PairBytes = [u8; 16];

/// The bytes of a UDP flow ([`UdpFlow`]) that have arrived, or that programs have sent, so far ([`UdpControl`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpByteCount {
    /// The flow.
    pub flow: UdpFlow,
    /// The number of bytes.
    pub bytes: u64,
    /// When the count was read.
    pub time: Instant,
}

/// The maps of the attached programs.
pub struct ThrottleMaps {
    control: UdpControl,
    byte_counts: HashMap<MapData, FlowKeyBytes, u64>,
    limits: HashMap<MapData, FlowKeyBytes, PairBytes>,
    buckets: HashMap<MapData, FlowKeyBytes, PairBytes>,
    /// Keys in network byte order.
    tunnel_ports: HashMap<MapData, u16, u8>,
    /// The ports in this map.
    present_ports: BTreeSet<u16>,
}

/// Whether the programs were built.
pub(super) fn is_built() -> bool {
    !THROTTLE.is_empty()
}

/// The file names of an interface's programs in the folder.
pub(super) fn throttle_program_names(index: u32) -> [String; 2] {
    ["arrive", "limit"].map(|program| format!("{index}-{program}"))
}

impl ThrottleMaps {
    /// Attaches the programs to interfaces, each with its number, in place of earlier ones.
    pub(super) fn start(
        folder: &PinFolder,
        interfaces: &[(Interface, u32)],
        control: UdpControl,
    ) -> Result<(ThrottleMaps, Programs), TrafficError> {
        let mut programs = Programs::new();
        let (classes, count_sent) = (MAX_SERVICES as u32, u32::from(control == UdpControl::Allocation));
        let mut loader = EbpfLoader::new();
        // The programs do not use the kernel's own types, so BTF is not loaded.
        loader.btf(None);
        loader.override_global("FIRST", &FIRST_PRIORITY, true).override_global("CLASSES", &classes, true);
        loader.override_global("COUNT_SENT", &count_sent, true);
        let loaded = loader.load(THROTTLE);
        let mut bpf = loaded.map_err(|error| TrafficError::kernel("the programs that throttle", &error))?;
        for (name, attach_type) in [("arrive", TcAttachType::Ingress), ("limit", TcAttachType::Egress)] {
            program::load_classifier(&mut bpf, name)?;
            for (interface, index) in interfaces {
                let (program, link) = attach_classifier(&mut bpf, name, interface, attach_type)?;
                let link = program.take_link(link);
                let link = link.map_err(|error| TrafficError::kernel(&interface.to_string(), &error))?;
                let name = format!("{index}-{name}");
                let attached = Attachment::pin(folder.path(), &name, link)?;
                programs.insert(name, attached);
            }
        }
        let maps = ThrottleMaps {
            control,
            byte_counts: take_map(&mut bpf, "bytes")?,
            limits: take_map(&mut bpf, "limits")?,
            buckets: take_map(&mut bpf, "buckets")?,
            tunnel_ports: take_map(&mut bpf, "tunnel_ports")?,
            present_ports: BTreeSet::new(),
        };
        Ok((maps, programs))
    }

    /// Which bytes count.
    pub fn control(&self) -> UdpControl {
        self.control
    }

    /// The bytes that count, by flow, in no order.
    ///
    /// # Errors
    /// If the map cannot be read.
    pub fn byte_counts(&self) -> Result<Vec<UdpByteCount>, TrafficError> {
        let mut list = Vec::new();
        for key in self.byte_counts.keys() {
            let entry = key.and_then(|key| Ok((key, self.byte_counts.get(&key, 0)?)));
            let time = Instant::now();
            match entry {
                Ok((key, bytes)) => {
                    list.extend(decode_flow(&key).map(|flow| UdpByteCount { flow, bytes, time }))
                }
                Err(MapError::KeyNotFound) => {}
                Err(error) => return Err(TrafficError::kernel("bytes", &error)),
            }
        }
        Ok(list)
    }

    /// Removes the count of a flow that has ended. Its next packet starts a new count at zero.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn remove_byte_count(&mut self, flow: UdpFlow) -> Result<(), TrafficError> {
        ignore_missing(self.byte_counts.remove(&encode_flow(flow)), "bytes")
    }

    /// Sets the ports of tunnels, whose packets neither count nor have a limit.
    ///
    /// # Errors
    /// If the map is full: 1,024 ports.
    pub fn set_tunnel_ports(&mut self, ports: &BTreeSet<u16>) -> Result<(), TrafficError> {
        for port in &self.present_ports - ports {
            ignore_missing(self.tunnel_ports.remove(&port.to_be()), "tunnel_ports")?;
            self.present_ports.remove(&port);
        }
        for port in ports - &self.present_ports {
            let inserted = self.tunnel_ports.insert(port.to_be(), 1, 0);
            inserted.map_err(|error| TrafficError::kernel("tunnel_ports", &error))?;
            self.present_ports.insert(port);
        }
        Ok(())
    }

    /// Limits the rate of a flow for a lease.
    ///
    /// # Errors
    /// If the map is full.
    pub fn set_limit(&mut self, flow: UdpFlow, rate: Rate, lease: Duration) -> Result<(), TrafficError> {
        let key = encode_flow(flow);
        let lease_end_ns = u64::try_from((monotonic_now() + lease).as_nanos()).unwrap_or(u64::MAX);
        // The program treats a rate of 0 as no limit.
        let rate = (rate.get() as u64).max(1);
        match self.buckets.get(&key, 0) {
            Ok(_) => {}
            Err(MapError::KeyNotFound) => insert_pair(&mut self.buckets, "buckets", key, [0, 0])?,
            Err(error) => return Err(TrafficError::kernel("buckets", &error)),
        }
        insert_pair(&mut self.limits, "limits", key, [rate, lease_end_ns])
    }

    /// Removes the limit of a flow.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn remove_limit(&mut self, flow: UdpFlow) -> Result<(), TrafficError> {
        ignore_missing(self.limits.remove(&encode_flow(flow)), "limits")?;
        ignore_missing(self.buckets.remove(&encode_flow(flow)), "buckets")
    }
}

fn take_map<K: aya::Pod, V: aya::Pod>(
    bpf: &mut Ebpf,
    name: &str,
) -> Result<HashMap<MapData, K, V>, TrafficError> {
    let map = bpf.take_map(name).expect("the object that this crate embeds has a map of this name");
    map.try_into().map_err(|error: MapError| TrafficError::kernel(name, &error))
}

fn insert_pair(
    map: &mut HashMap<MapData, FlowKeyBytes, PairBytes>,
    name: &str,
    key: FlowKeyBytes,
    [first, second]: [u64; 2],
) -> Result<(), TrafficError> {
    let mut pair = [0; 16];
    pair[..8].copy_from_slice(&first.to_ne_bytes());
    pair[8..].copy_from_slice(&second.to_ne_bytes());
    map.insert(key, pair, 0).map_err(|error| TrafficError::kernel(name, &error))
}

fn encode_flow(flow: UdpFlow) -> FlowKeyBytes {
    let mut key = [0; 36];
    key[..16].copy_from_slice(&to_ipv6_octets(flow.src));
    key[16..32].copy_from_slice(&to_ipv6_octets(flow.dst));
    key[32] = flow.mark.get();
    key
}

/// None if the key is malformed, which the programs never write.
fn decode_flow(key: &FlowKeyBytes) -> Option<UdpFlow> {
    let ([src, dst], &[mark, ..]) = key.as_chunks::<16>() else { return None };
    let [src, dst] = [src, dst].map(|&address| Ipv6Addr::from(address).to_canonical());
    Some(UdpFlow { src, dst, mark: Mark::new(mark)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn udp_flow_keys_survive_encoding() {
        let mark = Mark::new(63).unwrap();
        let flow =
            |src: &str, dst: &str| UdpFlow { src: src.parse().unwrap(), dst: dst.parse().unwrap(), mark };
        let (ipv4, ipv6) = (flow("10.0.0.1", "10.0.1.2"), flow("fd00::1", "fd00::2"));
        let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
        let expected = [&mapped[..], &[10, 0, 0, 1], &mapped, &[10, 0, 1, 2], &[63, 0, 0, 0]].concat();
        assert_eq!(encode_flow(ipv4)[..], expected);
        for flow in [ipv4, ipv6] {
            assert_eq!(decode_flow(&encode_flow(flow)), Some(flow));
        }
        assert_eq!(decode_flow(&[0; 36]), None);
        assert_eq!(decode_flow(&[64; 36]), None);
    }
}
