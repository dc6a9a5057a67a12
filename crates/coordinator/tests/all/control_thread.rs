//! Tests of the thread that runs the control plane, in real time.

use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use weir_coordinator::control_plane::{
    ControlPlane, FlowProgress, Link, NetworkLinks, OrderedRate, Refusal, Registration, Report, SenderState,
    Settings, Transfer,
};
use weir_coordinator::control_thread::{Handle, start};
use weir_core::model::ServiceNames;
use weir_core::policy::build;
use weir_core::units::{Bytes, Rate};
use weir_proto::{FlowKey, Order};

const HOSTS: usize = 4;

/// A lease longer than any test, so that a host that reports once stays present even if the next schedule is late.
const LONG_LEASE: f64 = 20.0;

fn start_control_thread(settings: Settings) -> (Handle, std::thread::JoinHandle<()>) {
    let rate = Rate::new(1e6).unwrap();
    let links = [Link { send: rate, recv: rate }; HOSTS];
    let plane = ControlPlane::new(
        NetworkLinks::one_switch(&links),
        build("saath").unwrap(),
        ServiceNames::default(),
        settings,
        3,
    )
    .unwrap();
    start(plane).unwrap()
}

fn start_with_long_lease() -> (Handle, std::thread::JoinHandle<()>) {
    start_control_thread(Settings { lease: LONG_LEASE, ..Settings::default() })
}

fn registration(src: u32, dst: u32) -> Registration {
    Registration {
        generation: 1,
        service: ServiceNames::DEFAULT.to_owned(),
        application: ServiceNames::DEFAULT.to_owned(),
        weight: 1.0,
        deadline: None,
        flows: vec![Transfer { src, dst, bytes: Bytes::new(1e6) }],
    }
}

async fn register(handle: &Handle, id: &'static str, registration: Registration) -> Result<bool, Refusal> {
    handle.call(move |plane, now| plane.register(id, registration, now)).await.unwrap()
}

fn key(coflow: &str) -> FlowKey {
    FlowKey { coflow: coflow.into(), generation: 1, flow: 0 }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime
        .block_on(async { timeout(Duration::from_secs(20), work).await.expect("the test ends within 20 s") })
}

async fn next_order(orders: &mut tokio::sync::mpsc::Receiver<Order>) -> Order {
    orders.recv().await.expect("no other agent connects for this host")
}

/// The next order of a host that confirms its last order, and reports once an interval until an order arrives.
async fn report_until_order(
    handle: &Handle,
    applied_seq: u64,
    orders: &mut tokio::sync::mpsc::Receiver<Order>,
) -> Order {
    loop {
        handle.report(0, Report { applied: (3, applied_seq), ..Report::default() }).await.unwrap();
        if let Ok(order) = timeout(Duration::from_millis(8), next_order(orders)).await {
            return order;
        }
    }
}

#[test]
fn connected_host_receives_changes_and_renewals() {
    let (handle, thread) = start_control_thread(Settings::default());
    block_on(async {
        assert_eq!(register(&handle, "a", registration(0, 1)).await, Ok(true));
        assert_eq!(register(&handle, "a", registration(0, 2)).await, Err(Refusal::IdTaken("a".to_owned())));
        assert!(handle.subscribe_to_orders(HOSTS as u32).await.unwrap().is_none());
        let mut orders = handle.subscribe_to_orders(0).await.unwrap().unwrap();
        let start_time = Instant::now();
        let progress = FlowProgress::new(key("a"), 0, SenderState::Ready);
        handle.report(0, Report { flows: vec![progress], ..Report::default() }).await.unwrap();
        let first = report_until_order(&handle, 0, &mut orders).await;
        assert!(first.is_full && first.epoch == 3);
        assert_eq!(first.flows, [(key("a"), OrderedRate::Unlimited)]);
        let (mut applied_seq, mut renewals) = (first.seq, 0);
        while renewals < 8 {
            let order = report_until_order(&handle, applied_seq, &mut orders).await;
            // If the machine was suspended, the next order is a full order.
            assert!(order.seq > applied_seq && (order.is_full || order.flows.is_empty()), "{order:?}");
            renewals += u32::from(!order.is_full);
            applied_seq = order.seq;
        }
        let elapsed = start_time.elapsed();
        // One renewal every three intervals. After a late renewal, the next one is sent in its turn, so after less than three
        // intervals; two renewals take at least three intervals.
        assert!(elapsed >= Duration::from_millis(4 * 24), "{elapsed:?}");
        let progress = FlowProgress::new(key("a"), 1_000_000, SenderState::Completed);
        handle
            .report(0, Report { applied: (3, applied_seq), flows: vec![progress], ..Report::default() })
            .await
            .unwrap();
        let summary = &handle.call(|plane, _| plane.coflow_summaries(None, 10)).await.unwrap()[0];
        assert_eq!((summary.completed_flow_count, summary.class), (1, None));
        // A renewal may have been sent before.
        let mut last = report_until_order(&handle, applied_seq, &mut orders).await;
        while !last.is_full && last.flows.is_empty() {
            last = report_until_order(&handle, last.seq, &mut orders).await;
        }
        // Full orders do not contain completed flows.
        let removed = if last.is_full { Vec::new() } else { vec![(key("a"), OrderedRate::Removed)] };
        assert_eq!(last.flows, removed);
        let overview = handle.overview().await.unwrap();
        assert_eq!((overview.active_coflows, overview.coflows, overview.connected_agents), (0, 1, 1));
        // At least one schedule for each received order.
        assert!(
            overview.schedule_durations.count >= 10
                && overview.schedule_durations.p99 <= overview.schedule_durations.max
        );
    });
    drop(handle);
    thread.join().unwrap();
}

