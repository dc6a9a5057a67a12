//! Outputs: files that are there in full or not at all, and the standard output.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::failure::Failure;
use crate::interrupt;

/// A file that appears under its name when it is complete, and not before.
///
/// It is written under another name beside it (`.weir-*`), from its first bytes on and not while they are worked out. What
/// cannot be tidied up after, as `kill -9` or a power cut, leaves that file only in the moment of writing.
pub struct Pending {
    target: PathBuf,
    file: Destination,
}

enum Destination {
    /// Written beside the target, then renamed; nothing until there is something to write.
    Renamed(Option<BufWriter<NamedTempFile>>),
    /// A device or a pipe, which has no name to take over.
    Direct(BufWriter<fs::File>),
    /// The standard output. If that is a file, what else is written there has to go on where this ends.
    Stdout(BufWriter<io::Stdout>),
}

impl Pending {
    /// Begins the file `path`. Failing here, before the work, is better than after it.
    ///
    /// # Errors
    /// If there can be no such file.
    pub fn begin(path: &Path) -> Result<Pending, Failure> {
        Pending::open(path).map_err(|error| Failure::output(path, &error))
    }

    fn open(path: &Path) -> io::Result<Pending> {
        if is_stdout(path) {
            let file = Destination::Stdout(BufWriter::new(io::stdout()));
            return Ok(Pending { target: PathBuf::from("standard output"), file });
        }
        if is_device(path) {
            // It may be a file that others write to as well: what they wrote stays.
            let file = fs::OpenOptions::new().append(true).open(path)?;
            return Ok(Pending { target: path.to_owned(), file: Destination::Direct(BufWriter::new(file)) });
        }
        // A link stays one: what it points at is replaced.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if target.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        // Only to see whether there can be one.
        drop(beside(&target)?);
        Ok(Pending { target, file: Destination::Renamed(None) })
    }

    /// Where its bytes go.
    fn buffer(&mut self) -> io::Result<&mut dyn Write> {
        if interrupt::asked() {
            return Err(io::Error::other("interrupted"));
        }
        match &mut self.file {
            Destination::Direct(buffer) => Ok(buffer),
            Destination::Stdout(buffer) => Ok(buffer),
            Destination::Renamed(Some(buffer)) => Ok(buffer),
            Destination::Renamed(none) => {
                interrupt::watch();
                Ok(none.insert(BufWriter::new(beside(&self.target)?)))
            }
        }
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// If the last of it cannot be written. Then the name is as it was.
    pub fn finish(mut self) -> Result<(), Failure> {
        let stdout = self.is_stdout();
        // Also a file without bytes gets its name.
        let done = self.flush().and_then(|()| match self.file {
            Destination::Renamed(Some(buffer)) => {
                let temp = buffer.into_inner().map_err(io::IntoInnerError::into_error)?;
                temp.persist(&self.target).map(drop).map_err(|error| error.error)
            }
            _ => Ok(()),
        });
        done.map_err(|error| wrong(&self.target, stdout, &error))
    }

    /// Writes all of `text` and gives the file its name.
    ///
    /// # Errors
    /// If that fails.
    pub fn fill(mut self, text: impl AsRef<[u8]>) -> Result<(), Failure> {
        match self.write_all(text.as_ref()) {
            Ok(()) => self.finish(),
            Err(error) => Err(self.failure(&error)),
        }
    }

    /// What to say about an error in writing it.
    pub fn failure(&self, error: &io::Error) -> Failure {
        wrong(&self.target, self.is_stdout(), error)
    }

    fn is_stdout(&self) -> bool {
        matches!(self.file, Destination::Stdout(_))
    }
}

fn wrong(target: &Path, stdout: bool, error: &io::Error) -> Failure {
    match error.kind() {
        kind @ io::ErrorKind::BrokenPipe if stdout => io::Error::from(kind).into(),
        _ => Failure::output(target, error),
    }
}

/// Whether this is `-`, the standard output as it is the standard input elsewhere, or another name of it.
pub fn is_stdout(path: &Path) -> bool {
    ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|name| path == Path::new(name))
}

/// Whether this names something that is no file of its own: a device, a pipe, or what is behind `/dev/stdout`.
fn is_device(path: &Path) -> bool {
    let special = |found: fs::Metadata| !found.is_file() && !found.is_dir();
    is_stdout(path)
        || path.starts_with("/dev")
        || path.starts_with("/proc")
        || fs::metadata(path).is_ok_and(special)
}

/// Readable by everybody, writable by the owner, less what the umask takes away.
#[cfg(unix)]
fn ordinary() -> fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    fs::Permissions::from_mode(0o666)
}

#[cfg(not(unix))]
compile_error!("the permissions of new files are those of Unix");

impl Write for Pending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.buffer()?.flush()
    }
}

/// A file with a name of its own beside `target`, which goes away when it is dropped.
fn beside(target: &Path) -> io::Result<NamedTempFile> {
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        let message = format!("there is no directory {}", folder.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, message));
    }
    let mut builder = tempfile::Builder::new();
    builder.prefix(".weir-");
    builder.permissions(fs::metadata(target).map_or_else(|_| ordinary(), |found| found.permissions()));
    builder.tempfile_in(folder)
}

/// Where a result goes.
pub enum Sink {
    /// A file.
    File(Pending),
    /// The standard output.
    Stdout,
}

impl Sink {
    /// The file if there is one to write, else the standard output.
    ///
    /// # Errors
    /// If there can be no such file.
    pub fn new(path: Option<&Path>) -> Result<Sink, Failure> {
        Ok(match path {
            Some(path) if !is_stdout(path) => Sink::File(Pending::begin(path)?),
            _ => Sink::Stdout,
        })
    }

    /// Writes all of `text`.
    ///
    /// # Errors
    /// If that fails.
    pub fn fill(self, text: impl AsRef<[u8]>) -> Result<(), Failure> {
        match self {
            Sink::File(file) => file.fill(text),
            Sink::Stdout => Ok(print(text)?),
        }
    }
}

/// Writes to the standard output.
///
/// # Errors
/// If nobody takes it.
pub fn print(text: impl AsRef<[u8]>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_ref())?;
    out.flush()
}

/// Refuses outputs that would overwrite each other, the input, or a file that the input names.
///
/// # Errors
/// The first pair of names for one file.
pub fn check_distinct(input: &Path, outputs: &[(&str, Option<&Path>)]) -> Result<(), Failure> {
    // Without outputs there is no need to look into the input.
    if outputs.iter().all(|(_, path)| path.is_none()) {
        return Ok(());
    }
    let mut seen: Vec<(&str, PathBuf)> = Vec::new();
    if input != Path::new("-") {
        seen.push(("the input", place(input)));
        let named = weir_trace::fields::named_files(input);
        seen.extend(named.iter().map(|file| ("what the input names", place(file))));
    }
    for (name, path) in outputs {
        // Devices such as /dev/null take any number of outputs.
        let Some(path) = path.filter(|path| !is_device(path)).map(place) else { continue };
        if let Some((other, _)) = seen.iter().find(|(_, p)| *p == path) {
            return Err(Failure::input(format_args!(
                "{name}: {}: expected another file than that of {other}",
                path.display()
            )));
        }
        seen.push((name, path));
    }
    Ok(())
}

/// A file's name without links and dots, also of one that does not exist yet.
fn place(path: &Path) -> PathBuf {
    if let Ok(path) = fs::canonicalize(path) {
        return path;
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (fs::canonicalize(folder), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}
