//! Reads a network: a topology, or regions with the links between them.

use std::path::Path;

use weir_core::model::topology::CableEvent;
use weir_core::model::{Topology, WideArea};
use weir_fields::{FileError, FileKind, SourceText};

use crate::{topology, wide_area};

/// A network, in the format that its file has.
#[derive(Debug, Clone, PartialEq)]
pub enum NetworkFile {
    /// A file in [the topology format](topology), and the events of its cables.
    Topology(Topology, Vec<CableEvent>),
    /// A file in [the wide-area format](wide_area).
    WideArea(WideArea),
}

impl NetworkFile {
    /// Reads the network at `path`; `-` is the standard input. A file without the version key of the wide-area format is read as a
    /// topology.
    ///
    /// # Errors
    /// [`FileError::Io`] if the file cannot be read; [`FileError::Field`] for the first invalid field.
    pub fn read(path: &Path) -> Result<NetworkFile, FileError> {
        let (text, name) = NetworkFile::read_text(path)?;
        NetworkFile::parse(&text, &name)
    }

    /// Reads the text of the network at `path`, and its name for errors; `-` is the standard input.
    ///
    /// # Errors
    /// If the file cannot be read, is not UTF-8 or is too long.
    pub fn read_text(path: &Path) -> Result<(String, String), FileError> {
        weir_fields::read_file(path, |input, name| {
            Ok((weir_fields::read_text(input, name, topology::MAX_FILE_BYTES)?, name.to_owned()))
        })
    }

    /// The network of a text, which errors call `name`.
    ///
    /// # Errors
    /// For the first invalid field.
    pub fn parse(text: &str, name: &str) -> Result<NetworkFile, FileError> {
        let accepted = [FileKind::Fabric, FileKind::Regions];
        FileKind::check(text.as_bytes(), name, &accepted, "a fabric or regions")?;
        let table = weir_fields::parse_toml(SourceText { file: name, text })?;
        let input = text.as_bytes();
        if table.get_ref().contains_key(FileKind::Regions.key()) {
            wide_area::read_from(input, name).map(NetworkFile::WideArea)
        } else {
            let (topology, events) = topology::read_with_events(input, name)?;
            Ok(NetworkFile::Topology(topology, events))
        }
    }
}
