"""SHOW, DESCRIBE, and the words of channels: LISTEN, UNLISTEN, NOTIFY."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from millstream.sql.statements.cursor import did_you_mean
from millstream.sql.statements.moments import read_moment
from millstream.sql.statements.statement import (
    Describe,
    Listen,
    Notify,
    Show,
    ShowChanges,
    ShowCreate,
    Unlisten,
)

if TYPE_CHECKING:
    from millstream.sql.statements.reader import StatementReader
    from millstream.sql.statements.statement import DropKind, ShowKind

_KINDS = (
    *("SOURCES", "TABLES", "SUBSCRIPTIONS", "VIEWS", "STREAMS", "SINKS", "CONNECTORS", "CHANNELS"),
)
_OBJECTS = ("SOURCE", "TABLE", "VIEW", "STREAM", "SINK")
_SINCE = "Write SINCE 42, SINCE TIMESTAMP '2026-01-01 00:00:00' or SINCE INTERVAL '5 minutes' AGO."


def read_show(reader: StatementReader) -> Show | ShowChanges | ShowCreate:
    """Read what follows SHOW."""
    if reader.skip("CHANGES"):
        return _read_changes(reader)
    if reader.skip("CREATE"):
        kind, name = _read_object(reader)
        return ShowCreate(name=name, kind=kind)
    if reader.word == "MATERIALIZED" and reader.word_after == "VIEWS":
        reader.skip("MATERIALIZED")
    shown = reader.skip_any(*_KINDS)
    if not shown:
        choices = (*_KINDS, "CHANGES", "CREATE")
        otherwise = f"Write one of {', '.join(choices)}."
        raise reader.expected("what to show", hint=did_you_mean(reader.word, choices, otherwise))
    like = reader.string("a pattern") if reader.skip("LIKE") else None
    return Show(kind=cast("ShowKind", shown.lower()), like=like)


def read_describe(reader: StatementReader) -> Describe:
    """Read what follows DESCRIBE or DESC."""
    kind, name = _read_object(reader)
    return Describe(name=name, kind=kind)


def read_listen(reader: StatementReader) -> Listen:
    """Read what follows LISTEN."""
    return Listen(channel=reader.name("channel"))


def read_unlisten(reader: StatementReader) -> Unlisten:
    """Read what follows UNLISTEN."""
    return Unlisten(channel=None if reader.skip("*") else reader.name("channel"))


def read_notify(reader: StatementReader) -> Notify:
    """Read what follows NOTIFY."""
    channel = reader.name("channel")
    payload = reader.string("the payload") if reader.skip(",") else ""
    return Notify(channel=channel, payload=payload)


def _read_object(reader: StatementReader) -> tuple[DropKind | None, str]:
    if reader.word == "MATERIALIZED" and reader.word_after == "VIEW":
        reader.skip("MATERIALIZED")
    # A lone word is a name, even that of a kind: DESCRIBE source.
    kind = "" if reader.is_last else reader.skip_any(*_OBJECTS)
    name = reader.name(kind.lower() or "source or table")
    return cast("DropKind | None", kind.lower() or None), name


def _read_changes(reader: StatementReader) -> ShowChanges:
    collection = reader.name("source or table") if reader.skip("FOR") else None
    since = read_moment(reader, "SINCE", _SINCE) if reader.skip("SINCE") else None
    limit = reader.integer("the number of changes") if reader.skip("LIMIT") else None
    return ShowChanges(collection=collection, since=since, limit=limit)
