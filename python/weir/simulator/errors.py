"""Exceptions of the simulator."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .result import Result


class Interrupted(KeyboardInterrupt):
    """Ctrl-C stopped a comparison. ``result`` has the policies that had finished; ``None`` if none had."""

    def __init__(self, result: Result | None) -> None:
        missing = "" if result is None else f"; without results: {', '.join(result.missing)}"
        super().__init__(f"interrupted{missing}")
        self.result = result
