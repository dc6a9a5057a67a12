use proptest::prelude::*;
use weir_relay::message::{
    ADDRESS_BYTES, FlowId, HEADER_BYTES, Header, HeaderError, Kind, LIMIT_BYTES, MAX_HOPS, MAX_OFFSET,
    MAX_PAYLOAD_BYTES, RelayId, decode_address, decode_reason, encode_address, encode_reason,
};

fn any_header() -> impl Strategy<Value = Header> {
    let data = (1..=MAX_PAYLOAD_BYTES).prop_map(|length| (Kind::Data, length));
    let other = prop::sample::select(vec![
        (Kind::Open, ADDRESS_BYTES as u32),
        (Kind::End, 0),
        (Kind::Abort, 0),
        (Kind::Ack, LIMIT_BYTES as u32),
        (Kind::Reset, 0),
        (Kind::Ping, 0),
        (Kind::Pong, 0),
    ]);
    let flow = any::<(u32, u32)>().prop_map(|(coflow, flow)| FlowId { coflow, flow });
    (prop_oneof![data, other], 0..=MAX_HOPS, any::<(u16, u16, u16)>(), flow, 0..=MAX_OFFSET).prop_map(
        |((kind, length), hops, (generation, source, destination), flow, offset)| Header {
            kind,
            hops,
            generation,
            length,
            flow,
            offset,
            source: RelayId(source),
            destination: RelayId(destination),
        },
    )
}

#[test]
fn addresses_and_reasons_decode_to_themselves() {
    for address in ["10.0.0.3:7000", "[fd00::3]:65535", "0.0.0.0:0"] {
        let address = address.parse().unwrap();
        assert_eq!(decode_address(&encode_address(address)), address);
    }
    for reason in weir_flow::Reason::ALL {
        assert_eq!(decode_reason(encode_reason(reason)), reason);
    }
    assert_eq!(decode_reason(u64::MAX), weir_flow::Reason::Lost);
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
        let checksum = crc32c::crc32c(&bytes[..28]);
        bytes[28..].copy_from_slice(&checksum.to_be_bytes());
        if let Ok(header) = Header::decode(&bytes) {
            prop_assert_eq!(header.encode(), bytes);
            prop_assert!(header.end() <= i64::MAX as u64);
        }
    }
}
