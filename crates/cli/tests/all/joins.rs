//! Tests a host that joins with a real agent, sends the flow of a coflow, and is removed by an operator.

use std::fs;
use std::io::Read;
use std::net::Ipv4Addr;
use std::process::Command;
use std::thread;
use std::time::Duration;

use weir_client::{Agent, Coflow, Coordinator, Flow, FlowReceiver, Registration, Route, send_flow};

use crate::common::serving::CoordinatorProcess;
use crate::common::{Process, TestDir, wait_for};

const CONFIG: &str = "weir-serve = 1\nstore = \"weir.redb\"\npolicy = \"saath\"\nlease = \"20s\"\n\
                      [listen]\nagents = \"127.0.0.1:0\"\napi = \"127.0.0.1:0\"\n[host]\na = \"16Mbit\"\n\
                      [[join]]\nnames = \"node-*\"\nnetworks = [\"10.0.0.0/8\"]\nmax-rate = \"20Mbit\"\nmax-hosts = 1\n";

const TIMEOUT: Duration = Duration::from_secs(20);

fn start_agent(dir: &TestDir, coordinator: &CoordinatorProcess, name: &str, rate: &str) -> Process {
    let log = fs::File::create(dir.path(&format!("{name}.log"))).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args([
        "agent",
        "run",
        "--name",
        name,
        "--rate",
        rate,
        "--coordinator",
        &coordinator.agents_address,
    ]);
    Process(command.arg("--socket").arg(dir.path(name)).stderr(log).spawn().unwrap())
}

fn has_line(dir: &TestDir, name: &str, text: &str) -> bool {
    dir.read(&format!("{name}.log")).contains(text)
}

#[test]
fn host_joins_with_its_agent_sends_a_coflow_and_is_removed() {
    let dir = TestDir::new();
    dir.write("serve.toml", CONFIG);
    let coordinator_process = CoordinatorProcess::start(&dir.path("serve.toml"));
    let coordinator = Coordinator::local(&coordinator_process.api_address).unwrap();
    let _receiving = start_agent(&dir, &coordinator_process, "a", "16Mbit");
    let fast = start_agent(&dir, &coordinator_process, "node-1", "1Gbit");
    let reason = "no coordinator: host `node-1`: rate 1Gbit of its options; expected at most 20Mbit, the `max-rate` of `[[join]]` for node-*";
    wait_for("a refusal", || has_line(&dir, "node-1", reason));
    drop(fast);
    let mut joined = start_agent(&dir, &coordinator_process, "node-1", "16Mbit");
    wait_for("a coordinator", || has_line(&dir, "node-1", "node-1 has a coordinator"));

    let data = vec![7; 100_000];
    let flow = Flow { from: "node-1".to_owned(), to: "a".to_owned(), bytes: Some(data.len() as u64) };
    let registration = Registration { flows: vec![flow], ..Registration::default() };
    let coflow = Coflow::register(&coordinator, "shuffle", &registration).unwrap();
    assert_eq!(coordinator_process.ctl(&["hosts", "remove", "node-1"]).0, Some(1));
    let state = || coordinator.get("/v1/coflows/shuffle").unwrap();
    wait_for("a rate", || !state()["flows"][0]["rate"].is_null());
    let inbox = FlowReceiver::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let route = Route::direct(inbox.address()).unwrap();
    let receiver = thread::spawn(move || {
        let mut all = Vec::new();
        inbox.receive("shuffle", 0, TIMEOUT).unwrap().read_to_end(&mut all).unwrap();
        all
    });
    let agent = Agent::connect(dir.path("node-1")).unwrap();
    let sent = send_flow(&agent, "shuffle", 0, route, &mut &data[..]).unwrap();
    assert!(sent.bytes == data.len() as u64 && sent.unpaced.is_none(), "{sent:?}");
    assert!(receiver.join().unwrap() == data);
    assert!(coflow.wait(TIMEOUT).unwrap().is_completed);
    coflow.deregister().unwrap();

    assert!(joined.stop());
    assert_eq!(coordinator_process.ctl(&["hosts", "remove", "node-1"]), (Some(0), String::new()));
    let names = || -> Vec<String> {
        let hosts = coordinator_process.hosts();
        hosts.as_array().unwrap().iter().map(|host| host["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(), ["a"]);
    let (code, text) = coordinator_process.ctl(&["hosts", "remove", "a"]);
    assert!(code == Some(1) && text.contains("host `a` is in the configuration file"), "{text}");
    // Another host takes the only place.
    let _next = start_agent(&dir, &coordinator_process, "node-2", "20Mbit");
    wait_for("a coordinator", || has_line(&dir, "node-2", "node-2 has a coordinator"));
    assert_eq!(names(), ["a", "node-2"]);
}

#[test]
fn agent_asks_for_a_rate_where_interfaces_report_none() {
    let dir = TestDir::new();
    let run = "agent run --name a --coordinator 127.0.0.1:1 --dry-run";
    let expected = "weir: --rate: no rate and no --interface; expected --rate RATE\n";
    assert_eq!(dir.stderr_of(run, 2), expected);
    let expected = "weir: --interface lo: the driver reports no speed of a card; expected --rate RATE\n";
    assert_eq!(dir.stderr_of(&format!("{run} --interface lo"), 2), expected);
}
