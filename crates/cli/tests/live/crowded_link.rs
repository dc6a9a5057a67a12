//! Tests that traffic without a class, and the agent's own stream, have their shares of a link that services fill.
//! The tests run on a testbed of namespaces, and skip without the privileges for one.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::bed::{Bed, LINK_FRAME_BYTES_PER_SEC, PAYLOAD_FRACTION, Process, address};
use crate::common::wait_for;
use crate::senders::Senders;
use crate::switch::{Coordinator, credential_options, delete_testbed_queues, tc};
use nix::sys::socket::{setsockopt, sockopt};

/// The sender, the receiver and the coordinator's host.
const HOSTS: u32 = 3;

/// Connections of the services with the weights 1 and 3, and without a class, with their marks.
const FLOWS: [(usize, i32); 3] = [(8, 1), (1, 2), (4, 0)];

/// The port of the agent's metrics.
const METRICS_PORT: u16 = 9107;

/// Starts the groups of [`FLOWS`] from the first host to ports of the second.
fn start_groups(bed: &Bed, control: &'static str) -> Vec<Senders> {
    let start = |(port, (count, mark))| Senders::start(bed, [0, 1], port, count, control, mark, None);
    (9000..).zip(FLOWS).map(start).collect()
}

/// The payload of each group in a time, as a fraction of the link's payload.
fn measure_shares(groups: &[Senders], time: Duration) -> Vec<f64> {
    let read = || groups.iter().map(Senders::received_bytes).collect::<Vec<_>>();
    let (before, began) = (read(), Instant::now());
    thread::sleep(time);
    let (after, seconds) = (read(), began.elapsed().as_secs_f64());
    let link_bytes = LINK_FRAME_BYTES_PER_SEC * PAYLOAD_FRACTION * seconds;
    after.iter().zip(before).map(|(after, before)| (after - before) as f64 / link_bytes).collect()
}

