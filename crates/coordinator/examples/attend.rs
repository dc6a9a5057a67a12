//! Load test: many agents' streams to one coordinator over loopback. Prints the durations of schedules and of the
//! answers to reports. `cargo run --release -p weir-coordinator --example attend -- [HOSTS]` takes some ten seconds.

#![cfg(target_os = "linux")]

use tokio::runtime::Builder;
use tonic::transport::Endpoint;
use weir_agent::live::load_generator;
use weir_coordinator::agents;
use weir_coordinator::master::start;
use weir_coordinator::plane::{ControlPlane, Link, Registration, Settings, Transfer};
use weir_core::model::Names;
use weir_core::policy::build;
use weir_core::units::Rate;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let hosts = std::env::args().nth(1).map_or(Ok(150), |text| text.parse::<u32>())?.clamp(2, 10_000);
    let rate = Rate::new(1.25e8).ok_or("a constant")?;
    let links = vec![Link { send: rate, recv: rate }; hosts as usize];
    let plane = ControlPlane::new(&links, build("saath")?, Names::default(), Settings::default(), 1)?;
    let (handle, _) = start(plane)?;
    let runtime = |name| Builder::new_multi_thread().worker_threads(1).thread_name(name).enable_all().build();
    let server = runtime("server")?;
    let address = server.block_on(async {
        for (number, id) in (0u32..).zip(load_generator::coflows()) {
            let flow = |src| Transfer { src, dst: (src + 1 + number % (hosts - 1)) % hosts, bytes: None };
            let registration = Registration {
                service: Names::DEFAULT.to_owned(),
                application: Names::DEFAULT.to_owned(),
                weight: 1.0,
                deadline: None,
                flows: (0..hosts).map(flow).collect(),
            };
            handle.register(id, registration).await?;
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(agents::serve(listener, handle.clone()));
        Outcome::Ok(address)
    })?;
    let clients = runtime("load_generator")?;
    let coordinator = Endpoint::from_shared(format!("http://{address}"))?;
    let waits = clients.block_on(load_generator::attend(coordinator, 0..hosts, rate));
    if waits.is_empty() {
        return Err("no report was answered".into());
    }
    let within = |percent: usize| waits[(waits.len() * percent).div_ceil(100).max(1) - 1];
    let overview = server.block_on(handle.overview())?;
    println!("{hosts} hosts, {} flows, an interval of {:?}", overview.flows, handle.interval());
    println!(
        "{} schedules, with their orders on their way: {:?}",
        overview.schedules.count, overview.schedules
    );
    println!("{} reports; orders that were dropped: {}", overview.reports, overview.dropped);
    println!(
        "{} answers; from a report to the order that answers it: median {:?}, P90 {:?}, P99 {:?}",
        waits.len(),
        within(50),
        within(90),
        within(99)
    );
    Ok(())
}
