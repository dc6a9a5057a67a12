//! Runs unmodified programs that send from one end of a pair to the other, and reads their events.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weir_agent::traffic::{Class, Ends, Event, Rule, Traffic, TrafficError};

use crate::group::Group;
use crate::kernel::{Reading, Speed};
use crate::pair::{Pair, interface, pair};
use crate::wait::wait_for;

/// A pair, and the observed traffic of these applications; none if this machine does not support it.
pub fn start(test: &str, groups: &[(&Group, u8)]) -> Option<(Pair, Traffic)> {
    let pair = pair(test)?;
    match Traffic::start(&rules(groups), &[interface()]) {
        Err(TrafficError::NotBuilt(why)) => {
            eprintln!("{test} skips, since the programs were not built: {why}");
            None
        }
        traffic => Some((pair, traffic.unwrap())),
    }
}

pub fn rules(groups: &[(&Group, u8)]) -> Vec<Rule> {
    let rule = |&(group, mark): &(&Group, u8)| Rule {
        name: group.name.clone(),
        cgroup: group.path.clone(),
        port: None,
        class: Class::new(mark),
    };
    groups.iter().map(rule).collect()
}

/// Whether a program is installed. Prints a message if it is not.
pub fn there(test: &str, program: &str) -> bool {
    let able = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !able {
        eprintln!("{test} skips, since {program} is not there");
    }
    able
}

/// Reads events until `enough` holds, for at most ten seconds.
pub fn events(traffic: &mut Traffic, enough: impl Fn(&[Event]) -> bool) -> Vec<Event> {
    let (started, mut list) = (Instant::now(), Vec::new());
    while !enough(&list) {
        assert!(started.elapsed() < Duration::from_secs(10), "{list:?}");
        match traffic.event() {
            Some(event) => list.push(event),
            None => thread::sleep(Duration::from_millis(5)),
        }
    }
    list
}

/// Starts a listener at the other end, which reads all of each connection and answers with `answer` bytes. Returns its address and the
/// number of bytes read.
pub fn sink(pair: &Pair, answer: usize) -> (SocketAddr, Arc<AtomicU64>) {
    let arrived = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&arrived);
    let listener = pair.there(|| TcpListener::bind("[::]:0").unwrap()).join().unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, count) = (stream.unwrap(), Arc::clone(&count));
            thread::spawn(move || {
                let mut buffer = vec![0; 1 << 16];
                while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
                    count.fetch_add(bytes as u64, Ordering::Relaxed);
                }
                let _ = stream.write_all(&vec![1; answer]);
            });
        }
    });
    (address, arrived)
}

/// A Python program that waits for a line at each of its steps.
pub struct Python(Child);

impl Python {
    pub fn start(group: &Group, text: &str, words: &[String]) -> Python {
        let mut command = group.command("python3");
        command.args(["-c", text]).args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        Python(command.spawn().unwrap())
    }

    pub fn go_on(&mut self) {
        writeln!(self.0.stdin.as_mut().unwrap()).unwrap();
    }

    pub fn line(&mut self) -> String {
        // The program prints one line at a time, so the dropped buffer holds no other line.
        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    pub fn end(mut self) {
        assert!(self.0.wait().unwrap().success());
    }
}

/// The rate in Mbit/s that a connection's peer acknowledges in the next `seconds`.
pub fn speed(traffic: &Traffic, ends: Ends, seconds: f64) -> Speed {
    let sent = || {
        let list = traffic.connections().unwrap();
        let found = list.iter().find(|(known, _)| *known == ends).expect("it is there");
        found.1.sent
    };
    let before = Reading::of(sent);
    thread::sleep(Duration::from_secs_f64(seconds));
    Reading::of(sent).since(&before).of(125e3)
}

/// A program that sends at full speed, and the number of bytes that have arrived.
pub fn send(pair: &Pair, group: &Group) -> (Child, Arc<AtomicU64>) {
    let (address, arrived) = sink(pair, 0);
    let command = format!("exec cat /dev/zero > /dev/tcp/10.9.0.2/{}", address.port());
    (group.command("bash").args(["-c", &command]).spawn().unwrap(), arrived)
}

/// A program that sends at full speed, the ends of its connection, and the number of bytes that have arrived.
pub fn flood(pair: &Pair, group: &Group, traffic: &mut Traffic) -> (Child, Ends, Arc<AtomicU64>) {
    let (child, arrived) = send(pair, group);
    let ends = events(traffic, |list| !list.is_empty())[0].ends;
    wait_for("the first bytes", || arrived.load(Ordering::Relaxed) > 0);
    (child, ends, arrived)
}
