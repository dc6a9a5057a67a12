//! Senders and receivers over paths that fail.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use weir_client::{FlowReceiver, FlowSender, Route};
use weir_flow::{FirstLine, Offset, Reason, encode_chunk};

use crate::campaign::seeds;
use crate::proxy::{Fault, Proxy};

const TIMEOUT: Duration = Duration::from_secs(20);

fn receiver() -> FlowReceiver {
    FlowReceiver::bind("127.0.0.1:0").unwrap()
}

fn random_data(length: usize, seed: u64) -> Vec<u8> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..length).map(|_| rng.random()).collect()
}

/// Sends data in a thread, in pieces of random length.
fn send(flow: u32, route: Route, data: Vec<u8>) -> thread::JoinHandle<std::io::Result<u64>> {
    thread::spawn(move || {
        let mut rng = ChaCha8Rng::seed_from_u64(data.len() as u64);
        let mut sender = FlowSender::new("c", flow, route)?;
        let mut rest = &data[..];
        while !rest.is_empty() {
            let length = rng.random_range(1..=rest.len().min(100_000));
            sender.write_all(&rest[..length])?;
            if rng.random_range(0..4) == 0 {
                sender.flush()?;
            }
            rest = &rest[length..];
        }
        Ok(sender.finish()?.bytes)
    })
}

fn receive(receiver: &FlowReceiver, flow: u32) -> Vec<u8> {
    let mut data = Vec::new();
    receiver.receive("c", flow, TIMEOUT).unwrap().read_to_end(&mut data).unwrap();
    data
}

fn random_fault(rng: &mut ChaCha8Rng) -> Fault {
    let position = rng.random_range(0..60_000);
    match rng.random_range(0..4) {
        0 => Fault::Corrupt(position),
        1 => Fault::Reset(position, Reason::Lost),
        _ => Fault::Close(position),
    }
}

#[test]
fn data_arrives_once_and_in_order_over_failing_paths() {
    let receiver = receiver();
    let senders: Vec<_> = seeds(30, 300)
        .map(|seed| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            // All faults are before the last chunk, whose wrong length would be noticed late.
            let faults = (0..rng.random_range(1..6)).map(|_| random_fault(&mut rng)).collect();
            // Half of the senders know the proxy as a relay, the others as the receiver.
            let route = if seed % 2 == 0 {
                Route { relay: Some(Proxy::start(None, faults).address), receiver: receiver.address() }
            } else {
                Route { relay: None, receiver: Proxy::start(Some(receiver.address()), faults).address }
            };
            let length = rng.random_range(400_000..1_000_000);
            (seed, send(seed as u32, route, random_data(length, seed)))
        })
        .collect();
    thread::scope(|scope| {
        for (seed, sender) in senders {
            let receiver = &receiver;
            scope.spawn(move || {
                let data = receive(receiver, seed as u32);
                assert_eq!(sender.join().unwrap().unwrap(), data.len() as u64);
                assert!(data == random_data(data.len(), seed), "seed {seed}");
            });
        }
    });
}

