//! A coordinator on loopback for tests, and an HTTP client over plain sockets.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Builder;
use tokio::sync::watch;
use weir_coordinator::config;
use weir_coordinator::registry::Registry;
use weir_coordinator::server::Coordinator;

/// Timeout that ends a hanging test; longer than any step takes.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// The lease is long because hosts in these tests report once and wait. Under the default lease they would be absent if a
/// schedule is late. Requests have a minute, since a busy machine can take seconds to write the store.
pub const CONFIG: &str = r#"weir-serve = 1
store = "weir.redb"
policy = "saath"
lease = "20s"

[listen]
agents = "127.0.0.1:0"
api = "127.0.0.1:0"

[host]
a = "1Gbit"
b = "1Gbit"
c = "1Gbit"

[service.default]

[service.ads]
applications = ["sort"]

[limits]
body = "200kB"
request = "60s"
events = 64
"#;

/// A coordinator that runs until it is dropped.
pub struct TestServer {
    pub address: SocketAddr,
    pub agents: SocketAddr,
    pub epoch: u64,
    pub folder: TempDir,
    text: String,
    running: Option<RunningCoordinator>,
}

struct RunningCoordinator {
    stop: watch::Sender<bool>,
    registry: Arc<Registry>,
    thread: JoinHandle<()>,
}

impl TestServer {
    pub fn start() -> TestServer {
        TestServer::start_with(tempfile::tempdir().unwrap(), CONFIG.to_owned())
    }

    /// A coordinator that refuses requests which take more than 2 s.
    pub fn start_impatient() -> TestServer {
        let text = CONFIG.replace("request = \"60s\"", "request = \"2s\"");
        TestServer::start_with(tempfile::tempdir().unwrap(), text)
    }

    /// A coordinator with this configuration; paths in it are relative to `folder`.
    pub fn start_with(folder: TempDir, text: String) -> TestServer {
        let (running, agents, address, epoch) = start_coordinator(folder.path(), &text);
        TestServer { address, agents, epoch, folder, text, running: Some(running) }
    }

    pub fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.running.as_ref().unwrap().registry)
    }

    pub fn stop(&mut self) {
        if let Some(RunningCoordinator { stop, registry, thread }) = self.running.take() {
            drop(registry);
            stop.send(true).unwrap();
            thread.join().unwrap();
        }
    }

    /// Stops the coordinator, and starts it again with a changed configuration.
    pub fn restart(&mut self, change: impl Fn(String) -> String) {
        self.stop();
        self.text = change(self.text.clone());
        let (running, agents, address, epoch) = start_coordinator(self.folder.path(), &self.text);
        (self.running, self.agents, self.address, self.epoch) = (Some(running), agents, address, epoch);
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn start_coordinator(folder: &Path, text: &str) -> (RunningCoordinator, SocketAddr, SocketAddr, u64) {
    let file = folder.join("serve.toml");
    fs::write(&file, text).unwrap();
    let config = config::read(&file).unwrap();
    let (stop, stop_receiver) = watch::channel(false);
    let (address_sender, address_receiver) = std::sync::mpsc::channel();
    let thread = thread::spawn(move || {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let mut tries = 0;
            let coordinator = loop {
                match Coordinator::new(config.clone()).await {
                    Ok(coordinator) => break coordinator,
                    // The former coordinator may not have closed the store yet.
                    Err(error) if tries < 100 && error.contains("has the store open") => tries += 1,
                    Err(error) => panic!("{error}"),
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            };
            let (agents, api) = coordinator.addresses().unwrap();
            address_sender.send((agents, api, coordinator.registry())).unwrap();
            coordinator.run(stop_receiver).await.unwrap();
        });
    });
    let (agents, api, registry) = address_receiver.recv().unwrap();
    let epoch = registry.epoch();
    (RunningCoordinator { stop, registry, thread }, agents, api, epoch)
}

fn open_socket(server: &TestServer) -> TcpStream {
    let socket = TcpStream::connect(server.address).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket.set_write_timeout(Some(TIMEOUT)).unwrap();
    socket
}

/// Response to these bytes, at least up to the end of its head. Reading stops after the head, at a timeout, or when the server
/// closes the connection; the server may close the connection before it has read everything.
pub fn send_raw(server: &TestServer, bytes: &[u8]) -> String {
    let mut socket = open_socket(server);
    let _ = socket.write_all(bytes);
    let (mut answer, mut chunk) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = socket.read(&mut chunk) {
        answer.extend_from_slice(&chunk[..count]);
        if answer.windows(4).any(|end| end == b"\r\n\r\n") {
            break;
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// The bytes of a request, after which the connection is closed.
pub fn request_bytes(method: &str, path: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Status and body of a response without chunks.
pub fn parse_response(all: &[u8]) -> (u16, String) {
    let text = String::from_utf8_lossy(all);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text}"));
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn send_request(server: &TestServer, method: &str, path: &str, body: &[u8]) -> (u16, String) {
    send_bytes(server, &request_bytes(method, path, body))
}

/// Status and body of the response to these bytes, after which the server closes the connection.
pub fn send_bytes(server: &TestServer, bytes: &[u8]) -> (u16, String) {
    let mut socket = open_socket(server);
    // The server may answer and close before it has read everything.
    let _ = socket.write_all(bytes);
    let mut all = Vec::new();
    let _ = socket.read_to_end(&mut all);
    parse_response(&all)
}

/// Status and body of a GET request.
pub fn get_text(server: &TestServer, path: &str) -> (u16, String) {
    send_request(server, "GET", path, b"")
}

pub fn send_json_request(server: &TestServer, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
    let (status, body) = send_request(server, method, path, body);
    (status, serde_json::from_str(&body).unwrap_or(Value::Null))
}

pub fn get(server: &TestServer, path: &str) -> (u16, Value) {
    send_json_request(server, "GET", path, b"")
}

pub fn put(server: &TestServer, path: &str, body: &Value) -> (u16, Value) {
    send_json_request(server, "PUT", path, body.to_string().as_bytes())
}

/// A stream of events.
pub struct EventStream(BufReader<TcpStream>);

impl EventStream {
    /// Opens a stream that receives all events from now on.
    pub fn open(server: &TestServer) -> EventStream {
        let mut socket = open_socket(server);
        socket.write_all(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut events = EventStream(BufReader::new(socket));
        while events.read_line() != "" {}
        events
    }

    fn read_line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream has ended");
        line.trim_end().to_owned()
    }

    /// The rest of the stream, until the server closes it.
    pub fn read_to_end(mut self) -> String {
        let mut text = String::new();
        self.0.read_to_string(&mut text).unwrap();
        text
    }

    /// The rest of the next line that starts with `prefix`.
    pub fn next_with_prefix(&mut self, prefix: &str) -> String {
        loop {
            if let Some(rest) = self.read_line().strip_prefix(prefix) {
                return rest.to_owned();
            }
        }
    }
}
