//! The client library, with a coordinator and an agent as processes on loopback. The tests of the Python
//! module check the packets' marks.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::serving::Serving;
use crate::common::{Place, wait_for};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::{Ipv4Tos, Ipv6TClass};
use weir_client::{
    Agent, Application, Coflow, Coordinator, CoordinatorError, Flow, Inbox, Registration, put,
};

/// A link of 2 MB/s. When a lease ends, loopback carries the rest at once, so the lease is longer than a busy
/// machine stalls.
const CONFIG: &str = "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"saath\"\nlease = \"20s\"\n\
                      [listen]\nagents = \"127.0.0.1:0\"\napi = \"127.0.0.1:0\"\n\
                      [host]\na = \"16Mbit\"\nb = \"16Mbit\"\n[service.default]\n[service.ads]\n";

const TABLE: &str = "version = 1\n[[application]]\nname = \"LR\"\ncoefficients = [5.231, -7.966, 3.723]\n";

const SOON: Duration = Duration::from_secs(20);

fn serve(place: &Place) -> Serving {
    place.write("serve.toml", CONFIG);
    Serving::start(&place.path("serve.toml"))
}

/// An agent of host `a` that is connected to its coordinator.
struct Attending {
    child: Child,
    local_socket: PathBuf,
    /// Keeps the pipe of the agent's log open.
    _log: BufReader<ChildStderr>,
}

