//! Runs `weir agent`: the agent of a host or switch, its watchdog, and commands that configure queues, mark traffic and clean up.

use std::collections::BTreeMap;
use std::env;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::geteuid;
use tokio::runtime::Builder;
use weir_agent::htb::max_segments;
use weir_agent::live::endpoint::CoordinatorEndpoint;
use weir_agent::live::watchdog::{self, WatchdogCommand};
use weir_agent::live::{self, KernelState, Link, MAX_LABELS, Settings};
use weir_agent::queues::{
    DesiredQueues, Device, Interface, InterfaceLock, QueueError, ReplaceableRoots, Shares,
};
use weir_agent::traffic::{
    BYTE_CHECK_INTERVAL, ByteCheck, ConnectionEvent, EventKind, Traffic, read_sent_bytes,
    remove_unused_applications,
};
use weir_console::failure::Failure;
use weir_console::{interrupt, output};
use weir_core::units::{Rate, Time};

use crate::args::{self, KeepQueues, LogFormat, SwitchPort};
use crate::cleanup::{self, start_cleaner};
use crate::coordinator_hint::explain;
use crate::metrics_endpoint;
use crate::serve::{init_log, wait_for_stop_signal};

/// The maximum number of networks of pods. The agent also states the addresses of its interfaces.
const MAX_NETWORKS: usize = 32;

/// Runs `weir agent`.
pub fn agent(args: &args::Agent) -> Result<(), Failure> {
    let result = match args {
        args::Agent::Run(args) => run(args),
        args::Agent::Queues(args) => configure_queues(args),
        args::Agent::Traffic(args) => print_traffic(args),
        args::Agent::Cleanup(args) => cleanup::cleanup(args),
        args::Agent::Watchdog { socket, interfaces } => run_watchdog(socket, interfaces),
    };
    result.map_err(add_permission_help)
}

/// Adds to an error of the kernel, or of `ip` and `tc`, that the command needs root.
fn add_permission_help(failure: Failure) -> Failure {
    let is_refusal = ["Permission denied", "Operation not permitted"];
    let is_refused = is_refusal.iter().any(|text| failure.message.contains(text));
    if !is_refused || geteuid().is_root() {
        return failure;
    }
    Failure { message: format!("{}; help: run the command as root", failure.message), ..failure }
}

/// The labels of a host by name.
fn read_labels(labels: &[(String, String)]) -> Result<BTreeMap<String, String>, Failure> {
    let by_name: BTreeMap<String, String> = labels.iter().cloned().collect();
    if by_name.len() < labels.len() || labels.len() > MAX_LABELS {
        let count = labels.len();
        return Err(Failure::input(format_args!(
            "--label: {count} labels; expected at most {MAX_LABELS}, each with another name"
        )));
    }
    Ok(by_name)
}