#[test]
fn flows_are_received_in_any_order_and_also_without_data() {
    let receiver = receiver();
    let route = Route::direct(receiver.address()).unwrap();
    let senders = [0, 1, u32::MAX].map(|flow| send(flow, route, random_data(flow as usize % 2, 1)));
    for flow in [u32::MAX, 1, 0] {
        assert_eq!(receive(&receiver, flow).len(), flow as usize % 2);
    }
    assert!(senders.into_iter().all(|sender| sender.join().unwrap().is_ok()));
    let error = receiver.receive("c", 2, Duration::from_millis(20)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(receiver.receive("a b", 2, TIMEOUT).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(FlowSender::new("a b", 2, route).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn sender_reacts_to_resets_of_a_relay_by_reason() {
    for reason in Reason::ALL {
        let receiver = receiver();
        let proxy = Proxy::start(None, vec![Fault::Reset(0, reason); 9]);
        let route = Route { relay: Some(proxy.address), receiver: receiver.address() };
        let sender = send(0, route, random_data(300_000, 1));
        if matches!(reason, Reason::Gap | Reason::Replaced | Reason::Invalid) {
            let error = sender.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            assert!(error.to_string().contains(reason.as_str()), "{error}");
        } else {
            assert!(receive(&receiver, 0) == random_data(300_000, 1));
            assert_eq!(sender.join().unwrap().unwrap(), 300_000);
        }
        let retries = if matches!(reason, Reason::Lost | Reason::UnknownCoflow) { 3 } else { 0 };
        assert_eq!(proxy.connections(), 1 + retries, "{reason}");
    }
}

#[test]
fn sender_goes_directly_if_the_relay_is_absent() {
    let receiver = receiver();
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let sender = send(0, Route { relay: Some(unused), receiver: receiver.address() }, vec![7; 10]);
    assert_eq!(receive(&receiver, 0), [7; 10]);
    sender.join().unwrap().unwrap();
}

#[test]
fn receiver_of_a_killed_sender_gets_its_data_and_then_an_error() {
    let receiver = receiver();
    let mut sender = FlowSender::new("c", 0, Route::direct(receiver.address()).unwrap()).unwrap();
    sender.write_all(b"hello").unwrap();
    sender.flush().unwrap();
    let mut flow = receiver.receive("c", 0, TIMEOUT).unwrap();
    flow.set_reconnect_timeout(Duration::from_millis(50));
    let mut data = [0; 5];
    flow.read_exact(&mut data).unwrap();
    drop(sender);
    assert_eq!((&data, flow.read(&mut [0]).unwrap_err().kind()), (b"hello", ErrorKind::TimedOut));
}

#[test]
fn sender_fails_if_the_program_drops_the_flow() {
    let receiver = receiver();
    let sender = send(0, Route::direct(receiver.address()).unwrap(), vec![7; 10]);
    drop(receiver.receive("c", 0, TIMEOUT).unwrap());
    let error = sender.join().unwrap().unwrap_err();
    assert!(error.to_string().contains("replaced"), "{error}");
}

#[test]
fn flow_continues_after_its_receiver_is_dropped() {
    let receiver = receiver();
    let proxy = Proxy::start(None, vec![Fault::Close(100_000), Fault::Corrupt(100_000)]);
    let route = Route { relay: Some(proxy.address), receiver: receiver.address() };
    let sender = send(0, route, random_data(900_000, 1));
    let mut flow = receiver.receive("c", 0, TIMEOUT).unwrap();
    drop(receiver);
    let mut data = Vec::new();
    flow.read_to_end(&mut data).unwrap();
    assert!(data == random_data(900_000, 1));
    sender.join().unwrap().unwrap();
    drop(flow);
    // The port closes.
    let start = std::time::Instant::now();
    while std::net::TcpStream::connect(route.receiver).is_ok() {
        assert!(start.elapsed() < TIMEOUT);
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn slow_reader_blocks_the_writer() {
    const LENGTH: usize = 64 << 20;
    let receiver = receiver();
    let written = Arc::new(AtomicUsize::new(0));
    let (count, address): (_, SocketAddr) = (Arc::clone(&written), receiver.address());
    let sender = thread::spawn(move || {
        let mut sender = FlowSender::new("c", 0, Route::direct(address).unwrap()).unwrap();
        let piece = vec![7; 1 << 20];
        while count.load(Ordering::Relaxed) < LENGTH {
            sender.write_all(&piece).unwrap();
            count.fetch_add(piece.len(), Ordering::Relaxed);
        }
        sender.finish().unwrap();
    });
    let mut flow = receiver.receive("c", 0, TIMEOUT).unwrap();
    // No program reads, so no chunk is acknowledged.
    while written.load(Ordering::Relaxed) < 7 << 20 {
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_millis(100));
    assert!(written.load(Ordering::Relaxed) < 8 << 20);
    let copied = std::io::copy(&mut flow, &mut std::io::sink()).unwrap();
    sender.join().unwrap();
    assert_eq!(copied, LENGTH as u64);
}

#[test]
fn thousands_of_flows_are_received_in_any_order() {
    const FLOWS: u32 = 3000;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    // The connections of this test have two ends in this process. The receiver raises a lower limit.
    let files = limit.maximum.map_or(u64::MAX, |maximum| maximum).min(u64::from(3 * FLOWS));
    let raised = rustix::process::Rlimit { current: Some(files), maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
    let receiver = receiver();
    let connections: Vec<TcpStream> = (0..FLOWS)
        .map(|flow| {
            let mut stream = TcpStream::connect(receiver.address()).unwrap();
            let line = FirstLine {
                coflow: "c".parse().unwrap(),
                flow,
                generation: 0,
                offset: Offset::default(),
                receiver: receiver.address(),
            };
            let chunks = [encode_chunk(&flow.to_be_bytes()), encode_chunk(&[])].concat();
            stream.write_all(&[line.encode().as_bytes(), &chunks].concat()).unwrap();
            stream
        })
        .collect();
    for flow in (0..FLOWS).rev() {
        assert_eq!(receive(&receiver, flow), flow.to_be_bytes());
    }
    drop(connections);
}

#[test]
fn errors_of_a_receiver_name_their_cause() {
    let receiver = Arc::new(receiver());
    let route = Route::direct(receiver.address()).unwrap();
    let sender = send(0, route, random_data(100_000, 1));
    let taken = receiver.receive("c", 0, TIMEOUT).unwrap();
    assert_eq!(receiver.receive("c", 0, TIMEOUT).unwrap_err().kind(), ErrorKind::AlreadyExists);
    drop(taken);
    assert_eq!(receiver.receive("c", 0, TIMEOUT).unwrap_err().kind(), ErrorKind::AlreadyExists);
    let error = sender.join().unwrap().unwrap_err();
    assert!(error.to_string().contains("program closed it"), "{error}");
    // Another receiver at the address does not have the data that the first one has acknowledged.
    let proxy = Proxy::start(Some(receiver.address()), vec![Fault::Reset(0, Reason::Gap)]);
    let route = Route { relay: None, receiver: proxy.address };
    let error = send(1, route, vec![7; 10]).join().unwrap().unwrap_err();
    assert!(error.to_string().contains("restarted"), "{error}");
}

#[test]
fn closed_receiver_wakes_waiting_calls_and_keeps_open_flows() {
    let receiver = Arc::new(receiver());
    let route = Route::direct(receiver.address()).unwrap();
    let mut sender = FlowSender::new("c", 0, route).unwrap();
    sender.write_all(b"hello").unwrap();
    sender.flush().unwrap();
    let mut flow = receiver.receive("c", 0, TIMEOUT).unwrap();
    let waiting = {
        let receiver = Arc::clone(&receiver);
        thread::spawn(move || receiver.receive("c", 1, TIMEOUT).unwrap_err())
    };
    thread::sleep(Duration::from_millis(20));
    receiver.close();
    let error = waiting.join().unwrap();
    assert_eq!(error.kind(), ErrorKind::ConnectionAborted);
    assert!(error.to_string().contains("closed"), "{error}");
    let mut data = [0; 5];
    flow.read_exact(&mut data).unwrap();
    let start = std::time::Instant::now();
    while TcpStream::connect(route.receiver).is_ok() {
        assert!(start.elapsed() < TIMEOUT);
        thread::sleep(Duration::from_millis(1));
    }
    drop(sender);
    assert_eq!((&data, flow.read(&mut [0]).unwrap_err().kind()), (b"hello", ErrorKind::ConnectionAborted));
}
