//! Runs unmodified programs that send from one end of a pair to the other, and reads their events.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weir_agent::traffic::{ConnectionEnds, ConnectionEvent, Rule, Traffic, TrafficClass, TrafficError};

use crate::group::TestCgroup;
use crate::kernel::{CounterReading, RateBounds};
use crate::namespace_pair::{NamespacePair, create_pair, interface};
use crate::wait::wait_for;

/// A pair, and the observed traffic of these applications; none if this machine does not support it.
pub fn start_traffic(test: &str, groups: &[(&TestCgroup, u8)]) -> Option<(NamespacePair, Traffic)> {
    let pair = create_pair(test)?;
    match Traffic::start(&application_rules(groups), &[interface()]) {
        Err(TrafficError::NotBuilt(why)) => {
            eprintln!("{test} skips, since the programs were not built: {why}");
            None
        }
        traffic => Some((pair, traffic.unwrap())),
    }
}

pub fn application_rules(groups: &[(&TestCgroup, u8)]) -> Vec<Rule> {
    let rule = |&(group, mark): &(&TestCgroup, u8)| Rule {
        name: group.name.clone(),
        cgroup: group.path.clone(),
        port: None,
        class: TrafficClass::new(mark),
    };
    groups.iter().map(rule).collect()
}

/// Whether a program is installed. Prints a message if it is not.
pub fn has_program(test: &str, program: &str) -> bool {
    let is_installed =
        Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !is_installed {
        eprintln!("{test} skips, since {program} is not installed");
    }
    is_installed
}

/// Reads events until `is_enough` is true, for at most ten seconds.
pub fn read_events(
    traffic: &mut Traffic,
    is_enough: impl Fn(&[ConnectionEvent]) -> bool,
) -> Vec<ConnectionEvent> {
    let (started, mut list) = (Instant::now(), Vec::new());
    while !is_enough(&list) {
        assert!(started.elapsed() < Duration::from_secs(10), "{list:?}");
        match traffic.next_event() {
            Some(event) => list.push(event),
            None => thread::sleep(Duration::from_millis(5)),
        }
    }
    list
}

/// Starts a listener at the other end, which reads all of each connection and answers with `answer_bytes` bytes. Returns its address and
/// the number of bytes read.
pub fn start_receiver(pair: &NamespacePair, answer_bytes: usize) -> (SocketAddr, Arc<AtomicU64>) {
    let received_bytes = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&received_bytes);
    let listener = pair.run_at_peer(|| TcpListener::bind("[::]:0").unwrap()).join().unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, count) = (stream.unwrap(), Arc::clone(&count));
            thread::spawn(move || {
                let mut buffer = vec![0; 1 << 16];
                while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
                    count.fetch_add(bytes as u64, Ordering::Relaxed);
                }
                let _ = stream.write_all(&vec![1; answer_bytes]);
            });
        }
    });
    (address, received_bytes)
}

/// A Python program that waits for a line on its standard input before each step.
pub struct PythonProgram(Child);

impl PythonProgram {
    pub fn start(group: &TestCgroup, script: &str, args: &[String]) -> PythonProgram {
        let mut command = group.command("python3");
        command.args(["-c", script]).args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        PythonProgram(command.spawn().unwrap())
    }

    pub fn start_next_step(&mut self) {
        writeln!(self.0.stdin.as_mut().unwrap()).unwrap();
    }

    pub fn read_line(&mut self) -> String {
        // The program prints one line at a time, so the dropped buffer holds no other line.
        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    pub fn wait_for_exit(mut self) {
        assert!(self.0.wait().unwrap().success());
    }
}

/// The rate in Mbit/s that a connection's peer acknowledges in the next `seconds`.
pub fn measure_mbit(traffic: &Traffic, ends: ConnectionEnds, seconds: f64) -> RateBounds {
    let sent_bytes = || {
        let list = traffic.connections().unwrap();
        let found = list.iter().find(|(known, _)| *known == ends).expect("the connection is open");
        found.1.sent
    };
    let before = CounterReading::read(sent_bytes);
    thread::sleep(Duration::from_secs_f64(seconds));
    CounterReading::read(sent_bytes).rate_since(&before).relative_to(125e3)
}

/// A program that sends at full speed, and the number of bytes that have arrived.
pub fn start_sender(pair: &NamespacePair, group: &TestCgroup) -> (Child, Arc<AtomicU64>) {
    let (address, received_bytes) = start_receiver(pair, 0);
    let command = format!("exec cat /dev/zero > /dev/tcp/10.9.0.2/{}", address.port());
    (group.command("bash").args(["-c", &command]).spawn().unwrap(), received_bytes)
}

/// A program that sends at full speed, the ends of its connection, and the number of bytes that have arrived.
pub fn start_tracked_sender(
    pair: &NamespacePair,
    group: &TestCgroup,
    traffic: &mut Traffic,
) -> (Child, ConnectionEnds, Arc<AtomicU64>) {
    let (child, received_bytes) = start_sender(pair, group);
    let ends = read_events(traffic, |list| !list.is_empty())[0].ends;
    wait_for("the first bytes", || received_bytes.load(Ordering::Relaxed) > 0);
    (child, ends, received_bytes)
}
