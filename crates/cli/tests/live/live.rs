//! Tests a coordinator, `weir agent run` and real flows on a testbed. The test skips without the privileges for one.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crate::bed::{
    Bed, COORDINATOR_PORT, ControlFlow, Flow, FlowConnection, LINK_FRAME_BYTES_PER_SEC, PAYLOAD_FRACTION,
    Process, address, payload_utilization, relative_utilization,
};
use crate::common::TestDir;
use crate::common::wait_for;
use weir_client::Agent;
use weir_coordinator::control_plane::{ControlPlane, Link, NetworkLinks, Registration, Settings, Transfer};
use weir_coordinator::{agents, control_thread};
use weir_core::model::{LinkBudget, ServiceNames};
use weir_core::policy::build;
use weir_core::units::{Bytes, Rate};

/// The last host of the testbed runs the coordinator. The control's flow uses the links of the two hosts before it.
const HOSTS: u32 = 7;
const COORDINATOR: u32 = HOSTS - 1;
const CONTROL: [u32; 2] = [HOSTS - 3, HOSTS - 2];

/// Longer than a busy machine delays an order.
const LEASE: Duration = Duration::from_millis(1500);

/// The fraction of each port that the coordinator's settings reserve for waiting flows.
const RESERVE: f64 = 0.01;

/// The time in which a flow reaches its ordered rate, in seconds. The kernel schedules the next packet at the
/// rate of the last: a waiting flow sends two full packets at the rate of the reserve, which takes 60 ms. A
/// report and an order follow.
const RATE_CHANGE_SECS: f64 = 0.15;

/// `wide` shares a port with `short` and with `middle`; `short` and `middle` share none.
const COFLOWS: [Flow; 4] =
    [("wide", 0, 0, 2, 6e6), ("wide", 1, 1, 3, 6e6), ("short", 0, 0, 3, 4e6), ("middle", 0, 1, 2, 8e6)];

/// The coflows, in the order of registration.
const COFLOW_NAMES: [&str; 3] = ["wide", "short", "middle"];

/// Two flows on the same port that last longer than the test.
const LONG_FLOWS: [Flow; 2] = [("x", 0, 0, 2, 1e12), ("y", 0, 0, 3, 1e12)];

/// The coordinator's process. It registers the coflows when it starts, as frameworks do after a restart.
#[test]
#[ignore = "runs as a process of another test"]
fn run_coordinator_process() {
    let epoch = env::var("WEIR_TEST_EPOCH")
        .expect("the test that starts this process sets WEIR_TEST_EPOCH")
        .parse()
        .unwrap();
    let rate = Rate::new(LINK_FRAME_BYTES_PER_SEC).unwrap();
    let links = [Link { send: rate, recv: rate }; 4];
    let settings = Settings { lease: LEASE.as_secs_f64(), ..Settings::default() };
    let plane = ControlPlane::new(
        NetworkLinks::one_switch(&links),
        build("saath").unwrap(),
        ServiceNames::default(),
        settings,
        epoch,
    )
    .unwrap();
    let (handle, _) = control_thread::start(plane).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let requested: &[Flow] = if epoch == 1 { &COFLOWS } else { &LONG_FLOWS };
        for flows_of_coflow in requested.chunk_by(|a, b| a.0 == b.0) {
            let flow = |flow: &Flow| Transfer { src: flow.2, dst: flow.3, bytes: Bytes::new(flow.4) };
            let registration = Registration {
                generation: 1,
                service: ServiceNames::DEFAULT.to_owned(),
                application: ServiceNames::DEFAULT.to_owned(),
                weight: 1.0,
                deadline: None,
                flows: flows_of_coflow.iter().map(flow).collect(),
            };
            let id = flows_of_coflow[0].0;
            let registered = handle.call(move |plane, now| plane.register(id, registration, now));
            registered.await.unwrap().unwrap();
        }
        let listener = tokio::net::TcpListener::bind((address(COORDINATOR), COORDINATOR_PORT)).await.unwrap();
        agents::serve(listener, handle).await.unwrap();
    });
}

