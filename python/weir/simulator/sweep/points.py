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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ... import _native
from ..errors import InputError
from ..fabric import Fabric
from ..own_policy import BlindPolicy, ClairvoyantPolicy
from ..policy import Policy, parameter, spec_text
from ..trace import Trace
from .inputs import Content, RecentFiles, invalid, read_file
from .worker import PolicyRef

#: Keyword arguments of ``compare`` that a grid can vary.
OPTIONS = ("port_rate", "interval", "arrival", "fabric", "per_stage", "incast", "buffer", "decide_over", "path_seed", "bandwidth_seed")

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
    """A trace, without the bytes of its files."""

    label: Label
    checksum: str
    nbytes: int
    #: Whether jobs or services bring a network, whose paths a seed selects.
    has_network: bool
    #: Files of this machine; none for a trace in memory.
    paths: tuple[str, ...]
    #: Reads the files again, or makes the trace again.
    read: Callable[[], Content]


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
        #: Fabrics, measurements of incasts and trees by checksum.
        self._contents: dict[str, Content] = {}
        #: The values of the grid that these files come from.
        self._sources: dict[str, Any] = {}
        #: Traces by checksum.
        self.traces: dict[str, TraceInput] = {}
        self._recent: RecentFiles[Content] = RecentFiles()
        self._known: dict[int, TraceInput] = {}
        given = [LabelledValue(item.label, self._policy(item.value)) for item in labelled("policies", _listed(policies))]
        self._baseline = None if baseline is None else self._policy(baseline)
        options = _option_keys(grid)
        self._axes = {options.get(key, key): self._axis(options.get(key, key), values) for key, values in grid.items()}
        self._options = list(options.values())
        self._policies = _vary(given, {key: items for key, items in self._axes.items() if key not in self._options})
        self._seeds = _checked_seeds(seeds, self._options)
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
        for item, seed in itertools.product(self._inputs, self._seeds):
            trace = self._trace(item, seed)
            for values in itertools.product(*(self._axes[key] for key in self._options)):
                settings = dict(zip(self._options, values, strict=True))
                yield from self._points_of_group(trace, seed, settings)

    def _points_of_group(self, trace: TraceInput, seed: int | None, settings: dict[str, LabelledValue]) -> Iterator[Point]:
        options = {key: item.value for key, item in settings.items() if key not in FILE_OPTIONS and item.value is not None}
        contents = {key: settings[key].value for key in FILE_OPTIONS if key in settings and settings[key].value is not None}
        options |= _seed_options(seed, trace, contents.get("fabric"))
        files = {key: content.checksum for key, content in contents.items()}
        inputs = {"weir": build_checksum(), "trace": trace.checksum, "options": options, "files": files}
        if self._baseline is not None:
            inputs["baseline"] = _identity(self._baseline)
        group = _digest(inputs)
        labels = {"trace": trace.label, "seed": seed} | {key: item.label for key, item in settings.items()}
        for label, policy, parameters in self._policies:
            key = _digest({"group": group, "policy": _identity(policy)})
            row = {"policy": label} | labels | parameters
            yield Point(key, group, trace.checksum, options, files, policy, row)

    def _axis(self, key: str, values: object) -> list[LabelledValue]:
        items = labelled(f"grid: {key}", values)
        if key not in FILE_OPTIONS:
            return items
        return [LabelledValue(item.label, None if item.value is None else self._content(item.value)) for item in items]

    def _content(self, file: Any) -> Content:
        content = _fabric_content(file) if isinstance(file, Fabric) else Content.read([file])
        self._contents[content.checksum] = content
        self._sources[content.checksum] = file
        return content

    def content(self, checksum: str) -> Content:
        """The files with a checksum. Those of traces are read or made again, unless they are among the most recent ones.

        :raises InputError: if a trace has changed since the start.
        """
        content = self._contents.get(checksum) or self._recent.get(checksum)
        if content is None:
            trace = self.traces[checksum]
            content = trace.read()
            if content.checksum != checksum:
                expected = "files that do not change, and functions that return an equal trace for a seed"
                raise invalid(f"traces: {trace.label}", "changed during the sweep", expected)
            self._keep_recent(content)
        return content

    def _keep_recent(self, content: Content) -> None:
        self._recent.add(content.checksum, content, content.nbytes)
        self._recent.drop_oldest(1)

    def options_of(self, point: Point) -> dict[str, Any]:
        """The options of a point, with files and fabrics as the caller gave them."""
        return point.options | {name: self._sources[checksum] for name, checksum in point.files.items()}

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
        label, source = item.label, item.value
        if not callable(source):
            known = self._known.get(id(item))
            if known is not None:
                return known
        elif seed is None:
            raise invalid(f"traces: {label}", "a function of the seed needs seeds", "`seeds`, such as range(20)")

        def read() -> tuple[Content, tuple[str, ...]]:
            return _trace_content(label, source(seed) if callable(source) else source)

        content, paths = read()
        has_network = any(_TABLE.search(data) for _, data in content.files)
        trace = TraceInput(label, content.checksum, content.nbytes, has_network, paths, lambda: read()[0])
        self.traces[trace.checksum] = trace
        self._keep_recent(content)
        if not callable(source):
            self._known[id(item)] = trace
        return trace


