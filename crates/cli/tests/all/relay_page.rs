//! Tests `weir relay` as a process, and the commands of docs/relay.md.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{CommandOutput, Process, TestDir, wait_for};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Starts a relay, and waits until it listens.
fn start(dir: &TestDir, line: &str) -> Process {
    let mut child = dir.command(line).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut text = String::new();
    while !text.contains("listening") {
        assert!(log.read_line(&mut text).unwrap() > 0, "weir {line}: {text}");
    }
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    Process(child)
}

/// A free port of a loopback address.
fn free_port(address: &str) -> u16 {
    TcpListener::bind((address, 0)).unwrap().local_addr().unwrap().port()
}

/// Commands of the page after `$`, with the lines that they print.
fn console_commands(page: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    let mut is_console = false;
    for line in page.lines().map(str::trim_start) {
        match line.strip_prefix("$ ") {
            _ if line.starts_with("```") => is_console = line == "```console",
            Some(command) if is_console => commands.push((command.to_owned(), String::new())),
            _ if is_console => {
                let (_, printed) = commands.last_mut().unwrap();
                printed.push_str(line);
                printed.push('\n');
            }
            _ => {}
        }
    }
    commands
}

fn get_metrics(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn tutorial_of_the_relay_page_prints_what_it_shows() {
    let version_check = "import sys; sys.exit(sys.version_info < (3, 10))";
    let probe = Command::new("python3").args(["-c", version_check]).status();
    if !probe.is_ok_and(|status| status.success()) {
        eprintln!("tutorial_of_the_relay_page_prints_what_it_shows skips, since Python 3.10 is missing");
        return;
    }
    let page = fs::read_to_string(root().join("docs/relay.md")).unwrap();
    let overlay = fs::read_to_string(root().join("examples/overlay/overlay.toml")).unwrap();
    assert!(page.contains(overlay.split_once('\n').unwrap().1), "the page shows the overlay file");

    // The ports of the page may be in use.
    let ports = [
        ("127.0.1.1", 7710),
        ("127.0.1.1", 7711),
        ("127.0.1.1", 7712),
        ("127.0.2.1", 7710),
        ("127.0.2.1", 7711),
    ];
    let changes: Vec<(String, String)> =
        ports.iter().map(|(ip, port)| (format!("{ip}:{port}"), format!("{ip}:{}", free_port(ip)))).collect();
    let with_ports =
        |text: &str| changes.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    let receiver_port = free_port("127.0.2.1").to_string();
    let dir = TestDir::new();
    dir.write("overlay.toml", &with_ports(&overlay));
    for file in ["receive.py", "send.py"] {
        let text = fs::read_to_string(root().join("examples/overlay").join(file)).unwrap();
        dir.write(file, &text.replace("7000", &receiver_port));
    }

    let commands = console_commands(&page);
    let [check, west, east, receive, send, metrics] = &commands[..] else { panic!("{commands:?}") };
    let weir = |command: &str| with_ports(command.strip_prefix("weir ").unwrap());
    let shell = |command: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(dir.path(".")).stdout(Stdio::piped());
        shell.env("PYTHONPATH", root().join("python")).env("PYTHONDONTWRITEBYTECODE", "1");
        shell
    };
    assert_eq!(dir.stdout_of(&weir(&check.0)), with_ports(&check.1));
    let (_west, mut east) = (start(&dir, &weir(&west.0)), start(&dir, &weir(&east.0)));
    let metrics_address = with_ports("127.0.1.1:7712");
    wait_for("connected relays", || {
        get_metrics(&metrics_address).contains("weir_relay_peer_connected{peer=\"east\"} 1")
    });
    // Over the relays, and directly after `east` has stopped.
    for is_relayed in [true, false] {
        let receiver = shell(&receive.0).spawn().unwrap();
        let listens = || {
            let table = fs::read_to_string("/proc/net/tcp").unwrap();
            table.contains(&format!(":{:04X} 00000000:0000 0A", receiver_port.parse::<u16>().unwrap()))
        };
        wait_for("a listening receiver", listens);
        let sent = shell(&with_ports(&send.0)).output().map(CommandOutput::new).unwrap();
        assert_eq!((sent.code, sent.stdout.as_str()), (Some(0), send.1.as_str()), "{}", sent.stderr);
        let received = receiver.wait_with_output().map(CommandOutput::new).unwrap();
        assert_eq!(received.stdout, receive.1);
        // The command needs curl; the metrics are the same.
        let pattern = metrics.0.split('\'').nth(1).unwrap().trim_start_matches('^');
        let text = get_metrics(&metrics_address);
        let shown = text.lines().filter(|line| line.starts_with(pattern)).map(|line| format!("{line}\n"));
        assert_eq!(shown.collect::<String>(), metrics.1);
        if is_relayed {
            assert!(east.stop());
        }
    }
}

