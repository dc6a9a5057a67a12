//! Tests of agents' streams over loopback.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Status, Streaming};
use weir_coordinator::agents::{self, PeerInfo, ProvenPeer, Served};
use weir_coordinator::control_plane::{ControlPlane, Link, NetworkLinks, Settings};
use weir_coordinator::control_thread::{Handle, start};
use weir_core::model::ServiceNames;
use weir_core::policy::build;
use weir_core::units::Rate;
use weir_proto::wire::control_client::ControlClient;
use weir_proto::wire::{self, AgentMessage, CoordinatorMessage, agent_message, coordinator_message};
use weir_proto::{MAX_REPORT_BYTES, Mark, Order, Report, UdpControl, UdpFlow, UdpMeasurement};

/// Lease of orders in most tests. Under the default lease, a host that reports once would be absent if a schedule is late.
const LEASE: Duration = Duration::from_secs(20);

fn start_control_thread() -> Handle {
    start_control_thread_with(Settings { lease: LEASE.as_secs_f64(), ..Settings::default() })
}

fn control_plane(settings: Settings) -> ControlPlane {
    let rate = Rate::new(1e6).unwrap();
    let links = [Link { send: rate, recv: rate }; 4];
    ControlPlane::new(
        NetworkLinks::one_switch(&links),
        build("saath").unwrap(),
        ServiceNames::default(),
        settings,
        9,
    )
    .unwrap()
}

fn start_control_thread_with(settings: Settings) -> Handle {
    start(control_plane(settings)).unwrap().0
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        timeout(Duration::from_secs(30), future).await.expect("the test ends within 30 s")
    })
}

async fn start_server(handle: Handle) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(agents::serve(listener, handle));
    address
}

async fn connect_client(address: SocketAddr) -> ControlClient<Channel> {
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    ControlClient::new(channel)
}

/// An agent's end of a stream.
struct AgentStream {
    sender: mpsc::Sender<AgentMessage>,
    receiver: Streaming<CoordinatorMessage>,
}

impl AgentStream {
    async fn open(address: SocketAddr, first_message: AgentMessage) -> Result<AgentStream, Status> {
        AgentStream::open_with(connect_client(address).await, first_message).await
    }

    async fn open_with(
        mut client: ControlClient<Channel>,
        first_message: AgentMessage,
    ) -> Result<AgentStream, Status> {
        let (sender, messages) = mpsc::channel(1);
        sender.send(first_message).await.unwrap();
        let receiver = client.stream_orders(ReceiverStream::new(messages)).await?.into_inner();
        Ok(AgentStream { sender, receiver })
    }

    async fn send_report(&self, report: &Report) {
        self.sender.send(AgentMessage::report(report)).await.unwrap();
    }

    async fn next_message(&mut self) -> Result<Option<coordinator_message::Body>, Status> {
        Ok(self.receiver.message().await?.and_then(|message| message.body))
    }

