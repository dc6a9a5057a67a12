//! Starts the programs of the two applications: one program per application, in one cgroup.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use weir_console::failure::Failure;
use weir_testbed::Node;

use super::super::cgroup::Cgroup;
use super::super::cluster::{self, Process};

/// The applications, whose programs send from the first host to the second and to the third.
pub const APPLICATIONS: [&str; 2] = ["bulk", "web"];

const IPERF_PORT: &str = "5201";
const HTTP_PORT: &str = "8000";

/// The size of the served file, which is larger than `curl` can fetch during the measurement. The file is sparse.
const FILE_BYTES: u64 = 64 << 30;

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
    let iperf = Process::start("iperf3 -c", command(bulk, &nodes[0], &iperf))?;

    let file = fs::File::create(directory.join("file")).and_then(|file| file.set_len(FILE_BYTES));
    file.map_err(Failure::runtime)?;
    let directory = directory.display().to_string();
    let http = ["python3", "-u", "-m", "http.server", HTTP_PORT, "--directory", &directory];
    let http = Process::start_until("http.server", command(web, &nodes[0], &http), |line| {
        line.starts_with("Serving HTTP").then_some(())
    })?;
    let mut curl = cluster::command(Some(&nodes[2]), "curl");
    curl.args(["-s", "-o", "/dev/null", &format!("http://{}:{HTTP_PORT}/file", nodes[0].address)]);
    Ok(vec![iperf, Process::start("curl", curl)?, iperf_server.0, http.0])
}

/// A command in a cgroup and inside a host.
fn command(cgroup: &Cgroup, node: &Node, words: &[&str]) -> Command {
    let program = cluster::command(Some(node), words[0]);
    let arguments = words[1..].iter().map(OsString::from);
    let inside = [program.get_program()].into_iter().chain(program.get_args()).map(OsString::from);
    let words = cgroup.words(inside.chain(arguments));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}
