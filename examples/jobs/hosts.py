"""Runs a job on several hosts of a testbed: a process in each of their network namespaces, and TCP connections between all of them.

Start a job on the first host, with the namespaces of all hosts: `python3 JOB.py weir-bed-h0 weir-bed-h1 ...`. If WEIR_DSCP is set, it is
the mark of all packets.
"""

import hashlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time

LENGTH = struct.Struct("!Q")


def mark(connection):
    """Sets the options of a connection, and returns it."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, int(os.environ.get("WEIR_DSCP", "0")) << 2)
    return connection


class Host:
    """A host with its rank, and its connections to the others."""

    def __init__(self, rank, links):
        self.rank = rank
        self.links = links
        self.others = sorted(links)

    def send(self, to, data):
        """Sends bytes to another host."""
        self.links[to].sendall(LENGTH.pack(len(data)))
        self.links[to].sendall(data)

    def receive(self, source):
        """Returns the next message of another host."""
        (length,) = LENGTH.unpack(self._read(source, LENGTH.size))
        return self._read(source, length)

    def broadcast(self, data):
        """Sends data from the first host to all others; returns the data on every host."""
        if self.rank > 0:
            return self.receive(0)
        for to in self.others:
            self.send(to, data)
        return data

    def exchange(self, data):
        """Sends the same bytes to all others concurrently, and returns the message of each of them."""
        messages = {}

        def receive_from(source):
            messages[source] = self.receive(source)

        sends = [(self.send, to, data) for to in self.others]
        run_concurrently(sends + [(receive_from, source) for source in self.others])
        return messages

    def _read(self, source, length):
        data = bytearray(length)
        view = memoryview(data)
        while view:
            count = self.links[source].recv_into(view)
            if count == 0:
                raise EOFError(f"host {source} has closed its connection")
            view = view[count:]
        return bytes(data)


def compute(seed, length, seconds):
    """Computes for a number of seconds of processor time, and returns `length` bytes that depend on the seed. The ratio of computing to
    sending is then the same on every processor."""
    end = time.thread_time() + seconds
    result = seed
    while time.thread_time() < end:
        result = hashlib.pbkdf2_hmac("sha256", result, b"weir", 1000)
    return hashlib.shake_256(result).digest(length)


def run_concurrently(calls):
    """Calls functions with their arguments in threads, and waits for all of them."""
    failed = []

    def call(function, *arguments):
        try:
            function(*arguments)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=call, args=one, daemon=True) for one in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def listen():
    """Listens for connections of hosts with higher ranks, at this host's address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Sends nothing: the route to any host of the bed, such as the first, gives this host's address.
        probe.connect(("10.0.0.1", 9))
        return mark(socket.create_server((probe.getsockname()[0], 0)))


def accept(listener, links, count, processes=()):
    """Accepts connections of `count` hosts, which begin with their ranks, until one of `processes` has exited."""
    listener.settimeout(0.2)
    while count > 0:
        try:
            connection = listener.accept()[0]
        except TimeoutError:
            if any(process.poll() is not None for process in processes):
                sys.exit("a process on another host exited before it connected")
            continue
        count -= 1
        connection.settimeout(None)
        mark(connection)
        (rank,) = LENGTH.unpack(connection.recv(LENGTH.size, socket.MSG_WAITALL))
        links[rank] = connection


def connect(address, rank):
    """Connects to a host of a lower rank."""
    connection = mark(socket.create_connection(tuple(address)))
    connection.sendall(LENGTH.pack(rank))
    return connection


def start_first(namespaces):
    """Starts the job on the other hosts, and connects all of them. Returns this host, and the processes of the others."""
    listener = listen()
    address = json.dumps(listener.getsockname())
    processes = [
        subprocess.Popen(["nsenter", f"--net=/run/netns/{namespace}", sys.executable, sys.argv[0], "--rank", str(rank), address])
        for rank, namespace in enumerate(namespaces)
        if rank > 0
    ]
    links = {}
    accept(listener, links, len(processes), processes)
    host = Host(0, links)
    addresses = json.dumps([json.loads(host.receive(rank)) for rank in host.others])
    for rank in host.others:
        host.send(rank, addresses.encode())
    return host, processes


def start_other(rank, address):
    """Connects to the first host, and through its list to all others."""
    listener = listen()
    links = {0: connect(json.loads(address), rank)}
    host = Host(rank, links)
    host.send(0, json.dumps(listener.getsockname()).encode())
    addresses = json.loads(host.receive(0))
    for lower in range(1, rank):
        links[lower] = connect(addresses[lower - 1], rank)
    accept(listener, links, len(addresses) - rank)
    return Host(rank, links)


def run(job):
    """Runs `job(host)` on all hosts."""
    words = sys.argv[1:]
    if words[:1] == ["--rank"]:
        job(start_other(int(words[1]), words[2]))
        return
    if len(words) < 2:
        sys.exit(f"usage: {sys.argv[0]} NAMESPACE NAMESPACE...; expected two or more, the first that of this host")
    host, processes = start_first(words)
    job(host)
    if any([process.wait() for process in processes]):
        sys.exit("the process on another host failed")
