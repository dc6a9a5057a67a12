"""Compute-heavy: the first host derives keys in blocks, and sends copies of each block to all others while it computes the next one."""

import hashlib
import queue
import threading

import hosts

BLOCKS = 60
BYTES = 153_000
SECONDS = 0.07


def job(host):
    if host.rank == 0:
        derive(host)
        return
    received = hashlib.sha256()
    for _ in range(BLOCKS):
        received.update(host.receive(0))
    host.send(0, received.digest())


def derive(host):
    waiting = {to: queue.Queue() for to in host.others}
    copies = [threading.Thread(target=copy, args=(host, to, waiting[to]), daemon=True) for to in host.others]
    for thread in copies:
        thread.start()
    derived = hashlib.sha256()
    for number in range(BLOCKS):
        block = hosts.compute(number.to_bytes(4, "big"), BYTES, SECONDS)
        derived.update(block)
        for blocks in waiting.values():
            blocks.put(block)
    for source in host.others:
        if host.receive(source) != derived.digest():
            raise ValueError(f"host {source} received other keys than this host sent")


def copy(host, to, blocks):
    for _ in range(BLOCKS):
        host.send(to, blocks.get())


hosts.run(job)