/// The completion times that the simulator computes, in order, at the links' payload capacity.
fn simulated_ccts(dir: &TestDir, policy: &str) -> Vec<(String, f64)> {
    let mut trace = "weir-trace 1\nports 4\n".to_owned();
    for flows_of_coflow in COFLOWS.chunk_by(|a, b| a.0 == b.0) {
        trace += &format!(
            "coflow {}\n",
            COFLOW_NAMES.iter().position(|name| *name == flows_of_coflow[0].0).unwrap()
        );
        flows_of_coflow.iter().for_each(|flow| trace += &format!("flow {} {} {}B\n", flow.2, flow.3, flow.4));
    }
    dir.write("coflows.weir", &trace);
    let rate = LINK_FRAME_BYTES_PER_SEC * LinkBudget::DEFAULT.coflow_payload_fraction(RESERVE) * 8.0;
    let ccts = dir.path("ccts.csv");
    dir.stdout_of(&format!(
        "sim coflows.weir --quiet --policy {policy} --port-rate {rate}bit --per-coflow {}",
        ccts.display()
    ));
    let parse_line = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        (COFLOW_NAMES[fields[1].parse::<usize>().unwrap()].to_owned(), fields[9].parse().unwrap())
    };
    let mut ends: Vec<(String, f64)> = dir.read("ccts.csv").lines().skip(1).map(parse_line).collect();
    ends.sort_by(|a, b| a.1.total_cmp(&b.1));
    ends
}

fn start_coordinator(bed: &Bed, epoch: u64) -> Process {
    let mut command = bed.command_on_host(COORDINATOR, &env::current_exe().unwrap());
    command.args(["--exact", "live::run_coordinator_process", "--ignored", "--nocapture"]);
    command.env("WEIR_TEST_EPOCH", epoch.to_string()).stdout(Stdio::null());
    Process(command.spawn().unwrap())
}

