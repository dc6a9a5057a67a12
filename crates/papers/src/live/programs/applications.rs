//! Starts the programs of the two applications: one program per application, in one cgroup.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use weir_console::failure::Failure;
use weir_testbed::Node;

use super::super::cluster::{self, Process};

/// The applications, whose programs send from the first host to the second and to the third.
pub const APPLICATIONS: [&str; 2] = ["bulk", "web"];

const IPERF_PORT: &str = "5201";
const HTTP_PORT: &str = "8000";

/// The size of the served file, which is larger than `curl` can fetch during the measurement. The file is sparse.
const FILE_BYTES: u64 = 64 << 30;

/// The maximum time until a cgroup is empty.
const EMPTY_TIMEOUT: Duration = Duration::from_secs(10);

/// The first required command that is not installed.
pub fn missing_program() -> Option<&'static str> {
    ["iperf3", "python3", "curl"].into_iter().find(|program| {
        let mut command = Command::new(program);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        !command.status().is_ok_and(|status| status.success())
    })
}

/// Starts the programs and their receivers. Creates the file that `curl` fetches in `directory`.
pub fn start(cgroups: &[Cgroup; 2], nodes: &[Node], directory: &Path) -> Result<Vec<Process>, Failure> {
    let [bulk, web] = cgroups;
    let mut iperf_server = cluster::command(Some(&nodes[1]), "iperf3");
    iperf_server.args(["-s", "--forceflush", "-p", IPERF_PORT]);
    let iperf_server = Process::start_until("iperf3 -s", iperf_server, |line| {
        line.starts_with("Server listening").then_some(())
    })?;
    let to = nodes[1].address.to_string();
    let iperf = ["iperf3", "-c", &to, "-p", IPERF_PORT, "-P", "2", "-t", "3600"];
    let iperf = Process::start("iperf3 -c", bulk.command(&nodes[0], &iperf))?;

    let file = fs::File::create(directory.join("file")).and_then(|file| file.set_len(FILE_BYTES));
    file.map_err(Failure::runtime)?;
    let directory = directory.display().to_string();
    let http = ["python3", "-u", "-m", "http.server", HTTP_PORT, "--directory", &directory];
    let http = Process::start_until("http.server", web.command(&nodes[0], &http), |line| {
        line.starts_with("Serving HTTP").then_some(())
    })?;
    let mut curl = cluster::command(Some(&nodes[2]), "curl");
    curl.args(["-s", "-o", "/dev/null", &format!("http://{}:{HTTP_PORT}/file", nodes[0].address)]);
    Ok(vec![iperf, Process::start("curl", curl)?, iperf_server.0, http.0])
}

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

    /// A command in the cgroup and inside a host.
    fn command(&self, node: &Node, words: &[&str]) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 0 > \"$0\" && exec \"$@\""]).arg(self.0.join("cgroup.procs"));
        let program = cluster::command(Some(node), words[0]);
        command.arg(program.get_program()).args(program.get_args()).args(&words[1..]);
        command
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
