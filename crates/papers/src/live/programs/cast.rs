//! The programs, each in the cgroup of its application.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use weir_testbed::{Node, namespace};

use super::super::process::{Process, command, inside};
use weir_console::failure::Failure;

/// The applications.
pub const APPLICATIONS: [&str; 2] = ["bulk", "web"];

/// How long a program may take until it listens.
const PATIENCE: Duration = Duration::from_secs(10);

/// More than is fetched of the file; it takes no room.
const FILE: u64 = 64 << 30;

/// What the script does.
const SCRIPT: &str = "\
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as s:
    while True:
        s.sendall(bytes(65536))
";

/// A program that sends from the first host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    Iperf,
    Script,
    Server,
}

impl Program {
    pub const ALL: [Program; 3] = [Program::Iperf, Program::Script, Program::Server];

    pub fn about(self) -> &'static str {
        match self {
            Program::Iperf => "`iperf3 -c`",
            Program::Script => "a Python script that writes to a socket",
            Program::Server => "`python3 -m http.server`, asked by `curl`",
        }
    }

    /// Its application, by its place.
    pub fn application(self) -> usize {
        usize::from(self == Program::Server)
    }

    /// The port of its connections, at one end or the other.
    pub fn port(self) -> u16 {
        match self {
            Program::Iperf => 5201,
            Program::Script => 9000,
            Program::Server => 8000,
        }
    }

    /// What it needs and is not installed.
    pub fn missing(self) -> Vec<&'static str> {
        let needs: &[&str] = match self {
            Program::Iperf => &["iperf3"],
            Program::Script => &["python3"],
            Program::Server => &["python3", "curl"],
        };
        needs.iter().copied().filter(|program| !is_there(program)).collect()
    }
}

fn is_there(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A cgroup that is gone in the end, with all that runs in it.
pub struct Group(PathBuf);

impl Group {
    pub fn new(name: &str) -> Result<Group, Failure> {
        let path = weir_agent::traffic::cgroups().map_err(Failure::undone)?.join(name);
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(Failure::undone(format_args!("{}: {error}", path.display())))
            }
            _ => Ok(Group(path)),
        }
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A program in it, inside a host.
    fn begin(&self, node: &Node, words: &[&str]) -> io::Result<Process> {
        let procs = self.0.join("cgroup.procs").display().to_string();
        let mut all = vec!["sh", "-c", "echo 0 > \"$0\" && exec \"$@\"", &procs];
        let enter = inside(node);
        all.extend(enter.iter().map(String::as_str));
        all.extend(words);
        Process::begin(command(&all))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        // Until the last of it has ended.
        let began = Instant::now();
        while fs::remove_dir(&self.0).is_err() && self.0.exists() && began.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Programs that run, with whoever is at the other end.
pub struct Cast {
    processes: Vec<(&'static str, Process)>,
}

impl Cast {
    /// Lets these programs begin in the first of three hosts; `place` is a folder for what is fetched.
    ///
    /// # Errors
    /// If one of them cannot.
    pub fn begin(
        programs: &[Program],
        groups: &[Group; 2],
        nodes: &[Node],
        place: &Path,
    ) -> Result<Cast, Failure> {
        let mut cast = Cast { processes: Vec::new() };
        for program in programs {
            let failed =
                |error: io::Error| Failure::undone(format_args!("{} cannot begin: {error}", program.about()));
            let group = &groups[program.application()];
            let begun = match program {
                Program::Iperf => iperf(group, nodes),
                Program::Script => script(group, nodes),
                Program::Server => server(group, nodes, place),
            };
            cast.processes
                .extend(begun.map_err(failed)?.into_iter().map(|process| (program.about(), process)));
        }
        Ok(cast)
    }

    /// That all of them go on.
    ///
    /// # Errors
    /// If one has ended.
    pub fn check(&mut self) -> Result<(), Failure> {
        for (about, Process(child)) in &mut self.processes {
            if let Some(status) = child.try_wait().map_err(Failure::undone)? {
                return Err(Failure::undone(format_args!("{about} ended early: {status}")));
            }
        }
        Ok(())
    }
}

fn iperf(group: &Group, nodes: &[Node]) -> io::Result<Vec<Process>> {
    let port = Program::Iperf.port().to_string();
    let mut other = inside(&nodes[1]);
    other.extend(["iperf3", "-s", "-p", &port].map(str::to_owned));
    let other = Process::begin(command(&other))?;
    // It takes a connection for a test, so nobody may find out whether it listens by one.
    let at = format!(":{:04X} ", Program::Iperf.port());
    let listens = || {
        let text =
            namespace::inside(&nodes[1].namespace, || fs::read_to_string("/proc/thread-self/net/tcp6"))??;
        Ok(text.contains(&format!("{at}00000000000000000000000000000000:0000 0A")))
    };
    wait_for(listens)?;
    let to = nodes[1].address.to_string();
    Ok(vec![other, group.begin(&nodes[0], &["iperf3", "-c", &to, "-p", &port, "-t", "3600"])?])
}

fn script(group: &Group, nodes: &[Node]) -> io::Result<Vec<Process>> {
    let to = SocketAddr::from((nodes[1].address, Program::Script.port()));
    let listener = namespace::inside(&nodes[1].namespace, || TcpListener::bind(to))??;
    // It reads until the script is gone.
    thread::spawn(move || listener.accept().and_then(|(mut from, _)| io::copy(&mut from, &mut io::sink())));
    let (host, port) = (to.ip().to_string(), to.port().to_string());
    Ok(vec![group.begin(&nodes[0], &["python3", "-c", SCRIPT, &host, &port])?])
}

fn server(group: &Group, nodes: &[Node], place: &Path) -> io::Result<Vec<Process>> {
    fs::File::create(place.join("file"))?.set_len(FILE)?;
    let address = SocketAddr::from((nodes[0].address, Program::Server.port()));
    let (port, folder) = (address.port().to_string(), place.display().to_string());
    let server = group.begin(&nodes[0], &["python3", "-m", "http.server", &port, "--directory", &folder])?;
    wait_for(|| Ok(namespace::inside(&nodes[2].namespace, || TcpStream::connect(address))?.is_ok()))?;
    let mut other = inside(&nodes[2]);
    other.extend(["curl", "-s", "-o", "/dev/null", &format!("http://{address}/file")].map(str::to_owned));
    Ok(vec![server, Process::begin(command(&other))?])
}

fn wait_for(mut there: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let began = Instant::now();
    while !there()? {
        if began.elapsed() > PATIENCE {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not listen"));
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// The address that all of them send from.
pub fn from(nodes: &[Node]) -> Ipv4Addr {
    nodes[0].address
}
