//! What a receiver answers to bytes of the protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use weir_client::FlowReceiver;
use weir_flow::encode_chunk;

const TIMEOUT: Duration = Duration::from_secs(20);

/// A connection of a sender.
struct Sender {
    stream: BufReader<TcpStream>,
}

impl Sender {
    fn connect(receiver: &FlowReceiver, bytes: &[u8]) -> Sender {
        let mut stream = TcpStream::connect(receiver.address()).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(bytes).unwrap();
        Sender { stream: BufReader::new(stream) }
    }

    fn generation(receiver: &FlowReceiver, generation: u16, offset: u64) -> Sender {
        let address = receiver.address();
        Sender::connect(receiver, format!("weir-flow/2 c 0 {generation} {offset} {address}\n").as_bytes())
    }

    fn send(&mut self, data: &[u8]) {
        self.stream.get_mut().write_all(&encode_chunk(data)).unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line
    }

    /// Whether the receiver has closed the connection.
    fn is_closed(&mut self) -> bool {
        self.stream.read(&mut [0]).is_ok_and(|length| length == 0)
    }
}

fn receiver() -> FlowReceiver {
    FlowReceiver::bind("127.0.0.1:0").unwrap()
}

#[test]
fn later_generation_replaces_the_connection_and_continues() {
    let receiver = receiver();
    let mut first = Sender::generation(&receiver, 1, 0);
    assert_eq!(first.answer(), "ack 0\n");
    first.send(b"hello");
    let mut flow = receiver.receive("c", 0, TIMEOUT).unwrap();
    let mut data = [0; 5];
    flow.read_exact(&mut data).unwrap();
    assert_eq!((&data, first.answer()), (b"hello", "ack 13\n".to_owned()));
    for generation in [0, 1] {
        let mut late = Sender::generation(&receiver, generation, 0);
        assert!(late.answer() == "reset replaced\n" && late.is_closed());
    }
    assert_eq!(Sender::generation(&receiver, 2, 14).answer(), "reset gap\n");
    // The program waits for data of the first connection.
    let reader = std::thread::spawn(move || {
        let mut data = Vec::new();
        flow.read_to_end(&mut data).unwrap();
        data
    });
    let mut second = Sender::generation(&receiver, 2, 0);
    assert_eq!((second.answer(), first.answer()), ("ack 13\n".to_owned(), "reset replaced\n".to_owned()));
    assert!(first.is_closed());
    for data in [&b"hello"[..], b"world", b""] {
        second.send(data);
    }
    assert_eq!(reader.join().unwrap(), b"world");
    assert_eq!((second.answer(), second.answer()), ("ack 26\n".to_owned(), "ack 34\n".to_owned()));
    assert!(second.is_closed());
    // The sender did not get the last acknowledgement.
    let mut third = Sender::generation(&receiver, 3, 26);
    third.send(b"");
    assert!(third.answer() == "ack 34\n" && third.is_closed());
}

#[test]
fn malformed_first_lines_are_invalid_and_other_flows_continue() {
    let receiver = receiver();
    let idle = Sender::connect(&receiver, b"");
    let partial = Sender::connect(&receiver, b"weir-flow/2 c");
    let address = receiver.address();
    for line in ["weir-flow c 0\n".to_owned(), "x".repeat(4096), format!("weir-flow/2 c 0 0 0 {address} x\n")]
    {
        let mut sender = Sender::connect(&receiver, line.as_bytes());
        assert!(sender.answer() == "reset invalid\n" && sender.is_closed(), "{line}");
    }
    let mut partial_end = partial;
    partial_end.stream.get_mut().write_all(format!(" 0 0 0 {address}\n").as_bytes()).unwrap();
    assert_eq!(partial_end.answer(), "ack 0\n");
    partial_end.send(b"hello");
    partial_end.send(b"");
    let mut text = String::new();
    receiver.receive("c", 0, TIMEOUT).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello");
    drop(idle);
}

#[test]
fn wrong_checksum_is_corrupt() {
    let receiver = receiver();
    let mut sender = Sender::generation(&receiver, 0, 0);
    sender.stream.get_mut().write_all(b"\0\0\0\x01\0\0\0\0x").unwrap();
    let mut flow = receiver.receive("c", 0, TIMEOUT).unwrap();
    flow.set_reconnect_timeout(Duration::from_millis(50));
    assert!(flow.read(&mut [0]).is_err());
    flow.set_reconnect_timeout(TIMEOUT);
    assert_eq!((sender.answer(), sender.answer()), ("ack 0\n".to_owned(), "reset corrupt\n".to_owned()));
    sender.stream.get_mut().shutdown(Shutdown::Write).unwrap();
    assert!(sender.is_closed());
    let mut next = Sender::generation(&receiver, 1, 0);
    next.send(b"");
    assert_eq!(flow.read(&mut [0]).unwrap(), 0);
    assert_eq!((next.answer(), next.answer()), ("ack 0\n".to_owned(), "ack 8\n".to_owned()));
}
