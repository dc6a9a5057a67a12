//! Tests the central allocator's guarantee at a receiver's link: a service with one connection and a service with eight, from two
//! hosts, have shares by weight, although the switch has one queue for both. A service that is limited elsewhere does not hold back
//! the other.
//! The tests run on testbeds of namespaces, and skip without the privileges or the BPF programs.

use std::thread;
use std::time::{Duration, Instant};

use crate::bed::{Bed, COORDINATOR_PORT, LINK_FRAME_BYTES_PER_SEC, PAYLOAD_FRACTION, Process, address};
use crate::campaign::test_scale;
use crate::common::wait_within;
use crate::examples::missing_requirement;
use crate::senders::Senders;
use crate::switch::{Coordinator, credential_options, delete_testbed_queues, switch_namespace, tc};

/// The hosts of web and batch, the receiver, and the coordinator's host.
const HOSTS: u32 = 4;
const RECEIVER: u32 = 2;

/// The services with their weights and their numbers of connections. The number of a service is that of its host.
const SERVICES: [(&str, u32, usize); 2] = [("web", 3, 1), ("batch", 1, 8)];

/// The fraction of a link that the allocator divides (`docs/link-capacity.md`).
const ALLOCATABLE: f64 = 0.9801;

/// The number and port of connections of no application, from a host without an agent.
const OTHER_CONNECTIONS: usize = 2;
const OTHER_PORT: u16 = 9100;

/// The rate of a service that is limited elsewhere, as a fraction of the link.
const LIMITED: f64 = 0.1;

fn config() -> String {
    let hosts: String = (0..HOSTS).map(|host| format!("h{host} = \"40Mbit\"\n")).collect();
    let addresses: String = (0..HOSTS).map(|host| format!("h{host} = [\"{}\"]\n", address(host))).collect();
    let services = SERVICES.map(|(name, weight, _)| format!("[service.{name}]\nweight = {weight}\n"));
    format!(
        "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"fair\"\nlease = \"2s\"\nqueues = \"services\"\n\
         allocator = true\n\
         [listen]\nagents = \"{}:{COORDINATOR_PORT}\"\napi = \"127.0.0.1:7701\"\n\
         [host]\n{hosts}[address]\n{addresses}{}\
         [tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\nclients = \"authority.pem\"\n",
        address(HOSTS - 1),
        services.concat(),
    )
}

fn port(service: usize) -> u16 {
    9000 + service as u16
}

/// Registers an application of the same name for each service.
fn register_applications(coordinator: &Coordinator) {
    for (name, ..) in SERVICES {
        assert!(coordinator.ctl(&format!("application register {name} --service {name}")).0, "{name}");
    }
}

/// Starts the agent of a service's host, with the service's port as the application.
fn start_agent(bed: &Bed, service: usize) -> Process {
    let command = bed.command_with_cgroups(service as u32, env!("CARGO_BIN_EXE_weir"));
    let mut command = bed.add_agent_options(command, service as u32);
    command.args(["--interface", "eth0"]);
    command.args(["--application", &format!("{}=port/{}", SERVICES[service].0, port(service))]);
    command.args(credential_options(&format!("h{service}"))).current_dir(bed.dir.path("."));
    Process(command.spawn().unwrap())
}

/// Starts the connections of a service to the receiver. A program with a `rate`, in bytes per second, writes no more.
fn start_flows(bed: &Bed, service: usize, control: &'static str, rate: Option<f64>) -> Senders {
    let hosts = [service as u32, RECEIVER];
    Senders::start(bed, hosts, port(service), SERVICES[service].2, control, 0, rate)
}

/// The payload of each service in a time, as a fraction of what the allocator divides.
fn measure_shares(flows: &[Senders; 2], time: Duration) -> [f64; 2] {
    let read = || flows.each_ref().map(Senders::received_bytes);
    let (before, began) = (read(), Instant::now());
    thread::sleep(time);
    let (after, seconds) = (read(), began.elapsed().as_secs_f64());
    let capacity = LINK_FRAME_BYTES_PER_SEC * PAYLOAD_FRACTION * ALLOCATABLE * seconds;
    [0, 1].map(|index| (after[index] - before[index]) as f64 / capacity)
}

/// How the shares of services are observed: until they are first within the bounds, and for a time after that.
fn check_shares(name: &str, flows: &[Senders; 2], time: Duration, holds: impl Fn([f64; 2]) -> bool) {
    let began = Instant::now();
    let second = Duration::from_secs(1);
    wait_within(Duration::from_secs(30), &format!("{name}: the shares"), || {
        let shares = measure_shares(flows, second);
        eprintln!("{name}: {shares:.3?} after {:.1} s", began.elapsed().as_secs_f64());
        holds(shares)
    });
    let seconds: Vec<[f64; 2]> = (0..time.as_secs()).map(|_| measure_shares(flows, second)).collect();
    let shares = [0, 1].map(|at| seconds.iter().map(|shares| shares[at]).sum::<f64>() / seconds.len() as f64);
    eprintln!("{name}: {shares:.3?} in {time:?}: {seconds:.2?}");
    assert!(holds(shares), "{name}: {shares:.3?} in {time:?}");
}

