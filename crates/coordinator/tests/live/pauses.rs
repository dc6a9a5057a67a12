//! Pauses and shadow mode of a host with sockets, queues and marks, in a network namespace. Without the privileges or the compiler, this
//! test prints that and skips.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use weir_agent::batch::run_tool;
use weir_agent::queues::{self, Interface};
use weir_agent::traffic::{self, Rule, Traffic};
use weir_client::Agent;
use weir_coordinator::control_plane::{HostPause, OrderedRate, PauseMode, Pauses, Queues};
use weir_core::policy::build;
use weir_proto::UnclassifiedShare;
use weir_testbed::namespace;

use crate::kernel::pacing_rate;
use crate::live::{Coordinator, LINK_RATE, MeasuredConnection, RunningAgent, lock_tests};
use crate::wait::{wait_for, wait_within};

/// The interface of the agent. Nothing answers there.
const INTERFACE: &str = "weir-pause0";

/// The lease of the coordinators of these tests.
const LEASE: Duration = Duration::from_millis(1500);

/// The port of the application `web`, whose packets have the mark 2.
const PORT: u16 = 7777;

const SHADOW: HostPause = HostPause { mode: PauseMode::Shadow, with_queues: false };
const PAUSED: HostPause = HostPause { mode: PauseMode::Paused, with_queues: false };
const WITHOUT_QUEUES: HostPause = HostPause { mode: PauseMode::Paused, with_queues: true };

/// Removes programs and queues when it is dropped.
struct Cleanup;

impl Drop for Cleanup {
    fn drop(&mut self) {
        let _ = traffic::cleanup();
        let _ = queues::cleanup();
    }
}

/// Moves the calling thread to a namespace with the interface, and marks the port there. The loopback interface, which the flows use,
/// is slow: [`mark`] captures its packets, too.
fn enter_namespace() -> Option<Traffic> {
    let other_end = format!("{INTERFACE}p");
    let steps = [
        format!("link add {INTERFACE} type veth peer name {other_end}"),
        format!("addr add 10.77.0.1/24 dev {INTERFACE}"),
        format!("link set {INTERFACE} up"),
        format!("link set {other_end} up"),
        format!("neigh add 10.77.0.2 lladdr 02:00:00:00:00:02 dev {INTERFACE}"),
    ];
    let run = |tool: &'static str, step: &str| run_tool(tool, &step.split(' ').collect::<Vec<_>>()).is_ok();
    let slow_loopback = "qdisc add dev lo root tbf rate 400mbit burst 1mb latency 50ms";
    if namespace::enter_new().is_err()
        || !steps.iter().all(|step| run("ip", step))
        || !run("tc", slow_loopback)
    {
        eprintln!("pauses skips: a network namespace with an interface needs root and ip");
        return None;
    }
    let rule: Rule = format!("web=port/{PORT}").parse().unwrap();
    let started = Traffic::start(&[rule], &[interface()]);
    started.inspect_err(|error| eprintln!("pauses skips: {error}")).ok()
}

fn interface() -> Interface {
    INTERFACE.parse().unwrap()
}

