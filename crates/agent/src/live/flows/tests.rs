//! Tests what the senders of gated flows may do, with the sockets of loopback connections.

use std::io::Write;
use std::net::{TcpListener, TcpStream};

use weir_proto::{Order, OrderedRate};

use super::*;

const LEASE: Duration = Duration::from_secs(10);

fn key(flow: u32) -> FlowKey {
    FlowKey { coflow: "c".into(), generation: 1, flow }
}

/// A program with a gated socket of a flow, and the orders of its agent.
struct Bed {
    lease: LeaseState,
    flows: Flows,
    seq: u64,
    stream: TcpStream,
    _peer: TcpStream,
}

impl Bed {
    /// The agent has an order with these rates when the program hands its socket over as flow `flow`, at time 0.
    fn start(flow: u32, rates: &[(u32, OrderedRate)]) -> Bed {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let peer = listener.accept().unwrap().0;
        let lease = LeaseState::new(vec![Rate::new(1e7).unwrap()]);
        let mut bed = Bed { lease, flows: Flows::new(None), seq: 0, stream, _peer: peer };
        bed.order(0, rates);
        bed.flows.gates.add_program(1);
        let socket = bed.stream.try_clone().unwrap().into();
        let handed_over = HandedOver { program_id: 1, socket, is_gated: true, rates: None };
        bed.flows.open(key(flow), handed_over, &bed.lease, Duration::ZERO, false).unwrap();
        bed
    }

    fn order(&mut self, ms: u64, rates: &[(u32, OrderedRate)]) {
        self.seq += 1;
        let flows = rates.iter().map(|&(flow, rate)| (key(flow), rate)).collect();
        let (epoch, seq, is_full) = (1, self.seq, self.seq == 1);
        let order = Order { epoch, seq, lease: LEASE, is_full, flows, ..Order::default() };
        self.lease.accept(order, Duration::from_millis(ms)).unwrap();
    }

    /// The messages to the program after a tick.
    fn tick(&mut self, ms: u64) -> Vec<String> {
        self.flows.apply_limits(&self.lease, Duration::from_millis(ms));
        let lease_end = self.lease.lease_end().unwrap();
        std::iter::from_fn(|| self.flows.gates.next_message(1, lease_end, LEASE)).collect()
    }

    fn has_pacing_rate(&self) -> bool {
        socket::read_info(&self.stream).unwrap().max_pacing_rate != u64::MAX
    }
}

#[test]
fn gated_sender_waits_instead_of_sending_at_a_share_of_the_reserve() {
    let mut bed = Bed::start(0, &[(0, OrderedRate::Reserve(1000))]);
    assert_eq!(bed.tick(0), ["pause c 0 10000"]);
    for ms in [49, 51, 5000] {
        assert!(bed.tick(ms).is_empty() && !bed.has_pacing_rate(), "after {ms} ms");
    }
    // A low rate in the schedule is no share of the reserve.
    bed.order(5000, &[(0, OrderedRate::Rate(2000))]);
    assert_eq!(bed.tick(5000), ["go c 0 2000"]);
    assert!(bed.has_pacing_rate());
    bed.order(5001, &[(0, OrderedRate::Unlimited)]);
    assert_eq!(bed.tick(5001), ["go c 0 free"]);
    assert!(!bed.has_pacing_rate());
    bed.order(5002, &[(0, OrderedRate::Reserve(1000))]);
    assert_eq!(bed.tick(5002), ["pause c 0 10000"]);
    assert!(!bed.has_pacing_rate());
}

