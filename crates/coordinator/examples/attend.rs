//! Many agents' streams to one coordinator over loopback, and how long schedules and reports take:
//! `cargo run --release -p weir-coordinator --example attend -- [HOSTS] [SECONDS]`.
//!
//! Each host sends a flow of each of 40 coflows, which get 100 kB further in every interval, as its reports say.

use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use weir_coordinator::agents;
use weir_coordinator::master::start;
use weir_coordinator::plane::{Link, Plane, Registration, Settings, Transfer};
use weir_core::model::Names;
use weir_core::policy::build;
use weir_core::units::Rate;
use weir_proto::wire::control_client::ControlClient;
use weir_proto::wire::{Up, down::What};
use weir_proto::{FlowKey, Report, Seen};

const COFLOWS: u32 = 40;
const STEP: u64 = 100_000;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let number = |at, default| std::env::args().nth(at).map_or(Ok(default), |text| text.parse::<u32>());
    let (hosts, seconds) = (number(1, 150)?.clamp(2, 10_000), number(2, 5)?.clamp(1, 60));
    let rate = Rate::new(1.25e8).ok_or("a constant")?;
    let links = vec![Link { send: rate, recv: rate }; hosts as usize];
    let plane = Plane::new(&links, build("saath")?, Names::default(), Settings::default(), 1)?;
    let (handle, _) = start(plane)?;
    let server = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let address = server.block_on(async {
        for coflow in 0..COFLOWS {
            let flow = |src| Transfer { src, dst: (src + 1 + coflow % (hosts - 1)) % hosts, bytes: None };
            let registration = Registration {
                service: Names::DEFAULT.to_owned(),
                application: Names::DEFAULT.to_owned(),
                weight: 1.0,
                deadline: None,
                flows: (0..hosts).map(flow).collect(),
            };
            handle.register(format!("coflow-{coflow:02}"), registration).await?;
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(agents::serve(listener, handle.clone()));
        Outcome::Ok(address)
    })?;
    let clients = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut waits = clients.block_on(async {
        let mut all = JoinSet::new();
        for host in 0..hosts {
            all.spawn(attend(format!("http://{address}"), host, Duration::from_secs(u64::from(seconds))));
        }
        let mut waits = Vec::new();
        while let Some(done) = all.join_next().await {
            waits.append(&mut done??);
        }
        Outcome::Ok(waits)
    })?;
    waits.sort_unstable();
    let within = |percent: usize| waits[(waits.len() * percent).div_ceil(100).max(1) - 1];
    let overview = server.block_on(handle.overview())?;
    println!("{hosts} hosts, {} flows, an interval of {:?}", hosts * COFLOWS, handle.interval());
    println!("schedules, with their orders on their way: {:?}", overview.schedules);
    println!("orders that were dropped: {}", overview.dropped);
    println!(
        "{} orders; from a report to the next order: median {:?}, P90 {:?}, P99 {:?}",
        waits.len(),
        within(50),
        within(90),
        within(99)
    );
    Ok(())
}

/// Reports as each order comes, and notes how long the next takes. What is noted in the first second does not count.
async fn attend(to: String, host: u32, time: Duration) -> Outcome<Vec<Duration>> {
    let mut control = ControlClient::new(Endpoint::from_shared(to)?.connect().await?);
    let (up, said) = mpsc::channel(1);
    up.send(Up::hello(host)).await?;
    let mut orders = control.attend(ReceiverStream::new(said)).await?.into_inner();
    let began = Instant::now();
    let (mut obeys, mut sent, mut waits) = ((0, 0), 0, Vec::new());
    while began.elapsed() < time {
        let key = |coflow| FlowKey { coflow: format!("coflow-{coflow:02}").into(), flow: host };
        let flows = (0..COFLOWS).map(|coflow| Seen { key: key(coflow), sent, closed: false }).collect();
        let reported = Instant::now();
        up.send(Up::report(&Report { obeys, flows, found: Vec::new() })).await?;
        loop {
            let Some(down) = orders.message().await? else { return Err("the stream ended".into()) };
            if let Some(What::Order(order)) = down.what {
                obeys = (order.epoch, order.seq);
                break;
            }
        }
        if began.elapsed() > Duration::from_secs(1) {
            waits.push(reported.elapsed());
        }
        sent += STEP;
    }
    Ok(waits)
}
