"""Progress of replays: bars in terminals and notebooks."""

from __future__ import annotations

import contextlib
import html
import importlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TextIO

#: Receives the policies, the number of coflows that each of them has completed, and the number of all coflows.
OnProgress = Callable[[list[str], list[int], int], None]

#: What the argument ``progress`` of :func:`weir.compare` can be.
Progress = bool | OnProgress | None

#: The seconds of replays that show nothing, since they end soon.
DELAY = 0.3
#: The number of policies that have a bar each; more have one together.
MAX_BARS = 12
#: The characters of a bar.
BAR_WIDTH = 30


class Display(Protocol):
    """A place for bars, whose content is replaced."""

    def show(self, bars: list[tuple[str, float]]) -> None:
        """Shows bars: each has a name and a part between 0 and 1."""

    def clear(self) -> None:
        """Removes the bars."""


class Terminal:
    """Bars in the last lines of a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lines = 0
        try:
            "█░".encode(stream.encoding or "ascii")
            self._marks = "█░"
        except (LookupError, UnicodeEncodeError):
            self._marks = "#."

    def show(self, bars: list[tuple[str, float]]) -> None:
        size = _terminal_size(self._stream)
        names = max(8, min(max(len(name) for name, _ in bars), size.columns - BAR_WIDTH - 10))
        lines = [self._line(name, part, names)[: size.columns - 1] for name, part in bars[: size.lines - 1]]
        # The cursor moves up, and each line replaces the former one.
        up = f"\x1b[{self._lines}F" if self._lines else "\r"
        self._write(up + "".join(f"\x1b[2K{line}\n" for line in lines))
        self._lines = len(lines)

    def clear(self) -> None:
        if self._lines:
            self._write(f"\x1b[{self._lines}F\x1b[J")

    def _line(self, name: str, part: float, width: int) -> str:
        full = int(part * BAR_WIDTH)
        bar = self._marks[0] * full + self._marks[1] * (BAR_WIDTH - full)
        return f"{_shortened(name, width):<{width}}  {bar}  {int(100 * part):3d} %"

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class Notebook:
    """Bars in the output of a notebook's cell."""

    def __init__(self, display: Callable[..., Any], to_html: Callable[[str], Any]) -> None:
        self._display = display
        self._to_html = to_html
        self._handle: Any = None

    def show(self, bars: list[tuple[str, float]]) -> None:
        cell = "<tr><td style='text-align:left'>{}</td><td><progress value='{:.3f}'></progress></td><td>{} %</td></tr>"
        rows = "".join(cell.format(html.escape(_shortened(name, 80)), part, int(100 * part)) for name, part in bars)
        self._update(f"<table>{rows}</table>")

    def clear(self) -> None:
        if self._handle is not None:
            self._update("")

    def _update(self, text: str) -> None:
        content = self._to_html(text)
        if self._handle is None:
            self._handle = self._display(content, display_id=True)
        else:
            self._handle.update(content)


def _terminal_size(stream: TextIO) -> os.terminal_size:
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return os.terminal_size((80, 24))
    return size if size.columns > 0 and size.lines > 1 else os.terminal_size((80, 24))


def _shortened(name: str, width: int) -> str:
    return name if len(name) <= width else name[: width - 3] + "..."


def find_display() -> Display | None:
    """The notebook or the terminal of this program; none if no person watches."""
    # A program in a kernel has imported IPython already.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if getattr(shell, "kernel", None) is not None:
        module = importlib.import_module("IPython.display")
        return Notebook(module.display, module.HTML)
    if sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        return Terminal(sys.stderr)
    return None


class Bars:
    """Shows the progress of replays in a display, at most every 0.1 s."""

    def __init__(self, display: Display) -> None:
        self._display: Display | None = display
        self._next = time.monotonic() + DELAY

    def __call__(self, policies: list[str], completed: list[int], coflows: int) -> None:
        now = time.monotonic()
        if self._display is None or now < self._next or not policies:
            return
        self._next = now + 0.1
        parts = [min(count / max(coflows, 1), 1.0) for count in completed]
        bars = list(zip(policies, parts, strict=True))
        if len(bars) > MAX_BARS:
            finished = sum(part == 1.0 for part in parts)
            bars = [(f"{finished} of {len(bars)} policies", sum(parts) / len(parts))]
        self._try(lambda display: display.show(bars))

    def close(self) -> None:
        """Removes the bars."""
        self._try(lambda display: display.clear())

    def _try(self, action: Callable[[Display], None]) -> None:
        # A closed terminal does not end replays.
        if self._display is not None:
            try:
                action(self._display)
            except (OSError, ValueError):
                self._display = None


@contextlib.contextmanager
def watch(progress: Progress) -> Iterator[OnProgress | None]:
    """The function that receives the progress of replays, if there is one.

    :param progress: a function; whether to show bars; by default in terminals and notebooks.
    """
    if callable(progress):
        yield progress
        return
    display = None if progress is False else find_display()
    if display is None and progress:
        display = Terminal(sys.stderr)
    if display is None:
        yield None
        return
    bars = Bars(display)
    try:
        yield bars
    finally:
        bars.close()
