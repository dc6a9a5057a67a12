//! Load test: streams of many agents to one coordinator over loopback. Prints the durations of schedules, and the time from
//! the report of a flow's end to the next order of its host.
//!
//! `cargo run --release -p weir-coordinator --example agent_load -- [HOSTS] [INTERVAL IN MS]` takes about ten seconds. The lease is ten
//! intervals.

#![cfg(target_os = "linux")]

use tokio::runtime::Builder;
use tonic::transport::Endpoint;
use weir_agent::live::load_generator;
use weir_coordinator::agents;
use weir_coordinator::control_plane::{ControlPlane, Link, NetworkLinks, Registration, Settings, Transfer};
use weir_coordinator::control_thread::start;
use weir_core::model::ServiceNames;
use weir_core::policy::build;
use weir_core::units::Rate;

type ExampleResult<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExampleResult<()> {
    let hosts = std::env::args().nth(1).map_or(Ok(150), |text| text.parse::<u32>())?.clamp(2, 10_000);
    let interval = std::env::args().nth(2).map_or(Ok(8), |text| text.parse::<u32>())?.clamp(1, 5_000);
    let interval = f64::from(interval) / 1e3;
    let settings = Settings { interval, lease: 10.0 * interval, ..Settings::default() };
    let rate = Rate::new(1.25e8).ok_or("1.25e8 is a valid rate")?;
    let links = vec![Link { send: rate, recv: rate }; hosts as usize];
    let control_plane = ControlPlane::new(
        NetworkLinks::one_switch(&links),
        build("saath")?,
        ServiceNames::default(),
        settings,
        1,
    )?;
    let (handle, _) = start(control_plane)?;
    let runtime = |name| Builder::new_multi_thread().worker_threads(1).thread_name(name).enable_all().build();
    let server = runtime("server")?;
    let address = server.block_on(async {
        for (number, id) in (0u32..).zip(load_generator::coflow_ids()) {
            let flow = |src| Transfer { src, dst: (src + 1 + number % (hosts - 1)) % hosts, bytes: None };
            let registration = Registration {
                generation: 1,
                service: ServiceNames::DEFAULT.to_owned(),
                application: ServiceNames::DEFAULT.to_owned(),
                weight: 1.0,
                deadline: None,
                flows: (0..hosts).map(flow).collect(),
            };
            handle.call(move |plane, now| plane.register(&id, registration, now)).await??;
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(agents::serve(listener, handle.clone()));
        ExampleResult::Ok(address)
    })?;
    let agents_runtime = runtime("load_generator")?;
    let coordinator = Endpoint::from_shared(format!("http://{address}"))?;
    let response_times = agents_runtime.block_on(load_generator::run_agents(coordinator, 0..hosts, rate));
    if response_times.is_empty() {
        return Err("no order followed the report of a flow's end".into());
    }
    let percentile =
        |percent: usize| response_times[(response_times.len() * percent).div_ceil(100).max(1) - 1];
    let overview = server.block_on(handle.overview())?;
    println!("{hosts} hosts, {} flows, an interval of {:?}", overview.flows, handle.interval());
    println!(
        "{} schedules, until their orders are queued: {:?}",
        overview.schedule_durations.count, overview.schedule_durations
    );
    println!("{} reports, {} dropped orders", overview.received_reports, overview.dropped_orders);
    println!(
        "{} ended flows; from the report of the end to the next order: median {:?}, P90 {:?}, P99 {:?}",
        response_times.len(),
        percentile(50),
        percentile(90),
        percentile(99)
    );
    Ok(())
}
