//! `weir agent`: what hosts carry out.

use std::collections::BTreeMap;

use tokio::runtime::Builder;
use tonic::transport::Endpoint;
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
    args.plain_text.check(args.coordinator)?;
    let coordinator =
        Endpoint::from_shared(format!("http://{}", args.coordinator)).map_err(Failure::input)?;
    let door = args.socket.clone();
    let settings = Settings { coordinator, host: args.host, rate: args.rate, door };
    interrupt::watch();
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::undone)?;
    runtime.block_on(live::run(settings, asked_to_stop())).map_err(Failure::undone)
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
