//! Cgroups, whose processes the agents of a testbed's hosts recognise as applications.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use weir_console::failure::Failure;

/// The maximum time until a cgroup is empty.
const EMPTY_TIMEOUT: Duration = Duration::from_secs(10);

/// A cgroup. Dropping it kills its processes and removes it.
pub struct Cgroup(PathBuf);

impl Cgroup {
    pub fn create(name: &str) -> Result<Cgroup, Failure> {
        let path = weir_agent::traffic::find_cgroup_root().map_err(Failure::runtime)?.join(name);
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(Failure::runtime(format_args!("{}: {error}", path.display())))
            }
            _ => Ok(Cgroup(path)),
        }
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The words of a command that runs the command of `words` in the cgroup.
    pub fn words(&self, words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
        let shell = ["sh".into(), "-c".into(), "echo 0 > \"$0\" && exec \"$@\"".into()];
        shell.into_iter().chain([self.0.join("cgroup.procs").into()]).chain(words).collect()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        // The cgroup can be removed once its last process has exited.
        let deadline = Instant::now() + EMPTY_TIMEOUT;
        while fs::remove_dir(&self.0).is_err() && self.0.exists() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
    }
}