def _trace_content(label: Label, source: Any) -> tuple[Content, tuple[str, ...]]:
    """The files of a trace, and their paths; none for a trace in memory."""
    if isinstance(source, Trace):
        state = source._native.state
        if state is not None:
            return Content([("trace.weir", source.to_bytes())], 1, state), ()
        # Jobs and services are more than their coflows.
        source, arguments = source._read or ((), {})
        if any(value not in (None, False) for value in arguments.values()):
            raise invalid(f"traces: {label}", "jobs or services that were read with arguments", "their files")
    paths = [os.fspath(path) for path in ([source] if isinstance(source, (str, os.PathLike)) else source)]
    return Content.read(paths), tuple(paths)


def _option_keys(grid: Mapping[str, object]) -> dict[str, str]:
    """The keys of a grid that are options of ``compare``, and the options. Hyphens of the command line are underscores."""
    options: dict[str, str] = {}
    for key in grid:
        if not isinstance(key, str):
            raise TypeError(f"grid: key {key!r}: expected a text")
        option = key.replace("-", "_")
        if option in options.values():
            raise invalid(f"grid: {key}", "is repeated", "each option once")
        if option in OPTIONS:
            options[key] = option
    return options


#: A policy with its label, and the labels of its parameters in the grid.
VariedPolicy = tuple[Label, PolicyRef, dict[str, Label]]


def _vary(policies: Sequence[LabelledValue], axes: Mapping[str, Sequence[LabelledValue]]) -> list[VariedPolicy]:
    """The policies with all combinations of the parameters that they have.

    :raises InputError: if a value is invalid, or no policy has a parameter.
    """
    varied: list[VariedPolicy] = []
    unsupported = dict.fromkeys(axes, "")
    for item in policies:
        name = item.value.spec.partition(":")[0]
        keys = [key for key in axes if key.partition(":")[0] in (key, name)]
        combinations = list(itertools.product(*(axes[key] for key in keys)))
        points = [[parameter(key, item.value) for key, item in zip(keys, values, strict=True)] for values in combinations]
        specs: set[str] = set()
        for values, (spec, supports, unused) in zip(combinations, _native.vary_policy(item.value.spec, points), strict=True):
            labels = {key: value.label for key, value, is_supported in zip(keys, values, supports, strict=True) if is_supported}
            unsupported = {key: reason or unused or "" for key, reason in unsupported.items() if key not in labels}
            if spec not in specs:
                varied.append((item.label, dataclasses.replace(item.value, spec=spec), labels))
                specs.add(spec)
    for key, reason in unsupported.items():
        raise InputError(f"grid: {reason or _native.describe_unsupported_parameter(key, ', '.join(OPTIONS))}", field=f"grid: {key}")
    return varied


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


def _checked_seeds(seeds: Iterable[int] | None, options: Iterable[str]) -> list[int] | list[None]:
    if seeds is None:
        return [None]
    for key in options:
        if key in ("path_seed", "bandwidth_seed"):
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
