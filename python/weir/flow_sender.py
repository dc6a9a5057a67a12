"""Sends flows over a relay or directly, and over further connections when one fails (docs/flow-protocol.md)."""

from __future__ import annotations

import errno
import itertools
import os
import random
import re
import select
import socket
import ssl
import time
from collections import deque
from dataclasses import dataclass
from typing import Deque, Optional, Tuple, Union

from .agent import Agent, AgentError, GatedSocket
from .flow_protocol import (
    HEADER_BYTES,
    MAX_CHUNK_BYTES,
    MAX_GENERATION,
    MAX_LINE_BYTES,
    FirstLine,
    check_flow,
    encode_chunk,
    parse_ack,
    parse_reset,
)
from .flow_tls import FlowSocket, FlowTls
from .gate import Wake

# The environment variable with the addresses of the region's relays.
RELAY_VARIABLE = "WEIR_RELAY"
# An IPv6 address in brackets, an IPv4 address, or a name; and a port.
_RELAY = re.compile(r"(?:\[(?P<ip>[0-9A-Fa-f:.]+)\]|(?P<host>[^\s\[\]:,]+)):(?P<port>[0-9]{1,5})")

# The limit of unacknowledged bytes.
WINDOW_BYTES = 8 << 20

# All times are in seconds. Time for a connection, and without a line or without progress while bytes wait for an acknowledgement.
CONNECT_TIMEOUT = 5.0
SILENCE_TIMEOUT = 30.0
PROGRESS_TIMEOUT = 300.0

# The wait before a connection is replaced over the same path, and its limit for direct connections.
RETRY_WAIT = 0.1
MAX_DIRECT_WAIT = 5.0

# How long the receiver may answer no direct connection.
DIRECT_TIMEOUT = 60.0

# What resets mean for the sender's program.
EXPLANATIONS = {
    "gap": " (it lacks earlier data of the flow: the receiver was restarted)",
    "replaced": " (another sender sent the flow, the receiver's program closed it, or the program received it before)",
}

# The maximum wait at the end of a short flow for the coordinator's answer about it.
MAX_ANSWER_WAIT = 0.05

# The limits of data that the kernel has not sent, in bytes: a paused sender cannot take this data back. At a rate, the limit is what the
# flow sends in a time, and at least the minimum.
MIN_UNSENT_BYTES = 24 << 10
FREE_UNSENT_BYTES = 256 << 10
UNSENT_TIME = 0.001

# How often a connection is replaced without progress: over the relay, and directly because of corrupt data.
MAX_RELAY_RETRIES = 3
MAX_CORRUPT_RETRIES = 16


