//! Runs a program on all TCP sockets of the network namespace.

use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use aya::programs::Iter;
use aya::{Btf, Ebpf};

use super::TrafficError;
use super::program::{ApplicationLoader, LoadContext, find_program};

/// A program that looks at each socket, for which it takes the socket's lock.
#[derive(Clone)]
pub struct Sweep {
    bpf: Arc<Mutex<Ebpf>>,
    program: &'static str,
}

impl Sweep {
    /// Loads a program of an object, with the kernel's types.
    pub(super) fn load(bpf: Ebpf, program: &'static str, types: &Btf) -> Result<Sweep, TrafficError> {
        let to_error = |error: &dyn Error| TrafficError::kernel("the program that looks at sockets", error);
        let sweep = Sweep { bpf: Arc::new(Mutex::new(bpf)), program };
        let loaded = find_program::<Iter>(&mut sweep.lock(), program).load("tcp", types);
        loaded.map_err(|error| to_error(&error))?;
        Ok(sweep)
    }

    fn lock(&self) -> MutexGuard<'_, Ebpf> {
        self.bpf.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Runs the program once on each socket. Returns how many bytes it has printed.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn run(&self) -> Result<u64, TrafficError> {
        let to_error =
            |error: &dyn Error| TrafficError::kernel("the sockets of the network namespace", error);
        let mut bpf = self.lock();
        let program: &mut Iter = find_program(&mut bpf, self.program);
        let link =
            program.attach().and_then(|link| program.take_link(link)).map_err(|error| to_error(&error))?;
        let mut sockets = link.into_file().map_err(|error| to_error(&error))?;
        // The kernel runs the program while the file is read.
        io::copy(&mut sockets, &mut io::sink()).map_err(|error| to_error(&error))
    }
}

/// Ends the rates of connections whose entry was removed or has expired, also of idle ones.
///
/// # Errors
/// If the kernel refuses the program, which needs its types, CAP_PERFMON and Linux 5.16.
pub(super) fn release_connections(folder: &Path) -> Result<(), TrafficError> {
    let context = LoadContext::read()?;
    let no_types = || TrafficError::kernel("the kernel's types", &io::Error::other("not readable"));
    let types = context.types.as_ref().ok_or_else(no_types)?;
    let bpf = ApplicationLoader::new(folder, &context).load(&0, false)?;
    Sweep::load(bpf, "release", types)?.run().map(drop)
}

/// Loads the program that restores events of connections in the maps of a folder; none if the kernel refuses it.
pub(super) fn load_resume(folder: &Path, context: &LoadContext) -> Option<Sweep> {
    let bpf = ApplicationLoader::new(folder, context).load(&0, false).ok()?;
    Sweep::load(bpf, "resume", context.types.as_ref()?).ok()
}
