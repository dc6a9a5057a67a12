use bytes::Bytes;
use proptest::prelude::*;
use weir_relay::receive_window::{ReceiveWindow, WindowError};
use weir_relay::send_window::SendWindow;

fn drain(window: &mut ReceiveWindow) -> Vec<u8> {
    std::iter::from_fn(|| window.pop_next()).flatten().collect()
}

#[test]
fn reordered_and_overlapping_data_is_delivered_once_and_in_order() {
    let mut window = ReceiveWindow::new(100);
    window.insert(4, Bytes::from_static(b"efgh")).unwrap();
    assert_eq!(drain(&mut window), b"");
    window.insert(2, Bytes::from_static(b"cdefghij")).unwrap();
    window.insert(0, Bytes::from_static(b"abc")).unwrap();
    window.set_end(10).unwrap();
    assert_eq!(drain(&mut window), b"abcdefghij");
    assert!(window.is_complete());
}

#[test]
fn data_beyond_credit_or_end_is_refused() {
    let mut window = ReceiveWindow::new(4);
    assert_eq!(
        window.insert(1, Bytes::from_static(b"abcd")),
        Err(WindowError::BeyondCredit { end: 5, max: 4 })
    );
    window.insert(1, Bytes::from_static(b"b")).unwrap();
    assert_eq!(window.set_end(1), Err(WindowError::BeyondEnd { found: 1, expected: 2 }));
    window.set_end(3).unwrap();
    assert_eq!(
        window.insert(2, Bytes::from_static(b"cd")),
        Err(WindowError::BeyondEnd { found: 4, expected: 3 })
    );
    assert_eq!(window.set_end(4), Err(WindowError::BeyondEnd { found: 4, expected: 3 }));
}

#[test]
fn send_window_keeps_bytes_until_they_are_acknowledged() {
    let mut window = SendWindow::new(6);
    window.write(Bytes::from_static(b"abcdef"));
    assert_eq!(window.free_bytes(), 0);
    assert_eq!(window.peek(4), Some((0, Bytes::from_static(b"abcd"))));
    window.mark_sent(4);
    assert_eq!(window.peek(4), Some((4, Bytes::from_static(b"ef"))));
    window.acknowledge(3).unwrap();
    assert_eq!(window.free_bytes(), 3);
    window.rewind();
    assert_eq!(window.peek(9), Some((3, Bytes::from_static(b"def"))));
    assert!(window.acknowledge(7).is_err());
}

proptest! {
    /// Any pieces of a flow, in any order and with repetitions, against the flow itself.
    #[test]
    fn delivered_bytes_equal_the_flow(
        flow in proptest::collection::vec(any::<u8>(), 0..200),
        pieces in proptest::collection::vec((0..200usize, 1..40usize), 0..60),
    ) {
        let mut window = ReceiveWindow::new(1000);
        let mut delivered = Vec::new();
        let whole = (0..flow.len()).step_by(7).map(|at| (at, 7));
        for (at, length) in pieces.into_iter().chain(whole) {
            let (at, end) = (at.min(flow.len()), (at + length).min(flow.len()));
            window.insert(at as u64, Bytes::copy_from_slice(&flow[at..end])).unwrap();
            if at % 3 == 0 {
                delivered.extend(drain(&mut window));
            }
        }
        window.set_end(flow.len() as u64).unwrap();
        delivered.extend(drain(&mut window));
        prop_assert_eq!(delivered, flow);
        prop_assert!(window.is_complete());
    }
}
