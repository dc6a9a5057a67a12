//! Tests `weir relay` with `weir serve`, as processes on loopback addresses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_client::{FlowReceiver, FlowSender, Route};
use weir_tls::TlsFiles;

use crate::certificates::Authority;
use crate::common::serving::CoordinatorProcess;
use crate::common::{TestDir, wait_for};

const CONFIG: &str = r#"weir-serve = 1
store = "weir.redb"

[listen]
agents = "127.0.0.1:0"
api = "127.0.0.1:0"

[overlay]
policy = "fifo"

[overlay.relay]
west = { region = "w", address = "127.0.5.1:WEST", networks = ["127.0.5.0/24"] }
east = { region = "e", address = "127.0.6.1:EAST", networks = ["127.0.6.0/24"] }

[overlay.link]
w = { e = "1Gbit" }
e = { w = "1Gbit" }
"#;

fn free_port(address: &str) -> u16 {
    TcpListener::bind((address, 0)).unwrap().local_addr().unwrap().port()
}

/// A relay as a process, which is killed when dropped.
struct RelayProcess {
    child: Child,
    log: Arc<Mutex<String>>,
}

impl Drop for RelayProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl RelayProcess {
    fn start(dir: &TestDir, line: &str) -> RelayProcess {
        let mut child = dir.command(line).stderr(Stdio::piped()).spawn().unwrap();
        let (stderr, log) = (child.stderr.take().unwrap(), Arc::new(Mutex::new(String::new())));
        let lines = Arc::clone(&log);
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                lines.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        RelayProcess { child, log }
    }

    fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// The number of log lines with this text.
    fn count(&self, text: &str) -> usize {
        self.log().lines().filter(|line| line.contains(text)).count()
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }
}

/// A coordinator with the relays `west` and `east`.
struct Overlay {
    dir: TestDir,
    coordinator: CoordinatorProcess,
    ports: [u16; 2],
}

impl Overlay {
    fn new() -> Overlay {
        let dir = TestDir::new();
        let ports = [free_port("127.0.5.1"), free_port("127.0.6.1")];
        let config = CONFIG.replace("WEST", &ports[0].to_string()).replace("EAST", &ports[1].to_string());
        dir.write("serve.toml", &config);
        let coordinator = CoordinatorProcess::start(&dir.path("serve.toml"));
        Overlay { dir, coordinator, ports }
    }

    fn start_relay(&self, name: &str, relays: &str, programs: &str) -> RelayProcess {
        let line = format!(
            "relay run --name {name} --coordinator {} --relays {relays} --programs {programs} --drain 20s",
            self.coordinator.agents_address
        );
        RelayProcess::start(&self.dir, &line)
    }

    /// Starts both relays, and returns them with the address of `west` for programs.
    fn start_relays(&self) -> (RelayProcess, RelayProcess, String) {
        let programs = format!("127.0.5.1:{}", free_port("127.0.5.1"));
        let west = self.start_relay("west", &format!("127.0.5.1:{}", self.ports[0]), &programs);
        let east = self.start_relay("east", &format!("127.0.6.1:{}", self.ports[1]), "127.0.6.1:0");
        wait_for("connected relays", || {
            [&west, &east].into_iter().all(|relay| relay.count("relay is connected") > 0)
        });
        (west, east, programs)
    }

