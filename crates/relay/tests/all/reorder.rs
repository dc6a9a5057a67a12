use bytes::Bytes;
use proptest::prelude::*;
use weir_relay::reorder_buffer::{ReorderBuffer, ReorderError};

fn drain(buffer: &mut ReorderBuffer) -> Vec<u8> {
    std::iter::from_fn(|| buffer.pop_next()).flatten().collect()
}

#[test]
fn data_beyond_limit_or_end_is_refused() {
    let mut buffer = ReorderBuffer::new(0, 4);
    assert_eq!(buffer.check(5), Err(ReorderError::BeyondLimit { end: 5, max: 4 }));
    buffer.insert(1, Bytes::from_static(b"b"));
    assert_eq!(buffer.set_end(1), Err(ReorderError::BeyondEnd { found: 1, expected: 2 }));
    buffer.set_end(3).unwrap();
    assert_eq!(buffer.check(4), Err(ReorderError::BeyondEnd { found: 4, expected: 3 }));
    assert_eq!(buffer.set_end(4), Err(ReorderError::BeyondEnd { found: 4, expected: 3 }));
}

#[test]
fn stream_may_begin_after_its_first_messages() {
    let mut buffer = ReorderBuffer::new(0, u64::MAX);
    buffer.insert(102, Bytes::from_static(b"c"));
    assert!(buffer.begin(103, 200).is_err());
    assert!(buffer.begin(100, 102).is_err());
    buffer.begin(100, 200).unwrap();
    assert_eq!(drain(&mut buffer), b"");
    buffer.insert(100, Bytes::from_static(b"ab"));
    assert_eq!(drain(&mut buffer), b"abc");
}

#[test]
fn number_of_gaps_is_bounded() {
    let mut buffer = ReorderBuffer::new(0, u64::MAX);
    let offsets = (1..).map(|piece| piece * 2);
    let accepted = offsets
        .take_while(|&offset| {
            let is_accepted = buffer.check(offset + 1).is_ok();
            buffer.insert(offset, Bytes::from_static(b"x"));
            is_accepted
        })
        .count();
    assert_eq!(accepted, 4096);
}

#[test]
fn adjacent_messages_that_overtake_each_other_leave_no_gaps() {
    let mut buffer = ReorderBuffer::new(0, u64::MAX);
    // The first byte is missing, and each second message arrives before its predecessor.
    for pair in 0..10_000 {
        for offset in [2 * pair + 2, 2 * pair + 1] {
            buffer.check(offset + 1).unwrap();
            buffer.insert(offset, Bytes::from_static(b"x"));
        }
    }
    buffer.insert(0, Bytes::from_static(b"x"));
    assert_eq!(drain(&mut buffer).len(), 20_001);
}

proptest! {
    /// Any overlapping pieces in any order, some of them returned, give the bytes once and in order.
    #[test]
    fn bytes_out_equal_bytes_in(
        length in 1..2000usize,
        pieces in prop::collection::vec((0..2000usize, 1..300usize), 0..200),
        returned in 0..50usize,
    ) {
        let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let mut buffer = ReorderBuffer::new(0, length as u64);
        let mut received = Vec::new();
        for (start, piece) in pieces.into_iter().chain([(0, length)]) {
            let start = start.min(length);
            let end = (start + piece).min(length);
            buffer.check(end as u64).unwrap();
            buffer.insert(start as u64, Bytes::copy_from_slice(&bytes[start..end]));
            if let Some(mut piece) = buffer.pop_next() {
                let rest = piece.split_off(piece.len().saturating_sub(returned));
                received.extend_from_slice(&piece);
                buffer.push_back(rest);
            }
        }
        buffer.set_end(length as u64).unwrap();
        received.extend(drain(&mut buffer));
        prop_assert!(received == bytes);
        prop_assert!(buffer.is_complete());
        prop_assert_eq!(buffer.waiting_bytes(), 0);
    }
}
