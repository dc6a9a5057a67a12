"""Receives flows (docs/flow-protocol.md)."""

from __future__ import annotations

import errno
import io
import resource
import select
import socket
import threading
import time
from collections import deque
from typing import Any, Deque, Dict, List, Optional, Tuple

from .flow_protocol import ACK_INTERVAL, MAX_LINE_BYTES, FirstLine, ReceiveState, Reset, check_flow
from .flow_tls import FlowSocket, FlowTls, TlsSocket

# All times are in seconds. Maximum time for a first line, and for the sender to close a connection after the last line to it.
FIRST_LINE_TIMEOUT = 5.0
DRAIN_TIMEOUT = 5.0

# How long the kernel sends an acknowledgement again before the connection fails.
UNACKED_TIMEOUT = 60.0

# How long a flow waits for the next connection when one has failed.
RECONNECT_TIMEOUT = 120.0

# The pause after a failure to accept a connection, such as too many open files.
ACCEPT_PAUSE = 0.1

# Maximum number of flows that wait for `FlowReceiver.receive`. The thread reads nothing of a flow that waits, so each takes a file
# descriptor and what the kernel's receive buffer holds.
MAX_READY = 16384

# Maximum number of connections without a complete first line, and of those that end. Others stay in the kernel's backlog.
MAX_CONNECTIONS = 1024

# Maximum number of connections in the kernel that the thread has not accepted. All senders of a stage may connect at once.
BACKLOG = 4096

# How many ended flows a receiver remembers. The sender of such a flow may ask again for the last acknowledgement.
MAX_ENDED = 16384

# Size of a read, in bytes.
READ_BYTES = 1 << 16

FlowKey = Tuple[str, int]


def _send_line(sock: FlowSocket, line: bytes) -> bool:
    """Sends a line if the kernel's buffer has room. A sender that leaves this buffer full does not read acknowledgements."""
    try:
        return sock.send(line) == len(line)
    except OSError:
        return False


def _shut_down(sock: FlowSocket, how: int) -> None:
    try:
        sock.shutdown(how)
    except OSError:
        pass


def _raise_file_limit() -> bool:
    """Raises the limit of open files to the maximum: a receiver may have more senders than the default allows. Returns whether it was
    lower."""
    current, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
    if current == maximum:
        return False
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (maximum, maximum))
    except (OSError, ValueError):
        return False
    return True


class _Flow:
    def __init__(self) -> None:
        self.state = ReceiveState()
        self.connection: Optional[FlowSocket] = None
        self.is_taken = False


class _PendingConnection:
    """A connection whose first line has not arrived."""

    def __init__(self, sock: socket.socket, tls: Optional[FlowTls]) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNACKED_TIMEOUT * 1000))
        self.socket: FlowSocket = sock if tls is None else tls.accept(sock)
        self._tls = tls
        self.line = b""
        self.deadline = time.monotonic() + FIRST_LINE_TIMEOUT

    def read_line(self) -> Optional[FirstLine]:
        """Reads the received part of the first line, and no data after it. Returns the line once it is complete, else None. Raises
        OSError if the connection has ended or the line is late, and Reset if the line is malformed."""
        while len(self.line) < MAX_LINE_BYTES:
            try:
                byte = self.socket.recv(1)
            except BlockingIOError:
                if time.monotonic() < self.deadline:
                    return None
                raise OSError("the first line did not arrive in time") from None
            if byte == b"\n":
                first_line = FirstLine.parse(self.line)
                if first_line is None:
                    break
                if self._tls is not None and isinstance(self.socket, TlsSocket):
                    self._tls.check_sender(self.socket)
                return first_line
            if not byte:
                raise OSError("the connection was closed")
            self.line += byte
        raise Reset("invalid")