    /// Registers a coflow with one flow from west to east.
    fn register(&self, id: &str, bytes: usize) {
        let body = format!("{{\"flows\":[{{\"from\":\"w\",\"to\":\"e\",\"bytes\":{bytes}}}]}}");
        let mut socket = TcpStream::connect(&self.coordinator.api_address).unwrap();
        let length = body.len();
        let head = format!(
            "PUT /v1/coflows/{id} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
             connection: close\r\n\r\n"
        );
        socket.write_all((head + &body).as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

/// The log of a coordinator, which ends.
fn read_log(mut coordinator: CoordinatorProcess) -> String {
    coordinator.child.kill().unwrap();
    let mut text = String::new();
    coordinator.log.read_to_string(&mut text).unwrap();
    text
}

/// Opens flow 0 of a coflow. Returns the connections of the sender and of the receiver.
///
/// Tries again while the relay refuses the flow, because the registration of the coflow has not arrived at the relay yet.
fn open_flow(programs: &str, coflow: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.6.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let line = format!("weir-flow/2 {coflow} 0 0 0 {}\n", listener.local_addr().unwrap());
    let open = || {
        let mut sender = TcpStream::connect(programs).unwrap();
        sender.write_all(line.as_bytes()).unwrap();
        sender
    };
    let mut sender = open();
    let mut receiver = None;
    wait_for("the receiver's connection", || {
        receiver = listener.accept().ok().map(|(receiver, _)| receiver);
        sender.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        if receiver.is_none() && sender.peek(&mut [0]).is_ok() {
            sender = open();
        }
        receiver.is_some()
    });
    let receiver = receiver.expect("`wait_for` returned");
    receiver.set_nonblocking(false).unwrap();
    for connection in [&sender, &receiver] {
        connection.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    }
    (sender, receiver)
}

#[test]
fn second_relay_with_a_name_is_refused_and_does_not_disturb_the_first() {
    let overlay = Overlay::new();
    let first = overlay.start_relay("west", "127.0.5.1:0", "127.0.5.1:0");
    wait_for("the first relay", || first.count("connected with the coordinator") == 1);
    let second = overlay.start_relay("west", "127.0.5.1:0", "127.0.5.1:0");
    wait_for("a refusal", || second.count("another relay named west is connected from 127.0.0.1:") > 0);
    thread::sleep(Duration::from_secs(2));
    assert_eq!(second.count("help: give each relay its own --name"), 1, "{}", second.log());
    assert_eq!(second.count("connected with the coordinator"), 0, "{}", second.log());
    assert_eq!((first.count("connected with"), first.count("ended")), (1, 0), "{}", first.log());
    drop(first);
    wait_for("the second relay takes over", || second.count("connected with the coordinator") == 1);
    let log = read_log(overlay.coordinator);
    let warnings: Vec<Value> = log
        .lines()
        .filter(|line| line.contains("two relays have the same name"))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(warnings.len(), 1, "{log}");
    let fields = &warnings[0]["fields"];
    assert_eq!((&warnings[0]["level"], &fields["relay"]), (&"WARN".into(), &"west".into()));
    for address in ["connected", "refused"] {
        assert!(fields[address].as_str().unwrap().starts_with("127.0.0.1:"), "{log}");
    }
}

#[test]
fn coflow_completes_at_the_coordinator_while_its_relay_drains() {
    let overlay = Overlay::new();
    let (mut west, _east, programs) = overlay.start_relays();
    overlay.register("drained", 4);
    let (mut sender, receiver) = open_flow(&programs, "drained");
    west.signal("TERM");
    wait_for("a line about the drain", || {
        west.count("draining 1 flow for up to 20 s; interrupt again to stop now") == 1
    });
    // The relay stays present, and its reports arrive.
    thread::sleep(Duration::from_secs(4));
    let relays: Value = serde_json::from_str(&overlay.coordinator.get("/v1/relays")).unwrap();
    assert_eq!(relays.as_array().unwrap().iter().filter(|relay| relay["present"] == true).count(), 2);
    sender.write_all(b"data").unwrap();
    let (mut reader, mut line) = (BufReader::new(&receiver), String::new());
    reader.read_line(&mut line).unwrap();
    reader.read_exact(&mut [0; 4]).unwrap();
    (&receiver).write_all(b"ack 0\nack 4\n").unwrap();
    let mut answers = BufReader::new(&sender);
    while line != "ack 4\n" {
        line.clear();
        assert!(answers.read_line(&mut line).unwrap() > 0);
    }
    // The last report contains the end of the flow.
    sender.shutdown(Shutdown::Both).unwrap();
    assert!(west.child.wait().unwrap().success());
    let coflows: Value = serde_json::from_str(&overlay.coordinator.get("/v1/coflows")).unwrap();
    assert_eq!(coflows["coflows"][0]["done"], 1, "{coflows}");
    assert!(coflows["coflows"][0]["measured_seconds"].is_number(), "{coflows}");
    wait_for("the last line", || west.count("stopping; no flow is open") == 1);
}

/// Sends 20 flows of 1,000 bytes, alternately over two relays, and receives them.
fn send_flows(coflow: &str, programs: &[String; 2]) {
    let receiver = FlowReceiver::bind("127.0.6.1:0").unwrap();
    let address = receiver.address();
    thread::scope(|scope| {
        for (flow, relay) in (0..20).zip(programs.iter().cycle()) {
            let route = Route { relay: Some(relay.parse().unwrap()), receiver: address };
            scope.spawn(move || {
                let mut sender = FlowSender::new(coflow, flow, route).unwrap();
                sender.write_all(&[7; 1000]).unwrap();
                sender.finish().unwrap();
            });
        }
        for flow in 0..20 {
            let mut data = Vec::new();
            receiver.receive(coflow, flow, Duration::from_secs(30)).unwrap().read_to_end(&mut data).unwrap();
            assert_eq!(data, [7; 1000]);
        }
    });
}

#[test]
fn relays_of_both_regions_divide_the_flows_of_a_coflow_that_completes() {
    let hosts = ["127.0.5.1", "127.0.5.2", "127.0.6.1", "127.0.6.2"];
    let addresses = hosts.map(|host| format!("{host}:{}", free_port(host)));
    let names = ["west", "west-2", "east", "east-2"];
    let (head, rest) = CONFIG.split_once("west = ").unwrap();
    let (_, links) = rest.split_once("\n\n").unwrap();
    let mut config = head.to_owned();
    for ((name, address), region) in names.into_iter().zip(&addresses).zip(["w", "w", "e", "e"]) {
        let network = if region == "w" { "127.0.5.0/24" } else { "127.0.6.0/24" };
        config += &format!(
            "{name} = {{ region = \"{region}\", address = \"{address}\", networks = [\"{network}\"] }}\n"
        );
    }
    let dir = TestDir::new();
    dir.write("serve.toml", &format!("{config}\n{links}"));
    let coordinator = CoordinatorProcess::start(&dir.path("serve.toml"));
    let overlay = Overlay { dir, coordinator, ports: [0; 2] };
    let programs = ["127.0.5.1", "127.0.5.2"].map(|host| format!("{host}:{}", free_port(host)));
    let any_port = ["127.0.6.1:0".to_owned(), "127.0.6.2:0".to_owned()];
    let relays: Vec<RelayProcess> = names
        .into_iter()
        .zip(&addresses)
        .zip(programs.iter().chain(&any_port))
        .map(|((name, address), programs)| overlay.start_relay(name, address, programs))
        .collect();
    wait_for("connected relays", || {
        let paths: Value = serde_json::from_str(&overlay.coordinator.get("/v1/paths")).unwrap();
        paths.as_array().unwrap().iter().filter(|path| path["connected"] == true).count() == 12
    });
    // The data and the headers of two chunks for each flow.
    overlay.register("shared", 20 * 1016);
    wait_for("the coflow at the relays", || {
        let relays: Value = serde_json::from_str(&overlay.coordinator.get("/v1/relays")).unwrap();
        relays
            .as_array()
            .unwrap()
            .iter()
            .all(|relay| relay["coflows"] == 1 && relay["ordered"] == relay["applied"])
    });
    send_flows("shared", &programs);
    wait_for("the completion", || {
        let coflows: Value = serde_json::from_str(&overlay.coordinator.get("/v1/coflows")).unwrap();
        coflows["coflows"][0]["measured_seconds"].is_number()
    });
    let paths: Value = serde_json::from_str(&overlay.coordinator.get("/v1/paths")).unwrap();
    let mut sent = 0;
    for path in paths.as_array().unwrap() {
        let bytes = path["sent_bytes"].as_u64().unwrap();
        let is_between_regions = path["from_region"] == "w" && path["to_region"] == "e";
        assert_eq!(bytes > 0, is_between_regions, "{path}");
        sent += bytes;
    }
    assert_eq!(sent, 20 * 1016);
    drop(relays);
}

/// Relays in three regions; half of the bytes from west to east are on a detour over north.
const DETOUR: &str = r#"
[[relays]]
name = "west"
address = "WEST"
networks = ["127.0.5.0/24"]
[[relays]]
name = "east"
address = "EAST"
networks = ["127.0.6.0/24"]
[[relays]]
name = "north"
address = "NORTH"
networks = ["127.0.7.0/24"]
[[coflows]]
name = "shuffle"
[[rules]]
coflow = "shuffle"
from = "west"
to = "east"
priority = 0
paths = { east = 0.5, north = 0.5 }
"#;

/// The longest time without data at the receiver of a flow that sends 64 KiB each 20 ms, and calls `halfway` in the middle.
fn longest_stall(programs: &str, halfway: impl FnOnce() + Send) -> Duration {
    let receiver = FlowReceiver::bind("127.0.6.1:0").unwrap();
    let route = Route { relay: Some(programs.parse().unwrap()), receiver: receiver.address() };
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut sender = FlowSender::new("shuffle", 0, route).unwrap();
            let mut halfway = Some(halfway);
            for number in 0..200 {
                sender.write_all(&[7; 64 << 10]).unwrap();
                sender.flush().unwrap();
                thread::sleep(Duration::from_millis(20));
                if number == 100 {
                    halfway.take().into_iter().for_each(|halfway| halfway());
                }
            }
            sender.finish().unwrap();
        });
        let mut flow = receiver.receive("shuffle", 0, Duration::from_secs(30)).unwrap();
        let (mut last, mut longest, mut bytes) = (Instant::now(), Duration::ZERO, 0);
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = flow.read(&mut buffer).unwrap();
            (longest, last) = (longest.max(last.elapsed()), Instant::now());
            bytes += count;
            if count == 0 {
                break;
            }
        }
        assert_eq!(bytes, 200 * (64 << 10));
        longest
    })
}

