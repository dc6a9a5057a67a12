//! Ctrl-C and termination: noted when they come, heeded at the next schedule.

use std::io;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

static SIGNAL: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

fn signal() -> &'static Arc<AtomicUsize> {
    SIGNAL.get_or_init(Arc::default)
}

/// From now on, signals that ask to stop are noted instead of ending the process at once, so that it can tidy up.
///
/// # Errors
/// If the system does not allow it.
pub fn watch() -> io::Result<()> {
    for number in [SIGINT, SIGTERM] {
        flag::register_usize(number, Arc::clone(signal()), number as usize)?;
    }
    Ok(())
}

/// Whether to stop.
pub fn asked() -> bool {
    signal().load(Ordering::Relaxed) != 0
}

/// What shells expect of a process that a signal stopped.
pub fn exit_code() -> u8 {
    128 + signal().load(Ordering::Relaxed) as u8
}