impl Attending {
    fn start(place: &Place, serving: &Serving) -> Attending {
        let local_socket = place.path("local_socket");
        let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["agent", "run", "--host", "0", "--rate", "16Mbit", "--coordinator", &serving.agents])
            .arg("--socket")
            .arg(&local_socket)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        log.read_line(&mut line).unwrap();
        let attending = Attending { child, local_socket, _log: log };
        assert!(line.contains("has a coordinator"), "{line}");
        attending
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn status(error: CoordinatorError) -> u16 {
    match error {
        CoordinatorError::Refused { status, .. } => status,
        other => panic!("{other}"),
    }
}

#[test]
fn application_connections_carry_their_class() {
    let place = Place::new();
    let mut serving = serve(&place);
    let coordinator = Coordinator::local(&serving.api).unwrap();
    assert_eq!(status(Application::register(&coordinator, "lr", None, Some("LR")).unwrap_err()), 422);
    let mut socket = std::net::TcpStream::connect(&serving.api).unwrap();
    let head = format!("PUT /v1/sensitivity HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", TABLE.len());
    socket.write_all(format!("{head}{TABLE}").as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(socket).read_line(&mut line).unwrap();
    assert_eq!(line.trim(), "HTTP/1.1 204 No Content");

    let application = Application::register(&coordinator, "lr", None, Some("LR")).unwrap();
    let level = coordinator.get("/v1/applications/lr").unwrap()["level"].as_u64().unwrap();
    assert_eq!((u64::from(application.level()), u64::from(application.dscp())), (level, level + 1));
    let field = i32::from(application.dscp()) << 2;
    let ports = || coordinator.get("/v1/queues").unwrap().as_array().unwrap().len();
    let four = TcpListener::bind("127.0.0.1:0").unwrap();
    let connection = application.connect("a", "b", four.local_addr().unwrap()).unwrap();
    assert!(connection.untold().is_none());
    assert_eq!((getsockopt(connection.stream(), Ipv4Tos).unwrap(), ports()), (field, 2));
    connection.stream().write_all(b"abc").unwrap();
    let mut said = [0; 3];
    let mut taken = four.accept().unwrap().0;
    taken.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"abc");
    // The same over IPv6, if the machine supports it.
    if let Ok(six) = TcpListener::bind("[::1]:0") {
        let connection = application.connect("a", "b", six.local_addr().unwrap()).unwrap();
        assert_eq!(getsockopt(connection.stream(), Ipv6TClass).unwrap(), field);
    }
    assert_eq!(status(coordinator.delete("/v1/applications/lr").unwrap_err()), 409);
    connection.destroy().unwrap();
    assert_eq!((taken.read(&mut said).unwrap(), ports()), (0, 0));
    drop(application.connect("a", "b", four.local_addr().unwrap()).unwrap());
    assert_eq!(ports(), 0);
    // If the coordinator refuses a host name, the connection opens all the same.
    let connection = application.connect("a", "nowhere", four.local_addr().unwrap()).unwrap();
    assert!(connection.untold().unwrap().to_string().contains("`nowhere`"));
    connection.destroy().unwrap();

    serving.child.kill().unwrap();
    serving.child.wait().unwrap();
    let connection = application.connect("a", "b", four.local_addr().unwrap()).unwrap();
    assert!(matches!(connection.untold(), Some(CoordinatorError::Unreached { .. })), "{connection:?}");
    assert_eq!(getsockopt(connection.stream(), Ipv4Tos).unwrap(), field);
    assert!(matches!(application.deregister(), Err(CoordinatorError::Unreached { .. })));
}

#[test]
fn coflow_transfer_is_paced_with_an_agent_and_unpaced_without() {
    let place = Place::new();
    let serving = serve(&place);
    let agent = Attending::start(&place, &serving);
    let coordinator = Coordinator::local(&serving.api).unwrap();
    let data: Vec<u8> = (0..2 << 20).map(|at: u32| at.to_le_bytes()[at as usize % 3]).collect();
    let flow = |bytes| Flow { from: "a".to_owned(), to: "b".to_owned(), bytes };
    let registration = Registration {
        service: Some("ads".to_owned()),
        deadline: Some(Duration::from_millis(30_500)),
        flows: vec![flow(Some(data.len() as u64)), flow(None)],
        ..Registration::default()
    };
    let coflow = Coflow::register(&coordinator, "job/7", &registration).unwrap();
    Coflow::register(&coordinator, "job/7", &registration).unwrap();
    let other = Registration { service: None, ..registration.clone() };
    assert_eq!(status(Coflow::register(&coordinator, "job/7", &other).unwrap_err()), 409);
    let state = || coordinator.get("/v1/coflows/job%2F7").unwrap();
    assert_eq!((&state()["service"], &state()["deadline"]), (&"ads".into(), &"30.5s".into()));
    coflow.update(&[flow(Some(data.len() as u64)), flow(Some(3))]).unwrap();
    assert_eq!(state()["flows"][1]["bytes"], 3.0);

    let mut inbox = Inbox::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = inbox.address().unwrap();
    let receiver = thread::spawn(move || {
        [1, 0].map(|flow| {
            let mut all = Vec::new();
            inbox.get("job/7", flow, SOON).unwrap().read_to_end(&mut all).unwrap();
            all
        })
    });
    let agent_of_host = Agent::connect(&agent.local_socket).unwrap();
    let sent = put(&agent_of_host, "job/7", 1, to, &mut &b"abc"[..]).unwrap();
    assert!(sent.bytes == 3 && sent.unpaced.is_none(), "{sent:?}");
    wait_for("a rate", || !state()["flows"][0]["rate"].is_null());
    let began = Instant::now();
    let sent = put(&agent_of_host, "job/7", 0, to, &mut &data[..]).unwrap();
    assert!(sent.bytes == data.len() as u64 && sent.unpaced.is_none(), "{sent:?}");
    let got = receiver.join().unwrap();
    let took = began.elapsed().as_secs_f64();
    assert!(got[0] == b"abc" && got[1] == data);
    // Headers and the kernel's first burst account for much less than 30 % of the time.
    assert!(took > 0.7 * data.len() as f64 / 2e6, "{took} s");
    wait_for("the end of the coflow", || state()["over"] == true);
    coflow.deregister().unwrap();

    // Without an agent, the transfer succeeds unpaced.
    let mut inbox = Inbox::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    drop(agent);
    let sent = put(&agent_of_host, "c", 0, inbox.address().unwrap(), &mut &b"abc"[..]).unwrap();
    assert!(sent.unpaced.is_some());
    let mut text = String::new();
    inbox.get("c", 0, SOON).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "abc");
}