/// The queueing disciplines and classes of the interface.
fn shown_queues() -> String {
    let show = |kind: &str| {
        let output = Command::new("tc").args([kind, "show", "dev", INTERFACE]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    show("qdisc") + &show("class")
}

fn has_queues() -> bool {
    shown_queues().contains("qdisc htb 7765: root")
}

/// The mark of a UDP packet to the port, which leaves by the interface.
fn mark() -> u8 {
    let flags = SockFlag::empty();
    let capture = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll).unwrap();
    setsockopt(&capture, sockopt::ReceiveTimeout, &TimeVal::new(0, 100_000)).unwrap();
    let sender = UdpSocket::bind("10.77.0.1:0").unwrap();
    let source = sender.local_addr().unwrap().port().to_be_bytes();
    let (began, mut frame) = (Instant::now(), [0; 256]);
    loop {
        sender.send_to(b"x", ("10.77.0.2", PORT)).unwrap();
        // The kernel drops packets beyond its buffer, also this one.
        let sent = Instant::now();
        while sent.elapsed() < Duration::from_millis(100)
            && let Ok(length) = recv(capture.as_raw_fd(), &mut frame, MsgFlags::empty())
        {
            // After 14 bytes of Ethernet: IPv4 without options, and UDP from this socket.
            let ip = &frame[14..length.max(14)];
            if ip.len() > 28 && ip[0] == 0x45 && ip[9] == 17 && ip[20..22] == source {
                return ip[1] >> 2;
            }
        }
        assert!(began.elapsed() < Duration::from_secs(20), "no packet is captured");
    }
}

fn ordered_queues() -> Queues {
    Queues {
        weights: vec![1.0, 3.0],
        queue_of_class: vec![0, 1],
        class_of_application: vec![("web".into(), 2)],
        guaranteed: true,
        unclassified: UnclassifiedShare::default(),
        rate_bounds: Vec::new(),
    }
}

fn set_pause(coordinator: &Coordinator, pause: Option<HostPause>) {
    let hosts = pause.map(|pause| (0, pause)).into_iter().collect::<BTreeMap<_, _>>();
    coordinator.call(move |plane, now| plane.set_pauses(Pauses { hosts, ..Pauses::default() }, now));
}

#[test]
fn paused_host_is_plain_tcp_within_a_lease_and_shadow_mode_changes_nothing() {
    let _turn = lock_tests();
    let Some(traffic) = enter_namespace() else { return };
    let _cleanup = Cleanup;
    let untouched = shown_queues();
    let policy = build("saath:start=1TB").unwrap().into();
    let (coordinator, address) =
        Coordinator::start_with("127.0.0.1:0".parse().unwrap(), 1, LINK_RATE, policy);
    coordinator.call(|plane, _| plane.set_queues(0, 0, ordered_queues()));
    ["first", "second"].into_iter().for_each(|id| coordinator.register(id, &[(0, 1, 1e12)]));
    set_pause(&coordinator, Some(SHADOW));
    let running =
        RunningAgent::start_at_interfaces(address, 0, LINK_RATE, true, &[interface()], Some(traffic));
    wait_for("the host", || coordinator.present_host_count() == 1);
    let agent = Agent::connect(running.local_socket()).unwrap();
    let connections = ["first", "second"].map(|id| {
        let connection = MeasuredConnection::new();
        connection.send_continuously();
        agent.hand_over(id, 0, &connection.stream).unwrap();
        connection
    });
    let rates = || [0, 1].map(|at: usize| pacing_rate(&connections[at].stream));
    // The first flow has the link, and the second one waits: both have orders.
    let are_limited = || {
        rates()[0].is_some() && coordinator.flows("second")[0].ordered_rate != Some(OrderedRate::Unlimited)
    };

    wait_for("the rate that an order would have", || {
        let flow = coordinator.flows("first")[0];
        flow.pause == Some(PauseMode::Shadow)
            && flow.ordered_rate == Some(OrderedRate::Unlimited)
            && matches!(flow.shadow_rate, Some(OrderedRate::Rate(_)))
    });
    // Sockets that were handed over before their first order have a limit until then, unless no flow of the host may wait.
    wait_within(LEASE, "plain TCP in shadow mode", || rates() == [None, None]);
    std::thread::sleep(2 * LEASE);
    assert_eq!((rates(), shown_queues(), mark()), ([None, None], untouched.clone(), 0));

    for pause in [PAUSED, WITHOUT_QUEUES, SHADOW] {
        set_pause(&coordinator, None);
        wait_for("the rates, queues and marks of orders", || are_limited() && has_queues() && mark() == 2);
        let sent = connections[1].received_bytes();
        set_pause(&coordinator, Some(pause));
        wait_within(LEASE, "plain TCP", || rates() == [None, None]);
        wait_for("data of the flow that waited", || connections[1].received_bytes() > sent + 1_000_000);
        if pause == PAUSED {
            assert!(has_queues() && mark() == 2);
        } else {
            wait_for("the former interface without marks", || shown_queues() == untouched && mark() == 0);
        }
    }
}
