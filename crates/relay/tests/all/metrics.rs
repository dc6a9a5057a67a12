//! Tests of the metrics that a relay serves.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::time::{Duration, Instant};
use weir_metrics::serve;
use weir_proto::relay::{RegionPair, RelayMatch, RelayPath, RelayRule, RuleScope};
use weir_relay::control::OrderStatus;
use weir_relay::metrics::MetricsSource;

use crate::test_relay::{TIMEOUT, TestRelay, refusal, start_relays, transfer};

/// Serves the metrics of a relay on a free port until the program ends.
fn serve_metrics(relay: &TestRelay, orders: Option<watch::Receiver<OrderStatus>>) -> SocketAddr {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let source = MetricsSource { relay: relay.handle.clone(), orders, certificate: None };
    std::thread::spawn(move || runtime.block_on(serve(listener, None, source)));
    address
}

fn request(address: SocketAddr, line: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(format!("{line}\r\nHost: relay\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The value of a metric.
fn value(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no `{name}` in\n{text}")).parse().unwrap()
}

#[test]
fn metrics_count_bytes_refusals_and_detours() {
    let paths =
        vec![RelayPath { next_region: 2, fraction: 0.75 }, RelayPath { next_region: 3, fraction: 0.25 }];
    let scope = RuleScope::Pair(RegionPair { source: 1, destination: 2 });
    let rule = RelayRule { flows: RelayMatch { coflow: 7, scope }, priority: 1, weight: 1.0, paths };
    let relays = start_relays(3, vec![rule]);
    let address = serve_metrics(&relays[0], None);
    transfer(&relays, &[4_000_000, 100]);
    assert_eq!(refusal(&relays[0], "weir-flow/2 other 0 0 0 127.2.0.1:9\n"), "reset unknown-coflow\n");
    assert_eq!(refusal(&relays[0], "weir-flow/2 shuffle 9 0 0 127.2.0.1:9\n"), "ack 0\nreset unreachable\n");
    let text = request(address, "GET /metrics HTTP/1.1");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    let peer = |name: &str, peer: u16| value(&text, &format!("{name}{{peer=\"relay-{peer}\"}}"));
    let sent = [2, 3].map(|id| peer("weir_relay_peer_sent_bytes_total", id));
    assert_eq!(sent[0] + sent[1], 4_000_100.0);
    assert_eq!(peer("weir_relay_peer_detoured_bytes_total", 3), sent[1]);
    assert_eq!(value(&text, "weir_relay_coflow_detoured_bytes_total{coflow=\"shuffle\"}"), sent[1]);
    assert!(peer("weir_relay_peer_sent_messages_total", 2) > 0.0);
    assert!(peer("weir_relay_peer_received_messages_total", 2) > 0.0);
    assert_eq!(peer("weir_relay_peer_received_bytes_total", 2), 0.0);
    assert_eq!((peer("weir_relay_peer_connected", 2), peer("weir_relay_peer_failures_total", 2)), (1.0, 0.0));
    assert_eq!(peer("weir_relay_peer_connections", 2), 1.0);
    assert_eq!(value(&text, "weir_relay_flows_refused_total{reason=\"unknown-coflow\"}"), 1.0);
    assert_eq!(value(&text, "weir_relay_flows_reset_total{reason=\"unreachable\"}"), 1.0);
    assert_eq!(value(&text, "weir_relay_memory_limit_bytes"), f64::from(64 << 20));
    assert!(text.contains("weir_relay_flows{role=\"source\"} 0"), "{text}");
    assert!(!text.contains("weir_relay_order"), "{text}");
    let other = serve_metrics(&relays[1], None);
    let text = request(other, "GET /metrics HTTP/1.1");
    assert_eq!(value(&text, "weir_relay_resets_sent_total{reason=\"unreachable\"}"), 1.0);
}

#[test]
fn metrics_show_orders_and_refuse_other_requests() {
    let relays = start_relays(2, vec![]);
    let status = OrderStatus {
        is_connected: true,
        applied: (1_795_531_417_785, 12),
        applied_at: Some(Instant::now()),
        lease_end: Some(Instant::now() + Duration::from_secs(60)),
        refused: 3,
    };
    let (_sender, orders) = watch::channel(status);
    let address = serve_metrics(&relays[0], Some(orders));
    let text = request(address, "GET /metrics HTTP/1.1");
    assert!(text.contains("\nweir_relay_order_epoch 1795531417785"), "{text}");
    assert_eq!(value(&text, "weir_relay_order_sequence"), 12.0);
    assert_eq!(value(&text, "weir_relay_orders_refused_total"), 3.0);
    assert_eq!(value(&text, "weir_relay_coordinator_connected"), 1.0);
    assert!((50.0..=60.0).contains(&value(&text, "weir_relay_lease_seconds")));
    assert!((0.0..10.0).contains(&value(&text, "weir_relay_order_age_seconds")));
    assert!(request(address, "GET / HTTP/1.1").ends_with("unknown path; expected /metrics\n"));
    let answer = request(address, "POST /metrics HTTP/1.1");
    assert!(answer.starts_with("HTTP/1.1 405") && answer.contains("allow: GET"), "{answer}");
}

#[test]
fn idle_connections_do_not_block_metrics_for_longer_than_their_timeout() {
    let relays = start_relays(2, vec![]);
    let address = serve_metrics(&relays[0], None);
    let idle: Vec<TcpStream> = (0..32).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert!(request(address, "GET /metrics HTTP/1.1").starts_with("HTTP/1.1 200 OK\r\n"));
    drop(idle);
}