/// Replaces the switch's queue at the receiver by one that limits the first host.
fn limit_first_host_at_switch(bed: &Bed) {
    let namespace = switch_namespace(bed, HOSTS);
    let device = format!("dev eth{RECEIVER}");
    let limited = (LIMITED * 40e6) as u64;
    for line in [
        format!("qdisc del {device} root"),
        format!("qdisc add {device} root handle 1: htb default 2"),
        format!("class add {device} parent 1: classid 1:1 htb rate {limited}bit burst 3000 cburst 3000"),
        format!("class add {device} parent 1: classid 1:2 htb rate 40mbit burst 3000 cburst 3000"),
        format!("qdisc add {device} parent 1:1 bfifo limit 60000"),
        format!("qdisc add {device} parent 1:2 bfifo limit 100000"),
        format!("filter add {device} parent 1: protocol ip u32 match ip src {}/32 flowid 1:1", address(0)),
    ] {
        tc(&namespace, &line);
    }
}

/// The testbed of a test, or why the test skips.
fn testbed(test: &str) -> Option<Bed> {
    if let Some(reason) = missing_requirement(&[]) {
        eprintln!("{test} skips, since {reason}");
        return None;
    }
    Bed::up(test, HOSTS)
}

/// Starts the coordinator, and the agents of the services' hosts.
fn start(bed: &Bed) -> (Coordinator<'_>, [Process; 2]) {
    let coordinator = Coordinator::start_with(bed, HOSTS, &["h0", "h1"], &config());
    register_applications(&coordinator);
    let agents = [0, 1].map(|service| {
        delete_testbed_queues(&bed.namespace(service as u32), 1);
        start_agent(bed, service)
    });
    wait_within(Duration::from_secs(20), "the agents", || {
        let hosts = coordinator.ctl("hosts --format csv").1;
        hosts.contains("h0,true") && hosts.contains("h1,true")
    });
    (coordinator, agents)
}

/// The share of a service by weight.
fn share(service: usize) -> f64 {
    let total_weight: u32 = SERVICES.iter().map(|(_, weight, _)| weight).sum();
    f64::from(SERVICES[service].1) / f64::from(total_weight)
}

/// Whether web has its limited rate, and batch at least 90 % of the rest.
fn are_shares_around_limited([web, batch]: [f64; 2]) -> bool {
    (web * ALLOCATABLE / LIMITED - 1.0).abs() < 0.1 && batch >= 0.9 * (1.0 - web)
}

#[test]
fn services_have_their_shares_of_a_receivers_link() {
    let Some(bed) = &testbed("receiver") else { return };
    let _running = start(bed);
    let by_weight = |measured: [f64; 2]| (0..2).all(|at| (measured[at] / share(at) - 1.0).abs() <= 0.05);
    let time = test_scale(Duration::from_secs(10), Duration::from_secs(600));
    for control in ["cubic", "bbr"] {
        let flows = [0, 1].map(|service| start_flows(bed, service, control, None));
        check_shares(&format!("{control}, by weight"), &flows, time, by_weight);
    }
    let program_rate = LIMITED * LINK_FRAME_BYTES_PER_SEC * PAYLOAD_FRACTION;
    let limited_time = test_scale(Duration::from_secs(10), Duration::from_secs(120));
    for control in ["cubic", "bbr"] {
        let rates = [Some(program_rate), None];
        let flows = [0, 1].map(|service| start_flows(bed, service, control, rates[service]));
        check_shares(&format!("{control}, limited program"), &flows, limited_time, are_shares_around_limited);
    }
    // Two connections without a limit also send. Without batch's limit, its eight connections of eleven have 0.73. A part of web's share
    // is given away on trial, for 3 s after 4 s and 8 s, so batch may have 0.73 in 6 of 15 s. One connection of three under CUBIC has
    // more or less than a third of the rest in this time; without batch's limit it has a third of that.
    let next_to_others = |[web, batch]: [f64; 2]| {
        let per_connection = (1.0 - batch) / (1 + OTHER_CONNECTIONS) as f64;
        batch <= 0.6 * share(1) + 0.4 * 0.73 && web >= 0.6 * per_connection
    };
    let others_time = test_scale(Duration::from_secs(15), Duration::from_secs(600));
    for control in ["cubic", "bbr"] {
        let others = [HOSTS - 1, RECEIVER];
        let _others = Senders::start(bed, others, OTHER_PORT, OTHER_CONNECTIONS, control, 0, None);
        let flows = [0, 1].map(|service| start_flows(bed, service, control, None));
        check_shares(&format!("{control}, next to others"), &flows, others_time, next_to_others);
    }
}

#[test]
fn service_that_a_switch_limits_leaves_others_the_rest_of_a_receivers_link() {
    let Some(bed) = &testbed("limited") else { return };
    let _running = start(bed);
    limit_first_host_at_switch(bed);
    // With probes of 2 s, which begin 2, 4 and 8 s after one another, and then less often.
    let time = test_scale(Duration::from_secs(15), Duration::from_secs(120));
    for control in ["cubic", "bbr"] {
        let flows = [0, 1].map(|service| start_flows(bed, service, control, None));
        thread::sleep(Duration::from_secs(20));
        check_shares(&format!("{control}, limited at the switch"), &flows, time, are_shares_around_limited);
    }
}
