use proptest::prelude::*;
use weir_relay::message::{FlowId, HEADER_BYTES, Header, HeaderError, Kind, MAX_HOPS, MAX_PAYLOAD_BYTES};

fn any_header() -> impl Strategy<Value = Header> {
    let data = (1..=MAX_PAYLOAD_BYTES).prop_map(|length| (Kind::Data, length));
    let other = prop_oneof![Just(Kind::End), Just(Kind::Ack), Just(Kind::Lost), Just(Kind::Reset)];
    (
        prop_oneof![data, other.prop_map(|kind| (kind, 0))],
        0..=MAX_HOPS,
        any::<u32>(),
        any::<u32>(),
        0..1u64 << 62,
    )
        .prop_map(|((kind, length), hops, coflow, flow, offset)| Header {
            kind,
            hops,
            length,
            flow: FlowId { coflow, flow },
            offset,
        })
}

proptest! {
    #[test]
    fn encoded_headers_decode_to_themselves(header in any_header()) {
        prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn a_flipped_bit_is_a_checksum_error(header in any_header(), bit in 0..HEADER_BYTES * 8) {
        let mut bytes = header.encode();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let is_checksum_error = matches!(Header::decode(&bytes), Err(HeaderError::Checksum { .. }));
        prop_assert!(is_checksum_error);
    }

    #[test]
    fn arbitrary_bytes_with_a_valid_checksum_decode_or_fail(mut bytes in any::<[u8; HEADER_BYTES]>()) {
        let checksum = crc32c::crc32c(&bytes[..24]);
        bytes[24..].copy_from_slice(&checksum.to_be_bytes());
        if let Ok(header) = Header::decode(&bytes) {
            prop_assert_eq!(header.encode(), bytes);
            prop_assert!(header.end() <= i64::MAX as u64);
        }
    }
}
