//! Location of the public coflow-benchmark trace, which is not part of the repository.

use std::path::PathBuf;

/// Path of the trace, if it exists: from `WEIR_FB_TRACE`, or next to the repository.
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
