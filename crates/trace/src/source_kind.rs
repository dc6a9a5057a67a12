//! What a file of coflows contains, by its name and its first lines.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::{jobs, scenario};

/// The length of the start of a file that is searched, in bytes.
const START_BYTES: u64 = 1 << 16;

/// A kind of file with coflows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceKind {
    /// A trace in any format.
    Trace,
    /// Jobs ([`crate::jobs`]).
    Jobs,
    /// Services ([`crate::scenario`]).
    Services,
}

impl SourceKind {
    /// The kind that the file at `path` seems to have: one of its first lines begins with the key of a version, or it is another TOML
    /// file, which is read as jobs. The standard input, `-`, and pipes can be read only once, so they are traces.
    pub fn detect(path: &Path) -> SourceKind {
        if !path.is_file() {
            return SourceKind::Trace;
        }
        let mut start = Vec::new();
        if let Ok(file) = File::open(path) {
            // An error of reading is reported by the reader of the file.
            let _ = file.take(START_BYTES).read_to_end(&mut start);
        }
        let has_key = |key: &str| {
            start.split(|&byte| byte == b'\n').any(|line| line.trim_ascii_start().starts_with(key.as_bytes()))
        };
        match () {
            () if has_key(scenario::MAGIC) => SourceKind::Services,
            () if has_key(jobs::MAGIC) || path.extension().is_some_and(|extension| extension == "toml") => {
                SourceKind::Jobs
            }
            () => SourceKind::Trace,
        }
    }
}
