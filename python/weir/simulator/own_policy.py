"""Policies of one's own: a class with a method ``schedule`` that runs wherever Weir's own policies run.

Least attained service serves first what has received the least (Nuyens and Wierman, The Foreground-Background queue, Performance
Evaluation 65, 2008); Aalo (SIGCOMM '15, section 4) approximates it for coflows by queues:

    class LeastAttainedService(weir.BlindPolicy):
        def schedule(self, view):
            return view.in_order(numpy.argsort(view.coflows.sent_bytes, kind="stable"))

    weir.compare(trace, ["fair", LeastAttainedService])

A class is registered by its name when it is defined: ``least-attained-service``, or its attribute ``name``. A class that is defined again
replaces the former one. Parameters of a specification become keyword arguments of the class: ``las:levels=3`` makes ``Las(levels=3)``.
Each parameter has a default value, whose type is that of the parameter. Each replay makes its own object.
"""

from __future__ import annotations

import functools
import inspect
import re
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from .allocation import Allocation, Decision

if TYPE_CHECKING:
    from .._native import PolicyView

    from .view import ClairvoyantView, View

__all__ = ["BlindPolicy", "ClairvoyantPolicy", "Event"]


class Event(NamedTuple):
    """A change since the last schedule."""

    kind: str
    """``coflow-released``, ``coflow-completed``, ``flow-live`` (a flow got its data after the release of its coflow), ``flow-interrupted``
    (a flow lost its data for a while, or its progress), ``flow-completed`` or ``capacity-changed``. When the flows of a coflow are
    replaced, such as after the failure of a cable, ``coflow-completed`` and ``coflow-released`` follow each other."""
    coflow: int | None
    """The number of the coflow in the trace."""
    flow: int | None
    """The position of the flow among those of its coflow in the trace, from 0."""


class _PolicyClass:
    """What blind and clairvoyant policies have in common."""

    name: ClassVar[str]
    """The name in specifications: letters, digits, ``+`` and ``-``. By default that of the class, in lower case with hyphens."""

    _is_clairvoyant: ClassVar[bool]

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "_is_clairvoyant" in vars(cls) or not callable(getattr(cls, "schedule", None)):
            return
        if "name" not in vars(cls):
            cls.name = _default_name(cls.__name__)
        _register(cls)


class BlindPolicy(_PolicyClass):
    """The base class of a policy that does not know the sizes of flows, as Saath and Aalo.

    Derived classes define ``schedule``. They can define ``on_event`` and ``next_wakeup`` too, which are not called otherwise:

    ``schedule(view)``
        returns a :class:`weir.Allocation` for the network of a :class:`weir.simulator.view.View`. Called after every arrival and
        completion, with ``interval`` at the next multiple of it.
    ``next_wakeup(view)``
        returns the latest time of the next schedule in seconds if nothing happens before, such as the time at which a coflow reaches a
        threshold; infinity or ``None`` for none. Called after each schedule, when its rates are in force. A time up to 1 us ahead counts as
        1 us ahead.
    ``on_event(event, view)``
        receives an :class:`Event`. Called once after each change, before the next schedule.

    An exception ends the replay with a :class:`weir.ReplayError`, whose ``__cause__`` it is. Results are reproducible if the same calls
    return the same values.
    """

    _is_clairvoyant = False

    if TYPE_CHECKING:

        def schedule(self, view: View) -> Allocation:
            """Returns the rates until the next schedule."""
            raise NotImplementedError


class ClairvoyantPolicy(_PolicyClass):
    """The base class of a policy that knows the sizes of all flows from the start, as Varys and Sincronia.

    As :class:`BlindPolicy`, with a :class:`weir.simulator.view.ClairvoyantView`.
    """

    _is_clairvoyant = True

    if TYPE_CHECKING:

        def schedule(self, view: ClairvoyantView) -> Allocation:
            """Returns the rates until the next schedule."""
            raise NotImplementedError


