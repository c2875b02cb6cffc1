"""The options of CREATE ... WITH (...): which there are, and what they may be."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from millstream.errors import InvalidOptionError, SqlOptionError
from millstream.log import Retention
from millstream.sql import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.model.schema import Schema
    from millstream.sql import Option

_UNITS: Final = {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}
FOREVER: Final = timedelta(days=365_000_000)
"""The retention of what is kept whatever its age."""
_MOST_PARTITIONS: Final = 64
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?i?b)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Options:
    """How a source, a table or a view behaves.

    Attributes:
        buffer_size: how many rows may wait for the dispatcher.
        backpressure: what a push does when there is no room: block, drop_oldest or reject.
        wal_mode: async: a push returns at once; sync: when its row is on the disk.
        retention: for how long rows are kept, of a table or a view its history; None for ever.
        retention_bytes: how much is kept; None for all.
        tenant: the column that says whose a row is, or None.
        idle_timeout: of a source with event time: after so long without a row, its watermark goes
            on by the clock; None: it waits for rows.
        start: of a view: the rows it begins with, all that are kept or those that come.
        partitions: of a view: over how many queries, with disjoint keys, it is split.
    """

    buffer_size: int = 65536
    backpressure: Literal["block", "drop_oldest", "reject"] = "block"
    wal_mode: Literal["async", "sync"] = "async"
    retention: timedelta | None = None
    retention_bytes: int | None = None
    tenant: str | None = None
    idle_timeout: timedelta | None = None
    start: Literal["earliest", "now"] = "earliest"
    partitions: int = 1

    @property
    def kept(self) -> Retention:
        """How much of the log is kept."""
        return Retention(max_age=self.retention, max_bytes=self.retention_bytes)


def _count(value: object) -> int:
    if type(value) is int and value > 0:
        return value
    raise ValueError("a number of rows, such as 65536")


def _partitions(value: object) -> int:
    if type(value) is int and 0 < value <= _MOST_PARTITIONS:
        return value
    raise ValueError(f"a number from 1 to {_MOST_PARTITIONS}")


def _one_of(*words: str) -> Callable[[object], str]:
    def check(value: object) -> str:
        if isinstance(value, str) and value.lower() in words:
            return value.lower()
        raise ValueError("one of " + ", ".join(f"'{word}'" for word in words))

    return check


def _duration(value: object) -> timedelta:
    try:
        duration = parse_duration(value) if isinstance(value, str) else timedelta(0)
    except InvalidOptionError:
        duration = timedelta(0)
    if duration > timedelta(0):
        return duration
    raise ValueError("a time, such as '7 days'")


def _retention(value: object) -> timedelta:
    if isinstance(value, str) and value.strip().lower() == "forever":
        return FOREVER
    try:
        return _duration(value)
    except ValueError:
        raise ValueError("a time, such as '7 days', or 'forever'") from None


def parse_size(value: object) -> int:
    """A number of bytes: one, or a text such as ``10 GB``; ValueError says what it should be."""
    if type(value) is int and value > 0:
        return value
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    size = 0
    if found is not None:
        size = int(float(found[1]) * _UNITS[found[2].lower().replace("i", "")])
    if size > 0:
        return size
    raise ValueError("a size, such as '10 GB'")


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError("the name of a column")


_CHECKS: Final[dict[str, Callable[[object], Any]]] = {
    "buffer_size": _count,
    "backpressure": _one_of("block", "drop_oldest", "reject"),
    "wal_mode": _one_of("async", "sync"),
    "retention": _retention,
    "retention_bytes": parse_size,
    "tenant": _text,
    "idle_timeout": _duration,
    "start": _one_of("earliest", "now"),
    "partitions": _partitions,
}
_KNOWN: Final = {
    "source": tuple(name for name in _CHECKS if name not in {"start", "partitions"}),
    "table": ("retention", "retention_bytes", "tenant", "wal_mode"),
    "view": ("partitions", "retention", "retention_bytes", "start", "tenant"),
}


def names_of(kind: str) -> tuple[str, ...]:
    """The names of the options that the database itself has for a source, a table or a view."""
    return _KNOWN[kind]


def options_of(
    given: Mapping[str, Option],
    schema: Schema,
    sql: str,
    kind: Literal["source", "table", "view"] = "source",
) -> Options:
    """The options that a statement gives, checked; the others have their default.

    Raises:
        SqlOptionError: an option that there is not, or with a value that it cannot have.
    """
    known = _KNOWN[kind]
    values: dict[str, Any] = {}
    for name, option in given.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            did = f"did you mean {near[0]}? " if near else ""
            named = replace(option, line=option.name_at[0], column=option.name_at[1])
            hint = f"{did}available: {', '.join(known)}"
            raise _refused(f"there is no option {name}", named, sql, hint)
        try:
            values[name] = _CHECKS[name](option.value)
        except ValueError as error:
            raise _refused(f"{name} is {option.value!r}", option, sql, str(error)) from None
    _check_tenant(values, given, schema, sql, kind)
    options = Options(**values)
    if options.wal_mode == "sync" and options.backpressure == "drop_oldest":
        raise _refused(
            "a source that drops rows cannot promise that they are on the disk",
            given["backpressure"],
            sql,
            "use wal_mode = 'async', or backpressure = 'block'",
        )
    return options


def _check_tenant(
    values: dict[str, Any], given: Mapping[str, Option], schema: Schema, sql: str, kind: str
) -> None:
    tenant = values.get("tenant")
    if tenant is None:
        return
    columns = {column.name.lower(): column for column in schema.columns}
    column = columns.get(tenant.lower())
    nullable = column is not None and column.nullable and kind != "view"
    if column is None or nullable or column.type.sql != "VARCHAR":
        raise _refused(
            f"{tenant} cannot be the tenant column",
            given["tenant"],
            sql,
            "name a column that is VARCHAR NOT NULL",
        )
    if kind == "table" and column.name not in schema.key:
        # A key that is taken is an error, which would tell one tenant what keys another one has.
        raise _refused(
            f"the primary key does not have the tenant column {column.name}",
            given["tenant"],
            sql,
            f"write PRIMARY KEY ({', '.join((column.name, *schema.key))}): each tenant has keys of "
            "its own",
        )
    values["tenant"] = column.name


def _refused(message: str, option: Option, sql: str, hint: str) -> SqlOptionError:
    return SqlOptionError(message, sql=sql, line=option.line, column=option.column, hint=hint)
