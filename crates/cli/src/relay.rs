//! Runs `weir relay`: a relay of the overlay between datacenters.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use weir_agent::live::endpoint::CoordinatorEndpoint;
use weir_console::failure::Failure;
use weir_console::table::format_count;
use weir_console::{interrupt, output};
use weir_relay::control::{self, OrderStatus};
use weir_relay::io::{Command, Handle, Server, ServerSettings};
use weir_relay::message::RelayId;
use weir_relay::metrics::MetricsSource;
use weir_relay::overlay::Overlay;
use weir_relay::overlay_file::{self, relay_by_name};

use crate::args;
use crate::coordinator_hint::{HINT_DELAY, explain};
use crate::metrics_endpoint;
use crate::serve::{init_log, wait_for_stop_signal};

mod certificate;
mod options;

use certificate::RelayCertificate;

/// The port for other relays.
const RELAY_PORT: u16 = 7710;

/// How often a relay that drains counts its flows.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Runs `weir relay`.
pub fn relay(args: &args::Relay) -> Result<(), Failure> {
    let args::Relay::Run(args) = args;
    run(args)
}

fn run(args: &args::RelayRun) -> Result<(), Failure> {
    let overlay = args.overlay.as_deref().map(overlay_file::read).transpose()?;
    let own = match (&overlay, &args.overlay) {
        (Some(overlay), Some(path)) => Some(relay_by_name(overlay, &args.name).ok_or_else(|| {
            let names: Vec<&str> = overlay.relays.values().map(|relay| &*relay.name).collect();
            Failure::input(format_args!(
                "--name: `{}` is not a relay of {}; expected one of its names: {}",
                args.name,
                path.display(),
                names.join(", ")
            ))
        })?),
        _ => None,
    };
    let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), RELAY_PORT);
    let relays = args.relays.or(own.map(|(_, address)| address)).unwrap_or(any);
    options::check(args, relays)?;
    // Unusable files are an error before the relay connects to the coordinator.
    let certificate = certificate::read(args)?;
    if args.dry_run {
        return print_plan(args, overlay.as_ref(), relays);
    }
    init_log(args.log);
    interrupt::record_signals();
    interrupt::exit_on_second_signal();
    weir_agent::live::raise_file_limit();
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::runtime)?;
    match (overlay, own) {
        (Some(overlay), Some((id, _))) => runtime.block_on(async {
            let mut relay = start(args, id, relays, certificate, None).await?;
            relay.handle.send(Command::SetOverlay(overlay));
            tokio::select! {
                _ = &mut relay.end => {}
                () = wait_for_stop_signal() => {}
            }
            relay.drain(drain_time(args)).await;
            relay.stop()
        }),
        _ => runtime.block_on(run_with_coordinator(args, relays, certificate)),
    }
}

fn print_plan(args: &args::RelayRun, overlay: Option<&Overlay>, relays: SocketAddr) -> Result<(), Failure> {
    let (programs, relays_tls) = match args.credentials.certificate {
        None => ("plain text", "plain text"),
        Some(_) if args.insecure => ("plain text", "TLS"),
        Some(_) if args.tls_local => ("TLS", "TLS"),
        Some(_) => ("TLS, and plain text inside this host", "TLS"),
    };
    let mut text = format!(
        "relay               {}\nprograms            {}, {programs}\nother relays        {relays}, {relays_tls}\nmemory              {}\n",
        args.name,
        args.programs,
        options::format_memory(args.memory)
    );
    let _ = match overlay {
        None => writeln!(text, "coordinator         {}", args.coordinator),
        Some(overlay) => writeln!(
            text,
            "overlay             {}, {}, {}",
            format_count(overlay.relays.len() as u64, "relay"),
            format_count(overlay.coflows.len() as u64, "coflow"),
            format_count(overlay.rules.len() as u64, "rule")
        ),
    };
    if let Some(address) = args.metrics {
        let has_tls = metrics_endpoint::read_tls(address, &args.credentials, args.insecure)?.is_some();
        let _ = writeln!(text, "metrics             {}", metrics_endpoint::url(address, has_tls));
    }
    Ok(output::print(text)?)
}

async fn run_with_coordinator(
    args: &args::RelayRun,
    relays: SocketAddr,
    certificate: Option<RelayCertificate>,
) -> Result<(), Failure> {
    let files = args.credentials.tls_files(&args.coordinator, args.insecure)?;
    let coordinator = CoordinatorEndpoint::new(&args.coordinator, files).map_err(Failure::input)?;
    let hint = tokio::spawn(explain_missing_coordinator(args.coordinator.clone(), files.is_some()));
    let endpoint = || coordinator.current();
    let session = tokio::select! {
        session = control::connect(&endpoint, &args.name) => session,
        () = wait_for_stop_signal() => return Ok(()),
        never = certificate::reload(certificate.clone(), Some(coordinator.clone()), |_| {}) => match never {},
    };
    hint.abort();
    let (statuses, status) = watch::channel(OrderStatus::default());
    let control = Control { coordinator: coordinator.clone(), status };
    let relay = start(args, RelayId(session.id()), relays, certificate, Some(control)).await?;
    let (drained, finish) = oneshot::channel::<()>();
    let finish = async { drop(finish.await) };
    let handle = relay.handle.clone();
    let stream = control::run(move || coordinator.current(), &args.name, session, handle, statuses, finish);
    // The coordinator needs the reports of a relay that drains.
    let drain = async {
        wait_for_stop_signal().await;
        relay.drain(drain_time(args)).await;
        drop(drained);
    };
    let result = {
        let (mut stream, mut drain) = (pin!(stream), pin!(drain));
        tokio::select! {
            result = &mut stream => {
                if interrupt::is_requested() {
                    drain.await;
                } else {
                    relay.drain(drain_time(args)).await;
                }
                result
            }
            () = &mut drain => stream.await,
        }
    };
    relay.stop().and(result.map_err(Failure::runtime))
}

