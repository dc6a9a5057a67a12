"""The points of a sweep: all combinations of traces, seeds, options and policies."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import itertools
import json
import operator
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ... import _native
from ..fabric import Fabric
from ..own_policy import BlindPolicy, ClairvoyantPolicy
from ..policy import Policy, parameter_text, spec_text
from ..trace import Trace
from .inputs import Content, invalid, read_file
from .worker import PolicyRef

#: Keyword arguments of ``compare`` that a grid can vary.
OPTIONS = ("port_rate", "interval", "fabric", "per_stage", "incast", "buffer", "decide_over", "path_seed", "bandwidth_seed")

#: Those whose values are files.
FILE_OPTIONS = ("fabric", "incast")

#: A cell of a row.
Label = str | int | float | bool | None


@dataclass(frozen=True)
class LabelledValue:
    """A value of a grid, and its text or number in results."""

    label: Label
    value: Any


#: A table of TOML, which files of jobs and services have, and traces do not.
_TABLE = re.compile(rb"^\s*\[\[?[a-z]", re.MULTILINE)


@dataclass(frozen=True)
class TraceInput:
    """A trace with its files."""

    label: Label
    content: Content
    #: Files of this machine; none for a trace in memory.
    paths: tuple[str, ...]

    @functools.cached_property
    def has_network(self) -> bool:
        """Whether jobs or services bring a network, whose paths a seed selects."""
        return any(_TABLE.search(data) for _, data in self.content.files)


@dataclass(frozen=True)
class Point:
    """A replay with its row's labels. Points of equal ``group`` differ in their policies only."""

    key: str
    group: str
    trace: str
    options: dict[str, Any]
    files: dict[str, str]
    policy: PolicyRef
    labels: dict[str, Label]


