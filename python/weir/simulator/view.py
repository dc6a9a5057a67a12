"""What a policy of one's own reads: the network at one time, as read-only NumPy arrays.

An array is copied from the simulator when a policy reads it for the first time during a call, so a call pays only for what it reads. Rates
are in bytes per second, sizes in bytes, times in seconds since the start of the replay. A view is valid until the method that received it
returns; its arrays are copies and stay.

Arrays of coflows have one value for each active coflow, in the order of release: the *position* of a coflow is its index there. Arrays of
flows have one value for each live flow: coflow by coflow, and in the order of ports inside a coflow. Positions and indices change from
call to call. :attr:`Coflows.id` and :attr:`Flows.number` stay.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, overload

import numpy as np
import numpy.typing as npt

from .allocation import Allocation

if TYPE_CHECKING:
    from .._native import PolicyView

__all__ = ["ClairvoyantView", "Coflows", "Flows", "LinkKind", "Links", "SizedCoflows", "SizedFlows", "View"]

_Number = TypeVar("_Number", bound=np.generic)


class LinkKind(enum.IntEnum):
    """What a link is: the values of :attr:`Links.kind`."""

    SENDER = 0
    """The sending side of a port."""
    RECEIVER = 1
    """The receiving side of a port."""
    TRUNK = 2
    """A link between switches or regions."""


class _Fields:
    """The arrays that one call has read so far."""

    __slots__ = ("arrays", "native")

    def __init__(self, native: PolicyView) -> None:
        self.native: PolicyView | None = native
        self.arrays: dict[str, npt.NDArray[Any]] = {}

    def source(self) -> PolicyView:
        if self.native is None:
            raise RuntimeError(
                "the view is valid until the method that received it returns; copy the arrays that you need later"
            )
        return self.native

    def end(self) -> None:
        self.native = None
        self.arrays.clear()


class _Array(Generic[_Number]):
    """An array that is copied at its first access. The name of the attribute is that of the field."""

    def __init__(self, kind: type[_Number]) -> None:
        self._type = kind
        self._field = ""

    def __set_name__(self, owner: type[_Group], name: str) -> None:
        self._field = f"{owner._group}.{name}"

    @overload
    def __get__(self, group: None, owner: type[_Group]) -> _Array[_Number]: ...
    @overload
    def __get__(self, group: _Group, owner: type[_Group]) -> npt.NDArray[_Number]: ...
    def __get__(self, group: _Group | None, owner: type[_Group]) -> _Array[_Number] | npt.NDArray[_Number]:
        if group is None:
            return self
        source = group._fields.source()
        array = group._fields.arrays.get(self._field)
        if array is None:
            array = np.frombuffer(source.read(self._field), self._type)
            group._fields.arrays[self._field] = array
        return array


class _Group:
    """Arrays with one value for each coflow, live flow or link."""

    __slots__ = ("_fields",)
    _group = ""

    def __init__(self, fields: _Fields) -> None:
        self._fields = fields

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            reason = f"`{name}` is no attribute of {type(self).__name__}"
            if name in ("size", "remaining_bytes") and not isinstance(self, Links):
                reason = (
                    f"`{name}` of {self._group} is unknown to a blind policy; "
                    "derive the class from weir.ClairvoyantPolicy to read sizes"
                )
            raise AttributeError(reason)


class Coflows(_Group):
    """The active coflows: arrays of shape ``(coflows,)``, in the order of release.

    ========================  ==================================================================================================
    ``id``                    number of the coflow in the trace
    ``service``               number of its service, in the order of the trace
    ``application``           number of its application inside the service
    ``weight``                importance; 1 unless the trace has another
    ``released_at``           time of the release
    ``deadline``              latest time of completion; infinity for none
    ``width``                 number of all its flows (N_c in Saath, CoNEXT '17, Table 1)
    ``live_flows``            number of flows that can send: their data exists, and they have not completed
    ``sent_bytes``            bytes that all its flows have sent, with completed ones
    ``max_sent_bytes``        bytes that its most advanced flow has sent, with completed ones (m_c in Saath, section 4.2)
    ``rate``                  total rate in force: in ``schedule`` that of the last schedule, in ``next_wakeup`` that of this one
    ``contention``            number of other coflows that share a link with it which can fill (k_c in Saath, section 4.2)
    ========================  ==================================================================================================
    """

    __slots__ = ()
    _group = "coflows"
    id = _Array(np.uint64)
    service = _Array(np.uint32)
    application = _Array(np.uint32)
    weight = _Array(np.float64)
    released_at = _Array(np.float64)
    deadline = _Array(np.float64)
    width = _Array(np.uint32)
    live_flows = _Array(np.uint32)
    sent_bytes = _Array(np.float64)
    max_sent_bytes = _Array(np.float64)
    rate = _Array(np.float64)
    contention = _Array(np.uint32)

    def __len__(self) -> int:
        return len(self.live_flows)


class SizedCoflows(Coflows):
    """:class:`Coflows` with sizes, for a clairvoyant policy.

    ========================  ==================================================================================================
    ``size``                  bytes of all its flows
    ``remaining_bytes``       bytes that its live flows have left
    ========================  ==================================================================================================
    """

    __slots__ = ()
    size = _Array(np.float64)
    remaining_bytes = _Array(np.float64)


class Flows(_Group):
    """The live flows: arrays of shape ``(flows,)``, coflow by coflow.

    ========================  ==================================================================================================
    ``coflow``                position of the flow's coflow
    ``number``                position of the flow among those of its coflow in the trace, from 0
    ``sending_link``          link of the sending port
    ``receiving_link``        link of the receiving port
    ``sent_bytes``            bytes that the flow has sent
    ``rate``                  rate in force, as :attr:`Coflows.rate`
    ``path_starts``           shape ``(flows + 1,)``: flow ``i`` crosses ``path_links[path_starts[i]:path_starts[i + 1]]``
    ``path_links``            links of all flows: of the sending port, of the receiving port, then trunks
    ========================  ==================================================================================================
    """

    __slots__ = ()
    _group = "flows"
    coflow = _Array(np.uint32)
    number = _Array(np.uint32)
    sending_link = _Array(np.uint32)
    receiving_link = _Array(np.uint32)
    sent_bytes = _Array(np.float64)
    rate = _Array(np.float64)
    path_starts = _Array(np.uint32)
    path_links = _Array(np.uint32)

    def __len__(self) -> int:
        return len(self.coflow)


class SizedFlows(Flows):
    """:class:`Flows` with sizes, for a clairvoyant policy.

    ========================  ==================================================================================================
    ``size``                  bytes of the flow
    ``remaining_bytes``       bytes that the flow has left
    ========================  ==================================================================================================
    """

    __slots__ = ()
    size = _Array(np.float64)
    remaining_bytes = _Array(np.float64)


class Links(_Group):
    """The links: arrays of shape ``(links,)``. A policy tree offers its policies a part of each link.

    ========================  ==================================================================================================
    ``capacity``              bytes per second; infinity for a port in a region, which limits no flow
    ``kind``                  a :class:`LinkKind`
    ========================  ==================================================================================================
    """

    __slots__ = ()
    _group = "links"
    capacity = _Array(np.float64)
    kind = _Array(np.uint32)

    def __len__(self) -> int:
        return len(self.kind)


class View:
    """The network at one time, without the sizes of flows: what a :class:`weir.BlindPolicy` reads."""

    __slots__ = ("_coflows", "_fields", "_flows", "_links", "_times")

    def __init__(self, native: PolicyView) -> None:
        self._fields = _Fields(native)
        self._times = native.times()
        self._coflows = Coflows(self._fields)
        self._flows = Flows(self._fields)
        self._links = Links(self._fields)

    @property
    def now(self) -> float:
        """The time in seconds since the start of the replay."""
        self._fields.source()
        return self._times[0]

    @property
    def interval(self) -> float:
        """The minimum time between schedules in seconds; 0: a schedule at every change."""
        self._fields.source()
        return self._times[1]

    @property
    def coflows(self) -> Coflows:
        """The active coflows."""
        return self._coflows

    @property
    def flows(self) -> Flows:
        """The live flows."""
        return self._flows

    @property
    def links(self) -> Links:
        """The links."""
        return self._links

    def in_order(
        self,
        order: npt.ArrayLike,
        *,
        backfill: bool = True,
        queues: npt.ArrayLike | None = None,
        rules: Any = None,
    ) -> Allocation:
        """Serves coflows in an order, by the same steps as Weir's own policies.

        All flows of a coflow get rates at once, or none does. Under a blind policy the rates are equal, and the highest that the links
        still have (Saath, CoNEXT '17, D1 and D2). Under a clairvoyant policy all flows of the coflow complete together, as early as the
        links still allow (MADD: Varys, SIGCOMM '14, section 5.1).

        :param order: positions of coflows, each at most once; the others get no rates. ``numpy.argsort(keys, kind="stable")`` orders
            coflows by ascending keys, and by their release if keys are equal.
        :param backfill: whether flows then get the capacity that is left, coflow by coflow in the same order.
        :param queues: shape ``(coflows,)``: the queue of each coflow, 0 to 65535, for explanations.
        :param rules: as for :class:`weir.Allocation`. Without them, explanations have the names of Weir's rules.
        """
        self._fields.source()
        return Allocation._in_order(order, backfill, queues, rules)

    def _end(self) -> None:
        """Makes the view raise from now on."""
        self._fields.end()


class ClairvoyantView(View):
    """A :class:`View` with the sizes of flows: what a :class:`weir.ClairvoyantPolicy` reads."""

    __slots__ = ()
    _coflows: SizedCoflows
    _flows: SizedFlows

    def __init__(self, native: PolicyView) -> None:
        super().__init__(native)
        self._coflows = SizedCoflows(self._fields)
        self._flows = SizedFlows(self._fields)

    @property
    def coflows(self) -> SizedCoflows:
        """The active coflows."""
        return self._coflows

    @property
    def flows(self) -> SizedFlows:
        """The live flows."""
        return self._flows
