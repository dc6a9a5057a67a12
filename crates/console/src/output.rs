//! Writes outputs: files that appear complete or not at all, and the standard output.

use std::fs;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::failure::Failure;
use crate::interrupt;

/// A file that appears under its name once it is complete.
///
/// It is written as a temporary file (`.weir-*`) in the same folder, which is created at the first byte and not while results are computed.
/// Only `kill -9` or a power cut while it is written leaves the temporary file behind.
pub struct OutputFile {
    target: PathBuf,
    destination: Destination,
}

enum Destination {
    /// A temporary file in the same folder, which is renamed at the end; none before the first byte.
    Renamed(Option<BufWriter<NamedTempFile>>),
    /// A device or a pipe, which cannot be replaced by renaming.
    Direct(BufWriter<fs::File>),
    /// The standard output. If it is a file, later output of other programs continues at its end.
    Stdout(BufWriter<io::Stdout>),
}

impl OutputFile {
    /// Prepares the file `path`. Call it before the work, so that an invalid path fails first.
    ///
    /// # Errors
    /// If the file cannot be created, or its name is that of a compressed file.
    pub fn create(path: &Path) -> Result<OutputFile, Failure> {
        let extension = path.extension().filter(|extension| *extension == "gz" || *extension == "zst");
        if extension.is_some() && !is_device(path) {
            let plain = path.with_extension("");
            return Err(Failure::input(format_args!(
                "{}: no output is compressed; expected a name such as {}; help: compress the file afterwards",
                path.display(),
                plain.display()
            )));
        }
        OutputFile::open(path).map_err(|error| match error.kind() {
            // The path is wrong, whatever the command computes.
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
                Failure::input(Failure::output(path, &error))
            }
            _ => Failure::output(path, &error),
        })
    }

    fn open(path: &Path) -> io::Result<OutputFile> {
        if is_stdout(path) {
            let file = Destination::Stdout(BufWriter::new(io::stdout()));
            return Ok(OutputFile { target: PathBuf::from("standard output"), destination: file });
        }
        if is_device(path) {
            // The path may lead to a file that other processes write to as well, so their output is kept.
            let file = fs::OpenOptions::new().append(true).open(path)?;
            return Ok(OutputFile {
                target: path.to_owned(),
                destination: Destination::Direct(BufWriter::new(file)),
            });
        }
        // A symbolic link stays; its target is replaced.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if target.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        // Checks that a file can be created in the folder.
        drop(create_temporary(&target)?);
        Ok(OutputFile { target, destination: Destination::Renamed(None) })
    }

    /// The buffer to write to. Creates the temporary file at the first byte.
    fn writer(&mut self) -> io::Result<&mut dyn Write> {
        if interrupt::is_requested() {
            return Err(io::Error::other("interrupted"));
        }
        match &mut self.destination {
            Destination::Direct(buffer) => Ok(buffer),
            Destination::Stdout(buffer) => Ok(buffer),
            Destination::Renamed(Some(buffer)) => Ok(buffer),
            Destination::Renamed(none) => {
                interrupt::record_signals();
                Ok(none.insert(BufWriter::new(create_temporary(&self.target)?)))
            }
        }
    }

    /// Writes the rest, and renames the file.
    ///
    /// # Errors
    /// If the rest cannot be written. An earlier file of this name stays.
    pub fn finish(mut self) -> Result<(), Failure> {
        let stdout = self.is_stdout();
        // An empty file is created as well.
        let result = self.flush().and_then(|()| match self.destination {
            Destination::Renamed(Some(buffer)) => {
                let temp = buffer.into_inner().map_err(io::IntoInnerError::into_error)?;
                temp.persist(&self.target).map(drop).map_err(|error| error.error)
            }
            _ => Ok(()),
        });
        result.map_err(|error| write_failure(&self.target, stdout, &error))
    }

    /// Writes all of `text`, and renames the file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_and_finish(mut self, text: impl AsRef<[u8]>) -> Result<(), Failure> {
        match self.write_all(text.as_ref()) {
            Ok(()) => self.finish(),
            Err(error) => Err(self.failure(&error)),
        }
    }

    /// The failure for an error in writing this file.
    pub fn failure(&self, error: &io::Error) -> Failure {
        write_failure(&self.target, self.is_stdout(), error)
    }

    fn is_stdout(&self) -> bool {
        matches!(self.destination, Destination::Stdout(_))
    }
}

fn write_failure(target: &Path, is_stdout: bool, error: &io::Error) -> Failure {
    match error.kind() {
        kind @ io::ErrorKind::BrokenPipe if is_stdout => io::Error::from(kind).into(),
        _ => Failure::output(target, error),
    }
}

