"""Least attained service, a policy of one's own: coflows that have sent the fewest bytes are first.

    python examples/python/least_attained.py [TRACE]

The page docs/adding-a-policy.md has the same policy in Rust.
"""

import sys

import numpy as np

import weir


class LeastAttainedService(weir.BlindPolicy):
    """Least attained service first, in steps of a factor of 2; all or none, then backfilling; sizes unknown."""

    # A coflow reaches a threshold up to the rounding of its bytes.
    thresholds = np.append(1e6 * 2.0 ** np.arange(39), np.inf)
    reached_at = thresholds * (1 - 1e-12)

    def schedule(self, view):
        steps = np.searchsorted(self.reached_at, view.coflows.sent_bytes, side="right")
        return view.in_order(np.argsort(steps, kind="stable"), queues=steps)

    # A coflow reaches its next step without an event.
    def next_wakeup(self, view):
        served = view.coflows.rate > 0
        sent = view.coflows.sent_bytes[served]
        left = self.thresholds[np.searchsorted(self.reached_at, sent, side="right")] - sent
        return view.now + np.min(left / view.coflows.rate[served], initial=np.inf)


if __name__ == "__main__":
    trace = weir.Trace.read(*(sys.argv[1:] or ["examples/demo.txt"]))
    print(weir.compare(trace, ["fair", LeastAttainedService, "aalo", "saath"], baseline="fair"))
