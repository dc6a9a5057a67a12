//! Tests that a minimum holds at a receiver's link if programs connect to the address of a service, which nftables or iptables replace by
//! that of a pod. The test runs on a testbed of namespaces, and skips without the privileges, the BPF programs or these tools.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::bed::{Bed, COORDINATOR_PORT, PAYLOAD_FRACTION, Process, address};
use crate::campaign::test_scale;
use crate::common::wait_within;
use crate::examples::missing_requirement;
use crate::senders::Senders;
use crate::switch::{Coordinator, credential_options, delete_testbed_queues};

/// The hosts of web and batch, the receiver, and the coordinator's host.
const HOSTS: u32 = 4;
const RECEIVER: u32 = 2;

/// The services with their ports. Web has a minimum in Mbit/s, and a tenth of the weight of batch.
const WEB: (&str, u16) = ("web", 9000);
const BATCH: (&str, u16) = ("batch", 9001);
const MIN: f64 = 24.0;

/// The address of both services, which no host has.
const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

/// The rate of UDP, in bytes of payload per second: one and a half links.
const UDP_RATE: f64 = 7.5e6;
const DATAGRAM_BYTES: usize = 1400;

fn config() -> String {
    let hosts: String = (0..HOSTS).map(|host| format!("h{host} = \"40Mbit\"\n")).collect();
    let addresses: String = (0..HOSTS).map(|host| format!("h{host} = [\"{}\"]\n", address(host))).collect();
    format!(
        "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"fair\"\nlease = \"2s\"\nqueues = \"services\"\n\
         allocator = true\nthrottling = true\n\
         [listen]\nagents = \"{}:{COORDINATOR_PORT}\"\napi = \"127.0.0.1:7701\"\n\
         [host]\n{hosts}[address]\n{addresses}\
         [service.web]\nweight = 1\nmin-bandwidth = \"{MIN}Mbit\"\n[service.batch]\nweight = 10\n\
         [tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\nclients = \"authority.pem\"\n",
        address(HOSTS - 1),
    )
}

/// Replaces the address of the services by that of the receiver: by nftables at the host of web, by iptables at that of batch.
fn replace_address(bed: &Bed) {
    let receiver = address(RECEIVER);
    let rule = format!(
        "chain out {{\ntype nat hook output priority -100\nip daddr {SERVICE} dnat to {receiver}\n}}\n"
    );
    let mut nft = Command::new("ip");
    nft.args(["netns", "exec", &bed.namespace(0), "nft", "-f", "-"]).stdin(Stdio::piped());
    let mut nft = nft.spawn().unwrap();
    nft.stdin.take().unwrap().write_all(format!("table ip services {{\n{rule}}}\n").as_bytes()).unwrap();
    assert!(nft.wait().unwrap().success());
    let mut iptables = Command::new("ip");
    let rule = format!("-t nat -A OUTPUT -d {SERVICE} -j DNAT --to-destination {receiver}");
    iptables.args(["netns", "exec", &bed.namespace(1), "iptables"]).args(rule.split(' '));
    assert!(iptables.status().unwrap().success());
}

fn start_agent(bed: &Bed, host: u32, (name, port): (&str, u16)) -> Process {
    let command = bed.command_with_cgroups(host, env!("CARGO_BIN_EXE_weir"));
    let mut command = bed.add_agent_options(command, host);
    command.args(["--interface", "eth0", "--application", &format!("{name}=port/{port}")]);
    command.args(credential_options(&format!("h{host}"))).current_dir(bed.dir.path("."));
    Process(command.spawn().unwrap())
}

/// UDP to the service's address, until this is dropped.
struct UdpSender {
    stop: Arc<AtomicBool>,
    _receiver: UdpSocket,
}

impl UdpSender {
    fn start(bed: &Bed, host: u32, port: u16) -> UdpSender {
        let receiver = bed.run_on_host(RECEIVER, || UdpSocket::bind((address(RECEIVER), port)).unwrap());
        let socket = bed.run_on_host(host, || UdpSocket::bind("0.0.0.0:0").unwrap());
        bed.run_on_host(host, || socket.connect((SERVICE, port)).unwrap());
        let stop = Arc::new(AtomicBool::new(false));
        let has_stopped = Arc::clone(&stop);
        thread::spawn(move || {
            let (began, mut sent) = (Instant::now(), 0.0);
            while !has_stopped.load(Ordering::Relaxed) {
                // The interface drops packets beyond its queue.
                let _ = socket.send(&[0; DATAGRAM_BYTES]);
                sent += DATAGRAM_BYTES as f64;
                thread::sleep(Duration::from_secs_f64(sent / UDP_RATE).saturating_sub(began.elapsed()));
            }
        });
        UdpSender { stop, _receiver: receiver }
    }
}

impl Drop for UdpSender {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Waits until web has its minimum, and checks that it keeps it.
fn check_minimum(name: &str, web: &Senders) {
    let measure = |time: Duration| {
        let (before, began) = (web.received_bytes(), Instant::now());
        thread::sleep(time);
        let bytes = (web.received_bytes() - before) as f64;
        let rate = bytes * 8e-6 / PAYLOAD_FRACTION / began.elapsed().as_secs_f64();
        eprintln!("{name}: web has {rate:.2} Mbit/s");
        rate
    };
    wait_within(Duration::from_secs(30), name, || measure(Duration::from_secs(1)) >= 0.95 * MIN);
    let rate = measure(test_scale(Duration::from_secs(10), Duration::from_secs(120)));
    assert!(rate >= 0.95 * MIN, "{name}: {rate} Mbit/s");
}

#[test]
fn minimum_holds_at_the_receiver_behind_the_address_of_a_service() {
    if let Some(reason) = missing_requirement(&["nft", "iptables"]) {
        return eprintln!("service_address skips, since {reason}");
    }
    let Some(bed) = &Bed::up("dnat", HOSTS) else { return };
    replace_address(bed);
    let coordinator = Coordinator::start_with(bed, HOSTS, &["h0", "h1"], &config());
    for (name, _) in [WEB, BATCH] {
        assert!(coordinator.ctl(&format!("application register {name} --service {name}")).0, "{name}");
    }
    let _agents = [(0, WEB), (1, BATCH)].map(|(host, service)| {
        delete_testbed_queues(&bed.namespace(host), 1);
        start_agent(bed, host, service)
    });
    wait_within(Duration::from_secs(20), "the agents", || {
        let hosts = coordinator.ctl("hosts --format csv").1;
        hosts.contains("h0,true") && hosts.contains("h1,true")
    });
    let start = |host: u32, (_, port): (&str, u16), count: usize| {
        Senders::start_via(bed, [host, RECEIVER], SocketAddr::from((SERVICE, port)), count, "cubic", 0, None)
    };
    let web = start(0, WEB, 1);
    {
        // One connection of nine would have 4.4 Mbit/s, and a part by weight 3.6.
        let _batch = start(1, BATCH, 8);
        check_minimum("next to connections", &web);
        let observed = coordinator.ctl("observed --format csv").1;
        let receiver = address(RECEIVER).to_string();
        assert!(observed.contains(&receiver) && !observed.contains(&SERVICE.to_string()), "{observed}");
    }
    let _batch = UdpSender::start(bed, 1, BATCH.1);
    check_minimum("next to UDP", &web);
}
