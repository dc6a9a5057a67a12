//! Runs `weir ctl links`.

use serde_json::json;
use weir_client::Coordinator;
use weir_console::failure::Failure;

use crate::args::LinkNames;

/// The path of the links.
pub(super) const PATH: &str = "/v1/links";

/// Columns of `weir ctl links`.
pub(super) const LINKS: &[&str] =
    &["name", "ends", "bytes_per_second", "reverse_bytes_per_second", "state", "reasons", "since", "by"];

/// Takes links down, or ends that.
pub(super) fn set(coordinator: &Coordinator, names: &LinkNames, state: &str) -> Result<(), Failure> {
    coordinator.put(PATH, &json!({ "links": names.links, "state": state }))?;
    Ok(())
}
