"""Receives flows. A connection starts with a line ``weir-flow COFLOW FLOW``, which is not part of the data."""

from __future__ import annotations

import select
import socket
import time
from typing import Dict, List, Optional, Tuple

# The first word of a connection.
PREFIX = b"weir-flow"

# Maximum length of an id, and of a first line: the word, an id, a number of ten digits, two spaces and a newline.
MAX_ID_LENGTH = 128
MAX_LINE_LENGTH = len(PREFIX) + MAX_ID_LENGTH + 13

# Maximum time for a first line.
FIRST_LINE_TIMEOUT = 5.0

# Maximum number of connections that wait for `FlowReceiver.receive`, with or without a first line. Others stay in the kernel's backlog.
MAX_WAITING = 1024

# Indexes of flows are below this number.
FLOW_END = 1 << 32


def _is_id(text: bytes) -> bool:
    return 1 <= len(text) <= MAX_ID_LENGTH and all(0x21 <= byte <= 0x7E for byte in text)


def first_line(coflow: str, flow: int) -> bytes:
    """The first line of a connection."""
    name = coflow.encode()
    if not _is_id(name):
        raise ValueError(f"coflow {coflow!r:.200} is invalid; expected 1 to {MAX_ID_LENGTH} printable characters without spaces")
    if not 0 <= flow < FLOW_END:
        raise ValueError(f"flow {flow} is out of range; expected a number from 0 to {FLOW_END - 1}")
    return b"%s %s %d\n" % (PREFIX, name, flow)


def _parse_first_line(line: bytes) -> Optional[Tuple[str, int]]:
    """Parses a first line without its newline into its flow; None if the line is malformed."""
    words = line.split(b" ")
    if len(words) != 3 or words[0] != PREFIX or not _is_id(words[1]) or not words[2].isdigit():
        return None
    flow = int(words[2])
    return (words[1].decode(), flow) if flow < FLOW_END else None


class _PendingConnection:
    """A connection whose first line has not arrived."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.socket = sock
        self.line = b""
        self.deadline = time.monotonic() + FIRST_LINE_TIMEOUT

    def read_line(self) -> Optional[Tuple[str, int]]:
        """Reads the received part of the first line, and no data after it. Returns the flow once the line is complete, else None. Raises
        OSError if the line is malformed or late."""
        while len(self.line) < MAX_LINE_LENGTH:
            try:
                byte = self.socket.recv(1)
            except BlockingIOError:
                if time.monotonic() < self.deadline:
                    return None
                raise OSError("the first line did not arrive in time") from None
            if byte == b"\n":
                flow = _parse_first_line(self.line)
                if flow is None:
                    break
                self.socket.setblocking(True)
                return flow
            if not byte:
                break
            self.line += byte
        raise OSError("the first line is malformed")


class FlowReceiver:
    """A port at which a program receives flows; port 0 selects a free port. One thread at a time may use it.

    Every client that can connect can send any flow, without authentication.
    """

    def __init__(self, address: Tuple[str, int]) -> None:
        family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        self._listener = socket.create_server(address, family=family)
        self._listener.setblocking(False)
        self._pending: List[_PendingConnection] = []
        self._waiting: Dict[Tuple[str, int], socket.socket] = {}

    @property
    def address(self) -> Tuple[str, int]:
        """The address and port for senders."""
        host, port = self._listener.getsockname()[:2]
        return host, port

    def receive(self, coflow: str, flow: int, timeout: float) -> socket.socket:
        """Returns the connection of a flow, from which the caller receives the data.

        If the sender connects twice, the later connection replaces the earlier one. A connection also ends if the sender is killed:
        compare the size, if you know it. Flows can be requested in any order; connections of other flows wait. Raises
        :class:`TimeoutError` if no sender connects within ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while (coflow, flow) not in self._waiting:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError(f"flow {flow} of coflow {coflow!r} did not arrive within {timeout} s")
            self._wait_readable(remaining)
            self._accept_pending()
        return self._waiting.pop((coflow, flow))

    def close(self) -> None:
        """Closes the port and all waiting connections."""
        self._listener.close()
        for sock in [pending.socket for pending in self._pending] + list(self._waiting.values()):
            sock.close()
        self._pending, self._waiting = [], {}

    def __enter__(self) -> FlowReceiver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _has_room(self) -> bool:
        return len(self._pending) + len(self._waiting) < MAX_WAITING

    def _wait_readable(self, timeout: float) -> None:
        """Waits for data or a connection, at timeout until the next first line is overdue."""
        now = time.monotonic()
        timeout = min([timeout] + [max(pending.deadline - now, 0.0) for pending in self._pending])
        polled = select.poll()
        for pending in self._pending:
            polled.register(pending.socket, select.POLLIN)
        if self._has_room():
            polled.register(self._listener, select.POLLIN)
        # `poll` rounds down to milliseconds: without + 1 it would return at once, again and again.
        polled.poll(min(timeout * 1000 + 1, 3_600_000))

    def _accept_pending(self) -> None:
        """Accepts connections and reads first lines."""
        while self._has_room():
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                break
            except ConnectionAbortedError:
                # The client closed the connection before it was accepted.
                continue
            self._pending.append(_PendingConnection(sock))
        for pending in self._pending[:]:
            try:
                flow = pending.read_line()
            except OSError:
                self._pending.remove(pending)
                pending.socket.close()
                continue
            if flow is not None:
                self._pending.remove(pending)
                before = self._waiting.pop(flow, None)
                if before is not None:
                    before.close()
                self._waiting[flow] = pending.socket