fn run(args: &args::AgentRun) -> Result<(), Failure> {
    let files = args.credentials.tls_files(&args.coordinator, args.insecure)?;
    let coordinator = CoordinatorEndpoint::new(&args.coordinator, files).map_err(Failure::input)?;
    let name = agent_name(args, &coordinator)?;
    let metrics_tls = match args.metrics {
        Some(address) => metrics_endpoint::read_tls(address, &args.credentials, args.insecure)?,
        None => None,
    };
    let mut links: Vec<Link> = args.ports.iter().map(SwitchPort::to_link).collect();
    // Switches run no programs with flows, so their agents have no local socket.
    let local_socket = (links.is_empty() && !args.dry_run).then(|| args.socket.clone());
    if links.is_empty() {
        links.push(host_link(args)?);
    }
    let interfaces: Vec<Interface> = links.iter().flat_map(|link| link.interfaces.clone()).collect();
    refuse_repeated_interfaces(if args.ports.is_empty() { "--interface" } else { "--port" }, &interfaces)?;
    // A missing interface is an error at the start, not at the first order.
    interfaces.iter().try_for_each(|interface| Device::read(interface).map(drop)).map_err(queue_failure)?;
    let changed_interfaces = if args.dry_run { &[][..] } else { &interfaces };
    let queue_locks = changed_interfaces.iter().map(InterfaceLock::acquire);
    let queue_locks = queue_locks.collect::<Result<Vec<_>, _>>().map_err(queue_failure)?;
    let watchdog = local_socket.clone().map(|local_socket| WatchdogCommand {
        program: own_program(),
        args: vec!["agent".to_owned(), "watchdog".to_owned()],
        local_socket,
    });
    let has_socket_programs = local_socket.is_some();
    let dry_run = args.dry_run;
    let labels = read_labels(&args.labels)?;
    let networks = args.networks.clone();
    if networks.len() > MAX_NETWORKS {
        let count = networks.len();
        return Err(Failure::input(format_args!(
            "--network: {count} networks; expected at most {MAX_NETWORKS}"
        )));
    }
    let settings = Settings {
        coordinator,
        name,
        links,
        networks,
        labels,
        local_socket,
        watchdog,
        has_socket_programs,
        dry_run,
    };
    init_log(LogFormat::Text);
    interrupt::record_signals();
    explain_missing_coordinator(args.coordinator.clone(), files.is_some());
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::runtime)?;
    let traffic = match &args.traffic.applications[..] {
        [] => None,
        applications => Some(Traffic::start(applications, &interfaces)?),
    };
    let metrics = match args.metrics {
        Some(address) => Some((runtime.block_on(metrics_endpoint::listen(address))?, metrics_tls)),
        None => None,
    };
    let (mut remaining, result) =
        runtime.block_on(live::run(settings, queue_locks, traffic, metrics, wait_for_stop_signal()));
    // Dropping the runtime waits for running changes of queues, before the queues are removed.
    drop(runtime);
    if result.is_ok() && interrupt::is_terminated() && !args.dry_run {
        // UDP flows have rates only while an agent renews them.
        let existing = remaining.interfaces.iter().filter(|interface| interface.index().is_some());
        let released: Result<Vec<()>, QueueError> = existing.map(Interface::delete_flow_filters).collect();
        if released.is_ok() && keeps_queues(args, &mut remaining) {
            return Ok(());
        }
    }
    // Those of a switch are not this agent's.
    let owns_programs = result.is_ok() && has_socket_programs;
    let result = result.map_err(Failure::runtime);
    // All interfaces and programs are restored, also after a failure; the first error is reported.
    result.and(restore(remaining, owns_programs, args.dry_run))
}

/// The link of a host. Its rate is that of `--rate`, or the speed of the cards.
fn host_link(args: &args::AgentRun) -> Result<Link, Failure> {
    let interfaces = args.traffic.interfaces.clone();
    if let Some(rate) = args.rate {
        return Ok(Link { rate, interfaces });
    }
    let expected = "expected --rate RATE";
    if interfaces.is_empty() {
        return Err(Failure::input(format_args!("--rate: no rate and no --interface; {expected}")));
    }
    let mut rate = None;
    for interface in &interfaces {
        let device = Device::read(interface).map_err(queue_failure)?;
        let speed = device.speed.filter(|_| device.is_physical).ok_or_else(|| {
            Failure::input(format_args!(
                "--interface {interface}: the driver reports no speed of a card; {expected}"
            ))
        })?;
        if rate.is_some_and(|rate| rate != speed) {
            return Err(Failure::input(format_args!(
                "--interface {interface}: the cards have several speeds; {expected}"
            )));
        }
        rate = Some(speed);
    }
    let rate = rate.ok_or_else(|| Failure::input(format_args!("--rate: no rate; {expected}")))?;
    // The interfaces of a link share its rate.
    let total = Rate::new(rate.get() * interfaces.len() as f64).unwrap_or(rate);
    Ok(Link { rate: total, interfaces })
}

/// The name of this host or switch: that of its certificate, or of `--name` without one.
fn agent_name(args: &args::AgentRun, coordinator: &CoordinatorEndpoint) -> Result<String, Failure> {
    let certified = coordinator
        .certified_name("agent")
        .map_err(|problem| Failure::input(format_args!("--certificate: {problem}")))?;
    if let (Some(certified), Some(name)) = (&certified, &args.name)
        && certified != name
    {
        return Err(Failure::input(format_args!(
            "--name: `{name}` is not the name of --certificate; expected `{certified}`, or no --name"
        )));
    }
    certified
        .or_else(|| args.name.clone())
        .ok_or_else(|| Failure::input("--name: no name; expected --name NAME"))
}