#[test]
fn flow_stalls_for_a_second_at_most_when_a_relay_on_its_detour_is_stopped() {
    let hosts = ["127.0.5.1", "127.0.6.1", "127.0.7.1"];
    let [west, east, north] = hosts.map(|host| format!("{host}:{}", free_port(host)));
    let dir = TestDir::new();
    dir.write("overlay.toml", &DETOUR.replace("WEST", &west).replace("EAST", &east).replace("NORTH", &north));
    let programs = hosts.map(|host| format!("{host}:{}", free_port(host)));
    let start = |name: &str, programs: &str| {
        let line = format!(
            "relay run --name {name} --overlay {} --programs {programs}",
            dir.path("overlay.toml").display()
        );
        RelayProcess::start(&dir, &line)
    };
    let relays = [start("west", &programs[0]), start("east", &programs[1]), start("north", &programs[2])];
    wait_for("connected relays", || relays.iter().all(|relay| relay.count("relay is connected") == 2));
    let [west, _, north] = &relays;
    let stall = longest_stall(&programs[0], || north.signal("STOP"));
    assert!(west.count("relay is silent; detours avoid it") > 0, "{}", west.log());
    assert!(stall < Duration::from_secs(1), "{stall:?}\n{}", west.log());
}

#[test]
fn second_signal_ends_a_draining_relay_at_once() {
    let overlay = Overlay::new();
    let (mut west, _east, programs) = overlay.start_relays();
    overlay.register("held", 4);
    let _flow = open_flow(&programs, "held");
    let start = Instant::now();
    west.signal("INT");
    wait_for("a line about the drain", || west.count("draining 1 flow for up to 20 s") == 1);
    west.signal("INT");
    assert_eq!(west.child.wait().unwrap().code(), Some(130));
    // The drain itself would end after 20 s.
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn relays_log_a_tls_mismatch_once() {
    let dir = TestDir::new();
    let authority = Authority::new("own");
    let options = |files: TlsFiles| {
        let [certificate, key, clients] =
            [files.certificate, files.key, files.clients].map(|path| path.to_str().unwrap().to_owned());
        format!("--certificate {certificate} --key {key} --authority {clients}")
    };
    let folder = |name: &str| {
        std::fs::create_dir(dir.path(name)).unwrap();
        dir.path(name)
    };
    let tls = |name: &str| options(authority.write_files(&folder(name), &format!("weir://relay/{name}")));
    let [west, east] = ["west", "east"].map(tls);
    // The first relay connects to the second one.
    for (west, east, west_log, east_log) in [
        (
            west.as_str(),
            "",
            "closed the connection during the handshake; expected TLS; help",
            "uses TLS; expected plain",
        ),
        ("", east.as_str(), "expects TLS; help", "uses plain text; expected TLS; help"),
    ] {
        let ports = ["127.0.7.1", "127.0.8.1"].map(|ip| (ip, free_port(ip)));
        let relay = |name: &str, (ip, port): (&str, u16)| {
            format!("[[relays]]\nname = \"{name}\"\naddress = \"{ip}:{port}\"\nnetworks = [\"{ip}/32\"]\n")
        };
        dir.write("overlay.toml", &(relay("west", ports[0]) + &relay("east", ports[1])));
        let run = |name: &str, ip: &str, options: &str| {
            let line = format!("relay run --name {name} --overlay overlay.toml --programs {ip}:0 {options}");
            RelayProcess::start(&dir, &line)
        };
        let east = run("east", "127.0.8.1", east);
        wait_for("a listening relay", || east.count("listening") > 0);
        let west = run("west", "127.0.7.1", west);
        wait_for("a line of the connecting relay", || west.count(west_log) > 0);
        wait_for("a line of the accepting relay", || east.count(east_log) > 0);
        // Further attempts fail for the same reason.
        thread::sleep(Duration::from_secs(3));
        assert_eq!((west.count("cannot connect to relay"), west.count(west_log)), (1, 1), "{}", west.log());
        assert_eq!((east.count("is refused"), east.count(east_log)), (1, 1), "{}", east.log());
    }
    // Programs. The relay that requires TLS of all programs, then the one without TLS.
    dir.write(
        "overlay.toml",
        &format!(
            "[[relays]]\nname = \"west\"\naddress = \"127.0.7.1:{}\"\nnetworks = [\"127.0.7.1/32\"]\n",
            free_port("127.0.7.1")
        ),
    );
    let line = b"weir-flow/2 shuffle 0 0 0 127.0.8.1:9\n".as_slice();
    for (options, first_bytes, reason) in [
        (format!("{west} --tls-local"), line, "the program uses plain text; expected TLS; help"),
        (String::new(), [0x16, 3, 1, 1, 0].as_slice(), "the program uses TLS; expected plain text; help"),
    ] {
        let programs = format!("127.0.7.1:{}", free_port("127.0.7.1"));
        let run = format!("relay run --name west --overlay overlay.toml --programs {programs} {options}");
        let relay = RelayProcess::start(&dir, &run);
        wait_for("a listening relay", || relay.count("listening") > 0);
        for _ in 0..3 {
            let mut stream = TcpStream::connect(&programs).unwrap();
            stream.write_all(first_bytes).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            // An alert, or the reason of the refusal.
            stream.read_to_end(&mut Vec::new()).unwrap();
        }
        wait_for("a log line", || relay.count(reason) > 0);
        assert_eq!((relay.count("connection of a program is refused"), relay.count(reason)), (1, 1));
    }
}

#[test]
fn relay_and_coordinator_log_a_tls_mismatch_once() {
    let authority = Authority::new("own");
    for has_tls in [true, false] {
        let dir = TestDir::new();
        let files = authority.write_files(&dir.path("."), "weir://relay/west");
        let [certificate, key, clients] =
            [files.certificate, files.key, files.clients].map(|path| path.to_str().unwrap().to_owned());
        let tls = format!(
            "[tls]\ncertificate = \"{certificate}\"\nkey = \"{key}\"\nclients = \"{clients}\"\n\n[overlay]\n"
        );
        let config = CONFIG.replace("WEST", "7710").replace("EAST", "7710");
        dir.write("serve.toml", &if has_tls { config.replace("[overlay]\n", &tls) } else { config });
        let coordinator = CoordinatorProcess::start(&dir.path("serve.toml"));
        let options = match has_tls {
            true => String::new(),
            false => format!("--certificate {certificate} --key {key} --authority {clients}"),
        };
        let address = &coordinator.agents_address;
        let run = format!(
            "relay run --name west --coordinator {address} --relays 127.0.5.1:0 --programs 127.0.5.1:0 {options}"
        );
        let relay = RelayProcess::start(&dir, &run);
        let reason = match has_tls {
            true => {
                "the coordinator closed the connection; help: if it uses TLS, start the relay with --certificate"
            }
            false => "the coordinator uses plain text; expected TLS; help: set [tls] in its configuration",
        };
        wait_for("a line of the relay", || relay.count(reason) > 0);
        thread::sleep(Duration::from_secs(2));
        assert_eq!((relay.count("no coordinator"), relay.count(reason)), (1, 1), "{}", relay.log());
        let warnings = read_log(coordinator).matches("the peer uses plain text; expected TLS; help").count();
        assert_eq!(warnings, usize::from(has_tls));
    }
}

#[test]
fn relay_reads_a_new_certificate_and_keeps_it_if_the_next_one_is_unusable() {
    let (dir, new) = (TestDir::new(), TestDir::new());
    let authority = Authority::new("own");
    let files = authority.write_files(&dir.path("."), "weir://relay/west");
    let [certificate, key, clients] =
        [&files.certificate, &files.key, &files.clients].map(|path| path.to_str().unwrap());
    let overlay = format!(
        "[[relays]]\nname = \"west\"\naddress = \"127.0.9.1:{}\"\nnetworks = [\"127.0.9.1/32\"]\n",
        free_port("127.0.9.1")
    );
    dir.write("overlay.toml", &overlay);
    let run = format!(
        "relay run --name west --overlay overlay.toml --programs 127.0.9.1:0 --certificate {certificate} --key {key} \
         --authority {clients}"
    );
    let relay = RelayProcess::start(&dir, &run);
    wait_for("a listening relay", || relay.count("listening") > 0);
    let other = authority.write_files(&new.path("."), "weir://relay/west");
    // The certificate without its key is unusable, and the pair is used at the next look.
    for (from, to, line) in [
        (&other.certificate, &files.certificate, "new certificate files are unusable"),
        (&other.key, &files.key, "new certificate in use"),
    ] {
        std::fs::copy(from, to).unwrap();
        wait_for("a look at the files", || relay.count(line) > 0);
    }
    assert_eq!((relay.count("are unusable"), relay.count("in use")), (1, 2), "{}", relay.log());
}