/// Sends datagrams without a class to an echo server at the other end. Returns how many come back, and the longest time.
fn count_echoes(bed: &Bed, count: u32) -> (u32, Duration) {
    let to = SocketAddr::from((address(1), 9100));
    let server = bed.run_on_host(1, || UdpSocket::bind(to).unwrap());
    thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((bytes, from)) = server.recv_from(&mut buffer) {
            let _ = server.send_to(&buffer[..bytes], from);
            if bytes == 1 {
                return;
            }
        }
    });
    let client = bed.run_on_host(0, || UdpSocket::bind("0.0.0.0:0").unwrap());
    client.connect(to).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let (mut arrived, mut longest) = (0, Duration::ZERO);
    for number in 0..count {
        let began = Instant::now();
        client.send(&number.to_be_bytes()).unwrap();
        let mut buffer = [0; 4];
        loop {
            match client.recv(&mut buffer) {
                Ok(_) if buffer == number.to_be_bytes() => {
                    arrived += 1;
                    longest = longest.max(began.elapsed());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // An echo of an earlier datagram, or none in time.
                Ok(_) => continue,
                Err(_) => {}
            }
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    let _ = client.send(&[0]);
    (arrived, longest)
}

/// The longest time to connect to another port of the receiver.
fn measure_connects(bed: &Bed, count: u32) -> Duration {
    let to = SocketAddr::from((address(1), 9200));
    let listener = bed.run_on_host(1, || TcpListener::bind(to).unwrap());
    let connect = |_| {
        let began = Instant::now();
        let stream = bed.run_on_host(0, || TcpStream::connect(to).unwrap());
        let elapsed = began.elapsed();
        drop((stream, listener.accept().unwrap()));
        elapsed
    };
    (0..count).map(connect).max().unwrap()
}

/// The bytes that the first host has sent in the class of the streams to the coordinator.
fn sent_to_coordinator(bed: &Bed) -> u64 {
    let text = tc(&bed.namespace(0), "-s class show dev eth0");
    let class = text.split("class htb ").find(|class| class.starts_with("7765:1fe ")).unwrap();
    class.split_once("Sent ").unwrap().1.split(' ').next().unwrap().parse().unwrap()
}

/// The metrics of the first host's agent by name and labels, read over TLS from another host. None if curl is missing.
fn read_metrics(bed: &Bed) -> Option<BTreeMap<String, f64>> {
    let mut curl = bed.command_on_host(HOSTS - 1, "curl".as_ref());
    curl.args(["-sSkf", "--cert", "ann.pem", "--key", "ann.key"]).current_dir(bed.dir.path("."));
    curl.arg(format!("https://{}:{METRICS_PORT}/metrics", address(0)));
    Command::new("curl").arg("--version").output().ok()?;
    let output = curl.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let value = |line: &str| {
        let (name, value) = line.rsplit_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    Some(text.lines().filter(|line| !line.starts_with('#')).filter_map(value).collect())
}

/// Sends more datagrams at once than the queue of a mark holds. Connections of the same host would wait instead.
fn overflow_queue(bed: &Bed, mark: i32) {
    let sockets = [(); 8].map(|()| {
        let socket = bed.run_on_host(0, || UdpSocket::bind("0.0.0.0:0").unwrap());
        setsockopt(&socket, sockopt::Ipv4Tos, &(mark << 2)).unwrap();
        socket.connect((address(1), 9300)).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    });
    for _ in 0..50 {
        // The port has no receiver, and a socket's buffer may be full.
        sockets.iter().for_each(|socket| drop(socket.send(&[0; 1400])));
    }
}

/// Checks the agent's metrics while the groups of [`FLOWS`] send.
fn check_metrics(bed: &Bed, control: &str) {
    let Some(before) = read_metrics(bed) else { return eprintln!("no metrics, since curl is missing") };
    thread::sleep(Duration::from_secs(3));
    let after = read_metrics(bed).unwrap();
    overflow_queue(bed, FLOWS[0].1);
    let with_drops = read_metrics(bed).unwrap();
    let labels = |class: &str| format!("{{interface=\"eth0\",class=\"{class}\"}}");
    let value = |name: &str, class: &str| after[&format!("{name}{}", labels(class))];
    let classes = ["1", "2", "unclassified"];
    let sent = classes.map(|class| {
        let name = format!("weir_agent_queue_sent_bytes_total{}", labels(class));
        after[&name] - before[&name]
    });
    assert!((sent[1] / (sent[0] + sent[1]) - 0.75).abs() < 0.05, "{control}: sent {sent:?}");
    // All classes want more than they are guaranteed, and have it.
    for (class, sent) in classes.into_iter().zip(sent) {
        let guaranteed = value("weir_agent_queue_guaranteed_bytes_per_second", class);
        assert!(sent / 3.0 > 0.9 * guaranteed, "{control}: {class} sent {sent} of {guaranteed} a second");
        let delay = value("weir_agent_queue_estimated_delay_seconds", class);
        assert!((0.0..1.0).contains(&delay), "{control}: {class} waits {delay} s");
    }
    assert!(value("weir_agent_queue_estimated_delay_seconds", "1") > 0.0, "{control}: {after:?}");
    let dropped = |metrics: &BTreeMap<String, f64>, class: &str| {
        metrics[&format!("weir_agent_queue_dropped_packets_total{}", labels(class))]
    };
    // The connections of both classes may lose packets at any time: BBR fills queues.
    let overflowed = |class| dropped(&with_drops, class) - dropped(&after, class);
    assert!(overflowed("1") > overflowed("2"), "{control}: {with_drops:?}");
    assert!(value("weir_agent_queue_sent_bytes_total", "control") > 0.0, "{control}: {after:?}");
    assert_eq!(after["weir_agent_coordinator_connected"], 1.0);
    assert!(after["weir_agent_certificate_expiry_seconds"] > 0.0, "{after:?}");
}

fn start_agent(bed: &Bed) -> Process {
    let mut command = bed.agent_command(0);
    command.args(["--interface", "eth0", "--metrics", &format!("{}:{METRICS_PORT}", address(0))]);
    command.args(credential_options("h0")).current_dir(bed.dir.path("."));
    Process(command.spawn().unwrap())
}

/// Weights 3:1 on 93 % of the link, and 5 % for traffic without a class. Before, it had a thousandth, so that datagrams were lost, a
/// connection took seconds, and the coordinator lost the host.
#[test]
fn traffic_without_a_class_and_the_agents_stream_have_their_shares() {
    let Some(bed) = Bed::up("crowd", HOSTS) else { return };
    let coordinator = Coordinator::start(&bed, HOSTS, &[("h0", "")]);
    delete_testbed_queues(&bed.namespace(0), 1);
    let _agent = start_agent(&bed);
    let is_present = || coordinator.ctl("hosts --format csv").1.contains("h0,true");
    wait_for("the agent", is_present);
    for control in ["cubic", "bbr"] {
        let groups = start_groups(&bed, control);
        wait_for("shares of 3:1", || {
            let shares = measure_shares(&groups, Duration::from_secs(3));
            eprintln!("{control}: {shares:.3?} of the link");
            let &[light, heavy, unclassified] = &shares[..] else { unreachable!("three groups") };
            (heavy / (light + heavy) - 0.75).abs() < 0.03
                && (0.045..0.08).contains(&unclassified)
                && shares.iter().sum::<f64>() > 0.95
        });
        let before = sent_to_coordinator(&bed);
        let (echoes, longest) = count_echoes(&bed, 100);
        let connected = measure_connects(&bed, 20);
        eprintln!(
            "{control}: {echoes} of 100 echoes, the last after {longest:?}; connected in {connected:?}"
        );
        assert!(echoes >= 95, "{control}: {echoes} of 100 echoes");
        // A lost packet of a handshake is sent again after a second.
        assert!(connected < Duration::from_secs(1), "{control}: connected in {connected:?}");
        assert!(is_present(), "{control}: the coordinator has lost the host");
        assert!(sent_to_coordinator(&bed) > before, "{control}: reports are in another class");
        check_metrics(&bed, control);
    }
}

/// Queues stay when a service manager restarts the agent. If another process removes them, the queue of the switch fills, and drains while
/// the agent sends a tenth less.
#[test]
fn shares_are_right_within_a_second_after_a_restart_or_removed_queues() {
    let Some(bed) = Bed::up("again", HOSTS) else { return };
    let coordinator = Coordinator::start(&bed, HOSTS, &[("h0", "")]);
    delete_testbed_queues(&bed.namespace(0), 1);
    let mut agent = start_agent(&bed);
    wait_for("the agent", || coordinator.ctl("hosts --format csv").1.contains("h0,true"));
    for control in ["cubic", "bbr"] {
        let groups = start_groups(&bed, control);
        let heavy_share = || {
            let shares = measure_shares(&groups, Duration::from_secs(1));
            eprintln!("{control}: {shares:.3?} of the link");
            shares[1] / (shares[0] + shares[1])
        };
        let is_right = |share: f64| (share - 0.75).abs() < 0.05;
        // Every ten seconds, a connection with BBR sends next to nothing for 200 ms to measure the round-trip time: in one of four windows.
        let max_wrong = usize::from(control == "bbr");
        let check_shares = |event: &str| {
            let shares: Vec<f64> = (0..4).map(|_| heavy_share()).collect();
            let wrong = shares.iter().filter(|&&share| !is_right(share)).count();
            assert!(wrong <= max_wrong, "{control}: {shares:.3?} after {event}");
        };
        wait_for("shares of 3:1", || is_right(heavy_share()));

        assert!(Command::new("kill").arg(agent.0.id().to_string()).status().unwrap().success());
        assert!(agent.0.wait().unwrap().success());
        agent = start_agent(&bed);
        check_shares("a restart");

        tc(&bed.namespace(0), "qdisc del dev eth0 root");
        thread::sleep(Duration::from_secs(1));
        check_shares("queues were removed");
    }
}