/// Saath sends `short` and `middle` first, concurrently, since each contends with one coflow. `wide` follows
/// when one of them has completed, until its sent bytes move it to a lower queue. With fair shares, `wide`
/// would complete before `middle`.
#[test]
fn coflows_complete_in_saaths_order_and_continue_without_a_coordinator() {
    let Some(bed) = Bed::up("live", HOSTS) else { return };
    let first = start_coordinator(&bed, 1);
    let start_agent = |host| {
        let mut command = bed.agent_command(host);
        let mut agent = Process(command.arg("--insecure").stderr(Stdio::piped()).spawn().unwrap());
        let mut log = BufReader::new(agent.0.stderr.take().unwrap()).lines().map(Result::unwrap);
        assert!(log.any(|line| line.contains("has a coordinator")), "agent {host} has exited");
        thread::spawn(move || log.for_each(|line| eprintln!("{line}")));
        agent
    };
    let _agents: Vec<Process> = (0..4).map(start_agent).collect();
    wait_for("the agents' local sockets", || {
        (0..4).all(|host| Agent::connect(bed.local_socket(host)).is_ok())
    });
    let connections = bed.connect_flow(&COFLOWS);
    let control = ControlFlow::start(&bed, CONTROL[0], CONTROL[1]);
    let (start_time, control_bytes) = (Instant::now(), control.acked_bytes());
    connections.iter().for_each(FlowConnection::send);
    thread::sleep(Duration::from_millis(200));
    let utilization = relative_utilization(&connections, &control, Duration::from_millis(300));
    // On a busy machine the measurement can be late, and last until after the end of `short`.
    let short_has_ended = connections[2].has_ended();
    eprintln!("utilization at first: {utilization:.3?}, short has ended: {short_has_ended}");
    wait_for("the end of all flows", || connections.iter().all(FlowConnection::has_ended));
    let control_rate = (control.acked_bytes() - control_bytes) / start_time.elapsed().as_secs_f64();
    // How much longer than at the link's rate the control's bytes took.
    let slowdown = (LINK_FRAME_BYTES_PER_SEC * PAYLOAD_FRACTION / control_rate).max(1.0);
    // A coflow completes with its last flow.
    let end = |name: &str| {
        let own_flows = COFLOWS.iter().zip(&connections).filter(|(flow, _)| flow.0 == name);
        own_flows
            .filter_map(|(_, connection)| connection.end())
            .max()
            .unwrap()
            .duration_since(start_time)
            .as_secs_f64()
    };
    let mut ends = COFLOW_NAMES.map(|name| (name.to_owned(), end(name)));
    ends.sort_by(|a, b| a.1.total_cmp(&b.1));
    let [saath, fair] = ["saath", "fair"].map(|policy| simulated_ccts(&bed.dir, policy));
    eprintln!(
        "ends: {ends:.3?}\nsimulated: {saath:.3?}\nsimulated, fair: {fair:.3?}\nslowdown of the control: {slowdown:.3}"
    );
    // A flow of the first coflow gets the port without the reserve; a waiting flow gets the reserve.
    let [wide, wide_second, short, middle] = utilization[..] else { panic!() };
    for (sending, has_ended) in [(short, short_has_ended), (middle, false)] {
        assert!(has_ended || sending.may_be_over(0.9), "{utilization:?}");
        assert!(sending.may_be_under(1.0), "{utilization:?}");
    }
    for waiting in [wide, wide_second] {
        assert!(waiting.may_be_under(0.03), "{utilization:?}");
    }
    let order = |ends: &[(String, f64)]| ends.iter().map(|end| end.0.clone()).collect::<Vec<_>>();
    assert_eq!(order(&ends), order(&saath));
    assert_ne!(order(&ends), order(&fair));
    // `short` starts at once. The other coflows wait and start again, up to three rate changes late.
    for (end, (name, expected)) in ends.iter().map(|end| end.1).zip(&saath) {
        let max_delay = if name == "short" { RATE_CHANGE_SECS } else { 3.0 * RATE_CHANGE_SECS };
        let latest = (1.05 * expected + max_delay) * slowdown;
        assert!(
            (0.95 * expected..latest).contains(&end),
            "{name}: {end} s, expected {expected} s to {latest} s"
        );
    }
    for (connection, flow) in connections.iter().zip(COFLOWS) {
        assert_eq!(connection.received_bytes(), flow.4);
    }

    // A second coordinator orders two flows on the same link: one sends, the other waits.
    drop(first);
    let mut second = start_coordinator(&bed, 2);
    let connections = bed.connect_flow(&LONG_FLOWS);
    connections.iter().for_each(FlowConnection::send);
    let one_flow_first = |connections: &[FlowConnection]| {
        let shares = payload_utilization(connections, Duration::from_millis(400));
        shares.iter().any(|share| share.max < 0.05) && shares.iter().any(|share| share.min > 0.85)
    };
    wait_for("one flow with the link", || one_flow_first(&connections));
    second.0.kill().unwrap();
    second.0.wait().unwrap();
    // No flow stops during the lease or after it. After the lease both flows share the link as TCP does.
    // Each window is longer than TCP takes to recover from a loss.
    let mut without_coordinator =
        vec![relative_utilization(&connections, &control, LEASE + Duration::from_millis(100))];
    without_coordinator
        .extend((0..4).map(|_| relative_utilization(&connections, &control, Duration::from_millis(400))));
    eprintln!("utilization without a coordinator: {without_coordinator:.3?}");
    assert!(
        without_coordinator.iter().all(|both| both.iter().map(|share| share.max).sum::<f64>() > 0.6),
        "{without_coordinator:?}"
    );
    let mean_utilizations: Vec<f64> = (0..2)
        .map(|connection| without_coordinator[1..].iter().map(|both| both[connection].max).sum::<f64>() / 4.0)
        .collect();
    assert!(mean_utilizations.iter().all(|share| *share > 0.15), "{mean_utilizations:?}");
    let _third = start_coordinator(&bed, 3);
    wait_for("one flow with the link under the next coordinator", || one_flow_first(&connections));
    assert!(connections.iter().all(|connection| !connection.has_ended()));
}
