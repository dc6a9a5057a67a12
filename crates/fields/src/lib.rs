//! Reads the fields of input files, with errors that name the line, the field, the value and the expected value.
//!
//! - [`FileKind`] names a file of the wrong kind.
//! - [`read_file`] and [`read_text`] read a file.
//! - [`TableFields`] reads the keys of a TOML table. All readers of TOML files except that of sensitivity tables use it, so equal
//!   mistakes give equal messages.

pub mod congestion_control;

mod error;
mod file_kind;
mod input;
mod table_fields;

pub use error::{FileError, format_value};
pub use file_kind::FileKind;
pub use input::{SourceText, parse_toml, read_file, read_file_in_folder, read_text, referenced_files};
pub use table_fields::{TableFields, Value, expectation, read_versioned, to_toml_string, versioned_fields};
