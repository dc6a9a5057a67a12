//! Tests of the thread that owns the control plane, in real time.

use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use weir_coordinator::master::{Declined, Handle, start};
use weir_coordinator::plane::{
    ControlPlane, FlowProgress, Link, Pace, Refusal, Registration, Report, Settings, Transfer,
};
use weir_core::model::Names;
use weir_core::policy::build;
use weir_core::units::{Bytes, Rate};
use weir_proto::{FlowKey, Order};

const HOSTS: usize = 4;

/// A lease longer than any test, so that a host that reports once stays present even if the next schedule is late.
const LONG: f64 = 20.0;

fn master(settings: Settings) -> (Handle, std::thread::JoinHandle<()>) {
    let rate = Rate::new(1e6).unwrap();
    let links = [Link { send: rate, recv: rate }; HOSTS];
    let plane = ControlPlane::new(&links, build("saath").unwrap(), Names::default(), settings, 3).unwrap();
    start(plane).unwrap()
}

fn patient() -> (Handle, std::thread::JoinHandle<()>) {
    master(Settings { lease: LONG, ..Settings::default() })
}

fn registration(src: u32, dst: u32) -> Registration {
    Registration {
        service: Names::DEFAULT.to_owned(),
        application: Names::DEFAULT.to_owned(),
        weight: 1.0,
        deadline: None,
        flows: vec![Transfer { src, dst, bytes: Bytes::new(1e6) }],
    }
}

fn key(coflow: &str) -> FlowKey {
    FlowKey { coflow: coflow.into(), flow: 0 }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { timeout(Duration::from_secs(20), work).await.expect("it takes no 20 s") })
}

async fn next(orders: &mut tokio::sync::mpsc::Receiver<Order>) -> Order {
    orders.recv().await.expect("nobody else attends")
}

/// The next order of a host that confirms its last order, and reports once an interval until an order arrives.
async fn told(handle: &Handle, obeys: u64, orders: &mut tokio::sync::mpsc::Receiver<Order>) -> Order {
    loop {
        handle.report(0, Report { obeys: (3, obeys), ..Report::default() }).await.unwrap();
        if let Ok(order) = timeout(Duration::from_millis(8), next(orders)).await {
            return order;
        }
    }
}

#[test]
fn connected_host_receives_changes_and_renewals() {
    let (handle, thread) = master(Settings::default());
    block_on(async {
        assert_eq!(handle.register("a".to_owned(), registration(0, 1)).await, Ok(true));
        assert_eq!(
            handle.register("a".to_owned(), registration(0, 2)).await,
            Err(Declined::Refused(Refusal::Taken("a".to_owned())))
        );
        assert!(handle.attend(HOSTS as u32).await.unwrap().is_none());
        let mut orders = handle.attend(0).await.unwrap().unwrap();
        let began = Instant::now();
        let has = FlowProgress { key: key("a"), sent: 0, closed: false };
        handle.report(0, Report { flows: vec![has], ..Report::default() }).await.unwrap();
        let first = told(&handle, 0, &mut orders).await;
        assert!(first.whole && first.epoch == 3);
        assert_eq!(first.flows, [(key("a"), Pace::Rate(990_000))]);
        let (mut obeys, mut renewals) = (first.seq, 0);
        while renewals < 8 {
            let order = told(&handle, obeys, &mut orders).await;
            // If the machine was suspended, the next order is complete.
            assert!(order.seq > obeys && (order.whole || order.flows.is_empty()), "{order:?}");
            renewals += u32::from(!order.whole);
            obeys = order.seq;
        }
        let took = began.elapsed();
        // One renewal every three intervals. A late renewal is followed by the next one in its turn, which comes
        // earlier; two together take at least three intervals.
        assert!(took >= Duration::from_millis(4 * 24), "{took:?}");
        let seen = FlowProgress { key: key("a"), sent: 1_000_000, closed: true };
        handle.report(0, Report { obeys: (3, obeys), flows: vec![seen], ..Report::default() }).await.unwrap();
        let over = &handle.list(None, 10).await.unwrap()[0];
        assert_eq!((over.done, over.class), (1, None));
        // A renewal may have been sent before.
        let mut last = told(&handle, obeys, &mut orders).await;
        while !last.whole && last.flows.is_empty() {
            last = told(&handle, last.seq, &mut orders).await;
        }
        // Complete orders leave out completed flows.
        let gone = if last.whole { Vec::new() } else { vec![(key("a"), Pace::Gone)] };
        assert_eq!(last.flows, gone);
        let overview = handle.overview().await.unwrap();
        assert_eq!((overview.under_way, overview.coflows, overview.attending), (0, 1, 1));
        // At least one schedule for each order that was received.
        assert!(overview.schedules.count >= 10 && overview.schedules.p99 <= overview.schedules.max);
    });
    drop(handle);
    thread.join().unwrap();
}