    async fn next_order(&mut self) -> Order {
        match self.next_message().await.unwrap().unwrap() {
            coordinator_message::Body::Order(order) => order.try_into().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Reads to the end of the stream, and returns its status.
    async fn final_status(&mut self) -> Code {
        loop {
            match self.next_message().await {
                Ok(Some(_)) => {}
                Ok(None) => return Code::Ok,
                Err(status) => return status.code(),
            }
        }
    }
}

#[test]
fn agent_stream_carries_reports_and_orders() {
    block_on(async {
        let handle = start_control_thread();
        let address = start_server(handle.clone()).await;
        let mut host = AgentStream::open(address, AgentMessage::hello("h2", Vec::new(), &[])).await.unwrap();
        let Some(coordinator_message::Body::Welcome(welcome)) = host.next_message().await.unwrap() else {
            panic!()
        };
        assert_eq!((welcome.interval(), welcome.control_of_udp()), (Duration::from_millis(8), None));
        assert_eq!(welcome.number, 2);
        host.send_report(&Report::default()).await;
        let order = host.next_order().await;
        assert!(order.is_full && order.epoch == 9 && order.lease == LEASE);
        host.send_report(&Report { applied: (9, order.seq), ..Report::default() }).await;
        assert!(host.next_order().await.seq > order.seq);
        let states = handle.call(|plane, _| plane.host_statuses()).await.unwrap();
        assert_eq!(states.iter().map(|state| state.present).collect::<Vec<_>>(), [false, false, true, false]);
        // A second stream for the same host.
        let mut second =
            AgentStream::open(address, AgentMessage::hello("h2", Vec::new(), &[])).await.unwrap();
        assert_eq!(host.final_status().await, Code::Aborted);
        second.next_message().await.unwrap();
        second.send_report(&Report::default()).await;
        assert!(second.next_order().await.is_full);
    });
}

#[test]
fn udp_measurements_reach_the_sending_host() {
    block_on(async {
        let addresses = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let settings = Settings { lease: LEASE.as_secs_f64(), ..Settings::default() };
        let plane = control_plane(settings).with_throttling(addresses.into_iter().zip(0..).collect());
        let handle = start(plane).unwrap().0;
        let address = start_server(handle.clone()).await;
        let mut hosts = Vec::new();
        for host in ["h0", "h1"] {
            let mut host =
                AgentStream::open(address, AgentMessage::hello(host, Vec::new(), &[])).await.unwrap();
            let Some(coordinator_message::Body::Welcome(welcome)) = host.next_message().await.unwrap() else {
                panic!()
            };
            assert_eq!(welcome.control_of_udp(), Some(UdpControl::Throttling));
            host.send_report(&Report::default()).await;
            assert!(host.next_order().await.is_full);
            hosts.push(host);
        }
        let flow = UdpFlow { src: addresses[0], dst: addresses[1], mark: Mark::new(1).unwrap() };
        let measurements = vec![UdpMeasurement { flow, rate: 1000 }];
        hosts[1].send_report(&Report { udp_measurements: measurements.clone(), ..Report::default() }).await;
        // Orders without measurements renew leases.
        let order = loop {
            let order = hosts[0].next_order().await;
            if !order.udp_measurements.is_empty() {
                break order.udp_measurements;
            }
        };
        assert_eq!((order, handle.overview().await.unwrap().forwarded_udp_measurements), (measurements, 1));
        // A malformed report ends the stream of its sender.
        let incomplete = wire::UdpRates { rates: vec![1], ..wire::UdpRates::default() };
        let report = wire::Report { udp_measurements: Some(incomplete), ..wire::Report::default() };
        hosts[1].sender.send(AgentMessage { body: Some(agent_message::Body::Report(report)) }).await.unwrap();
        assert_eq!(hosts[1].final_status().await, Code::InvalidArgument);
    });
}

/// The status of a stream follows the orders that wait in it, also for a host that reads slowly.
#[test]
fn slow_host_receives_the_stream_status() {
    block_on(async {
        let handle = start_control_thread_with(Settings::default());
        let address = start_server(handle.clone()).await;
        // The small flow-control window makes orders wait in the coordinator.
        let endpoint =
            Endpoint::from_shared(format!("http://{address}")).unwrap().initial_stream_window_size(64);
        let client = ControlClient::new(endpoint.connect().await.unwrap());
        let mut host =
            AgentStream::open_with(client, AgentMessage::hello("h2", Vec::new(), &[])).await.unwrap();
        while handle.overview().await.unwrap().dropped_orders == 0 {
            host.send_report(&Report::default()).await;
            sleep(Duration::from_millis(8)).await;
        }
        let _second = AgentStream::open(address, AgentMessage::hello("h2", Vec::new(), &[])).await.unwrap();
        assert_eq!(host.final_status().await, Code::Aborted);
    });
}

#[test]
fn invalid_hellos_and_reports_end_the_stream() {
    block_on(async {
        let address = start_server(start_control_thread()).await;
        let refusal_code = |first_message| async move {
            AgentStream::open(address, first_message).await.err().unwrap().code()
        };
        let unknown =
            AgentStream::open(address, AgentMessage::hello("h4", Vec::new(), &[])).await.err().unwrap();
        let expected = "`h4` is not a host or switch of the configuration; expected h0, h1, h2, h3";
        assert_eq!((unknown.code(), unknown.message()), (Code::NotFound, expected));
        // Earlier versions send a number and no name.
        for name in ["", "h 0", &"h".repeat(101)] {
            assert_eq!(refusal_code(AgentMessage::hello(name, Vec::new(), &[])).await, Code::InvalidArgument);
        }
        assert_eq!(refusal_code(AgentMessage::report(&Report::default())).await, Code::InvalidArgument);
        assert_eq!(refusal_code(AgentMessage { body: None }).await, Code::InvalidArgument);
        // A malformed report, and one above the maximum length.
        let malformed = wire::Report { sent_bytes: vec![1], ..wire::Report::default() };
        let too_long =
            wire::Report { sent_bytes: vec![u64::MAX; MAX_REPORT_BYTES / 8], ..wire::Report::default() };
        for (report, code) in [(malformed, Code::InvalidArgument), (too_long, Code::OutOfRange)] {
            let mut host =
                AgentStream::open(address, AgentMessage::hello("h0", Vec::new(), &[])).await.unwrap();
            host.sender.send(AgentMessage { body: Some(agent_message::Body::Report(report)) }).await.unwrap();
            assert_eq!(host.final_status().await, code);
        }
        // A second hello message.
        let mut host = AgentStream::open(address, AgentMessage::hello("h0", Vec::new(), &[])).await.unwrap();
        host.sender.send(AgentMessage::hello("h0", Vec::new(), &[])).await.unwrap();
        assert_eq!(host.final_status().await, Code::InvalidArgument);
    });
}

#[test]
fn silent_stream_is_closed() {
    block_on(async {
        let address = start_server(start_control_thread()).await;
        let start = Instant::now();
        let mut host = AgentStream::open(address, AgentMessage::hello("h0", Vec::new(), &[])).await.unwrap();
        let (_sender, messages) = mpsc::channel(1);
        let status =
            connect_client(address).await.stream_orders(ReceiverStream::new(messages)).await.err().unwrap();
        assert_eq!(status.code(), Code::DeadlineExceeded);
        assert_eq!(host.final_status().await, Code::DeadlineExceeded);
        assert!(start.elapsed() >= Duration::from_secs(5));
    });
}

/// Four reports of a flood are read per interval, and the others wait at the sender.
#[test]
fn report_flood_is_read_at_four_reports_per_interval() {
    const REPORTS: u64 = 500;
    block_on(async {
        let handle = start_control_thread();
        let address = start_server(handle.clone()).await;
        let mut host = AgentStream::open(address, AgentMessage::hello("h0", Vec::new(), &[])).await.unwrap();
        let (start, up) = (Instant::now(), host.sender.clone());
        tokio::spawn(async move { while host.next_message().await.is_ok_and(|body| body.is_some()) {} });
        // Reports of 1,000 flows fill the buffers on the path, so that the sender has to wait.
        let key = |flow| weir_proto::FlowKey { coflow: "unregistered".into(), generation: 1, flow };
        let to_progress = |flow| weir_proto::FlowProgress::new(key(flow), 0, weir_proto::SenderState::Ready);
        let flows: Vec<_> = (0..1000).map(to_progress).collect();
        let report = AgentMessage::report(&Report { applied: (0, 0), flows, ..Report::default() });
        let mut applied_reports = 0;
        while applied_reports < REPORTS {
            up.send(report.clone()).await.unwrap();
            applied_reports = handle.overview().await.unwrap().rejected_entries.unknown_flow / 1000;
        }
        // Those of two intervals can come at once.
        let max_reports = (start.elapsed().as_secs_f64() / 0.002) as u64 + 8;
        assert!(applied_reports <= max_reports, "{applied_reports}; expected at most {max_reports}");
    });
}

/// An agent with a proven identity can open a stream for its own host only.
#[test]
fn proven_agent_opens_only_its_own_stream() {
    block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let add_identity = |mut request: Request<()>| {
            let peer = PeerInfo {
                address: ([127, 0, 0, 1], 1).into(),
                proven: Some(ProvenPeer::Agent("h1".to_owned())),
            };
            request.extensions_mut().insert(peer);
            Ok(request)
        };
        let service = InterceptedService::new(
            agents::agent_service(Served::fixed(start_control_thread())),
            add_identity,
        );
        let incoming = tonic::transport::server::TcpIncoming::from(listener);
        tokio::spawn(Server::builder().serve_with_incoming(service, incoming));
        assert!(AgentStream::open(address, AgentMessage::hello("h1", Vec::new(), &[])).await.is_ok());
        assert_eq!(
            AgentStream::open(address, AgentMessage::hello("h2", Vec::new(), &[]))
                .await
                .err()
                .unwrap()
                .code(),
            Code::PermissionDenied
        );
    });
}
