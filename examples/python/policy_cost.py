"""Prints what a schedule of a policy costs in Python, next to policies of Weir that decide by the same steps in Rust.

    python examples/python/policy_cost.py [TRACE]
"""

import sys

import numpy as np
from least_attained import LeastAttainedService

import weir


class InOrderOfRelease(weir.ClairvoyantPolicy):
    """Coflows in order of release, without reading more than their number: as `fifo`."""

    def schedule(self, view):
        return view.in_order(np.arange(len(view.coflows)))


class ByRemainingBytes(weir.ClairvoyantPolicy):
    """Coflows in order of their remaining bytes: as `lcf`."""

    def schedule(self, view):
        return view.in_order(np.argsort(view.coflows.remaining_bytes, kind="stable"))


class EqualRates(weir.BlindPolicy):
    """A rate for each flow: an equal part of its links for each of their flows."""

    def schedule(self, view):
        flows, links = view.flows, view.links
        counts = np.bincount(flows.sending_link, minlength=len(links)) + np.bincount(flows.receiving_link, minlength=len(links))
        rates = links.capacity / np.maximum(counts, 1)
        return weir.Allocation(np.minimum(rates[flows.sending_link], rates[flows.receiving_link]))


POLICIES = ["fifo", InOrderOfRelease, "lcf", ByRemainingBytes, "gittins:index=las", LeastAttainedService, "fair", EqualRates]


def main(trace):
    """Replays the trace five times under each policy. The fastest replay has the fewest delays by other programs."""
    results = [weir.compare(trace, POLICIES, progress=False) for _ in range(5)]
    print("| Policy | In | Schedules | Time of a schedule, us |\n|---|---|---:|---:|")
    for policy, records in zip(POLICIES, zip(*(result.summary for result in results), strict=True), strict=True):
        language = "Rust" if isinstance(policy, str) else "Python"
        schedules = records[0]["schedules"]
        micros = min(record["schedule_mean_us"] for record in records)
        print(f"| `{records[0]['policy']}` | {language} | {schedules} | {micros:.1f} |")


if __name__ == "__main__":
    main(weir.Trace.read(*(sys.argv[1:] or ["examples/demo.txt"])))