/// Orders to a slow host do not accumulate: the first order after the host reads again is complete.
#[test]
fn slow_host_receives_one_complete_order() {
    let (handle, _thread) = master(Settings::default());
    block_on(async {
        handle.register("a".to_owned(), registration(0, 1)).await.unwrap();
        let mut orders = handle.attend(0).await.unwrap().unwrap();
        handle.report(0, Report::default()).await.unwrap();
        // The host reports, but takes no orders.
        while handle.overview().await.unwrap().dropped < 2 {
            sleep(Duration::from_millis(4)).await;
            handle.report(0, Report { obeys: (3, 1), ..Report::default() }).await.unwrap();
        }
        handle.register("b".to_owned(), registration(0, 2)).await.unwrap();
        let waited = (0..4).map(|_| orders.try_recv().unwrap().seq).collect::<Vec<_>>();
        assert_eq!(waited, [1, 2, 3, 4]);
        let order = told(&handle, 4, &mut orders).await;
        assert!(order.whole && order.seq > 5, "{order:?}");
        assert_eq!(order.flows.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(), [key("a"), key("b")]);
    });
}

#[test]
fn second_subscription_replaces_the_first() {
    let (handle, _thread) = patient();
    block_on(async {
        let mut first = handle.attend(0).await.unwrap().unwrap();
        let mut second = handle.attend(0).await.unwrap().unwrap();
        handle.report(0, Report::default()).await.unwrap();
        assert!(next(&mut second).await.whole);
        assert_eq!(first.recv().await, None);
    });
}

#[test]
fn allocation_is_listed_in_pages() {
    let (handle, _thread) = patient();
    block_on(async {
        for (id, dst) in [("a", 1), ("b", 2), ("c", 3)] {
            handle.register(id.to_owned(), registration(0, dst)).await.unwrap();
        }
        let mut orders = handle.attend(0).await.unwrap().unwrap();
        handle.report(0, Report::default()).await.unwrap();
        next(&mut orders).await;
        let ids = |list: Vec<weir_coordinator::plane::Summary>| {
            list.iter().map(|coflow| coflow.id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(ids(handle.list(None, 2).await.unwrap()), ["a", "b"]);
        assert_eq!(ids(handle.list(Some("b".to_owned()), 2).await.unwrap()), ["c"]);
        let shares = handle.shares(Some(key("a")), 9).await.unwrap();
        assert_eq!(shares.iter().map(|share| share.key.clone()).collect::<Vec<_>>(), [key("b"), key("c")]);
        assert!(shares.iter().all(|share| share.transfer.src == 0));
        let shown = handle.show("a".to_owned()).await.unwrap().unwrap();
        assert_eq!((shown.flows[0].pace, shown.flows[0].done), (Some(Pace::Rate(990_000)), false));
        assert_eq!(handle.show("z".to_owned()).await.unwrap(), None);
        let hosts = handle.host_states().await.unwrap();
        assert_eq!(hosts.iter().map(|host| host.present).collect::<Vec<_>>(), [true, false, false, false]);
    });
}