#[test]
fn relay_drains_on_sigterm() {
    let dir = TestDir::new();
    let (west, east) = (free_port("127.0.3.1"), free_port("127.0.4.1"));
    let relay = |name: &str, ip: &str, port: u16| {
        format!("[[relays]]\nname = \"{name}\"\naddress = \"{ip}:{port}\"\nnetworks = [\"{ip}/32\"]\n")
    };
    let relays = relay("west", "127.0.3.1", west) + &relay("east", "127.0.4.1", east);
    dir.write("overlay.toml", &format!("{relays}[[coflows]]\nname = \"shuffle\"\n"));
    let programs = format!("127.0.3.1:{}", free_port("127.0.3.1"));
    let metrics = format!("127.0.3.1:{}", free_port("127.0.3.1"));
    let run = "relay run --overlay overlay.toml --drain 30s --name";
    let _east = start(&dir, &format!("{run} east --programs 127.0.4.1:0"));
    let mut relay = start(&dir, &format!("{run} west --programs {programs} --metrics {metrics}"));
    wait_for("connected relays", || {
        get_metrics(&metrics).contains("weir_relay_peer_connected{peer=\"east\"} 1")
    });
    let receiver = TcpListener::bind("127.0.4.1:0").unwrap();
    let connect = |flow: u32| {
        let mut stream = TcpStream::connect(&programs).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let line = format!("weir-flow/2 shuffle {flow} 0 0 {}\n", receiver.local_addr().unwrap());
        stream.write_all(line.as_bytes()).unwrap();
        stream
    };
    let mut open = connect(0);
    let (accepted, _) = receiver.accept().unwrap();
    let start_time = Instant::now();
    assert!(Command::new("kill").arg(relay.0.id().to_string()).status().unwrap().success());
    // The first flows may begin before the signal.
    let mut flows = 1..;
    wait_for("a refused flow", || {
        let mut answer = String::new();
        let _ = connect(flows.next().unwrap()).read_to_string(&mut answer);
        answer == "reset busy\n"
    });
    assert!(relay.0.try_wait().unwrap().is_none());
    open.write_all(b"data").unwrap();
    open.shutdown(Shutdown::Write).unwrap();
    let mut reader = BufReader::new(accepted);
    let (mut line, mut data) = (String::new(), Vec::new());
    reader.read_line(&mut line).unwrap();
    reader.get_ref().write_all(b"ack 0\nack 4\n").unwrap();
    reader.read_to_end(&mut data).unwrap();
    assert_eq!(data, b"data");
    drop(reader);
    assert!(relay.0.wait().unwrap().success());
    // The relay stops once its flows have ended, before the time of --drain.
    assert!(start_time.elapsed() < Duration::from_secs(30), "{:?}", start_time.elapsed());
}

#[test]
fn relay_names_invalid_options_and_overlay_files() {
    let dir = TestDir::new();
    let relay = "[[relays]]\nname = \"west\"\naddress = \"127.0.3.1:7710\"\nnetworks = [\"127.0.3.0/24\"]\n";
    dir.write("overlay.toml", relay);
    dir.write("rule.toml", &format!("{relay}[[rules]]\ncoflow = \"shuffle\"\npriority = 0\n"));
    for (options, error) in [
        (
            "--name east --overlay overlay.toml",
            "weir: --name: `east` is not a relay of overlay.toml; expected one of its names: west\n",
        ),
        (
            "--name west --overlay rule.toml",
            "weir: rule.toml:6: field `rule 1 coflow`: `\"shuffle\"`: expected the name of a coflow of this file\n",
        ),
        (
            "--name west --overlay overlay.toml --metrics 192.0.2.1:9",
            "weir: --metrics: 192.0.2.1:9 can be reached from other hosts over plain text; expected a loopback \
             address, --certificate with --key and --authority, or --insecure\n",
        ),
    ] {
        assert_eq!(dir.stderr_of(&format!("relay run {options}"), 2), error);
    }
}
