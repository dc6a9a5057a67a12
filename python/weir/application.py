"""Saba's library (section 6): an application registers, creates and destroys connections, and deregisters.

While an application has connections, a thread follows its level over a stream of the coordinator, and marks the packets of open connections
with the new level. The stream also tells the coordinator that the program lives: if the program is killed, the coordinator closes its
connections after a lease.
"""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import threading
import time
import uuid
import weakref
from typing import Any, Dict, List, Optional, Tuple
from urllib.parse import quote

from .coordinator import Coordinator, CoordinatorError, path

# Maximum time to connect.
CONNECT_TIMEOUT = 30.0

# Levels start at 0. A DSCP has six bits, and 0 means no class: level 0 is DSCP 1.
MAX_LEVEL = 62

# The coordinator closes the connections of a program without a stream for this time.
PROGRAM_LEASE = 10.0

# The wait before the next attempt to open a stream of levels, which doubles up to a maximum.
MIN_RECONNECT_WAIT = 0.05
MAX_RECONNECT_WAIT = 1.0


_applications: weakref.WeakSet[Application] = weakref.WeakSet()


def _begin_programs() -> None:
    for application in _applications:
        application._begin_program()


os.register_at_fork(after_in_child=_begin_programs)


class Application:
    """A registered application. Several programs on several hosts may register it by the same id.

    ``level`` is its priority level, from 0. While the application has connections, it follows the coordinator. After :func:`os.fork`,
    connections that are open remain those of the parent, which has to keep them; both processes may open others.
    """

    def __init__(self, coordinator: Coordinator, id: str, level: int) -> None:
        self.id = id
        self.level = level
        self._coordinator = coordinator
        self._begin_program()
        _applications.add(self)

    def _begin_program(self) -> None:
        """Begins without connections, as a program of its own: in a process that was forked, no thread follows the level, and open
        connections remain those of the parent."""
        self._program = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._open: Dict[str, Connection] = {}
        self._has_thread = False
        # Whether the thread has read the level from its present stream, which then has each change.
        self._is_followed = False

    @classmethod
    def register(
        cls, coordinator: Coordinator, id: str, *, model: Optional[str] = None, service: Optional[str] = None
    ) -> Application:
        """Registers the application ``id`` (1 to 128 printable characters without spaces), with a ``model`` of the sensitivity table.

        A model is optional if the coordinator has queues by service. Without ``service``, the service is the framework's own, or
        ``default``. Registering the same again changes nothing. Raises :class:`CoordinatorError`.
        """
        answer = coordinator.put(path("applications", id), {"service": service, "model": model})
        return cls(coordinator, id, _read_level(answer))

    @property
    def dscp(self) -> int:
        """The mark of its packets: level 0 is DSCP 1, level 1 is DSCP 2, and so on."""
        return self.level + 1

    def connect(
        self, from_host: str, to_host: str, address: Tuple[str, int], *, weight: Optional[float] = None
    ) -> Connection:
        """Creates a TCP connection from ``from_host``, which is this host, to ``address`` on ``to_host``.

        Hosts have the names of the coordinator's configuration. All packets that this end sends have the application's class, including the
        first one, and follow its level. Data may flow in both directions: :meth:`accept` marks what the other end sends. Raises
        :class:`OSError` if the other end does not accept within 30 s. If the coordinator does not answer, there is no exception: see
        :attr:`Connection.registration_error`.

        ``weight``, from 0.001 to 1,000, is for the allocator: the weight of all connections of the application between the two hosts is the
        sum of those that have one, or else 1. If the other end accepts the connection by :meth:`accept`, that is a second registration:
        give the weight at one end only.
        """
        return self._add(self._dial(address), from_host, to_host, weight)

    def accept(self, host: str, listener: socket.socket, *, weight: Optional[float] = None) -> Connection:
        """Accepts a connection of ``listener`` on ``host``, which is this host, and registers it.

        What this end sends has the application's class, and follows its level; the kernel's answer to the first packet has the class at
        the time of the call. The coordinator finds the other host by its
        address (``[address]`` of its configuration). Raises :class:`OSError` if the listener does not accept. If the coordinator does not
        answer, there is no exception: see :attr:`Connection.registration_error`. ``weight`` is that of :meth:`connect`.
        """
        # The kernel answers the first packet of a connection with the mark of the listener.
        _mark(listener, self.dscp)
        sock, peer = listener.accept()
        address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return self._add(sock, host, str(mapped or address), weight)

    def _add(self, sock: socket.socket, from_host: str, to_host: str, weight: Optional[float]) -> Connection:
        """Registers a connection, and marks its packets."""
        target = path("connections", uuid.uuid4().hex)
        body: Dict[str, Any] = {"application": self.id, "from": from_host, "to": to_host, "program": self._program}
        if weight is not None:
            body["weight"] = weight
        connection = Connection(self, sock, target, body)
        try:
            with self._lock:
                # From here on, a new level applies to the connection too.
                self._open[target] = connection
                _mark(sock, self.dscp)
            level = _read_level(self._coordinator.put(target, body))
        except CoordinatorError as error:
            connection.registration_error = error
        except OSError:
            connection.destroy()
            raise
        else:
            self._set_level(level, from_stream=False)
        # The thread also registers a connection that had no answer.
        with self._lock:
            starts, self._has_thread = not self._has_thread, True
        try:
            if starts:
                threading.Thread(target=_follow_level, args=(weakref.ref(self),), name="weir-level", daemon=True).start()
        except RuntimeError:
            with self._lock:
                self._has_thread = False
            connection.destroy()
            raise
        return connection

    def _set_level(self, level: int, from_stream: bool) -> None:
        with self._lock:
            if self._is_followed and not from_stream:
                return
            self._is_followed |= from_stream
            if level == self.level:
                return
            self.level = level
            for connection in self._open.values():
                try:
                    _mark(connection.socket, self.dscp)
                except OSError:
                    # The connection has ended.
                    pass

    def _to_register(self, all: bool) -> List[Connection]:
        """All connections, or those without an answer to their registration."""
        with self._lock:
            errors = [(connection, connection.registration_error) for connection in self._open.values()]
        return [connection for connection, error in errors if (all if error is None else not _is_refusal(error))]

    def _is_open(self, connection: Connection) -> bool:
        with self._lock:
            return connection._target in self._open

    def _register_again(self, connections: List[Connection]) -> List[Connection]:
        """Registers connections, because the coordinator may have closed them. Returns those that it has not answered."""
        unanswered = []
        for connection in connections:
            if not self._is_open(connection):
                continue
            try:
                self._coordinator.put(connection._target, connection._body)
                connection.registration_error = None
                if not self._is_open(connection):
                    # It was destroyed meanwhile. If this fails, it ends with the program.
                    self._coordinator.delete(connection._target)
            except CoordinatorError as error:
                if not _is_refusal(error):
                    unanswered.append(connection)
        return unanswered

    def _end_thread_if_idle(self) -> bool:
        """Whether the application has no connections. Its next connection then starts another thread."""
        with self._lock:
            self._has_thread = bool(self._open)
            self._is_followed &= self._has_thread
            return not self._has_thread

    def _dial(self, address: Tuple[str, int]) -> socket.socket:
        last: OSError = OSError(f"{address}: the name has no addresses")
        for family, kind, protocol, _, found in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            target: Any = found
            if family == socket.AF_INET6:
                # Packets to an IPv4-mapped IPv6 address need the mark of IPv4.
                mapped = ipaddress.IPv6Address(str(found[0]).partition("%")[0]).ipv4_mapped
                if mapped is not None:
                    family, target = socket.AF_INET, (str(mapped), found[1])
            sock = socket.socket(family, kind, protocol)
            try:
                _mark(sock, self.dscp)
                sock.settimeout(CONNECT_TIMEOUT)
                sock.connect(target)
                sock.settimeout(None)
                return sock
            except OSError as error:
                sock.close()
                last = error
        raise last

    def deregister(self) -> None:
        """Deregisters the application. Destroy all of its connections first, also those of other hosts."""
        self._coordinator.delete(path("applications", self.id))


