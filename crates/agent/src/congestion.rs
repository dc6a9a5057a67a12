//! Marks of congestion (ECN), as switches of a network for DCTCP give them, at a port of the testbed's.
//!
//! The kernel's own queues that mark (RED and its kin) are often not built; this needs programs in the kernel and its types (BTF).

use std::fs;

use aya::programs::links::LinkOrder;
use aya::programs::tc::TcAttachOptions;
use aya::programs::{ProgramError, SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};

use crate::queues::Interface;
use crate::traffic::TrafficError;

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
        let place = format!("marks of congestion at {interface}");
        fs::metadata(TYPES).map_err(|error| TrafficError::File { path: TYPES.to_owned(), error })?;
        let mut loader = EbpfLoader::new();
        loader.override_global("THRESHOLD", &threshold, true);
        let mut bpf = loader.load(CONGESTION).map_err(|error| TrafficError::kernel(&place, &error))?;
        let failed = |error: ProgramError| TrafficError::kernel(&place, &error);
        let program = bpf.program_mut("congestion").expect("it was compiled with this");
        let program: &mut SchedClassifier = program.try_into().expect("it is a classifier");
        program.load().map_err(failed)?;
        let order = TcAttachOptions::TcxOrder(LinkOrder::default());
        program.attach_with_options(&interface.to_string(), TcAttachType::Egress, order).map_err(failed)?;
        Ok(Marks(bpf))
    }
}
