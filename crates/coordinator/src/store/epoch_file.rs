//! The epoch file next to a store: space that is reserved for the epoch, so that a coordinator can start on a full disk.
//!
//! A store needs free space to write, since redb never overwrites pages in use. The epoch file is created with its full length, and then
//! overwritten in place, which needs no space on most file systems. It has two slots. A write replaces the slot with the lower epoch, so a
//! crash during the write leaves the other one. An invalid file counts as absent: the store has the epoch too.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};

use super::{create_temporary, folder};

/// The distance of the slots in the file: a page, so that no write changes both.
const SLOT_BYTES: usize = 4096;

const MAGIC: &[u8; 8] = b"weirepo1";

/// The length of a slot's contents: the magic, the epoch (little-endian), and the start of their checksum.
const RECORD_BYTES: usize = 24;

/// The path of the epoch file of the store at `store`.
pub fn epoch_path(store: &Path) -> PathBuf {
    let mut path: OsString = store.into();
    path.push(".epoch");
    path.into()
}

fn encode(epoch: u64) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    record[..8].copy_from_slice(MAGIC);
    record[8..16].copy_from_slice(&epoch.to_le_bytes());
    let checksum = digest(&SHA256, &record[..16]);
    record[16..].copy_from_slice(&checksum.as_ref()[..8]);
    record
}

fn decode(record: &[u8]) -> Option<u64> {
    let epoch = u64::from_le_bytes(record.get(8..16)?.try_into().ok()?);
    (record.get(..RECORD_BYTES)? == encode(epoch)).then_some(epoch)
}

/// The epochs in the slots of a file.
fn slots(bytes: &[u8]) -> [Option<u64>; 2] {
    [0, SLOT_BYTES].map(|at| bytes.get(at..).and_then(decode))
}

/// The highest epoch in the file; `None` without a valid file.
pub fn read(path: &Path) -> Option<u64> {
    slots(&fs::read(path).ok()?).into_iter().flatten().max()
}

/// Writes an epoch, so that it is on the disk when the function returns.
///
/// # Errors
/// If the file cannot be written, or does not exist and cannot be created.
pub fn write(path: &Path, epoch: u64) -> io::Result<()> {
    match fs::read(path) {
        Ok(bytes) if bytes.len() == 2 * SLOT_BYTES => {
            let [first, second] = slots(&bytes);
            let slot = usize::from(first > second);
            let file = File::options().write(true).open(path)?;
            file.write_all_at(&encode(epoch), (slot * SLOT_BYTES) as u64)?;
            file.sync_data()
        }
        _ => create(path, epoch),
    }
}

fn create(path: &Path, epoch: u64) -> io::Result<()> {
    let mut bytes = vec![0; 2 * SLOT_BYTES];
    bytes[..RECORD_BYTES].copy_from_slice(&encode(epoch));
    let mut file = create_temporary(path)?;
    file.write_all(&bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    File::open(folder(path))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epoch_file_survives_a_torn_write_and_keeps_its_length() {
        let folder = tempfile::tempdir().unwrap();
        let path = epoch_path(&folder.path().join("weir.redb"));
        assert_eq!((path.file_name().unwrap().to_str(), read(&path)), (Some("weir.redb.epoch"), None));
        for epoch in [7, 8, 9, u64::MAX] {
            let before = read(&path);
            write(&path, epoch).unwrap();
            assert_eq!((read(&path), fs::metadata(&path).unwrap().len()), (Some(epoch), 8192));
            // The last write was interrupted: one of its bytes is missing.
            let written = fs::read(&path).unwrap();
            let slot = slots(&written).iter().position(|found| *found == Some(epoch)).unwrap();
            for at in 0..RECORD_BYTES {
                let mut torn = written.clone();
                torn[slot * SLOT_BYTES + at] ^= 1;
                fs::write(&path, torn).unwrap();
                assert_eq!(read(&path), before, "byte {at} of {epoch}");
            }
            fs::write(&path, &written).unwrap();
        }
        for bytes in [&b""[..], b"weirepo1", &[0; 8192]] {
            fs::write(&path, bytes).unwrap();
            assert_eq!(read(&path), None);
            write(&path, 5).unwrap();
            assert_eq!(read(&path), Some(5));
        }
    }
}
