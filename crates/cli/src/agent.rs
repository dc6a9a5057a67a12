//! `weir agent`: what hosts carry out.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::runtime::Builder;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use weir_agent::live::{self, Link, Settings};
use weir_agent::queues::{self, Desired, Interface, QueueError};
use weir_agent::traffic::{self, Event, Happened, Traffic, TrafficError};

use crate::args::{self, Port};
use crate::serve::asked_to_stop;
use weir_console::failure::Failure;
use weir_console::{interrupt, output};

/// Runs `weir agent`.
///
/// # Errors
/// Whatever ends it early.
pub fn agent(args: &args::Agent) -> Result<(), Failure> {
    match args {
        args::Agent::Run(args) => run(args),
        args::Agent::Queues(args) => queues(args),
        args::Agent::Traffic(args) => follow(args),
        args::Agent::Cleanup => cleanup(),
    }
}

fn run(args: &args::AgentRun) -> Result<(), Failure> {
    let coordinator = endpoint(&args.coordinator, &args.credentials, args.insecure)?;
    // What a switch has are ports, and no programs.
    let door = args.rate.filter(|_| !args.dry_run).map(|_| args.socket.clone());
    let mut links: Vec<Link> = args.ports.iter().map(Port::link).collect();
    links.extend(args.rate.map(|rate| Link { rate, interfaces: args.found.interfaces.clone() }));
    let interfaces: Vec<Interface> = links.iter().flat_map(|link| link.interfaces.clone()).collect();
    // Now, and not only when the first order for it comes.
    interfaces.iter().try_for_each(|interface| interface.segments().map(drop)).map_err(failure)?;
    let settings = Settings { coordinator, host: args.host, links, door, dry_run: args.dry_run };
    interrupt::watch();
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::undone)?;
    let traffic = match &args.found.applications[..] {
        [] => None,
        applications => Some(Traffic::start(applications, &interfaces).map_err(unfollowed)?),
    };
    let (traffic, ended) = runtime.block_on(live::run(settings, traffic, asked_to_stop()));
    // A change of queues that is under way ends before they are put back.
    drop(runtime);
    if let Some(traffic) = traffic {
        let_go(traffic)?;
    }
    for interface in interfaces.iter().filter(|_| !args.dry_run) {
        interface.restore().map_err(failure)?;
    }
    ended.map_err(Failure::undone)
}

/// The coordinator, which is on this host or proves who it is, unless somebody said that it need not.
fn endpoint(coordinator: &str, credentials: &args::Credentials, insecure: bool) -> Result<Endpoint, Failure> {
    let Some(files) = credentials.files(coordinator, insecure)? else {
        return Endpoint::from_shared(format!("http://{coordinator}")).map_err(Failure::input);
    };
    let read = |path: &Path| {
        fs::read(path)
            .map_err(|error| Failure::input(format_args!("{}: cannot be read: {error}", path.display())))
    };
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read(files.authority)?))
        .identity(Identity::from_pem(read(files.certificate)?, read(files.key)?));
    let endpoint = Endpoint::from_shared(format!("https://{coordinator}")).map_err(Failure::input)?;
    endpoint.tls_config(tls).map_err(|error| {
        let why = error.source().map_or_else(|| error.to_string(), |source| source.to_string());
        Failure::input(format_args!(
            "{}, with {} and {}: expected a certificate, its key and the authority's certificate in PEM: {why}",
            files.certificate.display(),
            files.key.display(),
            files.authority.display(),
        ))
    })
}

fn queues(args: &args::AgentQueues) -> Result<(), Failure> {
    let interface = &args.interface;
    let segments = interface.segments().map_err(failure)?;
    let desired =
        Desired::new(args.rate, segments, &args.weights, &BTreeMap::new()).map_err(Failure::input)?;
    let text = if args.dry_run {
        interface.commands(&desired).map_err(failure)?
    } else {
        let list = interface.reconcile(&desired).map_err(failure)?;
        format!("{interface}: {} queues, {} changes\n", args.weights.len(), list.len())
    };
    Ok(output::print(text.as_bytes())?)
}

fn follow(args: &args::AgentTraffic) -> Result<(), Failure> {
    interrupt::watch();
    let args::Found { interfaces, applications } = &args.found;
    let mut traffic = Traffic::start(applications, interfaces).map_err(unfollowed)?;
    let ended = tell(&mut traffic);
    let_go(traffic)?;
    ended
}

/// Takes all out of the kernel, and says what was not as it should be.
fn let_go(traffic: Traffic) -> Result<(), Failure> {
    let counts = traffic.counts().map_err(unfollowed)?;
    // Also when nobody listens any more.
    let paced = traffic.stop().map_err(unfollowed)?;
    for (count, what) in [
        (counts.lost, "events were lost"),
        (counts.refused, "times a connection could not be followed, since there were too many"),
        (paced as u64, "connections keep their pace, since their other ends did not answer"),
    ] {
        if count > 0 {
            // If nobody listens there either, nothing is left to be told.
            let _ = writeln!(std::io::stderr(), "weir: {count} {what}");
        }
    }
    Ok(())
}

/// Prints what happens until somebody asks to stop.
fn tell(traffic: &mut Traffic) -> Result<(), Failure> {
    while !interrupt::asked() {
        traffic.refresh().map_err(unfollowed)?;
        let mut text = String::new();
        while let Some(event) = traffic.event() {
            text.push_str(&line(traffic, &event));
        }
        if !text.is_empty() {
            output::print(text.as_bytes())?;
        }
        let mut waits = [PollFd::new(traffic.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waits, PollTimeout::from(250u8)) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(Failure::undone(format_args!("events: {error}"))),
        }
    }
    Ok(())
}

fn line(traffic: &Traffic, event: &Event) -> String {
    let Event { at, what, ends, connection } = event;
    let name = traffic.name(connection.application).unwrap_or("-");
    match what {
        Happened::Opened => format!("{name} opened {ends}\n"),
        Happened::Closed => {
            let took = at.saturating_sub(connection.opened).as_secs_f64();
            let (sent, received) = (connection.sent, connection.received);
            format!("{name} closed {ends} sent {sent} received {received} after {took:.3} s\n")
        }
    }
}

fn cleanup() -> Result<(), Failure> {
    let done = queues::cleanup().map_err(failure)?;
    let mut text: String = done.iter().map(|interface| format!("{interface}: as it was\n")).collect();
    if traffic::cleanup().map_err(unfollowed)? {
        text.push_str("traffic: nobody's any more\n");
    }
    let spaces = ["/proc/self/ns/mnt", "/proc/1/ns/mnt"].map(|space| fs::read_link(space).ok());
    if !traffic::is_seen() && spaces[0] != spaces[1] {
        eprintln!(
            "weir agent: there is no BPF file system at /sys/fs/bpf, so programs of an agent before are not found: under `ip netns exec` use \
             `nsenter --net=/run/netns/NAME` in its place"
        );
    }
    if text.is_empty() {
        text.push_str("nothing of Weir's was there\n");
    }
    Ok(output::print(text.as_bytes())?)
}

fn failure(error: QueueError) -> Failure {
    Failure::undone(error)
}

fn unfollowed(error: TrafficError) -> Failure {
    match error {
        TrafficError::Overlap(..) | TrafficError::Interface { .. } => Failure::input(error),
        _ => Failure::undone(error),
    }
}