class Grid:
    """All inputs of a sweep.

    :raises InputError: if a key or a value is invalid.
    """

    def __init__(
        self,
        grid: Mapping[str, object],
        traces: object,
        policies: object,
        seeds: Iterable[int] | None,
        baseline: object,
    ) -> None:
        #: Files by checksum.
        self.contents: dict[str, Content] = {}
        #: Traces by checksum.
        self.traces: dict[str, TraceInput] = {}
        self._read: dict[int, TraceInput] = {}
        self._policies = [LabelledValue(item.label, self._policy(item.value)) for item in labelled("policies", _listed(policies))]
        self._baseline = None if baseline is None else self._policy(baseline)
        self._axes = {key: self._axis(key, values) for key, values in grid.items()}
        self._seeds = _checked_seeds(seeds, grid)
        self._inputs = labelled("traces", traces)

    @property
    def baseline(self) -> PolicyRef | None:
        """The policy that speedups refer to."""
        return self._baseline

    @property
    def columns(self) -> list[str]:
        """The labels of each row."""
        return ["trace", "policy", "seed", *self._axes]

    def points(self) -> Iterator[Point]:
        """All points; those of one trace, and of one group, follow each other."""
        shared = [key for key in self._axes if ":" not in key]
        for item, seed in itertools.product(self._inputs, self._seeds):
            trace = self._trace(item, seed)
            for values in itertools.product(*(self._axes[key] for key in shared)):
                settings = dict(zip(shared, values, strict=True))
                yield from self._points_of_group(trace, seed, settings)

    def _points_of_group(self, trace: TraceInput, seed: int | None, settings: dict[str, LabelledValue]) -> Iterator[Point]:
        options = {key: item.value for key, item in settings.items() if key not in FILE_OPTIONS and item.value is not None}
        contents = {key: settings[key].value for key in FILE_OPTIONS if key in settings and settings[key].value is not None}
        options |= _seed_options(seed, trace, contents.get("fabric"))
        files = {key: content.checksum for key, content in contents.items()}
        inputs = {"weir": build_checksum(), "trace": trace.content.checksum, "options": options, "files": files}
        if self._baseline is not None:
            inputs["baseline"] = _identity(self._baseline)
        group = _digest(inputs)
        labels = {"trace": trace.label, "seed": seed} | {key: item.label for key, item in settings.items()}
        for item in self._policies:
            for policy, parameters in self._with_parameters(item.value):
                key = _digest({"group": group, "policy": _identity(policy)})
                row = {"policy": item.label} | labels | parameters
                yield Point(key, group, trace.content.checksum, options, files, policy, row)

    def _with_parameters(self, policy: PolicyRef) -> Iterator[tuple[PolicyRef, dict[str, Label]]]:
        """The policy with all combinations of its parameters in the grid, and their labels."""
        name = policy.spec.partition(":")[0]
        keys = [key for key in self._axes if key.partition(":")[0] == name and ":" in key]
        for values in itertools.product(*(self._axes[key] for key in keys)):
            suffix = "".join(parameter_text(key.partition(":")[2], item.value) for key, item in zip(keys, values, strict=True))
            varied = dataclasses.replace(policy, spec=policy.spec + suffix)
            yield varied, {key: item.label for key, item in zip(keys, values, strict=True)}

    def _axis(self, key: str, values: object) -> list[LabelledValue]:
        items = labelled(f"grid: {key}", values)
        name, _, parameter = key.partition(":")
        if parameter:
            specs = [item.value.spec for item in self._policies if item.value.spec.partition(":")[0] == name]
            if not specs:
                raise invalid(f"grid: {key}", f"no policy is named `{name}`", "one of those that the sweep replays")
            if any(parameter_text(parameter, "") in spec for spec in specs):
                raise invalid(f"grid: {key}", f"`{specs[0]}` has a value already", "the parameter in one place")
        elif key not in OPTIONS:
            raise invalid(f"grid: {key}", "unknown key", f"one of {', '.join(OPTIONS)}, or POLICY:PARAMETER such as `saath:start`")
        if key not in FILE_OPTIONS:
            return items
        return [LabelledValue(item.label, None if item.value is None else self._content(item.value)) for item in items]

    def _content(self, file: Any) -> Content:
        content = _fabric_content(file) if isinstance(file, Fabric) else Content.read([file])
        self.contents[content.checksum] = content
        return content

    def _policy(self, policy: object) -> PolicyRef:
        spec = spec_text(policy)
        name, _, file = spec.partition(":")
        if isinstance(policy, type):
            return PolicyRef(spec, classes=(policy,))
        if name != "tree":
            return PolicyRef(spec, classes=_own_classes(name))
        content = self._content(file)
        return PolicyRef(spec, content.checksum, _own_classes(content.files[0][1].decode(errors="replace")))

    def _trace(self, item: LabelledValue, seed: int | None) -> TraceInput:
        source = item.value
        if not callable(source):
            known = self._read.get(id(item))
            if known is not None:
                return known
        elif seed is None:
            raise invalid(f"traces: {item.label}", "a function of the seed needs seeds", "`seeds`, such as range(20)")
        trace = self._trace_input(item.label, source(seed) if callable(source) else source)
        self.contents[trace.content.checksum] = trace.content
        self.traces[trace.content.checksum] = trace
        self._read[id(item)] = trace
        return trace

    def _trace_input(self, label: Label, source: Any) -> TraceInput:
        if isinstance(source, Trace):
            state = source._native.state
            if state is not None:
                return TraceInput(label, Content([("trace.weir", source.to_bytes())], 1, state), ())
            # Jobs and services are more than their coflows.
            source, arguments = source._read or ((), {})
            if any(value not in (None, False) for value in arguments.values()):
                raise invalid(f"traces: {label}", "jobs or services that were read with arguments", "their files")
        paths = [os.fspath(path) for path in ([source] if isinstance(source, (str, os.PathLike)) else source)]
        return TraceInput(label, Content.read(paths), tuple(paths))


def _fabric_content(fabric: Fabric) -> Content:
    with tempfile.TemporaryDirectory(prefix="weir-") as folder:
        file = Path(folder, "fabric.toml")
        fabric.write(file)
        return Content.read([file])


def _listed(policies: object) -> object:
    """Policies as :func:`compare` takes them: one, or several in any order of iteration."""
    if isinstance(policies, (str, Policy, type, Mapping)) or not isinstance(policies, Iterable):
        return policies
    return list(policies)


