"""Lines, chunks and the receiver's state of the flow protocol (docs/flow-protocol.md), without sockets."""

from __future__ import annotations

import ipaddress
import re
import zlib
from dataclasses import dataclass
from typing import Optional

# The maximum length of a line with its newline.
MAX_LINE_BYTES = 256

# The maximum length of a coflow's name.
MAX_NAME_BYTES = 128

# The limits of numbers in a first line.
MAX_FLOW = (1 << 32) - 1
MAX_GENERATION = (1 << 16) - 1
MAX_OFFSET = 1 << 62

# The header of a chunk, and the maximum length of its data.
HEADER_BYTES = 8
MAX_CHUNK_BYTES = 1 << 16

# A receiver sends an acknowledgement at least this often, in seconds, also without new data.
ACK_INTERVAL = 10.0

# The maximum number of read bytes without an acknowledgement.
MAX_UNACKED_BYTES = 256 << 10

REASONS = ("unknown-coflow", "busy", "unreachable", "lost", "corrupt", "gap", "replaced", "invalid")

_PROTOCOL_WORD = "weir-flow/2"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,19}")
_NAME = re.compile(r"[!-~]{1,%d}" % MAX_NAME_BYTES)


class Reset(Exception):
    """The reason to reset a connection."""


def check_flow(coflow: str, flow: int) -> None:
    """Raises :class:`ValueError` if the name or the number of a flow is invalid."""
    if _NAME.fullmatch(coflow) is None:
        raise ValueError(
            f"coflow {coflow!r:.200} is invalid; expected 1 to {MAX_NAME_BYTES} printable ASCII characters without spaces"
        )
    if not 0 <= flow <= MAX_FLOW:
        raise ValueError(f"flow {flow} is out of range; expected a number from 0 to {MAX_FLOW}")


def _number(text: str, maximum: int) -> Optional[int]:
    number = int(text) if _NUMBER.fullmatch(text) else None
    return number if number is not None and number <= maximum else None


def is_address(text: str) -> bool:
    """Whether a text is an IP address and a port, for example ``10.0.0.3:7000`` or ``[fd00::3]:7000``."""
    host, _, port = text.rpartition(":")
    try:
        if host.startswith("[") and host.endswith("]"):
            ipaddress.IPv6Address(host[1:-1])
        else:
            ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return _number(port, (1 << 16) - 1) is not None


@dataclass(frozen=True)
class FirstLine:
    """The first line of a connection."""

    coflow: str
    flow: int
    generation: int
    offset: int
    receiver: str

    def encode(self) -> bytes:
        line = f"{_PROTOCOL_WORD} {self.coflow} {self.flow} {self.generation} {self.offset} {self.receiver}\n"
        return line.encode()

    @classmethod
    def parse(cls, line: bytes) -> Optional[FirstLine]:
        """Parses a line without its newline; None if it is malformed."""
        words = line.decode("latin-1").split(" ")
        if len(words) != 6 or words[0] != _PROTOCOL_WORD or _NAME.fullmatch(words[1]) is None or not is_address(words[5]):
            return None
        flow, generation = _number(words[2], MAX_FLOW), _number(words[3], MAX_GENERATION)
        offset = _number(words[4], MAX_OFFSET)
        if flow is None or generation is None or offset is None:
            return None
        return cls(words[1], flow, generation, offset, words[5])


def parse_ack(line: bytes) -> Optional[int]:
    """The position of an `ack` line; None if it is another line."""
    word, _, offset = line.decode("latin-1").partition(" ")
    return _number(offset, MAX_OFFSET) if word == "ack" else None


def parse_reset(line: bytes) -> Optional[str]:
    """The reason of a `reset` line; None if it is another line."""
    word, _, reason = line.decode("latin-1").partition(" ")
    return reason if word == "reset" and reason in REASONS else None


def encode_chunk(data: bytes) -> bytes:
    """Encodes a chunk; without data, the end of the flow."""
    return len(data).to_bytes(4, "big") + zlib.crc32(data).to_bytes(4, "big") + data


class ReceiveState:
    """The state of a flow at its receiver, over all its connections. Holds at most one chunk and the bytes of one call."""

    def __init__(self) -> None:
        self.has_ended = False
        self._generation = -1
        self._buffer = bytearray()
        # How many bytes of the connection are left that arrived before.
        self._skip = 0
        # The ends of the last valid chunk, of the last chunk that the program has read, and the last acknowledged position.
        self._position = self._read = self._acked = 0

    def accept(self, line: FirstLine) -> bytes:
        """Accepts a connection, and returns the answer. Raises :class:`Reset` if the new connection is refused."""
        if line.generation <= self._generation:
            raise Reset("replaced")
        if line.offset > self._position:
            raise Reset("gap")
        self._generation = line.generation
        self._skip = self._position - line.offset
        self._buffer.clear()
        return self.ack()

    def add(self, data: bytes) -> None:
        """Adds bytes of the current connection. :meth:`next_chunk` has returned None before."""
        skipped = min(self._skip, len(data))
        self._skip -= skipped
        self._buffer += data[skipped:]

    def next_chunk(self) -> Optional[bytes]:
        """Returns the data of the next chunk, empty at the end of the flow; None if more bytes are needed. Raises :class:`Reset`."""
        if self.has_ended:
            if self._buffer:
                raise Reset("invalid")
            return None
        if len(self._buffer) < HEADER_BYTES:
            return None
        length = int.from_bytes(self._buffer[:4], "big")
        if length > MAX_CHUNK_BYTES:
            raise Reset("corrupt")
        if len(self._buffer) < HEADER_BYTES + length:
            return None
        data = bytes(self._buffer[HEADER_BYTES : HEADER_BYTES + length])
        if zlib.crc32(data) != int.from_bytes(self._buffer[4:HEADER_BYTES], "big"):
            raise Reset("corrupt")
        del self._buffer[: HEADER_BYTES + length]
        self._position += HEADER_BYTES + length
        self.has_ended = length == 0
        return data

    def mark_read(self) -> Optional[bytes]:
        """Notes that the program has read all returned chunks. Returns an acknowledgement if one is due."""
        self._read = self._position
        unacked = self._read - self._acked
        is_due = unacked >= MAX_UNACKED_BYTES or 2 * unacked >= self._read or self.has_ended
        return self.ack() if unacked > 0 and is_due else None

    def ack(self) -> bytes:
        """The current acknowledgement: the answer to a first line, and every `ACK_INTERVAL`."""
        self._acked = self._read
        return b"ack %d\n" % self._read

    def close(self) -> None:
        """Refuses all further connections, because the program gave up the flow."""
        self._generation = MAX_GENERATION
