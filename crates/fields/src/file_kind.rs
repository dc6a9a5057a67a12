//! What a file contains, by its first lines, so that a file of the wrong kind is named.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::FileError;

/// The length of the start of a file that is searched, in bytes.
const START_BYTES: u64 = 1 << 16;

/// A kind of input file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A trace in any format.
    Trace,
    /// Jobs.
    Jobs,
    /// Services.
    Services,
    /// A network.
    Fabric,
    /// Regions.
    Regions,
    /// A policy tree.
    Tree,
    /// Measurements of incast.
    Incast,
    /// A sensitivity table.
    Sensitivities,
    /// The model of `weir predict`.
    Predictor,
    /// The configuration of a coordinator.
    Coordinator,
}

/// The kinds that a line after comments identifies.
const KEYED: [FileKind; 9] = [
    FileKind::Trace,
    FileKind::Jobs,
    FileKind::Services,
    FileKind::Fabric,
    FileKind::Regions,
    FileKind::Tree,
    FileKind::Predictor,
    FileKind::Coordinator,
    FileKind::Sensitivities,
];

impl FileKind {
    /// The start of the first line after comments; for most kinds, the key of the format's version.
    pub const fn key(self) -> &'static str {
        match self {
            FileKind::Trace => "weir-trace",
            FileKind::Jobs => "weir-jobs",
            FileKind::Services => "weir-scenario",
            FileKind::Fabric => "weir-fabric",
            FileKind::Regions => "weir-wide-area",
            FileKind::Tree => "weir-tree",
            FileKind::Incast => "buffer_packets",
            FileKind::Sensitivities => "[[application]]",
            FileKind::Predictor => "weir-predictor",
            FileKind::Coordinator => "weir-serve",
        }
    }

    /// The kind of the file at `path`, if it is known. The standard input, `-`, and pipes can be read only once, so their kind
    /// is not.
    pub fn detect_file(path: &Path) -> Option<FileKind> {
        if !path.is_file() {
            return None;
        }
        let mut start = Vec::new();
        // An error of reading is reported by the reader of the file.
        let _ = File::open(path).ok()?.take(START_BYTES).read_to_end(&mut start);
        FileKind::detect_text(&start)
    }

    /// The kind of a file that starts with this text, if it is known.
    fn detect_text(text: &[u8]) -> Option<FileKind> {
        let mut lines = text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
        let first = lines.clone().next().unwrap_or_default();
        let is_number = |field: &[u8]| !field.is_empty() && field.iter().all(u8::is_ascii_digit);
        let fields = || first.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
        if fields().count() == 2 && fields().all(is_number) {
            return Some(FileKind::Trace);
        }
        if first.starts_with(FileKind::Incast.key().as_bytes()) {
            return Some(FileKind::Incast);
        }
        lines.find_map(|line| KEYED.into_iter().find(|kind| line.starts_with(kind.key().as_bytes())))
    }

    /// The kind, as a noun.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            FileKind::Trace => "a trace",
            FileKind::Jobs => "a file of jobs",
            FileKind::Services => "a scenario of services",
            FileKind::Fabric => "a fabric",
            FileKind::Regions => "a file of regions",
            FileKind::Tree => "a policy tree",
            FileKind::Incast => "a file of incast measurements",
            FileKind::Sensitivities => "a sensitivity table",
            FileKind::Predictor => "a model of `weir predict`",
            FileKind::Coordinator => "a coordinator's configuration",
        }
    }

    /// How to use a file of this kind.
    fn usage(self) -> &'static str {
        match self {
            FileKind::Trace | FileKind::Jobs => "pass it as SOURCE to weir sim, compare, sweep or explain",
            FileKind::Services => {
                "pass it as SOURCE to weir sim, compare, sweep or explain, or to weir share"
            }
            FileKind::Fabric | FileKind::Regions => "pass it with --fabric",
            FileKind::Tree => "pass it as a policy: tree:FILE",
            FileKind::Incast => "pass it with --incast, or to weir predict train",
            FileKind::Sensitivities => "pass it to weir saba weights, or name it in a policy tree or in jobs",
            FileKind::Predictor => "pass it to weir predict connections",
            FileKind::Coordinator => "pass it with weir serve --config",
        }
    }

    /// As [`FileKind::check`], for the file at `path`.
    ///
    /// # Errors
    /// If the file has another kind.
    pub fn check_file(path: &Path, accepted: &[FileKind], expected: &'static str) -> Result<(), FileError> {
        FileKind::detect_file(path)
            .map_or(Ok(()), |kind| kind.accept(&path.display().to_string(), accepted, expected))
    }

    /// Refuses a text of another kind than the `accepted` ones. A text of no known kind passes: its reader names the fault.
    ///
    /// # Errors
    /// If the text has another kind.
    pub fn check(
        text: &[u8],
        file: &str,
        accepted: &[FileKind],
        expected: &'static str,
    ) -> Result<(), FileError> {
        let kind = FileKind::detect_text(&text[..text.len().min(START_BYTES as usize)]);
        kind.map_or(Ok(()), |kind| kind.accept(file, accepted, expected))
    }

    fn accept(self, file: &str, accepted: &[FileKind], expected: &'static str) -> Result<(), FileError> {
        if accepted.contains(&self) {
            return Ok(());
        }
        let (file, found, usage) = (file.to_owned(), self.noun(), self.usage());
        Err(FileError::WrongKind { file, found, expected, usage })
    }
}
