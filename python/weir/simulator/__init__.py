"""The simulator: traces, networks, policies and their results."""

from .compare import compare
from .errors import Interrupted
from .policy import Policy
from .result import Explanation, Result
from .table import Table
from .trace import Trace

__all__ = ["Explanation", "Interrupted", "Policy", "Result", "Table", "Trace", "compare"]
