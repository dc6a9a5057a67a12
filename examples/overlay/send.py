"""Sends two flows of a coflow to the region `east`."""

from weir import FlowSender, Route

route = Route.from_environment(("127.0.2.1", 7000))
for number in range(2):
    with FlowSender("shuffle", number, route) as sender:
        sender.write(bytes(10_000_000))
    print(f"flow {number}: sent")
