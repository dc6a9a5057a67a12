//! Tests of agents' streams over loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Status, Streaming};
use weir_coordinator::agents::{self, Identity};
use weir_coordinator::master::{Handle, start};
use weir_coordinator::plane::{ControlPlane, Link, Settings};
use weir_core::model::Names;
use weir_core::policy::build;
use weir_core::units::Rate;
use weir_proto::wire::control_client::ControlClient;
use weir_proto::wire::{self, Down, Up, down};
use weir_proto::{Arrival, MAX_REPORT, Mark, Order, Report, Way};

/// Lease of orders in most tests. Under the default lease, a host that reports once would count as silent if a schedule
/// is late.
const LEASE: Duration = Duration::from_secs(20);

fn master() -> Handle {
    master_with(Settings { lease: LEASE.as_secs_f64(), ..Settings::default() })
}

fn plane(settings: Settings) -> ControlPlane {
    let rate = Rate::new(1e6).unwrap();
    let links = [Link { send: rate, recv: rate }; 4];
    ControlPlane::new(&links, build("saath").unwrap(), Names::default(), settings, 9).unwrap()
}

fn master_with(settings: Settings) -> Handle {
    start(plane(settings)).unwrap().0
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(Duration::from_secs(30), work).await.expect("it takes no 30 s") })
}

async fn server(handle: Handle) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(agents::serve(listener, handle));
    address
}

async fn client(address: SocketAddr) -> ControlClient<Channel> {
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    ControlClient::new(channel)
}

/// An agent's end of a stream.
struct Host {
    up: mpsc::Sender<Up>,
    down: Streaming<Down>,
}

impl Host {
    async fn attend(address: SocketAddr, first: Up) -> Result<Host, Status> {
        Host::attend_by(client(address).await, first).await
    }

    async fn attend_by(mut client: ControlClient<Channel>, first: Up) -> Result<Host, Status> {
        let (up, said) = mpsc::channel(1);
        up.send(first).await.unwrap();
        let down = client.attend(ReceiverStream::new(said)).await?.into_inner();
        Ok(Host { up, down })
    }

    async fn say(&self, report: &Report) {
        self.up.send(Up::report(report)).await.unwrap();
    }

    async fn next(&mut self) -> Result<Option<down::What>, Status> {
        Ok(self.down.message().await?.and_then(|down| down.what))
    }