#[test]
fn sender_of_an_unscheduled_flow_waits_for_the_first_answer_or_order_and_gets_the_reason() {
    let others = [(0, OrderedRate::Rate(1000))];
    for (answer, waits) in [
        (None, true),
        (Some(UnscheduledReason::UnknownCoflow), true),
        (Some(UnscheduledReason::UnknownFlow), false),
        (Some(UnscheduledReason::ForeignFlow), false),
        (Some(UnscheduledReason::Completed), false),
    ] {
        let mut bed = Bed::start(1, &others);
        assert_eq!(bed.tick(1), ["pause c 1 10000"]);
        bed.flows.set_unscheduled(answer.map(|reason| (key(1), reason)).into_iter().collect());
        let expected = answer.map_or(Unscheduled::Unanswered, Unscheduled::Refused);
        let go = format!("go c 1 free {expected}");
        let messages = [bed.tick(2), bed.tick(50)].concat();
        assert_eq!((bed.tick(51).is_empty(), messages), (true, vec![go]), "{answer:?}");
        let mut bed = Bed::start(1, &others);
        bed.flows.set_unscheduled(answer.map(|reason| (key(1), reason)).into_iter().collect());
        assert_eq!(bed.tick(2)[0].starts_with("pause"), waits, "{answer:?}");
    }
}

#[test]
fn flow_that_orders_no_longer_name_has_ended() {
    let mut bed = Bed::start(0, &[(0, OrderedRate::Paused)]);
    assert_eq!(bed.tick(0), ["pause c 0 10000"]);
    bed.order(1, &[(0, OrderedRate::Removed)]);
    assert_eq!(bed.tick(1), [format!("go c 0 free {}", Unscheduled::Ended)]);
    assert!(!bed.has_pacing_rate());
}

/// The allocator limits the connection, and the program has set another rate before, or since.
#[test]
fn own_rate_of_a_socket_is_not_that_of_a_limit() {
    let (flows, listener) = (Flows::new(None), TcpListener::bind("127.0.0.1:0").unwrap());
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let applied = socket::set_pacing_rate(&stream, Some(2_000_000), u64::MAX).unwrap();
    let socket = stream.into();
    let own_rate = |rates| match flows.transport(&socket, rates, false) {
        Ok(Transport::Tcp { own_rate, .. }) => own_rate,
        _ => panic!("the socket is one of TCP"),
    };
    assert_eq!(own_rate(Some(SocketRates { applied, own: 5_000_000 })), 5_000_000);
    assert_eq!(own_rate(Some(SocketRates { applied: applied + 1, own: 5_000_000 })), u64::MAX);
    assert_eq!(own_rate(None), u64::MAX);
}

#[test]
fn packets_of_a_flow_count_once_also_after_its_end() {
    let mut bed = Bed::start(0, &[(0, OrderedRate::Unlimited)]);
    bed.flows.measure();
    assert_eq!(bed.flows.take_segments(), []);
    let sent = |segments| FlowSegments { coflow: 1, flow: 0, segments, retransmitted: 0 };
    bed.stream.write_all(&[0; 1000]).unwrap();
    bed.flows.measure();
    assert_eq!(bed.flows.take_segments(), [sent(1)]);
    assert_eq!(bed.flows.take_segments(), []);
    bed.stream.write_all(&[0; 1000]).unwrap();
    bed.flows.mark_done(&"c".into(), 0, 1).unwrap();
    while bed.flows.open_sockets() > 0 {
        bed.flows.measure();
    }
    assert_eq!(bed.flows.take_segments(), [sent(1)]);
}

#[test]
fn packets_of_more_flows_than_a_report_has_are_in_the_next_one() {
    let mut flows = Flows::new(None);
    let count = MAX_REPORTED_SEGMENTS as u32 + 3;
    flows.unreported_segments = (0..count).map(|flow| ((1, flow), [5, 1])).collect();
    let mut reported = Vec::new();
    for expected in [MAX_REPORTED_SEGMENTS, 3, 0] {
        let taken = flows.take_segments();
        assert_eq!(taken.len(), expected);
        reported.extend(taken.into_iter().map(|segments| segments.flow));
    }
    assert_eq!(reported, (0..count).collect::<Vec<_>>());
}
