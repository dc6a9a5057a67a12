//! Transfers coflows, with a connection for each flow that opens when the coflow arrives.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, copy_buf};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, interval, sleep_until};
use weir_console::failure::Failure;
use weir_core::model::Workload;
use weir_testbed::{Node, Plan, namespace};

use super::SenderKind;
use super::control_plane::ControlPlane;
use super::flow::{Flow, FlowEnd};
use super::library::{self, LibraryReceivers};

/// The maximum time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The interval at which signals are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The maximum number of bytes per read or write.
const CHUNK_BYTES: usize = 64 << 10;

/// The result of a run.
pub struct Run {
    /// The CCT of each coflow, in seconds.
    pub ccts: Vec<f64>,
    /// The number of flows that were not scheduled at their end.
    pub unscheduled_flows: usize,
    /// The duration of the run.
    pub seconds: f64,
}

/// Coflows that wait for their release: at their arrival, or when their parents have completed if that is later.
struct Releases {
    /// The coflows without an incomplete parent, by time and position.
    ready: BTreeSet<(Instant, usize)>,
    /// By coflow.
    incomplete_parents: Vec<usize>,
    incomplete_flows: Vec<usize>,
    arrivals: Vec<Instant>,
}

impl Releases {
    fn new(workload: &Workload, start_time: Instant) -> Releases {
        let coflows = &workload.coflows;
        let arrivals: Vec<Instant> =
            coflows.iter().map(|coflow| start_time + Duration::from_secs_f64(coflow.arrival.get())).collect();
        let is_ready = |&number: &usize| coflows[number].parents.is_empty();
        Releases {
            ready: (0..coflows.len()).filter(is_ready).map(|number| (arrivals[number], number)).collect(),
            incomplete_parents: coflows.iter().map(|coflow| coflow.parents.len()).collect(),
            incomplete_flows: coflows.iter().map(|coflow| coflow.flows.len()).collect(),
            arrivals,
        }
    }

    /// Records that a flow of a coflow has completed.
    fn complete_flow(&mut self, workload: &Workload, number: usize, time: Instant) {
        self.incomplete_flows[number] -= 1;
        if self.incomplete_flows[number] == 0 {
            self.complete_coflow(workload, number, time);
        }
    }

    /// Releases the coflows whose last parent was this one.
    fn complete_coflow(&mut self, workload: &Workload, number: usize, time: Instant) {
        let is_child = |&child: &usize| workload.coflows[child].parents.contains(&number);
        for child in (0..workload.coflows.len()).filter(is_child) {
            self.incomplete_parents[child] -= 1;
            if self.incomplete_parents[child] == 0 {
                self.ready.insert((self.arrivals[child].max(time), child));
            }
        }
    }
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
    let mut run = Run { ccts: vec![0.0_f64; workload.coflows.len()], unscheduled_flows: 0, seconds: 0.0 };
    let mut transfers = JoinSet::new();
    let mut releases = Releases::new(workload, start_time);
    let mut released_at = vec![start_time; workload.coflows.len()];
    loop {
        let next_release = releases.ready.first().map(|&(time, _)| time);
        if next_release.is_none() && transfers.is_empty() {
            run.seconds = start_time.elapsed().as_secs_f64();
            return Ok(run);
        }
        tokio::select! {
            () = sleep_until(next_release.unwrap_or(start_time)), if next_release.is_some() => {
                let (time, number) = releases.ready.pop_first().expect("this branch waits only if there is a release");
                released_at[number] = time;
                let coflow = &workload.coflows[number];
                if coflow.flows.is_empty() {
                    releases.complete_coflow(workload, number, time);
                }
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
                let cct = end.time.saturating_duration_since(released_at[number]).as_secs_f64();
                releases.complete_flow(workload, number, end.time);
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

/// Sends a flow over a socket that is handed over to the agent.
pub async fn transfer(flow: Flow) -> io::Result<FlowEnd> {
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

#[cfg(test)]
mod tests {
    use weir_core::model::{CoflowSpec, FlowSpec, ServiceNames};
    use weir_core::units::{Bytes, Time};

    use super::*;

    #[test]
    fn coflows_are_released_at_their_arrival_and_after_all_of_their_parents() {
        let flow = FlowSpec::new(0, 1, Bytes::new(1.0).unwrap());
        let coflow = |id, arrival, flows, parents: &[usize]| CoflowSpec {
            parents: parents.to_vec(),
            ..CoflowSpec::new(id, Time::new(arrival).unwrap(), vec![flow; flows])
        };
        let coflows = vec![
            coflow(1, 0.0, 2, &[]),
            coflow(2, 1.0, 1, &[]),
            coflow(3, 0.0, 1, &[0, 1]),
            coflow(4, 9.0, 1, &[0]),
        ];
        let workload = Workload { ports: 2, coflows, events: Vec::new(), names: ServiceNames::default() };
        let start = Instant::now();
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let mut releases = Releases::new(&workload, start);
        assert!(releases.ready.iter().eq(&[(start, 0), (at(1.0), 1)]));
        releases.ready.clear();
        releases.complete_flow(&workload, 0, at(2.0));
        assert!(releases.ready.is_empty());
        releases.complete_flow(&workload, 0, at(3.0));
        // It has no other parent, and arrives later.
        assert_eq!(releases.ready.pop_first(), Some((at(9.0), 3)));
        releases.complete_flow(&workload, 1, at(4.0));
        assert_eq!(releases.ready.pop_first(), Some((at(4.0), 2)));
    }
}
