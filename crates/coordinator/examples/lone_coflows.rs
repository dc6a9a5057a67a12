//! Measures what scheduling costs coflows that never wait: coflows of four flows, one after the other, between two hosts with links of
//! 10 Gbit/s. Each coflow is sent without an agent and with one, over sockets of the program and by the library. Other load may delay some
//! coflows, so medians are next to the sums.
//!
//! Loopback is faster than such links, so it gets their rate here:
//!
//! `cargo build --release -p weir-coordinator --example lone_coflows && unshare -Urn sh -c 'ip link set lo up &&
//! tc qdisc add dev lo root handle 1: htb default 1 && tc class add dev lo parent 1: classid 1:1 htb rate 10gbit &&
//! target/release/examples/lone_coflows'` prints the times of 20 coflows with flows of 1 MB, and of 4 MB. `lone_coflows COFLOWS POLICY`
//! measures another number of coflows, or another policy.

#![cfg(target_os = "linux")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use tonic::transport::Endpoint;
use weir_agent::live;
use weir_client::{Agent, FlowReceiver, FlowSender, Route};
use weir_coordinator::agents;
use weir_coordinator::control_plane::{ControlPlane, Link, NetworkLinks, Registration, Settings, Transfer};
use weir_coordinator::control_thread::{Handle, start};
use weir_core::model::ServiceNames;
use weir_core::policy::build;
use weir_core::units::{Bytes, Rate};

type ExampleResult<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The rate of the links, in bytes per second.
const LINK_RATE: f64 = 1.25e9;

const FLOWS: u32 = 4;

/// How long a receiver waits for a flow.
const TIMEOUT: Duration = Duration::from_secs(10);

