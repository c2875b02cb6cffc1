"""The hot path: a ``push`` written for the columns of one source.

A row that is what rows hold already (a tuple with a str here and a float there, times in UTC) is
checked and appended by a few dozen byte codes, with no call but ``append``. A value that only has
to be brought into that form (an int for a DOUBLE, a time in another zone) is, on the way, and so is
a dict. Everything else, a value that does not fit, a full buffer, goes to ``slow``, which takes its
time, gives the same answer, and says what is wrong.

A signal may raise between the append and the wake-up; then the dispatcher is woken on the way
out. The interpreter enters and leaves the ``try`` for nothing.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timezone
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from millstream.errors import RowError, SchemaMismatchError
from millstream.model.clock import EPOCH
from millstream.model.zones import UTC_TIMES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.model.schema import Column, Schema
    from millstream.sources.inlet import Inlet

_CLASSES: Final = {
    "BOOLEAN": "bool",
    "TINYINT": "int",
    "SMALLINT": "int",
    "INTEGER": "int",
    "BIGINT": "int",
    "DOUBLE": "float",
    "VARCHAR": "str",
    "BINARY": "bytes",
    "DATE": "date",
}
# What must hold besides the class, in terms of a value {v}; True values may be appended as they
# are. A text that can be printed has no lone surrogate.
_EXTRA: Final = {
    "VARCHAR": "({v}.isascii() or {v}.isprintable())",
    "TINYINT": "-129 < {v} < 128",
    "SMALLINT": "-32769 < {v} < 32768",
    "INTEGER": "-2147483649 < {v} < 2147483648",
    "BIGINT": f"{-(2**63)} <= {{v}} <= {2**63 - 1}",
}
_SCOPE: Final[dict[str, Any]] = {
    "Any": Any,
    "EPOCH": EPOCH,
    "EPOCH_WITHOUT_ZONE": EPOCH.replace(tzinfo=None),
    "MISFITS": (SchemaMismatchError, ArithmeticError, TypeError, ValueError),
    "MOST": 2**53,  # up to here all ints are floats
    "RowError": RowError,
    "UTC": UTC,
    "ZoneInfo": ZoneInfo,
    "date": date,
    "datetime": datetime,
    "fixed": UTC_TIMES.fixed.get,
    "in_utc": UTC_TIMES.of,
    "stretch": UTC_TIMES.stretches.get,
    "timezone": timezone,
}

_SOURCE: Final = """\
def make(items, append, wakeup, limit, slow, full, converters):
    def push(row: Any) -> None:
        if type(row) is not tuple:
            if type(row) is dict and len(row) == {count}:
                try:
                    row = ({keys},)
                except KeyError:
                    return slow(row)
            else:
                convert = converters.get(type(row))
                if convert is None:
                    return slow(row)
                try:
                    row = convert(row)
                except RowError:  # it is no row, or one of columns that were added since
                    return slow(row)
        try:
            {names}, = row
        except ValueError:
            return slow(row)
        is_new = False
{fits}
        if is_new:
            row = ({names},)
        if len(items) >= limit:
            return full(row)
        try:
            append(row)
            if wakeup.asleep:
                wakeup.wake()
        except BaseException:
            wakeup.wake()
            raise
    def set_limit(value):
        nonlocal limit
        limit = value
    return push, set_limit
"""
# For one column: a value that is not yet in the form that rows hold is brought into it.
_FIT: Final = """\
        if {misfit}:
            {present}
            try:
                {v} = check{v}({v})
            except MISFITS:
                return slow(row)
            is_new = True
"""
_FIT_DOUBLE: Final = """\
        if type({v}) is not float{absent}:
            {present}
            try:
                {v} = float({v}) if type({v}) is int and -MOST <= {v} <= MOST else check{v}({v})
            except MISFITS:
                return slow(row)
            is_new = True
"""
# Differences of times are several times as fast as replace() and astimezone(); see ``zones``.
_FIT_TIMESTAMP: Final = """\
        if type({v}) is datetime:
            zone = {v}.tzinfo
            if zone is not UTC:
                try:
                    if zone is None:
                        {v} = EPOCH + ({v} - EPOCH_WITHOUT_ZONE)
                    elif type(zone) is timezone and (known := fixed(zone)) is not None:
                        {v} = known[1] + ({v} - known[0])
                    elif (
                        type(zone) is ZoneInfo
                        and (known := stretch(zone)) is not None
                        and known[0] <= {v} < known[1]
                        and not {v}.fold
                    ):
                        {v} = known[2] + ({v} - known[0])
                    else:
                        {v} = in_utc({v})
                except MISFITS:
                    return slow(row)
                is_new = True
        elif {v} is None:
            {null}
        else:
            try:
                {v} = check{v}({v})
            except MISFITS:
                return slow(row)
            is_new = True
