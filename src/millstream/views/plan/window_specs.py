"""Windows: TUMBLE, HOP, CUMULATE and SESSION of a GROUP BY."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from sqlglot import exp

from millstream.errors import Error
from millstream.model.clock import MICROSECOND
from millstream.sql.statements.durations import parse_duration
from millstream.views.plan.plan import Window
from millstream.views.plan.trees import call, column, moved, number
from millstream.views.plan.trees import cast as cast_to

if TYPE_CHECKING:
    from millstream.views.plan.errors import ErrorReporter
    from millstream.views.plan.plan import WindowKind

_SHAPES = {
    "TUMBLE": (1, "TUMBLE(ts, INTERVAL '1 minute')"),
    "HOP": (2, "HOP(ts, INTERVAL '10 seconds', INTERVAL '1 minute')"),
    "CUMULATE": (2, "CUMULATE(ts, INTERVAL '1 minute', INTERVAL '1 hour')"),
    "SESSION": (1, "SESSION(ts, INTERVAL '5 minutes')"),
}
"""How many intervals each window has, without the offset, and how to write it."""

BOUNDS = {
    **{f"{kind}_{side}": side for kind in _SHAPES for side in ("START", "END")},
    "WINDOW_START": "START",
    "WINDOW_END": "END",
}
"""The functions that give the bounds of a window."""


def is_window(tree: exp.Expr) -> bool:
    """Whether a tree is one of the windows that GROUP BY may have."""
    return isinstance(tree, exp.Anonymous) and str(tree.this).upper() in _SHAPES


def is_bound(tree: exp.Expr) -> bool:
    """Whether a tree is the start or the end of a window."""
    return isinstance(tree, exp.Anonymous) and str(tree.this).upper() in BOUNDS


def as_window(tree: exp.Expr) -> exp.Expr:
    """Return the window of a bound that says all of it, as in GROUP BY TUMBLE_START(ts, ...)."""
    kind = str(tree.this).upper().removesuffix(f"_{BOUNDS[str(tree.this).upper()]}")
    if kind not in _SHAPES or len(tree.expressions) <= _SHAPES[kind][0]:
        return tree
    return moved(call(kind, *tree.expressions), tree)


def window_over(tree: exp.Expr, errors: ErrorReporter) -> Window:
    """Return the window over any expression that a tree says.

    Raises:
        SqlUnsupportedError: its lengths do not fit.
    """
    kind = str(tree.this).upper()
    count, shape = _SHAPES[kind]
    hint = f"Write {shape}."
    args = tree.expressions[1:]
    if not count <= len(args) <= count + (kind != "SESSION"):
        errors.refuse(tree, f"{kind} has too few or too many arguments", hint)
    window = _made(kind, [_microseconds(each, errors, hint) for each in args])
    _check(window, tree, errors, hint)
    return window


def _made(kind: str, lengths: list[int]) -> Window:
    count = _SHAPES[kind][0]
    size, slide = lengths[count - 1], lengths[0]
    offset = lengths[count] % slide if len(lengths) > count and slide > 0 else 0
    if kind == "CUMULATE" and len(lengths) > count and size > 0:
        offset = lengths[count] % size
    return Window(cast("WindowKind", kind.lower()), "", size, slide, offset)


def _check(window: Window, tree: exp.Expr, errors: ErrorReporter, hint: str) -> None:
    if window.size <= 0 or window.slide <= 0:
        errors.refuse(tree, "the length of a window must be more than nothing", hint)
    if window.slide > window.size:
        why = "a HOP longer than its window" if window.kind == "hop" else "a step above the size"
        errors.refuse(tree, f"{why} would leave rows out", "Write the shorter interval first.")
    if window.kind == "cumulate" and window.size % window.slide:
        hint = "Make the size a multiple of the step."
        errors.refuse(tree, "CUMULATE needs whole steps", hint)


def _microseconds(tree: exp.Expr, errors: ErrorReporter, hint: str) -> int:
    if isinstance(tree, exp.Paren):
        return _microseconds(tree.this, errors, hint)
    if isinstance(tree, exp.Neg):
        return -_microseconds(tree.this, errors, hint)
    if isinstance(tree, exp.Add):
        sides = (tree.this, tree.expression)
        return sum(_microseconds(side, errors, hint) for side in sides)
    if not isinstance(tree, exp.Interval) or not isinstance(tree.this, exp.Literal):
        errors.refuse(tree, "the length of a window is written as an INTERVAL", hint)
    unit = tree.args.get("unit")
    if unit is not None and not isinstance(unit, exp.Var):
        errors.refuse(tree, "the length of a window has one unit", hint)
    try:
        return parse_duration(f"{tree.this.this} {unit.name if unit else ''}") // MICROSECOND
    except Error as error:
        errors.refuse(tree, error.message, error.hint)


# --- What Spark computes --------------------------------------------------------------------------


def tumbled_start(time: exp.Expr, window: Window) -> exp.Expr:
    """Return the start, in microseconds, of the window of a TUMBLE that a time is in."""
    moment = call("unix_micros", time)
    into = call("pmod", _plus(moment, -window.offset), _bigint(window.size))
    return exp.Sub(this=moment, expression=into)


def tumbled_end(start: exp.Expr, window: Window) -> exp.Expr:
    """Return the end of the window of a TUMBLE that has a start, both in microseconds."""
    return _plus(start, window.size)


def hopping_ends(time: exp.Expr, window: Window) -> exp.Expr:
    """Return the ends, in microseconds, of all windows of a HOP that a time is in."""
    slide, moment = _bigint(window.slide), call("unix_micros", time)
    past_end = call("pmod", _plus(moment, -window.offset - window.size), slide)
    past_start = call("pmod", _plus(moment, -window.offset), slide.copy())
    first = _plus(exp.Sub(this=moment.copy(), expression=past_end), window.slide)
    last = _plus(exp.Sub(this=moment.copy(), expression=past_start), window.size)
    return call("explode", call("sequence", first, last, slide.copy()))


def hopping_start(end: str, window: Window) -> exp.Expr:
    """Return the start of the window of a HOP whose end, in microseconds, is a column."""
    return call("timestamp_micros", _plus(column(end), -window.size))


def cumulated_ends(time: exp.Expr, window: Window) -> exp.Expr:
    """Return the ends, in microseconds, of all windows of a CUMULATE that a time is in."""
    size, step = _bigint(window.size), _bigint(window.slide)
    moment = call("unix_micros", time)
    since = _plus(moment, -window.offset)
    # What is left of the step, or of the size, after the moment.
    ends = [
        exp.Add(
            this=exp.Sub(this=moment.copy(), expression=call("pmod", since, length)),
            expression=length.copy(),
        )
        for length in (step, size)
    ]
    return call("explode", call("sequence", *ends, step))


def cumulated_start(end: str, window: Window) -> exp.Expr:
    """Return the start of the window of a CUMULATE whose end, in microseconds, is a column."""
    last = _plus(column(end), -1)
    into = call("pmod", _plus(last, -window.offset), _bigint(window.size))
    return call("timestamp_micros", exp.Sub(this=last, expression=into))


def _bigint(value: int) -> exp.Expr:
    return cast_to(number(value), "BIGINT")


def _plus(tree: exp.Expr, value: int) -> exp.Expr:
    if not value:
        return tree.copy()
    side = exp.Add if value > 0 else exp.Sub
    return side(this=tree.copy(), expression=number(abs(value)))
