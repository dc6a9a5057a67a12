"""Hands sockets of flows to the agent of the host. docs/live.md lists the messages."""

from __future__ import annotations

import select
import socket
import threading
import time
from typing import Dict, List, Optional, Tuple

from .gate import AgentMessage, Gate, Permission, UnscheduledReason, Wake

# Default path of an agent's local socket.
DEFAULT_SOCKET = "/run/weir/agent.sock"

# Maximum time for an agent's answer, in seconds.
TIMEOUT = 2.0

# The wait before the next attempt to connect again, which doubles up to a maximum.
MIN_RECONNECT_WAIT = 0.05
MAX_RECONNECT_WAIT = 1.0

# Maximum length of a message of the agent, in bytes.
MAX_MESSAGE_BYTES = 1024


class AgentError(Exception):
    """The reason why a socket is not paced, or why its flow is not scheduled. ``reason`` is the kind of the latter, else None."""

    def __init__(self, message: str, reason: Optional[UnscheduledReason] = None) -> None:
        super().__init__(message)
        self.reason = reason


class Agent:
    """A connection to the agent of this host, by the path of its Unix socket. Any thread may use it.

    Raises :class:`AgentError` if there is no agent. If the agent is restarted, a thread connects to it again, and hands over the sockets of
    all :class:`FlowSender <weir.FlowSender>` objects; a program hands its own sockets over again. When the connection is closed, or the
    program exits, all flows that were handed over through it are done.
    """

    def __init__(self, socket_path: str = DEFAULT_SOCKET) -> None:
        self._connection = _Connection(socket_path)

    def hand_over(self, coflow: str, flow: int, sock: socket.socket) -> None:
        """Hands over the connected socket of a flow: TCP, or UDP if the agent has an interface.

        ``flow`` is its index in the coflow's registration.

        The agent keeps a duplicate, so closing the socket does not end the connection: shut it down for writing, or call
        :meth:`mark_done`.
        """
        self._connection.request(f"open {coflow} {flow}", [sock.fileno()])

    def mark_done(self, coflow: str, flow: int) -> None:
        """Declares that no more data follows: the agent closes its duplicate when all written data has arrived."""
        self._connection.request(f"done {coflow} {flow}", [])

    def close(self) -> None:
        """Closes the connection to the agent."""
        self._connection.close()

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_connection"):
            self._connection.stop()

    def _open_gate(self, coflow: str, flow: int, sock: socket.socket, wake: Wake) -> GatedSocket:
        """Hands over a socket to which the program writes only while it may. The gate has its state when this returns."""
        gate = Gate(coflow, flow, sock, wake)
        error: Optional[AgentError] = None
        try:
            self._connection.open_gate(gate)
        except AgentError as agent_error:
            error = agent_error
        return GatedSocket(self._connection, gate, error)


class GatedSocket:
    """A socket that is handed over until it is closed."""

    def __init__(self, connection: _Connection, gate: Gate, error: Optional[AgentError]) -> None:
        self._connection = connection
        self._gate = gate
        # Why the socket could not be handed over at first. It is handed over to the next agent.
        self._error = error
        self._limited_permission: Optional[Permission] = None

    def permission(self) -> Permission:
        """What the sender may do."""
        return self._gate.permission()

    def limit_unsent(self, min_bytes: int, free_bytes: int, unsent_time: float) -> None:
        """Limits the data that the kernel has not sent, by what the agent lets the sender do: data of ``unsent_time`` at a rate."""
        permission = self._gate.permission()
        if permission == self._limited_permission:
            return
        if permission.rate is not None:
            limit = max(min_bytes, int(permission.rate * unsent_time))
        elif permission.is_paused:
            limit = min_bytes
        else:
            # 0 stands for the default of the kernel.
            limit = free_bytes if permission.message is None else 0
        self._gate.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, min(limit, (1 << 31) - 1))
        self._limited_permission = permission

    def tell(self, has_data: bool) -> None:
        """Tells the agent whether the sender has data that the kernel does not have, if the agent has to learn it."""
        if self._gate.must_tell(has_data):
            self._connection.notify(f"{'data' if has_data else 'idle'} {self._gate.coflow} {self._gate.flow}")

    def mark_done(self) -> None:
        """Tells the agent that the receiver has all data. The agent may have noticed the end already."""
        try:
            self._connection.request(f"done {self._gate.coflow} {self._gate.flow}", [])
        except AgentError:
            pass

    def unscheduled(self) -> Optional[AgentError]:
        """Why the flow is not scheduled; None if it is."""
        permission = self._gate.permission()
        if permission.message is None:
            return None
        return self._error or AgentError(f"the flow is not scheduled: {permission.message}", permission.reason)

    def is_unanswered(self) -> bool:
        """Whether the coordinator has not answered yet whether it schedules the flow."""
        return self._gate.permission().reason is UnscheduledReason.UNANSWERED

    def close(self) -> None:
        self._connection.remove_gate(self._gate)


