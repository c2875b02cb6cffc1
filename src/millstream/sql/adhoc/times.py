"""Windows over event time: TUMBLE, HOP, CUMULATE and SESSION, in microseconds since 1970."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from millstream.model.types import INTERVAL, TIMESTAMP
from millstream.sql.expressions.nodes import Literal, Node

if TYPE_CHECKING:
    from sqlglot import exp

    from millstream.sql.adhoc.binder import RowBinder

_COUNTS = {"TUMBLE": (1, 2), "HOP": (2, 3), "CUMULATE": (2, 3), "SESSION": (1, 1)}
_FORMS = {
    "TUMBLE": "TUMBLE(ts, INTERVAL '1 minute')",
    "HOP": "HOP(ts, INTERVAL '10 seconds', INTERVAL '1 minute'): first the step, then the size",
    "CUMULATE": "CUMULATE(ts, INTERVAL '1 hour', INTERVAL '1 day'): first the step, then the size",
    "SESSION": "SESSION(ts, INTERVAL '5 minutes')",
}
_MICROSECOND = timedelta(microseconds=1)
_MOST_WINDOWS = 10_000


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """A window over event time.

    Attributes:
        kind: its name.
        time: the TIMESTAMP that it looks at.
        size: how long a window is; of a session, the gap that ends it.
        slide: from one start to the next; of CUMULATE, the step.
        offset: where windows begin, counted from 1970 UTC.
    """

    kind: str
    time: Node
    size: int
    slide: int
    offset: int = 0

    def start(self, micros: str) -> str:
        """Return the start of the last window that begins at a time or before."""
        step = self.size if self.kind == "CUMULATE" else self.slide
        return _floor(micros, step, self.offset)

    def places(self, micros: str) -> str:
        """Return the list of the starts, of CUMULATE the ends, of the windows that a time is in."""
        if self.kind == "CUMULATE":
            first = _floor(micros, self.slide, self.offset)
            last = f"{self.start(micros)} + {self.size}"
        else:
            first, last = self.start(f"({micros} - {self.size})"), self.start(micros)
        return f"range({first} + {self.slide}, {last} + 1, {self.slide})"


def _floor(micros: str, step: int, offset: int) -> str:
    # The sign of % is that of the dividend: before 1970 it takes a step to be above zero.
    past = f"((({micros} - {offset % step}) % {step} + {step}) % {step})"
    return f"({micros} - {past})"


def bind_window(rows: RowBinder, tree: exp.Anonymous) -> TimeWindow:
    """Return the window of TUMBLE and its kin."""
    kind = tree.name.upper()
    least, most = _COUNTS[kind]
    args = tree.expressions
    if not least <= len(args) - 1 <= most:
        rows.mismatch(tree, f"{kind} has {len(args)} arguments", f"Write {_FORMS[kind]}.")
    time = rows.coerce(args[0], rows.bind(args[0]), TIMESTAMP)
    lengths = [_micros(rows, each) for each in args[1:]]
    offset = lengths.pop() if len(lengths) > least else 0
    slide, size = lengths[0], lengths[-1]
    _check(rows, tree, kind, slide, size)
    return TimeWindow(kind, time, size, slide, offset)


def _check(rows: RowBinder, tree: exp.Expr, kind: str, slide: int, size: int) -> None:
    if slide <= 0 or size <= 0:
        rows.refuse(tree, "a window is longer than nothing", f"Write {_FORMS[kind]}.")
    if slide > size:
        rows.refuse(tree, "the step is longer than the window", f"Write {_FORMS[kind]}.")
    if size // slide > _MOST_WINDOWS:
        message = f"a row would be in more than {_MOST_WINDOWS} windows"
        rows.refuse(tree, message, "Make the step longer.")
    if kind == "CUMULATE" and size % slide:
        rows.refuse(tree, "the window is not a multiple of the step", f"Write {_FORMS[kind]}.")


def _micros(rows: RowBinder, tree: exp.Expr) -> int:
    node: Any = rows.bind(tree)
    if not isinstance(node, Literal) or node.type != INTERVAL or node.value is None:
        rows.mismatch(tree, "a window needs a known length", "Write INTERVAL '1 minute'.")
    return int(node.value // _MICROSECOND)
