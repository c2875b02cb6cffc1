"""The hot path: a ``push`` written for the columns of one source.

A row of the usual classes (a tuple with a str here and a float there) is checked and appended by a
few dozen byte codes, with no call but ``append``. Everything else, a dict, an int for a DOUBLE, a
full buffer, goes to ``slow``, which takes its time and gives the same answer.

A signal may raise between the append and the wake-up; then the dispatcher is woken on the way
out. The interpreter enters and leaves the ``try`` for nothing.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.model.schema import Column, Schema
    from millstream.sources.inlet import Inlet

# What must hold besides the class, in terms of a value {v}; True values may be appended as they
# are. Numbers far from a type's ends suffice: comparing small ints is the fastest thing there is,
# and larger ones are only slower.
_EXTRA: Final = {
    "VARCHAR": "{v}.isascii()",
    "TINYINT": "-129 < {v} < 128",
    "SMALLINT": "-32769 < {v} < 32768",
    "INTEGER": "-1000000000 < {v} < 1000000000",
    "BIGINT": "-1000000000 < {v} < 1000000000",
    "TIMESTAMP": "{v}.tzinfo is UTC",
}
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
    "TIMESTAMP": "datetime",
}

_SOURCE: Final = """\
def make(items, append, wakeup, limit, slow, full):
    def push(row: Any) -> None:
        {shape}
        if {misfit}:
            return slow(row)
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

_SHAPE: Final = """\
if type(row) is not tuple:
            return slow(row)
        try:
            {names}, = row
        except ValueError:
            return slow(row)"""


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
    inlet: Inlet, slow: Callable[[Any], None], full: Callable[[Any], None]
) -> tuple[Callable[[Any], None], Callable[[int], None]]:
    """A ``push`` for an inlet, and a way to change the number of items at which it looks closer.

    Args:
        inlet: where rows go.
        slow: takes what is not obviously a row of the schema.
        full: takes a row that fits when the buffer has as many items as the limit.
    """
    made: tuple[Callable[[Any], None], Callable[[int], None]] = _factory(inlet.schema)(
        inlet.items, inlet.items.append, inlet.wakeup, inlet.limit, slow, full
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
    names = [f"v{place}" for place in range(len(schema.columns))]
    misfits = [_misfit(column, name) for column, name in zip(schema.columns, names, strict=True)]
    text = _SOURCE.format(
        shape=_SHAPE.format(names=", ".join(names)), misfit=" or ".join(misfits) or "False"
    )
    scope: dict[str, Any] = {
        "Any": Any,
        "UTC": UTC,
        "date": date,
        "datetime": datetime,
        "timedelta": timedelta,
    }
    exec(compile(text, f"<push for {len(names)} columns>", "exec"), scope)  # noqa: S102
    factory: Callable[..., Any] = scope["make"]
    return factory


def _misfit(column: Column, name: str) -> str:
    """When a value is not obviously one of a column, as an expression."""
    kind = column.type.sql
    known = _CLASSES.get(kind)
    if known is None:  # DECIMAL, INTERVAL, REAL, nested types: only NULL is obvious
        return "True" if not column.nullable else f"{name} is not None"
    misfit = f"type({name}) is not {known}"
    if kind in _EXTRA:
        misfit += f" or not {_EXTRA[kind].format(v=name)}"
    return f"({misfit}) and {name} is not None" if column.nullable else misfit
