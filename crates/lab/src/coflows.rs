//! Sends coflows through an [`overlay`] at their arrival times, and measures their completion times.
//!
//! Programs use the client library: a framework registers a coflow, worker 1 of a region sends flows over the region's relay, and
//! worker 1 of another region receives them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use weir_client::{Coflow, Coordinator, Flow, FlowReceiver, FlowSender, Registration, Route};
use weir_console::interrupt;
use weir_testbed::namespace;

use crate::LabError;
use crate::overlay::{self, Overlay};
use crate::regions::{RegionNode, Regions};

/// The port of receivers.
const RECEIVER_PORT: u16 = 7_000;

/// The bytes that a program writes or reads at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// How long a coflow may take.
const COFLOW_TIMEOUT: Duration = Duration::from_secs(1_800);

/// The maximum time until the coordinator notices the completion of the last coflow.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(5);

/// The stack of a thread that sends or receives a flow.
const STACK_BYTES: usize = 512 << 10;

/// A coflow to send.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedCoflow {
    /// The time of its arrival, from [`Regions::bandwidth_start`].
    pub arrival: Duration,
    /// Its flows: the positions of the sending and of the receiving region, and the bytes.
    pub flows: Vec<PlannedFlow>,
}

/// A flow to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedFlow {
    /// The position of the sending region.
    pub from: usize,
    /// The position of the receiving region.
    pub to: usize,
    /// The size in bytes.
    pub bytes: u64,
    /// The size that the framework registers.
    pub registered_bytes: u64,
    /// The flow group in the receiving region, at most 100; none: all flows to the region are one group.
    pub group: Option<u8>,
}

/// The measurements of a coflow, in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredCoflow {
    /// From the planned arrival until all receivers have read all data.
    pub seconds: f64,
    /// The same for each flow.
    pub flow_seconds: Vec<f64>,
    /// From the planned arrival until the coordinator has answered the registration.
    pub registration_seconds: f64,
    /// What the coordinator measured; none if flows did not use the relays.
    pub coordinator_seconds: Option<f64>,
    /// What the coordinator's first decision estimated.
    pub predicted_seconds: Option<f64>,
}

/// Sends all coflows, and waits until they have completed. Calls `on_progress` with the number of completed coflows.
///
/// # Errors
/// If a coflow cannot be registered, a flow fails, or a signal asks to stop.
pub fn replay(
    regions: &Regions,
    overlay: &Overlay,
    coflows: &[PlannedCoflow],
    mut on_progress: impl FnMut(usize) + Send,
) -> Result<Vec<MeasuredCoflow>, LabError> {
    let gateways: Vec<RegionNode> = regions.gateways().cloned().collect();
    let controller = &gateways[0].region;
    let run = || Generator::new(regions, gateways.clone())?.run(coflows, &mut on_progress);
    let result = regions.network().run_inside(controller, run)?;
    result.map_err(|error| match error {
        LabError::Interrupted => error,
        error => LabError::Other(format!("{error}{}", overlay.last_messages())),
    })
}

/// The id of a coflow.
fn coflow_id(index: usize) -> String {
    format!("coflow-{index}")
}

/// The end of a flow: the index of its coflow, its number, and when its receiver has read all data.
type FlowEnd = Result<(usize, u32, Instant), String>;

/// The programs of all regions. Runs at the gateway of the coordinator.
struct Generator {
    start: Instant,
    coordinator: Coordinator,
    ends: Vec<RegionEnd>,
}

/// The programs of a region.
struct RegionEnd {
    name: String,
    /// The namespace of its worker.
    namespace: String,
    relay: SocketAddrV4,
    receiver: Arc<FlowReceiver>,
    receiver_address: SocketAddr,
}

impl RegionEnd {
    /// An address of the region that only names a flow group.
    fn group_address(&self, group: u8) -> Ipv4Addr {
        let [a, b, c, _] = self.relay.ip().octets();
        Ipv4Addr::new(a, b, c, 100 + group)
    }
}

/// The seconds of a coflow that the coordinator measured, and those that it estimated.
type CoordinatorTimes = (Option<f64>, Option<f64>);