"""
_FITS: Final = {"DOUBLE": _FIT_DOUBLE, "TIMESTAMP": _FIT_TIMESTAMP}


_DOC: Final = """\
Push one row to {name}: a tuple {tuple}, or a dict, a named tuple or a dataclass with these names.

{columns}

The row is checked now, by this thread: one that does not fit raises RowError, and nothing is
taken. {full}
It never waits for a subscriber. {safe}

Raises:
    RowError: a value that does not fit; it names the column.
    ClosedError: the source, this handle or the database is closed.
    SourceFullError: the buffer is full, and the policy is 'reject'.
    LogError: the log takes nothing, and the buffer is full.
"""
_WHEN_FULL: Final = {
    "block": "When the buffer is full, it waits for room.",
    "drop_oldest": "When the buffer is full, the oldest rows in it are dropped, and counted.",
    "reject": "When the buffer is full, it raises SourceFullError.",
}
_WHEN_ASYNC: Final = "The row is in the log within milliseconds; flush() waits for that."
_WHEN_SYNC: Final = "It returns when the row is on the disk."


def make_push(
    inlet: Inlet,
    slow: Callable[[Any], None],
    full: Callable[[Any], None],
    converters: Mapping[type, Callable[[Any], tuple[Any, ...]]],
) -> tuple[Callable[[Any], None], Callable[[int], None]]:
    """A ``push`` for an inlet, and a way to change the number of items at which it looks closer.

    Args:
        inlet: where rows go.
        slow: takes what is not obviously a row of the schema.
        full: takes a row that fits when the buffer has as many items as the limit.
        converters: make tuples of rows of other classes, those that ``slow`` has seen.
    """
    made: tuple[Callable[[Any], None], Callable[[int], None]] = _factory(inlet.schema)(
        inlet.items, inlet.items.append, inlet.wakeup, inlet.limit, slow, full, converters
    )
    explain(made[0], inlet)
    return made


def explain(push: Callable[[Any], None], inlet: Inlet) -> None:
    """Let ``help(source.push)`` say what a row of this source is, and what the push does."""
    schema = inlet.schema
    columns = "\n".join(f"    {column.ddl}" for column in schema.columns)
    push.__qualname__ = "Source.push"
    push.__module__ = "millstream.sources.source"
    push.__doc__ = _DOC.format(
        name=inlet.name,
        tuple=f"({', '.join(schema.names)}{',' if len(schema.names) == 1 else ''})",
        columns=columns,
        full=_WHEN_FULL[inlet.policy],
        safe=_WHEN_SYNC if inlet.sync else _WHEN_ASYNC,
    )


@lru_cache(maxsize=256)
def _factory(schema: Schema) -> Callable[..., Any]:
    columns = [(f"v{place}", column) for place, column in enumerate(schema.columns)]
    scope = _SCOPE | {f"check{name}": column.check for name, column in columns}
    text = _SOURCE.format(
        count=len(columns),
        names=", ".join(name for name, _ in columns),
        keys=", ".join(f"row[{column.name!r}]" for _, column in columns),
        fits="".join(_fit(column, name) for name, column in columns),
    )
    exec(compile(text, f"<push for {len(columns)} columns>", "exec"), scope)  # noqa: S102
    factory: Callable[..., Any] = scope["make"]
    return factory


def _fit(column: Column, name: str) -> str:
    """Statements that bring a value into the form that rows hold, or leave the row to ``slow``."""
    kind = column.type.sql if column.length is None else column.declared
    known = _CLASSES.get(kind)
    # Of DECIMAL, INTERVAL, REAL and nested types only NULL is obvious.
    misfit = "True" if known is None else f"type({name}) is not {known}"
    if kind in _EXTRA:
        misfit += f" or not {_EXTRA[kind].format(v=name)}"
    return _FITS.get(kind, _FIT).format(
        v=name,
        misfit=f"({misfit}) and {name} is not None" if column.nullable else misfit,
        absent=f" and {name} is not None" if column.nullable else "",
        present="" if column.nullable else f"if {name} is None: return slow(row)",
        null="pass" if column.nullable else "return slow(row)",
    )
