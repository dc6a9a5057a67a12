//! Tests minimum and maximum bandwidths of a service without an allocator: at a host's queues, and in sum over two hosts.
//! The tests run on testbeds of namespaces, and skip without the privileges or the BPF programs.

use std::thread;
use std::time::{Duration, Instant};

use crate::bed::{Bed, COORDINATOR_PORT, PAYLOAD_FRACTION, Process, address};
use crate::campaign::test_scale;
use crate::common::wait_within;
use crate::examples::missing_requirement;
use crate::senders::Senders;
use crate::switch::{Coordinator, credential_options, delete_testbed_queues};

/// Two senders, the receiver, and the coordinator's host.
const HOSTS: u32 = 4;
const RECEIVER: u32 = 2;

/// The services with their ports. `online` has a minimum and a maximum, and a thirtieth of the weight of `batch`.
const ONLINE: (&str, u16) = ("online", 9000);
const BATCH: (&str, u16) = ("batch", 9001);

/// The minimum and maximum of `online`, in Mbit/s: a tenth of 100 and 200, on links of 40.
const MIN: f64 = 10.0;
const MAX: f64 = 20.0;

fn config() -> String {
    let hosts: String = (0..HOSTS).map(|host| format!("h{host} = \"40Mbit\"\n")).collect();
    format!(
        "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"fair\"\nlease = \"2s\"\nqueues = \"services\"\n\
         [listen]\nagents = \"{}:{COORDINATOR_PORT}\"\napi = \"127.0.0.1:7701\"\n\
         [host]\n{hosts}\
         [service.online]\nweight = 1\nmin-bandwidth = \"{MIN}Mbit\"\nmax-bandwidth = \"{MAX}Mbit\"\n\
         [service.batch]\nweight = 30\n\
         [tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\nclients = \"authority.pem\"\n",
        address(HOSTS - 1),
    )
}

fn start_agent(bed: &Bed, host: u32) -> Process {
    let command = bed.command_with_cgroups(host, env!("CARGO_BIN_EXE_weir"));
    let mut command = bed.add_agent_options(command, host);
    command.args(["--interface", "eth0"]);
    for (name, port) in [ONLINE, BATCH] {
        command.args(["--application", &format!("{name}=port/{port}")]);
    }
    command.args(credential_options(&format!("h{host}"))).current_dir(bed.dir.path("."));
    Process(command.spawn().unwrap())
}

/// The rate of each group in a time, in Mbit/s of whole frames.
fn measure(groups: &[&Senders], time: Duration) -> Vec<f64> {
    let read = || groups.iter().map(|group| group.received_bytes()).collect::<Vec<_>>();
    let (before, began) = (read(), Instant::now());
    thread::sleep(time);
    let (after, seconds) = (read(), began.elapsed().as_secs_f64());
    let to_rate = |(after, before): (u64, u64)| (after - before) as f64 * 8e-6 / PAYLOAD_FRACTION / seconds;
    after.into_iter().zip(before).map(to_rate).collect()
}

/// Waits until the rates are within the bounds, and checks that they stay there.
fn check_rates(name: &str, groups: &[&Senders], holds: impl Fn(&[f64]) -> bool) {
    wait_within(Duration::from_secs(30), name, || {
        let rates = measure(groups, Duration::from_secs(1));
        eprintln!("{name}: {rates:.2?} Mbit/s");
        holds(&rates)
    });
    let rates = measure(groups, test_scale(Duration::from_secs(10), Duration::from_secs(120)));
    eprintln!("{name}: {rates:.2?} Mbit/s after that");
    assert!(holds(&rates), "{name}: {rates:.2?} Mbit/s");
}

#[test]
fn service_gets_its_minimum_and_does_not_exceed_its_maximum() {
    if let Some(reason) = missing_requirement(&[]) {
        return eprintln!("bandwidths skips, since {reason}");
    }
    let Some(bed) = &Bed::up("bandwidth", HOSTS) else { return };
    let coordinator = Coordinator::start_with(bed, HOSTS, &["h0", "h1"], &config());
    for (name, _) in [ONLINE, BATCH] {
        assert!(coordinator.ctl(&format!("application register {name} --service {name}")).0, "{name}");
    }
    let _agents = [0, 1].map(|host| {
        delete_testbed_queues(&bed.namespace(host), 1);
        start_agent(bed, host)
    });
    wait_within(Duration::from_secs(20), "the agents", || {
        let hosts = coordinator.ctl("hosts --format csv").1;
        hosts.contains("h0,true") && hosts.contains("h1,true")
    });
    let is_max = |rate: f64| (0.9 * MAX..=1.02 * MAX).contains(&rate);
    for control in ["cubic", "bbr"] {
        let start = |host: u32, to: u32, (_, port): (&str, u16), count: usize| {
            Senders::start(bed, [host, to], port, count, control, 0, None)
        };
        let online = start(0, RECEIVER, ONLINE, 2);
        check_rates(&format!("{control}, maximum at a host"), &[&online], |rates| is_max(rates[0]));
        {
            // By weight, online would have 1.2 Mbit/s. The receiver's switch has one queue, but its link carries what one host sends.
            let batch = start(0, RECEIVER, BATCH, 8);
            check_rates(&format!("{control}, minimum next to others"), &[&online, &batch], |rates| {
                rates[0] >= 0.9 * MIN && rates[1] >= 20.0
            });
        }
        // To another receiver: the listener of the port is there once.
        let second = start(1, HOSTS - 1, ONLINE, 2);
        check_rates(&format!("{control}, maximum of two hosts"), &[&online, &second], |rates| {
            is_max(rates[0] + rates[1]) && rates.iter().all(|rate| *rate >= 0.4 * MAX)
        });
    }
    assert!(coordinator.ctl("weight online --max-bandwidth none").0);
    let online = Senders::start(bed, [0, RECEIVER], ONLINE.1, 2, "cubic", 0, None);
    check_rates("without a maximum", &[&online], |rates| rates[0] >= 30.0);
    assert!(coordinator.ctl("weight online --max-bandwidth-per-host 15Mbit").0);
    check_rates("maximum per host", &[&online], |rates| (13.5..=15.3).contains(&rates[0]));
}