/// Whether a path means the standard output: `-`, which elsewhere means the standard input, or another name of it.
pub fn is_stdout(path: &Path) -> bool {
    ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|name| path == Path::new(name))
}

/// Whether a path names a device, a pipe, or the target of `/dev/stdout`.
pub fn is_device(path: &Path) -> bool {
    let is_special = |found: fs::Metadata| !found.is_file() && !found.is_dir();
    is_stdout(path)
        || path.starts_with("/dev")
        || path.starts_with("/proc")
        || fs::metadata(path).is_ok_and(is_special)
}

/// The permissions of new files: readable and writable by all, minus the umask.
#[cfg(unix)]
fn default_permissions() -> fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    fs::Permissions::from_mode(0o666)
}

#[cfg(not(unix))]
compile_error!("the permissions of new files are those of Unix");

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer()?.flush()
    }
}

/// Creates a temporary file in the folder of `target`, which is deleted when it is dropped.
fn create_temporary(target: &Path) -> io::Result<NamedTempFile> {
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        let message = format!("directory {} does not exist", folder.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, message));
    }
    let mut builder = tempfile::Builder::new();
    builder.prefix(".weir-");
    builder.permissions(
        fs::metadata(target).map_or_else(|_| default_permissions(), |found| found.permissions()),
    );
    builder.tempfile_in(folder)
}

/// Where a result is written.
pub enum ResultDestination {
    /// A file.
    File(OutputFile),
    /// The standard output.
    Stdout,
}

impl ResultDestination {
    /// The file if there is a path, else the standard output.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn new(path: Option<&Path>) -> Result<ResultDestination, Failure> {
        Ok(match path {
            Some(path) if !is_stdout(path) => ResultDestination::File(OutputFile::create(path)?),
            _ => ResultDestination::Stdout,
        })
    }

    /// Whether a person reads the result in a terminal.
    pub fn is_terminal(&self) -> bool {
        matches!(self, ResultDestination::Stdout) && io::stdout().is_terminal()
    }

    /// Writes all of `text`.
    ///
    /// # Errors
    /// If the file or the standard output cannot be written.
    pub fn write_text(self, text: impl AsRef<[u8]>) -> Result<(), Failure> {
        match self {
            ResultDestination::File(file) => file.write_and_finish(text),
            ResultDestination::Stdout => Ok(print(text)?),
        }
    }
}

/// Writes to the standard output, and flushes it.
///
/// # Errors
/// If the standard output cannot be written.
pub fn print(text: impl AsRef<[u8]>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_ref())?;
    out.flush()
}

/// Refuses two outputs to the standard output. The first output is the result, which goes there without a path.
///
/// # Errors
/// The second output to the standard output.
pub fn check_single_stdout(outputs: &[(&str, Option<&Path>)]) -> Result<(), Failure> {
    let to_stdout = |(_, path): &&(&str, Option<&Path>)| path.is_some_and(is_stdout);
    let mut at_stdout = outputs.iter().filter(to_stdout).map(|(option, _)| *option);
    let has_result = outputs.first().is_some_and(|(_, path)| path.is_none());
    let first = if has_result { Some("the result") } else { at_stdout.next() };
    match (first, at_stdout.next()) {
        (Some(first), Some(second)) => {
            let help = if has_result { "; help: add --out FILE for the result" } else { "" };
            Err(Failure::input(format_args!(
                "{second}: {first} is already written to the standard output; expected a file for one of them{help}"
            )))
        }
        _ => Ok(()),
    }
}

/// Refuses outputs that would overwrite each other, the input, or a file that the input refers to.
///
/// # Errors
/// The first pair of names for one file.
pub fn check_distinct(input: &Path, outputs: &[(&str, Option<&Path>)]) -> Result<(), Failure> {
    // Without outputs, the input need not be read.
    if outputs.iter().all(|(_, path)| path.is_none()) {
        return Ok(());
    }
    let mut used: Vec<(&str, PathBuf)> = Vec::new();
    if input != Path::new("-") {
        used.push(("the input", canonical_path(input)));
        let named = weir_fields::referenced_files(input);
        used.extend(named.iter().map(|file| ("a file that the input refers to", canonical_path(file))));
    }
    for (name, path) in outputs {
        // Devices such as /dev/null take any number of outputs.
        let Some(path) = path.filter(|path| !is_device(path)).map(canonical_path) else { continue };
        if let Some((other, _)) = used.iter().find(|(_, p)| *p == path) {
            return Err(Failure::input(format_args!(
                "{name}: {}: expected another file than that of {other}",
                path.display()
            )));
        }
        used.push((name, path));
    }
    Ok(())
}

/// The canonical path of a file, which need not exist.
fn canonical_path(path: &Path) -> PathBuf {
    if let Ok(path) = fs::canonicalize(path) {
        return path;
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (fs::canonicalize(folder), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}
