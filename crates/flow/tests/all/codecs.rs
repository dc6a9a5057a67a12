use std::net::SocketAddr;

use proptest::prelude::*;
use weir_flow::{
    BackLine, Chunk, ChunkDecoder, ChunkError, CoflowName, FirstLine, HEADER_BYTES, LineError, LineReader,
    MAX_CHUNK_BYTES, MAX_LINE_BYTES, MAX_OFFSET, Offset, Reason, encode_chunk,
};

fn any_first_line() -> impl Strategy<Value = FirstLine> {
    let name = "[!-~]{1,128}".prop_map(|text| text.parse().unwrap());
    (name, any::<u32>(), any::<u16>(), 0..=MAX_OFFSET, any::<SocketAddr>()).prop_map(
        |(coflow, flow, generation, offset, receiver)| FirstLine {
            coflow,
            flow,
            generation,
            offset: Offset::new(offset).unwrap(),
            receiver: SocketAddr::new(receiver.ip(), receiver.port()),
        },
    )
}

fn any_back_line() -> impl Strategy<Value = BackLine> {
    prop_oneof![
        (0..=MAX_OFFSET).prop_map(|offset| BackLine::Ack(Offset::new(offset).unwrap())),
        prop::sample::select(&Reason::ALL[..]).prop_map(BackLine::Reset),
    ]
}

/// Cuts bytes into pieces of at most `size` bytes.
fn decode_all(bytes: &[u8], size: usize) -> Result<Vec<Chunk>, ChunkError> {
    let (mut decoder, mut chunks) = (ChunkDecoder::default(), Vec::new());
    for mut piece in bytes.chunks(size) {
        while let Some(chunk) = decoder.decode(&mut piece)? {
            chunks.push(chunk);
        }
        assert!(piece.is_empty());
    }
    Ok(chunks)
}

proptest! {
    #[test]
    fn encoded_first_lines_parse_to_themselves(line in any_first_line()) {
        let text = line.encode();
        prop_assert!(text.len() <= MAX_LINE_BYTES);
        prop_assert_eq!(FirstLine::parse(text.strip_suffix('\n').unwrap().as_bytes()), Ok(line));
    }

    #[test]
    fn encoded_back_lines_parse_to_themselves(line in any_back_line()) {
        let text = line.encode();
        prop_assert_eq!(BackLine::parse(text.strip_suffix('\n').unwrap().as_bytes()), Ok(line));
    }

    #[test]
    fn arbitrary_lines_parse_to_what_encodes_them_or_fail(line in "(weir-flow/2|ack|reset|x)( [0-9a-z:.]{0,5}){0,6}") {
        if let Ok(parsed) = FirstLine::parse(line.as_bytes()) {
            prop_assert_eq!(parsed.encode(), format!("{line}\n"));
        }
        if let Ok(parsed) = BackLine::parse(line.as_bytes()) {
            prop_assert_eq!(parsed.encode(), format!("{line}\n"));
        }
    }

    #[test]
    fn line_reader_returns_the_lines_of_any_pieces(
        lines in prop::collection::vec("[ -~]{0,255}", 0..8), size in 1..600usize,
    ) {
        let bytes: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let (mut reader, mut read) = (LineReader::default(), Vec::new());
        for mut piece in bytes.as_bytes().chunks(size) {
            while let Some(line) = reader.read_line(&mut piece).unwrap() {
                read.push(String::from_utf8(line).unwrap());
            }
            prop_assert!(piece.is_empty());
        }
        prop_assert_eq!(read, lines);
    }

    #[test]
    fn chunks_decode_to_their_data_in_any_pieces(
        data in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8), size in 1..1000usize,
    ) {
        let bytes: Vec<u8> = data.iter().flat_map(|data| encode_chunk(data)).collect();
        let expected = data.into_iter().map(|data| if data.is_empty() { Chunk::End } else { Chunk::Data(data) });
        prop_assert_eq!(decode_all(&bytes, size), Ok(expected.collect()));
    }

    #[test]
    fn a_flipped_bit_never_yields_the_chunk(data in prop::collection::vec(any::<u8>(), 0..300), bit in any::<usize>()) {
        let mut bytes = encode_chunk(&data);
        let bit = bit % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        // A longer length waits for more bytes; a shorter one may leave a rest that is an incomplete header.
        let is_rejected = decode_all(&bytes, bytes.len()).map_or(true, |chunks| chunks.is_empty());
        prop_assert!(is_rejected);
    }

    #[test]
    fn arbitrary_bytes_decode_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..100), size in 1..20usize) {
        let _ = decode_all(&bytes, size);
    }
}

