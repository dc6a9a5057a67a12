//! The public coflow-benchmark trace, which is not part of the project.

use std::path::PathBuf;

/// Its path, if it exists: that of `WEIR_FB_TRACE`, or next to the project.
pub fn public_trace() -> Option<PathBuf> {
    let path = std::env::var_os("WEIR_FB_TRACE").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/FB2010-1Hr-150-0.txt")),
        PathBuf::from,
    );
    let found = path.is_file().then_some(path);
    if found.is_none() {
        println!("skipped: the public trace does not exist; WEIR_FB_TRACE sets its path");
    }
    found
}