def _default_name(class_name: str) -> str:
    """``LeastAttainedService`` becomes ``least-attained-service``."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", class_name)
    return words.replace("_", "-").strip("-").lower()


def _register(cls: type[_PolicyClass]) -> None:
    """Makes a class available by its name."""
    from .. import _native

    parameters = [
        (f"{_key(parameter)}={_default_text(parameter.default)}", "") for parameter in _parameters(cls).values()
    ]
    summary = (inspect.getdoc(cls) or "").partition("\n")[0]
    _native.register_policy(cls.name, summary, parameters, cls._is_clairvoyant, functools.partial(_make_runner, cls))


def class_spec(cls: object) -> str | None:
    """The specification of a class of policies; ``None`` for another object."""
    if not (isinstance(cls, type) and issubclass(cls, _PolicyClass) and hasattr(cls, "name")):
        return None
    # Another class can have had the name since the definition.
    _register(cls)
    return cls.name


def _parameters(cls: type[_PolicyClass]) -> dict[str, inspect.Parameter]:
    """The parameters of a class by name."""
    parameters = [
        parameter
        for parameter in inspect.signature(cls).parameters.values()
        if parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    ]
    for parameter in parameters:
        if type(parameter.default) not in (int, float, bool, str) or parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise TypeError(
                f"{cls.__name__}: parameter `{parameter.name}` is invalid; expected a keyword with a default value of type "
                "int, float, bool or str, since specifications are text"
            )
    return {parameter.name: parameter for parameter in parameters}


def _key(parameter: inspect.Parameter) -> str:
    """The name of a parameter in specifications."""
    return parameter.name.replace("_", "-")


def _default_text(value: object) -> str:
    """The default value of a parameter in specifications."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _make_runner(cls: type[_PolicyClass], given: list[tuple[str, str]]) -> Runner | str:
    """Makes a policy from known parameters of a specification; returns an error text if a value is invalid."""
    parameters = {_key(parameter): parameter for parameter in _parameters(cls).values()}
    arguments: dict[str, Any] = {}
    for key, text in given:
        parameter = parameters[key.replace("_", "-")]
        if parameter.name in arguments:
            return f"`{key}={text}` is invalid; expected each parameter once"
        value, expected = _parse_value(text, type(parameter.default))
        if expected:
            return f"`{key}={text}` is invalid; expected {expected}"
        arguments[parameter.name] = value
    return Runner(cls(**arguments))


def _parse_value(text: str, kind: type) -> tuple[object, str]:
    """The value of a parameter, and the expectation if the text is invalid."""
    if kind is bool:
        return text == "on", "" if text in ("on", "off") else "`on` or `off`"
    try:
        return kind(text), ""
    except ValueError:
        return None, "a whole number" if kind is int else "a number"


def interrupt_threads(threads: list[int]) -> None:
    """Raises :class:`KeyboardInterrupt` in threads, so that the Python code of policies in them ends."""
    import ctypes

    for thread in threads:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(KeyboardInterrupt))


class Runner:
    """Calls the methods of a policy with views, for the simulator."""

    def __init__(self, policy: Any) -> None:
        from .view import ClairvoyantView, View

        self._policy = policy
        self._is_clairvoyant = policy._is_clairvoyant
        self._view: type[View] = ClairvoyantView if policy._is_clairvoyant else View
        self.handles_events = hasattr(policy, "on_event")
        self.sets_wakeups = hasattr(policy, "next_wakeup")

    def schedule(self, native: PolicyView) -> Decision:
        """The arrays of the policy's decision."""
        view = self._view(native)
        try:
            allocation = self._policy.schedule(view)
        finally:
            view._end()
        if not isinstance(allocation, Allocation):
            raise TypeError(f"`schedule` returned {allocation!r:.100}; expected a weir.Allocation")
        return allocation._decision(self._is_clairvoyant)

    def on_event(self, kind: str, coflow: int | None, flow: int | None, native: PolicyView) -> None:
        """Passes an event on."""
        view = self._view(native)
        try:
            self._policy.on_event(Event(kind, coflow, flow), view)
        finally:
            view._end()

    def next_wakeup(self, native: PolicyView) -> float:
        """The time of the next schedule in seconds."""
        view = self._view(native)
        try:
            time = self._policy.next_wakeup(view)
        finally:
            view._end()
        if time is None:
            return float("inf")
        try:
            return float(time)
        except (TypeError, ValueError):
            raise TypeError(f"`next_wakeup` returned {time!r:.100}; expected a time in seconds, or None") from None