#[test]
fn lines_have_the_specified_form() {
    let line = FirstLine {
        coflow: "shuffle-7".parse().unwrap(),
        flow: 3,
        generation: 1,
        offset: Offset::new(65544).unwrap(),
        receiver: "[fd00::3]:7000".parse().unwrap(),
    };
    assert_eq!(line.encode(), "weir-flow/2 shuffle-7 3 1 65544 [fd00::3]:7000\n");
    assert_eq!(BackLine::Ack(line.offset).encode(), "ack 65544\n");
    assert_eq!(BackLine::Reset(Reason::UnknownCoflow).encode(), "reset unknown-coflow\n");
}

#[test]
fn malformed_lines_are_rejected() {
    let address = "10.0.0.3:7000";
    for rest in [
        format!("a 0 0 0 {address} "),
        format!("a 0 0 0 {address} x"),
        format!("a  0 0 0 {address}"),
        format!("a 00 0 0 {address}"),
        format!("a +1 0 0 {address}"),
        format!("a -1 0 0 {address}"),
        format!("a 4294967296 0 0 {address}"),
        format!("a 0 65536 0 {address}"),
        format!("a 0 0 {} {address}", MAX_OFFSET + 1),
        format!("a 0 0 {}9 {address}", u64::MAX),
        format!("{} 0 0 0 {address}", "x".repeat(129)),
        format!("\u{fc} 0 0 0 {address}"),
        "a 0 0 0 10.0.0.3".to_owned(),
        "a 0 0 0 10.0.0.3:07000".to_owned(),
        "a 0 0 0 host:7000".to_owned(),
        "a 0 0 0".to_owned(),
        String::new(),
    ] {
        let line = format!("weir-flow/2 {rest}");
        assert_eq!(FirstLine::parse(line.as_bytes()), Err(LineError::FirstLine), "{line}");
    }
    assert_eq!(
        FirstLine::parse(format!("weir-flow a 0 0 0 {address}").as_bytes()),
        Err(LineError::FirstLine)
    );
    assert!(FirstLine::parse(format!("weir-flow/2 a 0 0 0 {address}").as_bytes()).is_ok());
    for line in
        ["", "ack", "ack ", "ack 01", "ack -1", "ack 1 ", "reset", "reset gone", "reset  gap", "Ack 1"]
    {
        assert_eq!(BackLine::parse(line.as_bytes()), Err(LineError::BackLine), "{line}");
    }
    for name in ["", "a b", "a\n", "\u{fc}", &"x".repeat(129)] {
        assert_eq!(name.parse::<CoflowName>(), Err(LineError::Name), "{name}");
    }
}

#[test]
fn lines_and_chunks_over_the_limit_are_rejected() {
    let mut reader = LineReader::default();
    let bytes = [b'x'; MAX_LINE_BYTES];
    assert_eq!(reader.read_line(&mut &bytes[..MAX_LINE_BYTES - 1]), Ok(None));
    assert_eq!(reader.read_line(&mut &bytes[..1]), Err(LineError::TooLong));
    let largest = encode_chunk(&[7; MAX_CHUNK_BYTES]);
    assert_eq!(decode_all(&largest, 4096), Ok(vec![Chunk::Data(vec![7; MAX_CHUNK_BYTES])]));
    let header = (MAX_CHUNK_BYTES as u32 + 1).to_be_bytes();
    assert_eq!(decode_all(&[&header[..], &[0; 4]].concat(), HEADER_BYTES), Err(ChunkError::TooLong(65537)));
}
