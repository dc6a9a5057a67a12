use std::time::Duration;

use proptest::prelude::*;
use weir_flow::{
    ACK_INTERVAL, Attempt, BackLine, Chunk, FirstLine, MIN_WINDOW_BYTES, Offset, PROGRESS_TIMEOUT, Path,
    Reason, ReceiveState, SILENCE_TIMEOUT, SendError, SendState,
};

const START: Duration = Duration::from_secs(5);

fn first_line(generation: u16, offset: u64) -> FirstLine {
    FirstLine {
        coflow: "c".parse().unwrap(),
        flow: 1,
        generation,
        offset: Offset::new(offset).unwrap(),
        receiver: "10.0.0.3:7000".parse().unwrap(),
    }
}

fn sender(has_relay: bool) -> SendState {
    let mut sender = SendState::new(first_line(0, 0), has_relay, START);
    sender.set_window_bytes(0);
    sender
}

fn ack(offset: u64) -> BackLine {
    BackLine::Ack(Offset::new(offset).unwrap())
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// Sends up to `limit` bytes to a receiver, and returns the data and the acknowledgements.
fn transfer(
    sender: &mut SendState,
    receiver: &mut ReceiveState,
    limit: usize,
) -> Result<(Vec<u8>, Vec<BackLine>), Reason> {
    let (mut data, mut acks, mut left) = (Vec::new(), Vec::new(), limit);
    while left > 0 && !sender.unsent().is_empty() {
        let length = sender.unsent().len().min(left);
        let bytes = sender.unsent()[..length].to_vec();
        sender.on_sent(length);
        left -= length;
        let mut input = &bytes[..];
        while let Some(chunk) = receiver.receive(&mut input)? {
            if let Chunk::Data(chunk) = chunk {
                data.extend_from_slice(&chunk);
            }
            acks.extend(receiver.mark_read());
        }
    }
    Ok((data, acks))
}

#[test]
fn flow_completes_when_its_end_is_acknowledged() {
    let (mut sender, mut receiver) = (sender(false), ReceiveState::default());
    assert_eq!(sender.attempt(), Attempt { path: Path::Direct, at: START });
    assert_eq!(receiver.accept(sender.first_line()), Ok(ack(0)));
    sender.on_connected(START);
    assert_eq!(sender.write(b"hello"), 5);
    assert!(sender.unsent().is_empty(), "a partial chunk waits for more data");
    sender.finish();
    assert_eq!(sender.write(b"more"), 0);
    let (data, acks) = transfer(&mut sender, &mut receiver, usize::MAX).unwrap();
    assert_eq!((&data[..], &acks[..]), (&b"hello"[..], &[ack(13), ack(21)][..]));
    assert!(receiver.has_ended() && receiver.position() == 21);
    assert_eq!(sender.on_line(acks[0], START), Ok(None));
    assert!(!sender.is_complete());
    assert_eq!(sender.on_line(acks[1], START), Ok(None));
    assert!(sender.is_complete());
    // The last acknowledgement was lost.
    assert_eq!(receiver.accept(&first_line(1, 13)), Ok(ack(21)));
    assert_eq!(receiver.receive(&mut &[0; 8][..]), Ok(None));
    assert_eq!(receiver.receive(&mut &[0][..]), Err(Reason::Invalid));
}

#[test]
fn full_window_takes_no_data_until_chunks_are_acknowledged() {
    let (mut sender, mut receiver) = (sender(false), ReceiveState::default());
    receiver.accept(sender.first_line()).unwrap();
    let data = vec![7; 2 * MIN_WINDOW_BYTES];
    let taken = sender.write(&data);
    assert!((MIN_WINDOW_BYTES - 100..MIN_WINDOW_BYTES).contains(&taken), "{taken}");
    assert_eq!(sender.write(&data), 0);
    let (received, acks) = transfer(&mut sender, &mut receiver, usize::MAX).unwrap();
    assert_eq!((received.len(), sender.write(&data)), (taken, 0));
    // Small flows are acknowledged early, large ones every 256 KiB.
    let acked: Vec<u64> =
        acks.iter().map(|line| if let BackLine::Ack(at) = line { at.get() } else { 0 }).collect();
    let chunk = 65544;
    assert_eq!(acked, [chunk, 2 * chunk, 4 * chunk]);
    assert!(acks.iter().all(|&line| sender.on_line(line, START) == Ok(None)));
    assert!(sender.write(&data) > MIN_WINDOW_BYTES / 2 - 100);
}

#[test]
fn later_generation_continues_at_the_position_and_earlier_ones_are_replaced() {
    let mut receiver = ReceiveState::default();
    assert_eq!(receiver.accept(&first_line(0, 1)), Err(Reason::Gap));
    assert_eq!(receiver.accept(&first_line(3, 0)), Ok(ack(0)));
    for generation in 0..=3 {
        assert_eq!(receiver.accept(&first_line(generation, 0)), Err(Reason::Replaced));
    }
    assert_eq!(receiver.accept(&first_line(4, 1)), Err(Reason::Gap));
    receiver.close();
    assert_eq!(receiver.accept(&first_line(9, 0)), Err(Reason::Replaced));
}

#[test]
fn wrong_checksum_is_corrupt_and_the_next_generation_continues() {
    let (mut sender, mut receiver) = (sender(true), ReceiveState::default());
    receiver.accept(sender.first_line()).unwrap();
    sender.on_connected(START);
    sender.write(b"first");
    sender.flush();
    transfer(&mut sender, &mut receiver, usize::MAX).unwrap();
    sender.write(b"second");
    sender.finish();
    let mut bytes = sender.unsent().to_vec();
    bytes[9] ^= 4;
    sender.on_sent(bytes.len());
    assert_eq!(receiver.receive(&mut &bytes[..]), Err(Reason::Corrupt));
    let next = sender.on_line(BackLine::Reset(Reason::Corrupt), START).unwrap();
    assert_eq!(next, Some(Attempt { path: Path::Direct, at: START }));
    assert_eq!(sender.first_line(), &first_line(1, 0));
    // The receiver has the first chunk, and acknowledges it before it gets it again.
    let answer = receiver.accept(sender.first_line()).unwrap();
    assert_eq!((answer, sender.on_line(answer, START)), (ack(13), Ok(None)));
    let (data, acks) = transfer(&mut sender, &mut receiver, usize::MAX).unwrap();
    assert_eq!(data, b"second");
    assert!(acks.into_iter().all(|line| sender.on_line(line, START) == Ok(None)));
    assert!(sender.is_complete());
}

#[test]
fn relay_is_retried_three_times_without_progress_and_then_avoided() {
    for line in [Reason::Lost, Reason::UnknownCoflow].map(BackLine::Reset) {
        let mut sender = sender(true);
        sender.write(b"x");
        sender.flush();
        sender.on_sent(9);
        // Progress resets the number of retries.
        sender.on_line(line, START).unwrap();
        sender.on_line(ack(9), START).unwrap();
        let mut now = START;
        for generation in 2..=4 {
            let next = sender.on_line(line, now).unwrap().unwrap();
            now += Duration::from_millis(100);
            assert_eq!(
                (next, sender.first_line()),
                (Attempt { path: Path::Relay, at: now }, &first_line(generation, 9))
            );
        }
        assert_eq!(sender.on_line(line, now), Ok(Some(Attempt { path: Path::Direct, at: now })));
    }
    for reason in [Reason::Busy, Reason::Unreachable, Reason::Corrupt] {
        let next = sender(true).on_line(BackLine::Reset(reason), START).unwrap().unwrap();
        assert_eq!(next, Attempt { path: Path::Direct, at: START });
    }
    for reason in [Reason::Gap, Reason::Replaced, Reason::Invalid] {
        assert_eq!(sender(true).on_line(BackLine::Reset(reason), START), Err(SendError::Reset(reason)));
    }
}

#[test]
fn unreachable_receiver_fails_the_flow_after_a_minute() {
    let mut sender = sender(false);
    let (mut now, mut waits) = (START, Vec::new());
    let error = loop {
        match sender.on_lost(now) {
            Ok(Attempt { at, .. }) => {
                waits.push((at - now).as_millis());
                now = at;
            }
            Err(error) => break error,
        }
    };
    assert_eq!(waits[..8], [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    assert!(error == SendError::Unreachable && now >= START + seconds(60.0) && now < START + seconds(66.0));
}

#[test]
fn established_direct_connections_are_replaced_without_a_limit_of_time() {
    let (mut sender, mut now) = (sender(false), START);
    for _ in 0..u16::MAX {
        sender.on_connected(now);
        sender.on_line(ack(0), now).unwrap();
        now = sender.on_lost(now).unwrap().at;
    }
    assert_eq!(sender.on_lost(now), Err(SendError::TooManyConnections));
    // A path that damages all data has a limit.
    let (mut sender, mut now, mut count) = (self::sender(false), START, 0);
    while let Ok(Some(next)) = sender.on_line(BackLine::Reset(Reason::Corrupt), now) {
        now = next.at;
        sender.on_line(ack(0), now).unwrap();
        count += 1;
    }
    assert!(count < 30, "{count}");
}

#[test]
fn silent_connection_is_lost_only_while_bytes_wait() {
    let mut sender = sender(true);
    sender.on_connected(START);
    assert_eq!(sender.deadline(), None);
    sender.write(b"x");
    sender.flush();
    assert_eq!(sender.deadline(), Some(START + SILENCE_TIMEOUT));
    sender.on_sent(9);
    sender.on_line(ack(0), START + ACK_INTERVAL).unwrap();
    assert_eq!(sender.deadline(), Some(START + ACK_INTERVAL + SILENCE_TIMEOUT));
    sender.on_line(ack(9), START + ACK_INTERVAL).unwrap();
    assert_eq!(sender.deadline(), None);
    // An acknowledgement of unsent bytes is a failure of the path.
    assert!(sender.on_line(ack(10), START).unwrap().is_some());
    assert_eq!(sender.deadline(), None);
}

#[test]
fn connection_without_progress_is_lost_only_while_bytes_wait() {
    let mut sender = sender(true);
    sender.on_connected(START);
    // An idle hour, in which the receiver repeats its acknowledgement.
    let now = START + seconds(3600.0);
    sender.on_line(ack(0), now).unwrap();
    sender.write(b"x");
    sender.finish();
    sender.on_sent(9);
    let last_line = now + PROGRESS_TIMEOUT - seconds(1.0);
    sender.on_line(ack(0), last_line).unwrap();
    assert_eq!(sender.deadline(), Some(now + PROGRESS_TIMEOUT));
    sender.on_sent(8);
    sender.on_line(ack(9), last_line).unwrap();
    assert_eq!(sender.deadline(), Some(last_line + SILENCE_TIMEOUT));
}

/// An event of a random run: how many bytes arrive, or how the connection fails, and how many acknowledgements arrive before.
#[derive(Debug, Clone)]
enum Event {
    Write(usize),
    Flush,
    Transfer { bytes: usize, delivered_acks: usize },
    Fail,
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (1..200_000usize).prop_map(Event::Write),
        1 => Just(Event::Flush),
        4 => (1..200_000usize, 0..4usize).prop_map(|(bytes, delivered_acks)| Event::Transfer { bytes, delivered_acks }),
        1 => Just(Event::Fail),
    ]
}

proptest! {
    #[test]
    fn data_arrives_once_and_in_order_over_failing_connections(events in prop::collection::vec(any_event(), 0..60)) {
        let (mut sender, mut receiver) = (sender(true), ReceiveState::default());
        receiver.accept(sender.first_line()).unwrap();
        let (mut written, mut read, mut undelivered) = (Vec::new(), Vec::new(), Vec::new());
        for event in events.into_iter().chain([Event::Fail]) {
            match event {
                Event::Write(length) => {
                    let data: Vec<u8> = (0..length).map(|at| ((written.len() + at) / 3) as u8).collect();
                    let taken = sender.write(&data);
                    written.extend_from_slice(&data[..taken]);
                }
                Event::Flush => sender.flush(),
                Event::Transfer { bytes, delivered_acks } => {
                    let (data, acks) = transfer(&mut sender, &mut receiver, bytes).unwrap();
                    read.extend(data);
                    undelivered.extend(acks);
                    for line in undelivered.drain(..delivered_acks.min(undelivered.len())) {
                        prop_assert_eq!(sender.on_line(line, START), Ok(None));
                    }
                }
                Event::Fail => {
                    undelivered.clear();
                    let started = sender.on_lost(START);
                    prop_assert!(started.is_ok());
                    let answer = receiver.accept(sender.first_line()).unwrap();
                    // Half of the answers arrive after data.
                    if read.len() % 2 == 0 {
                        prop_assert_eq!(sender.on_line(answer, START), Ok(None));
                    }
                }
            }
        }
        sender.finish();
        let (data, acks) = transfer(&mut sender, &mut receiver, usize::MAX).unwrap();
        read.extend(data);
        for line in acks {
            prop_assert_eq!(sender.on_line(line, START), Ok(None));
        }
        prop_assert!(read == written && sender.is_complete() && receiver.has_ended());
    }
}
