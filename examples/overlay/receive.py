"""Receives two flows of a coflow in the region `east`."""

from weir import FlowReceiver

with FlowReceiver(("127.0.2.1", 7000)) as receiver:
    for number in range(2):
        data = receiver.receive("shuffle", number, timeout=60).read()
        print(f"flow {number}: {len(data)} bytes")
