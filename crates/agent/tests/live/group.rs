//! Creates a cgroup for a test.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// A cgroup that is removed when it is dropped, with all its processes.
pub struct TestCgroup {
    pub name: String,
    pub path: PathBuf,
}

impl TestCgroup {
    pub fn new(name: &str) -> TestCgroup {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let root = mounts.lines().find(|line| line.contains(" - cgroup2 ")).and_then(|l| l.split(' ').nth(4));
        let name = format!("weir-test-{}-{name}", std::process::id());
        let path = PathBuf::from(root.unwrap_or("/")).join(&name);
        // A process that may not create a cgroup may not create namespaces either, and the test skips.
        let _ = fs::create_dir(&path);
        TestCgroup { name, path }
    }

    /// A command that runs a program in the cgroup.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("sh");
        let procs = self.path.join("cgroup.procs");
        command.args(["-c", "echo 0 > \"$0\" && exec \"$@\""]).arg(procs).arg(program);
        command
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        let _ = fs::write(self.path.join("cgroup.kill"), "1");
        // The cgroup can be removed after its last process has exited.
        for _ in 0..100 {
            if fs::remove_dir(&self.path).is_ok() || !self.path.exists() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        eprintln!("{}: the cgroup cannot be removed", self.path.display());
    }
}