class _Connection:
    """The connection to an agent. Its thread reads the agent's messages, ends pauses whose lease has ended, and connects again."""

    def __init__(self, path: str) -> None:
        self._path = path
        # One request at a time, since an answer does not identify its request.
        self._request_lock = threading.Lock()
        # Protects all fields below. Signals an answer, or the end of the connection.
        self._changed = threading.Condition()
        # None while no agent is connected.
        self._socket: Optional[socket.socket] = _connect(path)
        self._number = 1
        self._answer: Optional[str] = None
        self._gates: Dict[Tuple[str, int], Gate] = {}
        # When pauses end; None without a pause.
        self._lease_end: Optional[float] = None
        self._wake = Wake()
        self._thread = threading.Thread(target=self._run, name="weir-agent", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Makes the thread close the connection."""
        self._wake.cancel()

    def close(self) -> None:
        """Closes the connection, and waits for the end of the thread."""
        self.stop()
        self._thread.join()

    def request(self, text: str, sockets: List[int]) -> None:
        """Sends a request, and waits for its answer."""
        with self._request_lock:
            with self._changed:
                self._answer = None
                sock = self._socket
            if sock is None:
                raise _disconnected()
            try:
                _send(sock, text, sockets)
            except OSError as error:
                _shut_down(sock)
                raise AgentError(f"request to the agent failed: {error}") from error
            with self._changed:
                self._changed.wait_for(lambda: self._answer is not None or self._socket is not sock, TIMEOUT)
                answer, self._answer = self._answer, None
                is_connected = self._socket is sock
            if answer is None:
                if not is_connected:
                    raise _disconnected()
                # A late answer would be read as the answer to the next request.
                _shut_down(sock)
                raise AgentError(f"the agent has not answered within {TIMEOUT} s")
        _check_answer(answer)

    def notify(self, text: str) -> None:
        """Sends a message that has no answer."""
        with self._changed:
            sock = self._socket
        if sock is not None:
            try:
                _send(sock, text, [])
            except OSError:
                # The thread finds the failure.
                pass

    def open_gate(self, gate: Gate) -> None:
        """Hands over the socket of a gate, now and after each restart of the agent."""
        with self._changed:
            gate.begin_connection(self._number)
            replaced = self._gates.get(gate.name)
            self._gates[gate.name] = gate
        if replaced is not None:
            replaced.set(Permission.unscheduled("another sender of this program replaced it"))
        try:
            self.request(_open_message(gate), [gate.socket.fileno()])
        except AgentError as error:
            gate.set(Permission.unscheduled(str(error)))
            raise

    def remove_gate(self, gate: Gate) -> None:
        """Forgets a gate."""
        with self._changed:
            if self._gates.get(gate.name) is gate:
                del self._gates[gate.name]
            gate.close()

    def _run(self) -> None:
        wait = MIN_RECONNECT_WAIT
        while not self._wake.is_cancelled:
            sock = self._socket
            if sock is None:
                try:
                    self._reconnect()
                except (OSError, AgentError):
                    self._disconnect()
                    self._wait(None, wait)
                    wait = min(2 * wait, MAX_RECONNECT_WAIT)
                continue
            try:
                while True:
                    self._apply(self._next_message(sock, None))
            except OSError:
                self._disconnect()
                wait = MIN_RECONNECT_WAIT
        self._disconnect()

    def _wait(self, sock: Optional[socket.socket], timeout: Optional[float]) -> None:
        """Waits for a message, a time, or the end of the program's connection."""
        polled = select.poll()
        polled.register(self._wake, select.POLLIN)
        if sock is not None:
            polled.register(sock, select.POLLIN)
        # `poll` rounds down to milliseconds.
        polled.poll(None if timeout is None else timeout * 1000 + 1)

    def _next_message(self, sock: socket.socket, deadline: Optional[float]) -> str:
        """Waits for the next message, and meanwhile ends pauses whose lease has ended. Raises :class:`OSError` at the end."""
        while not self._wake.is_cancelled:
            try:
                data = sock.recv(MAX_MESSAGE_BYTES)
            except BlockingIOError:
                now = time.monotonic()
                if deadline is not None and now >= deadline:
                    raise TimeoutError("the agent has not answered") from None
                times = [end for end in (deadline, self._end_pauses(now)) if end is not None]
                self._wait(sock, max(min(times) - now, 0.0) if times else None)
                continue
            if not data:
                raise ConnectionResetError("the agent has closed the connection")
            return data.decode(errors="replace")
        raise ConnectionAbortedError("the connection is closed")

    def _end_pauses(self, now: float) -> Optional[float]:
        """Lets all paused senders write if the lease has ended. Returns its end, unless it has ended."""
        with self._changed:
            if self._lease_end is None or now < self._lease_end:
                return self._lease_end
            self._lease_end = None
            for gate in self._gates.values():
                gate.set_lease_ended(True)
        return None

    def _apply(self, text: str) -> None:
        """Applies a message of the agent."""
        message = AgentMessage.parse(text)
        with self._changed:
            if message is None:
                self._answer = text
                self._changed.notify_all()
                return
            if message.lease is not None:
                if self._lease_end is None:
                    for gate in self._gates.values():
                        gate.set_lease_ended(False)
                self._lease_end = time.monotonic() + message.lease
            if message.flow is not None and message.flow in self._gates:
                self._gates[message.flow].set(message.permission)

    def _disconnect(self) -> None:
        """Lets all senders write, and refuses requests until an agent is connected."""
        with self._changed:
            sock, self._socket, self._lease_end = self._socket, None, None
            for gate in self._gates.values():
                gate.set(Permission.unscheduled("the agent has closed the connection"))
            self._changed.notify_all()
        if sock is not None:
            sock.close()

    def _reconnect(self) -> None:
        """Connects again, and hands over the sockets of all gates."""
        sock = _connect(self._path)
        try:
            self._hand_over_gates(sock)
        except (OSError, AgentError):
            sock.close()
            raise

    def _hand_over_gates(self, sock: socket.socket) -> None:
        with self._changed:
            self._number += 1
        while (gate := self._next_gate(sock)) is not None:
            try:
                _send(sock, _open_message(gate), [gate.socket.fileno()])
            except OSError:
                if gate.socket.fileno() >= 0:
                    raise
                # The sender has closed it in the meantime.
                continue
            deadline = time.monotonic() + TIMEOUT
            while AgentMessage.parse(text := self._next_message(sock, deadline)) is not None:
                self._apply(text)
            try:
                _check_answer(text)
            except AgentError as error:
                gate.set(Permission.unscheduled(str(error)))

    def _next_gate(self, sock: socket.socket) -> Optional[Gate]:
        """The next gate whose socket was not handed over over this connection. Without one, requests use the connection from now on."""
        with self._changed:
            for gate in self._gates.values():
                if gate.connection != self._number:
                    gate.begin_connection(self._number)
                    return gate
            self._socket = sock
            return None


def _connect(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(TIMEOUT)
    try:
        sock.connect(path)
    except OSError as error:
        sock.close()
        raise AgentError(f"{path}: {error}") from error
    sock.setblocking(False)
    return sock


def _send(sock: socket.socket, text: str, sockets: List[int]) -> None:
    """Sends a message, and waits while the agent does not read."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            socket.send_fds(sock, [text.encode()], sockets)
            return
        except BlockingIOError:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError(f"the agent has read nothing for {TIMEOUT} s") from None
            polled = select.poll()
            polled.register(sock, select.POLLOUT)
            polled.poll(remaining * 1000 + 1)


def _shut_down(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def _open_message(gate: Gate) -> str:
    return f"open {gate.coflow} {gate.flow} gated"


def _disconnected() -> AgentError:
    return AgentError("the agent has closed the connection")


def _check_answer(answer: str) -> None:
    if answer.startswith("no: "):
        raise AgentError(f"the agent refused: {answer[4:]}")
    if answer != "ok":
        raise AgentError(f"answer of the agent is malformed ({answer!r}); expected `ok`, or `no:` and a reason")
