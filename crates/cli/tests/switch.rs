//! `weir agent run` at a switch: the queues of its ports are those of services, whose weights an operator changes. On a bed of namespaces;
//! without the privileges for one the test says so and skips.

#![cfg(target_os = "linux")]

mod bed;
#[path = "../../coordinator/tests/certificates/mod.rs"]
mod certificates;
mod common;

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use bed::{Bed, LINE, PORT, Process, address, in_namespace};
use certificates::Authority;
use common::{counted, wait_for, wait_within};
use nix::sys::socket::{setsockopt, sockopt};

/// The host of the coordinator, and how many hosts there are.
const COORDINATOR: u32 = 3;
const HOSTS: u32 = 4;

/// All ports of the switch, in the order of hosts.
const CONFIG: &str = "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"fair\"\nqueues = \"services\"\n\
                      [host]\nh0 = \"40Mbit\"\nh1 = \"40Mbit\"\nh2 = \"40Mbit\"\nh3 = \"40Mbit\"\n\
                      [switch]\nedge = [\"h0\", \"h1\", \"h2\", \"h3\"]\n\
                      [service.one]\n[service.three]\nweight = 3\n";

/// Certificates of the coordinator, the switch and an operator, beside the configuration.
fn certify(bed: &Bed) {
    let authority = Authority::new();
    authority.server_at(&bed.place.path("."), &[&address(COORDINATOR).to_string(), "127.0.0.1"]);
    for (name, identity) in [("edge", "weir://agent/edge"), ("ann", "weir://operator/ann")] {
        let pair = authority.signed(&[identity]);
        bed.place.write(&format!("{name}.pem"), &pair.certificate);
        bed.place.write(&format!("{name}.key"), &pair.key);
    }
    let tls = "[tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\nclients = \"authority.pem\"\n";
    let listen =
        format!("[listen]\nagents = \"{}:{PORT}\"\napi = \"127.0.0.1:7701\"\n", address(COORDINATOR));
    bed.place.write("serve.toml", &format!("{CONFIG}{listen}{tls}"));
}

/// What proves who somebody is.
fn credentials(name: &str) -> [String; 6] {
    let file = |end: &str| format!("{name}.{end}");
    let authority = "authority.pem".to_owned();
    [
        "--certificate".to_owned(),
        file("pem"),
        "--key".to_owned(),
        file("key"),
        "--authority".to_owned(),
        authority,
    ]
}

fn switch(bed: &Bed) -> String {
    let all = Command::new("ip").args(["netns", "list"]).output().unwrap();
    let all = String::from_utf8(all.stdout).unwrap();
    let hosts: Vec<String> = (0..HOSTS).map(|host| bed.namespace(host)).collect();
    let own = |name: &&str| name.starts_with(&bed.prefix()) && !hosts.iter().any(|host| host == name);
    all.lines().filter_map(|line| line.split(' ').next()).find(own).unwrap().to_owned()
}

fn tc(namespace: &str, line: &str) -> String {
    let output = Command::new("tc").args(["-n", namespace]).args(line.split(' ')).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The agent of the switch.
fn agent(bed: &Bed, namespace: &str) -> Process {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, env!("CARGO_BIN_EXE_weir"), "agent", "run"]);
    command.args([
        "--host",
        &HOSTS.to_string(),
        "--coordinator",
        &format!("{}:{PORT}", address(COORDINATOR)),
    ]);
    command.args(credentials("edge"));
    for port in 0..HOSTS {
        command.args(["--port", &format!("eth{port}=40Mbit")]);
    }
    Process(command.current_dir(bed.place.path(".")).spawn().unwrap())
}

/// Sends from a host to the third with a mark for as long as somebody listens; the answer is what arrives there.
fn flood(bed: &Bed, from: u32, mark: i32) -> Arc<AtomicU64> {
    let to = SocketAddr::from((address(2), 9000 + from as u16));
    let listener = in_namespace(&bed.namespace(2), move || TcpListener::bind(to).unwrap());
    let mut stream = in_namespace(&bed.namespace(from), move || TcpStream::connect(to).unwrap());
    setsockopt(&stream, sockopt::Ipv4Tos, &(mark << 2)).unwrap();
    let arrived = counted(move || listener.accept().unwrap().0);
    thread::spawn(move || while stream.write_all(&[0; 1 << 14]).is_ok() {});
    arrived
}

#[test]
fn ports_of_a_switch_have_the_queues_of_services() {
    let Some(bed) = Bed::up("switch", HOSTS) else { return };
    let namespace = switch(&bed);
    let ports: Vec<String> = (0..HOSTS).map(|port| format!("eth{port}")).collect();
    // What the bed has there to be as slow as its links gives way to what the agent has, which is as slow.
    for port in &ports {
        tc(&namespace, &format!("qdisc del dev {port} root"));
    }
    certify(&bed);
    let mut command = bed.inside(COORDINATOR, Path::new(env!("CARGO_BIN_EXE_weir")));
    command.args(["serve", "--config", "serve.toml"]).current_dir(bed.place.path(".")).stderr(Stdio::null());
    let _coordinator = Process(command.spawn().unwrap());
    let ctl = |words: &str| {
        let mut command = bed.inside(COORDINATOR, Path::new(env!("CARGO_BIN_EXE_weir")));
        command.arg("ctl").args(words.split(' ')).args(credentials("ann")).current_dir(bed.place.path("."));
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    wait_for("the coordinator", || ctl("status").0);
    let mut first = agent(&bed, &namespace);
    let is_present = |there: &str| {
        let line = format!("edge,{there},");
        wait_for(&line, || ctl("switches --format csv").1.lines().any(|found| found.starts_with(&line)));
    };
    is_present("true");

    let [one, three] = [flood(&bed, 0, 1), flood(&bed, 1, 2)];
    let share = || {
        let read = || [&one, &three].map(|count| count.load(Ordering::Relaxed) as f64);
        let before = read();
        thread::sleep(Duration::from_millis(1500));
        let after = read();
        let [one, three] = [0, 1].map(|at| after[at] - before[at]);
        eprintln!("{:.3} of the line, the first has {:.3}", (one + three) / 1.5 / LINE, one / (one + three));
        one / (one + three)
    };
    // Waits for what is in queues and on the way.
    let comes_to = |expected: f64| {
        wait_within(Duration::from_secs(20), &format!("a share of {expected}"), || {
            (share() - expected).abs() < 0.03
        });
    };
    comes_to(0.25);
    assert!(ctl("weight one 9").0);
    comes_to(0.75);
    let weights = ctl("queues --format csv").1;
    assert!(weights.lines().any(|line| line == "h2,in,0.75 0.25,0 1"), "{weights}");

    // Without an agent all stays, and the next one changes nothing.
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    is_present("false");
    comes_to(0.75);
    let classes =
        || ports.iter().map(|port| tc(&namespace, &format!("class show dev {port}"))).collect::<Vec<_>>();
    let before = classes();
    let mut second = agent(&bed, &namespace);
    is_present("true");
    thread::sleep(Duration::from_millis(300));
    assert_eq!(classes(), before);
    // In the end everything is as the kernel has it by itself.
    assert!(Command::new("kill").arg(second.0.id().to_string()).status().unwrap().success());
    assert!(second.0.wait().unwrap().success());
    for port in &ports {
        let queues = tc(&namespace, &format!("qdisc show dev {port}"));
        assert!(queues.starts_with("qdisc noqueue"), "{port}: {queues}");
    }
}