class Connection:
    """A connection of an application.

    ``socket`` is the socket. ``registration_error`` is the error if the coordinator did not register the connection, else None. An unregistered
    connection has the application's class, but does not count for the weights of queues. Without an answer of the coordinator, it is registered
    once the coordinator answers; a refusal is final.
    """

    def __init__(self, application: Application, sock: socket.socket, target: str, body: Dict[str, Any]) -> None:
        self.socket = sock
        self.registration_error: Optional[CoordinatorError] = None
        self._application = application
        self._target = target
        self._body = body

    def destroy(self) -> None:
        """Closes the connection, and removes it at the coordinator. Raises :class:`CoordinatorError` if the removal fails."""
        application = self._application
        with application._lock:
            is_open = application._open.pop(self._target, None) is not None
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            # The connection has already ended.
            pass
        self.socket.close()
        failed = self.registration_error
        if is_open and (failed is None or not _is_refusal(failed)):
            try:
                application._coordinator.delete(self._target)
            except CoordinatorError as error:
                # An operator has closed it, or the coordinator did so while it heard nothing of this program. A registration without an
                # answer may have been carried out or not.
                if error.status != 404 and failed is None:
                    raise

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()


def _follow_level(reference: weakref.ref[Application]) -> None:
    """Follows the level while the application has connections."""
    wait, last_contact = MIN_RECONNECT_WAIT, time.monotonic()
    unregistered: List[Connection] = []
    while True:
        application = reference()
        if application is None or application._end_thread_if_idle():
            return
        target = f"{path('applications', application.id)}/level?program={quote(application._program)}"
        coordinator = application._coordinator
        del application
        try:
            for number, line in enumerate(coordinator.stream_lines(target)):
                application = reference()
                if application is None or application._end_thread_if_idle():
                    return
                if number == 0:
                    unregistered = application._to_register(all=time.monotonic() - last_contact >= PROGRAM_LEASE / 2)
                unregistered = application._register_again(unregistered)
                wait, last_contact = MIN_RECONNECT_WAIT, time.monotonic()
                if line.startswith(b"data:"):
                    application._set_level(_read_level(json.loads(line[len(b"data:") :])), from_stream=True)
                del application
        except (CoordinatorError, ValueError):
            # The coordinator is gone, or does not answer as it should.
            pass
        application = reference()
        if application is not None:
            application._is_followed = False
        del application
        time.sleep(wait)
        wait = min(2 * wait, MAX_RECONNECT_WAIT)


def _is_refusal(error: CoordinatorError) -> bool:
    """Whether the coordinator has refused a request, and would refuse it again."""
    return error.status is not None and error.status < 500


def _read_level(answer: Any) -> int:
    level = answer.get("level") if isinstance(answer, dict) else None
    if isinstance(level, int) and 0 <= level <= MAX_LEVEL:
        return level
    raise CoordinatorError(
        f"answer of the coordinator is malformed ({str(answer)[:200]!r}); expected an object with a level from 0 to {MAX_LEVEL}"
    )


def _mark(sock: socket.socket, dscp: int) -> None:
    # The two bits below the DSCP are ECN, which the kernel sets. A socket of IPv6 may also send IPv4.
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, dscp << 2)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)