fn drain_time(args: &args::RelayRun) -> Duration {
    Duration::from_secs_f64(args.drain.get())
}

/// Logs what an operator can do if the coordinator does not answer soon.
async fn explain_missing_coordinator(address: String, has_certificate: bool) {
    tokio::time::sleep(HINT_DELAY).await;
    let hint = tokio::task::spawn_blocking(move || explain(&address, has_certificate)).await;
    if let Ok(Some(hint)) = hint {
        tracing::warn!("{hint}");
    }
}

/// A relay, and the thread that runs it.
struct RunningRelay {
    handle: Handle,
    /// Closed when the thread has ended.
    end: oneshot::Receiver<()>,
    thread: thread::JoinHandle<Result<(), weir_relay::io::ServerError>>,
    /// Serves metrics, and reads new certificates.
    tasks: Vec<JoinHandle<()>>,
}

/// A coordinator, and the state of its orders.
struct Control {
    coordinator: CoordinatorEndpoint,
    status: watch::Receiver<OrderStatus>,
}

/// Starts a relay, with or without a coordinator.
async fn start(
    args: &args::RelayRun,
    id: RelayId,
    relays: SocketAddr,
    certificate: Option<RelayCertificate>,
    control: Option<Control>,
) -> Result<RunningRelay, Failure> {
    let metrics = match args.metrics {
        None => None,
        Some(address) => {
            let tls = metrics_endpoint::read_tls(address, &args.credentials, args.insecure)?;
            Some((metrics_endpoint::listen(address).await?, tls))
        }
    };
    let settings = ServerSettings {
        id,
        memory_bytes: args.memory.get() as u64,
        congestion_control: args.congestion_control.clone(),
        connections: args.connections.map(usize::from),
        tls: certificate.as_ref().map(|certificate| certificate.current()),
    };
    let (server, handle) = Server::bind(settings, args.programs, relays)
        .map_err(|error| options::listen_failure(args, error))?;
    let (programs, relays) = server.addresses().map_err(Failure::runtime)?;
    tracing::info!(name = %args.name, %programs, %relays, "listening");
    let (ending, end) = oneshot::channel();
    let thread = thread::Builder::new().name("relay".to_owned()).spawn(move || {
        let _ending: oneshot::Sender<()> = ending;
        server.run()
    });
    let thread = thread.map_err(Failure::runtime)?;
    let (coordinator, orders) = control.map(|control| (control.coordinator, control.status)).unzip();
    let source = MetricsSource { relay: handle.clone(), orders, certificate: certificate.clone() };
    let metrics = metrics.map(|(listener, tls)| {
        tokio::spawn(async move { match weir_metrics::serve(listener, tls, source).await {} })
    });
    let reloaded = handle.clone();
    let reload = tokio::spawn(async move {
        let apply = |tls| reloaded.send(Command::SetTls(tls));
        match certificate::reload(certificate, coordinator, apply).await {}
    });
    Ok(RunningRelay { handle, thread, end, tasks: metrics.into_iter().chain([reload]).collect() })
}

impl RunningRelay {
    /// Refuses new flows, and waits for open ones for at most `limit`.
    async fn drain(&self, limit: Duration) {
        let start = Instant::now();
        self.handle.send(Command::Drain);
        let mut open = self.open_flows().await;
        if open > 0 {
            let (flows, seconds) = (count_flows(open), limit.as_secs_f64());
            tracing::info!("draining {flows} for up to {seconds} s; interrupt again to stop now");
        }
        while open > 0 && start.elapsed() < limit {
            tokio::time::sleep(DRAIN_POLL_INTERVAL).await;
            open = self.open_flows().await;
        }
        match open {
            0 => tracing::info!("stopping; no flow is open"),
            _ => tracing::warn!("stopping; {} did not complete in time", count_flows(open)),
        }
    }

    /// The number of open flows; 0 if the thread has ended.
    async fn open_flows(&self) -> usize {
        let (sender, status) = oneshot::channel();
        self.handle.send(Command::Inspect(Box::new(move |status| drop(sender.send(status)))));
        let (sources, sinks, transits) = status.await.map_or((0, 0, 0), |status| status.flow_counts);
        sources + sinks + transits
    }

    /// Ends the thread.
    fn stop(self) -> Result<(), Failure> {
        self.handle.send(Command::Stop);
        self.tasks.iter().for_each(JoinHandle::abort);
        match self.thread.join() {
            Ok(result) => result.map_err(Failure::runtime),
            Err(_) => Err(Failure::runtime("the thread of the relay has panicked")),
        }
    }
}

fn count_flows(count: usize) -> String {
    format!("{count} flow{}", if count == 1 { "" } else { "s" })
}
