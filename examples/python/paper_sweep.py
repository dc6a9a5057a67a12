"""A sweep of a paper's size: three generated workloads, 20 seeds, eight policies and four oversubscriptions, with a figure of speedups.

    time python examples/python/paper_sweep.py [WHERE]

``WHERE`` is the executor: ``processes`` (default), a Dask scheduler such as ``tcp://10.0.0.1:8786``, or ``ray``. Results are kept in the
folder ``paper_sweep``: a run that was interrupted continues, and a run with more seeds or policies replays only these. The figure is
``paper_sweep.svg``. Needs ``pip install 'weir-network[sweep,plot]'``.
"""

import sys
import time

import matplotlib.pyplot as plt

import weir

# Functions of the seed: each seed has another workload.
TRACES = {
    "shuffles of MapReduce": lambda seed: weir.Trace.generate(preset="small", seed=seed),
    "flows of web search, load 0.5": lambda seed: weir.Trace.generate(cdf="web-search", coflows=500, load=0.5, seed=seed),
    "incasts and flows of Hadoop": lambda seed: weir.Trace.generate(
        cdf="hadoop", coflows=500, load=0.3, incast_degree=16, incast_load=0.1, seed=seed
    ),
}
SEEDS = range(1, 21)
POLICIES = ["fair", "fifo", "aalo", "saath", "weir", "scf", "varys", "sincronia"]
OVERSUBSCRIPTIONS = [1, 2, 4, 8]


def run(executor: object) -> weir.Sweep:
    fabrics = {
        ratio: weir.leaf_spine(leaves=5, hosts=10, spines=5, rate="1Gbit", oversubscription=ratio) for ratio in OVERSUBSCRIPTIONS
    }
    return weir.sweep(
        {"fabric": fabrics},
        traces=TRACES,
        policies=POLICIES,
        seeds=SEEDS,
        baseline="fair",
        executor=executor,
        out="paper_sweep",
    )


def draw(result: weir.Sweep) -> None:
    plt.style.use("tableau-colorblind10")
    figure, axes = plt.subplots(1, len(TRACES), figsize=(12, 4), sharey=True, layout="constrained")
    means = result.mean("speedup_p50", by=["trace", "policy", "fabric"])
    for trace, ax in zip(TRACES, axes, strict=True):
        for number, policy in enumerate(POLICIES[1:]):
            points = [mean for mean in means if (mean["trace"], mean["policy"]) == (trace, policy)]
            # Lines of different policies do not hide each other's intervals.
            x = [mean["fabric"] * 1.02 ** (number - 3) for mean in points]
            half = [mean["high"] - mean["mean"] for mean in points]
            ax.errorbar(x, [mean["mean"] for mean in points], yerr=half, marker="o", markersize=3, capsize=2, label=policy)
        ax.axhline(1, color="gray", linewidth=0.8)
        ax.set(title=trace, xlabel="oversubscription of leaf switches", xscale="log", yscale="log")
        ax.set_xticks(OVERSUBSCRIPTIONS, [f"{ratio}:1" for ratio in OVERSUBSCRIPTIONS])
        ax.minorticks_off()
    axes[0].set_ylabel("median speedup over fair sharing\n(mean and 95 % interval over 20 seeds)")
    axes[-1].legend()
    figure.savefig("paper_sweep.svg")


if __name__ == "__main__":
    start = time.monotonic()
    result = run(sys.argv[1] if len(sys.argv) > 1 else "processes")
    print(f"{result}\n{time.monotonic() - start:.0f} s")
    draw(result)
