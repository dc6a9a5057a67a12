//! Handles Ctrl-C and SIGTERM. They end the process at once until [`record_signals`] is called. From then on they are recorded,
//! and work stops at its next check, such as the next schedule or the next bytes of a file.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Once, OnceLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use weir_sim::{Observer, Snapshot};

static SIGNAL: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

fn received_signal() -> &'static Arc<AtomicUsize> {
    SIGNAL.get_or_init(Arc::default)
}

/// Records SIGINT and SIGTERM from now on instead of ending the process, so that it can report its progress and clean up. If the system
/// does not allow it, the signals still end the process.
pub fn record_signals() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        for number in [SIGINT, SIGTERM] {
            let _ = flag::register_usize(number, Arc::clone(received_signal()), number as usize);
        }
    });
}

/// Ends the process at once when a second SIGINT or SIGTERM arrives, with [`exit_code`] of that signal.
pub fn exit_on_second_signal() {
    let is_second = Arc::new(AtomicBool::new(false));
    for number in [SIGINT, SIGTERM] {
        // The actions of a signal run in this order.
        let _ = flag::register_conditional_shutdown(number, 128 + number, Arc::clone(&is_second));
    }
    for number in [SIGINT, SIGTERM] {
        let _ = flag::register(number, Arc::clone(&is_second));
    }
}

/// A flag that SIGHUP sets from now on, instead of ending the process: a request to reload the configuration.
pub fn record_reload_signals() -> Arc<AtomicBool> {
    let received = Arc::new(AtomicBool::new(false));
    // If the system does not allow it, the signal still ends the process.
    let _ = flag::register(SIGHUP, Arc::clone(&received));
    received
}

/// Whether a signal has asked to stop.
pub fn is_requested() -> bool {
    received_signal().load(Ordering::Relaxed) != 0
}

/// Whether SIGTERM has asked to stop, as a service manager does.
pub fn is_terminated() -> bool {
    received_signal().load(Ordering::Relaxed) == SIGTERM as usize
}

/// Forgets a signal, so that the results of an interrupted command can be written. A further signal counts again.
pub fn forget_signal() {
    received_signal().store(0, Ordering::Relaxed);
}

/// The exit code of a process that a signal stopped, as shells expect it.
pub fn exit_code() -> u8 {
    128 + received_signal().load(Ordering::Relaxed) as u8
}

/// Stops a replay after a signal.
pub struct InterruptObserver;

impl Observer for InterruptObserver {
    fn on_schedule(&mut self, _: &Snapshot<'_>) -> bool {
        !is_requested()
    }
}