class _RelayCounter:
    """The positions of relays among several ones. It begins at random: programs that send one flow each must not all use the first relay."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self._numbers = itertools.count(random.SystemRandom().randrange(1 << 30))

    def next(self) -> int:
        return next(self._numbers)


_RELAYS = _RelayCounter()
os.register_at_fork(after_in_child=_RELAYS.restart)


@dataclass(frozen=True)
class Route:
    """Where a flow goes: the receiver, and the relay of this region. Without a relay, the sender connects to the receiver."""

    receiver: Tuple[str, int]
    relay: Optional[Tuple[str, int]] = None

    @classmethod
    def from_environment(cls, receiver: Tuple[str, int]) -> Route:
        """The route over the relay in the environment variable ``WEIR_RELAY``, for example ``10.0.0.1:7711`` or
        ``relay.example:7711``; direct without it. Of several relays, separated by commas, each call returns the next one."""
        text = os.environ.get(RELAY_VARIABLE, "")
        if not text:
            return cls(receiver)
        relays = [_parse_relay(relay) for relay in text.split(",")]
        return cls(receiver, relays[_RELAYS.next() % len(relays)])


@dataclass(frozen=True)
class SentFlow:
    """The number of sent bytes. ``unpaced`` is why the last direct connection was plain TCP without a rate at its end; None if the flow was
    scheduled, or if relays forwarded it."""

    bytes: int
    unpaced: Optional[AgentError]


class SendTimeout(TimeoutError):
    """A call of a sender took too long. The flow has not failed. ``taken`` is the number of bytes that `write` has taken."""

    taken = 0


def _parse_relay(text: str) -> Tuple[str, int]:
    """The host and the port of a relay."""
    parts = _RELAY.fullmatch(text)
    port = int(parts["port"]) if parts else 0
    if parts is None or not 1 <= port <= (1 << 16) - 1:
        raise ValueError(f"{RELAY_VARIABLE}: {text!r} is no address; expected HOST:PORT, for example 10.0.0.1:7711")
    return parts["ip"] or parts["host"], port


def _resolve(address: Tuple[str, int]) -> str:
    """The first address of a name as IP:PORT."""
    family, _, _, _, resolved = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
    host, port = str(resolved[0]), int(resolved[1])
    return f"[{host}]:{port}" if family == socket.AF_INET6 else f"{host}:{port}"


class _Window:
    """Chunks that are unacknowledged, or acknowledged on an earlier connection and unsent on this one."""

    def __init__(self) -> None:
        self.acked = 0
        # The positions of the first chunk and of the end of the last, and the highest sent position of all connections.
        self.start = self.end = self.max_sent = 0
        self._chunks: Deque[bytes] = deque()
        self._partial = bytearray()
        # The next bytes to send: a chunk, a place in it, and its position.
        self._next_chunk = self._next_byte = self._sent = 0

    def write(self, data: memoryview) -> int:
        """Takes data as far as there is room, and returns the number of taken bytes."""
        taken = 0
        while taken < len(data):
            used = self.end - self.start + HEADER_BYTES + len(self._partial)
            room = min(WINDOW_BYTES - used, MAX_CHUNK_BYTES - len(self._partial))
            if room <= 0:
                self.flush()
                break
            part = data[taken : taken + room]
            self._partial += part
            taken += len(part)
            if len(self._partial) == MAX_CHUNK_BYTES:
                self.flush()
        return taken

    def flush(self) -> None:
        """Makes a chunk of the data that does not fill one."""
        if self._partial:
            self.push(bytes(self._partial))
            self._partial.clear()

    def push(self, data: bytes) -> None:
        chunk = encode_chunk(data)
        self._chunks.append(chunk)
        self.end += len(chunk)

    def unsent(self) -> memoryview:
        if self._next_chunk == len(self._chunks):
            return memoryview(b"")
        return memoryview(self._chunks[self._next_chunk])[self._next_byte :]

    def on_sent(self, length: int) -> None:
        self._sent += length
        self.max_sent = max(self.max_sent, self._sent)
        self._next_byte += length
        if self._next_byte == len(self._chunks[self._next_chunk]):
            self._next_chunk += 1
            self._next_byte = 0
        self._drop(min(self.acked, self._sent))

    def on_ack(self, offset: int) -> None:
        self.acked = offset
        self._drop(min(self.acked, self._sent))

    def rewind(self) -> None:
        """Continues at the first unacknowledged chunk."""
        self._next_chunk = self._next_byte = 0
        self._drop(self.acked)
        self._sent = self.start

    def _drop(self, position: int) -> None:
        while self._chunks and self.start + len(self._chunks[0]) <= position:
            self.start += len(self._chunks.popleft())
            self._next_chunk = max(self._next_chunk - 1, 0)


class FlowSender:
    """The sender of a flow. If a connection fails, the sender sends what the receiver has not acknowledged over another one.

    Holds at most 8 MiB of unacknowledged data; :meth:`write` waits while there is no room. All work occurs in calls of `write`, `flush` and
    `finish`. Without `finish`, the flow has no end, and its receiver gets an error. With ``tls``, the flow is encrypted, except inside a host
    by default.

    With an agent, the sender writes to its connection only while the agent lets it. While the agent is absent, or does not answer, the
    sender writes freely.

    ``timeout`` limits the time of each call of `write`, `flush` and `finish`, in seconds. A call that takes longer raises
    :class:`SendTimeout`; the next call continues. Without it, calls wait as long as the receiver acknowledges, or the agent pauses the
    flow. Another thread can :meth:`cancel` the flow.

    A ``with`` block calls `finish`, or :meth:`close` after an exception.
    """

    def __init__(
        self,
        coflow: str,
        flow: int,
        route: Route,
        agent: Optional[Agent] = None,
        tls: Optional[FlowTls] = None,
        timeout: Optional[float] = None,
    ) -> None:
        check_flow(coflow, flow)
        self._first_line = FirstLine(coflow, flow, 0, 0, _resolve(route.receiver))
        self._route = route
        self._agent = agent
        self._tls = tls
        self._timeout = timeout
        self._call_end: Optional[float] = None
        self._wake = Wake()
        # The gate of a direct connection of a sender with an agent.
        self._gate: Optional[GatedSocket] = None
        self._sent = SentFlow(0, None)
        self._window = _Window()
        self._is_finished = False
        self._failure: Optional[OSError] = None
        self._socket: Optional[FlowSocket] = None
        self._lines = b""
        self._is_over_relay = route.relay is not None
        self._connect_at = self._last_heard = self._last_progress = time.monotonic()
        # Connections that were lost on this path since the last progress, and since when the receiver answered no direct connection.
        self._retries = 0
        self._unreachable_since: Optional[float] = None

    def write(self, data: Union[bytes, bytearray, memoryview]) -> int:
        """Takes all data; waits while the window has no room. Raises :class:`OSError` if the flow has failed."""
        if self._is_finished:
            raise ValueError("the flow is finished or closed")
        self._begin_call()
        view = memoryview(data).cast("B")
        taken = 0
        while taken < len(view):
            length = self._window.write(view[taken:])
            taken += length
            self._sent = SentFlow(self._sent.bytes + length, self._sent.unpaced)
            if length == 0 or self._window.unsent():
                try:
                    self._drive(may_wait=length == 0)
                except SendTimeout as error:
                    error.taken = taken
                    raise
        return taken

    def flush(self) -> None:
        """Waits until the kernel has all data. The receiver may not have it yet."""
        self._begin_call()
        self._window.flush()
        while self._window.unsent():
            self._drive(may_wait=True)

    def finish(self) -> SentFlow:
        """Ends the flow, and waits until the receiver has read all data. Raises :class:`OSError` if the flow has failed."""
        self._begin_call()
        if not self._is_finished:
            self._is_finished = True
            self._window.flush()
            self._window.push(b"")
        while self._window.acked < self._window.end:
            self._drive(may_wait=True)
        if self._gate is not None:
            self._wait_for_answer(self._gate)
            # Without this, the end of the connection would be a failure of the flow to the agent.
            self._gate.mark_done()
            self._sent = SentFlow(self._sent.bytes, self._gate.unscheduled())
        self._disconnect()
        return self._sent

    def _wait_for_answer(self, gate: GatedSocket) -> None:
        """Waits until the coordinator has answered whether it schedules the flow, which may have ended before. The flow has arrived in any
        case."""
        end = time.monotonic() + MAX_ANSWER_WAIT
        if self._call_end is not None:
            end = min(end, self._call_end)
        while True:
            self._wake.reset()
            left = end - time.monotonic()
            if left <= 0 or self._wake.is_cancelled or not gate.is_unanswered():
                return
            self._wake.wait(left)

    def cancel(self) -> None:
        """Makes the current call, in another thread, and all later ones raise :class:`ConnectionAbortedError`. The receiver gets an error."""
        self._wake.cancel()

    def _begin_call(self) -> None:
        self._call_end = None if self._timeout is None else time.monotonic() + self._timeout

    def _check_call(self, may_wait: bool) -> None:
        """Raises :class:`OSError` if the flow was cancelled, or the current call takes too long."""
        if self._wake.is_cancelled:
            self._disconnect()
            self._fail(ConnectionAbortedError(errno.ECONNABORTED, self._message("the sender was cancelled")))
        if may_wait and self._call_end is not None and time.monotonic() >= self._call_end:
            raise SendTimeout(errno.ETIMEDOUT, self._message(f"the call did not end within {self._timeout} s"))

    def close(self) -> None:
        """Closes the connection. The receiver gets an error, unless `finish` has returned."""
        self._is_finished = True
        if self._failure is None:
            self._failure = ConnectionAbortedError(errno.ECONNABORTED, self._message("the sender was closed"))
        self._disconnect()

    def _disconnect(self) -> None:
        sock, self._socket = self._socket, None
        if sock is not None:
            try:
                # The agent may hold a duplicate of the socket, so closing it would not close the connection.
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            sock.close()
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.close()

    def __enter__(self) -> FlowSender:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.finish()
        else:
            self.close()

    def __del__(self) -> None:
        if hasattr(self, "_socket"):
            self._disconnect()

    def _drive(self, may_wait: bool) -> None:
        """Connects, sends and receives as far as possible. If `may_wait`, waits until something is possible."""
        if self._failure is not None:
            raise self._failure
        self._check_call(may_wait)
        if self._socket is None:
            self._connect(may_wait)
        else:
            self._exchange(self._socket, may_wait)

    def _connect(self, may_wait: bool) -> None:
        wait = self._connect_at - time.monotonic()
        if wait > 0:
            if not may_wait:
                return
            self._wake.reset()
            self._wake.wait(wait if self._call_end is None else max(min(wait, self._call_end - time.monotonic()), 0.0))
            if time.monotonic() < self._connect_at:
                return
        try:
            self._socket = self._open_connection()
        except ssl.SSLCertVerificationError as error:
            if not self._is_over_relay:
                # Another connection to this receiver would have the same certificate.
                text = self._message(f"the sender refuses the receiver: {error}")
                self._fail(PermissionError(errno.EACCES, text))
            self._lose("lost", error)
            return
        except OSError as error:
            self._lose("lost", error)
            return
        self._lines = b""
        self._last_heard = self._last_progress = time.monotonic()

    def _open_connection(self) -> FlowSocket:
        host, _, port = self._first_line.receiver.rpartition(":")
        address = (host.strip("[]"), int(port))
        if self._is_over_relay and self._route.relay is not None:
            address = self._route.relay
        sock = socket.create_connection(address, CONNECT_TIMEOUT)
        connection: FlowSocket = sock
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._agent is not None and not self._is_over_relay:
                self._gate = self._agent._open_gate(self._first_line.coflow, self._first_line.flow, sock, self._wake)
            if self._tls is not None:
                connection = self._tls.connect(sock, self._is_over_relay)
            # The buffer of a new socket has room for a line.
            connection.send(self._first_line.encode())
            connection.setblocking(False)
        except BaseException:
            # The agent may hold a duplicate of the socket.
            self._socket = connection
            self._disconnect()
            raise
        return connection

    def _may_write(self) -> bool:
        return self._gate is None or not self._gate.permission().is_paused

    def _tell_agent(self) -> None:
        """Tells the agent whether the kernel lacks data of the flow: it sees only data that the kernel has."""
        if self._gate is not None:
            self._gate.tell(bool(self._window.unsent()))

    def _exchange(self, sock: FlowSocket, may_wait: bool) -> None:
        """Sends chunks and processes lines."""
        if may_wait:
            self._wake.reset()
            self._tell_agent()
            has_output = bool(self._window.unsent()) and self._may_write()
            polled = select.poll()
            polled.register(sock, select.POLLIN | (select.POLLOUT if has_output else 0))
            polled.register(self._wake, select.POLLIN)
            deadline = self._deadline() if self._call_end is None else min(self._deadline(), self._call_end)
            # `poll` rounds down to milliseconds.
            polled.poll(max(deadline - time.monotonic(), 0.0) * 1000 + 1)
        error: Optional[Exception] = None
        try:
            self._send_chunks(sock)
        except OSError as send_error:
            error = send_error
        self._tell_agent()
        if not self._may_write():
            # A connection that waits for the sender is not lost for want of progress.
            self._last_progress = time.monotonic()
        # A reset may have arrived before the connection failed.
        try:
            reason = self._read_lines(sock)
        except (OSError, ValueError) as read_error:
            reason, error = "lost", error or read_error
        if reason is None and self._window.acked < self._window.end and time.monotonic() >= self._deadline():
            error = error or TimeoutError("no acknowledgement arrived")
        if reason is not None or error is not None:
            self._lose(reason or "lost", error)

    def _deadline(self) -> float:
        return min(self._last_heard + SILENCE_TIMEOUT, self._last_progress + PROGRESS_TIMEOUT)

    def _send_chunks(self, sock: FlowSocket) -> None:
        """Sends chunks until the kernel's buffer is full, or the agent pauses the flow."""
        if self._gate is not None:
            self._gate.limit_unsent(MIN_UNSENT_BYTES, FREE_UNSENT_BYTES, UNSENT_TIME)
        try:
            while (unsent := self._window.unsent()) and self._may_write():
                self._window.on_sent(sock.send(unsent))
        except BlockingIOError:
            pass

    def _read_lines(self, sock: FlowSocket) -> Optional[str]:
        """Processes lines that have arrived. Returns the reason of a reset."""
        try:
            data = sock.recv(16 << 10)
        except BlockingIOError:
            return None
        if not data:
            if self._is_finished and self._window.acked == self._window.end:
                return None
            raise ConnectionResetError(errno.ECONNRESET, "the connection was closed")
        *lines, self._lines = (self._lines + data).split(b"\n")
        if len(self._lines) >= MAX_LINE_BYTES:
            raise ValueError("a line of the receiver is too long")
        for line in lines:
            reason = parse_reset(line)
            if reason is not None:
                return reason
            offset = parse_ack(line)
            if offset is None or offset > self._window.max_sent:
                raise ValueError(f"line {line!r:.300} of the receiver is malformed; expected `ack OFFSET` or `reset REASON`")
            self._on_ack(offset)
        return None

    def _on_ack(self, offset: int) -> None:
        self._last_heard = time.monotonic()
        self._unreachable_since = None
        if offset > self._window.acked:
            self._retries = 0
            self._last_progress = self._last_heard
            self._window.on_ack(offset)
        elif self._window.acked == self._window.max_sent:
            # No bytes waited.
            self._last_progress = self._last_heard

    def _lose(self, reason: str, error: Optional[Exception]) -> None:
        """Prepares the next connection after one that ended. Raises :class:`OSError` if the flow has failed."""
        self._disconnect()
        now = time.monotonic()
        wait = 0.0
        if reason in ("gap", "replaced", "invalid"):
            text = f"the receiver reset the flow: {reason}{EXPLANATIONS.get(reason, '')}"
            self._fail(ConnectionResetError(errno.ECONNRESET, self._message(text)))
        elif not self._is_over_relay:
            wait = self._direct_wait(reason, error, now)
        elif reason in ("unknown-coflow", "lost") and self._retries < MAX_RELAY_RETRIES:
            wait = RETRY_WAIT
        else:
            self._is_over_relay = False
        # The first direct connection is not a retry.
        self._retries = self._retries + 1 if wait else 0
        self._connect_at = now + wait
        line = self._first_line
        if line.generation == MAX_GENERATION:
            self._fail(ConnectionAbortedError(errno.ECONNABORTED, self._message(f"the flow lost {MAX_GENERATION} connections")))
        self._window.rewind()
        self._first_line = FirstLine(line.coflow, line.flow, line.generation + 1, self._window.start, line.receiver)

    def _direct_wait(self, reason: str, error: Optional[Exception], now: float) -> float:
        if reason == "corrupt" and self._retries >= MAX_CORRUPT_RETRIES:
            self._fail(ConnectionResetError(errno.ECONNRESET, self._message(f"the receiver reset the flow: {reason}")))
        if self._unreachable_since is None:
            self._unreachable_since = now
        if now - self._unreachable_since >= DIRECT_TIMEOUT:
            text = f"the receiver cannot be reached for {DIRECT_TIMEOUT:.0f} s; the last connection failed: {error or reason}"
            self._fail(TimeoutError(errno.ETIMEDOUT, self._message(text)))
        return min(RETRY_WAIT * 2.0 ** min(self._retries, 10), MAX_DIRECT_WAIT)

    def _message(self, text: str) -> str:
        return f"flow {self._first_line.flow} of coflow {self._first_line.coflow!r}: {text}"

    def _fail(self, failure: OSError) -> None:
        self._failure = failure
        raise failure
