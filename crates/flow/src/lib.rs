//! The flow protocol (`docs/flow-protocol.md`): lines, chunks, and the states of senders and receivers.
//!
//! [`SendState`] and [`ReceiveState`] are the protocol, without clock, thread or socket. Callers pass the time since a start of their
//! choice. Positions count the bytes of a flow's stream, headers of chunks included.

mod chunk;
mod line;
mod receive_state;
mod send_state;

pub use chunk::{Chunk, ChunkDecoder, ChunkError, HEADER_BYTES, MAX_CHUNK_BYTES, encode_chunk};
pub use line::{
    BackLine, CoflowName, FirstLine, LineError, LineReader, MAX_LINE_BYTES, MAX_NAME_BYTES, MAX_OFFSET,
    Offset, Reason,
};
pub use receive_state::{ACK_INTERVAL, ReceiveState};
pub use send_state::{
    Attempt, DEFAULT_WINDOW_BYTES, DIRECT_TIMEOUT, MIN_WINDOW_BYTES, PROGRESS_TIMEOUT, Path, RETRY_WAIT,
    SILENCE_TIMEOUT, SendError, SendState,
};
