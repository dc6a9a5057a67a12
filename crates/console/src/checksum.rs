//! Checksums of input files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::failure::Failure;

/// The SHA-256 checksum of a file, in hexadecimal digits.
///
/// # Errors
/// If the file cannot be read.
pub fn compute(path: &Path) -> Result<String, Failure> {
    let read = || {
        let (mut file, mut digest) = (File::open(path)?, Sha256::new());
        let mut part = vec![0; 1 << 16];
        loop {
            match file.read(&mut part)? {
                0 => return Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
                length => digest.update(&part[..length]),
            }
        }
    };
    read().map_err(|error: std::io::Error| Failure::input(format_args!("{}: {error}", path.display())))
}
