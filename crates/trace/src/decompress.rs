//! Decompresses traces (gzip or Zstandard, found by their first bytes), and skips a byte-order mark.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use crate::bounds::Limits;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// The text of a trace, decompressed if necessary, without a byte-order mark.
///
/// # Errors
/// If the input cannot be read, or a compressed input is invalid.
pub(crate) fn open<'a, R: BufRead + 'a>(input: R, limits: &Limits) -> io::Result<Box<dyn BufRead + 'a>> {
    let max_bytes = limits.max_decompressed_bytes;
    let (start, input) = split_start(input)?;
    if start.starts_with(&GZIP) {
        without_mark(decompressed(flate2::bufread::MultiGzDecoder::new(input), max_bytes))
    } else if start.starts_with(&ZSTD) {
        let decoder = ruzstd::decoding::StreamingDecoder::new(input).map_err(io::Error::other)?;
        without_mark(decompressed(decoder, max_bytes))
    } else {
        without_mark(input)
    }
}

/// The first bytes of an input, at most four, and the whole input.
fn split_start<R: BufRead>(mut input: R) -> io::Result<(Vec<u8>, impl BufRead)> {
    let mut start = Vec::new();
    input.by_ref().take(ZSTD.len() as u64).read_to_end(&mut start)?;
    Ok((start.clone(), Cursor::new(start).chain(input)))
}

fn without_mark<'a, R: BufRead + 'a>(input: R) -> io::Result<Box<dyn BufRead + 'a>> {
    let (start, mut input) = split_start(input)?;
    if start.starts_with(&BYTE_ORDER_MARK) {
        io::copy(&mut input.by_ref().take(BYTE_ORDER_MARK.len() as u64), &mut io::sink())?;
    }
    Ok(Box::new(input))
}

fn decompressed<R: Read>(decoder: R, max_bytes: u64) -> impl BufRead {
    BufReader::with_capacity(1 << 16, Bounded { decoder, max_bytes, remaining: max_bytes })
}

/// Refuses to read more than a number of bytes.
struct Bounded<R> {
    decoder: R,
    max_bytes: u64,
    remaining: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.decoder.read(buffer)?;
        self.remaining = self.remaining.checked_sub(read as u64).ok_or_else(|| {
            io::Error::other(format!("decompressed, it has more than {} bytes", self.max_bytes))
        })?;
        Ok(read)
    }
}