/// Refuses an interface that an option names twice, also by two of its names.
fn refuse_repeated_interfaces(option: &str, interfaces: &[Interface]) -> Result<(), Failure> {
    let mut names: BTreeMap<u32, &Interface> = BTreeMap::new();
    for interface in interfaces {
        // A missing interface is another error.
        let Some(index) = interface.index() else { continue };
        if let Some(first) = names.insert(index, interface) {
            return Err(Failure::input(format_args!(
                "{option} {interface}: the interface is repeated (as {first}); expected each interface once"
            )));
        }
    }
    Ok(())
}

/// Removes queues, and programs and marks for applications. With `owns_programs`, also those that an earlier agent has left. Continues
/// after a failure, and returns the first one.
fn restore(state: KernelState, owns_programs: bool, dry_run: bool) -> Result<(), Failure> {
    let programs = match state.traffic {
        Some(traffic) => stop_traffic(traffic),
        None if owns_programs => remove_unused_applications().map(drop).map_err(Failure::from),
        None => Ok(()),
    };
    let existing = state.interfaces.iter().filter(|interface| interface.index().is_some() && !dry_run);
    let queues: Vec<Result<(), Failure>> =
        existing.map(|interface| interface.restore().map(drop).map_err(queue_failure)).collect();
    [programs].into_iter().chain(queues).collect()
}

/// Whether queues and marks stay after SIGTERM, for the next agent. Starts the process that removes them if none follows.
fn keeps_queues(args: &args::AgentRun, state: &mut KernelState) -> bool {
    if state.interfaces.is_empty() {
        return false;
    }
    let time = match args.keep_queues {
        KeepQueues::Forever => return true,
        KeepQueues::For(time) if time == Time::ZERO => return false,
        KeepQueues::For(time) => time,
    };
    // The process takes a held lock for that of the next agent.
    state.queue_locks.clear();
    let started = start_cleaner(&own_program(), time);
    match &started {
        Ok(()) => tracing::info!("queues and marks stay for {time}"),
        Err(reason) => tracing::warn!(
            "queues and marks are removed now: {reason}; help: `--keep-queues forever`, and `weir agent cleanup --if-unused` outside it"
        ),
    }
    started.is_ok()
}

/// The file of this program. After an upgrade has replaced it, /proc/self/exe still opens the running version.
fn own_program() -> PathBuf {
    env::current_exe().ok().filter(|path| path.exists()).unwrap_or("/proc/self/exe".into())
}

/// Prints what an operator can do if no coordinator for agents is at the address. The agent tries to connect meanwhile.
fn explain_missing_coordinator(address: String, has_certificate: bool) {
    std::thread::spawn(move || {
        if let Some(hint) = explain(&address, has_certificate) {
            tracing::warn!("{hint}");
        }
    });
}

/// Runs until the agent at the other end of the standard input has exited, and its last lease has ended.
fn run_watchdog(socket: &Path, interfaces: &[u32]) -> Result<(), Failure> {
    interrupt::record_signals();
    let agent = std::io::stdin().as_fd().try_clone_to_owned().map_err(Failure::runtime)?;
    watchdog::run(agent, socket, interfaces, interrupt::is_requested).map_err(Failure::runtime)
}

fn configure_queues(args: &args::AgentQueues) -> Result<(), Failure> {
    let interface = &args.interface;
    let max_segments = max_segments(args.rate);
    let segments = Device::read(interface).map_err(queue_failure)?.limited_segments(max_segments);
    let shares = Shares::by_weight(&args.weights);
    let desired = DesiredQueues::new(args.rate, segments, &shares, &BTreeMap::new())
        .map_err(Failure::input)?
        .with_max_segments(Some(max_segments));
    let text = if args.dry_run {
        interface.commands(&desired).map_err(queue_failure)?
    } else {
        let _lock = InterfaceLock::acquire(interface).map_err(queue_failure)?;
        let list = interface.reconcile(&desired, ReplaceableRoots::Restorable).map_err(queue_failure)?;
        // The process that an earlier agent has started, to remove that agent's queues, must not remove these.
        interface.mark_as_manual().map_err(queue_failure)?;
        format!("{interface}: {} queues, {} changes\n", args.weights.len(), list.len())
    };
    Ok(output::print(text)?)
}

