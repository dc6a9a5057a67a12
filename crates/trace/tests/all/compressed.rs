//! Compressed traces, and traces with a byte-order mark.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use weir_trace::{Limits, TraceOptions, read_from};

const TRACE: &str = "weir-trace 1\nports 2\ncoflow 7\nflow 0 1 5B\n";

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &[u8]) -> Vec<u8> {
    compress_to_vec(text, CompressionLevel::Fastest)
}

fn read(input: &[u8], limits: &Limits) -> Result<u64, String> {
    let trace = read_from(input, "t", &TraceOptions { limits: *limits, ..TraceOptions::default() })
        .map_err(|error| error.to_string())?;
    Ok(trace.workload.coflows[0].id)
}

#[test]
fn compressed_traces_are_decompressed() {
    let with_mark = [b"\xef\xbb\xbf", TRACE.as_bytes()].concat();
    // Several gzip members follow each other, as `cat a.gz b.gz` makes them.
    let (head, tail) = TRACE.as_bytes().split_at(20);
    let members = [gzip(head), gzip(tail)].concat();
    // The same for frames of Zstandard; parallel compressors also write frames without content.
    let skippable = b"\x57\x2a\x4d\x18\x03\x00\x00\x00abc".to_vec();
    let frames = [skippable.clone(), zstd(head), skippable, zstd(tail)].concat();
    for input in
        [with_mark.clone(), gzip(TRACE.as_bytes()), members, frames, zstd(TRACE.as_bytes()), gzip(&with_mark)]
    {
        assert_eq!(read(&input, &Limits::default()), Ok(7));
    }
}

#[test]
fn bombs_are_refused() {
    // 1 MB of blank lines takes 1 kB.
    let text = [TRACE.as_bytes(), &[b'\n'; 1_000_000]].concat();
    let limits = Limits { max_decompressed_bytes: 100_000, ..Limits::default() };
    for bomb in [gzip(&text), zstd(&text)] {
        assert!(bomb.len() < 10_000, "{}", bomb.len());
        let error = read(&bomb, &limits).unwrap_err();
        assert!(error.contains("decompressed, it has more than 100000 bytes"), "{error}");
    }
}

#[test]
fn damaged_compressed_traces_name_the_file() {
    for whole in [gzip(TRACE.as_bytes()), zstd(TRACE.as_bytes())] {
        for length in 4..whole.len() {
            let error = read(&whole[..length], &Limits::default()).unwrap_err();
            assert!(error.starts_with("t:"), "{length}: {error}");
        }
    }
}
