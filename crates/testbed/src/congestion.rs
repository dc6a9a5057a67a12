//! Provides the congestion control of a measurement by its name: one of the kernel, or a reduced DCTCP that this module loads.
//!
//! Many kernels lack `dctcp`. `bpf/dctcp.c` then replaces it: a congestion control in BPF with the name [`REDUCED_DCTCP`]. `aya` cannot
//! load programs of this type (struct_ops), so a program in C does (`bpf/load_dctcp.c`), which is a part of this crate. It registers the
//! congestion control for all network namespaces, and for as long as it runs. It ends with this process.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::sockopt::TcpCongestion;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, getsockopt, setsockopt, socket};

/// The kernel's own DCTCP. If the kernel lacks it, this name stands for [`REDUCED_DCTCP`].
pub const DCTCP: &str = "dctcp";

/// The reduced DCTCP.
pub const REDUCED_DCTCP: &str = "weir_dctcp";

static LOADER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/load_dctcp"));

/// Why a congestion control cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CongestionError {
    /// The kernel lacks the congestion control, or does not allow it for this process.
    #[error(
        "congestion control `{name}` cannot be used: {error}; expected one that this kernel has ({available}) and allows this process to use"
    )]
    Unknown {
        /// The name of the congestion control.
        name: String,
        /// The error of the operating system.
        error: io::Error,
        /// The available congestion controls.
        available: String,
    },
    /// The reduced DCTCP was not built.
    #[error(
        "Weir was built without {REDUCED_DCTCP} ({0}), the replacement for kernels without `dctcp`; help: install clang and the headers of \
         libbpf and Linux, and build Weir again"
    )]
    NotBuilt(&'static str),
    /// The program that loads the reduced DCTCP cannot be started.
    #[error("the program that loads {REDUCED_DCTCP} cannot be started: {0}")]
    Start(io::Error),
    /// The reduced DCTCP was not loaded.
    #[error("{REDUCED_DCTCP}, the replacement for kernels without `dctcp`, cannot be loaded: {0}")]
    Load(String),
}

/// A congestion control that sockets can use while this value exists.
#[derive(Debug)]
pub struct CongestionControl {
    name: OsString,
    /// Never read: dropping it unloads the congestion control.
    _loaded: Option<LoadedDctcp>,
}

impl CongestionControl {
    /// The requested congestion control, or the system's default. [`DCTCP`] is the kernel's, or else [`REDUCED_DCTCP`]; that name loads the
    /// reduced one on all kernels.
    ///
    /// # Errors
    /// If the kernel lacks the congestion control, does not allow it for this process, or refuses to load the reduced DCTCP.
    pub fn new(requested: Option<&str>) -> Result<CongestionControl, CongestionError> {
        let loaded = match requested {
            Some(REDUCED_DCTCP) => Some(LoadedDctcp::new()?),
            // The kernel loads its module if it has one.
            Some(DCTCP) if is_missing(DCTCP) => Some(LoadedDctcp::new()?),
            _ => None,
        };
        let name = if loaded.is_some() { Some(REDUCED_DCTCP) } else { requested };
        let read_available =
            || fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
        let name = set_and_read(name).map_err(|error| CongestionError::Unknown {
            name: name.unwrap_or_default().to_owned(),
            error,
            available: read_available().trim().replace(' ', ", "),
        })?;
        Ok(CongestionControl { name, _loaded: loaded })
    }

    /// The kernel's name, for sockets.
    pub fn name(&self) -> &OsString {
        &self.name
    }
}

impl fmt::Display for CongestionControl {
    /// As text: `cubic`, or `weir_dctcp, a reduced DCTCP`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name.to_string_lossy())?;
        if self.name == REDUCED_DCTCP { f.write_str(", a reduced DCTCP") } else { Ok(()) }
    }
}

/// Whether the kernel lacks a congestion control. Other errors do not count.
fn is_missing(name: &str) -> bool {
    set_and_read(Some(name)).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// The kernel's name of the congestion control of a new socket, after setting it to `name`.
fn set_and_read(name: Option<&str>) -> io::Result<OsString> {
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    if let Some(name) = name {
        setsockopt(&socket, TcpCongestion, &name.into())?;
    }
    Ok(getsockopt(&socket, TcpCongestion)?)
}

/// The running program that keeps the reduced DCTCP registered. It ends when its standard input ends, also if this process is killed.
#[derive(Debug)]
struct LoadedDctcp(Child);

impl LoadedDctcp {
    /// Starts the program, and waits until it has registered the congestion control.
    fn new() -> Result<LoadedDctcp, CongestionError> {
        if LOADER.is_empty() {
            return Err(CongestionError::NotBuilt(env!("WEIR_DCTCP_LACKS")));
        }
        let mut loaded = LoadedDctcp(start_loader().map_err(CongestionError::Start)?);
        let mut line = String::new();
        let stdout = loaded.0.stdout.take().expect("the program was started with a pipe");
        // If nothing can be read, the messages on standard error say why.
        let _ = BufReader::new(stdout).read_line(&mut line);
        if line == "registered\n" {
            return Ok(loaded);
        }
        let mut messages = String::new();
        let mut stderr = loaded.0.stderr.take().expect("the program was started with a pipe");
        let _ = stderr.read_to_string(&mut messages);
        Err(CongestionError::Load(summarize(&messages)))
    }
}

impl Drop for LoadedDctcp {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // The kernel unregisters the congestion control before the process has ended.
        let _ = self.0.wait();
    }
}

/// Starts the loader from a file in memory.
fn start_loader() -> io::Result<Child> {
    let mut file = File::from(memfd_create("load_dctcp", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(LOADER)?;
    let mut command = Command::new(format!("/proc/self/fd/{}", file.as_raw_fd()));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Ctrl-C is for this process, which then cleans up.
    command.process_group(0).spawn()
}

/// The messages as one line: the last is the program's own, those before are the kernel's and libbpf's.
fn summarize(messages: &str) -> String {
    let lines: Vec<&str> = messages.lines().collect();
    match lines[..] {
        [] => "the program ended without a message".to_owned(),
        [.., libbpf, own] => format!("{own} ({libbpf})"),
        [own] => own.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_the_loader_start_with_its_own() {
        assert_eq!(summarize(""), "the program ended without a message");
        assert_eq!(summarize("refused: invalid argument\n"), "refused: invalid argument");
        assert_eq!(summarize("libbpf: a\nlibbpf: b\nrefused\n"), "refused (libbpf: b)");
    }

    #[test]
    fn default_congestion_control_has_the_kernels_name() {
        let default = CongestionControl::new(None).unwrap();
        assert_eq!(default.to_string(), default.name().to_string_lossy());
        assert!(!default.name().is_empty());
    }
}
