"""The decision of a policy of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Allocation"]


def _to_bytes(name: str, values: Any, kinds: str, numbers: str) -> bytes:
    """The 64-bit numbers of a one-dimensional array, in the order of bytes of this machine."""
    import numpy as np

    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name}: an array of shape {array.shape}; expected one dimension")
    # An empty list becomes an array of floats.
    if array.size and array.dtype.kind not in kinds:
        raise TypeError(f"{name}: an array of {array.dtype}; expected {numbers}")
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max and "f" not in kinds:
        raise ValueError(f"{name}: {array.max()}; expected a number below 2^63")
    return np.ascontiguousarray(array, np.float64 if "f" in kinds else np.int64).tobytes()


def _to_rates(name: str, values: npt.ArrayLike | None) -> bytes | None:
    return None if values is None else _to_bytes(name, values, "iuf", "numbers")


def _to_integers(name: str, values: npt.ArrayLike | None) -> bytes | None:
    return None if values is None else _to_bytes(name, values, "iu", "integers")


def _to_names(rules: Sequence[str] | None) -> list[str] | None:
    if rules is None:
        return None
    if isinstance(rules, (str, bytes)):
        raise TypeError(f"rules: {rules!r}; expected a name for each coflow")
    names = list(rules)
    wrong = next((name for name in names if not isinstance(name, str)), None)
    if wrong is not None:
        raise TypeError(f"rules: {wrong!r}; expected text")
    return [str(name) for name in names]


class Decision(NamedTuple):
    """An allocation as the simulator reads it: arrays of 64-bit numbers, in the order of bytes of this machine."""

    order: bytes | None
    backfill: bool
    rates: bytes | None
    common: bytes | None
    queues: bytes | None
    rules: list[str] | None


class Allocation:
    """The rates of all flows until the next schedule: what ``schedule`` returns.

    A flow without a rate waits. Rates of a coflow and of single flows add up. The replay ends with an error if they exceed the capacity of
    a link. :meth:`weir.simulator.view.View.in_order` computes rates from an order of coflows.

    :param rates: shape ``(flows,)``: the rate of each live flow in bytes per second, in the order of ``view.flows``.
    :param equal_rates: shape ``(coflows,)``, for blind policies: the rate of each live flow of a coflow in bytes per second; 0 for none.
    :param completion_times: shape ``(coflows,)``, for clairvoyant policies: all live flows of a coflow get the rates at which they complete
        together after this number of seconds; infinity for none.
    :param queues: shape ``(coflows,)``: the queue of each coflow, 0 to 65535, for explanations.
    :param rules: for each coflow the name of the rule that decided, for explanations: a few names that stay the same during a replay, at
        most 1000 in a process.
    """

    __slots__ = ("_backfill", "_completion_times", "_equal_rates", "_order", "_queues", "_rates", "_rules")

    def __init__(
        self,
        rates: npt.ArrayLike | None = None,
        *,
        equal_rates: npt.ArrayLike | None = None,
        completion_times: npt.ArrayLike | None = None,
        queues: npt.ArrayLike | None = None,
        rules: Sequence[str] | None = None,
    ) -> None:
        self._order: bytes | None = None
        self._backfill = False
        self._rates = _to_rates("rates", rates)
        self._equal_rates = _to_rates("equal_rates", equal_rates)
        self._completion_times = _to_rates("completion_times", completion_times)
        self._queues = _to_integers("queues", queues)
        self._rules = _to_names(rules)

    @classmethod
    def _in_order(
        cls,
        order: npt.ArrayLike,
        backfill: bool,
        queues: npt.ArrayLike | None,
        rules: Sequence[str] | None,
    ) -> Allocation:
        """See :meth:`weir.simulator.view.View.in_order`."""
        allocation = cls(queues=queues, rules=rules)
        allocation._order = _to_bytes("order", order, "iu", "integers")
        allocation._backfill = bool(backfill)
        return allocation

    def _decision(self, is_clairvoyant: bool) -> Decision:
        """The arrays for the simulator."""
        if is_clairvoyant and self._equal_rates is not None:
            raise ValueError("equal_rates of a clairvoyant policy; expected completion_times, or rates of single flows")
        if not is_clairvoyant and self._completion_times is not None:
            raise ValueError("completion_times of a blind policy; expected equal_rates, or rates of single flows")
        common = self._completion_times if is_clairvoyant else self._equal_rates
        return Decision(self._order, self._backfill, self._rates, common, self._queues, self._rules)
