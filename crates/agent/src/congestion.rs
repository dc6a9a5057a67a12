//! Marks of congestion (ECN), as switches of a network for DCTCP give them, at a port of the testbed's.
//!
//! The kernel's own queues that mark (RED and its kin) are often not built; this needs programs in the kernel and its types (BTF).

use std::fs;

use aya::{Ebpf, EbpfLoader, include_bytes_aligned};

use crate::queues::Interface;
use crate::traffic::{TrafficError, at_egress};

static CONGESTION: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/congestion.o"));

/// The kernel's types.
const TYPES: &str = "/sys/kernel/btf/vmlinux";

/// An interface whose packets are marked, as long as this lives.
#[derive(Debug)]
pub struct Marks(#[expect(dead_code, reason = "what it holds ends with it")] Ebpf);

impl Marks {
    /// Marks packets that leave an interface of the calling thread's network namespace and find `threshold` or more in its queues, if
    /// their senders understand marks.
    ///
    /// # Errors
    /// If the program was not built, or the kernel refuses it.
    pub fn from(interface: &Interface, threshold: u32) -> Result<Marks, TrafficError> {
        if CONGESTION.is_empty() {
            return Err(TrafficError::NotBuilt(env!("WEIR_BPF_LACKS")));
        }
        fs::metadata(TYPES).map_err(|error| TrafficError::File { path: TYPES.to_owned(), error })?;
        let mut loader = EbpfLoader::new();
        loader.override_global("THRESHOLD", &threshold, true);
        let loaded = loader.load(CONGESTION);
        let mut bpf = loaded.map_err(|error| TrafficError::kernel(&interface.to_string(), &error))?;
        at_egress(&mut bpf, "congestion", interface)?;
        Ok(Marks(bpf))
    }
}
