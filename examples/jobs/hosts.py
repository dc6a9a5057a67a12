"""Runs a job on several hosts of a testbed: a process in each of their network namespaces, and TCP connections between all of them.

A job is started on the first host, with the namespaces of all: `python3 JOB.py weir-bed-h0 weir-bed-h1 ...`. If WEIR_DSCP is set, packets
have that mark.
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
    """Sets what all connections of a job have."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, int(os.environ.get("WEIR_DSCP", "0")) << 2)
    return connection


class Host:
    """One of the hosts, by its rank, and its connections to the others."""

    def __init__(self, rank, links):
        self.rank = rank
        self.links = links
        self.others = sorted(links)

    def send(self, to, data):
        """Sends bytes to another host."""
        self.links[to].sendall(LENGTH.pack(len(data)))
        self.links[to].sendall(data)

    def receive(self, of):
        """The next bytes that another host has sent, whole."""
        (length,) = LENGTH.unpack(self._read(of, LENGTH.size))
        return self._read(of, length)

    def told(self, data):
        """What the first host tells all others."""
        if self.rank > 0:
            return self.receive(0)
        for to in self.others:
            self.send(to, data)
        return data

    def exchange(self, data):
        """Sends the same bytes to all others, and answers with what comes from each of them, all at once."""
        came = {}

        def take(of):
            came[of] = self.receive(of)

        together([(self.send, to, data) for to in self.others] + [(take, of) for of in self.others])
        return came

    def _read(self, of, length):
        data = bytearray(length)
        view = memoryview(data)
        while view:
            count = self.links[of].recv_into(view)
            if count == 0:
                raise EOFError(f"host {of} has gone")
            view = view[count:]
        return bytes(data)


def computed(seed, length, seconds):
    """So many bytes that follow from a seed, after so many seconds of a processor's time: a job's computing is to its sending as it is on
    any other processor."""
    ends = time.thread_time() + seconds
    found = seed
    while time.thread_time() < ends:
        found = hashlib.pbkdf2_hmac("sha256", found, b"weir", 1000)
    return hashlib.shake_256(found).digest(length)


def together(calls):
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
    """A socket at which hosts of higher ranks call, at this host's address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Sends nothing: the route to any host of the bed, such as its first, has this one's address.
        probe.connect(("10.0.0.1", 9))
        return mark(socket.create_server((probe.getsockname()[0], 0)))


def accept(listener, links, count, processes=()):
    """Takes the calls of so many hosts, which begin with their ranks, as long as none of their processes has ended."""
    listener.settimeout(0.2)
    while count > 0:
        try:
            connection = listener.accept()[0]
        except TimeoutError:
            if any(process.poll() is not None for process in processes):
                sys.exit("another host could not begin")
            continue
        count -= 1
        connection.settimeout(None)
        mark(connection)
        (rank,) = LENGTH.unpack(connection.recv(LENGTH.size, socket.MSG_WAITALL))
        links[rank] = connection


def call(at, rank):
    """Calls a host of a lower rank."""
    connection = mark(socket.create_connection(tuple(at)))
    connection.sendall(LENGTH.pack(rank))
    return connection


def first(namespaces):
    """Starts the job on the other hosts, and waits until they know each other. Answers with this host, and their processes."""
    listener = listen()
    at = json.dumps(listener.getsockname())
    processes = [
        subprocess.Popen(["nsenter", f"--net=/run/netns/{namespace}", sys.executable, sys.argv[0], "--rank", str(rank), at])
        for rank, namespace in enumerate(namespaces)
        if rank > 0
    ]
    links = {}
    accept(listener, links, len(processes), processes)
    host = Host(0, links)
    places = json.dumps([json.loads(host.receive(rank)) for rank in host.others])
    for rank in host.others:
        host.send(rank, places.encode())
    return host, processes


def another(rank, at):
    """Joins the first host, and by it all others."""
    listener = listen()
    links = {0: call(json.loads(at), rank)}
    host = Host(rank, links)
    host.send(0, json.dumps(listener.getsockname()).encode())
    places = json.loads(host.receive(0))
    for lower in range(1, rank):
        links[lower] = call(places[lower - 1], rank)
    accept(listener, links, len(places) - rank)
    return Host(rank, links)


def run(job):
    """Runs a function of a host on all of them."""
    words = sys.argv[1:]
    if words[:1] == ["--rank"]:
        job(another(int(words[1]), words[2]))
        return
    if len(words) < 2:
        sys.exit(f"usage: {sys.argv[0]} NAMESPACE NAMESPACE...: two hosts or more, the first of them this one")
    host, processes = first(words)
    job(host)
    if any([process.wait() for process in processes]):
        sys.exit("another host has failed")
