//! Processes of this program, and agents among them.

use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use weir_client::Agent;

use crate::failure::Failure;

/// How long a process may take to be there.
const PATIENCE: Duration = Duration::from_secs(20);

/// A process that ends with this.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for an agent's Unix socket.
///
/// # Errors
/// If it does not come, or somebody asks to stop.
pub fn find(door: &Path, began: Instant) -> Result<Agent, Failure> {
    loop {
        match Agent::connect(door) {
            Ok(agent) => return Ok(agent),
            Err(error) => pause(began, &error.to_string())?,
        }
    }
}

/// Waits a moment for what is not there yet.
///
/// # Errors
/// If that has been long enough, or somebody asks to stop.
pub fn pause(began: Instant, why: &str) -> Result<(), Failure> {
    Failure::unless_asked()?;
    if began.elapsed() > PATIENCE {
        return Err(Failure::undone(format_args!("not within {} s: {why}", PATIENCE.as_secs())));
    }
    thread::sleep(Duration::from_millis(10));
    Ok(())
}
