//! SHA-256 checksums in hexadecimal digits.

use std::fmt::{self, Debug, Write as _};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha2::digest::Output;
use sha2::{Digest, Sha256};

use crate::failure::Failure;

/// The checksum of a file.
///
/// # Errors
/// If the file cannot be read.
pub fn hash_file(path: &Path) -> Result<String, Failure> {
    let read = || {
        let (mut file, mut digest) = (File::open(path)?, Sha256::new());
        let mut part = vec![0; 1 << 16];
        loop {
            match file.read(&mut part)? {
                0 => return Ok(to_hex(&digest.finalize())),
                length => digest.update(&part[..length]),
            }
        }
    };
    read().map_err(|error: std::io::Error| Failure::input(format_args!("{}: {error}", path.display())))
}

/// The checksum of bytes.
pub fn hash_bytes(bytes: &[u8]) -> String {
    to_hex(&Sha256::digest(bytes))
}

/// The checksum of a value's description for debugging, which has all its fields. Comparable within one version of the program.
pub fn hash_debug_text(value: &impl Debug) -> String {
    struct Hasher(Sha256);
    impl fmt::Write for Hasher {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.update(text.as_bytes());
            Ok(())
        }
    }
    let mut hasher = Hasher(Sha256::new());
    write!(hasher, "{value:?}").expect("a hasher accepts all text");
    to_hex(&hasher.0.finalize())
}

fn to_hex(sum: &Output<Sha256>) -> String {
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}
