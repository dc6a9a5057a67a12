//! Decompresses traces (gzip or Zstandard, found by their first bytes), and skips a byte-order mark.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use crate::bounds::Limits;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The last three bytes of the magic number of a frame without content.
const SKIPPABLE: [u8; 3] = [0x2a, 0x4d, 0x18];
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
    } else if start.starts_with(&ZSTD) || is_skippable(&start) {
        without_mark(decompressed(Frames::new(input)?, max_bytes))
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

/// Whether a frame of Zstandard begins that has no content.
fn is_skippable(start: &[u8]) -> bool {
    start.len() == ZSTD.len() && start[0] & 0xf0 == 0x50 && start[1..] == SKIPPABLE
}

/// The content of all frames of a Zstandard file.
struct Frames<R: BufRead> {
    /// None after the last frame.
    decoder: Option<StreamingDecoder<FrameStart<R>, FrameDecoder>>,
}

impl<R: BufRead> Frames<R> {
    fn new(input: R) -> io::Result<Frames<R>> {
        let start = FrameStart { bytes: Cursor::new(Vec::new()), input };
        Ok(Frames { decoder: start.open()? })
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(decoder) = &mut self.decoder {
            let read = decoder.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            if let Some(decoder) = self.decoder.take() {
                self.decoder = decoder.into_inner().open()?;
            }
        }
        Ok(0)
    }
}

/// An input at the start of a frame, of which the first bytes were read to see what follows.
struct FrameStart<R> {
    bytes: Cursor<Vec<u8>>,
    input: R,
}

impl<R: BufRead> FrameStart<R> {
    /// The next frame with content; none at the end. Frames without content have one of 16 magic numbers, and their length follows.
    fn open(mut self) -> io::Result<Option<StreamingDecoder<FrameStart<R>, FrameDecoder>>> {
        loop {
            let mut magic = Vec::new();
            self.input.by_ref().take(ZSTD.len() as u64).read_to_end(&mut magic)?;
            if magic.is_empty() {
                return Ok(None);
            }
            if !is_skippable(&magic) {
                self.bytes = Cursor::new(magic);
                return StreamingDecoder::new(self).map(Some).map_err(io::Error::other);
            }
            let mut length = [0; 4];
            self.input.read_exact(&mut length)?;
            io::copy(&mut self.input.by_ref().take(u32::from_le_bytes(length).into()), &mut io::sink())?;
        }
    }
}

impl<R: Read> Read for FrameStart<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.bytes.read(buffer)? {
            0 => self.input.read(buffer),
            read => Ok(read),
        }
    }
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
