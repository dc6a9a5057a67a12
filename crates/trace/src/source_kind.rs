//! What a file of coflows contains.

use std::path::Path;
use weir_fields::FileKind;

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
    /// The kind that the file at `path` seems to have. A TOML file without a known key is read as jobs. Files of all other kinds are
    /// read as traces, which names them.
    pub fn detect(path: &Path) -> SourceKind {
        match FileKind::detect_file(path) {
            Some(FileKind::Services) => SourceKind::Services,
            Some(FileKind::Jobs) => SourceKind::Jobs,
            Some(_) => SourceKind::Trace,
            None if path.is_file() && path.extension().is_some_and(|extension| extension == "toml") => {
                SourceKind::Jobs
            }
            None => SourceKind::Trace,
        }
    }
}
