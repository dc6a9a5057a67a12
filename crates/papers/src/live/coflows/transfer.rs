//! Transfers coflows, with a connection for each flow that opens when the coflow arrives.

use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, copy_buf};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, interval, sleep_until};
use weir_client::Agent;
use weir_console::failure::Failure;
use weir_core::model::Workload;
use weir_testbed::{Node, Plan, namespace};

use super::SenderKind;
use super::control_plane::ControlPlane;
use super::library::{self, LibraryReceivers};

/// The maximum time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The interval at which signals are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The maximum number of bytes per read or write.
const CHUNK_BYTES: usize = 64 << 10;

/// The CCT of each coflow in seconds, and the number of flows that were not scheduled at their end.
pub struct Run {
    pub ccts: Vec<f64>,
    pub unscheduled_flows: usize,
}

/// The end of a flow: when its last byte was read, and whether the flow was scheduled then.
pub struct FlowEnd {
    pub time: Instant,
    pub is_scheduled: bool,
}

/// Transfers all coflows. Fails if the transfers take longer than `limit`.
pub async fn run(
    plan: &Plan,
    workload: &Workload,
    control_plane: Option<&ControlPlane>,
    senders: SenderKind,
    limit: Duration,
    bar: &ProgressBar,
) -> Result<Run, Failure> {
    let receivers = match senders {
        SenderKind::Library => Some(LibraryReceivers::listen(plan).map_err(Failure::runtime)?),
        SenderKind::Sockets => None,
    };
    let (start_time, mut poll) = (Instant::now(), interval(POLL_INTERVAL));
    let mut run = Run { ccts: vec![0.0_f64; workload.coflows.len()], unscheduled_flows: 0 };
    let mut transfers = JoinSet::new();
    let mut arrivals = workload.coflows.iter().enumerate().peekable();
    loop {
        let next_arrival =
            arrivals.peek().map(|(_, coflow)| start_time + Duration::from_secs_f64(coflow.arrival.get()));
        if next_arrival.is_none() && transfers.is_empty() {
            return Ok(run);
        }
        tokio::select! {
            () = sleep_until(next_arrival.unwrap_or(start_time)), if next_arrival.is_some() => {
                let (number, coflow) = arrivals.next().expect("this branch waits only if there is a next arrival");
                if let Some(control_plane) = control_plane {
                    control_plane.register(coflow).await?;
                }
                for (flow, spec) in (0u32..).zip(&coflow.flows) {
                    let ends = [spec.src, spec.dst].map(|host| plan.nodes[host as usize].clone());
                    let agent = control_plane.map(|plane| Arc::clone(&plane.agents[spec.src as usize]));
                    let flow = Flow { ends, agent, coflow: coflow.id.to_string(), flow, bytes: spec.bytes.get() as u64 };
                    let receiver = receivers.as_ref().map(|receivers| receivers.at(spec.dst));
                    transfers.spawn(async move {
                        let end = match receiver {
                            Some(receiver) => library::transfer(flow, receiver).await,
                            None => transfer(flow).await,
                        };
                        (number, end)
                    });
                }
            }
            Some(joined) = transfers.join_next() => {
                let (number, end) = joined.expect("transfers do not panic");
                let coflow = &workload.coflows[number];
                let end = end.map_err(|error| Failure::runtime(format_args!("coflow {}: {error}", coflow.id)))?;
                let cct = (end.time - start_time).as_secs_f64() - coflow.arrival.get();
                run.ccts[number] = run.ccts[number].max(cct);
                run.unscheduled_flows += usize::from(!end.is_scheduled);
                bar.inc(1);
            }
            _ = poll.tick() => {
                Failure::check_interrupt()?;
                if start_time.elapsed() > limit {
                    return Err(Failure::runtime(format_args!("coflows did not complete within {} s", limit.as_secs())));
                }
            }
        }
    }
}

/// A flow between two hosts.
pub struct Flow {
    /// The sender and the receiver.
    pub ends: [Node; 2],
    /// Paces the flow, if any.
    pub agent: Option<Arc<Agent>>,
    pub coflow: String,
    pub flow: u32,
    pub bytes: u64,
}

/// Sends a flow over a socket that is handed over to the agent.
async fn transfer(flow: Flow) -> io::Result<FlowEnd> {
    let Flow { ends, agent, coflow, flow, bytes } = flow;
    let connect = move || {
        let [sender, receiver] = connect(&ends)?;
        if let Some(agent) = agent {
            agent.hand_over(&coflow, flow, &sender).map_err(io::Error::other)?;
        }
        Ok::<_, io::Error>([sender, receiver])
    };
    let [sender, receiver] = spawn_blocking(connect).await.expect("`connect` does not panic")?;
    let ((), time) = tokio::try_join!(send(sender, bytes), receive(receiver, bytes))?;
    Ok(FlowEnd { time, is_scheduled: true })
}

/// A connection between two hosts; the sender's end comes first.
fn connect([from, to]: &[Node; 2]) -> io::Result<[TcpStream; 2]> {
    let listener = namespace::run_inside(&to.namespace, || TcpListener::bind((to.address, 0)))??;
    let address = listener.local_addr()?;
    let sender =
        namespace::run_inside(&from.namespace, || TcpStream::connect_timeout(&address, CONNECT_TIMEOUT))??;
    let (receiver, _) = listener.accept()?;
    sender.set_nonblocking(true)?;
    receiver.set_nonblocking(true)?;
    Ok([sender, receiver])
}

async fn send(stream: TcpStream, bytes: u64) -> io::Result<()> {
    let mut stream = tokio::net::TcpStream::from_std(stream)?;
    let mut zeros = BufReader::with_capacity(CHUNK_BYTES, tokio::io::repeat(0)).take(bytes);
    copy_buf(&mut zeros, &mut stream).await?;
    // The shutdown ends the pacing by the agent.
    stream.shutdown().await
}

async fn receive(stream: TcpStream, bytes: u64) -> io::Result<Instant> {
    let mut stream = BufReader::with_capacity(CHUNK_BYTES, tokio::net::TcpStream::from_std(stream)?);
    match copy_buf(&mut stream, &mut tokio::io::sink()).await? {
        received if received == bytes => Ok(Instant::now()),
        _ => Err(ErrorKind::UnexpectedEof.into()),
    }
}
