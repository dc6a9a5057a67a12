//! The file of the audit log.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Permissions of a new file, before the umask.
const MODE: u32 = 0o640;

/// A file that lines are appended to.
#[derive(Debug)]
pub(super) struct AuditFile {
    path: PathBuf,
    file: File,
    /// Whether a failed write has left a line without its end.
    is_line_incomplete: bool,
}

impl AuditFile {
    /// Opens the file, or creates it.
    ///
    /// # Errors
    /// The file cannot be opened for appending.
    pub fn open(path: &Path) -> io::Result<AuditFile> {
        let mut file = AuditFile { path: path.to_owned(), file: open(path)?, is_line_incomplete: false };
        // A full disk may have cut the last line of an earlier coordinator. A file that cannot be read gets an empty line at most.
        file.is_line_incomplete = file.file.metadata()?.len() > 0 && last_byte(path) != Some(b'\n');
        Ok(file)
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends lines. If the file was renamed or removed, as programs that rotate logs do, the lines go to a new one. Returns the
    /// number of complete lines in the file, and the error that prevented further ones.
    pub fn append(&mut self, lines: &[u8]) -> (u64, io::Result<()>) {
        let mut written = 0;
        let result = self.reopen_if_replaced().and_then(|()| self.append_from(lines, &mut written));
        let complete = lines[..written].iter().filter(|&&byte| byte == b'\n').count();
        (complete as u64, result)
    }

    fn append_from(&mut self, lines: &[u8], written: &mut usize) -> io::Result<()> {
        if self.is_line_incomplete {
            self.file.write_all(b"\n")?;
            self.is_line_incomplete = false;
        }
        while *written < lines.len() {
            match self.file.write(&lines[*written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => *written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            self.is_line_incomplete = lines[*written - 1] != b'\n';
        }
        Ok(())
    }

    fn reopen_if_replaced(&mut self) -> io::Result<()> {
        let open_file = self.file.metadata()?;
        let is_same = fs::metadata(&self.path)
            .is_ok_and(|named| (named.dev(), named.ino()) == (open_file.dev(), open_file.ino()));
        if !is_same {
            (self.file, self.is_line_incomplete) = (open(&self.path)?, false);
        }
        Ok(())
    }
}

fn last_byte(path: &Path) -> Option<u8> {
    let mut file = File::open(path).ok()?;
    file.seek(SeekFrom::End(-1)).ok()?;
    let mut byte = [0];
    file.read_exact(&mut byte).ok()?;
    Some(byte[0])
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(MODE).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_after_a_rotation_are_in_a_new_file() {
        let folder = tempfile::tempdir().unwrap();
        let (path, rotated) = (folder.path().join("audit.jsonl"), folder.path().join("audit.jsonl.1"));
        let mut file = AuditFile::open(&path).unwrap();
        assert_eq!(file.append(b"1\n2\n").0, 2);
        fs::rename(&path, &rotated).unwrap();
        assert_eq!(file.append(b"3\n").0, 1);
        assert_eq!(fs::read(&rotated).unwrap(), b"1\n2\n");
        assert_eq!(fs::read(&path).unwrap(), b"3\n");
        assert_eq!(path.metadata().unwrap().mode() & 0o137, 0);
    }

    #[test]
    fn cut_line_of_an_earlier_process_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        fs::write(&path, "1\n{\"re").unwrap();
        assert_eq!(AuditFile::open(&path).unwrap().append(b"2\n").0, 1);
        assert_eq!(AuditFile::open(&path).unwrap().append(b"3\n").0, 1);
        assert_eq!(fs::read(&path).unwrap(), b"1\n{\"re\n2\n3\n");
    }

    #[test]
    fn failed_writes_are_reported_and_later_lines_are_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let mut file = AuditFile::open(&path).unwrap();
        let appendable = std::mem::replace(&mut file.file, File::open(&path).unwrap());
        let (complete, result) = file.append(b"1\n");
        assert!(complete == 0 && result.is_err(), "the file is open for reading only");
        (file.file, file.is_line_incomplete) = (appendable, true);
        assert_eq!(file.append(b"2\n").0, 1);
        assert_eq!(fs::read(&path).unwrap(), b"\n2\n");
        fs::remove_dir_all(folder.path()).unwrap();
        assert!(file.append(b"3\n").1.is_err());
    }
}
