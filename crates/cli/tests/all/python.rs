//! Runs the tests of the Python module. They skip with a message without Python.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use weir_client::{FlowReceiver, FlowSender, Route};

/// Sends back a flow: its arguments are the ports of this program and of the other.
const ECHO: &str = "import sys
from weir import FlowReceiver, FlowSender, Route
with FlowReceiver(('127.0.0.1', 0)) as receiver:
    print(receiver.address[1], flush=True)
    with FlowSender('c', 1, Route(('127.0.0.1', int(sys.argv[1])))) as sender:
        with receiver.receive('c', 0, timeout=60) as flow:
            while data := flow.read(50_000):
                sender.write(data)
";

fn has_python() -> bool {
    let version_check = ["-c", "import sys; sys.exit(sys.version_info < (3, 10))"];
    let probe = Command::new("python3").args(version_check).output();
    let is_present = probe.as_ref().is_ok_and(|output| output.status.success());
    if !is_present {
        eprintln!("test of the Python module skips, since Python 3.10 is missing: {probe:?}");
    }
    is_present
}

#[test]
fn python_and_rust_exchange_flows() {
    if !has_python() {
        return;
    }
    let receiver = FlowReceiver::bind("127.0.0.1:0").unwrap();
    let mut echo = Command::new("timeout")
        .args(["60", "python3", "-B", "-W", "error", "-c", ECHO, &receiver.address().port().to_string()])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(echo.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let port: u16 = line.trim().parse().unwrap();
    let data: Vec<u8> = (0..3_000_000u32).map(|at| (at / 7) as u8).collect();
    let sent = data.clone();
    let sender = std::thread::spawn(move || {
        let mut sender = FlowSender::new("c", 0, Route::direct(("127.0.0.1", port)).unwrap()).unwrap();
        sender.write_all(&sent).unwrap();
        sender.finish().unwrap();
    });
    let mut received = Vec::new();
    receiver.receive("c", 1, Duration::from_secs(60)).unwrap().read_to_end(&mut received).unwrap();
    sender.join().unwrap();
    assert!(received == data && echo.wait().unwrap().success());
}

#[test]
fn python_module_passes_its_tests() {
    if !has_python() {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let output = Command::new("timeout")
        .args(["120", "python3", "-B", "-W", "error", "-m", "unittest", "discover", "-s", "tests", "-t", "."])
        .current_dir(folder)
        .env("WEIR", env!("CARGO_BIN_EXE_weir"))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    // The output names skipped tests.
    eprintln!("{stderr}");
}
