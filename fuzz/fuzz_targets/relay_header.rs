//! The decoder of message headers does not panic on any input, and accepted headers encode to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_relay::message::{HEADER_BYTES, Header, MAX_HOPS, MAX_OFFSET, MAX_PAYLOAD_BYTES};

fuzz_target!(|input: [u8; HEADER_BYTES]| {
    // The checksum of almost any input is wrong.
    let mut bytes = input;
    let checksum = crc32c::crc32c(&bytes[..28]);
    bytes[28..].copy_from_slice(&checksum.to_be_bytes());
    for bytes in [input, bytes] {
        let Ok(header) = Header::decode(&bytes) else { continue };
        assert_eq!(header.encode(), bytes);
        assert!(header.hops <= MAX_HOPS && header.offset <= MAX_OFFSET && header.length <= MAX_PAYLOAD_BYTES);
    }
});
