//! Divides a part of the kernel's memory among the connections of sending programs.
//!
//! Without a limit, hundreds of flows use more memory than the kernel grants to TCP, which then offers all connections windows of a few
//! segments.

use std::net::TcpStream;

use super::socket::set_receive_buffer;

/// The limits for one connection, in bytes of data. The kernel uses up to twice as much memory.
const MIN_BYTES: usize = 64 << 10;
const MAX_BYTES: usize = 1 << 20;

/// The part of the relay's memory for all connections.
const SHARE: u64 = 12;

/// The limit of each connection.
#[derive(Debug)]
pub(crate) struct ReceiveBuffers {
    total_bytes: usize,
    limit: usize,
}

impl ReceiveBuffers {
    /// For a relay with this memory.
    pub(crate) fn new(memory_bytes: u64) -> ReceiveBuffers {
        let total_bytes = usize::try_from(memory_bytes / SHARE).unwrap_or(usize::MAX);
        ReceiveBuffers { total_bytes, limit: MAX_BYTES }
    }

    /// Limits a new connection.
    pub(crate) fn apply(&self, stream: &TcpStream) {
        set_receive_buffer(stream, self.limit);
    }

    /// Adapts the limit to the number of connections. Returns whether it has changed: it follows in steps of at least a factor of 2, so
    /// that few changes have to be applied to all connections.
    pub(crate) fn adapt(&mut self, connections: usize) -> bool {
        let share = (self.total_bytes / connections.max(1)).clamp(MIN_BYTES, MAX_BYTES);
        let bound = share == MIN_BYTES || share == MAX_BYTES;
        let has_changed = share != self.limit
            && (bound || share <= self.limit / 2 || share >= self.limit.saturating_mul(2));
        if has_changed {
            self.limit = share;
        }
        has_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_all_connections_stay_within_twice_the_total() {
        let mut buffers = ReceiveBuffers::new(1 << 30);
        let total = (1 << 30) / SHARE as usize;
        let mut changes = 0;
        for connections in (1..=1_000).chain((1..1_000).rev()) {
            changes += usize::from(buffers.adapt(connections));
            let bound = (2 * total).max(connections * MIN_BYTES);
            assert!(buffers.limit * connections <= bound, "{connections} of {}", buffers.limit);
        }
        assert_eq!(buffers.limit, MAX_BYTES);
        assert!(changes <= 12, "{changes}");
    }
}
