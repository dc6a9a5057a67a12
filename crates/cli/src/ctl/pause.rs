//! Runs `weir ctl pause` and `weir ctl resume`.

use serde_json::json;
use weir_client::Coordinator;
use weir_console::failure::Failure;

use crate::args::{Pause, PauseTargets};

/// The path of the pauses.
const PATH: &str = "/v1/pause";

/// Columns of `weir ctl paused`.
pub(super) const PAUSES: &[&str] = &["target", "name", "mode", "queues", "since", "by"];

/// Pauses hosts or services, or sets them to shadow mode.
pub(super) fn pause(coordinator: &Coordinator, pause: &Pause) -> Result<(), Failure> {
    let mode = if pause.shadow { "shadow" } else { "paused" };
    set(coordinator, mode, &pause.targets, pause.queues)
}

/// Resumes hosts or services.
pub(super) fn resume(coordinator: &Coordinator, targets: &PauseTargets) -> Result<(), Failure> {
    set(coordinator, "enforced", targets, false)
}

fn set(coordinator: &Coordinator, mode: &str, targets: &PauseTargets, queues: bool) -> Result<(), Failure> {
    let PauseTargets { hosts, services, all } = targets;
    let body = json!({ "mode": mode, "all": all, "hosts": hosts, "services": services, "queues": queues });
    coordinator.put(PATH, &body)?;
    Ok(())
}