    async fn order(&mut self) -> Order {
        match self.next().await.unwrap().unwrap() {
            down::What::Order(order) => order.try_into().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Reads to the end of the stream, and returns its status.
    async fn ended(&mut self) -> Code {
        loop {
            match self.next().await {
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
        let handle = master();
        let address = server(handle.clone()).await;
        let mut host = Host::attend(address, Up::hello(2)).await.unwrap();
        let Some(down::What::Welcome(welcome)) = host.next().await.unwrap() else { panic!() };
        assert_eq!((welcome.interval(), welcome.arrivals), (Duration::from_millis(8), false));
        host.say(&Report::default()).await;
        let order = host.order().await;
        assert!(order.whole && order.epoch == 9 && order.lease == LEASE);
        host.say(&Report { obeys: (9, order.seq), ..Report::default() }).await;
        assert!(host.order().await.seq > order.seq);
        let states = handle.host_states().await.unwrap();
        assert_eq!(states.iter().map(|state| state.present).collect::<Vec<_>>(), [false, false, true, false]);
        // A second stream for the same host.
        let mut second = Host::attend(address, Up::hello(2)).await.unwrap();
        assert_eq!(host.ended().await, Code::Aborted);
        second.next().await.unwrap();
        second.say(&Report::default()).await;
        assert!(second.order().await.whole);
    });
}

#[test]
fn udp_measurements_reach_the_sending_host() {
    block_on(async {
        let addresses = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
        let settings = Settings { lease: LEASE.as_secs_f64(), ..Settings::default() };
        let plane = plane(settings).with_throttling(addresses.into_iter().zip(0..).collect());
        let handle = start(plane).unwrap().0;
        let address = server(handle.clone()).await;
        let mut hosts = Vec::new();
        for host in 0..2 {
            let mut host = Host::attend(address, Up::hello(host)).await.unwrap();
            let Some(down::What::Welcome(welcome)) = host.next().await.unwrap() else { panic!() };
            assert!(welcome.arrivals);
            host.say(&Report::default()).await;
            assert!(host.order().await.whole);
            hosts.push(host);
        }
        let way = Way { from: addresses[0], to: addresses[1], mark: Mark::new(1).unwrap() };
        let arrivals = vec![Arrival { way, rate: 1000 }];
        hosts[1].say(&Report { arrivals: arrivals.clone(), ..Report::default() }).await;
        // Orders without measurements renew leases.
        let told = loop {
            let order = hosts[0].order().await;
            if !order.arrivals.is_empty() {
                break order.arrivals;
            }
        };
        assert_eq!((told, handle.overview().await.unwrap().passed_on), (arrivals, 1));
        // A malformed report ends the stream of its sender.
        let ends = wire::Arrivals { rates: vec![1], ..wire::Arrivals::default() };
        let report = wire::Report { arrivals: Some(ends), ..wire::Report::default() };
        hosts[1].up.send(Up { what: Some(wire::up::What::Report(report)) }).await.unwrap();
        assert_eq!(hosts[1].ended().await, Code::InvalidArgument);
    });
}

/// The status of a stream follows the orders that wait in it, also for a host that reads slowly.
#[test]
fn slow_host_receives_the_stream_status() {
    block_on(async {
        let handle = master_with(Settings::default());
        let address = server(handle.clone()).await;
        // The small flow-control window makes orders wait in the coordinator.
        let narrow =
            Endpoint::from_shared(format!("http://{address}")).unwrap().initial_stream_window_size(64);
        let by = ControlClient::new(narrow.connect().await.unwrap());
        let mut host = Host::attend_by(by, Up::hello(2)).await.unwrap();
        while handle.overview().await.unwrap().dropped == 0 {
            host.say(&Report::default()).await;
            sleep(Duration::from_millis(8)).await;
        }
        let _second = Host::attend(address, Up::hello(2)).await.unwrap();
        assert_eq!(host.ended().await, Code::Aborted);
    });
}

#[test]
fn invalid_hellos_and_reports_end_the_stream() {
    block_on(async {
        let address = server(master()).await;
        let refused = |first| async move { Host::attend(address, first).await.err().unwrap().code() };
        assert_eq!(refused(Up::hello(4)).await, Code::NotFound);
        assert_eq!(refused(Up::report(&Report::default())).await, Code::InvalidArgument);
        assert_eq!(refused(Up { what: None }).await, Code::InvalidArgument);
        // A malformed report, and one above the maximum length.
        let bad = wire::Report { sent: vec![1], ..wire::Report::default() };
        let long = wire::Report { sent: vec![u64::MAX; MAX_REPORT / 8], ..wire::Report::default() };
        for (report, code) in [(bad, Code::InvalidArgument), (long, Code::OutOfRange)] {
            let mut host = Host::attend(address, Up::hello(0)).await.unwrap();
            host.up.send(Up { what: Some(wire::up::What::Report(report)) }).await.unwrap();
            assert_eq!(host.ended().await, code);
        }
        // A second hello message.
        let mut host = Host::attend(address, Up::hello(0)).await.unwrap();
        host.up.send(Up::hello(0)).await.unwrap();
        assert_eq!(host.ended().await, Code::InvalidArgument);
    });
}

#[test]
fn silent_stream_is_closed() {
    block_on(async {
        let address = server(master()).await;
        let began = Instant::now();
        let mut host = Host::attend(address, Up::hello(0)).await.unwrap();
        let (_silent, said) = mpsc::channel(1);
        let mute = client(address).await.attend(ReceiverStream::new(said)).await.err().unwrap();
        assert_eq!(mute.code(), Code::DeadlineExceeded);
        assert_eq!(host.ended().await, Code::DeadlineExceeded);
        assert!(began.elapsed() >= Duration::from_secs(5));
    });
}

/// Four reports of a flood are read per interval, and the others wait at the sender.
#[test]
fn report_flood_is_read_at_four_reports_per_interval() {
    block_on(async {
        let handle = master();
        let address = server(handle.clone()).await;
        let mut host = Host::attend(address, Up::hello(0)).await.unwrap();
        let (began, up, mut sent) = (Instant::now(), host.up.clone(), 0u32);
        tokio::spawn(async move { while host.next().await.is_ok_and(|what| what.is_some()) {} });
        // Reports of 1,000 flows fill the buffers on the path, so that the sender has to wait.
        let key = |flow| weir_proto::FlowKey { coflow: "nobody's".into(), flow };
        let seen = |flow| weir_proto::FlowProgress { key: key(flow), sent: 0, closed: false };
        let flows: Vec<_> = (0..1000).map(seen).collect();
        let report = Up::report(&Report { obeys: (0, 0), flows, ..Report::default() });
        while began.elapsed() < Duration::from_secs(1) {
            if timeout(Duration::from_millis(100), up.send(report.clone())).await.is_ok() {
                sent += 1;
            }
        }
        let taken = handle.overview().await.unwrap().doubts.unknown / 1000;
        let most = (began.elapsed().as_secs_f64() / 0.002) as u64 + 8;
        assert!((1..=most).contains(&taken), "{taken} of {sent} were taken in, expected at most {most}");
    });
}

/// An agent with a proven identity can open a stream for its own host only.
#[test]
fn proven_agent_opens_only_its_own_stream() {
    block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let prove = |mut request: Request<()>| {
            request.extensions_mut().insert(Identity(1));
            Ok(request)
        };
        let service = InterceptedService::new(agents::service(master()), prove);
        let incoming = tonic::transport::server::TcpIncoming::from(listener);
        tokio::spawn(Server::builder().serve_with_incoming(service, incoming));
        assert!(Host::attend(address, Up::hello(1)).await.is_ok());
        assert_eq!(Host::attend(address, Up::hello(2)).await.err().unwrap().code(), Code::PermissionDenied);
    });
}
