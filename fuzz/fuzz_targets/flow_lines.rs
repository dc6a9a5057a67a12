//! The readers of lines between programs and relays do not panic on any input, and accepted lines encode to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_flow::{BackLine, FirstLine, LineReader, MAX_LINE_BYTES};

fuzz_target!(|input: &[u8]| {
    let (mut reader, mut rest) = (LineReader::default(), input);
    while let Ok(Some(line)) = reader.read_line(&mut rest) {
        assert!(line.len() < MAX_LINE_BYTES);
        let text = String::from_utf8_lossy(&line);
        if let Ok(parsed) = FirstLine::parse(&line) {
            // An IPv6 address may have several forms.
            let encoded = parsed.encode();
            assert_eq!(FirstLine::parse(encoded.trim_end().as_bytes()), Ok(parsed));
        }
        if let Ok(parsed) = BackLine::parse(&line) {
            assert_eq!(parsed.encode(), format!("{text}\n"));
        }
    }
});