fn main() -> ExampleResult<()> {
    let mut args = std::env::args().skip(1);
    let coflows: std::num::NonZeroU32 = args.next().unwrap_or_else(|| "20".to_owned()).parse()?;
    let policy = args.next().unwrap_or_else(|| "saath".to_owned());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (handle, address) = start_coordinator(&runtime, &policy)?;
    let socket = std::env::temp_dir().join(format!("weir-lone-coflows-{}", std::process::id()));
    let settings = live::Settings {
        coordinator: Endpoint::from_shared(format!("http://{address}"))?.into(),
        name: "h0".to_owned(),
        links: vec![live::Link { rate: Rate::new(LINK_RATE).ok_or("a rate")?, interfaces: Vec::new() }],
        networks: Vec::new(),
        labels: std::collections::BTreeMap::new(),
        local_socket: Some(socket.clone()),
        watchdog: None,
        has_socket_programs: false,
        dry_run: true,
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running =
        runtime.spawn(live::run(settings, Vec::new(), None, None, async { stopped.await.unwrap_or(()) }));
    let start = Instant::now();
    while runtime.block_on(handle.overview())?.connected_agents == 0 {
        if start.elapsed() > TIMEOUT {
            return Err("the agent does not connect".into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    let agent = Agent::connect(&socket)?;
    for megabytes in [1, 4] {
        measure(&runtime, &handle, &agent, coflows.get(), megabytes)?;
    }
    drop(stop);
    runtime.block_on(running)?.1?;
    Ok(())
}

/// Starts a coordinator for two hosts on loopback.
fn start_coordinator(runtime: &tokio::runtime::Runtime, policy: &str) -> ExampleResult<(Handle, SocketAddr)> {
    let rate = Rate::new(LINK_RATE).ok_or("a rate")?;
    let links = NetworkLinks::one_switch(&[Link { send: rate, recv: rate }; 2]);
    let plane = ControlPlane::new(links, build(policy)?, ServiceNames::default(), Settings::default(), 1)?;
    let (handle, _) = start(plane)?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    runtime.spawn(agents::serve(listener, handle.clone()));
    Ok((handle, address))
}

/// Sends coflows, and prints their times.
fn measure(
    runtime: &tokio::runtime::Runtime,
    handle: &Handle,
    agent: &Agent,
    coflows: u32,
    megabytes: usize,
) -> ExampleResult<()> {
    let data = vec![0; megabytes * 1_000_000];
    let senders: [(&str, Sender); 2] = [("sockets", send_over_socket), ("library", send_by_library)];
    for (name, send) in senders {
        let mut times = [Vec::new(), Vec::new()];
        for number in 0..coflows {
            let id = format!("{name}-{megabytes}-{number}");
            let flow = Transfer { src: 0, dst: 1, bytes: Bytes::new(data.len() as f64) };
            let registration = Registration {
                generation: 1,
                service: ServiceNames::DEFAULT.to_owned(),
                application: ServiceNames::DEFAULT.to_owned(),
                weight: 1.0,
                deadline: None,
                flows: vec![flow; FLOWS as usize],
            };
            for (times, agent) in times.iter_mut().zip([None, Some(agent)]) {
                if agent.is_some() {
                    let (id, registration) = (id.clone(), registration.clone());
                    let register = handle.call(move |plane, now| plane.register(&id, registration, now));
                    runtime.block_on(register)??;
                }
                let start = Instant::now();
                send_coflow(&id, &data, send, agent)?;
                times.push(start.elapsed().as_secs_f64());
            }
            runtime.block_on(handle.call(move |plane, now| plane.deregister(&id, now)))??;
        }
        let medians = times.each_mut().map(|times| {
            times.sort_by(f64::total_cmp);
            1e3 * times[times.len() / 2]
        });
        let sums = times.map(|times| times.iter().sum::<f64>());
        println!(
            "{coflows} coflows of {FLOWS} flows of {megabytes} MB, {name}, without agent and scheduled:"
        );
        println!(
            "  {:.3} s and {:.3} s, ratio {:.2}; medians {:.2} ms and {:.2} ms, ratio {:.2}",
            sums[0],
            sums[1],
            sums[1] / sums[0],
            medians[0],
            medians[1],
            medians[1] / medians[0]
        );
    }
    Ok(())
}

/// Sends a flow of a coflow with this data until its receiver has read all of it.
type Sender = fn(&str, u32, &[u8], Option<&Agent>) -> ExampleResult<()>;

fn send_coflow(id: &str, data: &[u8], send: Sender, agent: Option<&Agent>) -> ExampleResult<()> {
    thread::scope(|scope| {
        let flows: Vec<_> = (0..FLOWS).map(|flow| scope.spawn(move || send(id, flow, data, agent))).collect();
        flows.into_iter().try_for_each(|flow| flow.join().map_err(|_| "a sender panicked")?)
    })
}

fn send_over_socket(id: &str, flow: u32, data: &[u8], agent: Option<&Agent>) -> ExampleResult<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut stream = TcpStream::connect(listener.local_addr()?)?;
    let mut incoming = listener.accept()?.0;
    if let Some(agent) = agent {
        agent.hand_over(id, flow, &stream)?;
    }
    thread::scope(|scope| {
        let receiver = scope.spawn(move || incoming.read_to_end(&mut Vec::new()));
        stream.write_all(data)?;
        stream.shutdown(Shutdown::Write)?;
        receiver.join().map_err(|_| "a receiver panicked")??;
        Ok(())
    })
}

fn send_by_library(id: &str, flow: u32, data: &[u8], agent: Option<&Agent>) -> ExampleResult<()> {
    let receiver = FlowReceiver::bind("127.0.0.1:0")?;
    let route = Route::direct(receiver.address())?;
    thread::scope(|scope| {
        let receiver = &receiver;
        let received = scope.spawn(move || receiver.receive(id, flow, TIMEOUT)?.read_to_end(&mut Vec::new()));
        let mut sender = FlowSender::new(id, flow, route)?;
        if let Some(agent) = agent {
            sender = sender.with_agent(agent);
        }
        sender.write_all(data)?;
        sender.finish()?;
        received.join().map_err(|_| "a receiver panicked")??;
        Ok(())
    })
}