class _Listener:
    """The thread of a receiver: accepts connections, reads their first lines, repeats acknowledgements, and drains connections that end.

    All fields are protected by the condition, except those of the thread."""

    def __init__(self, listener: socket.socket, tls: Optional[FlowTls]) -> None:
        # Signals new flows and new connections.
        self.changed = threading.Condition()
        self.is_closed = False
        self._flows: Dict[FlowKey, _Flow] = {}
        self._ready = 0
        self._ended: Deque[FlowKey] = deque()
        # Connections whose bytes are discarded, so that the kernel does not reset them before the last line has arrived.
        self._draining: List[Tuple[FlowSocket, float]] = []
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        # Fields of the thread.
        self._listener = listener
        self._tls = tls
        self._pending: List[_PendingConnection] = []
        self._next_accept = 0.0
        self._thread = threading.Thread(target=self._run, name="flow-receiver", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Makes the thread close the port and all waiting connections."""
        self.is_closed = True
        self.wake()

    def check_open(self, key: FlowKey) -> None:
        """Raises :class:`ConnectionAbortedError` if the receiver is closed."""
        if self.is_closed:
            text = f"flow {key[1]} of coflow {key[0]!r}: the receiver was closed"
            raise ConnectionAbortedError(errno.ECONNABORTED, text)

    def close(self) -> None:
        """Stops the thread, and waits for its end."""
        self.stop()
        self._thread.join()

    def wake(self) -> None:
        try:
            self._wake.send(b"\0")
        except OSError:
            # The thread wakes up anyway, or has ended.
            pass

    def take(self, key: FlowKey, timeout: float) -> Optional[_Flow]:
        """Waits for a flow that no program has taken. Raises :class:`OSError` if it cannot arrive."""
        with self.changed:
            has_arrived = self.changed.wait_for(lambda: self.is_closed or key in self._flows, timeout)
            self.check_open(key)
            if not has_arrived:
                return None
            flow = self._flows[key]
            if flow.is_taken:
                text = "was received before; expected one call of `receive` for each flow"
                raise FileExistsError(errno.EEXIST, f"flow {key[1]} of coflow {key[0]!r} {text}")
            flow.is_taken = True
            self._ready -= 1
        self.wake()
        return flow

    def end(self, key: FlowKey, flow: _Flow, line: bytes) -> None:
        """Remembers a flow as ended. Its last connection ends with `line`. The caller holds the condition."""
        self._ended.append(key)
        if len(self._ended) > MAX_ENDED:
            self._flows.pop(self._ended.popleft(), None)
        sock, flow.connection = flow.connection, None
        if sock is not None:
            self.end_connection(sock, line)

    def end_connection(self, sock: FlowSocket, line: bytes) -> None:
        """Sends the last line of a connection. The caller holds the condition."""
        _send_line(sock, line)
        _shut_down(sock, socket.SHUT_WR)
        if self.is_closed or len(self._draining) >= MAX_CONNECTIONS:
            sock.close()
        else:
            self._draining.append((sock, time.monotonic() + DRAIN_TIMEOUT))
            self.wake()

    def _run(self) -> None:
        next_ack = time.monotonic() + ACK_INTERVAL
        while True:
            self._wait(next_ack)
            self._accept()
            with self.changed:
                if self.is_closed:
                    break
                self._read_first_lines()
                self._drain()
                if time.monotonic() >= next_ack:
                    self._repeat_acks()
                    next_ack = time.monotonic() + ACK_INTERVAL
        self._close_sockets()

    def _close_sockets(self) -> None:
        with self.changed:
            for sock, _ in self._draining:
                sock.close()
            for flow in self._flows.values():
                if not flow.is_taken and flow.connection is not None:
                    flow.connection.close()
            self._draining, self._flows = [], {}
            # Calls of `receive` and `read` wait.
            self.changed.notify_all()
        for pending in self._pending:
            pending.socket.close()
        for sock in (self._listener, self._wake, self._woken):
            sock.close()

    def _has_room(self) -> bool:
        pending = len(self._pending)
        has_room = pending < MAX_CONNECTIONS and pending + self._ready < MAX_READY
        return has_room and time.monotonic() >= self._next_accept

    def _wait(self, deadline: float) -> None:
        """Waits for data or a connection, at most until the next deadline."""
        now = time.monotonic()
        polled = select.poll()
        polled.register(self._woken, select.POLLIN)
        with self.changed:
            for sock, drained in self._draining:
                polled.register(sock, select.POLLIN)
                deadline = min(deadline, drained)
        for pending in self._pending:
            polled.register(pending.socket, select.POLLIN)
            deadline = min(deadline, pending.deadline)
        if self._has_room():
            polled.register(self._listener, select.POLLIN)
        elif self._next_accept > now:
            deadline = min(deadline, self._next_accept)
        # `poll` rounds down to milliseconds: without + 1 it would return at once, again and again.
        polled.poll(max(deadline - now, 0.0) * 1000 + 1)
        try:
            while self._woken.recv(64):
                pass
        except BlockingIOError:
            pass

    def _accept(self) -> None:
        while self._has_room():
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                # The client closed the connection before it was accepted.
                continue
            except OSError as error:
                if error.errno == errno.EMFILE and _raise_file_limit():
                    continue
                self._next_accept = time.monotonic() + ACCEPT_PAUSE
                return
            try:
                self._pending.append(_PendingConnection(sock, self._tls))
            except OSError:
                sock.close()

    def _read_first_lines(self) -> None:
        for pending in self._pending[:]:
            try:
                line = pending.read_line()
                if line is None:
                    continue
                self._admit(pending.socket, line)
            except OSError:
                pending.socket.close()
            except Reset as reset:
                self.end_connection(pending.socket, f"reset {reset}\n".encode())
            self._pending.remove(pending)

    def _admit(self, sock: FlowSocket, line: FirstLine) -> None:
        """Passes a connection to its flow, which may be new. Raises :class:`Reset` if the connection is refused."""
        key = (line.coflow, line.flow)
        flow = self._flows.get(key) or _Flow()
        answer = flow.state.accept(line)
        if flow.state.has_ended:
            self.end_connection(sock, answer)
            return
        # The program's next read finds a failure.
        _send_line(sock, answer)
        earlier, flow.connection = flow.connection, sock
        if earlier is not None:
            self.end_connection(earlier, b"reset replaced\n")
            # The program may wait for this connection.
            _shut_down(earlier, socket.SHUT_RDWR)
        if key not in self._flows:
            self._flows[key] = flow
            self._ready += 1
        self.changed.notify_all()

    def _drain(self) -> None:
        now = time.monotonic()
        kept = []
        for sock, deadline in self._draining:
            try:
                is_open = bool(sock.recv(READ_BYTES))
            except BlockingIOError:
                is_open = True
            except OSError:
                is_open = False
            if is_open and now < deadline:
                kept.append((sock, deadline))
            else:
                sock.close()
        self._draining = kept

    def _repeat_acks(self) -> None:
        for flow in self._flows.values():
            if flow.connection is not None and not _send_line(flow.connection, flow.state.ack()):
                # The program's next read finds the failure.
                _shut_down(flow.connection, socket.SHUT_RDWR)


class IncomingFlow(io.RawIOBase):
    """A flow that a program reads, as a binary file. Reading continues over the sender's next connection if one fails, and ends after all
    data.

    Raises :class:`TimeoutError` if the sender does not connect again within ``reconnect_timeout`` seconds (default: 120),
    :class:`ConnectionAbortedError` if it cannot, since the receiver was closed, and :class:`OSError` if it does not follow the protocol.
    Closing the flow before its end makes the sender fail.
    """

    def __init__(self, receiver: FlowReceiver, key: FlowKey, flow: _Flow) -> None:
        super().__init__()
        self.reconnect_timeout = RECONNECT_TIMEOUT
        # Keeps the port open.
        self._receiver = receiver
        self._listener = receiver._listener
        self._key = key
        self._flow = flow
        self._has_ended = False
        # Data of a chunk that the program has not read.
        self._data = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self.closed:
            raise ValueError("the flow is closed")
        view = memoryview(buffer).cast("B")
        while not self._data:
            if self._has_ended or not view:
                return 0
            self._read_connection()
        length = min(len(view), len(self._data))
        view[:length] = self._data[:length]
        self._data = self._data[length:]
        if not self._data:
            self._acknowledge()
        return length

    def close(self) -> None:
        """Closes the flow."""
        if not self.closed and not self._has_ended:
            self._has_ended = True
            with self._listener.changed:
                self._flow.state.close()
                self._listener.end(self._key, self._flow, b"reset replaced\n")
        super().close()

    def _read_connection(self) -> None:
        """Reads until a chunk may be complete."""
        changed = self._listener.changed
        with changed:
            if self._decode():
                return
            listener = self._listener
            has_connection = changed.wait_for(
                lambda: self._flow.connection is not None or listener.is_closed, self.reconnect_timeout
            )
            if self._flow.connection is None:
                # No other connection can arrive.
                listener.check_open(self._key)
            if not has_connection:
                coflow, flow = self._key
                waited = f"which did not connect again within {self.reconnect_timeout} s"
                raise TimeoutError(f"flow {flow} of coflow {coflow!r} lost its sender, {waited}")
            sock = self._flow.connection
            assert sock is not None
        try:
            if not (isinstance(sock, TlsSocket) and sock.pending()):
                polled = select.poll()
                polled.register(sock, select.POLLIN)
                # A later connection may close this one before the call.
                polled.poll(1000)
            data = sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except (OSError, ValueError):
            data = b""
        with changed:
            if self._flow.connection is not sock:
                return
            if data:
                self._flow.state.add(data)
            else:
                # The sender connects again.
                self._flow.connection = None
                sock.close()

    def _decode(self) -> bool:
        """Decodes a chunk. Returns whether there was one. The caller holds the condition."""
        flow = self._flow
        try:
            chunk = flow.state.next_chunk()
        except Reset as reset:
            sock, flow.connection = flow.connection, None
            if sock is not None:
                self._listener.end_connection(sock, f"reset {reset}\n".encode())
            if str(reset) == "corrupt":
                return False
            raise OSError(f"flow {self._key[1]} of coflow {self._key[0]!r} is malformed") from None
        if chunk is None:
            return False
        self._data = memoryview(chunk)
        if not chunk:
            flow.state.mark_read()
            self._has_ended = True
            self._listener.end(self._key, flow, flow.state.ack())
        return True

    def _acknowledge(self) -> None:
        """Notes that the program has read all data of a chunk."""
        with self._listener.changed:
            line = self._flow.state.mark_read()
            sock = self._flow.connection
            if line is not None and sock is not None and not _send_line(sock, line):
                # The next read finds the failure.
                _shut_down(sock, socket.SHUT_RDWR)


class FlowReceiver:
    """A port at which a program receives flows; port 0 selects a free port. Any thread may use it.

    Over plain text, every client that can connect can send any flow. With ``tls``, only relays and programs of the same service can, except
    inside a host by default.
    """

    def __init__(self, address: Tuple[str, int], tls: Optional[FlowTls] = None) -> None:
        family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        listener = socket.create_server(address, family=family, backlog=BACKLOG)
        listener.setblocking(False)
        host, port = listener.getsockname()[:2]
        self._address = (str(host), int(port))
        self._listener = _Listener(listener, tls)

    @property
    def address(self) -> Tuple[str, int]:
        """The address and port for senders."""
        return self._address

    def receive(self, coflow: str, flow: int, timeout: float) -> IncomingFlow:
        """Returns a flow, from which the caller reads the data.

        Flows can be requested in any order; other flows wait. A flow is received once. Raises :class:`TimeoutError` if no sender connects
        within ``timeout`` seconds, :class:`FileExistsError` if the flow was received before, and :class:`ConnectionAbortedError` if the
        receiver is closed.
        """
        check_flow(coflow, flow)
        taken = self._listener.take((coflow, flow), timeout)
        if taken is None:
            raise TimeoutError(f"flow {flow} of coflow {coflow!r} did not arrive within {timeout} s")
        return IncomingFlow(self, (coflow, flow), taken)

    def close(self) -> None:
        """Closes the port and all waiting connections. Calls of :meth:`receive` in other threads fail. Flows that a program reads keep their
        connection, and get no other one."""
        self._listener.close()

    def __enter__(self) -> FlowReceiver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        # Without a wait: when the interpreter exits, the thread does not run.
        if hasattr(self, "_listener"):
            self._listener.stop()