impl Generator {
    fn new(regions: &Regions, gateways: Vec<RegionNode>) -> Result<Generator, LabError> {
        let end = |gateway: &RegionNode| {
            let is_worker = |node: &&RegionNode| node.region == gateway.region && node.worker == Some(1);
            let worker = regions.nodes().iter().find(is_worker);
            let worker = worker.ok_or_else(|| LabError::Other("regions have no workers".to_owned()))?;
            let address = SocketAddrV4::new(worker.address, RECEIVER_PORT);
            let bind = || FlowReceiver::bind(address);
            let receiver = namespace::run_inside(&worker.namespace, bind)
                .flatten()
                .map_err(LabError::system(address.to_string()))?;
            Ok(RegionEnd {
                name: gateway.region.clone(),
                namespace: worker.namespace.clone(),
                relay: overlay::program_address(gateway),
                receiver_address: receiver.address(),
                receiver: Arc::new(receiver),
            })
        };
        let ends = gateways.iter().map(end).collect::<Result<_, LabError>>()?;
        Ok(Generator { start: regions.bandwidth_start(), coordinator: overlay::coordinator()?, ends })
    }

    fn run(
        &self,
        coflows: &[PlannedCoflow],
        on_progress: &mut impl FnMut(usize),
    ) -> Result<Vec<MeasuredCoflow>, LabError> {
        let (flow_ends, receiver) = channel();
        let mut open_flows: Vec<usize> = coflows.iter().map(|coflow| coflow.flows.len()).collect();
        let mut ends: Vec<Vec<Option<Instant>>> =
            coflows.iter().map(|coflow| vec![None; coflow.flows.len()]).collect();
        let mut registrations = vec![Duration::ZERO; coflows.len()];
        let mut order: Vec<usize> = (0..coflows.len()).collect();
        order.sort_by_key(|&index| coflows[index].arrival);
        let mut arrivals = order.into_iter().peekable();
        let mut completed = 0;
        while completed < coflows.len() {
            if interrupt::is_requested() {
                return Err(LabError::Interrupted);
            }
            if let Some(index) = arrivals.next_if(|&index| self.start.elapsed() >= coflows[index].arrival) {
                self.register(index, &coflows[index])?;
                registrations[index] = self.start.elapsed() - coflows[index].arrival;
                self.start_flows(index, &coflows[index], &flow_ends)?;
                continue;
            }
            let until_arrival =
                arrivals.peek().map(|&index| coflows[index].arrival.saturating_sub(self.start.elapsed()));
            let wait = until_arrival.unwrap_or(Duration::MAX).min(Duration::from_millis(100));
            match receiver.recv_timeout(wait) {
                Ok(Ok((index, flow, end))) => {
                    ends[index][flow as usize] = Some(end);
                    open_flows[index] -= 1;
                    if open_flows[index] == 0 {
                        completed += 1;
                        on_progress(completed);
                    }
                }
                Ok(Err(reason)) => return Err(LabError::Other(reason)),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
        let found = self.coordinator_times(coflows.len())?;
        let measured = coflows.iter().enumerate().map(|(index, coflow)| {
            let seconds = |end: &Option<Instant>| {
                end.map_or(0.0, |end| (end - self.start).as_secs_f64() - coflow.arrival.as_secs_f64())
            };
            let flow_seconds: Vec<f64> = ends[index].iter().map(seconds).collect();
            MeasuredCoflow {
                seconds: flow_seconds.iter().copied().fold(0.0, f64::max),
                flow_seconds,
                registration_seconds: registrations[index].as_secs_f64(),
                coordinator_seconds: found[index].0,
                predicted_seconds: found[index].1,
            }
        });
        Ok(measured.collect())
    }

    fn register(&self, index: usize, coflow: &PlannedCoflow) -> Result<(), LabError> {
        let flow = |flow: &PlannedFlow| {
            let receiving = &self.ends[flow.to];
            let to =
                flow.group.map_or(receiving.name.clone(), |group| receiving.group_address(group).to_string());
            let bytes = Some(flow.registered_bytes);
            Flow { from: self.ends[flow.from].name.clone(), to, bytes }
        };
        let flows = coflow.flows.iter().map(flow).collect();
        let registration = Registration { flows, ..Registration::default() };
        let registered = Coflow::register(&self.coordinator, &coflow_id(index), &registration);
        registered.map(drop).map_err(|error| LabError::Other(error.to_string()))
    }

    /// Starts a sender and a receiver for each flow.
    fn start_flows(
        &self,
        index: usize,
        coflow: &PlannedCoflow,
        ends: &Sender<FlowEnd>,
    ) -> Result<(), LabError> {
        for (number, &PlannedFlow { from, to, bytes, .. }) in (0..).zip(&coflow.flows) {
            let (sending, receiving) = (&self.ends[from], &self.ends[to]);
            let route = Route { relay: Some(sending.relay.into()), receiver: receiving.receiver_address };
            let namespace = sending.namespace.clone();
            let send = move || {
                namespace::enter(&namespace)?;
                send_flow(&coflow_id(index), number, route, bytes)
            };
            let receiver = Arc::clone(&receiving.receiver);
            let receive = move || receive_flow(&receiver, &coflow_id(index), number, bytes);
            let fail = |action: &str| {
                let action = format!("{action} flow {number} of coflow {index}");
                move |error: std::io::Error| format!("{action}: {error}")
            };
            let (send_failed, receive_failed) = (fail("sending"), fail("receiving"));
            let (for_sender, for_receiver) = (ends.clone(), ends.clone());
            spawn(move || {
                // The receiver of a flow reports its end.
                if let Err(error) = send() {
                    let _ = for_sender.send(Err(send_failed(error)));
                }
            })?;
            spawn(move || {
                let end = receive().map(|()| (index, number, Instant::now())).map_err(receive_failed);
                let _ = for_receiver.send(end);
            })?;
        }
        Ok(())
    }

    /// What the coordinator measured and estimated, by coflow.
    fn coordinator_times(&self, count: usize) -> Result<Vec<CoordinatorTimes>, LabError> {
        let started = Instant::now();
        loop {
            let list = self.coordinator.coflows().map_err(|error| LabError::Other(error.to_string()))?;
            let mut times = vec![(None, None); count];
            for entry in list.as_array().into_iter().flatten() {
                let index = entry["id"].as_str().and_then(|id| id.strip_prefix("coflow-")?.parse().ok());
                if let Some(times) = index.and_then(|index: usize| times.get_mut(index)) {
                    *times = (entry["measured_seconds"].as_f64(), entry["predicted_seconds"].as_f64());
                }
            }
            if started.elapsed() > NOTICE_TIMEOUT || times.iter().all(|(measured, _)| measured.is_some()) {
                return Ok(times);
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Starts a thread. It is not waited for: after a failure, connections that no program serves would keep it waiting.
fn spawn(work: impl FnOnce() + Send + 'static) -> Result<(), LabError> {
    let thread = thread::Builder::new().stack_size(STACK_BYTES).spawn(work);
    thread.map(drop).map_err(LabError::system("a thread"))
}

fn send_flow(coflow: &str, flow: u32, route: Route, bytes: u64) -> std::io::Result<()> {
    let mut sender = FlowSender::new(coflow, flow, route)?;
    let data = vec![0x5a; BUFFER_BYTES];
    let mut remaining = bytes;
    while remaining > 0 {
        let length = data.len().min(usize::try_from(remaining).unwrap_or(usize::MAX));
        sender.write_all(&data[..length])?;
        remaining -= length as u64;
    }
    sender.finish().map(drop)
}

fn receive_flow(receiver: &FlowReceiver, coflow: &str, flow: u32, bytes: u64) -> std::io::Result<()> {
    let mut incoming = receiver.receive(coflow, flow, COFLOW_TIMEOUT)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut received = 0;
    loop {
        match incoming.read(&mut buffer)? {
            0 if received == bytes => return Ok(()),
            0 => return Err(std::io::Error::other(format!("{received} of {bytes} bytes arrived"))),
            length => received += length as u64,
        }
    }
}
