"""The gate of a sender: whether the agent lets it write."""

from __future__ import annotations

import enum
import os
import select
import socket
import threading
import time
from dataclasses import dataclass
from typing import Optional, Tuple

# The minimum time between the messages `data` and `idle`, in seconds. The agent also measures how much data the kernel has.
MIN_IDLE_INTERVAL = 0.005


class UnscheduledReason(enum.Enum):
    """Why a flow is not scheduled."""

    UNKNOWN_COFLOW = "unknown-coflow"
    """No coflow with this id was registered when the socket was handed over."""
    UNKNOWN_FLOW = "unknown-flow"
    """The index is beyond the flows of the registration."""
    FOREIGN_FLOW = "foreign-flow"
    """By the registration, another host sends the flow."""
    FORMER_REGISTRATION = "former-registration"
    """The coflow was removed and registered again since the socket was handed over."""
    COMPLETED = "completed"
    """The flow has completed."""
    ENDED = "ended"
    """The coordinator no longer schedules the flow."""
    UNANSWERED = "unanswered"
    """The flow ended before the coordinator answered whether it schedules the flow."""
    NO_ORDER = "no-order"
    """The agent has no valid order of a coordinator."""
    OTHER = "other"
    """Another reason, such as the end of the connection to the agent."""


@dataclass(frozen=True)
class Permission:
    """What the agent lets a sender do: nothing while it is paused; else write, at ``rate`` bytes of packets per second if there is one.
    ``message`` is why the flow is not scheduled, if it is not, and ``reason`` the kind of reason."""

    is_paused: bool = False
    rate: Optional[int] = None
    message: Optional[str] = None
    reason: UnscheduledReason = UnscheduledReason.OTHER

    @classmethod
    def unscheduled(cls, text: str) -> Permission:
        """Writing without a rate, for the reason in a text of an agent or another one. An unknown code belongs to the message."""
        code, separator, message = text.partition(": ")
        try:
            reason = UnscheduledReason(code)
        except ValueError:
            reason = UnscheduledReason.OTHER
        # Only agents send codes, and never that of other reasons.
        if not separator or reason is UnscheduledReason.OTHER:
            return cls(message=text)
        return cls(message=message, reason=reason)


PAUSED = Permission(is_paused=True)


@dataclass(frozen=True)
class AgentMessage:
    """A message that the agent pushes: the permission of a flow, or none, and the lease of all pauses in seconds, if it renews it."""

    flow: Optional[Tuple[str, int]]
    permission: Permission
    lease: Optional[float]

    @classmethod
    def parse(cls, text: str) -> Optional[AgentMessage]:
        """Parses a message; None if it is an answer."""
        words = text.split(" ", 3)
        if words[0] == "renew" and len(words) == 2 and words[1].isdecimal():
            return cls(None, PAUSED, int(words[1]) / 1000)
        if len(words) < 4 or not words[2].isdecimal():
            return None
        command, coflow, flow, value = words
        if command == "pause" and value.isdecimal():
            return cls((coflow, int(flow)), PAUSED, int(value) / 1000)
        word, _, reason = value.partition(" ")
        if command == "go" and word == "free":
            permission = Permission.unscheduled(reason) if reason else Permission()
            return cls((coflow, int(flow)), permission, None)
        if command == "go" and value.isdecimal():
            return cls((coflow, int(flow)), Permission(rate=int(value)), None)
        return None


class Wake:
    """An event by which other threads wake a sender that waits for its connection."""

    def __init__(self) -> None:
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.is_cancelled = False

    def fileno(self) -> int:
        return self._event

    def signal(self) -> None:
        """Wakes the waiting thread, or the next one that waits."""
        os.eventfd_write(self._event, 1)

    def reset(self) -> None:
        """Removes earlier signals."""
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:
            pass

    def wait(self, timeout: float) -> None:
        polled = select.poll()
        polled.register(self._event, select.POLLIN)
        # `poll` rounds down to milliseconds.
        polled.poll(timeout * 1000 + 1)

    def cancel(self) -> None:
        self.is_cancelled = True
        self.signal()

    def __del__(self) -> None:
        if hasattr(self, "_event"):
            os.close(self._event)


class Gate:
    """The gate of a flow. The thread of the agent's connection sets it. Open until the agent has the socket."""

    def __init__(self, coflow: str, flow: int, sock: socket.socket, wake: Wake) -> None:
        self.coflow = coflow
        self.flow = flow
        # A duplicate of the flow's socket, for an agent that was restarted.
        self.socket = sock.dup()
        # The number of the agent's connection over which the socket was handed over last.
        self.connection = 0
        self._wake = wake
        self._lock = threading.Lock()
        self._permission = Permission.unscheduled("the agent does not have the socket")
        self._has_lease_ended = False
        # What the sender has told the agent about its data, and when; None if the agent may not know.
        self._told: Optional[Tuple[bool, float]] = None

    @property
    def name(self) -> Tuple[str, int]:
        return (self.coflow, self.flow)

    def set(self, permission: Permission) -> None:
        """Sets what the sender may do, and wakes it if that has changed."""
        with self._lock:
            if permission == self._permission:
                return
            if permission.is_paused:
                self._told = None
            self._permission = permission
        self._wake.signal()

    def set_lease_ended(self, has_ended: bool) -> None:
        """Ends or renews the pause."""
        with self._lock:
            self._has_lease_ended = has_ended
        self._wake.signal()

    def permission(self) -> Permission:
        """What the sender may do now."""
        with self._lock:
            if self._permission.is_paused and self._has_lease_ended:
                return Permission.unscheduled("the agent has not renewed the pause in time")
            return self._permission

    def begin_connection(self, connection: int) -> None:
        """Records that the socket is handed over over a connection of the agent. The flow then counts as one with data."""
        with self._lock:
            self.connection = connection
            self._told = (True, time.monotonic())

    def must_tell(self, has_data: bool) -> bool:
        """Whether the agent has to learn whether the sender has data. If so, the caller tells it."""
        with self._lock:
            now = time.monotonic()
            if self._told is None:
                must_tell = has_data
            else:
                told, at = self._told
                must_tell = told != has_data and (has_data or now - at >= MIN_IDLE_INTERVAL)
            if must_tell:
                self._told = (has_data, now)
            return must_tell

    def close(self) -> None:
        self.socket.close()
