//! Ctrl-C and termination. They end the process at once, as ever, until there is work that heeds them: then they are noted when
//! they come, and heeded at the next schedule or the next bytes of a file.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Once, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

static SIGNAL: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

fn signal() -> &'static Arc<AtomicUsize> {
    SIGNAL.get_or_init(Arc::default)
}

/// From now on, signals that ask to stop are noted instead of ending the process at once, so that it can say how far it came and
/// tidy up. Where the system does not allow it, they still end it.
pub fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        for number in [SIGINT, SIGTERM] {
            let _ = flag::register_usize(number, Arc::clone(signal()), number as usize);
        }
    });
}

/// Whether to stop.
pub fn asked() -> bool {
    signal().load(Ordering::Relaxed) != 0
}

/// What shells expect of a process that a signal stopped.
pub fn exit_code() -> u8 {
    128 + signal().load(Ordering::Relaxed) as u8
}
