//! Attaches a BPF program that sets ECN marks at a port of the testbed, as a switch for DCTCP does.
//!
//! Many kernels lack the queueing disciplines that mark (RED and similar). This module needs BPF, and the kernel's types (BTF).

use std::fs;

use aya::{Ebpf, EbpfLoader, include_bytes_aligned};

use crate::queues::Interface;
use crate::traffic::{TrafficError, attach_egress};

static CONGESTION: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/congestion.o"));

/// The kernel's types (BTF).
const BTF_PATH: &str = "/sys/kernel/btf/vmlinux";

/// An interface whose packets are marked until this value is dropped.
#[derive(Debug)]
pub struct EcnMarker(#[expect(dead_code, reason = "dropping it detaches the program")] Ebpf);

impl EcnMarker {
    /// Marks packets that leave an interface of the calling thread's network namespace while its root queue holds `threshold` packets or
    /// more, if their senders support ECN.
    ///
    /// # Errors
    /// If the program was not built, or the kernel refuses it.
    pub fn attach(interface: &Interface, threshold: u32) -> Result<EcnMarker, TrafficError> {
        if CONGESTION.is_empty() {
            return Err(TrafficError::NotBuilt(env!("WEIR_BPF_LACKS")));
        }
        fs::metadata(BTF_PATH).map_err(|error| TrafficError::File { path: BTF_PATH.to_owned(), error })?;
        let mut loader = EbpfLoader::new();
        loader.override_global("THRESHOLD", &threshold, true);
        let loaded = loader.load(CONGESTION);
        let mut bpf = loaded.map_err(|error| TrafficError::kernel(&interface.to_string(), &error))?;
        attach_egress(&mut bpf, "congestion", interface)?;
        Ok(EcnMarker(bpf))
    }
}
