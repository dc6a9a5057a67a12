//! The decoder of chunks does not panic on any input, and returns the same chunks for pieces of any length.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_flow::{Chunk, ChunkDecoder, ChunkError, encode_chunk};

fn decode(input: &[u8], piece: usize) -> (Vec<Chunk>, Option<ChunkError>) {
    let (mut decoder, mut chunks) = (ChunkDecoder::default(), Vec::new());
    for mut piece in input.chunks(piece) {
        loop {
            match decoder.decode(&mut piece) {
                Ok(None) => break,
                Ok(Some(chunk)) => chunks.push(chunk),
                Err(error) => return (chunks, Some(error)),
            }
        }
    }
    (chunks, None)
}

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    let (chunks, error) = decode(bytes, usize::from(piece) + 1);
    assert_eq!(decode(bytes, bytes.len().max(1)), (chunks.clone(), error));
    // Data that is encoded is decoded.
    let encoded = encode_chunk(&bytes[..bytes.len().min(1 << 16)]);
    let (decoded, error) = decode(&encoded, usize::from(piece) + 1);
    assert!(decoded.len() == 1 && error.is_none());
});