fn print_traffic(args: &args::AgentTraffic) -> Result<(), Failure> {
    interrupt::record_signals();
    let args::ObservedTraffic { interfaces, applications } = &args.traffic;
    refuse_repeated_interfaces("--interface", interfaces)?;
    let mut traffic = Traffic::start(applications, interfaces)?;
    let result = print_events(&mut traffic);
    stop_traffic(traffic)?;
    result
}

/// Removes all programs from the kernel. Warns about missed events, unfollowed connections and remaining pacing rates.
fn stop_traffic(traffic: Traffic) -> Result<(), Failure> {
    let counts = traffic.loss_counts()?;
    let paced = traffic.stop()?;
    for (count, message) in [
        (
            counts.lost_events,
            "opened or closed connections were missed: their events came faster than the agent reads",
        ),
        (counts.tracking_failures, "attempts to follow a connection failed: too many concurrent connections"),
        (paced as u64, "connections keep their pacing rate: their peers do not answer; help: close them"),
    ] {
        if count > 0 {
            // If the standard error is closed, the warning is lost.
            let _ = writeln!(std::io::stderr(), "weir: {count} {message}");
        }
    }
    Ok(())
}

/// The conflicts of packets without a mark.
#[derive(Default)]
struct Conflicts {
    printed: Vec<String>,
    check: ByteCheck,
    /// The result of the last comparison of bytes, and its time.
    of_bytes: Vec<String>,
    compared_at: Option<Instant>,
}

impl Conflicts {
    /// Prints those that are new.
    fn print_new(&mut self, traffic: &mut Traffic) {
        if self.compared_at.is_none_or(|last| last.elapsed() >= BYTE_CHECK_INTERVAL) {
            self.compared_at = Some(Instant::now());
            // An interface that cannot be read is not compared.
            let readings = traffic.marked_bytes().ok().and_then(|marked| read_sent_bytes(marked).ok());
            let found = self.check.compare(readings.unwrap_or_default());
            self.of_bytes = found.iter().map(ToString::to_string).collect();
            if let Some(Ok(count @ 1..)) = traffic.resume_sweep().map(|sweep| sweep.run()) {
                let text = "connections that another sockops program had replaced";
                let _ = writeln!(std::io::stderr(), "weir: restored the events of {count} {text}");
            }
            let changes = traffic.order_check().run();
            if let Ok(count @ 1..) = changes.and_then(|changes| traffic.apply_order(changes)) {
                let text = "BPF programs again before those of other owners";
                let _ = writeln!(std::io::stderr(), "weir: attached {count} {text}");
            }
        }
        let of_paths = traffic.path_conflicts().iter().map(ToString::to_string);
        let present: Vec<String> = of_paths.chain(self.of_bytes.iter().cloned()).collect();
        for new in present.iter().filter(|conflict| !self.printed.contains(conflict)) {
            // If the standard error is closed, the warning is lost.
            let _ = writeln!(std::io::stderr(), "weir: conflict: {new}");
        }
        self.printed = present;
    }
}

/// Prints a line for each connection that opens or closes, until a signal arrives.
fn print_events(traffic: &mut Traffic) -> Result<(), Failure> {
    let mut conflicts = Conflicts::default();
    while !interrupt::is_requested() {
        traffic.refresh()?;
        conflicts.print_new(traffic);
        traffic.remove_stale_state()?;
        if !traffic.inspection().is_intact() {
            traffic.repair().1?;
        }
        let mut text = String::new();
        while let Some(event) = traffic.next_event() {
            text += &event_line(traffic, &event);
        }
        if !text.is_empty() {
            output::print(text)?;
        }
        let mut waits = [PollFd::new(traffic.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waits, PollTimeout::from(250u8)) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(Failure::runtime(format_args!("events: {error}"))),
        }
    }
    Ok(())
}

fn event_line(traffic: &Traffic, event: &ConnectionEvent) -> String {
    let ConnectionEvent { time, kind, ends, connection } = event;
    let name = traffic.application_name(connection.application).unwrap_or("-");
    match kind {
        EventKind::Opened => format!("{name} opened {ends}\n"),
        EventKind::Closed => {
            let duration = time.saturating_sub(connection.opened_at).as_secs_f64();
            let (sent, received) = (connection.sent, connection.received);
            format!("{name} closed {ends} sent {sent} received {received} after {duration:.3} s\n")
        }
    }
}

fn queue_failure(error: QueueError) -> Failure {
    Failure::runtime(error)
}
