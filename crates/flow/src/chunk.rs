//! The chunks of a stream.

/// The length of a chunk's header, in bytes.
pub const HEADER_BYTES: usize = 8;

/// The maximum length of a chunk's data, in bytes.
pub const MAX_CHUNK_BYTES: usize = 1 << 16;

/// Why a chunk is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// The length in the header is too large.
    #[error("chunk of {0} bytes is too long; expected at most {MAX_CHUNK_BYTES}")]
    TooLong(u32),
    /// The checksum differs from that of the data.
    #[error("chunk has checksum {actual:#010x}; expected {expected:#010x}")]
    Checksum {
        /// The checksum in the header.
        expected: u32,
        /// The checksum of the data.
        actual: u32,
    },
}

/// A decoded chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    /// Data of the flow, at least one byte.
    Data(Vec<u8>),
    /// The end of the flow.
    End,
}

/// Encodes a chunk; without data, the end of the flow.
///
/// # Panics
/// If the data is longer than [`MAX_CHUNK_BYTES`].
pub fn encode_chunk(data: &[u8]) -> Vec<u8> {
    assert!(data.len() <= MAX_CHUNK_BYTES, "a chunk has at most {MAX_CHUNK_BYTES} bytes");
    let mut bytes = Vec::with_capacity(HEADER_BYTES + data.len());
    bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&crc32fast::hash(data).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

/// Decodes chunks from arbitrary pieces of a stream. Holds at most one chunk.
#[derive(Debug, Default)]
pub struct ChunkDecoder {
    /// The header and the data of an incomplete chunk.
    bytes: Vec<u8>,
}

impl ChunkDecoder {
    /// Takes bytes off `input` up to the end of a chunk, and returns the chunk; none if the chunk is incomplete.
    ///
    /// # Errors
    /// If the header or the checksum is invalid. The rest of the stream cannot be decoded.
    pub fn decode(&mut self, input: &mut &[u8]) -> Result<Option<Chunk>, ChunkError> {
        self.fill(HEADER_BYTES, input);
        let Some((header, _)) = self.bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let [l0, l1, l2, l3, c0, c1, c2, c3] = *header;
        let length = u32::from_be_bytes([l0, l1, l2, l3]);
        let expected = u32::from_be_bytes([c0, c1, c2, c3]);
        if length as usize > MAX_CHUNK_BYTES {
            return Err(ChunkError::TooLong(length));
        }
        let total = HEADER_BYTES + length as usize;
        self.fill(total, input);
        if self.bytes.len() < total {
            return Ok(None);
        }
        let mut data = std::mem::take(&mut self.bytes);
        data.drain(..HEADER_BYTES);
        let actual = crc32fast::hash(&data);
        if actual != expected {
            return Err(ChunkError::Checksum { expected, actual });
        }
        Ok(Some(if data.is_empty() { Chunk::End } else { Chunk::Data(data) }))
    }

    /// Takes bytes off `input` until the chunk has `length` bytes.
    fn fill(&mut self, length: usize, input: &mut &[u8]) {
        let missing = length.saturating_sub(self.bytes.len()).min(input.len());
        let (part, rest) = input.split_at(missing);
        self.bytes.extend_from_slice(part);
        *input = rest;
    }
}
