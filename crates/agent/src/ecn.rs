//! Attaches a BPF program that sets ECN marks at a port of the testbed, as a switch for DCTCP does, and measures the port's queues.
//!
//! Many kernels lack the queueing disciplines that mark (RED and similar). This module needs BPF, and the kernel's types (BTF).

use std::fs;

use aya::maps::PerCpuArray;
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};

use crate::queues::Interface;
use crate::traffic::{TrafficError, attach_egress};

static CONGESTION: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/congestion.o"));

/// The kernel's types (BTF).
const BTF_PATH: &str = "/sys/kernel/btf/vmlinux";

/// The map with the number of packets, and the sum and the maximum of the queue lengths that they found.
const LENGTHS: &str = "lengths";

/// An interface whose packets are marked and counted until this value is dropped.
#[derive(Debug)]
pub struct EcnMarker(Ebpf);

/// The lengths of an interface's queues, in packets, as arriving packets found them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QueueLengths {
    /// The mean over all packets; 0 without packets.
    pub mean: f64,
    /// The maximum.
    pub max: u64,
}

impl EcnMarker {
    /// Marks packets that leave an interface of the calling thread's network namespace while its root queue holds `threshold` packets or
    /// more, if their senders support ECN. Without a threshold, packets are only counted.
    ///
    /// # Errors
    /// If the program was not built, or the kernel refuses it.
    pub fn attach(interface: &Interface, threshold: Option<u32>) -> Result<EcnMarker, TrafficError> {
        if CONGESTION.is_empty() {
            return Err(TrafficError::NotBuilt(env!("WEIR_BPF_LACKS")));
        }
        fs::metadata(BTF_PATH).map_err(|error| TrafficError::File { path: BTF_PATH.to_owned(), error })?;
        let mut loader = EbpfLoader::new();
        // No queue is as long as the maximum.
        let threshold = threshold.unwrap_or(u32::MAX);
        loader.override_global("THRESHOLD", &threshold, true);
        let loaded = loader.load(CONGESTION);
        let mut bpf = loaded.map_err(|error| TrafficError::kernel(&interface.to_string(), &error))?;
        attach_egress(&mut bpf, "congestion", interface)?;
        Ok(EcnMarker(bpf))
    }

    /// The lengths of the queues since the program was attached.
    ///
    /// # Errors
    /// If the kernel does not return them.
    pub fn queue_lengths(&self) -> Result<QueueLengths, TrafficError> {
        let map = self.0.map(LENGTHS).expect("the program has this map");
        let read = PerCpuArray::<_, [u64; 3]>::try_from(map).and_then(|map| map.get(&0, 0));
        let by_processor = read.map_err(|error| TrafficError::kernel(LENGTHS, &error))?;
        let (mut packets, mut sum, mut longest) = (0, 0, 0);
        for &[count, total, max] in by_processor.iter() {
            packets += count;
            sum += total;
            longest = longest.max(max);
        }
        Ok(QueueLengths { mean: sum as f64 / packets.max(1) as f64, max: longest })
    }
}
