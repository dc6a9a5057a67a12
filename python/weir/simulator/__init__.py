"""The simulator: traces, fabrics, policies and their results. :mod:`weir` has the same names."""

from .allocation import Allocation
from .compare import compare
from .errors import InputError, Interrupted, ReplayError
from .fabric import Fabric, fat_tree, leaf_spine
from .own_policy import BlindPolicy, ClairvoyantPolicy
from .policy import Policy
from .result import Explanation, Result
from .sweep import Sweep, SweepInterrupted, sweep
from .table import Table
from .trace import Trace

__all__ = [
    "Allocation",
    "BlindPolicy",
    "ClairvoyantPolicy",
    "Explanation",
    "Fabric",
    "InputError",
    "Interrupted",
    "Policy",
    "ReplayError",
    "Result",
    "Sweep",
    "SweepInterrupted",
    "Table",
    "Trace",
    "compare",
    "fat_tree",
    "leaf_spine",
    "sweep",
]
