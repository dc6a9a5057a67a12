"""Receives flows. A connection starts with a line ``weir-flow COFLOW FLOW``, which is not part of the data."""

from __future__ import annotations

import select
import socket
import time
from typing import Dict, List, Optional, Tuple

# The first word of a connection.
WORD = b"weir-flow"

# Maximum length of an id, and of a first line: the word, an id, a number of ten digits, two spaces and a newline.
LONGEST_ID = 128
LONGEST = len(WORD) + LONGEST_ID + 13

# Maximum time for a first line.
PATIENCE = 5.0

# Maximum number of connections that wait for `Inbox.get`, with or without a first line. Further ones stay in the kernel's backlog.
MOST = 1024

# Indexes of flows are below this number.
END = 1 << 32


def _is_id(text: bytes) -> bool:
    return 1 <= len(text) <= LONGEST_ID and all(0x21 <= byte <= 0x7E for byte in text)


def head(coflow: str, flow: int) -> bytes:
    """The first line of a connection."""
    name = coflow.encode()
    if not _is_id(name):
        raise ValueError(f"coflow {coflow!r:.200} is invalid; expected 1 to {LONGEST_ID} printable characters without spaces")
    if not 0 <= flow < END:
        raise ValueError(f"flow {flow} is out of range; expected a number from 0 to {END - 1}")
    return b"%s %s %d\n" % (WORD, name, flow)


def _flow_of(line: bytes) -> Optional[Tuple[str, int]]:
    """Parses a first line without its newline into its flow; None if the line is malformed."""
    words = line.split(b" ")
    if len(words) != 3 or words[0] != WORD or not _is_id(words[1]) or not words[2].isdigit():
        return None
    flow = int(words[2])
    return (words[1].decode(), flow) if flow < END else None


class _New:
    """A connection whose first line has not arrived."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.socket = sock
        self.line = b""
        self.until = time.monotonic() + PATIENCE

    def read_line(self) -> Optional[Tuple[str, int]]:
        """Reads the received part of the first line, and no data after it. Returns the flow once the line is complete, else None. Raises
        OSError if the line is malformed or late."""
        while len(self.line) < LONGEST:
            try:
                byte = self.socket.recv(1)
            except BlockingIOError:
                if time.monotonic() < self.until:
                    return None
                raise OSError("the first line did not arrive in time") from None
            if byte == b"\n":
                found = _flow_of(self.line)
                if found is None:
                    break
                self.socket.setblocking(True)
                return found
            if not byte:
                break
            self.line += byte
        raise OSError("the first line is malformed")


class Inbox:
    """A port at which a program receives flows; port 0 selects a free port. One thread at a time may use it.

    Every client that can connect can send any flow, without authentication.
    """

    def __init__(self, address: Tuple[str, int]) -> None:
        family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        self._listener = socket.create_server(address, family=family)
        self._listener.setblocking(False)
        self._new: List[_New] = []
        self._waiting: Dict[Tuple[str, int], socket.socket] = {}

    @property
    def address(self) -> Tuple[str, int]:
        """The address and port for senders."""
        host, port = self._listener.getsockname()[:2]
        return host, port

    def get(self, coflow: str, flow: int, patience: float) -> socket.socket:
        """Returns the connection of a flow, from which the caller receives the data.

        If the sender connects twice, the later connection replaces the earlier one. A connection also ends if the sender is killed:
        compare the size, if you know it. Flows can be requested in any order; connections of other flows wait. Raises
        :class:`TimeoutError` if no sender connects within ``patience`` seconds.
        """
        until = time.monotonic() + patience
        while (coflow, flow) not in self._waiting:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"flow {flow} of coflow {coflow!r} did not arrive within {patience} s")
            self._wait(left)
            self._take()
        return self._waiting.pop((coflow, flow))

    def close(self) -> None:
        """Closes the port and all waiting connections."""
        self._listener.close()
        for sock in [new.socket for new in self._new] + list(self._waiting.values()):
            sock.close()
        self._new, self._waiting = [], {}

    def __enter__(self) -> Inbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _has_room(self) -> bool:
        return len(self._new) + len(self._waiting) < MOST

    def _wait(self, most: float) -> None:
        """Waits for data or a connection, at most until the next first line is overdue."""
        now = time.monotonic()
        most = min([most] + [max(new.until - now, 0.0) for new in self._new])
        polled = select.poll()
        for new in self._new:
            polled.register(new.socket, select.POLLIN)
        if self._has_room():
            polled.register(self._listener, select.POLLIN)
        # `poll` rounds down to milliseconds: without + 1 it would return at once, again and again.
        polled.poll(min(most * 1000 + 1, 3_600_000))

    def _take(self) -> None:
        """Accepts connections and reads first lines."""
        while self._has_room():
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                break
            except ConnectionAbortedError:
                # The client closed the connection before it was accepted.
                continue
            self._new.append(_New(sock))
        for new in self._new[:]:
            try:
                found = new.read_line()
            except OSError:
                self._new.remove(new)
                new.socket.close()
                continue
            if found is not None:
                self._new.remove(new)
                before = self._waiting.pop(found, None)
                if before is not None:
                    before.close()
                self._waiting[found] = new.socket
