//! `weir agent`: what hosts carry out.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tokio::runtime::Builder;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use weir_agent::live::{self, Settings};
use weir_agent::queues::{self, Change, Desired, QueueError};

use crate::args;
use crate::failure::Failure;
use crate::interrupt;
use crate::output;
use crate::serve::asked_to_stop;

/// Runs `weir agent`.
///
/// # Errors
/// Whatever ends it early.
pub fn agent(args: &args::Agent) -> Result<(), Failure> {
    match args {
        args::Agent::Run(args) => run(args),
        args::Agent::Queues(args) => queues(args),
        args::Agent::Cleanup => cleanup(),
    }
}

fn run(args: &args::AgentRun) -> Result<(), Failure> {
    let coordinator = endpoint(&args.coordinator, &args.credentials)?;
    let door = args.socket.clone();
    let settings = Settings { coordinator, host: args.host, rate: args.rate, door };
    interrupt::watch();
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::undone)?;
    runtime.block_on(live::run(settings, asked_to_stop())).map_err(Failure::undone)
}

/// The coordinator, which is on this host or proves who it is.
fn endpoint(coordinator: &str, credentials: &args::Credentials) -> Result<Endpoint, Failure> {
    let args::Credentials { certificate: Some(certificate), key: Some(key), authority: Some(authority) } =
        credentials
    else {
        if !args::is_own(coordinator) {
            return Err(Failure::input(format_args!(
                "--coordinator {coordinator}: expected one on this host, or --certificate, --key and --authority"
            )));
        }
        return Endpoint::from_shared(format!("http://{coordinator}")).map_err(Failure::input);
    };
    let read = |path: &Path| {
        fs::read(path)
            .map_err(|error| Failure::input(format_args!("{}: cannot be read: {error}", path.display())))
    };
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read(authority)?))
        .identity(Identity::from_pem(read(certificate)?, read(key)?));
    let endpoint = Endpoint::from_shared(format!("https://{coordinator}")).map_err(Failure::input)?;
    endpoint.tls_config(tls).map_err(Failure::input)
}

fn queues(args: &args::AgentQueues) -> Result<(), Failure> {
    let interface = &args.interface;
    let segments = interface.segments().map_err(failure)?;
    let desired =
        Desired::new(args.rate, segments, &args.weights, &BTreeMap::new()).map_err(Failure::input)?;
    let name = interface.to_string();
    let text = if args.dry_run {
        let list = interface.plan(&desired).map_err(failure)?;
        let line = |change: &Change| format!("tc {}\n", change.line(&name));
        list.iter().map(line).collect()
    } else {
        let list = interface.reconcile(&desired).map_err(failure)?;
        format!("{name}: {} queues, {} changes\n", args.weights.len(), list.len())
    };
    Ok(output::print(text.as_bytes())?)
}

fn cleanup() -> Result<(), Failure> {
    let done = queues::cleanup().map_err(failure)?;
    let mut text: String = done.iter().map(|interface| format!("{interface}: as it was\n")).collect();
    if done.is_empty() {
        text.push_str("no queues of Weir's were there\n");
    }
    Ok(output::print(text.as_bytes())?)
}

fn failure(error: QueueError) -> Failure {
    Failure::undone(error)
}
