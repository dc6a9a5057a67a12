"""Reads a sweep from a TOML file."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..fabric import Fabric
from ..optional import load
from ..trace import Trace
from .inputs import read_file
from .points import FILE_OPTIONS

#: The keys of a file, and their values.
KEYS = {
    "traces": "a list of files, or a table of labels and files, lists of files that share one network, or arguments of Trace.generate",
    "policies": 'a list of policies, such as ["fair", "saath:start=1MB"]',
    "seeds": 'a list of whole numbers, or a range such as "1..20", which contains both ends',
    "baseline": "the policy that speedups refer to",
    "fabrics": 'a table of labels and files, or of labels and templates, such as 4 = { kind = "leaf-spine", ... }',
    "grid": "a table of options and lists of values, such as interval = [\"0\", \"8ms\"]",
    "coflows": "true to keep a row for each replay and coflow, or false",
    "out": "the folder of results",
}


def read_sweep(file: str | os.PathLike[str]) -> dict[str, Any]:
    """The keyword arguments of :func:`weir.sweep` that a file contains. Files in it are relative to its folder.

    :raises InputError: if the file is invalid or cannot be read.
    """
    name, folder = os.fspath(file), Path(file).parent
    values = _parse(name, read_file(file))
    for key in values:
        if key not in KEYS:
            raise InputError(f"{name}: `{key}`: unknown key; expected one of {', '.join(KEYS)}", file=name, expected=", ".join(KEYS))
    for key in ("traces", "policies"):
        if key not in values:
            raise _invalid(name, key, "is missing")
    grid = _typed(name, values, "grid", dict) or {}
    arguments: dict[str, Any] = {
        "grid": {key: _grid_values(name, folder, key, listed) for key, listed in grid.items()},
        "traces": _traces(name, folder, values["traces"]),
        "policies": {policy: _policy(folder, policy) for policy in _texts(name, "policies", values["policies"])},
        "seeds": _seeds(name, values.get("seeds")),
    }
    fabrics = _typed(name, values, "fabrics", dict)
    if fabrics is not None:
        if "fabric" in grid:
            raise InputError(f"{name}: `grid.fabric`: `fabrics` sets it; expected one of both", file=name)
        arguments["grid"]["fabric"] = {label: _fabric(name, folder, label, value) for label, value in fabrics.items()}
    baseline = _typed(name, values, "baseline", str)
    if baseline is not None:
        arguments["baseline"] = _policy(folder, baseline)
    if "coflows" in values:
        arguments["coflows"] = _typed(name, values, "coflows", bool)
    out = _typed(name, values, "out", str)
    if out is not None:
        arguments["out"] = folder / out
    return arguments


def _parse(name: str, data: bytes) -> dict[str, Any]:
    # Python 3.10 has no tomllib.
    tomllib = load("tomllib" if sys.version_info >= (3, 11) else "tomli", "a sweep's file", "sweep")
    try:
        parsed: dict[str, Any] = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{name}: {error}", file=name) from error
    return parsed


def _invalid(name: str, key: str, problem: str) -> InputError:
    expected = KEYS[key.partition(".")[0]]
    return InputError(f"{name}: `{key}`: {problem}; expected {expected}", file=name, expected=expected)


def _typed(name: str, values: dict[str, Any], key: str, kind: type) -> Any:
    value = values.get(key)
    if value is not None and not isinstance(value, kind):
        raise _invalid(name, key, f"{value!r}")
    return value


def _texts(name: str, key: str, values: Any) -> list[str]:
    texts = [values] if isinstance(values, str) else values
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise _invalid(name, key, f"{values!r}")
    return texts


def _traces(name: str, folder: Path, values: Any) -> dict[str, Any]:
    if not isinstance(values, dict):
        return {file: folder / file for file in _texts(name, "traces", values)}
    return {label: _trace(name, folder, f"traces.{label}", value) for label, value in values.items()}


def _trace(name: str, folder: Path, key: str, value: Any) -> Any:
    """The files of a trace, or a generated trace; without ``seed``, one for each seed of the sweep."""
    if not isinstance(value, dict):
        return tuple(folder / file for file in _texts(name, key, value))
    known = inspect.signature(Trace.generate).parameters
    for argument in value:
        if argument not in known:
            raise InputError(f"{name}: `{key}.{argument}`: unknown key; expected one of {', '.join(known)}", file=name)
    arguments = dict(value)
    if "cdf" in arguments and (folder / arguments["cdf"]).is_file():
        arguments["cdf"] = folder / arguments["cdf"]
    generate = functools.partial(Trace.generate, **arguments)
    return generate() if "seed" in arguments else lambda seed: generate(seed=seed)


def _policy(folder: Path, policy: str) -> str:
    kind, _, file = policy.partition(":")
    return f"tree:{folder / file}" if kind == "tree" else policy


def _fabric(name: str, folder: Path, label: str, value: Any) -> object:
    if isinstance(value, str):
        return folder / value
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        raise _invalid(name, f"fabrics.{label}", f"{value!r}")
    parameters = {key.replace("-", "_"): part for key, part in value.items() if key != "kind"}
    try:
        return Fabric.template(value["kind"], **parameters)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name}: `fabrics.{label}`: {error}", file=name) from error


def _grid_values(name: str, folder: Path, key: str, values: Any) -> Any:
    if not isinstance(values, list) or not values:
        raise _invalid(name, f"grid.{key}", f"{values!r}")
    if key not in FILE_OPTIONS:
        return values
    return {file: folder / file for file in _texts(name, f"grid.{key}", values)}


def _seeds(name: str, value: Any) -> Any:
    if value is None or (isinstance(value, list) and all(type(seed) is int for seed in value)):
        return value
    first, dots, last = value.partition("..") if isinstance(value, str) else ("", "", "")
    if not (dots and first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise _invalid(name, "seeds", f"{value!r}")
    return range(int(first), int(last) + 1)
