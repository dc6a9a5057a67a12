"""Where a program receives flows. A connection begins with a line ``weir-flow COFLOW FLOW``, which is not part of the data."""

from __future__ import annotations

import select
import socket
import time
from typing import Dict, List, Optional, Tuple

# What a connection begins with.
WORD = b"weir-flow"

# The longest id, and the longest first line: the word, an id, a number of ten digits, and what is between and after.
LONGEST_ID = 128
LONGEST = len(WORD) + LONGEST_ID + 13

# How long a first line may take.
PATIENCE = 5.0

# The most connections that wait for `Inbox.get`, those that have not yet said what they are included. More of them wait in the system.
MOST = 1024

# Flows are called by numbers below this.
END = 1 << 32


def _is_id(text: bytes) -> bool:
    return 1 <= len(text) <= LONGEST_ID and all(0x21 <= byte <= 0x7E for byte in text)


def head(coflow: str, flow: int) -> bytes:
    """What a connection begins with."""
    name = coflow.encode()
    if not _is_id(name):
        raise ValueError(f"coflow: {coflow!r:.200}: expected 1 to {LONGEST_ID} printable characters without spaces")
    if not 0 <= flow < END:
        raise ValueError(f"flow: {flow}: expected a number from 0 to {END - 1}")
    return b"%s %s %d\n" % (WORD, name, flow)


def _flow_of(line: bytes) -> Optional[Tuple[str, int]]:
    """Which flow a first line is about, without its end."""
    words = line.split(b" ")
    if len(words) != 3 or words[0] != WORD or not _is_id(words[1]) or not words[2].isdigit():
        return None
    flow = int(words[2])
    return (words[1].decode(), flow) if flow < END else None


class _New:
    """A connection that has not yet said what it is."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.socket = sock
        self.line = b""
        self.until = time.monotonic() + PATIENCE

    def hear(self) -> Optional[Tuple[str, int]]:
        """Reads what is there of the first line, and nothing beyond it. Raises OSError if it is no such line."""
        while len(self.line) < LONGEST:
            try:
                byte = self.socket.recv(1)
            except BlockingIOError:
                if time.monotonic() < self.until:
                    return None
                raise OSError("no first line came") from None
            if byte == b"\n":
                found = _flow_of(self.line)
                if found is None:
                    break
                self.socket.setblocking(True)
                return found
            if not byte:
                break
            self.line += byte
        raise OSError("not a first line")


class Inbox:
    """A port at which a program receives flows; port 0 is any that is free. One thread at a time may use it.

    Whoever reaches it can send any flow: as sockets of programs are, it is as safe as its network.
    """

    def __init__(self, address: Tuple[str, int]) -> None:
        family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        self._listener = socket.create_server(address, family=family)
        self._listener.setblocking(False)
        self._new: List[_New] = []
        self._waiting: Dict[Tuple[str, int], socket.socket] = {}

    @property
    def address(self) -> Tuple[str, int]:
        """Where senders reach it."""
        host, port = self._listener.getsockname()[:2]
        return host, port

    def get(self, coflow: str, flow: int, patience: float) -> socket.socket:
        """The connection of a flow: what is received from it is its data.

        If the sender connects twice, the later one counts. That it ends says that no more comes, also where the sender was killed: whoever
        knows the size compares. Flows may be asked for in any order; those that nobody asks for wait. Raises
        :class:`TimeoutError` if nobody sends it within ``patience`` seconds.
        """
        until = time.monotonic() + patience
        while (coflow, flow) not in self._waiting:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"flow {flow} of coflow {coflow!r} did not come within {patience} s")
            self._wait(left)
            self._take()
        return self._waiting.pop((coflow, flow))

    def close(self) -> None:
        """Lets go of all that waits, and of the port."""
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
        """Waits until something comes, or somebody's time is over."""
        now = time.monotonic()
        most = min([most] + [max(new.until - now, 0.0) for new in self._new])
        polled = select.poll()
        for new in self._new:
            polled.register(new.socket, select.POLLIN)
        if self._has_room():
            polled.register(self._listener, select.POLLIN)
        # Of a part of a millisecond it would make none, and try again and again.
        polled.poll(min(most * 1000 + 1, 3_600_000))

    def _take(self) -> None:
        """Takes what has come."""
        while self._has_room():
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                break
            except ConnectionAbortedError:
                # Who went away before they were let in.
                continue
            self._new.append(_New(sock))
        for new in self._new[:]:
            try:
                found = new.hear()
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