def labelled(name: str, values: object) -> list[LabelledValue]:
    """The values of a list or of a dictionary by label; a value alone is a list of one."""
    if isinstance(values, Mapping):
        items = [LabelledValue(label, value) for label, value in values.items()]
    elif isinstance(values, (list, range, set, frozenset)) or (isinstance(values, tuple) and name != "traces"):
        # A tuple of traces is files that share one network.
        ordered = sorted(values) if isinstance(values, (set, frozenset)) else values
        items = [LabelledValue(_default_label(name, value), value) for value in ordered]
    else:
        items = [LabelledValue(_default_label(name, values), values)]
    if not items:
        raise invalid(name, "no values", "one or more")
    known: set[Label] = set()
    for label in (item.label for item in items):
        if not isinstance(label, (str, int, float)) and label is not None:
            raise TypeError(f"{name}: label {label!r}: expected a text or a number")
        if label in known:
            raise invalid(name, f"{label!r} is repeated", "different values; help: a dictionary gives each a label")
        known.add(label)
    return items


def _default_label(name: str, value: Any) -> Label:
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, os.PathLike):
        return str(value)
    if isinstance(value, tuple):
        return " + ".join(os.fspath(part) for part in value)
    if isinstance(value, (Policy, type)):
        return spec_text(value)
    label = getattr(value, "name", None)
    if isinstance(label, str):
        return label
    raise TypeError(f"{name}: {value!r}: expected a dictionary that gives it a label")


def _seed_options(seed: int | None, trace: TraceInput, fabric: Content | None) -> dict[str, Any]:
    """What a seed means: another trace, and other paths over a fabric or bandwidths between regions."""
    if seed is None or (fabric is None and not trace.has_network):
        return {}
    has_regions = fabric is not None and re.search(rb"^\s*weir-wide-area\b", fabric.files[0][1], re.MULTILINE)
    return {"bandwidth_seed" if has_regions else "path_seed": seed}


def _checked_seeds(seeds: Iterable[int] | None, grid: Mapping[str, object]) -> list[int] | list[None]:
    if seeds is None:
        return [None]
    for key in ("path_seed", "bandwidth_seed"):
        if key in grid:
            raise invalid(f"grid: {key}", "`seeds` sets it", "one of both")
    if not isinstance(seeds, Iterable):
        raise invalid("seeds", repr(seeds), "several whole numbers, such as range(20)")
    checked = [seed if isinstance(seed, bool) or not hasattr(seed, "__index__") else operator.index(seed) for seed in seeds]
    are_valid = all(type(seed) is int and 0 <= seed < 2**64 for seed in checked)
    if not checked or len(set(checked)) < len(checked) or not are_valid:
        raise invalid("seeds", str(checked), "different whole numbers from 0 to 2^64 - 1, such as range(20)")
    return checked


def _own_classes(text: str) -> tuple[type, ...]:
    """The classes of policies that a specification or a file names, each the last one of its name."""
    found: dict[str, type] = {}
    waiting: list[type] = [ClairvoyantPolicy, BlindPolicy]
    while waiting:
        own_class = waiting.pop(0)
        waiting += own_class.__subclasses__()
        name = vars(own_class).get("name")
        if isinstance(name, str) and re.search(rf"(?<![\w+-]){re.escape(name)}(?![\w+-])", text):
            found[name] = own_class
    return tuple(found.values())


@functools.cache
def build_checksum() -> str:
    """The checksum of the native module: another build can decide differently."""
    return hashlib.sha256(read_file(_native.__file__)).hexdigest()


def _identity(policy: PolicyRef) -> dict[str, Any]:
    """What results of a policy depend on."""
    inputs: dict[str, Any] = {"spec": policy.spec} if policy.tree is None else {"tree": policy.tree}
    if policy.classes:
        inputs["source"] = [_source_checksum(part) for own_class in policy.classes for part in own_class.__mro__]
    return inputs


def _source_checksum(part: type) -> str:
    """The checksum of the file that defines a class, or of a class in a notebook; that of Weir and of Python itself is their version."""
    if part.__module__.partition(".")[0] in ("builtins", "abc", "typing", "weir"):
        return part.__qualname__
    file = getattr(sys.modules.get(part.__module__), "__file__", None)
    source = _notebook_source(part) if file is None else read_file(file)
    return hashlib.sha256(source).hexdigest()


def _notebook_source(part: type) -> bytes:
    """The text of the methods and attributes of a class."""
    try:
        texts = [inspect.getsource(value) if inspect.isfunction(value) else f"{name} = {value!r}" for name, value in vars(part).items()]
    except OSError as error:
        raise invalid("policies", f"the source of {part.__name__} is unknown", "a class in a file or a notebook") from error
    return "\n".join(text for text in texts if not text.startswith("__")).encode()


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
