"""Optional packages."""

from __future__ import annotations

import importlib
from typing import Any


def load(module: str, user: str, extra: str | None = None) -> Any:
    """A module of an optional package, which ``user`` needs.

    :param extra: the extra of the distribution that has the package; without one, the package is installed by its own name.
    :raises ImportError: if it is not installed; the message states what to install.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        installed = f"'weir-network[{extra}]'" if extra else package
        raise ImportError(f"{user} needs {package}: {error}; help: pip install {installed}", name=error.name) from error