/// Orders to a slow host do not accumulate: the first order after the host reads again is a full order.
#[test]
fn slow_host_receives_one_full_order() {
    let (handle, _thread) = start_control_thread(Settings::default());
    block_on(async {
        register(&handle, "a", registration(0, 1)).await.unwrap();
        let mut orders = handle.subscribe_to_orders(0).await.unwrap().unwrap();
        handle.report(0, Report::default()).await.unwrap();
        // The host reports, but reads no orders.
        while handle.overview().await.unwrap().dropped_orders < 2 {
            sleep(Duration::from_millis(4)).await;
            handle.report(0, Report { applied: (3, 1), ..Report::default() }).await.unwrap();
        }
        register(&handle, "b", registration(0, 2)).await.unwrap();
        let queued_seqs = (0..4).map(|_| orders.try_recv().unwrap().seq).collect::<Vec<_>>();
        assert_eq!(queued_seqs, [1, 2, 3, 4]);
        let order = report_until_order(&handle, 4, &mut orders).await;
        assert!(order.is_full && order.seq > 5, "{order:?}");
        assert_eq!(order.flows.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(), [key("a"), key("b")]);
    });
}

#[test]
fn second_subscription_replaces_the_first() {
    let (handle, _thread) = start_with_long_lease();
    block_on(async {
        let mut first = handle.subscribe_to_orders(0).await.unwrap().unwrap();
        let mut second = handle.subscribe_to_orders(0).await.unwrap().unwrap();
        handle.report(0, Report::default()).await.unwrap();
        assert!(next_order(&mut second).await.is_full);
        assert_eq!(first.recv().await, None);
    });
}

#[test]
fn allocation_is_listed_in_pages() {
    let (handle, _thread) = start_with_long_lease();
    block_on(async {
        for (id, dst) in [("a", 1), ("b", 2), ("c", 3)] {
            register(&handle, id, registration(0, dst)).await.unwrap();
        }
        let mut orders = handle.subscribe_to_orders(0).await.unwrap().unwrap();
        handle.report(0, Report::default()).await.unwrap();
        next_order(&mut orders).await;
        let ids_of = |list: Vec<weir_coordinator::coflow_status::CoflowSummary>| {
            list.iter().map(|coflow| coflow.id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(
            ids_of(handle.call(|plane, _| plane.coflow_summaries(None, 2)).await.unwrap()),
            ["a", "b"]
        );
        assert_eq!(
            ids_of(handle.call(|plane, _| plane.coflow_summaries(Some("b"), 2)).await.unwrap()),
            ["c"]
        );
        let allocations = handle.call(|plane, _| plane.flow_allocations(Some(("a", 0)), 9)).await.unwrap();
        assert_eq!(allocations.iter().map(|flow| flow.key.clone()).collect::<Vec<_>>(), [key("b"), key("c")]);
        assert!(allocations.iter().all(|flow| flow.transfer.src == 0));
        let status = handle.call(|plane, _| plane.coflow_status("a")).await.unwrap().unwrap();
        assert_eq!(
            (status.flows[0].ordered_rate, status.flows[0].is_completed),
            (Some(OrderedRate::Rate(959_192)), false)
        );
        assert_eq!(handle.call(|plane, _| plane.coflow_status("z")).await.unwrap(), None);
        let hosts = handle.call(|plane, _| plane.host_statuses()).await.unwrap();
        assert_eq!(hosts.iter().map(|host| host.present).collect::<Vec<_>>(), [true, false, false, false]);
    });
}
